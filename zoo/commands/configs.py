"""``python -m zoo configs``: list, show and copy configs; a shown config is not run."""

import shutil
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from zoo.commands.listing import head_of
from zoo.runtime import builtin_configs, plugins
from zoo.runtime.arguments import Arguments
from zoo.runtime.run_folder import atomic_write, refusal, visible
from zoo.runtime.settings_files import check_keys

#: Largest config that is shown, in bytes.
MOST = 2**20
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
        help="show a config and the packages of its classes, without importing them: inspect configs of other parties "
        "before you run them",
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
    """Yield the printable lines of a config, then the classes that it names."""
    if (size := config.stat().st_size) > MOST:
        raise ConfigError(f"{config} has {size:,} bytes. Allowed: {MOST:,}.")
    text = config.read_bytes().decode("utf-8", errors="backslashreplace")
    check_keys(text, config)
    yield from (visible(line) for line in text.split("\n"))
    yield f"# Classes in {visible(str(config))}; nothing was imported or run:"
    try:
        named = sorted(set(classes_in(yaml.safe_load(text))))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        yield f"# It is not valid YAML ({type(error).__name__}). No command accepts it."
        return
    for name in named:
        yield f"#   {visible(name)}: {origin(name)}"


def classes_in(value: Any) -> Iterator[str]:  # noqa: ANN401  what YAML holds
    """Yield texts that may name a class: values of class keys, and dotted names with a capitalised last part."""
    left, seen = [("", value)], set[tuple[str, int]]()  # aliases may repeat a part, or form a cycle
    while left:
        key, part = left.pop()
        if isinstance(part, str):
            yield from [part] if part and _names_a_class(key, part) else []
        elif (key, id(part)) not in seen:
            seen.add((key, id(part)))
            if isinstance(part, dict):
                left += [(str(name), item) for name, item in part.items()]
            elif isinstance(part, list):
                left += [(key, item) for item in part]


def _names_a_class(key: str, value: str) -> bool:
    parts = value.split(".")
    dotted = len(parts) > 1 and all(part.isidentifier() for part in parts)
    return key in ("class_path", "model", "data", "publisher") or (dotted and parts[-1][:1].isupper())


def origin(name: str) -> str:
    """Return the owner of a class by its name, without importing it."""
    module = name.rpartition(".")[0]
    top = module.partition(".")[0]
    if not module:
        plugin = next((p[name] for kind in plugins.GROUPS if name in (p := plugins.brought(kind))), None)
        return "the zoo, or Lightning" if plugin is None else f"the installed package {visible(plugin.package)}"
    if top in OURS:
        return "the zoo"
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
