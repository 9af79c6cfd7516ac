"""Distributed runs: which process reports a common error, and how a failed process ends the others."""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytorch_lightning import Trainer
from pytorch_lightning.utilities import rank_zero_only

#: Seconds that a process waits for the first to report the same error.
PATIENCE = 5.0
#: Messages of gloo and NCCL about a process that is gone.
_GONE = re.compile(r"Connection (closed|reset) by peer|Broken pipe|remote process exited", re.I)


class LostProcessError(RuntimeError):
    """Another process of a training ended early."""


def is_first() -> bool:
    """Return whether this is the first process of its run; on several nodes there is one."""
    return not rank_zero_only.rank  # type: ignore[attr-defined]  # Lightning sets it, from the environment at first


def let_the_first_speak() -> None:
    """Wait in all processes but the first: if it failed too, it reports the error and ends the others."""
    if not is_first():
        time.sleep(PATIENCE)


@contextmanager
def kill_on_failure(trainer: Trainer) -> Iterator[None]:
    """Kill the processes that this one started if it fails; raise a `LostProcessError` if another one ended."""
    try:
        yield
    except BaseException as error:
        launcher: Any = trainer.strategy.launcher
        if hasattr(launcher, "kill"):
            launcher.kill(signal.SIGKILL)  # they may wait forever
        if isinstance(error, RuntimeError) and trainer.world_size > 1 and _GONE.search(str(error)):
            raise LostProcessError(
                f"One of the {trainer.world_size} processes ended, usually for lack of memory."
            ) from error
        raise
