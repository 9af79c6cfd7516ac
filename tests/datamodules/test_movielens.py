"""MovieLens100K: the first split of the data's own, and the counts of the real files where they are."""

import os
from pathlib import Path

import polars as pl
import pytest

from datamodules import Evaluation, Filters, MovieLens100K
from datamodules.filters import binarise

U1 = Evaluation(split="given")
PAIR = ["user_id", "item_id"]


def test_the_first_split_is_taken_as_it_is(zoo_data: Path) -> None:
    data = MovieLens100K(evaluation=U1, filters=Filters(threshold=3.5, signs=True))
    data.read_target()
    held = pl.read_csv(zoo_data / "ml-100k" / "u1_test.csv")
    rated = pl.read_csv(zoo_data / "ml-100k" / "ratings.csv")
    signs = {(u, i): 1.0 if r >= 3.5 else -1.0 for u, i, r, _ in rated.iter_rows()}
    users, items = data.train.user_ids, data.train.item_ids
    cases = zip(data.test.users.tolist(), data.test.items.tolist(), data.test.ratings.tolist(), strict=True)
    tested = {(str(users[u]), str(items[i])): sign for u, i, sign in cases}
    assert tested.keys() == set(held.select(PAIR).iter_rows())
    rows, columns = data.train.pairs()
    kept = {
        (str(users[u]), str(items[i])): float(sign)
        for u, i, sign in zip(rows, columns, data.train.matrix.data, strict=True)
    }
    assert tested | kept == signs
    assert not tested.keys() & kept.keys()
    assert len(data.validation.users) == 0
    assert data.signs


def test_without_the_file_of_the_split_it_is_refused(zoo_data: Path, tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text((zoo_data / "ml-100k" / "ratings.csv").read_text())
    data = MovieLens100K(root=tmp_path, evaluation=U1)
    with pytest.raises((ValueError, FileNotFoundError), match=r"given"):
        data.read_target()
    MovieLens100K(root=tmp_path).read_target()


def test_where_to_get_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No ratings of 'ratings'.*grouplens.org/datasets/movielens/100k/"):
        MovieLens100K(root=tmp_path).read_target()


def test_the_real_split() -> None:
    folder = Path(os.environ.get("ZOO_DATA", "data")) / "ml-100k"
    if not (folder / "u1_test.csv.gz").is_file():
        pytest.skip(f"MovieLens 100K is not in {folder}")
    once = Evaluation(split="given", num_candidates=1)
    data = MovieLens100K(root=folder, evaluation=once, filters=Filters(threshold=3.5, signs=True))
    data.read_target()
    assert (data.train.num_users, data.train.num_items) == (943, 1682)
    assert (data.train.num_ratings, len(data.test.users)) == (80_000, 20_000)
    positive = int((data.train.matrix.data > 0).sum()) + int((data.test.ratings > 0).sum())
    assert positive == 55_375
    assert round((data.train.matrix.data > 0).mean(), 3) == 0.552
    whole = data.read("ratings")
    assert binarise(whole, "mean", signs=True).equals(binarise(whole, 3.5, signs=True))
    own = pl.read_csv(folder / "u1_train.csv.gz") if (folder / "u1_train.csv.gz").is_file() else None
    if own is not None:
        assert own.height == 80_000
        rows, columns = data.train.pairs()
        pairs = set(zip(data.train.user_ids[rows].tolist(), data.train.item_ids[columns].tolist(), strict=True))
        assert pairs == {(str(u), str(i)) for u, i in own.select(PAIR).iter_rows()}
