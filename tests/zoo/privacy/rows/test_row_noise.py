"""Rows with noise and flipped rows. Seeds are fixed; each test states how often right code with a fresh seed fails."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.stats import beta, binomtest, chi2, chisquare, ks_2samp, kstest, norm, truncnorm

from zoo.privacy.accounting.events import GaussianEvent, RandomisedResponseEvent
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.pure import flip_probability
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.flipped_rows import FlippedRows, flipped_rows
from zoo.privacy.mechanisms.noisy_rows import (
    NoisyRows,
    kept_probability,
    lattice_midpoint,
    noisy_rows,
    noisy_rows_above,
)
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing

USERS, ITEMS, RATED = 2000, 150, 15


def ratings(users: int = USERS, items: int = ITEMS, rated: int = RATED) -> csr_array:
    """Every user has as many ratings, so counts per row are alike; drawn by numpy, without our code."""
    generator = np.random.default_rng(0)
    dense = np.zeros((users, items), dtype=np.float32)
    np.put_along_axis(dense, generator.random((users, items)).argsort(axis=1)[:, :rated], 1.0, axis=1)
    return csr_array(dense)


def plan(threshold: float | None = 1.5, epsilon: float = 4.0) -> NoisyRows:
    return NoisyRows.calibrate(epsilon=epsilon, delta=1e-5, threshold=threshold)


@pytest.mark.parametrize(("epsilon", "sigma"), [(1, 3.7306), (2, 1.9938), (4, 1.0812), (8, 0.6002), (16, 0.3442)])
def test_noise_of_the_specification(epsilon: float, sigma: float) -> None:
    made = plan(epsilon=epsilon)
    assert made.noise_std == pytest.approx(sigma, abs=5e-5)
    assert made.event == GaussianEvent(made.noise_std)
    assert made.mu == pytest.approx(1 / made.noise_std)


def test_what_is_kept_in_the_specification() -> None:
    sigma = plan().noise_std
    assert kept_probability(0.0, 2 * sigma, sigma) == pytest.approx(0.0227501, abs=5e-8)
    assert kept_probability(1.0, 2 * sigma, sigma) == pytest.approx(0.1411719, abs=5e-8)


def test_users_move_a_row_by_its_clipped_norm() -> None:
    mu = gauss_mu(4.0, 1e-5)
    for relation, times in ((Relation.ZERO_OUT_ONE_USER, 1), (Relation.REPLACE_ONE_USER, 2)):
        made = NoisyRows.calibrate(epsilon=4.0, delta=1e-5, relation=relation, clip=3.0)
        assert (made.sensitivity, made.noise_std) == (3.0 * times, pytest.approx(3.0 * times / mu))
        assert made.event == GaussianEvent(made.noise_std / made.sensitivity)


@settings(max_examples=50)
@given(value=st.floats(0, 1e3), sigma=st.floats(1e-3, 1e3))
def test_a_threshold_lies_half_way_between_points_of_the_grid(value: float, sigma: float) -> None:
    threshold, spacing = lattice_midpoint(value, sigma), lattice_spacing(sigma)
    assert (threshold / spacing - 0.5).is_integer()
    assert value <= threshold <= value + spacing
    assert threshold > 0


def test_rounding_does_not_move_a_value_across_the_threshold() -> None:
    made = plan()
    assert made.threshold is not None
    close = made.threshold + np.array([-1e-9, 1e-9, -0.4, 0.4]) * lattice_spacing(made.noise_std)
    rounded = np.rint(close / lattice_spacing(made.noise_std)) * lattice_spacing(made.noise_std)
    assert ((rounded > made.threshold) == (close > made.threshold)).all()


def counted(kept: csr_array, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Kept entries of each row, of the ones and of the zeros."""
    where = kept.toarray() != 0
    return (where & (truth == 1)).sum(axis=1), (where & (truth == 0)).sum(axis=1)


def check_law(kept: csr_array, truth: np.ndarray, shares: Sequence[float]) -> None:
    """Two binomial tests at 1e-6, two variances beyond 6 standard errors (below 1e-8): fails with probability 3e-6."""
    for counts, share, cells in zip(counted(kept, truth), shares, (RATED, ITEMS - RATED), strict=True):
        assert binomtest(int(counts.sum()), USERS * cells, share).pvalue > 1e-6
        variance = cells * share * (1 - share)
        error = math.sqrt((2 + (1 - 6 * share * (1 - share)) / variance) / USERS)
        assert abs(counts.var(ddof=1) / variance - 1) < 6 * error


