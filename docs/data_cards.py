"""Tables of docs/data.md: what each file of a described data set holds, from the facts next to its datamodule."""

from __future__ import annotations

from tables import table

from datamodules.amazon import AMAZON
from datamodules.files import KNOWN_FILES, Domain
from zoo.commands.data.manual_downloads import MANUAL_DOWNLOADS

COUNTS = ("users", "items", "rows")


def counts(known: Domain) -> tuple[str, str, str]:
    """Return the number of users, items and ratings of a file."""
    return f"{known.users:,}", f"{known.items:,}", f"{known.ratings:,}"


def amazon() -> str:
    """Return a line for each file, and how each was cut: by folder for pairs, by domain for the folder of many."""
    lines, cuts = [], dict[str, list[str]]()
    for folder, domains in AMAZON.items():
        for place, (domain, known) in enumerate(domains.items()):
            rating = "1-5" if known.explicit else "1"
            lines.append(("" if place else f"`{folder}`", f"`{domain}`", rating, known.order, *counts(known)))
            cuts.setdefault(known.what, []).append(f"`{domain if folder == 'amazon-many' else folder}`")
    said = "\n".join(f"- {', '.join(dict.fromkeys(names))}: {what}." for what, names in cuts.items())
    return f"{table(('folder', 'domain', 'rating', 'order', *COUNTS), lines, left=4)}\n\n{said}"


def ciao() -> str:
    """Return every category, the largest first, two in a line."""
    ranked = sorted(KNOWN_FILES["ciao"].items(), key=lambda item: -item[1].ratings)
    half = len(ranked) // 2
    cells = [(f"`{domain}`", *counts(known)) for domain, known in ranked]
    lines = [left + right for left, right in zip(cells[:half], cells[half:], strict=True)]
    return table(("domain", *COUNTS) * 2, lines, left=0)


def by_hand() -> str:
    """Return where to get what is not fetched; folders of one origin share a line."""
    origins = {
        said: [name for name, other in MANUAL_DOWNLOADS.items() if other == said] for said in MANUAL_DOWNLOADS.values()
    }
    return "\n".join(f"- {', '.join(f'`{name}`' for name in names)}: {said}" for said, names in origins.items())


def parts() -> dict[str, str]:
    """Return text by the name of the part."""
    return {"amazon": amazon(), "ciao": ciao(), "by hand": by_hand()}
