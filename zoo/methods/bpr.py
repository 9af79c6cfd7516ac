"""BPR: matrix factorisation that learns to rank what a user has above what the user has not."""

import torch
from torch import Tensor, nn

from zoo.data.batch_types import Batch, TripleBatch
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes
from zoo.nn.factors import FactorTables
from zoo.nn.losses import pairwise_loss
from zoo.runtime import checks


class BPR(Recommender):
    """Bayesian personalised ranking: matrix factorisation that learns to rank an observed item above an unobserved one.

    Target only. A triple is an observed pair and a uniform unobserved item; its loss is ``-log sigmoid(s+ - s-)``.

    Reference: Rendle et al., *BPR: Bayesian Personalized Ranking from Implicit Feedback*, UAI 2009, sections 4.1 and 4.3.1.
    Departures: Adam in batches instead of single steps of stochastic gradient descent; one pass over the observed pairs an
    epoch instead of a bootstrap; one ``l2`` for all factors, where the paper has three.

    Args:
        num_factors: Width of a user's and of an item's factor.
        l2: The paper's lambda: half of it times the squared factors of a triple is added to the triple's loss.
        lr: Step size of Adam.
    """

    batches = "triples"
    scoring_needs = frozenset[str]()
    step_outputs = frozenset({"user_factors", "item_factors"})

    def __init__(self, num_factors: int = 64, l2: float = 0.0, lr: float = 1e-3) -> None:
        super().__init__()
        checks.at_least_one(num_factors=num_factors)
        checks.not_negative(l2=l2)
        checks.positive(lr=lr)
        self.num_factors, self.l2, self.lr = num_factors, l2, lr

    def build(self, sizes: Sizes) -> None:
        """Make the factors."""
        users, items = sizes["num_users"], sizes["num_items"]
        self.factors = FactorTables(users, items, self.num_factors, nn.init.xavier_normal_)

    def step(self, batch: Batch) -> Outputs:
        """The loss of the triples, summed."""
        assert isinstance(batch, TripleBatch)
        users = self.factors.users(batch.users)
        positives, negatives = self.factors.items(batch.positives), self.factors.items(batch.negatives)
        loss = pairwise_loss(users, positives, negatives)
        if self.l2:
            loss = loss + self.l2 / 2 * sum(factors.square().sum() for factors in (users, positives, negatives))
        return {"loss": loss, "user_factors": users, "item_factors": torch.cat([positives, negatives])}

    @property
    def vector_shape(self) -> tuple[int, int]:
        """Layers and width of :meth:`user_vectors`."""
        return 1, self.num_factors

    def user_vectors(self) -> Tensor:
        """The users' factors, shape ``(num_users, 1, num_factors)``."""
        return self.factors.users.weight[:, None]

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Inner products with given items, shape ``(batch, candidates)``."""
        return self.factors.score(users, items)

    def score_all(self, users: Tensor) -> Tensor:
        """Inner products with all items, shape ``(batch, num_items)``."""
        return self.factors.score_all(users)
