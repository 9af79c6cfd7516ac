"""Messages of the command line: what is wrong with its arguments, what is nearest, and what an error means."""

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytorch_lightning.callbacks
import yaml
from jsonargparse import ArgumentParser
from lightning_fabric.utilities.exceptions import MisconfigurationException

import callbacks
import datamodules
from zoo.methods.epoch_averages import DivergedError
from zoo.methods.target_data import ReleaseMismatchError
from zoo.runs.processes import LostProcessError
from zoo.runs.trackers import TrackerError, refused_by_wandb
from zoo.runtime import plugins
from zoo.runtime.exports import METHODS, PERTURBATIONS, PUBLISHERS
from zoo.runtime.run_folder import refusal
from zoo.runtime.suggestions import suggest

#: What ends with its message.
REFUSALS = (
    OSError,
    TypeError,
    ValueError,
    MisconfigurationException,
    DivergedError,
    LostProcessError,
    ReleaseMismatchError,
    TrackerError,
)
#: Of an error in a class: the key that the class was given to, the class, and what it said.
_OF_CLASS = re.compile(
    r"Problem with given class_path '(?P<path>[^']+)':\s*(?P<said>.*?)(?=\n    - |\n  Given value|$)", re.S
)
_OF_VALUE = re.compile(
    r"(?:Parser key \"(?P<key>[^\"]+)\":\s*)?Expected a (?P<kind>.*)\. Got value: (?P<value>.*)", re.S
)


def in_few_words(message: str, parser: ArgumentParser) -> str:
    """What a parser says of arguments that it cannot accept, in three lines at most."""
    said = _said(message, parser)
    lines = [line.strip() for line in said.split("\n") if line.strip() and "NoneType" not in line]
    command = parser.prog.replace(" [options]", "")
    return "\n".join([*lines[:2], f"Options: {command} --help; all names: python -m zoo list"])


def _said(message: str, parser: ArgumentParser) -> str:
    found = re.search(r'Parser key "([^"]+)":', message)
    key = found.group(1) if found else ""
    if word := re.search(r"Importing '([^']*)' is not allowed", message):
        return f"--{key}: a checkpoint names {word.group(1)}, and a file has nothing imported. Pass the run's own --config."
    if word := re.search(r"Expected a dot import path string: (\S+)", message):
        return f"--{key}: there is no {word.group(1)!r}.{suggest(word.group(1), _names(key))}"
    if problem := _OF_CLASS.search(message):
        return _of_class(key, problem["path"], problem["said"].strip())
    if needed := re.search(r"the following arguments are required: (\w+)\.([\w.]+)", message):
        return f"{needed[1]} needs --{needed[2]}."
    if words := re.search(r"unrecognized arguments: (.*)", message):
        first = words.group(1).split()[0].split("=")[0]
        options = [option for action in parser._actions for option in action.option_strings]
        return f"unknown: {words.group(1)}.{suggest(first, [*options, *_options_of_classes()])}"
    return message


