"""Private gradients: what an optimiser gets to see of its users in a step of DP-SGD, and the count of such steps."""

import math

import torch
from torch import Tensor, nn

from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.clipped_sum import Losses, check_module, clipped_sum, trainable
from zoo.privacy.training.dp_sgd import TrainingPlan
from zoo.privacy.training.noisy_steps import NoisySteps, fresh_generator, with_noise


class PrivateGradient(NoisySteps[TrainingPlan]):
    """Gradients of a module that hide each user's part in them: the Gaussian mechanism on a Poisson sample.

    A call takes the losses of a sample of users, clips each user's gradient jointly over all trained parameters to
    ``plan.clip``, adds Gaussian noise of standard deviation ``plan.noise_std`` to every coordinate of the sum, divides by the
    expected size of a sample and leaves the result in ``.grad`` (Abadi et al., *Deep Learning with Differential Privacy*,
    CCS 2016, Algorithm 1; by ghost clipping, see `clipped_sum`). An empty sample makes a step of noise alone, which tells it
    from no other.

    - Protected: one user, all of their data that losses read.
    - Relation: ``plan.relation``. A user who is zeroed out must contribute nothing: the caller makes the loss of users
      without data 0 (``losses * has_data``), or a bias gives them a gradient and only ``replace_one_user`` holds.
    - Sensitivity of the sum, L2: ``plan.clip`` under ``zero_out_one_user``, twice that under ``replace_one_user``.
    - With the output anything may be done: any optimiser, and whatever is computed from what it trains, passes over
      generated rows included. Not with the losses, the sample, its size or a norm: these are not to be logged.

    The guarantee is that of `events`, and needs what this class cannot see: every sample from `PoissonSampler` at
    ``plan.rate`` with private entropy; parameters that begin at values which nobody's data chose; losses in which a user's
    data are in that user's alone (of users in the same sample every step sees to it, see `check_alone`; of what comes from
    outside of the sample nothing is seen here); and settings that are public.

    Every call makes a generator of noise anew, so neither the global random state nor a checkpoint ever holds any of it. The
    guarantee is proved for exact real arithmetic; it is not proved against floating-point or timing attacks.

    The module is one that `check_module` lets pass. The expected size is rate times number of users,
    `PoissonSampler.expected_size`, and public: never a sample's own size.
    """

    def __init__(self, module: nn.Module, plan: TrainingPlan, expected_size: float, noise: NoiseSource) -> None:
        if not (expected_size > 0 and math.isfinite(expected_size)):
            raise ValueError(
                f"expected_size must be a positive finite number, got {expected_size!r}: rate times users."
            )
        check_module(module)
        super().__init__(plan, noise)
        self.module, self.expected_size = module, float(expected_size)

    def __call__(self, users: Tensor, losses: Losses) -> None:
        """Take one step: fill ``.grad`` of all trained parameters, in place of what was there.

        The step counts from here on, also if losses fail: an error may tell something of the data too. The users are the
        sample, rising and without repetition, shape ``(sampled,)``; it may be empty, then losses (`clipped_sum`) are not called.

        Raises:
            BudgetSpentError: If all planned steps were taken, or as many as `limit` allows.
            ValueError: If the sample, the losses or the module are not of this form.
            RuntimeError: If autocast is on, several processes train, or the forward pass is not of this form.
            FloatingPointError: If a loss or a gradient is not finite.
        """
        self._check_step(*{parameter.device.type for parameter in self.module.parameters()})
        if users.ndim != 1 or users.dtype != torch.int64 or not bool((users[1:] > users[:-1]).all()):
            raise ValueError(
                f"users must be int64 of the shape (sampled,), rising and none twice, as PoissonSampler draws them; got "
                f"{users.dtype} of the shape {tuple(users.shape)}. A user who is there twice counts twice."
            )
        check_module(self.module)
        self._taken += 1
        sums: dict[str, Tensor] = {}
        if len(users):
            # In every step that has another user to depend on: what a loss does in the first one says nothing of the others.
            sums = clipped_sum(self.module, losses, users, self.plan.clip, check=len(users) > 1)
        generator = fresh_generator(self._noise)
        for name, parameter in trainable(self.module).items():
            total = with_noise(sums.get(name, torch.zeros_like(parameter)), self.plan.noise_std, generator)
            parameter.grad = total.div_(self.expected_size).to(parameter.dtype)

    def settings(self) -> dict[str, float | str]:
        """Those of the plan, and what a sum is divided by."""
        return {**self.plan.settings(), "expected_size": self.expected_size}
