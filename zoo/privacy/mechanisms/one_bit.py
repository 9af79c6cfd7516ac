"""Noise for one-bit matrix completion: on the objective, the gradients or the completed matrix.

Who rated what, Omega, is public, and so are its size and all settings. What is protected is the value of one rating: data
sets are neighbours if one sign differs (`Relation.CHANGE_ONE_RATING_VALUE`). A person with k ratings has k times the
epsilon of Laplace noise, and `mu sqrt(k)` of Gaussian noise on objective or gradients; on the output up to `mu k`.

The places for noise are those of *One-Bit Matrix Completion with Differential Privacy*: objective (ObjP, Section 4.2),
gradient (GraP, 4.3) and output (OutP, 4.4); for the input (InP, 4.1) see `zoo.privacy.mechanisms.sign_response`. Scales
are not all the paper's: those of ObjP and OutP, which do not hold, are in `zoo.privacy.one_bit.published`.

In all plans epsilon is the loss asked for, and delta lies in (0, 1) for Gaussian noise and is 0 for Laplace noise; alpha is the
bound of the entries and ridge the weight of half their squares in the objective. Plans raise a ValueError for an argument
that is out of range or does not go with the others, functions that add noise for a plan of something else.
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
    """A perturbation of one-bit matrix completion: it hides the value of one rating, and publishes no release of its own."""

    relations = ONE_VALUE
    exact_minimiser: ClassVar[bool] = False  # whether the guarantee is that of the exact minimiser alone

    relation: Relation = Relation.CHANGE_ONE_RATING_VALUE
    noise: str  # laplace or gaussian
    scale: float  # of the noise on each number: Laplace scale or Gaussian standard deviation

    def __post_init__(self) -> None:
        """Refuse a delta with Laplace noise."""
        super().__post_init__()
        check_noise(self.noise, self.delta)
        check_positive(self, "scale")

    @property
    def event(self) -> PrivacyEvent:
        """Laplace or Gaussian noise over the sensitivity."""
        multiplier = self.scale / self.sensitivity
        return GaussianEvent(multiplier) if self.noise == "gaussian" else LaplaceEvent(multiplier)

    @property
    def sensitivity_norm(self) -> str:
        """L1 for Laplace noise."""
        return "L2" if self.noise == "gaussian" else "L1"

    @property
    def noise_std(self) -> float:
        """``scale``."""
        return self.scale

    @property
    def several(self) -> str:
        """Code of what several ratings of one person cost together."""
        return "several_signs_gaussian" if self.noise == "gaussian" else "several_signs"

    @property
    def statement(self) -> Statement:
        """Who rated what is public."""
        return Statement((), ("rated_pairs", "ranked_ratings", self.several))

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Who rated what."""
        return {"rated pairs": "all of them"}


@dataclass(frozen=True, kw_only=True)
class ObjectiveBits(OneBit):
    """Noise on the bits ``(1 + sign)/2``, of which the logistic objective is a function; see `plan_objective`."""

    name = "one-bit matrix completion, objective"

    @property
    def sensitivity(self) -> float:
        """1: one bit."""
        return 1.0


@dataclass(frozen=True, kw_only=True)
class ExactObjective(OneBit):
    """Noise in the objective of a convex link, which holds for its exact minimiser alone; see `plan_objective`."""

    name = "one-bit matrix completion, objective of an exact minimiser"
    exact_minimiser = True

    noise: str = "laplace"
    claimed: float  # epsilon of the exact minimiser, the curvature included
    moved: float  # L1 norm by which one sign moves the gradient

    @property
    def event(self) -> PureEvent:
        """Without a delta."""
        return PureEvent(self.claimed)

    @property
    def sensitivity(self) -> float:
        """``moved``."""
        return self.moved


