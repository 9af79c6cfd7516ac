"""From Python: publish, fit, test, load and recommend do what the commands do, quietly."""

import json
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml
from jsonargparse import ArgumentParser
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import BackboneFinetuning, EarlyStopping
from pytorch_lightning.callbacks.weight_averaging import EMAWeightAveraging
from pytorch_lightning.loggers import CSVLogger, WandbLogger

import zoo
from datamodules import Evaluation, Files, LowRank, Synthetic
from tests.quickstart import PROJECTED
from zoo.runs.checks import check_clipping, check_run
from zoo.runs.cli import ZooCLI
from zoo.runs.inputs import UsageError
from zoo.runs.predictor import DataNotAvailableError
from zoo.runs.trackers import begin_own_run
from zoo.runs.trainer import Run, take_folder

pytestmark = pytest.mark.thorough

TINY = {"num_users": 24, "num_items": 30, "ratings_per_user": 6, "batch_size": 64}
#: Who scores somebody by a release's row alone, as the page says.
SCORES_BY_ROWS = {"PPGenCDR", "PriCDR", "Ridge", "UserKNN"}
#: What makes a run quick and quiet.
QUICK = {"max_epochs": 2, "accelerator": "cpu", "enable_progress_bar": False}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")  # a run sets it; so it is taken away again


def fitted(**settings: object) -> Run:
    """What `PROJECTED` is on the command line."""
    publisher = {"publisher": zoo.JLT(epsilon=8, num_components=8)}
    return zoo.fit(zoo.PriCDR(dims=(8, 4), alignment_weight=1.0), Synthetic(**TINY), **publisher | QUICK | settings)


def test_a_run_from_python_is_that_of_the_command_line(
    cli: Callable[..., ZooCLI], capsys: pytest.CaptureFixture[str]
) -> None:
    run = fitted()
    figures = run.test()
    release = run.folder / "releases" / "book"
    arguments = ("--data.releases.book", release, "--publisher", "null", "--trainer.accelerator", "cpu")
    done = cli("fit", *PROJECTED, *arguments)
    theirs, weights = done.trainer.callback_metrics, done.model.state_dict()
    assert all(torch.equal(weights[name], own) for name, own in run.method.state_dict().items())
    assert figures == {name: float(value) for name, value in theirs.items() if name.startswith("test/")}
    assert json.loads((run.folder / "metrics.json").read_text())["metrics"] == figures
    said = capsys.readouterr()
    assert said.out.count("PriCDR: test") == 2
    assert "LeafSpec" not in said.err


@pytest.mark.slow
def test_the_command_line_takes_the_settings_and_the_checkpoint_of_a_run_from_python(
    cli: Callable[..., ZooCLI],
) -> None:
    run = fitted()
    figures = run.test()
    again = cli("test", "--config", run.folder / "config.yaml", "--ckpt_path", run.folder / "checkpoints" / "best.ckpt")
    assert float(again.trainer.callback_metrics["test/full/ndcg@10"]) == pytest.approx(figures["test/full/ndcg@10"])


def test_a_run_writes_its_settings_and_names_what_cannot_be_written() -> None:
    run = fitted(callbacks=[EarlyStopping("val/ndcg@10", mode="max")], seed=3)
    text = (run.folder / "config.yaml").read_text()
    assert text.startswith(f"# cdr-zoo {zoo.__version__}; with the callbacks EarlyStopping\n")
    settings = yaml.safe_load(text)
    assert settings["seed_everything"] == 3
    assert settings["model"] == {"class_path": "zoo.PriCDR", "init_args": {"dims": [8, 4], "alignment_weight": 1.0}}
    assert settings["publisher"] == {"class_path": "zoo.JLT", "init_args": {"epsilon": 8, "num_components": 8}}
    assert settings["data"]["init_args"] == {
        **TINY, "users": "own", "releases": {"book": str(run.folder / "releases" / "book")},
    }  # fmt: skip
    assert torch.load(run.folder / "checkpoints" / "best.ckpt", weights_only=True)["version"] == zoo.__version__


