"""Tiny data: a source, a target, ratings, releases of each kind, and a silent trainer."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback, ModelCheckpoint
from scipy.sparse import csr_array

import zoo
from datamodules import CrossDomainDataModule, Evaluation, LowRank, Synthetic
from zoo.data.ratings import Ratings, Step
from zoo.methods.base import Recommender
from zoo.publishers.base import Publisher

_SIZE: dict[str, Any] = {"num_users": 40, "num_items": 30, "seed": 1}
#: Settings of `datamodules.Synthetic`: a source "book" and a target, three batches an epoch of users.
SYNTHETIC = _SIZE | {"ratings_per_user": 8, "batch_size": 16}
#: Batch size with three batches an epoch of pairs.
PAIRS = 90
#: Settings of `datamodules.LowRank`, for methods of signs, with a validation set.
SIGNS = _SIZE | {"observed": 0.3, "evaluation": Evaluation(split="random2")}


def ratings(users: int = 9, items: int = 7, density: float = 0.5, seed: int = 0) -> Ratings:
    """Return random ratings of 1, ``(users, items)``, with a step in their record.

    Examples:
        >>> ratings().matrix.shape
        (9, 7)
    """
    rng = np.random.default_rng(seed)
    matrix = csr_array((rng.random((users, items)) < density).astype(np.float64))
    user_ids, item_ids = (
        np.array([f"{kind}{i}" for i in range(count)]) for kind, count in (("u", users), ("i", items))
    )
    return Ratings(matrix, user_ids, item_ids, (Step("split random2"),))


def publisher_for(reads: frozenset[str], **settings: Any) -> Publisher:  # noqa: ANN401
    """Return a publisher of releases that a method reads; ``settings`` are those of the target of a map."""
    if "generator" in reads:
        network = zoo.SPPG(mechanism="none", steps=2, sample_size=8, condition_dim=4, generator_dims=(8,), noise_dim=2)
        return zoo.GeneratorPublisher(network)
    if "ratings" in reads or not reads:
        return zoo.Plaintext()
    if reads == {"map"}:
        target = Synthetic(**SYNTHETIC | settings)
        target.read_target()
        return zoo.BridgePublisher(
            epsilon=8.0, kept_items=20, projections=zoo.ProjectionPublisher(num_directions=3)
        ).for_target(target.train)
    if "rows" in reads:
        return zoo.NoisyRows(epsilon=8.0)
    return zoo.EmbeddingPublisher(zoo.BPR(num_factors=3), max_epochs=1, progress=False)


def data_for(method: Recommender, release: Path, **settings: Any) -> CrossDomainDataModule:  # noqa: ANN401
    """Return data for a method, with a release of "book"."""
    if method.reads_signs:
        return LowRank(**SIGNS | settings)
    size = {} if method.batches == "users" else {"batch_size": PAIRS}
    return Synthetic(**SYNTHETIC | size | settings, releases={"book": release})


def attached(data: CrossDomainDataModule, method: Any = None) -> CrossDomainDataModule:  # noqa: ANN401
    """Attach a datamodule to a stand-in trainer of a method; by default one that reads rows, user by user."""
    if method is None:
        method = SimpleNamespace(accepted_releases=frozenset({"rows", "ratings"}), batches="users", num_negatives=1)
    data.trainer = SimpleNamespace(  # type: ignore[assignment]  # the parts that a datamodule uses
        lightning_module=method,
        global_rank=0,
        world_size=1,
        current_epoch=0,
        overfit_batches=0,
        distributed_sampler_kwargs=None,  # one process
        strategy=SimpleNamespace(root_device=torch.device("cpu")),
    )
    return data


def trainer(folder: Path, *callbacks: Callback, epochs: int = 3, **settings: Any) -> Trainer:  # noqa: ANN401
    """Return a trainer on the CPU that logs nothing and saves ``last.ckpt`` in a folder."""
    last = ModelCheckpoint(folder, filename="last", save_top_k=1, enable_version_counter=False)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    settings = {"accelerator": "cpu", "default_root_dir": folder, "callbacks": [last, *callbacks], **quiet, **settings}
    return Trainer(max_epochs=epochs, **settings)


def rated(ratings: Ratings, users: npt.ArrayLike, items: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Return which pairs have a rating; an item of -1 is padding."""
    mask = np.zeros((ratings.num_users, ratings.num_items), dtype=bool)
    mask[ratings.pairs()] = True
    found: npt.NDArray[np.bool_] = mask[np.asarray(users), np.asarray(items)] & (np.asarray(items) >= 0)
    return found
