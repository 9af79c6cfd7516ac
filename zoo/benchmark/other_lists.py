"""Lists of other libraries as a row of a report: each held-out case of a run, ranked by a file of recommendations."""

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from zoo.benchmark.grid import Row
from zoo.benchmark.report.results import CUT_OFFS, Line, Results, ResultsError, Run
from zoo.benchmark.report.run_folders import display_path
from zoo.data.open_table import column_names, open_columns
from zoo.runtime.run_folder import visible

#: Release of such a row, by which no report takes it for a single-domain baseline.
RELEASE = "lists of a file"
#: Columns of a file: user and item, and one of these.
IDS, ORDERS = ("user_id", "item_id"), ("rank", "score")


def read_lists(path: Path) -> pl.DataFrame:
    """Return a file of recommendations: ``user_id``, ``item_id``, ``order`` (the smallest is best) and, if present, ``seed``.

    Args:
        path: Parquet, or CSV; columns ``user_id`` (or ``user``), ``item_id`` (or ``item``), and ``rank`` (from 1) or ``score``.

    Raises:
        ResultsError: The file is unreadable, a column is missing or not a number, or a user has an item twice.
    """
    try:
        names = column_names(path)
        ids = [name if name in names else name.removesuffix("_id") for name in IDS]
        order = next((name for name in ORDERS if name in names), None)
        if order is None or not {*ids} <= {*names}:
            raise ResultsError(f"{path} has the columns {names}. It needs user_id, item_id, and rank or score.")
        sign = 1 if order == "rank" else -1
        own = ["seed"] if "seed" in names else []
        found = open_columns(path, [*ids, order, *own]).rename(dict(zip(ids, IDS, strict=True)))
        numbers = (pl.col(order).cast(pl.Float64) * sign).alias("order"), *(pl.col(name).cast(pl.Int64) for name in own)
        lists = found.select(*IDS, *numbers)
    except ResultsError:
        raise
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise ResultsError(f"{path} is unreadable ({str(error).splitlines()[0]}). Pass Parquet or CSV.") from error
    if lists["order"].is_nan().any() or any(lists.null_count().row(0)):
        raise ResultsError(f"{path} has missing values. Each row needs user, item, and rank or score. Remove it.")
    if lists.select(pl.exclude("order")).is_duplicated().any():
        raise ResultsError(f"{path} lists an item twice for one user. Each item counts once. Remove repetitions.")
    return lists


def rank_cases(
    lists: pl.DataFrame,
    cases: pl.DataFrame,
    unranked: pl.DataFrame,
    ties: Literal["expected", "pessimistic"] = "expected",
) -> pl.DataFrame:
    """Return cases with ``full/above``, ``full/level`` and metrics by lists; a held-out item that is not listed is a miss.

    Args:
        lists: Result of `read_lists`, of one seed.
        cases: Held-out cases with ``user_id`` and ``item_id``.
        unranked: Pairs of ``user_id`` and ``item_id`` that full ranking leaves out: known items and the user's held-out items.
        ties: Treatment of equal scores.

    Returns:
        The cases in their order, with ``full/hit_rate@5`` and so on and ``listed``, the number of items of the user's
        list that are ranked for the case, its own among them.

    Examples:
        >>> lists = pl.DataFrame({"user_id": ["a"] * 3, "item_id": ["x", "y", "z"], "order": [1.0, 2.0, 3.0]})
        >>> cases = pl.DataFrame({"user_id": ["a", "b"], "item_id": ["z", "x"]})
        >>> known = pl.DataFrame({"user_id": ["a", "a"], "item_id": ["x", "z"]})
        >>> rank_cases(lists, cases, known)["full/ndcg@10"].round(4).to_list()
        [0.6309, 0.0]
    """
    import torch  # other reports load neither

    from zoo.data.metrics import ranking_values

    others = lists.join(unranked, on=IDS, how="anti")
    found = cases.select(IDS).with_row_index("case").join(lists, on=IDS, how="left")
    better, tied = pl.col("other") < pl.col("order"), pl.col("other") == pl.col("order")
    counted = (
        found.join(others.select("user_id", other="order"), on="user_id", how="left")
        .group_by("case", maintain_order=True)
        .agg(above=better.sum(), level=tied.sum(), others=pl.col("other").count(), order=pl.col("order").first())
        .sort("case")
    )
    missed = pl.col("order").is_null()
    counted = counted.with_columns(
        above=pl.when(missed).then(pl.max_horizontal("others", max(CUT_OFFS))).otherwise("above"),
        listed=pl.col("others") + missed.not_(),
    )
    num_better, num_tied = (torch.from_numpy(counted[name].to_numpy().astype(np.int64)) for name in ("above", "level"))
    values = ranking_values(num_better, num_tied, CUT_OFFS, ties).numpy()
    figures = {
        f"full/{name}@{k}": values[i, j]
        for i, k in enumerate(CUT_OFFS)
        for j, name in enumerate(("hit_rate", "ndcg", "mrr"))
    }
    counts = {"full/above": counted["above"], "full/level": counted["level"], "listed": counted["listed"]}
    return cases.with_columns(**{name: pl.Series(value) for name, value in (figures | counts).items()})


