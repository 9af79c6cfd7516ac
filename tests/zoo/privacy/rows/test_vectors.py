"""Vectors that are clipped and noised: how much noise, what is bounded, and what is refused."""

import math
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import kstest, norm

from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.gaussian import gauss_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.vectors import UserVectors, clip_vectors, noisy_vectors
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing
from zoo.privacy.record.view import rounded_up

VECTORS = np.random.default_rng(0).normal(size=(40, 3, 5)) * 4


#: sigma / 2C by epsilon, for L = 2 layers of each of 3, 7 and 15 source domains, as so many layers of one.
TABLE = {
    1: (9.1381, 13.9587, 20.4335), 4: (2.6483, 4.0453, 5.9218), 8: (1.4703, 2.2459, 3.2876), 16: (0.8431, 1.2878, 1.8851),
}  # fmt: skip


@pytest.mark.parametrize("epsilon", TABLE)
def test_noise_is_what_the_tables_have(epsilon: float) -> None:
    for layers, over in zip((6, 14, 30), TABLE[int(epsilon)], strict=True):
        plan = UserVectors.calibrate(epsilon=epsilon, delta=1e-5, clip=1.0, num_layers=layers)
        assert plan.noise_std / 2 == pytest.approx(over, abs=5e-5)


@pytest.mark.parametrize(
    ("epsilon", "sources", "over"), [(1, 3, 9.1381), (4, 7, 4.0453), (8, 15, 3.2876), (16, 15, 1.8851)]
)
def test_releases_that_share_an_epsilon_spend_it_together(epsilon: float, sources: int, over: float) -> None:
    """``2C sqrt(L (M - 1)) / mu`` for M domains, one of them the target, and what one release alone spends."""
    plan = UserVectors.calibrate(epsilon=epsilon, delta=1e-5, clip=1.0, num_layers=2, num_releases=sources)
    assert plan.noise_std / 2 == pytest.approx(over, abs=5e-5)
    assert plan.sensitivity == pytest.approx(2 * math.sqrt(2))
    assert epsilon_of([plan.event] * sources, 1e-5, plan.relation) == pytest.approx(epsilon, rel=1e-8)
    assert epsilon_of([plan.event], 1e-5, plan.relation) == pytest.approx(plan.epsilon, rel=1e-8)
    assert plan.epsilon < epsilon / 1.5
    assert plan.requested_epsilon == pytest.approx(epsilon, rel=1e-8)


def test_one_release_shares_with_nobody() -> None:
    alone = UserVectors.calibrate(epsilon=2.0, delta=1e-5, clip=1.0, num_layers=2, num_releases=1)
    assert (alone.epsilon, alone.requested_epsilon) == (pytest.approx(2.0), None)
    assert alone == UserVectors.calibrate(epsilon=2.0, delta=1e-5, clip=1.0, num_layers=2)


@pytest.mark.parametrize("count", [0, -3, 1.5, True, float("nan")])
def test_a_number_of_releases_that_is_none_is_refused(count: int) -> None:
    with pytest.raises(ValueError, match=r"num_releases is .*Allowed: integers >= 1"):
        UserVectors.calibrate(epsilon=2.0, delta=1e-5, clip=1.0, num_layers=2, num_releases=count)


def test_an_epsilon_of_which_nothing_is_left_for_each_is_refused() -> None:
    """A release that hides a change entirely at its delta has no epsilon to state; together they would have one."""
    with pytest.raises(ValueError, match=r"epsilon is 0\.001, shared among 10000 releases: too little at delta 1e-05"):
        UserVectors.calibrate(epsilon=0.001, delta=1e-5, clip=1.0, num_layers=2, num_releases=10_000)


def test_noise_at_another_clip_and_for_several_domains_on_the_page() -> None:
    text = (Path(__file__).parents[4] / "docs" / "privacy" / "models.md").read_text(encoding="utf-8")
    part = text.partition("the target (L = 2")[2].partition(", `num_releases`")[0]
    shown = re.findall(r"([\d.]+)(?: \||\)| at)", part)
    eight = partial(UserVectors.calibrate, epsilon=8, delta=1e-5)
    plans = [eight(clip=1.0, num_layers=2, num_releases=int(domains) - 1) for domains in shown[:3]]
    assert shown[3:] == [*(f"{plan.noise_std:.2f}" for plan in plans), rounded_up(plans[-1].epsilon), shown[2]]
    assert eight(clip=3.0, num_layers=30).noise_std == pytest.approx(19.7256, abs=2e-4)


