"""Measure publishing as data grow, and compared with the paper's decomposition; print one line of JSON per process.

A line has wall-clock time (`publish_s` without saving), and CPU time of the noise, of M and its product, and of the rest:
bounding, rounding, writing, hashing. Cost is linear in ratings plus users x n' (and M in items), so the last two values, per unit,
stay constant as data grow. The decomposition and its counterpart run on one core.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from generated import Parts, alone, forget_peak, generated, line, now, peak_memory, since

from zoo import JLT, SJLT, Publisher, Release
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix

WIDTH = 400
DECOMPOSED = ", decomposed"
WATCHED: tuple[tuple[str, type, str], ...] = (
    ("noise", NoiseSource, "normal"),
    *(("projection", PublicMatrix, name) for name in ("times", "transposed")),
    *(("projection", kind, "column_norms") for kind in (GaussianMatrix, SparseMatrix)),
)
#: Users, items, ratings of a user, publisher.
CASES: dict[str, tuple[int, int, int, Publisher]] = {
    "924 x 3916": (924, 3_916, 55, JLT(8.0, WIDTH)),
    "4000 users x 1000": (4_000, 1_000, 50, JLT(8.0, WIDTH)),
    "18000 x 16000": (18_000, 16_000, 30, JLT(8.0, WIDTH)),
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


def measure(name: str) -> dict[str, Any]:
    """Publish, save and read one release."""
    num_users, num_items, each, publisher = CASES[name]
    ratings = generated(num_users, num_items, each)
    compared = name.removesuffix(DECOMPOSED) + DECOMPOSED in CASES
    if compared and hasattr(os, "sched_setaffinity"):  # both on one core
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    forget_peak()
    before, parts, start = peak_memory(), Parts("rest"), now()
    for part, kind, function in WATCHED:
        parts.watch(part, kind, function)
    with tempfile.TemporaryDirectory() as folder:
        release = publisher.publish(ratings, "book")
        published = since(start)["s"]
        path = release.save(Path(folder) / "book")
        spent, peak = since(start), peak_memory()
        parts.turn()
        files = len(list(path.glob("*.safetensors")))
        del release
        forget_peak()
        start = now()
        Release.load(path)
        load_seconds = since(start)["s"]
    size = num_users * WIDTH
    sizes = {"users": num_users, "items": num_items, "ratings": ratings.num_ratings}
    facts = {
        "case": name,
        "publisher": type(publisher).__name__,
        **sizes,
        "files": files,
        "publish_s": published,
        **spent,
    }
    facts |= {f"{part}_cpu_s": round(seconds, 2) for part, seconds in parts.seconds.items()}
    facts |= {"published_peak_mib": round(peak), "above_data_mib": round(peak - before), "load_s": load_seconds}
    facts["noise_ns_per_number"] = round(1e9 * parts.seconds["noise"] / size, 1)
    facts["projection_ns_per_rating"] = round(1e9 * parts.seconds["projection"] / ratings.num_ratings, 1)
    line(**facts)  # peak_mib is that of reading
    return facts


if __name__ == "__main__":
    lines = {name: alone(measure, name) for name in CASES}
    for name in CASES:
        if slow := lines.get(name + DECOMPOSED):
            kinds = ("cpu_s", "published_peak_mib", "above_data_mib")
            ratios = {kind: round(slow[kind] / lines[name][kind], 1) for kind in kinds}
            print({"case": name, "decomposed / this": ratios})
