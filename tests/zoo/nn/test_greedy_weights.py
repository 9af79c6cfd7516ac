"""Greedy weights against a selection written out by hand, and standardised rows against scipy."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.stats import zscore
from torch import Tensor

from zoo.nn.greedy_weights import greedy_weights, standardised


def test_rows_are_standardised_by_themselves() -> None:
    scores = np.random.default_rng(0).normal(3.0, 5.0, (4, 9)) * np.array([[1.0], [100.0], [1e-3], [1.0]])
    assert np.allclose(standardised(torch.tensor(scores)).numpy(), zscore(scores, axis=1), atol=1e-6)


@pytest.mark.parametrize("level", [0.0, 0.1, 1e6])
def test_a_level_row_says_nothing(level: float) -> None:
    found = standardised(torch.stack([torch.full((7,), level), torch.arange(7.0)]))
    assert torch.equal(found[0], torch.zeros(7))
    assert found[1].std(correction=0) == pytest.approx(1.0)


def test_each_round_adds_what_is_best_then() -> None:
    """Against the selection written out with counts alone, for a value that is not that of any candidate alone."""
    goal = np.array([0.25, 0.0, 0.6, 0.15])

    def value(weights: Tensor) -> float:
        return -float(np.square(weights.double().numpy() - goal).sum())

    found, worth = greedy_weights(4, value, 12)
    counts, best = np.zeros(4), (-np.inf, np.zeros(4))
    for number in range(1, 13):
        sums = [counts + one for one in np.eye(4)]
        counts = max(sums, key=lambda some: -np.square(some / number - goal).sum())  # of equal ones the first
        now = -np.square(counts / number - goal).sum()
        best = max(best, (now, counts / number), key=lambda some: some[0])
    assert np.allclose(found.numpy(), best[1], atol=1e-6)
    assert worth == pytest.approx(best[0], abs=1e-6)
    assert float(found.sum()) == pytest.approx(1.0)
    assert worth > max(value(one) for one in torch.eye(4))


def test_of_equal_candidates_the_first_is_taken_and_of_equal_rounds_the_earliest() -> None:
    found, worth = greedy_weights(3, lambda weights: 1.0 if weights[0] < 1 else 0.5, 4)
    assert found.tolist() == [0.0, 1.0, 0.0]
    assert worth == 1.0


def test_more_rounds_are_never_worth_less() -> None:
    rng = np.random.default_rng(1)
    worths = {tuple(parts): rng.random() for parts in product(range(9), repeat=2)}

    def value(weights: Tensor) -> float:
        return worths[int(8 * weights[0]), int(8 * weights[1])]

    found = [greedy_weights(2, value, rounds)[1] for rounds in range(1, 9)]
    assert found == sorted(found)


@pytest.mark.parametrize(("number", "rounds"), [(0, 3), (2, 0)])
def test_nothing_to_choose_is_refused(number: int, rounds: int) -> None:
    with pytest.raises(ValueError, match=f"a candidate and a round; got {number} and {rounds}"):
        greedy_weights(number, lambda _: 0.0, rounds)
