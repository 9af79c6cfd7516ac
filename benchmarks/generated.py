"""Generated ratings, and the memory that a process took: what the measurements of publishing share."""

import resource
import sys
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from zoo import Ratings

_PART = 2**15  # users drawn at a time


def generated(num_users: int, num_items: int, each: int) -> Ratings:
    """Binary ratings with about `each` items a user, drawn uniformly (an item drawn twice counts once)."""
    rng = np.random.default_rng(0)
    columns, counts = [], []
    for start in range(0, num_users, _PART):
        users = min(_PART, num_users - start)
        items = np.sort(rng.integers(num_items, size=(users, each), dtype=np.int32), axis=1)
        keep = np.concatenate([np.ones((users, 1), bool), np.diff(items, axis=1) > 0], axis=1)
        columns.append(items[keep])
        counts.append(keep.sum(1))
    starts = np.concatenate([[0], np.cumsum(np.concatenate(counts))])
    ones = np.ones(starts[-1], dtype=np.float32)
    matrix = csr_array((ones, np.concatenate(columns), starts.astype(np.int32)), shape=(num_users, num_items))
    return Ratings(matrix, np.arange(num_users), np.arange(num_items))


def peak_memory() -> float:
    """Most memory that the process has held since it began, or since `forget_peak`, in MiB; libraries included."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def forget_peak() -> None:
    """Count `peak_memory` from what is held now, where the system can."""
    peak = Path("/proc/self/clear_refs")
    if peak.exists():
        peak.write_text("5")
