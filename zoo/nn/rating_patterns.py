"""Rating patterns: features of a user's vector from any domain, and what is read from them of each domain's row."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor, nn

from zoo.data.rows import ReadableRows


class AveragedRows(ReadableRows, Protocol):
    """Rows whose mean is known."""

    def mean(self) -> Tensor:
        """Mean row, shape ``(width,)``."""


def pattern_extractor(vector_dim: int, dims: Sequence[int], dropout: float) -> nn.Sequential:
    """Linear layers from vectors to patterns of ``dims[-1]``, each with ReLU and then dropout."""
    layers: list[nn.Module] = []
    for width, next_width in pairwise([vector_dim, *dims]):
        layers += [nn.Linear(width, next_width), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers)


class UsualRow(nn.Module):
    """What one would say of somebody of whom nothing is known: the mean of rows or, of zeros and ones, log-odds by column.

    A decoder that is added to it is left with what users differ in. Without it, the thousands of steps that a bias takes to a
    log-odds of -5 turn all weights the same way, and little but how popular items are is learned meanwhile. It comes of the data,
    is no parameter, and stays out of checkpoints. Half a user is added to either side, so that a column that nobody or
    everybody has stays finite; of no rows it is 0 everywhere.
    """

    row: Tensor  # (width,)

    def __init__(self, rows: AveragedRows, bits: bool) -> None:
        super().__init__()
        count = rows.num_rows
        row = rows.mean() if count else torch.zeros(rows.width)
        row = torch.logit((row * count + 0.5) / (count + 1)) if bits else row
        self.register_buffer("row", row, persistent=False)

    def forward(self, decoded: Tensor) -> Tensor:
        """Numbers of rows, or logits of zeros and ones, of what a decoder makes of patterns; both ``(batch, width)``."""
        return decoded + self.row
