"""RecentPopularity: counts of the latest ratings, with a window that validation chooses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import zoo
from datamodules import Evaluation
from datamodules.cache import PreparedTarget
from tests.datamodules.handmade import Held
from zoo.data.item_scores import DEFAULT_WINDOW, WINDOWS, recent_popularity

pytestmark = pytest.mark.usefixtures("cli")  # runs are in a folder of the test
QUIET: dict[str, Any] = {"max_epochs": 1, "enable_progress_bar": False, "accelerator": "cpu"}


def trends(users: int = 80, items: int = 40, times: bool = True, **evaluation: object) -> Held:
    """Each item is in fashion for a while: most ratings of a moment are of few items."""
    rng, rows = np.random.default_rng(0), {}
    for user in range(users):
        for when in rng.uniform(0, 1, 8):
            item = int(when * items + rng.normal(0, 2)) % items
            rows[f"u{user}", f"i{item}"] = (1.0, int(1e9 + when * 1e8) if times else None)
    table = pl.DataFrame(
        [(*pair, *rest) for pair, rest in rows.items()],
        schema=["user_id", "item_id", "rating", "timestamp"],
        orient="row",
    )
    settings = {"split": "latest2", "num_candidates": 20} | evaluation
    return Held({"b": table}, sources=(), evaluation=Evaluation(**settings))  # type: ignore[arg-type]


def test_scores_order_items_by_their_latest_ratings_and_then_by_all() -> None:
    """A loop over ratings; the window takes every rating of its first time, whatever the order of rows."""
    data = trends()
    data.read_target()
    train = data.train
    assert train.times is not None
    each = sorted(zip(train.times.tolist(), train.matrix.indices.tolist(), strict=True), reverse=True)
    for window in (1.0, 0.3, 1 / 1024):
        start = each[max(int(np.ceil(window * len(each))), 1) - 1][0]
        recent, every = (
            [sum(item == at and time >= since for time, item in each) for at in range(train.num_items)]
            for since in (start, 0)
        )
        found = recent_popularity(train, window).tolist()
        for one in range(train.num_items):
            for other in range(train.num_items):
                key, its = (recent[one], every[one]), (recent[other], every[other])
                assert np.sign(found[one] - found[other]) == (key > its) - (key < its)


@pytest.mark.thorough
@pytest.mark.parametrize("split", ["latest2", "latest1"])
def test_a_run_chooses_its_window_on_validation_and_is_its_reference(split: str) -> None:
    data, method = trends(split=split), zoo.RecentPopularity()
    run = zoo.fit(method, data, **QUIET)
    reached = {}
    for window in WINDOWS if split == "latest2" else ():
        other = zoo.fit(zoo.RecentPopularity(window=window), trends(split=split), **QUIET)
        reached[window] = float(other.trainer.callback_metrics["val/ndcg@10"])
    assert float(method.chosen_window) == (max(reached, key=reached.__getitem__) if reached else DEFAULT_WINDOW)
    assert 0 < float(run.trainer.logged_metrics["train/window_days"]) < 1e8 / 86_400


def test_ratings_without_times_are_refused_by_name() -> None:
    for data in (trends(split="random2"), trends(times=False)):
        with pytest.raises(ValueError, match=r"have no times\. .* or use Popularity\."):
            zoo.fit(zoo.RecentPopularity(), data, **QUIET)


def test_times_stay_with_their_ratings_and_out_of_digests_and_publications(tmp_path: Path) -> None:
    data = trends()
    data.read_target()
    train, rows = (
        data.train,
        {(row["user_id"], row["item_id"]): row["timestamp"] for row in data.tables["b"].to_dicts()},
    )
    PreparedTarget(train, data.validation, data.test, {}).save(tmp_path / "cache")
    cached = PreparedTarget.load(tmp_path / "cache", train.applied)
    assert cached is not None
    for found in (train, cached.train, train.with_users(["new"])):
        users, items = found.pairs()
        assert found.times is not None
        assert found.times.tolist() == [
            rows[pair] for pair in zip(found.user_ids[users], found.item_ids[items], strict=True)
        ]
    assert train.digest() == replace(train, times=None).digest()
    assert Held({"a": data.tables["b"], "b": data.tables["b"]}).source("a").times is None
    with pytest.raises(ValueError, match="times has 1 entries"):
        replace(train, times=train.times[:1])  # type: ignore[index]
