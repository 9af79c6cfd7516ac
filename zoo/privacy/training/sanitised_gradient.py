"""Sanitised gradients: what a generator gets to see of a critic that reads ratings as they are (GS-WGAN)."""

from typing import Any

import torch
from torch import Tensor

from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.noisy_steps import NoisySteps, clip_rows, fresh_generator, with_noise
from zoo.privacy.training.sanitisation import SanitisationPlan


class SanitisedGradient(NoisySteps[SanitisationPlan]):
    """Lets rows pass unchanged, and sanitises the gradient that comes back: clipped row by row, with noise, averaged.

    What a generator learns from a critic reaches it through the gradient of the scores with respect to its rows, and
    through nothing else if what else the critic is given does not depend on the generator. With that gradient sanitised the
    generator may be released, whatever the critic has read and however it was trained (Chen, Orekondy & Fritz, *GS-WGAN*,
    NeurIPS 2020, with a single critic).

    - Protected: one user, all of their data.
    - Relation: either relation between whole users.
    - Sensitivity of a step's gradients, L2: ``2 clip sqrt(rows)``.
    - With what comes back anything may be done. The critic, its scores and its losses are not private: nothing of them may
      be logged, stored with the generator or released.

    The loss of a step must be a mean over its rows. The guarantee is proved for exact real arithmetic; it is not proved
    against floating-point or timing attacks.
    """

    def __init__(self, plan: SanitisationPlan, noise: NoiseSource) -> None:
        super().__init__(plan, noise)
        self._sanitised = 0  # the last step that had its backward pass

    def __call__(self, rows: Tensor) -> Tensor:
        """The same rows, float32, shape ``(plan.rows, width)``; a step is counted, and one backward pass may follow.

        Raises:
            BudgetSpentError: If all planned steps were taken, or as many as `limit` allows.
            ValueError: If the rows are not as many as planned, or not of this form.
            RuntimeError: If autocast is on, or several processes train.
        """
        self._check_step(rows.device.type)
        if rows.ndim != 2 or len(rows) != self.plan.rows or rows.dtype != torch.float32:
            raise ValueError(
                f"A step is planned for {self.plan.rows} rows of float32; got {rows.dtype} of the shape {tuple(rows.shape)}."
            )
        self._taken += 1
        passed: Tensor = _Sanitise.apply(rows, self, self._taken)  # type: ignore[no-untyped-call]
        return passed

    def sanitise(self, gradient: Tensor, step: int) -> Tensor:
        """The gradient of a mean over rows, each row's part clipped, with noise; for the backward pass of ``step`` alone.

        Raises:
            RuntimeError: If that step was sanitised before: other noise on the same gradient would be a release of its own.
            FloatingPointError: If the gradient is not finite.
        """
        if step != self._taken or self._sanitised == step:
            raise RuntimeError("A step has one backward pass; begin another step for another one.")
        self._sanitised = step
        # The loss is a mean over rows, so each row's own gradient is that many times its share.
        each = gradient.double() * self.plan.rows
        if not bool(each.isfinite().all()):
            raise FloatingPointError(
                "The critic's gradient is not finite. Lower its step size; what was trained so far must not be published for "
                "having stopped here."
            )
        noisy = with_noise(clip_rows(each, self.plan.clip), self.plan.noise_std, fresh_generator(self._noise))
        return noisy.div_(self.plan.rows).to(gradient.dtype)


class _Sanitise(torch.autograd.Function):
    """Identity, whose gradient a `SanitisedGradient` sanitises."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, owner: SanitisedGradient, step: int) -> Tensor:  # noqa: ANN401  torch's own
        """The rows."""
        ctx.owner, ctx.step = owner, step
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        """The sanitised gradient of the rows, none of the others."""
        return ctx.owner.sanitise(gradient, ctx.step), None, None
