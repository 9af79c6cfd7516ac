"""What every publisher knows before it has seen a rating."""

import pytest

from tests.samples import some_ratings
from zoo import FlippedRows
from zoo.data.ratings import Step
from zoo.privacy.accounting.relation import Relation
from zoo.publishers.base import PublicSizes


def test_delta_follows_the_users_unless_one_is_asked_for() -> None:
    assert PublicSizes(20, 5).delta(None) == 1e-5
    assert PublicSizes(10**6, 5).delta(None) == 1e-7
    assert PublicSizes(20, 5).delta(0.049) == 0.049


@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_a_delta_at_which_one_user_may_be_handed_over_is_refused_before_anything_is_drawn(delta: float) -> None:
    with pytest.raises(ValueError, match=f"delta is {delta:g}. Allowed: below 1/20 .*Take 1e-05"):
        PublicSizes(20, 5).delta(delta)


@pytest.mark.parametrize("delta", [None, 1e-6])
def test_nobody_is_no_number_of_users(delta: float | None) -> None:
    with pytest.raises(ValueError, match=r"num_units is 0.*Allowed: integers >= 1"):
        PublicSizes(0, 5).delta(delta)


def test_a_condition_counts_for_those_whom_a_step_is_felt_by() -> None:
    """Inside a user's row a publisher bounds what whole users move; where who rated what is public, values alone count."""
    applied = (
        Step("counted"),
        Step("minimum of users", "no count", "row"),
        Step("minimum of items", "no item", "all"),
        Step("mean", "public mean", "values"),
    )
    sizes = PublicSizes(20, 5, applied)
    assert sizes.conditions(Relation.CHANGE_ONE_RATING) == ("no count", "no item", "public mean")
    assert sizes.conditions(Relation.CHANGE_ONE_RATING_VALUE) == ("public mean",)
    for relation in (Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER):
        assert sizes.conditions(relation) == ("no item", "public mean")


def test_a_planned_release_is_for_what_it_was_planned_for() -> None:
    ratings = some_ratings(9, 7)
    ratings.matrix.data[:] = 1
    for other in (PublicSizes(8, 7), PublicSizes(9, 8), PublicSizes(9, 7, (Step("more than that"),))):
        with pytest.raises(ValueError, match=r"plan is for \d users and \d items. 'book' has 9 and 7.*Plan anew"):
            FlippedRows(1.0).prepare(other).make(ratings, "book")
    made = FlippedRows(1.0).prepare(PublicSizes.of(ratings)).make(ratings, "book")
    assert made.num_users == 9


def test_an_old_attribute_of_a_class_warns() -> None:
    with pytest.warns(DeprecationWarning, match=r"Plugged\.seed_of_cell is now repeats_seed"):

        class Plugged(FlippedRows):
            seed_of_cell = True

    assert Plugged.repeats_seed
