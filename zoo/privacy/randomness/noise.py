"""Noise: where the randomness of a mechanism comes from, apart from every global random state."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]
Shape = int | tuple[int, ...]

OS_ENTROPY = "os entropy"
#: Of a generator of random numbers that gets a new key of 128 bits from the operating system for each step of a training.
KEYED = "philox keyed by os entropy"
SEEDED = "seeded noise"

_CHUNK = 2**16  # words worked on at a time: few enough to stay in a processor's cache
_FEW = 2**18  # words that are not worth a second thread
_THREADS = 4  # at most; as many as there are processors

_NOISE_STREAM = 1
_PUBLIC_STREAM = 2
#: Streams of `public_uniforms` for the parts of a sparse-aware projection; never change these numbers.
MASK_STREAM, SIGN_STREAM = 3, 4


def _philox(seed: int, *stream: int, offset: int = 0) -> Callable[[int], Words]:
    """Words of a counter-based generator, from word ``offset`` of its stream on: what comes before is not computed."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"A seed must be an integer of at least 0, got {seed!r}.")
    if offset < 0:
        raise ValueError(f"An offset must be at least 0, got {offset!r}.")
    bits = np.random.Philox(np.random.SeedSequence(int(seed), spawn_key=stream))
    blocks, rest = divmod(int(offset), 4)  # one step of the counter makes four words
    bits.advance(blocks)
    bits.random_raw(rest)
    return lambda count: np.asarray(bits.random_raw(count), dtype=np.uint64)


def _operating_system(count: int) -> Words:
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def _uniforms(words: Words) -> Floats:
    """Odd multiples of 2^-53, one per 64-bit word: symmetric about 1/2, and neither 0 nor 1 can occur."""
    uniforms: Floats = (words >> np.uint64(12)).astype(np.float64)
    uniforms += 0.5
    uniforms *= 2.0**-52
    return uniforms


def _normals(words: Words) -> Floats:
    """The inverse normal cdf of a uniform for each word."""
    values = _uniforms(words)
    ndtri(values, out=values)
    return values


def public_normals(seed: int, shape: Shape, offset: int = 0) -> Floats:
    """Standard normals from a public seed, float64, the same everywhere (to the last digits of the cdf's inverse).

    For what everybody may know, such as a projection. Never for noise that protects somebody: use a `NoiseSource`,
    whose seeded stream differs from this one at the same seed. ``offset`` is how many values of the stream come before the
    first: a part of a large array is computed on its own, bit for bit.
    """
    draw = _philox(seed, _PUBLIC_STREAM, offset=offset)
    return _fill(shape, 1, lambda count: _normals(draw(count)))


def public_uniforms(seed: int, shape: Shape, *stream: int, offset: int = 0) -> Floats:
    """Uniforms strictly inside (0, 1) from a public seed, float64, the same everywhere; never for noise.

    ``stream`` is which of the seed's streams, such as `SIGN_STREAM`; further numbers name streams within it. The offset is
    as in `public_normals`.
    """
    draw = _philox(seed, *stream, offset=offset)
    return _fill(shape, 1, lambda count: _uniforms(draw(count)))


