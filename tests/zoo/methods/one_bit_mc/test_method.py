"""OneBitMC through Lightning: what is shown, what a checkpoint holds, what is refused, and how signs are met."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from datamodules import CrossDomainDataModule, Evaluation, Filters, LowRank, MovieLens100K, Synthetic
from zoo import (
    EASE,
    Clear,
    GradientPerturbation,
    InputPerturbation,
    ObjectivePerturbation,
    OneBitMC,
    OutputPerturbation,
    Perturbation,
)
from zoo.commands.cli import ZooCLI
from zoo.privacy.accounting.relation import Unit
from zoo.privacy.record.fields import Guarantee
from zoo.recommender import ReleaseMismatchError

Make = Callable[[int | None], Perturbation]

#: With a seed, as what is compared must be repeated; without, as people use it.
PRIVATE: dict[str, Make] = {
    "InP": lambda seed: InputPerturbation(2.0, noise_seed=seed),
    "InP, pairs": lambda seed: InputPerturbation(2.0, hide_pairs=True, noise_seed=seed),
    "ObjP": lambda seed: ObjectivePerturbation(2.0, noise_seed=seed),
    "GraP": lambda seed: GradientPerturbation(2.0, steps=6, noise_seed=seed),
    "OutP": lambda seed: OutputPerturbation(2.0, steps=6, noise_seed=seed),
}


def low_rank(**settings: Any) -> LowRank:  # noqa: ANN401
    return LowRank(**{"num_users": 24, "num_items": 20, "observed": 0.4, "seed": 1} | settings)


def method(perturbation: Perturbation | None = None, **settings: Any) -> OneBitMC:  # noqa: ANN401
    return OneBitMC(**{"tau": 15.0, "perturbation": perturbation} | settings)


class Log(Callback):
    """Keeps what is logged after each step, and a checkpoint after some step, at which it stops if asked."""

    def __init__(self, save: Path | None = None, at: int = 3, stop: bool = True) -> None:
        self.save, self.at, self.stop = save, at, stop
        self.logged: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        self.logged.append({name: float(value) for name, value in trainer.callback_metrics.items()})
        if self.save is not None and len(self.logged) == self.at:
            trainer.save_checkpoint(self.save)
            trainer.should_stop = self.stop


def trainer(*callbacks: Callback, **settings: Any) -> Trainer:  # noqa: ANN401
    return Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0, callbacks=[*callbacks], **settings,
    )  # fmt: skip


def fitted(
    model: OneBitMC, data: CrossDomainDataModule | None = None, *callbacks: Callback, ckpt_path: Path | None = None
) -> tuple[OneBitMC, Trainer]:
    run = trainer(*callbacks)
    run.fit(model, datamodule=low_rank() if data is None else data, ckpt_path=ckpt_path)
    return model, run


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


# What is shown.


@pytest.mark.parametrize("name", ["none", *PRIVATE])
def test_an_objective_is_logged_only_of_what_was_noised(name: str) -> None:
    perturbation = Clear() if name == "none" else PRIVATE[name](None)
    log = Log()
    fitted(method(perturbation), None, log)
    shown = [step["train/objective"] for step in log.logged if "train/objective" in step]
    assert bool(shown) == (name not in ("GraP", "OutP"))
    assert len(shown) in (0, len(log.logged))
    assert {key for step in log.logged for key in step} <= {"train/objective"}
    if name in ("none", "ObjP"):
        assert shown[-1] < shown[0]
    assert len(log.logged) == 6 or name not in ("GraP", "OutP")


def test_an_unfinished_run_says_so(caplog: pytest.LogCaptureFixture) -> None:
    model, _ = fitted(method(max_iterations=2, tolerance=1e-9))
    assert model.complete
    assert "stops after 2 iterations without having converged to a tolerance of 1e-09" in caplog.text


def test_a_run_ends_by_itself_and_another_epoch_changes_nothing() -> None:
    model = method(GradientPerturbation(2.0, steps=4))
    log = Log()
    data = low_rank()
    run = Trainer(
        max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0, callbacks=[log],
    )  # fmt: skip
    run.fit(model, datamodule=data)
    assert len(log.logged) == 4
    matrix = model.matrix.clone()
    trainer().fit(model, datamodule=data)
    assert torch.equal(model.matrix, matrix)


# Interrupted.


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
    assert (record.guarantee, record.epsilon) == (Guarantee.PROVED, 2.0)
    assert record.unit is (Unit.RATING if name == "InP, pairs" else Unit.RATING_VALUE)


def test_another_perturbation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "halt.ckpt"
    fitted(method(GradientPerturbation(2.0, steps=6)), None, Log(path, 2))
    others = (GradientPerturbation(1.0, steps=6), GradientPerturbation(2.0, steps=6, noise_seed=1), None)
    for other in (*others, InputPerturbation(2.0)):
        with pytest.raises(ValueError, match=r"The checkpoint is of a run with the settings.*'steps': 6.*train anew"):
            fitted(method(other), ckpt_path=path)
    fitted(method(GradientPerturbation(2.0, steps=6)), ckpt_path=path)


def test_another_perturbation_is_refused_without_a_trainer_too(tmp_path: Path) -> None:
    """A checkpoint read before there is a trainer may not lend its noise to a record of another epsilon."""
    path = tmp_path / "halt.ckpt"
    fitted(method(ObjectivePerturbation(8.0)), None, Log(path, 2))
    loaded = OneBitMC.load_from_checkpoint(path, weights_only=True, perturbation=ObjectivePerturbation(0.5))
    with pytest.raises(ValueError, match=r"'epsilon': 8.0.*'epsilon': 0.5.*train anew"):
        fitted(loaded)
    same = OneBitMC.load_from_checkpoint(path, weights_only=True, perturbation=ObjectivePerturbation(8.0))
    with pytest.raises(ReleaseMismatchError, match=r"begun on other ratings"):
        fitted(same, low_rank(seed=2))
    fitted(OneBitMC.load_from_checkpoint(path, weights_only=True, perturbation=ObjectivePerturbation(8.0)))


# Finished.


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


def test_everybody_is_scored_where_pairs_are_hidden() -> None:
    data = low_rank(evaluation=Evaluation(split="cold_start"))
    hidden, _ = fitted(method(InputPerturbation(2.0, hide_pairs=True)), data)
    assert hidden.can_score(data.test.users).all()
    seen, _ = fitted(method(InputPerturbation(2.0)), low_rank(evaluation=Evaluation(split="cold_start")))
    assert not seen.can_score(data.test.users).any()
    record = hidden.privacy_record()
    assert record is not None
    assert any(line.startswith("who rated what, in anything but the completed matrix") for line in record.not_protected)


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
    # A finished matrix is what it is, whatever noise another run would add.
    again, other = method(InputPerturbation(9.0)), trainer()
    other.test(again, datamodule=low_rank(), ckpt_path=tmp_path / "end.ckpt", verbose=False)
    assert again.privacy_record() == record


def test_before_any_data_there_is_no_record() -> None:
    assert method(InputPerturbation(1.0)).privacy_record() is None


def test_a_matrix_is_cut_to_a_rank() -> None:
    model, _ = fitted(method(rank=2))
    assert np.linalg.matrix_rank(model.matrix.double().numpy(), tol=1e-5) == 2


def test_entries_are_held_to_alpha_only_if_asked() -> None:
    free, _ = fitted(method(alpha=0.3))
    held, _ = fitted(method(alpha=0.3, bounded=True))
    assert float(free.matrix.abs().max()) > 0.3
    assert float(held.matrix.abs().max()) <= 0.3 + 1e-7


# How signs and a known matrix are met.


@pytest.mark.parametrize("name", ["none", "GraP"])
def test_figures_are_those_by_hand(name: str) -> None:
    data = low_rank()
    model, run = fitted(method(Clear() if name == "none" else PRIVATE[name](None)), data)
    run.test(model, datamodule=data, verbose=False)
    matrix = model.matrix.numpy()
    rated = data.read("entries")
    where = {column: {n: i for i, n in enumerate(names)} for column, names in zip("ui", data.grid, strict=True)}
    held = data.read_held_out("entries")
    assert held is not None
    right = [
        np.sign(matrix[where["u"][user], where["i"][item]]) == sign
        for user, item, sign in held[1].select("user_id", "item_id", "rating").iter_rows()
    ]
    assert rated.height == data.train.num_ratings + len(right)
    assert float(run.callback_metrics["test/sign_accuracy"]) == pytest.approx(np.mean(right))
    truth = data.truth.numpy()
    error = ((matrix - truth) ** 2).sum() / (truth**2).sum()
    assert float(run.callback_metrics["test/average_relative_error"]) == pytest.approx(error, rel=1e-5)


def test_a_known_matrix_is_recovered_from_many_signs() -> None:
    data = low_rank(num_users=60, num_items=60, observed=0.6, max_entry=4.0, data_seed=3)
    model, run = fitted(method(tau=60.0), data)
    run.test(model, datamodule=data, verbose=False)
    assert float(run.callback_metrics["test/average_relative_error"]) < 0.4  # 1 is that of zeros
    assert float(run.callback_metrics["test/sign_accuracy"]) > 0.6


def test_without_a_known_matrix_there_is_no_error(tmp_path: Path) -> None:
    data = sparse_files(tmp_path)
    model, run = fitted(method(tau=5.0), data)
    run.test(model, datamodule=data, verbose=False)
    assert "test/sign_accuracy" in run.callback_metrics
    assert "test/average_relative_error" not in run.callback_metrics


def sparse_files(folder: Path) -> MovieLens100K:
    """Signs of five users of six items; one user and one item have a held-out sign alone."""
    rng = np.random.default_rng(0)
    rows = [(f"u{u}", f"i{i}", int(rng.integers(1, 6)), u + i) for u in range(4) for i in range(5)]
    held = [("u4", "i0", 5, 1), ("u0", "i5", 5, 2), ("u1", "i1", 2, 2)]
    columns = ["user_id", "item_id", "rating", "timestamp"]
    rows = [row for row in rows if row[:2] != ("u1", "i1")] + held
    pl.DataFrame(rows, schema=columns, orient="row").write_csv(folder / "ratings.csv")
    pl.DataFrame(held, schema=columns, orient="row").write_csv(folder / "u1_test.csv")
    given = Evaluation(split="given")
    return MovieLens100K(root=folder, filters=Filters(threshold=3, signs=True), evaluation=given)


@pytest.mark.parametrize("name", ["none", "InP", "ObjP", "GraP"])
def test_who_has_no_sign_has_zeros_and_is_ranked_by_counts(name: str, tmp_path: Path) -> None:
    data = sparse_files(tmp_path)
    model, run = fitted(method(Clear() if name == "none" else PRIVATE[name](None), tau=5.0), data)
    run.test(model, datamodule=data, verbose=False)
    assert model.matrix.any()
    assert not model.matrix[4].any()
    assert not model.matrix[:, 5].any()
    assert float(run.callback_metrics["test/sign_accuracy"]) <= 1 / 3 + 1e-6  # two of three are 0, which is wrong
    assert not model.can_score(torch.tensor([4])).any()
    assert torch.equal(model.ranking_scores(torch.tensor([4]))[0], model.item_counts)


# Refusals.


def test_implicit_feedback_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match=r"OneBitMC learns from signs, and the data at hand are implicit feedback. Set --data.filters.signs true and a",
    ):
        fitted(method(), Synthetic(num_users=24, num_items=30, ratings_per_user=6))


def test_signs_are_refused_by_methods_of_implicit_feedback() -> None:
    with pytest.raises(ValueError, match=r"EASE learns from implicit feedback, and the data at hand are signs. Set"):
        trainer().fit(EASE(), datamodule=low_rank())


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "world_size", property(lambda _self: 2))
    with pytest.raises(
        ValueError, match=r"OneBitMC is solved by one process; got 2 processes. Set trainer.devices to 1"
    ):
        fitted(method())


def test_matrices_that_are_too_large_are_refused() -> None:
    with pytest.raises(ValueError, match=r"A matrix of 24 x 20 has more than max_cells = 479 entries"):
        fitted(method(max_cells=479))
    fitted(method(max_cells=480))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau": 0.0}, r"radius of the nuclear-norm ball \(tau\) must be positive"),
        ({"tau": -1.0}, r"\(tau\) must be positive"),
        ({"alpha": 0.0}, r"bound on the entries \(alpha\) must be positive"),
        ({"bounded": True}, r"bounded holds entries to alpha, and alpha is null"),
        ({"link": "cauchy"}, r"link must be 'logistic' or 'probit', got 'cauchy'"),
        ({"link": "probit", "scale": 0.0}, r"scale must be a positive finite number"),
        ({"tolerance": 0.0}, r"tolerance must lie between 0 and 1"),
        ({"tolerance": 1.0}, r"tolerance must lie between 0 and 1"),
        ({"max_iterations": 0}, r"max_iterations and rank be at least 1"),
        ({"rank": 0}, r"max_iterations and rank be at least 1"),
        ({"link": "probit", "perturbation": ObjectivePerturbation(2.0)}, r"which no solver returns"),
        ({"link": "probit", "perturbation": OutputPerturbation(2.0)}, r"entries that are held to alpha"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        method(**settings)


# Through the command line.


@pytest.mark.usefixtures("zoo_data")
def test_a_run_keeps_the_record_of_its_training(
    cli: Callable[..., ZooCLI], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = Path(__file__).parents[4] / "configs" / "one_bit_mc" / "low_rank.yaml"
    sizes = ("--data.num_users", 24, "--data.num_items", 30, "--data.observed", "0.3")
    folder = Path(str(cli("fit", "--config", config, *sizes).trainer.log_dir)).resolve()
    shown = capsys.readouterr().out
    record = json.loads((folder / "privacy.json").read_text())["OneBitMC"]
    assert (record["guarantee"], record["epsilon"], record["unit"]) == ("proved", 4, "rating-value")
    report = json.loads((folder / "metrics.json").read_text())
    assert report["privacy"]["OneBitMC"].startswith("rating-value, eps 4.00, delta 1e-05")
    assert report["metrics"].keys() >= {"test/sign_accuracy", "test/average_relative_error"}
    (line,) = [line for line in shown.split("OneBitMC: test")[1].splitlines() if "HR@5" in line]
    assert line.split()[-3:] == ["4.00", "1e-05", "proved"]
    checkpoint = folder / "checkpoints" / "best.ckpt"
    again = cli("test", "--config", folder / "config.yaml", "--ckpt_path", checkpoint)
    assert again.model.privacy_record().to_dict() == record
