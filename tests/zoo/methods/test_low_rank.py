"""LowRank against a dense decomposition and a general least-squares solver, and a pattern that it must learn."""

import numpy as np
import pytest
import torch

from datamodules import Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from tests.zoo.methods.single_domain import fitted, learned, popular
from zoo import LowRank


@pytest.mark.parametrize(("user", "item"), [(0.5, 0.4), (0.0, 0.0), (1.0, 0.25)])
def test_scores_are_those_of_a_dense_decomposition(user: float, item: float) -> None:
    """300 x 250 entries are above the size that is decomposed densely here too."""
    data = Synthetic(num_users=300, num_items=250, ratings_per_user=9)
    method = LowRank(5, user, item, l2=0.3)
    quiet(max_epochs=1).fit(method, datamodule=data)
    x = data.train.matrix.toarray().astype(float)
    scaled = x / np.maximum(x.sum(1, keepdims=True), 1) ** user / np.maximum(x.sum(0), 1) ** item
    places = scaled @ np.linalg.svd(scaled)[2][:5].T
    penalty = np.sqrt(0.3 * (places**2).sum(1).mean()) * np.eye(5)
    decoder = np.linalg.lstsq(np.vstack([places, penalty]), np.vstack([x, np.zeros((5, 250))]))[0]
    users, items = torch.tensor([7, 0, 299]), torch.tensor([[3, 249], [0, 1], [8, 8]])
    scores = method.score_all(users)
    assert np.allclose(scores.numpy(), (places @ decoder)[users], atol=1e-5)
    assert torch.allclose(method.score(users, items), scores.gather(1, items), atol=1e-6)


def test_directions_beyond_the_rank_add_nothing() -> None:
    """More are asked for than there are items; scores are those of as many directions as items."""
    data = Synthetic(num_users=40, num_items=15, ratings_per_user=6)
    found = []
    for number in (15, 60):
        method = LowRank(number)
        quiet(max_epochs=1).fit(method, datamodule=data)
        found.append(method.score_all(torch.arange(40)))
    assert torch.allclose(*found, atol=1e-5)
    assert method.places.shape == (40, 60)


def test_it_learns_tastes() -> None:
    _, trainer = fitted(LowRank(num_directions=8), 1)
    assert learned(trainer) > 1.3 * popular()
