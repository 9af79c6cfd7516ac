"""DMF: its two losses against dense references, and a pattern that it must learn."""

from typing import TypeVar

import pytest
import torch
from pytorch_lightning import Trainer, seed_everything
from torch.nn import functional as F

from datamodules import Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from zoo import DMF, Popularity, Recommender
from zoo.data.batch_types import PairBatch, UserBatch

Method = TypeVar("Method", bound=Recommender)


def fitted(method: Method, epochs: int, batch_size: int = 64) -> tuple[Method, Trainer]:
    trainer = quiet(max_epochs=epochs, check_val_every_n_epoch=max(epochs, 1))
    trainer.fit(method, datamodule=Synthetic(num_users=120, num_items=60, seed=0, batch_size=batch_size))
    return method, trainer


@torch.no_grad()
def test_entries_are_left_out_of_rows_and_of_columns_as_each_is_asked_to() -> None:
    """While training alone."""
    users, items = torch.arange(120), torch.arange(60)
    for user, item in ((0.5, 0.0), (0.0, 0.5)):
        method, _ = fitted(DMF(dims=(8, 4), input_dropout=user, item_dropout=item), 0)
        for training in (True, False):
            method.train(training)
            twice = [(method.user_factors(users), method.towers.items(method.target_columns, items)) for _ in range(2)]
            same = [torch.equal(one, other) for one, other in zip(*twice, strict=True)]
            assert same == [not training or user == 0, not training or item == 0]


def test_all_items_are_learned_from_as_on_the_dense_matrix() -> None:
    seed_everything(0)
    method, _ = fitted(DMF(dims=(8, 4), scale=3.0), 0)
    users = torch.tensor([5, 0, 119])
    factors = method.towers.users(method.target_rows, users)
    logits = 3 * F.cosine_similarity(factors[:, None], method.item_factors()[None], dim=-1)
    dense = F.binary_cross_entropy_with_logits(logits, method.target_rows.dense(users), reduction="sum")
    assert torch.allclose(method.step(UserBatch(users))["loss"], dense, rtol=1e-4)


def test_pairs_are_learned_from_with_their_labels() -> None:
    seed_everything(0)
    method, _ = fitted(DMF(dims=(8, 4), loss="sampled"), 0)
    assert method.batches == "pairs"
    users, items, labels = torch.tensor([1, 2, 3]), torch.tensor([7, 7, 0]), torch.tensor([1.0, 0.0, 1.0])
    logits = method.score_all(users).gather(1, items[:, None]).squeeze(1)
    expected = F.binary_cross_entropy_with_logits(logits, labels, reduction="sum")
    assert torch.allclose(method.step(PairBatch(users, items, labels))["loss"], expected, rtol=1e-4)


def test_who_is_in_several_pairs_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    method, _ = fitted(DMF(dims=(8, 4), loss="sampled"), 0)
    read: list[list[int]] = []
    for tower in ("users", "items"):
        original = getattr(method.towers, tower)
        monkeypatch.setattr(
            method.towers, tower, lambda rows, ids, o=original: (read.append(ids.tolist()), o(rows, ids))[1]
        )
    users, items, labels = torch.tensor([4, 1, 4, 1]), torch.tensor([7, 3, 3, 3]), torch.tensor([1.0, 1, 0, 0])
    outputs = method.step(PairBatch(users, items, labels))
    assert read == [[1, 4], [3, 7]]
    assert len(outputs["user_factors"]) == len(outputs["item_factors"]) == 4


@pytest.mark.parametrize(
    ("loss", "lr", "epochs", "batch_size"),
    [("all_items", 3e-3, 40, 64), ("sampled", 1e-2, 20, 256)],
    ids=["all_items", "sampled"],
)
@pytest.mark.slow
def test_planted_tastes_are_learned(loss: str, lr: float, epochs: int, batch_size: int) -> None:
    """Tastes are strong in these data: whoever learns them is well above the item counts."""
    seed_everything(0)
    _, trainer = fitted(DMF(dims=(32, 16), loss=loss, lr=lr), epochs, batch_size)  # type: ignore[arg-type]
    _, counts = fitted(Popularity(), 1)
    learned, popular = (float(t.callback_metrics["val/full/ndcg@10"]) for t in (trainer, counts))
    assert learned > 1.2 * popular
