"""Every config, whole, through the command line on tiny data."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
import yaml

import zoo
from tests.tiny import arguments
from zoo.runs.cli import ZooCLI

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parent.parent
#: Grids, and settings that go behind another config.
NO_EXPERIMENTS = {"benchmarks", "overlays", "sweeps"}
CONFIGS = sorted(path for path in (ROOT / "configs").rglob("*.yaml") if not NO_EXPERIMENTS & {*path.parts})


def kind(config: Path) -> tuple[str, ...]:
    """What decides which code a config runs: its method, publisher and callbacks."""
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    parts = [settings["model"], settings.get("publisher") or {}, *settings["trainer"].get("callbacks", ())]
    return tuple(sorted(str(part.get("class_path")) for part in parts))


def scoring(config: Path) -> tuple[object, ...]:
    """What decides how a method is restored and scores."""
    method = getattr(zoo, yaml.safe_load(config.read_text(encoding="utf-8"))["model"]["class_path"].rpartition(".")[2])
    return method.batches, *sorted(method.accepted_releases), *sorted(method.scoring_needs), method.scores_cold_users


#: One config of each method.
FIRST = [config for config in CONFIGS if config == min(config.parent.glob("*.yaml"))]
#: One config of each kind of scoring recommends as well; contracts have `recommend` of every method.
PREDICTED = list({scoring(config): config for config in reversed(FIRST)}.values())
#: One config of each further kind is trained; the others differ in settings and data alone, and take a step.
KINDS = {kind(config): config for config in reversed(CONFIGS)} | {kind(config): config for config in FIRST}
TRAINED = [config for config in KINDS.values() if config not in PREDICTED]
OTHERS = [config for config in CONFIGS if config not in KINDS.values()]


def small(config: Path) -> list[str]:
    """Arguments that make a config tiny."""
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    parts = [part for part in ("model", "data", "publisher") if settings.get(part)]
    sizes = [word for part in parts for word in arguments(part, settings[part]["class_path"])]
    return [*sizes, "--trainer.max_epochs", "2" if config in PREDICTED else "1"]


def label(config: Path) -> str:
    return str(config.relative_to(ROOT / "configs"))


def trained(config: Path, cli: Callable[..., ZooCLI]) -> tuple[Path, dict[str, float]]:
    """The run folder of a config, which has all its files, and its test figures."""
    folder = Path(str(cli("fit", "--config", config, *small(config)).trainer.log_dir)).resolve()
    report = json.loads((folder / "metrics.json").read_text())
    assert 0 <= report["metrics"]["test/sampled/ndcg@10"] <= 1
    assert 0 <= report["metrics"]["test/full/hit_rate@10"] <= 1
    for name in ("config.yaml", "metrics.csv", "data.json", "privacy.json", "checkpoints/best.ckpt"):
        assert (folder / name).is_file(), name
    return folder, report["metrics"]


@pytest.mark.usefixtures("zoo_data")
@pytest.mark.parametrize("config", OTHERS, ids=label)
def test_a_config_takes_a_step(config: Path, cli: Callable[..., ZooCLI]) -> None:
    trainer = cli("fit", "--config", config, *small(config), "--trainer.fast_dev_run", "true").trainer
    assert trainer.fit_loop.epoch_loop.total_batch_idx == 0
    has_validation = bool(len(trainer.datamodule.validation.users))
    assert ("val/ndcg@10" in trainer.callback_metrics) == has_validation
    assert all(figure.isfinite() for figure in trainer.callback_metrics.values())


@pytest.mark.usefixtures("zoo_data")
@pytest.mark.parametrize("config", TRAINED, ids=label)
def test_a_config_trains_and_tests(config: Path, cli: Callable[..., ZooCLI], tmp_path: Path) -> None:
    folder, _ = trained(config, cli)
    assert folder.parent.parent == tmp_path / "runs"


@pytest.mark.usefixtures("zoo_data")
@pytest.mark.parametrize("config", PREDICTED, ids=label)
def test_a_config_trains_tests_and_predicts(config: Path, cli: Callable[..., ZooCLI], tmp_path: Path) -> None:
    folder, figures = trained(config, cli)
    best = folder / "checkpoints" / "best.ckpt"
    run = ("--config", folder / "config.yaml", "--ckpt_path", best)
    predicted = cli("predict", *run, "--recommendations.path", tmp_path / "best.parquet", "--data.top_k", 4)
    assert not any(predicted.trainer.predict_loop.predictions), "the file has them, and memory does not"
    Path(str(predicted.trainer.log_dir)).mkdir(parents=True, exist_ok=True)  # `predict` leaves no empty folder
    # `test` takes the same arguments and finds its inputs in the same way; one parse of them is enough.
    predicted.trainer.test(predicted.model, predicted.datamodule, ckpt_path=best, weights_only=True, verbose=False)
    again = predicted.trainer.callback_metrics
    for key, value in figures.items():
        if "pessimistic" in key:  # reported only where ties are many
            continue
        assert float(again[key]) == pytest.approx(value, abs=1e-6), key

    table, data = pl.read_parquet(tmp_path / "best.parquet"), predicted.datamodule
    assert table["user_id"].n_unique() == data.train.num_users
    assert set(table["item_id"]) <= set(data.train.item_ids)
    assert table.group_by("user_id").len()["len"].max() == 4
    known = data.read(data.target).select(pl.col("user_id", "item_id").cast(pl.String))
    assert table.join(known, on=["user_id", "item_id"], how="semi").is_empty()
    scores = table.group_by("user_id", maintain_order=True).agg(pl.col("score"))["score"].to_list()
    assert all(row == sorted(row, reverse=True) for row in scores)


def test_every_config_says_what_it_is() -> None:
    for config in (ROOT / "configs").rglob("*.yaml"):
        assert config.read_text(encoding="utf-8").startswith("# "), config
