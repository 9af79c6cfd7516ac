"""Parameters of the encryption of a bridge, in the open, and how much room its errors need beside the noise."""

import math

from zoo.privacy.accounting.relation import Unit
from zoo.privacy.mechanisms.bridge import Bridge

DEGREE = 4096
"""Coefficients of a polynomial. With 60 bits of modulus: 109 leave 128 bits of security (Albrecht et al., *Homomorphic Encryption
Standard*, 2018, table 1, ternary secrets), and SEAL refuses more."""
MODULUS = 1152921504606830593
"""Prime of 60 bits, 1 modulo ``2 DEGREE``: what coefficients of a ciphertext are counted in."""
PLACES_SCALE, ROWS_SCALE = 2**20, 2**18
"""What 1 is written as in a place and in a row: both are cut off to whole numbers, towards zero."""
SCALE = PLACES_SCALE * ROWS_SCALE
"""What 1 is written as in a map."""
SHORTER = 1 - 2**-10
"""What places are multiplied by before they are encrypted, so that errors of the encryption fit beside them."""
ERROR = 21
"""Of a coefficient of what SEAL draws as an error (centred binomial, of 42 bits), at most, in size."""

MOST_DIRECTIONS = 2048
"""Of a place: with more of them the errors of the encryption do not fit beside a place of length `SHORTER`."""

_FAR = 12  # standard deviations of the noise, which nobody sees exceeded


def check_directions(directions: int) -> None:
    """Refuse places so wide that the errors of their encryption make them longer than 1."""
    if not 1 <= directions <= MOST_DIRECTIONS:
        raise ValueError(
            f"Encrypted places have 1 to {MOST_DIRECTIONS} directions, got {directions}. Set num_directions lower."
        )


def users_at_once(directions: int) -> int:
    """Users whose places one ciphertext holds."""
    return DEGREE // directions


def num_blocks(num_users: int, directions: int) -> int:
    """Ciphertexts that places of so many users take."""
    return -(-num_users // users_at_once(directions))


def longest_place(directions: int) -> float:
    """Length of a place with the error of its encryption, at most, where the target follows the protocol."""
    return SHORTER + math.sqrt(directions) * ERROR / PLACES_SCALE


def error_of_zero(numbers: int) -> float:
    """L2 norm of what fresh encryptions of zero add to so many numbers of a map, at most.

    Each adds ``e + e' s - u e''``, with errors ``e, e', e''`` whose coefficients are at most `ERROR`, and a secret ``s`` and
    a mask ``u`` of coefficients in -1, 0 and 1.
    """
    return math.sqrt(numbers) * ERROR * (2 * DEGREE + 1) / SCALE


def check_room(plan: Bridge, kept: int, directions: int, num_users: int) -> None:
    """Refuse sizes whose errors do not fit beside places of length `SHORTER`, or whose sums do not fit into the modulus.

    The sensitivity of the plan stays what it is: it covers a user's own part, whose place is shorter by so much; twice the norm
    of what fresh encryptions of zero add (`encrypted_bridge.protocol` says why); and, for one rating, what cutting the two
    rows off to whole numbers moves them apart. All from public sizes.
    """
    cut = 0.0 if plan.relation.unit is Unit.USER else 2 * math.sqrt(kept) / ROWS_SCALE
    moved = (plan.sensitivity + cut) * longest_place(directions) + 2 * error_of_zero(kept * directions)
    if moved > plan.sensitivity:
        raise ValueError(
            f"Errors of the encryption do not fit beside a sensitivity of {plan.sensitivity:g} for a map of {kept} items and "
            f"{directions} directions: they come to {moved:.6g} together. Set kept_items lower, or ask the target for fewer "
            "directions."
        )
    if (largest := num_users * min(1.0, plan.clip) + _FAR * plan.noise_std) > (most := MODULUS / (2 * SCALE)):
        raise ValueError(
            f"Sums over {num_users:,} users with their noise may reach {largest:,.0f}, and the encryption counts to {most:,.0f}. "
            "Publish for fewer users, with a smaller clip, or without encryption."
        )
