"""Tables of every kind: whole ones are read row by row, damaged ones as what they say, or refused with the file's name."""

import bz2
import gzip
import io
import json
import zipfile
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules import Files, Frames
from datamodules.data_quality import collected_facts
from datamodules.tables import SCHEMA, read_table
from tests.fuzz.damage import ENDS, HITS, Hit, cases, damaged, refusal_of

pytestmark = pytest.mark.thorough

ROWS = 30
SEPARATORS = {"csv": ",", "tsv": "\t", "inter": "\t", "dat": "::", "txt": " "}
ENDINGS = (".csv", ".csv.gz", ".csv.bz2", ".csv.zst", ".csv.zip", ".tsv", ".tsv.gz", ".inter", ".jsonl", ".parquet")


@cache
def whole(ending: str) -> bytes:
    """A file of every ending as it should be."""
    table = pl.DataFrame(
        {
            "user_id": pl.Series([f"ü{i % 7}" for i in range(ROWS)], dtype=pl.Categorical),
            "item_id": pl.Series(range(ROWS), dtype=pl.UInt64),
            "rating": [i % 5 / 2 for i in range(ROWS)],
            "timestamp": pl.Series([f"2020-01-{i + 1:02}" for i in range(ROWS)]).str.to_date(),
            "notes": [[{"a": "x"}]] * ROWS,
        }
    )
    file = io.BytesIO()
    if ending == ".parquet":
        table.write_parquet(file)
        return file.getvalue()
    table = table.drop("notes")
    if ending == ".jsonl":
        table.write_ndjson(file)
        return file.getvalue()
    if ending.startswith(".inter"):
        table = table.rename({name: f"{name}:token" for name in table.columns})
    table.write_csv(file, separator=SEPARATORS[ending.split(".")[1]])
    return packed(file.getvalue(), ending)


def packed(content: bytes, ending: str) -> bytes:
    """The content as the ending says."""
    file = io.BytesIO()
    if ending.endswith(".zst"):
        pl.DataFrame({"line": content.decode().removesuffix("\n").split("\n")}).lazy().sink_csv(
            file, include_header=False, quote_style="never", compression="zstd"
        )
        return file.getvalue()
    if ending.endswith(".zip"):
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("x.csv", content)
        return file.getvalue()
    return {"gz": gzip.compress, "bz2": bz2.compress}.get(ending.rsplit(".", 1)[-1], bytes)(content)


PLACES = (".csv", ".csv.gz", ".csv.zst", ".csv.zip", ".tsv", ".tsv.bz2", ".dat", ".txt")  # columns may go by position
KINDS = (*PLACES, ".inter", ".jsonl", ".json", ".parquet", "/part.parquet")
ID_TYPES = (pl.String(), pl.Int64(), pl.Float64(), pl.Decimal(38, 1), pl.Binary(), pl.Categorical())  # in Parquet
FACTORS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
UNITS = st.sampled_from((*FACTORS, "iso"))
#: How a table is written: its kind, the domain, text of a column that is not needed with ratings, the unit of the times and of the
#: last one, whether the unit is stated, repetitions of the first row, what is done with bad rows, encoding, header and type of ids.
TABLES = st.tuples(
    st.sampled_from(KINDS),
    st.one_of(st.just("x"), st.text(st.sampled_from("aÄ.-_ ~%*[]?{}#:\\/\n"), max_size=5)),
    st.lists(
        st.tuples(
            st.text(st.sampled_from("ab\",:;\t\n' 12\\é\x1f"), max_size=8),  # what a kind cannot write is taken out
            st.sampled_from(["3"] * 9 + ["4,5", "", "bad"]),
        ),
        min_size=1,
        max_size=12,
    ),
    UNITS,
    st.one_of(st.none(), st.none(), UNITS),
    st.booleans(),
    st.integers(0, 2),
    st.sampled_from(("error", "drop", "convert")),
    st.sampled_from(("utf-8", "latin-1", "utf-16")),
    st.booleans(),
    st.sampled_from(ID_TYPES),
)
Table = tuple[str, str, list[tuple[str, str]], str, str | None, bool, int, str, str, bool, pl.DataType]


