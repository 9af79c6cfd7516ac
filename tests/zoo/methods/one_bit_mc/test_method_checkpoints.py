"""OneBitMC interrupted and finished: what a checkpoint holds, and what a resumed run may not change."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.callbacks import Callback
from torch import Tensor

import zoo
from callbacks.best_checkpoint import BestCheckpoint
from datamodules import Evaluation, LowRank, Synthetic
from tests.zoo.methods.one_bit_mc.runs import PRIVATE, Log, fitted, low_rank, method, trainer
from zoo import GradientPerturbation, InputPerturbation, ObjectivePerturbation, OneBitMC, OutputPerturbation
from zoo.methods.target_data import ReleaseMismatchError
from zoo.privacy.accounting.relation import Unit
from zoo.privacy.record.fields import Guarantee


def arrays(value: object) -> Iterator[np.ndarray]:
    """All tensors and arrays in a checkpoint."""
    if isinstance(value, Tensor):
        yield value.detach().double().numpy()
    elif isinstance(value, np.ndarray):
        yield value.astype(float)
    elif isinstance(value, dict):
        for part in value.values():
            yield from arrays(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from arrays(part)


@pytest.mark.thorough
@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("at", [1, 4])
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(name: str, at: int, tmp_path: Path) -> None:
    whole, _ = fitted(method(PRIVATE[name](7)))
    path = tmp_path / "halt.ckpt"
    halted, _ = fitted(method(PRIVATE[name](7)), None, Log(path, at))
    assert not halted.complete
    record = halted.privacy_record()
    assert record is not None
    assert record.guarantee is Guarantee.NONE
    assert "the matrix is not complete" in str(record.reason)
    resumed, _ = fitted(method(PRIVATE[name](7)), ckpt_path=path)
    assert whole.matrix.any()
    assert torch.equal(whole.matrix, resumed.matrix)


@pytest.mark.parametrize(
    "often", [{"val_check_interval": 3, "max_epochs": 1}, {"limit_train_batches": 3, "max_epochs": 4}]
)
def test_the_best_checkpoint_of_a_finished_run_is_complete(often: dict[str, int], tmp_path: Path) -> None:
    """A matrix of zeros may rank better than one with noise, and the solver behind it has none."""
    for seed in range(4):
        own = OneBitMC(tau=60.0, perturbation=OutputPerturbation(epsilon=0.05, steps=9, noise_seed=seed))
        data = LowRank(num_users=60, num_items=40, observed=0.4, data_seed=3, evaluation=Evaluation("random2"))
        run = zoo.fit(own, data, runs=tmp_path, accelerator="cpu", enable_progress_bar=False, **often)
        kept = torch.load(run.folder / "checkpoints" / "best.ckpt", weights_only=True)["zoo"]["completion"]
        assert kept["complete"]
        assert "solver" not in kept


def test_a_resumed_run_knows_that_its_best_checkpoint_is_not_complete(tmp_path: Path) -> None:
    incomplete, resumed = BestCheckpoint(), BestCheckpoint()
    incomplete._saved_complete = False
    incomplete.dirpath = resumed.dirpath = str(tmp_path)
    resumed._stage = "fit"
    resumed.load_state_dict(incomplete.state_dict())
    assert not resumed._saved_complete


@pytest.mark.parametrize("name", PRIVATE)
def test_a_resumed_run_draws_nothing_twice_and_keeps_its_record(name: str, tmp_path: Path) -> None:
    path = tmp_path / "halt.ckpt"
    fitted(method(PRIVATE[name](None)), None, Log(path, 2))
    kept = torch.load(path, weights_only=True)["zoo"]["completion"]
    resumed = method(PRIVATE[name](None))
    seen: dict[str, np.ndarray] = {}

    class Look(Callback):
        def on_train_batch_start(self, *_: object) -> None:
            seen.update(resumed.drawn)

    fitted(resumed, None, Look(), ckpt_path=path)
    assert seen.keys() == kept["drawn"].keys()
    assert all(np.array_equal(seen[part], kept["drawn"][part].numpy()) for part in seen)
    record = resumed.privacy_record()
    assert record is not None
    # Where which pairs are rated is protected too, it counts whether validation is drawn among them.
    guarantee = Guarantee.CONDITIONAL if name == "InP, pairs" else Guarantee.PROVED
    assert (record.guarantee, record.epsilon) == (guarantee, 2.0)
    assert record.unit is (Unit.RATING if name == "InP, pairs" else Unit.RATING_VALUE)


def test_another_perturbation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "halt.ckpt"
    fitted(method(GradientPerturbation(2.0, steps=6)), None, Log(path, 2))
    others = (GradientPerturbation(1.0, steps=6), GradientPerturbation(2.0, steps=6, noise_seed=1), None)
    for other in (*others, InputPerturbation(2.0)):
        with pytest.raises(ValueError, match=r"The settings are .*; the checkpoint has .*'steps': 6"):
            fitted(method(other), ckpt_path=path)
    fitted(method(GradientPerturbation(2.0, steps=6)), ckpt_path=path)


def test_another_perturbation_is_refused_without_a_trainer_too(tmp_path: Path) -> None:
    """A checkpoint read before there is a trainer may not lend its noise to a record of another epsilon."""
    path = tmp_path / "halt.ckpt"
    fitted(method(ObjectivePerturbation(8.0)), None, Log(path, 2))
    loaded = OneBitMC.load_from_checkpoint(path, weights_only=True, perturbation=ObjectivePerturbation(0.5))
    with pytest.raises(ValueError, match=r"'epsilon': 0.5.*'epsilon': 8.0.*train again"):
        fitted(loaded)
    same = OneBitMC.load_from_checkpoint(path, weights_only=True, perturbation=ObjectivePerturbation(8.0))
    with pytest.raises(ReleaseMismatchError, match=r"begun on other ratings"):
        fitted(same, low_rank(seed=2))
    fitted(OneBitMC.load_from_checkpoint(path, weights_only=True, perturbation=ObjectivePerturbation(8.0)))


def test_one_sign_changes_nothing_of_a_checkpoint_but_what_was_noised(tmp_path: Path) -> None:
    """A digest of the signs would tell the last one to whoever knows the others."""
    data = low_rank()
    data.read_target()
    digests = data.digests
    data.train.matrix.data[3] *= -1
    assert data.digests == digests
    run = trainer()
    run.fit(method(InputPerturbation(2.0)), datamodule=data)
    run.save_checkpoint(tmp_path / "end.ckpt")
    kept = torch.load(tmp_path / "end.ckpt", weights_only=True)["zoo"]
    assert kept["digests"] == digests
    implicit = Synthetic(num_users=24, num_items=30, ratings_per_user=6, sources=(), seed=1)
    implicit.read_target()
    before = implicit.digests
    implicit.train.matrix.data[3] = 2.0
    assert implicit.digests != before


@pytest.mark.parametrize("name", PRIVATE)
def test_a_finished_checkpoint_holds_the_matrix_and_nothing_before_noise(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before: list[np.ndarray] = []
    perturbation = PRIVATE[name](None)
    finish = perturbation.finish

    def look(matrix: np.ndarray, *rest: Any) -> np.ndarray:  # noqa: ANN401
        before.append(matrix.copy())
        return finish(matrix, *rest)

    monkeypatch.setattr(perturbation, "finish", look)
    data = low_rank()
    model, run = fitted(method(perturbation), data)
    run.save_checkpoint(tmp_path / "end.ckpt")
    checkpoint = torch.load(tmp_path / "end.ckpt", weights_only=True)
    assert checkpoint["zoo"]["completion"].keys() == {"complete", "settings", "record"}
    assert "perturbation" not in checkpoint["hyper_parameters"]
    assert (model.solver, model.drawn) == (None, {})
    secrets = [data.train.matrix.data.astype(float), *(before if name == "OutP" else [])]
    held = [value for value in arrays(checkpoint) if value.size > 30 and value.dtype == float]
    assert any(np.array_equal(value, model.matrix.double().numpy()) for value in held)
    for secret in secrets:
        for value in held:
            assert value.size != secret.size or not np.allclose(value.ravel(), secret.ravel(), atol=1e-3)
    if name == "OutP":
        assert np.abs(model.matrix.numpy() - before[0]).max() > 0.1
    loaded = OneBitMC.load_from_checkpoint(tmp_path / "end.ckpt", weights_only=True)
    assert torch.equal(loaded.matrix, model.matrix)
    assert loaded.privacy_record() == model.privacy_record()
    record = loaded.privacy_record()
    assert record is not None
    assert record.epsilon == 2.0
    again, other = method(PRIVATE[name](None)), trainer()
    other.test(again, datamodule=low_rank(), ckpt_path=tmp_path / "end.ckpt", verbose=False)
    assert again.privacy_record() == record
    with pytest.raises(ValueError, match=r"The settings are .*9\.0.*; the checkpoint has .*2\.0"):
        other.test(method(InputPerturbation(9.0)), datamodule=low_rank(), ckpt_path=tmp_path / "end.ckpt")
