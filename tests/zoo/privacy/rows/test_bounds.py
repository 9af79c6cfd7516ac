"""Rows that are bounded, and how far one change then moves them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from zoo.privacy.accounting.relation import Relation
from zoo.privacy.rows.bounds import clamp_ratings, clip_rows, l2_sensitivity


@given(seed=st.integers(0, 100), clip=st.floats(0.5, 4))
@settings(max_examples=20)
def test_one_user_moves_by_the_clip_or_twice_it(seed: int, clip: float) -> None:
    generator = np.random.default_rng(seed)
    one, other = (clip_rows(csr_array(generator.normal(size=(1, 20)) * 3), clip).toarray() for _ in range(2))
    for relation, moved in ((Relation.ZERO_OUT_ONE_USER, one), (Relation.REPLACE_ONE_USER, one - other)):
        assert np.linalg.norm(moved) <= l2_sensitivity(relation, 1.0, clip) * (1 + 1e-12)


def test_clipping_scales_long_rows_and_leaves_short_ones() -> None:
    rows = csr_array(np.array([[3.0, 0, 4], [0.3, 0, 0.4], [0, 0, 0]]))
    clipped = clip_rows(rows, 1.0).toarray()
    np.testing.assert_allclose(clipped, [[0.6, 0, 0.8], [0.3, 0, 0.4], [0, 0, 0]], rtol=1e-15)
    assert rows.toarray()[0, 2] == 4  # the caller's data stay


def test_bounds_hold_for_cells_that_are_stored_twice() -> None:
    twice = csr_array((np.array([0.8, 0.8]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    assert np.linalg.norm(clip_rows(twice, 1.0).toarray()) == pytest.approx(1.0)
    assert clamp_ratings(twice, 1.0).toarray().max() == 1.0


def test_ratings_are_clamped() -> None:
    rows = csr_array(np.array([[-2.0, 0, 0.5, 7]]))
    assert clamp_ratings(rows, 5.0).toarray().tolist() == [[0, 0, 0.5, 5]]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_without_a_bound_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match="NaN or infinite values"):
        clip_rows(csr_array(np.array([[value, 1.0]])), 1.0)