def in_memory(rows: list[tuple[str, ...]], ids: pl.DataType) -> pl.DataFrame:
    """A table with users of a type."""
    frame = pl.DataFrame(rows, schema=["name", *SCHEMA], orient="row")
    return frame.with_columns(pl.col("user_id").cast(pl.Int64 if ids.is_numeric() else pl.String).cast(ids))


def written(
    ending: str, rows: list[tuple[str, ...]], encoding: str, named: bool, ids: pl.DataType
) -> tuple[bytes, list[int]]:
    """A table as a careful program writes it, and the number of each row in it."""
    header, kind, file = ("name", *SCHEMA), ending.split(".")[1], io.BytesIO()
    above = [tuple(f"{name}:token" for name in header) if kind == "inter" else header] * named
    if kind == "parquet":
        in_memory(rows, ids).write_parquet(file)
    if kind in ("parquet", "json"):
        text = json.dumps([dict(zip(header, row, strict=True)) for row in rows]).encode(encoding)
        return file.getvalue() or text, list(range(1, len(rows) + 1))
    if kind == "jsonl":
        lines, above = [json.dumps(dict(zip(header, row, strict=True))) for row in rows], []
    elif kind == "csv":
        lines = [",".join(f'"{one.replace(chr(34), 2 * chr(34))}"' for one in row) for row in (*above, *rows)]
    else:
        separator = SEPARATORS[kind]
        allowed = str.maketrans("", "", f"\n\x1f{separator}" + "\t" * (kind == "txt"))
        clean = [(name.translate(allowed).strip() or "x", *rest) for name, *rest in rows]
        lines = [separator.join(row) for row in (*above, *clean)]
    starts = [1 + sum(line.count("\n") + 1 for line in lines[:at]) for at in range(len(lines))]
    return packed("\n".join(lines).encode(encoding), ending), starts[len(above) :]


