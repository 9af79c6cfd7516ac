"""Directions of rating rows against singular vectors and least squares written out."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from zoo.data import directions
from zoo.data.directions import directions_of


def rows(users: int = 60, items: int = 30, seed: int = 0) -> csr_array:
    """0/1 rows, the first user without any."""
    dense = (np.random.default_rng(seed).random((users, items)) < 0.2).astype(np.float64)
    dense[0] = 0
    dense[1:, 0] = 1
    return csr_array(dense)


def placed(dense: np.ndarray) -> np.ndarray:
    """Places of dense rows in three directions, items damped by the roots of their counts."""
    damped = dense / np.maximum(dense.sum(axis=0), 1) ** 0.5
    damped /= np.linalg.norm(damped, axis=1, keepdims=True)
    left, values, right = np.linalg.svd(damped - damped.mean(axis=0), full_matrices=False)
    places = left[:, :3] * values[:3] * np.sign(right[np.arange(3), np.abs(right[:3]).argmax(axis=1)])
    for _ in range(3):
        places = places / np.linalg.norm(places, axis=1, keepdims=True)
        places = places - places.mean(axis=0)
    return places / np.linalg.norm(places, axis=1).max()


def test_places_are_those_of_the_leading_singular_vectors() -> None:
    found = directions_of(rows(), 3, 0.5)
    dense = rows().toarray()[1:]
    assert found.projections[1:] == pytest.approx(placed(dense), abs=1e-9)
    unit = dense / np.linalg.norm(dense, axis=1, keepdims=True)
    assert found.mean == pytest.approx(unit.mean(axis=0))
    solved = np.linalg.lstsq(found.projections[1:], unit - unit.mean(axis=0), rcond=None)[0]
    assert found.decoder == pytest.approx(solved, abs=1e-9)


def test_no_place_is_longer_than_one_and_somebody_without_ratings_has_none() -> None:
    found = directions_of(rows(), 4, 0.0)
    lengths = np.linalg.norm(found.projections, axis=1)
    assert lengths.max() == pytest.approx(1)
    assert lengths[0] == 0
    assert found.projections[1:].mean(axis=0) == pytest.approx(np.zeros(4), abs=1e-12)


def test_many_rows_are_never_made_dense(monkeypatch: pytest.MonkeyPatch) -> None:
    """And have the directions of the dense ones, the same each time."""
    many = rows(400, 300)
    expected = placed(many.toarray()[1:])
    monkeypatch.setattr(csr_array, "toarray", None)
    large, again = (directions_of(many, 3, 0.5) for _ in range(2))
    assert np.array_equal(large.projections, again.projections)
    assert large.projections[1:] == pytest.approx(expected, abs=1e-6)


def test_fewer_directions_than_asked_for_are_filled_with_zeros() -> None:
    found = directions_of(rows(5, 3), 6, 0.5)
    assert found.projections.shape == (5, 6)
    assert not found.projections[:, 3:].any()
    assert not found.decoder[3:].any()
    nothing = directions_of(csr_array((4, 3)), 2, 0.5)
    assert not nothing.mean.any()
    assert not nothing.projections.any()
    assert directions.__doc__
