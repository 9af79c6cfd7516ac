"""Releases that were damaged, or that somebody changed a value of: loaded, or refused in words of the project's own."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.damage import ENDS, HITS, Hit, cases, damaged, refusal_of
from tests.samples import binary
from zoo import JLT, FlippedRows, NoisyRows, Release
from zoo.privacy.record.record import UnderstatedPrivacyError
from zoo.release.files import MANIFEST, TENSORS, ReleaseError

PUBLISHERS = {
    "jlt": lambda: JLT(epsilon=2.0, num_components=5),
    "noisy": lambda: NoisyRows(epsilon=2.0),
    "flipped": lambda: FlippedRows(epsilon=2.0),
}
#: What is put in the place of a value.
ODD = (
    None,
    True,
    -1,
    0,
    2**70,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "\x1b[31m",
    [],
    {},
    [[]],
    {"a": 1},
    [None],
    0.5,
)
#: Which value of a manifest, as shares of what there is at each depth; and what it becomes.
CHANGES = st.lists(
    st.tuples(st.lists(st.floats(0, 1, exclude_max=True), min_size=4, max_size=4), st.sampled_from(range(len(ODD)))),
    min_size=1,
    max_size=2,
)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of each publisher."""
    root = tmp_path_factory.mktemp("releases")
    for name, publisher in PUBLISHERS.items():
        publisher().publish(binary(), "book").save(root / name)
    return root


def changed(value: Any, shares: list[float], odd: object) -> Any:  # noqa: ANN401  any JSON
    """The value with one part in it another: as deep as the shares go, and there is something."""
    if not shares or not isinstance(value, dict | list) or not value:
        return odd
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[int(shares[0] * len(keys))]
    inner = changed(value[key], shares[1:], odd)
    if isinstance(value, dict):
        return {**value, key: inner}
    return [*value[:key], inner, *value[key + 1 :]]


def load_or_refuse(folder: Path) -> None:
    """A release, or a refusal that names it."""
    try:
        Release.load(folder)
    except (ReleaseError, UnderstatedPrivacyError) as refused:
        refusal_of(refused, str(folder))


def with_a_change(saved: Path, folder: Path, name: str, changes: list[tuple[list[float], int]]) -> None:
    shutil.copytree(saved / name, folder, dirs_exist_ok=True)
    manifest = json.loads((folder / MANIFEST).read_text())
    for shares, odd in changes:
        part = ("ledger", "record", "about", None)[int(shares[0] * 4)]
        if part in manifest:
            manifest[part] = changed(manifest[part], shares[1:], ODD[odd])
        else:
            manifest = changed(manifest, shares[1:], ODD[odd])
        if not isinstance(manifest, dict):
            break
    (folder / MANIFEST).write_text(json.dumps(manifest))
    load_or_refuse(folder)


def with_damage(saved: Path, folder: Path, file: str, hits: list[Hit], at_the_end: bool) -> None:
    shutil.copytree(saved / "jlt", folder, dirs_exist_ok=True)
    (folder / file).write_bytes(damaged((folder / file).read_bytes(), hits, at_the_end))
    load_or_refuse(folder)


@cases(50)
@given(name=st.sampled_from(sorted(PUBLISHERS)), changes=CHANGES)
def test_a_manifest_of_odd_values_is_refused_in_words(
    saved: Path, tmp_path: Path, name: str, changes: list[tuple[list[float], int]]
) -> None:
    with_a_change(saved, tmp_path / "x", name, changes)


@pytest.mark.slow
@cases(2_000)
@given(name=st.sampled_from(sorted(PUBLISHERS)), changes=CHANGES)
def test_many_manifests_are(saved: Path, tmp_path: Path, name: str, changes: list[tuple[list[float], int]]) -> None:
    with_a_change(saved, tmp_path / "x", name, changes)


@pytest.mark.slow
@cases(500)
@given(file=st.sampled_from([MANIFEST, TENSORS]), hits=HITS, at_the_end=ENDS)
def test_a_damaged_release_is_refused_in_words(
    saved: Path, tmp_path: Path, file: str, hits: list[Hit], at_the_end: bool
) -> None:
    with_damage(saved, tmp_path / "x", file, hits, at_the_end)
