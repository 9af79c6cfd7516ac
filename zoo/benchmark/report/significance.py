"""Paired tests of two recommenders, tests of a sweep's shape, and Holm's correction for multiple tests.

Cases are frames with columns ``seed``, ``user_id`` and a metric such as ``ndcg@10``, one row per seed and user. A frame of one
seed with the users of every seed of the other counts as a deterministic recommender and is paired by user alone: the caller
passes such a frame only if its test items are those of every seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import stats

ROUNDING = 1e-13  # relative; closer differences of doubles are equal
SINGLE = 1e-6  # a run's figures are means in single precision; closer figures are equal


@dataclass(frozen=True)
class Comparison:
    """Result of a paired test."""

    difference: float  # mean of ours minus theirs
    low: float  # ends of the 95 % confidence interval of that mean (Student t)
    high: float
    p_value: float  # two-sided, of no difference
    pairs: int
    better: int  # pairs in which ours is higher


def paired(ours: npt.ArrayLike, theirs: npt.ArrayLike, equal: float = 0.0) -> Comparison:
    """Return the paired t-test of independent pairs.

    Equal differences have no t statistic, so the interval is one point. Their p-value is 1 if they are 0, and otherwise that of
    the sign-flip test, ``2 ** (1 - pairs)``.

    Args:
        ours: Finite values, shape ``(pairs,)`` with at least two pairs.
        theirs: Values in the same order and of the same shape.
        equal: Differences that are no further apart are equal.

    Raises:
        ValueError: For other shapes, fewer pairs, NaN or infinite values.

    Examples:
        >>> test = paired([0.3, 0.5, 0.4], [0.2, 0.3, 0.3])
        >>> round(test.difference, 3), round(test.p_value, 3), test.better
        (0.133, 0.057, 3)
    """
    x, y = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(f"Pairs have shapes {x.shape} and {y.shape}. Both must be one-dimensional, equally long.")
    if len(x) < 2:
        raise ValueError(f"The paired test has {len(x)} pairs. It needs two. Add seeds or users.")
    for name, values in (("ours", x), ("theirs", y)):
        if wrong := int((~np.isfinite(values)).sum()):
            raise ValueError(f"{name} has {wrong} NaN or infinite values of {len(x)}. Remove those pairs.")
    rounding = max(equal, ROUNDING * float(np.abs([x, y]).max()))
    differences = x - y
    mean, better = float(differences.mean()), int((differences > rounding).sum())
    if float(np.ptp(differences)) <= rounding:
        p_value = 1.0 if abs(mean) <= rounding else 2.0 ** (1 - len(x))
        return Comparison(mean, mean, mean, p_value, len(x), better)
    test = stats.ttest_rel(x, y)
    interval = test.confidence_interval(0.95)
    return Comparison(mean, float(interval.low), float(interval.high), float(test.pvalue), len(x), better)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's step-down adjusted p-values in the given order; they control the family-wise error rate.

    Reference: Holm, *A Simple Sequentially Rejective Multiple Test Procedure*, Scandinavian Journal of Statistics, 1979.

    Examples:
        >>> holm([0.01, 0.04])
        [0.02, 0.04]
    """
    for p_value in p_values:
        if not 0 <= p_value <= 1:
            raise ValueError(f"A p-value is {p_value}. It must be in [0, 1].")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for position, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - position) * float(p_values[index])))
        adjusted[index] = largest
    return adjusted


@dataclass(frozen=True)
class Shape:
    """Tests of a sweep's shape over seeds: whether the figure rises or falls with the setting, and whether it bends."""

    correlation: float  # mean over seeds of Spearman's correlation of level and figure; 0 for a seed of equal figures
    p_trend: float  # two-sided, of Page's trend test
    bend: Comparison  # the middle above the ends of a parabola through each seed's levels; positive for a bell


