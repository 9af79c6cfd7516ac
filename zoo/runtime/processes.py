"""Processes: the machine, the available cores, the commit of the code, and whether another process is dead."""

import hashlib
import os
import platform
import subprocess
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


@cache
def commit() -> str:
    """Return the git commit of this package's checkout, with `-dirty` if tracked files differ; "" outside a checkout.

    Examples:
        >>> commit() == "" or len(commit().removesuffix("-dirty")) >= 12
        True
    """
    here = Path(__file__)
    tracked = ["ls-files", "--error-unmatch", here.name]
    described = ["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        texts = [
            subprocess.run(["git", "-C", str(here.parent), *words], capture_output=True, text=True, check=True).stdout
            for words in (tracked, described)
        ]
    except (OSError, subprocess.SubprocessError):
        return ""
    return texts[-1].strip()


@cache
def hardware() -> str:
    """Return processor, number of cores, memory and system of this machine, without its name.

    Examples:
        >>> platform.machine() in hardware()
        True
    """
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8", errors="replace").splitlines() if info.is_file() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    model = models[0] if models else platform.processor() or "unknown processor"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{model}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.machine()}"


def provenance(threads: int) -> dict[str, str | int]:
    """Return what a figure of this process depends on besides its settings and versions.

    Args:
        threads: Number of threads of the numerical library.

    Examples:
        >>> [*provenance(2)], provenance(2)["threads"]
        (['commit', 'threads', 'machine'], 2)
    """
    return {"commit": commit(), "threads": threads, "machine": hardware()}


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
