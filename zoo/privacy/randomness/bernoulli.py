"""Bernoulli sampling of a large set of entries: each is sampled with a small probability, independent of the others.

The sample has exactly the distribution of one independent draw per entry. It uses integers of the noise source only: no floating
point, and no generator in between. Cost and memory are those of the sample. The result is not noise, and it is private only through
the mechanism that uses it.

The size of the sample is binomial, and no floating-point sampler of binomial numbers is exact. So the entries are split into equal
blocks with few sampled entries each. The number of a block is found by inversion: the least k whose cumulative probability F(k)
exceeds a uniform real U in [0, 1). U is drawn 63 bits at a time and F(k) is bounded by integers from below and above, both as
precisely as the comparison needs. The first word fails to decide about once in 2^57 draws.
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

_WORD = 63  # random bits per draw of NoiseSource.integers
_BITS = 256  # of the bounds; doubled if they do not decide
_SAMPLED_PER_BLOCK = 32
_SAMPLED_PER_CHUNK = 2**20


def bernoulli(probability: Fraction | float, count: int, noise: NoiseSource) -> Booleans:
    """Return independent draws that are true with exactly the given probability, for any denominator; shape ``(count,)``.

    A float counts as its exact fraction. Each draw takes one random word, and with probability 2^-63 another.
    """
    share = Fraction(probability)
    if not 0 <= share <= 1:
        raise ValueError(f"probability is {probability!r}. Allowed: [0, 1].")
    if share in (0, 1):
        return np.full(count, share == 1)
    # A uniform real is below the share if its first word is below the share's first 63 bits. If they are equal, the rests are
    # compared, and the rest of a uniform real is uniform again.
    whole, rest = divmod(share * 2**_WORD, 1)
    words = noise.integers(2**_WORD, count)
    result: Booleans = words < int(whole)
    undecided = np.flatnonzero(words == int(whole))
    if rest and len(undecided):
        result[undecided] = bernoulli(rest, len(undecided), noise)
    return result


def sample_entries(num_entries: int, probability: Fraction | float, noise: NoiseSource) -> Integers:
    """Return a Bernoulli sample of ``num_entries`` entries, each with exactly the given probability; it depends on no data.

    Rising numbers from 0 to ``num_entries - 1``, shape ``(sampled,)``, at the cost of about one random integer each. For a
    probability above 1/2, sample the complement.
    """
    share = Fraction(probability)
    if not 0 <= share <= Fraction(1, 2):
        raise ValueError(f"probability is {probability!r}. Allowed: [0, 1/2]. Above, sample the complement.")
    if not 0 <= num_entries < 2**62:
        raise ValueError(f"num_entries is {num_entries!r}. Allowed: [0, 2**62).")
    if num_entries == 0 or share == 0:
        return np.zeros(0, dtype=np.int64)
    block = max(1, min(num_entries, int(_SAMPLED_PER_BLOCK / share)))
    counts = _binomials(block, share, -(-num_entries // block), noise)
    entries = _distinct_entries(block, counts, noise)
    return entries[entries < num_entries]  # the last block may be longer


def sample_zeros(
    rows: csr_array, probability: Fraction | float, noise: NoiseSource
) -> Iterator[tuple[slice, Integers]]:
    """Yield a Bernoulli sample of the zeros of a 0/1 matrix, a chunk of users at a time.

    It samples all entries and drops the ones. The zeros so have one independent draw each, and the number of random numbers does
    not depend on the matrix. Neighbours differ in one entry. The caller draws for the ones; together they are a mechanism. Only the
    positions of the entries of ``rows``, shape ``(users, items)``, matter; they are sorted. The probability is at most 1/2.

    Yields:
        Users of the chunk, and rising numbers ``(user - first user) * items + item``. The size of a chunk depends on public
        numbers only and bounds the memory besides the result.
    """
    num_users, num_items = rows.shape
    sampled_per_user = max(Fraction(probability) * num_items, Fraction(1, 2**40))
    step = max(1, min(num_users, int(_SAMPLED_PER_CHUNK / sampled_per_user), 2**61 // max(num_items, 1)))
    for first in range(0, num_users, step):
        users = slice(first, min(first + step, num_users))
        entries = sample_entries((users.stop - first) * num_items, probability, noise)
        yield users, entries[~np.isin(entries, entry_numbers(rows, users), assume_unique=True)]


def entry_numbers(rows: csr_array, users: slice) -> Integers:
    """Return ``(user - first user) * items + item`` of the entries of some users, in the order of the matrix."""
    starts = rows.indptr[users.start : users.stop + 1].astype(np.int64)
    first = np.repeat(np.arange(users.stop - users.start, dtype=np.int64), np.diff(starts))
    return first * rows.shape[1] + rows.indices[starts[0] : starts[-1]].astype(np.int64)


def _distinct_entries(block: int, counts: Integers, noise: NoiseSource) -> Integers:
    """Return ``counts`` different entries of each block, all choices equally likely; rising, shape ``(sum of counts,)``.

    By rejection sampling: a repeated entry is drawn again, until there are enough.
    """
    wanted = np.repeat(np.arange(len(counts)), counts)
    entries = np.zeros(0, dtype=np.int64)
    while len(wanted):
        drawn = wanted * block + noise.integers(block, len(wanted))
        entries = np.sort(np.concatenate([entries, drawn]), kind="stable")
        repeated = np.flatnonzero(entries[1:] == entries[:-1])
        wanted = entries[repeated] // block
        entries = np.delete(entries, repeated)
    return entries


def _binomials(trials: int, share: Fraction, count: int, noise: NoiseSource) -> Integers:
    """Return independent binomial numbers with exactly the given share of successes, shape ``(count,)``."""
    low, high = _word_bounds(trials, share)
    words = noise.integers(2**_WORD, count)
    # U is surely at least F(k) if word >= high[k], and surely below F(k) if word < low[k].
    result = np.searchsorted(high, words, side="right")
    possible = np.searchsorted(low, words, side="right")
    for place in np.flatnonzero((possible != result) | (result == len(high))):
        result[place] = _binomial_from(int(words[place]), trials, share, noise)
    return result


def _binomial_from(word: int, trials: int, share: Fraction, noise: NoiseSource) -> int:
    """Return the binomial number of a uniform real U with this first word, by as many further words as needed."""
    prefix, bits, precision = word, _WORD, _BITS  # U is in [prefix, prefix + 1) / 2^bits
    while True:
        precision *= 2
        while bits < precision // 2:
            prefix, bits = prefix << _WORD | int(noise.integers(2**_WORD, 1)[0]), bits + _WORD
        # The ends of U's interval, in units of 2^-precision.
        first, end = prefix << (precision - bits), (prefix + 1) << (precision - bits)
        for number, (below, above) in enumerate(_cumulative(trials, share, precision)):
            if end <= below:
                return number  # U < F(number), and U >= F(number - 1)
            if first < above:
                break  # F(number) may be inside U's interval: draw more bits, with tighter bounds


@lru_cache(maxsize=16)
def _word_bounds(trials: int, share: Fraction) -> tuple[Integers, Integers]:
    """Return bounds of ``F(k) 2^63`` for rising k, until all words are covered; shape ``(steps,)`` each."""
    low, high = [], []
    for below, above in _cumulative(trials, share, _BITS):
        low.append(min(below >> (_BITS - _WORD), 2**_WORD - 1))
        high.append(min(-(-above >> (_BITS - _WORD)), 2**_WORD - 1))
        if low[-1] >= 2**_WORD - 1:
            break
    return np.array(low), np.array(high)


def _cumulative(trials: int, share: Fraction, precision: int) -> Iterator[tuple[int, int]]:
    """Yield integers below and above ``F(k) 2^precision`` for k = 0, 1, ..., trials.

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
    """Return integers below and above ``(numerator/denominator)^exponent 2^precision``, by squaring."""
    low = high = 1 << precision
    base_low, base_high = (numerator << precision) // denominator, -((-numerator << precision) // denominator)
    while exponent:
        if exponent & 1:
            low, high = low * base_low >> precision, -(-high * base_high >> precision)
        base_low, base_high = base_low * base_low >> precision, -(-base_high * base_high >> precision)
        exponent >>= 1
    return low, high
