"""Cross networks: perceptrons on a user and an item, one per domain, that read each other's layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from zoo.data.lookup import Table, rows_at
from zoo.data.rows import SparseRows
from zoo.nn.factors import SideBySide

State: TypeAlias = tuple[Tensor, ...]
"""What a layer reads: user and item factor at first, then the outputs of the layer before."""


class Read(NamedTuple):
    """What a tower reads beside the user."""

    items: Tensor  # factor of the item, (*shape, dim)
    present: Tensor  # whether there is one, (*shape); from a tower that reads nothing, nothing crosses

    @classmethod
    def item(cls, factors: Tensor) -> Read:
        """One item, by its factor (*shape, dim)."""
        return cls(factors, torch.ones(factors.shape[:-1], dtype=torch.bool, device=factors.device))

    @classmethod
    def history(cls, rows: SparseRows, index: Tensor, factors: Tensor) -> Read:
        """All items of some users at once: the mean of their factors.

        Args:
            rows: Who has which items, at least one row.
            index: Row of each user, -1 for none, shape ``(*shape)``; whoever comes twice is read once.
            factors: Factors of all items, shape ``(items, dim)``.
        """
        some, place = torch.unique(index.clamp(min=0), return_inverse=True)
        counts = rows.counts_of(some)
        means = rows.bags(some).times(factors) / counts.clamp(min=1)[:, None]
        return cls(rows_at(means, place), (index >= 0) & (counts > 0)[place])


class ItemTower(nn.Module):
    """One domain's factors of its items, and its perceptron on user and item factor side by side: layers and a head."""

    def __init__(self, num_items: int, dims: Sequence[int]) -> None:
        super().__init__()
        self.items = Table(num_items, dims[0] // 2)
        nn.init.normal_(self.items.weight, std=0.01)
        self.layers = _layers(dims, bias=True)
        self.head = nn.Linear(dims[-1], 1)
        bound = math.sqrt(3 / dims[-1])  # LeCun uniform
        nn.init.uniform_(self.head.weight, -bound, bound)
        nn.init.zeros_(self.head.bias)

    def after(self, depth: int, state: State, crossing: Iterable[Tensor] = ()) -> State:
        """What layer ``depth`` makes of a state and of what crosses from other towers."""
        return (torch.relu(sum(crossing, self.layers[depth](*state))),)


class CrossNetwork(nn.Module):
    """A tower for the target and one for each source, on one table of users, crossed in their first layers.

    With ``a`` for a layer of the target, ``b`` for that of a source, and one ``H`` per layer and source, used both ways::

        a' = relu(W_a a + c_a + mean of H b over the sources that read something)
        b' = relu(W_b b + c_b + H a)

    Layers after the first ``cross_layers`` are each tower's own, and so is the head that makes a logit of the last. Where a tower
    reads nothing, nothing crosses from it: without any source the target's tower is a plain perceptron. All linear
    layers are Glorot uniform, heads LeCun uniform, tables N(0, 0.01).

    Args:
        num_users: Rows of the table of users.
        num_items: Items of the target.
        sources: Items of each source, by name.
        dims: Widths of each tower from the input on; the first is that of a user's and an item's factor.
        cross_layers: How many layers are crossed.
        dropout: Probability of leaving out a number of a factor while training.
    """

    def __init__(
        self,
        num_users: int,
        num_items: int,
        sources: Mapping[str, int],
        dims: Sequence[int],
        cross_layers: int,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.cross_layers = cross_layers
        self.dropout = nn.Dropout(dropout)
        self.users = Table(num_users, dims[0] // 2)
        nn.init.normal_(self.users.weight, std=0.01)
        self.target = ItemTower(num_items, dims)
        self.sources = nn.ModuleDict({name: ItemTower(items, dims) for name, items in sources.items()})
        crossed = dims[: cross_layers + 1]
        self.crossings = nn.ModuleDict({name: _layers(crossed, bias=False) for name in sources})

    def forward(self, users: Tensor, target: Read, sources: Mapping[str, Read], of: str | None = None) -> Tensor:
        """Logits of one domain's tower, crossed with the others.

        Args:
            users: Rows in the table of users, shape ``(*shape)``; all shapes broadcast.
            target: What the target's tower reads.
            sources: What the towers of some sources read, by name.
            of: The source whose logits are wanted; None: those of the target.

        Returns:
            Logits, shape ``(*shape)``.
        """
        factors = self.dropout(self.users(users))
        own: State = (factors, self.dropout(target.items))
        theirs: dict[str, State] = {name: (factors, self.dropout(read.items)) for name, read in sources.items()}
        known = _column(target.present)
        shares = _shares({name: _column(read.present) for name, read in sources.items()})
        for depth in range(self.cross_layers):
            crossing = [shares[name] * self._cross(name, depth, state) for name, state in theirs.items()]
            if depth == self.cross_layers - 1:  # whose logits are not wanted is read for the last time
                theirs = {name: state for name, state in theirs.items() if name == of}
            back = {name: known * self._cross(name, depth, own) for name in theirs}
            own = self.target.after(depth, own, crossing)
            theirs = {name: self.tower(name).after(depth, state, [back[name]]) for name, state in theirs.items()}
        tower, state = (self.target, own) if of is None else (self.tower(of), theirs[of])
        for depth in range(self.cross_layers, len(tower.layers)):
            state = tower.after(depth, state)
        logits: Tensor = tower.head(*state)
        return logits.squeeze(-1)

    def _cross(self, source: str, depth: int, state: State) -> Tensor:
        """``H`` times a state."""
        crossings = self.crossings[source]
        assert isinstance(crossings, nn.ModuleList)
        crossed: Tensor = crossings[depth](*state)
        return crossed

    def crossing_norm(self) -> Tensor:
        """Sum of the absolute values of all ``H``."""
        zero = self.target.head.bias.new_zeros(())
        return sum((weight.abs().sum() for weight in self.crossings.parameters()), zero)

    def tower(self, source: str) -> ItemTower:
        """The tower of a source."""
        tower = self.sources[source]
        assert isinstance(tower, ItemTower)
        return tower


def _column(present: Tensor) -> Tensor:
    return present[..., None].float()


def _shares(present: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What each source counts in the mean over those that are present."""
    if not present:
        return {}
    count = torch.stack([*present.values()]).sum(0).clamp(min=1)
    return {name: one / count for name, one in present.items()}


def _layers(dims: Sequence[int], *, bias: bool) -> nn.ModuleList:
    """From each width to the next a linear layer, the first on two factors side by side."""
    widths = list(pairwise(dims))
    layers = [(nn.Linear if depth else SideBySide)(*pair, bias=bias) for depth, pair in enumerate(widths)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        if bias:
            nn.init.zeros_(layer.bias)
    return nn.ModuleList(layers)
