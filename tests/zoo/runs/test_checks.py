"""A figure that nothing logs is refused before anything is published, with the names of those that are logged."""

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.callbacks import (
    BackboneFinetuning,
    EarlyStopping,
    ModelCheckpoint,
    ModelPruning,
    StochasticWeightAveraging,
)
from pytorch_lightning.callbacks.weight_averaging import EMAWeightAveraging
from pytorch_lightning.cli import ReduceLROnPlateau as WatchingPlateau

import zoo
from callbacks import BestCheckpoint, BoundaryLedger, PrivacyBudget
from datamodules import Evaluation, LowRank, Synthetic
from zoo.runs.checks import check_callbacks, check_monitors, figures_of
from zoo.runs.inputs import UsageError
from zoo.runs.optimization import use_optimizer


def checked(*callbacks: Callback, method: Any = None, data: Any = None, **settings: Any) -> None:  # noqa: ANN401
    made = Trainer(
        callbacks=[*callbacks], accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
        **{"enable_checkpointing": any(isinstance(c, ModelCheckpoint) for c in callbacks), **settings},
    )  # fmt: skip
    check_monitors(method or zoo.BPR(), data or Synthetic(sources=[]), made)


@pytest.mark.parametrize(
    ("watching", "said"),
    [
        (EarlyStopping("val/ndgc@10"), r"EarlyStopping watches 'val/ndgc@10', which nothing logs\. Did you mean val/ndcg@10\?"),
        (ModelCheckpoint(monitor="val/full/ndcg@20", mode="max"), r"Checkpoint watches 'val/full/ndcg@20'.* mean val/full/ndcg@10"),
        (EarlyStopping("test/full/ndcg@10", mode="max"), r"'test/full/ndcg@10', which nothing logs"),
        (EarlyStopping("epoch"), r"'epoch', which nothing logs"),
        (EarlyStopping("val/full/mrr@5"), r"EarlyStopping\.mode is 'min', but val/full/mrr@5 grows with .* Set mode to 'max'\."),
        (ModelCheckpoint(monitor="train/loss", mode="max"), r"ModelCheckpoint\.mode is 'max', but train/loss falls"),
        (EarlyStopping("train/epsilon"), r"now has the neighbouring relation\. Watch train/epsilon_RELATION"),
        (EarlyStopping("train/discriminator_loss"), r"Logged: val/ndcg@10, val/sampled/hit_rate@5, .*, train/loss\.$"),
    ],
)  # fmt: skip
def test_a_figure_that_nothing_logs_is_refused(watching: Callback, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        checked(watching)


@pytest.mark.parametrize(
    "watching",
    [
        *(EarlyStopping(name, mode="max") for name in ("val/ndcg@10", "val/full/pessimistic/mrr@5", "train/penalty/x")),
        EarlyStopping("train/loss"),
        ModelCheckpoint(monitor="epoch"),
        ModelCheckpoint(),
        EarlyStopping("anything", strict=False),
        BestCheckpoint(),
    ],
)  # fmt: skip
def test_what_will_be_logged_may_be_watched(watching: Callback) -> None:
    checked(watching)


def test_what_is_logged_goes_by_method_data_and_callbacks() -> None:
    checked(EarlyStopping("train/bytes_up"), BoundaryLedger(), method=zoo.FedGNN())
    with pytest.raises(UsageError, match="train/bytes_up"):
        checked(EarlyStopping("train/bytes_up"), method=zoo.FedGNN())
    checked(EarlyStopping("train/attention/books"), method=zoo.FedGCDR())
    with pytest.raises(UsageError, match="'train/attention/books', which nothing logs"):
        checked(EarlyStopping("train/attention/books"), method=zoo.FedGCDR(epsilon=8.0, clip=1.0))
    checked(EarlyStopping("train/epsilon_replace_one_user"), PrivacyBudget(), method=zoo.SPPG())
    checked(EarlyStopping("train/loss"), method=zoo.SPPG())
    with pytest.raises(UsageError, match=r"Watch train/epsilon_replace_one_user or train/epsilon_zero_out_one_user\."):
        checked(EarlyStopping("train/epsilon"), PrivacyBudget(), method=zoo.SPPG())
    few = Synthetic(sources=[], evaluation=Evaluation(full_ranking="test", ks=(3, 10)))
    assert figures_of(zoo.GANMF(), few) == [
        "val/ndcg@10",
        *(f"val/sampled/{name}@{k}" for k in (3, 10) for name in ("hit_rate", "ndcg", "mrr")),
        "train/discriminator_loss",
        "train/loss",
    ]
    assert "train/loss" not in figures_of(zoo.EASE(), few)
    assert "val/sign_accuracy" in figures_of(zoo.OneBitMC(1.0), LowRank())
    assert figures_of(zoo.OneBitMC(1.0), LowRank(), validates=False) == ["train/objective"]


@pytest.mark.parametrize(
    ("split", "settings"), [("latest1", {}), ("latest2", {"limit_val_batches": 0})], ids=["no split", "not looked at"]
)
def test_without_validation_no_figure_of_it_may_be_watched(split: Any, settings: dict[str, Any]) -> None:  # noqa: ANN401
    data = Synthetic(sources=[], evaluation=Evaluation(split=split))
    with pytest.raises(UsageError, match=f"the split '{split}' is not validated"):
        checked(ModelCheckpoint(monitor="val/ndcg@10", mode="max"), data=data, **settings)
    checked(EarlyStopping("train/loss"), data=data, **settings)


def test_of_another_package_only_what_says_all_that_it_logs_is_refused() -> None:
    class Silent(zoo.BPR):
        """Of which nobody knows what it logs."""

        def step(self, batch: Any) -> Any:  # noqa: ANN401
            self.log("train/mine", 1.0)
            return super().step(batch)

    class Says(zoo.BPR):
        """Of which it is known."""

        logs = frozenset({"train/theirs"})

    checked(EarlyStopping("train/mine"), method=Silent())
    checked(EarlyStopping("train/theirs"), method=Says())
    checked(EarlyStopping("train/loss"), method=Says())
    with pytest.raises(UsageError, match=r"'train/their', .* Did you mean train/theirs"):
        checked(EarlyStopping("train/their"), method=Says())

    class Logs(Callback):
        """Nor of this."""

        def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:  # noqa: ANN401
            pl_module.log_dict({"train/their": 1.0})

    checked(EarlyStopping("train/their"), Logs(), method=Says())
    above = type("Above", (Callback,), {"logs": frozenset({"train/above"})})
    below = type("Below", (above,), {"logs": frozenset({"train/below"})})
    checked(EarlyStopping("train/above"), below(), method=Says())


def changed(name: str, **parts: Any) -> Any:  # noqa: ANN401
    """A BPR with other methods."""
    return type(name, (zoo.BPR,), parts)()


def loss_of(method: Any, batch: Any) -> Any:  # noqa: ANN401
    return zoo.BPR.step(method, batch)["loss"]


LOSSY = changed("Lossy", step=loss_of)
PER_ROW = changed("PerRow", step=lambda self, batch: {"loss": loss_of(self, batch).expand(len(batch.users))})
TRANSPOSED = changed("Transposed", score_all=lambda self, users: zoo.BPR.score_all(self, users).T)
FEW = changed("Few", score=lambda self, users, items: zoo.BPR.score(self, users, items)[:, :3])
BARE = changed("Bare", __init__=lambda self: None)
SMALL = {"num_users": 24, "num_items": 30, "ratings_per_user": 6, "sources": []}
SAMPLED = Evaluation(full_ranking=False)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"method": zoo.BPR}, r"method is the class BPR\. It must be an object of Recommender\. Call it: BPR\(\.\.\.\)\."),
        ({"method": "BPR"}, r"method is a str 'BPR'\. .* Pass one, e\.g\. zoo\.BPR\(\)\."),
        ({"method": BARE}, r"Bare is not initialised\. Call super\(\)\.__init__\(\) first"),
        ({"data": Synthetic}, r"data is the class Synthetic\. It must be an object of CrossDomainDataModule\."),
        ({"data": "ratings.csv"}, r"data is a str 'ratings\.csv'\."),
        ({"publisher": zoo.JLT}, r"publisher is the class JLT\. It must be an object of Publisher\."),
        ({"callbacks": [EarlyStopping]}, r"an entry of callbacks is the class EarlyStopping\."),
        ({"callbacks": ModelCheckpoint()}, r"callbacks is a ModelCheckpoint\."),
        ({"epochs": 2}, r"zoo\.fit has no argument 'epochs'\. Did you mean max_epochs"),
        ({"callback": []}, r"zoo\.fit has no argument 'callback'\. Did you mean callbacks\?"),
        ({"method": LOSSY}, r"Lossy\.step returned a Tensor\. It must return a dict\. Return {'loss': loss}"),
        ({"method": PER_ROW}, r"The loss of PerRow\.step has shape \(\d+,\)\. It must be one number\."),
        ({"method": TRANSPOSED}, r"Transposed\.score_all returned shape \(30, 23\) for 23 users\. .* shape \(23, 30\)"),
        ({"method": FEW, "data": Synthetic(**SMALL, evaluation=SAMPLED)}, r"Few\.score returned shape \(23, 3\) for 23"),
    ],
)  # fmt: skip
def test_a_wrong_argument_of_fit_is_named_with_what_to_do(
    wrong: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    right = {"method": zoo.BPR(), "data": Synthetic(**SMALL), "accelerator": "cpu", "enable_progress_bar": False}
    with pytest.raises((TypeError, ValueError), match=said):
        zoo.fit(**right | {"max_epochs": 1} | wrong)
    assert not list(tmp_path.rglob("*.ckpt"))


def test_wrong_arguments_of_other_calls_and_incomplete_classes_are_named(tmp_path: Path) -> None:
    stepless: Any = type("Stepless", (zoo.Recommender,), {"build": zoo.BPR.build, "score_all": zoo.BPR.score_all})
    with pytest.raises(
        TypeError, match=r"Stepless has no step\. A method needs build, step and score_all\. Define each"
    ):
        stepless()
    with pytest.raises(TypeError, match="publisher is the class JLT"):
        zoo.publish(zoo.JLT, Synthetic(), tmp_path / "book")  # type: ignore[arg-type]
    for call in (zoo.probe, lambda data: zoo.publish(zoo.Plaintext(), data, tmp_path / "book")):
        with pytest.raises(TypeError, match="data is the class Synthetic"):
            call(Synthetic)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("callback", "method", "said"),
    [
        (StochasticWeightAveraging(0.1), zoo.BPR(), "averages after the last epoch, but best.ckpt is an earlier one"),
        (ModelPruning("l1_unstructured"), zoo.BPR(), "masks weights in the call of a layer"),
        (BackboneFinetuning(), zoo.GANMF(), "needs one optimizer, but GANMF trains by several optimizers"),
        (EMAWeightAveraging(use_buffers=False), zoo.EASE(), "needs one optimizer, but EASE is solved without an optimizer"),
        (EMAWeightAveraging(), zoo.BPR(), "has use_buffers true"),
    ],
)  # fmt: skip
def test_a_callback_whose_change_would_be_lost_is_refused(callback: Callback, method: Any, said: str) -> None:  # noqa: ANN401
    trainer = Trainer(callbacks=[callback], accelerator="cpu", logger=False, enable_checkpointing=False)
    with pytest.raises(UsageError, match=f"{type(callback).__name__} {said}"):
        check_callbacks(method, trainer)


