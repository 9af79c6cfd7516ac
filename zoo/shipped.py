"""Configs that come with the code: beside it in a clone, inside the package where it was installed."""

import re
from pathlib import Path

#: What a wheel has inside the package, and a clone beside it.
CONFIGS = "configs"
ENDING = ".yaml"


def folder() -> Path:
    """Where they lie."""
    package = Path(__file__).parent
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


def with_configs_found(arguments: list[str]) -> list[str]:
    """Arguments of a command, in which ``--config`` names files that are there, if there are any of that name."""
    made, option = [], False
    for argument in arguments:
        if option:
            argument = str(found(Path(argument)))
        elif argument.startswith("--config="):
            argument = f"--config={found(Path(argument.removeprefix('--config=')))}"
        option = argument in ("--config", "-c")
        made.append(argument)
    return made
