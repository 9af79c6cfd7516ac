"""Items that a user has not: who has what is asked of one bit, and drawn until nobody has what was drawn."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn

_BITS_PER_PAIR = 32  # of the bitmap, where cells have no bit of their own: 3 % of other cells share a bit with a pair
_EVERY_CELL = 1 << 28  # cells up to which each has a bit of its own: 32 MiB
_GOLDEN = -0x61C8864680B583EB  # 2^64 over the golden ratio, odd, as a signed number


class UnseenItems(nn.Module):
    """Draws items that users have not, uniformly: rejection sampling.

    A user with n of the I items is drawn for I / (I - n) times on average. Each draw is tested by one bit. Where there are few
    cells every cell has its own; else a pair has that of its hash, of 32 bits for each pair, and what hits one is looked for
    among all pairs, so memory is linear in the pairs.

    Args:
        pairs: ``user * num_items + item`` of what users have, rising, shape ``(pairs,)``.
        num_users: Number of users.
        num_items: Number of items.
        every_cell: Cells up to which each has a bit of its own.
    """

    pairs: Tensor
    bitmap: Tensor  # (bytes,)

    def __init__(self, pairs: Tensor, num_users: int, num_items: int, every_cell: int = _EVERY_CELL) -> None:
        super().__init__()
        self.num_items = num_items
        cells = num_users * num_items
        self.exact = cells <= every_cell
        self.log_bits = max(cells if self.exact else _BITS_PER_PAIR * len(pairs), 8).bit_length()
        num_bytes = cells // 8 + 1 if self.exact else 1 << (self.log_bits - 3)
        bitmap = torch.zeros(num_bytes, dtype=torch.uint8, device=pairs.device)
        bits = self._bits(pairs)
        bits = bits if self.exact else torch.unique(bits)  # a sum of different bits is their union
        bitmap.index_add_(0, bits >> 3, (1 << (bits & 7)).to(torch.uint8))
        self.register_buffer("pairs", pairs, persistent=False)
        self.register_buffer("bitmap", bitmap, persistent=False)

    def _bits(self, cells: Tensor) -> Tensor:
        """Which bit of the bitmap each cell has: its own, or the upper bits of its product with an odd number."""
        if self.exact:
            return cells
        return (cells * _GOLDEN >> (64 - self.log_bits)) & ((1 << self.log_bits) - 1)

    def seen(self, users: Tensor, items: Tensor) -> Tensor:
        """Which users (batch,) have which items (batch,), as a mask."""
        cells = users * self.num_items + items
        bits = self._bits(cells)
        found = ((self.bitmap[bits >> 3].long() >> (bits & 7)) & 1).bool()
        if not self.exact:
            hits = found.nonzero().squeeze(1)
            places = torch.searchsorted(self.pairs, cells[hits]).clamp(max=max(len(self.pairs) - 1, 0))
            found[hits] = self.pairs[places] == cells[hits]
        return found

    def draw(self, users: Tensor, generator: Generator | None = None) -> Tensor:
        """One item for each user (batch,), uniform over those that the user has not; no user may have all."""
        items = self._any(len(users), users.device, generator)
        waiting = self.seen(users, items).nonzero().squeeze(1)
        while len(waiting):
            again = self._any(len(waiting), users.device, generator)
            items[waiting] = again
            waiting = waiting[self.seen(users[waiting], again)]
        return items

    def _any(self, count: int, device: torch.device, generator: Generator | None) -> Tensor:
        if generator is None:  # torch.compile cannot pass it on as None
            return torch.randint(self.num_items, (count,), device=device)
        return torch.randint(self.num_items, (count,), generator=generator, device=device)
