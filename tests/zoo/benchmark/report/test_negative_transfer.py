"""Soft and hard negative transfer: which rows are held against which, and what is said of them."""

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.zoo.benchmark.report.fabricate import BARE, OTHERS, Facts, line_of, reread, rng_of, unproved
from zoo.benchmark.grid import Row
from zoo.benchmark.report.files import write_report
from zoo.benchmark.report.paired_differences import TRANSFER_METRICS, Transfer, transfers
from zoo.benchmark.report.results import RANKINGS, Line, Results, ResultsError
from zoo.benchmark.report.significance import holm

pytestmark = pytest.mark.thorough

TASKS = {4: "few", 8: "more", 16: "most"}
#: Two systems of several sources, one of them held against its own row without a release; another one is in no comparison.
SERIES: dict[str, Any] = BARE | {
    "tasks": {task: {"title": task.title()} for task in TASKS.values()},
    "series": {"Books": {16: "most", 4: "few", 8: "more"}},
    "systems": {
        "LightGCN": {"config": "system.yaml", "tasks": ["few"]},
        "EMCDR": {
            "config": "system.yaml",
            "single": "LightGCN",
            "releases": [{"publisher": "Plaintext"}, {"publisher": "JLT", "tasks": ["most"], "noise_control": False}],
        },
        "PriCDR": {
            "config": "system.yaml",
            "single": "PriCDR, Nothing",
            "releases": [{"publisher": "Plaintext"}, {"publisher": "Nothing", "tasks": ["few"]}],
        },
        "UserKNN": {"config": "system.yaml", "releases": [{"publisher": "Plaintext"}]},
    },
}
#: How far up EMCDR's rows stand, by task; all others stand at 1.
GAINS = {"few": 3.0, "more": 0.4, "most": 1.0}
USERS = [f"u{i:02}" for i in range(60)]


def facts_of(row: Row, seed: int) -> Facts:
    """Ranks of the same users everywhere."""
    gain = GAINS[row.task] if row.system == "EMCDR" and not row.control else 1.0
    drawn = rng_of("ranks", row.name, seed).exponential(12.0, len(USERS)) / gain
    ranks = {ranking: np.minimum(drawn, others).astype(np.int64) for ranking, others in OTHERS.items()}
    return Facts(ranks, USERS, [5] * len(USERS), [True] * len(USERS), {"book": unproved()} if row.release else {})


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return reread(tmp_path_factory.mktemp("series"), SERIES, facts_of)


@pytest.fixture(scope="module")
def found(series: Results) -> list[Transfer]:
    return transfers(series)


def of(found: list[Transfer], ranking: str = "full", measure: str = "ndcg@10") -> list[Transfer]:
    return [each for each in found if (each.gain.ranking, each.gain.measure) == (ranking, measure)]


def test_rows_are_held_against_their_target_alone_and_themselves_with_fewer_sources(found: list[Transfer]) -> None:
    expected = {("soft", f"{name}, Plaintext", n, None, single) for n in TASKS for name, single in SINGLES.items()}
    expected |= {("soft", "EMCDR, JLT", 16, None, "LightGCN")}
    rows = [f"{name}, Plaintext" for name in SINGLES]
    expected |= {("hard", row, more, fewer, row) for row in rows for more, fewer in ((8, 4), (16, 4), (16, 8))}
    for ranking in RANKINGS:
        for measure in TRANSFER_METRICS:
            own = of(found, ranking, measure)
            pairs = [(each.kind, each.gain.line.name, each.domains, each.fewer, each.other.name) for each in own]
            assert set(pairs) == expected
            assert len(pairs) == len(expected)
            assert all(TASKS[each.domains] == each.gain.line.row.task for each in own)
            assert all(each.fewer is None or TASKS[each.fewer] == each.other.row.task for each in own)
    assert {each.gain.against for each in found} == {"LightGCN", "PriCDR, Nothing", "4 domains", "8 domains"}


SINGLES = {"EMCDR": "LightGCN", "PriCDR": "PriCDR, Nothing"}


def test_what_is_lower_is_told_from_what_is_lower_by_chance(found: list[Transfer]) -> None:
    """Gains of 3, 0.4 and 1: the second is below the target alone and below the first, the third below the first."""
    own = [each for each in of(found) if each.gain.line.name == "EMCDR, Plaintext"]
    said = {(each.domains, each.fewer): each.verdict for each in own}
    assert said[4, None] == said[16, 8] == "-"
    assert said[8, None] == "soft"
    assert said[8, 4] == said[16, 4] == "hard"
    other = [each for each in of(found) if each.gain.line.row.system == "PriCDR" and each.kind == "hard"]
    assert all(each.gain.users.difference == 0 and each.verdict == "-" for each in other), "equal is not lower"
    for each in found:
        assert each.negative == (each.gain.users.difference < 0)
        assert each.verdict.endswith("not significant") == (each.negative and each.gain.users_holm >= 0.05)


