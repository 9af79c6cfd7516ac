"""LowRank: the matrix, what is observed of it, and that signs follow its link."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from datamodules import LowRank
from datamodules.low_rank import low_rank_matrix
from zoo.testing.tiny import rated


def drawn(**settings: Any) -> LowRank:  # noqa: ANN401
    data = LowRank(**{"seed": 0} | settings)
    data.read_target()
    return data


@pytest.mark.parametrize(("rank", "bound"), [(1, 1.0), (3, 0.5), (20, 2.0)])
def test_the_matrix_has_the_rank_and_the_largest_entry_asked_for(rank: int, bound: float) -> None:
    truth = drawn(num_users=30, num_items=20, rank=rank, max_entry=bound).truth.numpy()
    assert truth.shape == (30, 20)
    assert np.linalg.matrix_rank(truth) == rank
    assert np.abs(truth).max() == pytest.approx(bound, rel=1e-15)


def test_the_largest_entry_may_be_negative() -> None:
    for seed in range(40):
        matrix = low_rank_matrix(5, 4, 1, 1.0, np.random.default_rng(seed))
        if matrix.min() < -matrix.max():
            assert matrix.min() == -1.0
            return
    pytest.fail("no matrix had its largest entry below 0")


@pytest.mark.parametrize("observed", [0.15, 0.5, 0.8, 0.9])
def test_so_many_entries_are_observed_and_the_test_is_apart(observed: float) -> None:
    data = drawn(num_users=40, num_items=25, observed=observed)
    count = round(observed * 1000)
    assert data.train.num_ratings == count
    assert len(data.test.users) == min(count // 5, 1000 - count)
    assert len(data.validation.users) == 0
    assert not rated(data.train, data.test.users, data.test.items).any()
    assert set(np.unique(data.train.matrix.data)) == {-1.0, 1.0}
    assert set(data.test.ratings.tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize(("link", "scale"), [("logistic", 1.0), ("probit", 0.5)])
def test_signs_are_as_frequent_as_the_link_says(link: str, scale: float) -> None:
    settings = {"num_users": 300, "num_items": 300, "max_entry": 3.0, "observed": 0.8}
    data = drawn(link=link, scale=scale, **settings)
    users, items = data.train.pairs()
    truth = data.truth.numpy()[users, items]
    probability = norm.cdf(truth / scale) if link == "probit" else 1 / (1 + np.exp(-truth))
    positive = data.train.matrix.data > 0
    for side in (truth < -1, np.abs(truth) < 0.3, truth > 1):
        expected, spread = probability[side].sum(), np.sqrt((probability * (1 - probability))[side].sum())
        assert side.sum() > 500
        assert abs(positive[side].sum() - expected) < 6 * spread  # each fails once in 5e8
    # The other link's frequencies are told apart: the test is worth something.
    other = 1 / (1 + np.exp(-truth)) if link == "probit" else norm.cdf(truth / 0.5)
    side = truth > 1
    assert abs(positive[side].sum() - other[side].sum()) > 6 * np.sqrt((other * (1 - other))[side].sum())


def test_test_signs_are_those_of_the_held_out_entries() -> None:
    data = drawn(num_users=40, num_items=25, max_entry=30.0, observed=0.5)
    truth = data.truth.numpy()[data.test.users.numpy(), data.test.items.numpy()]
    clear = np.abs(truth) > 15  # a sign that is not that of such an entry comes once in 3 million
    assert clear.any()
    assert np.array_equal(np.sign(truth[clear]), data.test.ratings.numpy()[clear])


def test_without_a_seed_of_their_own_data_follow_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    by_run = drawn(seed=None)
    monkeypatch.delenv("PL_GLOBAL_SEED")
    assert by_run.digests == drawn(seed=7).digests
    assert by_run.digests != drawn(seed=8).digests
    first, second = drawn(seed=7, data_seed=3), drawn(seed=8, data_seed=3)
    assert np.array_equal(first.truth, second.truth)
    assert first.digests == second.digests
    assert drawn(seed=7, data_seed=4).digests != first.digests
    assert not np.array_equal(first.truth, by_run.truth)


def test_rows_and_columns_without_an_observed_entry_stay() -> None:
    data = drawn(num_users=60, num_items=50, observed=0.02)
    assert (data.train.num_users, data.train.num_items) == (60, 50)
    assert (np.diff(data.train.matrix.indptr) == 0).any()
    assert data.train.user_ids.tolist() == [f"u{n:02d}" for n in range(60)]
    assert data.train.item_ids.tolist() == [f"i{n:02d}" for n in range(50)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 0}, r"rank is 0. Allowed: from 1 to min\(100, 100\)"),
        ({"rank": 5, "num_items": 4}, r"rank is 5. .*min\(100, 4\)"),
        ({"max_entry": 0.0}, r"max_entry is 0.0"),
        ({"scale": -1.0}, r"scale -1.0"),
        ({"observed": 0.0}, r"observed < 1"),
        ({"observed": 1.0}, r"observed < 1"),
        ({"link": "cauchy"}, r"link is 'cauchy'. Allowed: 'logistic', 'probit'"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LowRank(**settings)
