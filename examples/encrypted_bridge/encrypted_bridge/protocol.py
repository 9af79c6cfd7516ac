"""Protocol of an encrypted bridge: the source computes a noisy map of encrypted embeddings, and the target decrypts only the map.

**Packing.** With ``D`` directions, user ``u`` of a block has coefficients ``D u`` to ``D u + D - 1`` of a polynomial ``Q``. For
an item, the source makes ``P = sum_u r_u X^(-D u)``. Coefficients 0 to ``D - 1`` of ``P Q`` are ``sum_u r_u q_u`` exactly, and
those of the ciphertext error are ``sum_u r_u e_u``, as if the embeddings had these errors. No rotation or second kind of key is
needed. The other coefficients are sums of shifted users, which would reveal rows and stay at the source. Per item the source
sends ``D`` coefficients of the first half of the ciphertext (*bodies*) and the second half (*mask*), which decrypt to only ``D``
numbers.

**Two keys.** The target encrypts its embeddings under two independent keys, and the source computes the map under both, with noise
``G + g`` and ``G - g``. The target accepts only maps that agree up to ``g`` and errors, and uses their mean. A source that sends
other ciphertexts, for example of parts of the secret key, would have to guess that part under one of the keys. This follows the
double encryption of Naor & Yung (STOC 1990); the target has both keys, so it compares instead of reading a proof. What fits within
the tolerance is hidden by noise that the target adds before the map leaves it (`decrypted_map`).

**What the target learns about rows.** It has the secret key and made the ciphertexts. The mask alone, a linear function of rows
with known coefficients, would reveal them. So each item's sum includes a fresh encryption of zero under the public key, whose
second half hides the mask if ring learning with errors (RLWE) is hard. The target decrypts ``M + G + g + E`` and ``M' + G - g +
E'``: integer sums ``M`` and ``M'``, which differ by errors of the embeddings; noise, rounded to integers (post-processing, since
the sums are integers); and errors ``E`` of the fresh encryptions alone. These are a mean with noise ``G`` and half of a difference
with noise ``g``, two independent Gaussians.

1. Without ``E``, masks and noisy sums are indistinguishable from uniform masks and noisy sums under RLWE. Noise and rows then do
   not depend on the randomness of the masks.
2. Omitting ``E`` moves a Gaussian by ``|E|`` for either of two neighbouring inputs. Moves of Gaussians add up (group privacy of
   Gaussian mechanisms, Dong, Roth & Su 2022). So the whole is a Gaussian mechanism with the moves of mean, half difference and
   twice ``E``, up to step 1: computational differential privacy (Mironov, Pandey, Reingold & Vadhan, CRYPTO 2009).

`error_of_zero` bounds ``|E|``, and `noise_between` chooses ``g``. They fit, because embeddings are encrypted shorter by a
thousandth, and above 2,400 numbers rows are shortened too (`rows_factor`). So sigma is that of the plain map.

**Trust in the target.** The source cannot check that keys are drawn as specified and embeddings with errors have length 1 at
most. No cheap check is known: an embedding of length 1000 looks the same.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csc_array, csr_array

from encrypted_bridge.ckks import Ckks
from encrypted_bridge.parameters import (
    DEGREE,
    KEYS,
    MODULUS,
    PLACES_SCALE,
    ROWS_SCALE,
    SCALE,
    SHORTER,
    check_directions,
    check_room,
    flood,
    largest_half,
    noise_between,
    num_blocks,
    rows_factor,
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
    """Keys and ciphertexts of a target; all but the secret key are handed over."""

    secret: Integers  # (keys, degree); never handed over
    public_key: Integers  # (keys, 2, degree)
    places: Integers  # (keys, blocks, 2, degree)

    def __repr__(self) -> str:
        """Omit the keys, since output may be stored."""
        return f"EncryptedPlaces({self.places.shape[1]} ciphertexts under each key)"


class EncryptedMap(NamedTuple):
    """Map that a source hands over, under both keys; bodies and masks need the secret keys."""

    items: Integers  # items of the map, ascending, (kept,)
    bodies: Integers  # (keys, kept, directions)
    masks: Integers  # (keys, kept, degree)
    counts: Singles  # noisy sums of the clipped rows, not encrypted, (items,)


def encrypted_places(places: Floats) -> EncryptedPlaces:
    """Encrypt embeddings (users, directions) under two new keys: clipped to length 1, then shortened by a thousandth."""
    users, directions = places.shape
    check_directions(directions)
    bounded = clip_vectors(places[:, None, :], LONGEST)[:, 0, :]
    at_once = users_at_once(directions)
    padded = np.zeros((num_blocks(users, directions) * at_once, directions))
    padded[:users] = np.trunc(bounded * SHORTER * PLACES_SCALE)
    polynomials = np.zeros((len(padded) // at_once, DEGREE))
    polynomials[:, : at_once * directions] = padded.reshape(len(polynomials), at_once * directions)
    ckks = Ckks()
    secret, public = (np.stack(keys) for keys in zip(*(ckks.new_keys() for _ in range(KEYS)), strict=True))
    return EncryptedPlaces(secret, public, np.stack([ckks.encrypted(polynomials, each) for each in secret]))


def encrypted_map(
    rows: csr_array,
    places: Integers,
    public_key: Integers,
    directions: int,
    plan: Bridge,
    noise: NoiseSource,
    known: Integers,
) -> EncryptedMap:
    """Return noisy counts and the encrypted noisy map of 0/1 rows (users, items).

    Places (keys, blocks, 2, degree) and ``public_key`` (keys, 2, degree) are those of the target.
    ``known`` (encrypted users,) is the row of each encrypted user, -1 for none. Counts and noise are those of
    `zoo.privacy.mechanisms.bridge.noisy_map`, with the same draws; the noise of the map is rounded to integers.

    Raises:
        ValueError: The encryption errors are too large for the sensitivity, or the numbers are no ciphertexts.
    """
    check_directions(directions)
    check_room(plan, min(rows.shape[1], plan.kept_items or rows.shape[1]), directions, len(known))
    counts, items, clipped = chosen_items(rows, plan, noise)
    scale = rows_factor(len(items), directions) * ROWS_SCALE
    weights = csr_array((np.trunc(clipped.data * scale), clipped.indices, clipped.indptr), shape=clipped.shape)
    weights.eliminate_zeros()  # the library cannot multiply by zero
    found = np.flatnonzero(known >= 0)
    of_items = csc_array(weights[known[found]])
    common = _steps(plan.noise_std, noise, (len(items), directions))
    apart = _steps(noise_between(plan, len(items), directions), noise, (len(items), directions))
    steps = (common + apart, common - apart)
    ckks = Ckks()
    encryptors = [ckks.encryptor(public=each) for each in public_key]
    blocks = [ckks.ciphertexts(each) for each in places]
    bodies = np.empty((KEYS, len(items), directions), dtype=np.int64)
    masks = np.empty((KEYS, len(items), DEGREE), dtype=np.int64)
    for item in range(len(items)):
        cells = slice(of_items.indptr[item], of_items.indptr[item + 1])
        users = found[of_items.indices[cells]]
        # Without a fresh encryption of zero the mask reveals the rows to the holder of the secret key.
        totals = [ckks.seal.Ciphertext() for _ in encryptors]
        for encryptor, total in zip(encryptors, totals, strict=True):
            encryptor.encrypt_zero(total)
        _add_products(ckks, totals, blocks, users, of_items.data[cells], directions)
        for key, total in enumerate(totals):
            halves = ckks.coefficients(total)
            bodies[key, item] = (halves[0, :directions] + steps[key][item]) % MODULUS
            masks[key, item] = halves[1]
    return EncryptedMap(items, bodies, masks, counts.astype(np.float32))


def _steps(sigma: float, noise: NoiseSource, shape: tuple[int, int]) -> Integers:
    """Return the noise in units of 1 / `SCALE`, plus uniform integers over a step of its public lattice.

    These hide the float64 digits below the lattice from the holder of the secret key. Adding them is post-processing.
    """
    steps = np.rint(sigma * SCALE * noise.normal(shape)).astype(np.int64)
    step = int(lattice_spacing(sigma) * SCALE)
    return steps if step < 2 else steps + noise.integers(step, shape) - step // 2


def _add_products(
    ckks: Ckks, totals: list[Any], blocks: list[list[Any]], users: Integers, weights: Floats, directions: int
) -> None:
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
            for total, of_key in zip(totals, blocks, strict=True):
                ckks.evaluator.multiply_plain(of_key[block], plain, product)
                ckks.evaluator.add_inplace(total, product)


def _slices(present: Integers) -> Iterator[Integers]:
    return (present[start : start + _AT_ONCE] for start in range(0, len(present), _AT_ONCE))


def decrypted_maps(bodies: Integers, masks: Integers, secret: Integers) -> Floats:
    """Decrypt bodies (keys, kept, directions) with masks and secret keys to the source's map under each key."""
    (keys, kept, directions), ckks = bodies.shape, Ckks()
    made = np.empty((keys, kept, directions))
    for key in range(keys):
        for start in range(0, kept, _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            halves = np.zeros((len(masks[key, some]), 2, DEGREE), dtype=np.int64)
            halves[:, 0, :directions], halves[:, 1] = bodies[key, some], masks[key, some]
            made[key, some] = ckks.decrypted(halves, secret[key])[:, :directions]
    return made / SCALE


def agree(maps: Floats, plan: Bridge) -> bool:
    """Say whether the maps under both keys (keys, kept, directions) differ by noise and errors only."""
    return float(np.linalg.norm(maps[0] - maps[1])) / 2 <= largest_half(plan, *maps.shape[1:])


def decrypted_map(maps: Floats, plan: Bridge, noise: NoiseSource) -> Singles:
    """Return the map (kept, directions) that may leave the target: the mean of both, with noise of the target's own.

    ``noise`` is the target's. It hides what the two maps may differ by (`encrypted_bridge.parameters.flood`).
    """
    own = flood(plan, *maps.shape[1:]) * noise.normal(maps.shape[1:])
    return round_to_lattice(maps.mean(axis=0) + own, plan.noise_std).astype(np.float32)


def through_encryption(rows: csr_array, places: Floats, plan: Bridge, noise: NoiseSource) -> NoisyMap:
    """Run both parties with new keys, instead of `zoo.privacy.mechanisms.bridge.noisy_map`; without the target's own noise."""
    given = encrypted_places(places)
    known = np.arange(rows.shape[0])
    made = encrypted_map(rows, given.places, given.public_key, places.shape[1], plan, noise, known)
    mean = decrypted_maps(made.bodies, made.masks, given.secret).mean(axis=0)
    return NoisyMap(made.items, round_to_lattice(mean, plan.noise_std).astype(np.float32), made.counts)
