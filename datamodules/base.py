"""CrossDomainDataModule: the target's ratings and what other parties released, or a source's ratings to publish."""

import hashlib
import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import polars as pl
from pytorch_lightning import LightningDataModule
from torch import Tensor

from datamodules.alignment import MissingReleaseError, aligned_rows, check_sources, link_users
from datamodules.cache import PreparedTarget, cache_key_settings, load_or_prepare, progress_reporter, report_large_files
from datamodules.candidates import candidates
from datamodules.data_quality import negative_ratings, users_not_listed, warn_once
from datamodules.filters import binarise, common_users, filter_counts
from datamodules.protocol import Evaluation, Filters
from datamodules.public_lists import (
    COMMON,
    OWN,
    agreed_users,
    check_columns,
    check_users,
    column_ids,
    hash_items,
    is_derived_list,
    list_steps,
    read_catalogue,
)
from datamodules.splits import PAIR, Split, before_held_out, hold_out
from datamodules.tables import with_categories
from zoo.data.batch_types import Batch, PredictBatch, RankingBatch
from zoo.data.evaluation import EvaluationBatches, HeldOutCases, entries
from zoo.data.ratings import Ratings, Step
from zoo.data.training_batches import Batches, Share, share_of, training_batches
from zoo.release.denoiser import Denoiser
from zoo.release.files import ReleaseError
from zoo.release.release import Release
from zoo.release.signature import TrustedKeys
from zoo.runtime.run_folder import CapturesInit, class_path


