"""CrossDomainDataModule: the target's ratings and what other parties released, or a source's ratings to publish."""

import hashlib
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import polars as pl
from pytorch_lightning import LightningDataModule
from torch import Tensor

from datamodules import public_lists
from datamodules.alignment import (
    aligned_rows,
    check_domains,
    check_sources,
    link_users,
    load_releases,
    needing_all_domains,
)
from datamodules.cache import PreparedTarget, cache_key_settings, load_or_prepare, progress_reporter, report_large_files
from datamodules.candidates import cases_and_facts
from datamodules.data_quality import (
    Facts,
    collected_facts,
    numbered_alike,
    same_numbers,
    suspicious_counts,
    suspicious_line,
    times_of,
    users_not_listed,
    warn_once,
)
from datamodules.filters import binarise, common_users, filter_counts
from datamodules.protocol import NOTHING_HELD_OUT, Evaluation, Filters, marked, marking, plugin_steps
from datamodules.public_lists import COMMON, OWN
from datamodules.splits import PAIR, Split, before_held_out, hold_out, ties_in_time
from datamodules.tables import merge_repeats, with_categories
from datamodules.times import in_seconds, units_of
from zoo.data.batch_types import Batch, PredictBatch, RankingBatch
from zoo.data.held_out_cases import EvaluationBatches, HeldOutCases, Made, entries
from zoo.data.ratings import Ratings, Step
from zoo.data.training_batches import Batches, Share, share_of, training_batches
from zoo.release.denoiser import Denoiser
from zoo.release.release import Release
from zoo.runtime import checks
from zoo.runtime.run_folder import CapturesInit, class_path
from zoo.runtime.settings_files import user_path, with_home


def _made(kind: type[Any], given: Any) -> Any:  # noqa: ANN401  settings
    """Return settings of a kind, also from a dictionary as in a config."""
    return kind(**given) if isinstance(given, Mapping) else given


