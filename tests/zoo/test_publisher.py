"""What every publisher knows before it has seen a rating."""

import pytest

from zoo.publisher import PublicSizes


def test_delta_follows_the_users_unless_one_is_asked_for() -> None:
    assert PublicSizes(20, 5).delta(None) == 1e-5
    assert PublicSizes(10**6, 5).delta(None) == 1e-7
    assert PublicSizes(20, 5).delta(0.049) == 0.049


@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_a_delta_at_which_one_user_may_be_handed_over_is_refused_before_anything_is_drawn(delta: float) -> None:
    with pytest.raises(ValueError, match=f"delta {delta:g} is not below one over the 20 users.*Take 1e-05 or less"):
        PublicSizes(20, 5).delta(delta)


@pytest.mark.parametrize("delta", [None, 1e-6])
def test_nobody_is_no_number_of_users(delta: float | None) -> None:
    with pytest.raises(ValueError, match="num_users must be at least 1, got 0"):
        PublicSizes(0, 5).delta(delta)
