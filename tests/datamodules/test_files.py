"""Files: one's own columns, by domain, and what is odd about ratings said."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from datamodules import Evaluation, Files, Filters, Frames
from datamodules.data_quality import negative_ratings
from tests.datamodules.handmade import table_of

COLUMNS: dict[str, dict[str, str | None]] = {
    "books": {"user": "reader", "item": "isbn", "timestamp": None},
    "movies": {"rating": None, "timestamp": "when"},
}


def own(root: Path, **settings: Any) -> Files:  # noqa: ANN401
    (root / "books.csv").write_text("reader,isbn,rating\na,1,4\na,2,5\nb,1,3\n")
    (root / "books_negatives.csv").write_text("reader,isbn\nb,2\n")
    (root / "movies.csv").write_text("user_id,item_id,when\na,x,2014-07-01\na,y,2014-06-30\nb,x,2014-01-01\n")
    (root / "movies_test.csv").write_text("user_id,item_id,when\nb,x,2014-01-01\n")
    return Files("mine", **({"target": "movies", "sources": ("books",), "root": root, "columns": COLUMNS} | settings))


def in_memory(files: Files) -> Frames:
    tables = {path.stem: pl.read_csv(path, infer_schema=False) for path in files.folder.glob("*.csv")}
    sources = {name: tables.pop(name) for name in files.sources}
    return Frames(tables.pop(files.target), sources, files.target, tables, columns=COLUMNS)


@pytest.mark.parametrize("kept", [lambda files: files, in_memory])
def test_columns_are_named_by_domain_and_the_rest_as_for_all(tmp_path: Path, kept: Callable[[Files], Files]) -> None:
    data = kept(own(tmp_path))
    assert data.read("books").rows() == [("a", "1", 4.0, None), ("a", "2", 5.0, None), ("b", "1", 3.0, None)]
    assert data.read("movies")["rating"].to_list() == [1.0, 1.0, 1.0]
    assert data.read("movies")["timestamp"].to_list() == [1404172800, 1404086400, 1388534400]
    held_out, lists = data.read_held_out("movies"), data.read_negatives("books")
    assert held_out is not None
    assert lists is not None
    assert (held_out[1].height, lists.rows()) == (1, [("b", "2")])
    mapped = own(
        tmp_path, columns={"movies": COLUMNS["movies"]}, user_column="reader", item_column="isbn", timestamp_column=None
    )
    assert mapped.read("books").rows() == data.read("books").rows(), "one mapping for all still works"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"film": {"user": "u"}}, r"columns has \['film'\]. Allowed: \['movies', 'books'\]"),
        ({"books": {"usr": "u"}}, r"columns.books has \['usr'\]. It may have user, item, rating, timestamp"),
        ({"books": {"item": None}}, r"columns.books.item is null. Name the column"),
    ],
)
def test_columns_that_mean_nothing_are_refused(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        own(tmp_path, columns=columns)


@pytest.mark.parametrize(
    ("filters", "said"),
    [
        (Filters(), "1 of 3 ratings are negative \\(lowest -5.0\\)\\. Each counts as 1"),
        (Filters(threshold=3), "1 of 3 ratings are negative .* Those below filters.threshold 3 are dropped"),
    ],
)
def test_negative_ratings_are_said_with_what_becomes_of_them(
    tmp_path: Path, filters: Filters, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "m.csv").write_text("user_id,item_id,rating\na,x,-5\na,y,4\nb,x,3\n")
    settings: dict[str, Any] = {"filters": filters, "timestamp_column": None, "evaluation": Evaluation("random1")}
    Files("mine", "m", root=tmp_path, **settings).common_users()
    assert caplog.text.count("ratings are negative") == 1
    assert re.search(f"m: {said}", caplog.text)


def test_signs_may_be_negative() -> None:
    table = table_of([("a", "x"), ("a", "y")], ratings=[-1.0, 1.0])
    assert negative_ratings(table, "m", Filters(threshold=0, signs=True)) is None
    assert negative_ratings(table.filter(table["rating"] > 0), "m", Filters()) is None
