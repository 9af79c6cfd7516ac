"""GradientPerturbation: noise on the gradient of every step."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from zoo.methods.one_bit_mc.objective import Likelihood
from zoo.methods.one_bit_mc.perturbation import SEVERAL_WITH_GAUSSIAN_NOISE, Drawn, Perturbation, Problem
from zoo.methods.one_bit_mc.solvers import FixedSteps, Floats, Solver
from zoo.privacy.one_bit.link_functions import Link
from zoo.privacy.one_bit.mechanisms import noisy_gradient, plan_gradient
from zoo.privacy.one_bit.plan import OneBitPlan
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import PrivacyRecord, default_delta


class GradientPerturbation(Perturbation):
    """Noise on the gradient of every one of a fixed number of projected steps (GraP, section 4.3).

    Entries of the gradient are clamped, then noise is added, then the step is projected. No objective is evaluated and
    nothing stops early. Gaussian noise grows with the root of the number of steps, Laplace noise with the number; for few
    steps (up to nine at epsilon 4) it is the smaller one all the same.

    Each step goes from 0 against all noisy gradients so far. As published, which holds too, it goes from the last point:
    ``noise: laplace, step_size: spectral, dual: false``. Then each step's noise is projected on its own, and what is left of
    it does not average out; with one step the two are the same.

    Args:
        epsilon: Privacy loss of all steps.
        steps: How many; the paper does not say.
        noise: `gaussian` or `laplace`.
        delta: With Gaussian noise; null: the smaller of 1e-5 and a tenth of one over the number of users.
        clamp: Entries of the gradient are clamped to plus and minus this; the paper's C.
        step_size: Of each step; null: one over the smoothness of the link. `spectral`: the Barzilai-Borwein step of the
            noisy gradients, at most that.
        dual: Go from 0 against the sum of all gradients, instead of from the last point against the last.
        noise_seed: Null: noise of the operating system. A number makes the run repeatable, without any guarantee.

    Raises:
        ValueError: If a setting is out of range.
    """

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
            raise ValueError("Spectral steps go from the last point: set dual to false with step_size 'spectral'.")
        self._plan(1e-5 if delta is None else delta)

    @property
    def several(self) -> str:
        """What several ratings of one person cost together; for the record."""
        return super().several if self.noise == "laplace" else SEVERAL_WITH_GAUSSIAN_NOISE

    def _plan(self, delta: float) -> OneBitPlan:
        assert self.steps is not None
        delta = delta if self.noise == "gaussian" else 0.0
        return plan_gradient(self.epsilon, steps=self.steps, clamp=self.clamp, noise=self.noise, delta=delta)

    def _plan_of(self, problem: Problem) -> OneBitPlan:
        return self._plan(default_delta(problem.observations.shape[0]) if self.delta is None else self.delta)

    def check(self, link: Link, alpha: float | None, bounded: bool) -> None:
        """Everything goes: the clamp bounds the gradient of any link."""

    def solver(self, problem: Problem, drawn: Drawn, noise: NoiseSource) -> Solver:
        """Noisy steps."""
        assert self.steps is not None
        likelihood, plan = Likelihood.of(problem.observations, problem.link), self._plan_of(problem)
        longest, size = 1 / problem.link.smoothness, self.step_size
        taken = 0

        def noisy(entries: Floats, step: int) -> Floats:
            nonlocal taken
            # After an interruption a seed's stream starts anew, and its first draws were used.
            for _ in range(taken, step):
                noisy_gradient(np.zeros_like(entries), plan, noise)
            taken = step + 1
            return noisy_gradient(likelihood.gradient(entries), plan, noise)

        return FixedSteps(
            likelihood,
            problem.project_in_finite_time,
            self.steps,
            size if isinstance(size, int | float) else longest,
            gradient=noisy,
            dual=self.dual,
            spectral=size == "spectral",
        )

    def record(self, problem: Problem, assumptions: tuple[str, ...] = ()) -> PrivacyRecord:
        """Proved."""
        resumed = "of an interrupted run, nothing but the checkpoint that it goes on from was looked at"
        return self._proved(
            "one-bit matrix completion, gradient", self._plan_of(problem), problem, (*assumptions, resumed)
        )
