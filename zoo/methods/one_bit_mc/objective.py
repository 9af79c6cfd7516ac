"""Objective of one-bit matrix completion: the negative log-likelihood of signs, and its gradient."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zoo.methods.one_bit_mc.norm_balls import Floats
from zoo.privacy.one_bit.link_functions import Link

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Observations:
    """Signs of some entries of a matrix."""

    shape: tuple[int, int]
    cells: Integers  # which entries have a sign, as rising numbers row * columns + column, (n,); public
    signs: Floats  # +1 or -1, (n,)

    def __post_init__(self) -> None:
        matrix = f"{self.shape[0]} x {self.shape[1]} matrix"
        if not len(self.cells):
            raise ValueError(f"No entry of the {matrix} is observed.")
        if self.cells.shape != self.signs.shape or (np.diff(self.cells) <= 0).any():
            raise ValueError("Observed cells rise strictly and have one sign each; sort them.")
        if self.cells[0] < 0 or self.cells[-1] >= self.shape[0] * self.shape[1]:
            raise ValueError(f"An observed cell lies outside the {matrix}.")
        wrong = self.signs[~np.isin(self.signs, (-1.0, 1.0))]
        if len(wrong):
            raise ValueError(
                f"Signs are +1 or -1; {len(wrong)} are not, the first is {wrong[0]:g}. Set data.filters.signs."
            )


@dataclass(frozen=True, eq=False)
class Likelihood:
    """``-sum b log h(x) + (1 - b) log(1 - h(x)) + tilt x`` over the observed entries, plus ``ridge/2 ||X||_F^2``.

    Bits are ``b = (1 + sign)/2``: equation 2 of the paper; with a tilt, its objective perturbation. For the logistic link bits
    may be any numbers: a bit and a tilt enter as their sum alone.
    """

    link: Link  # h
    shape: tuple[int, int]
    cells: Integers  # observed entries, (n,), as in `Observations`
    bits: Floats  # (n,)
    tilt: Floats | float = 0.0  # (n,), or 0
    ridge: float = 0.0  # not negative

    @classmethod
    def of(cls, observations: Observations, link: Link, tilt: Floats | float = 0.0, ridge: float = 0.0) -> Likelihood:
        """Return the likelihood of observed signs."""
        return cls(link, observations.shape, observations.cells, (1 + observations.signs) / 2, tilt, ridge)

    def at(self, matrix: Floats) -> Floats:
        """Return the observed entries of a matrix, shape ``(n,)``."""
        entries: Floats = matrix.ravel()[self.cells]
        return entries

    def value(self, entries: Floats) -> float:
        """Return the function at the observed entries (n,), without the ridge."""
        positive, negative = self.link.log_likelihood(entries)
        return -float(self.bits @ positive + (1 - self.bits) @ negative + np.sum(self.tilt * entries))

    def gradient(self, entries: Floats) -> Floats:
        """Return its gradient there, shape ``(n,)``: ``(1 - b) h'/(1 - h) - b h'/h - tilt``."""
        positive, negative = self.link.slopes(entries)
        gradient: Floats = (1 - self.bits) * negative - self.bits * positive - self.tilt
        return gradient
