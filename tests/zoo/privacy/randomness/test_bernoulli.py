"""Exact draws of what is kept. Seeds are fixed; each test states how often a correct sampler with a fresh seed fails."""

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array
from scipy.stats import binom, chi2, chisquare

from zoo.privacy.randomness import bernoulli as module
from zoo.privacy.randomness.bernoulli import bernoulli, entry_numbers, sample_entries, sample_zeros
from zoo.privacy.randomness.noise import NoiseSource

ALMOST_ONE = 2**63 - 1


def scripted(*words: int) -> NoiseSource:
    """A source whose integers below 2^63 are these, in order, and then zeros."""
    given_words: Iterator[int] = iter(words)
    return NoiseSource(lambda n: np.array([next(given_words, 0) for _ in range(n)], dtype=np.uint64), private=False)


def patterns(kept: np.ndarray, width: int) -> np.ndarray:
    """How often each subset of a group of ``width`` cells was kept, shape ``(2^width,)``."""
    return np.bincount(kept.reshape(-1, width) @ (1 << np.arange(width)), minlength=2**width)


def expected_patterns(probabilities: np.ndarray, groups: int) -> np.ndarray:
    bits = np.arange(2 ** len(probabilities))[:, None] >> np.arange(len(probabilities)) & 1
    return groups * np.where(bits, probabilities, 1 - probabilities).prod(axis=1)


@pytest.mark.parametrize("probability", [Fraction(1, 3), 0.5, 0.9999, 1e-3])
def test_bernoulli_draws_have_their_probability(probability: float | Fraction) -> None:
    # Within 6 standard deviations: fails with probability below 1e-8.
    count = 400_000
    true = int(bernoulli(probability, count, NoiseSource.seeded(1)).sum())
    mean = count * float(probability)
    assert abs(true - mean) < 6 * math.sqrt(mean * (1 - float(probability)))


def test_certain_bernoulli_draws_need_no_randomness() -> None:
    assert bernoulli(1.0, 5, scripted()).all()
    assert not bernoulli(0.0, 5, scripted()).any()


def test_a_bernoulli_draw_that_one_word_does_not_decide() -> None:
    # 2^63 / 3 = whole + 2/3: a word equal to whole is true with probability 2/3, by the next word.
    whole, rest = 2**63 // 3, 2**64 // 3
    assert bernoulli(Fraction(1, 3), 1, scripted(whole - 1)).tolist() == [True]
    assert bernoulli(Fraction(1, 3), 1, scripted(whole + 1)).tolist() == [False]
    assert bernoulli(Fraction(1, 3), 1, scripted(whole, rest - 1)).tolist() == [True]
    assert bernoulli(Fraction(1, 3), 1, scripted(whole, rest + 1)).tolist() == [False]
    assert bernoulli(0.5, 1, scripted(2**62)).tolist() == [False]  # decided: nothing is left over


