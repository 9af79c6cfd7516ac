"""Releases that were damaged, or that somebody changed a value of: loaded, or refused in words of the project's own."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.damage import (
    CHANGES,
    ENDS,
    FORGED,
    HITS,
    ODD,
    Change,
    Hit,
    cases,
    changed,
    damaged,
    refusal_of,
    with_forged_lines,
)
from tests.samples import binary
from zoo import JLT, FlippedRows, NoisyRows, Release
from zoo.commands.privacy.show import as_html, as_text, parts
from zoo.privacy.record.record import UnderstatedPrivacyError
from zoo.release.files import MANIFEST, TENSORS, ReleaseError
from zoo.runtime import plugins

PUBLISHERS = {
    "jlt": lambda: JLT(epsilon=2.0, num_components=5),
    "noisy": lambda: NoisyRows(epsilon=2.0),
    "flipped": lambda: FlippedRows(epsilon=2.0),
}
#: Release kinds of the package in examples/encrypted_bridge, where it is installed.
ENCRYPTED = sorted(plugins.brought("release kinds").keys() & {"encrypted_map", "encrypted_places"})
NAMES = sorted([*PUBLISHERS, *ENCRYPTED])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A release of each publisher."""
    root = tmp_path_factory.mktemp("releases")
    for name, publisher in PUBLISHERS.items():
        publisher().publish(binary(), "book").save(root / name)
    if ENCRYPTED:
        publishers = plugins.brought("publishers")
        places = publishers["EncryptedProjectionPublisher"].load()(root / "own.key", num_directions=2)
        received = places.publish(binary(), "book").save(root / "encrypted_places")
        bridge = publishers["EncryptedBridgePublisher"].load()(epsilon=2.0, received=received)
        bridge.publish(binary(), "book").save(root / "encrypted_map")
    return root


def load_or_refuse(folder: Path) -> None:
    """A release of whose page neither a terminal nor a browser obeys anything, or a refusal that names it."""
    try:
        release = Release.load(folder)
    except (ReleaseError, UnderstatedPrivacyError) as refused:
        refusal_of(refused, str(folder))
        return
    shown = parts(release, folder, None)
    assert all(line.isprintable() and not line.startswith(FORGED) for line in as_text(shown).split("\n"))
    page = as_html(shown, release.domain)
    assert all(line.isprintable() for line in page.split("\n"))
    assert "<b>x</b>" not in page


def with_a_change(saved: Path, folder: Path, name: str, changes: list[Change]) -> None:
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


@cases(50, 2_000)
@given(name=st.sampled_from(NAMES), changes=CHANGES)
def test_a_manifest_of_odd_values_is_refused_in_words(
    saved: Path, tmp_path: Path, name: str, changes: list[Change]
) -> None:
    with_a_change(saved, tmp_path / "x", name, changes)


@pytest.mark.slow
@cases(500)
@given(file=st.sampled_from([MANIFEST, TENSORS]), hits=HITS, at_the_end=ENDS)
def test_a_damaged_release_is_refused_in_words(
    saved: Path, tmp_path: Path, file: str, hits: list[Hit], at_the_end: bool
) -> None:
    with_damage(saved, tmp_path / "x", file, hits, at_the_end)


@pytest.mark.parametrize("name", NAMES)
def test_no_text_of_a_release_is_a_line_of_a_message(saved: Path, tmp_path: Path, name: str) -> None:
    shutil.copytree(saved / name, tmp_path / "x")
    for manifest in with_forged_lines(json.loads((saved / name / MANIFEST).read_text())):
        (tmp_path / "x" / MANIFEST).write_text(json.dumps(manifest))
        load_or_refuse(tmp_path / "x")
