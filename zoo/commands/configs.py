"""``python -m zoo configs``: configs that come with the code, and any config shown as text, with the classes that it names."""

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
from zoo.runtime.run_folder import refusal, visible, whole

#: Bytes of a config at most: the largest that is shipped has a hundredth of this.
MOST = 2**20
#: Ours, which lie beside one another.
OURS = ("zoo", "datamodules", "callbacks")


class ConfigError(ValueError):
    """A config that is not there, or that cannot be shown."""


def parser() -> Arguments:
    """Options of the command."""
    made = Arguments(
        prog="python -m zoo configs",
        description="Configs that come with the code, by names such as pricdr/quickstart, which --config takes wherever you "
        "stand; and any config as text.",
    )
    commands = made.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="names, with the first line of each")
    show = commands.add_parser(
        "show",
        help="a config's text, and which classes it names from where; nothing is imported or made. To look at one that "
        "somebody sent: every command that takes --config imports the classes that it names",
    )
    copy = commands.add_parser("copy", help="copy a config here, to change it")
    for each in (show, copy):
        each.add_argument("config", type=Path, metavar="NAME", help="such as pricdr/quickstart, or a file")
    copy.add_argument("--out", type=Path, metavar="FILE", help="default: the last part of its name, here")
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command; a refusal ends with its message."""
    options = parser().parse_args(arguments)
    try:
        if options.command == "list":
            width = max(map(len, builtin_configs.names()), default=0)
            for name in builtin_configs.names():
                print(f"{name:<{width}}  {head_of(name)}".rstrip())
        elif options.command == "show":
            print("\n".join(shown(existing(options.config))))
        else:
            print(f"Copied: {visible(str(copied(existing(options.config), options.out)))}")
    except (OSError, ValueError) as error:
        sys.exit(refusal(error))


def existing(path: Path) -> Path:
    """The file of a config; refused, with the nearest names, where there is none."""
    if not (found := builtin_configs.found(path)).is_file():
        raise ConfigError(builtin_configs.missing(path))
    return found


def copied(config: Path, out: Path | None) -> Path:
    """Copy a config; a file that is there is not written over."""
    out = out or Path(config.name)
    if out.exists():
        raise ConfigError(f"{out} exists, and is not written over. Choose another name: --out FILE.")
    with whole(out) as temporary:
        shutil.copyfile(config, temporary)
    return out


def shown(config: Path) -> Iterator[str]:
    """The lines of a config as a terminal can only show them, then what it names."""
    if (size := config.stat().st_size) > MOST:
        raise ConfigError(f"{config} has {size:,} bytes, and a config at most {MOST:,}: it is not read.")
    text = config.read_bytes().decode("utf-8", errors="backslashreplace")
    yield from (visible(line) for line in text.split("\n"))
    yield f"# {visible(str(config))} names these classes; nothing of them was imported, and nothing was run."
    try:
        named = sorted(set(classes_in(yaml.safe_load(text))))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        yield f"# It is no YAML ({type(error).__name__}), and no command will take it."
        return
    for name in named:
        yield f"#   {visible(name)}: {origin(name)}"


def classes_in(value: Any) -> Iterator[str]:  # noqa: ANN401  what YAML holds
    """Texts that may name a class: those where classes are named, and dotted names anywhere whose last part is capitalised."""
    left, looked_at = [("", value)], set[tuple[str, int]]()  # aliases may lead to a part often, or into itself
    while left:
        key, part = left.pop()
        if isinstance(part, str):
            yield from [part] if part and _names_a_class(key, part) else []
        elif (key, id(part)) not in looked_at:
            looked_at.add((key, id(part)))
            if isinstance(part, dict):
                left += [(str(name), item) for name, item in part.items()]
            elif isinstance(part, list):
                left += [(key, item) for item in part]


def _names_a_class(key: str, value: str) -> bool:
    parts = value.split(".")
    dotted = len(parts) > 1 and all(part.isidentifier() for part in parts)
    return key in ("class_path", "model", "data", "publisher") or (dotted and parts[-1][:1].isupper())


def origin(name: str) -> str:
    """Whose a class is, told by its name; nothing of it is imported."""
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
        return "nothing of that name can be imported here"
    place = next((place for place in (spec.origin, *(spec.submodule_search_locations or ())) if place), "")
    if place in ("built-in", "frozen"):
        return "Python itself"
    return f"{visible(place)}; taking this config would run its code"