def test_the_difference_is_that_of_the_means(series: Results, found: list[Transfer]) -> None:
    for each in found:
        figure = each.gain.ranking, each.gain.measure
        less = each.gain.line.mean(*figure) - each.other.mean(*figure)
        assert each.gain.users.difference == pytest.approx(less, abs=1e-6)
        assert each.gain.users.pairs == len(USERS)
    [soft] = [each for each in of(found) if each.gain.line.name == "EMCDR, JLT"]
    assert soft.other is line_of(series, "few", "LightGCN")


def test_p_values_are_corrected_for_soft_and_hard_apart(found: list[Transfer]) -> None:
    for kind in ("soft", "hard"):
        own = [each.gain for each in of(found) if each.kind == kind]
        assert [gain.users_holm for gain in own] == holm([gain.users.p_value for gain in own])


def test_a_row_of_the_same_task_is_the_target_alone_before_others(tmp_path: Path) -> None:
    systems = {**SERIES["systems"], "LightGCN": {"config": "system.yaml"}}
    for each in transfers(reread(tmp_path, SERIES | {"systems": systems}, facts_of)):
        if each.kind == "soft" and each.other.row.system == "LightGCN":
            assert each.other.row.task == each.gain.line.row.task


@pytest.mark.parametrize("gone", ["LightGCN", "few"])
def test_what_is_not_finished_is_left_out(series: Results, gone: str) -> None:
    tasks = {task: lines for task, lines in series.lines.items() if task != gone}
    left = {task: [line for line in lines if line.row.system != gone] for task, lines in tasks.items()}
    kinds = {(each.kind, each.gain.line.row.system) for each in transfers(replace(series, lines=left))}
    soft = {("soft", "PriCDR")} if gone == "LightGCN" else set()
    assert kinds == {("hard", "EMCDR"), ("hard", "PriCDR")} | soft


@pytest.mark.parametrize(
    "change",
    [
        lambda cases: cases.with_columns(user_id="other " + pl.col("user_id")),
        lambda cases: cases.with_columns(item_id=pl.col("item_id").reverse()),
        lambda cases: cases.filter(pl.col("user_id") != USERS[0]),
    ],
    ids=["users", "items", "fewer users"],
)
def test_tasks_that_test_others_are_no_series(series: Results, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    lines = [Line(line.row, line.runs) for line in series.lines["most"]]
    for line in lines:
        line.__dict__["cases"] = pl.concat([change(run.cases) for run in line.runs])
    message = (
        "Series 'Books': EMCDR, Plaintext on 'most' and LightGCN on 'few' have different test cases. A series needs"
    )
    with pytest.raises(ResultsError, match=message):
        transfers(replace(series, lines=series.lines | {"most": lines}))


def test_the_report_tells_of_every_comparison(series: Results, found: list[Transfer], tmp_path: Path) -> None:
    write_report(series, tmp_path)
    lines = list(csv.DictReader((tmp_path / "negative_transfer.csv").read_text(encoding="utf-8").splitlines()))
    assert len(lines) == len(found)
    for line, each in zip(lines, found, strict=True):
        assert (line["series"], line["kind"], line["negative_transfer"]) == ("Books", each.kind, each.verdict)
        assert (line["row"], line["against"]) == (each.gain.line.name, each.gain.against)
        assert (int(line["domains"]), line["fewer"]) == (each.domains, str(each.fewer or ""))
        means = float(line["mean"]) - float(line["against_mean"])
        assert float(line["difference"]) == pytest.approx(means, abs=3e-6)
    page = (tmp_path / "README.md").read_text(encoding="utf-8")
    chapter = page[page.index("## Negative transfer: Books") :]
    assert "an increasing number of domains: 4 (Few), 8 (More), 16 (Most)." in chapter
    assert chapter.count("| EMCDR, Plaintext | 4 domains | 8 |") == 4, "two figures in two rankings"
    assert chapter.count("| soft |") > 0 < chapter.count("| hard |")
    assert 'id="series-books"' in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_without_a_series_nothing_is_said(report: Path) -> None:
    assert not (report / "negative_transfer.csv").exists()
    assert "Negative transfer" not in (report / "README.md").read_text(encoding="utf-8")
