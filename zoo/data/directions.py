"""Leading directions of one domain's users: a user embedding in them, and a decoder to rating rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, svds

Floats = npt.NDArray[np.float64]

MOST_DIRECTIONS = 256
"""Largest number of directions. A source's memory grows with users and items times it, and a target may name it."""
_ROUNDS = 3  # of scaling to unit length and centring


class Directions(NamedTuple):
    """Leading directions of rating rows; see `directions_of`."""

    mean: Floats  # mean of the non-empty rows, scaled to unit length, (items,)
    projections: Floats  # user embeddings of length 1 at most, zero without a rating, (users, directions)
    decoder: Floats  # row of a unit step in each direction, (directions, items)
    embed: Callable[[csr_array], Floats]  # embeddings (users, directions) of other users' rows (users, items)


def directions_of(rows: csr_array, num_directions: int, item_damping: float) -> Directions:
    """Return the leading directions of the rows (users, items) of one domain.

    Rows are divided by the items' counts to the power of ``item_damping``, scaled to unit length and centred. Their projections
    on the leading singular vectors are repeatedly scaled to unit length and centred, then scaled to a length of at most 1. The
    decoder is the least-squares map from projections to rows of unit length. The result is deterministic: the largest number of
    each singular vector is positive. Memory is linear in ratings, users and items.

    Examples:
        >>> import numpy as np
        >>> from scipy.sparse import csr_array
        >>> rows = csr_array(np.array([[1.0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]))
        >>> directions_of(rows, num_directions=1, item_damping=0.5).projections.round(3).tolist()
        [[1.0], [1.0], [-1.0], [-1.0]]
    """
    num_users, num_items = rows.shape
    has = np.diff(rows.indptr) > 0
    projections, decoder = np.zeros((num_users, num_directions)), np.zeros((num_directions, num_items))
    if not has.any():
        return Directions(
            np.zeros(num_items), projections, decoder, lambda other: projections[:1].repeat(other.shape[0], 0)
        )
    rated = csr_array(rows[np.flatnonzero(has)].astype(np.float64))
    unit = _unit(rated)
    mean: Floats = np.asarray(unit.mean(axis=0)).ravel()
    counts = np.maximum(np.bincount(rated.indices, minlength=num_items), 1.0)
    damping = diags_array(counts**-item_damping)
    damped = _unit(csr_array(rated @ damping))
    leading = leading_projections(damped, num_directions)
    own, centres, length = _balanced(leading)
    right = _right_vectors(damped, leading)
    centre = np.asarray(damped.mean(axis=0)).ravel() @ right

    def embed(other: csr_array) -> Floats:
        found, rated = np.zeros((other.shape[0], num_directions)), np.diff(other.indptr) > 0
        placed = _unit(csr_array(other.astype(np.float64) @ damping)) @ right - centre
        for middle in centres:
            placed = _normalised(placed) - middle
        found[rated, : right.shape[1]] = placed[rated] / length
        return found

    projections[has, : own.shape[1]] = own
    decoder[: own.shape[1]] = np.linalg.pinv(own.T @ own) @ (unit.T @ own - np.outer(mean, own.sum(axis=0))).T
    return Directions(mean, projections, decoder, embed)


def check_form(num_directions: int, item_damping: float) -> None:
    """Refuse a number of directions or a damping that `directions_of` cannot use."""
    if not 1 <= num_directions <= MOST_DIRECTIONS:
        raise ValueError(f"num_directions is {num_directions}. It must be 1 to {MOST_DIRECTIONS}.")
    if not 0 <= item_damping <= 2:
        raise ValueError(f"item_damping is {item_damping}. It must be in [0, 2].")


def _unit(rows: csr_array) -> csr_array:
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    values = rows.data / np.repeat(np.maximum(lengths, 1e-300), np.diff(rows.indptr))
    return csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def leading_projections(rows: csr_array, count: int, *, centred: bool = True) -> Floats:
    """Return projections of rows (users, items) on their leading right singular vectors, (users, at most `count`).

    With ``centred`` the mean row is subtracted first. The largest number of each singular vector is positive.

    Examples:
        >>> import numpy as np
        >>> from scipy.sparse import csr_array
        >>> leading_projections(csr_array(np.array([[3.0, 0], [0, 1]])), 1, centred=False).round(3).tolist()
        [[3.0], [0.0]]
    """
    mean: Floats = np.asarray(rows.mean(axis=0)).ravel() * centred
    smaller = min(rows.shape)
    if count >= smaller - 1 or rows.shape[0] * rows.shape[1] <= 2**16:
        left, values, right = np.linalg.svd(rows.toarray() - mean, full_matrices=False)
        left, values, right = left[:, :count], values[:count], right[:count]
    else:
        operator = LinearOperator(
            rows.shape,
            matvec=lambda v: rows @ v.ravel() - mean @ v.ravel(),
            rmatvec=lambda v: rows.T @ v.ravel() - mean * v.sum(),
            dtype=np.float64,
        )
        left, values, right = svds(operator, k=count, v0=np.ones(smaller) / np.sqrt(smaller))
        order = np.argsort(-values)
        left, values, right = left[:, order], values[order], right[order]
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    projections: Floats = left * (values * signs)
    return projections


def _right_vectors(rows: csr_array, projections: Floats) -> Floats:
    """Return the singular vectors (items, directions) that give centred rows these projections."""
    mean = np.asarray(rows.mean(axis=0)).ravel()
    energies = np.square(projections).sum(axis=0)
    found: Floats = rows.T @ projections - np.outer(mean, projections.sum(axis=0))
    return found / np.where(energies > 0, energies, np.inf)


def _normalised(rows: Floats) -> Floats:
    unit: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit


def _balanced(rows: Floats) -> tuple[Floats, list[Floats], float]:
    """Return balanced rows, and by what they were centred and divided."""
    centres = []
    for _ in range(_ROUNDS):
        rows = _normalised(rows)
        centres.append(rows.mean(axis=0))
        rows = rows - centres[-1]
    length = max(float(np.linalg.norm(rows, axis=1).max()), 1e-12)
    return rows / length, centres, length
