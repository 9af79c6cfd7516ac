"""Counter-based random numbers: a user's draws depend on the seed and on that user alone, not on others or on row order.

Each number is a hash of (seed, phase, user, counter), computed for whole arrays at once.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zoo.data.arrays import Floats, Integers, Keys, contains

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_AT_ONCE = 1 << 20  # numbers in one work array: 8 MiB fit the processor's cache
_MASK = (1 << 64) - 1
_ROUNDS = 5  # of rejection sampling, each with twice the draws of the one before


def _finalise(z: Keys) -> Keys:
    """Apply the output function of splitmix64 (Steele, Lea and Flood 2014, figure 12); overwrites `z`."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def _as_keys(part: object) -> Keys:
    if isinstance(part, str):
        return hash_ids([part]).reshape(())
    if isinstance(part, int) and not isinstance(part, bool):
        return np.array(part & _MASK, dtype=np.uint64)
    array = np.asarray(part)
    if array.dtype.kind not in "iu":
        raise TypeError(f"A part of a key is {array.dtype}. It must be an integer, integer array or string.")
    return array.astype(np.uint64)


def mix(*parts: object) -> Keys:
    """Return one well mixed 64-bit key per combination of the broadcast parts; shape (1,) for numbers alone.

    Parts are integers, strings or integer arrays, in an order that matters: `mix(seed, "test", user_keys)`.

    Examples:
        >>> bool((mix(0, "test", 7) == mix(0, "test", 7)).all()), bool((mix(0, "test", 7) == mix(1, "test", 7)).all())
        (True, False)
    """
    state = np.zeros(1, dtype=np.uint64)
    for part in parts:
        # The product makes the order matter; the sum keeps zero from being a fixed point.
        state = _finalise((state + _GOLDEN) * np.uint64(0xD1342543DE82EF95) + _as_keys(part))
    return state


def hash_ids(ids: npt.ArrayLike) -> Keys:
    """Return one 64-bit key per id (num_ids,), strings of any width, the same on every machine and in every table."""
    names = np.asarray(ids)
    if names.size == 0:
        return np.zeros(0, dtype=np.uint64)
    if names.dtype.kind == "O" and all(isinstance(name, str) for name in names.flat):
        names = names.astype(np.str_)
    if names.dtype.kind != "U":
        raise TypeError(f"ids are {names.dtype}. They must be strings. Pass str(id) for each.")
    if names.ndim != 1:
        raise ValueError(f"ids have the shape {names.shape}. They must have one axis.")
    names = np.ascontiguousarray(names.astype(names.dtype.newbyteorder("="), copy=False))
    width = names.dtype.itemsize // 4
    points = names.view(np.uint32).reshape(len(names), width)
    lengths = np.char.str_len(names)
    state = mix(lengths)
    for place in range(width):  # one character of every id at a time
        reaches = lengths > place
        state[reaches] = mix(state[reaches], points[reaches, place])
    return state


def uniform_integers(keys: Keys, high: int) -> Integers:
    """Return integers in [0, high), high at most 2^32, one per key, with probabilities exact to a relative error of 2^-32."""
    if not 1 <= high <= 1 << 32:
        raise ValueError(f"high is {high}. It must be from 1 to 2^32.")
    bound, half = np.uint64(high), np.uint64(32)
    upper, lower = keys >> half, keys & np.uint64(0xFFFFFFFF)
    return ((upper * bound + ((lower * bound) >> half)) >> half).astype(np.int64)


