"""Two towers: scores are scaled cosines of the factors, and item factors are worked out once an evaluation."""

import pytest
import torch
from torch.nn import functional as F

from tests.zoo.methods.single_domain import fitted
from zoo import DMF
from zoo.data.rows import SparseRows


def test_scores_are_scaled_cosines_of_the_factors() -> None:
    method, _ = fitted(DMF(dims=(8, 4), scale=3.0), 0)
    users, items = torch.tensor([4, 0]), torch.tensor([[3, 59], [0, 3]])
    own = method.towers.user_tower(method.target_rows.bags(users))
    others = method.towers.item_tower(method.target_columns.bags(torch.arange(60)))
    expected = 3 * F.cosine_similarity(own[:, None], others[None], dim=-1)
    assert torch.allclose(method.score_all(users), expected, atol=1e-5)
    assert torch.allclose(method.score(users, items), expected.gather(1, items), atol=1e-5)


def test_item_factors_are_worked_out_once_an_evaluation_and_then_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    method, trainer = fitted(DMF(dims=(8, 4)), 0)
    data = trainer.datamodule  # type: ignore[attr-defined]
    made: list[int] = []
    monkeypatch.setattr(data, "evaluation_batch_size", 32)
    factors = method.towers.items

    def counted(columns: SparseRows, items: torch.Tensor) -> torch.Tensor:
        made.append(len(items))
        return factors(columns, items)

    monkeypatch.setattr(method.towers, "items", counted)
    for rank in (trainer.validate, trainer.test):
        rank(method, datamodule=data, verbose=False)
    assert len(data.test_dataloader()) == 4
    assert made == [60, 60]
    trainer.predict(method, datamodule=data)
    assert len(made) == 3
    assert not method.cache
