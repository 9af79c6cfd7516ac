"""W&B and TensorBoard are told the whole experiment and what the run left, and nothing personal unasked; all offline."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib.image
import numpy as np
import polars as pl
import pytest
import yaml
from markdown_it import MarkdownIt
from pytorch_lightning.loggers import CSVLogger, TensorBoardLogger, WandbLogger

from callbacks import Trackers
from callbacks.trackers import markdown
from tests.quickstart import PROJECTED
from zoo.runs.cli import ZooCLI

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parent.parent.parent
OVERLAYS = ROOT / "configs" / "overlays"


class TrackerRun(WandbLogger):
    """A W&B logger that keeps what it is told, without W&B."""

    def __init__(self) -> None:
        self.said: dict[str, Any] = {"artifacts": []}
        run = SimpleNamespace(id="x", log_artifact=lambda artifact: self.said["artifacts"].append(artifact))
        self.__dict__["_run"] = run

    experiment = property(lambda self: self.__dict__["_run"])  # type: ignore[assignment]
    log_dir = save_dir = name = version = None  # type: ignore[assignment]

    def log_hyperparams(self, params: Any) -> None:  # noqa: ANN401
        self.said.setdefault("experiment", params)
        self.said.setdefault("guarantees", []).append([*params["privacy"]])

    def log_metrics(self, metrics: Any, step: int | None = None) -> None:  # noqa: ANN401
        self.said.setdefault("metrics", {}).update(metrics)

    def log_image(self, key: str, images: Any, **_: Any) -> None:  # noqa: ANN401
        self.said.setdefault("figures", {})[key] = images

    def log_table(self, key: str, columns: Any = None, data: Any = None, **_: Any) -> None:  # noqa: ANN401
        self.said[key] = (columns, data)


def module(trainer: Any) -> Any:  # noqa: ANN401
    return trainer.lightning_module


@pytest.fixture
def finished(cli: Callable[..., ZooCLI]) -> ZooCLI:
    """A run that knows no tracker."""
    return cli("fit", *PROJECTED)


def replayed(run: ZooCLI, *, fitted: bool = True, **settings: Any) -> dict[str, Any]:  # noqa: ANN401
    """What a tracker would have been told of the run."""
    logger, callback = TrackerRun(), Trackers(**settings)
    folder = Path(str(run.trainer.log_dir))
    matplotlib.image.imsave(folder / "attention.png", np.zeros((2, 3, 3)))
    trainer = SimpleNamespace(
        loggers=[CSVLogger("."), logger], is_global_zero=True, datamodule=run.datamodule, log_dir=folder, global_step=4
    )
    callback.setup(trainer, run.model, "fit")  # type: ignore[arg-type]
    if fitted:
        callback.on_fit_start(trainer, run.model)  # type: ignore[arg-type]
    for start in (callback.on_validation_start, callback.on_test_start) if fitted else (callback.on_test_start,):
        start(trainer, run.model)  # type: ignore[arg-type]
    if not fitted:
        return logger.said
    callback.on_fit_end(trainer, run.model)  # type: ignore[arg-type]
    callback.teardown(trainer, run.model, "test")  # type: ignore[arg-type]
    return logger.said


def test_the_experiment_and_its_guarantees_are_hyperparameters(finished: ZooCLI) -> None:
    told = replayed(finished)["experiment"]
    assert told["model"]["class_path"].endswith("PriCDR")
    assert told["publisher"]["init_args"]["epsilon"] == 8.0
    assert {"data", "trainer", "seed_everything"} <= told.keys()
    assert "logger" not in told["trainer"], "its settings name folders and accounts"
    record = finished.datamodule.releases["book"].record
    assert told["privacy"]["book"] == {"mechanism": record.mechanism.name, **record.view.to_dict()}
    assert (
        told["privacy"]["book"] | {"relation": "change_one_rating", "epsilon": 8.0, "label": ""}
        == told["privacy"]["book"]
    )


def test_the_guarantee_of_a_training_is_sent_at_its_end(finished: ZooCLI, monkeypatch: pytest.MonkeyPatch) -> None:
    assert replayed(finished)["guarantees"] == [["book"]]
    record = finished.datamodule.releases["book"].record
    monkeypatch.setattr(type(finished.model), "privacy_record", lambda _: record)
    assert replayed(finished)["guarantees"] == [["book"], ["PriCDR"]]
    assert replayed(finished, fitted=False)["guarantees"] == [["book", "PriCDR"]], "a test alone is a run of its own"


def test_what_the_run_left_is_sent_and_nothing_personal(finished: ZooCLI) -> None:
    told = replayed(finished)
    kept = json.loads((Path(str(finished.trainer.log_dir)) / "metrics.json").read_text())
    assert told["metrics"]["parameters"] == kept["parameters"]
    assert "attention" in told["figures"]
    assert not told["artifacts"]
    assert "recommendations" not in told
    users = set(finished.datamodule.train.user_ids.tolist())
    assert not users & set(json.dumps(told, default=str).replace('"', " ").split())


def test_recommendations_and_files_go_on_request(finished: ZooCLI) -> None:
    told = replayed(finished, artifacts=["checkpoint", "releases"], recommendations=2)
    columns, rows = told["recommendations"]
    assert columns == ["user_id", "rank", "item_id", "score"]
    assert {row[0] for row in rows} == set(finished.datamodule.train.user_ids[:2].tolist())
    assert [row[1] for row in rows if row[0] == rows[0][0]] == list(range(1, 11))
    assert [artifact.type for artifact in told["artifacts"]] == ["checkpoint", "releases"]
    assert "best.ckpt" in told["artifacts"][0].manifest.entries
    assert any(name.endswith("release.json") for name in told["artifacts"][1].manifest.entries)


def test_names_of_other_parties_are_no_markup_in_a_table() -> None:
    """TensorBoard renders texts as Markdown, and a release names its mechanism."""
    odd = "![i](http://a) [b](http://c) **d** <b> `e` ~~f~~ g|h"
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(markdown(pl.DataFrame({odd: [odd]})))
    inline = [each for token in tokens for each in token.children or []]
    assert {each.type for each in inline} <= {"text", "text_special"}
    assert sum(odd in "".join(each.content for each in token.children or []) for token in tokens) == 2


def test_a_negative_number_of_users_is_refused() -> None:
    with pytest.raises(ValueError, match="recommendations must not be negative, got -1"):
        Trackers(recommendations=-1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wandb", "tensorboard", "csv"])
def test_an_overlay_adds_its_tracker(
    name: str, cli: Callable[..., ZooCLI], monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    if name == "tensorboard":
        pytest.importorskip("tensorboard", reason="TensorBoard is an extra: pip install 'cdr-zoo[trackers]'")
    monkeypatch.setenv("WANDB_MODE", "offline")
    extra = () if name == "csv" else ("--trackers.recommendations", "3", "--trackers.artifacts", "[releases]")
    run = cli("fit", *PROJECTED, "--config", OVERLAYS / f"{name}.yaml", *extra)
    kinds = {"wandb": WandbLogger, "tensorboard": TensorBoardLogger, "csv": CSVLogger}
    logger = next(one for one in run.trainer.loggers if isinstance(one, kinds[name]))
    assert (Path(str(run.trainer.log_dir)) / "metrics.csv").is_file()
    if isinstance(logger, WandbLogger):
        assert logger.experiment.config["privacy"]["book"]["epsilon"] == 8.0
        assert logger.experiment.project == "cdr-zoo"
        assert logger.experiment.summary["test/full/ndcg@10"] == pytest.approx(
            float(run.trainer.callback_metrics["test/full/ndcg@10"])
        )
        logger.experiment.finish()
    if isinstance(logger, TensorBoardLogger):
        assert list(Path(logger.log_dir).glob("events.*"))
        assert any("stores no files; releases stay in" in str(warning.message) for warning in recwarn)


def test_a_project_without_a_name_is_ours(cli: Callable[..., ZooCLI], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    cli("fit", *PROJECTED, "--trainer.fast_dev_run", "true")
    assert WandbLogger(offline=True)._project == "cdr-zoo"


def test_a_sweep_runs_what_its_agent_would(cli: Callable[..., ZooCLI], tmp_path: Path) -> None:
    """The command that an agent makes: the words of the file, with each parameter in the place of ``${args}``."""
    sweep = yaml.safe_load((ROOT / "configs" / "sweeps" / "pricdr.yaml").read_text())
    assert sweep["metric"] == {"name": "val/ndcg@10", "goal": "maximize"}
    assert sweep["program"] == "zoo", "an agent has no command of a sweep without a program"
    assert sweep["command"][:4] == ["${env}", "${interpreter}", "-m", "${program}"]
    released = cli("fit", *PROJECTED).trainer.log_dir
    words = [str(ROOT / word) if word.startswith("configs/") else word for word in sweep["command"][4:-1]]
    words = [str(Path(str(released)) / "releases" / "book") if word == "releases/book" else word for word in words]
    chosen = [f"--{name}={setting['min']}" for name, setting in sweep["parameters"].items()]
    tiny = [word for word in PROJECTED[2:] if word]
    tiny = tiny[: tiny.index("--publisher.num_components")] if "--publisher.num_components" in tiny else tiny
    run = cli(*words, *chosen, *tiny, "--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", str(tmp_path))
    assert run.model.lr == sweep["parameters"]["model.lr"]["min"]
    assert "val/ndcg@10" in (Path(str(run.trainer.log_dir)) / "metrics.csv").read_text().splitlines()[0]