def test_what_does_not_go_together_is_refused_before_anything_is_published() -> None:
    with pytest.raises(UsageError, match="publisher is not set"):
        zoo.fit(zoo.PriCDR(), Synthetic(**TINY), **QUICK)
    with pytest.raises(UsageError, match=r"data\.sources is empty"):
        zoo.fit(zoo.PriCDR(), Synthetic(**TINY, sources=[]), **QUICK)
    watching, last = EarlyStopping("val/ndcg@10", mode="max"), Synthetic(**TINY, evaluation=Evaluation(split="latest1"))
    with pytest.raises(UsageError, match="is not validated"):
        zoo.fit(zoo.DMF(), last, callbacks=[watching], **QUICK)
    odd = zoo.BPR()
    odd.batches = "tripels"  # type: ignore[assignment]
    with pytest.raises(
        UsageError, match=r"BPR\.batches is 'tripels'\. Did you mean triples\? It must be one of users, pairs"
    ):
        zoo.fit(odd, Synthetic(**TINY, sources=[]), **QUICK)
    with pytest.raises(UsageError, match="logger is False"):
        zoo.fit(zoo.DMF(), Synthetic(**TINY), logger=False, **QUICK)
    assert not list(Path("runs").rglob("*.ckpt"))


def test_a_training_that_was_given_no_end_is_told_how_long_it_may_take(capsys: pytest.CaptureFixture[str]) -> None:
    data, said = Synthetic(**TINY, sources=[]), "max_epochs is not set: at most 1,000 epochs."
    for settings in ({"max_epochs": 1000}, {"max_steps": 5}, {"max_time": "00:00:01:00"}):
        check_run(zoo.BPR(), data, Trainer(accelerator="cpu", logger=False, **settings))
    check_run(zoo.EASE(), data, Trainer(accelerator="cpu", logger=False))
    assert said not in capsys.readouterr().err
    check_run(zoo.BPR(), data, Trainer(accelerator="cpu", logger=False))
    assert f"{said} Set it: --trainer.max_epochs N" in capsys.readouterr().err
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        zoo.fit(zoo.EASE(), data, accelerator="cpu", enable_progress_bar=False)
    assert not [one for one in warned if "max_epochs" in str(one.message)], (
        "the libraries' own sentence shows a path of theirs"
    )


def test_where_a_source_does_not_lie_here_a_target_party_is_told_what_to_pass(tmp_path: Path) -> None:
    (tmp_path / "books.csv").write_text("user_id,item_id,rating,timestamp\n" + "u,i,1,1\nu,j,1,2\nu,k,1,3\nv,k,1,1\n")
    data = Files("own", "books", ["films"], root=tmp_path)
    with pytest.raises(FileNotFoundError) as refused:
        zoo.fit(zoo.PriCDR(), data, publisher=zoo.JLT(epsilon=8), **QUICK)
    said = str(refused.value)
    assert re.match(r"No ratings of 'films' in \S+ Looked for films.csv, .* or data\.root", said)
    assert said.endswith("--data.releases.films PATH (Python: releases={'films': PATH} of the datamodule).")
    assert said.count("ZOO_DATA") == 1, "where to put a file is said once"


def test_a_second_clip_is_refused_where_a_guarantee_rests_on_the_first() -> None:
    with pytest.raises(UsageError, match="clips gradients itself"):
        check_clipping(zoo.SPPG(), 1.0)
    check_clipping(zoo.DMF(), 1.0)
    with pytest.raises(UsageError, match="FedGNN clips gradients"):
        check_clipping(zoo.FedGNN(epsilon=8.0, clip=0.5), 1.0)
    check_clipping(zoo.FedGNN(), 1.0)  # without epsilon nothing is promised
    check_clipping(zoo.SPPG(), None)


def test_counts_in_half_precision_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"trainer\.precision is 'bf16-true', .* Set it to bf16-mixed"):
        zoo.fit(zoo.BPR(), Synthetic(**TINY), precision="bf16-true", **QUICK)
    assert not list(tmp_path.rglob("*.ckpt"))


