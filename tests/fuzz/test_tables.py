"""Tables of every kind: whole ones are read row by row, damaged ones as what they say, or refused with the file's name."""

import bz2
import csv
import gzip
import io
import json
import zipfile
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.tables import SCHEMA, read_table
from datamodules.text_table import TextForm
from tests.fuzz.damage import ENDS, HITS, Hit, cases, damaged, refusal_of

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


#: Text of a column that is not needed; what a kind cannot write is taken out.
NAMES = st.lists(st.text(st.sampled_from("ab\",:;\t\n' 12\\é\x1f"), max_size=8), min_size=1, max_size=12)
KINDS = st.sampled_from(
    (".csv", ".csv.gz", ".csv.zst", ".csv.zip", ".tsv", ".tsv.bz2", ".dat", ".txt", ".jsonl", ".parquet")
)


def written(ending: str, names: list[str]) -> bytes:
    """A table with a name in each row, as a careful program writes it."""
    header = ["name", *SCHEMA]
    rows = [(name, f"u{at}", f"i{at}", "3", str(1_400_000_000 + at)) for at, name in enumerate(names)]
    kind, file = ending.split(".")[1], io.StringIO()
    if kind == "jsonl":
        text = "".join(json.dumps(dict(zip(header, row, strict=True))) + "\n" for row in rows)
    elif kind == "parquet":
        table = io.BytesIO()
        pl.DataFrame(rows, schema=header, orient="row").write_parquet(table)
        return table.getvalue()
    elif kind == "csv":
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
        text = file.getvalue()
    else:
        separator = SEPARATORS[kind]
        allowed = str.maketrans("", "", f"\n\x1f{separator}" + "\t" * (kind == "txt"))
        clean = [(name.translate(allowed).strip() or "x", *rest) for name, *rest in rows]
        text = "\n".join(separator.join(row) for row in [header, *clean])
    return packed(text.encode(), ending)


def as_written(folder: Path, ending: str, names: list[str]) -> None:
    """Every row that was written is read."""
    path = folder / f"x{ending}"
    path.write_bytes(written(ending, names))
    form = TextForm(separator="blanks" if ending == ".txt" else None)
    found = read_table(path, form=form)
    wanted = [(f"u{at}", f"i{at}", 3.0, 1_400_000_000 + at) for at in range(len(names))]
    assert found.rows() == wanted


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


@cases(500)
@given(ending=KINDS, names=NAMES)
def test_every_row_that_was_written_is_read(tmp_path: Path, ending: str, names: list[str]) -> None:
    as_written(tmp_path, ending, names)


@cases(500)
@given(names=QUOTED)
def test_no_row_is_lost_to_a_stray_quote(tmp_path: Path, names: list[str]) -> None:
    never_fewer(tmp_path, names)


@pytest.mark.slow
@cases(70_000)
@given(ending=KINDS, names=NAMES)
def test_many_rows_that_were_written_are_read(tmp_path: Path, ending: str, names: list[str]) -> None:
    as_written(tmp_path, ending, names)


@pytest.mark.slow
@cases(30_000)
@given(names=QUOTED)
def test_no_row_is_lost_to_many_stray_quotes(tmp_path: Path, names: list[str]) -> None:
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


@cases(150)
@given(ending=st.sampled_from(ENDINGS), hits=HITS, at_the_end=ENDS)
def test_a_damaged_table_is_read_or_refused(tmp_path: Path, ending: str, hits: list[Hit], at_the_end: bool) -> None:
    read_or_refused(tmp_path, ending, damaged(whole(ending), hits, at_the_end))


@pytest.mark.slow
@cases(7_000)
@given(ending=st.sampled_from(ENDINGS), hits=HITS, at_the_end=ENDS)
def test_many_damaged_tables_are(tmp_path: Path, ending: str, hits: list[Hit], at_the_end: bool) -> None:
    read_or_refused(tmp_path, ending, damaged(whole(ending), hits, at_the_end))


@pytest.mark.slow
@cases(2_000)
@given(ending=st.sampled_from([ending for ending in ENDINGS if ending.count(".") == 1]), text=st.text(max_size=200))
def test_any_text_is_read_or_refused(tmp_path: Path, ending: str, text: str) -> None:
    header = SEPARATORS.get(ending[1:], ",").join(SCHEMA)
    read_or_refused(tmp_path, ending, f"{header}\n{text}".encode(errors="replace"))
