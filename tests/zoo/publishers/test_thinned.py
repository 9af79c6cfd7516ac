"""Thinned: another publisher's release of a share of the ratings."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import some_ratings
from zoo import JLT, Plaintext, Ratings, Thinned


def ratings(users: int = 40, items: int = 30, density: float = 0.5) -> Ratings:
    some = some_ratings(users, items, density=density)
    some.matrix.data[:] = 1
    return some


def pairs(of: Ratings) -> set[tuple[str, str]]:
    users, items = of.pairs()
    return set(zip(of.user_ids[users].tolist(), of.item_ids[items].tolist(), strict=True))


def test_the_release_is_that_of_the_ratings_that_stay() -> None:
    thinned = Thinned(Plaintext(), share=0.5, seed=3)
    release = thinned.publish(ratings(), "book")
    left = thinned.thin(ratings())
    assert release.tensors["items"].tolist() == left.matrix.indices.tolist()
    assert release.num_users == 40, "users stay, also without a rating"
    assert release.width == 30
    assert release.record.public_inputs["share of the ratings"] == 0.5
    assert release.record.public_inputs["seed of the share"] == 3


def test_about_the_share_stays() -> None:
    """Of n ratings the count is binomial; six standard deviations are left by chance once in 5e8."""
    many = ratings(200, 100)
    kept = Thinned(Plaintext(), share=0.3).thin(many).num_ratings
    spread = math.sqrt(many.num_ratings * 0.3 * 0.7)
    assert abs(kept - 0.3 * many.num_ratings) < 6 * spread


def test_all_ratings_stay_at_a_share_of_one() -> None:
    assert Thinned(Plaintext(), share=1.0).thin(ratings()).digest() == ratings().digest()


@settings(deadline=None, max_examples=20)
@given(left_out=st.integers(0, 39), seed=st.integers(0, 5))
def test_whether_a_rating_stays_depends_on_no_other(left_out: int, seed: int) -> None:
    """So the guarantee of what is wrapped holds: without one user, the others keep the same ratings."""
    whole, thinned = ratings(), Thinned(Plaintext(), share=0.5, seed=seed)
    others = np.delete(np.arange(40), left_out)
    part = Ratings(whole.matrix[others], whole.user_ids[others], whole.item_ids)
    gone = str(whole.user_ids[left_out])
    assert pairs(thinned.thin(part)) == {pair for pair in pairs(thinned.thin(whole)) if pair[0] != gone}


def test_another_seed_keeps_others() -> None:
    assert pairs(Thinned(Plaintext(), 0.5, 0).thin(ratings())) != pairs(Thinned(Plaintext(), 0.5, 1).thin(ratings()))


def test_the_record_and_the_plan_are_those_of_what_is_wrapped() -> None:
    of = JLT(epsilon=4.0, num_components=5)
    record, thinned = Thinned(of, share=0.5).publish(ratings(), "book").record, Thinned(of, share=0.5)
    assert record.epsilon == of.publish(ratings(), "book").record.epsilon
    assert thinned.plan(40, 30) == of.plan(40, 30)
    assert thinned.forecast(40, 30) == of.forecast(40, 30)
    assert [audit.name for audit in thinned.audits()] == [audit.name for audit in of.audits()]


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, math.nan])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=rf"share must lie in \(0, 1\], got {share}"):
        Thinned(Plaintext(), share=share)


def test_nothing_left_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Of \d+ ratings none is left at a share of 1e-06"):
        Thinned(Plaintext(), share=1e-6).publish(ratings(), "book")
