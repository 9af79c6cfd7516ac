"""A linear autoencoder of rating rows, whose error is an energy."""

from __future__ import annotations

from torch import Tensor, nn

from zoo.nn.rows import Bags
from zoo.nn.towers import SparseLinear


class LinearAutoencoder(nn.Module):
    """Two affine maps, to a code and back, without an activation; Glorot uniform, biases zero.

    Args:
        num_items: Length of a row.
        code_dim: Width of the code.
    """

    def __init__(self, num_items: int, code_dim: int) -> None:
        super().__init__()
        self.encoder = SparseLinear(num_items, code_dim)
        self.decoder = nn.Linear(code_dim, num_items)
        nn.init.xavier_uniform_(self.decoder.weight)
        nn.init.zeros_(self.decoder.bias)

    def encode_sparse(self, rows: Bags) -> Tensor:
        """Codes of sparse rows, shape ``(batch, code_dim)``."""
        codes: Tensor = self.encoder(rows)
        return codes

    def encode(self, rows: Tensor) -> Tensor:
        """Codes of dense rows (batch, num_items), shape ``(batch, code_dim)``."""
        return rows @ self.encoder.weight + self.encoder.bias

    def errors(self, codes: Tensor, rows: Tensor) -> Tensor:
        """Mean squared error of each row (batch, num_items) decoded from its code (batch, code_dim), shape ``(batch,)``."""
        decoded: Tensor = self.decoder(codes)
        return (decoded - rows).square().mean(1)
