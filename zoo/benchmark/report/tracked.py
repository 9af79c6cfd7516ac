"""Tracked: what W&B or TensorBoard is told of a report, its figures, its tables, and what each row guarantees."""

import io
from typing import Any

import polars as pl

from zoo.benchmark.grid import slug
from zoo.benchmark.report.results import Line, Results
from zoo.benchmark.report.written import Written
from zoo.runtime.trackers import Told

#: Files of a report that are sent as tables.
TABLES = ("results.csv", "gains.csv")


def told(results: Results, written: Written) -> Told:
    """One run of its own, named after the benchmark; runs without one are named by how many they are."""
    return Told(
        kind="report",
        name=slug(results.benchmark.get("name") or results.benchmark["title"]),
        config=settings(results),
        images={name: picture.png() for name, picture in written.pictures.items()},
        tables={name.removesuffix(".csv"): table(text) for name in TABLES if (text := written.files[name])},
    )


def settings(results: Results) -> dict[str, Any]:
    """What is compared, how much of it is finished, and unit, epsilon and delta of each row."""
    rows = [line for lines in results.lines.values() for line in lines]
    return {
        "benchmark": results.benchmark.get("name") or results.benchmark["title"],
        "tasks": {task: results.benchmark["tasks"][task]["title"] for task in results.lines},
        "systems": list(dict.fromkeys(line.row.system for line in rows)),
        "baseline": results.baseline,
        "finished": results.finished,
        "cells": results.cells,
        "privacy": {task: {line.name: privacy_of(line) for line in lines} for task, lines in results.lines.items()},
    }


def privacy_of(line: Line) -> dict[str, Any]:
    """What a row guarantees, as plain values; None where it guarantees nothing."""
    kind = line.guarantee
    return {
        "guarantee": line.standing,
        "unit": kind and kind.unit,
        "relation": kind and kind.relation,
        "epsilon": line.epsilon,
        "delta": kind and kind.delta,
        "conditions": list(line.conditions) if kind else [],
    }


def table(text: str) -> pl.DataFrame:
    """A CSV file's columns, numbers as numbers."""
    return pl.read_csv(io.StringIO(text), infer_schema_length=None)
