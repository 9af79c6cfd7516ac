"""Configs that come with the zoo: next to the code in a clone, inside an installed package."""

import re
from pathlib import Path

from zoo.runtime.settings_files import check_keys
from zoo.runtime.suggestions import suggest

CONFIGS = "configs"
ENDING = ".yaml"


def folder() -> Path:
    """Return the folder of the configs."""
    package = Path(__file__).parents[1]
    inside = package / CONFIGS
    return inside if inside.is_dir() else package.parent / CONFIGS


def names() -> list[str]:
    """Return the names of the configs.

    Examples:
        >>> "pricdr/quickstart" in names()
        True
    """
    return sorted(path.relative_to(folder()).with_suffix("").as_posix() for path in folder().rglob(f"*{ENDING}"))


def find(path: Path) -> Path:
    """Return the path if it is a file, else the builtin config of that name, else the path.

    ``pricdr/quickstart``, ``pricdr/quickstart.yaml`` and ``configs/pricdr/quickstart.yaml`` are the same name.

    Examples:
        >>> find(Path("pricdr/quickstart")).name
        'quickstart.yaml'
    """
    if path.is_file():
        return path
    name = re.sub(rf"^{CONFIGS}/|\{ENDING}$", "", path.as_posix())
    return folder() / f"{name}{ENDING}" if name in names() else path


def not_found_message(path: Path) -> str:
    """Return the message about a config that does not exist, with similar names."""
    listed = "Names: python -m zoo configs list"
    if path.is_dir():
        name = re.sub(rf"^{CONFIGS}/?", "", path.as_posix())
        inside = [known for known in names() if known.startswith(f"{name}/")]
        content = f" It contains {', '.join(inside)}." if inside else ""
        return f"{str(path)!r} is a folder, not a config.{content} {listed}"
    beside = [str(file) for file in path.parent.glob("*.y*ml")] if path.parent.is_dir() else []
    near = suggest(str(path), [*names(), *beside])
    return f"No config {str(path)!r}, neither a file nor builtin.{near} {listed}"


def with_configs_found(arguments: list[str]) -> list[str]:
    """Return arguments with an existing file for each ``--config``, or raise a `FileNotFoundError`; YAML in one line passes."""
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
    path = find(Path(given))
    if path.is_dir() or not (path.exists() or re.search(r"[{:\n]", given)):
        raise FileNotFoundError(not_found_message(path))
    if path.is_file():
        check_keys(path.read_bytes().decode("utf-8", errors="replace"), path)
    return str(path)