class CrossDomainDataModule(CapturesInit, LightningDataModule):
    """One target domain, its evaluation protocol, and the releases of its sources.

    Both parties construct it; the constructor opens no file. ``setup`` reads the target and the releases. It reads a source only
    if the release is a mapping matrix, which needs each user's own row, and only if the source is available locally.
    :meth:`source` reads one source domain, for the party that owns it.

    Args:
        target: Domain to recommend in.
        sources: Domains to learn from, one release each.
        users: `own` (the users who pass this domain's filters, or all that the data set defines), `common` (those who pass every
            domain's filters; for research, needs all domains locally), or a CSV file with a column user_id that the parties
            agreed on beforehand. The list is public. Sources are limited to it, and so is a target without sources: each listed
            user has a row. A target with sources keeps all its users.
        missing_users: `error`, or `zero`: target users without a row in a release are left out of what reads it. Default: `zero`
            with an agreed list, else `error`.
        catalogues: By domain: a CSV file with a column item_id, the items that the domain may have, rated or not. The list is
            public; ratings of other items are dropped. For a source also a number: a public number of columns that its items
            are hashed to (`datamodules.public_lists`).
        filters: Which users, items and ratings count.
        evaluation: Held-out items and their ranking.
        batch_size: Examples in a training batch of one process.
        evaluation_batch_size: Users in an evaluation batch.
        top_k: Items per user that `predict` writes.
        seed: Seed of splits, candidates and batches; null: that of the run (`seed_everything`).
        releases: Folder of each source's release.
        trusted: Public keys (a PEM file or a folder of them); each release must be signed by one. Null: any release is read.
        denoiser: Removes the known noise from rows before a method reads them, at no privacy cost; null: rows stay as released.

    Examples:
        >>> import polars as pl
        >>> from datamodules import CrossDomainDataModule, Evaluation
        >>> class Shop(CrossDomainDataModule):
        ...     def read(self, domain):
        ...         rows = [(user, item) for n, user in enumerate("abc") for item in "wxyz"[n:] + "wxyz"[:n]]
        ...         return pl.DataFrame(rows, schema=["user_id", "item_id"], orient="row").with_columns(
        ...             rating=pl.lit(1.0), timestamp=pl.lit(None, pl.Int64)
        ...         )
        >>> data = Shop("books", sources=["films"], evaluation=Evaluation("latest2"))
        >>> data.read_target()
        >>> data.train.num_users, data.train.num_ratings, len(data.test.users)
        (3, 6, 3)
        >>> data.source("films").num_ratings  # what a publisher protects
        12
    """

    #: Terms of a public data set, for model cards; subclasses do not inherit them. Without terms no bundle is pushed.
    terms = ""
    # Set by `setup`.
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
        checks.instance(str, "'books'", target=target)
        filters, evaluation = _made(Filters, filters), _made(Evaluation, evaluation)
        checks.instance(Filters, "Filters(threshold=4)", filters=filters)
        checks.instance(Evaluation, "Evaluation('latest2')", evaluation=evaluation)
        check_sources(target, sources)
        checks.one_of(("error", "zero"), missing_users=missing_users)
        if min(sizes := (batch_size, evaluation_batch_size, top_k)) < 1:
            raise ValueError(f"Batch sizes and top_k are {', '.join(map(str, sizes))}. Allowed: >= 1.")
        self.target, self.sources, self.missing_users = target, tuple(sources), missing_users
        self.users = with_home(users)
        self.catalogues = {n: c if isinstance(c, int) else user_path(c) for n, c in (catalogues or {}).items()}
        self.filters, self.evaluation = filters, evaluation
        # Read by recommenders.
        self.ks, self.ties, self.signs = tuple(evaluation.ks), evaluation.ties, filters.signs
        self.average, self.full_ranking = evaluation.average, evaluation.full_ranking
        self.sampled_ranking = evaluation.num_candidates > 0
        self.batch_size, self.evaluation_batch_size, self.top_k = batch_size, evaluation_batch_size, top_k
        self.seed, self.denoiser = seed, None if denoiser is None else _made(Denoiser, denoiser)
        self.trusted = None if trusted is None else user_path(trusted)
        self.users_from_ratings = False  # whether this process derived the list of users from private ratings
        self.release_paths: dict[str, Path] = {name: user_path(path) for name, path in (releases or {}).items()}
        # By source, set by `setup`.
        self.releases: dict[str, Release] = {}
        self.own_rows: dict[str, Ratings] = {}  # rows of a source that releases a mapping matrix, if available locally
        self._release_digests: dict[str, str] = {}
        self._facts: dict[str, Facts] = {}  # of the domains that were read
        self.links: dict[str, Tensor] = {}  # row of each target user in the release, (num_users,), -1 for none
        self.summary: dict[str, Any] = {}  # counts for people
        check_domains("releases", self.release_paths, list(self.sources))
        check_domains("catalogues", self.catalogues, self._domains)
        public_lists.check_lists(users, self.catalogues, target, evaluation)

    def __init_subclass__(cls, **named: Any) -> None:  # noqa: ANN401  of other base classes
        """Mark what overrides of another package return; the mark is a condition of every record."""
        super().__init_subclass__(**named)
        for name in ("steps", "source"):
            own = getattr(cls, name)
            if own is not getattr(CrossDomainDataModule, name) and getattr(own, "marking", None) is not own:
                setattr(cls, name, marking(own))

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute; ratings that a class of another package sets, such as ``train``, are marked."""
        super().__setattr__(name, marked(self, value) if isinstance(value, Ratings) else value)

    # For data sets to override.

    @abstractmethod
    def read(self, domain: str) -> pl.DataFrame:
        """Return all interactions of one domain: user_id, item_id, rating, timestamp."""

    def read_held_out(self, domain: str) -> tuple[pl.DataFrame | None, pl.DataFrame] | None:
        """Return validation (maybe None) and test rows that ship with a domain, or None."""
        return None

    def read_negatives(self, domain: str) -> pl.DataFrame | None:
        """Return candidate lists that ship with a domain, or None."""
        return None

    def files(self, domain: str) -> list[Path] | None:
        """Return the files that a domain may be read from, existing or not; None if there are none or they are unknown."""
        return None

    def public_ids(self, domain: str) -> tuple[pl.Series, pl.Series] | None:
        """Return sorted ids of users and items if the data set itself defines them, rated or not; None: those in the ratings."""
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
        """Return the ratings of a source domain for its publisher.

        Items are held out of it only by ``hold_out_of_sources`` and ``earlier_sources`` of the protocol. A domain whose users
        and items are listed may have no rating: an error would reveal the last one.

        Raises:
            FileNotFoundError: If the domain is not available locally.
        """
        if name not in self.sources:
            raise ValueError(f"{name!r} is no source. The sources are {list(self.sources)}.")
        self.check_lists()
        steps = self.steps(name)
        report_large_files(self.files(name))
        listed = None if self.users_from_ratings else public_lists.agreed_users(self.users)
        shipped = self.public_ids(name) is not None
        on_lists = (shipped or self.users not in (OWN, COMMON)) and (shipped or name in self.catalogues)
        table, target = self._filtered(name, may_be_empty=on_lists), None
        if self._ships_no_held_out(name):
            steps = tuple(NOTHING_HELD_OUT if step == self.evaluation.source_step else step for step in steps)
        if self.evaluation.earlier_sources:
            with needing_all_domains("evaluation.earlier_sources"):
                target = self._split(self.target, self._filtered(self.target))
        users, items = self._ids(name, table)
        part = self.published_rows(name, table, target)
        return Ratings.from_table(part, users if listed is None else listed, items, steps)

    def published_rows(self, name: str, table: pl.DataFrame, target: Split | None) -> pl.DataFrame:
        """Return the filtered rows of a source that it publishes, by ``hold_out_of_sources`` and ``earlier_sources``."""
        evaluation = self.evaluation
        held_out = evaluation.hold_out_of_sources and evaluation.split != "cold_start"
        part = self._split(name, table).train if held_out and not self._ships_no_held_out(name) else table
        return before_held_out(part, target, name) if evaluation.earlier_sources and target is not None else part

    def _ships_no_held_out(self, name: str) -> bool:
        return self.evaluation.split == "given" and self.shipped_rows(name) is None

    def steps(self, name: str) -> tuple[Step, ...]:
        """Return the steps before a domain is published or learned from, by settings alone; `source` knows if none is held out."""
        last = self.evaluation.step if name == self.target else self.evaluation.source_step
        users, shipped = self.users if self.limited_to_list(name) else OWN, self.public_ids(name) is not None
        derived, catalogue = self._derived_users, self.catalogues.get(name)
        lists = public_lists.list_steps(users, derived=derived, catalogue=catalogue, shipped=shipped)
        return (*self.read_by_plugin, *plugin_steps(self.filters, self.evaluation), *self.filters.steps, *lists, last)

    def check_lists(self) -> None:
        """Refuse a list of users or items that is a file of ratings; `ValueError`. A run's own copy of the target needs none."""
        files = chain.from_iterable(self.files(domain) or () for domain in self._domains)
        public_lists.check_no_ratings(self.users, self.catalogues, files)

    @property
    def read_by_plugin(self) -> tuple[Step, ...]:
        """The step of reading if the class is of another package; a condition of records."""
        return plugin_steps(self)

    def common_users(self) -> list[str]:
        """Return the users who pass the threshold and the minimum count of every domain; needs all domains locally."""
        with needing_all_domains("users 'common'", " Or pass an agreed list: --data.users FILE."):
            tables = {name: self._binarised(name) for name in self._domains}
        return common_users(tables, self.filters.min_user_ratings)

    def _binarised(self, name: str, *, may_be_empty: bool = False) -> pl.DataFrame:
        with collected_facts() as facts:
            table = with_categories(self.read(name))
        if facts:
            self._facts[name] = facts[0]
            if facts[0].implausible and facts[0].unit != "unknown":
                warn_once(f"{name}: {facts[0].implausible}.")
        if self.read_by_plugin:  # the readers of this package merge, and return seconds
            table = merge_repeats(
                table.with_columns(in_seconds(table["timestamp"], (units_of(table["timestamp"]) or [""])[0]))
            )
        for part in self.shipped_rows(name) or ():
            if part is not None:  # filters count held-out rows, whether or not the domain's file repeats them
                table = pl.concat([table, part.join(table, on=PAIR, how="anti")])
        if counts := suspicious_counts(table, facts, self.filters):
            warn_once(suspicious_line(name, counts))
        return binarise(table, self.filters.threshold, self.filters.signs, may_be_empty=may_be_empty)

    @property
    def _derived_users(self) -> bool:
        """Whether the list of users is derived from ratings, in this process or an earlier one."""
        return self.users_from_ratings or public_lists.is_derived_list(self.users)

    def limited_to_list(self, name: str) -> bool:
        """Return whether a domain is limited to the list of users, if there is one; an agreed list does not limit the target."""
        return name != self.target or not self.sources or self.users in (OWN, COMMON) or self._derived_users

    @property
    def _missing_is_error(self) -> bool:
        default = "error" if self.limited_to_list(self.target) else "zero"
        return (self.missing_users or default) == "error"

    def _filtered(self, name: str, *, may_be_empty: bool = False) -> pl.DataFrame:
        filters = self.filters
        binarised = self._binarised(name, may_be_empty=may_be_empty)
        whole = public_lists.apply_catalogue(binarised, self.catalogues.get(name))
        least = filters.min_user_ratings, filters.min_item_ratings
        listed = public_lists.agreed_users(self.users) if self.limited_to_list(name) else None
        return filter_counts(whole, *least, listed, filters.iterated, may_be_empty=may_be_empty)

    def shipped_rows(self, name: str) -> tuple[pl.DataFrame | None, pl.DataFrame] | None:
        """Return validation (maybe None) and test rows that ship with a domain, if the split is `given`; else None."""
        shipped = self.read_held_out(name) if self.evaluation.split == "given" else None
        if shipped is None:
            return None
        validation, test = shipped
        return None if validation is None else with_categories(validation), with_categories(test)

    def _split(self, name: str, table: pl.DataFrame) -> Split:
        return hold_out(table, self.evaluation, self.split_seed, name, self.shipped_rows(name))

    def _ids(self, name: str, table: pl.DataFrame) -> tuple[pl.Series | list[str], pl.Series | list[str]]:
        """Return the users and items of a domain: of an agreed list, the data set or a catalogue, else of its ratings."""
        users, items = self.public_ids(name) or (table[column].unique().sort() for column in PAIR)
        listed = self.catalogues.get(name)
        agreed = None if self._derived_users or not self.limited_to_list(name) else self.users
        named = None if agreed is None else public_lists.agreed_users(agreed)
        return users if named is None else named, items if listed is None else public_lists.catalogue_ids(listed)

    # The target.

    def setup(self, stage: str) -> None:
        """Read the target and, if the method uses releases, the releases."""
        self.read_target()
        method = getattr(self.trainer, "lightning_module", None)
        if getattr(method, "accepted_releases", ()) and not self.releases:
            self.read_releases()

    def read_target(self) -> None:
        """Read the target, split it and draw candidates, once; the first part of `setup`.

        Raises:
            FileNotFoundError: If the target is not available locally.
        """
        if self.summary:
            return
        self.check_lists()
        applied = self.steps(self.target)
        users = self.users if self.users in (OWN, COMMON) else "a list"
        settings = cache_key_settings(vars(self), class_path(type(self)), users, self.split_seed)
        self.use_target(load_or_prepare(self._files(), settings, applied, lambda: self._prepare(applied)))

    def use_target(self, made: PreparedTarget) -> None:
        """Take a prepared target, such as that of a run folder, instead of reading the ratings."""
        self._prepared = made
        self.train, self.validation, self.test, _ = made
        self.summary = made.summary(self.target, self.evaluation, self.signs, self.split_seed)
        if not self.limited_to_list(self.target):
            self.summary["remarks"] += users_not_listed(self.train, public_lists.agreed_users(self.users) or ())

    def save_target(self, folder: Path) -> None:
        """Write the training ratings and held-out cases to a private folder, without candidates, for `use_target`."""
        self._prepared.without_candidates().save(folder)

    def _prepare(self, applied: tuple[Step, ...]) -> PreparedTarget:
        table = self._filtered(self.target)
        say, height = progress_reporter(table.height), table.height
        say(f"Holding out of {height:,} ratings ({self.evaluation.split}).")
        name, parts = self.evaluation.split, self._split(self.target, table)
        train = Ratings.from_table(parts.train, *self._ids(self.target, table), applied, self.evaluation.by_time)
        del table  # a large table takes more memory than all results
        ties = ties_in_time(parts) if self.evaluation.by_time else {}
        parts = parts._replace(train=parts.train.clear())
        negatives = self.read_negatives(self.target) if name == "given" else None
        say(f"Drawing the negatives of {parts.test.height:,} test and {parts.validation.height:,} validation cases.")
        if not (parts.test.height or name == "none") or not train.num_ratings:
            left = f"{train.num_ratings} training ratings and {parts.test.height} test cases of {height} ratings"
            raise ValueError(f"split {name!r} leaves {left} ({train.num_users} users). Change split or filters.")
        cases, facts = cases_and_facts(train, parts, self.evaluation, self.split_seed, negatives, self.signs, ties)
        return PreparedTarget(train, *cases, {**facts, "times": times_of(self._facts.get(self.target))})

    def _files(self) -> list[Path] | None:
        """Return all files that the target depends on; None if a class of another package may read unknown ones."""
        found = [self.files(domain) for domain in (self._domains if self.users == COMMON else [self.target])]
        if self.read_by_plugin or None in found:
            return None
        lists = [Path(self.users), *(path for path in self.catalogues.values() if isinstance(path, Path))]
        return [path for paths in found for path in paths or ()] + lists

    # Releases.

    def read_releases(self) -> None:
        """Read the releases and align their users with the target's; the second part of `setup`."""
        for name, release in load_releases(self.sources, self.release_paths, self.trusted):
            self.links[name] = links = self.link_users(name, release, str(self.release_paths[name]))
            self.releases[name] = made = release if self.denoiser is None else self.denoiser(release)
            if (made.record, made.ledger) != (release.record, release.ledger):  # a denoiser of another package
                self.releases[name] = replace(made, record=release.record, ledger=release.ledger)
            self._release_digests[name] = release.digest
            if release.layout.reads_own_rows:
                self._read_own_rows(name)
            sizes = {"users": release.num_users, "width": release.width, "overlap": int((links >= 0).sum())}
            self.summary["releases"][name] = {"kind": release.kind, **sizes, "denoised": self.denoiser is not None}

    def _read_own_rows(self, name: str) -> None:
        """Read a source whose release is a mapping matrix, if it is available locally: each user's own row is mapped."""
        try:
            self.own_rows[name] = self.source(name)
        except FileNotFoundError:
            remark = f"The ratings of {name!r} are not available here, so its users cannot be scored."
            self.summary["remarks"].append(remark)

    def link_users(self, name: str, release: Release, path: str) -> Tensor:
        """Return the row of each target user in a release, shape ``(num_users,)``, -1 for none; see `datamodules.alignment`."""
        return link_users(self.train.user_ids, name, release, path, missing_is_error=self._missing_is_error)

    def check_source_users(self, name: str, source: Ratings) -> None:
        """Refuse a source whose users do not match, before it is published; needs all domains locally."""
        what, own = f"The source {name!r}", self.train.user_ids
        aligned_rows(own, source.user_ids, what, missing_is_error=self._missing_is_error)
        if alike := numbered_alike(self.train.item_ids.tolist(), source.item_ids.tolist()):
            warn_once(same_numbers(self.target, name, alike))

    # For recommenders.

    @property
    def sizes(self) -> dict[str, Any]:
        """Sizes that networks are built from."""
        sources = {name: release.sizes for name, release in self.releases.items()}
        return {"num_users": self.train.num_users, "num_items": self.train.num_items, "sources": sources}

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of the target's training ratings, held-out pairs and left-out items, and of each release and its denoiser.

        They identify the data of a checkpoint. Signs do not count, since they may be secret; their pairs do. Candidate lists do
        not count: a checkpoint may be tested with others.
        """
        own = hashlib.sha256(self.train.digest(values=not self.signs).encode())
        cases, validated = self.test, self.validation
        for tensor in (cases.users, cases.items, validated.users, validated.items, cases.left_out):
            own.update(tensor.numpy().tobytes())
        denoised = "" if self.denoiser is None else f", {self.denoiser}"
        return {self.target: own.hexdigest()} | {name: d + denoised for name, d in self._release_digests.items()}

    # Batches.

    def train_dataloader(self) -> Batches[Batch]:
        """Return training batches in the form that the method uses."""
        trainer: Any = self.trainer
        return training_batches(
            self.train,
            trainer.lightning_module,
            self.batch_size,
            self.split_seed,
            lambda: trainer.current_epoch,
            share_of(trainer),
            shuffle=not trainer.overfit_batches,
            device=trainer.strategy.root_device,
        )

    def val_dataloader(self) -> EvaluationBatches[RankingBatch] | list[Any]:
        """Return batches of validation cases; an empty list if the protocol has none."""
        return self._in_batches(len(self.validation.users), self.validation.batch) if len(self.validation.users) else []

    def test_dataloader(self) -> EvaluationBatches[RankingBatch] | list[Any]:
        """Return batches of test cases."""
        return self._in_batches(len(self.test.users), self.test.batch) if len(self.test.users) else []

    def predict_dataloader(self) -> EvaluationBatches[PredictBatch]:
        """Return batches of all users, with every item they have."""
        make = lambda users: PredictBatch(users, *entries(self.test.seen, users))  # noqa: E731
        return self._in_batches(self.train.num_users, make)

    def _in_batches(self, size: int, make: Callable[[Tensor], Made]) -> EvaluationBatches[Made]:
        share = share_of(self.trainer) if self.trainer else Share()
        return EvaluationBatches(size, self.evaluation_batch_size, make, share)