@dataclass(frozen=True, kw_only=True)
class GradientSteps(OneBit):
    """Noise on the clamped gradient of every step; see `plan_gradient`."""

    name = "one-bit matrix completion, gradient"

    clip: float  # what entries of a gradient are clamped to
    steps: int

    def __post_init__(self) -> None:
        """Refuse what is no number of steps."""
        super().__post_init__()
        check_positive(self, "clip")
        check_steps(self.steps)

    @property
    def event(self) -> PrivacyEvent:
        """That of each step."""
        return super().event if self.steps == 1 else SelfComposedEvent(super().event, self.steps)

    @property
    def sensitivity(self) -> float:
        """``2 clip`` in each step."""
        return 2 * self.clip

    @property
    def statement(self) -> Statement:
        """Of an interrupted run, nothing was looked at."""
        return super().statement._replace(assumptions=("interrupted_unseen",))


@dataclass(frozen=True, kw_only=True)
class CompletedMatrix(OneBit):
    """Gaussian noise on every entry of the completed matrix; see `plan_output`."""

    name = "one-bit matrix completion, output"

    noise: str = "gaussian"
    moved: float  # L2 norm by which one sign moves the end of all steps

    def __post_init__(self) -> None:
        """Refuse Laplace noise, which covers one entry."""
        super().__post_init__()
        check_positive(self, "moved")
        if self.noise != "gaussian":
            raise MechanismError(f"noise is {self.noise!r}. On the output it must be 'gaussian'.")

    @property
    def sensitivity(self) -> float:
        """``moved``."""
        return self.moved

    @property
    def several(self) -> str:
        """Up to k times the mu."""
        return "several_signs_output"

    @property
    def statement(self) -> Statement:
        """Checkpoints have no noise yet."""
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
    """Noise in the objective, as a term ``-<N, X>`` over Omega that is added to the negative log-likelihood. Opens no data.

    Protects the value of one rating: neighbours differ in one sign. ``scale`` is that of N. The paper prints ``-H X/2``,
    so its H is twice N (Section 4.2); it takes half of the noise that its epsilon needs.

    *Logistic.* N is noise on the bits ``B = (1 + sign)/2``, because the objective is ``sum log(1 + e^X) - <B + N, X>``. One
    bit moves by 1 (L1 and L2): Laplace of scale ``1/epsilon``, or Gaussian of standard deviation ``1/gauss_mu``. The
    objective is a function of the noisy bits (`noisy_bits`), so with these anything may be done: any constraints, any
    solver, any stopping rule.

    *Probit.* A flipped sign moves the gradient at its entry by at most ``Delta = link.sensitivity(alpha)`` (L1), and that
    depends on the entry. Laplace noise N of scale ``Delta/(epsilon - c)``, where c is `ConvexLink.log_curvature_ratio`: at an
    output, N is a known function of the entry, whose derivative is the curvature there, which differs between the two
    signs by a factor of at most ``e^c``; the rest of the problem, constraints included, adds as much to both. This is the
    law of the exact minimiser. Anything may be done with that, and no guarantee is left for what a solver returns
    instead. Draw N by `objective_noise`. Epsilon must exceed c, which a ridge lowers; alpha is needed; no Gaussian noise.
    """
    check_epsilon(epsilon)
    check_ridge(ridge)
    if isinstance(link, Logistic):
        return ObjectiveBits(delta=delta, noise=noise, scale=scale_of(epsilon, delta, noise, 1.0))
    if not isinstance(link, ConvexLink):
        raise ValueError(f"The link must be convex, got {link.name!r}. Use the link of the true signs, without flips.")
    check_noise(noise, delta)
    if noise == "gaussian":
        raise ValueError(
            f"noise must be 'laplace' for the {link.name} link, got 'gaussian': nothing is proved for it. Use the logistic "
            "link, or flip the signs (plan_input)."
        )
    if alpha is None:
        raise ValueError(f"alpha is needed for the {link.name} link: the public bound of the entries, e.g. 1.0.")
    sensitivity, curvature = link.sensitivity(alpha), link.log_curvature_ratio(alpha, ridge)
    if not epsilon > curvature:
        raise ValueError(
            f"epsilon must be more than {curvature:.6g} for the {link.name} link at alpha {alpha:g} and ridge {ridge:g}, got "
            f"{epsilon!r}: so much is lost by the curvature, whatever the noise. Raise epsilon or ridge, lower alpha, or "
            "flip the signs (plan_input), which needs no exact minimiser either."
        )
    scale = laplace_scale(epsilon - curvature, sensitivity)
    return ExactObjective(scale=scale, claimed=epsilon, moved=sensitivity)