def test_a_source_party_publishes_from_python(tmp_path: Path) -> None:
    release = zoo.publish(zoo.JLT(epsilon=8, num_components=8), Synthetic(**TINY), tmp_path / "book")
    assert zoo.Release.load(tmp_path / "book").digest == release.digest
    assert release.metadata is not None
    with pytest.raises(FileExistsError, match="a release is never overwritten"):
        zoo.publish(zoo.Plaintext(), Synthetic(**TINY), tmp_path / "book")
    with pytest.raises(UsageError, match="Choose one: --source NAME"):
        zoo.publish(zoo.Plaintext(), Synthetic(**TINY, sources=["book", "film"]), tmp_path / "other")


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(
        AttributeError, match=r"no attribute 'PriCDRs'\. Did you mean PriCDR or PriCDRSym\? Exported: \["
    ):
        zoo.PriCDRs  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'Pricdr'\. Did you mean PriCDR\?"):
        zoo.Pricdr  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'xyz'\. Exported: \["):
        zoo.xyz  # noqa: B018


def test_importing_the_zoo_loads_no_library() -> None:
    code = "import sys, zoo; print([m for m in ('torch', 'numpy', 'pytorch_lightning', 'polars') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_the_examples_of_the_page_run_as_they_stand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text(encoding="utf-8")
    for example in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(example, "docs/python.md", "exec"), {})
    assert "u0002" in capsys.readouterr().out
    assert sorted(file.name for file in tmp_path.iterdir()) == ["bundles", "releases", "runs"]
    named = {name for name in zoo.METHODS if getattr(zoo, name).scores_by_rows}
    assert named == SCORES_BY_ROWS


def test_a_training_that_is_private_itself_and_its_settings_come_back(tmp_path: Path) -> None:
    perturbation = zoo.InputPerturbation(epsilon=2.0)
    data = LowRank(num_users=24, num_items=20, observed=0.4)
    method = zoo.OneBitMC(tau=10.0, max_iterations=5, perturbation=perturbation)
    run = zoo.fit(method, data, **QUICK | {"max_epochs": 5})
    loaded = zoo.load(run)
    assert isinstance(loaded.method.perturbation, zoo.InputPerturbation)
    assert loaded.method.perturbation.epsilon == 2.0
    bundle = zoo.export(run, tmp_path / "bundle", with_user_ids=True)
    users = loaded.user_ids[:3]
    everything = {
        user: loaded.data.train.item_ids[loaded.seen.bags(torch.tensor([at])).items] for at, user in enumerate(users)
    }
    assert zoo.load(bundle).recommend(users, 4, seen=everything).equals(loaded.recommend(users, 4))
    record = json.loads((run.folder / "privacy.json").read_text())["OneBitMC"]
    assert record["epsilon"] == 2.0
    card = (bundle / "README.md").read_text()
    assert "- Training on the target: rating-value (change one rating value), eps 2.00, delta 0" in card
    assert "Not covered by any guarantee" not in card


def test_every_release_of_several_sources_is_found_again(tmp_path: Path) -> None:
    data = Synthetic(**TINY, sources=["book", "film"])
    run = zoo.fit(zoo.UserKNN(), data, publisher=zoo.FlippedRows(epsilon=4.0), **QUICK)
    before = zoo.load(run).recommend(["u0001"], 3)
    shutil.move(run.folder, tmp_path / "moved")
    assert zoo.load(tmp_path / "moved").recommend(["u0001"], 3).equals(before)
    releases = {name: tmp_path / "moved" / "releases" / name for name in data.sources}
    bundle = zoo.export(tmp_path / "moved", tmp_path / "bundle", with_user_ids=True, with_ratings=True)
    assert zoo.load(bundle, releases=releases).recommend(["u0001"], 3).equals(before)
    del releases["film"]
    with pytest.raises(DataNotAvailableError, match="UserKNN needs the releases of its training"):
        zoo.load(bundle, releases=releases).recommend(["u0001"], 3)


def test_of_runs_that_begin_at_once_each_has_a_folder_of_its_own(tmp_path: Path) -> None:
    """Both have looked which number comes next before either has made its folder."""
    first, second, named, again = (
        Trainer(logger=CSVLogger(tmp_path, name="", version=version), accelerator="cpu")
        for version in (None, None, "named", "named")
    )
    assert first.log_dir == second.log_dir
    assert [take_folder(trainer) for trainer in (first, second, named, again)] == [True, True, True, False]
    assert [Path(str(trainer.log_dir)).name for trainer in (first, second, named, again)] == [
        *("version_0", "version_1", "named", "named")
    ]
    assert {path.name for path in tmp_path.iterdir()} == {"version_0", "version_1", "named"}


class Reading(Callback):
    """Counts the parameters that it finds in ``setup``."""

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.found = sum(1 for _ in pl_module.parameters())


