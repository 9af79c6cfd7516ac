"""The slips fit the code, the runner tells what it finds, and the suite notices nearly all of them."""

import ast
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.mutation.edit import Edit, EditError
from tests.mutation.edits import EDITS
from tests.mutation.run import score

ROOT = Path(__file__).parents[2]

TOY = {
    "toy/__init__.py": "",
    "toy/sums.py": "def mean(values):\n    return sum(values) / len(values)\n\n\ndef most(values):\n    return max(values)\n",
    "toy/waits.py": "def ready():\n    return True\n",
    "tests/test_sums.py": (
        "from toy.sums import mean, most\n\n\ndef test_mean():\n    assert mean([1, 3]) == 2\n\n\n"
        "def test_most():\n    assert most([5]) == 5\n"
    ),
    "tests/test_waits.py": "from toy.waits import ready\n\n\ndef test_ready():\n    while not ready():\n        pass\n",
    "tests/test_date.py": "def test_of_old():\n    assert not 'out of date'\n",
    "edits.py": """
from tests.mutation.edit import Edit

SUMS = "toy/sums.py"
EDITS = (
    Edit("mean of one more", SUMS, "/ len(values)", "/ (len(values) + 1)", ("tests/test_sums.py",)),
    Edit("mean of two more", SUMS, "/ len(values)", "/ (len(values) + 2)", ("tests/test_sums.py",)),
    Edit("the least", SUMS, "max(values)", "min(values)", ("tests/test_sums.py",)),
    Edit("no longer a module", SUMS, "def mean", "raise OSError\\n\\n\\ndef mean", ("tests/test_sums.py",)),
    Edit("never ready", "toy/waits.py", "True", "False", ("tests/test_waits.py",)),
    Edit("an old test", SUMS, "max(values)", "len(values)", ("tests/test_date.py",)),
)
""",
}


def run(tree: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.mutation.run",
            "--tree",
            str(tree),
            "--edits",
            str(tree / "edits.py"),
            *arguments,
        ],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("toy")
    for name, text in TOY.items():
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).write_text(text, encoding="utf-8")
    return tree


def fault_of(edit: Edit) -> str | None:
    """What is wrong with a slip, None where it fits its file."""
    try:
        text = edit.applied((ROOT / edit.file).read_text(encoding="utf-8"))
        ast.parse(text if edit.file.endswith(".py") else "")
    except (EditError, SyntaxError, OSError) as error:
        return f"{edit.name}: {error}"
    lacking = [test for test in edit.tests if not (ROOT / test).exists()]
    return f"{edit.name}: no tests {lacking}" if lacking or not edit.tests else None


@pytest.mark.thorough
def test_every_slip_fits_its_file() -> None:
    """One test of all: some hundred of their own take seconds to be begun."""
    assert not list(filter(None, map(fault_of, EDITS)))


def test_a_slip_that_does_not_fit_is_named() -> None:
    edit = EDITS[0]
    assert "occurs 0 times" in str(fault_of(replace(edit, old="no such code")))
    assert "no tests" in str(fault_of(replace(edit, tests=("tests/none.py",))))


def test_there_are_many_and_each_has_its_name() -> None:
    assert len(EDITS) >= 100
    assert not [name for name, count in Counter(edit.name for edit in EDITS).items() if count > 1]
    changes = Counter((edit.file, edit.old, edit.new) for edit in EDITS)
    assert not [change for change, count in changes.items() if count > 1]


@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("c", "b"), ("x", "x")])
def test_a_slip_that_does_not_fit_is_refused(old: str, new: str) -> None:
    with pytest.raises(EditError, match="the name"):
        Edit("the name", "file.py", old, new, ("tests",)).applied("a a x")


def test_the_runner_tells_what_was_noticed_and_goes_on_where_it_was(toy: Path, tmp_path: Path) -> None:
    out, before = tmp_path / "out.json", {name: (toy / name).read_bytes() for name in TOY}
    code, said = run(toy, "--only", "sums", "--out", str(out))
    assert code == 1
    verdicts = json.loads(out.read_text())
    assert {name: (kept["verdict"], kept["by"]) for name, kept in verdicts.items()} == {
        "mean of one more": ("killed", "tests/test_sums.py::test_mean"),
        "mean of two more": ("killed", "tests/test_sums.py::test_mean"),
        "the least": ("survived", ""),
        "no longer a module": ("killed", "tests/test_sums.py"),
        "an old test": ("unfit", "tests/test_date.py::test_of_old"),
    }
    assert "survived: the least" in said
    assert "unfit: an old test" in said
    assert said.endswith("Noticed: 60.0% of 5\n")
    assert {name: (toy / name).read_bytes() for name in TOY} == before

    stricter = TOY["tests/test_sums.py"].replace("most([5]) == 5", "most([5, 6]) == 6")
    (toy / "tests" / "test_sums.py").write_text(stricter)
    _, said = run(toy, "--only", "the least", "--out", str(out))
    assert "killed" in said, "judged anew, since its tests are others"
    (toy / "tests" / "test_sums.py").write_text(TOY["tests/test_sums.py"])


def test_what_was_judged_stays_judged(toy: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    for expected in ("timed out", ""):
        code, said = run(toy, "--only", "never ready", "--out", str(out), "--timeout", "0.5")
        assert code == 0
        assert expected in said.split("toy/")[0]
        assert ("[" in said) == bool(expected)
    assert score(json.loads(out.read_text())) == 1


@pytest.mark.slow
def test_the_suite_notices_nearly_all_slips(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.mutation.run", "--out", str(out)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    verdicts = json.loads(out.read_text(encoding="utf-8"))
    assert verdicts.keys() == {edit.name for edit in EDITS}
    assert score(verdicts) >= 0.97, done.stdout
