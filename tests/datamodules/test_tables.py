"""Reading interaction files: every format gives one table, and what cannot be used is refused in words."""

import bz2
import gzip
import json
import logging
import re
import time
import zipfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from datamodules import Frames
from datamodules.data_quality import collected_facts
from datamodules.tables import SCHEMA, BadRows, find_table, read_negatives
from datamodules.tables import read_table as read_file
from zoo.data.text_table import TextForm

ROWS = [("12", "a", "3.5", "100"), ("7", "b", "1", "90"), ("12", "b", "5", "110")]
EXPECTED = pl.DataFrame(
    {"user_id": ["12", "7", "12"], "item_id": ["a", "b", "b"], "rating": [3.5, 1.0, 5.0], "timestamp": [100, 90, 110]},
    schema=SCHEMA,
)


def write(path: Path, text: str) -> Path:
    content = text.encode()
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(path.stem, content)
    elif path.suffix == ".zst":
        pl.DataFrame({"line": text.split("\n")}).lazy().sink_csv(
            path, include_header=False, quote_style="never", compression="zstd"
        )
    else:
        path.write_bytes({".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)(content))
    return path


def csv(path: Path, *rows: str, header: str = "user_id,item_id,rating,timestamp") -> Path:
    return write(path, "\n".join([header, *rows]) + "\n")


#: Messages on the content of a file, which a table in memory may have as well.
CONTENT = re.compile(r"rows? ha(s|ve) |has no column|has no rows|several units|dates and other numbers")


def read_table(path: Path, *columns: Any, **settings: Any) -> pl.DataFrame:  # noqa: ANN401  as of `read_file`
    """Read a file. A table in memory with its content gives the same rows, or the same message."""
    named = dict(zip(("user", "item", "rating", "timestamp"), columns, strict=False))
    named |= {name.removesuffix("_column"): value for name, value in settings.items() if name.endswith("_column")}
    kept = {name: value for name, value in settings.items() if name in ("time_unit", "on_bad_rows")}

    def in_memory() -> pl.DataFrame:
        raw = pl.read_parquet(path) if path.suffix == ".parquet" else pl.read_csv(path, infer_schema=False)
        return Frames(raw, name="x", columns={"x": named}, **kept)._read("x")  # as a file that may not be empty

    alike = path.suffix in (".csv", ".parquet") and path.is_file() and "form" not in settings and 0 not in columns
    try:
        found = read_file(path, *columns, **settings)
    except ValueError as refused:
        if alike and CONTENT.search(str(refused)):
            with pytest.raises(ValueError, match=CONTENT) as caught:
                in_memory()
            said = [re.sub(r"\b(line|row)s? [\d, .]+", "", text) for text in (str(refused), str(caught.value))]
            assert (
                said[0].replace(str(path), "").split(". ")[0] == said[1].replace("The table of 'x'", "").split(". ")[0]
            )
        raise
    if alike:
        assert in_memory().equals(found)
    return found


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".inter", ".dat", ".jsonl", ".json"])
def test_every_format_gives_the_same_table(tmp_path: Path, kind: str) -> None:
    names = ["user_id", "item_id", "rating", "timestamp"]
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in ROWS]
    if kind == ".json":
        lines = [f"[{', '.join(lines)}]"]
    elif kind != ".jsonl":
        separator = {".csv": ",", ".dat": "::"}.get(kind, "\t")
        named = [f"{name}:token" for name in names] if kind == ".inter" else names
        lines = [separator.join(row) for row in [named, *ROWS]]
    for pack in ("", ".gz", ".bz2", ".zst", ".zip"):
        path = write(tmp_path / f"book{kind}{pack}", "\n".join(lines))
        table = read_table(path)
        assert table.schema == SCHEMA
        assert table.equals(EXPECTED)
        assert find_table(tmp_path, "book") == path
        path.unlink()


