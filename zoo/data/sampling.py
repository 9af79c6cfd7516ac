"""Seeded randomness by counter: what is drawn for a user depends on the seed and on that user, on nothing else.

A generator with a state ties every draw to the order of the calls, so that adding a user or shuffling a table changes
everybody's split. Here each number is a hash of (seed, phase, user, counter), computed for whole arrays at once.
"""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = npt.NDArray[np.int64]
Keys: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_CELLS = 1 << 20  # numbers in one work array: 8 MiB keeps a chunk of users near the cache
_MASK = (1 << 64) - 1


def _finalise(z: Keys) -> Keys:
    """Gives the output function of splitmix64 (Steele, Lea and Flood 2014, figure 12); overwrites `z`."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def _as_keys(part: object) -> Keys:
    """Gives one part of a key as uint64, of the part's shape."""
    if isinstance(part, str):
        return hash_ids(np.array([part]))[0:1].reshape(())
    if isinstance(part, int) and not isinstance(part, bool):
        return np.array(part & _MASK, dtype=np.uint64)
    array = np.asarray(part)
    if array.dtype.kind not in "iu":
        raise TypeError(f"A key is mixed from integers, integer arrays and strings, not from {array.dtype}.")
    return array.astype(np.uint64)


def mix(*parts: object) -> Keys:
    """Gives one well mixed 64-bit key per combination of the parts, broadcast against each other.

    Args:
        parts: integers, strings or integer arrays, in order: `mix(seed, "test", user_keys)`. The order matters.

    Returns:
        Keys of the broadcast shape of all parts (at least one axis: a lone scalar key has shape (1,)).

    Raises:
        TypeError: a part is no integer, no string and no integer array.
    """
    state = np.zeros(1, dtype=np.uint64)
    for part in parts:
        # The product keeps (a, b) apart from (b, a); the sum keeps zeros from being a fixed point.
        state = _finalise((state + _GOLDEN) * np.uint64(0xD1342543DE82EF95) + _as_keys(part))
    return state


def hash_ids(ids: npt.ArrayLike) -> Keys:
    """Gives one 64-bit key per id, the same on every machine and in every table.

    Args:
        ids: strings (num_ids,), as a numpy string array or anything that makes one; the array's width is of no account.

    Returns:
        Keys (num_ids,).

    Raises:
        TypeError: `ids` holds no strings.
        ValueError: `ids` has more than one axis.
    """
    names = np.asarray(ids)
    if names.size == 0:
        return np.zeros(0, dtype=np.uint64)
    if names.dtype.kind == "O" and all(isinstance(name, str) for name in names.flat):
        names = names.astype(np.str_)
    if names.dtype.kind != "U":
        raise TypeError(f"Ids are strings, not {names.dtype}: give str(id) for each.")
    if names.ndim != 1:
        raise ValueError(f"Ids are one axis, not an array of shape {names.shape}: flatten it.")
    names = np.ascontiguousarray(names.astype(names.dtype.newbyteorder("="), copy=False))
    width = names.dtype.itemsize // 4
    points = names.view(np.uint32).reshape(len(names), width)
    lengths = np.char.str_len(names)
    state = mix(lengths)
    for place in range(width):
        reaches = lengths > place
        if reaches.all():
            state = mix(state, points[:, place])
        else:
            state[reaches] = mix(state[reaches], points[reaches, place])
    return state


def uniform_integers(keys: Keys, high: int | Integers) -> Integers:
    """Gives integers below `high`, uniform to within 2^-32 of each probability's own size.

    The upper half of the 128-bit product key x high, which needs no rejection and hence no further draw.

    Args:
        keys: keys of any shape, such as `mix` gives.
        high: bound (excluded), from 1 to 2^32; one number, or an array that broadcasts against `keys`.

    Returns:
        Integers in [0, high), of the broadcast shape.

    Raises:
        ValueError: `high` is below 1 or above 2^32.
    """
    bounds = np.asarray(high)
    if bounds.size and (bounds.min() < 1 or bounds.max() > 1 << 32):
        raise ValueError(f"Uniform integers need a bound from 1 to 2^32, got {bounds.min()} to {bounds.max()}.")
    bound = bounds.astype(np.uint64)
    half = np.uint64(32)
    upper, lower = keys >> half, keys & np.uint64(0xFFFFFFFF)
    return ((upper * bound + ((lower * bound) >> half)) >> half).astype(np.int64)


