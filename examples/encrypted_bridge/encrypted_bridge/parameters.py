"""Public parameters of the encryption, and bounds of its errors."""

import math

from zoo.privacy.accounting.relation import Unit
from zoo.privacy.mechanisms.bridge import Bridge

DEGREE = 4096
"""Coefficients of a polynomial. With 60 bits of modulus: 109 leave 128 bits of security (Albrecht et al., *Homomorphic Encryption
Standard*, 2018, table 1, ternary secrets), and SEAL refuses more."""
MODULUS = 1152921504606830593
"""Modulus of ciphertext coefficients: a prime of 60 bits, 1 modulo ``2 DEGREE``."""
PLACES_SCALE, ROWS_SCALE = 2**20, 2**18
"""Scales of embeddings and rows, which are truncated to integers towards zero."""
SCALE = PLACES_SCALE * ROWS_SCALE
"""Scale of a map."""
SHORTER = 1 - 2**-10
"""Factor by which embeddings are shortened before encryption, to leave room for its errors."""
ERROR = 21
"""Largest absolute coefficient of an error of SEAL (centred binomial, 42 bits)."""

MOST_DIRECTIONS = 2048
"""Largest width of an embedding: beyond it errors could make an embedding of length `SHORTER` longer than 1."""

_FAR = 12  # standard deviations that the noise never exceeds in practice


def check_directions(directions: int) -> None:
    """Refuse embeddings so wide that encryption errors could make them longer than 1."""
    if not 1 <= directions <= MOST_DIRECTIONS:
        raise ValueError(f"num_directions is {directions}. It must be 1 to {MOST_DIRECTIONS}.")


def users_at_once(directions: int) -> int:
    """Return the number of users in one ciphertext."""
    return DEGREE // directions


def num_blocks(num_users: int, directions: int) -> int:
    """Return the number of ciphertexts for a number of users."""
    return -(-num_users // users_at_once(directions))


def longest_place(directions: int) -> float:
    """Return the largest length of an embedding with encryption errors, if the target follows the protocol."""
    return SHORTER + math.sqrt(directions) * ERROR / PLACES_SCALE


def error_of_zero(numbers: int) -> float:
    """Return the largest L2 norm that fresh encryptions of zero add to the numbers of a map.

    Each adds ``e + e' s - u e''``: errors ``e, e', e''`` with coefficients up to `ERROR`, and ternary ``s`` and ``u``.
    """
    return math.sqrt(numbers) * ERROR * (2 * DEGREE + 1) / SCALE


def check_room(plan: Bridge, kept: int, directions: int, num_users: int) -> None:
    """Refuse public sizes whose encryption errors exceed the sensitivity, or whose sums exceed the modulus.

    The sensitivity of the plan must cover a user's contribution with an embedding of length `SHORTER`, twice the norm of the fresh
    encryptions of zero (reason: `encrypted_bridge.protocol`) and, for one rating, the truncation of the two rows.
    """
    cut = 0.0 if plan.relation.unit is Unit.USER else 2 * math.sqrt(kept) / ROWS_SCALE
    moved = (plan.sensitivity + cut) * longest_place(directions) + 2 * error_of_zero(kept * directions)
    if moved > plan.sensitivity:
        raise ValueError(
            f"With encryption errors the sensitivity is {moved:.6g}, above {plan.sensitivity:g}, for {kept} items and {directions} "
            "directions. Lower kept_items or num_directions."
        )
    if (largest := num_users * min(1.0, plan.clip) + _FAR * plan.noise_std) > (most := MODULUS / (2 * SCALE)):
        raise ValueError(
            f"Noisy sums over {num_users:,} users may reach {largest:,.0f}, above the limit {most:,.0f}. Publish for fewer users, "
            "lower clip, or publish without encryption."
        )
