"""Unseen items: rejection sampling of negatives, with one bit per tested pair."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

_BITS_PER_PAIR = 32  # of a hashed bitmap: 3 % of unrated entries share a bit with a pair
_EVERY_ENTRY = 1 << 28  # entries of a matrix up to which each has its own bit: 32 MiB
_MOST_REJECTED = 64  # draws of one item, after which it is found by its rank
_GOLDEN = -0x61C8864680B583EB  # 2^64 over the golden ratio, odd, as a signed number


class UnseenItems(nn.Module):
    """Uniform random items that users have not rated, by rejection sampling.

    A user with n of the I items needs I / (I - n) draws on average. After 64 draws an item is found by a random rank among the
    user's unrated ones, by bisection, which bounds the time of nearly full users. One bit tests a draw. In a small matrix every
    entry has its own bit. Otherwise a pair has the bit of its hash, among 32 bits per pair, and hits are looked up among all
    pairs, so memory is linear in the pairs.

    Args:
        pairs: Rated pairs, ``user * num_items + item``, rising, shape ``(pairs,)``.
        num_users: Number of users.
        num_items: Number of items.
        every_entry: Number of entries of the matrix up to which each has its own bit.

    Examples:
        >>> import torch
        >>> unseen = UnseenItems(torch.tensor([0, 1, 5]), num_users=2, num_items=3)
        >>> unseen.draw(torch.tensor([0, 0])).tolist()  # user 0 has items 0 and 1
        [2, 2]
    """

    pairs: Tensor
    bitmap: Tensor  # (bytes,)

    def __init__(self, pairs: Tensor, num_users: int, num_items: int, every_entry: int = _EVERY_ENTRY) -> None:
        super().__init__()
        self.num_items = num_items
        entries = num_users * num_items
        self.exact = entries <= every_entry
        self.log_bits = max(entries if self.exact else _BITS_PER_PAIR * len(pairs), 8).bit_length()
        num_bytes = entries // 8 + 1 if self.exact else 1 << (self.log_bits - 3)
        bitmap = torch.zeros(num_bytes, dtype=torch.uint8, device=pairs.device)
        bits = self._bits(pairs)
        bits = bits if self.exact else torch.unique(bits)  # a sum of different bits is their union
        bitmap.index_add_(0, bits >> 3, (1 << (bits & 7)).to(torch.uint8))
        self.register_buffer("pairs", pairs, persistent=False)
        self.register_buffer("bitmap", bitmap, persistent=False)

    def _bits(self, keys: Tensor) -> Tensor:
        """Return the bit of each pair: its own, or the upper bits of its product with an odd number."""
        return keys if self.exact else (keys * _GOLDEN >> (64 - self.log_bits)) & ((1 << self.log_bits) - 1)

    def seen(self, users: Tensor, items: Tensor) -> Tensor:
        """Return a mask (batch,) of the rated pairs among users (batch,) and items (batch,)."""
        keys = users * self.num_items + items
        bits = self._bits(keys)
        found = ((self.bitmap[bits >> 3].long() >> (bits & 7)) & 1).bool()
        if not self.exact:
            hits = found.nonzero().squeeze(1)
            places = torch.searchsorted(self.pairs, keys[hits]).clamp(max=max(len(self.pairs) - 1, 0))
            found[hits] = self.pairs[places] == keys[hits]
        return found

    def draw(self, users: Tensor, generator: Generator | None = None) -> Tensor:
        """Return one item per user (batch,), uniform over the user's unrated items; no user may have rated all."""
        items = _uniform(self.num_items, len(users), users.device, generator)
        waiting = self.seen(users, items).nonzero().squeeze(1)
        for _ in range(_MOST_REJECTED):
            if not len(waiting):
                break
            again = _uniform(self.num_items, len(waiting), users.device, generator)
            items[waiting] = again
            waiting = waiting[self.seen(users[waiting], again)]
        if len(waiting):
            items[waiting] = self._by_rank(users[waiting], generator)
        return items

    def _by_rank(self, users: Tensor, generator: Generator | None) -> Tensor:
        """Return one unrated item per user (batch,), by a random rank among the user's unrated items."""
        first, last = (torch.searchsorted(self.pairs, (users + more) * self.num_items) for more in (0, 1))
        rank = _uniform(1 << 62, len(users), users.device, generator) % (self.num_items - (last - first))
        low, high = first, last  # between them is the first rated item with more than `rank` unrated ones before it
        while bool((low < high).any()):
            middle = (low + high) // 2
            key = self.pairs[middle.clamp(max=len(self.pairs) - 1)]
            passed = key - users * self.num_items - (middle - first) <= rank
            low, high = torch.where(passed & (low < high), middle + 1, low), torch.where(passed, high, middle)
        return rank + low - first


def _uniform(high: int, count: int, device: torch.device, generator: Generator | None) -> Tensor:
    if generator is None:  # torch.compile rejects generator=None
        return torch.randint(high, (count,), device=device)
    return torch.randint(high, (count,), generator=generator, device=device)
