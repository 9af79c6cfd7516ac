"""What is prepared of large files is kept: the second start equals the first, and nothing else is ever taken for it."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

import datamodules.cache
import datamodules.data_quality
import zoo
from datamodules import Evaluation, Files, Filters
from tests.zoo.test_full_disk import room_for
from zoo.release.denoiser import Denoiser
from zoo.runtime.run_folder import write_json

ROWS = [
    (f"u{user}", f"i{(user * 7 + k * 3) % 23}", 1.0 + k % 5, 100 * user + k) for user in range(12) for k in range(6)
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set, all of whose files count as large, and a cache beside it."""
    monkeypatch.setattr(datamodules.cache, "LARGE", 1)
    monkeypatch.setenv("ZOO_CACHE", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    written(tmp_path, ROWS)
    return tmp_path


def written(folder: Path, rows: list[tuple[str, str, float, int]]) -> None:
    pl.DataFrame(rows, schema=["user_id", "item_id", "rating", "timestamp"], orient="row").write_csv(
        folder / "data" / "books.csv"
    )


def read(folder: Path, **settings: Any) -> Files:  # noqa: ANN401
    data = Files("mine", "books", root=folder / "data", **{"seed": 3, **settings})
    data.read_target()
    return data


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "cache" / "prepared").glob("*"))


def same(one: Files, other: Files) -> bool:
    """All that a method could see of two."""
    for mine, theirs in ((one.validation, other.validation), (one.test, other.test)):
        for name in ("users", "items", "candidates", "ratings", "left_out"):
            a, b = getattr(mine, name), getattr(theirs, name)
            if a.dtype != b.dtype or not torch.equal(a, b):
                return False
        if not all(
            torch.equal(getattr(mine.seen, name), getattr(theirs.seen, name)) for name in ("starts", "items", "weights")
        ):
            return False
    return (one.digests, one.summary, one.train.applied) == (other.digests, other.summary, other.train.applied)


@pytest.mark.parametrize(
    "settings",
    [{}, {"evaluation": Evaluation(split="cold_start", cold_share=0.4)}, {"filters": Filters(signs=True, threshold=3)}],
    ids=["latest", "cold", "signs"],
)
def test_a_second_start_equals_the_first_without_reading_the_table(
    folder: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = read(folder, **settings)
    monkeypatch.setattr(Files, "read", lambda *_: pytest.fail("read again"))
    again = read(folder, **settings)
    assert same(first, again)
    assert f"Prepared ratings read from the cache {kept(folder)[0]}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "settings",
    [
        {"seed": 4},
        {"evaluation": Evaluation(split="random2")},
        {"evaluation": Evaluation(num_candidates=5)},
        {"filters": Filters(min_item_ratings=3)},
        {"rating_column": None},
    ],
)
def test_other_settings_are_prepared_anew(folder: Path, settings: dict[str, Any]) -> None:
    read(folder)
    read(folder, **settings)
    assert len(kept(folder)) == 2


def test_what_decides_nothing_is_taken_from_there(folder: Path) -> None:
    read(folder)
    read(folder, batch_size=7, evaluation_batch_size=3, top_k=2, trusted=folder / "keys", denoiser=Denoiser(3))
    assert len(kept(folder)) == 1


def test_a_changed_file_is_prepared_anew(folder: Path) -> None:
    before = read(folder)
    written(folder, ROWS[1:])
    assert read(folder).summary["train_ratings"] == before.summary["train_ratings"] - 1


def test_a_list_of_users_counts_by_what_is_in_it(folder: Path) -> None:
    users = folder / "users.csv"
    users.write_text("user_id\nu1\nu2\nu3\n")
    few = read(folder, users=str(users), sources=())
    users.write_text("user_id\nu1\nu2\nu3\nu4\n")
    assert read(folder, users=str(users), sources=()).train.num_users == few.train.num_users + 1


def test_what_was_set_after_it_was_made_counts(folder: Path) -> None:
    read(folder)
    data = Files("mine", "books", root=folder / "data", seed=3)
    data.filters = Filters(threshold=4)
    data.read_target()
    assert data.digests == read(folder, filters=Filters(threshold=4)).digests


def test_other_code_prepares_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(folder)
    monkeypatch.setattr(datamodules.cache, "_code", lambda: b"of tomorrow")
    read(folder)
    assert len(kept(folder)) == 2


def test_a_file_that_changes_while_it_is_read_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, reads = (folder / "data" / "books.csv").read_bytes(), Files.read

    def changed(data: Files, domain: str) -> pl.DataFrame:
        written(folder, ROWS[:30])
        return reads(data, domain)

    with monkeypatch.context() as patched:
        patched.setattr(Files, "read", changed)
        few = read(folder).train.num_ratings
    (folder / "data" / "books.csv").write_bytes(before)
    assert not kept(folder)
    assert read(folder).train.num_ratings > few


@pytest.mark.parametrize("place", ["file", "absent/\0"])
def test_a_folder_that_cannot_be_written_is_no_reason_to_stop(
    folder: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "file").write_text("no folder")
    monkeypatch.setattr(datamodules.cache.pooch, "os_cache", lambda _: folder / place)
    monkeypatch.delenv("ZOO_CACHE")
    assert read(folder).train.num_ratings


def test_names_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    datamodules.cache.report("bo\x1b[31mok")
    assert capsys.readouterr().err == "bo\\x1b[31mok\n"


