"""What is kept of large files, damaged: taken to the byte as it was written, or made anew, and never a reason to stop."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from datamodules import prepared
from datamodules.cache import PreparedTarget
from datamodules.synthetic import Synthetic
from tests.fuzz.damage import CHANGES, ENDS, HITS, ODD, Change, Hit, cases, changed, damaged

NAMES = ("ratings.safetensors", "users.parquet", "items.parquet", "warned.json", "facts.json", "digests.json")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is kept of a small data set."""
    data = Synthetic(num_users=20, num_items=15, ratings_per_user=5, seed=1)
    data.read_target()
    folder = tmp_path_factory.mktemp("prepared") / "whole"
    PreparedTarget(data.train, data.validation, data.test, {"remarks": []}).save(folder, ["odd"])
    return folder


def taken_or_not(whole: Path, folder: Path) -> None:
    """None, unless every byte that is looked at is as it was."""
    found = PreparedTarget.load(folder, ())
    if found is None:
        return
    for name in NAMES[:-1]:
        assert (folder / name).read_bytes() == (whole / name).read_bytes()
    assert found.train.num_users == 20


def with_damage(whole: Path, folder: Path, name: str, hits: list[Hit], at_the_end: bool, fits: bool) -> None:
    """Damage, and where it fits, with the digests of a program that has written just that."""
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    (folder / name).write_bytes(damaged((folder / name).read_bytes(), hits, at_the_end))
    if fits and name != NAMES[-1]:
        (folder / NAMES[-1]).write_text(json.dumps(prepared._digests(folder)))
        PreparedTarget.load(folder, ())  # whatever it is, it is no reason to stop
    else:
        taken_or_not(whole, folder)


@cases(60, 1_500)
@given(
    at=st.sampled_from(
        [
            ("starts", 10**6),
            ("columns", 15),
            ("test.seen.starts", 10**6),
            ("test.seen.items", 15),
            ("test.users", 20),
            ("test.candidates", 15),
            ("left_out", 15),
            ("validation.items", 15),
        ]
    ),
    place=st.integers(-1, 1_000),
    value=st.sampled_from([None, -7, 2**30]),
)
def test_numbers_of_no_user_or_item_are_not_taken(
    whole: Path, tmp_path: Path, at: tuple[str, int], place: int, value: int | None
) -> None:
    """With digests that fit, as of a received run: sorting by them would overwrite memory."""
    shutil.copytree(whole, tmp_path / "folder", dirs_exist_ok=True)
    tensors, (name, beyond) = load_file(whole / NAMES[0]), at
    tensors.pop("times" if place % 2 else "", None)  # whose number would tell
    tensors[name].view(-1)[place % tensors[name].numel()] = beyond if value is None else value
    save_file(tensors, tmp_path / "folder" / NAMES[0])
    (tmp_path / "folder" / NAMES[-1]).write_text(json.dumps(prepared._digests(tmp_path / "folder")))
    assert PreparedTarget.load(tmp_path / "folder", ()) is None


def test_tensors_of_other_types_are_not_taken(whole: Path, tmp_path: Path) -> None:
    """Torch would fail on them when users are scored."""
    shutil.copytree(whole, tmp_path / "folder")
    written = load_file(whole / NAMES[0])
    for name, other in (
        ("left_out", torch.float32),
        ("validation.users", torch.uint64),
        ("test.candidates", torch.complex64),
        ("values", torch.float8_e4m3fn),
        ("test.seen.items", None),
    ):
        odd = written[name][None] if other is None else written[name].to(other)
        save_file(written | {name: odd.contiguous()}, tmp_path / "folder" / NAMES[0])
        (tmp_path / "folder" / NAMES[-1]).write_text(json.dumps(prepared._digests(tmp_path / "folder")))
        assert PreparedTarget.load(tmp_path / "folder", ()) is None


DAMAGED = {"name": st.sampled_from(NAMES), "hits": HITS, "at_the_end": ENDS, "fits": st.booleans()}


def test_the_whole_one_is_taken(whole: Path) -> None:
    assert PreparedTarget.load(whole, ()) is not None


@cases(60, 1_500)
@given(**DAMAGED)
def test_what_is_damaged_is_not_taken(
    whole: Path, tmp_path: Path, name: str, hits: list[Hit], at_the_end: bool, fits: bool
) -> None:
    with_damage(whole, tmp_path / "x", name, hits, at_the_end, fits)


@cases(20)
@given(changes=CHANGES)
def test_digests_of_odd_values_are_none(whole: Path, tmp_path: Path, changes: list[Change]) -> None:
    folder = tmp_path / "x"
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    values: object = json.loads((folder / NAMES[-1]).read_text())
    for shares, odd in changes:
        values = changed(values, shares, ODD[odd])
    (folder / NAMES[-1]).write_text(json.dumps(values))
    taken_or_not(whole, folder)
