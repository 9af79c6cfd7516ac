"""Rows of a table by their numbers, with a gradient that is added up fast."""

from torch import Tensor, nn
from torch.nn import functional as F


def rows_at(table: Tensor, index: Tensor) -> Tensor:
    """Rows ``index`` of a table (rows, width), any of them any number of times, shape ``(*index.shape, width)``.

    The same numbers as `torch.nn.functional.embedding`. On a CPU the gradient is added up by `torch.Tensor.index_add_`, in the
    order of the index, two to three times as fast as an embedding's; elsewhere by the embedding's kernel, which sorts first
    and so repeats exactly.
    """
    if table.device.type != "cpu":
        return F.embedding(index, table)
    return table.index_select(0, index.reshape(-1)).view(*index.shape, table.shape[1])


class Table(nn.Embedding):
    """A row of width ``embedding_dim`` for each user or item, looked up by `rows_at`."""

    def forward(self, input: Tensor) -> Tensor:
        """Rows at the numbers of any shape, shape ``(*shape, embedding_dim)``."""
        return rows_at(self.weight, input)
