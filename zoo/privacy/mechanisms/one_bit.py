"""Noise for one-bit matrix completion: on the objective, the gradients or the completed matrix.

The set Omega of rated pairs, its size and all settings are public. The value of one rating is protected: neighbouring data sets
differ in one sign (`Relation.CHANGE_ONE_RATING_VALUE`). A person with k ratings has k times the epsilon of Laplace noise, and
`mu sqrt(k)` of Gaussian noise on objective or gradients; on the output up to `mu k`.

The kinds of noise are those of *One-Bit Matrix Completion with Differential Privacy*: objective (ObjP, Section 4.2), gradient
(GraP, 4.3) and output (OutP, 4.4); for the input (InP, 4.1) see `zoo.privacy.mechanisms.sign_response`. The paper's scales of
ObjP and OutP, which do not hold, are in `zoo.privacy.one_bit.published`.

In all plans epsilon is the requested loss, and delta is in (0, 1) for Gaussian noise and 0 for Laplace noise. Alpha is the bound
of the entries, ridge the weight of half their squares in the objective. Plans raise a ValueError for an invalid argument;
functions that add noise raise it for the plan of another function.
"""

import math
from abc import ABC
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from zoo.privacy.accounting.events import GaussianEvent, LaplaceEvent, PrivacyEvent, PureEvent, SelfComposedEvent
from zoo.privacy.accounting.gaussian import check_epsilon, gauss_mu
from zoo.privacy.accounting.pure import laplace_scale
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.base import ONE_VALUE, Mechanism, MechanismError, Plain, Statement, check_positive
from zoo.privacy.one_bit.link_functions import ConvexLink, Link, Logistic, check_ridge
from zoo.privacy.one_bit.stability import check_steps, output_sensitivity
from zoo.privacy.randomness.noise import NoiseSource, laplace_noise, round_to_lattice

Floats = npt.NDArray[np.float64]
Signs = npt.NDArray[np.float64] | npt.NDArray[np.int8] | npt.NDArray[np.int64]
Noise = Literal["laplace", "gaussian"]


@dataclass(frozen=True, kw_only=True)
class OneBit(Mechanism, ABC):
    """A perturbation of one-bit matrix completion: it protects the value of one rating, and publishes no release."""

    relations = ONE_VALUE
    exact_minimiser: ClassVar[bool] = False  # whether the guarantee holds for the exact minimiser only

    relation: Relation = Relation.CHANGE_ONE_RATING_VALUE
    noise: str  # "laplace" or "gaussian"
    scale: float  # Laplace scale or Gaussian standard deviation of the noise on each number

    def __post_init__(self) -> None:
        """Refuse a delta with Laplace noise."""
        super().__post_init__()
        check_noise(self.noise, self.delta)
        check_positive(self, "scale")

    @property
    def event(self) -> PrivacyEvent:
        """Laplace or Gaussian noise, over the sensitivity."""
        multiplier = self.scale / self.sensitivity
        return GaussianEvent(multiplier) if self.noise == "gaussian" else LaplaceEvent(multiplier)

    @property
    def sensitivity_norm(self) -> str:
        """L1 for Laplace noise, L2 for Gaussian noise."""
        return "L2" if self.noise == "gaussian" else "L1"

    @property
    def noise_std(self) -> float:
        """``scale``."""
        return self.scale

    @property
    def several_ratings(self) -> str:
        """Code of the joint cost of several ratings of one user."""
        return "several_signs_gaussian" if self.noise == "gaussian" else "several_signs"

    @property
    def statement(self) -> Statement:
        """Codes with a public set of rated pairs."""
        return Statement((), ("rated_pairs", "ranked_ratings", "training_failure_of_signs", self.several_ratings))

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """The set of rated pairs."""
        return {"rated pairs": "all of them"}


