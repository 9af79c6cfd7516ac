"""Noisy steps: the count of what a private training has released, which is what its guarantee rests on."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.noise import SEEDED, NoiseSource


class BudgetSpentError(RuntimeError):
    """A step that would exceed the planned number of steps."""


class StepPlan(Protocol):
    """A number of noisy steps as they will be, from public settings alone."""

    @property
    def steps(self) -> int:
        """Noisy steps, at most."""

    @property
    def delta(self) -> float:
        """Probability beyond which nothing is promised."""

    @property
    def relation(self) -> Relation:
        """Neighbouring relation of the guarantee."""

    @property
    def epsilon(self) -> float:
        """Proved privacy loss of all steps at delta."""

    def event_after(self, steps: int) -> PrivacyEvent:
        """What the ledger gets for the first so many steps, at least one."""

    def epsilon_after(self, steps: int) -> float:
        """Proved privacy loss of the first so many steps; 0 of none."""

    def settings(self) -> dict[str, float | str]:
        """What the guarantee rests on, as plain values."""


class NoisySteps(ABC):
    """Counts noisy steps, over all runs that resumed one another, and refuses more than were planned.

    Args:
        plan: How many, with how much noise.
        noise: Where the noise comes from; a seeded source is for tests and leaves no guarantee.
    """

    def __init__(self, plan: StepPlan, noise: NoiseSource) -> None:
        self.plan: StepPlan = plan
        self._noise = noise
        self._private = noise.private
        self._limit = plan.steps
        self._taken = 0

    @property
    def steps_taken(self) -> int:
        """Steps so far, over all runs that this one resumed."""
        return self._taken

    @property
    def steps_left(self) -> int:
        """Steps until the budget is spent, or the `limit` reached."""
        return max(self._limit - self._taken, 0)

    def limit(self, steps: int) -> None:
        """Allow no more than so many steps in all, earlier ones included; a limit is never raised.

        For a budget below the plan's: fewer steps with the same noise spend less. It is no setting that a guarantee rests
        on, and no part of the state: a run that goes on sets it again, or ends with the plan.

        Args:
            steps: At least 0; from as many as the plan has on, the plan alone counts.

        Raises:
            ValueError: If it is not an integer of at least 0.
        """
        if type(steps) is not int or steps < 0:
            raise ValueError(
                f"steps must be an integer of at least 0, got {steps!r}. It is how many there may be in all."
            )
        self._limit = min(self._limit, steps)

    @property
    def private(self) -> bool:
        """Whether a guarantee may rest on the noise of all steps: none of it, in this run or before, had a seed."""
        return self._private

    @property
    def noise_label(self) -> str:
        """Where the noise came from, for the record."""
        return self._noise.label if self._private else SEEDED

    def events(self) -> tuple[PrivacyEvent, ...]:
        """The ledger so far."""
        return (self.plan.event_after(self._taken),) if self._taken else ()

    @property
    def epsilon_spent(self) -> float:
        """Proved privacy loss so far at ``plan.delta``; infinite if it is not `private`."""
        if not self._private and self._taken:
            return math.inf
        return self.plan.epsilon_after(self._taken)

    def state_dict(self) -> dict[str, Any]:
        """The count of steps and the settings that it counts for, as plain values; no noise and no entropy."""
        return {"steps_taken": self._taken, "private": self._private, "settings": self._settings()}

    def load_state_dict(self, state: Mapping[str, Any] | None) -> None:
        """Go on counting where another run stopped. The count never falls, and noise with a seed is never forgotten.

        Steps that the other run took after this state are not in it: what they released must be discarded.

        Args:
            state: From `state_dict`, under the same settings; None, as of a training without noise, is refused.

        Raises:
            ValueError: If it is of another form or other settings, or has fewer steps than were taken here, or too many.
        """
        found = state if isinstance(state, Mapping) else {}
        taken, private, settings = found.get("steps_taken"), found.get("private"), found.get("settings")
        if type(taken) is not int or type(private) is not bool or not isinstance(settings, Mapping):
            raise ValueError(
                "The state is none of noisy steps: it must hold steps_taken, private and settings. What was trained without "
                "noise cannot be gone on with as private; begin anew from public values."
            )
        own = self._settings()
        if other := sorted(name for name in own.keys() | settings.keys() if settings.get(name) != own.get(name)):
            changes = ", ".join(f"{name} was {settings.get(name)!r} and is {own.get(name)!r}" for name in other)
            raise ValueError(
                f"The training was begun under other settings: {changes}. Its steps cannot be counted under these; resume it "
                "as it was, or begin anew from public values."
            )
        if not self._taken <= taken <= self.plan.steps:
            raise ValueError(
                f"steps_taken must lie in [{self._taken}, {self.plan.steps}], got {taken}: steps that were taken stay taken."
            )
        self._taken = taken
        self._private &= private

    @abstractmethod
    def _settings(self) -> dict[str, float | str]:
        """What the guarantee, and the meaning of a step, rests on."""

    def _count(self) -> None:
        """Begin a step, which counts from here on."""
        self._check_left()
        self._taken += 1

    def _check_left(self) -> None:
        if self._taken >= self.plan.steps:
            raise BudgetSpentError(
                f"All {self.plan.steps} planned steps were taken; another one would cost more than the plan says. Plan for "
                "more steps before training; noise that was too little cannot be added later."
            )
        if self._taken >= self._limit:
            raise BudgetSpentError(
                f"The {self._limit} steps that this run is limited to were taken, of {self.plan.steps} planned ones. Look at "
                "steps_left before a step, or set a higher limit when the run begins."
            )


def fresh_generator(noise: NoiseSource) -> np.random.Generator:
    """A generator of random numbers with a new key of 128 bits, for the noise of one step."""
    halves = noise.integers(2**32, 4).astype(np.uint64)
    return np.random.Generator(np.random.Philox(key=halves[:2] << np.uint64(32) | halves[2:]))


def check_processes() -> None:
    """Refuse several processes.

    Raises:
        RuntimeError: If several processes train together.
    """
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise RuntimeError(
            f"{distributed.get_world_size()} processes train together. Each would draw a sample and noise of its own, and "
            "what they add up to is not what is accounted for. Train with one device."
        )


def check_autocast(*devices: str) -> None:
    """Refuse autocast on any of these kinds of device.

    Raises:
        RuntimeError: If it is on.
    """
    if any(torch.is_autocast_enabled(device) for device in devices):
        raise RuntimeError("Autocast is on; a private gradient is taken in float32. Train with precision 32-true.")
