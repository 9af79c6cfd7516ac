"""Processes: which one this is, on which machine, how many cores it may use, and whether another one is known to have ended."""

import hashlib
import os
import platform
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """A word for this machine since it was started, and for the space in which it numbers processes (a container has its own).

    Empty where the system is not Linux: nothing is known of any process then.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return hashlib.sha256(f"{platform.node()} {boot} {space}".encode()).hexdigest()[:8]


def cores() -> int:
    """Cores that this process may use, by the system and by SLURM: not every cluster binds its tasks to their CPUs."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return min(mine, int(asked)) if asked.isdecimal() and int(asked) else mine


def is_process_dead(of: str, number: int) -> bool:
    """Whether a process is known to have ended; False where it lives, is of another machine, or a new one has its number."""
    if not of or of != machine():
        return False
    try:
        os.kill(number, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # somebody else's, and it lives
        pass
    return False
