"""Bernoulli sampling of a large set of cells: each is in the sample with a small probability, independent of all others.

The sample has exactly the law of one independent draw per cell, and is made from integers of the noise source alone: no
floating point, no generator in between. Cost and memory follow the size of the sample. Nothing here is noise on its own,
and nothing is private but through the mechanism that calls it.

How many cells are in the sample is binomial, and no sampler of binomial numbers in floating point is exact. So the cells
are cut into equal blocks, of which few cells are sampled, and the number of each block is found by inversion: the least k
whose cumulative probability F(k) exceeds a uniform real U in [0, 1). U is drawn 63 bits at a time and F(k) bounded by
integers from below and above, both only as finely as the comparison needs: the first word does but once in 2^57 or so.
"""

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
_SAMPLED_PER_BLOCK = 32
_SAMPLED_PER_CHUNK = 2**20


def bernoulli(probability: Fraction | float, count: int, noise: NoiseSource) -> Booleans:
    """Independent draws that are true with exactly the given probability, whatever its denominator; shape ``(count,)``.

    A float stands for the fraction that it is. Takes one random word for each draw, and with probability 2^-63 another.
    """
    share = Fraction(probability)
    if not 0 <= share <= 1:
        raise ValueError(f"probability must lie in [0, 1], got {probability!r}.")
    if share in (0, 1):
        return np.full(count, share == 1)
    # A uniform real is below the share if its first word is below the share's first 63 bits; if they are equal, its rest
    # is a uniform real again, to be compared with the rest of the share.
    whole, rest = divmod(share * 2**_WORD, 1)
    words = noise.integers(2**_WORD, count)
    result: Booleans = words < int(whole)
    undecided = np.flatnonzero(words == int(whole))
    if rest and len(undecided):
        result[undecided] = bernoulli(rest, len(undecided), noise)
    return result


def sampled_cells(num_cells: int, probability: Fraction | float, noise: NoiseSource) -> Integers:
    """Bernoulli sample of ``num_cells`` cells, each in it with exactly the given probability; depends on no data.

    Rising cells from 0 to ``num_cells - 1``, shape ``(sampled,)``, at the cost of about one random integer each. Above a
    probability of 1/2, draw those that are not kept.
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
    block = max(1, min(num_cells, int(_SAMPLED_PER_BLOCK / share)))
    counts = _binomials(block, share, -(-num_cells // block), noise)
    cells = _distinct_cells(block, counts, noise)
    return cells[cells < num_cells]  # the last block may reach beyond


def sampled_zeros(
    rows: csr_array, probability: Fraction | float, noise: NoiseSource
) -> Iterator[tuple[slice, Integers]]:
    """Bernoulli sample of the zeros of a 0/1 matrix, a chunk of users at a time.

    Drawn among all cells, and those that turn out to be ones dropped: among the zeros that leaves one independent draw
    each, and how many random numbers are drawn does not depend on the matrix. Neighbours differ in one cell; the caller
    draws for the ones, and only that makes a mechanism. Of ``rows``, shape ``(users, items)``, only where its entries are
    counts; they are sorted by cell. The probability is at most 1/2.

    Yields:
        Users of the chunk, and rising cells ``(user - first user) * items + item``. The chunks' size depends on public
        numbers alone and bounds the memory beside the result.
    """
    num_users, num_items = rows.shape
    sampled_per_user = max(Fraction(probability) * num_items, Fraction(1, 2**40))
    step = max(1, min(num_users, int(_SAMPLED_PER_CHUNK / sampled_per_user), 2**61 // max(num_items, 1)))
    for first in range(0, num_users, step):
        users = slice(first, min(first + step, num_users))
        cells = sampled_cells((users.stop - first) * num_items, probability, noise)
        yield users, cells[~np.isin(cells, cells_of(rows, users), assume_unique=True)]


def cells_of(rows: csr_array, users: slice) -> Integers:
    """Cells ``(user - first user) * items + item`` of the entries of some users, in the order of the matrix."""
    starts = rows.indptr[users.start : users.stop + 1].astype(np.int64)
    places = np.repeat(np.arange(users.stop - users.start, dtype=np.int64), np.diff(starts))
    return places * rows.shape[1] + rows.indices[starts[0] : starts[-1]].astype(np.int64)


def _distinct_cells(block: int, counts: Integers, noise: NoiseSource) -> Integers:
    """For each block, ``counts`` different cells of it, all choices equally likely; rising, shape ``(sum of counts,)``.

    By rejection sampling: a cell that was drawn before is drawn anew, until there are enough.
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
    # U is at least F(k) for sure where word >= high[k], and below F(k) for sure where word < low[k].
    result = np.searchsorted(high, words, side="right")
    possible = np.searchsorted(low, words, side="right")
    for place in np.flatnonzero((possible != result) | (result == len(high))):
        result[place] = _binomial_from(int(words[place]), trials, share, noise)
    return result


def _binomial_from(word: int, trials: int, share: Fraction, noise: NoiseSource) -> int:
    """The binomial number of a uniform real U whose first word is this, by as many further words as it takes."""
    prefix, bits, precision = word, _WORD, _BITS  # U lies in [prefix, prefix + 1) / 2^bits
    while True:
        precision *= 2
        while bits < precision // 2:
            prefix, bits = prefix << _WORD | int(noise.integers(2**_WORD, 1)[0]), bits + _WORD
        # The ends of U's interval, in the unit of the bounds, 2^-precision.
        first, end = prefix << (precision - bits), (prefix + 1) << (precision - bits)
        for number, (below, above) in enumerate(_cumulative(trials, share, precision)):
            if end <= below:
                return number  # U < F(number); and U >= F(number - 1), or this would have ended there
            if first < above:
                break  # F(number) may lie inside U's interval: draw more bits, and bound more finely


@lru_cache(maxsize=16)
def _word_bounds(trials: int, share: Fraction) -> tuple[Integers, Integers]:
    """Bounds of ``F(k) 2^63`` for k from 0 up, to where no word is left; shape ``(steps,)`` each."""
    low, high = [], []
    for below, above in _cumulative(trials, share, _BITS):
        low.append(min(below >> (_BITS - _WORD), 2**_WORD - 1))
        high.append(min(-(-above >> (_BITS - _WORD)), 2**_WORD - 1))
        if low[-1] >= 2**_WORD - 1:
            break
    return np.array(low), np.array(high)


def _cumulative(trials: int, share: Fraction, precision: int) -> Iterator[tuple[int, int]]:
    """Integers below and above ``F(k) 2^precision`` for k = 0, 1, ..., trials.

    ``P(0) = (1 - share)^trials`` and ``P(k + 1) = P(k) (trials - k) share / ((k + 1) (1 - share))``, rounded both ways.
    """
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
