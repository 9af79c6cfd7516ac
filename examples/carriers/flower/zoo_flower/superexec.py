"""A SuperExec whose app processes are forked from one that imported the libraries before.

Flower starts an interpreter for each message, and gives up one that sends no sign of life in 30 seconds. The imports alone take
longer on a busy machine. Here they are made once, and a process has `STARTING` seconds.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import get_context
from types import SimpleNamespace
from typing import Any

from flwr.supercore.cli import flower_superexec
from flwr.supercore.corestate import in_memory_corestate, sql_corestate
from flwr.supercore.superexec.executor import subprocess_executor

STARTING = 180
"""Seconds until the first sign of life of an app's process; a dead one is noticed after twice as many."""

_FORKS = get_context("forkserver")


def command_of(command: Sequence[str]) -> list[str]:
    """Return the command that starts this SuperExec instead of Flower's, with the same arguments."""
    return [sys.executable, "-m", "zoo_flower.superexec", *command[1:]]


def be_patient() -> None:
    """Give the processes that this SuperLink or SuperNode starts more time than Flower's 30 seconds."""
    for module in (in_memory_corestate, sql_corestate):
        module.HEARTBEAT_DEFAULT_INTERVAL = STARTING  # type: ignore[attr-defined]


def main() -> None:
    """Run Flower's SuperExec with forks."""
    _FORKS.set_forkserver_preload(["flwr.supernode.cli", "flwr.superlink.cli", "datamodules", "zoo.runs.exchange",
                                   "zoo.commands.parties", "zoo.commands.privacy.plan"])  # fmt: skip
    ready = _FORKS.Process(target=int)  # ends when the imports are made; no message is taken before
    ready.start()
    ready.join()

    def forked(command: list[str], **_: Any) -> None:  # noqa: ANN401  of `subprocess.Popen`
        _FORKS.Process(target=run, args=(command,)).start()

    subprocess_executor.subprocess = SimpleNamespace(Popen=forked, DEVNULL=subprocess.DEVNULL)
    flower_superexec()


def run(command: list[str]) -> None:
    """Do in a fork what Flower's program of this name does."""
    for name in [name for name in sys.modules if name.split(".")[0] == "zoo_flower"]:
        del sys.modules[name]  # the app brings its own, whose SHA-256 the site knows
    from flwr.superlink.cli import flwr_serverapp
    from flwr.supernode.cli import flwr_clientapp

    sys.argv = command
    {"flwr-clientapp": flwr_clientapp, "flwr-serverapp": flwr_serverapp}[command[0]]()


if __name__ == "__main__":
    main()
