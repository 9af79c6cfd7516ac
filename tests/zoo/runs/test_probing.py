"""Probes: a planted leak is named and a clean protocol names nothing."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from scipy.sparse import csr_array

import zoo
from datamodules import Evaluation
from tests.datamodules.handmade import Held
from zoo.commands.data.command import main
from zoo.data.ratings import Ratings
from zoo.runs.probing import _id_order, mean_and_error, verdict_of_run


def protocol(leak: str = "", seed: int = 0, users: int = 120, items: int = 60) -> Held:
    """Users with eight random items of a long tail; each leak makes the latest two items those that a rule points to."""
    rng, rows = np.random.default_rng(seed), []
    odds = 1 / np.arange(5, 5 + items)
    numbers = rng.permutation(1000)[:items]
    for user in range(users):
        own = rng.choice(items, 8, replace=False, p=odds / odds.sum())
        times = {"largest id": numbers, "smallest id": -numbers}.get(leak, rng.permutation(items))[own]
        rows += [(f"u{user}", str(numbers[item]), 1.0, int(time)) for item, time in zip(own, times, strict=True)]
    table = pl.DataFrame(rows, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")
    return Held(
        {"b": table.sample(fraction=1.0, shuffle=True, seed=seed)},
        sources=(),
        evaluation=Evaluation("latest2", num_candidates=30),
    )


@pytest.mark.parametrize("leak", ["largest id", "smallest id", ""])
def test_a_planted_leak_is_named_and_a_clean_split_is_not(leak: str) -> None:
    """Ids are numbers of several lengths. Of the three clean protocols one is named with probability below .003."""
    for seed in range(1 if leak else 3):
        found = zoo.probe(protocol(leak, seed))
        assert (leak in found.named) if leak else not found.named
        rows = found.rules.rows_by_key("rule", named=True, unique=True)
        assert rows["chance"]["sampled/hit_rate@10"] == pytest.approx(10 / 31, abs=1e-9)
        assert (rows["smallest id"]["full/t"] > 3) == (leak == "smallest id")
        assert found.verdict.endswith("no trivial rule beats Popularity in NDCG@10.") != bool(found.named)


def test_rules_that_need_times_are_left_out_with_a_reason_and_few_users_name_nothing() -> None:
    data = protocol("largest id")
    data.tables = {"b": data.tables["b"].sort("timestamp").with_columns(timestamp=pl.lit(None, pl.Int64))}
    found = zoo.probe(data)
    assert {*found.missing} == {"most recent item", "recent popularity"}
    assert found.missing["most recent item"].endswith("training rows have no time")
    assert {"first row", "last row", "largest id"} <= {*found.rules["rule"]}
    assert found.window is None
    few = protocol("largest id", users=20)
    assert "too few" in zoo.probe(few).verdict
    assert not zoo.probe(few).named
    ids = Ratings(csr_array(np.ones((1, 2))), np.array(["u"]), np.array(["10", "9"]))
    assert _id_order(ids).tolist() == [1, 0], "by number"
    assert (
        zoo.probe(few.tables["b"].to_pandas()).verdict == zoo.probe(few.tables["b"]).verdict
    )  # a table has default settings


def test_the_error_is_that_of_means_of_users() -> None:
    """Two cases of each user with equal values are one observation."""
    once, users = torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0]), torch.arange(5)
    mean, error = mean_and_error(once.repeat(2), users.repeat(2))
    assert mean == pytest.approx(0.6)
    assert error == pytest.approx(np.std([1, 0, 0, 1, 1], ddof=1) / np.sqrt(5))


@pytest.mark.thorough
def test_the_command_prints_what_python_returns_and_a_report_its_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "model: {class_path: Popularity}\ndata: {class_path: Synthetic, init_args: {num_users: 60, num_items: 40}}\n"
    )
    main(["probe", "--config", str(config), "--data.evaluation.split", "random2", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert [row["rule"] for row in printed["rules"]][:2] == ["unknown first", "largest id"]
    assert printed["split"] == "random2"
    main(["probe", "--config", str(config)])
    shown = capsys.readouterr().out
    assert "Probes: target music, split latest2" in shown
    assert verdict_of_run(tmp_path).split(":")[0] == "Probes (failure probability 0.001)"
    config.write_text(
        "model: {class_path: Popularity}\ndata: {class_path: Amazon, init_args: {target: nothing, root: none}}\n"
    )
    assert verdict_of_run(tmp_path).endswith("not available here.")
