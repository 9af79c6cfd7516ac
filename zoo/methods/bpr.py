"""BPR: matrix factorisation that ranks observed items above unobserved ones."""

import torch
from torch import Tensor, nn

from zoo.data.batch_types import Batch, TripleBatch
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes
from zoo.nn.factors import FactorTables, history_features, history_map
from zoo.nn.losses import pairwise_loss
from zoo.runtime import checks


class BPR(Recommender):
    """Bayesian personalised ranking: matrix factorisation that ranks an observed item above an unobserved one.

    Target only. A triple is an observed pair and a uniform unobserved item. Its loss is ``-log sigmoid(s+ - s-)``.

    Reference: Rendle et al., *BPR: Bayesian Personalized Ranking from Implicit Feedback*, UAI 2009, sections 4.1 and 4.3.1.
    Departures: Adam on batches replaces single steps of stochastic gradient descent. An epoch is one pass over the observed
    pairs instead of a bootstrap. One ``l2`` replaces the paper's three weights.

    Args:
        num_factors: Width of user and item factors.
        l2: The paper's lambda, at least 0: half of it times the squared factors of a triple is added to the triple's loss.
        lr: Step size of Adam, above 0.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40, seed=1)
        >>> run = zoo.fit(zoo.BPR(num_factors=8, lr=0.01), data, max_epochs=2, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> top = model.recommend(["u0000", "u0001"], k=3)
        >>> top.columns, top["rank"].to_list()
        (['user_id', 'rank', 'item_id', 'score'], [1, 2, 3, 1, 2, 3])
        >>> model.method.user_vectors().shape
        torch.Size([60, 1, 8])
    """

    batches = "triples"
    folds_in = "solve"
    fold_in_needs = frozenset({"ratings"})
    scoring_needs = frozenset[str]()
    step_outputs = frozenset({"user_factors", "item_factors"})

    def __init__(self, num_factors: int = 64, l2: float = 0.0, lr: float = 1e-3) -> None:
        super().__init__()
        checks.factors(num_factors=num_factors)
        checks.not_negative(l2=l2)
        checks.positive(lr=lr)
        self.num_factors, self.l2, self.lr = num_factors, l2, lr

    def build(self, sizes: Sizes) -> None:
        """Make the factors."""
        users, items = sizes["num_users"], sizes["num_items"]
        self.factors = FactorTables(users, items, self.num_factors, nn.init.xavier_normal_)

    def step(self, batch: Batch) -> Outputs:
        """Return the loss of the triples, summed."""
        assert isinstance(batch, TripleBatch)
        users = self.factors.users(batch.users)
        positives, negatives = self.factors.items(batch.positives), self.factors.items(batch.negatives)
        loss = pairwise_loss(users, positives, negatives)
        if self.l2:
            loss = loss + self.l2 / 2 * sum(factors.square().sum() for factors in (users, positives, negatives))
        return {"loss": loss, "user_factors": users, "item_factors": torch.cat([positives, negatives])}

    @property
    def vector_shape(self) -> tuple[int, int]:
        """Number of layers and width of :meth:`user_vectors`."""
        return 1, self.num_factors

    def user_vectors(self) -> Tensor:
        """Return the user factors, shape ``(num_users, 1, num_factors)``."""
        return self.factors.users.weight[:, None]

    def stored_numbers(self, sizes: Sizes, entries: int) -> int:
        """Also count the `history_map`."""
        return super().stored_numbers(sizes, entries) + self.num_factors**2

    def fold_in_scores(self, users: Tensor, known: Tensor) -> Tensor:
        """Return inner products with all items (batch, num_items) of factors that `history_map` gives the users (batch,)."""
        items = self.factors.items.weight
        if "history" not in self.cache:
            self.cache["history"] = history_map(self.target_columns.transposed(), items, self.factors.users.weight)
        return history_features(self.target_rows, items)[users] @ self.cache["history"] @ items.T

    def factors_of_all(self) -> tuple[Tensor, Tensor]:
        """Return the factors of users and items."""
        return self.factors.users.weight, self.factors.items.weight

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return inner products with items (batch, candidates), in the same shape."""
        return self.factors.score(users, items)

    def score_all(self, users: Tensor) -> Tensor:
        """Return inner products with all items, shape ``(batch, num_items)``."""
        return self.factors.score_all(users)