@pytest.mark.parametrize("form", ["dense", "sparse", "reference"])
def test_rows_keep_as_many_cells_as_the_law_says(form: str) -> None:
    rows, made = ratings(), plan()
    assert made.threshold is not None
    truth = rows.toarray()
    if form == "dense":
        kept = csr_array(noisy_rows(rows, made, NoiseSource.seeded(1)))
    elif form == "sparse":
        kept = noisy_rows_above(rows, made, NoiseSource.seeded(1))
    else:
        noisy = truth + np.random.default_rng(1).normal(0, made.noise_std, truth.shape)
        kept = csr_array(np.where(noisy > made.threshold, noisy, 0))
    shares = norm.sf(made.threshold, loc=[1, 0], scale=made.noise_std)
    check_law(kept, truth, shares)


def test_values_of_both_forms_have_one_law() -> None:
    # Kolmogorov tests at 1e-6 each, ones and zeros apart: against each other and against scipy's truncated normal law.
    rows, made = ratings(), plan(threshold=1.0)
    assert made.threshold is not None
    truth = rows.toarray()
    dense = noisy_rows(rows, made, NoiseSource.seeded(2))
    sparse = noisy_rows_above(rows, made, NoiseSource.seeded(3)).toarray()
    for value in (0, 1):
        first, second = (form[(truth == value) & (form != 0)] for form in (dense, sparse))
        assert ks_2samp(first, second).pvalue > 1e-6
        law = truncnorm((made.threshold - value) / made.noise_std, np.inf, loc=value, scale=made.noise_std)
        # Values are rounded: spread them over their step again.
        spread = second + (np.random.default_rng(0).random(len(second)) - 0.5) * lattice_spacing(made.noise_std)
        assert kstest(spread, law.cdf).pvalue > 1e-6
        assert min(first.min(), second.min()) > made.threshold


def test_dense_values_without_a_threshold_are_normal() -> None:
    # Kolmogorov at 1e-6, and the scale test of the specification at 1e-6.
    rows, made = ratings(), plan(threshold=None)
    noise = noisy_rows(rows, made, NoiseSource.seeded(4)).astype(np.float64) - rows.toarray()
    spread = noise.ravel() + (np.random.default_rng(0).random(noise.size) - 0.5) * lattice_spacing(made.noise_std)
    assert kstest(spread, norm(scale=made.noise_std).cdf).pvalue > 1e-6
    assert chi2.ppf(5e-7, noise.size) < (noise**2).sum() / made.noise_std**2 < chi2.isf(5e-7, noise.size)


def test_kept_zeros_are_spread_evenly_over_the_zeros() -> None:
    # Chi-square over columns, by the number of zeros in each; fails with probability 1e-6.
    rows = ratings()
    truth = rows.toarray()
    for kept in (
        noisy_rows_above(rows, plan(), NoiseSource.seeded(5)),
        flipped_rows(
            rows, FlippedRows.calibrate(epsilon=3.0, num_users=USERS, num_items=ITEMS, keep=0.5), NoiseSource.seeded(6)
        ),
    ):
        observed = ((kept.toarray() != 0) & (truth == 0)).sum(axis=0)
        zeros = (truth == 0).sum(axis=0)
        assert chisquare(observed, zeros * observed.sum() / zeros.sum()).pvalue > 1e-6


@pytest.mark.parametrize(("epsilon", "keep"), [(1.0, 1.0), (4.0, 1.0), (2.0, 0.25)])
def test_flips_have_their_probabilities(epsilon: float, keep: float) -> None:
    # As for noisy rows, against 1/(1 + e^epsilon): fails with probability 3e-6.
    rows = ratings()
    made = FlippedRows.calibrate(epsilon=epsilon, num_users=USERS, num_items=ITEMS, keep=keep)
    flips = [made.flip_probability, 1 - made.flip_probability]  # of one that is reported as 0, and of one that is not
    assert made.noise_std == pytest.approx(np.sqrt(np.cov([0.0, 1.0], aweights=flips, ddof=0)))
    flipped = flipped_rows(rows, made, NoiseSource.seeded(7))
    assert (flipped.data == 1).all()
    p = 1 / (1 + math.exp(epsilon))
    shares = keep * (1 - p), keep * p
    check_law(flipped, rows.toarray(), shares)


