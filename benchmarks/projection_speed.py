"""Measures a projection onto the nuclear-norm ball, and a whole Clear fit of MovieLens 100K, against all singular values.

One line of JSON each; each in a process of its own, for its peak memory. Needs the ratings (docs/data.md).
"""

import json
import multiprocessing
import statistics
import time

import numpy as np
from generated import peak_memory

from datamodules import Evaluation, Filters, MovieLens100K
from zoo import Clear
from zoo.methods.one_bit_mc.norm_balls import NuclearBall
from zoo.methods.one_bit_mc.objective import Observations
from zoo.methods.one_bit_mc.perturbation import Problem
from zoo.methods.one_bit_mc.solvers import run
from zoo.privacy.one_bit.link_functions import Logistic
from zoo.privacy.randomness.noise import NoiseSource

TAU, REPEATS = 1000.0, 7


def measure(what: str, truncated: bool) -> None:
    """One line of JSON."""
    data = MovieLens100K(filters=Filters(threshold=3.5, signs=True), evaluation=Evaluation(split="given"), seed=0)
    data.read_target()
    train = data.train
    seen = Observations((train.num_users, train.num_items), train.pair_keys, train.matrix.data.astype(np.float64))
    ball, before = NuclearBall(TAU, truncated), peak_memory()
    problem = Problem(seen, Logistic(), ball)
    solver = Clear().solver(problem, {}, NoiseSource.os())
    seconds = []
    if what == "projection":
        solver.step()
        moved = 3 * solver.point
        moved.ravel()[seen.cells] += seen.signs  # what a next step projects: of low rank but for the observed cells
        for _ in range(REPEATS):
            start = time.perf_counter()
            ball(moved)
            seconds.append(time.perf_counter() - start)
    else:
        start = time.perf_counter()
        run(solver)
        seconds.append(time.perf_counter() - start)
    facts = {"what": what, "singular values": "as needed" if truncated else "all", "rank": ball.rank}
    if what == "fit":
        test = data.test
        found = solver.result[test.users.numpy(), test.items.numpy()] * test.ratings.numpy()
        facts |= {"iterations": solver.steps, "sign_accuracy": round(float((found > 0).mean()), 4)}
    memory = {"peak_mib": round(peak_memory()), "of which before": round(before)}
    print(json.dumps({**facts, "seconds": round(statistics.median(seconds), 3), **memory}), flush=True)


def main() -> None:
    """Both ways, a projection and a fit."""
    context = multiprocessing.get_context("spawn")
    for what in ("projection", "fit"):
        for truncated in (True, False):
            process = context.Process(target=measure, args=(what, truncated))
            process.start()
            process.join()


if __name__ == "__main__":
    main()
