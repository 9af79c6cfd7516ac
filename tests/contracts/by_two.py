"""What two processes do with every method, one after another: `test_two_processes` starts both and looks at what they leave.

LOCAL_RANK=0 ... python -m tests.contracts.by_two FOLDER METHOD...       # and with LOCAL_RANK=1 beside it
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import CSVLogger

import zoo
from callbacks import CaseWriter, RecommendationWriter
from datamodules import CrossDomainDataModule, Evaluation, LowRank, Synthetic
from tests.contracts.test_methods import tiny_method
from zoo import Recommender

#: Odd, so that the processes have 21 and 20 cases: two batches to validate and one.
DATA = {"num_users": 41, "num_items": 30, "ratings_per_user": 8, "overlap": 0.1, "missing_users": "zero", "seed": 1}
EVALUATION = {"evaluation_batch_size": 20}
EPOCHS, INSIDE = (
    3,
    3,
)  # of two batches each in each process; a checkpoint is saved after so many batches, inside the second


def kind_of(name: str) -> str:
    """What release a method is given: the first that it reads of these; ratings to one that reads none."""
    reads = getattr(zoo, name).accepted_releases
    return next((kind for kind in ("generator", "ratings", "embeddings", "map") if kind in reads), "ratings")


def made(name: str, folder: Path) -> tuple[Recommender, CrossDomainDataModule]:
    """A method and its data, with a release that lies in the folder."""
    seed_everything(5, verbose=False)
    method = tiny_method(name)
    if method.reads_signs:
        signs = {"num_users": 41, "num_items": 30, "observed": 0.3, "seed": 1}
        return method, LowRank(**signs, **EVALUATION, evaluation=Evaluation(split="random2"))
    size = 16 if method.batches == "users" else 90
    return method, Synthetic(**DATA, **EVALUATION, batch_size=size, releases={"book": folder / kind_of(name)})


def trainer_of(folder: Path, *callbacks: Callback, devices: int = 2, **settings: Any) -> Trainer:  # noqa: ANN401
    """A trainer of one process or of two that leaves its files in a folder."""
    return Trainer(
        accelerator="cpu",
        devices=devices,
        logger=CSVLogger(folder.parent, name="", version=folder.name),
        callbacks=[*callbacks],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )


class Seen(Callback):
    """Keeps the batches of a process; saves a checkpoint inside an epoch."""

    def __init__(self, checkpoint: Path | None = None) -> None:
        self.batches: list[tuple[int, tuple[torch.Tensor, ...]]] = []
        self.checkpoint = checkpoint

    def on_train_batch_start(self, trainer: Trainer, _: LightningModule, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        self.batches.append((trainer.current_epoch, tuple(batch)))

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        if self.checkpoint is not None and len(self.batches) == INSIDE:
            trainer.save_checkpoint(self.checkpoint)


def trained(name: str, folder: Path, label: str, seen: Seen, resumed: Path | None = None) -> Recommender:
    """A method after its epochs, which the two processes have trained together."""
    method, data = made(name, folder)
    trainer = trainer_of(folder / name / label, seen, max_epochs=EPOCHS, strategy="ddp")
    trainer.fit(method, datamodule=data, ckpt_path=resumed, weights_only=True)
    if label == "whole":
        trainer.save_checkpoint(folder / name / "whole.ckpt")
    return method


def scored(name: str, folder: Path, devices: int) -> None:
    """Test and predict with the weights that were trained, by two processes or by one."""
    method, data = made(name, folder)
    own = folder / name / f"by_{devices}"
    settings = {"devices": devices, "strategy": "ddp" if devices > 1 else "auto"}
    tester = trainer_of(own, CaseWriter(), RecommendationWriter(own / "best.parquet"), **settings)
    weights = folder / name / "whole.ckpt"
    tester.test(method, datamodule=data, ckpt_path=weights, weights_only=True, verbose=False)
    figures = {key: float(value) for key, value in tester.callback_metrics.items()}
    tester.predict(method, datamodule=data, ckpt_path=weights, weights_only=True, return_predictions=False)
    if tester.is_global_zero:
        torch.save(figures, own / "figures.pt")


def main(folder: Path, names: list[str]) -> None:
    """Train each method, again, and from its middle on; score it. Those that refuse are asked why."""
    for name in names:
        method, data = made(name, folder)
        own = folder / name
        own.mkdir(exist_ok=True)
        found: dict[str, Any] = {}
        if method.single_process_reason:
            try:
                trainer_of(own / "refused", max_epochs=1, strategy="ddp").fit(method, datamodule=data)
            except ValueError as error:
                found["refused"] = str(error)
        else:
            first, again, rest = Seen(own / "inside.ckpt"), Seen(), Seen()
            method = trained(name, folder, "whole", first)
            found["weights"], found["random"] = method.state_dict(), torch.get_rng_state()
            found["batches"] = first.batches
            found["again"] = trained(name, folder, "again", again).state_dict()
            found["resumed"] = trained(name, folder, "resumed", rest, own / "inside.ckpt").state_dict()
            found["resumed_batches"] = len(rest.batches)
        scored(name, folder, devices=2)
        torch.save(found, own / f"of_{torch.distributed.get_rank()}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
