"""A critic of rating rows: how real a row looks for a user."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from zoo.nn.item_sum import ItemSum
from zoo.nn.towers import relu_layers

Conditioning = Literal["product", "sum"]


class Critic(nn.Module):
    """Scores a user's row, sparse or dense, given who the user is.

    Its first layer reads the row item by item, another one the condition, and what follows reads both together:

    * ``sum``: their sum, which equals one layer on row and condition side by side; the score is the mean of the last
      layer's outputs. The critic of PPGenCDR (Liao et al., AAAI 2023), whose released code averages 256 of them.
    * ``product``: their product, number by number; the score is the sum of the last layer's outputs. With one layer this is
      the inner product of a linear map of the row with one of the condition (Miyato & Koyama, *cGANs with Projection
      Discriminator*, ICLR 2018). Such a critic can tell rows by their means under each condition and by nothing else: not
      by a real row's being 0 and 1 where a generated one is between.

    No part of it looks at more than one user, so a user's gradient is well defined. ``dropout`` leaves out numbers of the
    condition while training.
    """

    def __init__(
        self,
        num_items: int,
        condition_dim: int,
        dims: Sequence[int] = (512, 256),
        dropout: float = 0.0,
        conditioning: Conditioning = "sum",
    ) -> None:
        super().__init__()
        self.conditioning: Conditioning = conditioning
        self.first = ItemSum(num_items, dims[0])
        # With a bias a product also compares the means of all rows; in a sum it would repeat the first layer's.
        self.condition = nn.Linear(condition_dim, dims[0], bias=conditioning == "product")
        self.dropout = nn.Dropout(dropout)
        self.rest = relu_layers(dims)

    def forward(self, items: Tensor, weights: Tensor, conditions: Tensor) -> Tensor:
        """Scores (batch,) of `padded` rows, (batch, longest) both, for conditions (batch, condition_dim)."""
        return self._score(self.first(items, weights), conditions)

    def score_rows(self, rows: Tensor, conditions: Tensor) -> Tensor:
        """Scores of dense rows (batch, num_items), shape ``(batch,)``; for generated ones, whose gradient goes on."""
        return self._score(self.first.dense(rows), conditions)

    def _score(self, hidden: Tensor, conditions: Tensor) -> Tensor:
        condition = self.condition(self.dropout(conditions))
        together = hidden + condition if self.conditioning == "sum" else hidden * condition
        out: Tensor = self.rest(together)
        return out.mean(dim=1) if self.conditioning == "sum" else out.sum(dim=1)

    @torch.no_grad()
    def bound(self, largest: float) -> None:
        """Cut every parameter to ``[-largest, largest]``, as Arjovsky et al. (ICML 2017) bound a critic."""
        for parameter in self.parameters():
            parameter.clamp_(-largest, largest)
