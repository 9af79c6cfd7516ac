"""What is kept of large files, damaged: taken to the byte as it was written, or made anew, and never a reason to stop."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
