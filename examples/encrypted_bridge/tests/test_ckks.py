"""CKKS on polynomials against products written out, and what is said where the library is not or takes no number."""

import sys

import numpy as np
import pytest

from encrypted_bridge.ckks import Ckks, MissingLibraryError
from encrypted_bridge.parameters import DEGREE, ERROR, MODULUS


@pytest.fixture(scope="module")
def ckks() -> Ckks:
    return Ckks()


def polynomials(count: int, largest: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-largest, largest + 1, (count, DEGREE)).astype(float)


def as_coefficients(ckks: Ckks, ciphertexts: np.ndarray) -> np.ndarray:
    return np.stack([ckks.coefficients(each) for each in ckks.ciphertexts(ciphertexts)])


def test_what_is_encrypted_is_decrypted_but_for_an_error_of_the_size_that_is_stated(ckks: Ckks) -> None:
    """Errors of 12,288 coefficients lie in [-21, 21] always; their deviation is that of 42 bits, sqrt(10.5), within 5 %, which of
    other draws fewer than 1 in 10^12 are not."""
    secret, _ = ckks.new_keys()
    messages = polynomials(3, 2**30)
    found = ckks.decrypted(as_coefficients(ckks, ckks.encrypted(messages, secret)), secret)
    errors = found - messages
    assert np.abs(errors).max() <= ERROR + 1  # and what decoding in float64 leaves
    assert errors.std() == pytest.approx(np.sqrt(10.5), rel=0.05)


def test_a_product_with_a_plaintext_is_that_of_polynomials_modulo_x_to_the_degree_plus_one(ckks: Ckks) -> None:
    secret, _ = ckks.new_keys()
    (message,) = polynomials(1, 2**20, seed=1)
    factor = np.zeros(DEGREE)
    factor[[0, 5, DEGREE - 3]] = 2.0**18, -7.0, 1.0
    (ciphertext,) = ckks.ciphertexts(ckks.encrypted(message[None], secret))
    (plain,) = ckks.encoded(factor[None])
    ckks.evaluator.multiply_plain_inplace(ciphertext, plain)
    found = ckks.decrypted(ckks.coefficients(ciphertext)[None], secret)[0]
    turned = np.concatenate([message[3:], -message[:3]])  # -X^(degree-3) is X^-3
    shifted = np.concatenate([-message[-5:], message[:-5]])
    expected = 2.0**18 * message - 7 * shifted - turned
    assert np.abs(found - expected).max() <= (ERROR + 1) * (2**18 + 8)


def test_other_keys_decrypt_nothing(ckks: Ckks) -> None:
    """Uniform numbers of 60 bits: none of 4,096 is below 2^40 but for one in 200 draws."""
    secret, other = (ckks.new_keys()[0] for _ in range(2))
    found = ckks.decrypted(as_coefficients(ckks, ckks.encrypted(polynomials(1, 5), secret)), other)
    assert np.sort(np.abs(found))[0, 40] > 2**40


def test_no_randomness_is_used_twice(ckks: Ckks) -> None:
    secret, public = ckks.new_keys()
    same = np.zeros((2, DEGREE))
    same[:, 3] = 1
    first, second = ckks.encrypted(same, secret)
    assert (first != second).mean() > 0.99
    assert (public != ckks.new_keys()[1]).mean() > 0.99


@pytest.mark.parametrize("at", [(0, 0, 0), (0, 1, 4095)])
def test_numbers_beyond_the_modulus_are_no_ciphertext(ckks: Ckks, at: tuple[int, int, int]) -> None:
    numbers = np.ones((1, 2, DEGREE), dtype=np.int64)
    numbers[at] = MODULUS
    with pytest.raises(ValueError, match="Not a key or ciphertext of SEAL"):
        ckks.ciphertexts(numbers)


def test_coefficients_that_a_float_does_not_hold_exactly_are_refused(ckks: Ckks) -> None:
    with pytest.raises(ValueError, match=r"is 1\.09951e\+12\. It must be below 2\^40"):
        list(ckks.encoded(np.full((1, DEGREE), 2.0**40)))


def test_without_the_library_one_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tenseal", None)
    with pytest.raises(MissingLibraryError, match=r"TenSEAL is not installed\. Install it: pip install 'tenseal"):
        Ckks()
