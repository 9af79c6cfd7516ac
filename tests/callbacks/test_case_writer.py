"""CaseWriter: what is known of every held-out case, beside the means over them."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest
import torch
import yaml
from polars.testing import assert_frame_equal

from callbacks import CaseWriter
from tests.quickstart import PROJECTED, TINY
from zoo import Release
from zoo.runs.cli import ZooCLI
from zoo.runtime.run_folder import CASES

pytestmark = pytest.mark.thorough

KNOWN = {"user_id": pl.String, "item_id": pl.String, "train_items": pl.Int64, "linked": pl.Boolean}

Command = Callable[..., ZooCLI]


def fit(cli: Command, *arguments: object) -> tuple[Any, Path]:
    """A run's data and folder."""
    done = cli("fit", *PROJECTED, *arguments)
    return done.datamodule, Path(str(done.trainer.log_dir))


def figures(folder: Path) -> dict[str, float]:
    metrics: dict[str, float] = json.loads((folder / "metrics.json").read_text())["metrics"]
    return {key.removeprefix("test/"): value for key, value in metrics.items() if "pessimistic" not in key}


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--data.evaluation.split", "cold_start"),
        ("--data.evaluation.split", "ratio", "--data.evaluation.shares", "[0.3, 0.2, 0.5]"),
        ("--data.evaluation.num_candidates", "0"),
        ("--data.evaluation.full_ranking", "false", "--data.evaluation.ties", "pessimistic"),
        ("--data.evaluation_batch_size", "5", "--data.evaluation.ks", "[1, 10]"),
    ],
)
def test_there_is_one_row_for_each_case_and_their_means_are_figures(cli: Command, arguments: tuple[str, ...]) -> None:
    data, folder = fit(cli, *arguments)
    cases, means = pl.read_parquet(folder / CASES), figures(folder)
    assert len(cases) == len(data.test.users) > 1
    assert cases.rows() == sorted(cases.rows())
    assert cases["user_id"].is_duplicated().any() == ("ratio" in arguments)
    of_all = {name for name in means if any(word in name for word in ("coverage", "gini", "user_ndcg"))}
    ranks = [f"{kind}/{counted}" for kind in {name.split("/")[0] for name in means} for counted in ("above", "level")]
    figured = means.keys() - of_all
    assert {**cases.schema} == KNOWN | dict.fromkeys(figured, pl.Float32) | dict.fromkeys(ranks, pl.Int32)
    for name in figured:
        assert cases[name].cast(pl.Float64).mean() == pytest.approx(means[name], rel=1e-6, abs=1e-6), name
        assert (
            cases[name]
            .is_between(0, len(data.train.user_ids) if "arp" in name else 6 if "novelty" in name else 1)
            .all()
        )
    assert bool(of_all) == any(name.startswith("full/") for name in means)
    assert all(0 <= means[name] <= 1 for name in of_all)
    assert not list(folder.glob(".*"))


def test_cases_are_named_by_the_targets_own_ids(cli: Command) -> None:
    data, folder = fit(cli)
    cases = pl.read_parquet(folder / CASES)
    pairs = list(zip(cases["user_id"], cases["item_id"], strict=True))
    train = data.train
    tested = zip(data.test.users.tolist(), data.test.items.tolist(), strict=True)
    assert pairs == sorted((str(train.user_ids[user]), str(train.item_ids[item])) for user, item in tested)
    observed = set(data.read("music").select("user_id", "item_id").iter_rows())
    assert set(pairs) <= observed
    row_of = {user: row for row, user in enumerate(train.user_ids)}
    column_of = {item: column for column, item in enumerate(train.item_ids)}
    assert not any(train.matrix[row_of[user], column_of[item]] for user, item in pairs), "no case was trained on"


def test_any_release_with_a_row_links_a_user(cli: Command) -> None:
    sources = ("--data.sources", '["book", "film"]', "--data.missing_users", "zero", "--data.overlap", "0.25")
    _, folder = fit(cli, *sources)
    known = {user for name in ("book", "film") for user in Release.load(folder / "releases" / name).user_ids}
    cases = pl.read_parquet(folder / CASES)
    assert cases["linked"].to_list() == [user in known for user in cases["user_id"]]
    assert 0 < cases["linked"].sum() < len(cases)


@pytest.mark.parametrize(
    "arguments",
    [("--model", "DMF", "--model.dims", "[8, 4]"), ("--publisher", "Nothing")],
    ids=["none read", "of nobody"],
)
def test_nobody_is_linked_without_a_release(cli: Command, arguments: tuple[str, ...]) -> None:
    done = cli("fit", *TINY, *arguments)
    assert not pl.read_parquet(Path(str(done.trainer.log_dir)) / CASES)["linked"].any()


def test_testing_the_checkpoint_again_gives_the_same_cases(
    cli: Command, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    again = cli("test", "--config", finished / "config.yaml", "--ckpt_path", finished / "checkpoints" / "best.ckpt")
    folder = Path(str(again.trainer.log_dir))
    assert_frame_equal(pl.read_parquet(folder / CASES), pl.read_parquet(finished / CASES))
    assert yaml.safe_load((folder / "config.yaml").read_text())["model"]["class_path"] == "zoo.PriCDR"
    assert f"Metrics: {folder}" in capsys.readouterr().out


def test_cases_of_two_methods_can_be_compared_row_by_row(cli: Command, finished: Path) -> None:
    other = Path(str(cli("fit", *TINY, "--publisher", "Plaintext").trainer.log_dir))
    ours, theirs = (pl.read_parquet(path / CASES) for path in (finished, other))
    assert_frame_equal(ours.select(list(KNOWN)), theirs.select(list(KNOWN)))


def test_cases_of_all_processes_are_gathered_and_each_test_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gathered(parts: list[list[pl.DataFrame]], own: list[pl.DataFrame]) -> None:
        parts[:] = [[*own], [table.with_columns(user_id=pl.lit("another's")) for table in own]]

    monkeypatch.setattr(torch.distributed, "all_gather_object", gathered)
    train = SimpleNamespace(user_ids=np.array(["u", "v"]), item_ids=np.array(["i", "j", "k"]))
    trainer: Any = SimpleNamespace(datamodule=SimpleNamespace(train=train), world_size=2, is_global_zero=True)
    writer, method = CaseWriter(), Mock()
    writer._folder = tmp_path
    for figure in (0.25, 0.5):
        outputs = {"users": torch.tensor([1]), "items": torch.tensor([2]), "full/ndcg@10": torch.tensor([figure])}
        writer.on_test_start(trainer, method)
        writer.on_test_batch_end(trainer, method, outputs, None, 0)
        writer.on_test_end(trainer, method)
        assert pl.read_parquet(tmp_path / CASES).rows() == [("another's", "k", figure), ("v", "k", figure)]


def test_nothing_is_written_without_a_run_folder(cli: Command, tmp_path: Path) -> None:
    cli("fit", *TINY, "--trainer.logger", "false")
    assert not list(tmp_path.rglob(CASES))
