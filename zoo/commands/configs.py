"""``python -m zoo configs``: list, show and copy configs; a shown config is not run."""

import os
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import yaml

from zoo.commands.listing import head_of
from zoo.runtime import builtin_configs, plugins
from zoo.runtime.arguments import Arguments
from zoo.runtime.exports import HOMES
from zoo.runtime.run_folder import atomic_write, refusal, visible
from zoo.runtime.settings_files import MOST_LEVELS, check_keys, check_size

#: Packages of the zoo.
OURS = ("zoo", "datamodules", "callbacks")


class ConfigError(ValueError):
    """A config that does not exist, or that cannot be shown."""


def parser() -> Arguments:
    """Options of the command."""
    made = Arguments(
        prog="python -m zoo configs",
        description="List, show and copy the configs of the zoo. --config takes their names, such as pricdr/quickstart.",
    )
    commands = made.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="names and first lines")
    show = commands.add_parser(
        "show",
        help="show a config, the packages of the classes and functions that it names, and other files, without importing them: "
        "inspect configs of other parties before you run them",
    )
    copy = commands.add_parser("copy", help="copy a config to change it")
    for each in (show, copy):
        each.add_argument("config", type=Path, metavar="NAME", help="name, such as pricdr/quickstart, or file")
    copy.add_argument(
        "--out", type=Path, metavar="FILE", help="default: last part of the name, in the working directory"
    )
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command; an expected error ends it with its message."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "list":
            width = max(map(len, builtin_configs.names()), default=0)
            for name in builtin_configs.names():
                print(f"{name:<{width}}  {head_of(name)}".rstrip())
        elif options.command == "show":
            print("\n".join(config_lines(find_config(options.config))))
        else:
            print(f"Copied: {visible(str(copy_config(find_config(options.config), options.out)))}")
    except (OSError, ValueError) as error:
        sys.exit(refusal(error))


def find_config(path: Path) -> Path:
    """Return the file of a config; raise a `ConfigError` with similar names if there is none."""
    if not (found := builtin_configs.find(path)).is_file():
        raise ConfigError(builtin_configs.not_found_message(path))
    return found


def copy_config(config: Path, out: Path | None) -> Path:
    """Copy a config to a new file."""
    out = out or Path(config.name)
    if out.exists():
        raise ConfigError(f"{out} exists. Choose another file: --out FILE.")
    with atomic_write(out) as temporary:
        shutil.copyfile(config, temporary)
    return out


def config_lines(config: Path) -> Iterator[str]:
    """Yield the printable lines of a config, then the classes, functions and other files that it names."""
    check_size(config)
    text = config.read_bytes().decode("utf-8", errors="backslashreplace")
    check_keys(text, config)
    yield from (visible(line) for line in text.split("\n"))
    yield f"# Classes, functions and other files in {visible(str(config))}; nothing was imported or run:"
    try:
        found = texts_in(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        yield f"# It is not valid YAML ({type(error).__name__}), so none are listed. Do not run it."
        return
    names = {value for key, value in found if names_code(key, value)}
    brought = {word for kind in plugins.GROUPS for word in plugins.brought(kind)} - HOMES.keys()
    names |= {word for word in brought if re.search(rf"\b{re.escape(word)}\b", text)}
    files = {value for _, value in found if _names_a_file(value, config.parent)}
    for name in sorted(names | files):
        owners = [origin(name)] if name in names else []
        if name in files:
            owners = ["another file, which is not shown", *(each for each in owners if each != "not installed")]
        yield f"#   {visible(name)}: {', or '.join(owners)}"


def texts_in(text: str) -> list[tuple[str, str]]:
    """Return the values of YAML as texts, each with its key; also those of texts that are YAML again, as parsers read them."""
    found, seen = [*_values(text)], set[str]()
    for _, value in found:  # which grows
        if value not in seen:
            seen.add(value)
            with suppress(yaml.YAMLError):
                found.extend(_values(value))
    return found


def _values(text: str) -> Iterator[tuple[str, str]]:
    """Yield key and text of each value, and of each key that may act as a value; by events, which need no stack."""
    opened: list[tuple[bool, str | None]] = [(False, "")]  # is it a mapping; key of the next value, None before a key
    keys, tagged = list[str](), False
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionEndEvent):
            opened.pop()
        elif isinstance(event, yaml.NodeEvent):
            value, (is_mapping, key) = getattr(event, "value", ""), opened[-1]
            if value and (key is not None or event.anchor):
                yield key or "", value
            elif value:
                keys.append(value)
            if is_mapping:
                opened[-1] = True, value if key is None else None
            if len(opened) > MOST_LEVELS:  # libyaml takes hours for a megabyte of brackets
                raise RecursionError
            if isinstance(event, yaml.CollectionStartEvent):
                tagged |= event.tag is not None
                opened.append((True, None) if isinstance(event, yaml.MappingStartEvent) else (False, key or ""))
    if tagged:  # the values of !!set, !!omap and !!pairs are keys, also merged ones
        yield from (("", key) for key in keys)


def names_code(key: str, value: str) -> bool:
    """Return whether a value may name a class or a function: a dotted name, or the value of a class's key."""
    parts = value.split(".")
    dotted = len(parts) > 1 and all(part.isidentifier() for part in parts)
    return dotted or (key in ("class_path", "model", "data", "publisher") and value.lower() not in ("~", "null"))


def _names_a_file(value: str, folder: Path) -> bool:
    """Return whether a text is or may be the path of a file, which parsers read where they expect settings."""
    path = os.path.expanduser(value)
    places = (path, os.path.join(folder, path))
    there = any(os.path.exists(place) and not os.path.isdir(place) for place in places)  # pipes are read too
    return value.lower().startswith("file:") or value.lower().endswith((".yaml", ".yml", ".json")) or there


def _is_module(parts: Sequence[str]) -> bool:
    """Return whether a dotted name is a module of the zoo, by its files."""
    path = Path(__file__).parents[2].joinpath(*parts)
    return path.is_dir() or path.with_suffix(".py").is_file()


def origin(name: str) -> str:
    """Return the owner of a class by its name, without importing it."""
    module = name.rpartition(".")[0]
    top = module.partition(".")[0]
    if ":" in name or (module and not all(map(str.isidentifier, name.split(".")))):
        return "not installed"
    if not module:
        plugin = next((p[name] for kind in plugins.GROUPS if name in (p := plugins.brought(kind))), None)
        return "the zoo, or Lightning" if plugin is None else f"the installed package {visible(plugin.package)}"
    if top in OURS:
        parts = name.split(".")
        known = next((at for at in range(len(parts), 0, -1) if _is_module(parts[:at])), 1)
        reached = ".".join(parts[known:])
        return f"{visible(reached)}, reached through the zoo; inspect it" if len(parts) > known + 1 else "the zoo"
    try:
        spec = find_spec(top) if top.isidentifier() else None
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return "not installed"
    path = next((path for path in (spec.origin, *(spec.submodule_search_locations or ())) if path), "")
    if path in ("built-in", "frozen"):
        return "Python itself"
    return f"{visible(path)}; running this config runs its code"
