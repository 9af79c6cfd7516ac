"""What is said of a release beside its record: kept with it, bounded, and no part of what it is."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.samples import UNPRINTABLE, binary
from zoo import JLT, Release
from zoo.release.files import MANIFEST, ReleaseError
from zoo.release.metadata import CENTRAL, LONGEST_TEXT, THREAT, ReleaseMetadata, Statement

SAID = Statement(curator="Books Ltd", contact="privacy@books.example", rationale="As agreed.")
ABSENT = object()


def published() -> Release:
    release = JLT(epsilon=2.0, num_components=5).publish(binary(), "book")
    return replace(release, metadata=ReleaseMetadata.today(SAID, "cdr-zoo 9.9"))


@pytest.mark.parametrize("lazy", [False, True])
def test_what_is_said_crosses_with_a_release(lazy: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if lazy:
        monkeypatch.setattr("zoo.publishers.projected.LAZY_BYTES", 0)
    release = published()
    assert release.lazy == lazy
    loaded = Release.load(release.save(tmp_path / "book"))
    manifest = json.loads((tmp_path / "book" / MANIFEST).read_text())
    assert manifest["schema"] == 3
    assert ("shards" in manifest, "sha256" in manifest) == (lazy, not lazy)
    assert loaded.metadata == release.metadata
    assert loaded.metadata is not None
    assert loaded.metadata.to_dict() == {
        "curator": "Books Ltd",
        "contact": "privacy@books.example",
        "intended_use": None,
        "rationale": "As agreed.",
        "threat_model": THREAT,
        "date": datetime.now(UTC).date().isoformat(),
        "code": "cdr-zoo 9.9",
        "deployment_model": CENTRAL,
    }


def test_old_names_work_with_a_warning() -> None:
    release = published()
    with pytest.warns(DeprecationWarning, match=r"Release\.about is now metadata"):
        assert release.about == release.metadata
    with pytest.warns(DeprecationWarning, match=r"Release\.realised is now materialize"):
        assert release.realised() is release


def test_a_release_is_the_same_whoever_published_it_and_when(tmp_path: Path) -> None:
    release = published()
    plain = replace(release, metadata=None)
    assert release.digest == plain.digest
    assert Release.load(plain.save(tmp_path / "a")).digest == Release.load(release.save(tmp_path / "b")).digest
    assert json.loads((tmp_path / "a" / MANIFEST).read_text())["schema"] == 1


@pytest.mark.parametrize("name", ["contact", "threat_model"])
def test_texts_are_bounded_and_printable(name: str) -> None:
    for text in ("", "x" * (LONGEST_TEXT + 1), *UNPRINTABLE.values(), 3, ["a"], True):
        with pytest.raises(ReleaseError, match=f"{name} is .* Allowed: 1 to 1,000 printable characters") as caught:
            Statement(**{name: text})  # type: ignore[arg-type]
        assert str(caught.value).isprintable()
    assert Statement(contact="x" * LONGEST_TEXT).contact == "x" * LONGEST_TEXT


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"contact": "a\nb"}, "contact is .* Allowed: 1 to"),
        ({"threat_model": None}, "threat_model is None. Allowed: 1 to"),
        ({"code": None}, "code is None. Allowed: 1 to"),
        ({"date": "yesterday"}, "date must be a day as YYYY-MM-DD, got 'yesterday'"),
        ({"date": "20261122"}, "date must be a day as YYYY-MM-DD"),
        ({"date": 3}, "date is 3. Allowed: 1 to"),
        ({"epsilon": "0.1"}, r"about must hold exactly \['code', .*'epsilon'"),
        ({"deployment_model": ABSENT}, "about must hold exactly"),
    ],
)
def test_hostile_texts_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = published().save(tmp_path / "book") / MANIFEST
    manifest = json.loads(path.read_text())
    changed = {name: text for name, text in (manifest["about"] | change).items() if text is not ABSENT}
    path.write_text(json.dumps(manifest | {"about": changed}))
    with pytest.raises(ReleaseError, match=message):
        Release.load(tmp_path / "book")
