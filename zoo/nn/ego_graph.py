"""Attention on ego graphs: what each client makes of its own vector and its items', for many clients in one pass."""

from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Attention = Literal["paper", "gat"]


class VirtualUsers(NamedTuple):
    """Further neighbours of clients: vectors that a client has from elsewhere, one for each layer, such as another domain's."""

    vectors: Tensor  # what each is in each layer, (virtual, num_layers, dim)
    owners: Tensor  # the client whose neighbour each is, (virtual,)


class EgoOutput(NamedTuple):
    """What the layers make of clients, and what each neighbour weighs in it; all weights of a client in a layer sum to 1."""

    users: Tensor  # each client's vector after each layer, (clients, num_layers, dim)
    user_weights: Tensor  # of the client itself, (clients, num_layers)
    item_weights: Tensor  # of each of its items, (entries, num_layers)
    virtual_weights: Tensor  # of each virtual user, (virtual, num_layers)


class EgoGraphs(nn.Module):
    """Graph attention on the disjoint union of ego graphs: a client, its own items, joined to it, and a self loop at each.

    A layer gives a client the weighted mean of itself, its items and its virtual users, and an item that of itself and its
    client. Each client has its own copy of an item, so nothing passes from client to client. Virtual users never change.

    ``paper`` is FedGCDR's form: in node ``i`` neighbour ``j`` weighs ``exp(a . [e_i, e_j])``, normalised. The half of ``a``
    that meets ``e_i`` cancels, so it is left out. ``gat`` is the standard form: vectors are multiplied by a matrix of the
    layer, LeakyReLU around the sum of both halves keeps the first from cancelling, and ELU follows each layer but the last.

    References: Yang et al., *FedGCDR* (NeurIPS 2024), equations 3 and 4 (``paper``), 1 and 2 (``gat``); Veličković et al.,
    *Graph Attention Networks* (ICLR 2018), equations 1 to 4.
    """

    def __init__(self, dim: int, num_layers: int, attention: Attention = "paper") -> None:
        # Here, not above: every command imports every method, and few runs need a second's worth of graph library.
        from torch_geometric.nn.conv import SimpleConv
        from torch_geometric.utils import softmax

        super().__init__()
        if min(dim, num_layers) < 1:
            raise ValueError(f"dim and num_layers must be at least 1; got {dim} and {num_layers}.")
        if attention not in get_args(Attention):
            raise ValueError(f"attention must be one of {get_args(Attention)}, got {attention!r}.")
        self.num_layers, self.attention = num_layers, attention
        self.sending = nn.Parameter(nn.init.xavier_normal_(torch.empty(num_layers, dim)))
        if attention == "gat":
            self.receiving = nn.Parameter(nn.init.xavier_normal_(torch.empty(num_layers, dim)))
            # Passed on as they are at first: items are scored by their own vectors, which no layer has turned.
            self.transforms = nn.Parameter(torch.eye(dim).repeat(num_layers, 1, 1))
        self._softmax, self._convolution = softmax, SimpleConv(aggr="sum")

    def copies(self, num_clients: int) -> dict[str, Tensor]:
        """The parameters once for each client, by name: each of shape ``(num_clients, *its own)``, and without gradient."""
        return {name: part.detach().expand(num_clients, *part.shape) for name, part in self.named_parameters()}

    def forward(
        self,
        users: Tensor,
        items: Tensor,
        owners: Tensor,
        virtual: VirtualUsers | None = None,
        copies: Mapping[str, Tensor] | None = None,
    ) -> EgoOutput:
        """Run all layers of all clients on their own vectors (clients, dim) and those of their items (entries, dim), in any order.

        ``owners`` (entries,) is the client of each item; ``virtual`` are further neighbours, any number of each client;
        ``copies`` are parameters of each client, as `copies` gives them, instead of the shared ones.
        """
        if virtual is None:
            virtual = VirtualUsers(users.new_zeros(0, self.num_layers, users.shape[1]), owners.new_zeros(0))
        if (shape := tuple(virtual.vectors.shape[1:])) != (self.num_layers, users.shape[1]):
            raise ValueError(
                f"A virtual user has a vector of width {users.shape[1]} per layer ({self.num_layers}); got {shape}."
            )
        num_clients, num_nodes = len(users), len(users) + len(items)
        clients = torch.arange(num_clients, device=owners.device)
        owner_of_node = torch.cat([clients, owners, virtual.owners])
        nodes = torch.arange(len(owner_of_node), device=owners.device)
        entries = nodes[num_clients:num_nodes]
        # From each node into its client, and then into each item from its client and from itself.
        edges = torch.stack([torch.cat([nodes, owners, entries]), torch.cat([owner_of_node, entries, entries])])
        layers, weights = [], []
        for layer in range(self.num_layers):
            vectors = torch.cat([users, items, virtual.vectors[:, layer]])
            last = layer == self.num_layers - 1  # of which clients alone are read
            into = edges[:, : len(nodes)] if last else edges
            passed, weight = self._layer(layer, vectors, into, owner_of_node, copies)
            users, items = passed[:num_clients], passed[num_clients:num_nodes]
            layers.append(users)
            weights.append(weight[: len(nodes)])
        parts = torch.stack(weights, 1).tensor_split([num_clients, num_nodes])
        return EgoOutput(torch.stack(layers, 1), *parts)

    def _layer(
        self, layer: int, vectors: Tensor, edges: Tensor, owners: Tensor, copies: Mapping[str, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """What nodes (nodes, dim) become along edges (2, edges), from and to, and what each edge weighs (edges,)."""

        def part(name: str) -> Tensor:
            """A parameter of the layer, of all nodes or of each."""
            return getattr(self, name)[layer] if copies is None else copies[name][owners, layer]

        sender, receiver = edges
        if self.attention == "gat":
            vectors = (vectors[:, None] @ part("transforms")).squeeze(1)
        logits = (vectors * part("sending")).sum(1)[sender]
        if self.attention == "gat":
            logits = F.leaky_relu(logits + (vectors * part("receiving")).sum(1)[receiver], 0.2)
        weights = self._softmax(logits, receiver, num_nodes=len(vectors))
        passed: Tensor = self._convolution(vectors, edges, weights)
        if self.attention == "gat" and layer < self.num_layers - 1:
            passed = F.elu(passed)
        return passed, weights
