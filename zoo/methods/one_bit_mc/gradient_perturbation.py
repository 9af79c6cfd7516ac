"""GradientPerturbation: noise on the gradient of every step."""

import math
from typing import Literal

import numpy as np

from zoo.methods.one_bit_mc.norm_balls import Floats, NuclearBall
from zoo.methods.one_bit_mc.objective import Likelihood
from zoo.methods.one_bit_mc.perturbation import Drawn, Perturbation, Problem, Terms
from zoo.methods.one_bit_mc.solvers import FixedSteps, Solver
from zoo.privacy.audits.one_bit import gradient_audit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.one_bit import GradientSteps, Noise, noisy_gradient, plan_gradient
from zoo.privacy.one_bit.link_functions import Logistic
from zoo.privacy.randomness.noise import NoiseSource


class GradientPerturbation(Perturbation):
    """Noise on the gradient of each of a fixed number of projected steps (GraP, section 4.3).

    Entries of the gradient are clamped, then noise is added, then the step is projected. No objective is evaluated and no step
    is skipped. Gaussian noise grows with the root of the number of steps, Laplace noise with the number; for few steps (up to
    nine at epsilon 4) Laplace noise is the smaller one.

    Each step goes from 0 against all noisy gradients so far. As published, which holds too, it goes from the last point:
    ``noise: laplace, step_size: spectral, dual: false``. Then each step's noise is projected separately, and the remainder does
    not average out; with one step the two are the same.

    Args:
        epsilon: Privacy loss of all steps.
        steps: Number of steps; the paper does not state it.
        noise: `gaussian` or `laplace`.
        delta: With Gaussian noise; null: the smaller of 1e-5 and a tenth of one over the number of users.
        clamp: Bound on absolute entries of the gradient; the paper's C.
        step_size: Size of each step; null: one over the smoothness of the link. `spectral`: the Barzilai-Borwein step of the
            noisy gradients, at most that.
        dual: Go from 0 against the sum of all gradients, instead of from the last point against the last.
        noise_seed: Null: noise of the operating system. A number makes the run repeatable, without any guarantee.

    Examples:
        >>> import zoo
        >>> from zoo.methods.one_bit_mc.perturbation import Terms
        >>> from zoo.privacy.one_bit.link_functions import Logistic
        >>> zoo.GradientPerturbation(epsilon=4.0, steps=5).plan(Terms(Logistic(), num_users=100)).steps
        5
    """

    mechanism = "one-bit matrix completion, gradient"

    noise: Noise
    steps: int

    def __init__(
        self,
        epsilon: float,
        steps: int = 5,
        noise: Literal["gaussian", "laplace"] = "gaussian",
        delta: float | None = None,
        clamp: float = 0.5,
        step_size: float | Literal["spectral"] | None = None,
        dual: bool = True,
        noise_seed: int | None = None,
    ) -> None:
        self.epsilon, self.steps, self.noise, self.delta, self.clamp = epsilon, steps, noise, delta, clamp
        self.step_size, self.dual, self.noise_seed = step_size, dual, noise_seed
        if isinstance(step_size, int | float) and not 0 < step_size < math.inf:
            raise ValueError(f"step_size must be positive and finite, 'spectral' or null; got {step_size!r}.")
        if dual and step_size == "spectral":
            raise ValueError("Spectral steps go from the last point: set dual to false.")
        self.plan(Terms(Logistic()))  # with any link: the clamp bounds the gradient of all

    def plan(self, terms: Terms) -> GradientSteps:
        """Return the noise of all steps together."""
        noise, delta = self.noise, self._delta(terms)
        return plan_gradient(self.epsilon, steps=self.steps, clamp=self.clamp, noise=noise, delta=delta)

    def audits(self, terms: Terms, nuclear: NuclearBall) -> list[Audit]:
        """Return tests of one entry's noisy gradients in two worlds; with Laplace noise of at most two steps, for enough power."""
        plan, few = self.plan(terms), min(self.steps, 2)
        if self.noise == "laplace":
            plan = plan_gradient(self.epsilon, steps=few, clamp=self.clamp, noise="laplace")
        return [gradient_audit(self.mechanism, plan)]

    def solver(self, problem: Problem, drawn: Drawn, noise: NoiseSource) -> Solver:
        """Return fixed steps against noisy gradients, whose sizes depend on these gradients alone."""
        likelihood = Likelihood.of(problem.observations, problem.link)
        gradients = NoisyGradients(likelihood, self.plan(problem.terms), noise)
        size = self.step_size if isinstance(self.step_size, int | float) else 1 / problem.link.smoothness
        spectral = self.step_size == "spectral"
        project = problem.project_in_finite_time
        return FixedSteps(likelihood, project, self.steps, size, gradients, dual=self.dual, spectral=spectral)


class NoisyGradients:
    """Gradients of a likelihood, each with the next noise of a source: the only access of the steps to the signs."""

    def __init__(self, likelihood: Likelihood, plan: GradientSteps, noise: NoiseSource) -> None:
        self.likelihood, self.plan, self.noise = likelihood, plan, noise
        self.drawn = 0  # noises so far; that of step k is the k-th of the source, from 0

    def __call__(self, entries: Floats, step: int) -> Floats:
        """Return the noisy gradient at the observed entries, both of shape ``(n,)``."""
        # After an interruption a seed's stream starts anew, and its first draws were used: they are passed over.
        while self.drawn < step:
            self._noisy(np.zeros_like(entries))
        return self._noisy(self.likelihood.gradient(entries))

    def _noisy(self, gradient: Floats) -> Floats:
        self.drawn += 1
        return noisy_gradient(gradient, self.plan, self.noise)
