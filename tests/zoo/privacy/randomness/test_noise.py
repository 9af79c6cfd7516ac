import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, kstest, laplace, norm

from zoo.privacy.randomness import noise as module
from zoo.privacy.randomness.noise import (
    SIGN_STREAM,
    NoiseSource,
    laplace_noise,
    lattice_spacing,
    public_normals,
    public_uniforms,
    round_to_lattice,
)

# Statistical tests run on fixed seeds; each states the probability that a correct source with a fresh seed fails.


@pytest.mark.parametrize("source", [NoiseSource.seeded(1), NoiseSource.os()], ids=["seeded", "os"])
def test_normals_are_standard(source: NoiseSource) -> None:
    # Kolmogorov and variance at 1e-9 each: also safe on fresh entropy.
    values = source.normal(200_000)
    assert values.dtype == np.float64
    assert kstest(values, "norm").pvalue > 1e-9
    low, high = chi2.ppf([5e-10, 1 - 5e-10], len(values))
    assert low < float(values @ values) < high


def test_tails_are_not_cut() -> None:
    # Expected 2 * 2e6 * 3.17e-5 = 127 beyond 4; a Poisson count leaves [70, 195] with probability below 1e-7.
    values = NoiseSource.seeded(2).normal(2_000_000)
    assert 70 < int((abs(values) > 4).sum()) < 195


def test_rows_and_columns_are_uncorrelated() -> None:
    # 200 + 200 vectors, 39 800 correlations of 200 draws: each beyond 6/sqrt(200) with probability below 1e-8.
    values = NoiseSource.seeded(3).normal((200, 200))
    for table in (values, values.T):
        correlation = np.corrcoef(table) - np.eye(200)
        assert abs(correlation).max() < 6 / math.sqrt(200)


def test_uniforms_are_uniform() -> None:
    values = NoiseSource.seeded(4).uniform((1000, 100))
    assert values.shape == (1000, 100)
    assert kstest(values.ravel(), "uniform").pvalue > 1e-6  # fails with probability 1e-6


def test_no_word_gives_an_end_of_the_interval() -> None:
    extremes = np.array([0, 1, 2**64 - 1, 2**64 - 2, 2**12, 2**63], dtype=np.uint64)
    source = NoiseSource(lambda count: np.resize(extremes, count), private=False)
    uniforms = source.uniform(6)
    assert 0 < uniforms.min() == 1 - uniforms.max()
    assert np.isfinite(source.normal(100)).all()


def test_normal_is_half_the_sum_of_four() -> None:
    words = NoiseSource.seeded(5).uniform((50, 4))
    np.testing.assert_allclose(
        NoiseSource.seeded(5).normal(50), norm.ppf(words).sum(axis=1) / 2, rtol=1e-12, atol=1e-14
    )


def test_one_seed_is_one_stream() -> None:
    first, second = NoiseSource.seeded(6), NoiseSource.seeded(6)
    whole = first.normal(1000)
    assert (np.concatenate([second.normal(300), second.normal((7, 100)).ravel()]) == whole).all()
    assert not np.isin(first.normal(1000), whole).any()
    assert not np.isin(NoiseSource.seeded(7).normal(1000), whole).any()


def test_chunks_do_not_change_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = NoiseSource.seeded(8).normal(1000)
    monkeypatch.setattr(module, "_CHUNK", 48)
    assert (NoiseSource.seeded(8).normal(1000) == whole).all()


def test_the_operating_system_never_repeats() -> None:
    source = NoiseSource.os()
    assert not np.isin(source.normal(1000), source.normal(1000)).any()
    assert not np.isin(NoiseSource.os().normal(1000), NoiseSource.os().normal(1000)).any()


def test_noise_ignores_and_leaves_the_global_state() -> None:
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # type: ignore[index]  # noqa: NPY002
    first = NoiseSource.os().normal(10)
    assert (np.random.get_state()[1] == before).all()  # type: ignore[index]  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    assert not np.isin(NoiseSource.os().normal(10), first).any()


