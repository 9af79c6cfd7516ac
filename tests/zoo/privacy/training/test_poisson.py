"""The law of a sample. Seeds are fixed; each test says how often a correct sampler fails with a fresh one."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import binom, chisquare

from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.poisson import PoissonSampler

ALPHA = 1e-6
DRAWS = 1500


def drawn(num_users: int, rate: float) -> np.ndarray:
    """Who is in each of many samples, shape ``(draws, users)``."""
    sampler = PoissonSampler(num_users, rate, NoiseSource.seeded(0))
    present = np.zeros((DRAWS, num_users), dtype=bool)
    for row in present:
        row[sampler.sample().numpy()] = True
    return present


def fits(counts: np.ndarray, probabilities: np.ndarray) -> bool:
    """Chi-square test of counts, the rare ones taken together."""
    expected = counts.sum() * probabilities
    rare = expected < 5
    counts, expected = np.append(counts[~rare], counts[rare].sum()), np.append(expected[~rare], expected[rare].sum())
    kept = expected > 1e-9
    assert not counts[~kept].any()
    return bool(chisquare(counts[kept], expected[kept]).pvalue > ALPHA)


@pytest.mark.thorough
@pytest.mark.parametrize("rate", [0.1, 0.5, 0.8])
def test_each_user_is_drawn_at_the_rate_and_independent_of_the_others(rate: float) -> None:
    # All sets of four users, and the size of a sample of thirty: fails with probability 2e-6 per rate.
    sets = np.bincount(drawn(4, rate) @ (1 << np.arange(4)), minlength=16)
    sizes = np.array([bin(number).count("1") for number in range(16)])
    assert fits(sets, rate**sizes * (1 - rate) ** (4 - sizes))
    assert fits(np.bincount(drawn(30, rate).sum(1), minlength=31), binom.pmf(np.arange(31), 30, rate))


def test_steps_are_independent() -> None:
    # Agreement of successive samples, within 6 standard deviations: fails with probability below 1e-8.
    centred = (drawn(50, 0.25) - 0.25) / math.sqrt(0.25 * 0.75)
    agreement = (centred[1:] * centred[:-1]).sum() / math.sqrt(centred[1:].size)
    assert abs(agreement) < 6


def test_a_sample_rises_and_may_be_empty() -> None:
    sampler = PoissonSampler(3, 0.1, NoiseSource.seeded(0))
    samples = [sampler.sample() for _ in range(200)]
    assert all(sample.dtype == torch.int64 and sample.ndim == 1 for sample in samples)
    assert all(bool((sample.diff() > 0).all()) for sample in samples)
    assert any(len(sample) == 0 for sample in samples)  # fails with probability 3e-114
    assert PoissonSampler(3, 1.0, NoiseSource.os()).sample().tolist() == [0, 1, 2]
    assert sampler.expected_size == pytest.approx(0.3)


def test_a_large_set_of_users_costs_what_is_drawn() -> None:
    words = []

    def counted(count: int) -> np.ndarray:
        words.append(count)
        return np.random.default_rng(len(words)).integers(0, 2**63, count, dtype=np.uint64)

    sample = PoissonSampler(10**6, 1e-4, NoiseSource(counted, private=False)).sample()
    assert 40 < len(sample) < 160  # six standard deviations
    assert sum(words) < 400, "random words for those who are drawn, not for all"


def test_samples_of_two_sources_differ() -> None:
    samplers = [PoissonSampler(1000, 0.5, NoiseSource.os()) for _ in range(2)]
    assert not torch.equal(samplers[0].sample(), samplers[1].sample())


@pytest.mark.parametrize(("num_users", "rate"), [(0, 0.5), (2.0, 0.5), (5, 0.0), (5, 1.1), (5, float("nan"))])
def test_what_is_no_sample_is_refused(num_users: int, rate: float) -> None:
    with pytest.raises(ValueError, match=r"num_users must be|rate must lie"):
        PoissonSampler(num_users, rate, NoiseSource.os())
