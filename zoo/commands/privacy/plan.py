"""Planned privacy loss of the releases of an experiment, without opening data."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Protocol

from jsonargparse import Namespace
from pytorch_lightning.cli import LightningArgumentParser
from rich.markup import escape
from rich.table import Column, Table

from datamodules import CrossDomainDataModule
from datamodules.public_lists import COMMON, OWN, read_catalogue, read_users
from zoo.commands.privacy.show import guaranteed
from zoo.data.ratings import Step
from zoo.methods.base import Recommender, is_private
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.jlt import JLT
from zoo.privacy.record.record import PrivacyRecord, rounded_up, shown_delta
from zoo.privacy.record.shared_projection import mean_seeds
from zoo.privacy.record.words import CHOSEN_BY_METRICS
from zoo.privacy.spending.total import Account, Total, total_of
from zoo.publishers.base import Publisher
from zoo.runs.cli import ZooCLI, import_names
from zoo.runs.inputs import UsageError, instantiate, make_publisher
from zoo.runtime import builtin_configs, checks
from zoo.runtime.run_folder import visible

#: Numbers of users and items for which delta is planned if they are not given.
USERS, ITEMS = 10_000, 1_000


class _Parsed(ZooCLI):
    """The parser of every command, which instantiates nothing."""

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:  # noqa: ANN401  LightningCLI's own
        """Parse the given arguments instead of the command line."""
        self.config = parser.parse_args(args)

    def instantiate_classes(self) -> None:
        """Do nothing."""


class Maker(Protocol):
    """A method whose training on its target has a privacy claim, such as `OneBitMC`, `SPPG` and `FedGNN`."""

    def forecast(self, num_users: int, num_items: int, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """Return the record of its training, from public settings."""

    def events(self, num_users: int) -> list[PrivacyEvent]:
        """Return the privacy events of its training."""


@dataclass(frozen=True)
class Experiment:
    """Settings of an experiment for planning."""

    maker: Publisher | Maker  # publisher, or method that protects its target
    sources: tuple[str, ...]  # domains with a release; the target for a method
    users: int | None  # number of listed users, if there is a list; it does not limit a target with sources
    items: dict[str, int]  # number of items of each catalogue
    applied: dict[str, tuple[Step, ...]]  # steps before publishing, by source
    validated: bool = False  # whether validation chooses the epoch of a private training
    rounds: tuple[str, Maker] | None = None  # the target and its private method, if there is a publisher, too
    unlisted: str | None = None  # the target, if its private method has sources

    @property
    def makers(self) -> list[tuple[str, Publisher | Maker]]:
        """The publisher or method of each planned release, with its domain."""
        published = [(source, self.maker) for source in self.sources or ("source",)]
        return published + ([self.rounds] if self.rounds is not None else [])


def read_settings(config: Path, overrides: Sequence[str]) -> Namespace:
    """Return the settings of an experiment with overrides such as ``--publisher.epsilon 4``."""
    if not config.is_file():
        raise FileNotFoundError(builtin_configs.not_found_message(config))
    import_names()
    settings = _Parsed(args=["--config", str(config), *overrides], run=False, seed_everything_default=False).settings()
    if settings.get("data") is None:
        raise UsageError(f"{config} has no section `data`. Add one with the source domains.")
    return settings


def read_experiment(config: Path, overrides: Sequence[str]) -> Experiment:
    """Read an experiment with overrides such as ``--publisher.epsilon 4``.

    Lists of users and catalogues are public and are counted; no rating is read. An experiment without a publisher, or a method
    with its own privacy claim, is refused.
    """
    parsed = read_settings(config, overrides)
    data = parsed.data
    settings = data.init_args
    listed = settings.get("users", OWN)
    users = None if listed in (OWN, COMMON) else len(read_users(Path(listed)))
    catalogues = settings.get("catalogues") or {}
    items = {name: c if isinstance(c, int) else len(read_catalogue(Path(c))) for name, c in catalogues.items()}
    maker, trained = _makers(parsed)
    module = instantiate("data", CrossDomainDataModule, data)
    module.check_lists()
    module.users_from_ratings = module.users == COMMON  # as fit would
    if trained is not None:
        trained.check_signs(module.signs)  # values that are not signs would reveal which items were rated
    validated = trained is not None and bool(trained.guarantee_bearing) and module.evaluation.has_validation
    validated &= parsed.get("trainer.limit_val_batches") != 0
    sources = module.sources if isinstance(maker, Publisher) else (module.target,)
    rounds = (module.target, trained) if trained is not None and trained is not maker else None
    steps = {name: module.steps(name) for name in (*sources, module.target)}
    unlisted = module.target if trained is not None and module.sources else None
    return Experiment(maker, tuple(sources), users, items, steps, validated, rounds, unlisted)


def _makers(settings: Namespace) -> tuple[Publisher | Maker, Any]:
    """Return the publisher, or without one a method that can claim something for its target; and a method that is private."""
    publisher, model = settings.get("publisher"), settings.get("model")
    method: Any = None
    if model is not None and (publisher is None or hasattr(resolve_name(model.class_path), "forecast")):
        method = instantiate("model", Recommender, model)
    claiming = hasattr(method, "forecast")
    if publisher is None and claiming:
        return method, method
    return make_publisher(publisher), method if claiming and is_private(method) else None


@dataclass(frozen=True)
class Planned:
    """Planned release of a source: domain, record and ledger."""

    source: str
    record: PrivacyRecord
    events: tuple[PrivacyEvent, ...]
    sizes: tuple[int, int] = (USERS, ITEMS)  # numbers of users and items that it was planned for


def planned_releases(experiment: Experiment, users: int | None, items: int | None) -> list[Planned]:
    """Return the planned release of each source; None: sizes of listed files, else :data:`USERS` and :data:`ITEMS`."""
    planned = []
    for source, maker in experiment.makers:
        listed = None if source == experiment.unlisted else experiment.users
        num_users, num_items = users or listed or USERS, items or experiment.items.get(source, ITEMS)
        record = maker.forecast(num_users, num_items, experiment.applied.get(source, ())).claimed_by(type(maker))
        chosen = experiment.validated and not isinstance(maker, Publisher)
        record = record.assuming(CHOSEN_BY_METRICS) if chosen else record
        events = maker.plan(num_users, num_items) if isinstance(maker, Publisher) else maker.events(num_users)
        planned.append(Planned(source, record, tuple(events), (num_users, num_items)))
    return planned


def notes_of(releases: Sequence[Planned]) -> list[str]:
    """Return the conditions, assumptions and limits of the releases, each once."""
    parts = (("condition", "conditions"), ("assumption", "assumptions"), ("not protected", "not_protected"))
    notes = [f"{name}: {text}" for name, field in parts for one in releases for text in one.record.sentences(field)]
    return list(dict.fromkeys(notes))


def total(releases: Sequence[Planned], repeat: int = 1) -> Total:
    """Return the total of all releases if each is published ``repeat`` times; each plan has checked its delta already.

    Repeated releases of one source are of the same users' data, in any version, so their ledgers compose (`total_of`): steps on
    samples by privacy loss distributions, Gaussian releases exactly. Each has fresh noise.

    Raises:
        ValueError: ``repeat`` is below 1.
    """
    checks.at_least_one(repeat=repeat)
    names = [f"{one.source}{f' ({time + 1})' * (repeat > 1)}" for one in releases for time in range(repeat)]
    planned = [one for one in releases for _ in range(repeat)]
    return total_of(
        Account(name, one.source, 0, _drawn_anew(one.record), one.events)
        for name, one in zip(names, planned, strict=True)
    )


def _drawn_anew(record: PrivacyRecord) -> PrivacyRecord:
    """Return a planned record with a projection of its own, if its guarantee is a mean over projections."""
    if not record.claims or not mean_seeds(record):
        return record
    mechanism: Any = record.mechanism
    return replace(record, mechanism=replace(mechanism, seed=secrets.randbits(62)))


def repeat_table(releases: Sequence[Planned], repeat: int, shown: Sequence[int] = (1, 2, 4, 12, 26, 52)) -> Table:
    """Return the total privacy loss after some of ``repeat`` releases of the same data, as a table."""
    numbers = (Column(name, justify="right") for name in ("releases", "epsilon", "delta"))
    table = Table(*numbers, title="Repeated releases of the same data, each with fresh noise")
    for times in sorted({time for time in shown if time < repeat} | {repeat}):
        spent = total(releases, times)
        if spent.epsilon is None or spent.delta is None:
            table.add_row(str(times), "no total", escape(visible(spent.reason or "")))
        else:
            table.add_row(str(times), spent.shown, shown_delta(spent.delta))
    return table


#: Rows of the table from `guaranteed`.
FACTS = ("unit", "neighbours", "sensitivity", "noise scale", "uses of the data", "epsilon", "delta")


def plan_table(releases: Sequence[Planned], num_users: str) -> Table:
    """Return guarantee and noise of each planned release as a table."""
    sources = (Column(escape(visible(release.source)), overflow="fold") for release in releases)
    table = Table("", *sources, title="Planned releases; no data were opened")
    guarantees = [guaranteed(release.record) for release in releases]
    table.add_row("mechanism", *(escape(release.record.mechanism.name) for release in releases))
    for name in FACTS:
        table.add_row(name, *(escape(facts.get(name, "-")) for facts in guarantees))
    table.add_row("guarantee", *(escape(release.record.standing) for release in releases))
    spent = total(releases)
    if spent.epsilon is None or spent.delta is None:
        together = f"No total: {escape(visible(spent.reason or ''))}."
    else:
        condition = ", under the conditions of each" if spent.conditions else ""
        together = f"Total: epsilon {spent.shown} at delta {shown_delta(spent.delta)}{condition}."
    table.caption = f"{together} Planned for {num_users}."
    table.caption_justify = "left"
    return table


def paper_table(record: PrivacyRecord) -> Table | None:
    """Compare the noise with PriCDR's published calibration for the same epsilon; None for other mechanisms.

    SJLT is one: its published form has no epsilon.
    """
    mechanism, epsilon, delta = record.mechanism, record.epsilon, record.delta
    one_rating = record.relation is Relation.CHANGE_ONE_RATING
    if type(mechanism) is not JLT or epsilon is None or delta is None or not one_rating:
        return None
    numbers = (Column(name, justify="right") for name in ("w", "actual epsilon"))
    table = Table("calibration", *numbers, title="Calibration of the paper for the same epsilon")
    paper = JLT.calibrate(
        epsilon=record.requested_epsilon or epsilon,
        delta=delta,
        dim=mechanism.dim,
        calibration="paper",
        rating_range=mechanism.sensitivity,
    )
    table.add_row("here", f"{mechanism.w:.6g}", rounded_up(epsilon))
    table.add_row("paper", f"{paper.w:.6g}", rounded_up(paper.epsilon))
    return table
