"""Perturbation: where in one-bit matrix completion noise is added, and what that protects.

All five go the same way: from public settings to a plan, from the plan to the record and to the noise. That is drawn once
before the first iteration (input, objective), in every gradient, or when the solver has ended (output). Proofs are in
`zoo.privacy.one_bit`.

Who is protected, unless they say otherwise: the value of one rating. Neighbours: one sign differs; which pairs are rated,
Omega, is public. What several ratings of one person cost together is in the record. Afterwards: anything may
be done with the completed matrix.

Reference: *One-Bit Matrix Completion with Differential Privacy*, section 4. Where what is published there does not hold, the
sound form is the default and the published one is there as `paper_faithful`, without an epsilon.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from zoo.methods.one_bit_mc.norm_balls import Composition, Floats, InfinityBall, Intersection, NuclearBall, Projection
from zoo.methods.one_bit_mc.objective import Likelihood, Observations
from zoo.methods.one_bit_mc.solvers import Solver, SpectralProjectedGradient
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.base import Mechanism, Plain
from zoo.privacy.mechanisms.one_bit import ExactObjective
from zoo.privacy.one_bit.link_functions import Link
from zoo.privacy.one_bit.published import PublishedScale
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.delta import delta_for
from zoo.privacy.record.record import PrivacyRecord, unprotected_record, warn_once
from zoo.privacy.record.steps import RecordedStep, Step, recorded_steps
from zoo.runtime.run_folder import CapturesInit

Drawn = dict[str, Floats]


class Terms(NamedTuple):
    """What noise is planned from, all of it public; known before data are opened but for the number of users."""

    link: Link  # probability of a +1, given the entry
    alpha: float | None = None  # what entries are taken to be at most in absolute value; None: nothing is said
    bounded: bool = False  # whether entries are held to alpha
    num_users: int = 1  # rows of the matrix, from which a null delta follows; 1 allows the largest


@dataclass(frozen=True, eq=False)
class Problem:
    """One-bit matrix completion before any noise; `link`, `alpha` and `bounded` as in `Terms`."""

    observations: Observations
    link: Link
    nuclear: NuclearBall
    alpha: float | None = None
    bounded: bool = False
    tolerance: float = 1e-3  # of the spectral projected gradient

    @property
    def terms(self) -> Terms:
        """What the noise is planned from."""
        return Terms(self.link, self.alpha, self.bounded, self.observations.shape[0])

    @property
    def public(self) -> dict[str, Plain]:
        """What everybody may know of it; for a record."""
        rows, columns = self.observations.shape
        facts: dict[str, Plain] = {"link": self.link.name, "tau": self.nuclear.radius, "rows": rows, "columns": columns}
        if self.alpha is not None:
            facts |= {"alpha": self.alpha, "entries are held to alpha": self.bounded}
        return facts

    @property
    def _infinity(self) -> InfinityBall | None:
        return InfinityBall(self.alpha) if self.bounded and self.alpha is not None else None

    @property
    def project_in_finite_time(self) -> Projection:
        """A composition of exact projections that ends in the bound, if there is one."""
        return self.nuclear if self._infinity is None else Composition(self.nuclear, self._infinity)

    def minimise(self, likelihood: Likelihood, start: Floats | None = None) -> SpectralProjectedGradient:
        """A solver of this problem with another objective, within the nuclear-norm ball, or within both balls."""
        project = self.nuclear if self._infinity is None else Intersection(self.nuclear, self._infinity)
        return SpectralProjectedGradient(likelihood, project, self.tolerance, start)


class Perturbation(CapturesInit, ABC):
    """Where noise goes. Its constructor refuses bad settings, before data are opened."""

    mechanism: ClassVar[str] = "one-bit matrix completion"  # what a record calls it

    noise: str = "none"  # "gaussian", or anything else where the guarantee is pure
    delta: float | None = None  # asked for with Gaussian noise; None: that of `delta_for`
    steps: int | None = None  # exactly how many iterations there are; None: until the solver has converged
    hide_pairs: bool = False  # who rated what is protected too: nothing may be done by it but what is reported
    noise_seed: int | None = None  # None: noise of the operating system

    @property
    def settings(self) -> dict[str, Plain | None]:
        """Its name and plain settings, by which a checkpoint knows it."""
        own = {name: value for name, value in vars(self).items() if value is None or isinstance(value, Plain)}
        return {"name": type(self).__name__, **own}

    def check(self, terms: Terms) -> None:
        """Refuse with a ValueError terms that the mechanism does not go with, before data are opened."""
        self.plan(terms)

    def shows_objective(self, link: Link) -> bool:
        """Whether the objective is a function of what was noised already, so that its value may be shown."""
        return False

    def plan(self, terms: Terms) -> Mechanism | PublishedScale | None:
        """The noise and what it spends; None: there is no noise."""
        return None

    def audits(self, terms: Terms, nuclear: NuclearBall) -> list[Audit]:
        """Tests of its claim on the code that makes it, within this ball; none where nothing is claimed."""
        return []

    def _delta(self, terms: Terms) -> float:
        """What is asked for, or follows from the number of users; 0 for a pure guarantee. Refused from one over them on."""
        if self.noise != "gaussian":
            return 0.0
        return delta_for(terms.num_users, self.delta)

    # Solving.

    def draw(self, problem: Problem, noise: NoiseSource) -> Drawn:
        """What is drawn before the first iteration, once; a resumed run goes on with it."""
        return {}

    @abstractmethod
    def solver(self, problem: Problem, drawn: Drawn, noise: NoiseSource) -> Solver:
        """What iterates."""

    def finish(self, matrix: Floats, problem: Problem, noise: NoiseSource) -> Floats:
        """The completed matrix, from what the solver found; both of shape ``(rows, columns)``."""
        return matrix

    # The record.

    def public_settings(self, terms: Terms) -> dict[str, Plain]:
        """For the record, beside those of the problem."""
        return {}

    def record(self, problem: Problem, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """What a run with this protects, from public facts alone; ``applied`` is what was done to the ratings before."""
        plan, steps = self.plan(problem.terms), recorded_steps(applied)
        if isinstance(plan, Mechanism):
            return self._record_of(plan, problem, steps)
        if plan is None:
            return unprotected_record(self.mechanism, "no noise", steps, public_inputs=problem.public)
        mechanism = f"{self.mechanism}, as published"
        warn_once(f"{mechanism}: the published noise does not protect as it says; see docs/privacy.md.")
        source, public = NoiseSource.of(self.noise_seed).label, problem.public | {"scale of the noise": plan.scale}
        return unprotected_record(mechanism, plan.reason, steps, noise_source=source, public_inputs=public)

    def _record_of(self, plan: Mechanism, problem: Problem, steps: Sequence[RecordedStep]) -> PrivacyRecord:
        notes = problem.public | self.public_settings(problem.terms)
        notes = {name: value for name, value in notes.items() if name not in plan.public_inputs}
        record = PrivacyRecord.of(plan, NoiseSource.of(self.noise_seed), steps, notes)
        if isinstance(plan, ExactObjective):
            return record.without_guarantee("the minimiser is not exact, and the proof is for the exact one")
        return record


class Clear(Perturbation):
    """No noise: what the others are compared with. Protects nobody."""

    def shows_objective(self, link: Link) -> bool:
        """Always."""
        return True

    def solver(self, problem: Problem, drawn: Drawn, noise: NoiseSource) -> Solver:
        """The likelihood of the signs."""
        return problem.minimise(Likelihood.of(problem.observations, problem.link))
