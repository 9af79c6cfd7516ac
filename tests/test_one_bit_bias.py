"""Biases of users and items: the best ones, checked without a derivative."""

import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_expit, log_ndtr

from tests.zoo.methods.one_bit_mc.problems import observations
from zoo.methods.one_bit_mc.objective import Observations
from zoo.privacy.one_bit.link_functions import Link, Logistic, Probit

BiasMatrix = Callable[[Observations, Link, float], np.ndarray]


@pytest.fixture
def bias_matrix(monkeypatch: pytest.MonkeyPatch) -> BiasMatrix:
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "benchmarks")
    found: BiasMatrix = importlib.import_module("one_bit").bias_matrix
    return found


@pytest.mark.parametrize("ridge", [0.1, 1.0, 20.0])
@pytest.mark.parametrize("link", [Logistic(), Probit(0.7)])
def test_no_other_biases_are_more_likely(bias_matrix: BiasMatrix, link: Link, ridge: float) -> None:
    seen = observations(4, (5, 4), 13)
    users, items = np.divmod(seen.cells, 4)

    def loss(biases: np.ndarray) -> float:
        entries = seen.signs * (biases[0] + biases[1:6][users] + biases[6:][items])
        likely = log_expit(entries) if isinstance(link, Logistic) else log_ndtr(entries / link.scale)
        return float(-likely.sum() + ridge / 2 * (biases[1:] ** 2).sum())

    found = minimize(loss, np.zeros(10), method="BFGS", options={"gtol": 1e-9}).x  # by finite differences
    expected = found[0] + found[1:6, None] + found[None, 6:]
    assert bias_matrix(seen, link, ridge) == pytest.approx(expected, abs=2e-3)


def test_a_large_ridge_leaves_the_share_of_positive_signs(bias_matrix: BiasMatrix) -> None:
    seen = observations(5)
    share = (seen.signs > 0).mean()
    assert bias_matrix(seen, Logistic(), 1e7) == pytest.approx(np.log(share / (1 - share)), abs=1e-4)