def shape(figures: npt.ArrayLike) -> Shape:
    """Return the tests of a sweep's shape; each seed is compared with itself, so differences between seeds do not matter.

    Levels count by rank, so a grid of powers of two is evenly spaced. Equal figures share their mean rank, and Page's test is the
    permutation test of those ranks. The bend is the quadratic contrast within a seed, and orthogonal to a straight slope.

    Args:
        figures: Finite values, shape ``(seeds, levels)`` with at least two seeds and three levels, in the order of the setting.

    Reference: Page, *Ordered Hypotheses for Multiple Treatments: A Significance Test for Linear Ranks*, JASA 1963.

    Examples:
        >>> rising, bell = shape([[1, 2, 4], [2, 3, 5], [0, 2, 3]]), shape([[1, 3, 1.1], [1, 4, 1.2], [0, 3, 0.1]])
        >>> rising.correlation, round(rising.p_trend, 3)
        (1.0, 0.009)
        >>> round(bell.bend.difference, 2), round(bell.bend.p_value, 3)
        (2.6, 0.015)
    """
    values = np.asarray(figures, dtype=np.float64)
    seeds, levels = values.shape
    ranks, places = _ranks(values), np.arange(levels) - (levels - 1) / 2
    lengths = np.sqrt((ranks**2).sum(axis=1) * (places @ places))
    correlation = float(np.divide(ranks @ places, lengths, out=np.zeros(seeds), where=lengths > 0).mean())
    squares = places**2
    contrast = squares.mean() - squares
    bends, mean = values @ contrast / (contrast @ contrast), values.mean(axis=1)
    middle, ends = (mean + bends * (squares.mean() - place) for place in (0.0, squares.max()))
    return Shape(correlation, _page(ranks, places), paired(middle, ends, SINGLE))


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the mean rank of each figure within its seed, less the mean of all, shape ``(seeds, levels)``."""
    order = values.argsort(axis=1)
    ordered = np.take_along_axis(values, order, axis=1)
    steps = np.diff(ordered, axis=1, prepend=ordered[:, :1]) > SINGLE
    groups = np.empty(values.shape, dtype=np.int64)
    np.put_along_axis(groups, order, steps.cumsum(axis=1), axis=1)
    ranks: npt.NDArray[np.float64] = stats.rankdata(groups, axis=1) - (values.shape[1] + 1) / 2
    return ranks


def _page(ranks: npt.NDArray[np.float64], places: npt.NDArray[np.float64]) -> float:
    """Return the two-sided p-value of Page's trend test: exact below eight levels, then that of the normal limit."""
    reached = abs(float((ranks @ places).sum()))
    if len(places) >= 8:
        variance = (ranks**2).sum() * (places @ places) / (len(places) - 1)
        return float(2 * stats.norm.sf(reached / np.sqrt(variance))) if variance else 1.0
    orders, chances = np.array(list(permutations(places))), np.ones(1)
    for row in ranks:  # products of ranks and places are multiples of a quarter
        quarters = np.rint(4 * orders @ row).astype(np.int64)
        chances = np.convolve(chances, np.bincount(quarters - quarters.min()) / len(orders))  # symmetric around 0
    sums = np.arange(len(chances)) - (len(chances) - 1) / 2
    return min(1.0, float(chances[np.abs(sums) >= 4 * reached - 0.5].sum()))


def over_users(ours: pl.DataFrame, theirs: pl.DataFrame, metric: str) -> Comparison:
    """Test over users whether the trained models differ; a user's dependent rows are averaged over seeds first."""
    pairs = common_cases(ours, theirs, metric)
    if pairs.is_empty():
        raise ValueError(f"{len(ours)} and {len(theirs)} rows have no seed and user in common. Compare one split.")
    users = pairs.group_by("user_id").agg(pl.col("ours", "theirs").mean()).sort("user_id")
    return paired(users["ours"].to_numpy(), users["theirs"].to_numpy(), SINGLE)


def over_seeds(ours: pl.DataFrame, theirs: pl.DataFrame, metric: str) -> Comparison | None:
    """Test over seeds whether the difference holds when training is repeated.

    Each seed gives one pair of means over common users. Returns None with fewer than two common seeds, or if no mean depends on
    the seed (two deterministic recommenders).
    """
    seeds = common_cases(ours, theirs, metric).group_by("seed").agg(pl.col("ours", "theirs").mean()).sort("seed")
    means = seeds.select("ours", "theirs").to_numpy()
    if len(means) < 2 or np.ptp(means, axis=0).max() <= ROUNDING * np.abs(means).max():
        return None
    return paired(means[:, 0], means[:, 1], SINGLE)


def common_cases(ours: pl.DataFrame, theirs: pl.DataFrame, metric: str) -> pl.DataFrame:
    """Return columns ``seed``, ``user_id``, ``ours`` and ``theirs`` of common seeds and users, sorted by the first two."""
    first, second = _cases(ours, metric, "ours"), _cases(theirs, metric, "theirs")
    first, second = _under_every_seed(first, second), _under_every_seed(second, first)
    return first.join(second, on=["seed", "user_id"], how="inner").sort("seed", "user_id")


def _cases(frame: pl.DataFrame, metric: str, name: str) -> pl.DataFrame:
    """Return seed, user and the metric under ``name``."""
    missing = [column for column in ("seed", "user_id", metric) if column not in frame.columns]
    if missing:
        raise ValueError(f"{name} lacks {', '.join(missing)}. It must have seed, user_id and {metric}.")
    # a mean would ignore null
    cases = frame.select("seed", "user_id", pl.col(metric).cast(pl.Float64).fill_null(float("nan")).alias(name))
    if twice := int(cases.select("seed", "user_id").is_duplicated().sum()):
        raise ValueError(f"{name} has {twice} rows with a repeated seed and user. Drop these.")
    return cases


def _under_every_seed(frame: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Repeat a frame of one seed for each seed of the other, if all have the same users."""
    seeds = other["seed"].unique()
    if frame["seed"].n_unique() != 1 or len(seeds) < 2:
        return frame
    users = set(frame["user_id"])
    if any(set(part["user_id"]) != users for part in other.partition_by("seed")):
        return frame
    return seeds.to_frame().join(frame.drop("seed"), how="cross")
