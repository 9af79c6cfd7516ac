"""Small data that several tests use, changes to files, and a limit of memory."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import random_array

from zoo.data.ratings import Ratings, Step

#: Names that a terminal or a page would obey rather than show, by what they do there.
UNPRINTABLE = {
    "colours": "\x1b[31mbook\x1b[0m",
    "moves the cursor up": "book\x1b[1A",
    "sets the title of the window": "\x1b]0;book\x07",
    "C1 control": "book\x9b31m",
    "begins a line": "book\nguarantee      proved",
    "goes back in the line": "book\rproved",
    "rubs out": "book\x08\x08",
    "ends with a zero": "book\x00",
    "turns the direction of text": "book \u202eevorp",
    "isolates the direction of text": "\u2066book\u2069",
    "is not seen": "bo\u200bok",
    "line separator": "book\u2028proved",
    "half a character": "book\ud83d",
}
#: What rich would take for markup, and a page for HTML, if it were not escaped; otherwise a name like any other.
MARKUP = "[red]a[/red] <b>&amp;</b> [link=x]"


def some_ratings(users: int = 9, items: int = 7, density: float = 0.4, seed: int = 0) -> Ratings:
    matrix = random_array((users, items), density=density, format="csr", rng=np.random.default_rng(seed))
    return Ratings(matrix, np.array([f"u{i}" for i in range(users)]), np.array([f"i{i}" for i in range(items)]))


def binary() -> Ratings:
    ratings = some_ratings(density=0.5)
    ratings.matrix.data[:] = 1
    return Ratings(ratings.matrix, ratings.user_ids, ratings.item_ids, (Step("split random2"),))


@contextmanager
def memory_below(limit: float) -> Iterator[None]:
    """Python and numpy take fewer bytes at a time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def edit_json(path: Path, change: Callable[[Any], object]) -> None:
    """Change what a JSON file says."""
    values = json.loads(path.read_text(encoding="utf-8"))
    change(values)
    path.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
