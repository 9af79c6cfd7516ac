"""SLIM against a general solver, against the conditions of its optimum, and on a pattern that it must learn."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from datamodules import Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from tests.zoo.methods.single_domain import fitted, learned, popular
from zoo import SLIM


def solved(l1: float, l2: float, **settings: float) -> tuple[np.ndarray, np.ndarray]:
    """The ratings and the weights."""
    data = Synthetic(num_users=30, num_items=12, ratings_per_user=6)
    method = SLIM(l1, l2, **({"tolerance": 1e-7, "max_sweeps": 500} | settings))  # type: ignore[arg-type]
    quiet(max_epochs=1).fit(method, datamodule=data)
    return data.train.matrix.toarray().astype(float), method.weights.double().numpy()


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 2.0), (0.7, 2.0), (2.0, 0.3)])
def test_each_item_is_explained_as_a_general_solver_would(l1: float, l2: float) -> None:
    """Column by column, by L-BFGS-B with bounds."""
    x, found = solved(l1, l2)
    for item in range(x.shape[1]):
        bounds = [(0.0, 0.0 if other == item else None) for other in range(x.shape[1])]

        def value(w: np.ndarray, item: int = item) -> tuple[float, np.ndarray]:
            error = x @ w - x[:, item]
            return 0.5 * error @ error + 0.5 * l2 * w @ w + l1 * w.sum(), x.T @ error + l2 * w + l1

        best = minimize(value, np.zeros(x.shape[1]), jac=True, bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10})
        assert np.allclose(found[:, item], best.x, atol=1e-4)
    assert (found > 0).any()


def test_the_conditions_of_the_optimum_hold() -> None:
    """The gradient is 0 where a weight is positive, and not negative where it is 0; none explains itself or is negative."""
    x, found = solved(0.5, 1.0)
    gradient = x.T @ (x @ found - x) + found + 0.5
    off = ~np.eye(len(found), dtype=bool)
    assert (found >= 0).all()
    assert (np.diag(found) == 0).all()
    assert np.abs(gradient[off & (found > 0)]).max() < 1e-3
    assert gradient[off & (found == 0)].min() > -1e-3
    assert 0 < (found[off] == 0).mean() < 1


def test_a_larger_l1_leaves_fewer_weights() -> None:
    counts = [(solved(l1, 1.0)[1] > 0).sum() for l1 in (0.0, 1.0, 3.0, 100.0)]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] == 0


def test_it_says_where_sweeps_did_not_do(caplog: pytest.LogCaptureFixture) -> None:
    solved(0.1, 0.5, max_sweeps=1)
    assert "SLIM stops after 1 sweeps" in caplog.text
    caplog.clear()
    solved(0.1, 0.5)
    assert "SLIM stops" not in caplog.text


def test_it_learns_tastes_and_scores_by_rows() -> None:
    method, trainer = fitted(SLIM(l1=0.5, l2=5.0), 1)
    assert learned(trainer) > 1.3 * popular()
    users = torch.tensor([7, 0])
    rows = method.target_rows.dense(users)
    assert torch.allclose(method.score_all(users), rows @ method.weights, atol=1e-5)
