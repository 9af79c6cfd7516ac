"""EASE: a linear item-item model in closed form, a strong simple baseline."""

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from zoo.data.batch_types import Batch
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes
from zoo.runtime import checks


class ItemWeights(Recommender):
    """Base class of methods that solve for a dense item-item matrix; scores are the user's row times the matrix.

    ``max_items`` is the largest catalogue that is accepted.
    """

    batches = "full_batch"
    folds_in = "rows"
    fold_in_needs = frozenset[str]()

    weights: Tensor

    def __init__(self, max_items: int) -> None:
        super().__init__()
        checks.at_least_one(max_items=max_items)
        self.max_items = max_items

    def build(self, sizes: Sizes) -> None:
        """Make the item-item buffer."""
        if (num_items := sizes["num_items"]) > self.max_items:
            raise ValueError(
                f"num_items is {num_items}, above max_items ({self.max_items}). Filter out rare items, or raise "
                f"max_items ({8 * num_items**2 / 2**30:.0f} GiB)."
            )
        self.register_buffer("weights", torch.zeros(num_items, num_items))

    def score_all(self, users: Tensor) -> Tensor:
        """Return the users' rows times the item-item matrix, shape ``(batch, num_items)``."""
        return self.target_rows.bags(users).times(self.weights)

    def item_similarities(self, items: Tensor) -> Tensor:
        """Return the weights of items (batch,) in the scores of all items, shape ``(batch, num_items)``."""
        return self.weights[items]


class EASE(ItemWeights):
    """Embarrassingly shallow autoencoder: an item-item matrix with an empty diagonal, in closed form.

    Minimise ``||X - X B||^2 + l2 ||B||^2`` with ``diag(B) = 0`` over the 0/1 matrix ``X`` of training ratings: with ``P = (X'X
    + l2 I)^-1``, ``B_ij = -P_ij / P_jj`` off the diagonal. Target only. Memory is one dense items x items matrix in float64:
    20,000 items are 3.2 GB.

    Reference: Steck, *Embarrassingly Shallow Autoencoders for Sparse Data*, WWW 2019, equation 8. Departure: with
    ``row_exponent`` the row of a user with n items is scaled by ``n^-row_exponent``; 0 is the paper's.

    Args:
        l2: Weight of the squared norm, above 0; larger for sparser data.
        row_exponent: Down-weighting of long rows when solving, not when scoring, in [0, 1].
        max_items: Largest catalogue; larger ones raise an error before memory is exhausted.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.EASE(), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    def __init__(self, l2: float = 300.0, row_exponent: float = 0.0, max_items: int = 30_000) -> None:
        super().__init__(max_items)
        checks.positive(l2=l2)
        checks.shares(row_exponent=row_exponent)
        self.l2, self.row_exponent = l2, row_exponent

    def step(self, batch: Batch) -> Outputs:
        """Solve for the item-item matrix."""
        ratings = self.data.train.matrix
        counts = np.diff(ratings.indptr)
        weights = np.repeat(np.maximum(counts, 1.0) ** -self.row_exponent, counts)
        rows = csr_array((ratings.data * weights, ratings.indices, ratings.indptr), shape=ratings.shape)
        gram = torch.from_numpy(csr_array(rows.T @ rows).toarray()).to(self.device)
        gram.diagonal().add_(self.l2)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        solved = inverse / -inverse.diagonal()
        solved.fill_diagonal_(0)
        self.weights.copy_(solved)
        return {}
