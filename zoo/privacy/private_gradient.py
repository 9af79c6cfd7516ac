"""Private gradients: what an optimiser gets to see of its users in a step of DP-SGD, and the count of such steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from zoo.privacy.clipped_sum import Losses, check_module, clipped_sum, trainable
from zoo.privacy.dp_sgd import TrainingPlan
from zoo.privacy.events import PrivacyEvent
from zoo.privacy.noise import SEEDED, NoiseSource, grid


class BudgetSpentError(RuntimeError):
    """A step that would exceed the planned number of steps."""


class PrivateGradient:
    """Gradients of a module that hide each user's part in them: the Gaussian mechanism on a Poisson sample.

    A call takes the losses of a sample of users, clips each user's gradient jointly over all trained parameters to
    ``plan.clip``, adds Gaussian noise of standard deviation ``plan.noise_multiplier * plan.clip`` to every coordinate of
    the sum, divides by the expected size of a sample and leaves the result in ``.grad`` (Abadi et al., *Deep Learning with
    Differential Privacy*, CCS 2016, Algorithm 1; by ghost clipping, see `zoo.privacy.clipped_sum`). An empty sample makes a
    step of noise alone, which tells it from no other.

    - Protected: one user, all of their data that losses read.
    - Relation: ``plan.relation``. A user who is zeroed out must contribute nothing: the caller makes the loss of users
      without data 0 (``losses * has_data``), or a bias gives them a gradient and only ``replace_one_user`` holds.
    - Sensitivity of the sum, L2: ``plan.clip`` under ``zero_out_one_user``, twice that under ``replace_one_user``.
    - With the output anything may be done: any optimiser, and whatever is computed from what it trains, passes over
      generated rows included. Not with the losses, the sample, its size or a norm: these are not to be logged.

    The guarantee is that of `events`, and needs what this class cannot see: every sample from
    `zoo.privacy.poisson.PoissonSampler` at ``plan.rate`` with private entropy; parameters that begin at values which
    nobody's data chose; losses in which a user's data are in that user's alone; and settings that are public.

    Noise is drawn in float64 and rounded with the sum to a public grid. Every call makes its generator anew, with a key of
    128 bits from the source, so neither the global random state nor a checkpoint ever holds any of it. (Torch's own would
    not do: on a processor only 32 bits of its seed count, few enough to try them all.) The guarantee is proved for exact
    real arithmetic; it is not proved against floating-point or timing attacks.

    Args:
        module: What is trained; see `zoo.privacy.clipped_sum.check_module`.
        plan: From `zoo.privacy.dp_sgd.plan_training`.
        expected_size: Rate times number of users, `PoissonSampler.expected_size`; public. Never a sample's own size.
        noise: Where noise comes from; a seeded source is for tests and leaves no guarantee.

    Raises:
        ValueError: If the module cannot be trained so, or expected_size is not positive.
        RuntimeError: If several processes train.
    """

    def __init__(self, module: nn.Module, plan: TrainingPlan, expected_size: float, noise: NoiseSource) -> None:
        if not (expected_size > 0 and math.isfinite(expected_size)):
            raise ValueError(
                f"expected_size must be a positive finite number, got {expected_size!r}: rate times users."
            )
        _check_processes()
        check_module(module)
        self.module = module
        self.plan = plan
        self.expected_size = float(expected_size)
        self._noise = noise
        self._private = noise.private
        self._limit = plan.steps
        self._taken = 0
        self._checked = False

    def __call__(self, users: Tensor, losses: Losses) -> None:
        """Take one step: fill ``.grad`` of all trained parameters, in place of what was there.

        The step counts from here on, also if losses fail: an error may tell something of the data too.

        Args:
            users: The sample, rising and without repetition, shape ``(sampled,)``; may be empty.
            losses: Called with the users to run the module forward, once, and give the loss of each, shape ``(sampled,)``.
                Not called for an empty sample. Each user must be one row, the same in every layer, and no loss may depend
                on another user's data.

        Raises:
            BudgetSpentError: If all planned steps were taken, or as many as `limit` allows.
            ValueError: If the sample, the losses or the module are not of this form.
            RuntimeError: If autocast is on, several processes train, or the forward pass is not of this form.
            FloatingPointError: If a loss or a gradient is not finite.
        """
        self._check_step(users)
        self._taken += 1
        sums = None
        if len(users):
            # Once, in the first step that has another user to depend on.
            check = not self._checked and len(users) > 1
            sums = clipped_sum(self.module, losses, users, self.plan.clip, check=check)
            self._checked |= check
        self._fill(sums)

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

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting where another run stopped. The count never falls, and noise with a seed is never forgotten.

        Steps that the other run took after this state are not in it: what they released must be discarded.

        Args:
            state: From `state_dict`, under the same settings.

        Raises:
            ValueError: If it is of another form or other settings, or has fewer steps than were taken here, or too many.
        """
        taken, private, settings = state.get("steps_taken"), state.get("private"), state.get("settings")
        if type(taken) is not int or type(private) is not bool or not isinstance(settings, Mapping):
            raise ValueError("The state is none of a PrivateGradient: it must hold steps_taken, private and settings.")
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

    def _settings(self) -> dict[str, float | str]:
        """What the guarantee, and the meaning of a step, rests on."""
        plan = self.plan
        return {
            "noise_multiplier": plan.noise_multiplier,
            "clip": plan.clip,
            "rate": plan.rate,
            "steps": plan.steps,
            "relation": plan.relation.value,
            "delta": plan.delta,
            "expected_size": self.expected_size,
        }

    def _check_step(self, users: Tensor) -> None:
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
        _check_processes()
        for device in {parameter.device.type for parameter in self.module.parameters()}:
            if torch.is_autocast_enabled(device):
                raise RuntimeError(
                    "Autocast is on; a private gradient is taken in float32. Train with precision 32-true."
                )
        if users.ndim != 1 or users.dtype != torch.int64 or not bool((users[1:] > users[:-1]).all()):
            raise ValueError(
                f"users must be int64 of the shape (sampled,), rising and none twice, as PoissonSampler draws them; got "
                f"{users.dtype} of the shape {tuple(users.shape)}. A user who is there twice counts twice."
            )
        check_module(self.module)

    def _fill(self, sums: Mapping[str, Tensor] | None) -> None:
        generator = _fresh_generator(self._noise)
        sigma = self.plan.noise_multiplier * self.plan.clip
        for name, parameter in trainable(self.module).items():
            total = torch.from_numpy(generator.standard_normal(tuple(parameter.shape))).to(parameter.device).mul_(sigma)
            if sums is not None:
                total += sums[name]
            if sigma > 0:
                spacing = grid(sigma)
                total.div_(spacing).round_().mul_(spacing)
            parameter.grad = total.div_(self.expected_size).to(parameter.dtype)


def _fresh_generator(noise: NoiseSource) -> np.random.Generator:
    halves = noise.integers(2**32, 4).astype(np.uint64)
    return np.random.Generator(np.random.Philox(key=halves[:2] << np.uint64(32) | halves[2:]))


def _check_processes() -> None:
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise RuntimeError(
            f"{distributed.get_world_size()} processes train together. Each would draw a sample and noise of its own, and "
            "what they add up to is not what is accounted for. Train with one device."
        )
