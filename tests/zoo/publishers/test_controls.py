"""Partial and Thinned: another publisher's release, for a share of its users or of the ratings."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import some_ratings
from zoo import JLT, FlippedRows, Noise, Nothing, Partial, Plaintext, Publisher, Ratings, Release, Shuffled, Thinned
from zoo.data.ratings import Step

KINDS: dict[str, Publisher] = {"rows": JLT(epsilon=4.0, num_components=5, seed=2, noise_seed=1), "ratings": Plaintext()}


def ratings(users: int = 20) -> Ratings:
    """Binary ratings; some users have none."""
    some = some_ratings(users, 7, density=0.3)
    some.matrix.data[:] = 1
    return Ratings(some.matrix, some.user_ids, some.item_ids, (Step("split random2"),))


def rows_by_user(release: Release) -> dict[str, list[float]]:
    rows = release.rows(torch.arange(release.num_users))
    return dict(zip(release.user_ids.tolist(), rows.tolist(), strict=True))


@pytest.fixture(params=KINDS)
def of(request: pytest.FixtureRequest) -> Publisher:
    return KINDS[request.param]


def test_a_share_of_the_users_keeps_a_row_and_never_nobody(of: Publisher) -> None:
    for share, kept in ((1.0, 20), (0.5, 10), (0.25, 5), (0.26, 5), (0.99, 20), (0.04, 1), (1e-9, 1)):
        release = Partial(of, share).publish(ratings(), "book")
        assert release.num_users == kept
        assert len(release.rows(torch.arange(kept))) == kept


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_every_row_stays_with_its_user(of: Publisher, share: float) -> None:
    whole, part = of.publish(ratings(), "book"), Partial(of, share).publish(ratings(), "book")
    assert (part.kind, part.domain, part.width) == (whole.kind, whole.domain, whole.width)
    ours, theirs = rows_by_user(part), rows_by_user(whole)
    assert ours == {user: theirs[user] for user in ours}
    order = [user for user in whole.user_ids.tolist() if user in ours]
    assert list(ours) == order, "the order says nothing of the draw"


def test_the_rows_of_others_are_gone_from_the_file(tmp_path: Path) -> None:
    whole, part = Plaintext().publish(ratings(), "book"), Partial(Plaintext(), 0.25).publish(ratings(), "book")
    loaded = Release.load(part.save(tmp_path / "book"))
    assert rows_by_user(loaded) == rows_by_user(part)
    kept = np.isin(whole.user_ids, loaded.user_ids)
    counts = whole.tensors["starts"].diff().numpy()
    assert len(loaded.tensors["items"]) == counts[kept].sum() < counts.sum()
    assert int(loaded.tensors["starts"][-1]) == len(loaded.tensors["items"])


def test_users_without_a_rating_can_be_kept() -> None:
    empty = Ratings(ratings().matrix * 0, ratings().user_ids, ratings().item_ids)
    empty.matrix.eliminate_zeros()
    release = Partial(Plaintext(), 0.5).publish(empty, "book")
    assert release.num_users == 10
    assert not release.rows(torch.arange(10)).any()


def test_a_seed_keeps_the_same_users_whatever_is_published() -> None:
    kept = {
        tuple(Partial(publisher, 0.4, seed=3).publish(ratings(), domain).user_ids)
        for publisher in (*KINDS.values(), JLT(epsilon=1.0, num_components=2), Noise(Plaintext()))
        for domain in ("book", "film")
    }
    assert len(kept) == 1
    others = {tuple(Partial(Plaintext(), 0.4, seed=s).publish(ratings(), "book").user_ids) for s in range(5)}
    assert len(others) > 1


def test_the_order_of_the_users_does_not_decide() -> None:
    some = ratings()
    turned = Ratings(some.matrix[::-1], some.user_ids[::-1], some.item_ids)
    one, other = (Partial(Plaintext(), 0.4).publish(r, "book") for r in (some, turned))
    assert rows_by_user(one) == rows_by_user(other)


def test_fewer_users_are_a_part_of_more() -> None:
    kept = [set(Partial(Plaintext(), share).publish(ratings(), "book").user_ids) for share in (0.1, 0.3, 0.6, 1.0)]
    assert all(few < many for few, many in pairwise(kept))


def test_another_seed_redraws_other_ratings() -> None:
    first, again, other = (Noise(Plaintext(), seed=seed).redraw(ratings()).matrix.toarray() for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).any()
    assert first.sum() == other.sum()


@pytest.mark.thorough
def test_the_draw_is_fair() -> None:
    # 400 draws of 5 among 20 users: each is kept 100 times in the mean, with a standard deviation below 8.7. Six of them
    # lie 48 below: fails with probability below 1e-7 for fresh seeds; these are fixed.
    kept = [Partial(Plaintext(), 0.25, seed=seed).publish(ratings(), "book").user_ids for seed in range(400)]
    _, counts = np.unique(np.concatenate(kept), return_counts=True)
    assert len(counts) == 20
    assert 48 < counts.min() <= counts.max() < 152


@pytest.mark.parametrize("publisher", [*KINDS.values(), JLT(epsilon=4.0, num_components=5, seed=2)])
def test_the_record_is_that_of_the_whole_release_and_names_the_share(publisher: Publisher) -> None:
    whole, part = publisher.publish(ratings(), "book"), Partial(publisher, 0.5).publish(ratings(), "book")
    assert (part.record.notes["share of the users"], part.record.notes["seed of the users"]) == (0.5, 0)
    notes = {key: value for key, value in part.record.notes.items() if not key.endswith(" of the users")}
    assert replace(part.record, notes=notes) == whole.record
    assert part.ledger == whole.ledger
    assert Partial(publisher, 0.5).plan(20, 7) == publisher.plan(20, 7)


def test_controls_go_into_each_other() -> None:
    half = Partial(Shuffled(Plaintext(), seed=4), 0.5).publish(ratings(), "book")
    assert half.record.public_inputs.keys() >= {"share of the users", "rows"}
    assert half.record.notes["seed of the shuffle"] == 4
    noise = Noise(Partial(Plaintext(), 0.5)).publish(ratings(), "book")
    assert set(noise.user_ids) == set(half.user_ids), "a noise control has the same users"
    assert Partial(Nothing(), 0.5).publish(ratings(), "book").num_users == 0
    assert Partial(Nothing("ratings"), 0.5).publish(ratings(), "book").num_users == 0


@pytest.mark.parametrize("share", [0.0, -0.1, 1.001, 2, float("nan")])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"share must lie in \(0, 1\], got .*For 0, use Nothing"):
        Partial(Plaintext(), share)


@settings(max_examples=40, deadline=None)
@given(users=st.integers(1, 30), share=st.floats(0.001, 1), seed=st.integers(0, 10))
def test_the_number_kept_is_the_nearest_to_the_share(users: int, share: float, seed: int) -> None:
    release = Partial(Plaintext(), share, seed).publish(ratings(users), "book")
    assert 1 <= release.num_users <= users
    assert release.num_users == 1 or abs(release.num_users - share * users) <= 0.5
    assert set(release.user_ids) <= set(ratings(users).user_ids)


def many_ratings(users: int = 40, items: int = 30, density: float = 0.5) -> Ratings:
    some = some_ratings(users, items, density=density)
    some.matrix.data[:] = 1
    return some


def pairs(of: Ratings) -> set[tuple[str, str]]:
    users, items = of.pairs()
    return set(zip(of.user_ids[users].tolist(), of.item_ids[items].tolist(), strict=True))


def test_the_release_is_that_of_the_ratings_that_stay() -> None:
    thinned = Thinned(Plaintext(), share=0.5, seed=3)
    release = thinned.publish(many_ratings(), "book")
    left = thinned.thin(many_ratings())
    assert release.tensors["items"].tolist() == left.matrix.indices.tolist()
    assert release.num_users == 40, "users stay, also without a rating"
    assert release.width == 30
    assert release.record.public_inputs["share of the ratings"] == 0.5
    assert release.record.public_inputs["seed of the share"] == 3


def test_about_the_share_stays() -> None:
    """Of n ratings the count is binomial; six standard deviations are left by chance once in 5e8."""
    many = many_ratings(200, 100)
    kept = Thinned(Plaintext(), share=0.3).thin(many).num_ratings
    spread = math.sqrt(many.num_ratings * 0.3 * 0.7)
    assert abs(kept - 0.3 * many.num_ratings) < 6 * spread


def test_all_ratings_stay_at_a_share_of_one() -> None:
    assert Thinned(Plaintext(), share=1.0).thin(many_ratings()).digest() == many_ratings().digest()


@settings(deadline=None, max_examples=20)
@given(left_out=st.integers(0, 39), seed=st.integers(0, 5))
def test_whether_a_rating_stays_depends_on_no_other(left_out: int, seed: int) -> None:
    """So the guarantee of what is wrapped holds: without one user, the others keep the same ratings."""
    whole, thinned = many_ratings(), Thinned(Plaintext(), share=0.5, seed=seed)
    others = np.delete(np.arange(40), left_out)
    part = Ratings(whole.matrix[others], whole.user_ids[others], whole.item_ids)
    gone = str(whole.user_ids[left_out])
    assert pairs(thinned.thin(part)) == {pair for pair in pairs(thinned.thin(whole)) if pair[0] != gone}


def test_another_seed_keeps_others() -> None:
    assert pairs(Thinned(Plaintext(), 0.5, 0).thin(many_ratings())) != pairs(
        Thinned(Plaintext(), 0.5, 1).thin(many_ratings())
    )


def test_the_record_and_the_plan_are_those_of_what_is_wrapped() -> None:
    of = JLT(epsilon=4.0, num_components=5, seed=2)
    record, thinned = Thinned(of, share=0.5).publish(many_ratings(), "book").record, Thinned(of, share=0.5)
    assert record.epsilon == of.publish(many_ratings(), "book").record.epsilon
    assert thinned.plan(40, 30) == of.plan(40, 30)
    assert thinned.forecast(40, 30) == of.forecast(40, 30)
    assert [audit.name for audit in thinned.audits()] == [audit.name for audit in of.audits()]


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, math.nan])
def test_a_share_of_the_ratings_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=rf"share must lie in \(0, 1\], got {share}"):
        Thinned(Plaintext(), share=share)


def test_nothing_left_is_released_like_anything_else() -> None:
    thinned = Thinned(Plaintext(), share=1e-6)
    assert thinned.thin(many_ratings()).num_ratings == 0
    assert thinned.publish(many_ratings(), "book").num_users == many_ratings().num_users
    assert Thinned(FlippedRows(2.0), share=1e-6).publish(many_ratings(), "book").record.epsilon == 2.0
