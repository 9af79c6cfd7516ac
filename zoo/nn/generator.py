"""A generator of rating rows, and the rows that a released one makes."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Weights = Sequence[tuple[Tensor, Tensor]]
"""Weight ``(outer, inner)`` and bias ``(outer,)`` of each layer, input first."""


class RowGenerator(nn.Module):
    """Maps a user, and optional noise, to a row of probabilities: the generator of PPGenCDR (Liao et al., AAAI 2023).

    A user's embedding is its condition; the paper adds noise in the main text and none in the appendix (``noise_dim`` 0).
    ``dims`` are the widths of the hidden layers; ``dropout`` leaves out numbers of the condition while training; ``density`` is
    a public guess of the mean of an untrained row.
    """

    def __init__(
        self,
        num_users: int,
        width: int,
        condition_dim: int = 200,
        dims: Sequence[int] = (256, 512, 1024),
        noise_dim: int = 0,
        dropout: float = 0.0,
        density: float = 0.5,
    ) -> None:
        super().__init__()
        self.noise_dim = noise_dim
        self.embedding = nn.Embedding(num_users, condition_dim)
        nn.init.normal_(self.embedding.weight, std=condition_dim**-0.5)  # of length 1, at any width
        self.dropout = nn.Dropout(dropout)
        widths = [condition_dim + noise_dim, *dims, width]
        linear = [nn.Linear(inner, outer) for inner, outer in pairwise(widths)]
        nn.init.constant_(linear[-1].bias, math.log(density / (1 - density)))
        self.layers = nn.ModuleList(linear)

    def forward(self, users: Tensor) -> Tensor:
        """Probabilities for users (batch,), shape ``(batch, width)``; other noise at every call while training, else none."""
        return _rows(self.dropout(self.embedding(users)), self.noise_dim, self._weights(), noisy=self.training)

    def _weights(self) -> Weights:
        return [(layer.weight, layer.bias) for layer in self.layers if isinstance(layer, nn.Linear)]

    def tensors(self) -> dict[str, Tensor]:
        """What a release of it holds, by name: ``embedding`` and, layer by layer, ``weight_0``, ``bias_0`` and so on."""
        found = {"embedding": self.embedding.weight}
        for n, (weight, bias) in enumerate(self._weights()):
            found |= {f"weight_{n}": weight, f"bias_{n}": bias}
        return {name: tensor.detach().clone().float().cpu() for name, tensor in found.items()}


class GeneratedRows(nn.Module):
    """Rows of a released generator, made a batch at a time; with the readers of `zoo.data.rows.DenseRows`. Nothing is trained.

    Noise is resampled at every reading while a model trains, and is 0 otherwise. Tensors: `RowGenerator.tensors`.
    """

    embedding: Tensor

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        shapes = generator_shapes(tensors)
        self.num_layers, self.width = len(shapes) - 1, shapes[-1]
        self.noise_dim = shapes[0] - tensors["embedding"].shape[1]
        for name, tensor in tensors.items():
            self.register_buffer(name, tensor, persistent=False)

    @property
    def num_rows(self) -> int:
        """Number of users."""
        return len(self.embedding)

    @torch.no_grad()
    def dense(self, index: Tensor) -> Tensor:
        """Rows ``index`` (batch,), shape ``(batch, width)``."""
        weights = [(getattr(self, f"weight_{n}"), getattr(self, f"bias_{n}")) for n in range(self.num_layers)]
        return _rows(self.embedding[index], self.noise_dim, weights, noisy=self.training)


def generator_shapes(tensors: Mapping[str, Tensor]) -> list[int]:
    """Widths of a generator's layers, input first; a ValueError if names or shapes of its tensors do not go together."""
    count = sum(name.startswith("weight_") for name in tensors)
    wanted = {"embedding", *(f"{what}_{n}" for n in range(count) for what in ("weight", "bias"))}
    if not count or tensors.keys() != wanted:
        raise ValueError(f"A generator's tensors are an embedding and weight_0, bias_0, ...; got {sorted(tensors)}.")
    if tensors["embedding"].ndim != 2 or any(tensors[f"weight_{n}"].ndim != 2 for n in range(count)):
        raise ValueError("A generator's embedding and weights must be matrices.")
    widths = [tensors["weight_0"].shape[1]]
    for n in range(count):
        outer, inner = tensors[f"weight_{n}"].shape
        if inner != widths[-1] or tensors[f"bias_{n}"].shape != (outer,):
            raise ValueError(f"Layer {n} of the generator does not fit the one before, or its bias.")
        widths.append(outer)
    if min(widths) < 1:  # a layer next to one of width 0 states any width in no bytes
        raise ValueError(f"The generator has layers of width {widths}. Allowed: 1 or more.")
    if widths[0] < tensors["embedding"].shape[1]:
        raise ValueError(f"The first layer reads {widths[0]} numbers, fewer than the embedding has.")
    return widths


def _rows(conditions: Tensor, noise_dim: int, weights: Weights, *, noisy: bool) -> Tensor:
    """A perceptron of condition and noise side by side, ReLU between its layers and a sigmoid after the last."""
    make = torch.randn if noisy else torch.zeros
    noise = make(len(conditions), noise_dim, device=conditions.device)
    hidden = torch.cat([conditions, noise], dim=1)
    for weight, bias in weights[:-1]:
        hidden = F.relu(F.linear(hidden, weight, bias))
    return torch.sigmoid(F.linear(hidden, *weights[-1]))
