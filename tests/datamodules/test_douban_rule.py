"""The Douban Book and Music sample, rebuilt from the raw ratings: the same rows as the published one."""

import os
from pathlib import Path

import polars as pl
import pytest

from datamodules.candidates import candidates
from datamodules.filters import common_users, filter_counts
from datamodules.protocol import Evaluation
from datamodules.splits import given
from datamodules.tables import find_table, read_negatives, read_table
from tests.datamodules.handmade import table_of
from zoo.data.ratings import Ratings

ROOT = Path(os.environ.get("ZOO_DATA", "."))
real = pytest.mark.skipif(
    not all((ROOT / name).is_dir() for name in ("douban", "douban-book-music")),
    reason="ZOO_DATA names no folder with douban and douban-book-music",
)


def rebuilt(book: pl.DataFrame, music: pl.DataFrame) -> list[pl.DataFrame]:
    """The sample of PriCDR (Chen et al. 2022, table 3) from the ratings of GA-DTCDR, which stay 3 to 5.

    Ratings of at least 3; users with at least 6 of them in each domain; items with at least 6 among these users; once.
    """
    tables = {"book": book.filter(pl.col("rating") >= 3), "music": music.filter(pl.col("rating") >= 3)}
    users = common_users(tables, 6)
    return [filter_counts(table, 6, 6, users) for table in tables.values()]


def triples(table: pl.DataFrame) -> set[tuple[str, str, float]]:
    return set(table.select("user_id", "item_id", "rating").iter_rows())


def test_the_douban_rule_in_small() -> None:
    # Six people with the same six items in both domains pass; one with five good ratings in Music does not.
    people, items = [f"u{n}" for n in range(7)], [f"i{n}" for n in range(6)]
    rows = [(user, item) for user in people for item in items] + [("u0", "rare")]
    book = table_of(rows, ratings=[4.0] * len(rows))
    music = table_of(rows, ratings=[2.0 if row == ("u6", "i0") else 3.0 for row in rows])
    kept_book, kept_music = rebuilt(book, music)
    assert set(kept_book["user_id"]) == set(people[:6])
    assert (kept_book.height, kept_music.height) == (36, 36)
    assert (set(kept_book["rating"]), set(kept_music["rating"])) == ({4.0}, {3.0})


@real
def test_the_rule_gives_the_published_rows() -> None:
    tables = rebuilt(*(read_table(find_table(ROOT / "douban", name)) for name in ("book", "music")))
    for name, table, items, rows in zip(("book", "music"), tables, (3916, 4228), (50429, 50157), strict=True):
        published = read_table(find_table(ROOT / "douban-book-music", name))
        assert (table["user_id"].n_unique(), table["item_id"].n_unique(), table.height) == (924, items, rows)
        assert triples(table) == triples(published)


@real
@pytest.mark.parametrize("name", ["book", "music"])
def test_the_published_split_and_negatives_fit(name: str) -> None:
    folder = ROOT / "douban-book-music"
    table, validation, test = (read_table(find_table(folder, name + part)) for part in ("", "_valid", "_test"))
    split = given(table, validation, test, seed=0)
    assert (split.train.height, split.validation.height, split.test.height) == (table.height - 2 * 924, 924, 924)
    train = Ratings.from_table(split.train, table["user_id"].unique().sort(), table["item_id"].unique().sort())
    cases = candidates(train, split, Evaluation(), 0, read_negatives(find_table(folder, f"{name}_negatives")))
    assert cases.test.candidates.shape == (924, 99)
    assert (cases.test.candidates >= 0).all()
