"""BestCheckpoint: which epoch is kept as the best, that the last one stays beside it, and what a resumed run takes over."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor

from callbacks import BestCheckpoint
from datamodules import Evaluation, Synthetic
from tests.tiny import SIZES
from zoo import DMF


class Moody(DMF):
    """Ranks rare items first, but for one epoch in which it ranks the popular ones first."""

    good = 1

    def score_all(self, users: Tensor) -> Tensor:
        sign = 1 if self.trainer.current_epoch == self.good else -1
        return sign * self.item_counts.expand(len(users), -1)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        return self.score_all(users).gather(1, items)


def fitted(folder: Path, kept: BestCheckpoint, epochs: int = 3, ckpt: Path | None = None, **settings: Any) -> Path:  # noqa: ANN401
    """Checkpoints of a run."""
    seed_everything(0)
    given: dict[str, Any] = {
        "accelerator": "cpu",
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
    }
    trainer = Trainer(max_epochs=epochs, logger=CSVLogger(folder, name="run"), callbacks=[kept], **given, **settings)
    trainer.fit(Moody(**SIZES["DMF"]), datamodule=Synthetic(**SIZES["Synthetic"]), ckpt_path=ckpt, weights_only=True)
    return Path(str(trainer.log_dir)) / "checkpoints"


def epoch_of(checkpoint: Path) -> int:
    epoch: int = torch.load(checkpoint, weights_only=True)["epoch"]
    return epoch


def test_the_epoch_of_the_highest_validation_figure_is_kept_and_the_last_one_beside_it(tmp_path: Path) -> None:
    kept = BestCheckpoint()
    folder = fitted(tmp_path, kept)
    logged = pl.read_csv(folder.parent / "metrics.csv").drop_nulls("val/ndcg@10")
    assert int(logged["val/ndcg@10"].arg_max() or 0) == 1, "the figures are as they are meant to be"
    assert epoch_of(folder / "best.ckpt") == 1
    assert epoch_of(folder / "last.ckpt") == 2
    assert sorted(path.name for path in folder.iterdir()) == ["best.ckpt", "last.ckpt"]
    assert kept.best_model_path == str(folder / "best.ckpt")


def test_the_last_epoch_can_be_left_out(tmp_path: Path) -> None:
    folder = fitted(tmp_path, BestCheckpoint(keep_last=False))
    assert [path.name for path in folder.iterdir()] == ["best.ckpt"]


def test_without_a_look_at_validation_the_last_epoch_is_the_best(tmp_path: Path) -> None:
    assert epoch_of(fitted(tmp_path, BestCheckpoint(), limit_val_batches=0) / "best.ckpt") == 2


def test_without_a_validation_set_the_last_epoch_is_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIZES, "Synthetic", SIZES["Synthetic"] | {"evaluation": Evaluation(split="random1")})
    folder = fitted(tmp_path, BestCheckpoint())
    assert epoch_of(folder / "best.ckpt") == epoch_of(folder / "last.ckpt") == 2


def test_a_dry_run_keeps_nothing(tmp_path: Path) -> None:
    fitted(tmp_path, BestCheckpoint(), fast_dev_run=True)
    assert not list(tmp_path.rglob("*.ckpt"))


def test_a_resumed_run_keeps_a_copy_of_the_earlier_best_and_leaves_the_old_one(tmp_path: Path) -> None:
    first = fitted(tmp_path, BestCheckpoint())
    before = (first / "best.ckpt").read_bytes()
    kept = BestCheckpoint()
    second = fitted(tmp_path, kept, epochs=5, ckpt=first / "last.ckpt")
    assert second != first
    assert (second / "best.ckpt").read_bytes() == before == (first / "best.ckpt").read_bytes()
    assert epoch_of(second / "last.ckpt") == 4
    assert kept.best_model_path == str(second / "best.ckpt")


def test_a_resumed_run_replaces_its_copy_where_it_finds_better(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Moody, "good", 99)
    first = fitted(tmp_path, BestCheckpoint(), epochs=2)
    before = (first / "best.ckpt").read_bytes()
    monkeypatch.setattr(Moody, "good", 3)
    second = fitted(tmp_path, BestCheckpoint(), epochs=5, ckpt=first / "last.ckpt")
    assert epoch_of(second / "best.ckpt") == 3
    assert (first / "best.ckpt").read_bytes() == before


def test_a_checkpoint_that_is_only_scored_carries_nothing_over(tmp_path: Path) -> None:
    kept = BestCheckpoint()
    kept.dirpath, kept._stage = str(tmp_path), "test"
    kept.load_state_dict({"best_model_path": str(tmp_path / "elsewhere.ckpt"), "best_model_score": torch.tensor(1.0)})
    assert kept.best_model_path == ""
    assert not list(tmp_path.iterdir())
