"""Steps of a critic whose gradients have noise: which parts of it take noise, for each mechanism with any."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor, nn

from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.clipped_sum import Losses
from zoo.privacy.training.generator_privacy import GeneratorPrivacy
from zoo.privacy.training.poisson import PoissonSampler
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.privacy.training.published_readings import FirstLayerNoise, UpstreamNoise

CriticStep = Callable[[Tensor, Losses], None]
"""A sample of users and their losses in, gradients left in ``.grad`` of the critic's parameters."""


def noisy_steps(
    privacy: GeneratorPrivacy,
    critic: nn.Module,
    first: nn.Module,
    others: Sequence[nn.Module],
    sampler: PoissonSampler,
    noise: NoiseSource,
) -> PrivateGradient | FirstLayerNoise | UpstreamNoise:
    """What fills a critic's gradients from the losses of a sample of users; a `PrivateGradient` alone protects somebody.

    Args:
        privacy: Its mechanism: ``private_d``, ``first_layer_only``, ``first_layer_noise`` or ``upstream_noise``.
        critic: What is trained.
        first: Its layer that reads rows.
        others: All its other parts; frozen here, as they were drawn, for ``first_layer_only``.
        sampler: Draws the users of a step.
        noise: Where the noise comes from.

    Raises:
        ValueError: If the settings do not fit the number of users.
    """
    plan, size = privacy.training_plan(sampler.num_users), sampler.expected_size
    if privacy.mechanism == "upstream_noise":
        return UpstreamNoise(critic, first, plan, size, noise)
    if privacy.mechanism == "first_layer_noise":
        clean = [parameter for part in others for parameter in part.parameters()]
        return FirstLayerNoise(critic, clean, PrivateGradient(critic, plan, size, noise))
    if privacy.mechanism == "first_layer_only":
        for part in others:
            part.requires_grad_(False)
    return PrivateGradient(critic, plan, size, noise)
