"""The files of a report, written atomically, and their contents for experiment trackers."""

import csv
import io
import json
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
from zoo.benchmark.report.latex import latex_files
from zoo.benchmark.report.page import context, origins, render
from zoo.benchmark.report.paired_differences import Gain, Sweep, Transfer, paired_differences, sweeps, transfers
from zoo.benchmark.report.results import LIST_MEASURES, MEASURES, RANKINGS, Line, Results, ResultsError, Run
from zoo.benchmark.report.run_folders import display_path
from zoo.runtime.run_folder import ATTENTION, visible, write_together

#: Handwritten notes for the top of the page.
NOTES = "notes.md"
#: Figures of every case, up to a size in bytes; and the benchmark file with commit, versions, threads and machine.
CASES_FILE, MOST_BYTES, ORIGIN = "cases.parquet", 10**6, "report.json"
#: Files that a tracker gets as tables.
TABLES = ("results.csv", "gains.csv")


def results_csv(results: Results) -> str:
    """Return a line per row of the benchmark with guarantee, metrics and cost."""
    rows = [_result(line) for line in results.rows]
    if any("energy_kwh" in run.report for line in results.rows for run in line.runs):
        rows = [
            row | {"energy_kwh": _number(line.costs["energy_kwh"])}
            for row, line in zip(rows, results.rows, strict=True)
        ]
    return _csv(rows)


def _result(line: Line) -> dict[str, object]:
    view = privacy_of(line)
    found: dict[str, object] = _row(line) | {
        "method": line.runs[0].report["method"],
        "published_as": line.row.published_as,
        **{name: view[name] for name in ("guarantee", "unit", "relation", "delta", "epsilon")},
        "conditions": "; ".join(view["conditions"]),
        **{name: view[name] for name in ("attack_success", "attack_scope", "label", "unprotected_metrics")},
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
        **{name: _rounded(costs[name], 1) for name in ("train_seconds", "cell_seconds", "epochs")},
        **{name: _rounded(costs[name]) for name in ("parameters", "peak_mib", "bytes_released")},
        "trials": line.num_trials,
    }


def _rounded(value: float, digits: int | None = None) -> float | str:
    return "" if math.isnan(value) else round(value, digits)


def seeds_csv(results: Results) -> str:
    """Return a line per run (row and seed) with its metrics."""
    return _csv([_seed(line, run) for line in results.rows for run in line.runs])


def _seed(line: Line, run: Run) -> dict[str, object]:
    figures = product(RANKINGS, (*MEASURES, *LIST_MEASURES))
    own: dict[str, object] = {"seed": run.seed, "cases": len(run.cases), "epochs": _rounded(run.report["epochs"])}
    chosen = line.chosen(run)
    own["chosen"] = "" if chosen is None else json.dumps(chosen)
    return _row(line) | own | {"/".join(figure): _number(run.figure(*figure)) for figure in figures}


def cases_parquet(results: Results) -> bytes:
    """Return the figures of every case by task, row, seed, and numbers of user and item, as Parquet; b"" if it is too large.

    A number stands for the same user or item in all rows.
    """
    if sum(len(run.cases) for line in results.rows for run in line.runs) > MOST_BYTES:  # a case takes at least a byte
        return b""
    small = {"ndcg@10": pl.Float32, "hit_rate@10": pl.Float32, "above": pl.Int32, "level": pl.Int32}
    types = {f"{ranking}/{name}": dtype for ranking, (name, dtype) in product(RANKINGS, small.items())}
    frames = []
    for line in results.rows:
        own = {name: dtype for name, dtype in types.items() if name in line.cases.columns}
        named = pl.lit(line.row.task).alias("task"), pl.lit(line.name).alias("row")
        frames.append(
            line.cases.select(*named, "seed", "user_id", "item_id", *(pl.col(k).cast(v) for k, v in own.items()))
        )
    cases = pl.concat(frames, how="diagonal").with_columns(
        pl.col("task", "row").cast(pl.Categorical),
        pl.col("seed").cast(pl.Int32),
        pl.col("user_id", "item_id").cast(pl.String).rank("dense").cast(pl.Int32),
    )
    file = io.BytesIO()
    cases.write_parquet(file, compression="zstd", compression_level=19)
    return made if len(made := file.getvalue()) <= MOST_BYTES else b""


