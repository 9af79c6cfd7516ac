"""IALS: matrix factorisation of implicit feedback by alternating least squares."""

import torch
from torch import Tensor

from zoo.data.batches import Batch
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes
from zoo.nn.alternating import solved_factors


class IALS(Recommender):
    """Implicit alternating least squares: factors whose products are near 1 where somebody has an item and small elsewhere.

    With factors ``w`` of users and ``h`` of items it makes least ``sum_S (w.h - 1)^2 + unobserved_weight sum (w.h)^2`` over the
    training ratings ``S`` and over all pairs, plus ``l2 sum_u (|S_u| + unobserved_weight items)^frequency |w_u|^2`` and the same
    for items: who has many ratings is held back more. An epoch solves for all users given the items, then for all items given the
    users, each in closed form; it draws nothing but the first factors.

    Target only. Reference: Rendle, Krichene, Zhang, Koren, *Revisiting the Performance of iALS on Item Recommendation Benchmarks*,
    RecSys 2022, equations 1 to 4 and section 3.3 (scaled regularisation, first factors); Hu, Koren, Volinsky, *Collaborative
    Filtering for Implicit Feedback Datasets*, ICDM 2008, for the alternation.

    Departures: equal weights of all observed pairs, as in the first; no confidence grows with a count, as in the second. Factors of
    users and items without a rating are 0.

    Args:
        num_factors: Width of the factors.
        unobserved_weight: Weight of a pair's squared score, observed or not (alpha_0).
        l2: Weight of the squared norms (lambda).
        frequency: Exponent of the counts that scale them (nu): 1 scales fully, 0 not at all.
        first_scale: Standard deviation of the first scores; that of a factor's numbers is this over the root of the width
            (sigma).
    """

    batches = "steps"
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
        if num_factors < 1:
            raise ValueError(f"num_factors must be at least 1, got {num_factors}.")
        for name, value in {"unobserved_weight": unobserved_weight, "l2": l2, "first_scale": first_scale}.items():
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} must be positive and finite, got {value}.")
        if not 0 <= frequency <= 1:
            raise ValueError(
                f"frequency must lie in [0, 1], got {frequency}; 1 scales the penalty by counts, 0 not at all."
            )
        self.num_factors, self.unobserved_weight, self.l2 = num_factors, unobserved_weight, l2
        self.frequency, self.first_scale = frequency, first_scale

    def build(self, sizes: Sizes) -> None:
        """Draw the first factors."""
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
    def solved(self) -> bool:
        """Never: every epoch comes nearer."""
        return False

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Products of the factors, shape ``(batch, candidates)``."""
        return torch.einsum("ud,ucd->uc", self.user_factors[users], self.item_factors[items])

    def score_all(self, users: Tensor) -> Tensor:
        """Products with all items, shape ``(batch, num_items)``."""
        return self.user_factors[users] @ self.item_factors.T
