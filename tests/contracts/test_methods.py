"""What every exported method must do; a method is tested here by being exported."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import zoo
from tests.tiny import SIZES
from zoo import Recommender
from zoo.testing import MethodContract

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


def test_every_method_has_a_page_and_a_config() -> None:
    configs = "".join(path.read_text() for path in (ROOT / "configs").rglob("*.yaml"))
    pages = {path.stem for path in (ROOT / "docs" / "methods").glob("*.md")}
    assert not {zoo.METHODS[name].split(".")[2] for name in NAMES} - pages
    assert not [name for name in NAMES if f"class_path: {name}\n" not in configs]
