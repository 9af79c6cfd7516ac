"""What sources weigh in the rows whose runs wrote it down, means over seeds."""

import csv
import math
import statistics
from collections.abc import Iterator
from typing import Any

from zoo.benchmark.report.results import Line, Results, ResultsError, Run
from zoo.runtime.run_folder import ATTENTION

Key = tuple[str, str]  # source and layer


def attention_rows(results: Results) -> list[dict[str, object]]:
    """One row for each task, row, source and layer: its mean weight over users, mean and spread over the seeds that have it."""
    return [row for lines in results.lines.values() for line in lines for row in _of_line(line)]


def _of_line(line: Line) -> Iterator[dict[str, object]]:
    found: dict[Key, list[dict[str, str]]] = {}
    for run in line.runs:
        for row in _written(run):
            found.setdefault((row["source"], row["layer"]), []).append(row)
    for (source, layer), rows in found.items():
        means = [mean for row in rows if not math.isnan(mean := float(row["mean"]))]
        yield {
            "task": line.row.task,
            "row": line.name,
            "source": source,
            "layer": layer,
            "mean": f"{statistics.mean(means):.6f}" if means else "",
            "sd": f"{statistics.stdev(means):.6f}" if len(means) > 1 else "",
            "overlap": f"{statistics.mean(float(row['overlap']) for row in rows):.6f}",
            "seeds": len(rows),
        }


def _written(run: Run) -> list[dict[Any, Any]]:
    """What `AttentionFigure` wrote in a run's folder; nothing where it was not asked for."""
    path = run.folder / ATTENTION
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if rows and not {"source", "layer", "mean", "overlap"} <= rows[0].keys():
        raise ResultsError(f"{path} is none of AttentionFigure's. Remove its folder and run the benchmark again.")
    return rows
