"""Membership among sorted numbers, against a set."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from zoo.data.arrays import contains


@given(keys=st.sets(st.integers(0, 40)), wanted=st.lists(st.integers(-2, 42)))
def test_it_is_that_of_a_set(keys: set[int], wanted: list[int]) -> None:
    found = contains(np.array(sorted(keys), dtype=np.int64), np.array(wanted, dtype=np.int64))
    assert found.tolist() == [number in keys for number in wanted]


def test_the_shape_is_that_of_what_is_looked_for() -> None:
    wanted = np.arange(6).reshape(2, 3)
    assert contains(np.array([1, 5]), wanted).tolist() == [[False, True, False], [False, False, True]]
    assert contains(np.array([], dtype=np.int64), wanted).shape == (2, 3)
