"""Cells: their names, their order, and when a finished one still counts."""

import json
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from jsonargparse import ArgumentParser

from datamodules import CrossDomainDataModule
from tests.kills import killed_at
from zoo.benchmark.fit import folder_arguments
from zoo.benchmark.grid import Benchmark, slug
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.runs import BEGUN, LOG, RUN_FILE, BenchmarkRun, runs_of
from zoo.benchmark.search import any_settings
from zoo.methods.base import Recommender
from zoo.publishers.base import Publisher
from zoo.runs.cli import import_names
from zoo.runtime.processes import provenance

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "configs" / "benchmarks").glob("*.yaml"))

Made = Callable[..., Benchmark]


def system(**settings: object) -> dict[str, Any]:
    return {"systems": {"PriCDR (small)": {"config": "pricdr.yaml", **settings}}}


def finish(run: BenchmarkRun, seconds: float = 1.5) -> BenchmarkRun:
    """What a finished run leaves, without the run."""
    run.prepare_folder()
    (run.folder / RUN_FILE).write_text(json.dumps({"settings": run.settings(), "seconds": seconds}), encoding="utf-8")
    return run


def only(benchmark: Benchmark) -> BenchmarkRun:
    (run,) = runs_of(benchmark, Path("runs"))
    return run


def test_a_name_becomes_a_folder() -> None:
    for text, folder in {
        "PriCDR (alignment 1)": "pricdr-alignment-1",
        "JLT eps 0.5": "jlt-eps-0.5",
        "JLT with the paper's noise": "jlt-with-the-paper-s-noise",
        "a/b\\c -- d_e": "a-b-c-d-e",
        "  Müller  ": "müller",
    }.items():
        assert slug(text) == folder
        assert slug(folder) == folder


def test_a_run_is_named_by_task_system_release_and_seed(made: Made) -> None:
    releases = [{"publisher": "JLT", "epsilons": [0.5]}]
    runs = runs_of(made(tasks={"Book -> Music": {"title": "M"}}, **system(releases=releases)), Path("somewhere"))
    assert [run.name for run in runs] == [
        "book-music/pricdr-small/jlt-eps-0.5/seed-0",
        "book-music/pricdr-small/noise-jlt-eps-0.5/seed-0",
    ]
    assert runs[0].folder == Path("somewhere/book-music/pricdr-small/jlt-eps-0.5/seed-0")
    assert only(made(seeds=[7])).name == "music/popularity/seed-7"


def test_the_first_seed_of_all_rows_comes_before_the_second_of_any(made: Made) -> None:
    benchmark = made(
        tasks={"b": {"title": "B"}, "a": {"title": "A"}},
        seeds=[5, 2],
        systems={
            "Z": {"config": "pricdr.yaml"},
            "Own": {"config": "pricdr.yaml", "seeds": [9, 5, 0], "tasks": ["a"]},
            "One": {"config": "pricdr.yaml", "seeds": [3]},
        },
    )
    assert [run.name for run in runs_of(benchmark, Path("runs"))] == [
        *("b/z/seed-5", "b/one/seed-3", "a/z/seed-5", "a/own/seed-9", "a/one/seed-3"),
        *("b/z/seed-2", "a/z/seed-2", "a/own/seed-5"),
        "a/own/seed-0",
    ]


def test_two_runs_in_one_folder_are_refused(made: Made) -> None:
    benchmark = made(systems={name: {"config": "pricdr.yaml"} for name in ("PriCDR (1)", "pricdr 1", "other")})
    with pytest.raises(ValueError, match=r"Several runs share a folder: \['music/pricdr-1/seed-0'\]"):
        runs_of(benchmark, Path("runs"))


@pytest.mark.parametrize("name", ["***", "..", "."])
def test_a_name_of_signs_alone_does_not_lead_elsewhere(made: Made, name: str) -> None:
    with suppress(ValueError):  # it may as well be refused
        (run,) = runs_of(made(systems={name: {"config": "pricdr.yaml"}}), Path("runs"))
        assert len(run.folder.resolve().relative_to(Path("runs").resolve()).parts) == 3


