"""Components of noisy rows: shrunk as theory says, found alike by either way, and what hardly occurs."""

import math
import warnings

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.sparse import csr_array

from tests.samples import memory_below
from tests.zoo.privacy.rows.test_denoising import Floats, Singles, drawn, flips, rank_one, released, two_groups
from zoo.privacy.rows.denoising import (
    EntryModel,
    GaussianEntries,
    SparseEntries,
    _Residual,
    posterior_rows,
    posterior_sparse,
    shrunk_rows,
)

CLEAR = 1.1  # how far above the largest singular value of noise a component must lie


def spiked(users: int, width: int, spikes: tuple[float, ...], seed: int = 0) -> tuple[Floats, Singles]:
    """A matrix of given singular values over the root of the longer side, without a mean row, and with noise of 1."""
    generator = np.random.default_rng(seed)
    left = generator.standard_normal((users, len(spikes)))
    left, right = (
        np.linalg.qr(part)[0] for part in (left - left.mean(axis=0), generator.standard_normal((width, len(spikes))))
    )
    signal = left * (np.array(spikes) * math.sqrt(max(users, width))) @ right.T
    return signal, (signal + generator.standard_normal(signal.shape)).astype(np.float32)


def shrunk_by_theory(y: float, ratio: float) -> float:
    """By way of the spike behind ``y``: its value times the cosines of both vectors (Gavish & Donoho 2017)."""

    def seen(x: float) -> float:
        return math.sqrt((x + 1 / x) * (x + ratio / x))

    if y <= CLEAR * (1 + math.sqrt(ratio)):
        return 0.0
    x = float(brentq(lambda x: seen(x) - y, ratio**0.25, 1e6, xtol=1e-14, rtol=1e-14))
    cosines = (x**4 - ratio) / (x**4 + ratio * x**2), (x**4 - ratio) / (x**4 + x**2)
    return x * math.sqrt(cosines[0] * cosines[1])


@pytest.mark.parametrize("shape", [(400, 120), (120, 400), (200, 200)])
@pytest.mark.parametrize("noise", [1.0, 1e-4, 1e4])
def test_components_are_shrunk_as_theory_says(shape: tuple[int, int], noise: float) -> None:
    signal, rows = spiked(*shape, (4.0, 2.5, 0.4))
    mean = rows.mean(axis=0, dtype=np.float64)
    left, values, right = np.linalg.svd(rows - mean, full_matrices=False)
    scale, ratio = math.sqrt(max(shape)), min(shape) / max(shape)
    expected = mean + (left * [scale * shrunk_by_theory(value / scale, ratio) for value in values]) @ right
    found = shrunk_rows(rows * np.float32(noise), noise, 8)
    np.testing.assert_allclose(found / noise, expected, atol=2e-3)
    assert np.linalg.matrix_rank(found / noise - mean, tol=1.0) == 2
    assert ((found / noise - signal) ** 2).mean() < 0.5 * ((rows - signal) ** 2).mean() * ratio


def test_a_planted_singular_value_is_near_its_formula() -> None:
    # Fluctuations of the largest are of order 1/sqrt(1500), about 0.03; twice that.
    _, rows = spiked(1500, 500, (3.0, 2.0), seed=1)
    values = np.linalg.svd(shrunk_rows(rows, 1.0, 4) - rows.mean(axis=0), compute_uv=False) / math.sqrt(1500)
    for x, value in zip((3.0, 2.0), values, strict=False):
        cosines = (x**4 - 1 / 3) / (x**4 + x**2 / 3), (x**4 - 1 / 3) / (x**4 + x**2)
        assert value == pytest.approx(x * math.sqrt(cosines[0] * cosines[1]), abs=0.06)
    assert values[2] < 1e-5


@pytest.mark.parametrize("shape", [(400, 200), (200, 400)])
def test_rows_of_few_components_and_no_noise_stay_as_they_are(shape: tuple[int, int]) -> None:
    """After two components there is nothing left to look for: none may be found twice."""
    generator = np.random.default_rng(2)
    left, right = generator.standard_normal((shape[0], 2)), generator.standard_normal((2, shape[1]))
    rows = (left @ right).astype(np.float32)
    np.testing.assert_allclose(shrunk_rows(rows, 1e-4, 10), rows, atol=1e-3)


@pytest.mark.parametrize("shape", [(400, 200), (200, 400)])
def test_few_components_and_a_full_decomposition_agree(shape: tuple[int, int]) -> None:
    _, rows = spiked(*shape, (5.0, 3.0))
    few, whole = (shrunk_rows(rows, 1.0, count) for count in (10, 70))
    np.testing.assert_allclose(few, whole, atol=1e-3)
    truth = drawn(two_groups(*shape, 0.3))
    kept = released(truth, flips(3.0), 12)
    few, whole = (posterior_rows(kept, flips(3.0), count) for count in (10, 70))
    np.testing.assert_allclose(few, whole, atol=1e-3)


def test_the_same_rows_give_the_same_answer() -> None:
    _, rows = spiked(150, 90, (5.0,))
    assert (shrunk_rows(rows, 1.0, 4) == shrunk_rows(rows.copy(), 1.0, 4)).all()
    cells = flips(2.0)
    kept = released(drawn(two_groups(200, 90)), cells, 13)
    np.random.default_rng().random()
    assert (posterior_rows(kept, cells, 4) == posterior_rows(kept.copy(), cells, 4)).all()
    first, second = (posterior_sparse(csr_array(kept), cells, 4).data for _ in range(2))
    assert (first == second).all()


