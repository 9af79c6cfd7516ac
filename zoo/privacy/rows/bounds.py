"""Bounds on ratings ``(users, items)``: the distance that one change under a neighbouring relation may move them."""

import numpy as np
from scipy.sparse import csr_array

from zoo.privacy.accounting.gaussian import check_sensitivity
from zoo.privacy.accounting.relation import Relation, Unit


def l2_sensitivity(relation: Relation, rating_range: float, clip: float | None) -> float:
    """Return the L2 norm of what one change adds to bounded ratings; refuse a bound that does not match the relation.

    A rating moves its entry by at most ``rating_range`` (`clamp_ratings`). A zeroed-out user moves a row by at most ``clip``
    (`clip_rows`), a replaced user by twice that.
    """
    if relation.unit is not Unit.USER:
        if clip is not None:
            raise ValueError(f"clip is {clip:g}. It bounds users; omit it for {relation.value!r}.")
        check_sensitivity(rating_range)
        return rating_range
    if clip is None:
        raise ValueError(f"clip is missing. {relation.value!r} needs the rows' L2 bound, e.g. 5.0.")
    check_sensitivity(clip)
    return clip if relation is Relation.ZERO_OUT_ONE_USER else 2 * clip


def clip_rows(rows: csr_array, clip: float) -> csr_array:
    """Return rows scaled down to an L2 norm of at most ``clip``, float64; shorter rows stay. All values must be finite."""
    check_sensitivity(clip)
    rows = _canonical(rows)
    norms = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    factors = np.minimum(1.0, clip / np.maximum(norms, clip))
    values = rows.data * np.repeat(factors, np.diff(rows.indptr))
    return csr_array((values, rows.indices, rows.indptr), shape=rows.shape)


def clamp_ratings(rows: csr_array, rating_range: float) -> csr_array:
    """Return ratings clamped to ``[0, rating_range]``, float64; absent ones count as 0. All values must be finite."""
    check_sensitivity(rating_range)
    rows = _canonical(rows)
    return csr_array((np.clip(rows.data, 0.0, rating_range), rows.indices, rows.indptr), shape=rows.shape)


def _canonical(rows: csr_array) -> csr_array:
    """Return a float64 copy that stores each entry once, because a bound on entries does not bound parts of entries."""
    rows = rows.astype(np.float64, copy=True)
    rows.sum_duplicates()
    if not np.isfinite(rows.data).all():
        raise ValueError("The rows hold NaN or infinite values. Remove them first.")
    return rows