def with_lists(results: Results, given: str) -> Results:
    """Return the results with a row of lists, given as ``NAME=FILE`` or ``FILE``; their text counts cases without a whole list.

    Lists without a column ``seed`` are ranked on the cases of the smallest seed.

    Raises:
        ResultsError: There are several tasks, the data of the run are not available, or no user of the lists is in its test.
    """
    name, _, file = given.rpartition("=")
    path = Path(file)
    name = name or path.stem
    if len(results.lines) > 1:
        raise ResultsError(
            f"--lists is given, and there are the tasks {', '.join(results.lines)}. Choose one: --task NAME."
        )
    (task, lines), lists = next(iter(results.lines.items())), read_lists(path)
    ranked = [run for line in reversed(lines) for run in line.runs if line.has("full")]
    usual = Counter((run.seed, run.held_out) for run in ranked)
    runs = {run.seed: run for run in sorted(ranked, key=lambda run: usual[run.seed, run.held_out])}  # of most rows
    if not runs:
        raise ResultsError("No run ranks all items, and lists need that. Set full_ranking to test.")
    seeds = lists["seed"].unique().to_list() if "seed" in lists.columns else [min(runs)]
    if other := sorted(set(seeds) - runs.keys()):
        raise ResultsError(f"{path} has lists of seed {other[0]}. The runs have the seeds {sorted(runs)}.")
    made = []
    for seed in sorted(seeds):
        own = lists.filter(pl.col("seed") == seed).drop("seed") if "seed" in lists.columns else lists
        made.append(_run(own, runs[seed], name, path))
    row = Row(task, name, RELEASE)
    entry = {"task": task, "system": name, "release": RELEASE, "seeds": [run.seed for run in made]}
    cells = {f"lists/{name}/seed-{run.seed}": "" for run in made}
    benchmark = results.benchmark | {
        "rows": [*results.benchmark["rows"], entry], "cells": results.benchmark["cells"] | cells,
    }  # fmt: skip
    few, number = (
        sum(int((run.cases["listed"] < max(CUT_OFFS)).sum()) for run in made),
        sum(len(run.cases) for run in made),
    )
    said = f"{visible(name)}: {few:,} of {number:,} cases have fewer than {max(CUT_OFFS)} listed items; an unlisted item is a miss."
    benchmark["about"] = " ".join(filter(None, [benchmark["about"].strip(), said]))
    return replace(
        results,
        benchmark=benchmark,
        lines={task: [*lines, Line(row, tuple(made))]},
        num_finished=results.num_finished + len(made),
        lists=(*results.lists, f"{name}={display_path(path)}"),
    )


def _run(lists: pl.DataFrame, run: Run, name: str, path: Path) -> Run:
    """Return the cases of a run ranked by lists, as a run without cost and release."""
    from zoo.runs.inputs import UsageError
    from zoo.runs.loading import data_of_run

    try:
        data = data_of_run(run.folder)
        data.read_target()
    except (OSError, UsageError) as error:
        raise ResultsError(f"The data of {run.folder} are unavailable ({error}). Lists need them.") from error
    train, test = data.train, data.test
    users = np.repeat(np.arange(len(train.user_ids)), np.diff(test.seen.starts.numpy()))
    known = pl.DataFrame({"user_id": train.user_ids[users], "item_id": train.item_ids[test.seen.items.numpy()]})
    ranked = np.delete(train.item_ids, test.left_out.numpy())
    lists = lists.filter(pl.col("item_id").is_in(ranked.tolist()))
    cases = rank_cases(lists, run.cases.select(*IDS, "train_items", "linked", "seed"), known.cast(pl.String), data.ties)
    if not cases["listed"].sum():
        raise ResultsError(f"{path} has no user and item of the test. Use the ids of the ratings files.")
    each = (
        cases.select(1 / pl.len().over("user_id") if data.average == "users" else pl.ones(len(cases)))
        .to_series()
        .to_numpy()
    )
    metrics = {f"test/{name}": float(np.average(cases[name], weights=each)) for name in cases.columns if "@" in name}
    nothing = dict.fromkeys(("train_seconds", "epochs", "parameters", "peak_memory"), math.nan)
    report = {"method": name, "metrics": metrics, "ranked_by_item_counts": 0, "release_bytes": {}, **nothing}
    return Run(run.seed, path.with_suffix(""), report, {}, math.nan, 0, {}, listed=cases)
