"""CKKS with Microsoft SEAL as bundled by TenSEAL, which only this file imports.

Parties exchange arrays of integers below the modulus, which the receiver checks, and no files of the library. SEAL cannot set the
numbers of a ciphertext, so arrays become ciphertexts through files in its uncompressed format, in memory if possible.
"""

from __future__ import annotations

import os
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from encrypted_bridge.parameters import DEGREE, MODULUS

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Complexes = npt.NDArray[np.complex128]

_SLOTS = DEGREE // 2
_LARGEST = 2**40  # a float64 Fourier transform returns smaller coefficients exactly


class MissingLibraryError(ValueError):
    """The encryption library is not installed."""


class Ckks:
    """Encryption of polynomials with integer coefficients, with the parameters of `encrypted_bridge.parameters`.

    CKKS (Cheon, Kim, Kim & Song, ASIACRYPT 2017) with a scale of 1. A ciphertext is ``(c0, c1)`` with
    ``c0 + c1 s = message + error`` modulo the prime, where ``s`` is the secret key.

    Raises:
        MissingLibraryError: TenSEAL is not installed.
    """

    def __init__(self) -> None:
        self.seal = seal = _library()
        parameters = seal.EncryptionParameters(seal.SCHEME_TYPE.CKKS)
        parameters.set_poly_modulus_degree(DEGREE)
        parameters.set_coeff_modulus([seal.Modulus(MODULUS)])
        self.context = seal.SEALContext(
            parameters, True, seal.SEC_LEVEL_TYPE.TC128
        )  # refuses less than 128 bits of security
        if not self.context.parameters_set():
            raise RuntimeError(f"SEAL refuses the parameters: {self.context.parameters_error_message()}.")
        self.evaluator = seal.Evaluator(self.context)
        self._encoder = seal.CKKSEncoder(self.context)
        self._parms_id = self.context.first_parms_id()

    def new_keys(self) -> tuple[Integers, Integers]:
        """Return a secret key (degree,) and its public key (2, degree), drawn from the operating system."""
        maker, public = self.seal.KeyGenerator(self.context), self.seal.PublicKey()
        maker.create_public_key(public)
        secret = maker.secret_key()  # a reference: its data do not keep it alive
        return _numbers(secret.data(), DEGREE), _numbers(public.data(), 2 * DEGREE).reshape(2, DEGREE)

    def encryptor(self, *, public: Integers | None = None, secret: Integers | None = None) -> Any:  # noqa: ANN401  SEAL's
        """Return SEAL's encryptor for a key."""
        if public is not None:
            return self.seal.Encryptor(self.context, self._loaded(self.seal.PublicKey(), self._ciphertext(public)))
        assert secret is not None
        return self.seal.Encryptor(self.context, self._secret(secret))

    def _secret(self, secret: Integers) -> Any:  # noqa: ANN401
        head = struct.pack("<4Q", *self._parms_id) + struct.pack("<Qd", DEGREE, 1.0)
        return self._loaded(self.seal.SecretKey(), self._framed(head + self._array(secret)))

    def encoded(self, coefficients: Floats) -> Iterator[Any]:
        """Yield SEAL's plaintexts of polynomials (count, degree) with integer coefficients."""
        if np.abs(coefficients).max(initial=0.0) >= _LARGEST:
            raise ValueError(f"A coefficient is {np.abs(coefficients).max():.6g}. It must be below 2^40.")
        turned = np.fft.ifft(coefficients * _TWIST, axis=-1) * DEGREE
        for slots in turned[..., _AT]:
            made = self.seal.Plaintext()
            self._encoder.encode(slots.tolist(), self._parms_id, 1.0, made)
            yield made

    def encrypted(self, coefficients: Floats, secret: Integers) -> Integers:
        """Return ciphertexts (count, 2, degree) of polynomials (count, degree), each with its own randomness."""
        encryptor, made = self.encryptor(secret=secret), np.empty((len(coefficients), 2, DEGREE), dtype=np.int64)
        for at, plain in enumerate(self.encoded(coefficients)):
            ciphertext = self.seal.Ciphertext()
            encryptor.encrypt_symmetric(plain, ciphertext)
            made[at] = _numbers(ciphertext, 2 * DEGREE).reshape(2, DEGREE)
        return made

    def ciphertexts(self, numbers: Integers) -> list[Any]:
        """Return SEAL's ciphertexts of arrays (count, 2, degree); raise a `ValueError` if it refuses one."""
        return [self._loaded(self.seal.Ciphertext(), self._ciphertext(each)) for each in numbers]

    def coefficients(self, ciphertext: Any) -> Integers:  # noqa: ANN401  SEAL's
        """Return the coefficients (2, degree) of both halves of a SEAL ciphertext, modulo the prime."""
        self.evaluator.transform_from_ntt_inplace(ciphertext)
        return _numbers(ciphertext, 2 * DEGREE).reshape(2, DEGREE)

    def decrypted(self, halves: Integers, secret: Integers) -> Floats:
        """Decrypt ciphertext coefficients (count, 2, degree) to messages with errors (count, degree), below half the prime.

        The library decodes in float64, to about 1e-8 of the scale of a map.
        """
        decryptor, made = self.seal.Decryptor(self.context, self._secret(secret)), np.empty((len(halves), DEGREE))
        for at, each in enumerate(halves):
            ciphertext = self._loaded(self.seal.Ciphertext(), self._ciphertext(each, transformed=False))
            self.evaluator.transform_to_ntt_inplace(ciphertext)
            plain = self.seal.Plaintext()
            decryptor.decrypt(ciphertext, plain)
            made[at] = _from_slots(np.array(self._encoder.decode_complex(plain)))
        return made

    def _ciphertext(self, numbers: Integers, *, transformed: bool = True) -> bytes:
        head = struct.pack("<4Q", *self._parms_id) + struct.pack("<BQQQdQ", transformed, 2, DEGREE, 1, 1.0, 1)
        return self._framed(head + self._array(numbers))

    def _array(self, numbers: Integers) -> bytes:
        return self._framed(struct.pack("<Q", numbers.size) + numbers.astype("<u8").tobytes())

    def _framed(self, content: bytes) -> bytes:
        return self._header[:8] + struct.pack("<Q", 16 + len(content)) + content

    @cached_property
    def _header(self) -> bytes:
        header = self.seal.Serialization.SEALHeader()
        versions = (header.header_size, header.version_major, header.version_minor, header.compr_mode.value)
        return struct.pack("<HBBBBHQ", header.magic, *versions, 0, 0)

    def _loaded(self, made: Any, content: bytes) -> Any:  # noqa: ANN401  SEAL's
        with _scratch(content) as path:
            try:
                made.load(self.context, path)
            except (RuntimeError, ValueError) as error:
                raise ValueError(f"Not a key or ciphertext of SEAL ({error}). Ask for it again.") from error
        return made