def origin_json(results: Results, tasks: Sequence[str]) -> str:
    """Return the benchmark file of a report, its tasks, and what its runs were made with, for `--verify`."""
    named = {"config": results.benchmark["config"], "tasks": list(tasks), "runs": results.num_finished}
    return json.dumps({**named, **origins(results)}, indent=1) + "\n"


def _row(line: Line) -> dict[str, object]:
    return {name: getattr(line.row, name) for name in ("task", "system", "release", "control")}


def negative_transfer_csv(found: Sequence[Transfer]) -> str:
    """Return a line per comparison and metric with both means, the difference and both tests."""
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
        "negative_transfer": found.verdict,
    }


def gains_csv(found: Sequence[Gain]) -> str:
    """Return a line per row, baseline and metric with the difference and both tests, corrected and uncorrected."""
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


def _shape(sweep: Sweep) -> dict[str, object]:
    bend = sweep.shape.bend
    return {
        **{name: getattr(sweep, name) for name in ("task", "title", "of", "seeds")},
        "rows": "; ".join(line.name for line in sweep.rows),
        "trend": _number(sweep.shape.correlation),
        "p_trend": f"{sweep.shape.p_trend:.3g}",
        "p_trend_holm": f"{sweep.trend_holm:.3g}",
        **{f"bend_{name}": _number(getattr(bend, name)) for name in ("difference", "low", "high")},
        "p_bend": f"{bend.p_value:.3g}",
        "p_bend_holm": f"{sweep.bend_holm:.3g}",
        "shape": sweep.verdict,
    }


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6f}"


def _csv(rows: Sequence[dict[str, object]]) -> str:
    if not rows:
        return ""
    file = io.StringIO()
    writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    # A terminal obeys control characters, and names may be of another party's run.
    writer.writerows(
        {key: visible(cell) if isinstance(cell, str) else cell for key, cell in row.items()} for row in rows
    )
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
    """Return the rows that `AttentionFigure` wrote into a run's folder; empty without the callback."""
    path = run.folder / ATTENTION
    if not path.is_file():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    if rows and not {"source", "layer", "mean", "overlap"} <= rows[0].keys():
        raise ResultsError(f"{path} lacks columns of AttentionFigure. Delete its folder; repeat the run.")
    return rows


@dataclass(frozen=True)
class WrittenReport:
    """A report on disk."""

    folder: Path
    files: dict[str, str]  # texts by file name, pages last
    pictures: dict[str, Picture]  # by file name without suffix
    has_cases: bool = False  # whether the file of cases is small enough

    @property
    def paths(self) -> list[Path]:
        """Paths of the files."""
        return [self.folder / file for file in (*([CASES_FILE] if self.has_cases else []), *self.files)]


def commands(results: Results, out: Path, tasks: Sequence[str] = ()) -> list[str]:
    """Return the commands that repeat these runs and this report, without absolute paths."""
    where = f"--out {out if not out.is_absolute() else 'report/'}"
    where = "".join(f"--lists {shlex.quote(one)} " for one in results.lists) + where
    if results.folders:
        other = f" --baseline {shlex.quote(results.baseline)}" if results.baseline else ""
        return [f"python -m zoo report {shlex.join(map(display_path, results.folders))}{other} {where}"]
    name, config = (shlex.quote(visible(results.benchmark[key])) for key in ("name", "config"))
    changed = results.baseline != (results.benchmark.get("baseline") or None)
    other = f" --baseline {shlex.quote(results.baseline or '')}" if changed else ""
    only = [f" --only {shlex.quote(f'{slug(task)}/*')}" for task in tasks] or [""]
    chosen = "".join(f" --task {shlex.quote(task)}" for task in tasks)
    runs = [f"python -m zoo benchmark --config {config}{part}" for part in only]
    return [*runs, f"python -m zoo report runs/benchmarks/{name}{chosen}{other} {where}"]


