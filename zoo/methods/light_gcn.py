"""LightGCN: factors of users and items, each mixed with those of its neighbours in the graph of ratings."""

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.data.batch_types import Batch, TripleBatch
from zoo.data.lookup import rows_at
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.factors import FactorTables, history_features, history_map
from zoo.nn.light_graph import LightGraph
from zoo.nn.losses import pairwise_loss
from zoo.runtime import checks

#: Vectors of all users and of all items of a domain.
Nodes = tuple[Tensor, Tensor]


class GraphRecommender(Recommender):
    """Base class of methods that score by inner products of graph-propagated vectors of users and items."""

    batches = "triples"
    step_outputs = frozenset({"user_factors", "item_factors"})

    factors: FactorTables
    l2: float

    @abstractmethod
    def nodes(self) -> Nodes:
        """Return propagated vectors of all target users (num_users, num_factors) and items (num_items, num_factors)."""

    def triples_loss(self, nodes: Nodes, tables: FactorTables, batch: TripleBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the summed loss of a domain's triples, and the vectors of their users and items."""
        users = rows_at(nodes[0], batch.users)
        positives, negatives = rows_at(nodes[1], batch.positives), rows_at(nodes[1], batch.negatives)
        loss = pairwise_loss(users, positives, negatives)
        if self.l2:
            own = (tables.users(batch.users), *map(tables.items, (batch.positives, batch.negatives)))
            loss = loss + self.l2 / 2 * sum(factors.square().sum() for factors in own)
        return loss, users, torch.cat([positives, negatives])

    def prepare_scoring(self) -> None:
        """Cache the vectors of all users and items."""
        self.cache["users"], self.cache["items"] = self.nodes()

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return inner products with items (batch, candidates), in the same shape."""
        every_user, every_item = self._scored()
        return (every_user[users][:, None] * every_item[items]).sum(-1)

    def score_all(self, users: Tensor) -> Tensor:
        """Return inner products with all items, shape ``(batch, num_items)``."""
        every_user, every_item = self._scored()
        return every_user[users] @ every_item.T

    def factors_of_all(self) -> Nodes:
        """Return the propagated vectors of users and items."""
        return self._scored()

    def _scored(self) -> Nodes:
        return (self.cache["users"], self.cache["items"]) if self.cache else self.nodes()


class LightGCN(GraphRecommender):
    """Light graph convolution: matrix factorisation with factors averaged over the neighbourhoods of users and items.

    Target only. As in BPR, each user and item has a vector of factors, and nothing else is learned. A layer replaces the vector
    of each node by the sum of its neighbours' vectors, each divided by the root of both degrees. The score is the inner product
    of the user's and the item's weighted sums over all layers, the factors included. The loss is BPR's. Edges are training
    ratings.

    Reference: He, Deng, Wang, Li, Zhang, Wang, *LightGCN: Simplifying and Powering Graph Convolution Network for
    Recommendation*, SIGIR 2020, equations 3 (a layer), 4 (the sum of layers), 5 (the score) and 15 (the loss). Departures: the
    penalty is on the factors of the batch's triples before any layer, as in the released code; equation 15 has all factors in
    every batch. One pass over the observed pairs an epoch replaces random sampling. Layer weights are settings; the paper's are
    equal. As in the paper, a user's row contains the predicted item.

    Args:
        num_factors: Width of user and item factors.
        num_layers: Number of propagation layers; 0 is BPR.
        layer_weights: Weight of the factors themselves, then of each layer; null: all are 1 / (num_layers + 1).
        l2: The paper's lambda, at least 0: half of it times the squared factors of a triple is added to the triple's loss.
        lr: Step size of Adam, above 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.LightGCN(num_factors=8), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    folds_in = "solve"
    fold_in_needs = frozenset({"ratings"})

    def __init__(
        self,
        num_factors: int = 64,
        num_layers: int = 3,
        layer_weights: Sequence[float] | None = None,
        l2: float = 1e-4,
        lr: float = 1e-3,
    ) -> None:
        super().__init__()
        checks.factors(num_factors=num_factors)
        checks.layers(0, num_layers=num_layers)
        checks.not_negative(l2=l2)
        checks.positive(lr=lr)
        weights = [1 / (num_layers + 1)] * (num_layers + 1) if layer_weights is None else [*layer_weights]
        if len(weights) != num_layers + 1 or not all(0 <= weight < math.inf for weight in weights) or not any(weights):
            raise ValueError(f"layer_weights are {weights}. Give {num_layers + 1} of at least 0, one above 0, or null.")
        self.num_factors, self.layer_weights, self.l2, self.lr = num_factors, weights, l2, lr

    def build(self, sizes: Sizes) -> None:
        """Make the factors."""
        users, items = sizes["num_users"], sizes["num_items"]
        self.factors = FactorTables(users, items, self.num_factors, nn.init.xavier_normal_)

    def read_data(self, data: TargetData) -> None:
        """Also store the graph of the training ratings."""
        super().read_data(data)
        self.graph = LightGraph(self.target_rows, self.target_columns)

    def nodes(self) -> Nodes:
        """Return the weighted sums of factors and layers."""
        users, items = self.graph(self.factors.users.weight, self.factors.items.weight, self.layer_weights)
        return users, items

    def stored_numbers(self, sizes: Sizes, entries: int) -> int:
        """Also count the `history_map`."""
        return super().stored_numbers(sizes, entries) + self.num_factors**2

    def fold_in_scores(self, users: Tensor, known: Tensor) -> Tensor:
        """Return inner products with all items (batch, num_items) of vectors for the rows of users (batch,).

        Their layers follow exactly from the items' layers. Their own factors follow from the mean item vector by `history_map`.
        """
        items = self.cache["items"]
        if "history" not in self.cache:
            self.cache["history"] = history_map(self.target_columns.transposed(), items, self.factors.users.weight)
            self.cache["passed"] = self._passed_to_users()
        rows = self.target_rows
        own = history_features(rows, items) @ self.cache["history"]
        layers = rows.times(self.cache["passed"]) / rows.counts().clamp(min=1)[:, None].sqrt()
        return (self.layer_weights[0] * own + layers)[users] @ items.T

    def _passed_to_users(self) -> Tensor:
        """Return what each item adds to its users in all layers, before division by the root of the user's degree."""
        users, items = self.factors.users.weight, self.factors.items.weight
        total = torch.zeros_like(items)
        for weight in self.layer_weights[1:]:
            total = total + weight * items
            users, items = self.graph.layer(users, items)
        return total / self.item_counts.clamp(min=1)[:, None].sqrt()

    @property
    def vector_shape(self) -> tuple[int, int]:
        """Number of layers and width of :meth:`user_vectors`; the factors themselves are the first layer."""
        return len(self.layer_weights), self.num_factors

    def user_vectors(self) -> Tensor:
        """Return the user factors and each layer's output, shape ``(num_users, num_layers + 1, num_factors)``."""
        users, items = self.factors.users.weight, self.factors.items.weight
        layers = [users]
        for _ in self.layer_weights[1:]:
            users, items = self.graph.layer(users, items)
            layers.append(users)
        return torch.stack(layers, dim=1)

    def step(self, batch: Batch) -> Outputs:
        """Return the summed loss of the triples; factors are propagated once."""
        assert isinstance(batch, TripleBatch)
        loss, users, items = self.triples_loss(self.nodes(), self.factors, batch)
        return {"loss": loss, "user_factors": users, "item_factors": items}
