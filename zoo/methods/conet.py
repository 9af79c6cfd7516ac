"""CoNet: a perceptron on user and item per domain, on one table of users, each reading the layers of the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.batch_types import Batch, PairBatch
from zoo.data.lookup import Table, rows_at
from zoo.data.released_pairs import ReleasedPairs
from zoo.data.rows import SparseRows
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.factors import SideBySide, logits_of_all
from zoo.nn.modules import ModulesOf
from zoo.runtime import checks

State: TypeAlias = tuple[Tensor, ...]
"""What a layer reads: user and item factor at first, then the outputs of the layer before."""


class Read(NamedTuple):
    """The item input of a tower."""

    items: Tensor  # factor of the item, (*shape, dim)
    present: Tensor  # whether there is one, (*shape); from a tower that reads nothing, nothing crosses

    @classmethod
    def item(cls, factors: Tensor) -> Read:
        """Return the input for one item, by its factor (*shape, dim)."""
        return cls(factors, torch.ones(factors.shape[:-1], dtype=torch.bool, device=factors.device))

    @classmethod
    def history(cls, rows: SparseRows, index: Tensor, factors: Tensor) -> Read:
        """Return the input for all items of a user: the mean of their factors.

        Args:
            rows: Ratings by user.
            index: Row of each user in ``rows`` (*shape), -1 for none.
            factors: Factors of all items (items, dim).
        """
        some, place = torch.unique(index.clamp(min=0), return_inverse=True)
        counts = rows.counts_of(some)
        means = rows.bags(some).times(factors) / counts.clamp(min=1)[:, None]
        return cls(rows_at(means, place), (index >= 0) & (counts > 0)[place])


class ItemTower(nn.Module):
    """Item factors of one domain, and its perceptron on user and item factor side by side: layers and a head."""

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
        """Apply layer ``depth`` to a state and to the crossing inputs of other towers."""
        return (torch.relu(sum(crossing, self.layers[depth](*state))),)


class CrossNetwork(nn.Module):
    """Towers for the target and for each source, on one table of users, crossed in their first layers.

    With ``a`` for a layer of the target, ``b`` for that of a source, and one ``H`` per layer and source, used both ways::

        a' = relu(W_a a + c_a + mean of H b over the sources with an input)
        b' = relu(W_b b + c_b + H a)

    Later layers and the head are each tower's own. Nothing crosses from a tower without an input. All linear layers are Glorot
    uniform, heads LeCun uniform, tables N(0, 0.01).

    Args:
        num_users: Rows in the table of users.
        num_items: Items of the target.
        sources: Number of items by source.
        dims: Widths of each tower from the input on; the first is that of a user and an item factor together.
        cross_layers: Number of crossed layers.
        dropout: Probability of dropping a number of a factor in training.
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
        self.sources: ModulesOf[ItemTower] = ModulesOf(
            {name: ItemTower(items, dims) for name, items in sources.items()}
        )
        crossed = dims[: cross_layers + 1]
        self.crossings: ModulesOf[nn.ModuleList] = ModulesOf({name: _layers(crossed, bias=False) for name in sources})

    def forward(self, users: Tensor, target: Read, sources: Mapping[str, Read], of: str | None = None) -> Tensor:
        """Return logits (*shape) of the target's tower, or of the tower of source ``of``, crossed with the others.

        ``users`` are rows in the table of users; ``target`` and ``sources`` are the inputs of the towers. All shapes broadcast.
        """
        factors = self.dropout(self.users(users))
        own: State = (factors, self.dropout(target.items))
        theirs: dict[str, State] = {name: (factors, self.dropout(read.items)) for name, read in sources.items()}
        known, shares = target.present[..., None].float(), _shares(sources)
        for depth in range(self.cross_layers):
            crossing = [shares[name] * self._cross(name, depth, state) for name, state in theirs.items()]
            if depth == self.cross_layers - 1:  # whose logits are not wanted is read for the last time
                theirs = {name: state for name, state in theirs.items() if name == of}
            back = {name: known * self._cross(name, depth, own) for name in theirs}
            own = self.target.after(depth, own, crossing)
            theirs = {name: self.sources[name].after(depth, state, [back[name]]) for name, state in theirs.items()}
        tower, state = (self.target, own) if of is None else (self.sources[of], theirs[of])
        for depth in range(self.cross_layers, len(tower.layers)):
            state = tower.after(depth, state)
        logits: Tensor = tower.head(*state)
        return logits.squeeze(-1)

    def _cross(self, source: str, depth: int, state: State) -> Tensor:
        """Multiply a state by ``H``."""
        crossed: Tensor = self.crossings[source][depth](*state)
        return crossed

    def crossing_norm(self) -> Tensor:
        """Return the sum of the absolute values of all ``H``."""
        zero = self.target.head.bias.new_zeros(())
        return sum((weight.abs().sum() for weight in self.crossings.parameters()), zero)


