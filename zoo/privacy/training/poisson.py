"""Poisson samples: the secret users of a private step."""

from fractions import Fraction

import numpy as np
import torch
from torch import Tensor

from zoo.privacy.randomness.bernoulli import sample_entries
from zoo.privacy.randomness.noise import NoiseSource


class PoissonSampler:
    """Draw the users of a private step: each with the same probability, independent of all others and of all steps.

    Amplification by sampling is proved for this law (Abadi et al., CCS 2016; the events of `zoo.privacy.accounting.events`).
    Batches of a fixed size, shuffled ones included, follow other laws and hide less. Draws are exact, from integers (see
    `zoo.privacy.randomness.bernoulli.sample_entries`), and cost time in proportion to the drawn users.

    The sample hides which users a step read, for any neighbouring relation with a fixed set of users; alone it protects no
    user. A sample and its size must not be logged, stored or shown: they remove the amplification.

    Users include those without data; their number and the rate are public. Samples are secret if the source is the operating
    system's.
    """

    def __init__(self, num_users: int, rate: float, source: NoiseSource) -> None:
        if type(num_users) is not int or num_users < 1:
            raise ValueError(f"num_users must be an integer >= 1, got {num_users!r}.")
        if not 0 < rate <= 1:
            raise ValueError(f"rate must lie in (0, 1], got {rate!r}.")
        self.num_users, self.rate, self._source = num_users, rate, source

    @property
    def expected_size(self) -> float:
        """Mean number of users in a step: public, and the denominator of a sum over a sample, whose own size is secret."""
        return self.rate * self.num_users

    def sample(self) -> Tensor:
        """Return the users of one step, ascending, int64, ``(sampled,)``; possibly none, which counts as a step too."""
        share = Fraction(self.rate)
        if share <= Fraction(1, 2):
            users = sample_entries(self.num_users, share, self._source)
        else:
            left_out = sample_entries(self.num_users, 1 - share, self._source)
            users = np.delete(np.arange(self.num_users, dtype=np.int64), left_out)
        return torch.from_numpy(users)
