"""Imports point down: what each room of the code may import from, and which libraries stay out of it."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FRONT = {"zoo"}  # the list of exports, which imports nothing by itself

# Every room, lowest first, with all the rooms that it may import from.
ROOMS: dict[str, set[str]] = {
    "zoo.here_last": set(),
    "zoo.plugins": set(),
    "zoo.wording": set(),
    "zoo.shipped": {"zoo.wording"},
    "zoo.processes": set(),
    "zoo.freed_memory": set(),
    "zoo.run_folder": {"zoo.processes"},
    "zoo.trackers": {"zoo.run_folder"},
    "zoo.nn": set(),
    "zoo.federated": set(),
    "zoo.data": {"zoo.nn"},
    "zoo.metrics": {"zoo.data"},
    "zoo.privacy.randomness": set(),
    "zoo.privacy.accounting": set(),
    "zoo.privacy.record": {"zoo.privacy.accounting", "zoo.privacy.randomness"},
    "zoo.privacy.spending": {"zoo.privacy.accounting", "zoo.privacy.record", "zoo.run_folder"},
    "zoo.privacy.rows": {"zoo.privacy.accounting", "zoo.privacy.randomness"},
    "zoo.privacy.encryption": {"zoo.privacy.accounting", "zoo.privacy.randomness", "zoo.privacy.rows"},
    "zoo.privacy.one_bit": {"zoo.privacy.accounting", "zoo.privacy.randomness"},
    "zoo.privacy.training": {"zoo.privacy.accounting", "zoo.privacy.randomness", "zoo.privacy.record"},
    "zoo.privacy.audits": {
        "zoo.privacy.accounting",
        "zoo.privacy.one_bit",
        "zoo.privacy.randomness",
        "zoo.privacy.rows",
        "zoo.privacy.training",
    },
    "zoo.privacy.attacks": {"zoo.federated", "zoo.nn"},
    "zoo.release": {
        "zoo.nn",
        "zoo.privacy.accounting",
        "zoo.privacy.encryption",
        "zoo.privacy.randomness",
        "zoo.privacy.record",
        "zoo.privacy.rows",
        "zoo.run_folder",
    },
    "zoo.target_data": {"zoo.data", "zoo.metrics", "zoo.release"},
    "zoo.epoch_means": {"zoo.data"},
    "zoo.recommender": {
        "zoo.data",
        "zoo.epoch_means",
        "zoo.freed_memory",
        "zoo.metrics",
        "zoo.nn",
        "zoo.privacy.record",
        "zoo.release",
        "zoo.run_folder",
        "zoo.target_data",
    },
    "zoo.publisher": {"zoo.data", "zoo.privacy", "zoo.release", "zoo.run_folder"},
    "zoo.publishers": {"zoo.data", "zoo.freed_memory", "zoo.privacy", "zoo.publisher", "zoo.release"},
    "zoo.methods": {
        "zoo.data",
        "zoo.federated",
        "zoo.metrics",
        "zoo.nn",
        "zoo.privacy",
        "zoo.recommender",
        "zoo.target_data",
        "zoo.release",
        "zoo.run_folder",
    },
    "datamodules": {"zoo.data", "zoo.metrics", "zoo.nn", "zoo.release", "zoo.run_folder"},
    "callbacks": {
        *FRONT,
        "zoo.data",
        "zoo.federated",
        "zoo.metrics",
        "zoo.nn",
        "zoo.privacy.record",
        "zoo.privacy.training",
        "zoo.recommender",
        "zoo.target_data",
        "zoo.run_folder",
        "zoo.trackers",
        "zoo.wording",
    },
    "zoo.runs": {
        *FRONT,
        "callbacks",
        "datamodules",
        "zoo.plugins",
        "zoo.data",
        "zoo.metrics",
        "zoo.nn",
        "zoo.privacy",
        "zoo.publisher",
        "zoo.recommender",
        "zoo.target_data",
        "zoo.release",
        "zoo.run_folder",
        "zoo.trackers",
        "zoo.wording",
    },
    "zoo.testing": {
        *FRONT,
        "callbacks",
        "datamodules",
        "zoo.data",
        "zoo.metrics",
        "zoo.nn",
        "zoo.privacy",
        "zoo.publisher",
        "zoo.recommender",
        "zoo.release",
        "zoo.run_folder",
        "zoo.runs",
        "zoo.target_data",
    },
    "zoo.commands": {
        *FRONT,
        "callbacks",
        "datamodules",
        "zoo.plugins",
        "zoo.shipped",
        "zoo.data",
        "zoo.privacy",
        "zoo.processes",
        "zoo.publisher",
        "zoo.epoch_means",
        "zoo.recommender",
        "zoo.target_data",
        "zoo.release",
        "zoo.run_folder",
        "zoo.runs",
        "zoo.trackers",
        "zoo.wording",
    },
    "zoo.report": {
        *FRONT,
        "zoo.commands.arguments",
        "zoo.commands.benchmark.cell",
        "zoo.commands.benchmark.grid",
        "zoo.privacy.record",
        "zoo.privacy.spending",
        "zoo.run_folder",
        "zoo.trackers",
        "zoo.wording",
    },
}
# A command imports its neighbours in this order only: fit and publish, then what is built on them.
COMMANDS: dict[str, set[str]] = {
    "zoo.commands.arguments": set(),
    "zoo.commands.words": set(),
    "zoo.commands.cli": {"words"},
    "zoo.commands.data": {"arguments", "cli"},
    "zoo.commands.privacy": {"arguments", "cli"},
    "zoo.commands.benchmark": {"arguments", "cli"},
}

# What a guarantee is computed from is read by people who know no torch; only training needs it.
NO_TORCH = [
    f"zoo.privacy.{room}"
    for room in ("accounting", "randomness", "record", "spending", "rows", "encryption", "one_bit")
]
NO_LIGHTNING = (
    "zoo.processes",
    "zoo.run_folder",
    "zoo.trackers",
    "zoo.metrics",
    "zoo.nn",
    "zoo.federated",
    "zoo.data",
    "zoo.privacy",
    "zoo.release",
    "zoo.publisher",
)


def files_of(room: str) -> list[Path]:
    path = ROOT / room.replace(".", "/")
    return sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]


def imported(file: Path) -> set[str]:
    """Modules that a file imports; of ``from package import module``, the module."""
    names = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def inside(name: str, rooms: set[str]) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms - FRONT)


def ours(name: str) -> bool:
    return name.split(".")[0] in ("zoo", "datamodules", "callbacks")


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_from_rooms_below_it_alone(room: str) -> None:
    front = bool(ROOMS[room] & FRONT)
    wrong = [
        f"{file.relative_to(ROOT)} imports {name}"
        for file in files_of(room)
        for name in sorted(filter(ours, imported(file)))
        if not inside(name, {room} | ROOMS[room]) and not (front and name == "zoo")
    ]
    assert not wrong, wrong


def test_every_file_has_a_room_and_every_arrow_points_down() -> None:
    files = [file for top in ("zoo", "datamodules", "callbacks") for file in (ROOT / top).rglob("*.py")]
    housed = {file for room in ROOMS for file in files_of(room)}
    outside = {str(file.relative_to(ROOT)) for file in files if file not in housed}
    assert outside == {"zoo/__init__.py", "zoo/__main__.py", "zoo/privacy/__init__.py"}
    order = list(ROOMS)
    for room, allowed in ROOMS.items():
        above = {other for other in order[order.index(room) :] if inside(other, allowed)}
        assert not above, f"{room} may import {above}, which stand above it"


def test_no_file_imports_one_that_imports_it() -> None:
    """Also inside functions: an import that comes late hides a circle and does not undo it."""
    files = {file: file.relative_to(ROOT) for room in ROOMS for file in files_of(room)}
    modules = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in files.values()}
    graph = {
        path: {
            modules[found] for name in imported(file) for found in (name, name.rpartition(".")[0]) if found in modules
        }
        for file, path in files.items()
    }
    for path, below in graph.items():
        below.discard(path)
    assert list(TopologicalSorter(graph).static_order())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_knows_no_other_but_fit_and_publish(command: str) -> None:
    allowed = {command} | {f"zoo.commands.{name}" for name in COMMANDS[command]}
    for file in files_of(command):
        wrong = {name for name in imported(file) if name.startswith("zoo.commands.") and not inside(name, allowed)}
        assert not wrong, f"{file.relative_to(ROOT)} imports {wrong}"


@pytest.mark.parametrize("room", NO_TORCH)
def test_guarantees_are_computed_without_torch(room: str) -> None:
    for file in files_of(room):
        assert not {name for name in imported(file) if inside(name, {"torch", "opacus"})}, file


@pytest.mark.parametrize("room", [*NO_LIGHTNING, "zoo.report"])
def test_lightning_trains_and_nothing_else_needs_it(room: str) -> None:
    taboo = {"pytorch_lightning"} | ({"torch"} if room == "zoo.report" else set())
    for file in files_of(room):
        assert not {name for name in imported(file) if inside(name, taboo)}, file


def test_pytest_is_for_who_tests() -> None:
    for room in ROOMS:
        for file in files_of(room):
            assert room == "zoo.testing" or not {name for name in imported(file) if inside(name, {"pytest"})}, file
            assert room == "zoo.testing" or not {name for name in imported(file) if inside(name, {"zoo.testing"})}, file


@pytest.mark.parametrize("library", ["torch_geometric", "wandb", "opacus", "cryptography", "tenseal", "submitit"])
def test_a_library_for_few_is_imported_where_it_is_used_and_nowhere_else(library: str) -> None:
    homes = {
        "torch_geometric": {"zoo/nn/ego_graph.py", "zoo/nn/light_graph.py"},
        "wandb": {"callbacks/trackers.py", "zoo/trackers.py"},
        "opacus": {"zoo/privacy/training/user_norms.py"},
        "cryptography": {"zoo/release/signature.py"},
        "tenseal": {"zoo/privacy/encryption/ckks.py"},
        "submitit": {"zoo/commands/benchmark/cluster.py"},
    }[library]
    found = {
        str(file.relative_to(ROOT))
        for room in ROOMS
        for file in files_of(room)
        if any(inside(name, {library}) for name in imported(file))
    }
    assert found == homes