@pytest.mark.parametrize("probability", [0.5, 0.3, 0.02, Fraction(1, 7)])
def test_every_subset_of_cells_is_as_likely_as_by_one_draw_per_cell(probability: float | Fraction) -> None:
    # Chi-square over the 32 subsets of five neighbouring cells; fails with probability 1e-6.
    groups = 60_000
    kept = np.zeros(5 * groups, dtype=np.int64)
    kept[sample_entries(len(kept), probability, NoiseSource.seeded(2))] = 1
    expected = expected_patterns(np.full(5, float(probability)), groups)
    common = expected >= 5
    observed = np.append(patterns(kept, 5)[common], patterns(kept, 5)[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    assert ((observed - wanted) ** 2 / np.maximum(wanted, 1e-9)).sum() < chi2.isf(1e-6, len(wanted) - 1)


@pytest.mark.thorough
@pytest.mark.parametrize(("num_cells", "probability"), [(1000, 0.004), (70, 0.5), (1, 0.5), (10_000, 0.001)])
def test_as_many_are_kept_as_the_binomial_law_says(num_cells: int, probability: float) -> None:
    # Chi-square against scipy's probabilities; fails with probability 1e-6.
    source = NoiseSource.seeded(3)
    counts = np.bincount([len(sample_entries(num_cells, probability, source)) for _ in range(3000)])
    expected = 3000 * binom.pmf(np.arange(len(counts)), num_cells, probability)
    common = expected >= 5
    observed = [*counts[common], counts[~common].sum()]
    wanted = [*expected[common], 3000 - expected[common].sum()]
    if wanted[-1] < 1e-6:
        observed, wanted = observed[:-1], wanted[:-1]
    assert chisquare(observed, np.array(wanted) * sum(observed) / sum(wanted)).pvalue > 1e-6


@pytest.mark.parametrize(("trials", "share"), [(64, 0.5), (237, 0.27), (5000, 0.0064), (3, 0.25)])
def test_binomial_numbers_of_blocks(trials: int, share: float) -> None:
    # Chi-square; fails with probability 1e-6.
    numbers = module._binomials(trials, Fraction(share), 100_000, NoiseSource.seeded(4))
    expected = 100_000 * binom.pmf(np.arange(trials + 1), trials, share)
    common = expected >= 5
    observed = np.bincount(numbers, minlength=trials + 1)
    statistic = ((observed - expected)[common] ** 2 / expected[common]).sum()
    assert statistic < chi2.isf(1e-6, int(common.sum()))
    assert observed[~common].sum() < 100 + 10 * expected[~common].sum()


@pytest.mark.parametrize(
    ("trials", "share"), [(1, Fraction(1, 3)), (64, Fraction(1, 2)), (40, Fraction(3, 7)), (300, Fraction(1, 10))]
)
def test_bounds_enclose_the_exact_probabilities(trials: int, share: Fraction) -> None:
    low, high = module._word_bounds(trials, share)
    total = Fraction(0)
    for number, (below, above) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
        total += math.comb(trials, number) * share**number * (1 - share) ** (trials - number)
        step = min(total * 2**63, Fraction(ALMOST_ONE))
        assert below <= step <= above <= below + 1
    assert total == 1 or total * 2**63 >= ALMOST_ONE


def test_words_between_the_bounds_are_decided_by_more_words() -> None:
    # One trial at 1/3: no success below 2/3 = (whole + 1/3) / 2^63; the next word decides at a third of it.
    whole, rest = 2**64 // 3, 2**63 // 3
    third = Fraction(1, 3)
    assert module._binomials(1, third, 1, scripted(whole - 1)).tolist() == [0]
    assert module._binomials(1, third, 1, scripted(whole + 1)).tolist() == [1]
    assert module._binomials(1, third, 1, scripted(whole, rest - 1)).tolist() == [0]
    assert module._binomials(1, third, 1, scripted(whole, rest + 1)).tolist() == [1]


def test_words_that_straddle_long_are_decided_in_the_end() -> None:
    # 1/3 in binary is 0.0101...: these words agree with 2/3 for 630 bits, and then fall short of it or go beyond.
    digits = (2 << 630) // 3
    words = [digits >> (63 * (9 - i)) & ALMOST_ONE for i in range(10)]
    assert module._binomials(1, Fraction(1, 3), 1, scripted(*words, 0)).tolist() == [0]
    assert module._binomials(1, Fraction(1, 3), 1, scripted(*words, ALMOST_ONE, ALMOST_ONE)).tolist() == [1]


def test_the_last_word_is_decided_too() -> None:
    assert module._binomials(3, Fraction(1, 2), 1, scripted(ALMOST_ONE)).tolist() == [3]
    big = module._binomials(10_000, Fraction(1, 1000), 1, scripted(ALMOST_ONE, *[ALMOST_ONE] * 20))
    assert 80 < big[0] < 400  # 2^-63 of all are above 51


def test_cells_of_a_block_are_distinct_and_every_choice_as_likely() -> None:
    # Chi-square over the 6 pairs of 4 cells; fails with probability 1e-6.
    counts = np.full(30_000, 2)
    drawn = module._distinct_entries(4, counts, NoiseSource.seeded(5))
    assert (np.diff(drawn) > 0).all()
    first, second = (drawn.reshape(-1, 2) - 4 * np.arange(30_000)[:, None]).T
    assert (first >= 0).all()
    assert (second < 4).all()
    pairs = np.bincount(4 * first + second)
    assert chisquare(pairs[pairs > 0]).pvalue > 1e-6
    assert (pairs > 0).sum() == 6


def test_a_whole_block_can_be_chosen() -> None:
    assert module._distinct_entries(5, np.array([5, 0, 5]), NoiseSource.seeded(6)).tolist() == [
        0, 1, 2, 3, 4, 10, 11, 12, 13, 14,
    ]  # fmt: skip


@given(num_cells=st.integers(0, 3000), probability=st.floats(0, 0.5), seed=st.integers(0, 9))
def test_kept_cells_rise_and_stay_inside(num_cells: int, probability: float, seed: int) -> None:
    kept = sample_entries(num_cells, probability, NoiseSource.seeded(seed))
    assert (np.diff(kept) > 0).all()
    assert len(kept) == 0 or 0 <= kept[0] <= kept[-1] < num_cells


def test_a_matrix_beyond_memory_costs_what_is_kept() -> None:
    # 1e15 cells, 1000 expected: within 8 standard deviations, fails with probability below 1e-14.
    kept = sample_entries(10**15, 1e-12, NoiseSource.seeded(7))
    assert abs(len(kept) - 1000) < 8 * math.sqrt(1000)
    assert abs(kept.mean() - 5e14) < 8 * 1e15 / math.sqrt(12 * len(kept))
    assert len(sample_entries(10**15, 1e-30, NoiseSource.seeded(7))) == 0


def test_cells_of_entries() -> None:
    matrix = csr_array(np.array([[0, 1, 1], [0, 0, 0], [1, 0, 0], [0, 0, 1]]))
    assert entry_numbers(matrix, slice(0, 4)).tolist() == [1, 2, 6, 11]
    assert entry_numbers(matrix, slice(1, 3)).tolist() == [3]
    assert entry_numbers(matrix, slice(1, 2)).tolist() == []


@pytest.mark.parametrize("per_chunk", [1, 1000, 2**20])
def test_kept_zeros_are_zeros_and_each_as_likely_as_asked(per_chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Chi-square over the subsets of each row's four zeros; fails with probability 1e-6.
    monkeypatch.setattr(module, "_SAMPLED_PER_CHUNK", per_chunk)
    users = 20_000 if per_chunk > 1 else 1500
    ones = np.array([0, 1, 0, 0, 1, 0], dtype=bool)
    matrix = csr_array(np.tile(ones, (users, 1)).astype(np.float32))
    kept = np.zeros((users, 6), dtype=np.int64)
    stops = [0]
    for chunk, places in sample_zeros(matrix, 0.2, NoiseSource.seeded(8)):
        assert chunk.start == stops[-1]
        stops.append(chunk.stop)
        kept[chunk].ravel()[places] = 1
    assert stops[-1] == users
    assert (len(stops) == 2) == (per_chunk == 2**20)
    assert not kept[:, ones].any()
    observed, expected = patterns(kept[:, ~ones], 4), expected_patterns(np.full(4, 0.2), users)
    assert ((observed - expected) ** 2 / expected).sum() < chi2.isf(1e-6, 15)


def test_how_much_is_drawn_does_not_depend_on_the_ones() -> None:
    # What is kept elsewhere is the same numbers, so a neighbour moves its own cell and no other.
    dense = random_array((50, 40), density=0.5, format="csr", rng=np.random.default_rng(0))
    empty = csr_array((50, 40))
    (_, all_kept), (_, some) = (next(sample_zeros(m, 0.3, NoiseSource.seeded(9))) for m in (empty, dense))
    assert some.tolist() == [cell for cell in all_kept.tolist() if cell not in set(entry_numbers(dense, slice(0, 50)))]


def test_chunks_follow_public_numbers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAMPLED_PER_CHUNK", 1000)
    for density in (0.0, 0.9):
        matrix = random_array((50, 100), density=density, format="csr", rng=np.random.default_rng(1))
        assert [users.stop for users, _ in sample_zeros(matrix, 0.5, NoiseSource.seeded(1))] == [20, 40, 50]


def test_nobody_and_nothing() -> None:
    assert list(sample_zeros(csr_array((0, 5)), 0.1, NoiseSource.seeded(1))) == []
    ((users, places),) = sample_zeros(csr_array((3, 0)), 0.1, NoiseSource.seeded(1))
    assert (users, len(places)) == (slice(0, 3), 0)
    ((_, places),) = sample_zeros(csr_array((3, 5)), 0.0, NoiseSource.seeded(1))
    assert len(places) == 0


@pytest.mark.parametrize("probability", [-0.1, 0.6, 1.5])
def test_a_probability_out_of_range_is_refused(probability: float) -> None:
    with pytest.raises(ValueError, match=r"probability is .*Allowed: \[0, 1/2\].*complement"):
        sample_entries(5, probability, NoiseSource.seeded(1))
    if probability != 0.6:
        with pytest.raises(ValueError, match=r"probability is .*Allowed: \[0, 1\]"):
            bernoulli(probability, 5, NoiseSource.seeded(1))


def test_a_number_of_cells_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"num_entries is -1. Allowed: \[0, 2\*\*62\)"):
        sample_entries(-1, 0.1, NoiseSource.seeded(1))
