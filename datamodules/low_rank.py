"""LowRank: signs of a known low-rank matrix, to measure its recovery."""

from functools import cached_property
from typing import Any, Literal

import numpy as np
import polars as pl
import torch
from scipy.special import expit, ndtr
from torch import Tensor

from datamodules.base import CrossDomainDataModule
from datamodules.protocol import Evaluation, Filters
from zoo.data.arrays import Floats, Integers

SIGNS = Filters(threshold=0, signs=True)
GIVEN = Evaluation(split="given", num_candidates=50)


class LowRank(CrossDomainDataModule):
    """Signs of some entries of ``M = U V'`` of known rank: +1 with probability ``h(M_ij)``, else -1. No file is read.

    U and V have uniform entries in [-1/2, 1/2], and M is scaled so that its largest entry is `max_entry` in absolute value. A share
    `observed` of the entries is drawn without replacement for training. The test has a fifth as many other entries (at most all
    others).

    Reference: *One-Bit Matrix Completion with Differential Privacy*, section 5.1. Departure: there M is divided by its largest
    entry, not by the largest in absolute value, and then exceeds the bound that the method relies on.

    Args:
        num_users: Rows of M.
        num_items: Columns of M.
        rank: Rank of M.
        max_entry: The largest entry in absolute value (the paper's alpha).
        observed: Share of the entries for training.
        link: `logistic`, or `probit` with standard deviation `scale`.
        scale: Standard deviation of the noise behind a probit sign.
        data_seed: Seed of M, of the observed entries and of the signs; null: that of the run.
        target: Name of the only domain.
        filters: Filters; ratings are signs.
        evaluation: Ranking of the test; the split is `given`.
        **settings: Arguments of :class:`CrossDomainDataModule`; there is no source.

    Examples:
        >>> from datamodules import LowRank
        >>> data = LowRank(num_users=20, num_items=30, observed=0.25, data_seed=0)
        >>> data.read_target()
        >>> data.train.num_ratings, len(data.test.users), float(data.truth.abs().max())
        (150, 30, 1.0)
    """

    terms = "Made up from a seed."

    def __init__(
        self,
        num_users: int = 100,
        num_items: int = 100,
        rank: int = 1,
        max_entry: float = 1.0,
        observed: float = 0.15,
        link: Literal["logistic", "probit"] = "logistic",
        scale: float = 1.0,
        data_seed: int | None = None,
        target: str = "entries",
        filters: Filters = SIGNS,
        evaluation: Evaluation = GIVEN,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(target, (), filters=filters, evaluation=evaluation, **settings)
        if not 1 <= rank <= min(num_users, num_items):
            raise ValueError(f"rank is {rank}. Allowed: from 1 to min({num_users}, {num_items}).")
        if not (max_entry > 0 and scale > 0 and 0 < observed < 1):
            found = f"max_entry is {max_entry}, scale {scale}, observed {observed}"
            raise ValueError(f"{found}. Allowed: > 0, and observed < 1.")
        if link not in ("logistic", "probit"):
            raise ValueError(f"link is {link!r}. Allowed: 'logistic', 'probit'.")
        self.num_users, self.num_items, self.rank, self.max_entry = num_users, num_items, rank, max_entry
        self.observed, self.link, self.scale, self.data_seed = observed, link, scale, data_seed

    def public_ids(self, domain: str) -> tuple[pl.Series, pl.Series]:
        """Return all rows and columns, with and without observed entries."""
        users, items = (
            pl.Series([f"{prefix}{number:0{len(str(size - 1))}d}" for number in range(size)])
            for prefix, size in (("u", self.num_users), ("i", self.num_items))
        )
        return users, items

    @property
    def truth(self) -> Tensor:
        """The matrix M, shape ``(num_users, num_items)``, float64."""
        return torch.from_numpy(self._drawn[0])

    def read(self, domain: str) -> pl.DataFrame:
        """Return all entries with a sign, those of the test included."""
        return pl.concat(self._drawn[1:])

    def read_held_out(self, domain: str) -> tuple[pl.DataFrame | None, pl.DataFrame] | None:
        """Return the test entries; there is no validation."""
        test = self._drawn[2]
        return test.clear(), test

    @cached_property
    def _drawn(self) -> tuple[Floats, pl.DataFrame, pl.DataFrame]:
        """Return M, the observed entries and those of the test."""
        seed = self.split_seed if self.data_seed is None else self.data_seed
        rng = np.random.default_rng([seed & 0xFFFFFFFF, 0x10B17])
        truth = low_rank_matrix(self.num_users, self.num_items, self.rank, self.max_entry, rng)
        cells = rng.permutation(truth.size)
        count = round(self.observed * truth.size)
        held_out = min(max(count // 5, 1), truth.size - count)
        probability = expit(truth) if self.link == "logistic" else ndtr(truth / self.scale)
        signs = np.where(rng.random(truth.shape) < probability, 1.0, -1.0)
        parts = (np.sort(cells[:count]), np.sort(cells[count : count + held_out]))
        observed, test = (self._table(part, signs) for part in parts)
        return truth, observed, test

    def _table(self, cells: Integers, signs: Floats) -> pl.DataFrame:
        rows, columns = np.divmod(cells, self.num_items)
        users, items = self.public_ids(self.target)
        table = {"user_id": users[rows], "item_id": items[columns], "rating": signs[rows, columns]}
        return pl.DataFrame(table).with_columns(timestamp=pl.lit(None, pl.Int64))


def low_rank_matrix(num_users: int, num_items: int, rank: int, max_entry: float, rng: np.random.Generator) -> Floats:
    """Return ``U V'`` (num_users, num_items), float64, of uniform entries in [-1/2, 1/2], scaled to a largest absolute entry."""
    users, items = (rng.random((size, rank)) - 0.5 for size in (num_users, num_items))
    product: Floats = users @ items.T
    product *= max_entry / np.abs(product).max()
    return product
