"""Processes: the machine, the available cores, and whether another process is dead."""

import hashlib
import os
import platform
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """Return an identifier of this machine, its boot and its process namespace; "" if the system is not Linux."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""
    return hashlib.sha256(f"{platform.node()} {boot} {space}".encode()).hexdigest()[:8]


def cores() -> int:
    """Return the number of cores that this process may use: SLURM does not always bind tasks to CPUs.

    Examples:
        >>> cores() >= 1
        True
    """
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    slurm = os.environ.get("SLURM_CPUS_PER_TASK", "")
    return min(mine, int(slurm)) if slurm.isdecimal() and int(slurm) else mine


def is_process_dead(where: str, number: int) -> bool:
    """Return whether a process is known to have ended; False if its number is in use, or it is of another machine."""
    if not where or where != machine():
        return False
    try:
        os.kill(number, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # of another user, and alive
        pass
    return False
