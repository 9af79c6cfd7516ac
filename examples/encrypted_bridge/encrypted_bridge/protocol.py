"""A map whose places are encrypted: the source sums and adds its noise without reading a place, the target decrypts the map alone.

**Packing.** With ``D`` directions, the user at ``u`` of a block lies in coefficients ``D u`` to ``D u + D - 1`` of a polynomial
``Q``. For an item, the source makes ``P = sum_u r_u X^(-D u)``; coefficients 0 to ``D - 1`` of ``P Q`` are then ``sum_u r_u q_u``,
exactly, and those of the ciphertext's error are ``sum_u r_u e_u``: the error of encryption is one of the places. No rotation,
no second kind of key. The other coefficients are sums with users shifted against one another: they would tell of rows, and do
not leave. What leaves is, for each item, ``D`` coefficients of the first half of the ciphertext (its *bodies*) and all of the
second (its *mask*): that decrypts the ``D`` numbers, and no other.

**What the target may learn of rows.** It has the secret key and made the ciphertexts, so without more it would read them off
the mask, which is a linear function of rows with coefficients that it knows. Therefore each item's sum gets a fresh encryption of
zero under the public key: its second half hides the mask as ring learning with errors is hard. The target decrypts
``M + G + E``: the sum in whole numbers; the noise, rounded to whole numbers, which is rounding after the noise since ``M`` is
whole (post-processing of the Gaussian mechanism, free); and an error ``E`` that depends on the fresh encryptions alone.

1. With ``E`` left out, what the target sees (masks and ``M + G``) cannot be told from uniform masks and ``M + G`` by whoever
   cannot break ring learning with errors: neither noise nor rows then depend on the randomness of the masks.
2. Leaving it out moves a Gaussian by ``|E|``, whatever that randomness was, for either of two neighbouring inputs. Moves of
   Gaussians in a chain add up (group privacy of Gaussian mechanisms, Dong, Roth & Su 2022), so the whole is a Gaussian
   mechanism whose sensitivity is the map's and ``2 |E|``, up to what the first step costs: computational differential
   privacy (Mironov, Pandey, Reingold & Vadhan, CRYPTO 2009).

``|E|`` is bounded, not estimated (`error_of_zero`), and fits beside the map's own sensitivity, as places are encrypted a
thousandth shorter (`check_room`). So sigma is that of the map without encryption.

**What rests on the target.** That it drew its keys as told, and that places with their errors are of length 1 at most. The source
sees neither, and no cheap check of it is known: a place a thousand times as long looks the same to it.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array

from encrypted_bridge.ckks import Ckks
from encrypted_bridge.parameters import (
    DEGREE,
    MODULUS,
    PLACES_SCALE,
    ROWS_SCALE,
    SCALE,
    SHORTER,
    check_directions,
    check_room,
    num_blocks,
    users_at_once,
)
from zoo.privacy.mechanisms.bridge import LONGEST, Bridge, NoisyMap, chosen_items
from zoo.privacy.mechanisms.vectors import clip_vectors
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing, round_to_lattice

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Singles = npt.NDArray[np.float32]

_AT_ONCE = 64  # polynomials in memory together


class EncryptedPlaces(NamedTuple):
    """What a target hands over, and the key that it keeps."""

    secret: Integers  # (degree,); never handed over
    public_key: Integers  # (2, degree)
    places: Integers  # (blocks, 2, degree)

    def __repr__(self) -> str:
        """Without the key: what is printed is kept."""
        return f"EncryptedPlaces({len(self.places)} ciphertexts)"


class EncryptedMap(NamedTuple):
    """What a source hands over; of bodies and masks nobody reads anything without the secret key."""

    items: Integers  # which items the map has, rising, (kept,)
    bodies: Integers  # (kept, directions)
    masks: Integers  # (kept, degree)
    counts: Singles  # sums of the clipped rows with their noise, in the open, (items,)


def encrypted_places(places: Floats) -> EncryptedPlaces:
    """New keys, and places (users, directions) encrypted under them: clipped to a length of 1, made shorter by a thousandth."""
    users, directions = places.shape
    check_directions(directions)
    bounded = clip_vectors(places[:, None, :], LONGEST)[:, 0, :]
    at_once = users_at_once(directions)
    padded = np.zeros((num_blocks(users, directions) * at_once, directions))
    padded[:users] = np.trunc(bounded * SHORTER * PLACES_SCALE)
    polynomials = np.zeros((len(padded) // at_once, DEGREE))
    polynomials[:, : at_once * directions] = padded.reshape(len(polynomials), at_once * directions)
    ckks = Ckks()
    secret, public = ckks.new_keys()
    return EncryptedPlaces(secret, public, ckks.encrypted(polynomials, secret))


def encrypted_map(
    rows: csr_array,
    places: Integers,
    public_key: Integers,
    directions: int,
    plan: Bridge,
    noise: NoiseSource,
    known: Integers,
) -> EncryptedMap:
    """The counts, and the map under encryption, of 0/1 rows (users, items), noised as a plan says.

    ``known`` (encrypted users,) is which row is that of each user among the encrypted ones, -1 for none. The counts are those
    of `zoo.privacy.mechanisms.bridge.noisy_map`, with the same draws, and so is the noise of the map, rounded to whole numbers.

    Raises:
        ValueError: Errors of the encryption do not fit beside the noise, or the numbers are no ciphertexts.
    """
    check_directions(directions)
    check_room(plan, min(rows.shape[1], plan.kept_items or rows.shape[1]), directions, len(known))
    counts, items, clipped = chosen_items(rows, plan, noise)
    weights = csr_array((np.trunc(clipped.data * ROWS_SCALE), clipped.indices, clipped.indptr), shape=clipped.shape)
    weights.eliminate_zeros()  # the library refuses to multiply by nothing
    found = np.flatnonzero(known >= 0)
    of_items = csc_array(weights[known[found]])
    steps = _steps(plan.noise_std, noise, (len(items), directions))
    ckks = Ckks()
    encryptor, blocks = ckks.encryptor(public=public_key), ckks.ciphertexts(places)
    bodies = np.empty((len(items), directions), dtype=np.int64)
    masks = np.empty((len(items), DEGREE), dtype=np.int64)
    for item in range(len(items)):
        cells = slice(of_items.indptr[item], of_items.indptr[item + 1])
        users = found[of_items.indices[cells]]
        # A fresh encryption of zero for each item: without it the mask tells the rows to whoever has the secret key.
        total = ckks.seal.Ciphertext()
        encryptor.encrypt_zero(total)
        _add_products(ckks, total, blocks, users, of_items.data[cells], directions)
        halves = ckks.coefficients(total)
        bodies[item] = (halves[0, :directions] + steps[item]) % MODULUS
        masks[item] = halves[1]
    return EncryptedMap(items, bodies, masks, counts.astype(np.float32))


def _steps(sigma: float, noise: NoiseSource, shape: tuple[int, int]) -> Integers:
    """The noise in whole numbers of which `SCALE` are 1, its lowest part drawn anew.

    What is below the public lattice of such noise would otherwise stand as float64 has it, for whoever has the secret key. Adding
    whole numbers that are uniform over a step of that lattice, around 0, is post-processing; they hide that part.
    """
    steps = np.rint(sigma * SCALE * noise.normal(shape)).astype(np.int64)
    step = int(lattice_spacing(sigma) * SCALE)
    return steps if step < 2 else steps + noise.integers(step, shape) - step // 2


def _add_products(
    ckks: Ckks,
    total: Any,  # noqa: ANN401  SEAL's
    blocks: list[Any],
    users: Integers,
    weights: Floats,
    directions: int,
) -> None:
    """Add an item's polynomials times the places of their blocks; blocks where nobody has the item add nothing."""
    at_once = users_at_once(directions)
    of_block, within = np.divmod(users, at_once)
    present = np.unique(of_block)
    product = ckks.seal.Ciphertext()
    for some in _slices(present):
        polynomials = np.zeros((len(some), DEGREE))
        chosen = (of_block >= some[0]) & (of_block <= some[-1])
        power = directions * within[chosen]
        # X^-k is -X^(degree - k), and 1 for k = 0.
        at, sign = np.where(power > 0, DEGREE - power, 0), np.where(power > 0, -1.0, 1.0)
        polynomials[np.searchsorted(some, of_block[chosen]), at] = sign * weights[chosen]
        for block, plain in zip(some, ckks.encoded(polynomials), strict=True):
            ckks.evaluator.multiply_plain(blocks[block], plain, product)
            ckks.evaluator.add_inplace(total, product)


