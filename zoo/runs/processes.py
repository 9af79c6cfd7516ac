"""Several processes of one run: which of them reports an error that all have, and how a failed one ends the others."""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pytorch_lightning import Trainer
from pytorch_lightning.utilities import rank_zero_only

#: Seconds that a process waits for the first, which mostly met the same, before it says by itself what is wrong.
PATIENCE = 5.0
#: What gloo and NCCL say where a process that they talk to is there no more.
_GONE = re.compile(r"Connection (closed|reset) by peer|Broken pipe|remote process exited", re.I)


class LostProcessError(RuntimeError):
    """Another process of a training ended before its end."""


def is_first() -> bool:
    """Whether this process is the first of its run, or the only one; on several nodes there is one first of all."""
    return not rank_zero_only.rank  # type: ignore[attr-defined]  # Lightning sets it, from the environment at first


def let_the_first_speak() -> None:
    """Wait a moment in all processes but the first: where that has failed too, it speaks for all and ends the others."""
    if not is_first():
        time.sleep(PATIENCE)


@contextmanager
def kill_on_failure(trainer: Trainer) -> Iterator[None]:
    """Kill the processes that this one has started if it fails; raise a `LostProcessError` if another one was lost."""
    try:
        yield
    except BaseException as error:
        launcher: Any = trainer.strategy.launcher
        if hasattr(launcher, "kill"):
            launcher.kill(signal.SIGKILL)  # they may wait for this one for ever
        if isinstance(error, RuntimeError) and trainer.world_size > 1 and _GONE.search(str(error)):
            raise LostProcessError(
                f"Another of the {trainer.world_size} processes has ended, by itself or from outside (memory that runs out is the "
                "usual reason)."
            ) from error
        raise