def uniform_reals(keys: Keys) -> Floats:
    """Gives reals in the open interval (0, 1), one per key, from its upper 52 bits (53 would round the last to 1)."""
    return ((keys >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


class _Pool:
    """The items that may be drawn, by position, and for each user the positions that may not."""

    def __init__(
        self,
        num_items: int | Integers,
        excluded: tuple[npt.ArrayLike, npt.ArrayLike],
        weights: Floats | None,
        num_users: int,
    ) -> None:
        indptr, indices = (np.asarray(part, dtype=np.int64) for part in excluded)
        if (
            indptr.shape != (num_users + 1,)
            or indptr[0] != 0
            or indptr[-1] != len(indices)
            or np.any(np.diff(indptr) < 0)
        ):
            raise ValueError(
                f"Excluded items need an indptr of {num_users + 1} rising numbers from 0 to {len(indices)} for "
                f"{num_users} users, got {len(indptr)} numbers: give (indptr, indices) of a CSR matrix of these users."
            )
        self.items: Integers | None = None
        if isinstance(num_items, int | np.integer):
            self.size = int(num_items)
        else:
            self.items = np.asarray(num_items, dtype=np.int64)
            self.size = len(self.items)
            if np.any(np.diff(self.items) <= 0) or (self.size and self.items[0] < 0):
                raise ValueError("A pool of items is a rising array of item numbers: give np.unique(items).")
        if self.size < 0 or self.size >= 1 << 32:
            raise ValueError(f"A pool holds 0 to 2^32 - 1 items, got {self.size}.")
        rows = np.repeat(np.arange(num_users), np.diff(indptr))
        if len(indices) and (indices.min() < 0 or np.any((np.diff(indices) <= 0) & (np.diff(rows) == 0))):
            raise ValueError("Excluded items must rise strictly within each user: sort them and drop repeats.")
        if self.items is None:
            known, places = indices < self.size, indices
        else:
            places = np.searchsorted(self.items, indices)
            known = np.append(self.items, -1)[places] == indices
        rows, places = rows[known], places[known]
        self.taken = rows * self.size + places  # rising, as rows and places are
        self.starts = np.searchsorted(rows, np.arange(num_users + 1))
        self.available = self.size - np.diff(self.starts)
        self.share = self.available / max(self.size, 1)
        self.cumulative: Floats | None = None
        self.weights: Floats | None = None if weights is None else np.array(weights, dtype=np.float64)
        if self.weights is not None:
            if self.weights.shape != (self.size,) or not (np.isfinite(self.weights).all() and (self.weights > 0).all()):
                raise ValueError(
                    f"Weights are {self.size} finite numbers above 0, one per item of the pool: leave items of "
                    "weight 0 out of the pool."
                )
            self.weights /= max(float(self.weights.sum()), 1e-300)
            self.cumulative = np.asarray(np.cumsum(self.weights), dtype=np.float64)
            # np.bincount adds in row order, so a user's share does not depend on who else is there.
            taken = np.bincount(rows, self.weights[places], minlength=num_users)
            self.share = np.asarray(1.0 - taken, dtype=np.float64)

    def draw(self, keys: Keys) -> Integers:
        """Gives one position per key, with replacement."""
        if self.cumulative is None:
            return uniform_integers(keys, self.size)
        places = np.searchsorted(self.cumulative, uniform_reals(keys) * self.cumulative[-1], side="right")
        within: Integers = np.minimum(places, self.size - 1).astype(np.int64)
        return within

    def is_taken(self, users: Integers, places: Integers) -> npt.NDArray[np.bool_]:
        """Says which (user, position) pairs are excluded; both arrays (users, draws), positions rising by row."""
        if not len(self.taken):
            return np.zeros(places.shape, dtype=bool)
        wanted = users[:, None] * self.size + places
        found = np.searchsorted(self.taken, wanted)
        hit: npt.NDArray[np.bool_] = self.taken[np.minimum(found, len(self.taken) - 1)] == wanted
        return hit


def _accept(
    pool: _Pool, users: Integers, states: Keys, wanted: Integers, limits: Integers, draws: int, width: int
) -> Integers:
    """Gives the first distinct, allowed positions among each user's first draws (users, width), -1 after them."""
    places = pool.draw(mix(states[:, None], "draw", np.arange(draws)))
    bits = max(draws - 1, 1).bit_length()
    ordered = np.sort(places << bits | np.arange(draws), axis=1)
    order, places = ordered & ((1 << bits) - 1), ordered >> bits
    fresh = ~pool.is_taken(users, places)
    fresh[:, 1:] &= places[:, 1:] != places[:, :-1]
    rows = np.broadcast_to(np.arange(len(users))[:, None], places.shape)
    by_draw = np.full(places.shape, -1, dtype=np.int64)
    by_draw[rows[fresh], order[fresh]] = places[fresh]
    kept = (by_draw >= 0) & (np.arange(draws) < limits[:, None])
    rank = np.cumsum(kept, axis=1) - 1
    kept &= rank < wanted[:, None]
    result = np.full((len(users), width), -1, dtype=np.int64)
    result[rows[kept], rank[kept]] = by_draw[kept]
    return result


def _complete(pool: _Pool, users: Integers, states: Keys, wanted: Integers, result: Integers) -> None:
    """Fills each user's row of `result` after the positions it holds, from one random key per item.

    Sampling without replacement has no memory but the items taken, so going on with fresh keys is exact. With weights
    the keys are exponential times (Efraimidis and Spirakis 2006, algorithm A, in logarithmic form).
    """
    width = result.shape[1]
    times: Floats = -np.log(uniform_reals(mix(states[:, None], "complete", np.arange(pool.size))))
    if pool.weights is not None:
        times /= pool.weights
    starts, ends = pool.starts[users], pool.starts[users + 1]
    lengths = ends - starts
    rows = np.repeat(np.arange(len(users)), lengths)
    inner = np.arange(int(lengths.sum())) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    times[rows, pool.taken[np.repeat(starts, lengths) + inner] % max(pool.size, 1)] = np.inf
    rows, columns = np.nonzero(result >= 0)
    times[rows, result[rows, columns]] = np.inf
    held = np.bincount(rows, minlength=len(users))
    first = min(width, pool.size)
    best = np.argpartition(times, first - 1, axis=1)[:, :first]
    best = np.take_along_axis(best, np.argsort(np.take_along_axis(times, best, axis=1), axis=1), axis=1)
    target = held[:, None] + np.arange(first)
    rows, columns = np.nonzero(target < wanted[:, None])
    result[rows, target[rows, columns]] = best[rows, columns]


def distinct_items(
    user_keys: Keys,
    count: int | Integers,
    num_items: int | Integers,
    excluded: tuple[npt.ArrayLike, npt.ArrayLike],
    *,
    seed: int,
    phase: str | int,
    weights: Floats | None = None,
) -> Integers:
    """Gives random items for each user: without replacement and outside the user's excluded items.

    Each user has an endless sequence of draws; the first distinct and allowed ones are taken. The result for a user
    therefore depends on the seed, the phase, the user's key and excluded items, and the pool: not on other users.

    Args:
        user_keys: one key per user (users,), such as `hash_ids` gives.
        count: how many items, one number or one per user (users,).
        num_items: the items 0 to `num_items` - 1, or the allowed items as a rising array.
        excluded: (indptr (users + 1,), indices) as in a CSR matrix of these users; items rise within a user.
        seed: the run's seed.
        phase: what the draw is for; another phase gives independent items.
        weights: chance of each item of the pool in the first draw, up to a factor; None: all alike.

    Returns:
        Items (users, max count) in the order drawn; -1 after the last where fewer are wanted or available.

    Raises:
        ValueError: a negative count, misaligned sizes, unsorted excluded items or pool, or weights not above 0.
    """
    states = mix(seed, phase, np.asarray(user_keys, dtype=np.uint64))
    num_users = len(user_keys)
    counts = np.asarray(count, dtype=np.int64)
    if counts.ndim > 1 or (counts.ndim == 1 and len(counts) != num_users) or (counts.size and counts.min() < 0):
        raise ValueError(f"The count is a number from 0 up, or one for each of the {num_users} users, got {count}.")
    states = states[:num_users]
    pool = _Pool(num_items, excluded, weights, num_users)
    width = int(counts.max()) if counts.size else 0
    wanted = np.minimum(np.broadcast_to(counts, (num_users,)), pool.available)
    result = np.full((num_users, width), -1, dtype=np.int64)

    waiting = np.flatnonzero(wanted > 0)
    # Rejection is quick while most draws are new; a user for whom they are not goes to the exact completion at once.
    quick = (wanted * 2 <= pool.available) & (pool.share >= 0.25)
    todo, slow = waiting[quick[waiting]], [waiting[~quick[waiting]]]
    # The last round's number of draws is the user's own, so that another user's larger count changes nothing.
    limits = np.broadcast_to(16 * _first_draws(counts), (num_users,))
    draws = int(_first_draws(np.array(width)))
    for _ in range(5):
        unfinished = []
        for part in _parts(todo, draws):
            result[part] = _accept(pool, part, states[part], wanted[part], limits[part], draws, width)
            unfinished.append(part[(result[part] >= 0).sum(axis=1) < wanted[part]])
        todo = np.concatenate(unfinished) if unfinished else todo
        draws *= 2
    slow.append(todo)
    for part in _parts(np.concatenate(slow), pool.size):
        filled = result[part]
        _complete(pool, part, states[part], wanted[part], filled)
        result[part] = filled
    if pool.items is not None and pool.size:
        result = np.where(result >= 0, pool.items[result], -1)
    return result


def _first_draws(counts: Integers) -> Integers:
    """Gives how many draws are usually enough: an eighth more than wanted, for repeats and excluded items."""
    return counts + counts // 8 + 4


def _parts(users: Integers, columns: int) -> list[Integers]:
    """Gives the users in parts whose work arrays, with so many columns, stay small."""
    size = max(_CELLS // max(columns, 1), 1)
    return [users[start : start + size] for start in range(0, len(users), size)]
