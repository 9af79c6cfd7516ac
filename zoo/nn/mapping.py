"""Maps from one domain's vectors of users to another's factors: what is mapped, a perceptron, and ridge regression."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from zoo.data.rows import ReadableRows, SparseRows
from zoo.nn.ridge import Floats, Spectrum, eigen

_ROUNDING = 1e-6  # a spread below it, in units of the largest number, is rounding


class TanhMap(nn.Sequential):
    """A perceptron with tanh between its layers and none after the last, the map of EMCDR (Man et al., IJCAI 2017).

    Glorot normal, biases zero. ``dropout`` leaves out numbers of a vector while training.
    """

    def __init__(self, dims: Sequence[int], dropout: float = 0.0) -> None:
        layers: list[nn.Module] = [nn.Dropout(dropout)]
        for width, next_width in pairwise(dims):
            linear = nn.Linear(width, next_width)
            nn.init.xavier_normal_(linear.weight)
            nn.init.zeros_(linear.bias)
            layers += [linear, nn.Tanh()]
        super().__init__(*layers[:-1])


def mapped_by_copies(perceptron: nn.Module, copies: Mapping[str, Tensor], vectors: Tensor) -> Tensor:
    """Vectors (batch, ..., width), each mapped by parameters of its own: ``copies`` has those by name, (batch, *their shape)."""

    def of_one(parameters: dict[str, Tensor], vector: Tensor) -> Tensor:
        mapped: Tensor = torch.func.functional_call(perceptron, parameters, (vector,))
        return mapped

    each: Tensor = torch.func.vmap(of_one, randomness="different")(dict(copies), vectors)
    return each


class RidgeMap:
    """A linear map with an intercept from vectors (users, width) to targets: ridge regression, its penalty by leave-one-out."""

    def __init__(self, vectors: Floats) -> None:
        if not len(vectors):
            raise ValueError("A map is learned from users with a vector and a target; there is none.")
        self.centre: Floats = vectors.mean(axis=0)
        centred = vectors - self.centre
        energies, right = eigen(centred.T @ centred)
        self.spectrum = Spectrum(energies, centred @ right, right)

    def solve(self, targets: Floats) -> tuple[Floats, Floats]:
        """Weights (width, columns) and intercept (columns,) for targets (users, columns)."""
        mean: Floats = targets.mean(axis=0)
        if not len(self.spectrum.energies):  # all vectors are one
            return np.zeros((len(self.centre), targets.shape[1])), mean
        weights = self.spectrum.weights(targets, self.spectrum.best_penalty(targets))
        return weights, mean - self.centre @ weights


def narrowed_width(num_rows: int, width: int, rank: int) -> int:
    """Width of what `narrowed` makes of so many rows of a width."""
    return width if width <= rank else max(1, min(rank, num_rows))


def narrowed(rows: ReadableRows, rank: int) -> Tensor:
    """Return rows unchanged, dense, if no wider than ``rank``; else their coordinates in as many principal directions.

    These are the right singular vectors of all rows, the same at every call, as in PureSVD (Cremonesi et al., RecSys 2010).
    Reference: Halko, Martinsson, Tropp, SIAM Review 2011, algorithm 5.1, as ``torch.svd_lowrank`` implements it.
    """
    rank = narrowed_width(rows.num_rows, rows.width, rank)
    everybody = torch.arange(rows.num_rows)
    if not rows.num_rows:
        return torch.zeros(0, rank)
    if rows.width == rank:
        return rows.dense(everybody)
    if isinstance(rows, SparseRows):
        places = torch.stack([torch.repeat_interleave(rows.counts()), rows.items])
        matrix = torch.sparse_coo_tensor(places, rows.weights, (rows.num_rows, rows.width), check_invariants=True)
    else:
        matrix = rows.dense(everybody)
    with torch.random.fork_rng():  # a random start of its own: a run's stream goes on where it was
        torch.manual_seed(0)
        left, values, _ = torch.svd_lowrank(matrix, q=rank, niter=4)
    coordinates: Tensor = left * values
    return coordinates


class Standard(NamedTuple):
    """What vectors are centred by, and divided by: their mean becomes 0, and the mean square of their numbers 1."""

    centre: Tensor  # (width,)
    scale: Tensor  # one number for all, ()

    @classmethod
    def of(cls, vectors: Tensor) -> Standard:
        """That of vectors (rows, width), at least one."""
        centre = (vectors / len(vectors)).sum(0)
        spread = vectors - centre
        largest = spread.abs().max()
        if not largest > _ROUNDING * vectors.abs().max():
            return cls(centre, torch.ones_like(largest))
        return cls(centre, largest * (spread / largest).square().mean().sqrt())  # squares alone may leave float32

    def apply(self, vectors: Tensor) -> Tensor:
        """Vectors (..., width), centred and scaled."""
        return (vectors - self.centre) / self.scale

    def undo(self, vectors: Tensor) -> Tensor:
        """The way back."""
        return vectors * self.scale + self.centre


def standardised(vectors: Tensor, links: Tensor) -> Tensor:
    """Return vectors (rows, width) by user, ``(users, width)``, centred and divided by one number; zeros for users without one.

    ``links`` (users,) is the row of each user, -1 for none; mean and scale are over the users who have one.
    """
    present = links >= 0
    known = vectors[links[present]]
    own = vectors.new_zeros(len(links), vectors.shape[1])
    if len(known):
        own[present] = Standard.of(known).apply(known)
    return own


def mean_over_sources(said: Iterable[tuple[Tensor, Tensor]], nothing: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean over the sources that have a user, and who is in any, shape ``(batch,)``.

    Each source gives values (batch, width) and whom it has (batch,). ``nothing`` are zeros, for users whom none has.
    """
    total, count = nothing, nothing.new_zeros(len(nothing), 1)
    for values, present in said:
        total, count = total + values * present[:, None], count + present[:, None]
    return total / count.clamp(min=1), count.squeeze(1) > 0
