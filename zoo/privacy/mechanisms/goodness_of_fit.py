"""Goodness of fit: statistics of numbers and entries that carry noise, compared with the distribution of the noise alone.

The tests do not depend on the ratings: each count or sum of squares is compared with its distribution for the ratings that make it
smallest, the noise alone (for counts that may be too large: the ratings that make it largest). So rows that pass may still have
too little noise, and rows that fail are not as claimed.

A release as claimed is refused with a probability of at most `FALSE_ALARM`, whatever its ratings. Its tests share this
probability equally, and so do the users or items that one test covers.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from scipy.stats import beta, binom, chi2

from zoo.privacy.mechanisms.base import Arrays, Finding, Mechanism, MechanismError
from zoo.privacy.randomness.noise import lattice_spacing

Floats = npt.NDArray[np.float64]

FALSE_ALARM = 1e-9
"""Upper bound of the probability that rows which match their record are refused."""
FAR = 1.5
"""Standard deviations of the noise from both 0 and 1."""

_CHUNK = 2**20  # numbers per chunk
_MOST_COLUMNS = 2**21  # above it, single items are not tested
_MANY = 64  # squares whose sum rounding does not change
_LOW_BITS = 8  # of a lattice point; 2^8 steps are at most a quarter of the noise's deviation: they are uniform


def refuse_unlikely(mechanism: Mechanism, tensors: Arrays, false_alarm: float = FALSE_ALARM) -> None:
    """Refuse tensors that cannot have the noise of a mechanism.

    Raises:
        MechanismError: A statistic is too unlikely, or a value impossible.
    """
    mechanism.check_kind(tensors)
    users = len(tensors["starts"]) - 1 if "starts" in tensors else max(map(len, tensors.values()))
    findings = mechanism.check(tensors) if users else []
    for what, probability in findings:
        if probability * len(findings) < false_alarm:
            raise MechanismError(
                f"The tensors fail the noise test of {mechanism.name} (p < {false_alarm:.0e}): {what}. They were "
                "altered or have other noise."
            )


def dense_rows(mechanism: Mechanism, tensors: Arrays, width: int) -> npt.NDArray[np.float32]:
    """Return the rows (users, width) of a release with noise on all numbers, of the mechanism's sizes."""
    if "rows" not in tensors:
        raise MechanismError(f"The rows are sparse. The record of {mechanism.name} claims noise on all entries.")
    rows: npt.NDArray[np.float32] = tensors["rows"]
    check_sizes(mechanism, len(rows), rows.shape[1], width)
    return rows


def check_sizes(mechanism: Mechanism, users: int, width: int, stated: int) -> None:
    """Refuse rows of another width, or of more users, than the mechanism states."""
    if width != stated or users > mechanism.num_users:
        raise MechanismError(
            f"The rows are {users} x {width}. The record of {mechanism.name} has {mechanism.num_users} x {stated}."
        )


# Numbers with Gaussian noise.