def noisy_bits(signs: Signs, plan: OneBit, noise: NoiseSource) -> Floats:
    """The bits ``(1 + sign)/2`` with noise, rounded to the lattice; float64, shape ``(n,)``.

    Protects the value of one rating: neighbours differ in one sign, and one bit moves by 1 (L1 and L2). Costs
    ``plan.epsilon`` at ``plan.delta``. Whatever is done with the bits is post-processing: they may stand for the true ones
    in ``sum log(1 + e^X) - <B, X>``, as for ObjP with a logistic link. Most lie outside [0, 1] unless epsilon is large.
    """
    check_signs(signs)
    if not isinstance(plan, ObjectiveBits):
        raise ValueError(
            "The plan must be that of plan_objective for the logistic link. For probit draw objective_noise, for "
            "gradients use noisy_gradient."
        )
    return with_noise((1 + signs.astype(np.float64)) / 2, plan, noise)


def objective_noise(count: int, plan: OneBit, noise: NoiseSource) -> Floats:
    """N of `plan_objective`: one Laplace number for each rated pair, float64, shape ``(count,)``.

    Protects nothing by itself. The exact minimiser of the objective with the term ``-<N, X>`` protects the value of one
    rating, at the L1 sensitivity and for the relation of the plan; N and everything else that the solver sees are secret.
    Not rounded, because the proof is for a density.
    """
    if not plan.exact_minimiser:
        raise ValueError("The plan must be that of plan_objective for probit. For the logistic link use noisy_bits.")
    return laplace_noise(noise, plan.scale, count)


# Gradient.


def plan_gradient(
    epsilon: float, *, steps: int, clamp: float = 0.5, noise: Noise = "gaussian", delta: float = 0.0
) -> GradientSteps:
    """Noise on the gradient of the negative log-likelihood in every step. Opens no data.

    Protects the value of one rating: neighbours differ in one sign. Given the matrix that a step starts from, which is
    the outcome of noisy steps alone, only the entry of that rating differs, and both its values lie within the clamp: the
    sensitivity is ``2 clamp`` in each step (L1 and L2). Laplace noise of scale ``2 clamp steps/epsilon`` for all steps
    together, as in Section 4.3; or Gaussian of ``2 clamp sqrt(steps)/gauss_mu``, far less for many steps.

    Afterwards anything may be done with noisy gradients: projections, momentum, step sizes that follow from them. No step
    may read the signs in any other way: no objective, no line search, no stopping rule. A ridge's gradient is public and
    is added after the noise. Epsilon is of all steps, of which there will be at most ``steps``, fixed in advance.

    Entries of the gradient are clamped to plus and minus ``clamp`` before the noise. A logistic gradient lies between -1 and 1
    and moves by 1 without any clamp, so more than 1/2 only adds noise.
    """
    check_steps(steps)
    if not (clamp > 0 and math.isfinite(clamp)):
        raise ValueError(
            f"clamp must be a positive finite number, got {clamp!r}. It bounds a gradient's entry, e.g. 0.5."
        )
    scale = scale_of(epsilon, delta, noise, 2 * clamp, steps)
    return GradientSteps(delta=delta, noise=noise, scale=scale, clip=clamp, steps=steps)


def noisy_gradient(gradient: Floats, plan: OneBit, noise: NoiseSource) -> Floats:
    """One step's gradient on Omega: clamped, then with noise, then rounded to the lattice; shape ``(n,)``.

    Protects the value of one rating, as `plan_gradient` says: L1 and L2 sensitivity ``plan.sensitivity``, of
    ``plan.compositions`` steps together. The caller counts them. What is computed from noisy gradients is post-processing.
    The gradient is that of the negative log-likelihood, summed and not averaged; NaN is refused.
    """
    if not isinstance(plan, GradientSteps):
        raise ValueError("The plan must be that of plan_gradient: it has no clamp.")
    if np.isnan(gradient).any():
        raise ValueError("The gradient holds NaN, which no clamp bounds. Lower the step size, or bound the entries.")
    return with_noise(np.clip(gradient.astype(np.float64), -plan.clip, plan.clip), plan, noise)