def _shares(sources: Mapping[str, Read]) -> dict[str, Tensor]:
    """Weight of each source in the mean over the sources that are present."""
    if not sources:
        return {}
    present = {name: read.present[..., None].float() for name, read in sources.items()}
    count = torch.stack([*present.values()]).sum(0).clamp(min=1)
    return {name: one / count for name, one in present.items()}


def _layers(dims: Sequence[int], *, bias: bool) -> nn.ModuleList:
    """Linear layers from each width to the next, the first on two factors side by side."""
    widths = list(pairwise(dims))
    layers = [(nn.Linear if depth else SideBySide)(*pair, bias=bias) for depth, pair in enumerate(widths)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        if bias:
            nn.init.zeros_(layer.bias)
    return nn.ModuleList(layers)


class CoNet(Recommender):
    """Collaborative cross networks: a perceptron per domain, each reading the hidden layers of the other.

    Users have one factor for all domains, items one each. A layer of the target's tower adds ``H`` times the source tower's
    previous layer; a layer of the source's tower adds the same ``H`` times that of the target. A batch holds observed pairs of
    the target and about as many of each release, with ``num_negatives`` others for each. The loss is the mean binary
    cross-entropy of the target, plus ``source_weight`` times that of the sources, plus ``sparsity`` times the sum of the
    absolute values of all ``H`` (SCoNet). It reads releases of zeros and ones only.

    A pair of one domain is read together with the mean factor of the same user's items in the other, in training and in
    scoring. Nothing crosses from a domain without ratings of the user. Several sources have a tower and ``H`` each; the target
    reads the mean of those with the user. Without a source it is a perceptron on user and item.

    Reference: Hu, Zhang, Yang, *CoNet: Collaborative Cross Networks for Cross-Domain Recommendation*, CIKM 2018: its base
    network, its cross connection units (one matrix per layer for both directions), its sparse variant and its joint loss.
    Departures: the paper joins single pairs of the same user, the released code pairs of different users; here the mean of all
    the user's items represents the other domain. Only observed items are read there, as items sampled with the label would
    reveal it. One logit replaces two classes. Layers are Glorot uniform, as N(0, 0.01) silences a deep perceptron; tables are
    N(0, 0.01). No gradient is clipped. Four negatives replace one; ``dropout`` is not in the released code.

    Args:
        dims: Widths of a tower; the first is that of a user and an item factor together.
        cross_layers: Number of crossed layers, from the first on; 0 shares the user factors alone.
        sparsity: Weight of the absolute values of the crossing matrices, at least 0; the released SCoNet has 0.01.
        source_weight: Weight of the loss of the sources' pairs, at least 0; the released code has 1.
        num_negatives: Unobserved items for each observed one, in every domain; the released code has 1.
        dropout: Probability in [0, 1) of dropping a number of a factor in training.
        lr: Step size of Adam, above 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> method = zoo.CoNet(dims=(16, 8), cross_layers=1)
        >>> run = zoo.fit(method, data, publisher=zoo.Plaintext(), max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    batches = "pairs"
    accepted_releases = frozenset({"ratings", "rows"})
    scores_cold_users = True
    scoring_needs = frozenset({"releases"})

    def __init__(
        self,
        dims: Sequence[int] = (64, 32, 16, 8),
        cross_layers: int = 2,
        sparsity: float = 0.0,
        source_weight: float = 1.0,
        num_negatives: int = 4,
        dropout: float = 0.2,
        lr: float = 5e-3,
    ) -> None:
        super().__init__()
        checks.shared_widths(dims=dims)
        checks.not_negative(sparsity=sparsity, source_weight=source_weight)
        checks.at_least_one(num_negatives=num_negatives)
        checks.positive(lr=lr)
        checks.below_one(dropout=dropout)
        if not 0 <= cross_layers < len(dims):
            raise ValueError(
                f"cross_layers is {cross_layers}. It must lie in [0, {len(dims) - 1}] for these dims. Change either."
            )
        self.dims, self.cross_layers, self.dropout = tuple(dims), cross_layers, dropout
        self.sparsity, self.source_weight = sparsity, source_weight
        self.num_negatives, self.lr = num_negatives, lr

    def build(self, sizes: Sizes) -> None:
        """Make the towers; the table holds the target's users first, then as many as each release has rows."""
        sources = sizes["sources"]
        num_users = sizes["num_users"] + sum(source["num_users"] for source in sources.values())
        widths = {name: source["width"] for name, source in sources.items()}
        self.network = CrossNetwork(num_users, sizes["num_items"], widths, self.dims, self.cross_layers, self.dropout)

    def read_data(self, data: TargetData) -> None:
        """Also store the pairs of each release, and the users that they belong to."""
        super().read_data(data)
        self.released: ModulesOf[ReleasedUsers] = ModulesOf()
        strangers = data.train.num_users
        for name in self.sources:
            pairs = self.source_pairs(name)
            self.released[name] = ReleasedUsers(pairs, self.sources[name].links, strangers)
            strangers += pairs.num_users

    def step(self, batch: Batch) -> Outputs:
        """Return mean cross-entropy of the target's and of the sources' pairs, plus the weight of the crossings."""
        assert isinstance(batch, PairBatch)
        logits = self._logits(batch.users, batch.items)
        loss = F.binary_cross_entropy_with_logits(logits, batch.labels)
        for name in self.released if self.source_weight else ():
            pairs = self.released[name].pairs.pairs(len(batch.users) // (1 + self.num_negatives), self.num_negatives)
            if len(pairs.users):
                loss = loss + self.source_weight * self._source_loss(name, pairs)
        if self.sparsity:
            loss = loss + self.sparsity * self.network.crossing_norm()
        return {"loss": loss}

    def _source_loss(self, name: str, pairs: PairBatch) -> Tensor:
        """Cross-entropy of pairs of a release, read together with the same users' target ratings."""
        released, tower = self.released[name], self.network.sources[name]
        users = released.people[pairs.users]
        known = torch.where(users < self.target_rows.num_rows, users, -1)
        target = Read.history(self.target_rows, known, self.network.target.items.weight)
        source = Read.item(tower.items(pairs.items))
        logits = self.network(users, target, {name: source}, of=name)
        return F.binary_cross_entropy_with_logits(logits, pairs.labels)

    def _logits(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits of users and target items whose shapes broadcast."""
        sources = {}
        for name in self.released:
            if self.sources[name].has_rows:
                factors = self.network.sources[name].items.weight
                sources[name] = Read.history(self.released[name].rows, self.sources[name].links[users], factors)
        logits: Tensor = self.network(users, Read.item(self.network.target.items(items)), sources)
        return logits

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return logits of items (batch, candidates), in the same shape."""
        return self._logits(users[:, None], items)

    def score_all(self, users: Tensor) -> Tensor:
        """Return logits of all items, shape ``(batch, num_items)``."""
        return logits_of_all(self._logits, users, self.target_rows.width, max(self.dims))


class ReleasedUsers(nn.Module):
    """Pairs of a release, and the row of each of its users in the table of users.

    Args:
        pairs: Pairs of the release.
        links: Row of each target user in the release (users,), -1 for none.
        offset: First row in the table for users unknown to the target.
    """

    people: Tensor  # row in the table of users, of each row of the release, (rows,)

    def __init__(self, pairs: ReleasedPairs, links: Tensor, strangers: int) -> None:
        super().__init__()
        self.rows, self.pairs = pairs.rows, pairs
        people = strangers + torch.arange(pairs.num_users, device=links.device)
        linked = (links >= 0).nonzero().squeeze(1)
        people[links[linked]] = linked
        self.register_buffer("people", people, persistent=False)
