"""A linear map between two spaces of factors that is its own way back, transposed, as far as it is orthogonal."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class OrthogonalMap(nn.Module):
    """One square matrix W that maps factors of one domain to another (``z W``), and back by its transpose (``z W^T``).

    W starts orthogonal; a method adds :meth:`penalty` or :meth:`round_trip` to its loss to keep it so. ``init`` fills W.

    Reference: Li & Tuzhilin, *DDTCDR: Deep Dual Transfer Cross Domain Recommendation*, WSDM 2020, section 3.2.
    """

    def __init__(self, dim: int, init: Callable[[Tensor], Tensor] = nn.init.orthogonal_) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(dim, dim))
        init(self.weight)

    def forward(self, factors: Tensor) -> Tensor:
        """Factors (..., dim) in the other domain, in the same shape."""
        return factors @ self.weight

    def back(self, factors: Tensor) -> Tensor:
        """Factors of the other domain (..., dim) in this one, in the same shape."""
        return factors @ self.weight.T

    def penalty(self) -> Tensor:
        """Absolute differences of ``W W^T`` to the identity, summed: 0 if and only if W is orthogonal."""
        identity = torch.eye(len(self.weight), dtype=self.weight.dtype, device=self.weight.device)
        return (self.weight @ self.weight.T - identity).abs().sum()

    def round_trip(self, factors: Tensor) -> Tensor:
        """Absolute differences of factors (..., dim) to what comes of them there and back, summed."""
        return (factors - self.back(self(factors))).abs().sum()

    def return_trip(self, factors: Tensor) -> Tensor:
        """As :meth:`round_trip`, of factors of the other domain (..., dim): what comes of them here and back there."""
        changed: Tensor = factors - self(self.back(factors))
        return changed.abs().sum()
