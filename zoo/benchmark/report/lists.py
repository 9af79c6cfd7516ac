"""Metrics of a run's lists that follow from its test cases, and groups of users by activity."""

import polars as pl


def list_figures(cases: pl.DataFrame, ranking: str, k: int) -> dict[str, float]:
    """Return mean recall, precision and MAP over users by names such as ``recall@10``; empty if the cases lack them.

    AP@K of ``m`` held-out items is the sum of the precisions at their ranks up to K, divided by ``min(m, K)``. With ``m = 1`` the
    metrics equal HR@K, HR@K / K and MRR@K. Ties count by their exact expectation.

    Reference: Manning, Raghavan and Schütze, *Introduction to Information Retrieval*, 2008, sections 8.3 and 8.4. McSherry and
    Najork, *Computing Information Retrieval Performance Measures Efficiently in the Presence of Tied Scores*, ECIR 2008.

    Args:
        cases: Cases of one run with the columns ``user_id``, ``<ranking>/hit_rate@K`` and ``mrr@K``. Users with several held-out
            items need ``full/above`` and ``full/level``: numbers of other items above and tied with each.
        ranking: ``full``, or ``sampled``, where each user must have one held-out item.
        k: The cut-off.

    Examples:
        >>> cases = pl.DataFrame({"user_id": ["a", "b"], "full/hit_rate@10": [1.0, 0.0], "full/mrr@10": [0.5, 0.0]})
        >>> list_figures(cases, "full", 10)
        {'recall@10': 0.5, 'precision@10': 0.05, 'map@10': 0.25}
    """
    hits, reciprocal = (f"{ranking}/{name}@{k}" for name in ("hit_rate", "mrr"))
    if not cases["user_id"].is_duplicated().any():
        if not {hits, reciprocal} <= {*cases.columns}:
            return {}
        recall, mean_precision = (float(cases[name].cast(pl.Float64).to_numpy().mean()) for name in (hits, reciprocal))
        return {f"recall@{k}": recall, f"precision@{k}": recall / k, f"map@{k}": mean_precision}
    if ranking != "full" or not {"full/above", "full/level"} <= {*cases.columns}:
        return {}
    users = _users(cases.select("user_id", above=pl.col("full/above"), level=pl.col("full/level")), k)
    of_users = users.select(
        (pl.col("hits") / pl.col("held_out")).mean().alias(f"recall@{k}"),
        (pl.col("hits") / k).mean().alias(f"precision@{k}"),
        (pl.col("found") / pl.col("held_out").clip(upper_bound=k)).mean().alias(f"map@{k}"),
    )
    return of_users.row(0, named=True)


def activity_groups(cases: pl.DataFrame) -> dict[str, pl.Expr]:
    """Return a condition per quarter of the users by their number of training items; users with equal numbers share a group.

    Examples:
        >>> cases = pl.DataFrame({"user_id": list("abcd"), "train_items": [1, 2, 2, 9]})
        >>> list(activity_groups(cases))
        ['1', '2', '3 to 9']
    """
    users = cases.group_by("user_id").agg(pl.col("train_items").min())["train_items"].sort().to_list()
    ends = sorted({users[-(-len(users) * part // 4) - 1] for part in (1, 2, 3, 4)}) if users else []
    starts = [*users[:1], *(end + 1 for end in ends)]
    return {
        str(end) if start == end else f"{start} to {end}": pl.col("train_items").is_between(start, end)
        for start, end in zip(starts, ends, strict=False)
    }


def activity_gap(cases: pl.DataFrame, ranking: str, k: int) -> dict[str, float]:
    """Return the largest minus the smallest mean NDCG@K of the `activity_groups`; empty for fewer than two groups.

    Reference: Li et al., *User-oriented Fairness in Recommendation*, WWW 2021 (the difference of the mean metric of two groups by
    activity). Departure: quarters of the users, and the two that differ most.

    Examples:
        >>> cases = pl.DataFrame({"user_id": ["a", "b"], "train_items": [1, 9], "full/ndcg@10": [0.25, 1.0]})
        >>> activity_gap(cases, "full", 10)
        {'ndcg_gap@10': 0.75}
    """
    name = f"{ranking}/ndcg@{k}"
    if not {name, "train_items"} <= {*cases.columns}:
        return {}
    groups = (cases.filter(where)[name].cast(pl.Float64).mean() for where in activity_groups(cases).values())
    means = [mean for mean in groups if isinstance(mean, float)]
    return {f"ndcg_gap@{k}": max(means) - min(means)} if len(means) > 1 else {}


def _users(cases: pl.DataFrame, k: int) -> pl.DataFrame:
    """Return each user's number of held-out items, expected hits, and expected sum of precisions up to K.

    All orders of a tie are equally likely. A tie of ``size`` items (``m`` held out) follows ``before`` items (``h`` held out).
    Rank ``t`` of the tie is a held-out item with probability ``m / size``; in that case ``h + 1 + (t - 1)(m - 1)/(size - 1)``
    held-out items are expected up to it.
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
