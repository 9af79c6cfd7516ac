"""CoNet: a perceptron on user and item for each domain, on one table of users, each reading the layers of the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.batches import Batch, PairBatch
from zoo.data.released_pairs import ReleasedPairs
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.cross_network import CrossNetwork, Read
from zoo.nn.towers import check_training

#: Users whose pairs with all items are scored at a time: what a processor's cache holds, about.
CHUNK = 16


class CoNet(Recommender):
    """Collaborative cross networks: a perceptron for each domain, each reading the hidden layers of the other.

    Users have one factor for all domains, items one each. A tower reads the factors of a user and of an item side by side; a
    layer of the target's tower adds ``H`` times the source tower's layer before, and a layer of the source's tower the same
    ``H`` times that of the target. Both domains' pairs are learned at once: a batch holds observed pairs of the target and
    about as many of each release, with ``num_negatives`` others for each; its loss is the mean binary cross-entropy of the
    one, plus ``source_weight`` times that of the other, plus ``sparsity`` times the sum of the absolute values of all ``H``
    (SCoNet). It learns from who has which item, so it reads releases of zeros and ones only.

    A pair of one domain is read together with what the same user has in the other: with the mean factor of the user's items
    there, while training and while scoring. Nothing crosses from a domain in which the user has nothing: the factor of somebody
    whom one domain alone knows is learned, and a user of no release scored, by that domain's tower alone. Several sources have
    a tower and ``H`` each, and the target reads the mean of what crosses from those that have the user; without any it is a
    perceptron on user and item.

    Reference: Hu, Zhang, Yang, *CoNet: Collaborative Cross Networks for Cross-Domain Recommendation*, CIKM 2018: its base
    network, its cross connection units (one matrix per layer for both directions), its sparse variant and its joint loss.

    Departures: the paper joins one pair of each domain of the same user; the mean of all the user's items is what a drawn one
    is on average, and is the same in training and in scoring, where no pair of the source is at hand. The released code joins
    pairs of different users, and chooses its epoch by towers that are not crossed. Only observed items are read on the other
    side, whatever the pair's own label: an item that is drawn along with the label would tell it. One logit
    in the place of two classes. Layers are Glorot uniform, as N(0, 0.01) leaves a deep perceptron silent for epochs; tables are
    N(0, 0.01). No gradient is clipped. Four negatives in the place of one; ``dropout`` and ``source_weight`` are not in the paper.

    Args:
        dims: Widths of a tower; the first is that of a user's and an item's factor side by side.
        cross_layers: How many layers are crossed, the first ones; 0 shares the users' factors alone.
        sparsity: Weight of the absolute values of the crossing matrices; the released SCoNet has 0.01.
        source_weight: Weight of the loss of the sources' pairs; 1 is the paper's.
        num_negatives: Unobserved items for each observed one, in every domain; the paper has 1.
        dropout: Probability of leaving out a number of a factor while training.
        lr: Step size of Adam.
    """

    batches = "pairs"
    reads = frozenset({"ratings", "rows"})
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
        if len(dims) < 2 or min(dims) < 1 or dims[0] % 2:
            raise ValueError(
                f"dims must be at least two widths, the first even, as two factors share it; got {list(dims)}."
            )
        if not 0 <= cross_layers < len(dims):
            raise ValueError(
                f"cross_layers must lie in [0, {len(dims) - 1}], as dims {list(dims)} make {len(dims) - 1} layers; got "
                f"{cross_layers}."
            )
        if not (sparsity >= 0 and source_weight >= 0):
            raise ValueError(
                f"sparsity and source_weight must not be negative; got {sparsity} and {source_weight}. 0 leaves a term out."
            )
        if num_negatives < 1:
            raise ValueError(f"num_negatives must be at least 1, got {num_negatives}; the paper has 1.")
        check_training(lr=lr, dropout=dropout)
        self.dims, self.cross_layers, self.dropout = tuple(dims), cross_layers, dropout
        self.sparsity, self.source_weight = sparsity, source_weight
        self.num_negatives, self.lr = num_negatives, lr

    def build(self, sizes: Sizes) -> None:
        """Make the towers; in the table of users the target's come first, then as many as each release has rows."""
        sources = sizes["sources"]
        num_users = sizes["num_users"] + sum(source["num_users"] for source in sources.values())
        widths = {name: source["width"] for name, source in sources.items()}
        self.network = CrossNetwork(num_users, sizes["num_items"], widths, self.dims, self.cross_layers, self.dropout)

    def read_data(self, data: TargetData) -> None:
        """Keep the pairs of each release, and who they are of, beside what every method keeps."""
        super().read_data(data)
        self.released = nn.ModuleDict()
        strangers = data.train.num_users
        for name in self.sources:
            pairs = self.source_pairs(name)
            self.released[name] = ReleasedUsers(pairs, self._linked(name).links, strangers)
            strangers += pairs.num_users

    def step(self, batch: Batch) -> Outputs:
        """Cross-entropy of the target's and of the sources' pairs, their means, and the weight of the crossings."""
        assert isinstance(batch, PairBatch)
        logits = self._logits(batch.users, batch.items)
        loss = F.binary_cross_entropy_with_logits(logits, batch.labels)
        for name in self.released if self.source_weight else ():
            pairs = self._released(name).pairs.pairs(len(batch.users) // (1 + self.num_negatives), self.num_negatives)
            if len(pairs.users):
                loss = loss + self.source_weight * self._source_loss(name, pairs)
        if self.sparsity:
            loss = loss + self.sparsity * self.network.crossing_norm()
        return {"loss": loss}

    def _source_loss(self, name: str, pairs: PairBatch) -> Tensor:
        """Cross-entropy of pairs of a release, read together with what the same users have in the target."""
        released, tower = self._released(name), self.network.tower(name)
        users = released.people[pairs.users]
        known = torch.where(users < self.target_rows.num_rows, users, -1)
        target = Read.history(self.target_rows, known, self.network.target.items.weight)
        source = Read.item(tower.items(pairs.items))
        logits = self.network(users, target, {name: source}, of=name)
        return F.binary_cross_entropy_with_logits(logits, pairs.labels)

    def _logits(self, users: Tensor, items: Tensor) -> Tensor:
        """Of users and target items whose shapes broadcast."""
        sources = {}
        for name in self.released:
            if self._linked(name).has_rows:
                factors = self.network.tower(name).items.weight
                sources[name] = Read.history(self._released(name).rows, self._linked(name).links[users], factors)
        logits: Tensor = self.network(users, Read.item(self.network.target.items(items)), sources)
        return logits

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Logits of given items, shape ``(batch, candidates)``."""
        return self._logits(users[:, None], items)

    def score_all(self, users: Tensor) -> Tensor:
        """Logits of all items, shape ``(batch, num_items)``."""
        items = torch.arange(self.target_rows.width, device=users.device)[None]
        return torch.cat([self._logits(some[:, None], items) for some in torch.split(users, CHUNK)])

    def _released(self, name: str) -> ReleasedUsers:
        released = self.released[name]
        assert isinstance(released, ReleasedUsers)
        return released


class ReleasedUsers(nn.Module):
    """What a release holds, and which row of the table of users each of its users has: a target user's own, or one at the end.

    Args:
        pairs: The release's pairs.
        links: Row of each target user in the release, -1 for none, shape ``(users,)``.
        strangers: Where the rows of those begin who are not the target's.
    """

    people: Tensor  # row in the table of users, of each row of the release, (rows,)

    def __init__(self, pairs: ReleasedPairs, links: Tensor, strangers: int) -> None:
        super().__init__()
        self.rows, self.pairs = pairs.rows, pairs
        people = strangers + torch.arange(pairs.num_users, device=links.device)
        linked = (links >= 0).nonzero().squeeze(1)
        people[links[linked]] = linked
        self.register_buffer("people", people, persistent=False)
