"""Paired tests of one recommender against another, and Holm's correction for several of them.

Cases are frames with columns ``seed``, ``user_id`` and a metric such as ``ndcg@10``, one row per seed and user. A frame with one
seed, whose users are those of every seed of the other, is taken for a deterministic recommender and paired by user alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

ROUNDING = 1e-13  # relative; differences of double-precision values closer than this are equal


@dataclass(frozen=True)
class Comparison:
    """Outcome of a paired test."""

    difference: float  # mean of ours minus theirs
    low: float  # ends of the 95 % confidence interval of that mean (Student t)
    high: float
    p_value: float  # two-sided, of no difference
    pairs: int
    better: int  # pairs in which ours is higher


def paired(ours: npt.ArrayLike, theirs: npt.ArrayLike) -> Comparison:
    """Return the paired t-test of independent pairs.

    Equal differences have no t statistic: the interval is the point itself. The p-value is 1 if they are 0, and otherwise that of
    the sign-flip test, ``2 ** (1 - pairs)``, the smallest without a model of their spread.

    Both arguments are finite, in one order, and have shape ``(pairs,)`` with at least two pairs.
    """
    x, y = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"Pairs have shapes {x.shape} and {y.shape}. They must be one-dimensional and equally long.")
    if len(x) < 2:
        raise ValueError(f"A paired test has {len(x)} pairs. It needs at least two; add seeds or users.")
    for name, values in (("ours", x), ("theirs", y)):
        if wrong := int((~np.isfinite(values)).sum()):
            raise ValueError(f"{name} has {wrong} NaN or infinite values of {len(x)}. Leave those pairs out.")
    rounding = ROUNDING * float(np.abs([x, y]).max())
    differences = x - y
    mean, better = float(differences.mean()), int((differences > rounding).sum())
    if float(np.ptp(differences)) <= rounding:
        p_value = 1.0 if abs(mean) <= rounding else 2.0 ** (1 - len(x))
        return Comparison(mean, mean, mean, p_value, len(x), better)
    test = stats.ttest_rel(x, y)
    interval = test.confidence_interval(0.95)
    return Comparison(mean, float(interval.low), float(interval.high), float(test.pvalue), len(x), better)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p-values, in the order given.

    They control the family-wise error rate under any dependence.

    Reference: Holm, *A Simple Sequentially Rejective Multiple Test Procedure*, Scandinavian Journal of Statistics, 1979.
    """
    for p_value in p_values:
        if not 0 <= p_value <= 1:
            raise ValueError(f"A p-value is {p_value}. It must lie in [0, 1].")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for position, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - position) * float(p_values[index])))
        adjusted[index] = largest
    return adjusted


def over_users(ours: pl.DataFrame, theirs: pl.DataFrame, metric: str) -> Comparison:
    """Test over users whether the trained models differ.

    A user's rows under several seeds are dependent, so they are averaged first.
    """
    pairs = common_cases(ours, theirs, metric)
    if pairs.is_empty():
        raise ValueError(f"{len(ours)} and {len(theirs)} rows share no seed and user. Compare runs of one split.")
    users = pairs.group_by("user_id").agg(pl.col("ours", "theirs").mean()).sort("user_id")
    return paired(users["ours"].to_numpy(), users["theirs"].to_numpy())


def over_seeds(ours: pl.DataFrame, theirs: pl.DataFrame, metric: str) -> Comparison | None:
    """Test over seeds whether the difference of the means holds when training is repeated.

    Each seed gives one pair of means over common users. None with fewer than two common seeds, or if neither mean changes with the
    seed: two deterministic recommenders give one observation.
    """
    seeds = common_cases(ours, theirs, metric).group_by("seed").agg(pl.col("ours", "theirs").mean()).sort("seed")
    means = seeds.select("ours", "theirs").to_numpy()
    if len(means) < 2 or np.ptp(means, axis=0).max() <= ROUNDING * np.abs(means).max():
        return None
    return paired(means[:, 0], means[:, 1])


def common_cases(ours: pl.DataFrame, theirs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Return columns ``seed``, ``user_id``, ``ours`` and ``theirs`` of common seeds and users.

    Sorted, so that sums do not depend on the order of the rows.
    """
    first, second = _cases(ours, metric, "ours"), _cases(theirs, metric, "theirs")
    first, second = _under_every_seed(first, second), _under_every_seed(second, first)
    return first.join(second, on=["seed", "user_id"], how="inner").sort("seed", "user_id")


def _cases(frame: pl.DataFrame, metric: str, name: str) -> pl.DataFrame:
    """The three columns that matter, the metric under ``name``."""
    missing = [column for column in ("seed", "user_id", metric) if column not in frame.columns]
    if missing:
        raise ValueError(f"{name} lacks {', '.join(missing)}. It must have the columns seed, user_id and {metric}.")
    # null becomes NaN, because a mean would pass over it in silence
    cases = frame.select("seed", "user_id", pl.col(metric).cast(pl.Float64).fill_null(float("nan")).alias(name))
    if twice := int(cases.select("seed", "user_id").is_duplicated().sum()):
        raise ValueError(f"{name} has {twice} rows that share seed and user. Drop repeats.")
    return cases


def _under_every_seed(frame: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """A frame of one seed repeated for each seed of the other, if it has several and all have the same users."""
    seeds = other["seed"].unique()
    if frame["seed"].n_unique() != 1 or len(seeds) < 2:
        return frame
    users = set(frame["user_id"])
    if any(set(part["user_id"]) != users for part in other.partition_by("seed")):
        return frame
    return seeds.to_frame().join(frame.drop("seed"), how="cross")