def test_a_finished_run_is_returned(made: Made) -> None:
    run = only(made())
    assert run.finished() is None
    kept = finish(run).finished()
    assert kept is not None
    assert kept["seconds"] == 1.5
    assert only(made()).finished() == kept, "also when the file is read anew"


def test_a_half_written_folder_is_not_finished_and_gives_way(made: Made) -> None:
    run = finish(only(made()))
    (run.folder / RUN_FILE).rename(run.folder / f".{RUN_FILE}.tmp")
    assert run.finished() is None
    (run.folder / "releases").mkdir()
    assert run.prepare_folder() == run.folder / LOG
    assert [path.name for path in run.folder.iterdir()] == [BEGUN]


def test_what_a_search_spent_stays_until_its_run_is_finished_or_changed(made: Made) -> None:
    run, released, private = only(made()), {"book": {"ledger": []}}, {"SPPG": {"epsilon": 1.0}}

    def spent() -> int:
        for number, records in enumerate((released, private, None, None)):
            (trial := run.folder / "search" / f"trial-{number}").mkdir(parents=True, exist_ok=True)
            (trial / "best.ckpt").touch()
            if records is not None:
                (trial / "privacy.json").write_text(json.dumps(records))
        (run.folder / "search" / "trial-3" / "releases" / "book").mkdir(parents=True, exist_ok=True)
        run.prepare_folder()
        assert not [*run.folder.rglob("*.ckpt")]
        return len([*run.folder.glob("search/earlier-*")])

    run.prepare_folder()
    assert [spent(), spent()] == [2, 4], "one trained privately, the other published for itself"
    (run.folder / BEGUN).write_text("settings of before")
    assert spent() == 0
    run.prepare_folder()
    finish(run)
    assert spent() == 0


@pytest.mark.processes
def test_what_is_half_removed_does_not_count_as_finished(made: Made, place: Path) -> None:
    """A run of other settings gives way to that of these; should the settings be changed back, it must not be found half there."""
    run = only(made())
    names = {RUN_FILE, *"abcdefgh"}
    for moment in range(0, 20, 2):
        finish(run)
        for name in "abcdefgh":
            (run.folder / name).touch()
        assert killed_at(place / "runs", moment, run.prepare_folder)
        assert run.finished() is None or {path.name for path in run.folder.iterdir()} - {BEGUN} == names


@pytest.mark.parametrize("text", ["", '{"settings": ', '{"settings": null}', "[]", "\xff"])
def test_half_a_report_and_another_file_are_not_finished(made: Made, text: str) -> None:
    run = finish(only(made()))
    (run.folder / RUN_FILE).write_text(text, encoding="latin-1")
    assert run.finished() is None


SEARCH = {"trials": 2, "parameters": {"model.lr": {"low": 0.1, "high": 1.0}}}
JLT = {"class_path": "JLT", "init_args": {"num_components": 4}}


def released(**settings: object) -> dict[str, Any]:
    given = {"publisher": JLT, "epsilons": [1], "noise_control": False, "label": "R", **settings}
    return {"settings": {"model.lr": 0.1}, "search": SEARCH, "releases": [given]}


@pytest.mark.parametrize(
    "changed",
    [
        released() | {"settings": {"model.lr": 0.2}},
        released() | {"search": None},
        released() | {"search": {"trials": 2, "parameters": {"model.lr": {"low": 0.1, "high": 2.0}}}},
        released() | {"config": "popularity.yaml"},
        released(publisher={"class_path": "JLT", "init_args": {"num_components": 5}}),
    ],
)
def test_a_run_of_other_settings_is_not_finished(made: Made, changed: dict[str, Any]) -> None:
    run = finish(only(made(**system(**released()))))
    assert only(made(**system(**released()))).finished() is not None
    other = only(made(**system(**changed)))
    assert other.folder == run.folder
    assert other.finished() is None
    assert replace(run, seed=1).finished() is None, "nor is one of another seed"
    task = {"music": {"title": "Music", "settings": {"data.link": 0.1}}}
    assert only(made(tasks=task, **system(**released()))).finished() is None


