"""Tables that come from anybody: every type of column, what was cut off, and what claims or unpacks to more than it may."""

import datetime as dt
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import zoo.data.open_table
import zoo.data.text_table
from datamodules.public_lists import is_derived_list, read_users
from datamodules.tables import read_table

DAY = dt.datetime(2020, 1, 1, 12)
#: A column of each type, and what it is read as: an id, a rating, a time; "" where it is refused.
COLUMNS: dict[str, tuple[pl.Series, tuple[Any, Any, Any]]] = {
    "string": (pl.Series([" 2 "]), ("2", 2.0, 2)),
    "categorical": (pl.Series(["2"], dtype=pl.Categorical), ("2", 2.0, 2)),
    "enum": (pl.Series(["2"], dtype=pl.Enum(["1", "2"])), ("2", 2.0, 2)),
    "u8": (pl.Series([2], dtype=pl.UInt8), ("2", 2.0, 2)),
    "u64": (pl.Series([2**64 - 1], dtype=pl.UInt64), (str(2**64 - 1), 2.0**64, "")),
    "i128": (pl.Series([2**100], dtype=pl.Int128), (str(2**100), 2.0**100, "")),
    "f64 beyond its digits": (pl.Series([2.0**53]), ("", 2.0**53, "")),
    "decimal beyond 64 bits": (pl.Series([Decimal(2**70)]), (str(2**70), 2.0**70, "")),
    "decimal with a part": (pl.Series([Decimal(2**60) + Decimal("0.5")]), ("", 2.0**60, 2**60 // 10**9)),
    "bytes of no text": (pl.Series([b"\xff"]), ("", "", "")),
    "f32": (pl.Series([2.5], dtype=pl.Float32), ("", 2.5, 2)),
    "decimal": (pl.Series([Decimal("2.0")]), ("2", 2.0, 2)),
    "boolean": (pl.Series([True]), ("", 1.0, "")),
    "date": (pl.Series([DAY.date()]), ("", "", 1577836800)),
    "datetime": (pl.Series([DAY]), ("", "", 1577880000)),
    "datetime with a zone": (pl.Series([DAY]).dt.replace_time_zone("Asia/Tokyo"), ("", "", 1577847600)),
    "duration": (pl.Series([dt.timedelta(1)]), ("", "", "")),
    "time": (pl.Series([DAY.time()]), ("", "", "")),
    "null": (pl.Series([None], dtype=pl.Null), ("", "", None)),
    "list": (pl.Series([[2]]), ("", "", "")),
    "array": (pl.Series([[2]], dtype=pl.Array(pl.Int64, 1)), ("", "", "")),
    "struct": (pl.Series([{"a": 2}]), ("", "", "")),
    "nested": (pl.Series([[{"a": [2]}]]), ("", "", "")),
    "binary": (pl.Series([b"2"]), ("2", 2.0, 2)),
}


WANTED = {
    "user_id": "strings or integers|no user|not whole|not UTF-8",
    "rating": "numbers|every row counts as 1|not UTF-8",
    "timestamp": "numbers or dates|neither a number|not UTF-8",
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_column_of_every_type_is_read_or_refused_by_name(kind: str, tmp_path: Path) -> None:
    column, expected = COLUMNS[kind]
    table = {"user_id": ["a"], "item_id": ["b"], "rating": [3], "timestamp": [5], "of no interest": [[b"x"]]}
    for (name, wanted), value in zip(WANTED.items(), expected, strict=True):
        pl.DataFrame(table | {name: column}).write_parquet(tmp_path / "x.parquet")
        if value != "":
            assert read_table(tmp_path / "x.parquet")[name].to_list() == [value]
        else:
            with pytest.raises(ValueError, match=rf"(?=.*({name}|UTF-8)).*({wanted})"):
                read_table(tmp_path / "x.parquet")


def test_a_file_that_was_cut_off_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pl.DataFrame({"user_id": ["a"], "item_id": ["b"], "rating": [3], "timestamp": [5]}).write_parquet(path)
    whole = path.read_bytes()
    for kept in (0, 3, 4, 11, 40, len(whole) // 2, len(whole) * 9 // 10, -1):
        path.write_bytes(whole[:kept])
        with pytest.raises(ValueError, match=r"x\.parquet cannot be read as \.parquet: "):
            read_table(path)


def test_a_panic_of_polars_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panics(*_: object, **__: object) -> None:
        raise pl.exceptions.PanicException("called `Option::unwrap()` on a `None` value")

    (tmp_path / "x.parquet").touch()
    monkeypatch.setattr(pl, "scan_parquet", panics)
    with pytest.raises(ValueError, match=r"x\.parquet cannot be read as \.parquet: it is damaged$"):
        read_table(tmp_path / "x.parquet")


def test_a_missing_column_of_parquet_lists_those_that_are_there(tmp_path: Path) -> None:
    pl.DataFrame({"user_id": ["a"], "thing": [[1]]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(
        ValueError, match=r"no column 'item_id', 'rating', 'timestamp'; its columns are \['user_id', 'thing'\]"
    ):
        read_table(tmp_path / "x.parquet")


def test_a_file_that_unpacks_to_more_than_it_may_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.csv.gz"
    text = "user_id,item_id,rating,timestamp\n" + "a,b,1,1\n" * 100_000
    path.write_bytes(gzip.compress(text.encode()))
    assert read_table(path).height == 1
    monkeypatch.setattr(zoo.data.text_table, "ALWAYS", 1000)
    most = f"{100 * path.stat().st_size:,}"
    with pytest.raises(ValueError, match=rf"x\.csv\.gz unpacks to more than {most} bytes"):
        read_table(path)


def test_however_large_a_packed_file_is_it_unpacks_to_so_much_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(("user_id,item_id,rating,timestamp\n" + "a,b,1,1\n" * 1000).encode()))
    monkeypatch.setattr(zoo.data.text_table, "UNPACKED", 8000)
    with pytest.raises(ValueError, match=r"unpacks to more than 8,000 bytes\. Unpack it first"):
        read_table(path)


CONSTANT = pl.select(user_id=pl.repeat("a", 10**5), item_id=pl.lit("b"), rating=1, timestamp=1)


def limits(patch: pytest.MonkeyPatch, small: int, large: int) -> None:
    patch.setattr(zoo.data.open_table, "SMALL", small)
    patch.setattr(zoo.data.open_table, "LARGE", large)


def test_a_file_that_takes_more_memory_than_it_may_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.parquet"
    CONSTANT.write_parquet(path)
    taken = 10**5 * 4 * 32
    limits(monkeypatch, taken, 2**32)
    assert read_table(path).height == 1
    limits(monkeypatch, taken - 1, 2**32)
    with pytest.raises(ValueError, match=r"needs 12 MiB of memory for 100,000 rows, [\d,]+ times its size"):
        read_table(path)
    (parts := tmp_path / "parts").mkdir()
    for name in ("0", "1"):
        CONSTANT.head(50_000).write_parquet(parts / f"{name}.parquet")
    with pytest.raises(ValueError, match=r"parts needs 12 MiB of memory for 100,000 rows"):
        read_table(parts)


def test_memory_may_be_so_many_times_the_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.parquet"
    CONSTANT.head(1000).write_parquet(path, compression="uncompressed")
    for times, large in ((256, 2**32), (64, 1000)):  # fewer times from `large` bytes on
        columns = times * path.stat().st_size // (32 * 1000)
        limits(monkeypatch, 1000, large)
        zoo.data.open_table.check_size(path, [path], [""] * columns)
        with pytest.raises(ValueError, match=r"Allowed: 256 times, .* Use CSV"):
            zoo.data.open_table.check_size(path, [path], [""] * (columns + 1))


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_a_long_text_is_refused_by_column_and_not_copied(tmp_path: Path, ending: str) -> None:
    for name in ("user_id", "rating"):
        row = {"user_id": "é" * 512, "item_id": "b", "rating": "1", "timestamp": 1}
        pl.DataFrame([row]).write_parquet(tmp_path / "x.parquet")
        pl.DataFrame([row]).write_csv(tmp_path / "x.csv")
        assert read_table(tmp_path / f"x{ending}")["user_id"].to_list() == ["é" * 512]
        row[name] = "é" * 512 + "1"
        pl.DataFrame([row]).write_parquet(tmp_path / "x.parquet")
        pl.DataFrame([row]).write_csv(tmp_path / "x.csv")
        place = f"{'line 2' if ending == '.csv' else 'row 1'}, column '{name}'"
        with pytest.raises(ValueError, match=rf"x{ending} has a text over 1,024 bytes \({place}\)"):
            read_table(tmp_path / f"x{ending}")


@pytest.mark.parametrize("cut_off", ["\\ud83d", "\\ud83dx", "\\u0000"])
def test_a_text_that_the_parser_would_change_is_refused(tmp_path: Path, cut_off: str) -> None:
    """Two ids that end in different halves of pairs would become one."""
    row = '{"user_id": "a%s", "item_id": "b", "rating": 1, "timestamp": 1}\n'
    (tmp_path / "x.jsonl").write_text(row % "\\ud83d\\ude00" + row % cut_off)
    with pytest.raises(ValueError, match=r"text with U\+0000 or .* surrogate pair \(line 2, column 'user_id'\)\. Corr"):
        read_table(tmp_path / "x.jsonl")


def test_columns_of_one_name_before_the_colon_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.inter").write_text("user_id:token\titem_id:token\trating:float\trating:token\na\tb\t1\t2\n")
    with pytest.raises(ValueError, match=r"x\.inter has several columns \['rating'\], by names before the colon"):
        read_table(tmp_path / "x.inter")


@pytest.mark.parametrize("content", [b"", b"user_id\na,b\nc,d,e\n"])
def test_a_list_that_is_no_table_is_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "users.csv").write_bytes(content)
    for read in (read_users, lambda path: is_derived_list(str(path))) if not content else (read_users,):
        with pytest.raises(ValueError, match=r"users\.csv (is empty|cannot be read as \.csv: )"):
            read(tmp_path / "users.csv")


def test_ids_of_lists_are_text_or_whole_numbers_on_one_line(tmp_path: Path) -> None:
    for ids, found in (([7.0, None, float("nan")], ["7"]), ([1.5, 2.0], ["1.5", "2.0"])):
        pl.DataFrame({"user_id": ids}).write_parquet(tmp_path / "users.parquet")
        assert read_users(tmp_path / "users.parquet") == found
    (tmp_path / "users.csv").write_text("user_id\na\tb\n")
    with pytest.raises(ValueError, match=r"users\.csv has a value with a line break or a tab"):
        read_users(tmp_path / "users.csv")
