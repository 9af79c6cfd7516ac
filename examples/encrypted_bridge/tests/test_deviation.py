"""A source that deviates: ciphertexts of the target's secret key instead of a map, and what they yield."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from encrypted_bridge.ckks import Ckks, _numbers
from encrypted_bridge.decryption import KeyPair, RefusedError, SecretKeyError, decrypt
from encrypted_bridge.parameters import (
    DEGREE,
    MODULUS,
    MOST_DISTANCE,
    PLACES_SCALE,
    ROWS_SCALE,
    SCALE,
    flood,
    largest_half,
)
from encrypted_bridge.protocol import (
    _add_products,
    agree,
    decrypted_map,
    decrypted_maps,
    encrypted_map,
    encrypted_places,
)
from encrypted_bridge.publishers import EncryptedBridgePublisher, EncryptedProjectionPublisher
from tests.zoo.privacy.audits.lying import lying
from zoo import Ratings, Release
from zoo.commands.privacy.show import PLAUSIBLE, parts
from zoo.data.directions import directions_of
from zoo.privacy.mechanisms.bridge import Bridge
from zoo.privacy.randomness.noise import NoiseSource
from zoo.testing.tiny import ratings

D, ITEMS, USERS = 6, 342, 40  # two digits a number: 4,104 of the 4,096 digits of a key


def masks_of(sizes: tuple[int, ...]) -> np.ndarray:
    """Masks (items, degree) under which number ``d`` of item ``t`` is the sum of ``size * key[D (len(sizes) t + k) + d]``."""
    made = np.zeros((ITEMS, DEGREE), dtype=np.int64)
    for item in range(ITEMS):
        for k, size in enumerate(sizes):
            at = D * (len(sizes) * item + k) % DEGREE
            made[item, -at % DEGREE] = -size % MODULUS if at else size  # X^-at is -X^(degree - at)
    return made


def digits_of(secret: np.ndarray) -> np.ndarray:
    """The ternary coefficients (degree,) of a key, by decrypting the ciphertext (0, 1)."""
    one = np.zeros((1, 2, DEGREE), dtype=np.int64)
    one[0, 1, 0] = 1
    return np.rint(Ckks().decrypted(one, secret)[0]).astype(int)


def positions_under(digits: np.ndarray, ciphertexts: np.ndarray) -> np.ndarray:
    """Positions (users, directions) that a key of these digits decrypts."""
    ckks = Ckks()
    secret = _numbers(next(ckks.encoded(digits[None].astype(float))), DEGREE)
    halves = np.stack([ckks.coefficients(each) for each in ckks.ciphertexts(ciphertexts)])
    return ckks.decrypted(halves, secret)[0, : USERS * D].reshape(USERS, D) / PLACES_SCALE


@pytest.fixture(scope="module")
def exchange(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ratings, Release]:
    """Keys and encrypted positions, the target's ratings, and the map of a source that follows the protocol."""
    folder, target = tmp_path_factory.mktemp("exchange"), ratings(USERS, 30, seed=4)
    EncryptedProjectionPublisher(folder / "own.key", D).publish(target, "music").save(folder / "places")
    return (
        folder,
        target,
        EncryptedBridgePublisher(2.0, folder / "places").publish(ratings(USERS, ITEMS, seed=5), "book"),
    )


