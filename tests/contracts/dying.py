"""Trainings by two processes of which one dies, for every method after another: `test_two_processes` reads what came of them.

python -m tests.contracts.dying FOLDER METHOD...

The libraries are imported once: each training is a pair of forks of this process, which does nothing else, so that it has no
threads that a fork would lack.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback

import zoo
from datamodules import LowRank, Synthetic
from tests.contracts.by_two import DATA, kind_of, made
from zoo.testing.tiny import publisher_for

#: Seconds until a training has begun, and until the other process has ended; a machine that does nothing else needs few.
BEGINS, ENDS = 120.0, 90.0


class Begun(Callback):
    """Says that a process has trained a batch, by a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
        self.file.touch()


def train(name: str, out: Path, rank: int, port: int) -> None:
    """One of two processes, in a training that does not end by itself."""
    os.environ |= {
        "NODE_RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
    }  # fmt: skip
    said = (out / f"said_{rank}").open("w")
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    method, data = made(name, out.parent)
    assert isinstance(data, Synthetic | LowRank)
    zoo.fit(
        method, data, runs=out / "runs", max_epochs=10**6, accelerator="cpu", devices=2, strategy="ddp",
        enable_progress_bar=False, limit_val_batches=0, callbacks=[Begun(out / f"begun_{rank}")],
    )  # fmt: skip


def forked(name: str, out: Path, rank: int, port: int) -> int:
    process = os.fork()
    if process:
        return process
    try:
        train(name, out, rank, port)
        os._exit(0)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)


def ended(process: int, until: float) -> int | None:
    """The exit code of a fork, None if it lives at a time."""
    while True:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > until:
            return None
        time.sleep(0.05)


def one_dies(name: str, folder: Path, dying: int) -> dict[str, Any]:
    """What became of the other one: its code, the seconds it took, and what it said."""
    out = folder / f"{name}_{dying}"
    out.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    pair = [forked(name, out, rank, port) for rank in range(2)]
    found: dict[str, Any] = {"begun": False, "code": None, "seconds": ENDS}
    try:
        until = time.monotonic() + BEGINS
        while not found["begun"] and time.monotonic() < until:
            found["begun"] = all((out / f"begun_{rank}").exists() for rank in range(2))
            time.sleep(0.05)
        os.kill(pair[dying], signal.SIGKILL)
        start = time.monotonic()
        found["code"] = ended(pair[1 - dying], start + ENDS)
        found["seconds"] = time.monotonic() - start
        os.waitpid(pair[dying], 0)
    finally:
        if found["code"] is None:
            os.kill(pair[1 - dying], signal.SIGKILL)
            os.waitpid(pair[1 - dying], 0)
    return found | {"said": (out / f"said_{1 - dying}").read_text()[-2000:]}


def main(folder: Path, names: list[str]) -> None:
    """Of each method the first process dies, or the second, in turn."""
    publishing = os.fork()
    if not publishing:  # this process reads no ratings: that begins threads
        for kind in {kind_of(name) for name in names}:
            publisher_for(frozenset({kind}), **DATA).publish(Synthetic(**DATA).source("book"), "book").save(
                folder / kind
            )
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(publishing, 0)[1]) == 0
    for number, name in enumerate(names):
        found = one_dies(name, folder, dying=1 - number % 2)
        (folder / f"{name}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
