"""BiTGCF: light graph convolution on target and sources, which exchange the vectors of common users after each layer."""

import torch
from torch import Tensor, nn

from zoo.data.batch_types import Batch, TripleBatch
from zoo.data.released_pairs import ReleasedPairs
from zoo.methods.base import Outputs
from zoo.methods.light_gcn import GraphRecommender, Nodes
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.factors import FactorTables
from zoo.nn.light_graph import LightGraph
from zoo.nn.modules import ModulesOf
from zoo.runtime import checks


class FeatureTransfer(nn.Module):
    """Mix the vectors of users in two graphs: each domain takes over a share of the other domain's vector.

    With a domain's own lambda and ``n``, ``m`` edges of a user in it and in the other domain, the user's vector becomes::

        own' = (mixed + common) / 2,    mixed = lambda own + (1 - lambda) other,    common = (n own + m other) / (n + m)

    which is ``own + share (other - own)`` with ``share = (1 - lambda + m / (n + m)) / 2``. Both domains are mixed from the
    previous vectors. The share is 1 for a user without an edge in the own domain, and 0 without an edge in the other.

    Args:
        links: Row of each target user in the source (num_users,), -1 for none.
        target_counts: Number of edges of each target user (num_users,).
        source_counts: Number of edges of each source row (rows,).
        target_lambda: Lambda of the target, in [0, 1].
        source_lambda: Lambda of the source, in [0, 1].
    """

    users: Tensor  # target's users who have a row in the source, (common,)
    rows: Tensor  # their rows there, (common,)
    target_shares: Tensor  # what each takes over from the source, (common, 1)
    source_shares: Tensor  # and the other way round, (common, 1)

    def __init__(
        self, links: Tensor, target_counts: Tensor, source_counts: Tensor, target_lambda: float, source_lambda: float
    ) -> None:
        """-"""
        super().__init__()
        users = (links >= 0).nonzero().squeeze(1)
        rows = links[users]
        target, source = target_counts[users], source_counts[rows]
        shares = {"target": _shares(target, source, target_lambda), "source": _shares(source, target, source_lambda)}
        buffers = {"users": users, "rows": rows} | {f"{name}_shares": value for name, value in shares.items()}
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, target: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        """Return what is added to target vectors (users, dim) and source vectors (rows, dim), in these shapes."""
        difference = source[self.rows] - target[self.users]
        gained = torch.zeros_like(target).index_add(0, self.users, self.target_shares * difference)
        return gained, torch.zeros_like(source).index_add(0, self.rows, -self.source_shares * difference)


def _shares(own: Tensor, other: Tensor, own_lambda: float) -> Tensor:
    """Shares (users, 1) that users with these numbers of edges (users,) take over."""
    mixed = (1 - own_lambda + other / (own + other).clamp(min=1)) / 2
    return torch.where(other == 0, 0.0, torch.where(own == 0, 1.0, mixed))[:, None]