def test_one_key_alone_would_be_read_off_its_map_with_every_position(exchange: tuple[Path, Ratings, Release]) -> None:
    folder, target, release = exchange
    size = int(20 * release.record.noise_scale * SCALE)
    crafted = np.stack([masks_of((size, 3 * size))] * 2)
    secret = KeyPair.read(folder / "own.key").secret_key.numpy()
    maps = decrypted_maps(np.zeros((2, ITEMS, D), dtype=np.int64), crafted, secret)
    steps = np.rint(decrypted_map(maps[:1], release.record.mechanism, NoiseSource.os()) * SCALE / size).astype(int)
    low = (steps + 1) % 3 - 1
    digits = np.stack([low, (steps - low) // 3], axis=1).ravel()[:DEGREE]
    assert (digits == digits_of(secret[0])).all()
    read = positions_under(digits, Release.load(folder / "places").tensors["places"][0].numpy())
    assert np.abs(read - directions_of(target.matrix, D, 0.5).projections).max() < 1.1e-3
    assert not agree(maps, release.record.mechanism)


@pytest.mark.parametrize("cause", ["keys", "one digit", "no noise"])
def test_a_refusal_is_the_same_for_every_cause_and_uses_the_keys_up(
    exchange: tuple[Path, Ratings, Release], tmp_path: Path, cause: str
) -> None:
    """A mask for one nonzero digit of the first key, added to the map of an honest source, is enough."""
    folder, _, release = exchange
    keys, tensors = KeyPair.read(folder / "own.key"), dict(release.tensors)
    size = int(20 * release.record.noise_scale * SCALE)
    if cause == "keys":
        tensors |= {"bodies": torch.zeros(2, ITEMS, D).long()}
        tensors |= {"masks": torch.from_numpy(np.stack([masks_of((size, 3 * size))] * 2))}
    elif cause == "one digit":
        at = int(np.flatnonzero(digits_of(keys.secret_key[0].numpy())[1:])[0]) + 1
        masks = tensors["masks"].clone()
        masks[0, 0, -at % DEGREE] = (masks[0, 0, -at % DEGREE] + size) % MODULUS
        tensors["masks"] = masks
    else:
        tensors["bodies"], tensors["masks"] = torch.zeros(2, ITEMS, D).long(), tensors["masks"] * 0
        tensors["masks"][..., 1] = 1  # a number of the key each, of 2^-40
    replace(release, tensors=tensors).save(tmp_path / "crafted")
    key = keys.save(tmp_path / "own.key")
    with pytest.raises(RefusedError) as refused:
        decrypt(tmp_path / "crafted", key, tmp_path / "map")
    assert str(refused.value) == (
        "Decryption refused (code R1). The keys are used up. Do not tell the source, and send it no embeddings of these users "
        "again: each answer can reveal a bit about them."
    )
    assert refused.value.__cause__ is refused.value.__context__ is None
    release.save(tmp_path / "honest")
    with pytest.raises(SecretKeyError, match=r"Keys decrypt one map"):
        decrypt(tmp_path / "honest", key, tmp_path / "map")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["crafted", "honest", "own.key", "own.key.used"]


def test_a_source_cannot_widen_the_tolerance_by_the_numbers_that_it_states(
    exchange: tuple[Path, Ratings, Release], tmp_path: Path
) -> None:
    """With so many users stated a whole key fits within the tolerance; the target's noise grows with it."""
    _, _, release = exchange
    assert PLAUSIBLE not in {line for part in parts(release, tmp_path) for line in part.lines}, (
        "nothing could be tested"
    )
    mechanism, numbers = replace(release.record.mechanism, num_users=2**53), release.tensors["bodies"].shape[1:]
    distance = math.erf(largest_half(mechanism, *numbers) / flood(mechanism, *numbers) / math.sqrt(8))
    assert distance <= MOST_DISTANCE + 1e-12


def test_what_the_tolerance_lets_through_is_hidden_by_the_targets_noise(
    exchange: tuple[Path, Ratings, Release],
) -> None:
    """A digit a number, as large as the target accepts. The share of 2,052 digits that are guessed leaves 1/3 by less than .055
    (5.2 deviations), and 240 positions correlate by less than .35 (5.4): each but for 1 in 10^6 runs."""
    folder, target, release = exchange
    plan, secret = release.record.mechanism, KeyPair.read(folder / "own.key").secret_key.numpy()
    true, numbers = digits_of(secret[0]), ITEMS * D
    size = int(1.9 * largest_half(plan, ITEMS, D) / np.linalg.norm(true[:numbers]) * SCALE)
    known = NoiseSource.os().normal((ITEMS, D)) * plan.noise_std
    bodies = np.stack([np.rint(known * SCALE).astype(np.int64) % MODULUS] * 2)
    maps = decrypted_maps(bodies, np.stack([masks_of((size,)), masks_of((1,))]), secret)  # SEAL refuses zeros
    assert agree(maps, plan)
    left = (decrypted_map(maps, plan, NoiseSource.os()) - known).ravel()
    guessed = np.digitize(left, np.quantile(left, [1 / 3, 2 / 3])) - 1
    assert abs((guessed == true[:numbers]).mean() - 1 / 3) < 0.055
    digits = np.concatenate([guessed, np.zeros(DEGREE - numbers, dtype=int)])
    read = positions_under(digits, Release.load(folder / "places").tensors["places"][0].numpy())
    positions = directions_of(target.matrix, D, 0.5).projections
    assert abs(np.corrcoef(read.ravel(), positions.ravel())[0, 1]) < 0.35


def test_a_source_that_chooses_its_rows_reads_positions_off_a_map_that_reaches_it() -> None:
    """What remains: sums over users that a source chooses are a map. Here each item has one user, 300 times."""
    plan = Bridge.calibrate(epsilon=2.0, delta=1e-5, num_users=USERS)
    positions = np.random.default_rng(1).normal(size=(USERS, D)) / 4
    given = encrypted_places(positions)
    loud = lying(plan, noise_std=plan.noise_std, clip=300.0)
    rows = csr_array(300 * np.eye(USERS))
    made = encrypted_map(rows, given.places, given.public_key, D, loud, NoiseSource.seeded(1), np.arange(USERS))
    maps = decrypted_maps(made.bodies, made.masks, given.secret)
    assert agree(maps, plan)
    read = decrypted_map(maps, plan, NoiseSource.os()) / 300
    assert np.corrcoef(read.ravel(), positions.ravel())[0, 1] > 0.99


def test_whether_a_map_is_accepted_tells_a_bit_about_one_users_embedding() -> None:
    """Stated in PRIVACY.md: a user's embedding is added to the map of one key, and only an embedding of zeros leaves both equal."""
    plan = Bridge.calibrate(epsilon=2.0, delta=1e-5, num_users=USERS)
    rows, ckks, accepted = csr_array(ratings(USERS, ITEMS, seed=5).matrix), Ckks(), []
    for length in (0.0, 0.25):
        positions = np.full((USERS, D), 0.1)
        positions[7] = length
        given = encrypted_places(positions)
        made = encrypted_map(rows, given.places, given.public_key, D, plan, NoiseSource.seeded(1), np.arange(USERS))
        total = ckks.seal.Ciphertext()
        ckks.encryptor(public=given.public_key[0]).encrypt_zero(total)
        weight = np.trunc(np.array([100 * plan.noise_std * ROWS_SCALE]))
        _add_products(ckks, [total], [ckks.ciphertexts(given.places[0])], np.array([7]), weight, D)
        halves = ckks.coefficients(total)
        made.bodies[0, 0] = (made.bodies[0, 0] + halves[0, :D]) % MODULUS
        made.masks[0, 0] = (made.masks[0, 0] + halves[1]) % MODULUS
        accepted.append(agree(decrypted_maps(made.bodies, made.masks, given.secret), plan))
    assert accepted == [True, False]
