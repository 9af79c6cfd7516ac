"""RobustnessConductor: what it adds to which method, that it decorrelates, and that a resumed run keeps it."""

import csv
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import Callback, ModelCheckpoint

from callbacks import RobustnessConductor
from datamodules import Synthetic
from tests.quickstart import PROJECTED
from tests.zoo.methods.quiet_trainer import quiet
from zoo import DMF, EASE, Plaintext, PriCDR, PriCDRSym, Recommender
from zoo.runs.cli import ZooCLI

NAME = "train/penalty/robustness_conductor"
SIZES: dict[str, Any] = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "batch_size": 16, "seed": 1}

Command = Callable[..., ZooCLI]


def trainer(*callbacks: Callback, epochs: int = 1, **settings: Any) -> Trainer:  # noqa: ANN401
    return quiet(max_epochs=epochs, callbacks=[*callbacks], **settings)


def mean_squared_correlation(factors: torch.Tensor) -> float:
    """Of two different columns."""
    correlation = np.corrcoef(factors.detach().double().numpy(), rowvar=False)
    return float((correlation[~np.eye(len(correlation), dtype=bool)] ** 2).mean())


def logged(folder: Path) -> list[float]:
    """The penalty in a run's log."""
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        return [float(row[NAME]) for row in csv.DictReader(file) if row[NAME]]


@pytest.fixture
def release(tmp_path: Path) -> Path:
    return Plaintext().publish(Synthetic(**SIZES).source("book"), "book").save(tmp_path / "release")


@pytest.mark.parametrize(
    ("make", "expected_rows"),
    [
        (lambda: DMF(dims=(8, 4)), 16),
        (lambda: DMF(dims=(8, 4), loss="sampled"), 80),  # 16 observed pairs, 4 sampled for each
        (lambda: DMF(dims=(8, 24)), 16),
        (lambda: PriCDR(dims=(8, 4)), 16),
        (lambda: PriCDRSym(dims=(8, 4)), 16),
    ],
    ids=["DMF", "DMF, pairs", "DMF, more dimensions than rows", "PriCDR", "PriCDRSym"],
)
def test_the_penalty_of_a_batch_is_added_to_its_loss(
    make: Callable[[], Recommender], expected_rows: int, release: Path
) -> None:
    batches = []

    class Seen(RobustnessConductor):
        def penalty(self, outputs: dict[str, torch.Tensor]) -> torch.Tensor:
            batches.append({name: tensor.detach().clone() for name, tensor in outputs.items()})
            return super().penalty(outputs)

    seed_everything(0)
    run = trainer(Seen(weight=3.0), limit_train_batches=1)
    run.fit(make(), datamodule=Synthetic(**SIZES, releases={"book": release}))
    (outputs,) = batches
    rows = len(outputs["user_factors"])
    assert rows == expected_rows
    expected = 3 * rows * sum(mean_squared_correlation(outputs[name]) for name in ("user_factors", "item_factors"))
    assert expected > 1
    figures = run.callback_metrics
    assert float(figures[NAME]) == pytest.approx(expected, rel=1e-3)
    assert float(figures["train/loss"]) == pytest.approx(float(outputs["loss"]) + expected, rel=1e-3)


@pytest.mark.parametrize("items", ["all", "paired"])
def test_a_weight_means_the_same_at_any_batch_size(items: str) -> None:
    """The same rows twice: the loss is summed over them, so it doubles, and the penalty must too."""
    torch.manual_seed(0)
    users, all_items = torch.randn(10, 4), torch.randn(25, 4)
    once = {"user_factors": users, "item_factors": all_items if items == "all" else all_items[:10]}
    twice = {name: factors.repeat(2, 1) for name, factors in once.items()}
    if items == "all":
        twice["item_factors"] = all_items
    callback = RobustnessConductor(weight=2.0)
    assert float(callback.penalty(twice)) == pytest.approx(2 * float(callback.penalty(once)), rel=1e-5)


def test_a_weight_is_the_papers_over_sums() -> None:
    """0.5 on the two sums of squares, in a batch of 128 rows with 200 columns."""
    torch.manual_seed(0)
    factors = {"user_factors": torch.randn(128, 200).double(), "item_factors": torch.randn(128, 200).double()}
    sums = [np.linalg.norm(np.corrcoef(f.numpy(), rowvar=False) - np.eye(200)) ** 2 for f in factors.values()]
    ours = RobustnessConductor(weight=0.5 * 200 * 199 / 128).penalty(factors)
    assert float(ours) == pytest.approx(0.5 * sum(sums))


