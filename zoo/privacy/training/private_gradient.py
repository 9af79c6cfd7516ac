"""Private gradients: the noisy gradients that an optimiser reads in a step of DP-SGD, and the count of such steps."""

import math
import secrets

import numpy as np
import torch
from torch import Tensor, nn

from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.clipped_sum import Losses, check_module, clipped_sum, trainable
from zoo.privacy.training.dp_sgd import TrainingPlan
from zoo.privacy.training.noisy_steps import NoisySteps, fresh_generator, with_noise


class PrivateGradient(NoisySteps[TrainingPlan]):
    """Compute gradients of a module that hide each user's part: the Gaussian mechanism on a Poisson sample.

    A call takes the losses of a sample of users, clips each user's gradient jointly over all trained parameters to
    ``plan.clip``, adds Gaussian noise of standard deviation ``plan.noise_std`` to every coordinate of the sum, divides by the
    expected sample size and stores the result in ``.grad`` (Abadi et al., *Deep Learning with Differential Privacy*, CCS 2016,
    Algorithm 1; by ghost clipping, see `clipped_sum`). An empty sample is a step of noise alone, indistinguishable from others.

    - Privacy unit: one user, all of their data that losses read.
    - Relation: ``plan.relation``. A zeroed-out user must contribute nothing: the caller makes the loss of users without data 0
      (``losses * has_data``), or a bias gives them a gradient and only ``replace_one_user`` holds.
    - Sensitivity of the sum, L2: ``plan.clip`` under ``zero_out_one_user``, twice that under ``replace_one_user``.
    - Allowed use of the output: any, such as any optimiser, and everything computed from the trained parameters, passes over
      generated rows included. Losses, the sample, its size and norms must not be logged.

    The guarantee is that of `events`. It assumes that every sample comes from `PoissonSampler` at ``plan.rate`` with private
    entropy, that initial parameters do not depend on the data, that settings are public, that layers' norms are right, and that
    a user's data affect that user's loss alone. Neither the sample's size nor a place in it may affect a loss. Every step checks
    the norms of two users, and effects of another user's data with the probability of `check_alone`, not of data outside of
    the sample. The first step with users and a random quarter of the others check effects of size and place, if draws are
    one row per user (`check_alone`).

    Every call makes a new noise generator, so neither the global random state nor a checkpoint contains any of it. Torch's random
    numbers in losses come from it too: a known seed, or how far it moved, would reveal places and the sample's size. The
    guarantee is proved for exact real arithmetic, not against floating-point or timing attacks.

    Args:
        module: A module that `check_module` accepts.
        plan: Noise, clip and number of steps.
        expected_size: `PoissonSampler.expected_size`, rate times number of users: public, never a sample's own size.
        noise: Source of the noise.
    """

    def __init__(self, module: nn.Module, plan: TrainingPlan, expected_size: float, noise: NoiseSource) -> None:
        if not (expected_size > 0 and math.isfinite(expected_size)):
            raise ValueError(f"expected_size must be finite and positive, got {expected_size!r}.")
        check_module(module)
        super().__init__(plan, noise)
        self.module, self.expected_size = module, float(expected_size)
        self._resized = False  # whether a sample was checked with another size

    def __call__(self, users: Tensor, losses: Losses) -> None:
        """Take one step: replace ``.grad`` of all trained parameters.

        The step counts even if losses fail, because an error may depend on the data too.

        Args:
            users: The sample, ascending without repetition, int64, ``(sampled,)``; may be empty.
            losses: Function of `clipped_sum`; called several times, with any users in any order, not for an empty sample.

        Raises:
            BudgetSpentError: If all planned steps were taken, or as many as `limit` allows.
            ValueError: If the sample, the losses or the module do not have this form.
            RuntimeError: If autocast or automatic optimization of the module is on, several processes train, or the forward
                pass does not have this form.
            FloatingPointError: If a loss or a gradient is not finite.
        """
        self._check_step(*{parameter.device.type for parameter in self.module.parameters()})
        if users.ndim != 1 or users.dtype != torch.int64 or not bool((users[1:] > users[:-1]).all()):
            raise ValueError(
                f"users has {users.dtype} and shape {tuple(users.shape)}. Allowed: int64 (sampled,), strictly rising."
            )
        check_module(self.module)
        if getattr(
            self.module, "automatic_optimization", False
        ):  # of Lightning: it adds the gradient of a returned loss
            raise RuntimeError("automatic_optimization is True. Set it to False.")
        self._taken += 1
        sums: dict[str, Tensor] = {}
        generator = fresh_generator(self._noise)
        if len(users):
            jumped = np.random.Generator(generator.bit_generator.jumped())  # type: ignore[attr-defined]
            seed = int.from_bytes(jumped.bytes(16), "little")
            # In every step: the losses of the first step prove nothing about later ones. With another size in a quarter.
            resized = not self._resized or secrets.randbelow(4) == 0
            sums = clipped_sum(self.module, losses, users, self.plan.clip, check=True, resized=resized, seed=seed)
            self._resized = True
        for name, parameter in trainable(self.module).items():
            total = with_noise(sums.get(name, torch.zeros_like(parameter)), self.plan.noise_std, generator)
            parameter.grad = total.div_(self.expected_size).to(parameter.dtype)

    def settings(self) -> dict[str, float | str]:
        """Return the plan's settings and the denominator."""
        return {**self.plan.settings(), "expected_size": self.expected_size}
