"""Tables that were damaged: read as what they say, or refused in one sentence that names the file."""

import gzip
import io
from functools import cache
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules.tables import ENDINGS, SCHEMA, read_table
from tests.fuzz.damage import ENDS, HITS, Hit, cases, damaged, refusal_of

ROWS = 30
SEPARATORS = {"csv": ",", "tsv": "\t", "inter": "\t"}


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
    if ending.startswith(".inter"):
        table = table.rename({name: f"{name}:token" for name in table.columns})
    table.write_csv(file, separator=SEPARATORS[ending.split(".")[1]])
    return gzip.compress(file.getvalue()) if ending.endswith(".gz") else file.getvalue()


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
