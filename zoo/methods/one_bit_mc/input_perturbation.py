"""InputPerturbation: random flips of the signs."""

from dataclasses import replace

import numpy as np

from zoo.methods.one_bit_mc.norm_balls import NuclearBall
from zoo.methods.one_bit_mc.objective import Likelihood, Observations
from zoo.methods.one_bit_mc.perturbation import Drawn, Perturbation, Problem, Terms
from zoo.methods.one_bit_mc.solvers import MultiStart, Solver
from zoo.privacy.audits.one_bit import flips_audit, ternary_audit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.sign_response import (
    SignResponse,
    TernaryResponse,
    flipped_signs,
    plan_input,
    plan_ternary,
    plan_uneven_input,
    ternary_signs,
)
from zoo.privacy.one_bit.link_functions import Link
from zoo.privacy.randomness.noise import NoiseSource


class InputPerturbation(Perturbation):
    """Flip every sign with probability ``1/(1 + e^epsilon)`` (InP, section 4.1). Holds as published, without a delta.

    The likelihood is that of the flipped signs, ``c = (1 - p1) h + p2 (1 - h)``. It is not concave, so it is maximised from 0 and
    from the solution under h, and the better result is used. The flips need no trusted party: each user can make their own.

    Args:
        epsilon: Privacy loss. Null with `p1` and `p2`: the largest of the four log-ratios of both reports. (Theorem 1 uses two of
            them, which is not enough.)
        hide_pairs: Every pair of a user and an item reports +1, -1 or "not rated", truly or at random. This also protects who
            rated what, in the completed matrix only: counts, metrics and recommendations without seen items still reveal pairs.
            Reports are learned from under h. Needs far more noise: all entries make up ratings.
        noise_seed: Null: flips from the operating system. A number makes the run repeatable, without any guarantee.
        p1: Probability that a +1 is reported as -1, in (0, 1/2), instead of `epsilon`.
        p2: Probability that a -1 is reported as +1, in (0, 1/2), instead of `epsilon`.

    Examples:
        >>> import zoo
        >>> uneven = zoo.InputPerturbation(p1=0.1, p2=0.3)  # ln(0.7 / 0.1), the largest ratio
        >>> round(zoo.OneBitMC(tau=10.0, perturbation=uneven).forecast(30, 20).epsilon, 4)
        1.9459
        >>> from datamodules import LowRank
        >>> data = LowRank(num_users=30, num_items=20, observed=0.5)
        >>> method = zoo.OneBitMC(tau=10.0, perturbation=zoo.InputPerturbation(epsilon=4.0), max_iterations=20)
        >>> run = zoo.fit(method, data, max_epochs=1, enable_progress_bar=False)
        Data: target ...
        >>> run.method.privacy_record().epsilon
        4.0
    """

    mechanism = "one-bit matrix completion, input"

    def __init__(
        self,
        epsilon: float | None = None,
        hide_pairs: bool = False,
        noise_seed: int | None = None,
        p1: float | None = None,
        p2: float | None = None,
    ) -> None:
        self.epsilon, self.hide_pairs, self.noise_seed = epsilon, hide_pairs, noise_seed
        self.p1, self.p2 = p1, p2
        if epsilon is not None and p1 is None and p2 is None:
            self._plan = plan_ternary(epsilon) if hide_pairs else plan_input(epsilon)
        elif epsilon is None and p1 is not None and p2 is not None and not hide_pairs:
            self._plan = plan_uneven_input(p1, p2)
        else:
            given = {"epsilon": epsilon, "p1": p1, "p2": p2, "hide_pairs": hide_pairs}
            raise ValueError(f"{given}: set epsilon, or p1 and p2 without hide_pairs.")

    def shows_objective(self, link: Link) -> bool:
        """Return True: the objective is that of the reports."""
        return True

    def plan(self, terms: Terms) -> SignResponse | TernaryResponse:
        """Return the same plan on all terms: reports are private under any processing."""
        return self._plan

    def audits(self, terms: Terms, nuclear: NuclearBall) -> list[Audit]:
        """Return tests of one report in two worlds; with `hide_pairs` also of the presence of a rating."""
        if isinstance(plan := self._plan, SignResponse):
            return [flips_audit(self.mechanism, plan)]
        return [ternary_audit(f"{self.mechanism}{name}", plan, presence=bool(name)) for name in ("", ", presence")]

    def draw(self, problem: Problem, noise: NoiseSource) -> Drawn:
        """Return the reports."""
        seen = problem.observations
        cells, signs = seen.cells, seen.signs
        if isinstance(self._plan, TernaryResponse):
            rows, columns, signs = ternary_signs(*np.divmod(cells, seen.shape[1]), signs, seen.shape, self._plan, noise)
            cells = rows * seen.shape[1] + columns
        else:
            signs = flipped_signs(signs, self._plan.p1, self._plan.p2, noise)
        return {"cells": cells.astype(np.float64), "signs": signs}

    def solver(self, problem: Problem, drawn: Drawn, noise: NoiseSource) -> Solver:
        """Return a solver of the likelihood of the reports."""
        cells = drawn["cells"].astype(np.int64)  # below 2^53, so exact as floats
        reports = Observations(problem.observations.shape, cells, drawn["signs"])
        plain, plan = Likelihood.of(reports, problem.link), self._plan
        first = problem.minimise(plain)
        if isinstance(plan, TernaryResponse):
            return first
        flipped = replace(plain, link=plan.link(problem.link))
        return MultiStart(first, lambda start: problem.minimise(flipped, start))