def _of_class(key: str, path: str, said: str) -> str:
    """What is wrong with an argument of a class that was named."""
    name = path.rsplit(".", 1)[-1]
    if option := re.search(r"Option '([^']+)' is not accepted", said) or re.search(
        r"unrecognized arguments: --([^=\s]+)", said
    ):
        word = option.group(1)
        own = list(dict.fromkeys(_arguments(path)))
        near = suggest(word, own) or f"\n{name} has {', '.join(own) or 'no argument'}."
        return f"--{key}.{word}: {name} has no {word!r}.{near}"
    if value := _OF_VALUE.search(said):
        kinds = re.sub(r"<class '([^']+)'>|typing\.", r"\1", value["kind"])
        one_of = re.findall(r"'([^']+)'", kinds) if kinds.startswith("Literal") else []
        wanted = f"one of {', '.join(one_of)}" if one_of else kinds
        got = value["value"].split("\n")[0]
        return f"--{key}.{value['key'] or name}: expected {wanted}; got {got}.{suggest(got, one_of)}"
    if found := re.search(r"module '([^']+)' has no attribute '([^']+)'", said):
        module, word = found.groups()
        there = [own for own, value in vars(import_module(module)).items() if isinstance(value, type)]
        return f"--{key}: {module} has no {word!r}.{suggest(word, there)}"
    if found := re.search(r"No module named '([^']+)'", said):
        here = [path.stem for path in Path.cwd().iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
        return (
            f"--{key}: there is no module {found[1]!r}, neither installed nor where you stand.{suggest(found[1], here)}"
        )
    return f"--{key}: {name}: {said}"


def _options_of_classes() -> list[str]:
    """The options that methods, publishers and datamodules of ours have, each under the name of its part."""
    homes = {"model": [*METHODS], "publisher": [*PUBLISHERS]}
    classes = [(part, f"zoo.{name}") for part, names in homes.items() for name in names]
    classes += [("data", f"datamodules.{name}") for name in datamodules.__all__]
    return list(dict.fromkeys(f"--{part}.{name}" for part, path in classes for name in _arguments(path)))


def _names(key: str) -> list[str]:
    """Classes that a key may name without their module."""
    brought = {kind: list(plugins.brought(kind)) for kind in plugins.GROUPS}
    homes: dict[str, Iterable[str]] = {
        "model": [*METHODS, *brought["methods"]],
        "publisher": [*PUBLISHERS, *brought["publishers"]],
        "data": [*datamodules.__all__, *brought["datamodules"]],
        "trainer.callbacks": [*callbacks.__all__, *pytorch_lightning.callbacks.__all__, *brought["callbacks"]],
    }
    return list(homes.get(key, [*homes["model"], *homes["publisher"], *PERTURBATIONS, *homes["data"]]))


def _arguments(path: str) -> list[str]:
    """Arguments of a class and of those below it, and the fields of those that are settings of their own."""
    try:
        made = resolve_name(path)
    except (ImportError, AttributeError):
        return []
    return [name for one in made.__mro__ for name in _own_arguments(one)]


def _own_arguments(made: type) -> Iterator[str]:
    try:
        hints = typing.get_type_hints(made.__init__)  # type: ignore[misc]  # of a class that is looked at, not made
    except NameError:
        hints = {}
    for name, parameter in inspect.signature(made).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue  # no argument is called so
        yield name
        kind = hints.get(name)
        if dataclasses.is_dataclass(kind):
            yield from (f"{name}.{field.name}" for field in dataclasses.fields(kind))


def in_a_sentence(error: Exception) -> str:
    """What is said of an error that somebody can do something about; nothing of a slip of ours, which has a traceback."""
    if said := refused_by_wandb(error, "the logger"):
        return said
    return refusal(error) if isinstance(error, REFUSALS) else of_monitor(str(error)) or of_memory(error)


def of_monitor(message: str) -> str:
    """What Lightning says of a callback that watches a figure which nobody logs, in a sentence; nothing of other messages."""
    found = re.match(
        r"Early stopping conditioned on metric `([^`]*)` which is not available.*following: (.*)", message, re.S
    )
    if found is None:
        return ""
    logged = sorted(re.findall(r"`([^`]+)`", found.group(2)))
    listed = f"{suggest(found.group(1), logged)} It may watch {', '.join(logged)}."
    return f"EarlyStopping watches {found.group(1)!r}, which nothing logs.{listed}"


def of_memory(error: BaseException) -> str:
    """What the libraries say where there is no memory left, in a sentence; nothing of other errors."""
    said = str(error)
    if not isinstance(error, MemoryError) and not re.search("can't allocate memory|out of memory", said, re.I):
        return ""
    first = said.split("\n", 1)[0]
    return (
        f"There is not enough memory{f' ({first})' if first else ''}. Take smaller batches (data.batch_size, and "
        "data.evaluation_batch_size where it is validation or the test that ends so), fewer processes, or a smaller model."
    )


def dropped(settings: Mapping[str, Any]) -> Iterator[str]:
    """What of config files is left out where another class was asked for than they name: a sentence for each key."""
    files = [str(path) for path in settings.get("config") or ()]
    for key in ("model", "publisher", "data"):
        given = next((part for file in reversed(files) if (part := _read(file).get(key))), None)
        now = settings.get(key)
        if not (isinstance(given, dict) and now and given.get("init_args")) or _short(given) == _short(now):
            continue
        kept = {**now.get("init_args", {}), **now.get("dict_kwargs", {})}
        if gone := [f"{name} ({value})" for name, value in given["init_args"].items() if name not in kept]:
            yield f"--{key} {_short(now)} takes the place of {_short(given)} and has no {', '.join(gone)}: left out."


def _short(given: Mapping[str, Any]) -> str:
    return str(given.get("class_path", "")).rsplit(".", 1)[-1]


def _read(file: str) -> dict[str, Any]:
    """A config file's settings; nothing of one that holds none."""
    read = yaml.safe_load(Path(file).read_text(encoding="utf-8")) if Path(file).is_file() else None
    return read if isinstance(read, dict) else {}
