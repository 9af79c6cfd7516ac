"""Parameters of the encryption: how much room its errors need, and what does not fit."""

import math

import numpy as np
import pytest

from encrypted_bridge.parameters import (
    DEGREE,
    ERROR,
    MODULUS,
    PLACES_SCALE,
    ROWS_SCALE,
    SCALE,
    SHORTER,
    check_directions,
    check_room,
    error_of_zero,
    longest_place,
    num_blocks,
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


def test_the_error_of_a_fresh_zero_is_bounded_by_the_largest_product() -> None:
    """Two products of polynomials of coefficients at most 21 and 1, and one error more, written out for the worst signs."""
    worst = ERROR + 2 * sum(ERROR for _ in range(DEGREE))
    assert error_of_zero(1) == worst / SCALE
    assert error_of_zero(400 * 6) == pytest.approx(math.sqrt(2400) * worst / SCALE)


@pytest.mark.parametrize(
    "relation", [Relation.ZERO_OUT_ONE_USER, Relation.REPLACE_ONE_USER, Relation.CHANGE_ONE_RATING]
)
def test_errors_fit_beside_the_sensitivity_of_the_map_that_is_shipped(relation: Relation) -> None:
    """What neighbours may differ by, and what leaving the error out moves twice, together: no more than without encryption."""
    plan = Bridge.calibrate(epsilon=2.0, delta=1e-5, relation=relation, clip=1.0)
    check_room(plan, 400, 6, 10**6)
    row = plan.sensitivity + (2 * 20 / ROWS_SCALE if relation is Relation.CHANGE_ONE_RATING else 0)
    place = SHORTER + math.sqrt(6) * ERROR / PLACES_SCALE
    assert longest_place(6) == place
    assert row * place + 2 * error_of_zero(2400) < plan.sensitivity
    assert SHORTER > 0.999


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
        ({"clip": 0.01}, 400, 1000, r"above 0\.01, for 400 items and 6 directions"),
        ({}, 10**6, 1000, "Lower kept_items or num_directions"),
        ({}, 400, 3 * 10**6, r"sums over 3,000,000 users may reach 3,000,\d+, above the limit 2,097,152"),
        ({"clip": 0.5}, 400, 5 * 10**6, "sums over 5,000,000 users"),
    ],
)
def test_what_does_not_fit_is_refused(settings: dict[str, float], kept: int, users: int, message: str) -> None:
    plan = Bridge.calibrate(epsilon=2.0, delta=1e-8, **settings)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=message):
        check_room(plan, kept, 6, users)


def test_the_error_of_fresh_zeros_counts_twice() -> None:
    """It is left out on both of two neighbouring inputs: one and a half of it do not fit, two and a half would."""
    error, left = error_of_zero(2400), 1 - longest_place(6)
    check_room(Bridge.calibrate(epsilon=2.0, delta=1e-8, clip=2.5 * error / left), 400, 6, 1000)
    with pytest.raises(ValueError, match="With encryption errors the sensitivity"):
        check_room(Bridge.calibrate(epsilon=2.0, delta=1e-8, clip=1.5 * error / left), 400, 6, 1000)


def test_of_one_rating_what_cutting_rows_off_moves_them_counts_too() -> None:
    user, rating = (
        Bridge.calibrate(epsilon=2.0, delta=1e-8, relation=relation)
        for relation in (Relation.ZERO_OUT_ONE_USER, Relation.CHANGE_ONE_RATING)
    )
    check_room(user, 20_000, 6, 1000)
    check_room(rating, 5_000, 6, 1000)
    with pytest.raises(ValueError, match="With encryption errors the sensitivity"):
        check_room(rating, 20_000, 6, 1000)


@pytest.mark.parametrize("directions", [0, 4097])
def test_places_wider_than_a_polynomial_are_refused(directions: int) -> None:
    with pytest.raises(ValueError, match=f"num_directions is {directions}. It must be 1 to 2048"):
        check_directions(directions)
