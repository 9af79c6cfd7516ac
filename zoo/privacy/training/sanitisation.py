"""Sanitisation: how much noise the gradients of a generator need, computed before the first of them.

A step shows a generator the gradients of its rows, each clipped and with noise (`sanitised_gradient`; Chen, Orekondy
& Fritz, *GS-WGAN*, NeurIPS 2020, with a single critic).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import GaussianEvent, PrivacyEvent, SelfComposedEvent
from zoo.privacy.accounting.gaussian import check_delta, check_epsilon, gauss_mu
from zoo.privacy.accounting.relation import Relation, Unit


@dataclass(frozen=True)
class SanitisationPlan:
    """Steps of a generator whose gradients are sanitised, from public settings alone; made by `plan_sanitisation`.

    A step releases the gradients of ``rows`` generated rows. The critic has seen everybody, so one user may move each of
    them, by at most twice the clip: all together by ``2 clip sqrt(rows)`` in L2 norm, whichever users the rows are for and
    whatever the relation. No step is amplified by sampling: there is one critic, and everybody is in it.

    Attributes:
        noise_multiplier: Standard deviation of the noise over ``clip``.
        clip: L2 norm that each row's gradient is clipped to.
        rows: Generated rows in a step.
        steps: Steps of the generator, at most.
        relation: Neighbouring relation of the guarantee.
        delta: Probability beyond which nothing is promised.

    Raises:
        ValueError: If a setting is out of range.
    """

    noise_multiplier: float
    clip: float
    rows: int
    steps: int
    relation: Relation
    delta: float

    def __post_init__(self) -> None:
        """Refuse settings that no training can have."""
        if not (self.noise_multiplier > 0 and math.isfinite(self.noise_multiplier)):
            raise ValueError(f"noise_multiplier must be a positive finite number, got {self.noise_multiplier!r}.")
        if not (self.clip > 0 and math.isfinite(self.clip)):
            raise ValueError(f"clip must be a positive finite number, got {self.clip!r}; 1.0 is usual.")
        for name in ("rows", "steps"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name} must be an integer of at least 1, got {getattr(self, name)!r}.")
        if self.relation.unit is not Unit.USER:
            raise ValueError(
                f"Training protects whole users; {self.relation.value!r} does not. Take zero_out_one_user."
            )
        check_delta(self.delta)

    @property
    def sensitivity(self) -> float:
        """How far one user may move the gradients of a step, L2."""
        return 2 * self.clip * math.sqrt(self.rows)

    @cached_property
    def epsilon(self) -> float:
        """Proved privacy loss of all steps at delta."""
        return self.epsilon_after(self.steps)

    def mu_after(self, steps: int) -> float:
        """Mu of the one Gaussian release that the first so many steps equal."""
        return self.sensitivity * math.sqrt(steps) / (self.noise_multiplier * self.clip)

    def event_after(self, steps: int) -> PrivacyEvent:
        """What the ledger gets for the first so many steps, at least one."""
        return SelfComposedEvent(GaussianEvent(self.noise_multiplier * self.clip / self.sensitivity), steps)

    def epsilon_after(self, steps: int) -> float:
        """Proved privacy loss of the first so many steps; 0 of none."""
        return epsilon_of([self.event_after(steps)], self.delta, self.relation) if steps else 0.0

    def settings(self) -> dict[str, float | str]:
        """What the guarantee rests on, as plain values."""
        return {
            "noise_multiplier": self.noise_multiplier,
            "clip": self.clip,
            "rows": self.rows,
            "steps": self.steps,
            "relation": self.relation.value,
            "delta": self.delta,
        }


def plan_sanitisation(
    *,
    epsilon: float,
    delta: float,
    rows: int,
    steps: int,
    clip: float,
    relation: Relation = Relation.ZERO_OUT_ONE_USER,
) -> SanitisationPlan:
    """The least noise with which so many steps of a generator keep within epsilon. Opens no data.

    All steps together are one Gaussian release with ``mu = 2 sqrt(rows steps) / noise_multiplier``.

    Args:
        epsilon: Privacy loss asked for.
        delta: In (0, 1).
        rows: Generated rows in a step, at least 1.
        steps: Steps of the generator, at least 1.
        clip: L2 norm that each row's gradient is clipped to.
        relation: ``zero_out_one_user`` or ``replace_one_user``; both cost the same here.

    Raises:
        ValueError: If an argument is out of range.
    """
    check_epsilon(epsilon)
    check_delta(delta)
    SanitisationPlan(1.0, clip, rows, steps, relation, delta)  # refuses the settings
    noise_multiplier = 2 * math.sqrt(rows * steps) / gauss_mu(epsilon, delta)
    return SanitisationPlan(noise_multiplier, clip, rows, steps, relation, delta)