class BiTGCF(GraphRecommender):
    """Bi-directional transfer: a light graph convolution per domain, which exchange the vectors of common users after each layer.

    Target and source have a graph and factors each, as in `LightGCN`. After every layer, `FeatureTransfer` mixes the two
    vectors of common users. The score is the inner product of the averages of factors and all layers. Training reads the
    triples of both domains, including those of source users unknown to the target.

    A cold-start user has no trained factor: the vectors of the source's layers replace it. A user without ratings in the
    release keeps the target's vectors. With several sources, the target takes over the average of those with ratings of the
    user. Without a source it equals `LightGCN` with equal layer weights. It reads rows of zeros and ones.

    Reference: Liu, Li, Li, Pan, *Cross Domain Recommendation via Bi-directional Transfer Graph Collaborative Filtering
    Networks*, CIKM 2020. Its text could not be checked; settings and rules are those of the authors' code
    (github.com/sunshinelium/Bi-TGCF): the mix, lambdas of 0.8, three layers of 64, Adam at 1e-3. Departures: layers are
    LightGCN's. The authors' layers add products of node and neighbourhood, use dropout, are normalised and concatenated. The
    loss is BPR's with one negative (theirs: cross-entropy with four); the penalty is on factors before any layer. Each batch of
    the target comes with as many triples of each source; the authors train surplus batches of the larger domain alone. Their
    users are in both domains; the shares of the others are ours.

    Args:
        num_factors: Width of user and item factors.
        num_layers: Number of layers, at least 1, each followed by a transfer.
        target_lambda: Share of a user's own vector in the particular half at the target, in [0, 1]; 1: only the common half
            transfers.
        source_lambda: Share of a user's own vector in the particular half at the sources, in [0, 1].
        source_weight: Weight of the loss of each source's triples, at least 0; 0: the source's factors learn from target ratings.
        l2: Half of it times the squared factors of a triple is added to the triple's loss; at least 0.
        lr: Step size of Adam, above 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.BiTGCF(num_factors=8), data, publisher=zoo.Plaintext(), max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    accepted_releases = frozenset({"rows", "ratings"})
    scores_cold_users = True

    known: Tensor  # 1 for who has target history, else 0, (num_users, 1)
    takes_over: Tensor  # whether some source has ratings of a user, (num_users,)
    num_offers: Tensor  # from how many sources a user takes over, at least 1, (num_users, 1)

    def __init__(
        self,
        num_factors: int = 64,
        num_layers: int = 3,
        target_lambda: float = 0.8,
        source_lambda: float = 0.8,
        source_weight: float = 1.0,
        l2: float = 3e-3,
        lr: float = 1e-2,
    ) -> None:
        super().__init__()
        checks.factors(num_factors=num_factors)
        checks.layers(num_layers=num_layers)
        checks.shares(target_lambda=target_lambda, source_lambda=source_lambda)
        checks.not_negative(source_weight=source_weight, l2=l2)
        checks.positive(lr=lr)
        self.num_factors, self.num_layers = num_factors, num_layers
        self.target_lambda, self.source_lambda = target_lambda, source_lambda
        self.source_weight, self.l2, self.lr = source_weight, l2, lr

    def build(self, sizes: Sizes) -> None:
        """Make the factors of the target, and of every source with linked users."""
        self.factors = self._tables(sizes["num_users"], sizes["num_items"])
        covered = {name: source for name, source in sizes["sources"].items() if source["num_users"]}
        self.source_factors: ModulesOf[FactorTables] = ModulesOf(
            {name: self._tables(source["num_users"], source["width"]) for name, source in covered.items()}
        )

    def _tables(self, users: int, items: int) -> FactorTables:
        return FactorTables(users, items, self.num_factors, nn.init.xavier_normal_)

    def read_data(self, data: TargetData) -> None:
        """Also store the graphs of target and sources, and the transfers between them."""
        super().read_data(data)
        self.graph = LightGraph(self.target_rows, self.target_columns)
        counts = self.target_rows.counts()
        offers = torch.zeros(len(counts), 1, device=counts.device)
        self.source_sides: ModulesOf[SourceSide] = ModulesOf()
        for name in self.sources:
            if not self.sources[name].has_rows:
                continue
            pairs, links = self.source_pairs(name), self.sources[name].links
            transfer = FeatureTransfer(links, counts, pairs.rows.counts(), self.target_lambda, self.source_lambda)
            self.source_sides[name] = SourceSide(pairs, transfer)
            offers[transfer.users] += (transfer.target_shares > 0).float()
        self.register_buffer("takes_over", (offers > 0).squeeze(1), persistent=False)
        self.register_buffer("num_offers", offers.clamp(min=1), persistent=False)
        self.register_buffer("known", (counts > 0).float()[:, None], persistent=False)

    def can_score(self, users: Tensor) -> Tensor:
        """Return a mask of users (batch,) with target history or a rating in some release; rows of zeros are uninformative."""
        mask: Tensor = (self.known.squeeze(1) > 0)[users] | self.takes_over[users]
        return mask

    def nodes(self) -> Nodes:
        """Return the averages of the target's factors and layers."""
        return self.propagated()[0]

    def propagated(self) -> tuple[Nodes, dict[str, Nodes]]:
        """Return scored users (num_users, num_factors) and items (num_items, num_factors) of the target and of each source."""
        nodes = self.factors.users.weight * self.known, self.factors.items.weight
        tables = {name: self.source_factors[name] for name in self.source_sides}
        sources = {name: (own.users.weight, own.items.weight) for name, own in tables.items()}
        total, totals = nodes, dict(sources)
        for _ in range(self.num_layers):
            nodes, sources = self._layer(nodes, sources)
            total = _added(total, nodes)
            totals = {name: _added(totals[name], sources[name]) for name in sources}
        share = 1 / (self.num_layers + 1)
        return _scaled(total, share), {name: _scaled(of_source, share) for name, of_source in totals.items()}

    def _layer(self, target: Nodes, sources: dict[str, Nodes]) -> tuple[Nodes, dict[str, Nodes]]:
        """Apply one layer in every domain, then transfer between users."""
        users, items = self.graph.layer(*target)
        gained, mixed = torch.zeros_like(users), {}
        for name, nodes in sources.items():
            side = self.source_sides[name]
            source_users, source_items = side.graph.layer(*nodes)
            to_target, to_source = side.transfer(users, source_users)
            gained, mixed[name] = gained + to_target, (source_users + to_source, source_items)
        return (users + gained / self.num_offers, items), mixed

    def step(self, batch: Batch) -> Outputs:
        """Return the summed loss of the target's triples and of as many of each source; all graphs are propagated once."""
        assert isinstance(batch, TripleBatch)
        target, sources = self.propagated()
        loss, users, items = self.triples_loss(target, self.factors, batch)
        for name, nodes in sources.items() if self.source_weight else ():
            drawn = self.source_sides[name].draws.triples(len(batch.users))
            loss = loss + self.source_weight * self.triples_loss(nodes, self.source_factors[name], drawn)[0]
        return {"loss": loss, "user_factors": users, "item_factors": items}


class SourceSide(nn.Module):
    """A source before training: its graph, its pairs to sample from, and the transfer with the target."""

    def __init__(self, pairs: ReleasedPairs, transfer: FeatureTransfer) -> None:
        super().__init__()
        self.graph, self.draws, self.transfer = LightGraph(pairs.rows, pairs.rows.transposed()), pairs, transfer


def _added(nodes: Nodes, others: Nodes) -> Nodes:
    return nodes[0] + others[0], nodes[1] + others[1]


def _scaled(nodes: Nodes, factor: float) -> Nodes:
    return nodes[0] * factor, nodes[1] * factor