class Averaging(EMAWeightAveraging):
    """Keeps the weights after each step."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *others: Any) -> None:  # noqa: ANN401
        super().on_train_batch_end(trainer, pl_module, *others)
        self.__dict__.setdefault("seen", []).append(pl_module.factors.items.weight.detach().clone())


class Fixed(zoo.BPR):
    """Has a backbone, which a callback freezes."""

    def build(self, sizes: Any) -> None:  # noqa: ANN401
        super().build(sizes)
        self.backbone, self.first = self.factors.items, self.factors.items.weight.detach().clone()


def test_callbacks_find_the_networks_in_setup_and_their_changes_are_kept() -> None:
    data, reading, averaging = Synthetic(**TINY, sources=[]), Reading(), Averaging(use_buffers=False, decay=0.5)
    run = zoo.fit(zoo.BPR(num_factors=4, lr=0.1), data, callbacks=[reading, averaging], **QUICK | {"max_epochs": 1})
    assert reading.found == 2
    mean = averaging.seen[0]
    for weights in averaging.seen[1:]:
        mean = 0.5 * mean + 0.5 * weights
    assert len(averaging.seen) > 1
    kept = torch.load(run.folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    assert torch.allclose(kept["factors.items.weight"], mean)
    assert run.method.item_counts.tolist() == data.train.matrix.sum(axis=0).tolist(), "data stay as they are"
    frozen = Fixed(num_factors=4, lr=0.1)
    zoo.fit(frozen, data, callbacks=[BackboneFinetuning(unfreeze_backbone_at_epoch=9)], **QUICK)
    assert torch.equal(frozen.backbone.weight, frozen.first)
    with pytest.raises(UsageError, match="BackboneFinetuning unfreezes `backbone`, which BPR does not have"):
        zoo.fit(zoo.BPR(), data, callbacks=[BackboneFinetuning()], **QUICK)


def test_optimizer_and_schedule_are_used_saved_and_left_by_the_next_training(cli: Callable[..., ZooCLI]) -> None:
    method, data = zoo.BPR(num_factors=4), Synthetic(**TINY, sources=[])
    made = {
        "optimizer": partial(torch.optim.SGD, lr=0.5),
        "lr_scheduler": partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5),
    }
    run = zoo.fit(method, data, **made, **QUICK)
    (optimizer,) = run.trainer.optimizers
    assert type(optimizer) is torch.optim.SGD
    assert optimizer.param_groups[0]["lr"] == 0.5 * 0.5**2, "two epochs"
    settings = yaml.safe_load((run.folder / "config.yaml").read_text())
    assert settings["optimizer"] == {"class_path": "torch.optim.sgd.SGD", "init_args": {"lr": 0.5}}
    done = cli("fit", "--config", run.folder / "config.yaml")
    assert all(torch.equal(done.model.state_dict()[name], own) for name, own in method.state_dict().items())
    assert type(zoo.fit(method, data, **QUICK).trainer.optimizers[0]) is torch.optim.Adam
    patient = partial(torch.optim.lr_scheduler.ReduceLROnPlateau, mode="max", patience=0, threshold=9.0)
    run = zoo.fit(zoo.NeuMF(gmf_dim=4, mlp_dims=(8, 4)), data, lr_scheduler=patient, **QUICK)
    assert run.trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(1e-4), (
        "validation NDCG@10 did not grow tenfold"
    )


def test_a_table_of_results_names_the_callback_that_stopped(capsys: pytest.CaptureFixture[str]) -> None:
    data, said = Synthetic(**TINY, sources=[]), "stopped after epoch 2 by EarlyStopping"
    stopping = EarlyStopping("val/ndcg@10", mode="max", min_delta=1, patience=1)
    run = zoo.fit(zoo.BPR(), data, callbacks=[stopping], **QUICK | {"max_epochs": 5})
    run.test()
    assert said in capsys.readouterr().out
    zoo.fit(zoo.BPR(), data, callbacks=[EarlyStopping("val/ndcg@10", mode="max")], **QUICK).test()
    assert "stopped after" not in capsys.readouterr().out


def test_two_trainings_of_one_process_are_two_runs_of_wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    data = Synthetic(**TINY, sources=[])
    loggers = [WandbLogger(name=name, save_dir=tmp_path) for name in ("first", "second")]
    runs = [zoo.fit(zoo.BPR(lr=lr), data, logger=one, **QUICK) for lr, one in zip((0.1, 0.01), loggers, strict=True)]
    figures = [run.test()["test/full/ndcg@10"] for run in runs]  # both are open
    told = [logger.experiment for logger in loggers]
    assert [run.config["model"]["init_args"]["lr"] for run in told] == [0.1, 0.01]
    assert [run.summary["test/full/ndcg@10"] for run in told] == figures
    assert len({run.id for run in told}) == len(list((tmp_path / "wandb").glob("offline-run-*"))) == 2
    for run in told:
        run.finish()
    import wandb

    wandb.finish()  # another test may have left a run open, which `init` would return
    with wandb.init(dir=tmp_path, mode="offline") as own:  # the caller's own run is continued
        begin_own_run(logger := WandbLogger(save_dir=tmp_path))
        assert logger.experiment is own


@pytest.mark.parametrize("settings", [None, {"disable_git": True}, {"console": "redirect", "mode": "shared"}])
def test_wandb_gets_the_settings_that_were_asked_for(
    settings: dict[str, Any] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A parser completes them by defaults, which replace what the environment says; console output quotes refused rows."""
    parser = ArgumentParser()
    parser.add_subclass_arguments(WandbLogger, "logger")
    given = {"logger": {"class_path": "WandbLogger", "init_args": {"settings": settings} if settings else {}}}
    logger = parser.instantiate_classes(parser.parse_object(given)).logger
    sent: dict[str, Any] = {}
    monkeypatch.setattr("wandb.run", None)
    begun = property(lambda self: sent.update(self._wandb_init) or SimpleNamespace(id="a"))
    monkeypatch.setattr(WandbLogger, "experiment", begun)
    begin_own_run(logger)
    sent["settings"].pop("root_dir", None)  # by default the folder of the first test
    assert sent["settings"] == {"console": "off"} | (settings or {})


