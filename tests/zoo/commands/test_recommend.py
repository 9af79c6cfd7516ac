"""``recommend`` and ``export``: a table or a file that is whole, and refusals of one sentence."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

import zoo
from zoo.__main__ import main
from zoo.commands.recommend import RequestError, ending_with_message, ids_in, read_lists, read_users_file, write_tables


def ended(arguments: list[object], monkeypatch: pytest.MonkeyPatch) -> str:
    """What a command that is refused ends with; empty if it is not."""
    monkeypatch.setattr("sys.argv", ["zoo", *map(str, arguments)])
    try:
        main()
    except SystemExit as error:
        return str(error.code)
    return ""


def test_recommendations_are_shown_or_written(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(["recommend", finished, "--users", "u0003,u0001", "--k", 2], monkeypatch) == ""
    lines = [line.split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    assert [line[1].strip() for line in lines] == ["u0003", "", "u0001", ""]
    (tmp_path / "who.csv").write_text("user_id,age\nu0003,5\nu0001,6\n")
    for form, read in (("parquet", pl.read_parquet), ("csv", pl.read_csv)):
        out = tmp_path / "new" / f"best.{form}"
        arguments = ["recommend", finished, "--users-file", tmp_path / "who.csv", "--k", 2, "--out", out]
        assert ended(arguments, monkeypatch) == ""
        assert f"Recommendations for 2 users: {out}" in capsys.readouterr().out
        assert read(out)["item_id"].to_list() == [line[3].strip() for line in lines]
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == ["best.csv", "best.parquet"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: np.empty(2**50), r"allocate 8\.00 PiB"),
        (lambda: torch.empty(2**51), "can't allocate memory.* 9007199254740992 bytes"),
        (lambda: torch.linalg.cholesky(-torch.eye(2)), "factorization could not be completed"),
    ],
)
def test_what_numbers_lead_to_ends_in_a_sentence(make: Callable[[], object], said: str) -> None:
    with pytest.raises(SystemExit, match=rf"^\w*Error: .*{said}"), ending_with_message():
        make()


def test_until_lists_are_whole_nothing_of_them_is_visible(tmp_path: Path) -> None:
    """A killed command leaves hidden files with the name of the list, which the next one removes."""

    def tables() -> Iterator[pl.DataFrame]:
        for number in range(2):
            yield pl.DataFrame({"user_id": [f"u{number}"]})
            assert all(re.fullmatch(r"\.lists\[1\]\.csv\..*\.tmp", path.name) for path in tmp_path.iterdir())

    write_tables(tables(), tmp_path / "lists[1].csv")
    assert [path.name for path in tmp_path.iterdir()] == ["lists[1].csv"]


@pytest.mark.thorough
def test_lists_similar_items_and_vectors_are_written(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In batches of two users, with histories and a count of what is unknown."""
    monkeypatch.setattr("zoo.runs.predictor.BATCH", 2)
    (tmp_path / "who.txt").write_text("u0001\nnobody\nu0002\nzoe\nu0003\n")
    (tmp_path / "new.csv").write_text("user_id,item_id,rating\nzoe,music-1,5\nzoe,music-2,1\nzoe,odd,5\n")
    out = tmp_path / "lists.parquet"
    asked = ["recommend", finished, "--users-file", tmp_path / "who.txt", "--histories", tmp_path / "new.csv", "--k", 3]
    assert ended([*asked, "--unknown", "popular", "--out", out], monkeypatch) == ""
    printed = capsys.readouterr()
    assert printed.err == "Unknown users: 1; ignored unknown items: 1; users with popular items: 1.\n"
    assert f"Recommendations for 5 users: {out}" in printed.out
    table, loaded = pl.read_parquet(out), zoo.load(finished)
    assert table["user_id"].to_list() == [
        user for user in ("u0001", "nobody", "u0002", "zoe", "u0003") for _ in range(3)
    ]
    expected = loaded.recommend(["zoe"], 3, histories={"zoe": ["music-1", "music-2"]})
    assert table.filter(user_id="zoe").equals(expected)
    (tmp_path / "rank.csv").write_text("user_id,item_id\nu0001,music-1\n")
    asked = [
        "recommend",
        finished,
        "--users",
        "u0001,nobody",
        "--candidates",
        tmp_path / "rank.csv",
        "--unknown",
        "popular",
    ]
    assert ended(asked, monkeypatch) == ""
    assert capsys.readouterr().err == "Unknown users: 1.\n", "there is nothing to rank for this user"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lists.parquet", "new.csv", "rank.csv", "who.txt"]
    items = loaded.item_ids
    assert ended(["similar", finished, "--items", items[4], "--k", 2, "--out", tmp_path / "s.csv"], monkeypatch) == ""
    assert ended(["vectors", finished, "--out", tmp_path / "v"], monkeypatch) == ""
    vectors = pl.read_parquet(tmp_path / "v" / "items.parquet")
    assert vectors["id"].to_list() == items
    unit = np.array(vectors["vector"].to_list())
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    cosines = unit @ unit[4]
    cosines[4] = -2
    found = pl.read_csv(tmp_path / "s.csv")
    assert found["similar_id"].to_list() == [items[at] for at in np.argsort(-cosines)[:2]]
    assert found["similarity"].to_numpy() == pytest.approx(np.sort(cosines)[::-1][:2], abs=1e-5)
    assert "1 item not found in the training data: 'odd'" in ended(["similar", finished, "--items", "odd"], monkeypatch)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--users", "u1", "--histories", "other.csv"], "other.csv has no column user_id and item_id. Write a CSV"),
        (["--users", "u1", "--seen", "none.csv"], "FileNotFoundError: No file at none.csv."),
        (["--users", "nobody"], "UnknownUserError: 1 user not found in the training data or the releases"),
        (["--users", "nobody"], "Omit them, or pass --unknown popular or skip"),
        (["--users", "u0001", "--k", "0"], "ValueError: k is 0."),
        (
            ["--users", "u0001", "--out", "best.xlsx"],
            "RequestError: --out is best.xlsx. It must end with .parquet or .csv",
        ),
        (["--users-file", "nowhere.csv"], "FileNotFoundError: No list of users at"),
        (["--users-file", "other.csv"], "other.csv has the columns ['who', 'age'] and no column user_id."),
        (["--users", "u0001", "--release", "book"], "RequestError: --release is 'book'. Pass NAME=PATH"),
        (["--users", "u0001", "--release", "book=nowhere"], "nowhere"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.csv").write_text("who,age\nu0001,5\n")
    assert said in ended(["recommend", finished, *arguments], monkeypatch)
    assert [file.name for file in tmp_path.iterdir()] == ["other.csv"]


def test_histories_may_have_no_row_yet(tmp_path: Path) -> None:
    (tmp_path / "today.csv").write_text("user_id,item_id\n")
    assert read_lists(tmp_path / "today.csv", None) == {}
    (tmp_path / "today.csv").write_text("user_id,item_id\nzoe,music-1\n")
    assert read_lists(tmp_path / "today.csv", None) == {"zoe": ["music-1"]}


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("u1\nu2\n", ["u1", "u2"]),
        ("u1\r\n\r\n u2 \r\n", ["u1", "u2"]),
        ("user_id\nu1\nu2", ["u1", "u2"]),
        ("\ufeffuser_id\nu1\n", ["u1"]),
        ('age,user_id\n"5\n6",u1\n6,"u,2"\n7,\n8,\n', ["u1", "u,2"]),
        ("user_id;age\n1.0;5\n2.0;6\n", ["1.0", "2.0"]),
        ('\'u1\n"u,2"\n', ["'u1", "u,2"]),
        ("17\n", ["17"]),
    ],
)
def test_users_stand_one_a_line_with_a_header_or_without(text: str, users: list[str], tmp_path: Path) -> None:
    (tmp_path / "users.txt").write_text(text, encoding="utf-8")
    assert read_users_file(tmp_path / "users.txt") == users


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has no user"),
        (b"user_id\n\n", "has no user"),
        (b"users;age\nu1;5,6\n", "has the columns"),
        (b"PAR1\xff\x00", "is no list of users"),
        (b'"u1\nu2\n', "is no list of users"),
    ],
)
def test_what_lists_no_users_is_refused(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "users").write_bytes(content)
    with pytest.raises(RequestError, match=rf"{said}.* Write one id a line, or a CSV file with a column user_id\."):
        read_users_file(tmp_path / "users")
    with pytest.raises(RequestError, match="--users is ' , '"):
        ids_in(" , ")
    assert ids_in("u1, u2,") == ["u1", "u2"]


def test_a_bundle_says_what_it_is_and_what_it_lacks(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = tmp_path / "bundle"
    assert ended(["export", finished, "--out", bundle, "--with-user-ids"], monkeypatch) == ""
    said = capsys.readouterr().out
    assert "Release of book: rating (change one rating), eps 8.00, delta 1e-05, proved." in said
    assert "No guarantee covers the target's ratings of music." in said
    assert said.endswith(f"Bundle: {bundle}\n")
    assert "PriCDR needs the ratings" in ended(["recommend", bundle, "--users", "u0001"], monkeypatch)
    said = f"{bundle} exists, and a bundle is never overwritten. Choose another path."
    assert said in ended(["export", finished, "--out", bundle], monkeypatch)
