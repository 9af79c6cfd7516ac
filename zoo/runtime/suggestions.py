"""Suggestions: counts in words, and known names that resemble a misspelt one."""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher

#: Least similarity of a suggested name (1: equal), and the similarity of initials.
LEAST, OF_INITIALS = 0.6, 0.9


def count_of(count: int, what: str) -> str:
    """Return a count in words.

    Examples:
        >>> count_of(1, "seed"), count_of(1683, "case")
        ('1 seed', '1,683 cases')
    """
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def suggest(word: str, known: Iterable[str]) -> str:
    """Return " Did you mean ...?" with the known names that resemble a word, or "".

    The last part of a name (``epsilon`` of ``publisher.epsilon``) and its initials (``lr`` of ``learning_rate``) count too.

    Examples:
        >>> suggest("epsilom", ["publisher.epsilon", "seed"])
        ' Did you mean publisher.epsilon?'
    """
    similarity = {name: _similarity(word.lower(), name.lower()) for name in known}
    best = max(similarity.values(), default=0.0)
    similar = [name for name, value in similarity.items() if value >= max(LEAST, best - 0.1)]
    found = sorted(similar, key=lambda name: -similarity[name])
    return f" Did you mean {' or '.join(found[:3])}?" if found else ""


def _similarity(word: str, name: str) -> float:
    last, own = (re.split(r"[./]", text.lstrip("-"))[-1] for text in (name, word))
    by_initials = OF_INITIALS if _initials(own) == last or _initials(last) == own else 0.0
    whole = SequenceMatcher(None, word, name).ratio()
    return max(whole, by_initials, SequenceMatcher(None, own, last).ratio() if own == word.lstrip("-") else 0.0)


def _initials(text: str) -> str:
    parts = [part for part in text.split("_") if part]
    return "".join(part[0] for part in parts) if len(parts) > 1 else "-"