def test_every_stream_of_a_packed_file_is_read_or_the_file_refused(tmp_path: Path) -> None:
    """Python's own reader takes a later stream that is damaged for the end of a .bz2."""
    lines = ["user_id,item_id,rating,timestamp", *(",".join(row) for row in ROWS)]
    first, second = (bz2.compress(f"{chr(10).join(part)}\n".encode()) for part in (lines[:3], lines[3:]))
    path = tmp_path / "book.csv.bz2"
    for padding in (b"", b"\0" * 512, b"\n"):
        path.write_bytes(first + second + padding)
        assert read_table(path).equals(EXPECTED)
    for damaged in (b"x" + second[1:], second[:20] + bytes([second[20] ^ 1]) + second[21:], second[:-3], b"more\n"):
        path.write_bytes(first + damaged)
        with pytest.raises(ValueError, match=r"cannot be read as \.csv\.bz2"):
            read_table(path)


def test_parquet_is_a_file_or_a_folder_of_parts(tmp_path: Path) -> None:
    table = EXPECTED.with_columns(
        user_id=pl.col("user_id").cast(pl.String).cast(pl.Float64),
        item_id=pl.col("item_id").cast(pl.String).cast(pl.Binary),
    )
    (tmp_path / "book").mkdir()
    for part in (0, 1):
        table[2 * part : 2 * part + 2].write_parquet(tmp_path / "book" / f"part-{part}.parquet")
    table.write_parquet(tmp_path / "one.parquet")
    for kept in ("_SUCCESS", ".part-0.parquet.crc", "notes.txt"):
        (tmp_path / "book" / kept).touch()
    for domain in ("book", "one"):
        assert read_table(find_table(tmp_path, domain)).equals(EXPECTED)
    for other in ("part-2.PARQUET", "part-2.parq"):
        (tmp_path / "book" / other).touch()
        with pytest.raises(ValueError, match=rf"{other}', which would not be read"):
            read_table(tmp_path / "book")
        (tmp_path / "book" / other).unlink()
    (tmp_path / "book" / "y=2").mkdir()
    assert read_table(tmp_path / "book").equals(EXPECTED), "nothing is in it"
    table.write_parquet(tmp_path / "book" / "y=2" / "part-2.parquet")
    with pytest.raises(ValueError, match="'y=2', which would not be read"):
        read_table(tmp_path / "book")


def test_two_files_or_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("book.csv", "book.parquet"):
        (tmp_path / name).touch()
    with pytest.raises(ValueError, match=r"'book' has 2 files in .*: book\.csv and book\.parquet\. Allowed: one"):
        find_table(tmp_path, "book")
    path = csv(tmp_path / "x.csv", "u,i,1,2", header="user_id,item_id,rating,rating")
    with pytest.raises(ValueError, match=r"several columns \['rating'\] \(positions \[3, 4\]\)\. Keep one"):
        read_table(path, timestamp_column=None)


BODY = "".join(f"u{n},i{n},3,{1400000000 + n},{{}}\n" for n in range(20))
NAMED = "user_id,item_id,rating,timestamp,name\n"


@pytest.mark.parametrize(
    ("names", "quoting", "message"),
    [
        (["12", '"12"'], None, ""),
        (['12"'], None, "a quote is not closed"),
        (['"two\nlines"', '"a ""b"""', "x"], None, ""),
        (["x", '"12 inch', "x"], False, ""),
        (["x", '"12 inch', "x"], None, "a quote is not closed"),
        (['two 12" or 7"', "x"], None, "a quote is inside a value without quotes"),
        (
            ["x", '"12 inch, or', "x", 'or, 7"'],
            None,
            r"a quoted value holds a line that may be a row \(line 3\)|a quote is not closed",
        ),
    ],
)
def test_no_row_is_lost_to_a_quote(names: list[str], quoting: bool | None, message: str, tmp_path: Path) -> None:
    text = NAMED + BODY.format(*names, *["x"] * (20 - len(names)))
    path = write(tmp_path / "x.csv", text)
    if message:
        for time in (r"\g<0>", "2014-07-01T12:30:00+02:00", "1.4e+18", ""):
            file = write(tmp_path / "x.csv", re.sub(r"14000000\d\d", time, text))
            with pytest.raises(ValueError, match=message):
                read_table(file, form=TextForm(quoting=quoting))
        unlike = text.replace(", ", " ").replace(",", "\t")
        assert read_table(write(tmp_path / "x.tsv", unlike)).height == 20
    else:
        assert read_table(path, form=TextForm(quoting=quoting)).height == 20


