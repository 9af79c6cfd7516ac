"""Wording: counts, and the known names that a misspelt one looks like, in sentences; for every room, so nothing is imported."""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

#: How alike two words are at least for the one to be asked after (1: equal), and how alike initials count as.
LEAST, OF_INITIALS = 0.6, 0.9


def count_of(count: int, what: str) -> str:
    """Such as ``1 seed`` or ``1,683 cases``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def suggest(word: str, known: Iterable[str]) -> str:
    """A question about the known names that look like a word, with a space before it; empty where none does.

    A name is also known by its last part (``epsilon`` by ``publisher.epsilon``), and by its initials (``learning_rate`` by
    ``lr``).
    """
    likeness = {name: _likeness(word.lower(), name.lower()) for name in known}
    best = max(likeness.values(), default=0.0)
    alike = [name for name, like in likeness.items() if like >= max(LEAST, best - 0.1)]
    found = sorted(alike, key=lambda name: -likeness[name])
    return f" Did you mean {' or '.join(found[:3])}?" if found else ""


def _likeness(word: str, name: str) -> float:
    last, own = (re.split(r"[./]", text.lstrip("-"))[-1] for text in (name, word))
    by_initials = OF_INITIALS if _initials(own) == last or _initials(last) == own else 0.0
    alike = SequenceMatcher(None, word, name).ratio()
    return max(alike, by_initials, SequenceMatcher(None, own, last).ratio() if own == word.lstrip("-") else 0.0)


def _initials(text: str) -> str:
    parts = [part for part in text.split("_") if part]
    return "".join(part[0] for part in parts) if len(parts) > 1 else "-"
