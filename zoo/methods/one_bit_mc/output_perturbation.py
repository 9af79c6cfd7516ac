"""OutputPerturbation: noise on the completed matrix."""

import math

import numpy as np

from zoo.methods.one_bit_mc.norm_balls import Floats, NuclearBall
from zoo.methods.one_bit_mc.objective import Likelihood, Observations
from zoo.methods.one_bit_mc.perturbation import Drawn, Perturbation, Problem, Terms
from zoo.methods.one_bit_mc.solvers import FixedSteps, Solver, run
from zoo.privacy.accounting.gaussian import check_epsilon
from zoo.privacy.audits.one_bit import ends_audit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.base import Plain
from zoo.privacy.mechanisms.one_bit import CompletedMatrix, noisy_output, plan_output
from zoo.privacy.one_bit.link_functions import Link, Logistic, check_ridge
from zoo.privacy.one_bit.published import PublishedScale, published_output
from zoo.privacy.one_bit.stability import usual_step
from zoo.privacy.randomness.noise import NoiseSource, laplace_noise


class OutputPerturbation(Perturbation):
    """Noise on every entry of the completed matrix (OutP, section 4.4).

    Exactly `steps` projected steps on the likelihood with a ridge: one flipped sign moves where they end by no more than the
    ridge allows, converged or not, and by half of that or less where entries are held to `alpha` (`bounded`), because the
    likelihood is curved at the entry that differs. Then Gaussian noise on every entry, and the projection again, which costs
    nothing.

    As published, the noise covers how far one entry can move, where one sign can move them all: on a matrix of d rows and
    columns it has d times the epsilon. That it was found best for small epsilon is that.

    Args:
        epsilon: Privacy loss.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        steps: How many.
        ridge: Weight of half the squared entries in the objective.
        step_size: Null: ``1/(2 (ridge + smoothness))``. Up to ``2/(2 ridge + smoothness)``, for more noise.
        paper_faithful: The published noise on the converged solution. `guarantee: none`.
        noise_seed: Null: noise of the operating system. A number makes the run repeatable, without any guarantee.
    """

    mechanism = "one-bit matrix completion, output"
    noise = "gaussian"

    def __init__(
        self,
        epsilon: float,
        delta: float | None = None,
        steps: int = 50,
        ridge: float = 0.2,
        step_size: float | None = None,
        paper_faithful: bool = False,
        noise_seed: int | None = None,
    ) -> None:
        check_epsilon(epsilon)
        check_ridge(ridge)
        self.epsilon, self.delta, self.ridge, self.step_size = epsilon, delta, ridge, step_size
        self.paper_faithful, self.noise_seed = paper_faithful, noise_seed
        self.steps = None if paper_faithful else steps

    def check(self, terms: Terms) -> None:
        """Refuse what has no sensitivity: a probit link without a bound, or the published noise without alpha."""
        if self.paper_faithful and terms.alpha is None:
            raise ValueError(
                "The published noise on the output needs alpha, the largest entry: it is calibrated on it."
            )
        if not (self.paper_faithful or isinstance(terms.link, Logistic) or terms.bounded):
            raise ValueError(
                "With the probit link, noise on the output needs entries that are held to alpha (bounded: true): without, one "
                "sign can move a gradient by any amount. Or use link: logistic."
            )
        super().check(terms)

    def plan(self, terms: Terms) -> CompletedMatrix | PublishedScale:
        """Gaussian noise for how far the steps can end apart, or the published scale."""
        link, alpha, bounded, _ = terms
        if self.steps is None:
            assert alpha is not None  # see `check`
            return published_output(self.epsilon, alpha)
        bound = math.inf if alpha is None or not bounded else alpha
        delta, size = self._delta(terms), self._size(link)
        return plan_output(link, self.epsilon, delta, alpha=bound, ridge=self.ridge, steps=self.steps, step_size=size)

    def _size(self, link: Link) -> float:
        return usual_step(link, self.ridge) if self.step_size is None else self.step_size

    def public_settings(self, terms: Terms) -> dict[str, Plain]:
        """The ridge and the steps."""
        return {"ridge": self.ridge, "step_size": self._size(terms.link), "steps": self.steps or 0}

    def audits(self, terms: Terms, nuclear: NuclearBall) -> list[Audit]:
        """The ends of the solver's own steps in two worlds: three by three, six ratings, of which the corner's flips."""
        plan = self.plan(terms)
        if isinstance(plan, PublishedScale):
            return []
        cells, others = np.array([0, 1, 2, 3, 4, 6]), [1.0, -1.0, 1.0, 1.0, -1.0]

        def end(corner: float) -> Floats:
            seen = Observations((3, 3), cells, np.array([corner, *others]))
            return run(
                self.solver(Problem(seen, terms.link, nuclear, terms.alpha, terms.bounded), {}, NoiseSource.os())
            )

        return [ends_audit(self.mechanism, plan, end(-1.0), end(1.0))]

    def solver(self, problem: Problem, drawn: Drawn, noise: NoiseSource) -> Solver:
        """Steps on the true signs; their end is secret until it has noise."""
        if self.steps is None:
            return problem.minimise(Likelihood.of(problem.observations, problem.link))
        likelihood = Likelihood.of(problem.observations, problem.link, ridge=self.ridge)
        return FixedSteps(likelihood, problem.project_in_finite_time, self.steps, self._size(problem.link))

    def finish(self, matrix: Floats, problem: Problem, noise: NoiseSource) -> Floats:
        """Noise on every entry; in the sound form, projected again."""
        plan = self.plan(problem.terms)
        if isinstance(plan, PublishedScale):
            return matrix + laplace_noise(noise, plan.scale, matrix.shape)
        return problem.project_in_finite_time(noisy_output(matrix, plan, noise))
