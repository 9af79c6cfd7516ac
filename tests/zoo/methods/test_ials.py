"""IALS against normal equations written out user by user, its loss, and a pattern that it must learn."""

import numpy as np
import pytest
import torch

from tests.zoo.methods.single_domain import fitted, learned, popular
from zoo import IALS
from zoo.methods import ials

SETTINGS = {"num_factors": 6, "unobserved_weight": 0.2, "l2": 0.05, "frequency": 0.7, "first_scale": 0.5}


def loss(x: np.ndarray, w: np.ndarray, h: np.ndarray, alpha: float, l2: float, frequency: float) -> float:
    """The paper's, over dense matrices."""
    scores = w @ h.T
    total = (((scores - 1) ** 2)[x > 0]).sum() + alpha * (scores**2).sum()
    by_user = (x.sum(1) + alpha * x.shape[1]) ** frequency
    by_item = (x.sum(0) + alpha * x.shape[0]) ** frequency
    return float(total + l2 * (by_user @ (w**2).sum(1) + by_item @ (h**2).sum(1)))


def parts(method: IALS) -> tuple[np.ndarray, np.ndarray]:
    return method.user_factors.double().numpy(), method.item_factors.double().numpy()


@pytest.mark.parametrize("at_once", [1 << 24, 400])
def test_an_epoch_solves_the_normal_equations(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Item by item of the other side, with all rows in one block and in many."""
    monkeypatch.setattr(ials, "_AT_ONCE", at_once)
    method, trainer = fitted(IALS(**SETTINGS), 0)  # type: ignore[arg-type]
    x = trainer.datamodule.train.matrix.toarray()  # type: ignore[attr-defined]
    _, h = parts(method)
    method.step(None)  # type: ignore[arg-type]
    w, after = parts(method)

    def solved(rows: np.ndarray, other: np.ndarray) -> np.ndarray:
        found = []
        for row in rows:
            left = 0.2 * other.T @ other + 0.05 * (row.sum() + 0.2 * len(other)) ** 0.7 * np.eye(6)
            for i in np.flatnonzero(row):
                left = left + np.outer(other[i], other[i])
            right = other[row > 0].sum(0)
            found.append(np.linalg.solve(left, right))
        return np.array(found)

    assert np.allclose(w, solved(x, h), atol=1e-4)
    assert np.allclose(after, solved(x.T, w), atol=1e-4)


def test_no_epoch_raises_the_loss_and_no_nudge_lowers_it() -> None:
    """Of either side alone: each is at its least given the other."""
    method, trainer = fitted(IALS(**SETTINGS), 0)  # type: ignore[arg-type]
    x = trainer.datamodule.train.matrix.toarray()  # type: ignore[attr-defined]
    losses = [loss(x, *parts(method), 0.2, 0.05, 0.7)]
    for _ in range(4):
        method.step(None)  # type: ignore[arg-type]
        losses.append(loss(x, *parts(method), 0.2, 0.05, 0.7))
    assert losses == sorted(losses, reverse=True)
    w, h = parts(method)
    rng = np.random.default_rng(0)
    for _ in range(20):
        nudged = h + 1e-2 * rng.normal(size=h.shape)
        assert loss(x, w, nudged, 0.2, 0.05, 0.7) > losses[-1]


def test_who_has_no_rating_has_factors_of_0() -> None:
    method, trainer = fitted(IALS(**SETTINGS), 1)  # type: ignore[arg-type]
    unrated = torch.from_numpy(trainer.datamodule.train.matrix.sum(axis=0) == 0)  # type: ignore[attr-defined]
    assert (method.item_factors[unrated] == 0).all()
    assert (method.item_factors[~unrated] != 0).any(dim=1).all()


def test_first_factors_have_the_scale_that_is_asked_for() -> None:
    """Within 2 % of it: a chi-square of 76,800 numbers leaves that with probability below 1e-13."""
    method = IALS(num_factors=64, first_scale=0.5)
    torch.manual_seed(0)
    method.build({"num_users": 600, "num_items": 600})
    numbers = torch.cat([method.user_factors, method.item_factors])
    assert float(numbers.square().mean().sqrt()) == pytest.approx(0.5 / 8, rel=0.02)


def test_it_learns_tastes() -> None:
    _, trainer = fitted(IALS(num_factors=8, unobserved_weight=0.3, l2=0.05), 8)
    assert learned(trainer) > 1.3 * popular()


def test_at_convergence_a_history_gives_the_users_own_scores() -> None:
    """Users are solved before items, so after many epochs another solution for users changes nothing."""
    method, _ = fitted(IALS(**SETTINGS), 200)  # type: ignore[arg-type]
    users = torch.arange(method.target_rows.num_rows)
    found = method.fold_in(method.target_rows, users.new_full(users.shape, -1), {})
    assert torch.allclose(found, method.ranking_scores(users), atol=1e-3)
