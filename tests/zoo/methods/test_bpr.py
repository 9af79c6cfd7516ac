"""BPR: its loss by hand, its negatives, and a pattern that it must learn."""

import math

import numpy as np
import pytest
import torch

from tests.zoo.methods.single_domain import fitted, learned, popular
from zoo import BPR
from zoo.data.batch_types import TripleBatch
from zoo.data.rows import SparseRows
from zoo.data.training_batches import TrainingExamples

TRIPLES = TripleBatch(torch.tensor([3, 3, 7]), torch.tensor([0, 5, 9]), torch.tensor([2, 9, 1]))


@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_the_loss_is_the_papers(l2: float) -> None:
    method, _ = fitted(BPR(num_factors=4, l2=l2), 0)
    user_table, item_table = method.factors.users.weight.detach(), method.factors.items.weight.detach()
    expected = 0.0
    for user, positive, negative in zip(*TRIPLES, strict=True):
        u, i, j = user_table[user], item_table[positive], item_table[negative]
        difference = float(u @ i) - float(u @ j)
        expected += math.log(1 + math.exp(-difference)) + l2 / 2 * float((u**2).sum() + (i**2).sum() + (j**2).sum())
    assert method.step(TRIPLES)["loss"].item() == pytest.approx(expected, rel=1e-5)


def test_a_triple_that_is_badly_wrong_keeps_its_gradient() -> None:
    method, _ = fitted(BPR(num_factors=1), 0)
    with torch.no_grad():
        method.factors.users.weight.fill_(20.0)
        method.factors.items.weight.fill_(0.0)
        method.factors.items.weight[2] = 20.0  # the negative of the first triple: 400 above the positive
    loss = method.step(TripleBatch(*(part[:1] for part in TRIPLES)))["loss"]
    (gradient,) = torch.autograd.grad(loss, method.factors.items.weight)
    assert float(loss) == pytest.approx(400.0)
    assert float(gradient[0]) == pytest.approx(-20.0)


def test_a_factor_for_every_row_of_the_batch_is_exposed() -> None:
    method, _ = fitted(BPR(num_factors=4), 0)
    outputs = method.step(TRIPLES)
    assert torch.equal(outputs["user_factors"], method.factors.users.weight[TRIPLES.users])
    assert torch.equal(outputs["item_factors"], method.factors.items.weight[[0, 5, 9, 2, 9, 1]])


def test_what_it_is_told_the_user_has_not_the_user_has_not() -> None:
    method, trainer = fitted(BPR(num_factors=4), 0)
    train = trainer.datamodule.train  # type: ignore[attr-defined]
    size, make, draw, _ = TrainingExamples(train).batches(method.batches)
    dense = method.target_rows.dense(torch.arange(train.num_users))
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        batch = make(torch.arange(size), draw(torch.arange(size), generator), [])
        assert isinstance(batch, TripleBatch)
        assert (dense[batch.users, batch.positives] == 1).all()
        assert (dense[batch.users, batch.negatives] == 0).all()


@pytest.mark.slow
def test_planted_tastes_are_learned() -> None:
    _, trainer = fitted(BPR(num_factors=16, lr=3e-2, l2=0.05), 30, batch_size=256)
    assert learned(trainer) > 1.2 * popular()


def test_a_history_gives_the_scores_of_a_least_squares_factor() -> None:
    """Against numpy's least squares, with a penalty of rows below; users without a rating do not count."""
    method, trainer = fitted(BPR(num_factors=4), 2)
    x = trainer.datamodule.train.matrix.toarray()  # type: ignore[attr-defined]
    w, h = (table.weight.detach().double().numpy() for table in (method.factors.users, method.factors.items))

    def features(rows: np.ndarray) -> np.ndarray:
        return np.c_[rows @ h / np.maximum(rows.sum(1, keepdims=True), 1), np.ones(len(rows))]

    there = x.sum(1) > 0
    known = features(x)[there]
    penalty = 1e-4 * np.square(known).sum(0).mean()
    below = np.r_[known, np.sqrt(penalty) * np.eye(5)]
    mapped = np.linalg.lstsq(below, np.r_[w[there], np.zeros((5, 4))], rcond=None)[0]
    new = np.zeros((2, x.shape[1]))
    new[0, [1, 4]] = new[1, [0, 2, 7]] = 1
    rows = SparseRows(torch.tensor([0, 2, 5]), torch.tensor([1, 4, 0, 2, 7]), torch.ones(5), x.shape[1])
    with torch.no_grad():
        found = method.fold_in(rows, torch.tensor([-1, -1]), {})
    assert np.allclose(found.numpy(), features(new) @ mapped @ h.T, atol=1e-4)