@pytest.mark.parametrize("row", ['u;a;"x\nv;b;y\n"', 'u;a;12" or 7"'])
def test_no_row_is_lost_to_a_quote_without_ratings(row: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", f"user_id;item_id;name\nv;c;z\n{row}\n")
    with pytest.raises(
        ValueError, match=r"\(line 3\)\. Correct it, leave out columns of text, or set quoting to false"
    ):
        read_table(path, rating_column=None, timestamp_column=None, form=TextForm())


@pytest.mark.parametrize(
    ("text", "ending", "columns", "form"),
    [
        ("a::x::5::978300000\nb::y::3::978300001\n", "dat", (0, 1, 2, 3), TextForm(separator="::")),
        ("a,x,5,978300000\nb,y,3,978300001\n", "csv", (0, 1, 2, 3), TextForm()),
        ("x  a 5\n y\tb 3\n", "txt", (1, 0, 2, None), TextForm(separator="blanks")),
        ("who;what;stars\na;x;5\nb;y;3\n", "csv", ("who", "what", "stars", None), TextForm()),
        ("user_id\titem_id\na\tx\nb\ty\n", "tsv", ("user_id", "item_id", None, None), TextForm()),
        ("x\ta\t5\ny\tb\t3\n", "tsv", (1, 0, None, None), TextForm()),
    ],
)
def test_raw_dumps_are_read(text: str, ending: str, columns: tuple[Any, ...], form: TextForm, tmp_path: Path) -> None:
    table = read_table(write(tmp_path / f"x.{ending}", text), *columns, form=form)
    assert list(zip(table["user_id"], table["item_id"], strict=True)) == [("a", "x"), ("b", "y")]
    assert columns[2] is None or table["rating"].to_list() == [5.0, 3.0]


def test_other_encodings_are_read_if_stated(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes("user_id;item_id;rating\nu;Café;1\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"is not UTF-8\. Convert it, or set encoding, for example latin-1"):
        read_table(path, timestamp_column=None)
    table = read_table(path, timestamp_column=None, form=TextForm(encoding="latin-1"))
    assert table["item_id"].to_list() == ["Café"]
    path.write_bytes("user_id".encode("utf-16"))
    with pytest.raises(ValueError, match=r"x\.csv is UTF-16\. Convert it, or set encoding"):
        read_table(path)


@pytest.mark.parametrize(("factor", "unit"), [(1, "s"), (10**3, "ms"), (10**6, "us"), (10**9, "ns")])
def test_units_of_times_are_found_and_become_seconds(factor: int, unit: str, tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", *(f"u,i{n},1,{(1400000000 + n) * factor}" for n in range(3)))
    with collected_facts() as facts:
        assert read_table(path)["timestamp"].to_list() == [1400000000, 1400000001, 1400000002]
    assert (facts[0].unit, facts[0].first, facts[0].implausible) == (unit, "2014-05-13", "")
    path = csv(tmp_path / "y.csv", "u,i,1,1400000000", f"u,j,1,{1400000000 * factor}", "u,k,1,1400000002")
    if factor == 1:
        return
    with pytest.raises(ValueError, match=rf"times of several units: 2 in s and 1 in {unit} \(line 3\); set time_unit"):
        read_table(path)
    assert read_table(path, time_unit="s")["timestamp"].to_list() == [1400000000, 1400000000 * factor, 1400000002]
    dates = csv(tmp_path / "z.csv", "u,i,1,20140513")
    assert read_table(dates, time_unit="date")["timestamp"].to_list() == [1399939200]


HEAD, BIG = "user_id,item_id,rating,timestamp\n", 76561198000000001
JSON = '[{"user_id": "u", "item_id": %s, "rating": 5}, {"user_id": "v", "item_id": %s, "rating": 5}]'


@pytest.mark.parametrize(
    ("name", "text", "more", "columns", "refused"),
    [
        (
            "x.csv",
            f"{HEAD}u,i,5,100\nu,i,1,200\n",
            "v,j,4,1400000000000\n",
            (),
            r"1 in ms and 2 in no known unit \(line 4\)",
        ),
        ("x.csv", f"{HEAD}u,i,1,1400000000\nu,i,5,100\n", "v,j,4,1400000001\n", (), ""),
        ("x.csv", f"{HEAD}u,i,1,1399999999999999990\nu,j,5,0\n", "v,j,4,1399999999500000000.5\n", (), ""),
        ("x.csv", f"{HEAD}u,i,1,20140701\n", "v,j,4,2014-07-02\n", (), r"no date such as .* \(line 2"),
        ("x.csv", "u,3;Lock\n", "v;4,Stock\n", (0, 1, None, None), ""),
        ("x.dat", "u\t3;Lock\n", "v;4\tStock\n", (0, 1, None, None), "x.dat has no header. Set separator"),
        ("x.json", JSON % (BIG, BIG + 1), JSON % (BIG, 5.0), ("user_id", "item_id", "rating", None), ""),
        ("x.json", JSON % (12.0, 7.5), JSON % (12.0, '"a"'), ("user_id", "item_id", "rating", None), ""),
    ],
)
def test_no_row_decides_how_another_one_is_read(
    name: str, text: str, more: str, columns: tuple[Any, ...], refused: str, tmp_path: Path
) -> None:
    """Otherwise one rating would change entries of other users, and a record would claim too much."""
    alone = write(tmp_path / name, text)
    if name == "x.dat":
        with pytest.raises(ValueError, match=refused):
            read_table(alone, *columns)
        return
    rows = [row for row in read_table(alone, *columns).rows() if row[0] == "u"]
    both = write(tmp_path / name, more if name == "x.json" else text + more)
    if refused:
        with pytest.raises(ValueError, match=refused):
            read_table(both, *columns)
    unit: Any = {"": None, "1 in ms": "s"}.get(refused[:7], "date")
    found = [row for row in read_table(both, *columns, time_unit=unit).rows() if row[0] == "u"]
    assert unit == "date" or found == rows


def test_no_message_shows_a_value_of_another_structure(tmp_path: Path) -> None:
    path = write(tmp_path / "x.json", '[{"user_id": "u", "item_id": "a"}, {"user_id": ["secret"], "item_id": "a"}]')
    with pytest.raises(ValueError, match=r"x\.json cannot be read as \.json: a row is no object of plain values$"):
        read_table(path, rating_column=None, timestamp_column=None)


def test_no_quote_of_a_row_changes_another_one(tmp_path: Path) -> None:
    rows = ["a,i,x", 'c,j,"', 'emma"']
    path = csv(tmp_path / "x.csv", *rows, header="user_id,item_id,name")
    settings: dict[str, Any] = {"rating_column": None, "timestamp_column": None, "on_bad_rows": "drop"}
    assert read_file(path, **settings)["user_id"].to_list() == ["a", "c"]
    csv(path, 'z,4" k,"', *rows, header="user_id,item_id,name")
    with pytest.raises(ValueError, match="a quote is not closed"):
        read_file(path, **settings)


def test_a_quote_holds_no_line_that_may_be_a_row(tmp_path: Path) -> None:
    """By itself each is read as a row: with a time or without, with quotes, and with a CR inside."""
    last, middle = "user_id,item_id,rating,timestamp,name", "user_id,name,item_id,rating,timestamp"
    first = "name,user_id,item_id,rating,timestamp"
    lines = ["v,j,4,,x", "v,j,4,1e18,x", "v,j,4,2014-07-01,x", 'v,j,4,5,""', "v,j,4,5,x\ry"]
    for line in [*lines, 'v,j,4,5,x"']:
        rows = ['u,i,3,5,"a, b', line, *['u,i,3,6,c, d"'] * (line in lines)]
        for mode in ("error", "drop"):
            with pytest.raises(ValueError, match=r"a line that may be a row \(line 2\)\. Correct it"):
                read_file(csv(tmp_path / "x.csv", *rows, header=last), on_bad_rows=mode)
    for text in ("a, b\nwell, yes\n1, 2", "\n", "v,j,x,5"):
        assert read_file(csv(tmp_path / "x.csv", f'u,i,3,5,"{text}"', "v,j,4,5,x", header=last)).height == 2
    for text in ("Love,", "1,2,x,3,"):  # what follows might be a value that goes on
        rows = [f'u,i,3,5,"a\n{text}"', *[f"v,j,4,5,{'x' * 2**13}"] * 20]
        assert read_file(csv(tmp_path / "x.csv", *rows, header=last)).height == 2
    for text in ("a, b\nc, d", "a\nb", "a.\nb.\n"):
        assert read_file(csv(tmp_path / "x.csv", f'"{text}",u,i,3,5', "x,v,j,4,5", header=first)).height == 2
    row, inside, wide = (
        "a line that may be a row",
        "a quote is not closed, or inside a value",
        "has 6 values, the first line 5",
    )
    for said, header, *rows in (
        (row, first, '"a,u,i,3,5', 'b",v,j,4,5'),
        (row, first, '"a', "b,v,j,4,5", 'c",u,i,3,5'),
        (inside, first, '",3,"x,u,i,3,5'),
        (row, middle, 'u,"a,i,3,5', 'v,",j,4,5'),
        (row, middle, 'u,"a,i,3,5', 'v,",,,\n",j\r,4,5', '",a,b,x,5'),
        (wide, last, 'u,i,3,5,"a\nb",c'),
        (row, middle, 'u,"a', 'v,",,,', f"w,{'b' * 2**16},j,x,5"),
    ):
        with pytest.raises(ValueError, match=said):
            read_file(csv(tmp_path / "x.csv", *rows, header=header), on_bad_rows="drop")
    (tmp_path / "x.csv").write_text('u,i,3,"a\nv,j,4,b\n",c,d\n')  # a first row of another width
    with pytest.raises(ValueError, match=row):
        read_table(tmp_path / "x.csv", 0, 1, 2, None, form=TextForm(header=False))


@pytest.mark.parametrize("wide", ["v,j,4,5", "v,j,4,5,x,y", '"v",j,4', ",,,,,\nv,j,4"])
def test_rows_are_as_wide_as_the_first_line(tmp_path: Path, wide: str) -> None:
    """Else a comma in a name moves the values that follow."""
    some = {"header": "user_id,item_id,rating,timestamp,name"}
    for rows in (["u,i,3,5,a", wide], [wide, "u,i,3,5,a", "w,i,3,5,a"], ["u,i,3,5,a,b", wide], [wide, "u,i,3,5,a,b"]):
        path = csv(tmp_path / "x.csv", *rows, **some)
        with pytest.raises(ValueError, match=r"a row has \d values, the first line 5 \(line \d\)"):
            read_file(path, on_bad_rows="drop")
        assert read_file(path, form=TextForm(quoting=False), on_bad_rows="drop").height > 0
    assert read_file(csv(tmp_path / "x.csv", "u,i,3,5,a", "", "v,i,3,5,a", "", **some), on_bad_rows="drop").height == 2
    (tmp_path / "x.csv").write_bytes(b'\xef\xbb\xbf"u","i",3,"a\nb"\n')  # a byte order mark is no value
    assert read_table(tmp_path / "x.csv", 0, 1, 2, None, form=TextForm(header=False))["user_id"].to_list() == ["u"]


def test_parts_of_parquet_have_columns_of_one_kind(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    for at, ids in enumerate(([7.0], ["7"])):
        pl.DataFrame({"user_id": ["u"], "item_id": ids}).write_parquet(tmp_path / "x" / f"{at}.parquet")
    with pytest.raises(ValueError, match=r"Column 'item_id' of the parts in .*x has types Float64, String\. Write one"):
        read_table(tmp_path / "x", rating_column=None, timestamp_column=None)


BAD = ["u,i,4,", 'u,j,"4,5",', "u,k,,", "v,i,bad,", "w,j,3,"]


@pytest.mark.parametrize(
    ("action", "ratings", "said"),
    [
        ("drop", [4.0, 3.0], "3 rows are dropped .*1 row has no rating .line 4.*2 rows have a rating .*lines 3, 5"),
        ("convert", [4.0, 4.5, 3.0], "1 row has a decimal comma .line 3.*2 rows are dropped"),
    ],
)
def test_bad_rows_are_dropped_or_converted_with_counts(
    action: BadRows, ratings: list[float], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = csv(tmp_path / "x.csv", *BAD)
    assert read_table(path, on_bad_rows=action)["rating"].to_list() == ratings
    assert re.search(said, caplog.text, re.DOTALL)
    with pytest.raises(ValueError, match=r"2 rows have a rating that is not a finite number \(lines 3, 5"):
        read_table(path)
    mixed = csv(tmp_path / "y.csv", "u,i,4,2014-07-01", "u,j,4,1400000000", "u,k,4,1400000001")
    for asked in ("error", action):  # no row decides about others
        with pytest.raises(ValueError, match=r"has dates and other numbers; .*\. Correct these\. If"):
            read_table(mixed, on_bad_rows=asked)


@pytest.mark.thorough
def test_messages_are_short_for_any_file(tmp_path: Path) -> None:
    text = "user_id,item_id,rating,timestamp\r" + "".join(f"u{n},i{n},1,5\r" for n in range(30_000))
    wide = ",".join(f"c{n}" for n in range(30_000)) + "\n"
    for content, message in ((text, "ends its lines with CR alone"), (wide, "and 29988 more")):
        with pytest.raises(ValueError, match=message) as caught:
            read_table(write(tmp_path / "x.csv", content))
        assert len(str(caught.value)) < 700


def test_columns_go_by_name(tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", "9,4,u,i", header="stars,when,who,what")
    table = read_table(path, "who", "what", "stars", "when")
    assert table.row(0) == ("u", "i", 9.0, 4)


def test_inter_columns_are_named_without_their_type(tmp_path: Path) -> None:
    path = write(tmp_path / "x.inter", 'uid:token\tiid:token\tclick:float\nu"1\ti\t1\n')
    assert read_table(path, "uid", "iid", "click", None).row(0) == ('u"1', "i", 1.0, None)


def test_without_a_rating_column_every_row_is_one(tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", "u,i", "u,j", header="user_id,item_id")
    assert read_table(path, rating_column=None, timestamp_column=None)["rating"].to_list() == [1.0, 1.0]


def test_no_times_are_nulls(tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", "u,i,1,", "u,j,1,")
    assert read_table(path)["timestamp"].to_list() == [None, None]
    assert read_table(path, timestamp_column=None)["timestamp"].dtype == pl.Int64


def test_times_keep_every_digit_and_floats_are_cut(tmp_path: Path) -> None:
    path = csv(tmp_path / "a.csv", "u,i,1,9007199254740993")
    assert read_table(path, time_unit="s")["timestamp"][0] == 9007199254740993
    assert read_table(csv(tmp_path / "b.csv", "u,i,1,12.9"))["timestamp"][0] == 12


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The clock of a machine that is nowhere near UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("tokyo")
def test_dates_become_seconds_of_utc(tmp_path: Path) -> None:
    said = [
        "2014-07-01",
        "2014-07-01T12:30:00Z",
        "2014-07-01 12:30:00.9",
        "2014-07-01T12:30:00+02:00",
        "1969-12-31T23:59:59.5",
    ]
    table = read_table(csv(tmp_path / "x.csv", *(f"u,{at},1,{when}" for at, when in enumerate(said)), "u,x,1,"))
    day = 1404172800
    noon = day + 45_000
    assert table["timestamp"].to_list() == [day, noon, noon, noon - 7200, -1, None]
    assert read_table(csv(tmp_path / "y.csv", "u,i,1,20140701"))["timestamp"][0] == 20140701, "a number stays one"
    dated = table.with_columns(timestamp=pl.Series([*map(datetime.fromisoformat, said[:1] * 5), None]))
    dated.with_columns(pl.col("user_id", "item_id").cast(pl.String)).write_parquet(tmp_path / "z.parquet")
    assert read_table(tmp_path / "z.parquet")["timestamp"].to_list() == [*[day] * 5, None]


@pytest.mark.parametrize(("rows", "first"), [(["2014-07-01", "7"], "7"), (["2014-07-01", "2014-13-01"], "2014-13-01")])
def test_times_are_of_one_kind(tmp_path: Path, rows: list[str], first: str) -> None:
    path = csv(tmp_path / "x.csv", *(f"u,{when},1,{when}" for when in rows))
    with pytest.raises(
        ValueError, match=rf"1 row has a time that is no date .*\(line 3, column .*, first value '{first}'"
    ):
        read_table(path)


def test_repeats_that_disagree_are_counted_once_for_each_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = csv(tmp_path / "x.csv", "u,i,1,5", "u,j,2,6", "u,i,4,7", "u,j,2,8", "v,i,3,1")
    for _ in range(2):
        assert read_table(path)["rating"].to_list() == [4.0, 2.0, 3.0]  # the positions of the latest rows
    said = [record.message for record in caplog.records if record.message.startswith(str(path))]
    assert said == [f"{path}: 1 of 3 (user, item) pairs have different ratings. The latest row of each counts."]
    path = csv(tmp_path / "y.csv", "u,i,4,7", "u,i,1,5")
    assert read_table(path, timestamp_column=None)["rating"].to_list() == [1.0]
    assert caplog.records[-1].message.endswith("have different ratings. The last row of each counts.")


@pytest.mark.parametrize(
    ("rows", "kept"),
    [
        (["u,i,1,5", "u,j,2,6", "u,i,4,7", "v,i,3,1", "u,i,5,2"], [("u", "i", 4.0, 7)]),
        (["u,i,4,7", "u,i,1,5", "v,i,3,1", "u,i,5,2", "u,j,2,6"], [("u", "i", 4.0, 7)]),
        (
            ["u,i,4,7", "u,j,2,6", "u,i,5,7", "v,i,3,1", "u,i,1,7"],
            [("u", "i", 5.0, 7)],
        ),  # at one time the largest rating
        (["u,i,9,", "u,i,4,", "u,j,2,6", "u,i,1,", "v,i,3,1"], [("u", "i", 1.0, None)]),  # without times the last row
        (["u,i,4,7", "u,i,9,", "u,j,2,6", "v,i,3,1", "u,i,8,"], [("u", "i", 4.0, 7)]),
    ],
)
def test_repeats_count_at_their_latest_time(
    rows: list[str], kept: list[Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), collected_facts() as facts:
        table = read_table(csv(tmp_path / "x.csv", *rows))
    assert facts[0].counts == {"rows repeat the user and item of others, and the latest counts": 2}
    assert sorted(table.rows()) == sorted([*kept, ("u", "j", 2.0, 6), ("v", "i", 3.0, 1)])
    assert "2 repeated (user, item) rows merged" in caplog.text


def test_ids_are_stripped_of_spaces(tmp_path: Path) -> None:
    assert read_table(csv(tmp_path / "x.csv", " u ,i,1,"))["user_id"][0] == "u"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No file .*nowhere\.csv"):
        read_table(tmp_path / "nowhere.csv")


def test_a_missing_domain_lists_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(
        FileNotFoundError, match=r"No ratings of 'book' in .* book\.csv, book\.tsv, .*plain or \.gz.*book\.parquet"
    ):
        find_table(tmp_path, "book")
    with pytest.raises(FileNotFoundError, match="the folder itself does not exist"):
        find_table(tmp_path / "gone", "book")


def test_what_is_there_and_looks_like_what_was_asked_for_is_named(tmp_path: Path) -> None:
    for name in ("music.csv.gz", "book.csv"):
        (tmp_path / "douban" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "douban" / name).touch()
    with pytest.raises(FileNotFoundError, match=r"'musik' in .*/douban\. Did you mean music\? Looked for musik\.csv,"):
        find_table(tmp_path / "douban", "musik")
    with pytest.raises(FileNotFoundError, match=r"\(the folder itself does not exist\)\. Did you mean douban\? Looked"):
        find_table(tmp_path / "duoban", "music")
    with pytest.raises(FileNotFoundError, match=r"/douban\. Looked for"):
        find_table(tmp_path / "douban", "x")


@pytest.mark.parametrize("name", ["x.docx", "x.parquet.gz", "x"])
def test_an_unknown_ending_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"unknown ending\. Use one of \.csv, \.tsv"):
        read_table(write(tmp_path / name, "user_id"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "has no rows"),
        (["u,i,1,", ",i,1,"], r"1 row has no user \(line 3, column 'user_id'\)"),
        (["u,i,1,", "u,  ,1,"], "1 row has no item"),
        (["u,i,good,", "u,j,1,"], r"1 row has a rating that .* \(line 2, column 'rating', first value 'good'\)"),
        (["u,i,NaN,", "u,j,inf,"], "2 rows have a rating that is not a finite number .lines 2, 3"),
        (["u,i,,", "u,j,1,"], "1 row has no rating .*set rating_column to null"),
        (["u,i,1,inf"], "1 row has a time that is neither"),
        (["u,i,1,noon"], "time that is neither .*, first value 'noon'"),
        (
            ["u,i,,5", "u\tu,j,1,5", "u,j,1,5", "", *["v,i,,"] * 5, ",j,bad,noon", "w,i,1,2"],
            r"x\.csv: 2 rows have no user \(lines 5, 11, column 'user_id'\); 1 row has a user .*; 1 row has no item \(line 5, .*"
            r"7 rows have no rating \(lines 2, 5, 6, \.\.\., column 'rating'\); 1 row has a rating .*"
            r"\(line 11, column 'rating', first value 'bad'\); 1 row has a time .*\(line 11, column 'timestamp', ",
        ),
    ],
)
def test_faulty_rows_are_refused_with_lines(tmp_path: Path, rows: list[str], message: str) -> None:
    for ending in (".csv", ".csv.gz"):
        with pytest.raises(ValueError, match=message.replace(r"\.csv", re.escape(ending))):
            read_table(csv(tmp_path / f"x{ending}", *rows))


def test_of_a_long_error_of_polars_the_first_line_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> pl.LazyFrame:
        raise pl.exceptions.ComputeError("not a parquet file\n\nThis error occurred in:\n\t[1] 'parquet scan'")

    monkeypatch.setattr(pl, "scan_parquet", broken)
    with pytest.raises(ValueError, match=r"cannot be read as \.parquet: not a parquet file$"):
        read_table(write(tmp_path / "x.parquet", ""))


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"is empty\. Needed: a header line"):
        read_table(write(tmp_path / "x.csv.gz", ""))


def test_a_missing_column_lists_those_that_are_there(tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", "u,i", header="user_id,item_id")
    with pytest.raises(ValueError, match=r"no column 'rating'; its columns are \['user_id', 'item_id'\]"):
        read_table(path, timestamp_column=None)
    with pytest.raises(
        ValueError, match=r"no column 'timestamp'.*columns: {DOMAIN: {user: .*set timestamp_column to null"
    ):
        read_table(path, rating_column=None)


def test_json_is_refused_by_line_or_row_and_with_nested_ids(tmp_path: Path) -> None:
    good, bad, nested = (f'{{"user_id": {row}, "item_id": 7}}\n' for row in ('"u"', "null", '{"0": "u"}'))
    refused = {f"\ufeff{good}\n{bad}": "line 3", f"[{good}, {bad}]": "row 2", nested: "'user_id' .* has type Struct"}
    for text, message in refused.items():
        with pytest.raises(ValueError, match=message):
            read_table(write(tmp_path / "x.json", text), rating_column=None, timestamp_column=None)


def test_negatives_keep_their_order(tmp_path: Path) -> None:
    path = csv(tmp_path / "x.csv", "2,9", "1,3", "2,1", header="user_id,item_id")
    assert read_negatives(path).rows() == [("2", "9"), ("1", "3"), ("2", "1")]
    with pytest.raises(ValueError, match="no column 'item_id'"):
        read_negatives(csv(tmp_path / "y.csv", "2", header="user_id"))
