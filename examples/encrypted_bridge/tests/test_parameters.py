"""Parameters of the encryption: how much room its errors need, and what does not fit."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom, chi2, norm

from encrypted_bridge.parameters import (
    DEGREE,
    ERROR,
    FLOOD,
    MODULUS,
    MOST_DISTANCE,
    PLACES_SCALE,
    ROWS_SCALE,
    SCALE,
    SHORTER,
    check_directions,
    check_room,
    error_of_zero,
    flood,
    largest_half,
    longest_place,
    noise_between,
    num_blocks,
    rows_factor,
    users_at_once,
)
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.bridge import Bridge


def test_the_modulus_is_a_prime_that_polynomials_are_transformed_by() -> None:
    """By Fermat's test to twelve bases, which no composite of 64 bits passes in Miller and Rabin's form."""
    assert MODULUS % (2 * DEGREE) == 1
    assert MODULUS.bit_length() == 60
    odd, twos = MODULUS - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37):
        powers = [pow(base, odd << k, MODULUS) for k in range(twos)]
        assert powers[0] == 1 or MODULUS - 1 in powers


@pytest.mark.parametrize(
    ("users", "directions", "blocks"), [(0, 6, 0), (1, 6, 1), (682, 6, 1), (683, 6, 2), (3, 4096, 3)]
)
def test_users_are_packed_whole(users: int, directions: int, blocks: int) -> None:
    assert num_blocks(users, directions) == blocks
    assert users_at_once(directions) * directions <= DEGREE


def test_the_error_of_a_fresh_zero_is_bounded_but_for_a_chance_of_2_to_the_minus_80() -> None:
    """The binomial of 42 (2 DEGREE + 1) fair bits, for the worst keys: its tail at the bound, and not far below it."""
    bits = 42 * (2 * DEGREE + 1)
    bound = error_of_zero(1) * SCALE
    assert 2 * binom.sf(bits / 2 + bound, bits, 0.5) <= 2.0**-80 <= 2 * binom.sf(bits / 2 + 0.97 * bound, bits, 0.5)
    assert error_of_zero(400 * 6) == pytest.approx(math.sqrt(2400) * bound / SCALE)


@pytest.mark.parametrize(
    "relation", [Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER, Relation.CHANGE_ONE_RATING]
)
def test_errors_fit_beside_the_sensitivity_of_the_map_that_is_shipped(relation: Relation) -> None:
    """What neighbours may differ by, and what leaving the error out moves twice, together: no more than without encryption."""
    plan = Bridge.calibrate(epsilon=2.0, delta=1e-5, relation=relation, clip=1.0)
    place = SHORTER + math.sqrt(6) * ERROR / PLACES_SCALE
    assert longest_place(6) == place
    for kept, factor in ((40, 1.0), (400, 1.0), (20_000, math.sqrt((1 - 50 / 512) / (1 - 1 / 512)))):
        check_room(plan, kept, 6, 4 * 10**5)
        assert rows_factor(kept, 6) == pytest.approx(factor)
        cut = 2 * math.sqrt(kept) / ROWS_SCALE if relation is Relation.CHANGE_ONE_RATING else 0
        row = rows_factor(kept, 6) * plan.sensitivity + cut
        sigma, between = plan.noise_std, noise_between(plan, kept, 6)
        half = row * math.sqrt(6) * ERROR / PLACES_SCALE
        moved = math.hypot(row * place / sigma, half / between) + 2 * error_of_zero(6 * kept) / between
        assert moved == pytest.approx(plan.sensitivity / sigma, rel=1e-9)
        assert between < sigma / 1000
    assert SHORTER > 0.999


def test_the_target_s_noise_hides_what_the_maps_may_differ_by() -> None:
    """Distance of two Gaussians, by their distribution functions; half a difference of noise is refused once in 10^9 maps."""
    for epsilon, users, kept in product((2.0, 16.0), (1000, 500_000), (40, 400, 20_000)):
        plan = Bridge.calibrate(epsilon=epsilon, delta=1e-7, num_users=users)
        quotient = largest_half(plan, kept, 6) / flood(plan, kept, 6)
        assert norm.cdf(quotient / 2) - norm.cdf(-quotient / 2) <= MOST_DISTANCE * (1 + 1e-9)
        assert flood(plan, kept, 6) >= FLOOD * plan.noise_std
    plan = Bridge.calibrate(epsilon=2.0, delta=1e-5, num_users=1000)
    assert flood(plan, 400, 6) == FLOOD * plan.noise_std
    assert flood(plan, 20_000, 6) == FLOOD * plan.noise_std, "rows are shortened, so the two maps are as close"
    least = noise_between(plan, 400, 6) * math.sqrt(chi2.isf(1e-9, 2400))
    assert least < largest_half(plan, 400, 6) < 1.01 * least


def test_cutting_rows_off_moves_neighbours_by_what_is_allowed() -> None:
    """Rows of one rating more or less, clipped and cut off to whole numbers: the bound of `check_room`, on random rows."""
    rng = np.random.default_rng(4)
    for _ in range(300):
        items, clip = int(rng.integers(2, 60)), float(rng.uniform(0.5, 4))
        row = (rng.random(items) < rng.random()).astype(float)
        row[0] = 0
        other = row.copy()
        other[0] = 1
        cut = [
            np.trunc(each * min(1.0, clip / max(float(np.linalg.norm(each)), 1e-12)) * ROWS_SCALE) / ROWS_SCALE
            for each in (row, other)
        ]
        assert np.linalg.norm(cut[0] - cut[1]) <= 1 + 2 * math.sqrt(items) / ROWS_SCALE


@pytest.mark.parametrize(
    ("settings", "kept", "users", "message"),
    [
        ({"clip": 0.01}, 400, 1000, r"of 400 items and 6 directions exceed the sensitivity 0\.01"),
        ({}, 10**6, 1000, "Lower either, or raise clip"),
        ({}, 400, 3 * 10**6, r"sums over 3,000,000 users may reach 3,000,\d+, above the limit 524,288"),
        ({"clip": 0.5}, 400, 5 * 10**6, "sums over 5,000,000 users"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, float], kept: int, users: int, message: str) -> None:
    plan = Bridge.calibrate(epsilon=2.0, delta=1e-8, **settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        check_room(plan, kept, 6, users)


def test_of_one_rating_what_cutting_rows_off_moves_them_counts_too() -> None:
    user, rating = (
        Bridge.calibrate(epsilon=2.0, delta=1e-8, relation=relation)
        for relation in (Relation.ZERO_OUT_ONE_USER, Relation.CHANGE_ONE_RATING)
    )
    check_room(user, 400, 6, 1000)
    check_room(rating, 100_000, 6, 1000)
    assert noise_between(rating, 400, 6) > 1.1 * noise_between(user, 400, 6)
    with pytest.raises(ValueError, match="exceed the sensitivity"):
        check_room(rating, 110_000, 6, 1000)


@pytest.mark.parametrize("directions", [0, 4097])
def test_places_wider_than_a_polynomial_are_refused(directions: int) -> None:
    with pytest.raises(ValueError, match=f"num_directions is {directions}. It must be 1 to 2048"):
        check_directions(directions)
