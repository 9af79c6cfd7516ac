"""What noisy cells say of the cells: Bayes by brute force, priors against planted truth, components against theory."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.special import expit, logit
from scipy.stats import norm

from tests.samples import memory_below
from zoo.privacy.rows import denoising as module
from zoo.privacy.rows.denoising import (
    EntryModel,
    GaussianEntries,
    SparseEntries,
    estimate_prior,
    posterior_rows,
    posterior_sparse,
)

Floats = npt.NDArray[np.floating[Any]]
Singles = npt.NDArray[np.float32]


def flips(epsilon: float, keep: float = 1.0) -> SparseEntries:
    return SparseEntries.flipped(1 / (1 + math.exp(epsilon)), keep)


MECHANISMS: dict[str, EntryModel] = {
    "gaussian": GaussianEntries(0.6),
    "flips": flips(2.0),
    "thinned": flips(1.5, keep=0.5),
    "above": SparseEntries.above(0.7, 0.6),
}


def released(truth: Singles, cells: EntryModel, seed: int) -> Singles:
    """A release of 0/1 cells drawn by numpy, without our code."""
    generator = np.random.default_rng(seed)
    if isinstance(cells, GaussianEntries):
        noisy: Singles = (truth + cells.sigma * generator.standard_normal(truth.shape)).astype(np.float32)
        return noisy
    if cells.sigma is None:
        return (generator.random(truth.shape) < np.where(truth, cells.one, cells.zero)).astype(np.float32)
    noisy = (truth + cells.sigma * generator.standard_normal(truth.shape)).astype(np.float32)
    return np.where(noisy > -norm.ppf(cells.zero) * cells.sigma, noisy, np.float32(0))


def likelihoods(values: Floats, cells: EntryModel) -> tuple[Floats, Floats]:
    """Density or probability of what was released of a one and of a zero, from scipy and plain fractions."""
    if isinstance(cells, GaussianEntries):
        return norm.pdf(values, 1, cells.sigma), norm.pdf(values, 0, cells.sigma)
    if cells.sigma is None:
        kept = values != 0
        return np.where(kept, cells.one, 1 - cells.one), np.where(kept, cells.zero, 1 - cells.zero)
    threshold = -norm.ppf(cells.zero) * cells.sigma
    kept, mean = values > threshold, np.array([1.0, 0.0])
    return tuple(np.where(kept, norm.pdf(values, m, cells.sigma), norm.cdf(threshold, m, cells.sigma)) for m in mean)  # type: ignore[return-value]


def bayes(prior: Floats, values: Floats, cells: EntryModel) -> Floats:
    one, zero = likelihoods(values.astype(np.float64), cells)
    return prior * one / (prior * one + (1 - prior) * zero)


def rank_one(users: int, items: int, density: float = 0.1, seed: int = 0) -> Floats:
    """Probabilities: activity times popularity."""
    generator = np.random.default_rng(seed)
    activity, popularity = generator.gamma(4, 1 / 4, users), density * generator.gamma(2, 1 / 2, items)
    return np.clip(np.outer(activity, popularity), 0, 0.9)


def two_groups(users: int, items: int, density: float = 0.1, seed: int = 0) -> Floats:
    """The same, but either half of the users nearly keeps to its half of the items."""
    alike = (np.arange(users) % 2)[:, None] == np.arange(items) % 2
    return np.clip(rank_one(users, items, density, seed) * np.where(alike, 1.9, 0.1), 0, 0.9)


def drawn(probabilities: Floats, seed: int = 1) -> Singles:
    return (np.random.default_rng(seed).random(probabilities.shape) < probabilities).astype(np.float32)


def log_loss(truth: Singles, posterior: Floats) -> float:
    posterior = np.clip(posterior.astype(np.float64), 1e-7, 1 - 1e-7)
    return -float(np.where(truth == 1, np.log(posterior), np.log1p(-posterior)).mean())


@settings(max_examples=30, deadline=None)
@given(prior=st.floats(1e-6, 0.95), sigma=st.floats(0.2, 5), value=st.floats(-3, 4))
def test_a_noisy_cell_says_what_bayes_says(prior: float, sigma: float, value: float) -> None:
    cells, seen = GaussianEntries(sigma), np.array([value])
    assert expit(logit(prior) + cells.evidence(seen)) == pytest.approx(bayes(np.array([prior]), seen, cells), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(prior=st.floats(1e-6, 0.95), epsilon=st.floats(0.05, 12), keep=st.floats(0.01, 1), whole=st.booleans())
def test_a_flipped_cell_says_what_bayes_says(prior: float, epsilon: float, keep: float, whole: bool) -> None:
    keep = 1.0 if whole else keep
    cells, p, seen = flips(epsilon, keep), 1 / (1 + math.exp(epsilon)), np.array([1.0, 0.0])
    one = np.array([keep * (1 - p), 1 - keep * (1 - p)])
    zero = np.array([keep * p, 1 - keep * p])
    expected = prior * one / (prior * one + (1 - prior) * zero)
    assert expit(logit(prior) + cells.evidence(seen)) == pytest.approx(expected, rel=1e-8)


@settings(max_examples=30, deadline=None)
@given(prior=st.floats(1e-6, 0.95), sigma=st.floats(0.2, 5), threshold=st.floats(1e-3, 3), above=st.floats(1e-3, 4))
def test_a_cell_above_a_threshold_or_not_says_what_bayes_says(
    prior: float, sigma: float, threshold: float, above: float
) -> None:
    level = threshold * sigma
    cells, seen = SparseEntries.above(level, sigma), np.array([level + above * sigma, 0.0])
    one = np.array([norm.pdf(seen[0], 1, sigma), norm.cdf(level, 1, sigma)])
    zero = np.array([norm.pdf(seen[0], 0, sigma), norm.cdf(level, 0, sigma)])
    expected = prior * one / (prior * one + (1 - prior) * zero)
    assert expit(logit(prior) + cells.evidence(seen)) == pytest.approx(expected, rel=1e-7)


def test_cells_of_the_specification() -> None:
    sigma, p = 1.0812, 1 / (1 + math.exp(4.0))
    above = SparseEntries.above(2 * sigma, sigma)
    assert above.zero == pytest.approx(0.0227501, abs=5e-8)
    assert above.one == pytest.approx(0.1411719, abs=2e-5)  # the specification has more digits of sigma
    assert math.exp(above.absent) == pytest.approx(norm.cdf(2 - 1 / sigma) / norm.cdf(2), rel=1e-12)
    kept, absent = np.exp(flips(4.0).evidence(np.array([1.0, 0.0])))
    assert (kept, absent) == (pytest.approx((1 - p) / p), pytest.approx(p / (1 - p)))
    kept, absent = np.exp(flips(4.0, keep=0.3).evidence(np.array([1.0, 0.0])))
    assert (kept, absent) == (pytest.approx((1 - p) / p), pytest.approx((1 - 0.3 * (1 - p)) / (1 - 0.3 * p)))


def test_rare_flips_keep_their_digits() -> None:
    for p in (2.0**-53, 1e-13, 1e-9):
        kept, absent = SparseEntries.flipped(p, 1.0).evidence(np.array([1.0, 0.0]))
        assert kept == pytest.approx(math.log1p(-p) - math.log(p), rel=1e-12)
        assert absent == pytest.approx(-kept, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(epsilon=st.floats(0.05, 30), keep=st.floats(0.01, 1), sigma=st.floats(0.1, 5), threshold=st.floats(0.01, 3))
def test_estimates_are_unbiased_and_spread_as_stated(
    epsilon: float, keep: float, sigma: float, threshold: float
) -> None:
    """Two outcomes, so mean and variance are exact sums over them."""
    p, level = 1 / (1 + math.exp(epsilon)), threshold * sigma
    for cells, chances in (
        (SparseEntries.flipped(p, keep), (keep * p, keep * (1 - p))),
        (SparseEntries.above(level, sigma), (norm.sf(level, 0, sigma), norm.sf(level, 1, sigma))),
    ):
        slope, intercept = cells.line
        outcomes = slope * cells.observed(np.array([1.7, 0.0])).astype(np.float64) + intercept
        for cell, chance in enumerate(chances):
            weights = np.array([chance, 1 - chance])
            scale = float(np.abs(outcomes).max())
            assert outcomes @ weights == pytest.approx(cell, abs=1e-9 * scale)
            variance = weights @ (outcomes - cell) ** 2
            assert cells.variances[cell] == pytest.approx(variance, rel=1e-6, abs=1e-9)


def test_estimates_of_noisy_cells_are_the_values() -> None:
    cells, values = GaussianEntries(0.7), np.array([-1.0, 0.0, 2.5])
    assert cells.line == (1.0, 0.0)
    assert (cells.observed(values) == values).all()
    assert cells.variances == (pytest.approx(0.49), pytest.approx(0.49))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: SparseEntries.flipped(0.5, 1.0), "probability 0.5, a zero with 0.5. The one must be likelier"),
        (lambda: SparseEntries.flipped(0.7, 0.5), "probability 0.15, a zero with 0.35"),
        (lambda: SparseEntries.above(60.0, 1.0), "probability 0, a zero with 0"),
        (lambda: SparseEntries.above(1.0, 1e20), r"The one must be likelier. Omit the denoiser"),
    ],
)
def test_cells_that_say_nothing_are_refused(make: Callable[[], EntryModel], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("name", MECHANISMS)
def test_margins_approach_the_truth(name: str) -> None:
    # Estimates lie within 6 standard errors of the counts behind them, and are drawn to the mean by what noise explains
    # of their spread; 1500 of them fail with probability below 1e-5.
    cells, truth = MECHANISMS[name], drawn(rank_one(1200, 300, 0.2))
    prior = estimate_prior(released(truth, cells, 2), cells, 0)
    zero, one = cells.variances
    noise = zero + (one - zero) * truth.mean()
    for axis, found in ((0, prior.item_means), (1, prior.activity * prior.item_means.mean())):
        counts, error = truth.mean(axis=axis, dtype=np.float64), math.sqrt(noise / truth.shape[axis])
        drawn_to_the_mean = error**2 / counts.var() * np.abs(counts - counts.mean())
        widest = math.sqrt(max(zero, one) / truth.shape[axis])
        assert (np.abs(found - counts) < 6 * widest + 1.5 * drawn_to_the_mean).all()
        assert np.corrcoef(found, counts)[0, 1] > 0.7


@pytest.mark.parametrize("name", MECHANISMS)
def test_margins_of_much_noise_are_drawn_to_their_mean(name: str) -> None:
    cells = {
        "gaussian": GaussianEntries(4.0),
        "flips": flips(0.3),
        "thinned": flips(1.0, keep=0.1),
        "above": SparseEntries.above(2.0, 4.0),
    }[name]
    truth = drawn(rank_one(300, 200, 0.3))
    rows = released(truth, cells, 3)
    slope, intercept = cells.line
    raw = slope * cells.observed(rows).mean(axis=0, dtype=np.float64) + intercept
    found, counts = estimate_prior(rows, cells, 0).item_means, truth.mean(axis=0)
    assert ((found - counts) ** 2).mean() < 0.8 * ((raw - counts) ** 2).mean()


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("shape", [(300, 200), (100, 600)])
def test_nothing_stands_out_of_noise(name: str, shape: tuple[int, int]) -> None:
    # The largest singular value of noise is 0.99 of its limit here, with a standard deviation of 0.01, and its law has
    # thin tails (Tracy-Widom): a tenth above it with probability below 1e-9. Kept are at least 9 cells in a row.
    cells, nobody = MECHANISMS[name], np.zeros(shape, dtype=np.float32)
    for seed in range(3):
        rows = released(nobody, cells, seed)
        prior = estimate_prior(rows, cells, 8)
        assert prior.num_components == 0
        posterior = posterior_rows(rows, cells, 8)
        assert posterior.mean() < 0.02
        assert np.quantile(posterior, 0.99) < 0.1


@pytest.mark.parametrize(
    "cells",
    [GaussianEntries(0.3), flips(4.0), flips(4.0, keep=0.3), flips(2.0, keep=0.2), SparseEntries.above(0.5, 0.3)],
)
def test_activity_and_popularity_alone_make_no_components(cells: EntryModel) -> None:
    """EntryModel of popular items spread more than others, which is no taste; nor is that ones are kept by chance."""
    generator = np.random.default_rng(4)
    popularity = np.clip(0.05 * generator.gamma(0.5, 2, 300), 0, 0.8)
    truth = drawn(np.clip(np.outer(generator.gamma(4, 1 / 4, 500), popularity), 0, 0.9))
    for seed in range(3):
        assert estimate_prior(released(truth, cells, seed), cells, 16).num_components == 0


@pytest.mark.parametrize("name", MECHANISMS)
def test_groups_of_users_are_found_and_help(name: str) -> None:
    cells, truth = MECHANISMS[name], drawn(two_groups(600, 300))
    rows = released(truth, cells, 6)
    assert estimate_prior(rows, cells, 32).num_components == 1
    slope, intercept = cells.line
    raw = slope * cells.observed(rows) + intercept
    errors = [((guess - truth) ** 2).mean() for guess in (*(posterior_rows(rows, cells, k) for k in (32, 0)), raw)]
    losses = [log_loss(truth, posterior_rows(rows, cells, k)) for k in (32, 0)]
    assert errors[0] < 0.95 * errors[1] < 0.6 * errors[2]
    assert losses[0] < 0.95 * losses[1]


def test_no_more_components_than_asked_for() -> None:
    truth = drawn(np.kron(0.4 * np.eye(5) + 0.02, np.ones((60, 50))))
    rows = released(truth, flips(4.0), 7)
    assert [estimate_prior(rows, flips(4.0), k).num_components for k in (0, 1, 2, 64)] == [0, 1, 2, 4]
    best = estimate_prior(rows, flips(4.0), 64)
    one = estimate_prior(rows, flips(4.0), 1)
    strength = [np.linalg.norm(p.left[:, 0]) * np.linalg.norm(p.right[0]) for p in (best, one)]
    assert strength[0] == pytest.approx(strength[1], rel=1e-3)


@pytest.mark.parametrize("name", MECHANISMS)
def test_posteriors_are_calibrated(name: str) -> None:
    # Among cells of like posteriors the share of ones is their mean, up to 6 standard errors (seeded; 9 bins) and a tenth
    # of it, or of what is missing to 1, for the prior is an estimate.
    cells, truth = MECHANISMS[name], drawn(rank_one(1500, 250, 0.2))
    posterior = posterior_rows(released(truth, cells, 8), cells, 16).astype(np.float64)
    place = np.digitize(posterior, [0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9])
    filled = 0
    for number in range(9):
        inside = place == number
        if inside.sum() < 500:
            continue
        filled += 1
        said, share = posterior[inside].mean(), truth[inside].mean(dtype=np.float64)
        error = 6 * math.sqrt(said * (1 - said) / inside.sum())
        assert abs(share - said) < error + 0.1 * min(said, 1 - said) + 0.005, (number, said, share)
    assert filled >= 6


@pytest.mark.parametrize("name", MECHANISMS)
def test_posteriors_are_bayes_with_the_estimated_prior(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cells, truth = MECHANISMS[name], drawn(two_groups(300, 120, 0.2))
    rows = released(truth, cells, 9)
    prior = estimate_prior(rows, cells, 8)
    assert prior.num_components
    expected = bayes(prior.rows(slice(0, 300)), rows, cells)
    posterior = posterior_rows(rows, cells, 8)
    assert posterior.dtype == np.float32
    np.testing.assert_allclose(posterior, expected, rtol=2e-5, atol=1e-7)
    monkeypatch.setattr(module, "_CHUNK", 700)
    np.testing.assert_array_equal(posterior_rows(rows, cells, 8), posterior)


def test_a_prior_is_clipped_margins_and_factors() -> None:
    prior = module.Prior(np.array([0.5, 1.5]), np.array([0.2, 0.9]), np.array([[1.0], [-2.0]]), np.array([[0.3, 0.01]]))
    expected = np.array([[0.1 + 0.3, 0.45 + 0.01], [0.1 * 0.3, 0.95 - 0.02]])  # floor of a tenth; margins capped first
    np.testing.assert_allclose(prior.rows(slice(0, 2)), expected)
    users, items = np.divmod(np.arange(4), 2)
    np.testing.assert_allclose(prior.entries(users, items.astype(np.int32)), expected.ravel())


@pytest.mark.parametrize("name", ["flips", "thinned", "above"])
@pytest.mark.parametrize("components", [0, 8])
def test_kept_cells_get_the_difference_to_not_being_kept(
    name: str, components: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, truth = MECHANISMS[name], drawn(two_groups(300, 120, 0.2))
    assert isinstance(cells, SparseEntries)
    rows = released(truth, cells, 10)
    dense, sparse = (estimate_prior(form, cells, components) for form in (rows, csr_array(rows)))
    assert sparse.num_components == dense.num_components == min(components, 1)
    np.testing.assert_allclose(sparse.rows(slice(0, 300)), dense.rows(slice(0, 300)), rtol=1e-3)
    prior = dense.rows(slice(0, 300))
    expected = bayes(prior, rows, cells) - bayes(prior, np.zeros_like(rows), cells)
    assert (expected[rows == 0] == 0).all()
    kept = csr_array(rows)
    found = posterior_sparse(kept, cells, components)
    assert (found.indptr == kept.indptr).all()
    assert (found.indices == kept.indices).all()
    assert found.data.dtype == np.float32
    np.testing.assert_allclose(found.toarray(), expected, rtol=2e-3, atol=1e-6)
    monkeypatch.setattr(module, "_CHUNK", 90)
    np.testing.assert_array_equal(posterior_sparse(kept, cells, components).data, found.data)


def test_entries_stay_where_they_are_in_any_order() -> None:
    sparse = csr_array(released(drawn(two_groups(60, 40, 0.3)), flips(2.0), 11))
    backwards = np.concatenate(
        [np.arange(stop - 1, start - 1, -1) for start, stop in zip(sparse.indptr, sparse.indptr[1:], strict=False)]
    )
    turned = csr_array((sparse.data[backwards], sparse.indices[backwards], sparse.indptr), shape=sparse.shape)
    straight, found = (posterior_sparse(form, flips(2.0), 0) for form in (sparse, turned))
    assert (turned.indices == sparse.indices[backwards]).all()
    np.testing.assert_array_equal(found.data, straight.data[backwards])


@pytest.mark.thorough
def test_a_large_sparse_matrix_takes_memory_for_what_is_kept() -> None:
    """4e9 cells, which would be 16 GB; 6e5 of them kept."""
    users, items = 200_000, 20_000
    generator = np.random.default_rng(0)
    columns = generator.integers(0, items, (users, 3)).astype(np.int32)
    starts = np.arange(0, 3 * users + 1, 3)
    rows = csr_array((np.ones(3 * users, np.float32), columns.ravel(), starts), shape=(users, items))
    with memory_below(400e6):
        found = posterior_sparse(rows, flips(10.0, keep=0.5), 1)
    assert ((found.data >= 0) & (found.data <= 1)).all()