def test_flips_against_flips_of_every_cell() -> None:
    # Counts per row against numpy's own flips of all cells, two-sample Kolmogorov; fails with probability below 1e-6.
    rows = ratings()
    made = FlippedRows.calibrate(epsilon=2.0, num_users=USERS, num_items=ITEMS, keep=0.5)
    generator = np.random.default_rng(8)
    every = (rows.toarray() == 1) ^ (generator.random(rows.shape) < 1 / (1 + math.exp(2)))
    every &= generator.random(rows.shape) < 0.5
    ours = np.diff(flipped_rows(rows, made, NoiseSource.seeded(8)).indptr)
    assert ks_2samp(ours, every.sum(axis=1)).pvalue > 1e-6


def lower(successes: int, runs: int) -> float:
    return float(beta.ppf(1e-6, successes, runs - successes + 1))


def upper(successes: int, runs: int) -> float:
    return float(beta.isf(1e-6, successes + 1, runs - successes))


def test_two_worlds_of_one_cell_are_as_far_apart_as_claimed() -> None:
    # Audit of section 7.1: each of 100 000 users has one cell, 0 or 1. False alarm below 1e-5, and the power is checked.
    runs = 100_000
    worlds = csr_array((runs, 1)), csr_array(np.ones((runs, 1)))
    flips = FlippedRows.calibrate(epsilon=2.0, num_users=runs, num_items=1, keep=0.5)
    false, true = (flipped_rows(world, flips, NoiseSource.seeded(9 + i)).nnz for i, world in enumerate(worlds))
    found = math.log(lower(true, runs) / upper(false, runs))
    assert 1.9 < found < 2.0
    noise = NoisyRows.calibrate(epsilon=4.0, delta=1e-6, threshold=0.9)
    false, true = (noisy_rows_above(world, noise, NoiseSource.seeded(11 + i)).nnz for i, world in enumerate(worlds))
    mu = norm.isf(upper(false, runs)) - norm.isf(lower(true, runs))
    assert 0.95 * noise.mu < mu < noise.mu


@pytest.mark.parametrize("relation", [Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER])
def test_clipped_rows_are_kept_by_their_clipped_values(relation: Relation) -> None:
    # Binomial tests at 1e-6 in each form: of ones, now clip/sqrt(15), and of zeros.
    rows = ratings()
    made = NoisyRows.calibrate(epsilon=8.0, delta=1e-5, relation=relation, clip=1.5, threshold=0.5)
    assert made.threshold is not None
    values = 1.5 / math.sqrt(RATED), 0.0
    dense = csr_array(noisy_rows(rows, made, NoiseSource.seeded(13)))
    for kept in (dense, noisy_rows_above(rows, made, NoiseSource.seeded(14))):
        for counts, value, cells in zip(counted(kept, rows.toarray()), values, (RATED, ITEMS - RATED), strict=True):
            share = norm.sf(made.threshold, loc=value, scale=made.noise_std)
            assert binomtest(int(counts.sum()), USERS * cells, share).pvalue > 1e-6


def test_entries_are_sorted_by_cell_and_on_the_grid() -> None:
    rows, made = ratings(), plan()
    for kept in (
        noisy_rows_above(rows, made, NoiseSource.seeded(15)),
        flipped_rows(
            rows, FlippedRows.calibrate(epsilon=1.0, num_users=USERS, num_items=ITEMS), NoiseSource.seeded(15)
        ),
    ):
        assert kept.dtype == np.float32
        cells = np.repeat(np.arange(USERS), np.diff(kept.indptr)) * ITEMS + kept.indices
        assert (np.diff(cells) > 0).all()
    values = noisy_rows_above(rows, made, NoiseSource.seeded(15)).data / lattice_spacing(made.noise_std)
    assert (values == np.rint(values)).all()


def test_thinning_sets_in_where_the_grid_is_large() -> None:
    p = flip_probability(4.0)
    assert FlippedRows.calibrate(epsilon=4.0, num_users=4096, num_items=4096).keep == 1.0
    large = FlippedRows.calibrate(epsilon=4.0, num_users=100_000, num_items=100_000)
    assert large.keep * p * 1e10 == pytest.approx(2**23)
    assert large.event == RandomisedResponseEvent(p)
    assert FlippedRows.calibrate(epsilon=4.0, num_users=100_000, num_items=100_000, keep=0.5).keep == 0.5


@pytest.mark.parametrize("shape", [(0, 5), (3, 5)])
def test_matrices_without_ones(shape: tuple[int, int]) -> None:
    empty = csr_array(shape, dtype=np.float32)
    assert noisy_rows(empty, plan(None), NoiseSource.seeded(1)).shape == shape
    assert noisy_rows_above(empty, plan(), NoiseSource.seeded(1)).shape == shape
    flips = FlippedRows.calibrate(epsilon=1.0, num_users=shape[0], num_items=shape[1])
    assert flipped_rows(empty, flips, NoiseSource.seeded(1)).shape == shape


