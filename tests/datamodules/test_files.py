"""Files: one's own columns, by domain, and what is odd about ratings said."""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from datamodules import Evaluation, Files, Filters, Frames
from datamodules.data_quality import rating_counts
from datamodules.recipe import Recipe
from tests.datamodules.handmade import table_of
from zoo.data.held_out_cases import protocol_lines

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
        (Filters(), "1 of 3 ratings are negative \\(lowest -5.0\\), and count as positive"),
        (Filters(threshold=3), "1 of 3 ratings are negative .*; those below filters.threshold 3 are dropped"),
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
    assert rating_counts(table, Filters(threshold=0, signs=True)) == {}
    assert rating_counts(table.filter(table["rating"] > 0), Filters()) == {}


EARLIER = Evaluation("latest2", earlier_sources=True, num_candidates=0, unknown_items="include")


def write_times(folder: Path, name: str, prefix: str, shift: int, factor: int) -> None:
    """Write 20 ratings, one a day, of each of 12 users."""
    rows = [
        f"u{user},{prefix}{n},5,{(1_400_000_000 + 86_400 * (n + 20 * user) - shift) * factor}"
        for user in range(12)
        for n in range(20)
    ]
    (folder / f"{name}.csv").write_text("\n".join(["user_id,item_id,rating,timestamp", *rows]) + "\n")


@pytest.mark.parametrize("of_target", [1, 1000])
@pytest.mark.parametrize("of_source", [1, 1000, 10**6])
def test_units_of_domains_may_differ(of_target: int, of_source: int, tmp_path: Path) -> None:
    # The earliest held-out item of a user is the 19th, at 18 days. Of the source, 2 days later, 16 rows precede it.
    write_times(tmp_path, "target", "i", 0, of_target)
    write_times(tmp_path, "source", "s", -2 * 86_400, of_source)
    data = Files("shop", "target", ("source",), root=tmp_path, evaluation=EARLIER)
    assert data.source("source").num_ratings == 12 * 16
    data.read_target()
    unit = {1: "s", 1000: "ms"}[of_target]
    assert data.summary["times"] == {"unit": unit, "first": "2014-05-13", "last": "2015-01-07"}
    assert protocol_lines(data.summary)[-1] == f"times from 2014-05-13 to 2015-01-07 (unit {unit})"


