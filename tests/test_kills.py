"""Commands that are killed, each at twenty fixed moments: what is there is whole, and a second try ends as an unbroken one."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import command
from tests.kills import done, killed_at, moments
from tests.quickstart import PROJECTED
from tests.zoo.benchmark.conftest import LEAST, POPULARITY, PRICDR
from tests.zoo.benchmark.report.fabricate import BARE, SMALL, fabricate
from zoo import Release
from zoo.benchmark import command as benchmark
from zoo.benchmark import runner
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.report import command as report
from zoo.benchmark.report.results import read_results
from zoo.benchmark.runs import BENCHMARK, RUN_FILE, runs_of
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.spending.budget import Budget, Cap
from zoo.runs.cli import import_names
from zoo.runs.inputs import read_checkpoint
from zoo.runs.resume import checkpoint_of
from zoo.runtime.run_folder import BEST, CONFIG, METRICS, PRIVACY

pytestmark = [pytest.mark.slow, pytest.mark.processes, pytest.mark.own_process]

SEEDED = (*PROJECTED, "--publisher.noise_seed", "5", "--publisher.seed", "5", "--trainer.max_epochs", "3")
GRID: dict[str, Any] = LEAST | {
    "seeds": [0, 1],
    "systems": {
        "Popularity": {"config": "popularity.yaml"},
        "EASE": {
            "config": "popularity.yaml",
            "settings": {"model": "EASE"},
            "search": {"trials": 2, "seeds": "first", "parameters": {"model.l2": {"low": 1.0, "high": 100.0}}},
        },
        "PriCDR": {
            "config": "pricdr.yaml",
            "seeds": [0],
            "releases": [{"publisher": "Plaintext", "noise_control": False}],
        },
    },
}


# Whatever runs a command is a fork: libraries begin threads, which no later fork would have.


def zoo_in(folder: Path, patch: pytest.MonkeyPatch, *arguments: object) -> None:
    """A command of ``python -m zoo`` in a folder."""
    import_names()
    with patch.context() as here:
        here.chdir(folder)
        here.setenv("PL_GLOBAL_SEED", "0")  # a run sets it; so it is taken away again
        command(here, *arguments)


def made_of(run: Path) -> tuple[object, ...]:
    """What a run has come to: its figures, its guarantee and its weights."""
    weights = read_checkpoint(run / BEST)["state_dict"]
    figures = json.loads((run / METRICS).read_text())["metrics"]
    return figures, json.loads((run / PRIVACY).read_text()), {name: value.tolist() for name, value in weights.items()}


def check_whole(run: Path) -> None:
    """Whatever has its name can be read."""
    for path in run.rglob("*.ckpt"):
        if not path.name.startswith("."):
            read_checkpoint(path)
    for path in run.rglob("*.json"):
        if not path.parent.name.startswith("."):
            json.loads(path.read_text())
    for path in run.glob("releases/[!.]*"):
        assert path.is_file() or Release.load(path)
    if (run / CONFIG).exists():
        yaml.safe_load((run / CONFIG).read_text())


@pytest.mark.parametrize("below", ["", "PriCDR/version_0/checkpoints"])
def test_a_fit_that_was_killed_goes_on_or_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """Anywhere, and while it writes checkpoints."""

    def work(place: Path) -> None:
        zoo_in(place, monkeypatch, "fit", *SEEDED)

    (tmp_path / "whole").mkdir()
    chosen = moments(tmp_path / "whole" / "runs" / below, partial(work, tmp_path / "whole"))
    assert len(chosen) == 20
    wanted = made_of(tmp_path / "whole" / "runs" / "PriCDR" / "version_0")
    went_on = 0
    for moment in chosen:
        place = tmp_path / str(moment)
        place.mkdir()
        assert killed_at(place / "runs" / below, moment, partial(work, place))
        run = place / "runs" / "PriCDR" / "version_0"
        check_whole(run)
        if (run / "checkpoints").is_dir() and list((run / "checkpoints").glob("[!.]*")):
            checkpoint_of(run)
            done(partial(zoo_in, place, monkeypatch, "fit", "--resume", run))
            went_on += 1
        else:
            done(partial(work, place))
        (last,) = [path for path in run.parent.iterdir() if (path / METRICS).exists() and path != run] or [run]
        assert made_of(last) == wanted
    assert 3 < went_on < 20


def test_publishing_that_was_killed_is_paid_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(place: Path) -> None:
        zoo_in(place, monkeypatch, "publish", *PROJECTED, "--budget", place / "spent.jsonl", "--out", place / "book")

    def with_budget(name: str) -> Path:
        (tmp_path / name).mkdir()
        return Budget.create(tmp_path / name / "spent.jsonl", Cap(40.0, 1e-5, Relation.CHANGE_ONE_RATING)).path.parent

    for moment in moments(with_budget("whole"), partial(work, tmp_path / "whole")):
        place = with_budget(str(moment))
        assert killed_at(place, moment, partial(work, place))
        spent = len(Budget(place / "spent.jsonl").entries)
        if (place / "book").exists():
            assert Release.load(place / "book").domain == "book"
            assert spent == 1, "no release is unpaid"
            continue
        assert spent in (0, 1)
        done(partial(work, place))
        assert Release.load(place / "book").domain == "book"
        assert len(Budget(place / "spent.jsonl").entries) == spent + 1, "what was spent stays spent"
        assert {path.name for path in place.iterdir()} == {"book", "spent.jsonl", "spent.jsonl.lock"}


def commanded(place: Path) -> None:
    """``python -m zoo benchmark`` in a folder, one cell at a time; cells are forked from here, which imports nothing again."""
    os.chdir(place)
    said = (place / f"said by {os.getpid()}").open("w")
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    runner._context = lambda: multiprocessing.get_context("fork")  # type: ignore[assignment,return-value]
    benchmark.main(["--config", "bench.yaml", "--runs", "out", "--processes", "1"])


def furnished(place: Path) -> Path:
    place.mkdir()
    for name, content in (("popularity", POPULARITY), ("pricdr", PRICDR), ("bench", GRID)):
        (place / f"{name}.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return place


def figures_of(place: Path) -> dict[str, object]:
    """Of every finished cell."""
    found = {str(path.parent): path.parent / METRICS for path in sorted((place / "out").rglob(RUN_FILE))}
    return {str(Path(name).relative_to(place)): json.loads(path.read_text())["metrics"] for name, path in found.items()}


def test_a_benchmark_that_was_killed_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed itself, or its cell with it: the same command runs what is left, and nothing that was finished."""
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    import_names()
    whole = furnished(tmp_path / "whole")
    chosen = moments(whole / "out", partial(commanded, whole))
    assert len(chosen) == 20
    wanted = figures_of(whole)
    assert len(wanted) == 5
    for moment in chosen:
        place = furnished(tmp_path / str(moment))
        assert killed_at(place / "out", moment, partial(commanded, place))
        before = {path: path.stat().st_mtime_ns for path in (place / "out").rglob(RUN_FILE)}
        done(partial(commanded, place))
        assert figures_of(place) == wanted
        assert before == {path: path.stat().st_mtime_ns for path in before}, "what was finished is not run again"
        monkeypatch.chdir(place)
        assert all(cell.finished() for cell in runs_of(read_benchmark(Path("bench.yaml")), Path("out")))
        done(partial(read_results, place / "out"))


