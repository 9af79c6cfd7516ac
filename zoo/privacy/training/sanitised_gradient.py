"""Sanitised gradients: the noisy gradients that a generator reads of a critic trained on plain ratings, and their noise.

A step gives the generator the gradients of its rows, each clipped and with noise (Chen, Orekondy & Fritz, *GS-WGAN*, NeurIPS
2020, with a single critic).
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from zoo.privacy.accounting.events import GaussianEvent, PrivacyEvent
from zoo.privacy.accounting.gaussian import check_epsilon, gauss_mu
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.noisy_steps import NoisySteps, clip_rows, fresh_generator, with_noise
from zoo.privacy.training.step_plan import StepPlan, check_count


@dataclass(frozen=True, kw_only=True)
class SanitisationPlan(StepPlan):
    """Steps of a generator with sanitised gradients; made by `plan_sanitisation`.

    No step is amplified by sampling: there is one critic, trained on all users.
    """

    rows: int  # generated in a step

    def __post_init__(self) -> None:
        if not (self.noise_multiplier > 0 and math.isfinite(self.noise_multiplier)):
            raise ValueError(f"noise_multiplier must be finite and positive, got {self.noise_multiplier!r}.")
        check_count("rows", self.rows)
        super().__post_init__()

    @property
    def step_event(self) -> PrivacyEvent:
        """A Gaussian release of all rows' gradients."""
        return GaussianEvent(self.noise_std / self.sensitivity)

    @property
    def sensitivity(self) -> float:
        """``2 clip sqrt(rows)``, for every choice of users and every relation.

        The critic read all users, so one user may move the gradient of each row, by at most twice the clip.
        """
        return 2 * self.clip * math.sqrt(self.rows)

    def mu_after(self, steps: int) -> float:
        """``sensitivity sqrt(steps) / (noise_multiplier clip)``."""
        return self.sensitivity * math.sqrt(steps) / self.noise_std


def plan_sanitisation(
    *, epsilon: float, delta: float, rows: int, steps: int, clip: float, relation: Relation = Relation.ZERO_OUT_ONE_USER
) -> SanitisationPlan:
    """Return the plan with the least noise that keeps the generator's steps within epsilon. Opens no data.

    All steps together are one Gaussian release with ``mu = 2 sqrt(rows steps) / noise_multiplier``, under either relation.
    Arguments are those of `SanitisationPlan`, and the epsilon.
    """
    check_epsilon(epsilon)
    # Any multiplier checks the other settings.
    plan = SanitisationPlan(noise_multiplier=1.0, clip=clip, rows=rows, steps=steps, relation=relation, delta=delta)
    return replace(plan, noise_multiplier=2 * math.sqrt(rows * steps) / gauss_mu(epsilon, delta))


class SanitisedGradient(NoisySteps[SanitisationPlan]):
    """Pass rows unchanged, and sanitise the gradient that comes back: clip it row by row, add noise, average.

    A generator learns from a critic only through the gradient of the scores with respect to its rows, provided that no other
    input of the critic depends on the generator. With that gradient sanitised the generator may be released, however the critic
    was trained.

    - Privacy unit: one user, all of their data.
    - Relation: either relation between whole users.
    - Sensitivity of a step's gradients, L2: ``2 clip sqrt(rows)``.
    - Allowed use of the returned gradient: any. The critic, its scores and its losses are not private: they must not be logged,
      stored with the generator or released.

    The loss of a step must be a mean over its rows. The guarantee is proved for exact real arithmetic, not against
    floating-point or timing attacks.
    """

    def __init__(self, plan: SanitisationPlan, noise: NoiseSource) -> None:
        super().__init__(plan, noise)
        self._sanitised = 0  # the last step that had its backward pass

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the same rows, float32, ``(plan.rows, width)``; count a step, which allows one backward pass.

        Raises:
            BudgetSpentError: If all planned steps were taken, or as many as `limit` allows.
            ValueError: If the number or form of the rows differs from the plan.
            RuntimeError: If autocast is on, or several processes train.
        """
        self._check_step(rows.device.type)
        if rows.ndim != 2 or len(rows) != self.plan.rows or rows.dtype != torch.float32:
            form = f"{rows.dtype} of the shape {tuple(rows.shape)}"
            raise ValueError(f"A step is planned for {self.plan.rows} rows of float32; got {form}.")
        self._taken += 1
        passed: Tensor = _Sanitise.apply(rows, self, self._taken)  # type: ignore[no-untyped-call]
        return passed

    def sanitise(self, gradient: Tensor, step: int) -> Tensor:
        """Return the gradient of a mean over rows, each row's part clipped, with noise; for the backward pass of ``step`` alone.

        Raises:
            RuntimeError: If that step was sanitised before: new noise on the same gradient would be another release.
            FloatingPointError: If the gradient is not finite.
        """
        if step != self._taken or self._sanitised == step:
            raise RuntimeError("A step has one backward pass. Begin another step.")
        self._sanitised = step
        # The loss is a mean over rows: each row's own gradient is its share times their number.
        each = gradient.double() * self.plan.rows
        if not bool(each.isfinite().all()):
            raise FloatingPointError("The critic's gradient is not finite. Lower lr; publish nothing.")
        noisy = with_noise(clip_rows(each, self.plan.clip), self.plan.noise_std, fresh_generator(self._noise))
        return noisy.div_(self.plan.rows).to(gradient.dtype)


class _Sanitise(torch.autograd.Function):
    """Identity with a gradient sanitised by a `SanitisedGradient`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, owner: SanitisedGradient, step: int) -> Tensor:  # noqa: ANN401  torch's own
        ctx.owner, ctx.step = owner, step
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        return ctx.owner.sanitise(gradient, ctx.step), None, None