def _slices(present: Integers) -> Iterator[Integers]:
    return (present[start : start + _AT_ONCE] for start in range(0, len(present), _AT_ONCE))


def decrypted_map(bodies: Integers, masks: Integers, secret: Integers, sigma: float) -> Singles:
    """The map (kept, directions) of bodies and masks, on the lattice of its noise of standard deviation ``sigma``."""
    kept, directions = bodies.shape
    ckks, made = Ckks(), np.empty((kept, directions))
    for start in range(0, kept, _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        halves = np.zeros((len(masks[some]), 2, DEGREE), dtype=np.int64)
        halves[:, 0, :directions], halves[:, 1] = bodies[some], masks[some]
        made[some] = ckks.decrypted(halves, secret)[:, :directions]
    return round_to_lattice(made / SCALE, sigma).astype(np.float32)


def through_encryption(rows: csr_array, places: Floats, plan: Bridge, noise: NoiseSource) -> NoisyMap:
    """Both parties' parts one after the other, under new keys: in the place of `zoo.privacy.mechanisms.bridge.noisy_map`."""
    given = encrypted_places(places)
    known = np.arange(rows.shape[0])
    made = encrypted_map(rows, given.places, given.public_key, places.shape[1], plan, noise, known)
    return NoisyMap(made.items, decrypted_map(made.bodies, made.masks, given.secret, plan.noise_std), made.counts)
