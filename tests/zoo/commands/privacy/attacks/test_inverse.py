"""Learned inverses: planted maps are found, releases that say nothing give the mean, large targets are read in parts."""

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

import zoo.commands.privacy.attacks.inverse as inverse
from zoo.commands.privacy.attacks.inverse import Inverse, perceptron_inverse, ridge_inverse

RNG = np.random.default_rng(5)
SECRET, TURN = RNG.normal(size=(300, 3)), RNG.normal(size=(3, 4))
#: Ten items, each had by those on one side of a plane.
ITEMS = csr_array((SECRET @ RNG.normal(size=(3, 10)) > 0.3).astype(np.float64))


def test_a_linear_release_is_undone_by_ridge() -> None:
    released = SECRET @ TURN + 5
    assert np.allclose(ridge_inverse(released[:200], SECRET[:200])(released[200:]), SECRET[200:], atol=1e-2)


def test_ridge_is_that_of_the_normal_equations(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one penalty to choose from, of the mean squared norm, and an intercept that costs nothing."""
    monkeypatch.setattr("zoo.nn.ridge.Spectrum.best_penalty", lambda *_, **__: 0.7)
    released = SECRET @ TURN + RNG.normal(size=(300, 4))
    centre, mean = released.mean(0), ITEMS.toarray().mean(0)
    centred = released - centre
    penalty = 0.7 * (centred**2).sum() / 300
    weights = np.linalg.solve(centred.T @ centred + penalty * np.eye(4), centred.T @ (ITEMS.toarray() - mean))
    assert np.allclose(ridge_inverse(released, ITEMS)(released[:5]), mean + (released[:5] - centre) @ weights)


def test_a_bent_release_is_undone_by_the_perceptron_better() -> None:
    released = SECRET**3 + 3
    errors = {}
    for name, learn in (("ridge", ridge_inverse), ("perceptron", perceptron_inverse)):
        guesses = learn(released[:250], SECRET[:250])(released[250:])
        errors[name] = ((guesses - SECRET[250:]) ** 2).mean()
    assert errors["perceptron"] < 0.6 * errors["ridge"]


@pytest.mark.parametrize("learn", [ridge_inverse, partial(perceptron_inverse, max_epochs=60)])
def test_items_are_told_from_a_release_that_has_them_and_from_no_other(learn: Callable[..., Inverse]) -> None:
    owned = ITEMS.toarray()[200:] > 0
    told = learn(SECRET[:200], ITEMS[:200])(SECRET[200:])
    assert (told[owned].mean() - told[~owned].mean()) / told.std() > 1
    noise = np.random.default_rng(6).normal(size=(300, 3))
    nothing = learn(noise[:200], ITEMS[:200])(noise[200:])
    assert nothing.std(axis=0).mean() < 0.3 * told.std(axis=0).mean(), "everybody is guessed to have what most have"


def test_items_are_learned_as_odds_and_the_best_weights_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    told = perceptron_inverse(SECRET[:200], ITEMS[:200], max_epochs=60)(SECRET[200:])
    assert told[ITEMS.toarray()[200:] == 0].mean() < -1
    adam = torch.optim.Adam
    monkeypatch.setattr(torch.optim, "Adam", lambda parameters, lr: adam(parameters, lr=100.0))  # each step is too long
    assert np.allclose(perceptron_inverse(SECRET, SECRET, max_epochs=3)(SECRET[:2]), SECRET.mean(axis=0), atol=1e-6)


def test_a_release_that_is_the_same_of_all_gives_the_mean() -> None:
    assert np.allclose(ridge_inverse(np.ones((200, 2)), ITEMS[:200])(np.ones((2, 2))), ITEMS[:200].mean(axis=0))
    guessed = perceptron_inverse(np.ones((200, 2)), SECRET[:200], max_epochs=0)(np.ones((1, 2)))
    assert np.allclose(guessed, SECRET[:200].mean(axis=0), atol=1e-6)


def test_the_random_state_is_left_alone_and_a_seed_repeats_the_perceptron() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    once, again, other = (perceptron_inverse(SECRET, ITEMS, seed, max_epochs=2)(SECRET[:3]) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)


def test_few_rows_of_many_columns_are_dense_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [inverse.rows_at_once(columns) for columns in (10, 2**22, 2**23)] == [512, 1, 1]
    whole = ridge_inverse(SECRET, ITEMS)(SECRET[:9])
    monkeypatch.setattr(inverse, "CELLS", 25)
    assert inverse.rows_at_once(10) == 2
    assert np.allclose(ridge_inverse(SECRET, ITEMS)(SECRET[:9]), whole)
