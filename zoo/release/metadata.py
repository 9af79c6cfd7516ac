"""Metadata of a release: date, publisher, contact and purpose, in addition to what its record proves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime
from typing import Any

from zoo.release.files import ReleaseError

LONGEST_TEXT = 1000
"""Largest number of characters of one text."""

CENTRAL = "central: one party holds the unprotected ratings of its users, draws the noise and publishes; it is trusted with both"
THREAT = (
    "anybody with the release, whatever they know, compute or do with it, if the conditions of the record hold; not those with "
    "access to the publishing party's ratings, memory or files, and no timing or floating-point attacks"
)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """Statement of a party about its release. Each text is public, printable and has at most 1,000 characters.

    The fields are those that evaluations of such releases require. Sources: NIST SP 800-226, *Guidelines for Evaluating
    Differential Privacy Guarantees* (2025), on parameters, units, trust and deployment models; the deployments registry
    (registry.opendp.org, transparency tiers; Nanayakkara, Ghazi & Vadhan, arXiv 2509.13509), on the contents of an entry. Other
    required facts (privacy unit, epsilon, delta, mechanism, accountant, what is not protected) are in the record.

    Args:
        curator: The party that publishes.
        contact: Address for questions.
        intended_use: Purpose of the release.
        rationale: Reason for this privacy unit, epsilon and delta.
        threat_model: The attackers of the guarantee.

    Examples:
        >>> Statement(curator="Books Ltd.", contact="privacy@books.example").curator
        'Books Ltd.'
    """

    curator: str | None = None
    contact: str | None = None
    intended_use: str | None = None
    rationale: str | None = None
    threat_model: str = THREAT

    def __post_init__(self) -> None:
        for entry in fields(self):
            _check_text(entry.name, getattr(self, entry.name))


@dataclass(frozen=True, kw_only=True)
class ReleaseMetadata(Statement):
    """A statement and the additions of the publishing code. Only its form is checked."""

    date: str  # day of publishing, UTC, YYYY-MM-DD; without the hour, to reveal no more than needed
    code: str  # name and version of the publishing code
    deployment_model: str = CENTRAL  # of every publisher here

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            right = date.fromisoformat(self.date).isoformat() == self.date
        except ValueError:
            right = False
        if not right:
            raise ReleaseError(f"about: date must be a day as YYYY-MM-DD, got {self.date[:80]!r}.")

    @classmethod
    def today(cls, statement: Statement, code: str) -> ReleaseMetadata:
        """Return the metadata of a release that this code publishes today."""
        return cls(**asdict(statement), date=datetime.now(UTC).date().isoformat(), code=code)

    def to_dict(self) -> dict[str, str | None]:
        """Return plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ReleaseMetadata:
        """Return what `to_dict` wrote. All values are checked, because they may come from another party; `ReleaseError`."""
        known = sorted(entry.name for entry in fields(cls))
        if sorted(values) != known:
            raise ReleaseError(f"about must hold exactly {known}, it holds {sorted(values)[:20]}.")
        return cls(**values)


def _check_text(name: str, text: object) -> None:
    if text is None and name in ("curator", "contact", "intended_use", "rationale"):
        return
    if not isinstance(text, str) or not text or not text.isprintable() or len(text) > LONGEST_TEXT:
        raise ReleaseError(
            f"about: {name} is {repr(text)[:80]}. Allowed: 1 to {LONGEST_TEXT:,} printable characters, one line."
        )
