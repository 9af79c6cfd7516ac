"""Two readings of PPGenCDR's selective privacy without protection, kept for measurements and refutation.

Liao et al. (AAAI 2023), equations 2 and 3, allow several readings. These two leave a path from the ratings to the generator
that no noise covers; `docs/privacy.md` and the tests have examples.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.clipped_sum import Losses
from zoo.privacy.training.dp_sgd import TrainingPlan
from zoo.privacy.training.noisy_steps import clip_rows, fresh_generator
from zoo.privacy.training.private_gradient import PrivateGradient


class FirstLayerNoise:
    """Noise on the gradient of the layers that read the row, none on the others. No guarantee.

    The other layers learn from the ratings without noise, and the generator's gradient passes through them: with a second layer
    that is 0 as long as all rows are empty, one rating is certainly visible, whatever the noise. ``noisy`` takes the step of
    the rest.
    """

    def __init__(self, others: Sequence[nn.Parameter], noisy: PrivateGradient) -> None:
        self.others, self.noisy = list(others), noisy

    def __call__(self, users: Tensor, losses: Losses) -> None:
        """Fill ``.grad`` of all parameters; users and losses as of `PrivateGradient`."""
        clean = [torch.zeros_like(parameter) for parameter in self.others]
        if len(users) and self.others:
            clean = list(torch.autograd.grad(losses(users).sum() / self.noisy.expected_size, self.others))
        try:
            for parameter in self.others:
                parameter.requires_grad_(False)
            self.noisy(users, losses)
        finally:
            for parameter, gradient in zip(self.others, clean, strict=True):
                parameter.requires_grad_(True)
                parameter.grad = gradient


class UpstreamNoise:
    """Noise on the gradient of the first layer's outputs, which is then multiplied by the rows. No guarantee.

    The gradient of that layer is ``(clipped + noise) r^T``: exactly 0 for every item without a rating in the batch. Arguments
    are those of `PrivateGradient`, and the first layer.
    """

    def __init__(
        self, module: nn.Module, first: nn.Module, plan: TrainingPlan, expected_size: float, noise: NoiseSource
    ) -> None:
        self.module, self.first, self.plan, self.expected_size = module, first, plan, expected_size
        self._noise = noise

    def __call__(self, users: Tensor, losses: Losses) -> None:
        """Fill ``.grad`` of all parameters; users and losses as of `PrivateGradient`."""
        self.module.zero_grad(set_to_none=False)
        if not len(users):
            return

        def watch(_layer: nn.Module, _inputs: object, output: Tensor) -> None:
            output.register_hook(self._with_noise)  # type: ignore[no-untyped-call]

        handle = self.first.register_forward_hook(watch)
        try:
            (losses(users).sum() / self.expected_size).backward()  # type: ignore[no-untyped-call]
        finally:
            handle.remove()

    def _with_noise(self, gradient: Tensor) -> Tensor:
        # A row for each user, (batch, width): the loss is divided by the expected size, but parts are clipped without it.
        each = clip_rows(gradient * self.expected_size, self.plan.clip)
        noise = torch.from_numpy(fresh_generator(self._noise).standard_normal(tuple(each.shape)))
        noisy: Tensor = (each + noise.to(each).mul_(self.plan.noise_std)) / self.expected_size
        return noisy
