"""InputPerturbation: the signs themselves are flipped."""

from __future__ import annotations

import numpy as np

from zoo.methods.one_bit_mc.objective import Likelihood, Observations
from zoo.methods.one_bit_mc.perturbation import Drawn, Perturbation, Problem
from zoo.methods.one_bit_mc.solvers import MultiStart, Solver
from zoo.privacy.one_bit.link_functions import Link
from zoo.privacy.one_bit.randomised_response import (
    SignResponsePlan,
    TernaryResponsePlan,
    flipped_signs,
    plan_input,
    plan_ternary,
    ternary_signs,
)
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import PrivacyRecord


class InputPerturbation(Perturbation):
    """Every sign is flipped with probability ``1/(1 + e^epsilon)`` (InP, section 4.1). Holds as published, without a delta.

    The likelihood is that of the flipped signs, ``c = (1 - 2p) h + p``; it is not concave, so it is maximised from 0 and
    from the solution under h, and the better one is taken. The flips need no trusted party: each user can make their own.

    Args:
        epsilon: Privacy loss.
        hide_pairs: Every pair of the grid reports +1, -1 or "not rated", truly or at random, so that who rated what is
            protected too, by the completed matrix: what else a run writes (counts, figures, recommendations without what a
            user has) tells of the pairs. What is reported is learned from under h. Takes far more noise: all cells make up
            ratings.
        noise_seed: Null: flips from the operating system. A number makes the run repeatable, without any guarantee.

    Raises:
        ValueError: If epsilon is out of range.
    """

    shows_objective = True

    def __init__(self, epsilon: float, hide_pairs: bool = False, noise_seed: int | None = None) -> None:
        self.epsilon, self.hide_pairs, self.noise_seed = epsilon, hide_pairs, noise_seed
        self.hides_pairs = hide_pairs
        self.plan: SignResponsePlan | TernaryResponsePlan = plan_ternary(epsilon) if hide_pairs else plan_input(epsilon)

    def check(self, link: Link, alpha: float | None, bounded: bool) -> None:
        """Everything goes: what is reported is private whatever is done with it."""

    def draw(self, problem: Problem, noise: NoiseSource) -> Drawn:
        """The reports."""
        seen = problem.observations
        if isinstance(self.plan, TernaryResponsePlan):
            rows, columns = np.divmod(seen.cells, seen.shape[1])
            rows, columns, signs = ternary_signs(rows, columns, seen.signs, seen.shape, self.plan, noise)
            return {"cells": (rows * seen.shape[1] + columns).astype(np.float64), "signs": signs.astype(np.float64)}
        flipped = flipped_signs(seen.signs, self.plan.p1, self.plan.p2, noise)
        return {"cells": seen.cells.astype(np.float64), "signs": flipped.astype(np.float64)}

    def solver(self, problem: Problem, drawn: Drawn, noise: NoiseSource) -> Solver:
        """The likelihood of what was reported."""
        cells = drawn["cells"].astype(np.int64)  # below 2^53, so exact as floats
        reports = Observations(problem.observations.shape, cells, drawn["signs"])
        plain = Likelihood.of(reports, problem.link)
        if isinstance(self.plan, TernaryResponsePlan):
            return problem.minimise(plain)
        return MultiStart(
            problem.minimise(plain), lambda start: problem.minimise(self._flipped(reports, problem), start)
        )

    def _flipped(self, reports: Observations, problem: Problem) -> Likelihood:
        assert isinstance(self.plan, SignResponsePlan)
        return Likelihood.of(reports, self.plan.link(problem.link))

    def record(self, problem: Problem, assumptions: tuple[str, ...] = ()) -> PrivacyRecord:
        """Proved, for the reports and so for whatever is made of them."""
        return self._proved("one-bit matrix completion, input", self.plan, problem, assumptions)