class NoiseSource:
    """A stream of random numbers that protects people, or repeats a test.

    Made by `os`, `seeded` or `of`. A source is one stream: successive draws differ, and it cannot be copied or saved,
    so no noise is used twice. Only how far a seeded one has come can be kept, to repeat a run that was interrupted.
    """

    def __init__(self, draw: Callable[[int], Words], *, private: bool) -> None:
        self._draw = draw
        self._taken = 0  # words so far
        self.private = private  # whether a guarantee may rest on it: whoever knows a seed can subtract the noise
        self.label = OS_ENTROPY if private else SEEDED  # for the record

    @classmethod
    def os(cls) -> NoiseSource:
        """Fresh entropy of the operating system: the only source that a guarantee may rest on."""
        return cls(_operating_system, private=True)

    @classmethod
    def seeded(cls, seed: int) -> NoiseSource:
        """A repeatable stream, for tests and comparisons; whatever it touches has no guarantee."""
        return cls(_philox(seed, _NOISE_STREAM), private=False)

    @classmethod
    def of(cls, seed: int | None) -> NoiseSource:
        """`seeded` if there is a seed, else `os`."""
        return cls.os() if seed is None else cls.seeded(seed)

    @property
    def place(self) -> int | None:
        """How many words of its stream were drawn, if it has a seed; entropy of the operating system has no place to tell."""
        return None if self.private else self._taken

    def go_on_from(self, place: int) -> None:
        """Pass over what another source of the same seed had drawn when that was its `place`.

        Raises:
            ValueError: If this source has no seed, or has come further already: nothing is drawn twice.
        """
        if self.private or type(place) is not int or place < self._taken:
            raise ValueError(
                f"This source of noise ({self.label}) cannot go on from word {place!r}: only one with a seed can, from where "
                f"it stands (word {self._taken}) or later."
            )
        while (left := place - self._taken) > 0:
            self._words(min(left, _CHUNK))

    def _words(self, count: int) -> Words:
        if not self.private:  # which draws on one thread
            self._taken += count
        return self._draw(count)

    def uniform(self, shape: Shape) -> Floats:
        """Uniforms strictly inside (0, 1), float64: odd multiples of 2^-53, symmetric about 1/2."""
        return _fill(shape, 1, lambda count: _uniforms(self._words(count)))

    def normal(self, shape: Shape) -> Floats:
        """Standard normals, float64; every one is half the sum of four.

        Each of the four is the inverse normal cdf of a uniform. Taking the sum makes it costly to search for the
        uniforms behind a released value, which is how floating-point noise was broken (Mironov, CCS 2012; Holohan &
        Braghin, ESORICS 2021, Section 4). This hardens and does not prove.

        Entropy of the operating system is drawn and transformed on several threads: it has no order to keep. Memory
        beside the result is bounded, whatever the shape.
        """
        threads = min(_THREADS, _processors()) if self._draw is _operating_system else 1
        return _fill(shape, 4, self._quarter_sums, threads)

    def integers(self, high: int, shape: Shape) -> npt.NDArray[np.int64]:
        """Integers from 0 to ``high - 1``, all exactly equally likely: words that would favour some are drawn again."""
        if not 1 <= high <= 2**63:
            raise ValueError(f"high must lie in [1, 2**63], got {high!r}.")
        last = np.uint64(2**64 - 1 - 2**64 % high)  # words up to here hold every remainder equally often
        result = np.empty(shape, dtype=np.int64)
        flat, done = result.reshape(-1), 0
        while done < flat.size:
            words = self._words(min(flat.size - done, _CHUNK))
            words = words[words <= last]
            flat[done : done + len(words)] = (words % np.uint64(high)).astype(np.int64)
            done += len(words)
        return result

    def _quarter_sums(self, count: int) -> Floats:
        first, second, third, fourth = _normals(self._words(4 * count)).reshape(count, 4).T
        halves: Floats = (first + second + third + fourth) / 2
        return halves

    def __repr__(self) -> str:
        return f"NoiseSource({self.label})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A NoiseSource cannot be copied or saved: the same noise would be used twice. Make a new one.")


def _processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _fill(shape: Shape, words_per_value: int, make: Callable[[int], Floats], threads: int = 1) -> Floats:
    """Values made in chunks, whose size does not change them: in the order of the stream, or on threads if it has none."""
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
    """Laplace noise, float64, by the inverse cdf of uniforms that are symmetric about 1/2; one uniform for each number.

    Its scale is the mean absolute value, e.g. from `zoo.privacy.accounting.pure.laplace_scale`.
    Added to a vector whose L1 sensitivity under some relation is ``epsilon * scale``, it protects whatever that relation
    protects, with no delta; afterwards anything may be done with the sum. That holds for real numbers. Of these, floats
    are a sparse part that depends on what the noise is added to (Mironov, CCS 2012), and a uniform of 52 bits has no
    noise beyond 36 scales. Round the sum to a public lattice, and promise no delta of exactly 0 in floating point.
    """
    if not (scale > 0 and math.isfinite(scale)):
        raise ValueError(f"scale must be a positive finite number, got {scale!r}. Take it from laplace_scale.")
    signed = 2 * noise.uniform(shape) - 1  # exact: odd multiples of 2^-52, neither 0 nor 1 in size
    values: Floats = scale * np.copysign(np.log1p(-np.abs(signed)), signed)
    return values


def lattice_spacing(sigma: float) -> float:
    """Spacing of the public lattice that values with noise of standard deviation sigma are rounded to.

    ``2^floor(log2(sigma / 1024))``: a power of two, so that rounding is exact, and small beside the noise.
    """
    if not (sigma >= 1e-300 and math.isfinite(sigma)):
        raise ValueError(f"sigma must be a finite number of at least 1e-300, got {sigma!r}.")
    return math.ldexp(1.0, math.frexp(sigma / 1024)[1] - 1)


def round_to_lattice(values: Floats, sigma: float) -> Floats:
    """Values with their noise, of any shape, rounded to the nearest point of the lattice; post-processing, so free.

    Sigma is the standard deviation of that noise; public.
    """
    spacing = lattice_spacing(sigma)
    rounded: Floats = values / spacing
    np.rint(rounded, out=rounded)
    rounded *= spacing
    return rounded
