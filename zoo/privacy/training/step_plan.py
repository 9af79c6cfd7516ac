"""Plans of noisy steps: how many there are, with how much noise, and what they cost; before the first, from public settings."""

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
    """A private training as it will be; what is trained from its noisy steps alone may be used and published without limit."""

    noise_multiplier: float  # standard deviation of the noise over the clip
    clip: float  # L2 norm that each part of a step's gradient is clipped to
    steps: int  # at most
    relation: Relation  # neighbouring relation of the guarantee, between whole users
    delta: float  # probability beyond which nothing is promised

    def __post_init__(self) -> None:
        """Refuse settings that no training can have."""
        if not (self.clip > 0 and math.isfinite(self.clip)):
            raise ValueError(
                f"clip must be a positive finite number, got {self.clip!r}; 1.0 is usual. It is the L2 norm that a part of "
                "the gradient may have."
            )
        check_count("steps", self.steps)
        if self.relation.unit is not Unit.USER:
            raise ValueError(
                f"Training protects whole users; {self.relation.value!r} does not. Take zero_out_one_user."
            )
        check_delta(self.delta)

    @property
    @abstractmethod
    def step_event(self) -> PrivacyEvent:
        """What the ledger gets for one step."""

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise on each number, ``noise_multiplier clip``."""
        return self.noise_multiplier * self.clip

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """How far one user may move a step before its noise, in L2 norm."""

    def mu_after(self, steps: int) -> float | None:
        """Mu of the one Gaussian release that the first so many steps equal; None where there is no such release."""
        return None

    def event_after(self, steps: int) -> PrivacyEvent:
        """What the ledger gets for the first so many steps, at least one."""
        return SelfComposedEvent(self.step_event, steps)

    @property
    def event(self) -> PrivacyEvent:
        """What the ledger gets for all of them."""
        return self.event_after(self.steps)

    def epsilon_after(self, steps: int) -> float:
        """Proved privacy loss of the first so many steps; 0 of none. Takes up to a third of a second."""
        return epsilon_of([self.event_after(steps)], self.delta, self.relation) if steps else 0.0

    @cached_property
    def epsilon(self) -> float:
        """Proved privacy loss of all steps at delta."""
        return self.epsilon_after(self.steps)

    def settings(self) -> dict[str, float | str]:
        """What the guarantee rests on, as plain values."""
        return {field.name: getattr(self, field.name) for field in fields(self)} | {"relation": self.relation.value}


def check_count(name: str, value: int) -> None:
    """Refuse what is no integer of at least 1."""
    if type(value) is not int or value < 1:
        raise ValueError(f"{name} must be an integer of at least 1, got {value!r}.")
