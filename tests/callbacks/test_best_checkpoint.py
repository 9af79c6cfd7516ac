"""BestCheckpoint: which epoch is kept as the best, that the last one stays beside it, and what a resumed run takes over."""

from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest
import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.loggers import CSVLogger
from torch import Tensor

from callbacks import BestCheckpoint
from datamodules import Evaluation, Synthetic
from tests.tiny import SIZES
from tests.zoo.methods.quiet_trainer import quiet
from zoo import BPR, DMF
from zoo.testing.tiny import trainer

pytestmark = pytest.mark.thorough


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
    given = {"logger": CSVLogger(folder, name="run"), "enable_checkpointing": True, "log_every_n_steps": 1}
    trainer = quiet(max_epochs=epochs, callbacks=[kept], **given, **settings)
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


def test_without_validation_the_last_epoch_is_the_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert epoch_of(fitted(tmp_path, BestCheckpoint(), limit_val_batches=0) / "best.ckpt") == 2
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


def test_from_another_folder_with_a_run_of_that_name_it_goes_on_with_its_own_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ours, theirs) = (tmp_path / name for name in ("ours", "theirs"))
    for place, good in ((ours, 1), (theirs, 0)):
        place.mkdir()
        monkeypatch.chdir(place)
        monkeypatch.setattr(Moody, "good", good)
        fitted(Path("runs"), BestCheckpoint(), epochs=2)
    run = Path("runs/run/version_0/checkpoints")
    kept = BestCheckpoint()
    second = fitted(Path("runs"), kept, epochs=2, ckpt=ours / run / "last.ckpt")  # from the folder of the others
    assert (second / "best.ckpt").read_bytes() == (ours / run / "best.ckpt").read_bytes()
    assert (second / "best.ckpt").read_bytes() != (theirs / run / "best.ckpt").read_bytes()
    assert kept.best_model_path == str(second / "best.ckpt")


@pytest.mark.parametrize("name", ["last.ckpt", "best.ckpt"])
def test_a_run_that_was_moved_goes_on(name: str, tmp_path: Path) -> None:
    first = fitted(tmp_path, BestCheckpoint())
    moved = first.parent.rename(tmp_path / "moved")
    second = fitted(tmp_path, BestCheckpoint(), ckpt=moved / "checkpoints" / name)
    assert second == first, "the place of the first is free"
    if name == "last.ckpt":
        assert (second / "best.ckpt").read_bytes() == (moved / "checkpoints" / "best.ckpt").read_bytes()
    assert epoch_of(second / "best.ckpt") == 1


def test_a_stranger_beside_it_is_refused(tmp_path: Path) -> None:
    first = fitted(tmp_path, BestCheckpoint())
    last = first.rename(tmp_path / "moved") / "last.ckpt"
    checkpoint = torch.load(last.with_name("best.ckpt"), weights_only=True)
    checkpoint["epoch"] = 7
    torch.save(checkpoint, last.with_name("best.ckpt"))
    with pytest.raises(
        ValueError, match=r"last.ckpt belongs to a best.ckpt .*moved/best.ckpt is another one\. Restore"
    ):
        fitted(tmp_path, BestCheckpoint(), ckpt=last)
    last.with_name("best.ckpt").unlink()
    with pytest.raises(ValueError, match=r"but .*moved has none\. Restore it"):
        fitted(tmp_path, BestCheckpoint(), ckpt=last)


def test_a_checkpoint_that_does_not_say_which_best_is_its_own_is_refused(tmp_path: Path) -> None:
    last = fitted(tmp_path, BestCheckpoint(), epochs=1) / "last.ckpt"
    checkpoint = torch.load(last, weights_only=True)
    for state in checkpoint["callbacks"].values():
        state.pop("best_digest", None)
    torch.save(checkpoint, last)
    with pytest.raises(ValueError, match=r"last.ckpt has no digest .* Train anew"):
        fitted(tmp_path, BestCheckpoint(), ckpt=last)


@pytest.mark.parametrize("links", [True, False])
def test_killed_between_its_two_files_a_run_goes_on_with_the_best_of_the_last_one(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        monkeypatch.setattr("os.link", Mock(side_effect=OSError))
    written = BestCheckpoint._save_checkpoint

    def killed_after(self: BestCheckpoint, trainer: Trainer, filepath: str) -> None:
        written(self, trainer, filepath)
        if trainer.current_epoch == 1:
            raise KeyError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(BestCheckpoint, "_save_checkpoint", killed_after)
        with pytest.raises(KeyError, match="killed"):
            fitted(tmp_path / "killed", BestCheckpoint())
    (killed,) = (tmp_path / "killed").rglob("checkpoints")
    assert [epoch_of(killed / name) for name in ("last.ckpt", "best.ckpt", ".best.before.ckpt")] == [0, 1, 0]
    second = fitted(tmp_path / "again", BestCheckpoint(), epochs=1, ckpt=killed / "last.ckpt")
    assert epoch_of(second / "best.ckpt") == 0
    third = fitted(tmp_path / "further", BestCheckpoint(), ckpt=killed / "last.ckpt")
    assert epoch_of(third / "best.ckpt") == 1
    assert sorted(path.name for path in third.iterdir()) == ["best.ckpt", "last.ckpt"]


def test_a_checkpoint_that_is_only_scored_carries_nothing_over(tmp_path: Path) -> None:
    kept = BestCheckpoint()
    kept.dirpath, kept._stage = str(tmp_path), "test"
    kept.load_state_dict({"best_model_path": str(tmp_path / "elsewhere.ckpt"), "best_model_score": torch.tensor(1.0)})
    assert kept.best_model_path == ""
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_names_no_files_that_resuming_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning removes the best of before, folders too, whatever protocol names it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "precious").mkdir()
    data = partial(Synthetic, num_users=40, num_items=30, sources=[])
    run = trainer(tmp_path / "received", epochs=1)
    run.fit(BPR(num_factors=4), datamodule=data())
    checkpoint = torch.load(tmp_path / "received" / "last.ckpt", weights_only=True)
    (name,) = checkpoint["callbacks"]
    own = checkpoint["callbacks"][name]
    for key, path in (
        ("best_model_path", "local://~/precious"),
        ("last_model_path", "~/precious"),
        ("best_k_models", {"file::precious": 1.0}),
        ("best_model_path", 3),
    ):
        checkpoint["callbacks"] = {name: own | {key: path}}
        torch.save(checkpoint, tmp_path / "received" / "last.ckpt")
        with pytest.warns(UserWarning, match="no local path"):
            trainer(tmp_path / "resumed", epochs=2).fit(
                BPR(num_factors=4), datamodule=data(), ckpt_path=tmp_path / "received" / "last.ckpt"
            )
        assert (tmp_path / "precious").is_dir()
    up = tmp_path / "resumed" / ".." / "precious"
    checkpoint["callbacks"] = {name: own | {"best_model_path": str(up)}}
    torch.save(checkpoint, tmp_path / "received" / "last.ckpt")
    trainer(tmp_path / "resumed", epochs=2).fit(
        BPR(num_factors=4), datamodule=data(), ckpt_path=tmp_path / "received" / "last.ckpt"
    )
    assert (tmp_path / "precious").is_dir()
    kept = BestCheckpoint()
    kept.dirpath, kept._stage = str(tmp_path), "fit"
    others = {"kth_best_model_path": "a", "best_k_models": {"a": torch.tensor(1.0)}, "last_model_path": "a"}
    kept.load_state_dict({"best_model_path": "", "best_model_score": None, **others})
    assert (kept.best_k_models, kept.kth_best_model_path, kept.last_model_path) == ({}, "", "")