class CrossDomainDataModule(CapturesInit, LightningDataModule):
    """One target domain, its protocol, and the releases of its sources.

    Both parties build it: it stores its arguments and opens nothing. ``setup`` reads the target and the releases; a source it reads
    only where a release is a map, which scores each person with the own row, and the source lies here. :meth:`source` reads one
    source domain and is for the party that owns it.

    Args:
        target: Domain to recommend in.
        sources: Domains to learn from, one release each.
        users: `own` (who passes this domain's filters, or everybody whom the data set defines), `common` (who passes every
            domain's; research only, needs all domains at hand), or a CSV file with a column user_id that the parties agreed on
            beforehand. The list is public. Sources are cut to it; a target that has sources keeps all its users. Rows are people,
            to be found by their ids: there is no number of them in its place.
        missing_users: `error`, or `zero`: target users without a row in a release are left out of what reads it; null: `zero` where
            a list was agreed on, else `error`.
        catalogues: By domain: a CSV file with a column item_id, the items that the domain may have, rated or not. The list
            is public; ratings of other items are left out. For a source, where there is no such list, a whole number: a public
            number of columns that its items are hashed to (`datamodules.public_lists`).
        filters: Who and what counts.
        evaluation: What is held out and how it is ranked.
        batch_size: Examples in a training batch of one process.
        evaluation_batch_size: Users in an evaluation batch.
        top_k: Items per user that `predict` writes.
        seed: Of splits, candidates and batches; null: that of the run (`seed_everything`).
        releases: Folder of each source's release.
        trusted: Public keys (a PEM file, or a folder of them), one of which must have signed each release; null: any release is
            read.
        denoiser: Takes the known noise off rows before anything reads them, at no cost of privacy; null: rows stay as released.
    """

    # There after `setup`.
    train: Ratings
    validation: HeldOutCases
    test: HeldOutCases

    def __init__(
        self,
        target: str,
        sources: Sequence[str] = (),
        users: str = OWN,
        missing_users: Literal["error", "zero"] | None = None,
        catalogues: dict[str, int | Path] | None = None,
        filters: Filters = Filters(),  # noqa: B008  frozen
        evaluation: Evaluation = Evaluation(),  # noqa: B008  frozen
        batch_size: int = 128,
        evaluation_batch_size: int = 512,
        top_k: int = 10,
        seed: int | None = None,
        releases: dict[str, Path] | None = None,
        trusted: Path | None = None,
        denoiser: Denoiser | None = None,
    ) -> None:
        super().__init__()
        check_sources(target, sources)
        check_users(users)
        if min(sizes := (batch_size, evaluation_batch_size, top_k)) < 1:
            raise ValueError(f"Batch sizes and top_k must be at least 1; got {', '.join(map(str, sizes))}.")
        self.target, self.sources, self.users, self.missing_users = target, tuple(sources), users, missing_users
        self.catalogues = {n: c if isinstance(c, int) else Path(c) for n, c in (catalogues or {}).items()}
        self.filters, self.evaluation = filters, evaluation
        # What a recommender reads of them.
        self.ks, self.ties, self.signs = tuple(evaluation.ks), evaluation.ties, filters.signs
        self.full_ranking, self.sampled_ranking = evaluation.full_ranking, evaluation.num_candidates > 0
        self.batch_size, self.evaluation_batch_size, self.top_k = batch_size, evaluation_batch_size, top_k
        self.seed, self.trusted, self.denoiser = seed, trusted, denoiser
        self.users_from_ratings = False  # whether the list of users comes from private ratings, in this very process
        self.release_paths: dict[str, Path] = {name: Path(path) for name, path in (releases or {}).items()}
        # By source, after `setup`.
        self.releases: dict[str, Release] = {}
        self.own_rows: dict[str, Ratings] = {}  # by source of a map: its rows, where they lie here
        self._release_digests: dict[str, str] = {}
        self.links: dict[str, Tensor] = {}  # row of each target user in the release, (num_users,), -1 for none
        self.summary: dict[str, Any] = {}  # plain numbers for people
        if unknown := sorted(self.release_paths.keys() - set(self.sources)):
            raise ValueError(f"releases names {unknown}, which are no sources; the sources are {list(self.sources)}.")
        if unknown := sorted(self.catalogues.keys() - set(self._domains)):
            raise ValueError(f"catalogues names {unknown}, which are no domains of this experiment: {self._domains}.")
        check_columns(self.catalogues, target, evaluation)

    # What a data set says.

    @abstractmethod
    def read(self, domain: str) -> pl.DataFrame:
        """All interactions of one domain: user_id, item_id, rating, timestamp."""

    def read_held_out(self, domain: str) -> tuple[pl.DataFrame | None, pl.DataFrame] | None:
        """Validation and test rows that ship with a domain, or None."""
        return None

    def read_negatives(self, domain: str) -> pl.DataFrame | None:
        """Candidate lists that ship with a domain, or None."""
        return None

    def files(self, domain: str) -> list[Path] | None:
        """The files that a domain may be read from, there or not; None where none is, or nobody knows."""
        return None

    def public_ids(self, domain: str) -> tuple[pl.Series, pl.Series] | None:
        """Ids of a domain's users and items where the data set itself defines them, rated or not; None: those that occur."""
        return None

    # Domains.

    @property
    def _domains(self) -> list[str]:
        return [self.target, *self.sources]

    @property
    def split_seed(self) -> int:
        """Seed of splits, candidates and batches."""
        return int(os.environ.get("PL_GLOBAL_SEED", 0)) if self.seed is None else self.seed

    def source(self, name: str) -> Ratings:
        """Read the ratings of a source domain as its publisher takes them.

        Items are held out of it only by ``hold_out_of_sources`` and ``earlier_sources`` of the protocol. A domain whose users
        and items are on lists may be without a rating: an error would reveal the last one.

        Raises:
            FileNotFoundError: This party does not have the domain.
        """
        if name not in self.sources:
            raise ValueError(f"{name!r} is no source of this experiment; the sources are {list(self.sources)}.")
        report_large_files(self.files(name))
        listed = None if self.users_from_ratings else agreed_users(self.users)
        shipped = self.public_ids(name) is not None
        on_lists = (shipped or self.users not in (OWN, COMMON)) and (shipped or name in self.catalogues)
        table, evaluation = self._filtered(name, may_be_empty=on_lists), self.evaluation
        held_out = evaluation.hold_out_of_sources and evaluation.split != "cold_start"
        if evaluation.split == "given" and self.shipped_rows(name) is None:
            held_out = False  # it ships no such rows
        part = self._split(name, table).train if held_out else table
        if evaluation.earlier_sources:
            part = before_held_out(part, self._held_out_of_target(), name)
        return self._matrix(name, part, table, self.steps(name), listed)

    def _held_out_of_target(self) -> Split:
        try:
            return self._split(self.target, self._filtered(self.target))
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"evaluation.earlier_sources is true, which takes all domains at one place: {error}"
            ) from error

    def steps(self, name: str) -> tuple[Step, ...]:
        """What is done to a domain's ratings before they are published or learned from; from settings alone."""
        last = self.evaluation.step if name == self.target else self.evaluation.source_step
        lists = list_steps(
            self.users if self.limited_to_list(name) else OWN,
            worked_out=self._worked_out,
            catalogue=self.catalogues.get(name),
            shipped=self.public_ids(name) is not None,
        )
        return (*self._read_elsewhere, *self.filters.steps, *lists, last)

    @property
    def _read_elsewhere(self) -> tuple[Step, ...]:
        """The step of a class that is not ours: what it leaves out, and what its lists come of, is unknown."""
        if (module := type(self).__module__).startswith("datamodules."):
            return ()
        path = f"{module}.{type(self).__qualname__}"
        return (Step(f"read by {path}", f"read_by:{path}", "values"),)

    def common_users(self) -> list[str]:
        """Users who pass the threshold and the minimum count of every domain; needs all domains at hand."""
        try:
            tables = {name: self._binarised(name) for name in self._domains}
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"users is 'common', which takes all domains at one place: {error} Pass an agreed list: --data.users FILE."
            ) from error
        return common_users(tables, self.filters.min_user_ratings)

    def _binarised(self, name: str, *, may_be_empty: bool = False) -> pl.DataFrame:
        table = with_categories(self.read(name))
        for part in self.shipped_rows(name) or ():
            if part is not None:  # a file may or may not repeat its held-out rows; they count in the filters either way
                table = pl.concat([table, part.join(table, on=PAIR, how="anti")])
        if (remark := negative_ratings(table, name, self.filters)) is not None:
            warn_once(remark)
        return binarise(table, self.filters.threshold, self.filters.signs, may_be_empty=may_be_empty)

    @property
    def _worked_out(self) -> bool:
        """Whether the list of users comes of ratings, in this process or an earlier one."""
        return self.users_from_ratings or is_derived_list(self.users)

    def limited_to_list(self, name: str) -> bool:
        """Whether a domain is cut to the list of users, if there is one: an agreed one is of who is linked."""
        return name != self.target or not self.sources or self.users in (OWN, COMMON) or self._worked_out

    @property
    def _missing_is_error(self) -> bool:
        default = "error" if self.limited_to_list(self.target) else "zero"
        return (self.missing_users or default) == "error"

    def _filtered(self, name: str, *, may_be_empty: bool = False) -> pl.DataFrame:
        filters = self.filters
        whole, items = self._binarised(name, may_be_empty=may_be_empty), self.catalogues.get(name)
        if isinstance(items, int):
            whole = hash_items(whole, items)
        elif items is not None:
            whole = whole.filter(pl.col("item_id").is_in(read_catalogue(items)))
        least = filters.min_user_ratings, filters.min_item_ratings
        listed = agreed_users(self.users) if self.limited_to_list(name) else None
        return filter_counts(whole, *least, listed, filters.iterated, may_be_empty=may_be_empty)

    def _catalogue(self, name: str) -> list[str] | None:
        given = self.catalogues.get(name)
        if given is None:
            return None
        return column_ids(given) if isinstance(given, int) else read_catalogue(given)

    def shipped_rows(self, name: str) -> tuple[pl.DataFrame | None, pl.DataFrame] | None:
        """Validation, if any, and test rows that ship with a domain, where the split holds these out; None otherwise."""
        shipped = self.read_held_out(name) if self.evaluation.split == "given" else None
        if shipped is None:
            return None
        validation, test = shipped
        return None if validation is None else with_categories(validation), with_categories(test)

    def _split(self, name: str, table: pl.DataFrame) -> Split:
        return hold_out(table, self.evaluation, self.split_seed, name, self.shipped_rows(name))

    def _matrix(
        self,
        name: str,
        part: pl.DataFrame,
        whole: pl.DataFrame,
        applied: Sequence[Step],
        users: Sequence[str] | None = None,
    ) -> Ratings:
        """The ratings of ``part`` over the users (those of ``whole`` unless listed) and items of a domain."""
        own_users, own_items = self.public_ids(name) or (whole[column].unique().sort() for column in PAIR)
        items = self._catalogue(name)
        return Ratings.from_table(
            part, own_users if users is None else users, own_items if items is None else items, tuple(applied)
        )

    # The target.

    def setup(self, stage: str) -> None:
        """Read the target, hold out, draw candidates, read the releases that the method at hand wants."""
        self.read_target()
        reads: frozenset[str] = getattr(
            getattr(self.trainer, "lightning_module", None), "accepted_releases", frozenset()
        )
        if reads and not self.releases:
            self.read_releases()

    def read_target(self) -> None:
        """Read the target, hold out and draw candidates, once; the first part of `setup`.

        Raises:
            FileNotFoundError: This party does not have the target.
        """
        if self.summary:
            return
        applied = self.steps(self.target)
        word = self.users in (OWN, COMMON)
        kind = class_path(type(self))
        settings = cache_key_settings(vars(self), kind, self.users if word else "a list", self.split_seed)
        made = load_or_prepare(self._files(), settings, applied, lambda: self._prepare(applied))
        self.train, self.validation, self.test = made
        self.summary = made.summary(self.target, self.evaluation, self.signs, self.split_seed)
        if not self.limited_to_list(self.target):
            self.summary["remarks"] += users_not_listed(self.train, agreed_users(self.users) or ())

    def _prepare(self, applied: tuple[Step, ...]) -> PreparedTarget:
        table = self._filtered(self.target)
        say = progress_reporter(table.height)
        say(f"Holding out of {table.height:,} ratings ({self.evaluation.split}).")
        name, parts = self.evaluation.split, self._split(self.target, table)
        train = self._matrix(self.target, parts.train, table, applied)
        height = table.height
        del table  # of many ratings the table takes more room than all that is made of it
        parts = parts._replace(train=parts.train.clear())
        negatives = self.read_negatives(self.target) if name == "given" else None
        say(f"Drawing the negatives of {parts.test.height:,} test and {parts.validation.height:,} validation cases.")
        made = PreparedTarget(train, *candidates(train, parts, self.evaluation, self.split_seed, negatives))
        if not (len(made.test.users) or name == "none") or not train.num_ratings:
            raise ValueError(
                f"The split {name!r} leaves {train.num_ratings} ratings to train on and {len(made.test.users)} test cases, of "
                f"{height} ratings of {train.num_users} users. Choose another split, or loosen the filters."
            )
        return made

    def _files(self) -> list[Path] | None:
        """All that is read to prepare the target; None where somebody else's class may read what nobody here knows."""
        found = [self.files(domain) for domain in (self._domains if self.users == COMMON else [self.target])]
        if self._read_elsewhere or None in found:
            return None
        lists = [Path(self.users), *(path for path in self.catalogues.values() if isinstance(path, Path))]
        return [path for paths in found for path in paths or ()] + lists

    # Releases.

    def read_releases(self) -> None:
        """Read the releases and link their users to the target's; what `setup` does for a method that learns from them."""
        if missing := [name for name in self.sources if name not in self.release_paths]:
            raise MissingReleaseError(
                f"No release of {missing}. Pass what the source party published: --data.releases.{missing[0]} PATH (in Python "
                f"releases={{{missing[0]!r}: PATH}}). Or publish here: set `publisher` and use `fit`."
            )
        trusted = None if self.trusted is None else TrustedKeys.read(self.trusted)
        for name in self.sources:
            release = Release.load(self.release_paths[name], trusted)
            if release.layout.before_training:
                raise ReleaseError(
                    f"{self.release_paths[name]} is a release of kind {release.kind!r}. {release.layout.before_training}"
                )
            self.links[name] = links = self.link_users(name, release, str(self.release_paths[name]))
            self.releases[name] = release if self.denoiser is None else self.denoiser(release)
            self._release_digests[name] = release.digest
            if release.layout.reads_own_rows:
                self._read_own_rows(name)
            self.summary["releases"][name] = {
                "kind": release.kind,
                "users": release.num_users,
                "width": release.width,
                "overlap": int((links >= 0).sum()),
                "denoised": self.denoiser is not None,
            }

    def _read_own_rows(self, name: str) -> None:
        """Read a source whose release is a map, to score each person with the own row; nothing where it does not lie here."""
        try:
            self.own_rows[name] = self.source(name)
        except FileNotFoundError:
            self.summary["remarks"] += [
                f"the rows of {name!r} do not lie here, so nobody is scored by them: people are where their rows lie"
            ]

    def link_users(self, name: str, release: Release, path: str) -> Tensor:
        """Row of each target user in a release, shape ``(num_users,)``, -1 for none; see `datamodules.alignment`."""
        return link_users(self.train.user_ids, name, release, path, missing_is_error=self._missing_is_error)

    def check_source_users(self, name: str, source: Ratings) -> None:
        """Refuse a source whose release could not be linked, before it is published; for a party that has all domains."""
        aligned_rows(
            self.train.user_ids, source.user_ids, f"The source {name!r}", missing_is_error=self._missing_is_error
        )

    # What the recommender reads.

    @property
    def sizes(self) -> dict[str, Any]:
        """Plain numbers that networks are built from."""
        return {
            "num_users": self.train.num_users,
            "num_items": self.train.num_items,
            "sources": {name: release.sizes for name, release in self.releases.items()},
        }

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the target's training ratings and held-out pairs, and of each release and its denoiser.

        They identify the data of a checkpoint. Of signs only the pairs count: a checkpoint holds digests, and the signs may be
        secret. Candidate lists do not count: a checkpoint may be ranked among others.
        """
        own = hashlib.sha256(self.train.digest(values=not self.signs).encode())
        for tensor in (self.test.users, self.test.items, self.validation.users, self.validation.items):
            own.update(tensor.numpy().tobytes())
        denoised = "" if self.denoiser is None else f", {self.denoiser}"
        return {self.target: own.hexdigest()} | {name: d + denoised for name, d in self._release_digests.items()}

    # Batches.

    def _share(self) -> Share:
        return share_of(self.trainer) if self.trainer else Share()

    def train_dataloader(self) -> Batches[Batch]:
        """Batches of the form that the method at hand wants."""
        trainer: Any = self.trainer
        return training_batches(
            self.train,
            trainer.lightning_module,
            self.batch_size,
            self.split_seed,
            lambda: trainer.current_epoch,
            self._share(),
            shuffle=not trainer.overfit_batches,
            device=trainer.strategy.root_device,
        )

    def val_dataloader(self) -> EvaluationBatches[RankingBatch] | list[Any]:
        """Validation cases; none where the protocol has none."""
        return self._evaluation_batches(self.validation)

    def test_dataloader(self) -> EvaluationBatches[RankingBatch] | list[Any]:
        """Test cases."""
        return self._evaluation_batches(self.test)

    def _evaluation_batches(self, cases: HeldOutCases) -> EvaluationBatches[RankingBatch] | list[Any]:
        if not len(cases.users):
            return []
        return EvaluationBatches(len(cases.users), self.evaluation_batch_size, cases.batch, self._share())

    def predict_dataloader(self) -> EvaluationBatches[PredictBatch]:
        """All users, with every item they are known to have."""
        return EvaluationBatches(
            self.train.num_users,
            self.evaluation_batch_size,
            lambda users: PredictBatch(users, *entries(self.test.seen, users)),
            self._share(),
        )
