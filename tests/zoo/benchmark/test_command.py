"""The command: what is asked of it, and what it refuses before anything runs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.samples import MARKUP
from tests.zoo.benchmark.processes import POPULARITY, zoo_benchmark
from zoo.__main__ import main as zoo_main
from zoo.benchmark import command
from zoo.benchmark.runner import locked
from zoo.benchmark.runs import BENCHMARK, RUN_FILE
from zoo.release.files import MANIFEST

pytestmark = pytest.mark.usefixtures("cell_server")

Write = Callable[..., Path]


def test_only_matching_runs_are_run(write: Write, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write(seeds=[0, 1], systems={"One": POPULARITY, "Other": POPULARITY})
    zoo_benchmark("--config", config, "--runs", "out", "--only", "*/one/seed-1")
    assert [path.parent.name for path in (place / "out").rglob(RUN_FILE)] == ["seed-1"]
    assert "1 of 1 runs are finished" in capsys.readouterr().out
    assert len(json.loads((place / "out" / BENCHMARK).read_text())["cells"]) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "film/*"], r"No run matches 'film/\*', such as music/popularity/seed-0"),
        (["--processes", "0"], r"--processes is 0\. It must be at least 1"),
        (["--config", "absent.yaml"], "BenchmarkError: No config 'absent.yaml'.* Did you mean bench.yaml"),
    ],
)
def test_what_cannot_be_done_is_a_message(place: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=message):
        zoo_benchmark("--config", "bench.yaml", *arguments)
    assert not (place / "runs").exists()


def test_a_file_in_another_encoding_is_a_message(place: Path) -> None:
    (place / "bench.yaml").write_bytes("title: Bücher".encode("latin-1"))
    with pytest.raises(SystemExit, match=r"bench.yaml"):
        zoo_benchmark("--config", "bench.yaml")


def watching(monitor: str, mode: str) -> dict[str, Any]:
    stopping = {"class_path": "EarlyStopping", "init_args": {"monitor": monitor, "mode": mode}}
    return {"model": "BPR", "trainer.callbacks": [stopping]}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("settings", "message", "said"),
    [
        ({"model.smoothing": 1}, r"music: Wrong has wrong settings", "smoothing"),
        ({"data.evaluation.ks": [5]}, r"music: Wrong", ""),
        ({"data": "Files", "data.name": "absent", "data.target": "a"}, r"Wrong: No ratings of 'a' in \S+absent", ""),
        ({"data.users": "absent.csv"}, r"Wrong: No list of users at \S+absent\.csv", ""),
        ({"data.catalogues": {"music": "absent.csv"}}, r"Wrong: No \S+ .*absent\.csv", ""),
        ({"model": "UserKNN", "data.releases.book": "absent"}, r"Wrong: absent is no release", ""),
        ({"model": "UserKNN", "data.releases.book": "given"}, r"Wrong: data.releases gives \['book'\]", ""),
        ({"model": "UserKNN"}, r"Wrong: publisher is not set", ""),
        (watching("val/ndgc@10", "max"), r"Wrong: EarlyStopping watches 'val/ndgc@10', which nothing logs", ""),
        (watching("val/ndcg@10", "min"), r"Wrong: EarlyStopping\.mode is 'min'", ""),
        ({"optimizer": "SGD"}, r"Wrong: optimizer: Popularity is solved without an optimizer", ""),
    ],
)
def test_a_dry_run_and_a_run_refuse_the_same_before_anything_runs(
    write: Write, place: Path, capsys: pytest.CaptureFixture[str], settings: dict[str, Any], message: str, said: str
) -> None:
    config = write(systems={"Wrong": POPULARITY | {"settings": settings}})
    (place / "given").mkdir()
    (place / "given" / MANIFEST).touch()
    refusals = []
    for extra in (["--dry-run"], []):
        with pytest.raises(SystemExit, match=message) as refused:
            zoo_benchmark("--config", config, *extra)
        refusals.append((refused.value.code, capsys.readouterr().err))
    assert refusals[0] == refusals[1]
    assert said in refusals[0][1]
    assert not (place / "runs").exists()


def test_a_second_command_on_a_folder_is_refused(place: Path) -> None:
    with locked(place / "out" / BENCHMARK, "busy"):
        with pytest.raises(SystemExit, match=r"FolderInUseError: Another benchmark command uses out\."):
            zoo_benchmark("--config", "bench.yaml", "--runs", "out")
        assert [path.name for path in (place / "out").iterdir()] == [f".{BENCHMARK}.lock"]
        zoo_benchmark("--config", "bench.yaml", "--runs", "out", "--dry-run")  # which changes nothing
    with locked(place / "out" / BENCHMARK, "free again"):
        pass


def test_an_interrupted_command_says_how_to_go_on(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run_all", interrupt)
    with pytest.raises(SystemExit, match=r"Stopped. Finished runs are kept"):
        zoo_benchmark("--config", "bench.yaml")


@pytest.mark.parametrize(("asked", "expected"), [([], (6, 1)), (["--processes", "2"], (2, 3))])
def test_runs_share_the_cores_that_the_command_may_use(
    place: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str], expected: tuple[int, int]
) -> None:
    seen: list[tuple[int, int]] = []

    def seeing(runs: object, processes: int, threads: int, *_: object, **__: object) -> list[object]:
        seen.append((processes, threads))
        return []

    monkeypatch.setattr(command, "cores", lambda: 6)
    monkeypatch.setattr(command, "run_all", seeing)
    command.main(["--config", "bench.yaml", *asked])
    assert seen == [expected], "so many runs at a time, with so many threads each"


def test_a_dry_run_knows_nothing_before_the_first_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(place.rglob("*"))
    zoo_benchmark("--config", "bench.yaml", "--dry-run")
    said = capsys.readouterr().out
    assert "Tiny: 1 run, 0 finished" in said
    assert "1 run pending, 2 at a time: about unknown" in said
    assert sorted(place.rglob("*")) == before


def test_titles_and_names_are_neither_markup_nor_obeyed(
    write: Write, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name, read = f"{MARKUP}\x1b[31m", f"{MARKUP}\\x1b[31m"
    config = write(title=name, systems={name: {"config": "popularity.yaml"}})
    zoo_benchmark("--config", config, "--dry-run")
    said = capsys.readouterr().out
    assert f"{read}: 1 run" in said
    assert said.count(read) == 2, "title and row"
    with pytest.raises(SystemExit, match=r"BenchmarkError: No config 'a\\x1b\[1A\.yaml'"):
        zoo_benchmark("--config", "a\x1b[1A.yaml")


def test_the_front_hands_over(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["zoo", "benchmark", "--config", str(place / "bench.yaml"), "--dry-run"])
    zoo_main()
    assert "Tiny: 1 run, 0 finished" in capsys.readouterr().out