def test_without_a_component_the_mean_row_is_left() -> None:
    _, rows = spiked(50, 30, (5.0,))
    found = shrunk_rows(rows, 1.0, 0)
    np.testing.assert_allclose(found, np.broadcast_to(rows.mean(axis=0), rows.shape), atol=1e-6)
    # A tenth above the limit with probability below 1e-9.
    rows = np.random.default_rng(14).standard_normal((300, 200)).astype(np.float32)
    np.testing.assert_allclose(shrunk_rows(rows, 1.0, 20), np.broadcast_to(rows.mean(axis=0), rows.shape), atol=1e-6)


def test_few_users_of_many_items_take_little_memory() -> None:
    """All items squared would be 7 GB."""
    rows = released(np.zeros((40, 30_000), dtype=np.float32), flips(4.0), 15)
    with memory_below(300e6):
        posterior_rows(rows, flips(4.0), 64)
        posterior_sparse(csr_array(rows), flips(4.0), 64)
        shrunk_rows(rows, 1.0, 64)
    wide = csr_array((np.ones(300, np.float32), np.arange(0, 300_000, 1000), np.arange(101) * 3), shape=(100, 300_000))
    residual = _Residual(wide, 1.0, np.zeros((100, 1)), np.zeros((1, 300_000)), np.ones(100), np.ones(300_000))
    with memory_below(200e6):  # a dense copy takes 240 MB
        left, values, right = residual.largest_components(8)
    np.testing.assert_allclose(values, math.sqrt(3), rtol=1e-6)
    np.testing.assert_allclose(left.T @ (wide @ right.T), np.diag(values), atol=1e-5)


# What hardly occurs.

EXTREME: dict[str, EntryModel] = {
    "flips at epsilon 30": SparseEntries.flipped(9.4e-14, 1.0),
    "the rarest flips": SparseEntries.flipped(2.0**-53, 1.0),
    "flips near a half": SparseEntries.flipped(0.5 - 1e-12, 1.0),
    "hardly any kept": SparseEntries.flipped(0.1, 1e-9),
    "tiny noise": GaussianEntries(1e-6),
    "no noise to speak of": GaussianEntries(1e-30),
    "huge noise": GaussianEntries(1e6),
    "nothing but noise": GaussianEntries(1e30),
    "tiny noise above": SparseEntries.above(1e-5, 1e-6),
    "huge noise above": SparseEntries.above(1e6, 1e6),
    "a high threshold": SparseEntries.above(16.0, 1.0),
    "the highest threshold": SparseEntries.above(20.0, 1.0),
}


SHAPES = [(150, 140), (40, 30), (1, 30), (40, 1), (1, 1), (2, 2)]


@pytest.mark.thorough
@pytest.mark.parametrize("shape", SHAPES)
def test_extremes_stay_probabilities(shape: tuple[int, int]) -> None:
    for cells in EXTREME.values():
        generator = np.random.default_rng(16)
        ones = (generator.random(shape) < 0.3).astype(np.float32)
        scale = np.float32(getattr(cells, "sigma", None) or 1.0)
        noisy = ones + scale * generator.standard_normal(shape, dtype=np.float32)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for rows in (ones, np.zeros_like(ones), np.ones_like(ones), noisy, np.abs(noisy)):
                for components in (0, 1, 5, 64):
                    posterior = posterior_rows(rows, cells, components)
                    assert np.isfinite(posterior).all()
                    assert ((posterior >= 0) & (posterior <= 1)).all()
                    if isinstance(cells, SparseEntries):
                        difference = posterior_sparse(csr_array(np.abs(rows)), cells, components).data
                        assert ((difference >= -1) & (difference <= 1)).all()


def test_hardly_any_noise_leaves_the_cells() -> None:
    truth = drawn(rank_one(60, 40, 0.2))
    for cells in (EXTREME["flips at epsilon 30"], EXTREME["the rarest flips"], EXTREME["tiny noise"]):
        np.testing.assert_allclose(posterior_rows(truth, cells, 4), truth, atol=1e-6)


@pytest.mark.parametrize("noise", [1e-30, 1.0, 1e15])
def test_extremes_of_any_rows_stay_finite(noise: float) -> None:
    for shape in SHAPES:
        generator = np.random.default_rng(17)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for rows in (
                np.zeros(shape, np.float32),
                np.full(shape, 0.3, np.float32),
                np.repeat(generator.standard_normal((1, shape[1]), dtype=np.float32), shape[0], axis=0),
                np.float32(noise) * generator.standard_normal(shape, dtype=np.float32),
            ):
                for components in (0, 1, 5, 64):
                    assert np.isfinite(shrunk_rows(rows, noise, components)).all()


def test_few_kept_cells_still_converge() -> None:
    """About one cell a row: a spectrum of many values alike, which a solver that wants all digits never tells apart."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(4):
            for shape, cells in (((300, 200), flips(6.0)), ((200, 300), flips(4.0, keep=0.3))):
                posterior = posterior_rows(released(np.zeros(shape, np.float32), cells, seed), cells, 8)
                assert np.isfinite(posterior).all()
