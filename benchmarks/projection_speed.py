"""Measure a projection onto the nuclear-norm ball, and a Clear fit of MovieLens 100K, with some and with all singular values."""

import statistics

import numpy as np
from generated import alone, line, now, peak_memory, since

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
    """Print one line of JSON."""
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
        moved.ravel()[seen.cells] += seen.signs  # as in the next step: low rank plus the observed entries
        for _ in range(REPEATS):
            start = now()
            ball(moved)
            seconds.append(since(start, 4)["s"])
    else:
        start = now()
        run(solver)
        seconds.append(since(start, 4)["s"])
    facts = {"what": what, "singular_values": "as needed" if truncated else "all", "rank": ball.rank}
    if what == "fit":
        test = data.test
        found = solver.result[test.users.numpy(), test.items.numpy()] * test.ratings.numpy()
        facts |= {"iterations": solver.steps, "sign_accuracy": round(float((found > 0).mean()), 4)}
    line(**facts, seconds=round(statistics.median(seconds), 3), before_mib=round(before))


if __name__ == "__main__":
    for what in ("projection", "fit"):
        for truncated in (True, False):
            alone(measure, what, truncated)