def test_a_config_that_was_changed_since_counts_as_other_settings(made: Made, place: Path) -> None:
    run = finish(only(made()))
    before = (place / "popularity.yaml").read_text(encoding="utf-8")
    (place / "popularity.yaml").write_text(before + "\n", encoding="utf-8")
    assert run.finished() is None
    (place / "popularity.yaml").write_text(before, encoding="utf-8")
    assert run.finished() is not None


def test_words_that_change_no_figure_leave_it_finished(made: Made) -> None:
    finish(only(made(**system(**released()))))
    words = {"title": "Another", "about": "more", "tasks": {"music": {"title": "Renamed"}}}
    for said in (released(published_as="PriCDR-J", reason="ours"), released() | {"published_as": "P", "reason": "r"}):
        assert only(made(**words, **system(**said))).finished() is not None


@pytest.mark.usefixtures("here")
def test_a_run_is_an_ordinary_run_in_its_folder(made: Made) -> None:
    run = only(
        made(
            seeds=[4],
            **system(settings={"model.lr": 0.01}, releases=[{"publisher": "Plaintext", "noise_control": False}]),
        )
    )
    run.prepare_folder()
    run.execute()
    kept = run.finished()
    assert kept is not None
    assert kept.keys() == {"settings", "seconds", "finished", "versions", "commit", "threads", "machine"}
    assert kept["seconds"] > 0
    found = {path.name for path in run.folder.iterdir()}
    files = "metrics.json data.json privacy.json config.yaml test_cases.parquet releases"
    assert {*files.split(), RUN_FILE} <= found
    assert not list(run.folder.rglob("*.ckpt")), "a table needs no checkpoint"
    assert not list(run.folder.rglob("*.tmp"))
    report = json.loads((run.folder / "metrics.json").read_text())
    assert (report["method"], report["seed"]) == ("PriCDR", 4)
    origin = provenance(torch.get_num_threads())
    assert origin.items() <= kept.items()
    assert origin.items() <= report.items()
    assert "lr: 0.01" in (run.folder / "config.yaml").read_text()


def test_the_folder_of_a_run_is_named_whole(place: Path) -> None:
    arguments = folder_arguments(Path("runs/a/seed-0"))
    logger = json.loads(arguments[arguments.index("--trainer.logger") + 1])
    assert logger["init_args"] == {"save_dir": "runs/a", "name": "", "version": "seed-0"}


@pytest.mark.usefixtures("here")
def test_a_run_has_one_process_and_keeps_its_checkpoint_where_that_is_asked_for(made: Made) -> None:
    """Lightning starts further processes by the command at hand, which is the whole benchmark."""
    run = only(made(systems={"Popularity": {"config": "popularity.yaml", "settings": {"trainer.devices": 2}}}))
    run.prepare_folder()
    run.execute(keep_checkpoints=True)
    assert yaml.safe_load((run.folder / "config.yaml").read_text())["trainer"]["devices"] == "1"
    assert [path.name for path in run.folder.rglob("*.ckpt")] == ["best.ckpt"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model.learning_rate": 0.1}, "learning_rate"),
        ({"data.evaluation.split": "latest3"}, "split"),
        ({"trainer.max_epoch": 3}, "max_epoch"),
        ({"publisher.epsilom": 3}, "epsilom"),
    ],
)
def test_a_misspelt_setting_is_said_without_opening_data(
    made: Made, capsys: pytest.CaptureFixture[str], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SystemExit):
        only(made(**system(settings=settings))).check()
    assert message in capsys.readouterr().err


@pytest.mark.usefixtures("here")
def test_a_value_that_the_publisher_refuses_is_said_too(made: Made, place: Path) -> None:
    run = only(made(**system(**released(epsilons=[-1]))))
    with pytest.raises(ValueError, match=r"epsilon is .*Allowed: finite"):
        run.check()
    (place / "a.csv").write_text("no ratings")
    before = sorted(place.rglob("*"))
    data = {"data": "Files", "data.name": "own", "data.target": "a", "data.sources": ["a2"], "data.root": str(place)}
    with pytest.raises(FileNotFoundError, match="No ratings of 'a2'"):
        only(made(**system(settings=data))).check()
    (place / "a2.csv").touch()
    only(made(**system(settings=data))).check()
    assert sorted(place.rglob("*")) == sorted([*before, place / "a2.csv"]), "a check opens no data and writes nothing"


