"""Small problems of one-bit matrix completion, and what a general convex solver says of them."""

from dataclasses import replace
from typing import Any

import numpy as np

from zoo.methods.one_bit_mc.norm_balls import NuclearBall
from zoo.methods.one_bit_mc.objective import Observations
from zoo.methods.one_bit_mc.perturbation import Perturbation, Problem
from zoo.methods.one_bit_mc.solvers import run
from zoo.privacy.one_bit.link_functions import Link, Logistic
from zoo.privacy.randomness.noise import NoiseSource

#: Without these the interior-point method stops about 1e-4 from the nearest matrix.
EXACT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def observations(seed: int = 0, shape: tuple[int, int] = (6, 7), count: int = 20) -> Observations:
    """Random signs at random places."""
    rng = np.random.default_rng(seed)
    cells = np.sort(rng.permutation(shape[0] * shape[1])[:count])
    return Observations(shape, cells, rng.choice([-1.0, 1.0], count))


def problem(seed: int = 0, link: Link | None = None, tau: float = 4.0, **settings: Any) -> Problem:  # noqa: ANN401
    seen = observations(seed, **{name: settings.pop(name) for name in ("shape", "count") if name in settings})
    return Problem(seen, Logistic() if link is None else link, NuclearBall(tau), **settings)


def nearest(matrix: np.ndarray, radius: float, bound: float | None = None) -> np.ndarray:
    """The projection onto one ball or both, by an interior-point method."""
    import cvxpy  # it takes a second to import

    found = cvxpy.Variable(matrix.shape)
    limits = [cvxpy.normNuc(found) <= radius] + ([] if bound is None else [cvxpy.abs(found) <= bound])
    cvxpy.Problem(cvxpy.Minimize(cvxpy.sum_squares(found - matrix)), limits).solve(solver="CLARABEL", **EXACT)
    return np.asarray(found.value)


def least_logistic_loss(seen: Observations, radius: float, bound: float | None = None) -> float:
    """The smallest negative log-likelihood of the signs with a logistic link."""
    import cvxpy

    found = cvxpy.Variable(seen.shape)
    rows, columns = np.divmod(seen.cells, seen.shape[1])
    loss = sum(cvxpy.logistic(-sign * found[i, j]) for sign, i, j in zip(seen.signs, rows, columns, strict=True))
    limits = [cvxpy.normNuc(found) <= radius] + ([] if bound is None else [cvxpy.abs(found) <= bound])
    return float(cvxpy.Problem(cvxpy.Minimize(loss), limits).solve(solver="CLARABEL"))


def completed(perturbation: Perturbation, posed: Problem, noise: NoiseSource | None = None) -> np.ndarray:
    noise = seeded() if noise is None else noise
    perturbation.check(posed.terms)
    solver = perturbation.solver(posed, perturbation.draw(posed, noise), noise)
    return perturbation.finish(run(solver), posed, noise)


def with_other_signs(posed: Problem) -> Problem:
    """The same problem with all signs turned over."""
    seen = posed.observations
    return replace(posed, observations=Observations(seen.shape, seen.cells, -seen.signs))


def seeded() -> NoiseSource:
    return NoiseSource.seeded(3)
