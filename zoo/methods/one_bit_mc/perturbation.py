"""Perturbation: where one-bit matrix completion adds noise, and what it protects.

All five derive a plan from public settings, and the record and the noise from the plan. Noise is drawn once before the first
iteration (input, objective), in every gradient, or after the solver (output). Proofs are in `zoo.privacy.one_bit`.

Privacy unit, unless stated otherwise: the value of one rating. Neighbouring relation: one sign differs; the rated pairs, Omega,
are public. The record states the total cost of several ratings of one user. Allowed use: the completed matrix may be used
without limit.

Reference: *One-Bit Matrix Completion with Differential Privacy*, section 4. Where the published form does not hold, the sound
form is the default, and `paper_faithful` selects the published one, without an epsilon.
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
    """Public terms from which noise is planned, known before data are opened except for the number of users."""

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
        """Terms from which the noise is planned."""
        return Terms(self.link, self.alpha, self.bounded, self.observations.shape[0])

    @property
    def public(self) -> dict[str, Plain]:
        """Public facts, for a record."""
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
        """A composition of exact projections that ends within the bound, if there is one."""
        return self.nuclear if self._infinity is None else Composition(self.nuclear, self._infinity)

    def minimise(self, likelihood: Likelihood, start: Floats | None = None) -> SpectralProjectedGradient:
        """Return a solver of this problem with another objective, within the nuclear-norm ball, or within both balls."""
        project = self.nuclear if self._infinity is None else Intersection(self.nuclear, self._infinity)
        return SpectralProjectedGradient(likelihood, project, self.tolerance, start)


class Perturbation(CapturesInit, ABC):
    """Base class of perturbations. The constructor refuses bad settings, before data are opened.

    Examples:
        >>> from zoo.methods.one_bit_mc.input_perturbation import InputPerturbation
        >>> InputPerturbation(epsilon=1.0).settings["epsilon"]
        1.0
    """

    mechanism: ClassVar[str] = "one-bit matrix completion"  # what a record calls it

    noise: str = "none"  # "gaussian", or anything else where the guarantee is pure
    delta: float | None = None  # asked for with Gaussian noise; None: that of `delta_for`
    steps: int | None = None  # exactly how many iterations there are; None: until the solver has converged
    hide_pairs: bool = False  # who rated what is protected too: nothing may be done by it but what is reported
    noise_seed: int | None = None  # None: noise of the operating system

    @property
    def settings(self) -> dict[str, Plain | None]:
        """Name and plain settings, by which a checkpoint identifies it."""
        own = {name: value for name, value in vars(self).items() if value is None or isinstance(value, Plain)}
        return {"name": type(self).__name__, **own}

    def check(self, terms: Terms) -> None:
        """Raise a ValueError, before data are opened, for terms that the mechanism does not support."""
        self.plan(terms)

    def shows_objective(self, link: Link) -> bool:
        """Return whether the objective depends on noisy values only, so that it may be logged."""
        return False

    def plan(self, terms: Terms) -> Mechanism | PublishedScale | None:
        """Return the noise and its privacy cost; None without noise."""
        return None

    def audits(self, terms: Terms, nuclear: NuclearBall) -> list[Audit]:
        """Return tests of the claim on the code itself, within this ball; none without a guarantee."""
        return []

    def _delta(self, terms: Terms) -> float:
        """Configured delta, or the default for the number of users; 0 for a pure guarantee; 1/users or more is refused."""
        if self.noise != "gaussian":
            return 0.0
        return delta_for(terms.num_users, self.delta)

    # Solving.

    def draw(self, problem: Problem, noise: NoiseSource) -> Drawn:
        """Return the noise drawn once before the first iteration; a resumed run reuses it."""
        return {}

    @abstractmethod
    def solver(self, problem: Problem, drawn: Drawn, noise: NoiseSource) -> Solver:
        """Return the solver."""

    def finish(self, matrix: Floats, problem: Problem, noise: NoiseSource) -> Floats:
        """Return the completed matrix from the solver's result; both of shape ``(rows, columns)``."""
        return matrix

    # The record.

    def public_settings(self, terms: Terms) -> dict[str, Plain]:
        """Return further settings for the record."""
        return {}

    def record(self, problem: Problem, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """Return what a run protects, from public facts alone; ``applied`` are earlier steps on the ratings."""
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
    """No noise: the baseline of the others, without protection.

    Examples:
        >>> import zoo
        >>> zoo.Clear().settings
        {'name': 'Clear'}
    """

    def shows_objective(self, link: Link) -> bool:
        """Return True."""
        return True

    def solver(self, problem: Problem, drawn: Drawn, noise: NoiseSource) -> Solver:
        """Return a solver of the likelihood of the signs."""
        return problem.minimise(Likelihood.of(problem.observations, problem.link))