def uniform_reals(keys: Keys) -> Floats:
    """Return reals in the open interval (0, 1), one per key, from its upper 52 bits (53 would round the last to 1)."""
    return ((keys >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


class _Pool:
    """The items that may be drawn (size,), rising, and the probability of each; a place is an index into them."""

    def __init__(self, num_items: int | Integers, weights: Floats | None) -> None:
        self.size = int(num_items) if isinstance(num_items, int | np.integer) else len(num_items)
        if self.size < 0 or self.size >= 1 << 32:
            raise ValueError(f"num_items is {self.size}. It must be from 0 to 2^32 - 1.")
        self.items: Integers = np.arange(self.size) if np.ndim(num_items) == 0 else np.asarray(num_items, np.int64)
        if np.any(np.diff(self.items, prepend=-1) <= 0):
            raise ValueError("The items are not rising. Pass np.unique(items).")
        self.weights = weights  # probability of each place in a first draw (size,), with sum 1; None: uniform
        if weights is not None:
            if weights.shape != (self.size,) or not (np.isfinite(weights).all() and (weights > 0).all()):
                raise ValueError(f"weights must be {self.size} finite numbers above 0, one per item.")
            self.weights = weights / max(float(weights.sum()), 1e-300)
            self.cumulative: Floats = np.cumsum(self.weights)

    def draw(self, keys: Keys) -> Integers:
        """Draw one place per key, with replacement."""
        if self.weights is None:
            return uniform_integers(keys, self.size)
        # Inverse transform: the first place whose cumulative weight is above the uniform number.
        places = np.searchsorted(self.cumulative, uniform_reals(keys) * self.cumulative[-1], side="right")
        within: Integers = np.minimum(places, self.size - 1)
        return within

    def taken(self, excluded: tuple[npt.ArrayLike, npt.ArrayLike], num_users: int) -> Integers:
        """Return the excluded places, one rising number user * size + place each."""
        indptr, indices = (np.asarray(part, dtype=np.int64) for part in excluded)
        rising = indptr.shape == (num_users + 1,) and not np.any(np.diff(indptr) < 0)
        if not rising or indptr[0] != 0 or indptr[-1] != len(indices):
            raise ValueError(
                f"indptr of excluded items must be {num_users + 1} rising numbers from 0 to {len(indices)}."
            )
        users = np.repeat(np.arange(num_users), np.diff(indptr))
        if len(indices) and (indices.min() < 0 or np.any((np.diff(indices) <= 0) & (np.diff(users) == 0))):
            raise ValueError("Excluded items are not strictly rising within each user. Sort them.")
        places = np.searchsorted(self.items, indices)
        keys: Integers = (users * self.size + places)[np.append(self.items, -1)[places] == indices]
        return keys


@dataclass
class _Sample:
    """Samples without replacement in progress, one for each user."""

    pool: _Pool
    taken: Integers  # excluded places, from `_Pool.taken`
    states: Keys  # hash states of the users' random numbers (users,)
    wanted: Integers  # number of places to draw, at most those available (users,)
    # Draws after which rejection sampling stops (users,): per user, so that another user's larger count changes nothing.
    limits: Integers
    places: Integers  # accepted places (users, width) in the order drawn, -1 after the last

    def reject(self, users: Integers) -> Integers:
        """Accept the first new and allowed draws (rejection sampling); return the users who need more.

        Draws are numbered, so a second round repeats those of the first and draws twice as many.
        """
        draws = int(_first_draws(np.array(self.places.shape[1])))
        for _ in range(_ROUNDS):
            for part in _parts(users, draws):
                self._accept(part, draws)
            users = users[(self.places[users] >= 0).sum(axis=1) < self.wanted[users]]
            draws *= 2
        return users

    def _accept(self, users: Integers, draws: int) -> None:
        """Accept new and allowed places among the first draws of some users, up to the limit; work arrays are (users, draws)."""
        drawn = self.pool.draw(mix(self.states[users, None], "draw", np.arange(draws)))
        # Sorted by place, a repeat follows its first draw. Sorting place * 2^bits + draw is three times as fast as argsort.
        bits = max(draws - 1, 1).bit_length()
        ordered = np.sort(drawn << bits | np.arange(draws), axis=1)
        draw, place = ordered & ((1 << bits) - 1), ordered >> bits
        new = ~contains(self.taken, users[:, None] * self.pool.size + place)
        new[:, 1:] &= place[:, 1:] != place[:, :-1]
        accepted = np.empty_like(new)
        np.put_along_axis(accepted, draw, new, axis=1)  # in the order drawn again
        accepted &= np.arange(draws) < self.limits[users, None]
        rank = np.cumsum(accepted, axis=1)  # 1 for the first accepted draw
        rows, columns = np.nonzero(accepted & (rank <= self.wanted[users, None]))
        self.places[users[rows], rank[rows, columns] - 1] = drawn[rows, columns]

    def race(self, users: Integers) -> None:
        """Draw the remaining places of each user by an exponential race; work arrays are (users, size).

        Place i arrives at ``-log(U_i) / w_i``, an exponential time of rate w_i. The order of arrival is that of draws without
        replacement with probabilities proportional to w (Efraimidis and Spirakis 2006, algorithm A, in logarithms). Such draws are
        memoryless, so continuing after rejection with fresh numbers is exact. Excluded and accepted places never arrive.
        """
        for part in _parts(users, self.pool.size):
            times = -np.log(uniform_reals(mix(self.states[part, None], "complete", np.arange(self.pool.size))))
            if self.pool.weights is not None:
                times /= self.pool.weights
            times[contains(self.taken, part[:, None] * self.pool.size + np.arange(self.pool.size))] = np.inf
            rows, columns = np.nonzero(self.places[part] >= 0)
            times[rows, self.places[part[rows], columns]] = np.inf
            accepted = np.bincount(rows, minlength=len(part))
            arrivals = np.argsort(times, axis=1)[:, : self.places.shape[1]]
            rows, nth = np.nonzero(accepted[:, None] + np.arange(arrivals.shape[1]) < self.wanted[part, None])
            self.places[part[rows], accepted[rows] + nth] = arrivals[rows, nth]


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
    """Draw random items for each user, without replacement and without the user's excluded items.

    The first new and allowed draws of each user are accepted (rejection sampling). If too few would be, an exponential race
    gives the rest. The result depends on the seed, the phase, the user's key and excluded items, and the pool: not on other users.

    Args:
        user_keys: One key per user (users,), such as from `hash_ids`.
        count: Number of items, one for all or one per user (users,).
        num_items: The items 0 to `num_items` - 1, or the allowed items as a rising array: the pool.
        excluded: (indptr (users + 1,), indices) as in a CSR matrix of these users; items rise within a user.
        seed: The run's seed.
        phase: Purpose of the draw; another phase gives independent items.
        weights: Weight above 0 of each item of the pool; None: uniform.

    Returns:
        Items (users, max count) in the order drawn; -1 after the last if fewer are wanted or available.

    Examples:
        >>> import numpy as np
        >>> excluded = np.array([0, 2]), np.array([0, 3])  # one user, who has items 0 and 3
        >>> items = distinct_items(hash_ids(["ann"]), 2, 4, excluded, seed=0, phase="test")
        >>> np.sort(items).tolist()
        [[1, 2]]
    """
    num_users, counts = len(user_keys), np.asarray(count, dtype=np.int64)
    if counts.shape not in ((), (num_users,)) or counts.min(initial=0) < 0:
        raise ValueError(f"count is {count}. It must be at least 0, one number or one for each of {num_users} users.")
    pool = _Pool(num_items, weights)
    taken = pool.taken(excluded, num_users)
    users, excluded_places = np.divmod(taken, pool.size)
    available = pool.size - np.bincount(users, minlength=num_users)
    acceptance: Floats = np.asarray(available / max(pool.size, 1))  # probability that a draw is allowed
    if pool.weights is not None:
        # np.bincount adds in order, so a user's probability does not depend on other users.
        acceptance = np.asarray(1.0 - np.bincount(users, pool.weights[excluded_places], minlength=num_users))
    places = np.full((num_users, int(counts.max(initial=0))), -1, dtype=np.int64)
    counts = np.broadcast_to(counts, (num_users,))
    wanted = np.minimum(counts, available)
    states = mix(seed, phase, np.asarray(user_keys, dtype=np.uint64))
    sample = _Sample(pool, taken, states, wanted, _first_draws(counts) << (_ROUNDS - 1), places)
    # Rejection needs about one number per wanted item while most draws are new, the race one per item of the pool. Users whose
    # draws would mostly be rejected skip to the race.
    quick = (wanted * 2 <= available) & (acceptance >= 0.25)
    unserved = sample.reject(np.flatnonzero(quick & (wanted > 0)))
    sample.race(np.concatenate([np.flatnonzero(~quick & (wanted > 0)), unserved]))
    return np.append(pool.items, -1)[sample.places]


def _first_draws(counts: Integers) -> Integers:
    """Return a number of draws that is usually enough: an eighth more than wanted, for repeats and excluded items."""
    return counts + counts // 8 + 4


def _parts(users: Integers, columns: int) -> list[Integers]:
    """Split the users into parts with small work arrays (part, columns)."""
    size = max(_AT_ONCE // max(columns, 1), 1)
    return [users[start : start + size] for start in range(0, len(users), size)]
