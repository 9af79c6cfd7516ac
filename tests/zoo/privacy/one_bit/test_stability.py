"""How far one flipped sign moves the end of projected steps: against brute force, closed forms and the largest moves found."""

import math
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from zoo.privacy.audits.one_bit import completed
from zoo.privacy.one_bit.link_functions import ConvexLink, Logistic, Probit
from zoo.privacy.one_bit.stability import general_sensitivity, longest_step, output_sensitivity, usual_step

Floats = npt.NDArray[np.float64]

LINKS = [Logistic(), Probit(), Probit(0.6)]


def test_vectors() -> None:
    def of(step_size: float, ridge: float = 0.2) -> float:
        return output_sensitivity(Logistic(), alpha=1.0, ridge=ridge, steps=200, step_size=step_size)

    assert general_sensitivity(Logistic(), alpha=1.0, ridge=0.2, steps=200, step_size=2 / 0.65) == pytest.approx(5.0)
    assert of(1 / 0.45) == pytest.approx(2.69854, rel=2e-5)
    assert of(0.5 / 0.45) == pytest.approx(2.36887, rel=2e-5)
    assert of(2 / 0.65) == pytest.approx(4.08248, rel=2e-5)
    assert (of(1 / 1.25, 1.0), of(0.5 / 1.25, 1.0)) == pytest.approx((0.824418, 0.815049), rel=2e-5)
    assert usual_step(Logistic(), 0.2) == 0.5 / 0.45
    assert longest_step(Logistic(), 0.2) == 2 / 0.65


@pytest.mark.parametrize(("ridge", "pace"), [(0.05, 0.5), (0.2, 0.1), (0.2, 1.0), (1.0, 0.1), (1.0, 1.0)])
def test_a_curvature_alone_gives_no_less(ridge: float, pace: float) -> None:
    """With c for the curvature at the entry, the largest ``u^2 (r^2 - t^2) + ((u - s c) t + s)^2`` over t has a closed form."""
    c, size = float(expit(1) * expit(-1)), pace / (ridge + 0.25)
    shrink, bent = 1 - size * ridge, size * c
    closed = size * shrink / math.sqrt(bent * (2 * shrink - bent) * (1 - shrink * shrink))
    found = output_sensitivity(Logistic(), alpha=1.0, ridge=ridge, steps=5000, step_size=size)
    assert 0.7 * closed < found < closed
    if (ridge, pace) == (0.2, 1.0):
        assert closed == pytest.approx(2.735721, rel=1e-6)


def brute_force(link: ConvexLink, alpha: float, ridge: float, steps: int, step_size: float) -> Floats:
    """The worst distance after each step if projections could spread D as they like: all pairs of entries are tried."""
    x = np.linspace(-alpha, alpha, 401)
    falling, rising = link.slopes(x)
    apart = x[:, None] - x[None, :]
    shrink, distance, found = 1 - step_size * ridge, 0.0, []
    moved = shrink * apart + step_size * (falling[:, None] + rising[None, :])
    gains = moved**2 - (shrink * apart) ** 2
    for _ in range(steps):
        distance = math.sqrt((shrink * distance) ** 2 + gains[np.abs(apart) <= distance].max())
        found.append(distance)
    return np.array(found)


@pytest.mark.thorough
@pytest.mark.parametrize("link", LINKS)
def test_against_all_pairs_of_entries(link: ConvexLink) -> None:
    """Steps that overshoot too: of pairs either may be the larger."""
    bounds = ((1.0, 0.2), (0.3, 0.05), (3.0, 1.0), (1.0, 0.0))
    for (alpha, ridge), pace in product(bounds, (0.05, 0.4, 0.7, 0.9, 1.0)):
        size = pace * longest_step(link, ridge)
        worst = brute_force(link, alpha, ridge, 30, size)
        for steps in (1, 2, 3, 10, 30):
            bound = output_sensitivity(link, alpha=alpha, ridge=ridge, steps=steps, step_size=size)
            assert worst[steps - 1] <= bound * (1 + 1e-12)
            if size * (ridge + link.smoothness) <= 1:  # steps that overshoot are bounded by the largest curvature
                assert bound <= worst[steps - 1] * 1.1  # what the pairs' grid leaves out


