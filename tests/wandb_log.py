"""What a run of W&B has written down while offline, read back from its transaction log."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: The log begins with this many bytes of its own; then come blocks of records, in the form of LevelDB's log.
HEAD, BLOCK = 7, 2**15


def _pieces(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and content of each piece: 1 is a whole record, 2, 3 and 4 are its beginning, middle and end."""
    at = HEAD
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:  # what is left of a block is too short for another piece
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        yield kind, data[at + 7 : at + 7 + length]
        at += 7 + length


def records(folder: Path) -> list[Any]:
    """Every record of the run in a folder."""
    from wandb.proto.wandb_internal_pb2 import Record

    [path] = folder.glob("*.wandb")
    found, begun = [], b""
    for kind, piece in _pieces(path.read_bytes()):
        begun = piece if kind in (1, 2) else begun + piece
        if kind in (1, 4):
            found.append(Record.FromString(begun))
    return found


def _merged(kept: dict[str, Any], items: Any) -> None:  # noqa: ANN401  items of a record
    for item in items:
        place = kept
        *outer, last = [item.key] if item.key else list(item.nested_key)
        for key in outer:
            place = place.setdefault(key, {})
        place[last] = json.loads(item.value_json)


def told(folder: Path) -> dict[str, Any]:
    """Project, name, kind and settings of the run in a folder, and what it has logged, by name: the last of each."""
    config: dict[str, Any] = {}
    logged: dict[str, Any] = {}
    about: dict[str, Any] = {}
    for record in records(folder):
        if record.HasField("run"):
            run = record.run
            about = {"project": run.project, "name": run.display_name, "kind": run.job_type, "sweep": run.sweep_id}
            _merged(config, run.config.update)
        elif record.HasField("config"):
            _merged(config, record.config.update)
        elif record.HasField("history"):
            _merged(logged, record.history.item)
    return about | {"config": config, "logged": logged}
