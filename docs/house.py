"""The map of the code in CONTRIBUTING.md, drawn from the tree: what each room holds, and which rooms it imports from."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
TOPS = ("zoo", "datamodules", "callbacks", "benchmarks")


def files() -> list[Path]:
    """Every module of the code, from the root of the project."""
    return sorted(file.relative_to(ROOT) for top in TOPS for file in (ROOT / top).rglob("*.py"))


def room_of(file: Path) -> Path:
    """The room of a module: a folder or a file directly in ``zoo``, or one of the other folders of code."""
    return Path(*file.parts[: 2 if file.parts[0] == "zoo" else 1])


def module_of(name: str) -> Path | None:
    """The file of a module's name, None where it is not ours."""
    path = Path(*name.split("."))
    found = (file for file in (path.with_suffix(".py"), path / "__init__.py") if (ROOT / file).is_file())
    return next(found, None)


@lru_cache
def imported(file: Path) -> set[Path]:
    """The modules that a module imports, also inside functions; of ``from package import module``, the module."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            deeper = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name for name in deeper if module_of(name)} or {node.module}
    return {found for name in names if name.split(".")[0] in TOPS and (found := module_of(name))} - {file}


@lru_cache
def arrows() -> dict[Path, set[Path]]:
    """From every room to those it imports from."""
    found: dict[Path, set[Path]] = {}
    for file in files():
        found.setdefault(room_of(file), set()).update(map(room_of, imported(file)))
    return {room: below - {room} for room, below in found.items()}


@lru_cache
def floor(room: Path) -> int:
    """How high a room stands: one above the highest that it imports from."""
    return 1 + max((floor(below) for below in arrows()[room]), default=0)


def holds(room: Path) -> str:
    """What a room says of itself, in the first line of its docstring."""
    file = ROOT / room if room.suffix else ROOT / room / "__init__.py"
    if not file.is_file():
        return "Scripts that measure."
    return (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n")[0]


def shown(room: Path) -> str:
    """A room's name; a folder ends in a slash."""
    return f"`{room}`" if room.suffix else f"`{room}/`"


def house_table() -> str:
    """Every room from the highest floor down."""
    lines = ["| floor | room | holds | imports from |", "|---:|---|---|---|"]
    for room in sorted(arrows(), key=lambda room: (-floor(room), str(room))):
        below = ", ".join(shown(other) for other in sorted(arrows()[room], key=str))
        lines.append(f"| {floor(room)} | {shown(room)} | {holds(room)} | {below or '-'} |")
    return "\n".join(lines)
