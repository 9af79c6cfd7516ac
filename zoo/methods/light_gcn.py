"""LightGCN: factors of users and items, each mixed with those of its neighbours in the graph of the ratings."""

import math
from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.data.batch_types import Batch, TripleBatch
from zoo.data.lookup import rows_at
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.factors import FactorTables
from zoo.nn.light_graph import LightGraph
from zoo.nn.losses import pairwise_loss
from zoo.runtime import checks

#: Vectors of all users and of all items of a domain.
Nodes = tuple[Tensor, Tensor]


class GraphRecommender(Recommender):
    """Base of methods whose scores are inner products of vectors that graphs make of all users and items."""

    batches = "triples"
    step_outputs = frozenset({"user_factors", "item_factors"})

    factors: FactorTables
    l2: float

    @abstractmethod
    def nodes(self) -> Nodes:
        """Vectors of all users (num_users, num_factors) and items (num_items, num_factors) of the target, after the layers."""

    def triples_loss(self, nodes: Nodes, tables: FactorTables, batch: TripleBatch) -> tuple[Tensor, Tensor, Tensor]:
        """The loss of a domain's triples, summed, and the vectors of their users and items that it is computed from."""
        users = rows_at(nodes[0], batch.users)
        positives, negatives = rows_at(nodes[1], batch.positives), rows_at(nodes[1], batch.negatives)
        loss = pairwise_loss(users, positives, negatives)
        if self.l2:
            own = (tables.users(batch.users), *map(tables.items, (batch.positives, batch.negatives)))
            loss = loss + self.l2 / 2 * sum(factors.square().sum() for factors in own)
        return loss, users, torch.cat([positives, negatives])

    def prepare_scoring(self) -> None:
        """Keep the vectors of all users and items."""
        self.cache["users"], self.cache["items"] = self.nodes()

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Inner products with given items, shape ``(batch, candidates)``."""
        every_user, every_item = self._scored()
        return (every_user[users][:, None] * every_item[items]).sum(-1)

    def score_all(self, users: Tensor) -> Tensor:
        """Inner products with all items, shape ``(batch, num_items)``."""
        every_user, every_item = self._scored()
        return every_user[users] @ every_item.T

    def _scored(self) -> Nodes:
        return (self.cache["users"], self.cache["items"]) if self.cache else self.nodes()


class LightGCN(GraphRecommender):
    """Light graph convolution: matrix factorisation whose factors are averages over a user's and an item's neighbourhood.

    Target only. Users and items have a factor each, as in BPR, and nothing else is learned. A layer gives each user the sum of
    the factors of the user's items, and each item that of its users, divided by the root of both degrees. The score is the
    inner product of the weighted sums of the factors and all layers. The loss is BPR's. Edges are training ratings.

    Reference: He, Deng, Wang, Li, Zhang, Wang, *LightGCN: Simplifying and Powering Graph Convolution Network for
    Recommendation*, SIGIR 2020, equations 3 (a layer), 4 (the sum of layers), 5 (the score) and 15 (the loss). Departures: the
    penalty is on the factors of the batch's triples before any layer, as in the released code; equation 15 has all factors in
    every batch. One pass over the observed pairs an epoch replaces random draws. Layer weights are settings; the paper's are
    equal. As in the paper, a user's row contains the predicted item.

    Args:
        num_factors: Width of a user's and of an item's factor.
        num_layers: How often factors are passed on; 0 is BPR.
        layer_weights: Weight of the factors themselves, and then of each layer; null: all are 1 / (num_layers + 1).
        l2: The paper's lambda: half of it times the squared factors of a triple is added to the triple's loss.
        lr: Step size of Adam.
    """

    def __init__(
        self,
        num_factors: int = 64,
        num_layers: int = 3,
        layer_weights: Sequence[float] | None = None,
        l2: float = 1e-4,
        lr: float = 1e-3,
    ) -> None:
        super().__init__()
        checks.at_least_one(num_factors=num_factors)
        checks.not_negative(num_layers=num_layers, l2=l2)
        checks.positive(lr=lr)
        weights = [1 / (num_layers + 1)] * (num_layers + 1) if layer_weights is None else [*layer_weights]
        if len(weights) != num_layers + 1 or not all(0 <= weight < math.inf for weight in weights) or not any(weights):
            raise ValueError(
                f"layer_weights are {weights}. There must be {num_layers + 1}, none negative and not all 0. Null: equal ones."
            )
        self.num_factors, self.layer_weights, self.l2, self.lr = num_factors, weights, l2, lr

    def build(self, sizes: Sizes) -> None:
        """Make the factors."""
        users, items = sizes["num_users"], sizes["num_items"]
        self.factors = FactorTables(users, items, self.num_factors, nn.init.xavier_normal_)

    def read_data(self, data: TargetData) -> None:
        """Keep the graph of the training ratings, beside what every method keeps."""
        super().read_data(data)
        self.graph = LightGraph(self.target_rows, self.target_columns)

    def nodes(self) -> Nodes:
        """The weighted sums of factors and layers."""
        users, items = self.graph(self.factors.users.weight, self.factors.items.weight, self.layer_weights)
        return users, items

    @property
    def vector_shape(self) -> tuple[int, int]:
        """Layers and width of :meth:`user_vectors`; the factors themselves are the first layer."""
        return len(self.layer_weights), self.num_factors

    def user_vectors(self) -> Tensor:
        """The users' factors and what each layer makes of them, shape ``(num_users, num_layers + 1, num_factors)``."""
        users, items = self.factors.users.weight, self.factors.items.weight
        layers = [users]
        for _ in self.layer_weights[1:]:
            users, items = self.graph.layer(users, items)
            layers.append(users)
        return torch.stack(layers, dim=1)

    def step(self, batch: Batch) -> Outputs:
        """The loss of the triples, summed; factors are passed along the graph once."""
        assert isinstance(batch, TripleBatch)
        loss, users, items = self.triples_loss(self.nodes(), self.factors, batch)
        return {"loss": loss, "user_factors": users, "item_factors": items}
