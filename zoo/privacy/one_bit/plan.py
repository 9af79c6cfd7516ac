"""What the mechanisms of one-bit matrix completion have in common: plans, noise on vectors, checks that raise ValueErrors."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from zoo.privacy.accounting.events import GaussianEvent, LaplaceEvent, PrivacyEvent, SelfComposedEvent
from zoo.privacy.accounting.gaussian import check_epsilon, gauss_mu
from zoo.privacy.accounting.pure import laplace_scale
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.noise import NoiseSource, laplace_noise, round_to_lattice

Floats = npt.NDArray[np.float64]
Signs = npt.NDArray[np.float64] | npt.NDArray[np.int8] | npt.NDArray[np.int64]
Noise = Literal["laplace", "gaussian"]


@dataclass(frozen=True, kw_only=True)
class OneBitPlan:
    """Noise and what it spends, computed from public settings alone: what a record and its ledger need."""

    noise: Literal["flips", "ternary", "laplace", "gaussian"]  # flips are of signs, ternary is of cells
    scale: float  # of the noise on each number: Laplace scale, Gaussian standard deviation, or that of a report
    sensitivity: float  # how far one change under the relation moves what is noised, each time
    sensitivity_norm: Literal["L1", "L2"]
    compositions: int = 1  # how many times the data are used
    epsilon: float  # proved privacy loss at delta
    delta: float = 0.0  # probability beyond which nothing is promised; 0 without Gaussian noise
    mu: float | None = None  # of the Gaussian release that this equals
    event: PrivacyEvent  # what the ledger gets, for all uses together
    relation: Relation = Relation.CHANGE_ONE_RATING_VALUE  # neighbouring relation of the guarantee
    clip: float | None = None  # what entries of a gradient are clamped to
    exact_minimiser: bool = False  # whether the guarantee is that of the exact minimiser, and void for any other output


def vector_plan(
    epsilon: float, delta: float, noise: Noise, sensitivity: float, *, steps: int = 1, clip: float | None = None
) -> OneBitPlan:
    """Noise on vectors, ``steps`` times, and what it spends. Opens no data.

    Laplace noise of scale ``sensitivity steps/epsilon``, or Gaussian of ``sensitivity sqrt(steps)/gauss_mu``: epsilon is of all
    steps together. The sensitivity is how far one change moves the vector each time, in the L1 norm for Laplace noise, else
    in the L2 norm.
    """
    check_epsilon(epsilon)
    check_noise(noise, delta)
    mu = gauss_mu(epsilon, delta) if noise == "gaussian" else None
    scale = laplace_scale(epsilon, sensitivity * steps) if mu is None else sensitivity * math.sqrt(steps) / mu
    event = LaplaceEvent(scale / sensitivity) if mu is None else GaussianEvent(scale / sensitivity)
    return OneBitPlan(
        noise=noise,
        scale=scale,
        sensitivity=sensitivity,
        sensitivity_norm="L2" if noise == "gaussian" else "L1",
        compositions=steps,
        epsilon=epsilon,
        delta=delta,
        mu=mu,
        event=event if steps == 1 else SelfComposedEvent(event, steps),
        clip=clip,
    )


def with_noise(values: Floats, plan: OneBitPlan, noise: NoiseSource) -> Floats:
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


def check_steps(steps: int) -> None:
    """Refuse a number of steps that is no positive integer."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(
            f"steps must be an integer of at least 1, got {steps!r}. It is fixed before any step is taken."
        )


def check_signs(signs: Signs) -> None:
    """Refuse anything but a vector of +1 and -1."""
    if signs.ndim != 1 or not (np.abs(signs) == 1).all():
        raise ValueError(
            f"Signs must be +1 or -1, of shape (n,), got shape {signs.shape} and values such as "
            f"{[float(value) for value in np.unique(signs)[:4]]}. Compare ratings with a public threshold first."
        )