def write_report(
    results: Results, out: Path, tasks: Sequence[str] = (), latex: str | None = None, columns: Sequence[str] = ()
) -> WrittenReport:
    """Write all files of a report atomically; `tasks`, `latex` and `columns` are those of the options."""
    found, transferred = paired_differences(results), transfers(results)
    path = out / NOTES
    notes = path.read_text(encoding="utf-8") if path.is_file() else ""
    cases = cases_parquet(results)
    said = f"Cases: {CASES_FILE} has the figures of every case and seed; users and items are numbered."
    said = (
        said if cases else f"Cases: {CASES_FILE} is left out, since it would have more than {MOST_BYTES // 10**6} MB."
    )
    values = context(results, found, commands(results, out, tasks), notes, transferred, said)
    files = {"results.csv": results_csv(results), "seeds.csv": seeds_csv(results), "gains.csv": gains_csv(found)}
    if not results.folders:
        files[ORIGIN] = origin_json(results, tasks)
    if transferred:
        files["negative_transfer.csv"] = negative_transfer_csv(transferred)
    if shapes := sweeps(results):
        files["sweeps.csv"] = _csv([_shape(each) for each in shapes])
    if attention := attention_rows(results):
        files["attention.csv"] = _csv(attention)
    pictures: dict[str, Picture] = {"overview": values["overview"]}
    for chapter in values["chapters"]:
        for section in chapter.sections:
            pictures |= section.figures
    if latex is not None:
        files |= latex_files(results, values["chapters"], found, latex, columns)
    files |= {f"{name}.svg": picture.svg for name, picture in pictures.items()}
    files |= {"README.md": render("page.md.j2", values), "report.html": render("page.html.j2", values)}
    write_together(out, {**files, CASES_FILE: cases} if cases else files, last="README.md")
    if not cases:
        (out / CASES_FILE).unlink(missing_ok=True)  # of an earlier report
    return WrittenReport(out, files, pictures, has_cases=bool(cases))


def tracker_payload(results: Results, written: WrittenReport) -> dict[str, Any]:
    """Return name, settings, images and tables of a report for a tracker; without a benchmark the name is the title."""
    texts = {name.removesuffix(".csv"): text for name in TABLES if (text := written.files[name])}
    return {
        "name": slug(results.benchmark.get("name") or results.benchmark["title"]),
        "config": tracker_config(results),
        "images": {name: picture.png() for name, picture in written.pictures.items()},
        "tables": {name: pl.read_csv(io.StringIO(text), infer_schema_length=None) for name, text in texts.items()},
    }


def tracker_config(results: Results) -> dict[str, Any]:
    """Return tasks, systems, number of finished runs, and the guarantee of each row."""
    return {
        "benchmark": results.benchmark.get("name") or results.benchmark["title"],
        "tasks": {task: results.benchmark["tasks"][task]["title"] for task in results.lines},
        "systems": list(dict.fromkeys(line.row.system for line in results.rows)),
        "baseline": {task: results.baseline_of(task, results.ranking_of(task)) for task in results.lines},
        "finished": results.num_finished,
        "cells": results.num_runs,
        "privacy": {task: {line.name: privacy_of(line) for line in lines} for task, lines in results.lines.items()},
    }


def privacy_of(line: Line) -> dict[str, Any]:
    """Return the guarantee of a row as plain values; None for missing ones."""
    return line.view.to_dict() | {"unprotected_metrics": line.unprotected_metrics}
