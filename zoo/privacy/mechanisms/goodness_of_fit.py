"""Goodness of fit: statistics of numbers and cells that carry noise, compared with the law of the noise alone.

Nothing here depends on what the ratings are: each count or sum of squares is compared with its law where every rating is the one
that makes it smallest, which is that of the noise alone (of counts that may be too large: the one that makes it largest). So
rows that pass may still hold too little noise, and rows that fail do not hold what is claimed.

The probability to refuse rows that are as claimed is at most `FALSE_ALARM` for a release, whatever was rated: each of its tests has
its share of that, and so has each of the many users or items that one test looks at.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from scipy.stats import beta, binom, chi2

from zoo.privacy.mechanisms.base import Arrays, Finding, Mechanism, MechanismError
from zoo.privacy.randomness.noise import lattice_spacing

Floats = npt.NDArray[np.float64]

FALSE_ALARM = 1e-9
"""Upper bound of the probability that rows which are as their record says are refused."""
FAR = 1.5
"""Standard deviations of the noise from both 0 and 1."""

_CHUNK = 2**20  # numbers looked at at a time
_MOST_COLUMNS = 2**25  # beyond, single items are not looked at
_MANY = 64  # squares whose sum rounding does not change


def refuse_unlikely(mechanism: Mechanism, tensors: Arrays, false_alarm: float = FALSE_ALARM) -> None:
    """Refuse tensors that cannot have the noise of a mechanism.

    Raises:
        MechanismError: With the statistic that is too unlikely, or what is impossible.
    """
    mechanism.check_kind(tensors)
    users = len(tensors["starts"]) - 1 if "starts" in tensors else max(map(len, tensors.values()))
    found = mechanism.check(tensors) if users else []
    for what, probability in found:
        if probability * len(found) < false_alarm:
            raise MechanismError(
                f"The tensors fail the noise test of {mechanism.name} (p < {false_alarm:.0e}): {what}. They were altered, or drawn "
                "with other noise."
            )


def dense_rows(mechanism: Mechanism, tensors: Arrays, width: int) -> npt.NDArray[np.float32]:
    """Return the rows (users, width) of a release that has noise on all numbers, of the sizes that a mechanism has."""
    if "rows" not in tensors:
        raise MechanismError(
            f"The record of {mechanism.name} claims noise on all numbers, and the rows are stored sparse."
        )
    rows: npt.NDArray[np.float32] = tensors["rows"]
    check_sizes(mechanism, len(rows), rows.shape[1], width)
    return rows


def check_sizes(mechanism: Mechanism, users: int, width: int, stated: int) -> None:
    """Refuse rows of another width, or of more users, than a mechanism has."""
    if width != stated or users > mechanism.num_users:
        raise MechanismError(
            f"The record of {mechanism.name} is of {mechanism.num_users} users and width {stated}. The rows are {users} of width "
            f"{width}."
        )


# Numbers with Gaussian noise.


@dataclass
class Squares:
    """Sums of squares of rows ``(users, width)``."""

    of_rows: Floats  # (users,)
    of_columns: Floats  # (width,)
    far: int  # values that are far from both 0 and 1

    @classmethod
    def of(cls, rows: npt.NDArray[np.float32], sigma: float, *, centred: bool, cells: bool) -> "Squares":
        """One look at the rows, which must lie on the lattice of the noise."""
        sums, first = cls(np.empty(len(rows)), np.zeros(rows.shape[1]), 0), rows[0].astype(np.float64)
        spacing = lattice_spacing(sigma)
        for users in _slices(len(rows), _CHUNK // rows.shape[1]):
            part = rows[users].astype(np.float64)
            _check_lattice(part, spacing, first if centred else None)
            if cells:
                sums.far += int(np.count_nonzero(np.abs(np.abs(part - 0.5) - 0.5) > FAR * sigma))
            part *= part
            sums.of_rows[users] = part.sum(axis=1)
            sums.of_columns += part.sum(axis=0)
        return sums


def of_squares(squares: Squares, sigma: float, *, centred: bool, independent: bool) -> list[Finding]:
    """Sums of squares over the noise's variance follow chi-square laws, with more of it where there are ratings.

    Centring takes one degree of freedom from each column, and from each row its share of what it takes from all; both hold for
    some of the rows that were centred together, too.
    """
    users, width, variance = len(squares.of_rows), len(squares.of_columns), sigma**2
    left = users - centred
    whole, of_rows, of_columns = (
        unrounded(sums, count, sigma)
        for sums, count in (
            (squares.of_columns.sum(), users * width),
            (squares.of_rows, width),
            (squares.of_columns, users),
        )
    )
    total = chi2.cdf(whole / variance, float(left) * width)
    rows = chi2.cdf(of_rows / variance * users / left, width)
    columns = chi2.cdf(of_columns / variance, left)
    return [
        Finding("they vary too little", float(total)),
        Finding("those of some users vary too little", _smallest(rows, independent=independent)),
        Finding("some of their columns vary too little", _smallest(columns, independent=True)),
    ]


def unrounded(sums: Floats, count: int, sigma: float) -> Floats:
    """The most that sums of so many squares can have been before each number was rounded, by half a step of the lattice.

    Where there are few: all of them may have become 0, which has no chance under a chi-square law. Of many that is out of the
    question, and what rounding does to the sum is far below its spread.
    """
    if count >= _MANY:
        return sums
    most: Floats = (np.sqrt(sums) + math.sqrt(count) * lattice_spacing(sigma) / 2) ** 2
    return most


def far_share(sigma: float, distance: float) -> float:
    """Share of values that are farther than that from both 0 and 1; the same for a zero and for a one."""
    outside = ndtr(-distance / sigma) + ndtr(-(1 + distance) / sigma)
    return float(outside + max(0.0, ndtr((1 - distance) / sigma) - ndtr(distance / sigma)))


def _check_lattice(part: Floats, spacing: float, first: Floats | None) -> None:
    """Refuse values between two points of the lattice; of centred rows, differences to the first row, as far as floats tell."""
    tolerance = 0.0
    if first is not None:
        # Two numbers were rounded to float32 after the mean was subtracted.
        tolerance = 2.0**-23 * float(np.abs(part).max() + np.abs(first).max()) / spacing
        if tolerance > 0.1:
            return
        part = part - first
    steps = part / spacing
    if (np.abs(steps - np.rint(steps)) > tolerance).any():
        raise MechanismError(
            f"The rows do not lie on the lattice of their noise, of spacing {spacing:g}, to which every release is rounded. "
            "They were drawn otherwise, or changed afterwards, as by denoising."
        )


# Cells that are kept or not.


@dataclass
class Kept:
    """How many cells of ``(users, width)`` are kept."""

    of_rows: npt.NDArray[np.int64]  # (users,)
    of_columns: npt.NDArray[np.int64] | None  # (width,); None where there are too many
    cells: int  # users x width
    large: int  # values of at least `middle`

    @property
    def total(self) -> int:
        """Of all."""
        return int(self.of_rows.sum())


def kept_cells(
    mechanism: Mechanism, tensors: Arrays, sigma: float | None = None, threshold: float = 0.0, middle: float = 0.0
) -> Kept:
    """One look at what is kept; values must be 1, or with noise sigma on its lattice and above the threshold."""
    parts = _compressed_parts(tensors) if "starts" in tensors else _dense_parts(tensors["rows"])
    if "starts" in tensors:
        users, width = len(tensors["starts"]) - 1, int(tensors["num_items"].item())
        of_rows = np.diff(tensors["starts"])
    else:
        users, width = tensors["rows"].shape
        of_rows = np.zeros(users, dtype=np.int64)
    check_sizes(mechanism, users, width, mechanism.num_items)
    kept = Kept(of_rows, np.zeros(width, dtype=np.int64) if width <= _MOST_COLUMNS else None, users * width, 0)
    for rows, items, values in parts:
        if rows is not None:
            of_rows += np.bincount(rows, minlength=users)
        if kept.of_columns is not None:
            kept.of_columns += np.bincount(items, minlength=width)
        if sigma is None:
            if not (values == 1).all():
                raise MechanismError(
                    "Reported cells must be 1, and what is not reported 0; the rows hold other values."
                )
            continue
        if not (values > threshold).all():
            raise MechanismError(
                f"The rows hold values that are not above the threshold {threshold:.6g} of their record."
            )
        _check_lattice(values.astype(np.float64), lattice_spacing(sigma), None)
        kept.large += int(np.count_nonzero(values >= middle))
    return kept


Part = tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64], npt.NDArray[np.float32]]
"""Rows (where they are not known otherwise), items and values of some kept cells."""


def _compressed_parts(tensors: Arrays) -> Iterator[Part]:
    starts, items, weights = (tensors[name] for name in ("starts", "items", "weights"))
    for cells in _slices(len(items), _CHUNK):
        before = slice(max(cells.start - 1, 0), cells.stop)
        falls = np.flatnonzero(np.diff(items[before]) <= 0) + before.start + 1
        if not np.isin(falls, starts).all():
            raise MechanismError(
                "The items of a user must rise: their order, or a cell that is there twice, could tell of it."
            )
        yield None, items[cells], weights[cells]


def _dense_parts(rows: npt.NDArray[np.float32]) -> Iterator[Part]:
    for users in _slices(len(rows), _CHUNK // rows.shape[1]):
        part = rows[users]
        of, items = np.nonzero(part)
        yield of + users.start, items, part[of, items]


def counts(kept: Kept, zero: float, one: float) -> list[Finding]:
    """Counts of kept cells are at least those of zeros alone, each kept with probability ``zero``; at most those of ones."""
    users, width = len(kept.of_rows), kept.cells // len(kept.of_rows)
    found = [
        Finding("too few cells are ones", float(binom.cdf(kept.total, kept.cells, zero))),
        Finding("too many cells are ones", float(binom.sf(kept.total - 1, kept.cells, one))),
        Finding("some users have too few ones", _smallest(binom.cdf(kept.of_rows, width, zero), independent=True)),
        Finding("some users have too many ones", _smallest(binom.sf(kept.of_rows - 1, width, one), independent=True)),
    ]
    if kept.of_columns is not None:
        few = binom.cdf(kept.of_columns, users, zero)
        found.append(Finding("some items have too few ones", _smallest(few, independent=True)))
    return found


# Many at once.


def _smallest(probabilities: Floats, *, independent: bool) -> float:
    """How likely it is that of many probabilities one, or several together, are so small; at most.

    Each is that of something at most so extreme, so none is smaller than uniform but by chance. That the smallest is below
    ``p`` then has a probability of at most ``m p`` of m, dependent or not. Of independent ones the k-th smallest follows a beta
    law, for every k at once with the same factor m (Berk & Jones, *Goodness-of-fit test statistics that dominate the Kolmogorov
    statistics*, 1979, with a union bound for its law).
    """
    count = len(probabilities)
    if not independent:
        return min(1.0, count * float(probabilities.min()))
    ordered, ranks = np.sort(probabilities), np.arange(1, count + 1)
    return min(1.0, count * float(np.min(beta.cdf(ordered, ranks, count + 1 - ranks))))


def _slices(length: int, size: int) -> Iterator[slice]:
    size = max(1, size)
    return (slice(start, min(start + size, length)) for start in range(0, length, size))
