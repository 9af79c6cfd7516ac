"""Files beside a domain's ratings, and lists that parties agree on: read as what they say, or refused in words."""

from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datamodules import Evaluation, Files
from datamodules.public_lists import read_catalogue, read_users
from tests.fuzz.damage import ENDS, HITS, Hit, cases, damaged, refusal_of

pytestmark = pytest.mark.thorough

ENDINGS = ("csv", "parquet", "inter")
#: Users with eight items each, of twelve; the last two are held out, and two of those that are left are the negatives.
RATED = [(f"u{user}", f"i{(user + k) % 12}", 1.0 + k % 5, k) for user in range(6) for k in range(8)]
PARTS = {
    "music": RATED,
    "music_valid": [row for row in RATED if row[3] == 6],
    "music_test": [row for row in RATED if row[3] == 7],
    "music_negatives": [(f"u{user}", f"i{(user + k) % 12}", 0.0, 0) for user in range(6) for k in (8, 9)],
}
#: Values of people, in which a terminal would find orders.
ODD_IDS = ("", " ", "\x1b[31m", "u0", "é", "\u202e", "x" * 2000, '"', "NaN", "1e5", "u0\x00")


def written(folder: Path, part: str, ending: str, rows: list[tuple[str, str, float, int]]) -> Path:
    path = folder / f"{part}.{ending}"
    table = pl.DataFrame(rows, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")
    if ending == "parquet":
        table.write_parquet(path)
    elif ending == "csv":
        table.write_csv(path)
    else:
        types = dict(zip(table.columns, ("token", "token", "float", "float"), strict=True))
        table.rename({name: f"{name}:{kind}" for name, kind in types.items()}).write_csv(path, separator="\t")
    return path


def data_set(folder: Path, ending: str) -> dict[str, Path]:
    for old in folder.glob("music*"):
        old.unlink()
    return {part: written(folder, part, ending, rows) for part, rows in PARTS.items()}


def read_or_refused(folder: Path) -> None:
    """A target of which everything can be asked, or an error in words."""
    data = Files("mine", "music", root=folder, evaluation=Evaluation(split="given", num_candidates=2), seed=1)
    try:
        data.read_target()
    except ValueError as refused:
        refusal_of(refused, "")
        return
    for held in (data.validation, data.test):
        assert bool((held.users < data.train.num_users).all() and (held.items < data.train.num_items).all())
        assert bool((held.candidates < data.train.num_items).all())
    assert len(data.digests) == 1


def with_damage(folder: Path, part: str, ending: str, hits: list[Hit], at_the_end: bool) -> None:
    path = data_set(folder, ending)[part]
    path.write_bytes(damaged(path.read_bytes(), hits, at_the_end))
    read_or_refused(folder)


def with_rows(folder: Path, part: str, rows: list[tuple[str, str, float, int]], only: bool) -> None:
    data_set(folder, "parquet")
    written(folder, part, "parquet", rows if only else PARTS[part] + rows)
    read_or_refused(folder)


ROWS = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(ODD_IDS), st.integers(0, 7).map("u{}".format)),
        st.one_of(st.sampled_from(ODD_IDS), st.integers(0, 13).map("i{}".format)),
        st.sampled_from([0.0, 1.0, -1.0, 5.0, 1e300, float("nan"), float("inf")]),
        st.sampled_from([0, -1, 2**62]),
    ),
    max_size=4,
)
DAMAGE = {"part": st.sampled_from(sorted(PARTS)), "ending": st.sampled_from(ENDINGS), "hits": HITS, "at_the_end": ENDS}
OTHERS = {"part": st.sampled_from(sorted(PARTS)), "rows": ROWS, "only": st.booleans()}


def test_the_whole_one_is_read(tmp_path: Path) -> None:
    for ending in ENDINGS:
        data_set(tmp_path, ending)
        data = Files("mine", "music", root=tmp_path, evaluation=Evaluation(split="given", num_candidates=2), seed=1)
        data.read_target()
        assert (len(data.validation.users), len(data.test.users), data.test.candidates.shape[1]) == (5, 5, 2)


@cases(20, 1_000)
@given(**DAMAGE)
def test_a_damaged_file_beside_the_ratings_is_read_or_refused(
    tmp_path: Path, part: str, ending: str, hits: list[Hit], at_the_end: bool
) -> None:
    with_damage(tmp_path, part, ending, hits, at_the_end)


@cases(20, 1_000)
@given(**OTHERS)
def test_odd_rows_beside_the_ratings_are(
    tmp_path: Path, part: str, rows: list[tuple[str, str, float, int]], only: bool
) -> None:
    with_rows(tmp_path, part, rows, only)


# Lists.

LISTS = {"user_id": read_users, "item_id": read_catalogue}


def listed_or_refused(path: Path, column: str, content: bytes) -> None:
    path.write_bytes(content)
    try:
        found = LISTS[column](path)
    except ValueError as refused:
        refusal_of(refused, path.name)
        return
    assert found == sorted(set(found))
    assert all(name == name.strip(" \t\r\n") != "" for name in found)


LISTED = {"column": st.sampled_from(sorted(LISTS)), "hits": HITS, "at_the_end": ENDS}
TEXTS = {"column": st.sampled_from(sorted(LISTS)), "text": st.text(max_size=100)}


def list_of(column: str) -> bytes:
    return f"{column},since\n".encode() + b"".join(f"n{number},2020\n".encode() for number in range(20))


@cases(30, 1_000)
@given(**LISTED)
def test_a_damaged_list_is_read_or_refused(tmp_path: Path, column: str, hits: list[Hit], at_the_end: bool) -> None:
    listed_or_refused(tmp_path / "x.csv", column, damaged(list_of(column), hits, at_the_end))


@pytest.mark.slow
@cases(1_000)
@given(**TEXTS)
def test_any_text_is_a_list_or_refused(tmp_path: Path, column: str, text: str) -> None:
    listed_or_refused(tmp_path / "x.csv", column, f"{column}\n{text}".encode(errors="replace"))
