"""Messages of the command line: what its parser does not accept, with similar names, and errors that users can correct."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytorch_lightning.callbacks
import pytorch_lightning.loggers
import torch
import yaml
from jsonargparse import ArgumentParser
from lightning_fabric.utilities.exceptions import MisconfigurationException

import callbacks
import datamodules
from zoo.methods.epoch_averages import DivergedError
from zoo.methods.target_data import ReleaseMismatchError
from zoo.runs.import_policy import DENIED
from zoo.runs.processes import LostProcessError
from zoo.runs.trackers import TrackerError, refused_by_wandb
from zoo.runtime import plugins
from zoo.runtime.exports import METHODS, PERTURBATIONS, PUBLISHERS
from zoo.runtime.run_folder import flat, refusal
from zoo.runtime.suggestions import suggest

#: Errors that end a command with their message alone.
EXPECTED = (
    OSError, TypeError, ValueError, MisconfigurationException,
    DivergedError, LostProcessError, ReleaseMismatchError, TrackerError,
)  # fmt: skip
_UNKNOWN = re.compile(r"(?:unrecognized arguments: (?:--)?|Option ')([^\s'=]+)")
_UNKNOWN_CLASS = re.compile(r"(?:dot import path string: |has no attribute ')([^\s'=]+)")
_NUMBER = re.compile(r"Expected a <class '(?:float|int)'>")
_CLASS = re.compile(r"Problem with given class_path '([^']+)'")
_LISTED = re.compile(r"^( *)- Problem with given class_path", re.MULTILINE)
#: Lines in which the parser recounts its attempts.
_ATTEMPTS = re.compile(
    r"Parser key|Problem with|Does not validate|Subtypes:|Errors:|Given value|Expected a (?:path but|dot import)|.*NoneType'>$"
)


def parser_message(message: str, parser: ArgumentParser) -> str:
    """Return what a parser cannot accept, with similar names, in three lines at most."""
    command = parser.prog.replace(" [options]", "")
    lines = [line.strip() for line in _message(message, parser).split("\n") if line.strip()]
    return "\n".join([*lines[:2], f"Options: {command} --help-all; names: python -m zoo list"])


def _message(message: str, parser: ArgumentParser) -> str:
    message = _first_class(message)
    keys = re.findall(r'Parser key "([^"]+)":', message)
    option, unknown, made = f"--{'.'.join(keys)}" if keys else "", _UNKNOWN.search(message), _CLASS.findall(message)
    own = [name for action in parser._actions for name in action.option_strings]
    if denied := DENIED.search(message):
        return f"{option}: the file names {denied[1]}, a class that is not imported. Pass the --config of the run."
    if unknown is not None and not keys:
        given = message.split("unrecognized arguments: ")[-1]
        return f"unknown option {given}.{suggest('--' + unknown[1], [*own, *_options_of_classes()])}"
    if (bare := _before_its_class(message, option)) and f"{option}.help" in own:
        return f"{bare} comes before its class. Give one first: {option} NAME."
    if part := re.match(r"argument (--\w+): expected one argument", message):
        asked = next((given for given in parser.args if re.match(rf"{part[1]}\.[\w.]+\.help$", given)), None)
        if asked is not None:
            return f"{asked} needs the class of {part[1]}. Write: {part[1]}.help NAME {asked}"
    if unknown is not None and made:
        name, arguments = made[-1].rsplit(".", 1)[-1], _arguments(made[-1])
        listed = f"{option}.help {name}" if f"{option}.help" in own else ", ".join(arguments)
        near = suggest(unknown[1], arguments) or f"\nIts arguments: {listed}"
        return f"{option}.{unknown[1]}: {name} has no argument {unknown[1]!r}.{near}"
    if (unknown := _UNKNOWN_CLASS.search(message)) is not None and not _NUMBER.search(message):
        return f"{option}: unknown class {unknown[1]!r}.{suggest(unknown[1], _classes())}"
    return _library_message(message, option)


def _before_its_class(message: str, option: str) -> str:
    """Return the option that sets an argument of a part without a class; "" if the part has one."""
    base = re.search(r"Subtypes: \[(?:list\[[\w.]+\], )?<class '[\w.]+?\.(\w+)'>", message)
    given = re.search(rf"class_path '[\w.]+\.{base[1]}':\s+Option '([\w.]+)'", message) if base is not None else None
    given = given or re.search(r"but [\w.]+ is abstract.*Given value: NestedArg\(key='([\w.]+)'", message, re.DOTALL)
    return f"{option}.{given[1]}" if given is not None else ""


def _first_class(message: str) -> str:
    """Return a message up to the second class of a list, which names the same argument again."""
    at = 0
    while (found := _LISTED.search(message, at)) is not None:
        other = message.find(f"\n{found[0]}", found.end())
        message, at = message[: other if other >= 0 else None], found.end()
    return message


def _library_message(message: str, option: str) -> str:
    """Return the library's message without its attempts, with the value and, for a choice, similar ones."""
    lines = [line for line in (part.strip(" -") for part in message.split("\n")) if line and not _ATTEMPTS.match(line)]
    text = "; ".join(dict.fromkeys(lines)) or re.sub(r"Parser key .*?: *", "", message)
    text = re.sub(r"\ba (?=<|typing)|<class '([\w.]+)'>|typing\.|Got value: .*", r"\1", text).strip().rstrip(".")
    if option and (missing := re.search(r"arguments are required: ([\w, ]+)", text)) is not None:
        return (
            f"the following arguments are required: {', '.join(f'{option}.{name}' for name in missing[1].split(', '))}."
        )
    if (value := re.search(r"(?:Got|Given) value: (.*)", message)) is not None:
        near = suggest(value[1], re.findall(r"'([^']+)'", text)) if "Literal" in text else ""
        return f"{option} is {value[1]}. {text}.{near}"
    return f"{option}: {text}." if option else re.sub(r"required: (\w+\.(?=\w))?", "required: --", f"{text}.")


