"""OneBitMC through Lightning: what is shown, what is refused, and how signs are met."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from pytorch_lightning import Trainer

from datamodules import Evaluation, Filters, MovieLens100K, Synthetic
from tests.zoo.methods.one_bit_mc.runs import PRIVATE, Log, fitted, low_rank, method, trainer
from tests.zoo.methods.quiet_trainer import quiet
from zoo import EASE, Clear, GradientPerturbation, InputPerturbation
from zoo.runs.cli import ZooCLI


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


def test_a_run_ends_by_itself_and_another_fit_says_that_it_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    model = method(GradientPerturbation(2.0, steps=4))
    log = Log()
    data = low_rank()
    run = quiet(max_epochs=3, limit_val_batches=0, callbacks=[log])
    run.fit(model, datamodule=data)
    assert len(log.logged) == 4
    matrix = model.matrix.clone()
    assert "stays as it is" not in caplog.text
    trainer().fit(model, datamodule=data)
    assert torch.equal(model.matrix, matrix)
    assert "stays as it is" in caplog.text


def test_everybody_is_scored_where_pairs_are_hidden() -> None:
    data = low_rank(evaluation=Evaluation(split="cold_start"))
    hidden, _ = fitted(method(InputPerturbation(2.0, hide_pairs=True)), data)
    assert hidden.can_score(data.test.users).all()
    assert not hidden.item_counts.any()
    seen, _ = fitted(method(InputPerturbation(2.0)), low_rank(evaluation=Evaluation(split="cold_start")))
    assert not seen.can_score(data.test.users).any()
    record = hidden.privacy_record()
    assert record is not None
    said = record.sentences("not_protected")
    assert any(line.startswith("membership of a rating outside the completed matrix") for line in said)


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


@pytest.mark.parametrize("name", ["none", "GraP"])
def test_figures_are_those_by_hand(name: str) -> None:
    data = low_rank()
    model, run = fitted(method(Clear() if name == "none" else PRIVATE[name](None)), data)
    run.test(model, datamodule=data, verbose=False)
    matrix = model.matrix.numpy()
    rated = data.read("entries")
    users, items = ({name: place for place, name in enumerate(names)} for names in data.public_ids("entries"))
    held = data.read_held_out("entries")
    assert held is not None
    cases = held[1].select("user_id", "item_id", "rating").iter_rows()
    right = [np.sign(matrix[users[user], items[item]]) == sign for user, item, sign in cases]
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


def test_the_other_kind_of_feedback_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"The data are implicit feedback; OneBitMC needs signs. Set --data.filters.signs"
    ):
        fitted(method(), Synthetic(num_users=24, num_items=30, ratings_per_user=6))
    with pytest.raises(ValueError, match=r"The data are signs; EASE needs implicit feedback. Set"):
        trainer().fit(EASE(), datamodule=low_rank())


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "world_size", property(lambda _self: 2))
    with pytest.raises(ValueError, match=r"OneBitMC is solved by one process; got 2 processes. Set trainer.devices"):
        fitted(method())


def test_matrices_that_are_too_large_are_refused() -> None:
    with pytest.raises(ValueError, match=r"A matrix of 24 x 20 has more than max_cells = 479 entries"):
        fitted(method(max_cells=479))
    fitted(method(max_cells=480))


@pytest.mark.thorough
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
    assert report["privacy"]["OneBitMC"].startswith("rating-value (change one rating value), eps 4.00, delta 1e-05")
    assert report["metrics"].keys() >= {"test/sign_accuracy", "test/average_relative_error"}
    (line,) = [line for line in shown.split("OneBitMC: test")[1].splitlines() if "HR@5" in line]
    assert line.split()[-3:] == ["4.00", "1e-05", "proved"]
    checkpoint = folder / "checkpoints" / "best.ckpt"
    again = cli("test", "--config", folder / "config.yaml", "--ckpt_path", checkpoint)
    assert again.model.privacy_record().to_dict() == record
