"""Data, releases and runs of the methods that mix a user's own factor with what sources say of the user."""

from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Trainer, seed_everything
from torch import Tensor

from datamodules import Evaluation, Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from zoo import BPR, EmbeddingPublisher, Nothing, Plaintext, Publisher, Recommender, Release
from zoo.data.batch_types import TripleBatch
from zoo.methods.mixed_factors import SHARES, MixedFactors
from zoo.privacy.accounting.events import NonPrivateEvent

SMALL: dict[str, Any] = {"num_users": 60, "num_items": 30, "ratings_per_user": 8, "seed": 1, "missing_users": "zero"}
TRIPLES = TripleBatch(torch.tensor([3, 3, 7, 40]), torch.tensor([0, 5, 9, 2]), torch.tensor([2, 9, 1, 4]))
TWO: dict[str, Any] = {"sources": ["book", "film"]}


def published(publisher: Publisher, folder: Path, name: str = "book", **settings: Any) -> Path:  # noqa: ANN401
    return publisher.publish(Synthetic(**SMALL | settings).source(name), name).save(folder / name)


def around(releases: dict[str, Path] | None = None, **settings: Any) -> Synthetic:  # noqa: ANN401
    return Synthetic(**SMALL | settings, releases=releases or {})


def fitted(method: Recommender, data: Synthetic, epochs: int = 2) -> Trainer:
    seed_everything(4)
    trainer = quiet(max_epochs=epochs, num_sanity_val_steps=0, check_val_every_n_epoch=max(epochs, 1))
    trainer.fit(method, datamodule=data)
    method.eval()
    return trainer


def best_share(method: MixedFactors, data: Synthetic, trainer: Trainer) -> tuple[float, float]:
    """The share with the highest NDCG@10 of validation, which is neither the first nor the last, and that NDCG@10."""
    figures = []
    for share in SHARES:
        method.source_share = share
        method.share.fill_(share)
        trainer.validate(method, datamodule=data, verbose=False)
        figures.append(float(trainer.callback_metrics["val/ndcg@10"]))
    assert max(figures) > max(figures[0], figures[-1]), "a choice that is none shows nothing"
    return SHARES[figures.index(max(figures))], max(figures)


def embeddings(vectors: Tensor, users: Tensor, name: str = "book", **settings: Any) -> Release:  # noqa: ANN401
    """A release of vectors (users, layers, width) of some users of the source."""
    like = Plaintext().publish(Synthetic(**SMALL | settings).source(name), name)
    ids = like.user_ids[users.numpy()]
    return Release("embeddings", name, {"vectors": vectors}, ids, like.record, (NonPrivateEvent(),))


def two_sources(folder: Path, layers: tuple[int, int] = (2, 1), widths: tuple[int, int] = (3, 5)) -> dict[str, Path]:
    """Vectors of two sources, of other widths and layers: each has some users, both have some, and some are in none."""
    torch.manual_seed(3)
    users = {"book": torch.arange(40), "film": torch.arange(30, 55)}
    return {
        name: embeddings(torch.randn(len(rows), count, width), rows, name, **TWO).save(folder / name)
        for (name, rows), count, width in zip(users.items(), layers, widths, strict=True)
    }


def of_nobody(folder: Path) -> dict[str, Path]:
    """Releases of the same two sources that have no user."""
    return {name: published(Nothing("embeddings"), folder, name, **TWO) for name in TWO["sources"]}


def cold_hit_rate(method: Recommender, publisher: Publisher, folder: Path, epochs: int = 8) -> float:
    """Of 120 users without target history, after a training on 160 others."""
    settings: dict[str, Any] = {
        "num_users": 400, "num_items": 150, "ratings_per_user": 15, "batch_size": 512, "link": 1.0,
        "evaluation": Evaluation(split="cold_start", cold_share=0.6, num_candidates=0),
    }  # fmt: skip
    path = published(publisher, folder / type(publisher).__name__, **settings)
    data = around({"book": path}, **settings)
    trainer = fitted(method, data, epochs)
    trainer.test(method, datamodule=data, verbose=False)
    return float(trainer.callback_metrics["test/full/hit_rate@10"])


def embedded() -> Publisher:
    network = BPR(num_factors=8, lr=0.05, l2=0.01)
    return EmbeddingPublisher(network, max_epochs=8, batch_size=512, seed=1, progress=False)
