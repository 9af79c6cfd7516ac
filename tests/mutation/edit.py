"""One slip: a piece of code, what somebody makes of it, and who should notice."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path


class EditError(ValueError):
    """An edit that does not fit its file."""


@dataclass(frozen=True)
class Edit:
    """A slip that users would suffer from.

    Attributes:
        name: What goes wrong, in a few words.
        file: Path from the root of the tree.
        old: A piece of the file, which occurs in it exactly once.
        new: What it becomes.
        tests: Files or folders of tests that are asked.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, text: str) -> str:
        """The file's text with the slip.

        Raises:
            EditError: If the piece is not there, or is there more than once, or stays what it is.
        """
        count = text.count(self.old)
        if count != 1 or self.old == self.new:
            raise EditError(f"{self.name}: {self.old!r} occurs {count} times in {self.file} and becomes {self.new!r}")
        return text.replace(self.old, self.new)

    def digest(self, tree: Path) -> str:
        """Of the slip, its file and the tests that are asked: a judgement on others says nothing."""
        seen = hashlib.sha256(repr(self).encode())
        for path in (tree / self.file, *(file for test in self.tests for file in files_of(tree / test))):
            seen.update(path.read_bytes())
        return seen.hexdigest()


def files_of(path: Path) -> list[Path]:
    """The Python files of a folder, or the file."""
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def edits_of(file: str, tests: tuple[str, ...], *slips: tuple[str, str, str]) -> tuple[Edit, ...]:
    """Slips in one file that the same tests are asked about: name, old and new of each."""
    return tuple(Edit(name, file, old, new, tests) for name, old, new in slips)