# Output.


def plan_output(
    link: Link, epsilon: float, delta: float, *, alpha: float, ridge: float, steps: int, step_size: float
) -> CompletedMatrix:
    """Gaussian noise on every entry of the matrix that a fixed number of projected gradient steps ends at. Opens no data.

    Protects the value of one rating: neighbours differ in one sign. The steps are
    ``X <- clamp(project(X - step_size (gradient + ridge X)))`` from X = 0, exactly ``steps`` of them, with the full gradient
    of the negative log-likelihood, an exact projection on a fixed convex set (or none), and entries clamped to plus and
    minus alpha last. `output_sensitivity` is how far their end can move (L2). Nothing is asked of convergence. Anything
    may be done with the noisy matrix, such as projecting it again.

    Section 4.4 adds Laplace noise for one entry's range instead, which covers one entry alone.
    """
    sensitivity = output_sensitivity(link, alpha=alpha, ridge=ridge, steps=steps, step_size=step_size)
    return CompletedMatrix(delta=delta, scale=scale_of(epsilon, delta, "gaussian", sensitivity), moved=sensitivity)


def noisy_output(matrix: Floats, plan: OneBit, noise: NoiseSource) -> Floats:
    """A completed matrix of any shape with Gaussian noise on every entry, rounded to the lattice.

    Protects the value of one rating if the matrix was made as `plan_output` says; L2 sensitivity ``plan.sensitivity``.
    Whatever is done with the result is post-processing.
    """
    if not isinstance(plan, CompletedMatrix):
        raise ValueError("The plan must be that of plan_output: Gaussian noise on the entries of the matrix.")
    return with_noise(matrix, plan, noise)


# Noise on vectors.


def scale_of(epsilon: float, delta: float, noise: Noise, sensitivity: float, steps: int = 1) -> float:
    """Return the scale of noise on vectors, used ``steps`` times.

    Laplace noise of scale ``sensitivity steps/epsilon``, or Gaussian of ``sensitivity sqrt(steps)/gauss_mu``: epsilon is of all
    steps together. The sensitivity is how far one change moves the vector each time, in the L1 norm for Laplace noise, else
    in the L2 norm.
    """
    check_epsilon(epsilon)
    check_noise(noise, delta)
    if noise == "gaussian":
        return sensitivity * math.sqrt(steps) / gauss_mu(epsilon, delta)
    return laplace_scale(epsilon, sensitivity * steps)


def with_noise(values: Floats, plan: OneBit, noise: NoiseSource) -> Floats:
    """Values of any shape with Laplace or Gaussian noise, rounded to the public lattice.

    Protects what the plan says if one change moves the values by at most ``plan.sensitivity``.
    """
    if plan.noise == "gaussian":
        return round_to_lattice(values + plan.scale * noise.normal(values.shape), plan.scale)
    return round_to_lattice(values + laplace_noise(noise, plan.scale, values.shape), math.sqrt(2) * plan.scale)


def check_noise(noise: str, delta: float) -> None:
    """Refuse an unknown kind of noise, and a delta with Laplace noise."""
    if noise not in ("laplace", "gaussian"):
        raise ValueError(f"noise must be 'laplace' or 'gaussian', got {noise!r}.")
    if noise == "laplace" and delta != 0:
        raise ValueError(f"delta must be 0 for Laplace noise, which needs none, got {delta!r}. Leave it out.")


def check_signs(signs: Signs) -> None:
    """Refuse anything but a vector of +1 and -1."""
    if signs.ndim != 1 or not (np.abs(signs) == 1).all():
        raise ValueError(
            f"Signs must be +1 or -1, of shape (n,), got shape {signs.shape} and values such as "
            f"{[float(value) for value in np.unique(signs)[:4]]}. Compare ratings with a public threshold first."
        )