class _Fails(Callback):
    """Fails at a place of the training."""

    def __init__(self, at: str) -> None:
        setattr(self, at, self._fail)

    def _fail(self, *_: object, **__: object) -> None:
        raise OSError("no more")


def test_a_start_that_fails_leaves_no_folder() -> None:
    with pytest.raises(UsageError, match="publisher is not set"):
        fitted(publisher=None)
    private = zoo.FedGNN(4, epsilon=8.0, clip=0.5, num_rounds=2, rate=0.5)
    with pytest.raises(ValueError, match="Validation would choose the epoch"):  # found when the run has its folder
        zoo.fit(private, Synthetic(num_users=60, num_items=40, sources=[]), **QUICK)
    assert not Path("runs").exists()
    for at, method, kept in (
        ("on_train_start", zoo.Popularity(), []),
        ("on_fit_start", zoo.Ridge(), ["releases"]),  # published, and paid for
        ("on_train_epoch_end", zoo.Popularity(), ["config.yaml", "target"]),
    ):
        with pytest.raises(OSError, match="no more"):
            zoo.fit(method, Synthetic(**TINY), publisher=zoo.Plaintext(), callbacks=[_Fails(at)], **QUICK)
        found = {path.name for path in Path().glob("runs/*/version_0/*")}
        assert {*kept} <= found
        assert bool(found) == bool(kept)
        shutil.rmtree("runs", ignore_errors=True)


@pytest.mark.parametrize(("settings", "first", "asked"), [
    ({}, True, 1), ({}, False, 0), ({"mode": "offline"}, True, 0), ({"experiment": SimpleNamespace()}, True, 0),
])  # fmt: skip
def test_wandb_is_asked_for_a_key_once_and_where_one_is_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, settings: dict[str, Any], first: bool, asked: int
) -> None:
    """A run that somebody has begun has its own, and one that is offline needs none."""
    keys: list[tuple[str, str]] = []
    monkeypatch.setattr("zoo.runs.checks.check_tracker", lambda *asked: keys.append(asked))
    logger = WandbLogger(save_dir=tmp_path, **settings)
    trainer = Trainer(logger=logger, accelerator="cpu", max_epochs=1, enable_progress_bar=False)
    monkeypatch.setattr(type(trainer.strategy), "is_global_zero", first)
    check_run(zoo.BPR(), Synthetic(), trainer)
    assert keys == [("wandb", "the logger")] * asked
