"""Plans of noisy steps: their number, noise and cost, computed from public settings before the first step."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from functools import cached_property

from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import PrivacyEvent, SelfComposedEvent
from zoo.privacy.accounting.gaussian import check_delta
from zoo.privacy.accounting.relation import Relation, Unit


@dataclass(frozen=True, kw_only=True)
class StepPlan(ABC):
    """The plan of a private training; the result of its noisy steps may be used and published without limit."""

    noise_multiplier: float  # standard deviation of the noise over the clip
    clip: float  # L2 norm of each part of a step's gradient
    steps: int  # at most
    relation: Relation  # neighbouring relation of the guarantee, between whole users
    delta: float

    def __post_init__(self) -> None:
        if not (self.clip > 0 and math.isfinite(self.clip)):
            raise ValueError(f"clip must be finite and positive, got {self.clip!r}.")
        check_count("steps", self.steps)
        if self.relation.unit is not Unit.USER:
            raise ValueError(f"relation is {self.relation.value!r}. Training protects whole users: zero_out_one_user.")
        check_delta(self.delta)

    @property
    @abstractmethod
    def step_event(self) -> PrivacyEvent:
        """Event of one step."""

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on each number, ``noise_multiplier clip``."""
        return self.noise_multiplier * self.clip

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Distance by which one user may move a step before its noise, in L2 norm."""

    def mu_after(self, steps: int) -> float | None:
        """Return mu of the one Gaussian release that the first ``steps`` equal; None if there is none."""
        return None

    def event_after(self, steps: int) -> PrivacyEvent:
        """Return the event of the first ``steps``, at least one."""
        return SelfComposedEvent(self.step_event, steps)

    @property
    def event(self) -> PrivacyEvent:
        """Event of all steps."""
        return self.event_after(self.steps)

    def epsilon_after(self, steps: int) -> float:
        """Return the proved privacy loss of the first ``steps``; 0 without any. Takes up to a third of a second."""
        return epsilon_of([self.event_after(steps)], self.delta, self.relation) if steps else 0.0

    @cached_property
    def epsilon(self) -> float:
        """Proved privacy loss of all steps at delta."""
        return self.epsilon_after(self.steps)

    def settings(self) -> dict[str, float | str]:
        """Return the settings of the guarantee as plain values."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"relation": self.relation.value}


def check_count(name: str, value: int) -> None:
    """Check that a value is an integer of at least 1."""
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} must be an integer >= 1, got {value!r}.")
