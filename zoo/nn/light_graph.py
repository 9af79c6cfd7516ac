"""Light graph convolution: factors passed along the edges of the graph of users and items, nothing else."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from zoo.data.rows import SparseRows


class LightGraph(nn.Module):
    """The graph that joins each user with each item that the user has, and the light convolution on it.

    A layer sums the factors of the neighbours, each divided by the root of both degrees::

        users'_u = sum_{i in N(u)} items_i / sqrt(|N(u)| |N(i)|)
        items'_i = sum_{u in N(i)} users_u / sqrt(|N(i)| |N(u)|)

    A rating is an edge, whatever its value; a node without edges gets zeros. Memory is linear in ratings.

    Reference: He et al., *LightGCN* (SIGIR 2020), equations 3 (a layer) and 8 (the matrix ``D^-1/2 A D^-1/2``).
    """

    starts: Tensor  # where the edges of each node begin, (num_users + num_items + 1,)
    ends: Tensor  # the node at the other end of each edge, (2 ratings,)
    weights: Tensor  # of each edge, (2 ratings,)

    def __init__(self, rows: SparseRows, columns: SparseRows) -> None:
        """Joins the rows of the users (num_users, num_items) and the same matrix by items (num_items, num_users)."""
        # Here, not above: every command imports every method, and few runs need a second's worth of graph library.
        from torch_geometric.nn.conv import LGConv
        from torch_geometric.nn.conv.gcn_conv import gcn_norm

        super().__init__()
        self.num_users, self.num_items = rows.num_rows, columns.num_rows
        num_nodes = self.num_users + self.num_items
        starts = torch.cat([rows.starts, rows.starts[-1] + columns.starts[1:]])
        ends = torch.cat([rows.items + self.num_users, columns.items])
        edges = torch.stack([torch.repeat_interleave(starts.diff()), ends])
        _, weights = gcn_norm(edges, num_nodes=num_nodes, add_self_loops=False)
        for name, tensor in {"starts": starts, "ends": ends, "weights": weights}.items():
            self.register_buffer(name, tensor, persistent=False)
        self.convolution = LGConv(normalize=False)  # the weights are worked out already, once

    def layer(self, users: Tensor, items: Tensor) -> tuple[Tensor, Tensor]:
        """One layer on the factors of all users (num_users, dim) and all items (num_items, dim); the same shapes."""
        return self._parted(self._passed(torch.cat([users, items])))

    def forward(self, users: Tensor, items: Tensor, layer_weights: Sequence[float]) -> tuple[Tensor, Tensor]:
        """Return the weighted sum of the factors themselves and of one layer for each further weight, in the same shapes."""
        nodes = torch.cat([users, items])
        total = layer_weights[0] * nodes
        for weight in layer_weights[1:]:
            nodes = self._passed(nodes)
            total = total + weight * nodes
        return self._parted(total)

    def _passed(self, nodes: Tensor) -> Tensor:
        shape = (len(nodes), len(nodes))
        # Made anew from plain tensors, which costs nothing: a sparse tensor as a buffer could not be copied.
        matrix = torch.sparse_csr_tensor(self.starts, self.ends, self.weights, shape, check_invariants=False)
        with torch.autocast(nodes.device.type, enabled=False):  # sparse products know no half precision
            passed: Tensor = _Symmetric.apply(nodes, matrix, self.convolution)  # type: ignore[no-untyped-call]
        return passed

    def _parted(self, nodes: Tensor) -> tuple[Tensor, Tensor]:
        return nodes[: self.num_users], nodes[self.num_users :]


class _Symmetric(torch.autograd.Function):
    """A convolution along a symmetric matrix, which is its own gradient; autograd would transpose the matrix in every step."""

    @staticmethod
    def forward(ctx: Any, nodes: Tensor, matrix: Tensor, convolution: nn.Module) -> Tensor:  # noqa: ANN401
        ctx.matrix, ctx.convolution = matrix, convolution
        passed: Tensor = convolution(nodes, matrix)
        return passed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        return ctx.convolution(gradient, ctx.matrix), None, None