def test_training_with_it_decorrelates() -> None:
    """Seeded; the mean squared correlation of both factors falls to less than a third."""
    found = []
    for callbacks in ([], [RobustnessConductor(weight=100.0)]):
        seed_everything(0)
        method, data = DMF(dims=(32, 16), lr=5e-3), Synthetic(num_users=120, num_items=60, batch_size=30, seed=0)
        trainer(*callbacks, epochs=8, limit_val_batches=0).fit(method, datamodule=data)
        users = method.towers.users(method.target_rows, torch.arange(120))
        items = method.item_factors()
        found.append([mean_squared_correlation(factors) for factors in (users, items)])
    without, with_it = found
    assert with_it[0] < without[0] / 3
    assert with_it[1] < without[1] / 3


def test_who_does_not_expose_factors_is_refused_by_name() -> None:
    method = EASE()
    message = (
        r"EASE has the step outputs \[\]\. .*Remove it, use one of "
        r"\['BiTGCF', 'BPR', 'DARec', 'DDTCDR', 'DMF', 'EMCDR', 'ETL', 'FedCDR', 'FedCT', 'GANMF', 'LightGCN', 'PPGenCDR', "
        r"'PriCDR', 'PriCDRSym'\], or name what `step` returns in step_outputs"
    )
    with pytest.raises(TypeError, match=message):
        trainer(RobustnessConductor()).fit(method, datamodule=Synthetic(**SIZES))
    assert method.sizes is None, "before anything is built"
    method = DMF()
    method.step_outputs = frozenset({"user_factors"})  # type: ignore[misc]
    with pytest.raises(TypeError, match=r"DMF has the step outputs \['user_factors'\]"):
        RobustnessConductor().setup(trainer(), method, "fit")
    method.step_outputs = ("item_factors", "user_factors")  # type: ignore[assignment,misc]
    RobustnessConductor().setup(trainer(), method, "fit")


def test_what_is_no_recommender_is_refused() -> None:
    with pytest.raises(TypeError, match=r"LightningModule has the step outputs \[\]\. .*Remove"):
        RobustnessConductor().setup(trainer(), LightningModule(), "fit")


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_a_bad_weight_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match=rf"weight is {weight}\. It must be positive and finite\."):
        RobustnessConductor(weight)


def trained(folder: Path, *callbacks: Callback, epochs: int, ckpt_path: Path | None = None) -> dict[str, torch.Tensor]:
    """Weights after so many epochs."""
    seed_everything(5)
    method = DMF(dims=(8, 4))
    keep = ModelCheckpoint(folder, filename="last", save_top_k=1, enable_version_counter=False)
    run = trainer(*callbacks, keep, epochs=epochs, enable_checkpointing=True)
    run.fit(method, datamodule=Synthetic(**SIZES), ckpt_path=ckpt_path, weights_only=True if ckpt_path else None)
    return method.state_dict()


def equal(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.thorough
def test_a_resumed_run_keeps_it(tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", RobustnessConductor(weight=5.0), epochs=3)
    assert not equal(whole, trained(tmp_path / "without", epochs=3))
    trained(tmp_path / "half", RobustnessConductor(weight=5.0), epochs=1)
    last = tmp_path / "half" / "last.ckpt"
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*RobustnessConductor.*")
        same = trained(tmp_path / "same", RobustnessConductor(weight=5.0), epochs=3, ckpt_path=last)
    assert equal(whole, same)
    with pytest.warns(UserWarning, match=r"weight is 10\.0\. The checkpoint's weight 5\.0 is used"):
        other = trained(tmp_path / "other", RobustnessConductor(), epochs=3, ckpt_path=last)
    assert equal(whole, other)
    with pytest.warns(UserWarning, match=r"Please add the following callbacks: .*RobustnessConductor"):
        trained(tmp_path / "left out", epochs=3, ckpt_path=last)


@pytest.mark.thorough
def test_it_is_added_by_name_and_is_part_of_the_experiment(cli: Command) -> None:
    added = ("--trainer.callbacks+=RobustnessConductor", "--trainer.callbacks.weight", "3")
    run = cli("fit", *PROJECTED, *added).trainer
    folder = Path(str(run.log_dir))
    values = logged(folder)
    assert len(values) == 2, "one for each epoch"
    assert min(values) > 0
    ckpt = ("--ckpt_path", folder / "checkpoints" / "last.ckpt", "--trainer.max_epochs", "3")
    resumed = cli("fit", "--config", folder / "config.yaml", *ckpt).trainer
    (kept,) = (callback for callback in resumed.callbacks if isinstance(callback, RobustnessConductor))
    assert kept.weight == 3
    assert len(logged(Path(str(resumed.log_dir)))) == 1


def test_a_second_one_is_refused() -> None:
    with pytest.raises(RuntimeError, match=r"more than one stateful callback of type `RobustnessConductor`"):
        trainer(RobustnessConductor(), RobustnessConductor(weight=1.0))
