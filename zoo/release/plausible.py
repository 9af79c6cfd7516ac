"""Whether rows can have the noise that their record claims: what chance would not do is refused when a release is read.

Nothing here depends on what the ratings are: each count or sum of squares is compared with its law where every rating is the one
that makes it smallest, which is that of the noise alone (of counts that may be too large: the one that makes it largest). So
rows that pass may still hold too little noise, and rows that fail do not hold what is claimed.

The chance to refuse rows that are as claimed is at most `FALSE_ALARM` for a release, whatever was rated: each of its tests has its
share of that, and so has each of the many users or items that one test looks at.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr
from scipy.stats import beta, binom, chi2, norm
from torch import Tensor

from zoo.privacy.randomness.noise import lattice_spacing
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.record.requirements import MECHANISMS, stated_number
from zoo.privacy.record.texts import (
    BRIDGE,
    EMBEDDINGS,
    FLIPPED_ROWS,
    JLT,
    NOISY_ROWS,
    ONE_BIT,
    PROJECTIONS,
    ROUNDS,
    SJLT,
    TRAINED,
)
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix
from zoo.release.files import ReleaseError

Floats = npt.NDArray[np.float64]

FALSE_ALARM = 1e-9
"""Chance that rows which are as their record says are refused, at most."""

_CHUNK = 2**20  # numbers looked at at a time
_MOST_COLUMNS = 2**25  # beyond, single items are not looked at
_LARGEST_MATRIX = 2**25  # numbers of a projection that is computed again
_MANY = 64  # squares whose sum rounding does not change
_FAR = 1.5  # standard deviations of the noise from both 0 and 1


class Finding(NamedTuple):
    """One thing that was looked at."""

    what: str  # in words
    probability: float  # of this or less (or more, where it can be too much) in rows that are as claimed; at most


def check_noise(record: PrivacyRecord, tensors: Mapping[str, Tensor], false_alarm: float = FALSE_ALARM) -> None:
    """Refuse rows that cannot be what their record claims: too little noise, too few or too many ones, or off the lattice.

    Looks at rows (users, width) of `NoisyRows`, `FlippedRows`, `JLT` and `SJLT`, dense or compressed, and at the vectors of
    `EmbeddingPublisher` and `ProjectionPublisher`, some users at a time, and at maps; at no other release, and at none without a
    guarantee. `ReleaseError` says what was found, and how likely that was.
    """
    if not record.claims:
        return
    found = findings(record, tensors)
    for what, probability in found:
        if probability * len(found) < false_alarm:
            raise ReleaseError(
                f"The rows cannot have the noise that the record of {record.mechanism} claims: {what}, and of rows with that "
                f"noise fewer than one in {false_alarm**-1:.0e} releases would. They were drawn otherwise, or changed afterwards."
            )


def findings(record: PrivacyRecord, tensors: Mapping[str, Tensor]) -> list[Finding]:
    """What was looked at, and how likely it was; `ReleaseError` where it was impossible."""
    _check_kind(record, tensors)
    look = _LOOKS.get(record.mechanism)
    if look is None:
        return []
    users = len(tensors["starts"]) - 1 if "starts" in tensors else max(map(len, tensors.values()))
    return look(record, tensors) if users else []


# What a record says.


def _check_kind(record: PrivacyRecord, tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that the mechanism of the record does not make; of a mechanism that is none of ours all are taken."""
    if record.mechanism not in MECHANISMS:
        return
    if record.mechanism.startswith(ONE_BIT) or record.mechanism == ROUNDS:
        raise ReleaseError(f"The record is of {record.mechanism}, which is no publisher's: it hands over no release.")
    made, names = "rows", {"rows", "starts"}
    if record.mechanism.startswith(TRAINED):
        made, names = "a generator", {"embedding"}
    elif record.mechanism in (EMBEDDINGS, PROJECTIONS):
        made, names = "vectors", {"vectors"}
    elif record.mechanism == BRIDGE:
        made, names = "a map", {"map"}
    if not names & tensors.keys():
        raise ReleaseError(f"The record is of {record.mechanism}, which releases {made}, and the release holds none.")