def test_labels() -> None:
    assert (NoiseSource.os().label, NoiseSource.os().private) == ("os entropy", True)
    assert (NoiseSource.seeded(1).label, NoiseSource.seeded(1).private) == ("seeded noise", False)
    assert NoiseSource.of(None).private
    assert not NoiseSource.of(0).private
    assert repr(NoiseSource.seeded(12345)) == "NoiseSource(seeded noise)"


def test_a_public_seed_does_not_give_the_noise_of_the_same_seed() -> None:
    assert not np.isin(public_normals(9, 1000), NoiseSource.seeded(9).normal(1000)).any()
    assert abs(np.corrcoef(public_normals(9, 10_000), NoiseSource.seeded(9).normal(10_000))[0, 1]) < 0.06  # 6 sigma
    words = norm.ppf(NoiseSource.seeded(9).uniform(1000))  # a public normal is made of one word, a noisy one of four
    assert not np.isclose(public_normals(9, 1000), words, rtol=1e-9, atol=0).any()


def test_public_normals_are_the_same_everywhere() -> None:
    # Never change these numbers: a release names its projection by a seed.
    np.testing.assert_allclose(
        public_normals(0, 3), [1.4983914231467161, -0.03880881692326596, 0.4784381644968121], rtol=1e-13
    )


@given(offset=st.integers(0, 300), count=st.integers(1, 200))
def test_a_part_of_the_public_stream_is_computed_on_its_own(offset: int, count: int) -> None:
    assert (public_normals(3, count, offset) == public_normals(3, 500)[offset : offset + count]).all()
    uniforms = public_uniforms(3, 500, SIGN_STREAM)
    assert (public_uniforms(3, count, SIGN_STREAM, offset=offset) == uniforms[offset : offset + count]).all()


def test_a_part_far_into_the_public_stream_costs_nothing() -> None:
    assert not np.isin(public_normals(3, 1000, 2**60), public_normals(3, 1000)).any()
    with pytest.raises(ValueError, match=r"offset is -1. Allowed: >= 0"):
        public_normals(3, 1, -1)


def test_public_streams_differ() -> None:
    streams = [public_uniforms(3, 1000, *stream) for stream in ((SIGN_STREAM,), (SIGN_STREAM, 0), (SIGN_STREAM, 1))]
    assert not any(np.isin(one, other).any() for one, other in itertools.combinations(streams, 2))


def test_threads_draw_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # Kolmogorov and variance at 1e-9 each: also safe on fresh entropy. A chunk drawn twice would repeat its values.
    monkeypatch.setattr(module, "_processors", lambda: 4)
    values = NoiseSource.os().normal((3, 100_000))
    assert kstest(values.ravel(), "norm").pvalue > 1e-9
    low, high = chi2.ppf([5e-10, 1 - 5e-10], values.size)
    assert low < float((values**2).sum()) < high
    assert len(np.unique(values)) == values.size
    assert module._processors() == 4


def test_a_failure_on_a_thread_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(count: int) -> bytes:
        raise OSError("no entropy")

    monkeypatch.setattr(module, "_processors", lambda: 4)
    monkeypatch.setattr(module.os, "urandom", fail)
    with pytest.raises(OSError, match="no entropy"):
        NoiseSource.os().normal(200_000)


def test_a_source_cannot_be_copied_or_saved() -> None:
    for use in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied or saved"):
            use(NoiseSource.seeded(1))


def test_integers_are_uniform() -> None:
    # Chi-square over 7 cells; fails with probability 1e-6.
    counts = np.bincount(NoiseSource.seeded(10).integers(7, (700, 100)).ravel(), minlength=7)
    assert len(counts) == 7
    assert ((counts - 10_000) ** 2 / 10_000).sum() < chi2.isf(1e-6, 6)


