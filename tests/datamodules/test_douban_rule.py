"""The Douban Book and Music sample, rebuilt from the raw ratings: the same rows as the published one."""

import os
from pathlib import Path

import polars as pl
import pytest

from datamodules.candidates import candidates
from datamodules.filters import rebuild_douban
from datamodules.splits import given
from datamodules.tables import find_table, read_negatives, read_table
from zoo.data.ratings import Ratings

ROOT = Path(os.environ.get("ZOO_DATA", "."))
pytestmark = pytest.mark.skipif(
    not all((ROOT / name).is_dir() for name in ("douban", "douban-book-music")),
    reason="ZOO_DATA names no folder with douban and douban-book-music",
)


def triples(table: pl.DataFrame) -> set[tuple[str, str, float]]:
    return set(table.select("user_id", "item_id", "rating").iter_rows())


def test_the_rule_gives_the_published_rows() -> None:
    rebuilt = rebuild_douban(*(read_table(find_table(ROOT / "douban", name)) for name in ("book", "music")))
    for name, table, items, rows in zip(("book", "music"), rebuilt, (3916, 4228), (50429, 50157), strict=True):
        published = read_table(find_table(ROOT / "douban-book-music", name))
        assert (table["user_id"].n_unique(), table["item_id"].n_unique(), table.height) == (924, items, rows)
        assert triples(table) == triples(published)


@pytest.mark.parametrize("name", ["book", "music"])
def test_the_published_split_and_negatives_fit(name: str) -> None:
    folder = ROOT / "douban-book-music"
    table, validation, test = (read_table(find_table(folder, name + part)) for part in ("", "_valid", "_test"))
    split = given(table, validation, test, seed=0)
    assert (split.train.height, split.validation.height, split.test.height) == (table.height - 2 * 924, 924, 924)
    train = Ratings.from_table(split.train, table["user_id"].unique().sort(), table["item_id"].unique().sort())
    cases = candidates(train, split, seed=0, negatives=read_negatives(find_table(folder, f"{name}_negatives")))
    assert cases.test.candidates.shape == (924, 99)
    assert (cases.test.candidates >= 0).all()