def _noisy(record: PrivacyRecord, tensors: Mapping[str, Tensor]) -> list[Finding]:
    sigma = stated_number(record, "sigma")
    if "threshold" in record.public_inputs:
        threshold = stated_number(record, "threshold")
        zero, one = (float(ndtr((value - threshold) / sigma)) for value in (0.0, 1.0))
        # Of a zero's values half are at least that; rounding moves them by half a step.
        middle = sigma * float(norm.isf(zero / 2)) - lattice_spacing(sigma)
        kept = _kept(record, tensors, sigma, threshold, middle)
        above = Finding("too few of its values are large", float(binom.cdf(kept.large, kept.total, 0.5)))
        return [*_counts(kept, zero, one), above]
    rows = _dense(record, tensors, "num_items")
    cells = record.clip is None
    squares = _Squares.of(rows, sigma, centred=False, cells=cells)
    found = _of_squares(squares, sigma, centred=False, independent=True)
    if cells:
        share = _far_share(sigma, _FAR * sigma + lattice_spacing(sigma))
        found.append(
            Finding("too few values are far from both 0 and 1", float(binom.cdf(squares.far, rows.size, share)))
        )
    return found


def _vectors(record: PrivacyRecord, tensors: Mapping[str, Tensor]) -> list[Finding]:
    vectors, inputs = tensors["vectors"].numpy(), record.public_inputs
    users, layers, width = vectors.shape
    if (inputs.get("num_layers"), inputs.get("width")) != (layers, width) or users > stated_number(record, "num_users"):
        raise ReleaseError(
            f"The record of {record.mechanism} is of {inputs.get('num_users')} users, num_layers {inputs.get('num_layers')} and "
            f"width {inputs.get('width')}, and the vectors have the shape {vectors.shape}."
        )
    sigma = record.noise_scale or 0.0
    squares = _Squares.of(vectors.reshape(users, layers * width), sigma, centred=False, cells=False)
    return _of_squares(squares, sigma, centred=False, independent=True)


def _flipped(record: PrivacyRecord, tensors: Mapping[str, Tensor]) -> list[Finding]:
    p, keep = stated_number(record, "flip_probability"), stated_number(record, "keep")
    return _counts(_kept(record, tensors), keep * p, keep * (1 - p))


def _projected(record: PrivacyRecord, tensors: Mapping[str, Tensor]) -> list[Finding]:
    rows = _dense(record, tensors, "num_components")
    _check_longest(record)
    sigma, centred = record.noise_scale or 0.0, record.public_inputs.get("centred after the noise") is True
    if centred and len(rows) == 1:
        return _single(record, rows[0], sigma)
    squares = _Squares.of(rows, sigma, centred=centred, cells=False)
    # With a secret matrix, and after centring, rows depend on each other, and the columns still do not.
    return _of_squares(squares, sigma, centred=centred, independent=False)


def _single(record: PrivacyRecord, row: npt.NDArray[np.float32], sigma: float) -> list[Finding]:
    """Of one row that was centred among so many: a share of its noise went with the mean, all of it where it was alone."""
    users = record.public_inputs.get("num_users")
    if type(users) is not int or (users == 1 and row.any()):
        raise ReleaseError("Nothing is left of the row of a single user after centring, and this one is not 0.")
    if users == 1:
        return []
    # Rounded were both its number and the mean.
    squares = _unrounded(np.square(row, dtype=np.float64).sum() / (1 - 1 / users), 4 * len(row), sigma)
    return [Finding("they vary too little", float(chi2.cdf(squares / sigma**2, len(row))))]


def _dense(record: PrivacyRecord, tensors: Mapping[str, Tensor], width: str) -> npt.NDArray[np.float32]:
    if "rows" not in tensors:
        raise ReleaseError(
            f"The record of {record.mechanism} claims noise on all numbers, and the rows are kept sparse."
        )
    rows: npt.NDArray[np.float32] = tensors["rows"].numpy()
    _check_sizes(record, len(rows), rows.shape[1], width)
    return rows