def test_published_noise_is_for_less_than_moves() -> None:
    """The paper's sigma for epsilon 8 at a sensitivity of 1: for its one release that gives 7.91, for 30 of them 78.65."""
    sigma = math.sqrt(2 * math.log(1.25 / 1e-5)) / 8
    assert sigma == pytest.approx(0.605601, abs=1e-6)
    assert gauss_epsilon(1e-5, 1 / sigma) == pytest.approx(7.91437, abs=1e-5)
    assert gauss_epsilon(1e-5, math.sqrt(30) / sigma) == pytest.approx(78.65, abs=0.05)


@pytest.mark.parametrize(("relation", "moved"), [("replace_one_user", 2.0), ("zero_out_one_user", 1.0)])
def test_layers_compose(relation: str, moved: float) -> None:
    plan = UserVectors.calibrate(epsilon=2.0, delta=1e-6, clip=0.5, num_layers=4, relation=Relation(relation))
    assert plan.sensitivity == pytest.approx(moved * 0.5 * 2)
    assert epsilon_of([plan.event], 1e-6, plan.relation) == pytest.approx(2.0, rel=1e-6)
    # Far apart as they can be, all layers at once: so many deviations of the noise, as mu says.
    apart = moved * clip_vectors(np.full((1, 4, 3), 9.0), 0.5)
    assert np.linalg.norm(apart) / plan.noise_std == pytest.approx(plan.mu, rel=1e-9)


@settings(max_examples=50)
@given(arrays(np.float32, (3, 2, 4), elements=st.floats(-1e6, 1e6, width=32)), st.floats(1e-3, 1e3))
def test_clipping_bounds_each_layer_and_keeps_its_direction(vectors: np.ndarray, clip: float) -> None:
    clipped = clip_vectors(vectors, clip)
    norms, lengths = np.linalg.norm(clipped, axis=2), np.linalg.norm(vectors.astype(float), axis=2)
    assert (norms <= clip * (1 + 1e-12)).all()
    assert np.allclose(norms, np.minimum(lengths, clip))
    assert np.allclose(clipped * lengths[:, :, None], vectors * norms[:, :, None], rtol=1e-5, atol=1e-9)


def test_nothing_is_clipped_where_there_is_no_clip() -> None:
    assert (clip_vectors(VECTORS, None) == VECTORS).all()


def test_noise_is_gaussian_of_its_scale_on_its_lattice() -> None:
    """Fails for right noise with probability 1e-6; the seed is fixed."""
    plan = UserVectors.calibrate(epsilon=3.0, delta=1e-5, clip=2.0, num_layers=3)
    many = np.tile(VECTORS, (20, 1, 1))
    noisy = noisy_vectors(many, plan, NoiseSource.seeded(1))
    assert noisy.dtype == np.float32
    added = (noisy - clip_vectors(many, 2.0)).ravel()
    assert kstest(added / plan.noise_std, norm.cdf).pvalue > 1e-6
    steps = noisy / lattice_spacing(plan.noise_std)
    assert (steps == np.rint(steps)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_diverged_is_refused(value: float) -> None:
    vectors = VECTORS.copy()
    vectors[3, 1, 2] = value
    for clip in (None, 1.0):
        with pytest.raises(ValueError, match=r"NaN or infinite values\. Lower lr"):
            clip_vectors(vectors, clip)


def test_settings_that_cannot_be_meant_are_refused() -> None:
    with pytest.raises(ValueError, match=r"clip is missing.*L2 bound"):
        UserVectors.calibrate(epsilon=1.0, delta=1e-5, clip=None, num_layers=1)
    with pytest.raises(ValueError, match=r"relation is 'change_one_rating'. Vectors protect users"):
        UserVectors.calibrate(epsilon=1.0, delta=1e-5, clip=1.0, num_layers=1, relation=Relation.CHANGE_ONE_RATING)
    with pytest.raises(ValueError, match="num_layers is 0"):
        UserVectors.calibrate(epsilon=1.0, delta=1e-5, clip=1.0, num_layers=0)
    plan = UserVectors.calibrate(epsilon=1.0, delta=1e-5, clip=1.0, num_layers=2)
    with pytest.raises(ValueError, match=r"vectors have shape \(40, 3, 5\). The plan needs \(users, 2,"):
        noisy_vectors(VECTORS, plan, NoiseSource.seeded(1))
