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
    """Add noise to every entry of the completed matrix (OutP, section 4.4).

    Exactly `steps` projected steps on the likelihood with a ridge: one flipped sign moves their end point by no more than the
    ridge allows, converged or not, and by half of that or less with entries bounded by `alpha` (`bounded`), because the
    likelihood is curved at the differing entry. Then Gaussian noise is added to every entry, and the result is projected again,
    which costs no privacy.

    The published noise covers the change of one entry, but one sign can change all of them: on a matrix of d rows and columns
    it has d times the epsilon. This explains why it was found best for small epsilon.

    Args:
        epsilon: Privacy loss.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        steps: Number of steps.
        ridge: Weight of half the squared entries in the objective.
        step_size: Null: ``1/(2 (ridge + smoothness))``. Up to ``2/(2 ridge + smoothness)``, for more noise.
        paper_faithful: The published noise on the converged solution. `guarantee: none`.
        noise_seed: Null: noise of the operating system. A number makes the run repeatable, without any guarantee.

    Examples:
        >>> import zoo
        >>> from zoo.methods.one_bit_mc.perturbation import Terms
        >>> from zoo.privacy.one_bit.link_functions import Logistic
        >>> zoo.OutputPerturbation(epsilon=4.0).public_settings(Terms(Logistic()))["steps"]
        50
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
        """Refuse terms without a sensitivity: a probit link without a bound, or the published noise without alpha."""
        if self.paper_faithful and terms.alpha is None:
            raise ValueError("The published noise on the output needs alpha, the largest entry. Set it.")
        if not (self.paper_faithful or isinstance(terms.link, Logistic) or terms.bounded):
            raise ValueError("link is 'probit' without bounded entries. Set bounded: true, or link: logistic.")
        super().check(terms)

    def plan(self, terms: Terms) -> CompletedMatrix | PublishedScale:
        """Return Gaussian noise for the largest distance of end points, or the published scale."""
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
        """Return the ridge and the steps."""
        return {"ridge": self.ridge, "step_size": self._size(terms.link), "steps": self.steps or 0}

    def audits(self, terms: Terms, nuclear: NuclearBall) -> list[Audit]:
        """Return tests of the solver's end points in two worlds: a 3 x 3 matrix, six ratings, one flipped corner."""
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
        """Return steps on the true signs; their end point is secret until noise is added."""
        if self.steps is None:
            return problem.minimise(Likelihood.of(problem.observations, problem.link))
        likelihood = Likelihood.of(problem.observations, problem.link, ridge=self.ridge)
        return FixedSteps(likelihood, problem.project_in_finite_time, self.steps, self._size(problem.link))

    def finish(self, matrix: Floats, problem: Problem, noise: NoiseSource) -> Floats:
        """Add noise to every entry; in the sound form, project again."""
        plan = self.plan(problem.terms)
        if isinstance(plan, PublishedScale):
            return matrix + laplace_noise(noise, plan.scale, matrix.shape)
        return problem.project_in_finite_time(noisy_output(matrix, plan, noise))
