"""The tables of docs/data.md that say what each file of a described data set is, from the facts beside its datamodule."""

from __future__ import annotations

from tables import table

from datamodules.amazon import AMAZON
from datamodules.files import DESCRIBED, Domain
from zoo.commands.data.manual_downloads import MANUAL_DOWNLOADS


def counts(known: Domain) -> tuple[str, str, str]:
    """Users, items and ratings of a file."""
    return f"{known.users:,}", f"{known.items:,}", f"{known.ratings:,}"


def amazon() -> str:
    """Every file of every folder; a folder is named in its first line."""
    lines = []
    for folder, domains in AMAZON.items():
        for place, (domain, known) in enumerate(domains.items()):
            rated = "explicit, 1-5" if known.explicit else "implicit"
            first = f"`{folder}`" if place == 0 else ""
            lines.append((first, f"`{domain}`", known.what, rated, known.order, *counts(known)))
    return table(("folder", "domain", "what it is", "ratings", "order", "users", "items", "rows"), lines, left=5)


def ciao() -> str:
    """Every category, the largest first, two in a line."""
    ranked = sorted(DESCRIBED["ciao"].items(), key=lambda one: -one[1].ratings)
    half = len(ranked) // 2
    cells = [(f"`{domain}`", *counts(known)) for domain, known in ranked]
    lines = [left + right for left, right in zip(cells[:half], cells[half:], strict=True)]
    return table(("domain", "users", "items", "rows") * 2, lines, left=0)


def by_hand() -> str:
    """Where to get what is not fetched; folders of one origin stand together."""
    origins = {
        said: [name for name, other in MANUAL_DOWNLOADS.items() if other == said] for said in MANUAL_DOWNLOADS.values()
    }
    lines = [(", ".join(f"`{name}`" for name in names), said) for said, names in origins.items()]
    return table(("folder", "where, and on which terms"), lines, left=2)


def parts() -> dict[str, str]:
    """Text by the name of the part."""
    return {"amazon": amazon(), "ciao": ciao(), "by hand": by_hand()}