def test_words_that_would_favour_some_integers_are_drawn_again() -> None:
    words = iter([2**64 - 1, 5, 2**64 - 2, 7])  # 2^64 = 1 mod 3: the last word is one too many
    source = NoiseSource(lambda count: np.array([next(words) for _ in range(count)], dtype=np.uint64), private=False)
    assert source.integers(3, 2).tolist() == [2, (2**64 - 2) % 3]
    assert (NoiseSource.seeded(1).integers(2**63, 10) >= 0).all()


@pytest.mark.parametrize("high", [0, -1, 2**63 + 1])
def test_integers_out_of_range(high: int) -> None:
    with pytest.raises(ValueError, match=r"high is .*Allowed: \[1, 2\*\*63\]"):
        NoiseSource.seeded(1).integers(high, 3)


@pytest.mark.parametrize("seed", [-1, 1.5, True, "1"])
def test_a_bad_seed_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match=r"seed is .*Allowed: integers >= 0"):
        NoiseSource.seeded(seed)


@given(sigma=st.floats(1e-200, 1e200))
def test_lattice_is_a_power_of_two_just_below_a_thousandth_of_the_noise(sigma: float) -> None:
    spacing = lattice_spacing(sigma)
    assert math.frexp(spacing)[0] == 0.5
    assert spacing <= sigma / 1024 < 2 * spacing


def test_lattice_at_a_power_of_two() -> None:
    assert lattice_spacing(1.0) == 2.0**-10
    assert lattice_spacing(math.nextafter(1.0, 0)) == 2.0**-11


def test_rounded_values_lie_on_the_lattice_and_near() -> None:
    values = 100 * NoiseSource.seeded(11).normal(10_000)
    rounded = round_to_lattice(values, 3.7)
    spacing = lattice_spacing(3.7)
    assert (np.rint(rounded / spacing) * spacing == rounded).all()
    assert abs(rounded - values).max() <= spacing / 2
    assert (rounded.astype(np.float32) == rounded).all()  # so a cast to float32 keeps the lattice


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.inf, math.nan])
def test_lattice_of_no_noise_is_refused(sigma: float) -> None:
    with pytest.raises(ValueError, match=r"sigma is .*Allowed: finite, >= 1e-300"):
        lattice_spacing(sigma)


def test_laplace_noise_is_laplacian() -> None:
    # Fails with probability 1e-6 for a fresh seed.
    values = laplace_noise(NoiseSource.seeded(1), 2.5, (500, 400))
    assert values.dtype == np.float64
    assert kstest(values.ravel(), laplace(scale=2.5).cdf).pvalue > 1e-6


def test_laplace_noise_is_symmetric_and_finite_at_the_ends() -> None:
    words = np.array([0, 2**64 - 1, 2**63, 2**63 - 1], dtype=np.uint64)
    values = laplace_noise(NoiseSource(lambda count: np.resize(words, count), private=False), 1.0, 4)
    assert values[0] == -values[1] == pytest.approx(-52 * math.log(2))
    assert values[2] == -values[3] > 0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_a_scale_out_of_range_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match=r"scale is .*Allowed: finite, > 0"):
        laplace_noise(NoiseSource.seeded(1), bad, 3)


def test_a_seeded_source_goes_on_where_another_stood() -> None:
    whole, halted, resumed = (NoiseSource.seeded(5) for _ in range(3))
    for source in (whole, halted):
        source.integers(10, 3)
        source.normal((40_000, 2))
    place = halted.position
    assert place is not None
    resumed.skip_to(place)
    assert resumed.position == place
    assert np.array_equal(whole.uniform(9), resumed.uniform(9))
    assert np.array_equal(whole.normal(9), resumed.normal(9))
    with pytest.raises(ValueError, match=rf"position is {place}.*Only seeded sources"):
        resumed.skip_to(place)


def test_entropy_of_the_system_has_no_place() -> None:
    source = NoiseSource.os()
    source.normal(3)
    assert source.position is None
    with pytest.raises(ValueError, match=r"position is 0.*\(os entropy\) is at word 0"):
        source.skip_to(0)
