"""Noise: the randomness of mechanisms, separate from every global random state."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from zoo.runtime.renamed import OldName

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
Shape = int | tuple[int, ...]

OS_ENTROPY = "os entropy"
#: A generator that gets a new key of 128 bits from the operating system for each step of a training.
KEYED = "philox keyed by os entropy"
SEEDED = "seeded noise"

_CHUNK = 2**16  # words per chunk, which fit into a processor's cache
_FEW = 2**18  # words below which a second thread does not pay off
_THREADS = 4  # at most one per processor

_NOISE_STREAM = 1
_PUBLIC_STREAM = 2
#: Streams of `public_uniforms` for the parts of a sparse-aware projection; never change these numbers.
MASK_STREAM, SIGN_STREAM = 3, 4


def _philox(seed: int, *stream: int, offset: int = 0) -> Callable[[int], Words]:
    """Return the words of a counter-based generator from word ``offset`` of its stream, without computing earlier ones."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed is {seed!r}. Allowed: integers >= 0.")
    if offset < 0:
        raise ValueError(f"offset is {offset!r}. Allowed: >= 0.")
    bits = np.random.Philox(np.random.SeedSequence(int(seed), spawn_key=stream))
    blocks, rest = divmod(int(offset), 4)  # one step of the counter makes four words
    bits.advance(blocks)
    bits.random_raw(rest)
    return lambda count: np.asarray(bits.random_raw(count), dtype=np.uint64)


def _operating_system(count: int) -> Words:
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def _uniforms(words: Words) -> Floats:
    """Return odd multiples of 2^-53, one per 64-bit word: symmetric about 1/2, never 0 or 1."""
    uniforms: Floats = (words >> np.uint64(12)).astype(np.float64)
    uniforms += 0.5
    uniforms *= 2.0**-52
    return uniforms


def _normals(words: Words) -> Floats:
    """Return the inverse normal cdf of a uniform for each word."""
    values = _uniforms(words)
    ndtri(values, out=values)
    return values


def public_normals(seed: int, shape: Shape, offset: int = 0) -> Floats:
    """Return standard normals from a public seed, float64, the same everywhere (to the last digits of the cdf's inverse).

    For public numbers such as a projection, never for noise that protects: use a `NoiseSource`, whose seeded stream differs from
    this one at the same seed. ``offset`` is the number of earlier values of the stream, so a part of a large array is computed
    separately, bit for bit.
    """
    draw = _philox(seed, _PUBLIC_STREAM, offset=offset)
    return _fill(shape, 1, lambda count: _normals(draw(count)))


def public_uniforms(seed: int, shape: Shape, *stream: int, offset: int = 0) -> Floats:
    """Return uniforms strictly inside (0, 1) from a public seed, float64, the same everywhere; never for noise.

    ``stream`` selects a stream of the seed, such as `SIGN_STREAM`; further numbers select streams within it. The offset is as
    in `public_normals`.
    """
    draw = _philox(seed, *stream, offset=offset)
    return _fill(shape, 1, lambda count: _uniforms(draw(count)))


