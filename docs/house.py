"""The map of the code in CONTRIBUTING.md: what each folder (room) holds, and which rooms it imports from."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOPS = ("zoo", "datamodules", "callbacks", "benchmarks")


def files() -> list[Path]:
    """Return every module of the code, relative to the root."""
    return sorted(file.relative_to(ROOT) for top in TOPS for file in (ROOT / top).rglob("*.py"))


def room_of(file: Path) -> Path:
    """Return the room of a module: a folder or file directly in ``zoo``, or another folder of code."""
    return Path(*file.parts[: 2 if file.parts[0] == "zoo" else 1])


def module_of(name: str) -> Path | None:
    """Return the file of a module's name, or None for another package."""
    path = Path(*name.split("."))
    found = (file for file in (path.with_suffix(".py"), path / "__init__.py") if (ROOT / file).is_file())
    return next(found, None)


@cache
def imported(file: Path) -> set[Path]:
    """Return the modules that a module imports, also inside functions; for ``from package import module``, the module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            deeper = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name for name in deeper if module_of(name)} or {node.module}
    return {found for name in names if name.split(".")[0] in TOPS and (found := module_of(name))} - {file}


@cache
def arrows() -> dict[Path, set[Path]]:
    """Return for every room the rooms that it imports from."""
    found: dict[Path, set[Path]] = {}
    for file in files():
        found.setdefault(room_of(file), set()).update(map(room_of, imported(file)))
    return {room: below - {room} for room, below in found.items()}


@cache
def floor(room: Path) -> int:
    """Return the level of a room: one above the highest that it imports from."""
    return 1 + max((floor(below) for below in arrows()[room]), default=0)


def holds(room: Path) -> str:
    """Return the first line of a room's docstring."""
    file = ROOT / room if room.suffix else ROOT / room / "__init__.py"
    if not file.is_file():
        return "Scripts that measure."
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n")[0]


def shown(room: Path) -> str:
    """Return a room's name; a folder ends in a slash."""
    return f"`{room}`" if room.suffix else f"`{room}/`"


def house_table() -> str:
    """Return a list of all rooms from the highest floor down."""
    lines = []
    for room in sorted(arrows(), key=lambda room: (-floor(room), str(room))):
        below = ", ".join(shown(other) for other in sorted(arrows()[room], key=str))
        lines.append(f"- {floor(room)}: {shown(room)}. {holds(room)}" + (f" Imports {below}." if below else ""))
    return "\n".join(lines)
