"""Bundles that were damaged, or that somebody wrote anew with digests that fit: loaded and asked, or refused in words."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import zoo
from tests.fuzz.damage import (
    CHANGES,
    ENDS,
    HITS,
    ODD,
    Change,
    Hit,
    cases,
    changed,
    damaged,
    in_own_lines,
    with_forged_lines,
)  # fmt: skip
from zoo.runs.bundle import BUNDLE, ITEMS, TENSORS, USERS

TEXTS = (BUNDLE, BUNDLE, ITEMS, USERS)
#: Parts of a manifest that decide what is made; most changes go there.
PARTS = ("sizes", "settings", "holds", "digests")


@pytest.fixture(scope="module")
def whole(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle with all that one may hold, and beside it one of a method that needs no release."""
    out = tmp_path_factory.mktemp("bundles") / "whole"
    return zoo.export(finished, out, with_user_ids=True, with_ratings=True)


def in_words(error: Exception, folder: Path) -> None:
    """The class is ours, or the folder is named."""
    assert type(error).__module__.split(".")[0] == "zoo" or str(folder) in str(error), repr(error)
    in_own_lines(error)


def asked_or_refused(folder: Path) -> None:
    """Recommendations in which a terminal obeys nothing, or a refusal."""
    try:
        trained = zoo.load(folder)
        trained.recommend(["u0001", "nobody"], k=3)
    except (ValueError, TypeError, LookupError, OSError, RuntimeError) as refused:
        in_words(refused, folder)


def with_digests_that_fit(folder: Path) -> None:
    """As somebody leaves it who knows what is compared."""
    path = folder / BUNDLE
    manifest = json.loads(path.read_text())
    if isinstance(manifest, dict) and isinstance(kept := manifest.get("sha256"), dict):
        for name in kept:
            if isinstance(name, str) and (folder / name).is_file() and Path(name).name == name:
                kept[name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        path.write_text(json.dumps(manifest))


def with_changes(whole: Path, folder: Path, name: str, part: str, changes: list[Change]) -> None:
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    value: Any = json.loads((folder / name).read_text())
    for shares, odd in changes:
        if name == BUNDLE and isinstance(value, dict) and isinstance(value.get(part), dict):
            value[part] = changed(value[part], shares[1:], ODD[odd])
        else:
            value = changed(value, shares, ODD[odd])
    (folder / name).write_text(json.dumps(value))
    with_digests_that_fit(folder)
    asked_or_refused(folder)


def with_damage(whole: Path, folder: Path, hits: list[Hit], at_the_end: bool) -> None:
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    (folder / TENSORS).write_bytes(damaged((folder / TENSORS).read_bytes(), hits, at_the_end))
    with_digests_that_fit(folder)
    asked_or_refused(folder)


def test_no_text_of_a_bundle_is_a_line_of_a_message(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "x")
    good = json.loads((whole / BUNDLE).read_text())
    for manifest in with_forged_lines(good | {"denoiser": {"max_components": 3}}):
        (tmp_path / "x" / BUNDLE).write_text(json.dumps(manifest))
        asked_or_refused(tmp_path / "x")


CHANGED = {"name": st.sampled_from(TEXTS), "part": st.sampled_from(PARTS), "changes": CHANGES}
DAMAGED = {"hits": HITS, "at_the_end": ENDS}


def test_one_that_is_written_anew_as_it_was_is_asked(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "x")
    with_digests_that_fit(tmp_path / "x")
    assert zoo.load(tmp_path / "x").user_ids[:1] == ["u0000"]
    asked_or_refused(tmp_path / "x")


@cases(25, 1_000)
@given(**CHANGED)
def test_a_bundle_of_odd_values_is_refused_in_words(
    whole: Path, tmp_path: Path, name: str, part: str, changes: list[Change]
) -> None:
    with_changes(whole, tmp_path / "x", name, part, changes)


@cases(15, 500)
@given(**DAMAGED)
def test_a_bundle_of_damaged_tensors_is(whole: Path, tmp_path: Path, hits: list[Hit], at_the_end: bool) -> None:
    with_damage(whole, tmp_path / "x", hits, at_the_end)
