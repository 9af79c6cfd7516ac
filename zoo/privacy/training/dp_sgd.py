"""DP-SGD: the noise of a private training's steps, computed before the first of them.

Each step takes a Poisson sample of the users (`poisson`), clips each sampled user's part of the gradient, and adds Gaussian
noise to the sum (`private_gradient`; Abadi et al., *Deep Learning with Differential Privacy*, CCS 2016). One user is one
clipping unit.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from zoo.privacy.accounting.accountant import Accountant
from zoo.privacy.accounting.events import NonPrivateEvent, PoissonSampledGaussianEvent, PrivacyEvent
from zoo.privacy.accounting.gaussian import check_epsilon, gauss_mu
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.training.step_plan import StepPlan

_PRECISION = 1e-3  # of the noise multiplier, relative; rounded up
_LEAST, _MOST = 1e-2, 1e6  # range of noise multipliers
_NOTED = 0.1  # share of noise above which the cost of a fallback is reported


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(StepPlan):
    """Steps of DP-SGD; made by `plan_training`.

    A noise multiplier of 0, never returned by `plan_training`, is for tests of the arithmetic: its epsilon is infinite.
    """

    rate: float  # probability of each user to be in a step, independent of all others

    def __post_init__(self) -> None:
        if not (self.noise_multiplier >= 0 and math.isfinite(self.noise_multiplier)):
            raise ValueError(f"noise_multiplier must be finite and >= 0, got {self.noise_multiplier!r}.")
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate must lie in (0, 1], got {self.rate!r}.")
        super().__post_init__()

    @property
    def step_event(self) -> PrivacyEvent:
        """A Gaussian release on a Poisson sample."""
        if self.noise_multiplier == 0:
            return NonPrivateEvent()
        return PoissonSampledGaussianEvent(self.noise_multiplier, self.rate)

    @property
    def sensitivity(self) -> float:
        """``clip``, because a user without data adds nothing to the sum; ``2 clip`` if a user is replaced."""
        return self.clip * (2 if self.relation is Relation.REPLACE_ONE_USER else 1)

    @property
    def falls_back(self) -> bool:
        """Whether epsilon is from Renyi divergences, because delta is too small or steps too many for loss distributions."""
        return Accountant(self.relation, [self.event]).falls_back(self.delta)

    @property
    def excess_noise(self) -> float:
        """Share of noise above the estimate for many steps, which are close to one Gaussian release; it may be negative.

        Its mu is ``rate sqrt(steps D)`` with the chi-square divergence D of one step without sampling (Bu et al., *Deep Learning
        with Gaussian Differential Privacy*, Harvard Data Science Review 2020): ``e^(1/s^2) - 1``, or ``4 sinh(1/s^2)`` for
        replacement.
        """
        divergence = (gauss_mu(self.epsilon, self.delta) / self.rate) ** 2 / self.steps
        replaced = self.relation is Relation.REPLACE_ONE_USER
        inverse = math.asinh(divergence / 4) if replaced else math.log1p(divergence)
        return self.noise_multiplier * math.sqrt(inverse) - 1


def plan_training(
    *,
    epsilon: float,
    delta: float,
    rate: float,
    steps: int,
    clip: float,
    relation: Relation = Relation.ZERO_OUT_ONE_USER,
) -> TrainingPlan:
    """Return the plan with the least noise that keeps the steps within epsilon. Opens no data.

    Losses are rounded up (`accounting.losses`); the multiplier is accurate to 1e-3, rounded up. If loss distributions cannot
    resolve delta, Renyi divergences count (`TrainingPlan.falls_back`), with a warning if that costs more than a tenth of the noise.
    The sample must be drawn by `poisson` and be secret: batches of a fixed size and shuffled ones are not accounted
    for. Empty samples count as steps. ``replace_one_user`` costs more than ``zero_out_one_user``.

    Args:
        epsilon: Privacy loss of all steps at delta.
        delta: Delta of the guarantee, in (0, 1).
        rate: Probability of each user to be in a step.
        steps: Number of steps.
        clip: L2 norm of each user's part of a gradient.
        relation: Neighbouring relation.

    Raises:
        ValueError: If no noise is enough, or a setting is out of range.

    Examples:
        >>> plan = plan_training(epsilon=2.0, delta=1e-5, rate=0.1, steps=10, clip=1.0)
        >>> plan.epsilon <= 2.0
        True
    """
    check_epsilon(epsilon)
    # The largest noise checks the other settings before the search.
    most = TrainingPlan(noise_multiplier=_MOST, clip=clip, rate=rate, steps=steps, relation=relation, delta=delta)

    def plan(noise_multiplier: float) -> TrainingPlan:
        return replace(most, noise_multiplier=noise_multiplier)

    # Epsilon falls as noise grows: two plans around epsilon are brought together, and the private one is taken.
    # Many small steps are close to one Gaussian release with mu = rate sqrt(steps) / noise_multiplier.
    near = rate * math.sqrt(steps) / gauss_mu(epsilon, delta)
    low, high = _bracket(plan, epsilon, min(max(near, 0.3), _MOST))
    tries = 0
    while high.noise_multiplier > low.noise_multiplier * (1 + _PRECISION):
        middle = plan(_between(low, high, epsilon, tries))
        low, high = (low, middle) if middle.epsilon <= epsilon else (middle, high)
        tries += 1
    if high.falls_back and high.excess_noise > _NOTED:
        warnings.warn(
            f"delta is {delta:g}, too small to compose {steps} steps exactly. The noise is about {high.excess_noise:.0%} above "
            "what is needed. Raise delta.",
            stacklevel=2,
        )
    return high


def _bracket(plan: Callable[[float], TrainingPlan], epsilon: float, near: float) -> tuple[TrainingPlan, TrainingPlan]:
    """Return a plan with too little noise and one with enough, at most a factor of 1.5 apart; or twice the least one."""
    high = plan(near)
    while high.epsilon > epsilon:
        if high.noise_multiplier >= _MOST:
            raise ValueError(
                f"epsilon {epsilon:g} is unreachable with {high.steps} steps at rate {high.rate:g}. Lower these."
            )
        low, high = high, plan(min(1.5 * high.noise_multiplier, _MOST))
        if high.epsilon <= epsilon:
            return low, high
    while high.noise_multiplier > _LEAST:
        lower = plan(max(high.noise_multiplier / 1.5, _LEAST))
        if lower.epsilon > epsilon:
            return lower, high
        high = lower
    return high, high


def _between(low: TrainingPlan, high: TrainingPlan, epsilon: float, tries: int) -> float:
    """Return the next multiplier: where the line between both, in logarithms, meets epsilon.

    Alternate half the precision above and below it, so that both ends converge; bisect in every fourth try, in case the line
    misleads.
    """
    least, most = math.log(low.noise_multiplier), math.log(high.noise_multiplier)
    if tries % 4 == 3 or not math.isfinite(low.epsilon):
        return math.exp((least + most) / 2)
    fall = math.log(low.epsilon / high.epsilon) if high.epsilon > 0 else math.inf
    share = math.log(low.epsilon / epsilon) / fall
    aim = least + share * (most - least) + _PRECISION * (0.45 if tries % 2 == 0 else -0.45)
    edge = min(_PRECISION, most - least) / 10
    return math.exp(min(max(aim, least + edge), most - edge))