@pytest.mark.usefixtures("here")
def test_a_misspelt_setting_of_a_search_is_said_too(made: Made) -> None:
    search = {"trials": 2, "parameters": {"model.learning_rate": {"low": 0.1, "high": 1.0}}}
    with pytest.raises((SystemExit, ValueError)):
        only(made(**system(search=search))).check()


@cache
def written(config: Path) -> dict[str, Any]:
    parts: dict[str, Any] = yaml.safe_load(config.read_text(encoding="utf-8"))
    return parts


def parts(run: BenchmarkRun) -> dict[str, str]:
    """What a check looks at: the settings of each part of the experiment, whatever the epsilon of the row."""
    system, task, row = run.benchmark.systems[run.row.system], run.benchmark.tasks[run.row.task], run.row
    config = written(ROOT / system.config)
    given = task.settings | system.settings
    found: dict[str, list[Any]] = {
        part: [config.get(part), {key: value for key, value in given.items() if key.split(".")[0] == part}]
        for part in config.keys() | {key.split(".")[0] for key in given}
    }
    released = json.dumps(row.publisher)
    if row.epsilon is not None:
        released = released.replace(f'"epsilon": {row.epsilon}', "")
    found["release"] = [released, found.get("publisher")]
    found["search"] = [system.search and asdict(system.search), found["model"]]
    return {part: json.dumps([part, settings], sort_keys=True) for part, settings in found.items()}


def sought(run: BenchmarkRun) -> dict[str, str]:
    """Arguments that a search of the run may set, each with one of its values."""
    search = run.benchmark.systems[run.row.system].search
    words = any_settings(search) if search else []
    return dict(zip(words[::2], words[1::2], strict=True))


PARTS: dict[str, Any] = {"model": Recommender, "data": CrossDomainDataModule, "publisher": Publisher}


@cache
def parser_of(part: str) -> ArgumentParser:
    """Of one part of a command line."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(PARTS[part], part, required=False)
    return parser


def check_part(run: BenchmarkRun, part: str) -> None:
    """What a check does with a model, data or a publisher, from the same words, and without all else that a command line holds."""
    words = run.benchmark.arguments(run.row, run.seed) + [word for pair in sought(run).items() for word in pair]
    pairs = zip(words[::2], words[1::2], strict=True)
    given = [word for pair in pairs if pair[0].split(".")[0] == f"--{part}" for word in pair]
    config = written(ROOT / run.benchmark.systems[run.row.system].config)
    parser = parser_of(part)
    parser.instantiate(parser.parse_args([f"--{part}", json.dumps(config.get(part)), *given]))


@pytest.mark.thorough
@pytest.mark.usefixtures("here", "zoo_data")
@pytest.mark.parametrize("shipped", [SHIPPED[-1:], pytest.param(SHIPPED, marks=pytest.mark.slow)], ids=["last", "all"])
def test_the_rows_of_shipped_benchmarks_can_be_made(
    shipped: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every setting of every part of every row once, and every release, with one of its epsilons.

    One test of all: benchmarks share most of their parts, and a check is the parsing of a whole command line.
    """
    monkeypatch.chdir(ROOT)
    import_names()
    checked: set[str] = set()  # parts that are in order
    for run in (run for path in shipped for run in runs_of(read_benchmark(path), tmp_path / "runs")):
        assert run.row.epsilon is None or 0 < run.row.epsilon < math.inf, "which is all that a publisher asks of it"
        found = parts(run)
        new = {part for part, settings in found.items() if settings not in checked}
        searched = {name.split(".")[0].removeprefix("--") for name in sought(run) if "search" in new}
        wanted = {"publisher" if part == "release" else part for part in new - {"search"} | searched}
        if wanted <= PARTS.keys():
            for part in sorted(wanted):
                check_part(run, part)
        else:
            run.check()
        checked |= set(found.values())
    assert not (tmp_path / "runs").exists()
