"""Steps of a critic: whose rows each reads, where it takes noise, and how many are left, for each mechanism."""

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
"""A sample of users and their losses in, gradients left in ``.grad`` of the critic's parameters."""


class CriticSteps:
    """Draws the users of each step, fills the critic's gradients, and counts."""

    # All are there once `begin` was called. A `PrivateGradient` alone protects somebody.
    gradient: CriticStep
    sampler: PoissonSampler  # of the users of a step
    _noise: NoiseSource  # of both; not before, since whoever trains is copied until then

    def __init__(self, privacy: GeneratorPrivacy) -> None:
        self.privacy = privacy
        self.taken = 0  # steps so far, over all runs that this one resumed
        # What has the noise and counts it, once `begin` was called; None where nothing is claimed.
        self.noisy: PrivateGradient | SanitisedGradient | None = None

    def begin(self, num_users: int, critic: nn.Module, first: nn.Module, others: Sequence[nn.Module]) -> None:
        """Compute the noise; with ``first_layer_only`` freeze the other parts as they were drawn.

        ``first`` is the critic's layer that reads rows, ``others`` are all its other parts. The number of users is public; a
        ValueError if the settings do not fit it.
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
        """Steps that there still may be."""
        if isinstance(self.noisy, PrivateGradient):
            return self.noisy.steps_left
        if self.noisy is not None and self.noisy.steps_left < 1:
            return 0  # of the generator's, so there is nothing to train for
        return self.privacy.steps - self.taken

    def sample(self) -> Tensor:
        """Whose rows a step reads, rising, shape ``(sampled,)``."""
        if self.privacy.openly_sampled:
            # From the global random state, which checkpoints keep: a resumed run equals an unbroken one.
            return (torch.rand(self.sampler.num_users) < self.sampler.rate).nonzero().squeeze(1)
        return self.sampler.sample()

    def anybody(self) -> Tensor:
        """Whose rows to generate: any users, whether or not they have rated, shape ``(sample_size,)``."""
        num_users, count = self.sampler.num_users, self.privacy.sample_size
        if self.privacy.openly_sampled:
            return torch.randint(num_users, (count,))
        return torch.from_numpy(self._noise.integers(num_users, count))

    def state_dict(self) -> dict[str, Any]:
        """What is spent, and how far noise with a seed has come, as plain values."""
        private = None if self.noisy is None else self.noisy.state_dict()
        about = {"mechanism": self.privacy.mechanism, "critic_steps": self.taken}
        return {**about, "private": private, "place": self._noise.position if hasattr(self, "_noise") else None}

    def load_state_dict(self, state: Mapping[str, Any], *, going_on: bool) -> None:
        """Go on counting; what is spent is never forgotten, here or there.

        Unless training is ``going_on`` from it, an older epoch may be looked at too; the weights of a later one are here from
        then on, and cost what they cost. A ValueError if the state is of another mechanism or of other settings, or does not
        say how far its noise with a seed had come.
        """
        self.taken = max(self.taken, state["critic_steps"])
        private, theirs = state["private"], state["mechanism"]
        if going_on and hasattr(self, "_noise") and not self._noise.private:
            self._go_on_drawing(state)
        if self.noisy is None:
            return
        if private and theirs != self.privacy.mechanism:
            raise ValueError(f"The checkpoint was trained with {theirs}, not {self.privacy.mechanism}; train anew.")
        if private and not going_on:
            private = {**private, "steps_taken": max(private["steps_taken"], self.noisy.steps_taken)}
        self.noisy.load_state_dict(private)

    def _go_on_drawing(self, state: Mapping[str, Any]) -> None:
        """Draw what an unbroken run with this seed would; other noise was drawn where the other run had none."""
        if (place := state.get("place")) is not None:
            self._noise.skip_to(place)
        elif "place" not in state and state["critic_steps"] and self.privacy.mechanism != "none":
            raise ValueError(
                "The checkpoint does not say how far its noise with a seed had come, as none before version 0.3 does: going on "
                "would draw the same noise again. Train anew."
            )


def _ordinary_gradient(users: Tensor, losses: Losses, size: float) -> None:
    if len(users):
        (losses(users).sum() / size).backward()  # type: ignore[no-untyped-call]
