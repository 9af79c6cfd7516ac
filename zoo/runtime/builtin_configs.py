"""Configs that come with the code: beside it in a clone, inside the package where it was installed."""

import re
from pathlib import Path

from zoo.runtime.suggestions import suggest

#: What a wheel has inside the package, and a clone beside it.
CONFIGS = "configs"
ENDING = ".yaml"


def folder() -> Path:
    """Where they lie."""
    package = Path(__file__).parents[1]
    inside = package / CONFIGS
    return inside if inside.is_dir() else package.parent / CONFIGS


def names() -> list[str]:
    """What they are called, such as ``pricdr/quickstart``."""
    return sorted(path.relative_to(folder()).with_suffix("").as_posix() for path in folder().rglob(f"*{ENDING}"))


def found(path: Path) -> Path:
    """The path itself where there is such a file, else the config of that name that comes with the code, else the path again.

    ``pricdr/quickstart``, with ``.yaml`` behind it and with ``configs/`` before it, are one name.
    """
    if path.is_file():
        return path
    name = re.sub(rf"^{CONFIGS}/|\{ENDING}$", "", path.as_posix())
    return folder() / f"{name}{ENDING}" if name in names() else path


def missing(path: Path) -> str:
    """The message about a config that is neither a file nor among those that come with the code, with similar names."""
    listed = "Names: python -m zoo configs list"
    if path.is_dir():
        name = re.sub(rf"^{CONFIGS}/?", "", path.as_posix())
        inside = [known for known in names() if known.startswith(f"{name}/")]
        held = f" It holds {', '.join(inside)}." if inside else ""
        return f"{str(path)!r} is a folder, and no config.{held} {listed}"
    beside = [str(file) for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
    near = suggest(str(path), [*names(), *beside])
    return f"There is no config {str(path)!r}, neither as a file nor with the code.{near} {listed}"


def with_configs_found(arguments: list[str]) -> list[str]:
    """Arguments of a command, in which ``--config`` names files that are there; settings as YAML in one line pass.

    Raises:
        FileNotFoundError: There is no file and no config of that name.
    """
    made, option = [], False
    for argument in arguments:
        if option:
            argument = _file(argument)
        elif argument.startswith("--config="):
            argument = f"--config={_file(argument.removeprefix('--config='))}"
        option = argument in ("--config", "-c")
        made.append(argument)
    return made


def _file(given: str) -> str:
    path = found(Path(given))
    if path.is_dir() or not (path.exists() or re.search(r"[{:\n]", given)):
        raise FileNotFoundError(missing(path))
    return str(path)
