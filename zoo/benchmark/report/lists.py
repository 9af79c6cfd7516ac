"""Recall, precision and MAP of users' lists, from the ranks of their held-out items.

A user's list is that of all items, best first, without those that are known of the user otherwise. With ``m`` held-out items,

* Recall@K is the share of them that stand among the first K;
* Precision@K is the share of the first K that they are;
* AP@K is the sum of the precision at the place of each that stands among the first K, over ``min(m, K)``; MAP@K its mean.

Where ``m`` is 1 for everybody, these are HR@K, HR@K / K and MRR@K. Reference: Manning, Raghavan and Schütze, *Introduction to
Information Retrieval*, 2008, sections 8.3 and 8.4; the cut at K, and ``min(m, K)`` so that a perfect list has 1, are custom among
recommenders. Ties count in expectation over their breaking, exactly, as in McSherry and Najork, *Computing Information Retrieval
Performance Measures Efficiently in the Presence of Tied Scores*, ECIR 2008.
"""

import polars as pl

#: What is told of the lists, and how tables call it; the last two stand in the run's own figures (`zoo.data.metrics.ListMetrics`).
LIST_NAMES = {
    "recall": "Recall",
    "precision": "Precision",
    "map": "MAP",
    "coverage": "coverage",
    "novelty": "novelty",
}


def list_figures(cases: pl.DataFrame, ranking: str, k: int) -> dict[str, float]:
    """Recall, precision and MAP at a cut-off, means over users, by names such as ``recall@10``; empty where cases do not tell.

    Args:
        cases: Of one run, with the columns ``user_id``, and ``<ranking>/hit_rate@K`` and ``mrr@K``, or where somebody has several
            held-out items ``full/above`` and ``full/level``: how many other items are above each and level with it.
        ranking: ``full``, or ``sampled``, where each held-out item has candidates of its own, so that only who has one has a list.
        k: The cut-off.
    """
    hits, reciprocal = (f"{ranking}/{name}@{k}" for name in ("hit_rate", "mrr"))
    if not cases["user_id"].is_duplicated().any():
        if not {hits, reciprocal} <= {*cases.columns}:
            return {}
        recall, mean_precision = (float(cases[name].cast(pl.Float64).to_numpy().mean()) for name in (hits, reciprocal))
        return _named(k, recall, recall / k, mean_precision)
    if ranking != "full" or not {"full/above", "full/level"} <= {*cases.columns}:
        return {}
    users = _users(cases.select("user_id", above=pl.col("full/above"), level=pl.col("full/level")), k)
    of_users = users.select(
        (pl.col("hits") / pl.col("held_out")).mean().alias("recall"),
        (pl.col("hits") / k).mean().alias("precision"),
        (pl.col("found") / pl.col("held_out").clip(upper_bound=k)).mean().alias("map"),
    )
    return _named(k, *of_users.row(0))


def _named(k: int, recall: float, precision: float, mean_precision: float) -> dict[str, float]:
    return {f"recall@{k}": recall, f"precision@{k}": precision, f"map@{k}": mean_precision}


def _users(cases: pl.DataFrame, k: int) -> pl.DataFrame:
    """Of each user how many items were held out, and of the first K places the expected hits and sum of precisions.

    Held-out items with as many items above them and level with them stand in one tie, in which every order is equally likely. A
    tie of ``size`` items, ``m`` of them held out, stands behind ``before`` items, ``h`` of them held out. Its place ``t`` is
    that of a held-out one with chance ``m / size``; if it is, ``h + 1 + (t - 1)(m - 1)/(size - 1)`` stand up to there, on average.
    """
    m, h, before, size = (pl.col(name) for name in ("m", "h", "before", "size"))
    ties = (
        cases.group_by("user_id", "above", "level")
        .agg(pl.len().cast(pl.Int64).alias("m"))
        .sort("user_id", "above", "level")
        .with_columns(h=m.cum_sum().over("user_id") - m)
        .with_columns(before=pl.col("above") + h, size=m + pl.col("level"))
    )
    share, others = m / size, (m - 1) / (size - 1).clip(lower_bound=1)
    places = [
        pl.when((t <= size) & (before + t <= k)).then(share * (h + 1 + others * (t - 1)) / (before + t)).otherwise(0.0)
        for t in range(1, k + 1)
    ]
    hits = share * (k - before).clip(lower_bound=0, upper_bound=size)
    return (
        ties.with_columns(hits=hits, found=pl.sum_horizontal(places))
        .group_by("user_id")
        .agg(pl.col("m").sum().alias("held_out"), pl.col("hits", "found").sum())
        .sort("user_id")
    )
