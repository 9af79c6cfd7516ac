"""Drift between two tables of ratings of one domain, and coverage and popularity of served lists."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from rich.table import Column, Table
from scipy import stats
from scipy.spatial.distance import jensenshannon

from datamodules.cache import PreparedTarget
from datamodules.splits import PAIR
from datamodules.tables import read_table
from zoo.data.list_metrics import ListMetrics
from zoo.data.ratings import Ratings, index_of
from zoo.data.rows import SparseRows
from zoo.runtime.run_folder import TARGET

#: Pairs of samples that estimate the distance without drift.
DRAWS = 20
#: Most items of all lists, each counted as long as the longest.
MOST_LISTED = 2**26


def read_pairs(path: Path) -> pl.DataFrame:
    """Return the distinct user_id and item_id of a run's training ratings, or of a file with these columns.

    Raises:
        ValueError: The path is neither.
    """
    if path.is_file():
        return (
            read_table(path, rating_column=None, timestamp_column=None).select(pl.col(*PAIR).cast(pl.String)).unique()
        )
    made = PreparedTarget.load(path / TARGET, ())
    if made is None:
        raise ValueError(f"No ratings at {path}. Pass a file, or a run with keep_ratings.")
    pairs = made.train.matrix.tocoo()
    return pl.DataFrame({"user_id": made.train.user_ids[pairs.row], "item_id": made.train.item_ids[pairs.col]})


def compare(old: pl.DataFrame, new: pl.DataFrame) -> dict[str, float]:
    """Return the drift from one table of distinct user_id and item_id to another.

    * js_distance: square root of the Jensen-Shannon divergence, in bits, of the shares of items in the ratings. 0: equal shares; 1:
      no common item (Lin, *Divergence Measures Based on the Shannon Entropy*, IEEE Transactions on Information Theory 1991; Endres
      and Schindelin, *A New Metric for Probability Distributions*, ibid. 2003: the root is a metric).
    * js_distance_by_chance: its mean over `DRAWS` pairs of independent samples of both sizes, from the shares of both tables
      together. So small tables have a distance without any drift. If one table contains the other, it is an upper bound.
    * rank_correlation: Spearman's rho of the items' counts; a missing item counts 0. NaN if all counts of a table are equal.
    * share_of_users_without_history: users of the new table without a rating in the old one, over all users of the new one.
    * share_of_ratings_of_new_items: ratings of the new table whose item has no rating in the old one, over all.

    Examples:
        >>> old = pl.DataFrame({"user_id": ["ann", "ann", "bob"], "item_id": ["emma", "dune", "dune"]})
        >>> new = pl.DataFrame({"user_id": ["bob", "cem"], "item_id": ["dune", "solaris"]})
        >>> found = compare(old, new)
        >>> found["new_users"], found["gone_items"], found["share_of_users_without_history"]
        (1, 1, 0.5)
        >>> round(found["js_distance"], 3)
        0.652
    """
    found: dict[str, float] = {"old_ratings": old.height, "new_ratings": new.height}
    for column in PAIR:
        before, after = (set(table[column]) for table in (old, new))
        what = f"{column.removesuffix('_id')}s"
        found |= {f"old_{what}": len(before), f"new_{what}": len(after - before), f"gone_{what}": len(before - after)}
    counts = _item_counts(old, new)
    return found | {
        "share_of_users_without_history": found["new_users"] / max(new["user_id"].n_unique(), 1),
        "share_of_ratings_of_new_items": float(counts[1][counts[0] == 0].sum()) / max(new.height, 1),
        "js_distance": _js_distance(*counts),
        "js_distance_by_chance": _distance_by_chance(counts),
        "rank_correlation": _rank_correlation(counts),
    }


def _item_counts(old: pl.DataFrame, new: pl.DataFrame) -> npt.NDArray[np.int64]:
    """Return the numbers of ratings of each item of either table, shape ``(2, items)``."""
    before, after = (table.group_by("item_id").agg(pl.len().alias(name)) for table, name in ((old, "a"), (new, "b")))
    joined = before.join(after, on="item_id", how="full", coalesce=True).fill_null(0).sort("item_id")
    return joined.select("a", "b").to_numpy().T.astype(np.int64)


def _js_distance(first: npt.NDArray[np.int64], second: npt.NDArray[np.int64]) -> float:
    return float(jensenshannon(first.tolist(), second.tolist(), base=2))


def _distance_by_chance(counts: npt.NDArray[np.int64]) -> float:
    rng, shares = np.random.default_rng(0), counts.sum(0) / counts.sum()
    pairs = [[rng.multinomial(total, shares) for total in counts.sum(1)] for _ in range(DRAWS)]
    return float(np.mean([_js_distance(*pair) for pair in pairs]))


def _rank_correlation(counts: npt.NDArray[np.int64]) -> float:
    if (np.ptp(counts, axis=1) == 0).any():
        return float("nan")
    return float(stats.spearmanr(*counts).statistic)


def served(old: pl.DataFrame, lists: pl.DataFrame) -> dict[str, float]:
    """Return `ListMetrics` of lists with user_id, rank and item_id, by the owners of items in a table of ratings.

    ``owners_of_a_rating`` is the mean number of owners of the rated items, to compare ``arp`` with. Items without a rating there
    are left out and counted.
    """
    train = Ratings.from_table(old.with_columns(rating=pl.lit(1.0)))
    columns = SparseRows.from_ratings(train.transpose())
    lists = lists.with_columns(at=index_of(train.item_ids, lists["item_id"]))
    known = lists.filter(pl.col("at") >= 0)
    if known.is_empty():
        raise ValueError(f"The lists have {lists.height} rows, and no item of the ratings. Pass lists of these items.")
    cases = known.sort("rank").group_by("user_id", maintain_order=True).agg("at")["at"].to_list()
    k = max(map(len, cases))
    if len(cases) * k > MOST_LISTED:
        raise ValueError(
            f"{len(cases):,} lists have up to {k:,} items. Allowed: {MOST_LISTED:,} in all. Shorten the longest."
        )
    best = torch.tensor([[*items, *[-1] * (k - len(items))] for items in cases])
    metrics = ListMetrics(columns, [k])
    metrics.update(best)
    owners = columns.counts().double()
    return {name: float(value) for name, value in metrics.compute().items()} | {
        "owners_of_a_rating": float(owners.square().sum() / owners.sum()),
        "listed_items_without_a_rating": lists.height - known.height,
    }


def comparison_table(found: Mapping[str, float]) -> Table:
    """Return figures as a table for the terminal."""
    table = Table("", Column("", justify="right"), title="From old to new")
    for name, value in found.items():
        table.add_row(name.replace("_", " "), f"{value:,}" if isinstance(value, int) else f"{value:.4f}")
    return table


def read_lists(path: Path) -> pl.DataFrame:
    """Return lists that ``recommend --out`` wrote, CSV or Parquet."""
    table = read_table(path, rating_column="rank", timestamp_column=None)
    ids = (pl.col(name).cast(pl.String) for name in PAIR)
    return table.select(*ids, rank=pl.col("rating").cast(pl.Int64))