def _check_sizes(record: PrivacyRecord, users: int, width: int, stated: str) -> None:
    if record.public_inputs.get(stated) != width or users > stated_number(record, "num_users"):
        raise ReleaseError(
            f"The record of {record.mechanism} is of {record.public_inputs.get('num_users')} users and {stated} "
            f"{record.public_inputs.get(stated)}, and the rows are {users} of width {width}."
        )


def _mapped(record: PrivacyRecord, tensors: Mapping[str, Tensor]) -> list[Finding]:
    """The map alone: of the counts there are few, and those of popular items are large."""
    table, sigma = tensors["map"].numpy(), stated_number(record, "sigma")
    kept, width = (record.public_inputs.get(name) for name in ("kept_items", "num_directions"))
    if table.shape != (kept, width):
        raise ReleaseError(
            f"The record of {record.mechanism} is of a map of {kept} items and {width} directions, and the map has the shape "
            f"{table.shape}."
        )
    squares = _Squares.of(table, sigma, centred=False, cells=False)
    return _of_squares(squares, sigma, centred=False, independent=True)


def _check_longest(record: PrivacyRecord) -> None:
    """Refuse noise for a shorter column than the projection has, where the projection can be computed again."""
    inputs = record.public_inputs
    if inputs.get("calibration") != "max":
        return
    dim, items, seed = (inputs.get(name) for name in ("num_components", "num_items", "projection_seed"))
    if not (type(dim) is type(items) is type(seed) is int):
        raise ReleaseError("The record of a projection must state num_components, num_items and projection_seed.")
    if dim * items > _LARGEST_MATRIX or record.mu is None or record.sensitivity is None:
        return
    allowed = stated_number(record, "w") * record.mu / record.sensitivity
    try:
        matrix: PublicMatrix = GaussianMatrix(dim, items, seed)
        if record.mechanism == SJLT:
            matrix = SparseMatrix(dim, items, seed, density=stated_number(record, "density"), unit=False)
        longest = float(matrix.column_norms().max())
    except ValueError as error:
        raise ReleaseError(f"The projection of the record cannot be made: {error}") from error
    if longest > allowed * (1 + 1e-6):
        raise ReleaseError(
            f"The longest column of the projection has norm {longest:.6g}, and the noise is enough for {allowed:.6g} alone."
        )


_LOOKS: Mapping[str, Callable[[PrivacyRecord, Mapping[str, Tensor]], list[Finding]]] = {
    NOISY_ROWS: _noisy,
    FLIPPED_ROWS: _flipped,
    JLT: _projected,
    SJLT: _projected,
    EMBEDDINGS: _vectors,
    PROJECTIONS: _vectors,
    BRIDGE: _mapped,
}
LOOKED_AT = frozenset(_LOOKS)
"""Mechanisms whose rows, or vectors, are looked at."""

# Numbers with Gaussian noise.