@pytest.mark.parametrize("damage", ["short", "gone", "another", "value", "wide"])
def test_what_is_damaged_is_prepared_anew(folder: Path, damage: str) -> None:
    first = read(folder)
    file = kept(folder)[0] / "ratings.safetensors"
    if damage == "short":
        file.write_bytes(file.read_bytes()[:-7])
    elif damage == "value":
        tensors = load_file(file)
        tensors["values"][0] += 1
        save_file(tensors, file)
    elif damage == "gone":
        (file.parent / "items.parquet").unlink()
    elif damage == "another":
        (file.parent / "users.parquet").write_bytes(b"PAR1")
    else:  # an array of 4 TB, with digests to match
        pl.DataFrame({"id": ["a" * 10**6] + ["b"] * 10**6}).write_parquet(file.parent / "users.parquet")
        write_json(file.parent / "digests.json", datamodules.cache._digests(file.parent))
    assert same(first, read(folder))
    assert same(first, read(folder))
    assert len(kept(folder)) == 1


def test_what_a_class_of_another_package_reads_is_not_kept(folder: Path) -> None:
    class Theirs(Files):
        pass

    Theirs("mine", "books", root=folder / "data", seed=3).read_target()
    assert not kept(folder)


@pytest.mark.parametrize("room", [0, 900])  # the first file, and the second
def test_a_disk_without_room_is_no_reason_to_stop(folder: Path, room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datamodules.cache, "report", lambda _: None)  # what pytest catches is a file too
    with room_for(room):
        assert read(folder).train.num_ratings
    assert not list((folder / "cache" / "prepared").glob("*"))
    assert not list((folder / "cache" / "prepared").glob(".*"))


def test_the_cache_is_its_owners_alone(folder: Path) -> None:
    read(folder)
    assert (folder / "cache" / "prepared").stat().st_mode & 0o077 == 0


def test_where_others_may_write_nothing_is_kept_or_taken(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = read(folder)
    place = folder / "cache" / "prepared"
    for mode in (0o770, 0o702):
        place.chmod(mode)
        capsys.readouterr()
        assert same(first, read(folder))
        said = capsys.readouterr().err
        assert f"The cache {place} is not used: others may write to it. Empty it" in said
        assert "read from the cache" not in said
        read(folder, seed=4)
        assert len(kept(folder)) == 1
    place.chmod(0o755)  # read by others: only that there are such folders, which are their owner's alone
    assert kept(folder)[0].stat().st_mode & 0o077 == 0
    capsys.readouterr()
    read(folder)
    assert "Prepared ratings read from the cache" in capsys.readouterr().err


def test_a_folder_of_somebody_else_is_left_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read(folder)
    monkeypatch.setattr(datamodules.cache.os, "getuid", lambda: 12345)
    read(folder, seed=4)
    assert len(kept(folder)) == 1


def test_what_was_warned_of_is_warned_of_again(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In a start of its own, that is, as far as a test can have one."""
    written(folder, [*ROWS, ("u0", "i0", 4.5, 9_999), ("u1", "i22", -2.0, 9_999)])
    asked = {"evaluation": Evaluation(num_candidates=22)}
    said = []
    for _ in range(3):
        datamodules.data_quality._log_once.cache_clear()
        caplog.clear()
        read(folder, **asked)
        said.append(sorted(record.getMessage() for record in caplog.records if record.levelname == "WARNING"))
    assert len(kept(folder)) == 1
    assert said[0] == said[1] == said[2]
    assert ["negative" in " ".join(said[0]), "different ratings" in " ".join(said[0])] == [True, True]
    assert any("fewer than 22 negatives" in text for text in said[0])
    caplog.clear()
    read(folder, **asked)
    assert not caplog.records, "once in a process"


def test_what_was_said_before_is_kept_too(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    written(folder, [*ROWS, ("u1", "i22", -2.0, 9_999)])
    read(folder)
    read(folder, seed=4)  # made anew in the same process, which does not repeat itself
    datamodules.data_quality._log_once.cache_clear()
    caplog.clear()
    read(folder, seed=4)
    assert "1 of 72 ratings are negative" in caplog.text


def test_small_files_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datamodules.cache, "LARGE", 1 << 20)
    read(folder)
    assert not kept(folder)


def test_who_waits_is_told_what_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(datamodules.cache, "MANY", 10)
    read(folder)
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in said] == ["Reading", "Holding", "Drawing"]
    assert said[0].startswith("Reading books.csv (0 MiB)")
    assert said[1:] == [
        "Holding out of 72 ratings (latest2).",
        "Drawing the negatives of 12 test and 12 validation cases.",
    ]


def test_a_source_party_that_waits_is_told_what_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(datamodules.cache, "MANY", 10)
    data = Files("mine", "films", ["books"], root=folder / "data")
    zoo.publish(zoo.FlippedRows(epsilon=8.0), data, folder / "release")
    said = capsys.readouterr().err.splitlines()
    assert said == ["Reading books.csv (0 MiB).", "Publishing 72 ratings of 'books' by FlippedRows."]
    assert not kept(folder), "a source's ratings are never kept"


def test_a_source_party_with_small_files_is_told_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(datamodules.cache, "LARGE", 1 << 20)
    zoo.publish(
        zoo.FlippedRows(epsilon=8.0), Files("mine", "films", ["books"], root=folder / "data"), folder / "release"
    )
    assert capsys.readouterr().err == ""
