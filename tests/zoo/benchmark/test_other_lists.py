"""Lists of files as rows of a report: our own scores as a file give our own metrics; and tables for LaTeX."""

import dataclasses
from pathlib import Path

import polars as pl
import pytest
import torch

import zoo
from datamodules import Evaluation, Synthetic
from zoo.benchmark.other_lists import rank_cases, read_lists, with_lists
from zoo.benchmark.report.files import write_report
from zoo.benchmark.report.results import LIST_MEASURES, MEASURES, OF_CASES, ResultsError
from zoo.benchmark.report.run_folders import read_run_folders
from zoo.runs.trainer import Run

QUIET = {"accelerator": "cpu", "enable_progress_bar": False, "max_epochs": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run with several test items of a user, and equal scores (of item counts)."""
    evaluation = Evaluation("ratio", shares=(0.5, 0.2, 0.3), average="users")
    data = Synthetic(num_users=40, num_items=60, sources=[], seed=3, evaluation=evaluation)
    made = zoo.fit(zoo.Popularity(), data, runs=tmp_path_factory.mktemp("runs"), seed=3, **QUIET)
    made.test()
    return made


@pytest.mark.thorough
@pytest.mark.parametrize(("suffix", "seed"), [("csv", None), ("parquet", 3)])
def test_our_scores_as_a_file_have_our_metrics(run: Run, tmp_path: Path, suffix: str, seed: int | None) -> None:
    model = zoo.load(run)
    scores = model.scores(model.data, torch.arange(len(model.user_ids)))
    users = [user for user in model.user_ids for _ in model.item_ids]
    table = pl.DataFrame(
        {"user": users, "item_id": model.item_ids * len(scores), "score": (scores / 7).flatten().tolist()}
    )
    table = table.sample(fraction=1.0, shuffle=True, seed=0)
    table = table if seed is None else table.with_columns(seed=seed)
    (table.write_csv if suffix == "csv" else table.write_parquet)(path := tmp_path / f"lists.{suffix}")
    results = with_lists(read_run_folders([run.folder]), f"theirs={path}")
    ours, theirs = (line for lines in results.lines.values() for line in lines)
    assert theirs.name == "theirs, lists of a file"
    for measure in (*MEASURES, *(m for m in LIST_MEASURES if m.split("@")[0] in OF_CASES)):
        assert theirs.mean("full", measure) == pytest.approx(ours.mean("full", measure), abs=1e-6, nan_ok=True), measure
    written = write_report(results, tmp_path / "report", latex="full ranking", columns=["row", "NDCG@10"])
    (text,) = (text for name, text in written.files.items() if name.endswith(".tex"))
    assert "\\toprule\nrow & NDCG@10" in text
    assert "theirs, lists of a file & " in text
    written = write_report(results, tmp_path / "all", latex="")
    assert not any("\\midrule\n\\bottomrule" in text for text in written.files.values()), "no table without rows"
    with pytest.raises(ResultsError, match="No table has 'absent' in its title"):
        write_report(results, tmp_path / "report", latex="absent")


def test_lists_are_for_the_test_of_most_rows_wherever_they_stand(run: Run, tmp_path: Path) -> None:
    results = read_run_folders([run.folder])
    ((task, (line,)),) = results.lines.items()
    (tested,) = line.runs
    odd = dataclasses.replace(line.runs[0], listed=tested.cases.with_columns(item_id=pl.col("item_id").reverse()))
    rows = [dataclasses.replace(line, runs=(one,)) for one in (odd, tested, tested)]
    hits = tested.cases.select("user_id", "item_id", rank=1.0).unique("user_id")
    hits.write_csv(tmp_path / "lists.csv")
    expected = with_lists(results, str(tmp_path / "lists.csv")).lines[task][-1]
    found = with_lists(dataclasses.replace(results, lines={task: rows}), str(tmp_path / "lists.csv")).lines[task][-1]
    assert found.mean("full", "ndcg@10") == expected.mean("full", "ndcg@10") > 0


def test_a_list_counts_the_item_of_its_case_and_none_that_is_not_ranked() -> None:
    names = [f"i{n}" for n in range(12)]
    lists = pl.DataFrame({"user_id": ["a"] * 12, "item_id": names, "order": [float(n) for n in range(12)]})
    cases = pl.DataFrame({"user_id": ["a", "a", "a", "b"], "item_id": ["i3", "i5", "absent", "i1"]})
    held = {"user_id": ["a"] * 4 + ["b"], "item_id": ["i0", "i3", "i5", "absent", "i1"]}  # i0 is known
    found = rank_cases(lists, cases, pl.DataFrame(held))
    assert found["listed"].to_list() == [10, 10, 9, 0]
    assert found["full/above"].to_list() == [2, 3, 10, 10]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user_id,item_id\na,x\n", "It needs user_id, item_id, and rank or score"),
        ("user_id,item_id,rank\na,x,1\na,x,2\n", "lists an item twice"),
        ("user_id,item_id,score\na,x,\n", "has missing values"),
        ("user_id,item_id,score\na,x,best\n", "is unreadable"),
    ],
)
def test_files_that_are_no_lists_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "lists.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ResultsError, match=message):
        read_lists(tmp_path / "lists.csv")


def test_lists_of_other_ids_and_other_seeds_are_refused(run: Run, tmp_path: Path) -> None:
    results = read_run_folders([run.folder])
    for line, message in (("nobody,x,1,3", "no user and item of the test"), ("a,x,1,9", "lists of seed 9")):
        (tmp_path / "lists.csv").write_text(f"user_id,item_id,rank,seed\n{line}\n", encoding="utf-8")
        with pytest.raises(ResultsError, match=message):
            with_lists(results, str(tmp_path / "lists.csv"))
