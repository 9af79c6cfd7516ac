"""Public parameters of the encryption, and bounds of its errors."""

import math

from scipy.special import erfinv
from scipy.stats import chi2

from zoo.privacy.accounting.relation import Unit
from zoo.privacy.mechanisms.bridge import Bridge

DEGREE = 4096
"""Coefficients of a polynomial. With 60 bits of modulus: 109 leave 128 bits of security (Albrecht et al., *Homomorphic Encryption
Standard*, 2018, table 1, ternary secrets), and SEAL refuses more."""
MODULUS = 1152921504606830593
"""Modulus of ciphertext coefficients: a prime of 60 bits, 1 modulo ``2 DEGREE``."""
KEYS = 2
"""Keys of a target: the maps under both must agree."""
PLACES_SCALE, ROWS_SCALE = 2**22, 2**18
"""Scales of embeddings and rows, which are truncated to integers towards zero."""
SCALE = PLACES_SCALE * ROWS_SCALE
"""Scale of a map."""
SHORTER = 1 - 2**-10
"""Factor by which embeddings are shortened before encryption, to leave room for its errors."""
ERROR = 21
"""Largest absolute coefficient of an error of SEAL (centred binomial, 42 bits)."""
FLOOD, MOST_DISTANCE = 0.25, 0.04
"""Least noise of the target on a decrypted map, in units of the source's sigma (both together are 3.1 % more than sigma), and the
largest statistical distance that an accepted difference makes under this noise."""

MOST_DIRECTIONS = 2048
"""Largest width of an embedding: beyond it errors could make an embedding of length `SHORTER` longer than 1."""

_FAR = 12  # standard deviations that the noise never exceeds in practice
_RARE_BITS = 80  # an error of a fresh zero exceeds its bound with a probability of 2^-80
_ROOM, _FEW = 2**-9, 2400  # of the squared sensitivity, for the errors of so many numbers or fewer
_SHORTEST = 0.7  # factor of rows
_LEAST_RATIO = 128  # of sigma to the noise between the two ciphertexts, at least
_FALSE_ALARM = 1e-9  # probability that a map of a source that follows the protocol is refused


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
    """Return the L2 norm that fresh encryptions of zero add to the numbers of a map at most, but for 2^-80 a number.

    Each adds ``e + e' s - u e''``: errors ``e, e', e''`` of 42 bits a coefficient, and ternary ``s`` and ``u``. So it is a sum of
    ``42 (2 DEGREE + 1)`` independent numbers of +-1/2 at most, to which Hoeffding's inequality applies.
    """
    variance = ERROR / 2 * (2 * DEGREE + 1)
    return math.sqrt(numbers * 2 * math.log(2) * (_RARE_BITS + 1) * variance) / SCALE


def rows_factor(kept: int, directions: int) -> float:
    """Return the factor of the source's rows in a map: 1 up to 2,400 numbers, then less, so that more errors have more room.

    Together with `SHORTER` it leaves a part of the squared sensitivity that grows with the numbers. So the noise between the
    ciphertexts falls with their root, and its norm stays the same.
    """
    more = max(1.0, kept * directions / _FEW)
    return math.sqrt(max(0.0, 1 - _ROOM * more) / (1 - _ROOM))


def noise_between(plan: Bridge, kept: int, directions: int) -> float:
    """Return the standard deviation of the noise that is added to one ciphertext and subtracted from the other.

    The mean of the two decrypted maps has noise of sigma, and half of their difference has this noise. One user moves the mean by
    ``mean``, the half difference by ``half``, and the fresh zeros move both by ``zeros``. The result is the smallest ``s`` with
    ``hypot(mean / sigma, half / s) + 2 zeros / s <= sensitivity / sigma``, so epsilon is that of the plain map.

    Raises:
        ValueError: Errors need more than 1 / 128 of sigma, for which the two maps differ too much to be compared, or rows would
            be shortened below 0.7.
    """
    cut = 0.0 if plan.relation.unit is Unit.USER else 2 * math.sqrt(kept) / ROWS_SCALE
    most, zeros, factor = plan.sensitivity, error_of_zero(kept * directions), rows_factor(kept, directions)
    mean = (factor * most + cut) * longest_place(directions)
    half = (factor * most + cut) * math.sqrt(directions) * ERROR / PLACES_SCALE
    room = most**2 - mean**2
    ratio = room / (2 * most * zeros + math.sqrt(4 * (zeros * mean) ** 2 + half**2 * room)) if room > 0 else 0.0
    if ratio < _LEAST_RATIO or factor < _SHORTEST:
        raise ValueError(
            f"Encryption errors of {kept} items and {directions} directions exceed the sensitivity {most:g}. Lower "
            "either, or raise clip."
        )
    return plan.noise_std / ratio


def largest_half(plan: Bridge, kept: int, directions: int) -> float:
    """Return the largest L2 norm of half the difference of two decrypted maps that the target accepts.

    It has the noise of `noise_between` and errors of the embeddings, which do not depend on the rows of a source that follows the
    protocol. Such a source is refused with a probability of 1e-9.
    """
    numbers, of_places = kept * directions, min(1.0, plan.clip) ** 2 * plan.num_users * ERROR / 4 / PLACES_SCALE**2
    variance = noise_between(plan, kept, directions) ** 2 + of_places
    return math.sqrt(variance * float(chi2.isf(_FALSE_ALARM, numbers))) + error_of_zero(numbers)


def flood(plan: Bridge, kept: int, directions: int) -> float:
    """Return the standard deviation of the target's noise on a decrypted map: `FLOOD` sigma, or more where that is too little.

    Two Gaussians whose means are `largest_half` apart have the statistical distance ``erf(d / sqrt(8))``, where ``d`` is the
    quotient of this and their deviation. The result keeps it at `MOST_DISTANCE` at most, for every size.
    """
    least = largest_half(plan, kept, directions) / (math.sqrt(8) * float(erfinv(MOST_DISTANCE)))
    return max(FLOOD * plan.noise_std, least)


def check_room(plan: Bridge, kept: int, directions: int, num_users: int) -> None:
    """Refuse public sizes whose encryption errors exceed the sensitivity, or whose sums exceed the modulus.

    The sensitivity of the plan must cover a user's contribution with an embedding of length `SHORTER`, the fresh encryptions of
    zero (reason: `encrypted_bridge.protocol`) and, for one rating, the truncation of the two rows.
    """
    noise_between(plan, kept, directions)
    if (largest := num_users * min(1.0, plan.clip) + _FAR * plan.noise_std) > (most := MODULUS / (2 * SCALE)):
        raise ValueError(
            f"Noisy sums over {num_users:,} users may reach {largest:,.0f}, above the limit {most:,.0f}. Lower clip "
            "or users."
        )
