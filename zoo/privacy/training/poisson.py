"""Poisson samples: the secret choice of the users that a private step reads."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from zoo.privacy.randomness.bernoulli import sampled_cells
from zoo.privacy.randomness.noise import NoiseSource


class PoissonSampler:
    """Draws the users of a private step: each with the same probability, independent of all others and of all steps.

    That is what amplification by sampling is proved for (Abadi et al., CCS 2016; the events of `zoo.privacy.accounting.events`).
    Batches of a fixed size, shuffled ones included, are other laws and hide less. Exactly so: drawn from integers, see
    `zoo.privacy.randomness.bernoulli.sampled_cells`, at the cost of the users that are drawn.

    Hides which users a step read, for any neighbouring relation that keeps the set of users; protects nobody on its own.
    A sample must not be logged, stored or shown, nor its size: whoever knows who took part gets no amplification.

    Attributes:
        num_users: Users to draw among, with or without data; public.
        rate: Probability of each; public.
        private: Whether a guarantee may rest on the samples, which is so with entropy of the operating system.

    Args:
        num_users: At least 1.
        rate: In (0, 1].
        source: Where the random integers come from.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(self, num_users: int, rate: float, source: NoiseSource) -> None:
        if type(num_users) is not int or num_users < 1:
            raise ValueError(f"num_users must be an integer of at least 1, got {num_users!r}.")
        if not 0 < rate <= 1:
            raise ValueError(f"rate must lie in (0, 1], the share of the users in a step, got {rate!r}.")
        self.num_users = num_users
        self.rate = rate
        self._source = source

    @property
    def expected_size(self) -> float:
        """Users in a step on average; public, and what a sum over a sample is divided by. Its own size is secret."""
        return self.rate * self.num_users

    @property
    def private(self) -> bool:
        """Whether the samples are secret; those of a seed are not."""
        return self._source.private

    def sample(self) -> Tensor:
        """The users of one step, rising, int64, shape ``(sampled,)``; empty at times, and a step is taken all the same."""
        share = Fraction(self.rate)
        if share <= Fraction(1, 2):
            users = sampled_cells(self.num_users, share, self._source)
        else:
            left_out = sampled_cells(self.num_users, 1 - share, self._source)
            users = np.delete(np.arange(self.num_users, dtype=np.int64), left_out)
        return torch.from_numpy(users)
