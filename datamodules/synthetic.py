"""Synthetic: seeded data that come with the code, with a transfer planted in them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import polars as pl

from datamodules.base import CrossDomainDataModule
from datamodules.planted import planted_domains
from datamodules.protocol import Evaluation, Filters
from datamodules.users import OWN
from zoo.release.denoiser import Denoiser


class Synthetic(CrossDomainDataModule):
    """Users with tastes shared across domains: a method that transfers must find it, and without link must not.

    Nothing is read from a file. Each party makes the same data from the same seed, and uses its own domain.

    Args:
        target: Domain to recommend in.
        sources: Domains to learn from, one release each.
        num_users: Users of each domain.
        num_items: Items of each domain.
        link: Correlation of a user's taste between domains; 0: a source says nothing about anybody.
        overlap: Share of a domain's users who are in every domain. Below 1, set `missing_users` or `users`.
        ratings_per_user: Items of each user.
        data_seed: Of the interactions, apart from the run's seed.
        users: `own`, `common` (research only), or a CSV file with a column user_id, agreed on by the parties beforehand.
        missing_users: `error`, or `zero`: target users without a row in a release are left out of what reads it.
        filters: Who and what counts.
        evaluation: What is held out and how it is ranked.
        batch_size: Examples in a training batch of one process.
        evaluation_batch_size: Users in an evaluation batch.
        top_k: Items per user that `predict` writes.
        seed: Of splits, candidates and batches; null: that of the run (`seed_everything`).
        releases: Folder of each source's release.
        denoiser: Takes the known noise off rows before anything reads them, at no cost of privacy; null: rows stay as released.
    """

    def __init__(
        self,
        target: str = "music",
        sources: Sequence[str] = ("book",),
        num_users: int = 400,
        num_items: int = 150,
        link: float = 0.9,
        overlap: float = 1.0,
        ratings_per_user: int = 15,
        data_seed: int = 0,
        users: str = OWN,
        missing_users: Literal["error", "zero"] = "error",
        filters: Filters = Filters(),  # noqa: B008  frozen
        evaluation: Evaluation = Evaluation(),  # noqa: B008  frozen
        batch_size: int = 64,
        evaluation_batch_size: int = 512,
        top_k: int = 10,
        seed: int | None = None,
        releases: dict[str, Path] | None = None,
        denoiser: Denoiser | None = None,
    ) -> None:
        super().__init__(
            target,
            sources,
            users=users,
            missing_users=missing_users,
            filters=filters,
            evaluation=evaluation,
            batch_size=batch_size,
            evaluation_batch_size=evaluation_batch_size,
            top_k=top_k,
            seed=seed,
            releases=releases,
            denoiser=denoiser,
        )
        self.num_users, self.num_items, self.ratings_per_user = num_users, num_items, ratings_per_user
        self.link, self.overlap, self.data_seed = link, overlap, data_seed

    def read(self, domain: str) -> pl.DataFrame:
        """All interactions of one domain."""
        if domain not in (self.target, *self.sources):
            raise ValueError(f"{domain!r} is no domain of this experiment: {[self.target, *self.sources]}.")
        # In the order of their names, so that source and target make the same domains in either direction.
        sizes = dict.fromkeys(sorted([self.target, *self.sources]), self.num_items)
        return planted_domains(sizes, self.num_users, self.link, self.overlap, self.data_seed, self.ratings_per_user)[
            domain
        ]