def _library() -> Any:  # noqa: ANN401  a module without types
    try:
        from tenseal import sealapi  # type: ignore[import-untyped]
    except ImportError as error:
        raise MissingLibraryError(
            "TenSEAL is not installed. Install it: pip install 'tenseal>=0.3.18,<0.4'."
        ) from error
    return sealapi


@contextmanager
def _scratch(content: bytes) -> Iterator[str]:
    """Yield the path of a file with a content, in memory if possible, else private and removed afterwards.

    The library reads only files, and a secret key must not be stored on a disk.
    """
    if hasattr(os, "memfd_create"):
        with open(os.memfd_create("seal"), "wb") as file:
            file.write(content)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        path = Path(folder) / "seal"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        yield str(path)


def _numbers(holder: Any, count: int) -> Integers:  # noqa: ANN401  SEAL's
    read: Sequence[int] = [holder[at] for at in range(count)]
    return np.array(read, dtype=np.int64)


# SEAL's slots are the values of a polynomial at some of the odd powers of exp(i pi / degree); the others are their conjugates.


def _slots() -> Integers:
    """Return the halved odd power of each slot: successive powers of 3, the order of SEAL (``ckks.cpp``)."""
    powers = np.empty(_SLOTS, dtype=np.int64)
    power = 1
    for at in range(_SLOTS):
        powers[at], power = power, power * 3 % (2 * DEGREE)
    return (powers - 1) // 2


_AT = _slots()
_TWIST: Complexes = np.exp(1j * np.pi * np.arange(DEGREE) / DEGREE)


def _from_slots(slots: Complexes) -> Floats:
    values = np.empty(DEGREE, dtype=np.complex128)
    values[_AT] = slots
    values[DEGREE - 1 - _AT] = slots.conj()
    found: Floats = (np.fft.fft(values) / DEGREE * _TWIST.conj()).real
    return found
