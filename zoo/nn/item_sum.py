"""ItemSum: the first layer of a network on rating rows whose gradient is wanted user by user."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.data.rows import Bags


class ItemSum(nn.Module):
    """``sum_i weight_i W_i + b`` over the items of a row; equal to ``torch.nn.Linear`` on the dense row.

    It also gives the norm of each user's gradient: that of the table is an outer product of row and output gradient, so its
    norm is a product of norms (ghost clipping; Li et al., *Large Language Models Can Be Strong Differentially Private
    Learners*, ICLR 2022). The gradient of ``forward`` has no gradient; a gradient penalty needs `dense`.
    """

    bias: nn.Parameter | None

    def __init__(self, num_items: int, width: int, *, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_items, width))
        self.register_parameter("bias", nn.Parameter(torch.zeros(width)) if bias else None)
        nn.init.xavier_uniform_(self.weight)  # for sparse rows, as in SparseLinear

    def forward(self, items: Tensor, weights: Tensor) -> Tensor:
        """Outputs (batch, width) of rows from `padded`; no item is in a row twice with a weight."""
        if items.device.type == "cpu" and not weights.requires_grad:
            # Most is padding: the longest row is several times the mean.
            out = unpadded(items, weights).times(self.weight)
        else:  # a device would be waited for to tell how many are none
            out = F.embedding_bag(items, self.weight, mode="sum", per_sample_weights=weights.to(self.weight.dtype))
        return out if self.bias is None else out + self.bias

    def dense(self, rows: Tensor) -> Tensor:
        """Outputs (batch, width) of dense rows (batch, items); not where a gradient is wanted user by user: call the layer."""
        out = rows @ self.weight
        return out if self.bias is None else out + self.bias

    def user_norms(self, inputs: Sequence[Tensor], gradients: Tensor) -> dict[nn.Parameter, Tensor]:
        """Return the L2 norm of each user's gradient, by parameter, shape ``(batch,)`` each.

        ``inputs`` are those of ``forward``; ``gradients`` (batch, width) are those of each user's loss by the user's output.
        Raises a ValueError if an item is in a row twice.
        """
        items, weights = inputs
        places = torch.arange(items.shape[1], device=items.device)
        known = torch.where(weights != 0, items, -1 - places).sort(dim=1).values  # padding differs from everything
        if bool((known[:, 1:] == known[:, :-1]).any()):
            raise ValueError("An item is in a row twice. Merge its weights.")
        # |row gradient^T| = |row| |gradient|, in float64: rows may be long.
        lengths = torch.linalg.vector_norm(gradients, dim=1, dtype=torch.float64)
        norms = {self.weight: lengths * torch.linalg.vector_norm(weights, dim=1, dtype=torch.float64)}
        return norms if self.bias is None else norms | {self.bias: lengths}


def padded(bags: Bags) -> tuple[Tensor, Tensor]:
    """Return items int64 and weights of sparse rows, ``(batch, longest >= 1)`` each, padded with item 0 of weight 0."""
    lengths, rows = bags.lengths, bags.rows
    longest = max(1, int(lengths.max())) if len(lengths) else 1
    # Entry e of row r goes to place e - offsets[r] of that row.
    places = torch.arange(len(rows), device=rows.device) - bags.offsets[rows]
    items = bags.items.new_zeros(len(lengths), longest, dtype=torch.int64)
    weights = bags.weights.new_zeros(len(lengths), longest)
    items[rows, places] = bags.items.long()
    weights[rows, places] = bags.weights
    return items, weights


def unpadded(items: Tensor, weights: Tensor) -> Bags:
    """The sparse rows that `padded` was given, without entries of weight 0."""
    there = weights != 0
    counts, flat = there.sum(1), there.view(-1).nonzero().squeeze(1)
    return Bags(items.reshape(-1)[flat], counts.cumsum(0) - counts, weights.reshape(-1)[flat])
