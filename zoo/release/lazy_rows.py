"""Rows of a release that exceed memory: made once while they are written, in files of some users each."""

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

from zoo.release.files import ReleaseError, check_values, header, raw, save_tensors, shard_name, tensor_digest

SHARD_BYTES = 2**28
"""Largest size of a file of rows."""

_PATIENCE = 3.0  # seconds before a progress bar is shown
_PART = 2**14  # users centred at a time

Chunks = Callable[[], Iterator[npt.NDArray[np.floating[Any]]]]
Parts = Iterator[npt.NDArray[np.float32]]


class LazyRows(Mapping[str, Tensor]):
    """The tensor ``rows`` of a release, made when it is first read.

    It is made once: into files by `write`, one part at a time, or into memory when read, for any number of later reads and
    writes. Making it draws noise, so making it again would be a second release with its own privacy loss; that is refused.

    Args:
        num_users: Number of rows.
        width: Width of a row.
        chunks: Called once; yields the rows in order, some users at a time, ``(users, width)``.
        centre: Subtract the mean row from all rows afterwards, in a second pass.
    """

    def __init__(self, num_users: int, width: int, chunks: Chunks, *, centre: bool = False) -> None:
        if num_users < 1 or width < 1:
            raise ValueError(f"num_users and width are {num_users} and {width}. Allowed: >= 1.")
        self.num_users, self.width, self.centre = num_users, width, centre
        self._chunks: Chunks | None = chunks
        self._rows: Tensor | None = None
        self._gone = "Making them failed."
        self._digest: str | None = None

    def __getitem__(self, name: str) -> Tensor:
        """Return all rows in memory, ``(users, width)``, float32; `ReleaseError` if they were written before."""
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
            raise ReleaseError(f"The rows of {self.num_users:,} users are not made yet. Save or materialize().")
        return self._digest

    def write(self, folder: Path) -> list[dict[str, Any]]:
        """Make the rows and write them into files of a folder; return the manifest's entry of each file."""
        total = np.zeros(self.width)
        parts = self._parts(total)
        digest, shards = hashlib.sha256(header(torch.float32, (self.num_users, self.width))), []
        size = min(max(1, SHARD_BYTES // (4 * self.width)), self.num_users)
        with late_progress("Writing the release", self.num_users * (2 if self.centre else 1)) as advance:
            # The mean row is known only at the end, so files are written, then read again, one at a time.
            for number, block in enumerate(_blocks(parts, size, self.width), 1):
                save_tensors({"rows": torch.from_numpy(block)}, folder / shard_name(number))
                advance(len(block))
            for number, start in enumerate(range(0, self.num_users, size), 1):
                path = folder / shard_name(number)
                rows = load_file(path)["rows"]
                if self.centre:
                    _centre(rows, total / self.num_users)
                    centred = folder / "centred"
                    save_tensors({"rows": rows}, centred)  # `rows` is still mapped from `path`
                    os.replace(centred, path)
                    advance(len(rows))
                digest.update(raw(rows))
                users = [start, start + len(rows)]
                shards.append({"file": path.name, "users": users, "sha256": {"rows": tensor_digest(rows)}})
        self._digest = digest.hexdigest()
        return shards

    def written(self, path: Path) -> None:
        """Store where the rows are, for later error messages."""
        self._gone = f"Read it with Release.load from {path}."

    def _parts(self, total: npt.NDArray[np.float64]) -> Parts:
        """Yield the checked rows for the only time; add them up in ``total`` (width,)."""
        if self._chunks is None:
            raise ReleaseError(f"The rows of this release were made already. {self._gone} Or publish anew.")
        chunks, self._chunks = self._chunks, None  # frees their source
        return self._checked(chunks(), total)

    def _checked(self, chunks: Iterator[npt.NDArray[np.floating[Any]]], total: npt.NDArray[np.float64]) -> Parts:
        done = 0
        for chunk in chunks:
            most = self.num_users - done
            if chunk.ndim != 2 or chunk.shape[1] != self.width or len(chunk) > most:
                shape = chunk.shape
                raise ReleaseError(f"Rows have shape {shape}. Allowed: ({most}, {self.width}) or fewer.")
            with np.errstate(over="ignore"):  # values beyond float32 become infinite and are refused below
                part = np.ascontiguousarray(chunk, dtype=np.float32)
            check_values("rows", torch.from_numpy(part))
            total += part.sum(axis=0, dtype=np.float64)
            done += len(part)
            yield part
        if done != self.num_users:
            raise ReleaseError(f"{done:,} rows were made for {self.num_users:,} users.")


def _blocks(parts: Parts, size: int, width: int) -> Parts:
    """Regroup rows into blocks of one size, except the last; a block is overwritten by the next."""
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
    shift = torch.from_numpy(mean)
    for part in torch.split(rows, _PART):
        part.copy_(part.double() - shift)


@contextmanager
def late_progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that counts done steps out of ``total``; slow work shows a progress bar on a terminal's stderr."""
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
