"""Frames: tables in memory count as the same rows in a file do, and results come back in the caller's kind."""

import shutil
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import zoo
from datamodules import Evaluation, Files, Frames
from zoo.runs.inputs import UsageError

#: By kind of table, how polars makes it.
KINDS: dict[str, Callable[[pl.DataFrame], Any]] = {
    "polars": lambda table: table,
    "lazy": lambda table: table.lazy(),
    "pandas": lambda table: table.to_pandas(),
    "arrow": lambda table: table.to_arrow(),
}
COLUMNS: dict[str, dict[str, str | None]] = {"books": {"user": "reader", "rating": None, "timestamp": "when"}}
QUIET: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False, "max_epochs": 1}


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest) -> Callable[[pl.DataFrame], Any]:
    if request.param in ("pandas", "arrow"):
        pytest.importorskip("pandas")
        pytest.importorskip("pyarrow")
    return KINDS[request.param]


def rows(prefix: str, users: int = 20, seed: int = 0) -> pl.DataFrame:
    """Ratings of integer users, some repeated, with items that have blanks around them."""
    rng = np.random.default_rng(seed)
    size = (users, 8)
    return pl.DataFrame(
        {
            "user_id": np.repeat(np.arange(users), 8),
            "item_id": [f" {prefix}{item} " for item in rng.integers(12, size=size).ravel()],
            "rating": rng.integers(1, 6, size=size).ravel() / 2,
            "timestamp": rng.integers(1000, size=size).ravel(),
        }
    )


@pytest.mark.thorough
def test_a_table_counts_as_the_same_rows_in_a_file(made: Callable[[pl.DataFrame], Any], tmp_path: Path) -> None:
    table, pair = rows("t"), ["user_id", "item_id"]
    every = table.select("user_id").unique().join(table.select("item_id").unique(), how="cross").sort(pair)
    tables = {"target": table, "target_test": table.group_by("user_id").first().sort("user_id")}
    tables["target_negatives"] = every.join(table, on=pair, how="anti")
    tables["books"] = rows("b", seed=1).select(reader="user_id", item_id="item_id", when="timestamp")
    for name, one in tables.items():
        one.write_csv(tmp_path / f"{name}.csv")
    settings: dict[str, Any] = {"columns": COLUMNS, "seed": 4}
    further = {name: made(tables[name]) for name in ("target_test", "target_negatives")}
    for split in ("given", "latest2"):
        settings["evaluation"] = Evaluation(split, num_candidates=5)
        file = Files("x", "target", ["books"], root=tmp_path, **settings)
        frames = Frames(made(tables["target"]), {"books": made(tables["books"])}, further=further, **settings)
        published = [zoo.Plaintext().publish(data.source("books"), "books") for data in (file, frames)]
        assert published[0].digest == published[1].digest
        assert published[0].record == published[1].record
        for data in (file, frames):
            data.read_target()
        assert file.digests == frames.digests
        assert file.test.candidates.tolist() == frames.test.candidates.tolist()


