"""Restaurant: two stars of two are +1, and a fifth of each customer's ratings is the test."""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from datamodules import Restaurant


def test_two_stars_are_positive(zoo_data: Path) -> None:
    data = Restaurant(seed=0)
    data.read_target()
    rated = pl.read_csv(zoo_data / "rc" / "ratings.csv")
    kept, held = data.train.matrix.data, data.test.ratings.numpy()
    assert len(kept) + len(held) == rated.height == 180
    assert int((kept > 0).sum() + (held > 0).sum()) == int((rated["rating"] == 2).sum())
    assert len(held) == 20  # of nine ratings each, a fifth rounded down
    assert len(data.validation.users) == 0


@pytest.mark.usefixtures("zoo_data")
def test_the_test_changes_with_the_seed() -> None:
    digests = []
    for seed in (0, 0, 1):
        data = Restaurant(seed=seed)
        data.read_target()
        digests.append(data.digests)
    assert digests[0] == digests[1] != digests[2]


def test_the_real_counts() -> None:
    folder = Path(os.environ.get("ZOO_DATA", "data")) / "rc"
    if not (folder / "ratings.csv.gz").is_file():
        pytest.skip(f"restaurant ratings are not in {folder}")
    data = Restaurant(root=folder, seed=0)
    data.read_target()
    signs = np.concatenate([data.train.matrix.data, data.test.ratings.numpy()])
    assert (len(signs), int((signs > 0).sum())) == (1161, 486)
    assert data.train.num_users == 138
    assert data.train.num_items == 130
    assert 0.15 < len(data.test.users) / 1161 < 0.21


def test_where_to_get_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No ratings of 'ratings'.*archive.ics.uci.edu \(dataset 232\)"):
        Restaurant(root=tmp_path).read_target()
