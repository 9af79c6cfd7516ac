"""Directions in which the users of one domain differ most: each user's place in them, and the rows that a place stands for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, diags_array
from scipy.sparse.linalg import LinearOperator, svds

Floats = npt.NDArray[np.float64]

_ROUNDS = 3  # of unit length and mean zero in turn


class Directions(NamedTuple):
    """Leading directions of rating rows; see `directions_of`."""

    mean: Floats  # mean row of those who have one, of unit length each, (items,)
    projections: Floats  # of each user, of length 1 at most and zero for one without a rating, (users, directions)
    decoder: Floats  # what a step in each direction adds to a row, (directions, items)


def directions_of(rows: csr_array, num_directions: int, item_damping: float) -> Directions:
    """The leading directions of the rows (users, items) of one domain, in memory that is linear in ratings, users and items.

    Rows are divided by the items' counts to the power of ``item_damping``, scaled to unit length and centred. Their projections
    on the leading singular vectors are scaled to unit length and centred again, in turn, and at last to a length of 1 at most.
    The decoder is the least-squares map from projections to rows of unit length. Deterministic: the largest number of each
    singular vector is positive.
    """
    num_users, num_items = rows.shape
    has = np.diff(rows.indptr) > 0
    projections, decoder = np.zeros((num_users, num_directions)), np.zeros((num_directions, num_items))
    if not has.any():
        return Directions(np.zeros(num_items), projections, decoder)
    kept = csr_array(rows[np.flatnonzero(has)].astype(np.float64))
    unit = _unit(kept)
    mean: Floats = np.asarray(unit.mean(axis=0)).ravel()
    counts = np.maximum(np.bincount(kept.indices, minlength=num_items), 1.0)
    places = _balanced(_leading(_unit(csr_array(kept @ diags_array(counts**-item_damping))), num_directions))
    projections[has, : places.shape[1]] = places
    gram = places.T @ places
    decoder[: places.shape[1]] = np.linalg.pinv(gram) @ (unit.T @ places - np.outer(mean, places.sum(axis=0))).T
    return Directions(mean, projections, decoder)


def check_form(num_directions: int, item_damping: float) -> None:
    """Refuse a number of directions or a damping that `directions_of` cannot use."""
    if num_directions < 1 or not 0 <= item_damping <= 2:
        raise ValueError(
            f"num_directions must be at least 1 and item_damping lie in [0, 2]; got {num_directions} and {item_damping}."
        )


def _unit(rows: csr_array) -> csr_array:
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    values = rows.data / np.repeat(np.maximum(lengths, 1e-300), np.diff(rows.indptr))
    return csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def _leading(rows: csr_array, count: int) -> Floats:
    """Projections of centred rows on their leading right singular vectors, (users, directions), or fewer where there are fewer."""
    mean: Floats = np.asarray(rows.mean(axis=0)).ravel()
    smaller = min(rows.shape)
    if count >= smaller - 1 or rows.shape[0] * rows.shape[1] <= 2**16:
        left, values, right = np.linalg.svd(rows.toarray() - mean, full_matrices=False)
        left, values, right = left[:, :count], values[:count], right[:count]
    else:
        centred = LinearOperator(
            rows.shape,
            matvec=lambda v: rows @ v.ravel() - mean @ v.ravel(),
            rmatvec=lambda v: rows.T @ v.ravel() - mean * v.sum(),
            dtype=np.float64,
        )
        left, values, right = svds(centred, k=count, v0=np.ones(smaller) / np.sqrt(smaller))
        order = np.argsort(-values)
        left, values, right = left[:, order], values[order], right[order]
    signs = np.sign(right[np.arange(len(right)), np.abs(right).argmax(axis=1)])
    places: Floats = left * (values * signs)
    return places


def _balanced(places: Floats) -> Floats:
    for _ in range(_ROUNDS):
        places = places / np.maximum(np.linalg.norm(places, axis=1, keepdims=True), 1e-12)
        places = places - places.mean(axis=0)
    balanced: Floats = places / max(float(np.linalg.norm(places, axis=1).max()), 1e-12)
    return balanced
