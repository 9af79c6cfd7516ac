"""EASE against the optimality conditions of its own problem."""

import numpy as np
import pytest
import torch

from datamodules import Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from zoo import EASE


def solved(l2: float, **settings: float) -> tuple[EASE, Synthetic]:
    data = Synthetic(num_users=30, num_items=15, ratings_per_user=6)
    method = EASE(l2, **settings)  # type: ignore[arg-type]
    quiet(max_epochs=1).fit(method, datamodule=data)
    return method, data


@pytest.mark.parametrize("l2", [0.5, 20.0])
def test_the_gradient_vanishes_off_the_diagonal(l2: float) -> None:
    method, data = solved(l2)
    x, b = data.train.matrix.toarray().astype(float), method.weights.numpy().astype(float)
    gradient = x.T @ (x @ b - x) + l2 * b
    assert np.abs(np.diag(b)).max() == 0
    off = ~np.eye(len(b), dtype=bool)
    assert np.abs(gradient[off]).max() < 1e-4 * np.abs(x.T @ x).max()


def test_rows_of_many_items_count_for_less_where_asked_for() -> None:
    """The same conditions, of rows scaled by hand; scores still read rows as they are."""
    method, data = solved(3.0, row_exponent=0.25)
    x, b = data.train.matrix.toarray().astype(float), method.weights.numpy().astype(float)
    assert len(set(x.sum(1))) > 1 or x.sum(1)[0] > 1
    scaled = x / x.sum(1, keepdims=True) ** 0.25
    gradient = scaled.T @ (scaled @ b - scaled) + 3.0 * b
    assert np.abs(gradient[~np.eye(len(b), dtype=bool)]).max() < 1e-4 * np.abs(x.T @ x).max()
    users = torch.tensor([3, 0])
    assert np.allclose(method.score_all(users).numpy(), x[users] @ b, atol=1e-5)


def test_a_catalogue_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match=r"num_items is 40000, above max_items \(30000\).*12 GiB"):
        EASE().build({"num_items": 40_000})