SGD, PLATEAU = partial(torch.optim.SGD, lr=0.1), torch.optim.lr_scheduler.ReduceLROnPlateau


@pytest.mark.parametrize(
    ("method", "given", "said"),
    [
        (zoo.SPPG(), {"optimizer": SGD}, "optimizer: SPPG trains privately"),
        (zoo.FedGNN(epsilon=8.0, clip=0.5), {"optimizer": SGD}, "FedGNN trains privately"),
        (zoo.GANMF(), {"lr_scheduler": PLATEAU}, "lr_scheduler: GANMF trains by several optimizers"),
        (zoo.EASE(), {"optimizer": SGD}, "EASE is solved without an optimizer"),
        (zoo.BPR(), {"optimizer": "SGD"}, "optimizer is 'SGD'. It must be a class or a partial"),
        (zoo.BPR(), {"optimizer": PLATEAU}, "optimizer is <class"),
        (zoo.BPR(), {"optimizer": partial(torch.optim.SGD, lrr=1)}, "'lrr'. Did you mean lr?"),
        (zoo.BPR(), {"lr_scheduler": torch.optim.lr_scheduler.StepLR}, "missing a required argument: 'step_size'"),
        (zoo.BPR(), {"lr_scheduler": PLATEAU}, "ReduceLROnPlateau.mode is 'min', but val/ndcg@10 grows"),
        (zoo.BPR(), {"lr_scheduler": partial(WatchingPlateau, monitor="train/los")}, "'train/los', which nothing logs"),
    ],
)  # fmt: skip
def test_an_optimizer_that_a_method_cannot_take_is_refused(method: Any, given: dict[str, Any], said: str) -> None:  # noqa: ANN401
    def run() -> None:
        use_optimizer(method, **given)
        checked(method=method)

    with pytest.raises(UsageError, match=re.escape(said)):
        run()


def test_nothing_is_published_for_a_typo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    watching = [EarlyStopping("val/ndgc@10", mode="max")]
    with pytest.raises(UsageError, match="watches 'val/ndgc@10'"):
        zoo.fit(zoo.PriCDR(), Synthetic(), publisher=zoo.JLT(epsilon=8), callbacks=watching, accelerator="cpu")
    assert not list(tmp_path.iterdir())
