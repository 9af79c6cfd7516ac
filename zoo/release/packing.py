"""One byte stream of a release's folder, read as untrusted input, and its transfer in parts, which resumes where it stopped.

The stream is a first line, the names and sizes of the files as JSON, and their bytes. It has no links, no paths and no compression.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

from zoo.release.files import MANIFEST, SIGNATURE, TENSOR_FILE, ReleaseError
from zoo.runtime.run_folder import saying_where
from zoo.runtime.settings_files import read_json

LARGEST = 2**32
"""Default of the largest stream that is read, in bytes."""

_FIRST = b"cdr-zoo release 1 "
_HEADER = 2**20  # most bytes of the first line
_PART = 2**20  # bytes read at a time
_NAME = re.compile(rf"{re.escape(MANIFEST)}|{re.escape(SIGNATURE)}|{TENSOR_FILE}")


class PackedRelease:
    """The byte stream of a release's folder, made of its files as they are read; equal folders give equal streams.

    Args:
        folder: Folder of a release; `ReleaseError` if it has other files, or links.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, files = folder, sorted(folder.iterdir())
        if not files or any(
            file.is_symlink() or not file.is_file() or not _NAME.fullmatch(file.name) for file in files
        ):
            raise ReleaseError(f"{folder} is no release: it is empty, or has other files or links. Publish it again.")
        sizes = [(file.name, file.stat().st_size) for file in files]
        self._header = _FIRST + json.dumps(sizes, separators=(",", ":")).encode() + b"\n"
        self._files = files
        self.size = len(self._header) + sum(size for _, size in sizes)

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, self.size, _PART):
            yield self.read(start, _PART)

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the stream, by which a transfer is named and resumed."""
        digest = hashlib.sha256()
        for part in self:
            digest.update(part)
        return digest.hexdigest()

    def read(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from an offset, fewer at the end."""
        found, begin = self._header[offset : offset + size], len(self._header)
        for file in self._files:
            length = file.stat().st_size
            if (at := offset + len(found)) < begin + length and len(found) < size:
                with file.open("rb") as opened:
                    opened.seek(at - begin)
                    found += opened.read(size - len(found))
            begin += length
        return found


def unpack_files(stream: BinaryIO, folder: Path, limit: int) -> None:
    """Write the files of a stream into an empty folder; `ReleaseError` before more than ``limit`` bytes are read."""
    header = stream.readline(_HEADER)
    try:
        files = read_json(header.removeprefix(_FIRST).decode("utf-8")) if header.startswith(_FIRST) else None
    except (ValueError, RecursionError):
        files = None
    if not isinstance(files, list) or not files or not header.endswith(b"\n") or not all(map(_is_file, files)):
        raise ReleaseError("The stream is no packed release. Allowed: names and sizes of its files, then these.")
    if len({name for name, _ in files}) < len(files) or (total := sum(size for _, size in files)) > limit:
        raise ReleaseError(f"The stream repeats a file, or has more than {limit:,} bytes. Ask for a smaller release.")
    for name, size in files:
        with saying_where(folder / name), (folder / name).open("xb") as file:
            while size and (part := stream.read(min(size, _PART))):
                file.write(part)
                size -= len(part)
        if size:
            raise ReleaseError(f"The stream ends in {name}, before its {total:,} bytes. Resume the transfer.")
    if stream.read(1):
        raise ReleaseError("The stream has bytes behind its last file. Ask the source party for it again.")


def _is_file(entry: object) -> bool:
    if not isinstance(entry, list) or len(entry) != 2:
        return False
    name, size = entry
    return isinstance(name, str) and _NAME.fullmatch(name) is not None and type(size) is int and size >= 0


@dataclass(frozen=True)
class Offer:
    """A stream that a source party offers: its digest and size, both checked."""

    sha256: str
    size: int

    def __post_init__(self) -> None:
        if not isinstance(self.sha256, str) or re.fullmatch("[0-9a-f]{64}", self.sha256) is None:
            raise ReleaseError(f"sha256 is {str(self.sha256)[:80]!r}. Allowed: 64 hexadecimal digits.")
        if type(self.size) is not int or self.size < 1:
            raise ReleaseError(f"The size of the stream is {repr(self.size)[:20]}. Allowed: integers >= 1.")


class Transfer:
    """The part of an offered stream that arrived: a file named by the digest, so that a restart resumes it.

    Args:
        folder: Where the file is.
        offer: Digest and size of the whole stream.
        limit: Largest size that is accepted; `ReleaseError` before anything is read.
    """

    def __init__(self, folder: Path, offer: Offer, limit: int = LARGEST) -> None:
        if offer.size > limit:
            raise ReleaseError(f"The offered stream has {offer.size:,} bytes. Allowed: {limit:,}. Raise the limit.")
        folder.mkdir(parents=True, exist_ok=True)
        self.offer, self.path = offer, folder / f"{offer.sha256}.part"
        for other in {*folder.glob("*.part")} - {self.path}:  # of streams offered before: the limit is for all
            other.unlink()

    @property
    def received(self) -> int:
        """Number of bytes that arrived: the offset to resume from."""
        return self.path.stat().st_size if self.path.is_file() else 0

    def add(self, offset: int, data: bytes) -> None:
        """Append bytes that begin at an offset; those that arrived before are ignored, and a gap is refused."""
        received = self.received
        if not 0 <= offset <= received or offset + len(data) > self.offer.size:
            raise ReleaseError(f"Bytes from {offset:,} arrived, and {received:,} are here. Send those from there.")
        with saying_where(self.path), self.path.open("ab") as file:
            file.write(data[received - offset :])
            file.flush()
            os.fsync(file.fileno())

    def check(self) -> BinaryIO:
        """Return the whole stream, opened; a damaged one is removed, and `ReleaseError` refuses both that and a part."""
        if (received := self.received) != self.offer.size:
            raise ReleaseError(f"{received:,} of {self.offer.size:,} bytes arrived. Resume the transfer.")
        file = self.path.open("rb")
        if hashlib.file_digest(file, "sha256").hexdigest() != self.offer.sha256:
            file.close()
            self.path.unlink()
            raise ReleaseError("The stream differs from its SHA-256. It was removed. Ask for it again.")
        file.seek(0)
        return file