@dataclass(frozen=True, kw_only=True)
class ObjectiveBits(OneBit):
    """Noise on the bits ``(1 + sign)/2``, which the logistic objective is a function of; see `plan_objective`."""

    name = "one-bit matrix completion, objective"

    @property
    def sensitivity(self) -> float:
        """1, for one bit."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class ExactObjective(OneBit):
    """Noise in the objective of a convex link; it protects the exact minimiser only; see `plan_objective`."""

    name = "one-bit matrix completion, objective of an exact minimiser"
    exact_minimiser = True

    noise: str = "laplace"
    claimed: float  # epsilon of the exact minimiser, including the curvature
    moved: float  # L1 norm by which one sign moves the gradient

    @property
    def event(self) -> PureEvent:
        """Pure epsilon, without delta."""
        return PureEvent(self.claimed)

    @property
    def sensitivity(self) -> float:
        """``moved``, the L1 norm."""
        return self.moved


@dataclass(frozen=True, kw_only=True)
class GradientSteps(OneBit):
    """Noise on the clamped gradient of every step; see `plan_gradient`."""

    name = "one-bit matrix completion, gradient"

    clip: float  # bound that entries of a gradient are clamped to
    steps: int

    def __post_init__(self) -> None:
        """Refuse an invalid number of steps."""
        super().__post_init__()
        check_positive(self, "clip")
        check_steps(self.steps)

    @property
    def event(self) -> PrivacyEvent:
        """The event of a step, for each step."""
        return super().event if self.steps == 1 else SelfComposedEvent(super().event, self.steps)

    @property
    def sensitivity(self) -> float:
        """``2 clip`` in each step."""
        return 2 * self.clip

    @property
    def statement(self) -> Statement:
        """Codes of `OneBit`, and that a checkpoint is resumed once."""
        return super().statement._replace(assumptions=("resumed_once",))


@dataclass(frozen=True, kw_only=True)
class CompletedMatrix(OneBit):
    """Gaussian noise on every entry of the completed matrix; see `plan_output`."""

    name = "one-bit matrix completion, output"

    noise: str = "gaussian"
    moved: float  # L2 norm by which one sign moves the result of all steps

    def __post_init__(self) -> None:
        """Refuse Laplace noise, which covers one entry only."""
        super().__post_init__()
        check_positive(self, "moved")
        if self.noise != "gaussian":
            raise MechanismError(f"noise is {self.noise!r}. Allowed on the output: 'gaussian'.")

    @property
    def sensitivity(self) -> float:
        """``moved``, the L2 norm."""
        return self.moved

    @property
    def several_ratings(self) -> str:
        """Code of up to k times mu."""
        return "several_signs_output"

    @property
    def statement(self) -> Statement:
        """Codes of `OneBit`, and that checkpoints, which have no noise yet, stay secret."""
        return super().statement._replace(assumptions=("checkpoints_kept",))


# Objective.


def plan_objective(
    link: Link,
    epsilon: float,
    *,
    noise: Noise = "laplace",
    delta: float = 0.0,
    alpha: float | None = None,
    ridge: float = 0.0,
) -> ObjectiveBits | ExactObjective:
    """Return noise in the objective: a term ``-<N, X>`` over Omega, added to the negative log-likelihood. Opens no data.

    Protects the value of one rating: neighbours differ in one sign. ``scale`` is that of N. The paper prints ``-H X/2``,
    so its H is twice N (Section 4.2); it takes half of the noise that its epsilon needs.

    *Logistic.* N is noise on the bits ``B = (1 + sign)/2``, because the objective is ``sum log(1 + e^X) - <B + N, X>``. One
    bit moves by 1 (L1 and L2): Laplace of scale ``1/epsilon``, or Gaussian of standard deviation ``1/gauss_mu``. The
    objective is a function of the noisy bits (`noisy_bits`), so any constraints, solver and stopping rule are allowed.

    *Probit.* A flipped sign moves the gradient at its entry by at most ``Delta = link.sensitivity(alpha)`` (L1), which depends
    on the entry. N is Laplace noise of scale ``Delta/(epsilon - c)``, where c is `ConvexLink.log_curvature_ratio`. At an
    output, N is a known function of the entry. Its derivative is the curvature there, which differs between the two signs by a
    factor of at most ``e^c``; the rest of the problem, constraints included, adds as much to both. This is the distribution
    of the exact minimiser, and any use of it is allowed. An inexact result of a solver has no guarantee. Draw N by
    `objective_noise`. Epsilon must exceed c, which a ridge lowers; alpha is needed; Gaussian noise is not allowed.
    """
    check_epsilon(epsilon)
    check_ridge(ridge)
    if isinstance(link, Logistic):
        return ObjectiveBits(delta=delta, noise=noise, scale=scale_of(epsilon, delta, noise, 1.0))
    if not isinstance(link, ConvexLink):
        raise ValueError(f"link is {link.name!r}. It is not convex. Use the link without flips.")
    check_noise(noise, delta)
    if noise == "gaussian":
        raise ValueError(
            f"noise is 'gaussian' with the {link.name} link. Use 'laplace', the logistic link or plan_input."
        )
    if alpha is None:
        raise ValueError(f"alpha is missing. Give the {link.name} link the entries' public bound, e.g. 1.0.")
    sensitivity, curvature = link.sensitivity(alpha), link.log_curvature_ratio(alpha, ridge)
    if not epsilon > curvature:
        raise ValueError(
            f"epsilon is {epsilon!r}. The {link.name} link at alpha {alpha:g} and ridge {ridge:g} needs more than "
            f"{curvature:.6g}. Raise epsilon or ridge, lower alpha, or use plan_input."
        )
    scale = laplace_scale(epsilon - curvature, sensitivity)
    return ExactObjective(scale=scale, claimed=epsilon, moved=sensitivity)


def noisy_bits(signs: Signs, plan: OneBit, noise: NoiseSource) -> Floats:
    """Return the bits ``(1 + sign)/2`` with noise, rounded to the lattice; float64, shape ``(n,)``.

    Protects the value of one rating: neighbours differ in one sign, and one bit moves by 1 (L1 and L2). Costs
    ``plan.epsilon`` at ``plan.delta``. Any use of the bits is post-processing: they may replace the true bits in
    ``sum log(1 + e^X) - <B, X>``, as for ObjP with a logistic link. Most are outside [0, 1] unless epsilon is large.
    """
    check_signs(signs)
    if not isinstance(plan, ObjectiveBits):
        raise ValueError("The plan is not plan_objective's with the logistic link. For probit use objective_noise.")
    return with_noise((1 + signs.astype(np.float64)) / 2, plan, noise)


def objective_noise(count: int, plan: OneBit, noise: NoiseSource) -> Floats:
    """Return N of `plan_objective`: one Laplace number for each rated pair, float64, shape ``(count,)``.

    N alone protects nothing. The exact minimiser of the objective with the term ``-<N, X>`` protects the value of one rating, at
    the L1 sensitivity and for the relation of the plan. N and all inputs of the solver stay secret. N is not rounded, because
    the proof is for a density.
    """
    if not plan.exact_minimiser:
        raise ValueError("The plan is not plan_objective's with the probit link. For logistic use noisy_bits.")
    return laplace_noise(noise, plan.scale, count)


# Gradient.


def plan_gradient(
    epsilon: float, *, steps: int, clamp: float = 0.5, noise: Noise = "gaussian", delta: float = 0.0
) -> GradientSteps:
    """Return noise on the gradient of the negative log-likelihood in every step. Opens no data.

    Protects the value of one rating: neighbours differ in one sign. A step starts from a matrix that depends on noisy steps
    only. Given it, only the entry of that rating differs, and both its values are within the clamp: the sensitivity is
    ``2 clamp`` in each step (L1 and L2). Laplace noise has scale ``2 clamp steps/epsilon`` for all steps together, as in Section
    4.3; Gaussian noise has ``2 clamp sqrt(steps)/gauss_mu``, far less for many steps.

    Any use of noisy gradients is post-processing: projections, momentum, step sizes that follow from them. No step may read the
    signs otherwise: no objective, no line search, no stopping rule. The gradient of a ridge is public and is added after the
    noise. Epsilon is for all steps, at most ``steps``, a number fixed in advance.

    Entries of the gradient are clamped to plus and minus ``clamp`` before the noise. A logistic gradient is between -1 and 1 and
    moves by 1 without a clamp, so a clamp above 1/2 only adds noise.
    """
    check_steps(steps)
    if not (clamp > 0 and math.isfinite(clamp)):
        raise ValueError(f"clamp is {clamp!r}. Allowed: finite, > 0, e.g. 0.5.")
    scale = scale_of(epsilon, delta, noise, 2 * clamp, steps)
    return GradientSteps(delta=delta, noise=noise, scale=scale, clip=clamp, steps=steps)


def noisy_gradient(gradient: Floats, plan: OneBit, noise: NoiseSource) -> Floats:
    """Return one step's gradient on Omega: clamped, with noise, rounded to the lattice; shape ``(n,)``.

    Protects the value of one rating as in `plan_gradient`, with L1 and L2 sensitivity ``plan.sensitivity``, for
    ``plan.compositions`` steps together, which the caller counts. Any use of noisy gradients is post-processing. The gradient is
    that of the negative log-likelihood, summed and not averaged; NaN is refused.
    """
    if not isinstance(plan, GradientSteps):
        raise ValueError("The plan has no clamp. Use plan_gradient.")
    if np.isnan(gradient).any():
        raise ValueError("The gradient holds NaN. Lower the step size, or bound the entries.")
    return with_noise(np.clip(gradient.astype(np.float64), -plan.clip, plan.clip), plan, noise)


# Output.


def plan_output(
    link: Link, epsilon: float, delta: float, *, alpha: float, ridge: float, steps: int, step_size: float
) -> CompletedMatrix:
    """Return Gaussian noise for every entry of the matrix after a fixed number of projected gradient steps. Opens no data.

    Protects the value of one rating: neighbours differ in one sign. The steps are
    ``X <- clamp(project(X - step_size (gradient + ridge X)))`` from X = 0, exactly ``steps`` of them. Each takes the full gradient
    of the negative log-likelihood, and an exact projection on a fixed convex set (or none). Last it clamps the entries to plus
    and minus alpha. `output_sensitivity` bounds the distance that their result can move (L2). Convergence is not needed. Any use
    of the noisy matrix is post-processing, such as another projection.

    Section 4.4 adds Laplace noise for the range of one entry instead, which covers that entry only.
    """
    sensitivity = output_sensitivity(link, alpha=alpha, ridge=ridge, steps=steps, step_size=step_size)
    return CompletedMatrix(delta=delta, scale=scale_of(epsilon, delta, "gaussian", sensitivity), moved=sensitivity)


def noisy_output(matrix: Floats, plan: OneBit, noise: NoiseSource) -> Floats:
    """Return a completed matrix of any shape with Gaussian noise on every entry, rounded to the lattice.

    Protects the value of one rating if the matrix was made as in `plan_output`; L2 sensitivity ``plan.sensitivity``.
    Any use of the result is post-processing.
    """
    if not isinstance(plan, CompletedMatrix):
        raise ValueError("The plan has no noise for a matrix. Use plan_output.")
    return with_noise(matrix, plan, noise)


# Noise on vectors.


def scale_of(epsilon: float, delta: float, noise: Noise, sensitivity: float, steps: int = 1) -> float:
    """Return the scale of noise on vectors, used ``steps`` times.

    Laplace noise has scale ``sensitivity steps/epsilon``, Gaussian noise ``sensitivity sqrt(steps)/gauss_mu``: epsilon is for all
    steps together. The sensitivity is the distance that one change moves the vector in each use, in L1 for Laplace noise, else L2.
    """
    check_epsilon(epsilon)
    check_noise(noise, delta)
    if noise == "gaussian":
        return sensitivity * math.sqrt(steps) / gauss_mu(epsilon, delta)
    return laplace_scale(epsilon, sensitivity * steps)


def with_noise(values: Floats, plan: OneBit, noise: NoiseSource) -> Floats:
    """Return values of any shape with Laplace or Gaussian noise, rounded to the public lattice.

    Protects as the plan states if one change moves the values by at most ``plan.sensitivity``.
    """
    if plan.noise == "gaussian":
        return round_to_lattice(values + plan.scale * noise.normal(values.shape), plan.scale)
    return round_to_lattice(values + laplace_noise(noise, plan.scale, values.shape), math.sqrt(2) * plan.scale)


def check_noise(noise: str, delta: float) -> None:
    """Refuse an unknown kind of noise, and a delta with Laplace noise."""
    if noise not in ("laplace", "gaussian"):
        raise ValueError(f"noise is {noise!r}. Allowed: 'laplace', 'gaussian'.")
    if noise == "laplace" and delta != 0:
        raise ValueError(f"delta is {delta!r}. Omit it for Laplace noise.")


def check_signs(signs: Signs) -> None:
    """Refuse anything but a vector of +1 and -1."""
    if signs.ndim != 1 or not (np.abs(signs) == 1).all():
        values = [float(value) for value in np.unique(signs)[:4]]
        raise ValueError(
            f"Signs have shape {signs.shape} and values such as {values}. Allowed: +1 or -1, shape (n,). Compare "
            "ratings with a public threshold."
        )