def time_in(second: int, unit: str) -> str:
    """A moment within a second, in a unit or as a date."""
    return (
        datetime.fromtimestamp(second, UTC).isoformat()
        if unit == "iso"
        else str(second * FACTORS[unit] + FACTORS[unit] // 2)
    )


def outcome(data: Files, domain: str) -> tuple[Any, ...]:
    """Rows and counts of a domain, or a message."""
    with collected_facts() as facts:
        try:
            return sorted(data.read(domain).rows()), facts[0].counts
        except ValueError as refused:
            return (str(refused),)


def as_written(folder: Path, table: Table) -> None:
    """Every row is read, from a file and from memory, or left out or refused with its number."""
    ending, domain, content, unit, other, stated, repeats, action, encoding, named, ids = table
    encoding, named = "utf-8" if ending.endswith(".zst") else encoding, named or ending not in PLACES
    words = [rating or "bad" * (ending == ".txt") for _, rating in content]  # blanks around nothing are one
    units = [*[unit] * (len(content) - 1), other or unit]
    times = [time_in(1_400_000_000 + at, one) for at, one in enumerate(units)]
    rows = [(name, f"1{at}", f"i{at}", words[at], times[at]) for at, (name, _) in enumerate(content)]
    rows += rows[:1] * repeats
    settings: dict[str, Any] = {"on_bad_rows": action, "time_unit": unit if stated and unit != "iso" else None}
    try:
        text: Any = {"encoding": encoding, "separator": {".txt": "blanks", ".dat": None if named else "::"}.get(ending)}
        places = {"user": 1, "item": 2, "rating": 3, "timestamp": 4}
        file = Files("x", domain, root=folder, columns={} if named else {domain: places}, **text, **settings)
    except ValueError:
        assert not domain.isprintable() or domain in ("", ".", "..") or {*domain} & {*"/\\"}
        return
    path = folder / f"{domain}{ending}"
    path.parent.mkdir(exist_ok=True)
    packed_rows, numbers = written(ending, rows, encoding, named, ids)
    path.write_bytes(packed_rows)
    found = (outcome(file, domain), outcome(Frames(in_memory(rows, ids), name=domain, **settings), domain))
    path.unlink()
    expect(found[0], rows, units, settings, numbers)
    expect(found[1], rows, units, settings, list(range(1, len(rows) + 1)))


def expect(
    found: tuple[Any, ...], rows: list[tuple[str, ...]], units: list[str], settings: dict[str, Any], numbers: list[int]
) -> None:
    """Compare what was read with what was written."""
    action, stated = settings["on_bad_rows"], settings["time_unit"]
    mixed = len({*units}) > 1 and (not stated or "iso" in units)
    values = {"3": 3.0} | ({"4,5": 4.5} if action == "convert" else {})
    faults = {
        "no rating": [at for at, row in zip(numbers, rows, strict=True) if not row[3]],
        "no finite number": [at for at, row in zip(numbers, rows, strict=True) if row[3] and row[3] not in values],
    }
    usable = [row for row in rows if row[3] in values]
    if mixed or not usable or (action == "error" and len(usable) < len(rows)):
        assert len(found) == 1, "refused"
        if action == "error":
            shown = [", ".join(map(str, lines[:3])) + ", ..." * (len(lines) > 3) for lines in faults.values() if lines]
            assert all(f" {lines}, column " in found[0] for lines in shown)
        return
    factor = 1 if units[0] == "iso" else FACTORS[stated or units[0]]
    second = lambda text: int(datetime.fromisoformat(text).timestamp()) if "T" in text else int(text) // factor  # noqa: E731
    assert found[0] == sorted({(user, item, values[rating], second(time)) for _, user, item, rating, time in usable})
    assert sum(n for what, n in found[1].items() if "exact duplicates" in what) == len(usable) - len(found[0])


def never_fewer(folder: Path, names: list[str]) -> None:
    """A program that writes quotes as they are: every row is read, or the file refused."""
    path, rows = folder / "x.csv", [f"{name},u{at},i{at},3,14000000{at:02}" for at, name in enumerate(names)]
    path.write_text("\n".join(["name,user_id,item_id,rating,timestamp", *rows]) + "\n")
    try:
        found = read_table(path)
    except ValueError as refused:
        refusal_of(refused, path.name)
        return
    assert found.height == len(names)


QUOTED = st.lists(st.text(st.sampled_from('ab" 1'), max_size=5), min_size=1, max_size=12)


@cases(300, 100_000)
@given(table=TABLES)
def test_every_row_that_was_written_is_read(tmp_path: Path, table: Table) -> None:
    as_written(tmp_path, table)


@cases(300, 100_000)
@given(names=QUOTED)
def test_no_row_is_lost_to_a_stray_quote(tmp_path: Path, names: list[str]) -> None:
    never_fewer(tmp_path, names)


def read_or_refused(folder: Path, ending: str, content: bytes) -> None:
    """A table that keeps its word, or a ValueError with the file's name in it."""
    path = folder / f"x{ending}"
    path.write_bytes(content)
    try:
        table = read_table(path)
    except ValueError as refused:
        refusal_of(refused, path.name)
        return
    assert table.schema == SCHEMA
    assert table["rating"].is_finite().all()
    assert not table["user_id"].null_count() + table["item_id"].null_count()


@cases(150, 7_000)
@given(ending=st.sampled_from(ENDINGS), hits=HITS, at_the_end=ENDS)
def test_a_damaged_table_is_read_or_refused(tmp_path: Path, ending: str, hits: list[Hit], at_the_end: bool) -> None:
    read_or_refused(tmp_path, ending, damaged(whole(ending), hits, at_the_end))


@pytest.mark.slow
@cases(2_000)
@given(ending=st.sampled_from([ending for ending in ENDINGS if ending.count(".") == 1]), text=st.text(max_size=200))
def test_any_text_is_read_or_refused(tmp_path: Path, ending: str, text: str) -> None:
    header = SEPARATORS.get(ending[1:], ",").join(SCHEMA)
    read_or_refused(tmp_path, ending, f"{header}\n{text}".encode(errors="replace"))