@dataclass
class _Squares:
    """Sums of squares of rows ``(users, width)``."""

    of_rows: Floats  # (users,)
    of_columns: Floats  # (width,)
    far: int  # values that are far from both 0 and 1

    @classmethod
    def of(cls, rows: npt.NDArray[np.float32], sigma: float, *, centred: bool, cells: bool) -> "_Squares":
        """One look at the rows, which must lie on the lattice of the noise."""
        sums, first = cls(np.empty(len(rows)), np.zeros(rows.shape[1]), 0), rows[0].astype(np.float64)
        spacing = lattice_spacing(sigma)
        for users in _slices(len(rows), _CHUNK // rows.shape[1]):
            part = rows[users].astype(np.float64)
            _check_lattice(part, spacing, first if centred else None)
            if cells:
                sums.far += int(np.count_nonzero(np.abs(np.abs(part - 0.5) - 0.5) > _FAR * sigma))
            part *= part
            sums.of_rows[users] = part.sum(axis=1)
            sums.of_columns += part.sum(axis=0)
        return sums


def _of_squares(squares: _Squares, sigma: float, *, centred: bool, independent: bool) -> list[Finding]:
    """Sums of squares over the noise's variance follow chi-square laws, with more of it where there are ratings.

    Centring takes one degree of freedom from each column, and from each row its share of what it takes from all; both hold for
    some of the rows that were centred together, too.
    """
    users, width, variance = len(squares.of_rows), len(squares.of_columns), sigma**2
    left = users - centred
    whole, of_rows, of_columns = (
        _unrounded(sums, count, sigma)
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


def _unrounded(sums: Floats, count: int, sigma: float) -> Floats:
    """The most that sums of so many squares can have been before each number was rounded, by half a step of the lattice.

    Where there are few: all of them may have become 0, which has no chance under a chi-square law. Of many that is out of the
    question, and what rounding does to the sum is far below its spread.
    """
    if count >= _MANY:
        return sums
    most: Floats = (np.sqrt(sums) + math.sqrt(count) * lattice_spacing(sigma) / 2) ** 2
    return most


def _far_share(sigma: float, distance: float) -> float:
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
        raise ReleaseError(
            f"The rows do not lie on the lattice of their noise, of spacing {spacing:g}, to which every release is rounded. "
            "They were drawn otherwise, or changed afterwards, as by denoising."
        )


# Cells that are kept or not.


@dataclass
class _Kept:
    """How many cells of ``(users, width)`` are kept."""

    of_rows: npt.NDArray[np.int64]  # (users,)
    of_columns: npt.NDArray[np.int64] | None  # (width,); None where there are too many
    cells: int  # users x width
    large: int  # values of at least `middle`

    @property
    def total(self) -> int:
        """Of all."""
        return int(self.of_rows.sum())


def _kept(
    record: PrivacyRecord,
    tensors: Mapping[str, Tensor],
    sigma: float | None = None,
    threshold: float = 0.0,
    middle: float = 0.0,
) -> _Kept:
    """One look at what is kept; values must be 1, or with noise sigma on its lattice and above the threshold."""
    parts = _compressed_parts(tensors) if "starts" in tensors else _dense_parts(tensors["rows"].numpy())
    if "starts" in tensors:
        users, width = len(tensors["starts"]) - 1, int(tensors["num_items"])
        of_rows = np.diff(tensors["starts"].numpy())
    else:
        users, width = tensors["rows"].shape
        of_rows = np.zeros(users, dtype=np.int64)
    _check_sizes(record, users, width, "num_items")
    kept = _Kept(of_rows, np.zeros(width, dtype=np.int64) if width <= _MOST_COLUMNS else None, users * width, 0)
    for rows, items, values in parts:
        if rows is not None:
            of_rows += np.bincount(rows, minlength=users)
        if kept.of_columns is not None:
            kept.of_columns += np.bincount(items, minlength=width)
        if sigma is None:
            if not (values == 1).all():
                raise ReleaseError("Reported cells must be 1, and what is not reported 0; the rows hold other values.")
            continue
        if not (values > threshold).all():
            raise ReleaseError(
                f"The rows hold values that are not above the threshold {threshold:.6g} of their record."
            )
        _check_lattice(values.astype(np.float64), lattice_spacing(sigma), None)
        kept.large += int(np.count_nonzero(values >= middle))
    return kept


Part = tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.int64], npt.NDArray[np.float32]]
"""Rows (where they are not known otherwise), items and values of some kept cells."""


def _compressed_parts(tensors: Mapping[str, Tensor]) -> Iterator[Part]:
    starts, items, weights = (tensors[name].numpy() for name in ("starts", "items", "weights"))
    for cells in _slices(len(items), _CHUNK):
        before = slice(max(cells.start - 1, 0), cells.stop)
        falls = np.flatnonzero(np.diff(items[before]) <= 0) + before.start + 1
        if not np.isin(falls, starts).all():
            raise ReleaseError(
                "The items of a user must rise: their order, or a cell that is there twice, could tell of it."
            )
        yield None, items[cells], weights[cells]


def _dense_parts(rows: npt.NDArray[np.float32]) -> Iterator[Part]:
    for users in _slices(len(rows), _CHUNK // rows.shape[1]):
        part = rows[users]
        of, items = np.nonzero(part)
        yield of + users.start, items, part[of, items]


def _counts(kept: _Kept, zero: float, one: float) -> list[Finding]:
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