def test_a_report_that_was_killed_is_the_old_one_or_none_and_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def contents(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(".")}

    def work(runs: Path, out: Path) -> None:
        monkeypatch.chdir(runs.parent)  # the report names the commands that made it
        report.main([str(runs), "--out", os.path.relpath(out)])

    def of(name: str, grid: dict[str, Any]) -> tuple[Path, dict[str, bytes]]:
        (tmp_path / name).mkdir()
        done(partial(fabricate, tmp_path / name, grid))
        (runs,) = {path.parent for path in (tmp_path / name).rglob(BENCHMARK)}
        done(partial(work, runs, tmp_path / name / "report"))
        return runs, contents(tmp_path / name / "report")

    (_, before), (runs, wanted) = of("before", BARE), of("now", SMALL)
    out = runs.parent / "report"
    pages = 0
    for moment in moments(out, partial(work, runs, out)):
        shutil.rmtree(out)
        shutil.copytree(tmp_path / "before" / "report", out)
        assert killed_at(out, moment, partial(work, runs, out))
        found = contents(out)
        assert all(text in (before.get(name), wanted.get(name)) for name, text in found.items()), "each file is whole"
        if "README.md" in found:
            pages += 1
            assert found == before, "where there is a page, what stands beside it is of its age"
        done(partial(work, runs, out))
        assert contents(out) == before | wanted
        assert not [path.name for path in out.iterdir() if path.name.startswith(".")]
    assert pages > 0
