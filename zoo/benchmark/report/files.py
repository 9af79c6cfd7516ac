"""The files of a report, written all together or not at all, and what a tracker gets of them."""

import csv
import io
import math
import shlex
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import polars as pl

from zoo.benchmark.grid import slug
from zoo.benchmark.report.figures import Picture
from zoo.benchmark.report.gains import Gain, Transfer, gains, transfers
from zoo.benchmark.report.page import context, render
from zoo.benchmark.report.results import BASELINE, LIST_MEASURES, MEASURES, RANKINGS, Line, Results, ResultsError, Run
from zoo.benchmark.report.run_folders import named
from zoo.runtime.run_folder import ATTENTION, write_together

#: Written by hand, put at the top of the page.
NOTES = "notes.md"
#: Files of a report that a tracker gets as tables.
TABLES = ("results.csv", "gains.csv")


def results_csv(results: Results) -> str:
    """One line per row of the benchmark: what it is, what it guarantees, every figure, and its cost."""
    return _csv([_result(line) for line in results.rows])


def _result(line: Line) -> dict[str, object]:
    guarantee = line.guarantee
    found: dict[str, object] = _row(line) | {
        "method": line.runs[0].report["method"],
        "published_as": line.row.published_as,
        "guarantee": line.standing,
        **{name: getattr(guarantee, name, "") for name in ("unit", "relation", "delta")},
        "epsilon": line.epsilon,
        "conditions": "; ".join(line.conditions),
        "seeds": len(line.runs),
        "cases": round(line.average(lambda r: len(r.cases))),
    }
    for ranking, measure in product(RANKINGS, MEASURES):
        found[f"{ranking}/{measure}"] = _number(line.mean(ranking, measure))
        found[f"{ranking}/{measure} sd"] = _number(line.sd(ranking, measure))
    for ranking, measure in product(RANKINGS, LIST_MEASURES):
        found[f"{ranking}/{measure}"] = _number(line.mean(ranking, measure))
    costs = line.costs
    return found | {
        "ranked_by_item_counts": round(line.average(lambda r: r.report["ranked_by_item_counts"])),
        **{name: round(costs[name], 1) for name in ("train_seconds", "cell_seconds", "epochs")},
        **{name: round(costs[name]) for name in ("parameters", "peak_mib", "bytes_released")},
        "trials": line.trials,
    }


def seeds_csv(results: Results) -> str:
    """One line per run, of a row and a seed: every figure, so that one seed can be made again and compared."""
    return _csv([_seed(line, run) for line in results.rows for run in line.runs])


def _seed(line: Line, run: Run) -> dict[str, object]:
    figures = product(RANKINGS, (*MEASURES, *LIST_MEASURES))
    own: dict[str, object] = {"seed": run.seed, "cases": len(run.cases), "epochs": run.report["epochs"]}
    return _row(line) | own | {"/".join(figure): _number(run.figure(*figure)) for figure in figures}


def _row(line: Line) -> dict[str, object]:
    return {name: getattr(line.row, name) for name in ("task", "system", "release", "control")}


def negative_transfer_csv(found: Sequence[Transfer]) -> str:
    """One line per row with sources, what it is held against and figure: both means, the difference and both tests."""
    return _csv([_transfer(transfer) for transfer in found])


def _transfer(found: Transfer) -> dict[str, object]:
    figure = found.gain.ranking, found.gain.measure
    return {
        "series": found.series,
        "kind": found.kind,
        "domains": found.domains,
        "fewer": "" if found.fewer is None else found.fewer,
        **_difference(found.gain),
        "mean": _number(found.gain.line.mean(*figure)),
        "sd": _number(found.gain.line.sd(*figure)),
        "against_mean": _number(found.other.mean(*figure)),
        "against_sd": _number(found.other.sd(*figure)),
        "negative_transfer": found.said,
    }


def gains_csv(found: Sequence[Gain]) -> str:
    """One line per row, control and figure: the difference and both tests, corrected and not."""
    return _csv([_difference(gain) for gain in found])


def _difference(gain: Gain) -> dict[str, object]:
    users, seeds = gain.users, gain.seeds
    return {
        "task": gain.task,
        "row": gain.line.name,
        "against": gain.against,
        "figure": f"{gain.ranking}/{gain.measure}",
        **{name: _number(getattr(users, name)) for name in ("difference", "low", "high")},
        "users": users.pairs,
        "users_better": users.better,
        "p_users": f"{users.p_value:.3g}",
        "p_users_holm": f"{gain.users_holm:.3g}",
        "seeds": seeds.pairs if seeds else "",
        "seeds_better": seeds.better if seeds else "",
        "p_seeds": f"{seeds.p_value:.3g}" if seeds else "",
        "p_seeds_holm": "" if gain.seeds_holm is None else f"{gain.seeds_holm:.3g}",
    }


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6f}"


def _csv(rows: Sequence[dict[str, object]]) -> str:
    if not rows:
        return ""
    file = io.StringIO()
    writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def attention_rows(results: Results) -> list[dict[str, object]]:
    """Return mean attention weights over users by task, row, source and layer, with mean and spread over seeds."""
    return [row for line in results.rows for row in _of_line(line)]


