"""DP-SGD: how much noise the steps of a private training need, computed before the first of them.

Every step takes a Poisson sample of the users (`randomness.poisson`), clips each sampled user's part of the gradient, and
adds Gaussian noise to the sum (`private_gradient`; Abadi et al., *Deep Learning with Differential Privacy*, CCS
2016). One user is one clipping unit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import NonPrivateEvent, PoissonSampledGaussianEvent, PrivacyEvent, SelfComposedEvent
from zoo.privacy.accounting.gaussian import check_delta, check_epsilon, gauss_mu
from zoo.privacy.accounting.relation import Relation, Unit

_PRECISION = 1e-3  # of the noise multiplier, relative; rounded up
_LEAST, _MOST = 1e-2, 1e6  # noise multipliers that are looked at


@dataclass(frozen=True)
class TrainingPlan:
    """A private training as it will be, from public settings alone; made by `plan_training`.

    A step moves by at most ``clip`` in L2 norm when a user's part is left out of its sum, which is what
    ``zero_out_one_user`` asks about: a user without data contributes nothing. Under ``replace_one_user`` it moves by twice
    that. What is trained from the noisy gradients alone may be used and published without limit.

    Attributes:
        noise_multiplier: Standard deviation of the noise over ``clip``. 0, which no guarantee comes of and `plan_training`
            never gives, is for tests of the arithmetic: epsilon is infinite then.
        clip: L2 norm that each user's part of a gradient is clipped to.
        rate: Probability of each user to be in a step, independent of all others.
        steps: Noisy steps, at most.
        relation: Neighbouring relation of the guarantee.
        delta: Probability beyond which nothing is promised.

    Raises:
        ValueError: If a setting is out of range.
    """

    noise_multiplier: float
    clip: float
    rate: float
    steps: int
    relation: Relation
    delta: float

    def __post_init__(self) -> None:
        """Refuse settings that no training can have."""
        if not (self.noise_multiplier >= 0 and math.isfinite(self.noise_multiplier)):
            raise ValueError(f"noise_multiplier must be a finite number of at least 0, got {self.noise_multiplier!r}.")
        if not (self.clip > 0 and math.isfinite(self.clip)):
            raise ValueError(
                f"clip must be a positive finite number, got {self.clip!r}. It is the L2 norm that a user's part of a "
                "gradient may have; 1.0 is usual."
            )
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate must lie in (0, 1], the share of the users in a step, got {self.rate!r}.")
        if type(self.steps) is not int or self.steps < 1:
            raise ValueError(f"steps must be an integer of at least 1, got {self.steps!r}.")
        if self.relation.unit is not Unit.USER:
            raise ValueError(
                f"Training protects whole users; {self.relation.value!r} does not. Take zero_out_one_user."
            )
        check_delta(self.delta)

    @cached_property
    def epsilon(self) -> float:
        """Proved privacy loss of all steps at delta, from the settings above and nothing else."""
        return self.epsilon_after(self.steps)

    @property
    def step_event(self) -> PrivacyEvent:
        """What the ledger gets for one step."""
        if self.noise_multiplier == 0:
            return NonPrivateEvent()
        return PoissonSampledGaussianEvent(self.noise_multiplier, self.rate)

    @property
    def event(self) -> PrivacyEvent:
        """What the ledger gets for all of them."""
        return self.event_after(self.steps)

    def event_after(self, steps: int) -> PrivacyEvent:
        """What the ledger gets for the first so many steps, at least one."""
        return SelfComposedEvent(self.step_event, steps)

    def settings(self) -> dict[str, float | str]:
        """What the guarantee rests on, as plain values."""
        return {
            "noise_multiplier": self.noise_multiplier,
            "clip": self.clip,
            "rate": self.rate,
            "steps": self.steps,
            "relation": self.relation.value,
            "delta": self.delta,
        }

    def epsilon_after(self, steps: int) -> float:
        """Proved privacy loss of the first so many steps; 0 of none. Takes about a third of a second."""
        return epsilon_of([self.event_after(steps)], self.delta, self.relation) if steps else 0.0


def plan_training(
    *,
    epsilon: float,
    delta: float,
    rate: float,
    steps: int,
    clip: float,
    relation: Relation = Relation.ZERO_OUT_ONE_USER,
) -> TrainingPlan:
    """The least noise with which so many steps keep within epsilon. Opens no data.

    By the privacy loss distribution of all steps, rounded up (`accounting.accountant`); the multiplier itself is found to
    one part in a thousand and rounded up. The sample must be drawn by `zoo.privacy.training.poisson`, and be secret: batches of a
    fixed size, or shuffled ones, are not what is accounted for.

    Args:
        epsilon: Privacy loss asked for.
        delta: In (0, 1).
        rate: Probability of each user to be in a step, in (0, 1]; public, as is the number of users.
        steps: Noisy steps, at least 1; empty samples count too.
        clip: L2 norm that each user's part is clipped to.
        relation: ``zero_out_one_user`` (one user's data become nothing) or ``replace_one_user``, which costs more.

    Raises:
        ValueError: If an argument is out of range, or no noise is enough.
    """
    check_epsilon(epsilon)

    def plan(noise_multiplier: float) -> TrainingPlan:
        return TrainingPlan(noise_multiplier, clip, rate, steps, relation, delta)

    plan(_MOST)  # refuses the settings, which the guess below needs
    # Many small steps are close to one Gaussian release with mu = rate sqrt(steps) / noise_multiplier.
    near = rate * math.sqrt(steps) / gauss_mu(epsilon, delta)
    low, high = _bracket(plan, epsilon, min(max(near, 0.3), _MOST))
    tries = 0
    while high.noise_multiplier > low.noise_multiplier * (1 + _PRECISION):
        middle = plan(_between(low, high, epsilon, tries))
        low, high = (low, middle) if middle.epsilon <= epsilon else (middle, high)
        tries += 1
    return high


def _bracket(plan: Callable[[float], TrainingPlan], epsilon: float, near: float) -> tuple[TrainingPlan, TrainingPlan]:
    """A plan with too little noise and one with enough, at most a factor of 1.5 apart; or twice the least there is."""
    high = plan(near)
    while high.epsilon > epsilon:
        if high.noise_multiplier >= _MOST:
            raise ValueError(
                f"Not even a noise multiplier of {_MOST:g} keeps {high.steps} steps at rate {high.rate:g} within epsilon "
                f"{epsilon:g} at delta {high.delta:g}. Ask for fewer steps, a smaller rate or a larger epsilon."
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
    """Where to look next: where the line between both, in logarithms, meets epsilon.

    Turn by turn half the precision above and below it, so that soon both ends lie there; now and then half-way, so that
    they do even where the line leads astray.
    """
    least, most = math.log(low.noise_multiplier), math.log(high.noise_multiplier)
    if tries % 4 == 3 or not math.isfinite(low.epsilon):
        return math.exp((least + most) / 2)
    fall = math.log(low.epsilon / high.epsilon) if high.epsilon > 0 else math.inf
    share = math.log(low.epsilon / epsilon) / fall
    aim = least + share * (most - least) + _PRECISION * (0.45 if tries % 2 == 0 else -0.45)
    edge = min(_PRECISION, most - least) / 10
    return math.exp(min(max(aim, least + edge), most - edge))