@pytest.mark.parametrize("link", LINKS)
def test_the_pull_is_the_largest_over_all_pairs_so_far_apart(link: ConvexLink) -> None:
    for alpha, share in product((0.2, 1.0, 4.0), np.linspace(0, 2, 9)):
        apart = share * alpha
        x = np.linspace(-alpha + apart, alpha, 2001)
        largest = (link.slopes(x)[0] + link.slopes(x - apart)[1]).max()
        assert largest <= link.pull(alpha, np.array([apart]))[0] <= largest * (1 + 1e-9)


@pytest.mark.thorough
@given(
    link=st.sampled_from(LINKS),
    alpha=st.floats(0.1, 5),
    ridge=st.sampled_from([0.0, 0.01, 0.2, 2.0]),
    pace=st.floats(0.01, 1),
    steps=st.integers(1, 60),
)
@settings(max_examples=40, deadline=None)
def test_it_rises_with_steps_and_alpha_and_never_beyond_contraction(
    link: ConvexLink, alpha: float, ridge: float, pace: float, steps: int
) -> None:
    size = pace * longest_step(link, ridge)

    def of(alpha: float, steps: int) -> float:
        return output_sensitivity(link, alpha=alpha, ridge=ridge, steps=steps, step_size=size)

    assert of(alpha, steps) <= general_sensitivity(link, alpha=alpha, ridge=ridge, steps=steps, step_size=size)
    assert of(alpha, steps) <= of(alpha, steps + 1) * (1 + 1e-12)
    assert of(alpha, steps) <= of(alpha * 1.5, steps) * (1 + 1e-4)


def test_entries_that_nothing_holds_have_the_bound_of_contraction() -> None:
    settings = {"alpha": math.inf, "ridge": 0.2, "steps": 40, "step_size": 1 / 0.45}
    general = general_sensitivity(Logistic(), **settings)  # type: ignore[arg-type]
    assert output_sensitivity(Logistic(), **settings) == general  # type: ignore[arg-type]


@pytest.mark.thorough
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    link=st.sampled_from(LINKS),
    ridge=st.sampled_from([0.0, 0.05, 0.2, 1.0]),
    steps=st.sampled_from([1, 2, 3, 10, 40]),
    pace=st.sampled_from([0.05, 0.4, 0.8, 1.0]),
    alpha=st.sampled_from([0.3, 1.0, 3.0]),
    shape=st.sampled_from([(2, 2), (3, 5), (8, 8)]),
)
def test_no_search_finds_a_larger_move(
    seed: int, link: ConvexLink, ridge: float, steps: int, pace: float, alpha: float, shape: tuple[int, int]
) -> None:
    """Signs and pairs are changed at random as long as that moves the end further; projections onto both balls."""
    random = np.random.default_rng(seed)
    size = pace * longest_step(link, ridge)
    radius = float(random.choice([0.3, 1.0, 2.0, 100.0])) * alpha * math.sqrt(max(shape))

    def moved(signs: Floats, observed: npt.NDArray[np.bool_]) -> float:
        ends = []
        for sign in (1.0, -1.0):
            signs[0, 0], observed[0, 0] = sign, True
            ends.append(
                completed(signs, observed, link, radius=radius, alpha=alpha, ridge=ridge, steps=steps, step_size=size)
            )
        return float(np.linalg.norm(ends[0] - ends[1]))

    signs, observed = random.choice([-1.0, 1.0], shape), random.random(shape) < 0.6
    furthest = moved(signs, observed)
    for _ in range(6):
        turned = np.where(random.random(shape) < 0.2, -signs, signs)
        seen = observed ^ (random.random(shape) < 0.2)
        if (further := moved(turned, seen)) > furthest:
            furthest, signs, observed = further, turned, seen
    assert furthest <= output_sensitivity(link, alpha=alpha, ridge=ridge, steps=steps, step_size=size)


def test_a_shorter_step_of_enough_steps_needs_less_noise() -> None:
    found = [
        output_sensitivity(Logistic(), alpha=1.0, ridge=0.2, steps=2000, step_size=size)
        for size in (0.1, 0.5 / 0.45, 1 / 0.45, 2 / 0.65)
    ]
    assert all(shorter < longer for shorter, longer in pairwise(found))
