"""Attention weights of sources, gathered over seeds for a report."""

import csv
from pathlib import Path

import pytest

from tests.zoo.benchmark.report.fabricate import BARE, cell_folder, fabricate
from zoo.benchmark.report.files import attention_rows, write_report
from zoo.benchmark.report.results import Line, Results, ResultsError, read_results

HEAD = "source,layer,users,overlap,mean,sd\n"
#: A row with three seeds, and one beside it.
GRID = BARE | {"tasks": {"book-music": {"title": "Book -> Music"}}}


@pytest.fixture
def own_runs(tmp_path: Path) -> Path:
    """Few runs: a report on more takes seconds."""
    return fabricate(tmp_path / "few", GRID)


def line(results: Results) -> Line:
    """The first row that has several seeds."""
    return next(found for found in results.lines["book-music"] if len(found.runs) > 1)


def written(root: Path, results: Results, texts: dict[int, str]) -> Path:
    """Runs of that row, of which these seeds have written down what sources weigh."""
    for seed, text in texts.items():
        (cell_folder(root, line(results), seed) / "attention.csv").write_text(text, encoding="utf-8")
    return root


def test_means_are_over_the_seeds_that_have_them(own_runs: Path, tmp_path: Path) -> None:
    results = read_results(own_runs)
    assert attention_rows(results) == []
    first = f"{HEAD}film,1,9,0.5,0.2,0.1\nfilm,2,9,0.5,0.4,0.1\n$x_{{,1,0,0.0,nan,nan\n"
    second = f"{HEAD}film,1,9,0.7,0.3,0.1\n"
    results = read_results(written(own_runs, results, {0: first, 1: second}))
    shared = {"task": "book-music", "row": line(results).name}
    assert attention_rows(results) == [
        shared
        | {"source": "film", "layer": "1", "mean": "0.250000", "sd": "0.070711", "overlap": "0.600000", "seeds": 2},
        shared | {"source": "film", "layer": "2", "mean": "0.400000", "sd": "", "overlap": "0.500000", "seeds": 1},
        shared | {"source": "$x_{", "layer": "1", "mean": "", "sd": "", "overlap": "0.000000", "seeds": 1},
    ]
    write_report(results, tmp_path / "results" / "many")
    with (tmp_path / "results" / "many" / "attention.csv").open(encoding="utf-8", newline="") as file:
        assert [row["mean"] for row in csv.DictReader(file)] == ["0.250000", "0.400000", ""]


def test_a_file_of_somebody_else_is_refused(own_runs: Path) -> None:
    written(own_runs, read_results(own_runs), {0: "a,b\n1,2\n"})
    with pytest.raises(ResultsError, match=r"attention\.csv lacks columns of AttentionFigure\. Delete its folder"):
        attention_rows(read_results(own_runs))
