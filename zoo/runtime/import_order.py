"""Import order: importing this module puts the zoo's packages before the working directory on the import path.

Otherwise a folder ``callbacks``, ``datamodules`` or ``zoo`` there would be imported instead, even with an editable installation.
"""

import importlib
import importlib.util
import sys
from pathlib import Path

#: Our top-level packages, each with a module that other packages of the same name do not have.
TOP_LEVEL = {"callbacks": "callbacks.best_checkpoint", "datamodules": "datamodules.protocol"}

_OURS, _HERE = str(Path(__file__).parents[2]), str(Path.cwd())
_OTHERS = [entry for entry in sys.path if entry not in ("", _HERE)]
sys.path[:] = [*_OTHERS, *([] if _OURS in _OTHERS else [_OURS]), *([] if sys.flags.safe_path else [_HERE])]
if sys.modules["zoo"].__file__ != str(Path(__file__).parents[1] / "__init__.py"):  # a folder here was imported already
    del sys.modules["zoo"]
    importlib.import_module("zoo")


def overwritten() -> str:
    """Return the problem with our top-level packages and its repair, or ""."""
    for name, module in TOP_LEVEL.items():
        spec = importlib.util.find_spec(name)
        origin = None if spec is None else spec.origin
        if origin is None:
            return f"The zoo's package {name!r} is missing. {_repair()}"
        try:
            ours = module.encode() in Path(origin).read_bytes()
        except OSError:  # such as inside an archive
            continue
        if not ours:
            owner = _owner(name, origin)
            whose = f"the installed package {owner!r}" if owner else "no installed package owns it"
            first = f"pip uninstall {owner}" if owner else f"Remove or rename {Path(origin).parent}"
            return f"Package {name!r} at {origin} is not the zoo's ({whose}).\n{_repair(first)}"
    return ""


def _repair(first: str = "") -> str:
    cloned = (Path(_OURS) / "pyproject.toml").is_file()
    again = f"-e {_OURS}" if cloned else "--force-reinstall --no-deps cdr-zoo (or the wheel that it came from)"
    return f"To repair: {first + ', then ' if first else ''}pip install {again}"


def _owner(name: str, origin: str) -> str | None:
    from importlib.metadata import distributions  # slow, and only needed for the message

    for found in distributions():
        files = [file for file in found.files or () if file.parts[0] == name and found.name != "cdr-zoo"]
        if any(str(file.locate()) == origin for file in files):
            return found.name
    return None