def test_a_threshold_that_nothing_reaches_keeps_nothing() -> None:
    assert noisy_rows_above(ratings(), plan(60.0), NoiseSource.seeded(1)).nnz == 0


def test_the_matrix_is_left_as_it_was() -> None:
    rows = ratings(20, 9, 2)
    before = rows.toarray()
    noisy_rows(rows, plan(), NoiseSource.seeded(1))
    noisy_rows_above(rows, plan(), NoiseSource.seeded(1))
    flipped_rows(rows, FlippedRows.calibrate(epsilon=1.0, num_users=20, num_items=9), NoiseSource.seeded(1))
    assert (rows.toarray() == before).all()


def test_what_is_no_bit_is_refused() -> None:
    flips = FlippedRows.calibrate(epsilon=1.0, num_users=2, num_items=2)
    twice = csr_array((np.ones(2), np.array([1, 1]), np.array([0, 2, 2])), shape=(2, 2))
    for rows in (csr_array(np.array([[0.0, 3.0], [1.0, 0.0]])), twice):
        with pytest.raises(ValueError, match=r"1 stored values are not 1, the first is [23]. Make rows binary"):
            noisy_rows(rows, plan(None), NoiseSource.seeded(1))
        with pytest.raises(ValueError, match="Make rows binary"):
            noisy_rows_above(rows, plan(), NoiseSource.seeded(1))
        with pytest.raises(ValueError, match="Make rows binary"):
            flipped_rows(rows, flips, NoiseSource.seeded(1))


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"threshold is None.*Use noisy_rows"):
        noisy_rows_above(ratings(2, 3, 1), plan(None), NoiseSource.seeded(1))
    for threshold in (-0.1, math.inf, math.nan):
        with pytest.raises(ValueError, match=r"threshold is .*Allowed: >= 0.*or None"):
            plan(threshold)
    with pytest.raises(ValueError, match="It bounds users; omit it for 'change_one_rating'"):
        NoisyRows.calibrate(epsilon=1.0, delta=1e-5, clip=1.0)
    with pytest.raises(ValueError, match=r"clip is missing. 'zero_out_one_user' needs"):
        NoisyRows.calibrate(epsilon=1.0, delta=1e-5, relation=Relation.ZERO_OUT_ONE_USER)
    with pytest.raises(ValueError, match=r"sensitivity is 0.*Allowed: finite, > 0"):
        NoisyRows.calibrate(epsilon=1.0, delta=1e-5, relation=Relation.ZERO_OUT_ONE_USER, clip=0.0)
    with pytest.raises(ValueError, match=r"epsilon is .*Allowed: finite"):
        FlippedRows.calibrate(epsilon=0.0, num_users=1, num_items=1)
    for keep in (0.0, 1.5, math.nan):
        with pytest.raises(ValueError, match=r"keep is .*(> 0, <= 1|finite)"):
            FlippedRows.calibrate(epsilon=1.0, num_users=1, num_items=1, keep=keep)


@pytest.mark.slow
def test_a_large_catalogue_costs_what_is_kept() -> None:
    # 1e10 cells, 2e6 ratings, about 1e7 entries; the number within 8 standard deviations.
    users = items = 100_000
    cells = np.unique(np.random.default_rng(0).integers(0, users * items, 2_000_000))
    starts = np.searchsorted(cells // items, np.arange(users + 1))
    rows = csr_array((np.ones(len(cells), np.float32), cells % items, starts), shape=(users, items))
    flips = FlippedRows.calibrate(epsilon=4.0, num_users=users, num_items=items)
    noise = NoisyRows.calibrate(epsilon=4.0, delta=1e-6, threshold=3.1)
    assert noise.threshold is not None
    p = flips.flip_probability
    for kept, one, zero in (
        (flipped_rows(rows, flips, NoiseSource.os()), flips.keep * (1 - p), flips.keep * p),
        (noisy_rows_above(rows, noise, NoiseSource.os()), *norm.sf(noise.threshold, loc=[1, 0], scale=noise.noise_std)),
    ):
        mean = rows.nnz * one + (users * items - rows.nnz) * zero
        assert 8e6 < mean < 1.2e7
        assert abs(kept.nnz - mean) < 8 * math.sqrt(mean)
