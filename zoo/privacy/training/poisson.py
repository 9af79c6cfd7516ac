"""Poisson samples: the secret choice of the users that a private step reads."""

from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from zoo.privacy.randomness.bernoulli import sample_entries
from zoo.privacy.randomness.noise import NoiseSource


class PoissonSampler:
    """Draws the users of a private step: each with the same probability, independent of all others and of all steps.

    That is what amplification by sampling is proved for (Abadi et al., CCS 2016; the events of `zoo.privacy.accounting.events`).
    Batches of a fixed size, shuffled ones included, are other laws and hide less. Exactly so: drawn from integers, see
    `zoo.privacy.randomness.bernoulli.sample_entries`, at the cost of the users that are drawn.

    Hides which users a step read, for any neighbouring relation that keeps the set of users; protects nobody on its own.
    A sample must not be logged, stored or shown, nor its size: whoever knows who took part gets no amplification.

    Users to draw among are those with or without data; their number and the rate are public. Samples are secret if the source
    is the operating system's.
    """

    def __init__(self, num_users: int, rate: float, source: NoiseSource) -> None:
        if type(num_users) is not int or num_users < 1:
            raise ValueError(f"num_users must be an integer of at least 1, got {num_users!r}.")
        if not 0 < rate <= 1:
            raise ValueError(f"rate must lie in (0, 1], the share of the users in a step, got {rate!r}.")
        self.num_users, self.rate, self._source = num_users, rate, source

    @property
    def expected_size(self) -> float:
        """Users in a step on average; public, and what a sum over a sample is divided by. Its own size is secret."""
        return self.rate * self.num_users

    def sample(self) -> Tensor:
        """The users of one step, rising, int64, shape ``(sampled,)``; empty at times, and a step is taken all the same."""
        share = Fraction(self.rate)
        if share <= Fraction(1, 2):
            users = sample_entries(self.num_users, share, self._source)
        else:
            left_out = sample_entries(self.num_users, 1 - share, self._source)
            users = np.delete(np.arange(self.num_users, dtype=np.int64), left_out)
        return torch.from_numpy(users)
