"""What a Parquet file unpacks to is told by what is written in it, and nothing that is claimed of it is believed."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import datamodules.parquet
from datamodules.parquet import _struct, unpacked

ROWS = 3000
COLUMNS = ["user_id", "rating"]
TABLE = pl.select(
    user_id=pl.int_range(ROWS).cast(pl.String), before=pl.lit([1, 2]), rating=pl.int_range(ROWS) % 5, other=pl.lit(1.5)
)


@pytest.mark.parametrize("compression", ["uncompressed", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("settings", [{}, {"statistics": False}, {"row_group_size": 700}, {"data_page_size": 500}])
def test_it_is_what_was_written(tmp_path: Path, compression: Any, settings: dict[str, Any]) -> None:  # noqa: ANN401
    path = tmp_path / "x.parquet"
    TABLE.write_parquet(path, compression=compression, **settings)
    found = unpacked(path, COLUMNS)
    assert found.rows == ROWS
    assert 2 * ROWS <= found.values <= 2 * ROWS + ROWS  # a dictionary has values too
    least = sum(len(str(row)) for row in range(ROWS))  # each id once
    assert least <= found.size <= 30 * ROWS
    assert 8 * ROWS <= unpacked(path, ["other"]).size < 9 * ROWS, "which is written without a dictionary"
    assert unpacked(path, ["none"]) == (ROWS, 0, 0)


def test_pages_count_and_not_what_the_footer_says_of_them(tmp_path: Path) -> None:
    """A page that claims two gigabytes is given them by whoever reads it."""
    path = tmp_path / "x.parquet"
    pl.DataFrame({"user_id": ["a" * 100]}).write_parquet(path, compression="snappy", statistics=False)
    content, before = path.read_bytes(), unpacked(path, ["user_id"]).size
    at = content.index(bytes([0x15, 0x00, 0x15]))  # a header of a data page: its kind, then what it unpacks to
    # The number takes a byte or two; as many are left out behind, in the page itself.
    _, end = datamodules.parquet._varint(content, at + 3)
    claimed = bytes([0xFE, 0xFF, 0xFF, 0xFF, 0x0F])  # 2^31 - 1
    grown = len(claimed) - (end - at - 3)
    tail = content.index(b"a" * 8, end) if b"a" * 8 in content[end:-200] else end + 40
    path.write_bytes(content[: at + 3] + claimed + content[end:tail] + content[tail + grown :])
    assert before < 1000
    assert unpacked(path, ["user_id"]).size >= 2**31 - 1


def test_a_column_is_found_by_its_place_whatever_it_is_called_there(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    TABLE.write_parquet(path)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    renamed = content[footer:].replace(b"user_id", b"another").replace(b"another", b"user_id", 1)  # of the schema alone
    path.write_bytes(content[:footer] + renamed)
    assert unpacked(path, ["user_id"]).size == unpacked(path, ["another"]).size > 10_000


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no footer"),
        (b"PAR1", "no footer"),
        (b"PAR1" + (2**31).to_bytes(4, "little") + b"PAR1", "no footer"),
        (b"PAR1" + b"\x15" + (1).to_bytes(4, "little") + b"PAR1", "footer is cut off"),
        (b"PAR1" + b"\x1c" * 50 + (50).to_bytes(4, "little") + b"PAR1", "nested too deep"),
        (b"PAR1" + b"\x19" * 50 + (50).to_bytes(4, "little") + b"PAR1", "nested too deep|cut off"),
        (b"PAR1" + b"\x19\xf7\xff\xff\xff\x7f\x00" + (7).to_bytes(4, "little") + b"PAR1", "cut off"),
        (b"PAR1" + b"\x1b\x00" + (2).to_bytes(4, "little") + b"PAR1", "of the kind 11"),
        (b"PAR1" + b"\x16" + b"\xff" * 12 + (13).to_bytes(4, "little") + b"PAR1", "a number that is too long"),
        (b"PAR1" + b"\x45\x02\x00" + (3).to_bytes(4, "little") + b"PAR1", "where a list of structures is wanted"),
    ],
)
def test_a_footer_that_is_none_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.parquet").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        unpacked(tmp_path / "x.parquet", COLUMNS)


def test_a_long_footer_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TABLE.write_parquet(tmp_path / "x.parquet")
    monkeypatch.setattr(datamodules.parquet, "FOOTER", 100)
    with pytest.raises(ValueError, match=r"its footer has [\d,]+ bytes, and at most 100 are read"):
        unpacked(tmp_path / "x.parquet", COLUMNS)


def test_numbers_of_fields_may_be_written_out() -> None:
    """Thrift writes the step from one number to the next, or, where it is large, the number itself."""
    assert _struct(b"\x15\x02\x05\xc8\x01\x04\x11\x00", 0, 0) == ({1: 1, 100: 2, 101: True}, 8)