def _options_of_classes() -> list[str]:
    """Return the options that our methods, publishers and datamodules have, as the command line writes them."""
    classes = [("model", f"zoo.{name}") for name in METHODS] + [("publisher", f"zoo.{name}") for name in PUBLISHERS]
    classes += [("data", f"datamodules.{name}") for name in datamodules.__all__]
    return list(dict.fromkeys(f"--{part}.{name}" for part, path in classes for name in _arguments(path)))


def _classes() -> list[str]:
    brought = (name for kind in plugins.GROUPS for name in plugins.brought(kind))
    ours = (*METHODS, *PUBLISHERS, *PERTURBATIONS, *datamodules.__all__, *callbacks.__all__)
    return [
        *ours,
        *pytorch_lightning.callbacks.__all__,
        *pytorch_lightning.loggers.__all__,
        *torch.optim.__all__,
        *brought,
    ]


def _arguments(path: str) -> list[str]:
    """Return the arguments of a class, as a parser has them: fields of settings with dots."""
    parser = ArgumentParser(exit_on_error=False)
    try:
        parser.add_class_arguments(resolve_name(path), fail_untyped=False)
    except (ImportError, AttributeError, ValueError):
        return []
    return [action.dest for action in parser._actions if not action.dest.endswith("help")]


def error_message(error: Exception) -> str:
    """Return the message of an error that users can correct; "" for a bug of the zoo, which has a traceback."""
    if message := refused_by_wandb(error, "the logger"):
        return message
    return refusal(error) if isinstance(error, EXPECTED) else metric_message(str(error)) or memory_message(error)


def metric_message(message: str) -> str:
    """Return the message for Lightning's error about a callback whose metric is not logged; "" for other messages."""
    found = re.match(r"Early stopping conditioned on metric `([^`]*)` which is not .*following: (.*)", message, re.S)
    if found is None:
        return ""
    logged = sorted(re.findall(r"`([^`]+)`", found[2]))
    return f"EarlyStopping watches {found[1]!r}, which nothing logs.{suggest(found[1], logged)} Logged: {', '.join(logged)}."


def memory_message(error: BaseException) -> str:
    """Return the message for a lack of memory; "" for other errors.

    Examples:
        >>> memory_message(MemoryError())
        'Not enough memory. Lower data.batch_size or data.evaluation_batch_size, or use fewer processes.'
    """
    text = str(error)
    if not isinstance(error, MemoryError) and not re.search("can't allocate memory|out of memory", text, re.I):
        return ""
    detail = f" ({text.splitlines()[0]})" if text else ""
    return f"Not enough memory{detail}. Lower data.batch_size or data.evaluation_batch_size, or use fewer processes."


def dropped_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each part whose class the command line replaces, with the settings of the files that it ignores."""
    files = [str(path) for path in settings.get("config") or ()]
    for key in ("model", "publisher", "data"):
        old = next((part for file in reversed(files) if (part := _read(file).get(key))), None)
        new = settings.get(key)
        if not (isinstance(old, dict) and new and old.get("init_args")) or _class_name(old) == _class_name(new):
            continue
        used = {**new.get("init_args", {}), **new.get("dict_kwargs", {})}
        if dropped := [f"{name} ({value})" for name, value in old["init_args"].items() if name not in used]:
            yield f"--{key} {_class_name(new)} replaces {_class_name(old)}. Ignored: {', '.join(dropped)}."


def overridden_options(arguments: Sequence[str]) -> Iterator[str]:
    """Yield a message for each option before a ``--config`` whose file sets it too, so that the option has no effect."""
    options: dict[str, str] = {}
    for at, argument in enumerate(arguments):
        name, _, value = argument.partition("=")
        if name not in ("--config", "-c"):
            options |= {name[2:].replace("init_args.", ""): argument} if argument.startswith("--") else {}
            continue
        file = value or next(iter(arguments[at + 1 :]), "")
        keys = {key.replace("init_args.", "") for key in flat(_read(file))}
        for option in [option for option in options if any(f"{key}.".startswith(f"{option}.") for key in keys)]:
            yield f"{options.pop(option)} has no effect: {file} comes later and sets it. Move the option behind it."


def _class_name(part: Mapping[str, Any]) -> str:
    return str(part.get("class_path", "")).rsplit(".", 1)[-1]


def _read(file: str) -> dict[str, Any]:
    found = yaml.safe_load(Path(file).read_text(encoding="utf-8")) if Path(file).is_file() else None
    return found if isinstance(found, dict) else {}
