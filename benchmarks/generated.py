"""Helpers of the measurements: generated ratings, times, peak memory, one process per case, lines of JSON."""

import json
import multiprocessing
import resource
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import ProcessPoolExecutor
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from scipy.sparse import csr_array

from zoo import Ratings

_PART = 2**15  # users drawn at a time
_ROWS = 5_000_000  # rows of a file written at a time

#: Settings of a quiet trainer.
SHOWN = ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary")
QUIET: dict[str, Any] = dict.fromkeys(SHOWN, False)


def now() -> tuple[float, float]:
    """Return CPU time and wall-clock time in seconds, after a GPU has finished its work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.process_time(), time.perf_counter()


def since(start: tuple[float, float], digits: int = 2) -> dict[str, float]:
    """Return seconds since the ``start`` from `now`: ``cpu_s`` and ``s``."""
    return {name: round(end - begin, digits) for name, begin, end in zip(("cpu_s", "s"), start, now(), strict=True)}


def alone(function: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401  whatever the function returns
    """Call a function in its own process, to measure its peak memory."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def line(**facts: object) -> None:
    """Print one line of JSON with the peak memory of this process."""
    print(json.dumps(facts | {"peak_mib": round(peak_memory())}), flush=True)


class Parts:
    """CPU time by part, or of the `rest`; only parts in `whole` include nested parts."""

    def __init__(self, rest: str, whole: Collection[str] = ()) -> None:
        self.seconds, self.whole = Counter[str](), whole
        self._running, self._last = [rest], time.process_time()

    def watch(self, part: str, owner: Any, name: str) -> None:  # noqa: ANN401  a class or a module
        """Add the time of a function to a part."""
        function = getattr(owner, name)

        @wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
            self.turn()
            self._running.append(self._running[-1] if self._running[-1] in self.whole else part)
            try:
                return function(*args, **kwargs)
            finally:
                self.turn()
                self._running.pop()

        setattr(owner, name, watched)

    def turn(self) -> None:
        """Add the time since the last call to the current part."""
        now = time.process_time()
        self.seconds[self._running[-1]] += now - self._last
        self._last = now


Users = Callable[[np.random.Generator, int, int], npt.NDArray[np.int64]]


def write_ratings(path: Path, count: int, num_items: int, users: Users, seed: int = 0) -> None:
    """Write a CSV file of ``count`` ratings with popular and rare items; ``users(generator, start, count)`` draws users."""
    generator = np.random.default_rng(seed)
    with path.open("wb") as file:
        for start in range(0, count, _ROWS):
            rows = min(_ROWS, count - start)
            own, items = users(generator, start, rows), (num_items * generator.random(rows) ** 2).astype(int)
            ratings, times = generator.integers(1, 6, rows), generator.integers(10**9, 2 * 10**9, rows)
            table = pl.DataFrame({"user_id": own, "item_id": items, "rating": ratings, "timestamp": times})
            named = table.with_columns(user_id=pl.format("u{}", "user_id"), item_id=pl.format("i{}", "item_id"))
            named.write_csv(file, include_header=not start)


def generated(num_users: int, num_items: int, each: int) -> Ratings:
    """Return binary ratings with about `each` uniform items per user (an item drawn twice counts once)."""
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
    """Return the peak memory of the process, since its start or `forget_peak`, in MiB; libraries included."""
    status = Path("/proc/self/status")
    if status.exists():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        return int(lines["VmHWM"].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def forget_peak() -> None:
    """Reset `peak_memory`, if the system supports it."""
    peak = Path("/proc/self/clear_refs")
    if peak.exists():
        peak.write_text("5")