class NoiseSource:
    """A stream of random numbers that protects users, or repeats a test. Use `os`, `seeded` or `of` to create one.

    Successive draws differ, and a source cannot be copied or saved, so no noise is used twice. Only the position of a seeded
    source can be stored, to repeat an interrupted run.

    Attributes:
        private: Whether a guarantee may use the source. A reader who knows a seed can subtract the noise.
        label: Name of the source, for records.

    Examples:
        >>> source = NoiseSource.seeded(7)
        >>> source.normal((2, 3)).shape, source.integers(6, 4).shape
        ((2, 3), (4,))
        >>> source.label, NoiseSource.of(None).label
        ('seeded noise', 'os entropy')
    """

    place, go_on_from = OldName("position"), OldName("skip_to")

    def __init__(self, draw: Callable[[int], Words], *, private: bool) -> None:
        self._draw = draw
        self._taken = 0  # words so far
        self.private = private
        self.label = OS_ENTROPY if private else SEEDED

    @classmethod
    def os(cls) -> NoiseSource:
        """Return fresh entropy of the operating system, the only source that a guarantee may use."""
        return cls(_operating_system, private=True)

    @classmethod
    def seeded(cls, seed: int) -> NoiseSource:
        """Return a repeatable stream, for tests and comparisons; its results have no guarantee."""
        return cls(_philox(seed, _NOISE_STREAM), private=False)

    @classmethod
    def of(cls, seed: int | None) -> NoiseSource:
        """Return `seeded` if there is a seed, else `os`."""
        return cls.os() if seed is None else cls.seeded(seed)

    @property
    def position(self) -> int | None:
        """Number of words drawn from a seeded stream; None for entropy of the operating system."""
        return None if self.private else self._taken

    def skip_to(self, position: int) -> None:
        """Skip the words up to the `position` of another source with the same seed.

        Raises:
            ValueError: This source has no seed, or is already further.
        """
        if self.private or type(position) is not int or position < self._taken:
            raise ValueError(
                f"position is {position!r}. This source ({self.label}) is at word {self._taken}. Only seeded sources "
                "skip forwards."
            )
        while (left := position - self._taken) > 0:
            self._words(min(left, _CHUNK))

    def _words(self, count: int) -> Words:
        if not self.private:  # which draws on one thread
            self._taken += count
        return self._draw(count)

    def uniform(self, shape: Shape) -> Floats:
        """Return uniforms strictly inside (0, 1), float64: odd multiples of 2^-53, symmetric about 1/2."""
        return _fill(shape, 1, lambda count: _uniforms(self._words(count)))

    def normal(self, shape: Shape) -> Floats:
        """Return standard normals, float64, each half the sum of four.

        Each of the four is the inverse normal cdf of a uniform. The sum makes it costly to search for the uniforms behind a
        released value, which is how floating-point noise was broken (Mironov, CCS 2012; Holohan & Braghin, ESORICS 2021,
        Section 4). This is a hardening, not a proof.

        Entropy of the operating system has no order, so it is drawn and transformed on several threads. Memory besides the
        result is bounded for every shape.
        """
        threads = min(_THREADS, _processors()) if self._draw is _operating_system else 1
        return _fill(shape, 4, self._half_sums_of_normals, threads)

    def integers(self, high: int, shape: Shape) -> npt.NDArray[np.int64]:
        """Return integers from 0 to ``high - 1``, all exactly equally likely, by rejection sampling of words."""
        if not 1 <= high <= 2**63:
            raise ValueError(f"high is {high!r}. Allowed: [1, 2**63].")
        last = np.uint64(2**64 - 1 - 2**64 % high)  # words up to here hold every remainder equally often
        result = np.empty(shape, dtype=np.int64)
        flat, done = result.reshape(-1), 0
        while done < flat.size:
            words = self._words(min(flat.size - done, _CHUNK))
            words = words[words <= last]
            flat[done : done + len(words)] = (words % np.uint64(high)).astype(np.int64)
            done += len(words)
        return result

    def _half_sums_of_normals(self, count: int) -> Floats:
        first, second, third, fourth = _normals(self._words(4 * count)).reshape(count, 4).T
        halves: Floats = (first + second + third + fourth) / 2
        return halves

    def __repr__(self) -> str:
        return f"NoiseSource({self.label})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A NoiseSource cannot be copied or saved. Create another.")


def _processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _fill(shape: Shape, words_per_value: int, make: Callable[[int], Floats], threads: int = 1) -> Floats:
    """Return values made in chunks, whose size does not change them: in the order of the stream, or on threads."""
    result = np.empty(shape, dtype=np.float64)
    flat = result.reshape(-1)
    chunk = max(1, _CHUNK // words_per_value)
    pieces = [flat[start : start + chunk] for start in range(0, flat.size, chunk)]

    def write(piece: Floats) -> None:
        piece[:] = make(piece.size)

    if threads > 1 and flat.size * words_per_value > _FEW:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(write, pieces))  # raises what a thread raised
    else:
        for piece in pieces:
            write(piece)
    return result


def laplace_noise(noise: NoiseSource, scale: float, shape: Shape) -> Floats:
    """Return Laplace noise, float64, by the inverse cdf of uniforms that are symmetric about 1/2; one uniform per number.

    ``scale`` is the mean absolute value, e.g. from `zoo.privacy.accounting.pure.laplace_scale`. Added to a vector whose L1
    sensitivity under some relation is ``epsilon * scale``, it protects the privacy unit of that relation, with no delta; any use
    of the sum is post-processing. This holds for real numbers. Floats are a sparse subset that depends on the vector (Mironov,
    CCS 2012), and a uniform of 52 bits has no noise beyond 36 scales. Round the sum to a public lattice, and do not claim a delta
    of exactly 0 in floating point.
    """
    if not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"scale is {scale!r}. Allowed: finite, > 0.")
    signed = 2 * noise.uniform(shape) - 1  # exact: odd multiples of 2^-52, neither 0 nor 1 in size
    values: Floats = scale * np.copysign(np.log1p(-np.abs(signed)), signed)
    return values


def lattice_spacing(sigma: float) -> float:
    """Return the spacing of the public lattice that values with noise of standard deviation sigma are rounded to.

    ``2^floor(log2(sigma / 1024))``: a power of two, so that rounding is exact, and small compared with the noise.
    """
    if not (sigma >= 1e-300 and math.isfinite(sigma)):
        raise ValueError(f"sigma is {sigma!r}. Allowed: finite, >= 1e-300.")
    return math.ldexp(1.0, math.frexp(sigma / 1024)[1] - 1)


def round_to_lattice(values: Floats, sigma: float) -> Floats:
    """Return noisy values of any shape, rounded to the nearest point of the lattice; this is post-processing.

    Sigma is the public standard deviation of the noise.
    """
    spacing = lattice_spacing(sigma)
    rounded: Floats = values / spacing
    np.rint(rounded, out=rounded)
    rounded *= spacing
    return rounded
