"""What every exported method must do; a method is tested here by being exported."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import zoo
from datamodules import Evaluation, Frames, Synthetic
from tests.tiny import SIZES
from zoo import Recommender
from zoo.runs.optimization import own_training_reason
from zoo.testing import MethodContract
from zoo.testing.methods import HideTest, Trained
from zoo.testing.tiny import SYNTHETIC, publisher_for, trainer

ROOT = Path(__file__).parent.parent.parent
NAMES = sorted(zoo.METHODS)
#: What a contract needs of a method beside tiny sizes.
SETTINGS: dict[str, dict[str, Any]] = {
    "CFGAN": {"scheme": "ZP"},
    "FedGCDR": {"num_layers": 1},  # as many as the release has
    "NeuMF": {"dropout": 0.1},
    # A tolerance that is out of reach in so few iterations.
    "OneBitMC": {"tau": 20.0, "tolerance": 1e-12, "max_iterations": 9},
    # A private training draws from the operating system and cannot be repeated.
    "SPPG": {
        "mechanism": "none", "steps": 100, "sample_size": 8, "n_critic": 2, "condition_dim": 4,
        "generator_dims": (8,), "critic_dims": (8, 4),
    },
}  # fmt: skip
#: Whose weights are all that they score by; the others read ratings, or a release.
SCORES_ALONE = {"BPR", "IALS", "LowRank", "NeuMF", "OneBitMC", "Popularity", "RecentPopularity", "SPPG", "GANMF"}


def tiny_method(name: str) -> Recommender:
    made: Recommender = getattr(zoo, name)(**SIZES.get(name, {}) | SETTINGS.get(name, {}))
    return made


class TestEveryMethod(MethodContract):
    @pytest.fixture(params=NAMES, scope="class")
    @classmethod
    def new_method(cls, request: pytest.FixtureRequest) -> Callable[[], Recommender]:
        return partial(tiny_method, request.param)

    def check_needs(self, name: str, needs: str) -> None:
        assert bool(needs) == (name not in SCORES_ALONE)


for dear in (
    MethodContract.test_a_resumed_run_equals_an_unbroken_one,
    MethodContract.test_scores_of_given_items_are_those_of_all_items,
    MethodContract.test_a_loaded_run_recommends_what_predict_does,
    MethodContract.test_users_without_history_are_ranked,
):
    pytest.mark.thorough(dear)


class Peeks(zoo.BPR):
    def read_data(self, data: Any) -> None:  # noqa: ANN401
        super().read_data(data)
        self.answers = data.test.items


def test_a_method_that_reads_the_answers_is_noticed(tmp_path: Path) -> None:
    data, hidden = Synthetic(**SYNTHETIC, sources=[]), HideTest()
    with pytest.raises(AssertionError, match=r"Training reads data\.test"):
        trainer(tmp_path, hidden).fit(Peeks(num_factors=4), datamodule=data)
    assert type(data) is Synthetic
    again = Synthetic(**SYNTHETIC, sources=[])
    trainer(tmp_path / "fair", hidden, epochs=1).fit(zoo.BPR(num_factors=4), datamodule=again)
    assert len(again.test.items), "given back"


class Counts(zoo.BPR):
    logs = frozenset({"train/positive"})

    def step(self, batch: Any) -> Any:  # noqa: ANN401
        self.log("train/positive", 1.0)
        return super().step(batch)


def test_a_method_that_logs_in_its_steps_keeps_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method, data, run = Counts(num_factors=4), Synthetic(**SYNTHETIC, sources=[]), trainer(tmp_path, epochs=1)
    run.fit(method, datamodule=data)
    TestEveryMethod().test_exposed_tensors_are_returned(Trained(method, data, run, tmp_path), monkeypatch)
    assert float(run.callback_metrics["train/positive"]) == 1


def test_a_method_without_a_step_size_is_not_run_in_vain(tmp_path: Path) -> None:
    method = zoo.BPR(num_factors=4)
    method.lr = None
    assert own_training_reason(method) == "has no lr, which training needs"
    with pytest.raises(ValueError, match=r"BPR has no lr, so nothing would be trained\. Set self\.lr in __init__"):
        trainer(tmp_path).fit(method, datamodule=Synthetic(**SYNTHETIC, sources=[]))


def shop(items: str) -> pl.DataFrame:
    """Twenty users of a shop with ten items. Two of them have all items."""
    rows = [(f"u{u}", f"{items}{(3 * u + n) % 10}", 1.0, n) for u in range(20) for n in range(10 if u < 2 else 4)]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:The release of ", "ignore:trainer.max_epochs is 2")
def test_a_shop_of_ten_items_is_trained_on_with_sources_of_any_name(tmp_path: Path) -> None:
    """Users with every item have no negative. torch refuses dots and its own words as names of modules."""
    sources = {"books.v2": shop("b"), "items": shop("c"), "train": shop("d")}
    quiet: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False, "max_epochs": 2}
    for method in (tiny_method(name) for name in NAMES if name != "OneBitMC"):
        reads = method.accepted_releases
        publisher = publisher_for(reads - {"map"})
        if reads == {"map"}:
            publisher = zoo.BridgePublisher(
                epsilon=8.0, kept_items=5, projections=zoo.ProjectionPublisher(num_directions=3)
            )
        evaluation = Evaluation("latest2" if method.reads_times else "none")
        data = Frames(shop("a"), sources if reads else None, evaluation=evaluation)
        run = zoo.fit(method, data, publisher=publisher, runs=tmp_path, **quiet)
        full = "2 of 20 users have all 10 items in training. They are left out of negative sampling."
        assert (full in data.summary["remarks"]) == (not method.reads_times)
        assert zoo.load(run, data=data).recommend(["u5"], k=1).height == 1


def test_every_method_has_a_page_and_a_config() -> None:
    configs = "".join(path.read_text() for path in (ROOT / "configs").rglob("*.yaml"))
    pages = {path.stem for path in (ROOT / "docs" / "methods").glob("*.md")}
    assert not {zoo.METHODS[name].split(".")[2] for name in NAMES} - pages
    assert not [name for name in NAMES if f"class_path: {name}\n" not in configs]
