"""What draws a client's vectors and those that other domains have of it together."""

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.ego_graph import VirtualUsers


def mean_virtual_user(virtual: VirtualUsers, num_clients: int) -> Tensor:
    """Mean of each client's virtual users, shape ``(num_clients, num_layers, dim)``; zeros of a client without any."""
    total = virtual.vectors.new_zeros(num_clients, *virtual.vectors.shape[1:])
    counts = torch.bincount(virtual.owners, minlength=num_clients).clamp(min=1)
    return total.index_add(0, virtual.owners, virtual.vectors) / counts[:, None, None]


def mapping_losses(states: Tensor, virtual: VirtualUsers) -> Tensor:
    """Squared distances of clients (clients, num_layers, dim) to all of their virtual users, summed over layers, ``(clients,)``.

    Reference: Yang et al., *FedGCDR* (NeurIPS 2024), equation 7.
    """
    distances = (states[virtual.owners] - virtual.vectors).square().sum((1, 2))
    return states.new_zeros(len(states)).index_add(0, virtual.owners, distances)


def social_losses(states: Tensor, virtual: VirtualUsers) -> Tensor:
    """Squared distances of clients to the mean of their virtual users, weighted by similarity, summed over layers, ``(clients,)``.

    A weight is ``max(cos, 0) + 1e-8`` in each layer, and no gradient goes through it: a sum of cosines alone can be 0 or negative.
    A client without virtual users has 0.

    Reference: Yang et al., *FedGCDR* (NeurIPS 2024), equation 9.
    """
    own = states[virtual.owners]
    weights = F.cosine_similarity(own, virtual.vectors, dim=2).clamp(min=0).detach() + 1e-8  # (virtual, num_layers)
    nothing = states.new_zeros(len(states), states.shape[1])
    shares = weights / nothing.index_add(0, virtual.owners, weights)[virtual.owners]
    means = torch.zeros_like(states).index_add(0, virtual.owners, shares[:, :, None] * virtual.vectors)
    has_any = torch.bincount(virtual.owners, minlength=len(states)) > 0
    losses: Tensor = (states - means).square().sum((1, 2)) * has_any
    return losses
