"""What a tracker is told of a report, and the command that tells it."""

import csv
import os
import re
import subprocess
import sys
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import matplotlib.image
import pytest
import yaml

from tests.wandb_log import records
from tests.wandb_log import told as told_to_wandb
from tests.zoo.benchmark.report.fabricate import BARE, JLT, SMALL, Facts, fabricate, facts_of, proved, reread
from tests.zoo.runs.test_trackers import NO_KEY, png
from zoo.benchmark.grid import Row
from zoo.benchmark.report.command import main
from zoo.benchmark.report.figures import DPI
from zoo.benchmark.report.files import WrittenReport, results_csv, tracker_payload
from zoo.benchmark.report.page import CHOICE, summary
from zoo.benchmark.report.results import Results
from zoo.benchmark.report.tables import condition_notes, marks
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.record.legacy import earlier_sentences
from zoo.runs.trackers import TrackerError

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def written(written: WrittenReport) -> WrittenReport:
    """The report with two of its figures, as each takes a while to draw."""
    return replace(written, pictures={name: written.pictures[name] for name in [*written.pictures][:2]})


@pytest.fixture(scope="module")
def sent(results: Results, written: WrittenReport) -> dict[str, Any]:
    """What is sent of the report."""
    return tracker_payload(results, written)


@pytest.fixture
def tracker(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mock:
    """One that can be told, beside the runs of a benchmark without figures but the overview."""
    made = Mock(check=Mock(), send_report=Mock(return_value="W&B: told."))
    for name in ("check", "send_report"):
        monkeypatch.setattr(f"zoo.runs.trackers.{name}", getattr(made, name))
    monkeypatch.chdir(tmp_path)
    fabricate(tmp_path, BARE)
    return made


def test_every_figure_is_told_by_name_of_file(results: Results, written: WrittenReport, sent: dict[str, Any]) -> None:
    assert sent["name"] == results.benchmark["name"]
    drawn = {name: (written.folder / f"{name}.svg").read_text(encoding="utf-8") for name in written.pictures}
    assert sent["images"].keys() == drawn.keys()
    assert "overview" in drawn
    for name, svg in drawn.items():
        width, height = (float(size) / 72 * DPI for size in re.findall(r'(?:width|height)="([\d.]+)pt"', svg)[:2])
        shape = matplotlib.image.imread(BytesIO(sent["images"][name])).shape[:2]
        assert shape == pytest.approx((height, width), abs=1), name


def test_tables_are_told_with_numbers_as_numbers(
    results: Results, written: WrittenReport, sent: dict[str, Any]
) -> None:
    assert list(sent["tables"]) == ["results", "gains"]
    for name, table in sent["tables"].items():
        with (written.folder / f"{name}.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert table.columns == list(rows[0])
        assert table.height == len(rows)
    figures = sent["tables"]["results"]
    assert figures["full/ndcg@10"].dtype.is_float()
    assert figures["epsilon"].null_count() == sum(line.epsilon is None for line in results.rows)


def test_what_each_row_guarantees_is_told(results: Results, sent: dict[str, Any]) -> None:
    config = sent["config"]
    assert config["benchmark"] == results.benchmark["name"]
    assert config["tasks"] == {"book-music": "Book -> Music", "cold": "Music & nothing known"}
    assert config["systems"] == ["Popularity", "EASE", "DMF", "PriCDR", "Whole users", "Searched"]
    assert (config["finished"], config["cells"], config["baseline"]) == (71, 79, {"book-music": "EASE", "cold": "EASE"})
    rows = config["privacy"]["book-music"]
    assert rows.keys() == {line.name for line in results.lines["book-music"]}
    assert rows["PriCDR, JLT eps 8"] == rows["PriCDR, JLT eps 8"] | {
        "guarantee": "proved", "unit": "rating", "relation": "change_one_rating", "epsilon": 8.0, "delta": 1e-5, "conditions": [],
        "label": "no meaningful guarantee", "unprotected_metrics": "",
    }  # fmt: skip
    assert rows["Whole users, JLT eps 4"]["unit"] == "user"
    nothing = {"unit": None, "relation": None, "epsilon": None, "delta": None, "conditions": [], "attack_success": None}
    assert rows["PriCDR, Plaintext"] == rows["PriCDR, Plaintext"] | {"guarantee": "none"} | nothing
    assert rows["EASE"] == rows["EASE"] | {"guarantee": "no release"} | nothing
    yaml.safe_dump(dict(config))  # plain values


def test_an_epsilon_is_told_with_its_conditions(tmp_path: Path) -> None:
    releases = [{"publisher": JLT, "noise_control": False}]
    grid = BARE | {"seeds": [0], "systems": {"PriCDR": {"config": "system.yaml", "releases": releases}}}
    under = {"guarantee": "conditional", "conditions": ["users are public"]}
    under["not_protected"] = [earlier_sentences()["personal_recommendations"][0]]
    record = proved(2.0, relation=Relation.REPLACE_ONE_USER) | under

    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(row, seed, cases=20)
        assert made is not None
        made.records = {"book": record}
        return made

    results = reread(tmp_path, grid, facts)
    sent = tracker_payload(results, WrittenReport(tmp_path, {"results.csv": "", "gains.csv": ""}, {}))
    [row] = sent["config"]["privacy"]["cold"].values()
    assert (row["guarantee"], row["epsilon"], row["conditions"]) == ("conditional", 2.0, ["users are public"])
    unprotected = "not protected: metrics measured on the source's ratings, and choices based on them"
    assert row["unprotected_metrics"] == unprotected
    [line] = csv.DictReader(results_csv(results).splitlines())
    assert line["conditions"] == "users are public"
    told = ("guarantee", "relation", "epsilon", "label", "unprotected_metrics")
    assert [line[name] for name in told] == [str(row[name]) for name in told]
    assert condition_notes(results.rows)[-1] == f"¶ {unprotected}."
    assert marks(results.rows[0]) == " ‡ ¶"
    assert summary(results, [])[2].endswith(f"delta 1e-05. N{unprotected[1:]}.{CHOICE}")


def test_without_a_gain_there_is_no_table_and_without_a_benchmark_a_name_of_its_own(results: Results) -> None:
    runs = Results({**results.benchmark, "title": "3 runs compared"} | {"name": ""}, results.lines, 3)
    sent = tracker_payload(runs, WrittenReport(Path(), {"results.csv": "task,row\nmusic,DMF\n", "gains.csv": ""}, {}))
    assert list(sent["tables"]) == ["results"]
    assert (sent["name"], sent["config"]["benchmark"]) == ("3-runs-compared", "3 runs compared")


def test_a_tracker_is_told_once_the_report_is_written(tracker: Mock, capsys: pytest.CaptureFixture[str]) -> None:
    tracker.send_report.side_effect = lambda kind, name, **_: f"{kind}: {name}, {Path('out/README.md').is_file()}"
    main(["runs", "--out", "out", "--tracker", "tensorboard"])
    tracker.check.assert_called_once_with("tensorboard")
    assert capsys.readouterr().out.splitlines()[-1] == "tensorboard: bench, True"
    assert tracker.send_report.call_args.kwargs["images"]["overview"].startswith(b"\x89PNG")


def test_nobody_is_told_unasked(tracker: Mock) -> None:
    main(["runs"])
    tracker.check.assert_not_called()
    tracker.send_report.assert_not_called()


def test_a_tracker_that_cannot_be_told_is_refused_before_anything_is_read(tracker: Mock) -> None:
    tracker.check.side_effect = TrackerError(NO_KEY)
    with pytest.raises(SystemExit) as ended:
        main(["absent", "--tracker", "wandb"])
    assert ended.value.code == NO_KEY
    assert not Path("report").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("error", [TrackerError("W&B: nobody answers."), OSError("no space")])
def test_the_report_stays_where_nobody_could_be_told(tracker: Mock, error: Exception) -> None:
    tracker.send_report.side_effect = error
    with pytest.raises(
        SystemExit, match=r"^The report is written, but was not sent to the tracker.*(answers\.|no space)$"
    ):
        main(["runs", "--tracker", "wandb"])
    assert Path("report/report.html").is_file()


def test_a_tracker_that_there_is_not_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["runs", "--tracker", "wand"])
    assert ended.value.code == 2
    assert "wandb" in capsys.readouterr().err


def own_environment(folder: Path, **given: str) -> dict[str, str]:
    """That of somebody whom W&B does not know."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    own = {name: str(folder / "own") for name in ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR")}
    own |= {"NETRC": str(folder / "netrc"), "PYTHONPATH": str(ROOT), "WANDB_ERROR_REPORTING": "false"}
    return kept | own | given


@pytest.mark.slow
def test_wandb_keeps_what_it_is_told_offline(tmp_path: Path) -> None:
    runs = fabricate(tmp_path, SMALL)
    command = [sys.executable, "-m", "zoo", "report", str(runs), "--tracker", "wandb"]
    own = own_environment(tmp_path, WANDB_MODE="offline")
    done = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    [kept] = (tmp_path / "runs" / "wandb").glob("offline-run-*")
    assert f"W&B, offline: runs/wandb/{kept.name}; `wandb sync runs/wandb/{kept.name}` sends it." in done.stdout
    sent = told_to_wandb(kept)
    assert (sent["project"], sent["kind"], sent["name"]) == ("cdr-zoo", "report", "bench")
    assert sent["config"]["privacy"]["cold"]["PriCDR, JLT eps 1"]["epsilon"] == 1.0
    kinds = {name: value["_type"] for name, value in sent["logged"].items() if not name.startswith("_")}
    figures = {path.stem: "images/separated" for path in (tmp_path / "report").glob("*.svg")}
    assert kinds == figures | {"results": "table-file", "gains": "table-file"}
    [overview] = (kept / "files" / "media" / "images").glob("overview_*.png")
    assert overview.read_bytes().startswith(png((0, 0, 0))[:8])
    assert not [record for record in records(kept) if record.HasField("environment")]
    assert {record.run.host for record in records(kept) if record.HasField("run")} == {"-"}
    assert not [*kept.rglob("requirements.txt"), *kept.rglob("wandb-metadata.json")], "nothing of the machine"


@pytest.mark.slow
def test_wandb_without_a_key_ends_in_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    runs = fabricate(tmp_path / "bench", BARE)
    (tmp_path / "here").mkdir()
    command = [sys.executable, "-m", "zoo", "report", str(runs), "--tracker", "wandb"]
    where: dict[str, Any] = {"cwd": tmp_path / "here", "env": own_environment(tmp_path)}
    done = subprocess.run(command, **where, capture_output=True, text=True, check=False, timeout=300)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == NO_KEY
    assert "Traceback" not in done.stderr
    assert list((tmp_path / "here").iterdir()) == []
