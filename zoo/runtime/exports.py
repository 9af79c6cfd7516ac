"""Exported names, parsed from ``zoo/__init__.py`` without importing it, and the version."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

from zoo.runtime.suggestions import suggest

VERSION = "0.3.0.dev0"


def imported_names(file: Path) -> dict[str, str]:
    """Return the module of each name that a Python file imports by ``from module import name``, without running it."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    imports = (node for node in nodes if isinstance(node, ast.ImportFrom) and node.module)
    return {alias.asname or alias.name: str(node.module) for node in imports for alias in node.names}


#: Module of each exported name.
HOMES = {
    name: module
    for name, module in imported_names(Path(__file__).parents[1] / "__init__.py").items()
    if module.startswith("zoo.") and not module.startswith("zoo.runtime")
}


def _in_file_of_their_own(package: str) -> dict[str, str]:
    return {name: home for name, home in HOMES.items() if home.startswith(package) and not home.endswith(".base")}


#: Module of each exported recommender, publisher and perturbation. A method that is a package has its class in ``method.py``;
#: its other exports are perturbations.
METHODS = {
    name: home
    for name, home in _in_file_of_their_own("zoo.methods.").items()
    if home.count(".") == 2 or home.endswith(".method")
}
PUBLISHERS = _in_file_of_their_own("zoo.publishers.")
PERTURBATIONS = {name: home for name, home in _in_file_of_their_own("zoo.methods.").items() if name not in METHODS}


class _UnknownNameError(AttributeError):
    """Looks for similar names only when printed: parsers look up hundreds of names that do not exist."""

    def __str__(self) -> str:
        (name,) = self.args
        return f"module 'zoo' has no attribute {name!r}.{suggest(name, sorted(HOMES))} Exported: {sorted(HOMES)}."


def exported(name: str) -> Any:  # noqa: ANN401  any exported name
    """Import an exported name.

    Raises:
        AttributeError: The name is not exported; the message has similar ones.

    Examples:
        >>> exported("PriCDR").__name__
        'PriCDR'
    """
    if name not in HOMES:
        raise _UnknownNameError(name, name=name)
    return getattr(import_module(HOMES[name]), name)
