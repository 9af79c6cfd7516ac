"""Runs and bundles of earlier versions load, and recommend what they did there.

Each folder of ``made_by`` holds what that version wrote, and ``recommended.csv``, which its command ``predict`` wrote.
"""

from pathlib import Path

import polars as pl
import pytest

import zoo
from zoo.runs.predictor import DataNotAvailableError, NotHeldError

MADE_BY = Path(__file__).parent / "made_by"


@pytest.fixture(autouse=True)
def beside_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The configs name the ratings relative to this folder."""
    monkeypatch.chdir(MADE_BY)


@pytest.mark.parametrize("path", ["v0_2/run", "v0_3/run", "v0_3/bundle"])
def test_what_an_earlier_version_made_recommends_the_same(path: str) -> None:
    expected = pl.read_csv(Path(path).parent / "recommended.csv")
    users = expected["user_id"].unique(maintain_order=True).to_list()
    releases = {"book": Path("v0_3/run/releases/book")} if path.endswith("bundle") else None
    found = zoo.load(path, releases=releases).recommend(users, k=3)
    assert found.drop("score").equals(expected.drop("score"))
    assert found["score"].to_numpy() == pytest.approx(expected["score"].to_numpy(), abs=1e-5)


def test_a_method_is_refused_that_needs_what_is_missing() -> None:
    assert NotHeldError is DataNotAvailableError
    with pytest.raises(DataNotAvailableError, match="PriCDR scores by the releases that it was trained on"):
        zoo.load("v0_3/bundle").recommend(["u00"])
