"""IALS: matrix factorisation of implicit feedback by alternating least squares."""

import torch
from torch import Tensor

from zoo.data.batch_types import Batch
from zoo.data.rows import SparseRows
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes
from zoo.nn.item_sum import padded
from zoo.runtime import checks

#: Numbers of the other side's factors that are gathered at once.
_AT_ONCE = 1 << 24


def solved_factors(rows: SparseRows, table: Tensor, unobserved_weight: float, penalties: Tensor) -> Tensor:
    """Return the factors (rows, dim) that minimise the loss of iALS given the other side's; 0 for a row without a rating.

    For a row with observed set ``S``, ratings ``r``, other factors ``h`` and penalty ``p``, the factor ``w`` minimises ``sum_S
    (w.h - r)^2 + unobserved_weight sum_all (w.h)^2 + p |w|^2``.

    Args:
        rows: Ratings of the solved side.
        table: Factors of the other side (width, dim).
        unobserved_weight: Weight of all squared scores.
        penalties: Positive penalties (rows,).
    """
    counts, dim = rows.counts(), table.shape[1]
    found = torch.zeros(rows.num_rows, dim, dtype=table.dtype, device=table.device)
    everything = unobserved_weight * table.T @ table
    identity = torch.eye(dim, dtype=table.dtype, device=table.device)
    order = counts.argsort(descending=True)
    for index in _blocks(order[: int((counts > 0).sum())], counts, dim):
        items, weights = padded(rows.bags(index))
        others = table[items] * (weights != 0)[..., None]  # (block, longest, dim); what is padding adds nothing
        gram = others.mT @ others + everything + penalties[index, None, None] * identity
        right = (others * weights[..., None]).sum(1)
        found[index] = torch.cholesky_solve(right[..., None], torch.linalg.cholesky(gram)).squeeze(2)
    return found


def _blocks(order: Tensor, counts: Tensor, dim: int) -> list[Tensor]:
    """Rows, longest first, in blocks that fit the memory limit when padded to their longest row."""
    blocks, lengths = [], counts[order].tolist()
    start = 0
    while start < len(lengths):
        size = max(_AT_ONCE // (lengths[start] * dim + dim * dim), 1)
        blocks.append(order[start : start + size])
        start += size
    return blocks


class IALS(Recommender):
    """Implicit alternating least squares: factors whose products are near 1 for observed pairs and small elsewhere.

    With factors ``w`` of users and ``h`` of items, minimise ``sum_S (w.h - 1)^2 + unobserved_weight sum (w.h)^2`` over the
    training ratings ``S`` and over all pairs, plus ``l2 sum_u (|S_u| + unobserved_weight items)^frequency |w_u|^2`` and the
    same for items. An epoch solves for all users, then for all items, each in closed form; only the initial factors are random.

    Target only. Reference: Rendle, Krichene, Zhang, Koren, *Revisiting the Performance of iALS on Item Recommendation
    Benchmarks*, RecSys 2022, equations 1 to 4 and section 3.3 (scaled regularisation, initial factors); Hu, Koren, Volinsky,
    ICDM 2008, for the alternation. Departures from the second: observed pairs have equal weights. Factors without a rating are
    0.

    Args:
        num_factors: Width of the factors.
        unobserved_weight: Weight of a pair's squared score, observed or not (alpha_0), above 0.
        l2: Weight of the squared norms (lambda), above 0.
        frequency: Exponent in [0, 1] of the counts that scale them (nu): 1 scales fully, 0 not at all.
        first_scale: Standard deviation of the initial scores (sigma), above 0; that of the factors is over the root of the
            width.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.IALS(num_factors=8), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    batches = "steps"
    folds_in = "solve"
    scoring_needs = frozenset[str]()

    user_factors: Tensor
    item_factors: Tensor

    def __init__(
        self,
        num_factors: int = 64,
        unobserved_weight: float = 0.1,
        l2: float = 0.003,
        frequency: float = 1.0,
        first_scale: float = 0.1,
    ) -> None:
        super().__init__()
        checks.factors(num_factors=num_factors)
        checks.positive(unobserved_weight=unobserved_weight, l2=l2, first_scale=first_scale)
        checks.shares(frequency=frequency)
        self.num_factors, self.unobserved_weight, self.l2 = num_factors, unobserved_weight, l2
        self.frequency, self.first_scale = frequency, first_scale

    def build(self, sizes: Sizes) -> None:
        """Sample the initial factors."""
        scale = self.first_scale / self.num_factors**0.5
        for name in ("user", "item"):
            first = scale * torch.randn(sizes[f"num_{name}s"], self.num_factors)
            self.register_buffer(f"{name}_factors", first)

    def step(self, batch: Batch) -> Outputs:
        """Solve for the users, then for the items."""
        self.user_factors.copy_(self._solved(self.target_rows.counts(), users=True))
        self.item_factors.copy_(self._solved(self.target_columns.counts(), users=False))
        return {}

    def _solved(self, counts: Tensor, *, users: bool) -> Tensor:
        rows, table = (self.target_rows, self.item_factors) if users else (self.target_columns, self.user_factors)
        penalties = self.l2 * (counts + self.unobserved_weight * len(table)) ** self.frequency
        return solved_factors(rows, table, self.unobserved_weight, penalties)

    @property
    def converged(self) -> bool:
        """Always False: every epoch improves the fit."""
        return False

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return products of the factors with items (batch, candidates), in the same shape."""
        return torch.einsum("ud,ucd->uc", self.user_factors[users], self.item_factors[items])

    def fold_in_scores(self, users: Tensor, known: Tensor) -> Tensor:
        """Return products with all items (batch, num_items) of the factors that half an epoch would give the users (batch,)."""
        return self._solved(self.target_rows.counts(), users=True)[users] @ self.item_factors.T

    def factors_of_all(self) -> tuple[Tensor, Tensor]:
        """Return the factors of users and items."""
        return self.user_factors, self.item_factors

    def score_all(self, users: Tensor) -> Tensor:
        """Return products with all items, shape ``(batch, num_items)``."""
        return self.user_factors[users] @ self.item_factors.T
