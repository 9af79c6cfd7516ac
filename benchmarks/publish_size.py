"""Measures publishing as data grow, and beside the paper's decomposition; prints one line of JSON a process.

    python benchmarks/publish_size.py              # everything, each in a process of its own
    python benchmarks/publish_size.py "1e6"        # one of the cases below, in this process

A line says how many seconds passed, and how many of the processors' seconds (`cpu_s`, which say more where others use
the machine) went into the noise (hardened, of the operating system), into M and the product with it, and into the rest:
bounding, rounding, writing, hashing. Cost is linear in ratings plus users x n' (and M in items), so the last two figures
of a line, each per unit, stay put as data grow. The decomposition and what it is compared with run on one processor.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from generated import forget_peak, generated, peak_memory

from zoo import JLT, SJLT, Publisher, Release
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix

WIDTH = 400
DECOMPOSED = ", decomposed"
#: Users, items, ratings of a user, publisher.
CASES: dict[str, tuple[int, int, int, Publisher]] = {
    "1e5": (2_000, 10_000, 50, JLT(8.0, WIDTH)),
    "1e6": (20_000, 10_000, 50, JLT(8.0, WIDTH)),
    "1e7": (200_000, 10_000, 50, JLT(8.0, WIDTH)),
    "1e7, few users": (20_000, 10_000, 500, JLT(8.0, WIDTH)),
    "2e7, JLT": (1_000_000, 100_000, 20, JLT(8.0, WIDTH)),
    "2e7, SJLT": (1_000_000, 100_000, 20, SJLT(8.0, WIDTH)),
    "4000 x 1000": (1_000, 4_000, 50, JLT(8.0, WIDTH)),
    "4000 x 1000, decomposed": (1_000, 4_000, 50, JLT(8.0, WIDTH, paper_faithful=True)),
    "10000 x 1500": (1_500, 10_000, 50, JLT(8.0, WIDTH)),
    "10000 x 1500, decomposed": (1_500, 10_000, 50, JLT(8.0, WIDTH, paper_faithful=True)),
}


class Stopwatch:
    """Adds up the processors' seconds that functions take."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inside = False

    def of(self, kind: type, *names: str) -> None:
        """Time these methods of a class; one that calls another counts once."""
        for name in names:
            setattr(kind, name, self._timed(getattr(kind, name)))

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401  whatever is timed
            if self._inside:
                return function(*args, **kwargs)
            self._inside, start = True, time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - start
                self._inside = False

        return call


def measure(name: str) -> dict[str, Any]:
    """One release, published, saved and read again."""
    num_users, num_items, each, publisher = CASES[name]
    ratings = generated(num_users, num_items, each)
    noise, product = Stopwatch(), Stopwatch()
    noise.of(NoiseSource, "normal")
    product.of(PublicMatrix, "times", "transposed")
    for kind in (GaussianMatrix, SparseMatrix):
        product.of(kind, "column_norms")
    forget_peak()
    held, cpu, start = peak_memory(), time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = publisher.publish(ratings, "book").save(Path(folder) / "book")
        seconds, cpu_seconds, peak = time.perf_counter() - start, time.process_time() - cpu, peak_memory()
        files = len(list(path.glob("*.safetensors")))
        forget_peak()
        start = time.perf_counter()
        Release.load(path)
        load_seconds, load_peak = time.perf_counter() - start, peak_memory()
    size = num_users * WIDTH
    return {
        "case": name,
        "publisher": type(publisher).__name__,
        "users": num_users,
        "items": num_items,
        "ratings": ratings.num_ratings,
        "files": files,
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_seconds, 2),
        "noise_cpu_s": round(noise.seconds, 2),
        "projection_cpu_s": round(product.seconds, 2),
        "rest_cpu_s": round(cpu_seconds - noise.seconds - product.seconds, 2),
        "peak_mib": round(peak),
        "above_data_mib": round(peak - held),
        "load_s": round(load_seconds, 2),
        "load_peak_mib": round(load_peak),
        "noise_ns_per_number": round(1e9 * noise.seconds / size, 1),
        "projection_ns_per_rating": round(1e9 * product.seconds / ratings.num_ratings, 1),
    }


def _one_processor() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def main() -> None:
    """All cases, or the one that is named."""
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
        return
    lines = {}
    for name in CASES:
        compared = name.removesuffix(DECOMPOSED) + DECOMPOSED in CASES
        command = [sys.executable, __file__, name]
        done = subprocess.run(
            command, check=True, capture_output=True, text=True, preexec_fn=_one_processor if compared else None
        )
        print(done.stdout, end="", flush=True)
        lines[name] = json.loads(done.stdout)
    for name in CASES:
        if slow := lines.get(name + DECOMPOSED):
            ratios = {key: round(slow[key] / lines[name][key], 1) for key in ("cpu_s", "peak_mib", "above_data_mib")}
            print(json.dumps({"case": name, "decomposed / this": ratios}))


if __name__ == "__main__":
    main()
