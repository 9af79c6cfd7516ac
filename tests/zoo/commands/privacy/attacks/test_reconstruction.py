"""What an attack brings back: figures against counts by hand and by loops, whom an adversary knows, controls that find nothing."""

from functools import partial

import numpy as np
import pytest
from scipy.sparse import csr_array

import zoo.commands.privacy.attacks.inverse as inverse
from zoo.commands.privacy.attacks.inverse import perceptron_inverse, ridge_inverse
from zoo.commands.privacy.attacks.reconstruction import (
    Adversary,
    Learner,
    items_recovered,
    popularity_guess,
    recovered,
    vectors_recovered,
)
from zoo.privacy.mechanisms.noisy_rows import Floats


def slow_figures(scores: Floats, owned: np.ndarray) -> tuple[float, float]:
    """AUC by all pairs, precision as the mean over many random orders of ties, user after user."""
    aucs, precisions = [], []
    rng = np.random.default_rng(0)
    for line, own in zip(scores, owned, strict=True):
        if own.all() or not own.any():
            continue
        aucs.append(np.mean([(a > b) + 0.5 * (a == b) for a in line[own] for b in line[~own]]))
        orders = [np.lexsort((rng.random(len(line)), -line)) for _ in range(2000)]
        precisions.append(np.mean([own[order[: own.sum()]].mean() for order in orders]))
    return float(np.mean(aucs)), float(np.mean(precisions))


def test_items_are_counted_as_by_hand_with_ties(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    scores, owned = rng.integers(4, size=(7, 9)).astype(float), rng.random((7, 9)) < 0.4
    owned[2], owned[4] = False, True
    items = csr_array(owned.astype(float))
    expected = slow_figures(scores, owned)
    for cells in (2**20, 20):  # all users at once, and two at a time
        monkeypatch.setattr(inverse, "CELLS", cells)
        found = items_recovered(lambda part: scores[part], items)
        assert found[0] == pytest.approx(expected[0])
        assert found[1] == pytest.approx(expected[1], abs=0.01)
    assert items_recovered(lambda part: owned[part].astype(float), items) == (1.0, 1.0)
    with pytest.raises(ValueError, match=r"Every user has all items or none"):
        items_recovered(lambda part: scores[part], csr_array(np.ones((7, 9))))


def test_leakage_is_one_of_a_perfect_guess_a_half_of_the_mean_and_no_matter_of_units() -> None:
    clean = np.array([[3.0, 0.0], [-3.0, 0.0], [0.0, 3.0], [0.0, -3.0]])
    mean = np.zeros(2)
    assert vectors_recovered(clean, clean, mean) == (1.0, 1.0)
    assert vectors_recovered(clean, np.zeros((4, 2)), mean) == (0.5, 0.0)
    half = vectors_recovered(clean, clean / 2, mean)
    assert half == pytest.approx((1 / 1.5, 0.75))
    assert vectors_recovered(100 * clean, 50 * clean, mean) == pytest.approx(half)
    assert vectors_recovered(np.ones((3, 2)), np.ones((3, 2)), np.ones(2)) == (1.0, 1.0)


def test_an_adversary_knows_a_share_of_those_who_have_anything_and_attacks_the_others() -> None:
    items = csr_array(np.diag([1.0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 1]))
    known, attacked = Adversary.who_knows(0.25, items, 1)
    assert (len(known), len(attacked)) == (2, 7)
    assert sorted([*known, *attacked]) == [0, 2, 3, 4, 5, 7, 8, 9, 10]
    assert not np.array_equal(Adversary.who_knows(0.25, items, 2).known, known)
    with pytest.raises(ValueError, match=r"The share of known users is 1\.0\."):
        Adversary.who_knows(1.0, items, 1)
    with pytest.raises(ValueError, match=r"Of 9 users 1 are known and 8 attacked"):
        Adversary.who_knows(0.1, items, 1)


def test_popularity_is_that_of_the_known_users() -> None:
    owned = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [1, 0, 1, 0]], dtype=float)
    auc, precision = popularity_guess(csr_array(owned), Adversary(np.array([0, 1]), np.array([2, 3])))
    # Known are 2, 1, 0, 0: the one item of the third user ties for last, of the fourth one is first and one ties for last.
    assert auc == pytest.approx((0.5 / 3 + (2 + 0.5) / 4) / 2)
    assert precision == pytest.approx((0 + 0.5) / 2)


@pytest.mark.parametrize(
    "learn", [ridge_inverse, partial(perceptron_inverse, seed=1, max_epochs=50)], ids=["ridge", "perceptron"]
)
def test_what_is_released_is_found_and_other_peoples_rows_tell_what_popularity_tells(learn: Learner) -> None:
    rng = np.random.default_rng(8)
    clean = rng.normal(size=(400, 3))
    tastes = clean @ rng.normal(size=(3, 30)) + np.linspace(-3, 0, 30) + 0.3 * rng.normal(size=(400, 30))
    items = csr_array((tastes > 0).astype(float))
    adversary = Adversary.who_knows(0.6, items, 3)
    popular = popularity_guess(items, adversary)
    plain, noisy, others = (
        recovered(learn, rows, clean, items, adversary)
        for rows in (clean, clean + rng.normal(size=clean.shape), clean[rng.permutation(400)])
    )
    assert plain.leakage > noisy.leakage + 0.1
    assert noisy.leakage > others.leakage + 0.05
    assert plain.explained > 0.9
    assert 0.65 > noisy.explained > 0.3
    assert others.explained < 0.05
    assert plain.auc > noisy.auc + 0.02
    assert noisy.auc > popular[0] + 0.03
    assert plain.precision > noisy.precision + 0.02
    assert noisy.precision > popular[1] + 0.03
    assert others.auc == pytest.approx(popular[0], abs=0.03)
    assert others.precision == pytest.approx(popular[1], abs=0.04)
