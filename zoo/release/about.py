"""About: when, with what, by whom and why a release was published; for people, beside what its record proves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime
from typing import Any

from zoo.release.files import ReleaseError

LONGEST_TEXT = 1000
"""Characters of one text at most."""

CENTRAL = "central: one party holds the ratings of its users as they are, draws the noise and publishes; it is trusted with both"
THREAT = (
    "anybody who gets the release, whatever they know besides, compute, or do with it; not those who see the ratings, the "
    "memory or the files of the publishing party, and not its timing or its floating-point numbers"
)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What a party says of its release; every text is printable, of 1,000 characters at most, and public.

    The fields are those that evaluations of such releases ask for: who answers for it and how they are reached, what it is
    for, who is defended against, and why its parameters are what they are. Sources: NIST SP 800-226, *Guidelines for
    Evaluating Differential Privacy Guarantees* (2025), on parameters, units, trust and deployment models; the deployments
    registry (registry.opendp.org, transparency tiers; Nanayakkara, Ghazi & Vadhan, arXiv 2509.13509), on what an entry
    discloses. The others that they ask for (unit, epsilon, delta, mechanism, accountant, what is not protected) are in the record.

    Args:
        curator: The party that publishes.
        contact: How whoever has questions reaches it.
        intended_use: What the release is for.
        rationale: Why this unit, epsilon and delta.
        threat_model: Who is defended against, and who is not.
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
class About(Statement):
    """A statement with what the publishing code adds to it. What is checked is its form; that it is true, nobody can."""

    date: str  # day of publishing, UTC, YYYY-MM-DD; no hour, which would tell more than anybody asks for
    code: str  # name and version of the code that published
    deployment_model: str = CENTRAL  # that of every publisher here

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            right = date.fromisoformat(self.date).isoformat() == self.date
        except ValueError:
            right = False
        if not right:
            raise ReleaseError(f"about: date must be a day as YYYY-MM-DD, got {self.date[:80]!r}.")

    @classmethod
    def today(cls, statement: Statement, code: str) -> About:
        """What is said of a release that is published now, by this code."""
        return cls(**asdict(statement), date=datetime.now(UTC).date().isoformat(), code=code)

    def to_dict(self) -> dict[str, str | None]:
        """As plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> About:
        """What `to_dict` wrote. The values may come from another party: all are checked; `ReleaseError`."""
        known = sorted(entry.name for entry in fields(cls))
        if sorted(values) != known:
            raise ReleaseError(f"about must hold exactly {known}, it holds {sorted(values)[:20]}.")
        return cls(**values)


def _check_text(name: str, text: object) -> None:
    if text is None and name in ("curator", "contact", "intended_use", "rationale"):
        return
    if not isinstance(text, str) or not text or not text.isprintable() or len(text) > LONGEST_TEXT:
        raise ReleaseError(
            f"about: {name} must be a text of 1 to {LONGEST_TEXT:,} printable characters on one line, got "
            f"{repr(text)[:80]}. Say it shorter, or leave it out."
        )
