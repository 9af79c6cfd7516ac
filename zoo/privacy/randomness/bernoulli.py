"""Drawing only what is kept: of a large grid of cells, those few that an independent draw for each would keep.

A mechanism that keeps every cell with a small probability need not draw for every cell. What is drawn here follows
exactly the law of one independent draw per cell, from integers of the noise source alone: no floating point, no
generator in between. Cost and memory follow what is kept. Nothing here is noise on its own, and nothing is private but
through the mechanism that calls it.

How many cells are kept is binomial, and no sampler of binomial numbers in floating point is exact. So the grid is cut
into equal blocks, in which few cells are kept; one random word per block is compared with the exact cumulative
probabilities of that number, bounded by integers from below and above. A word between the bounds (one in 2^57 or so) is
extended by further words, and the bounds sharpened, until it is decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.randomness.noise import NoiseSource

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

_WORD = 63  # random bits at a time: what NoiseSource.integers gives
_BITS = 256  # of the bounds; doubled where they do not decide
_KEPT_PER_BLOCK = 32
_KEPT_PER_CHUNK = 2**20


def bernoulli(probability: Fraction | float, count: int, noise: NoiseSource) -> Booleans:
    """Independent draws that are true with exactly the given probability, whatever its denominator; shape ``(count,)``.

    Args:
        probability: In [0, 1]; a float stands for the fraction that it is.
        count: How many draws.
        noise: Where the random words come from: one for each draw, and with probability 2^-63 another.

    Raises:
        ValueError: If the probability is out of range.
    """
    share = Fraction(probability)
    if not 0 <= share <= 1:
        raise ValueError(f"probability must lie in [0, 1], got {probability!r}.")
    if share in (0, 1):
        return np.full(count, share == 1)
    whole, rest = divmod(share * 2**_WORD, 1)
    words = noise.integers(2**_WORD, count)
    result: Booleans = words < int(whole)
    undecided = np.flatnonzero(words == int(whole))
    if rest and len(undecided):
        result[undecided] = bernoulli(rest, len(undecided), noise)
    return result


def kept_cells(num_cells: int, probability: Fraction | float, noise: NoiseSource) -> Integers:
    """Those of ``num_cells`` cells that are kept, each with the given probability, independently and exactly so.

    How many are kept and which they are, given how many, has the law of one draw per cell. Nothing of it depends on
    data.

    Args:
        num_cells: At least 0.
        probability: In [0, 1/2]; above, draw those that are not kept.
        noise: Where the random integers come from, about one for each kept cell.

    Returns:
        Rising cells from 0 to ``num_cells - 1``, shape ``(kept,)``.

    Raises:
        ValueError: If an argument is out of range.
    """
    share = Fraction(probability)
    if not 0 <= share <= Fraction(1, 2):
        raise ValueError(
            f"probability must lie in [0, 1/2], got {probability!r}. Above, draw the cells that are not kept."
        )
    if not 0 <= num_cells < 2**62:
        raise ValueError(f"num_cells must lie in [0, 2**62), got {num_cells!r}.")
    if num_cells == 0 or share == 0:
        return np.zeros(0, dtype=np.int64)
    block = max(1, min(num_cells, int(_KEPT_PER_BLOCK / share)))
    counts = _binomials(block, share, -(-num_cells // block), noise)
    cells = _distinct(block, counts, noise)
    return cells[cells < num_cells]  # the last block may reach beyond


def kept_zeros(rows: csr_array, probability: Fraction | float, noise: NoiseSource) -> Iterator[tuple[slice, Integers]]:
    """Those zeros of a 0/1 matrix that are kept, each with the given probability, a chunk of users at a time.

    Drawn among all cells, and those that turn out to be ones dropped: among the zeros that leaves one independent draw
    each, and how many random numbers are drawn does not depend on the matrix. Neighbours differ in one cell; the caller
    draws for the ones, and only that makes a mechanism.

    Args:
        rows: The ones, shape ``(users, items)``, sorted by cell; their values are of no account.
        probability: In [0, 1/2].
        noise: Where the random integers come from.

    Yields:
        Users of the chunk, and rising cells ``(user - first user) * items + item``. The chunks' size depends on public
        numbers alone and bounds the memory beside the result.
    """
    num_users, num_items = rows.shape
    kept_per_user = max(Fraction(probability) * num_items, Fraction(1, 2**40))
    step = max(1, min(num_users, int(_KEPT_PER_CHUNK / kept_per_user), 2**61 // max(num_items, 1)))
    for first in range(0, num_users, step):
        users = slice(first, min(first + step, num_users))
        cells = kept_cells((users.stop - first) * num_items, probability, noise)
        yield users, cells[~_among(cells, cells_of(rows, users))]


def cells_of(rows: csr_array, users: slice) -> Integers:
    """Cells ``(user - first user) * items + item`` of the entries of some users, in the order of the matrix."""
    starts = rows.indptr[users.start : users.stop + 1].astype(np.int64)
    places = np.repeat(np.arange(users.stop - users.start, dtype=np.int64), np.diff(starts))
    return places * rows.shape[1] + rows.indices[starts[0] : starts[-1]].astype(np.int64)


def _among(cells: Integers, known: Integers) -> Booleans:
    """Which cells are among the known ones; both rise."""
    if not len(known):
        return np.zeros(len(cells), dtype=bool)
    at = np.minimum(np.searchsorted(known, cells), len(known) - 1)
    result: Booleans = known[at] == cells
    return result


def _distinct(block: int, counts: Integers, noise: NoiseSource) -> Integers:
    """For each block, ``counts`` different cells of it, all choices equally likely; rising, shape ``(sum of counts,)``.

    Cells are drawn one after the other, and one that was drawn before is drawn anew, until there are enough.
    """
    wanted = np.repeat(np.arange(len(counts)), counts)
    cells = np.zeros(0, dtype=np.int64)
    while len(wanted):
        drawn = wanted * block + noise.integers(block, len(wanted))
        cells = np.sort(np.concatenate([cells, drawn]), kind="stable")
        repeated = np.flatnonzero(cells[1:] == cells[:-1])
        wanted = cells[repeated] // block
        cells = np.delete(cells, repeated)
    return cells


def _binomials(trials: int, share: Fraction, count: int, noise: NoiseSource) -> Integers:
    """Independent binomial numbers with exactly the given share of successes, shape ``(count,)``."""
    low, high = _word_bounds(trials, share)
    words = noise.integers(2**_WORD, count)
    result = np.searchsorted(high, words, side="right")  # steps of the cumulative probability that lie below for sure
    unsure = np.flatnonzero((np.searchsorted(low, words, side="right") != result) | (result == len(high)))
    for place in unsure:
        result[place] = _decide(trials, share, int(words[place]), noise)
    return result


def _decide(trials: int, share: Fraction, word: int, noise: NoiseSource) -> int:
    """The binomial number of a uniform that begins with this word, by as many further words as it takes."""
    bits, precision = _WORD, _BITS
    while True:
        precision *= 2
        while bits < precision // 2:
            word, bits = word << _WORD | int(noise.integers(2**_WORD, 1)[0]), bits + _WORD
        for number, (low, high) in enumerate(_cumulative(trials, share, precision)):
            # The uniform lies in [word, word + 1) / 2^bits.
            if (word + 1) << (precision - bits) <= low:
                return number
            if word << (precision - bits) < high:
                break  # it straddles this step: more words


@lru_cache(maxsize=16)
def _word_bounds(trials: int, share: Fraction) -> tuple[Integers, Integers]:
    """Bounds of the cumulative probabilities times 2^63, up to where no word is left; shape ``(steps,)`` each.

    A word below ``low`` lies below the step for sure, one that is at least ``high`` above it.
    """
    low, high = [], []
    for below, above in _cumulative(trials, share, _BITS):
        low.append(min(below >> (_BITS - _WORD), 2**_WORD - 1))
        high.append(min(-(-above >> (_BITS - _WORD)), 2**_WORD - 1))
        if low[-1] >= 2**_WORD - 1:
            break
    return np.array(low), np.array(high)


def _cumulative(trials: int, share: Fraction, precision: int) -> Iterator[tuple[int, int]]:
    """Integers below and above each cumulative binomial probability times ``2^precision``, from 0 successes up."""
    one = 1 << precision
    success, total = share.numerator, share.denominator
    failure = total - success
    low, high = _power(failure, total, trials, precision)
    below, above = low, high
    for number in range(trials):
        yield below, min(above, one)
        factor, divisor = (trials - number) * success, (number + 1) * failure
        low, high = low * factor // divisor, -(-high * factor // divisor)
        below, above = below + low, above + high
    yield one, one


def _power(numerator: int, denominator: int, exponent: int, precision: int) -> tuple[int, int]:
    """Integers below and above ``(numerator/denominator)^exponent 2^precision``, by squaring."""
    low = high = 1 << precision
    base_low, base_high = (numerator << precision) // denominator, -((-numerator << precision) // denominator)
    while exponent:
        if exponent & 1:
            low, high = low * base_low >> precision, -(-high * base_high >> precision)
        base_low, base_high = base_low * base_low >> precision, -(-base_high * base_high >> precision)
        exponent >>= 1
    return low, high