def test_times_that_are_no_seconds_are_refused_between_domains(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_times(tmp_path, "target", "i", 0, 1)
    (tmp_path / "source.csv").write_text("user_id,item_id,rating,timestamp\nu0,s1,5,1\nu0,s2,5,2\nu1,s1,5,1\n")
    data = Files("shop", "target", ("source",), root=tmp_path, evaluation=EARLIER)
    with pytest.raises(ValueError, match=r"the median time of 'source' is 1, .* Set time_unit of both"):
        data.source("source")
    write_times(tmp_path, "source", "s", 0, 1000)
    data = Files("shop", "target", ("source",), root=tmp_path, evaluation=EARLIER, time_unit="s")
    with pytest.raises(ValueError, match=r"the median time of 'source' is 1\d{12}, .* Set time_unit of both"):
        data.source("source")
    assert "source: times are after" in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"time_unit": {"film": "ms"}}, r"time_unit has \['film'\]"),
        ({"time_unit": "hours"}, "time_unit is 'hours'. Allowed: s, ms"),
        ({"on_bad_rows": "skip"}, "on_bad_rows is 'skip'. Allowed: error, drop, convert"),
        ({"encoding": "latin-0"}, "encoding is 'latin-0'"),
        ({"separator": "::", "quoting": True}, "Quotes need one character"),
        ({"encoding": "iso-2022-jp"}, "a line may change others"),
        ({"encoding": "hz"}, "a line may change others"),
        ({"encoding": "utf7"}, "a line may change others"),
        ({"encoding": "base64"}, "a line may change others"),
        ({"encoding": "unicode_escape"}, "a line may change others"),
        ({"recipe": "movielens"}, r"recipe is 'movielens'.*Allowed: amazon-2014"),
        ({"user_column": 0}, r"columns are \[0, 'item_id'.*all by name, or all by position"),
        ({"item_column": "user_id"}, "'user_id' is named twice"),
    ],
)
def test_settings_of_raw_files_are_checked_before_any_is_opened(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Files("mine", "movies", **settings)


def test_a_setting_of_another_class_is_named() -> None:
    assert Files("mine", "movies", filters={"threshold": 4}).filters == Filters(threshold=4)  # as in a config
    wrong = {"sources": "film", "evaluation": "latest2", "filters": 4, "columns": {"movies": "user"}}
    for name, value in wrong.items():
        with pytest.raises(TypeError, match=f"{name}.* is "):
            Files("mine", "movies", **{name: value})


def test_dropped_rows_are_a_step_of_the_record_without_a_condition(tmp_path: Path) -> None:
    (tmp_path / "m.csv").write_text("user_id,item_id,rating\na,x,5\na,y,\nb,x,3\n")
    for action, rows in (("drop", 2), ("convert", 2)):
        data = Files("mine", "m", root=tmp_path, timestamp_column=None, on_bad_rows=action)
        step = data.steps("m")[0]
        assert "cannot be read are dropped" in step.words
        assert not step.condition
        assert data.read("m").height == rows
    assert "cannot be read" not in Files("mine", "m").steps("m")[0].words


#: A file of each recipe, as it is published: domain, name of the file, and two rows of (a, x) and (b, y).
PUBLISHED = {
    "movielens-1m": ("ratings", "ratings.dat", "a::x::5::978300760\nb::y::3::978302109\n"),
    "movielens-10m": ("ratings", "ratings.dat", "a::x::5::838985046\nb::y::0.5::838983525\n"),
    "movielens-25m": (
        "ratings",
        "ratings.csv",
        "userId,movieId,rating,timestamp\na,x,5.0,1147880044\nb,y,3.5,1147868817\n",
    ),
    "amazon-2014": ("Books", "ratings_Books.csv", "a,x,5.0,1397692800\nb,y,1.0,1397779200\n"),
    "amazon-2018": ("Books", "Books.csv", "x,a,5.0,1397692800\ny,b,1.0,1397779200\n"),
    "amazon-2023": (
        "Books",
        "Books.jsonl",
        '{"rating": 5.0, "title": "t, \\"1\\"", "parent_asin": "x", "user_id": "a", "timestamp": 1588687728923}\n'
        '{"rating": 3.0, "title": "", "parent_asin": "y", "user_id": "b", "timestamp": 1588615855070}\n',
    ),
    "yelp": (
        "review",
        "yelp_academic_dataset_review.json",
        '{"review_id": "1", "user_id": "a", "business_id": "x", "stars": 5.0, "date": "2018-07-07 22:09:11"}\n'
        '{"review_id": "2", "user_id": "b", "business_id": "y", "stars": 3.0, "date": "2012-01-03 15:28:18"}\n',
    ),
    "douban-reviews": (
        "book",
        "bookreviews_cleaned.txt",
        '"user_id"\t"book_id"\t"rating"\t"labels"\t"comment"\t"time"\t"ID"\n'
        'a\tx\t5\t"l|m"\t"a ""b"""\t"2010-05-02"\t1\nb\ty\t3\t"l"\t"c\td"\t"2011-01-04"\t2\n',
    ),
    "ciaodvd": ("movie-ratings", "movie-ratings.txt", "a,x,1,1,5,2000-05-14\nb,y,1,2,3,2001-08-18\n"),
    "epinions": ("ratings_data", "ratings_data.txt", "a x 5\nb y 3\n"),
    "lastfm": ("user_artists", "user_artists.dat", "userID\tartistID\tweight\r\na\tx\t13883\r\nb\ty\t11690\r\n"),
    "steam": ("steam-200k", "steam-200k.csv", 'a,"x",purchase,1.0,0\na,"x",play,273.0,0\nb,y,purchase,1.0,0\n'),
    "omnirec": ("data", "data.csv", "user,item,rating,timestamp,id\na,x,5,978300760,0\nb,y,3,978302109,1\n"),
    "datarec": ("data", "data.tsv", "user_id\titem_id\trating\ttimestamp\na\tx\t5\t978300760\nb\ty\t3\t978302109\n"),
}


def test_every_recipe_reads_what_is_published(tmp_path: Path) -> None:
    assert sorted(PUBLISHED) == Recipe.names()
    for name, (domain, file, text) in PUBLISHED.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text(text)
        data = Files(name, domain, root=tmp_path / name, recipe=name)
        table = data.read(domain)
        assert list(zip(table["user_id"], table["item_id"], strict=True)) == [("a", "x"), ("b", "y")], name
        assert table["timestamp"].drop_nulls().is_between(8 * 10**8, 2 * 10**9).all(), name
        recipe = Recipe.named(name)
        assert recipe.about, name
        assert recipe.licence, name
        assert recipe.address.startswith("http"), name
    archive = tmp_path / "raw.rsds"
    with zipfile.ZipFile(archive, "w") as packed:
        packed.writestr("data.csv", PUBLISHED["omnirec"][2])
        packed.writestr("META", "{}")
    assert Files("x", "raw", root=tmp_path, recipe="omnirec").read("raw").height == 2


def test_suspicious_values_are_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = ["a,x,5", "a,x,5", "nan,x,0", "None,y,1", "a,y,1", "b,y,4"]
    (tmp_path / "m.csv").write_text("\n".join(["user_id,item_id,rating", *rows]) + "\n")
    Files("mine", "m", root=tmp_path, timestamp_column=None).common_users()
    (line,) = [record.message for record in caplog.records if record.message.startswith("m: ")]
    assert "2 rows have a user id that means a missing value ('None', 'nan')" in line
    assert "1 rows are exact duplicates of others" in line
    assert "1 of 5 ratings are 0, and count as positive" in line
    assert "2 of 5 ratings are 1 or less on a scale to 5" in line