def _of_line(line: Line) -> Iterator[dict[str, object]]:
    by_place: dict[tuple[str, str], list[dict[str, str]]] = {}
    for run in line.runs:
        for row in _attention_of(run):
            by_place.setdefault((row["source"], row["layer"]), []).append(row)
    for (source, layer), rows in by_place.items():
        means = [mean for row in rows if not math.isnan(mean := float(row["mean"]))]
        mean = statistics.mean(means) if means else math.nan
        sd = statistics.stdev(means) if len(means) > 1 else math.nan
        overlap = statistics.mean(float(row["overlap"]) for row in rows)
        found = {"task": line.row.task, "row": line.name, "source": source, "layer": layer}
        yield {**found, "mean": _number(mean), "sd": _number(sd), "overlap": _number(overlap), "seeds": len(rows)}


def _attention_of(run: Run) -> list[dict[Any, Any]]:
    """What `AttentionFigure` wrote in a run's folder; nothing where it was not asked for."""
    path = run.folder / ATTENTION
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if rows and not {"source", "layer", "mean", "overlap"} <= rows[0].keys():
        raise ResultsError(f"{path} is none of AttentionFigure's. Remove its folder and run it again.")
    return rows


@dataclass(frozen=True)
class Written:
    """A report that was written."""

    folder: Path
    files: dict[str, str]  # their texts by name, the pages last
    pictures: dict[str, Picture]  # by the names of their files without an ending

    @property
    def paths(self) -> list[Path]:
        """Where the files are."""
        return [self.folder / file for file in self.files]


def commands(results: Results, out: Path, tasks: Sequence[str] = ()) -> list[str]:
    """What to give to make these runs and this report again, without names of folders of this machine."""
    where = f"--out {out if not out.is_absolute() else 'report/'}"
    if results.folders:
        other = f" --baseline {shlex.quote(results.baseline)}" if results.baseline else ""
        return [f"python -m zoo report {shlex.join(map(named, results.folders))}{other} {where}"]
    name, config = results.benchmark["name"], results.benchmark["config"]
    asked = results.baseline != (results.benchmark.get("baseline") or BASELINE)
    other = f" --baseline {shlex.quote(results.baseline)}" if asked else ""
    only = [f" --only {shlex.quote(f'{slug(task)}/*')}" for task in tasks] or [""]
    chosen = "".join(f" --task {shlex.quote(task)}" for task in tasks)
    ran = [f"python -m zoo benchmark --config {config}{part}" for part in only]
    return [*ran, f"python -m zoo report runs/benchmarks/{name}{chosen}{other} {where}"]


def write_report(results: Results, out: Path, tasks: Sequence[str] = ()) -> Written:
    """Write every file of the report; each is whole or not there. `tasks` are those asked for."""
    found, moved = gains(results), transfers(results)
    notes = out / NOTES
    written = notes.read_text(encoding="utf-8") if notes.is_file() else ""
    values = context(results, found, commands(results, out, tasks), written, moved)
    files = {"results.csv": results_csv(results), "seeds.csv": seeds_csv(results), "gains.csv": gains_csv(found)}
    if moved:
        files["negative_transfer.csv"] = negative_transfer_csv(moved)
    if weighed := attention_rows(results):
        files["attention.csv"] = _csv(weighed)
    pictures: dict[str, Picture] = {"overview": values["overview"]}
    for chapter in values["chapters"]:
        for section in chapter.sections:
            pictures |= section.figures
    files |= {f"{name}.svg": picture.svg for name, picture in pictures.items()}
    files |= {"README.md": render("page.md.j2", values), "report.html": render("page.html.j2", values)}
    write_together(out, files, last="README.md")
    return Written(out, files, pictures)


def as_tracked(results: Results, written: Written) -> dict[str, Any]:
    """Return what a tracker gets of a report; the name of one without a benchmark is its title."""
    texts = {name.removesuffix(".csv"): text for name in TABLES if (text := written.files[name])}
    return {
        "name": slug(results.benchmark.get("name") or results.benchmark["title"]),
        "config": settings(results),
        "images": {name: picture.png() for name, picture in written.pictures.items()},
        "tables": {name: pl.read_csv(io.StringIO(text), infer_schema_length=None) for name, text in texts.items()},
    }


def settings(results: Results) -> dict[str, Any]:
    """What is compared, how much of it is finished, and unit, epsilon and delta of each row."""
    return {
        "benchmark": results.benchmark.get("name") or results.benchmark["title"],
        "tasks": {task: results.benchmark["tasks"][task]["title"] for task in results.lines},
        "systems": list(dict.fromkeys(line.row.system for line in results.rows)),
        "baseline": results.baseline,
        "finished": results.finished,
        "cells": results.cells,
        "privacy": {task: {line.name: privacy_of(line) for line in lines} for task, lines in results.lines.items()},
    }


def privacy_of(line: Line) -> dict[str, Any]:
    """What a row guarantees, as plain values; None where it guarantees nothing."""
    kind = line.guarantee
    found = {name: getattr(kind, name, None) for name in ("unit", "relation", "delta")}
    conditions = list(line.conditions) if kind else []
    return found | {"guarantee": line.standing, "epsilon": line.epsilon, "conditions": conditions}