@pytest.mark.thorough
def test_a_table_is_trained_on_and_results_are_of_its_kind(made: Callable[[pl.DataFrame], Any], tmp_path: Path) -> None:
    table = made(rows("t"))
    run = zoo.fit(zoo.Popularity(), table, runs=tmp_path, **QUIET)
    with pytest.raises(UsageError, match=r"has no test cases. Call test\(\) first"):
        run.test_cases()
    run.test()
    users = made(pl.DataFrame({"id": [3, 1]}))
    found = zoo.load(run, data=table).recommend([3, 1] if isinstance(users, pl.LazyFrame) else users["id"], k=2)
    every, cases = run.predict(2), run.test_cases()
    kind = pl.DataFrame if isinstance(table, pl.LazyFrame) else type(table)
    assert [type(result) for result in (found, every, cases)] == [kind] * 3
    found, every, cases = (pl.DataFrame(result) for result in (found, every, cases))
    assert found["user_id"].to_list() == [3, 3, 1, 1]
    assert (every.height, every["user_id"].dtype, cases["user_id"].n_unique()) == (40, pl.Int64, 20)
    assert every.filter(pl.col("user_id") == 3).equals(found[:2])
    config = (run.folder / "config.yaml").read_text()
    assert "target: a table in memory, which is not saved" in config
    assert " t1" not in config
    assert zoo.load(run).recommend(["3", "1"], k=2)["item_id"].to_list() == found["item_id"].cast(pl.String).to_list()
    shutil.rmtree(run.folder / "target")  # as with keep_ratings=False
    with pytest.raises(UsageError, match=r"was trained on tables in memory. Pass them: data=Frames"):
        zoo.load(run)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "No table is given. Frames needs pandas, polars or Arrow tables, so it is for Python only"),
        ({"target": "books.csv"}, "The table of 'target' is of class str. Frames needs"),
        ({"target": rows("t"), "sources": {"books": [1]}}, "The table of 'books' is of class list"),
        ({"target": rows("t"), "sources": rows("t")}, "sources has no names. Pass a dict"),
        ({"target": rows("t"), "root": Path()}, "root is set. Frames reads no file"),
        (
            {"target": rows("t"), "further": {"tst": rows("t")}},
            r"further has \['tst'\]. Allowed: target_test, target_valid",
        ),
        (
            {"target": rows("t").drop("rating")},
            r"The table of 'target' has no column 'rating'; its columns are \['user_id'",
        ),
        ({"target": rows("t")[:0]}, "No row of 0 has at least 1 rows per user"),
        ({"target": rows("t"), "name": "a/b"}, "A domain is 'a/b'"),
        (
            {"target": rows("t").with_columns(user_id=pl.concat_list("user_id"))},
            "Column 'user_id' of The table of 'target' has type List",
        ),
        ({"target": rows("t").with_columns(item_id=pl.lit("i" * 2000))}, "has a text over 1,024 bytes"),
        ({"target": rows("t").with_columns(rating=pl.lit("good"))}, r"160 rows have a rating .* \(rows 1, 2, 3"),
    ],
)
def test_what_is_no_table_of_ratings_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        Frames(**arguments).read_target()


def test_a_table_that_no_file_can_hold_is_refused_by_column() -> None:
    pandas = pytest.importorskip("pandas")
    table = rows("t").to_pandas()
    refused = {
        "Expected unique column names.* 'rating'": pandas.concat([table, table["rating"]], axis=1),
        r"no column 'user_id'.* Call reset_index\(\)": table.set_index("user_id"),
        "'user_id' of The table of 'target' cannot be read": table.assign(user_id=[1, "a"] * 80),
        "'item_id' of The table of 'target' cannot be read": table.assign(item_id=b"\xff"),
        "ids are strings or integers that floats do not round": table.assign(user_id=2.0**60),
        "it has dates and other values": table.assign(timestamp=[date(2014, 7, 1), datetime(2014, 7, 1, 12)] * 80),
        "dates and other values. Convert": table.assign(timestamp=[datetime(2014, 7, 1), 1_400_000_000] * 80),
    }
    for message, odd in refused.items():
        with pytest.raises(ValueError, match=message):
            Frames(odd).read("target")
    with pytest.raises(ValueError, match="integers that floats do not round"):  # whatever is done with bad rows
        Frames(table.assign(item_id=[1.0, 2.0**53] * 80), on_bad_rows="drop").read("target")
    blanks = rows("t").with_columns(item_id=pl.lit(b" a "))
    assert set(Frames(blanks).read("target")["item_id"]) == {"a"}


def test_each_party_has_its_own_table() -> None:
    assert Frames(sources={"books": rows("b")}).source("books").num_users == 20
    data = Frames(rows("t"), sources=["books"])
    data.read_target()
    with pytest.raises(FileNotFoundError, match=r"No table of 'books' is given\. Pass it to Frames"):
        data.source("books")


def test_ids_stay_text_unless_all_are_integers() -> None:
    result = pl.DataFrame({"user_id": ["1", "ann"], "item_id": ["2", "3"]})
    both = Frames(rows("t").with_columns(item_id=pl.lit(7)))
    assert both.to_kind(result).schema == {"user_id": pl.String, "item_id": pl.Int64}
