"""Popularity: counts of the training ratings, the same for everybody."""

import numpy as np
import torch

from datamodules import Evaluation, Synthetic
from tests.zoo.methods.single_domain import fitted, popular
from zoo import Popularity


def test_scores_are_how_many_rated_each_item_in_training() -> None:
    method, trainer = fitted(Popularity(), 1)
    train = trainer.datamodule.train  # type: ignore[attr-defined]
    counts = torch.from_numpy((train.matrix.toarray() != 0).sum(axis=0).astype(np.float32))
    users = torch.tensor([4, 0, 119])
    assert torch.equal(method.score_all(users), counts.expand(3, -1))
    items = torch.tensor([[0, 59], [3, 3], [1, 2]])
    assert torch.equal(method.score(users, items), counts[items])
    assert len(counts.unique()) > 3


def test_nobody_is_too_new_for_it() -> None:
    """The counts of who is asked for are no part of the scores, so a user without history has them too."""
    method, trainer = fitted(Popularity(), 1)
    data = Synthetic(num_users=120, num_items=60, seed=0, evaluation=Evaluation(split="cold_start"))
    trainer.test(method, datamodule=data, verbose=False)
    cold = data.test.users
    assert (method.target_rows.counts_of(cold) == 0).all()
    assert method.can_score(cold).all()
    assert torch.equal(method.ranking_scores(cold), method.score_all(cold))


def test_it_counts_once() -> None:
    method, trainer = fitted(Popularity(), 5)
    assert trainer.current_epoch == 1, "another epoch would count the same again"
    assert not list(method.parameters())
    assert popular() > 10 / 60 / 2, "above a random order, whose NDCG@10 is below half of its hit rate"
