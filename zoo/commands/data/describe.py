"""Description of the data of an experiment: counts, effect of filters, overlap, long tail, and leaks in sources."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from rich import box
from rich.markup import escape
from rich.table import Column, Table

from datamodules import CrossDomainDataModule
from datamodules.data_quality import collected_facts, numbered_alike, same_numbers, suspicious_counts, times_of
from datamodules.filters import binarise, filter_counts
from datamodules.public_lists import COMMON, agreed_users, read_catalogue
from datamodules.splits import PAIR, Split, hold_out, ties_in_time
from datamodules.tables import merge_repeats, with_categories
from zoo.data.held_out_cases import protocol_lines
from zoo.runs.cli import ZooCLI, import_names
from zoo.runs.probing import Probe
from zoo.runs.trainer import quietly
from zoo.runtime.run_folder import atomic_write, visible


def read_datamodule(config: Path, overrides: Sequence[str]) -> CrossDomainDataModule:
    """Return the datamodule of an experiment, without opening data."""
    import_names()
    with quietly():
        warnings.filterwarnings("ignore", message="LightningCLI's args parameter")  # until `quietly` ends
        return ZooCLI(args=["--config", str(config), *overrides], run=False).datamodule


def describe_data(data: CrossDomainDataModule) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """Return facts about each available domain and each source, and the number of ratings of each item.

    Sources have the rows that they publish, the target those of `fit`. Domains without a file are listed as absent.
    """
    domains = (data.target, *data.sources)
    listed = data.common_users() if data.users == COMMON else agreed_users(data.users)
    tables: dict[str, pl.DataFrame] = {}
    found: dict[str, Any] = {"target": data.target, "domains": {}, "absent": {}, "sources": {}}
    found |= {"times": {}, "suspicious": {}, "alike": []}
    for domain in domains:
        try:
            with collected_facts() as facts:
                steps = _steps(data, domain, listed)
        except FileNotFoundError as error:
            found["absent"][domain] = str(error)
            continue
        found["suspicious"][domain] = suspicious_counts(steps["file"], facts, data.filters)
        if facts and (times := times_of(facts[0])):
            found["times"][domain] = {**times, "warning": facts[0].implausible}
        found["domains"][domain] = {name: _counts(table) for name, table in steps.items()}
        tables[domain] = list(steps.values())[-1]
    evaluation, split = data.evaluation, None
    if data.target in tables:
        given = data.shipped_rows(data.target)
        split = hold_out(tables[data.target], evaluation, data.split_seed, data.target, given)
    sources = () if evaluation.earlier_sources and split is None else tables.keys() - {data.target}
    for name in sources if evaluation.hold_out_of_sources or evaluation.earlier_sources else ():
        tables[name] = data.published_rows(name, tables[name], split)
        found["domains"][name]["published"] = _counts(tables[name])
    if split is not None:
        found["split"] = {"name": evaluation.split, **{part: getattr(split, part).height for part in Split._fields}}
        found["split"]["unknown_items"] = _unknown_items(
            split, "include" if data.filters.signs else evaluation.unknown_items
        )
        found["split"]["ties_in_time"] = ties_in_time(split) if evaluation.by_time else {}
        found["sources"] = {
            name: _compare(split, tables[data.target], tables[name]) for name in data.sources if name in tables
        }
        items = {name: table["item_id"].unique().cast(pl.String).to_list() for name, table in tables.items()}
        for name in found["sources"]:
            if alike := numbered_alike(items[data.target], items[name]):
                found["alike"].append(same_numbers(data.target, name, alike))
    return found, {
        name: sorted(table["item_id"].value_counts()["count"].to_list(), reverse=True) for name, table in tables.items()
    }


def _steps(data: CrossDomainDataModule, domain: str, listed: list[str] | None) -> dict[str, pl.DataFrame]:
    """Return the rows of a domain after each step, from its file to its filters."""
    filters, catalogue = data.filters, data.catalogues.get(domain)
    found = {"file": with_categories(data.read(domain))}
    found["threshold"] = binarise(merge_repeats(found["file"]), filters.threshold, filters.signs, may_be_empty=True)
    if isinstance(catalogue, Path):
        found["catalogue"] = found["threshold"].filter(pl.col("item_id").is_in(read_catalogue(catalogue)))
    last = list(found.values())[-1]
    least = filters.min_user_ratings, filters.min_item_ratings
    found["filters"] = filter_counts(
        last, *least, listed if data.limited_to_list(domain) else None, filters.iterated, may_be_empty=True
    )
    return found


def _counts(table: pl.DataFrame) -> dict[str, Any]:
    users, items = (table[column].n_unique() for column in PAIR)
    each = np.sort(table["item_id"].value_counts()["count"].to_numpy())[::-1]
    head = int(each[: -(-len(each) // 10)].sum())
    return {
        "users": users,
        "items": items,
        "ratings": table.height,
        "density": table.height / max(users * items, 1),
        "share_of_the_most_rated_tenth": head / max(table.height, 1),
    }


def _unknown_items(split: Split, rule: str) -> dict[str, Any]:
    """Return how many held-out rows have an item without a training rating."""
    parts = {"validation": split.validation, "test": split.test}
    unknown = {name: part.join(split.train, on="item_id", how="anti").height for name, part in parts.items()}
    return unknown | {f"of_{name}": part.height for name, part in parts.items()} | {"rule": rule}


def _compare(split: Split, target: pl.DataFrame, source: pl.DataFrame) -> dict[str, int | None]:
    """Return what a source shares with the target, and how many held-out items it reveals."""
    users, items = (set(target[column]) & set(source[column]) for column in PAIR)
    held_out = pl.concat([split.validation, split.test])
    first = split.test["timestamp"].min()
    unknown = split.test["timestamp"].has_nulls() or source["timestamp"].has_nulls()
    later = None if unknown or first is None else source.filter(pl.col("timestamp") >= first).height
    return {
        "users_in_both": len(users),
        "items_in_both": len(items),
        "same_pairs": target.join(source, on=PAIR, how="semi").height,
        "held_out_pairs_in_source": held_out.join(source, on=PAIR, how="semi").height,
        "ratings_since_the_first_test_item": later,
    }


def _number(count: int | None) -> str:
    return "unknown, no times" if count is None else f"{count:,}"


def tables(found: Mapping[str, Any]) -> Iterator[Table]:
    """Yield the description as tables for the terminal."""
    names = ("users", "items", "ratings", "density", "most rated tenth")
    table = Table("", "after", *(Column(name, justify="right") for name in names), title="Data after each step")
    for domain, steps in found["domains"].items():
        for step, counts in steps.items():
            numbers = [f"{counts[name]:,}" for name in names[:3]]
            shares = [f"{counts['density']:.3%}", f"{counts['share_of_the_most_rated_tenth']:.1%}"]
            table.add_row(escape(visible(domain)) if step == "file" else "", step, *numbers, *shares)
    absent = [f"{escape(visible(name))} is not available" for name in found["absent"]]
    notes = ["most rated tenth: share of ratings of the most rated tenth of items", *absent]
    table.caption = "\n".join([*notes, *protocol_lines(found.get("split", {}))])
    yield table
    yield from _quality_tables(found)
    if found["sources"]:
        rows = list(next(iter(found["sources"].values())))
        table = Table(
            "compared with target", *(Column(escape(visible(name)), justify="right") for name in found["sources"])
        )
        for row in rows:
            table.add_row(row.replace("_", " "), *(_number(facts[row]) for facts in found["sources"].values()))
        if any(facts["held_out_pairs_in_source"] for facts in found["sources"].values()):
            table.caption = "A source contains held-out pairs of the target: test items can leak through it."
        yield table


def _quality_tables(found: Mapping[str, Any]) -> Iterator[Table]:
    """Yield first and last date of each domain, and its suspicious values."""
    if found.get("times"):
        table = Table("", "unit", "first", "last", "warning", title="Times")
        for domain, times in found["times"].items():
            table.add_row(escape(visible(domain)), *(times[name] for name in ("unit", "first", "last", "warning")))
        yield table
    rows = [(domain, *row) for domain, counts in found.get("suspicious", {}).items() for row in counts.items()]
    if rows or found.get("alike"):
        table = Table("", Column("count", justify="right"), "values", title="Suspicious values")
        for domain, clause, count in rows:
            table.add_row(escape(visible(domain)), f"{count:,}", escape(visible(clause)))
        table.caption = escape(visible("\n".join(found.get("alike", []))))
        yield table


def probe_table(found: Probe) -> Table:
    """Return a probe as a table for the terminal: mean ± standard error of each rule, and the verdict."""
    names = [name for name in found.rules.columns if f"{name}_se" in found.rules.columns]
    titles = {"hit_rate@10": "HR@10", "ndcg@10": "NDCG@10"}
    columns = [f"{titles[measure]}, {kind}" for kind, measure in (name.split("/") for name in names)]
    figures = (Column(title, justify="right") for title in columns)
    table = Table(Column("rule", no_wrap=True), *figures, box=box.SIMPLE, pad_edge=False, padding=(0, 0, 0, 1))
    table.title = f"Probes: target {escape(visible(found.domain))}, split {found.split}"
    for row in found.rules.to_dicts():
        mark = "*" if row["rule"] in found.named else ""
        errors = (f"{row[f'{name}_se']:.4f}".removeprefix("0") for name in names)
        cells = (f"{row[name]:.4f} ±{error}" for name, error in zip(names, errors, strict=True))
        table.add_row(row["rule"] + mark, *cells)
    window = "" if found.window is None else f"recent popularity: the latest {found.window:.2%} of the training ratings"
    reasons = [f"{rule}: left out, since {reason}" for rule, reason in found.missing.items()]
    meanings = [f"* {rule}: {meaning}" for rule, meaning in found.named.items()]
    table.caption = escape("\n".join(filter(None, [window, *reasons, found.verdict, *meanings])))
    table.caption_justify = "left"
    return table


def long_tail(tails: Mapping[str, Sequence[int]], path: Path) -> None:
    """Plot the number of ratings of each item by rank, for each domain."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    for name, counts in tails.items():
        axes.loglog(np.arange(1, len(counts) + 1), counts, label=visible(name))
    axes.set(xlabel="items, the most rated first", ylabel="ratings", title="Long tail")
    axes.legend()
    with atomic_write(path) as temporary:
        figure.savefig(temporary, format="svg", metadata={"Date": None})
