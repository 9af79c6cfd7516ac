"""The structure of the code as a ratchet: its counts only go down, and which libraries stay out of which room.

A number is lowered in the commit that earns it. Raising one needs a line in CONTRIBUTING.md, under "The ratchet", that names what
was removed for it, or why nothing could be removed.
"""

import ast
import importlib
import os
import re
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
#: Parts of the privacy room that train, or read what training did.
WITH_TORCH = ("training", "audits", "__init__.py", "__pycache__")
#: Below this share of what is allowed, the allowance is lowered.
SLACK = 0.97

#: The examples of a docstring, its last section: they run as tests.
EXAMPLES = re.compile(r"\n *Examples:\n(?= *>>>).*?(?= *\"\"\")", re.DOTALL)

#: What is counted, and the most that there may be. New methods are exempt up to 250 lines each.
RATCHET = {
    "rooms": 16,
    "floors": 8,
    "arrows": 70,
    "files with one importer": 94,
    "lines of code": 55_400,
    "lines of tests": 57_834,
    "collected tests": 7_109,
}


@pytest.fixture(scope="module")
def house() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        return importlib.import_module("house")


def lines(*patterns: str) -> int:
    """Lines of Python files without the examples of docstrings; edits of the mutation list are not counted."""
    files = {file for pattern in patterns for file in ROOT.glob(pattern) if not file.name.startswith("edits")}
    return sum(len(EXAMPLES.sub("", file.read_text(encoding="utf-8")).splitlines()) for file in files)


def measured(house: ModuleType, session: pytest.Session) -> dict[str, int]:
    """What the tree has of everything that is counted; collected tests only where the whole suite was collected."""
    importers = Counter(chain.from_iterable(house.imported(file) for file in house.files()))
    return {
        "rooms": len(house.arrows()),
        "floors": max(map(house.floor, house.arrows())),
        "arrows": sum(map(len, house.arrows().values())),
        "files with one importer": sum(count == 1 for count in importers.values()),
        "lines of code": lines(*(f"{top}/**/*.py" for top in (*house.TOPS, "docs"))),
        "lines of tests": lines("tests/**/*.py"),
        "collected tests": getattr(session, "whole_suite", RATCHET["collected tests"]),
    }


def test_counts_only_go_down(house: ModuleType, request: pytest.FixtureRequest) -> None:
    found = measured(house, request.session)
    grown = {name: (count, RATCHET[name]) for name, count in found.items() if count > RATCHET[name]}
    assert not grown, f"counted, and allowed at most: {grown}"
    slack = {name: (count, RATCHET[name]) for name, count in found.items() if count < SLACK * RATCHET[name]}
    assert not slack, f"lower the ratchet; counted, and allowed at most: {slack}"


def test_no_file_imports_one_that_imports_it(house: ModuleType) -> None:
    """Also inside functions, and through ``zoo/__init__.py``: a late import hides a circle and does not undo it."""
    assert list(TopologicalSorter({file: house.imported(file) for file in house.files()}).static_order())


def libraries(*rooms: str) -> dict[str, set[str]]:
    """Top-level names that each file of some rooms imports."""
    files = chain.from_iterable(sorted(ROOT.glob(f"{room}/**/*.py")) for room in rooms)
    return {file.relative_to(ROOT).as_posix(): imported(file) for file in files}


@cache
def imported(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    return {name.split(".")[0] for name in names}


def test_temporary_folders_have_the_name_that_is_erased() -> None:
    """docs/data_protection.md: ``zoo-*``."""
    for place in ("zoo", "callbacks", "datamodules", "examples/carriers/*/zoo_*", "examples/encrypted_bridge/*"):
        code = [EXAMPLES.sub("", file.read_text(encoding="utf-8")) for file in ROOT.glob(f"{place}/**/*.py")]
        made = [
            call
            for text in code
            for call in re.findall(r"(?:TemporaryDirectory|mkdtemp|mkstemp|NamedTemporaryFile)\(.*", text)
        ]
        assert code, place
        assert made or place in ("callbacks", "datamodules"), place
        assert all(call.partition("(")[2].startswith('prefix="zoo-"') for call in made), made


# A guarantee is computed by code that people read who know no torch; only training needs it.
WITHOUT_TORCH = [f"zoo/privacy/{part}" for part in os.listdir(ROOT / "zoo" / "privacy") if part not in WITH_TORCH]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rooms", "library"),
    [
        (WITHOUT_TORCH, "torch"),
        (WITHOUT_TORCH, "opacus"),
        (["zoo/benchmark/report"], "torch"),
        (
            ["zoo/runtime", "zoo/nn", "zoo/data", "zoo/privacy", "zoo/release", "zoo/benchmark/report"],
            "pytorch_lightning",
        ),
        ([top for top in ("zoo/*", "datamodules", "callbacks") if top != "zoo/testing"], "pytest"),
    ],
)
def test_a_library_stays_out_of_a_room(rooms: list[str], library: str) -> None:
    wrong = [file for file, found in libraries(*rooms).items() if library in found and "zoo/testing/" not in file]
    assert not wrong


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("library", "homes"),
    [
        ("torch_geometric", {"zoo/nn/ego_graph.py", "zoo/nn/light_graph.py"}),
        ("wandb", {"callbacks/trackers.py", "zoo/runs/trackers.py"}),
        ("opacus", {"zoo/privacy/training/user_norms.py"}),
        ("cryptography", {"zoo/release/signature.py"}),
        ("litserve", {"zoo/commands/serve.py", "zoo/commands/service_workers.py"}),
        ("prometheus_client", {"zoo/commands/http_gate.py"}),
        ("submitit", {"zoo/benchmark/cluster.py"}),
    ],
)
def test_a_library_for_few_is_imported_where_it_is_used_and_nowhere_else(library: str, homes: set[str]) -> None:
    assert {file for file, found in libraries("zoo", "datamodules", "callbacks").items() if library in found} == homes