@dataclass
class Squares:
    """Sums of squares of rows ``(users, width)``."""

    of_rows: Floats  # (users,)
    of_columns: Floats  # (width,)
    far: int  # number of values far from both 0 and 1
    # Number of lattice points by their low bits.
    low_bits: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(2**_LOW_BITS, dtype=np.int64))

    @classmethod
    def of(cls, rows: npt.NDArray[np.float32], sigma: float, *, centred: bool, binary: bool) -> "Squares":
        """Return the sums of rows, which must be on the lattice of the noise; ``binary`` entries are counted if far."""
        sums, first = cls(np.empty(len(rows)), np.zeros(rows.shape[1]), 0), rows[0].astype(np.float64)
        spacing = lattice_spacing(sigma)
        for users in _slices(len(rows), _CHUNK // rows.shape[1]):
            part = rows[users].astype(np.float64)
            _check_lattice(part, spacing, first if centred else None)
            if not centred:
                exact = part[np.abs(part) < 2.0**24 * spacing]  # single precision holds all their digits
                points = (exact / spacing).astype(np.int64) & (2**_LOW_BITS - 1)
                sums.low_bits += np.bincount(points, minlength=2**_LOW_BITS)
            if binary:
                sums.far += int(np.count_nonzero(np.abs(np.abs(part - 0.5) - 0.5) > FAR * sigma))
            part *= part
            sums.of_rows[users] = part.sum(axis=1)
            sums.of_columns += part.sum(axis=0)
        return sums


def square_findings(squares: Squares, sigma: float, *, centred: bool, independent: bool) -> list[Finding]:
    """Return tests of the sums of squares, which divided by the noise's variance follow chi-square laws, or are larger.

    Centring takes one degree of freedom from each column, and from each row its share of those. Both also hold for a part of the
    rows that were centred together.
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
        Finding("too many are on a coarser lattice", _coarse(squares.low_bits)),
    ]


def _coarse(points: npt.NDArray[np.int64]) -> float:
    """Return an upper bound of the probability that so many lattice points have zeros as their last bits, for some number of bits.

    Noise makes the last bits of a point uniform, whatever it is added to. Exact counts or zeros have zeros there.
    """
    bits = np.arange(1, _LOW_BITS + 1)
    counts = np.array([points[:: 2**number].sum() for number in bits])
    return min(1.0, _LOW_BITS * float(np.min(binom.sf(counts - 1, points.sum(), 0.5**bits))))


def unrounded(sums: Floats, count: int, sigma: float) -> Floats:
    """Return the most that sums of ``count`` squares can have been before rounding, which moves a number by half a step.

    It matters for few squares: all may have become 0, which has probability 0 under a chi-square law. For many squares the effect
    of rounding is far below the spread of the sum.
    """
    if count >= _MANY:
        return sums
    most: Floats = (np.sqrt(sums) + math.sqrt(count) * lattice_spacing(sigma) / 2) ** 2
    return most


def far_share(sigma: float, distance: float) -> float:
    """Return the share of values farther than ``distance`` from both 0 and 1; the same for a zero and for a one."""
    outside = ndtr(-distance / sigma) + ndtr(-(1 + distance) / sigma)
    return float(outside + max(0.0, ndtr((1 - distance) / sigma) - ndtr(distance / sigma)))


def _check_lattice(part: Floats, spacing: float, first: Floats | None) -> None:
    """Refuse values off the lattice; for centred rows, test differences to the first row, within float precision."""
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
            f"The rows are off the lattice of their noise (spacing {spacing:g}). They were altered, e.g. denoised."
        )


# Sparse entries.


@dataclass
class Counts:
    """Numbers of released entries of ``(users, width)``."""

    of_rows: npt.NDArray[np.int64]  # (users,)
    of_columns: npt.NDArray[np.int64] | None  # (width,); None if there are too many
    size: int  # users x width
    large: int  # number of values of at least `middle`

    @property
    def total(self) -> int:
        """Number of released entries."""
        return int(self.of_rows.sum())


def released_counts(
    mechanism: Mechanism, tensors: Arrays, sigma: float | None = None, threshold: float = 0.0, middle: float = 0.0
) -> Counts:
    """Count the released entries, which must be 1, or with noise sigma on its lattice and above the threshold."""
    parts = _compressed_parts(tensors) if "starts" in tensors else _dense_parts(tensors["rows"])
    if "starts" in tensors:
        users, width = len(tensors["starts"]) - 1, int(tensors["num_items"].item())
        of_rows = np.diff(tensors["starts"])
    else:
        users, width = tensors["rows"].shape
        of_rows = np.zeros(users, dtype=np.int64)
    check_sizes(mechanism, users, width, mechanism.num_items)
    found = Counts(of_rows, np.zeros(width, dtype=np.int64) if width <= _MOST_COLUMNS else None, users * width, 0)
    for rows, items, values in parts:
        if rows is not None:
            of_rows += np.bincount(rows, minlength=users)
        if found.of_columns is not None:
            found.of_columns += np.bincount(items, minlength=width)
        if sigma is None:
            if not (values == 1).all():
                raise MechanismError("Reported entries must be 1. The rows hold others.")
            continue
        if not (values > threshold).all():
            raise MechanismError(f"The rows hold values not above the record's threshold {threshold:.6g}.")
        _check_lattice(values.astype(np.float64), lattice_spacing(sigma), None)
        found.large += int(np.count_nonzero(values >= middle))
    return found


Part = tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64], npt.NDArray[np.float32]]
"""Rows (None if known otherwise), items and values of some released entries."""


def _compressed_parts(tensors: Arrays) -> Iterator[Part]:
    starts, items, weights = (tensors[name] for name in ("starts", "items", "weights"))
    for cells in _slices(len(items), _CHUNK):
        before = slice(max(cells.start - 1, 0), cells.stop)
        falls = np.flatnonzero(np.diff(items[before]) <= 0) + before.start + 1
        if not np.isin(falls, starts).all():
            raise MechanismError("The items of a user do not rise. Their order could reveal ratings.")
        yield None, items[cells], weights[cells]


def _dense_parts(rows: npt.NDArray[np.float32]) -> Iterator[Part]:
    for users in _slices(len(rows), _CHUNK // rows.shape[1]):
        part = rows[users]
        of, items = np.nonzero(part)
        yield of + users.start, items, part[of, items]


def count_findings(found: Counts, zero: float, one: float) -> list[Finding]:
    """Return tests of the counts: at least those of zeros, each released with probability ``zero``; at most those of ones."""
    users, width = len(found.of_rows), found.size // len(found.of_rows)
    findings = [
        Finding("too few entries are ones", float(binom.cdf(found.total, found.size, zero))),
        Finding("too many entries are ones", float(binom.sf(found.total - 1, found.size, one))),
        Finding("some users have too few ones", _smallest(binom.cdf(found.of_rows, width, zero), independent=True)),
        Finding("some users have too many ones", _smallest(binom.sf(found.of_rows - 1, width, one), independent=True)),
    ]
    if found.of_columns is not None:
        few = binom.cdf(found.of_columns, users, zero)
        findings.append(Finding("some items have too few ones", _smallest(few, independent=True)))
    return findings


# Multiple tests.


def _smallest(probabilities: Floats, *, independent: bool) -> float:
    """Return an upper bound of the probability that one or several of many p-values are so small.

    No p-value is smaller than uniform except by chance. The smallest of m is below ``p`` with a probability of at most ``m p``,
    dependent or not. Of independent ones the k-th smallest follows a beta law, for every k at once with the same factor m.

    Reference: Berk & Jones, *Goodness-of-fit test statistics that dominate the Kolmogorov statistics*, 1979, with a union bound.
    """
    count = len(probabilities)
    if not independent:
        return min(1.0, count * float(probabilities.min()))
    ordered, ranks = np.sort(probabilities), np.arange(1, count + 1)
    return min(1.0, count * float(np.min(beta.cdf(ordered, ranks, count + 1 - ranks))))


def _slices(length: int, size: int) -> Iterator[slice]:
    size = max(1, size)
    return (slice(start, min(start + size, length)) for start in range(0, length, size))
