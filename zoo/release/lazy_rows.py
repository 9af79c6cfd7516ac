"""Rows of a release that is too large to hold: made while they are written, once, in files of some users each."""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file
from torch import Tensor

from zoo.release.files import ReleaseError, all_finite, header, raw, save_tensors, shard_name, tensor_digest

SHARD_BYTES = 2**28
"""Size of a file of rows."""

_PATIENCE = 3.0  # seconds before a progress bar is worth showing
_PART = 2**14  # users centred at a time

Chunks = Callable[[], Iterator[npt.NDArray[np.floating[Any]]]]
Parts = Iterator[npt.NDArray[np.float32]]


class LazyRows(Mapping[str, Tensor]):
    """The tensor ``rows`` of a release, not made yet; a mapping whose name costs nothing and whose tensor is made when read.

    It is made once: into files by `write`, a part at a time, or into memory when read, from where it can be read and written
    as often as wanted. Making it draws noise, so a second time would be a second release, with privacy loss of its own; it
    is refused.

    ``chunks`` is called once and yields the rows in order, some users at a time, ``(users, width)``. With ``centre`` the mean
    row is subtracted from all rows afterwards: in a second pass over what was made.
    """

    def __init__(self, num_users: int, width: int, chunks: Chunks, *, centre: bool = False) -> None:
        if num_users < 1 or width < 1:
            raise ValueError(f"Rows to be made later need users and a width, got {num_users} and {width}.")
        self.num_users, self.width, self.centre = num_users, width, centre
        self._chunks: Chunks | None = chunks
        self._rows: Tensor | None = None
        self._gone = "It was begun, and failed."
        self._digest: str | None = None

    def __getitem__(self, name: str) -> Tensor:
        """All rows in memory, shape ``(users, width)``, float32; `ReleaseError` if they were made before and written."""
        if name != "rows":
            raise KeyError(name)
        if self._rows is None:
            total, done = np.zeros(self.width), 0
            parts = self._parts(total)
            rows = torch.empty(self.num_users, self.width)
            for part in parts:
                rows[done : done + len(part)] = torch.from_numpy(part)
                done += len(part)
            if self.centre:
                _centre(rows, total / self.num_users)
            self._rows = rows
        return self._rows

    def __iter__(self) -> Iterator[str]:
        return iter(("rows",))

    def __len__(self) -> int:
        return 1

    def __contains__(self, name: object) -> bool:
        return name == "rows"

    @property
    def in_memory(self) -> bool:
        """Whether the rows were made in memory."""
        return self._rows is not None

    @property
    def digest(self) -> str:
        """SHA-256 of the rows; `ReleaseError` before they were made."""
        if self._rows is not None:
            return tensor_digest(self._rows)
        if self._digest is None:
            raise ReleaseError(
                f"The rows of these {self.num_users:,} users are made while the release is saved, so it has no digest yet. "
                "Save it first, or make it in memory with realised()."
            )
        return self._digest

    def write(self, folder: Path) -> list[dict[str, Any]]:
        """Make the rows and write them into files of a folder; what the manifest says of each file."""
        total = np.zeros(self.width)
        parts = self._parts(total)
        digest, shards = hashlib.sha256(header(torch.float32, (self.num_users, self.width))), []
        size = min(max(1, SHARD_BYTES // (4 * self.width)), self.num_users)
        with late_progress("Writing the release", self.num_users * (2 if self.centre else 1)) as advance:
            # The mean row is known once all rows are made, so files are written, then read again, one at a time.
            for number, block in enumerate(_blocks(parts, size, self.width), 1):
                save_tensors({"rows": torch.from_numpy(block)}, folder / shard_name(number))
                advance(len(block))
            for number, start in enumerate(range(0, self.num_users, size), 1):
                path = folder / shard_name(number)
                rows = load_file(path)["rows"]
                if self.centre:
                    _centre(rows, total / self.num_users)
                    centred = folder / "centred"
                    save_tensors({"rows": rows}, centred)  # not over the file that `rows` is still read from
                    os.replace(centred, path)
                    advance(len(rows))
                digest.update(raw(rows))
                users = [start, start + len(rows)]
                shards.append({"file": path.name, "users": users, "sha256": {"rows": tensor_digest(rows)}})
        self._digest = digest.hexdigest()
        return shards

    def written(self, path: Path) -> None:
        """Remember where the rows lie, to say so when they are asked for again."""
        self._gone = f"It lies at {path}: read it with Release.load."

    def _parts(self, total: npt.NDArray[np.float64]) -> Parts:
        """The rows as they are released, checked, for the only time; they are added up in ``total`` (width,)."""
        if self._chunks is None:
            raise ReleaseError(
                f"The rows of this release were made already, and making them again would be a second release with noise "
                f"of its own. {self._gone} To release anew, publish anew."
            )
        chunks, self._chunks = self._chunks, None  # what the rows are made of is let go
        return self._checked(chunks(), total)

    def _checked(self, chunks: Iterator[npt.NDArray[np.floating[Any]]], total: npt.NDArray[np.float64]) -> Parts:
        done = 0
        for chunk in chunks:
            most = self.num_users - done
            if chunk.ndim != 2 or chunk.shape[1] != self.width or len(chunk) > most:
                shape = chunk.shape
                raise ReleaseError(f"Rows of shape {shape} were made where at most ({most}, {self.width}) were due.")
            with np.errstate(over="ignore"):  # too large for float32 becomes infinite and is refused, in words
                part = np.ascontiguousarray(chunk, dtype=np.float32)
            if not all_finite(torch.from_numpy(part)):
                raise ReleaseError("Tensor 'rows' holds NaN or infinite values; a release must be finite.")
            total += part.sum(axis=0, dtype=np.float64)
            done += len(part)
            yield part
        if done != self.num_users:
            raise ReleaseError(f"{done:,} rows were made for {self.num_users:,} users; the publisher is wrong.")


def _blocks(parts: Parts, size: int, width: int) -> Parts:
    """Rows that come in parts of any sizes, in blocks of one size but for the last; a block is gone when the next is asked for."""
    buffer, filled = np.empty((size, width), dtype=np.float32), 0
    for part in parts:
        while len(part):
            taken = min(len(part), size - filled)
            buffer[filled : filled + taken], part = part[:taken], part[taken:]
            filled += taken
            if filled == size:
                yield buffer
                filled = 0
    if filled:
        yield buffer[:filled]


def _centre(rows: Tensor, mean: npt.NDArray[np.float64]) -> None:
    """Subtract a mean row ``(width,)`` from rows ``(users, width)`` in place, in float64."""
    shift = torch.from_numpy(mean)
    for part in torch.split(rows, _PART):
        part.copy_(part.double() - shift)


@contextmanager
def late_progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that is told of steps done, out of ``total``; once they take long, a terminal's stderr shows a bar."""
    from rich.console import Console
    from rich.progress import Progress

    begun, console = time.monotonic(), Console(stderr=True)
    bar = Progress(console=console, transient=True)
    task = bar.add_task(what, total=total)

    def advance(steps: int) -> None:
        if not bar.live.is_started and console.is_terminal and time.monotonic() - begun > _PATIENCE:
            bar.start()
        bar.update(task, advance=steps)

    try:
        yield advance
    finally:
        if bar.live.is_started:
            bar.stop()
