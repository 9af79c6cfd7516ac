"""Steps of a critic: the sampled users, the noise and the remaining steps, for each mechanism."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.clipped_sum import Losses
from zoo.privacy.training.generator_privacy import GeneratorPrivacy
from zoo.privacy.training.poisson import PoissonSampler
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.privacy.training.published_readings import FirstLayerNoise, UpstreamNoise
from zoo.privacy.training.sanitised_gradient import SanitisedGradient

CriticStep = Callable[[Tensor, Losses], None]
"""Map a sample of users and their losses to gradients in ``.grad`` of the critic's parameters."""


class CriticSteps:
    """Draw the users of each step, fill the critic's gradients, and count steps."""

    # Set by `begin`. `gradient` protects users only if it is a `PrivateGradient`.
    gradient: CriticStep
    sampler: PoissonSampler  # draws the users of each step
    _noise: NoiseSource  # for gradient and sampler; cannot be copied, so it is set after the network's copy

    def __init__(self, privacy: GeneratorPrivacy) -> None:
        self.privacy = privacy
        self.taken = 0  # steps so far, over all resumed runs
        # Noisy gradient that counts its steps, set by `begin`; None without a guarantee.
        self.noisy: PrivateGradient | SanitisedGradient | None = None

    def begin(self, num_users: int, critic: nn.Module, first: nn.Module, others: Sequence[nn.Module]) -> None:
        """Compute the noise; with ``first_layer_only`` freeze the other parts at their initial values.

        Args:
            num_users: Public number of users.
            critic: The whole critic.
            first: Critic's layer that reads rows.
            others: All other parts of the critic.

        Raises:
            ValueError: If the settings do not fit the number of users.
        """
        self._noise = NoiseSource.of(self.privacy.noise_seed)
        self.sampler = PoissonSampler(num_users, self.privacy.rate(num_users), self._noise)
        self.gradient = self._gradient_of(critic, first, others)
        if self.privacy.mechanism == "gs_wgan":
            self.noisy = SanitisedGradient(self.privacy.sanitisation_plan(num_users), self._noise)
        elif isinstance(self.gradient, PrivateGradient):
            self.noisy = self.gradient

    def _gradient_of(self, critic: nn.Module, first: nn.Module, others: Sequence[nn.Module]) -> CriticStep:
        mechanism, size = self.privacy.mechanism, self.sampler.expected_size
        if mechanism in ("none", "gs_wgan"):
            return lambda users, losses: _ordinary_gradient(users, losses, size)
        plan = self.privacy.training_plan(self.sampler.num_users)
        if mechanism == "upstream_noise":
            return UpstreamNoise(critic, first, plan, size, self._noise)
        if mechanism == "first_layer_only":
            for part in others:
                part.requires_grad_(False)
        private = PrivateGradient(critic, plan, size, self._noise)
        if mechanism == "first_layer_noise":
            return FirstLayerNoise([parameter for part in others for parameter in part.parameters()], private)
        return private

    @property
    def left(self) -> int:
        """Number of remaining steps."""
        if isinstance(self.noisy, PrivateGradient):
            return self.noisy.steps_left
        if self.noisy is not None and self.noisy.steps_left < 1:
            return 0  # no generator step is left
        return self.privacy.steps - self.taken

    def sample(self) -> Tensor:
        """Return the users whose rows a step reads, ascending, ``(sampled,)``."""
        if self.privacy.openly_sampled:
            # From the global random state, which checkpoints store, so that a resumed run equals an unbroken one.
            return (torch.rand(self.sampler.num_users) < self.sampler.rate).nonzero().squeeze(1)
        return self.sampler.sample()

    def random_users(self) -> Tensor:
        """Return users to generate rows of, with or without ratings, ``(sample_size,)``."""
        num_users, count = self.sampler.num_users, self.privacy.sample_size
        if self.privacy.openly_sampled:
            return torch.randint(num_users, (count,))
        return torch.from_numpy(self._noise.integers(num_users, count))

    def state_dict(self) -> dict[str, Any]:
        """Return the counted steps, and the position of seeded noise, as plain values."""
        private = None if self.noisy is None else self.noisy.state_dict()
        counts = {"mechanism": self.privacy.mechanism, "critic_steps": self.taken}
        return {**counts, "private": private, "place": self._noise.position if hasattr(self, "_noise") else None}

    def load_state_dict(self, state: Mapping[str, Any], *, going_on: bool) -> None:
        """Resume counting; counted steps are never forgotten, here or there.

        Without ``going_on`` (resumed training) an older epoch may be loaded too; steps taken since then still count.

        Raises:
            ValueError: If the state is of another mechanism or other settings, or has no position of its seeded noise.
        """
        self.taken = max(self.taken, state["critic_steps"])
        private, theirs = state["private"], state["mechanism"]
        if going_on and hasattr(self, "_noise") and not self._noise.private:
            self._go_on_drawing(state)
        if self.noisy is None:
            return
        if private and theirs != self.privacy.mechanism:
            raise ValueError(
                f"The checkpoint's mechanism is {theirs}, this run's is {self.privacy.mechanism}. Train anew."
            )
        if private and not going_on:
            private = {**private, "steps_taken": max(private["steps_taken"], self.noisy.steps_taken)}
        self.noisy.load_state_dict(private)

    def _go_on_drawing(self, state: Mapping[str, Any]) -> None:
        """Continue the noise stream that an unbroken run with this seed would have."""
        if (place := state.get("place")) is not None:
            self._noise.skip_to(place)
        elif "place" not in state and state["critic_steps"] and self.privacy.mechanism != "none":
            raise ValueError("The checkpoint (before 0.3) has no position of its seeded noise. Train anew.")


def _ordinary_gradient(users: Tensor, losses: Losses, size: float) -> None:
    if len(users):
        (losses(users).sum() / size).backward()  # type: ignore[no-untyped-call]
