"""Perturbation: where in one-bit matrix completion noise is added, and what that protects.

Each is a mechanism with its calibration; `privacy.one_bit.mechanisms` has the proofs. Who is protected, unless they say
otherwise: the value of one rating. Neighbours: one sign differs; which pairs are rated, Omega, is public. What several ratings of
one person cost together is in `Perturbation.several`. Afterwards: anything may be done with the completed matrix.

Reference: *One-Bit Matrix Completion with Differential Privacy*, section 4. Where what is published there does not hold, the
sound form is the default and the published one is there as `paper_faithful`, without an epsilon.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zoo.methods.one_bit_mc.norm_balls import Composition, InfinityBall, Intersection, NuclearBall
from zoo.methods.one_bit_mc.objective import Likelihood, Observations
from zoo.methods.one_bit_mc.solvers import Projection, Solver, SpectralProjectedGradient
from zoo.privacy.one_bit.link_functions import Link
from zoo.privacy.one_bit.plan import OneBitPlan
from zoo.privacy.one_bit.published import PublishedScale
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import Plain, PrivacyRecord, unprotected_record, warn_once

Floats = npt.NDArray[np.float64]
Drawn = dict[str, Floats]

SEVERAL_WITH_GAUSSIAN_NOISE = (
    "several ratings of one person: k of them have the root of k times the mu, which is more than that in epsilon"
)
NOT_PROTECTED = (
    "which pairs are rated: the completed matrix is made with them in the open",
    "held-out ratings, where they are used to evaluate",
)
NOT_PROTECTED_WITH_PAIRS = (
    "the sets of users and items",
    "who rated what, in anything but the completed matrix: counts in the run's summary, ranking figures, recommendations, which "
    "leave out what a user has rated, and a checkpoint's digest of the pairs",
    *NOT_PROTECTED[1:],
)


@dataclass(frozen=True, eq=False)
class Problem:
    """One-bit matrix completion before any noise.

    Attributes:
        observations: Signs and where they are.
        link: Probability of a +1, given the entry.
        nuclear: The nuclear-norm ball (the paper's tau is its radius).
        alpha: What entries are taken to be at most in absolute value, or None: nothing is said.
        bounded: Whether entries are held to alpha.
        tolerance: Of the spectral projected gradient.
    """

    observations: Observations
    link: Link
    nuclear: NuclearBall
    alpha: float | None = None
    bounded: bool = False
    tolerance: float = 1e-3

    @property
    def infinity(self) -> InfinityBall | None:
        """The infinity-norm ball, where entries are held to alpha."""
        return InfinityBall(self.alpha) if self.bounded and self.alpha is not None else None

    @property
    def project(self) -> Projection:
        """The projection onto the constraint: the nuclear-norm ball, or it and the infinity-norm ball."""
        return self.nuclear if self.infinity is None else Intersection(self.nuclear, self.infinity)

    @property
    def project_in_finite_time(self) -> Projection:
        """A composition of exact projections that ends in the bound, if there is one."""
        return self.nuclear if self.infinity is None else Composition(self.nuclear, self.infinity)

    def minimise(self, likelihood: Likelihood, start: Floats | None = None) -> SpectralProjectedGradient:
        """A solver of this problem with another objective."""
        return SpectralProjectedGradient(likelihood, self.project, self.tolerance, start)


class Perturbation(ABC):
    """Where noise goes. Its constructor refuses bad settings, before data are opened.

    Attributes:
        steps: Exactly how many iterations there are, or None: until the solver has converged.
        shows_objective: Whether the objective that is minimised is a function of what was noised already, so that its value
            may be shown.
        hides_pairs: Whether who rated what is protected too, so that nothing may be done by it but what is reported.
        noise_seed: None: noise of the operating system.
    """

    steps: int | None = None
    shows_objective: bool = False
    hides_pairs: bool = False
    noise_seed: int | None = None

    @abstractmethod
    def check(self, link: Link, alpha: float | None, bounded: bool) -> None:
        """Refuse a link or a constraint that the mechanism does not go with.

        Args:
            link: Of the signs.
            alpha: What entries are taken to be at most.
            bounded: Whether they are held to it.

        Raises:
            ValueError: If it does not.
        """

    @property
    def settings(self) -> dict[str, Plain | None]:
        """Its name and plain settings, by which a checkpoint knows it."""
        own = {
            name: value for name, value in vars(self).items() if value is None or isinstance(value, str | int | float)
        }
        for follows in ("shows_objective", "hides_pairs"):  # from the link, or another setting
            own.pop(follows, None)
        return {"name": type(self).__name__, **own}

    def draw(self, problem: Problem, noise: NoiseSource) -> Drawn:
        """What is drawn before the first iteration, once; a resumed run goes on with it."""
        return {}

    @abstractmethod
    def solver(self, problem: Problem, drawn: Drawn, noise: NoiseSource) -> Solver:
        """What iterates."""

    def finish(self, matrix: Floats, problem: Problem, noise: NoiseSource) -> Floats:
        """The completed matrix, from what the solver found; both of shape ``(rows, columns)``."""
        return matrix

    @abstractmethod
    def record(self, problem: Problem, assumptions: tuple[str, ...] = ()) -> PrivacyRecord:
        """What a run with this perturbation protects.

        Args:
            problem: Its public part alone is read.
            assumptions: What was done to the ratings before.
        """

    @property
    def several(self) -> str:
        """What several ratings of one person cost together; for the record."""
        return "several ratings of one person: k of them have k times the epsilon"

    def _public(self, problem: Problem) -> dict[str, Plain]:
        rows, columns = problem.observations.shape
        inputs: dict[str, Plain] = {
            "link": problem.link.name,
            "tau": problem.nuclear.radius,
            "rows": rows,
            "columns": columns,
        }
        if problem.alpha is not None:
            inputs |= {"alpha": problem.alpha, "entries are held to alpha": problem.bounded}
        return inputs

    def _proved(
        self, mechanism: str, plan: OneBitPlan, problem: Problem, assumptions: tuple[str, ...], **inputs: Plain
    ) -> PrivacyRecord:
        return PrivacyRecord.proved_unless_seeded(
            mechanism,
            NoiseSource.of(self.noise_seed),
            plan.relation,
            epsilon=plan.epsilon,
            delta=plan.delta,
            mu=plan.mu,
            sensitivity=plan.sensitivity,
            sensitivity_norm=plan.sensitivity_norm,
            clip=plan.clip,
            noise_scale=plan.scale,
            compositions=plan.compositions,
            public_inputs=self._public(problem) | ({} if self.hides_pairs else {"rated pairs": "all of them"}) | inputs,
            assumptions=assumptions,
            not_protected=(*(NOT_PROTECTED_WITH_PAIRS if self.hides_pairs else NOT_PROTECTED), self.several),
        )

    def _published(
        self, mechanism: str, scale: PublishedScale, problem: Problem, assumptions: tuple[str, ...]
    ) -> PrivacyRecord:
        warn_once(f"{mechanism}: the published noise does not protect as it says; see docs/privacy.md.")
        return unprotected_record(
            mechanism,
            scale.reason,
            assumptions,
            noise_source=NoiseSource.of(self.noise_seed).label,
            public_inputs=self._public(problem) | {"scale of the noise": scale.scale},
        )


class Clear(Perturbation):
    """No noise: what the others are compared with. Protects nobody."""

    shows_objective = True

    def check(self, link: Link, alpha: float | None, bounded: bool) -> None:
        """Everything goes."""

    def solver(self, problem: Problem, drawn: Drawn, noise: NoiseSource) -> Solver:
        """The likelihood of the signs."""
        return problem.minimise(Likelihood.of(problem.observations, problem.link))

    def record(self, problem: Problem, assumptions: tuple[str, ...] = ()) -> PrivacyRecord:
        """None."""
        return unprotected_record(
            "one-bit matrix completion", "no noise", assumptions, public_inputs=self._public(problem)
        )
