"""What does the suite notice? Makes one slip at a time in a copy of the tree and runs the tests that should see it.

``python -m tests.mutation.run [--only WORD] [--jobs 2] [--out FILE.json]`` goes on where it was stopped: what was judged stays
judged as long as the slip, its file and its tests are what they were.

The libraries are imported once; each judgement is a fork of that process, which imports the tree's own packages from a copy.
A test that fails without any slip would notice everything, so each test that noticed one is then run without.
"""

from __future__ import annotations

import tests.one_thread  # noqa: F401  before numpy

# isort: split
import argparse
import importlib
import json
import runpy
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.mutation.edit import Edit
from tests.mutation.forks import Answer, Copies, Question

ROOT = Path(__file__).parents[2]
EDITS = Path(__file__).with_name("edits.py")
#: Imported before the forks, for speed alone: whatever is missing here, each fork imports.
LIBRARIES = (
    *("numpy", "scipy.optimize", "scipy.signal", "scipy.sparse.linalg", "scipy.stats", "polars", "torch", "opacus"),
    *("pytorch_lightning.cli", "torchmetrics", "dp_accounting.pld.privacy_loss_distribution", "safetensors.torch"),
    *("hypothesis", "optuna", "jinja2", "rich.table", "matplotlib.pyplot", "mpmath", "pydantic"),
)
KILLED, SURVIVED, TIMED_OUT, UNFIT = "killed", "survived", "timed out", "unfit"

Verdicts = dict[str, dict[str, Any]]


class Judgement:
    """Verdicts on slips, kept in a file after each.

    Args:
        tree: The tree, which stays as it is.
        out: The file; None keeps nothing.
    """

    def __init__(self, tree: Path, out: Path | None) -> None:
        self.tree, self.out = tree, out
        self.verdicts: Verdicts = {}
        if out is not None and out.is_file():
            self.verdicts = json.loads(out.read_text(encoding="utf-8"))

    def known(self, edit: Edit) -> bool:
        """Whether a verdict still counts."""
        kept = self.verdicts.get(edit.name, {})
        return kept.get("digest") == edit.digest(self.tree) and kept.get("verdict") != UNFIT

    def take(self, edit: Edit, answer: Answer) -> str:
        """Give the verdict on a slip."""
        verdict = TIMED_OUT if answer.code is None else KILLED if answer.code else SURVIVED
        self.verdicts[edit.name] = {
            "verdict": verdict,
            "by": answer.failed[0] if answer.failed else "",
            "seconds": answer.seconds,
            "digest": edit.digest(self.tree),
        }
        self._write()
        return verdict

    def without_slip(self, edits: Sequence[Edit], copies: Copies) -> None:
        """Ask those that noticed something what they say of the tree as it is; who fails then has noticed nothing."""
        witnesses = {edit: self.verdicts[edit.name]["by"] for edit in edits if self._unchecked(edit)}
        tests = sorted({test for edit, by in witnesses.items() for test in ([by] if by else edit.tests)})
        shares = [tuple(tests[first :: copies.jobs]) for first in range(copies.jobs)]
        answers = list(copies.answers([Question(share) for share in shares if share]))
        broken = any(answer.code and not answer.failed for answer in answers)
        failed = {test for answer in answers for test in answer.failed}
        for edit, by in witnesses.items():
            fails = broken or by in failed or any(test.startswith(edit.tests) for test in failed if not by)
            self.verdicts[edit.name] |= {"verdict": UNFIT} if fails else {"checked": True}
        self._write()

    def _unchecked(self, edit: Edit) -> bool:
        kept = self.verdicts[edit.name]
        return kept["verdict"] in (KILLED, TIMED_OUT) and not kept.get("checked")

    def _write(self) -> None:
        if self.out is not None:
            temporary = self.out.with_name(f".{self.out.name}.tmp")
            temporary.write_text(json.dumps(self.verdicts, indent=1) + "\n", encoding="utf-8")
            temporary.rename(self.out)


def score(verdicts: Verdicts) -> float:
    """Share of slips that some test noticed; one that never ends was noticed too."""
    return sum(kept["verdict"] in (KILLED, TIMED_OUT) for kept in verdicts.values()) / max(len(verdicts), 1)


def table(verdicts: Verdicts, edits: Sequence[Edit]) -> str:
    """Verdicts by file, and what survived by name."""
    lines = []
    for file in sorted({edit.file for edit in edits}):
        here = {edit.name: verdicts[edit.name] for edit in edits if edit.file == file}
        noticed = round(score(here) * len(here))
        lines.append(f"{file:60} {noticed:3} of {len(here):3}")
        lines += [
            f"    {kept['verdict']}: {name}" for name, kept in here.items() if kept["verdict"] in (SURVIVED, UNFIT)
        ]
    shown = {edit.name: verdicts[edit.name] for edit in edits}
    return "\n".join([*lines, f"Noticed: {score(shown):.1%} of {len(edits)}"])


def judged(edits: Sequence[Edit], tree: Path, jobs: int, out: Path | None, timeout: float) -> Verdicts:
    """Verdicts on all of the slips."""
    judgement = Judgement(tree, out)
    waiting = [edit for edit in edits if not judgement.known(edit)]
    done = len(edits) - len(waiting)
    with tempfile.TemporaryDirectory() as place:
        copies = Copies(tree, Path(place), jobs, timeout)
        for answer in copies.answers([Question(edit.tests, edit) for edit in waiting]):
            assert answer.question.edit is not None
            done += 1
            verdict = judgement.take(answer.question.edit, answer)
            said = f"{verdict:9} {answer.seconds:6.1f} s  {answer.question.edit.name}"
            print(f"[{done:3}/{len(edits)}] {said}", *answer.failed[:1], sep="  ", flush=True)
        judgement.without_slip(edits, copies)
    return {edit.name: judgement.verdicts[edit.name] for edit in edits}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code is 1 if something survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation.run", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="a word of the names or files of the slips to make")
    parser.add_argument("--jobs", type=int, default=2, help="how many are judged side by side (default 2)")
    parser.add_argument("--out", type=Path, help="file of the verdicts, from which a later call goes on")
    parser.add_argument("--timeout", type=float, default=900.0, help="seconds that tests may take (default 900)")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the tree, if not this one")
    parser.add_argument("--edits", type=Path, default=EDITS, help="a Python file that has EDITS, if not this one's")
    asked = parser.parse_args(arguments)
    given: tuple[Edit, ...] = runpy.run_path(str(asked.edits))["EDITS"]
    edits = [edit for edit in given if asked.only in edit.name or asked.only in edit.file]
    for edit in edits:
        edit.applied(
            (asked.tree / edit.file).read_text(encoding="utf-8")
        )  # what does not fit is said before anything is run
    if asked.tree == ROOT:
        for library in LIBRARIES:
            with suppress(ImportError):
                importlib.import_module(library)
    verdicts = judged(edits, asked.tree.resolve(), asked.jobs, asked.out, asked.timeout)
    print(table(verdicts, edits))
    return int(score(verdicts) < 1)


if __name__ == "__main__":
    sys.exit(main())
