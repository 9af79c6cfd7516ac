"""What an experiment's file says of publishing, and what that would cost; opens no data."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from jsonargparse import ArgumentParser, Namespace
from pytorch_lightning.cli import LightningArgumentParser
from rich.markup import escape
from rich.table import Column, Table

from datamodules import CrossDomainDataModule
from datamodules.public_lists import COMMON, OWN, read_catalogue, read_users
from zoo.commands.privacy.show import guaranteed
from zoo.data.ratings import Step
from zoo.methods.base import Recommender
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.accounting.gaussian_mixture import paper_w
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.jlt import JLT
from zoo.privacy.record.record import PrivacyRecord, rounded_up, shown_delta
from zoo.privacy.spending.total import Account, Total, total_of
from zoo.publishers.base import Publisher
from zoo.runs.cli import ZooCLI, import_names
from zoo.runs.inputs import UsageError, make_publisher
from zoo.runtime import builtin_configs
from zoo.runtime.run_folder import visible

#: Where nobody says how many users there are, a delta is planned that is good for this many.
USERS = 10_000


class _Parsed(ZooCLI):
    """The parser of every command, and nothing made of what it reads."""

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:  # noqa: ANN401  LightningCLI's own
        """Parse what is given, whatever stands on the command line."""
        self.config = parser.parse_args(args)

    def instantiate_classes(self) -> None:
        """Nothing: the publisher is made when it is asked for."""


class Maker(Protocol):
    """A method whose training on its target makes a claim, such as `OneBitMC`, `SPPG` and `FedGNN`; opens no data for this."""

    def forecast(self, num_users: int, num_items: int, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """The record that its training would have, from public settings."""

    def events(self, num_users: int) -> list[PrivacyEvent]:
        """What its training would spend."""


@dataclass(frozen=True)
class Experiment:
    """What planning needs of an experiment."""

    maker: Publisher | Maker  # the publisher, or the method that protects its own target
    sources: tuple[str, ...]  # each gets a release of its own; the target, where the method itself makes the claim
    users: int | None  # number of users on the list that the file names, if it names one
    items: dict[str, int]  # number of items of each source's catalogue, where the file names one
    applied: dict[str, tuple[Step, ...]]  # what is done to each source's ratings before, by its datamodule's settings


def read_settings(config: Path, overrides: Sequence[str]) -> Namespace:
    """The settings of an experiment's file, with overrides such as ``--publisher.epsilon 4``; refused if it names no data."""
    if not config.is_file():
        raise FileNotFoundError(builtin_configs.missing(config))
    import_names()
    settings = _Parsed(args=["--config", str(config), *overrides], run=False, seed_everything_default=False).settings()
    if settings.get("data") is None:
        raise UsageError(f"{config} has no section `data`, so it names no source domain.")
    return settings


def made(kind: type[Any], given: Namespace) -> Any:  # noqa: ANN401  whatever class is named
    """An object of a section of the settings, as it is made by `make_publisher`."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(kind, "made")
    return parser.instantiate(parser.parse_object({"made": given})).made


def read_experiment(config: Path, overrides: Sequence[str]) -> Experiment:
    """Read an experiment's file as every command does, with overrides such as ``--publisher.epsilon 4``.

    Lists of users and catalogues are public and are counted; no rating is read. A file that names neither a publisher nor a
    method that claims something itself is refused.
    """
    parsed = read_settings(config, overrides)
    data = parsed.data
    settings = data.init_args
    listed = settings.get("users", OWN)
    users = None if listed in (OWN, COMMON) else len(read_users(Path(listed)))
    catalogues = settings.get("catalogues") or {}
    items = {  # of a catalogue by number there are so many columns
        name: given if isinstance(given, int) else len(read_catalogue(Path(given)))
        for name, given in catalogues.items()
    }
    maker = _maker(parsed)
    module = made(CrossDomainDataModule, data)
    module.users_from_ratings = module.users == COMMON  # as fit would
    if isinstance(maker, Recommender):
        maker.check_signs(module.signs)  # without signs a rating's value would say who has rated what
    sources = module.sources if isinstance(maker, Publisher) else (module.target,)
    return Experiment(maker, tuple(sources), users, items, {name: module.steps(name) for name in sources})


def _maker(settings: Namespace) -> Publisher | Maker:
    """The publisher; where none is named, the method, if it protects the data that it is trained on."""
    if settings.get("publisher") is None and settings.get("model") is not None:
        method = made(Recommender, settings.model)
        if hasattr(method, "forecast"):
            maker: Maker = method
            return maker
    return make_publisher(settings.get("publisher"))


@dataclass(frozen=True)
class Planned:
    """The release of one source as it will be: domain, record and ledger."""

    source: str
    record: PrivacyRecord
    events: tuple[PrivacyEvent, ...]


def planned_releases(experiment: Experiment, users: int | None, items: int | None) -> list[Planned]:
    """Each source's release, from public numbers of users and items.

    Where a number is None, that of the list that the file names is taken, else :data:`USERS` and 1,000 items.
    """
    num_users = users or experiment.users or USERS
    made = []
    for source in experiment.sources or ("source",):
        num_items = items or experiment.items.get(source, 1000)
        maker = experiment.maker
        record = maker.forecast(num_users, num_items, experiment.applied.get(source, ())).claimed_by(type(maker))
        events = maker.plan(num_users, num_items) if isinstance(maker, Publisher) else maker.events(num_users)
        made.append(Planned(source, record, tuple(events)))
    return made


def words(releases: Sequence[Planned]) -> list[str]:
    """What must be known beside an epsilon, each once: conditions, assumptions, and what is not protected."""
    parts = (("holds if", "conditions"), ("assumed", "assumptions"), ("not protected", "not_protected"))
    said = [f"{name}: {text}" for name, field in parts for one in releases for text in one.record.sentences(field)]
    return list(dict.fromkeys(said))


def total(releases: Sequence[Planned]) -> Total:
    """What all releases will cost together, if each is published once. Each plan has held its delta against the users."""
    return total_of(Account(one.source, one.source, 0, one.record, one.events) for one in releases)


#: What the table says of a guarantee, in the words of `guaranteed`, between the mechanism and whether it is proved.
FACTS = ("unit", "neighbours", "sensitivity", "noise scale", "uses of the data", "epsilon", "delta")


def plan_table(releases: Sequence[Planned], num_users: str) -> Table:
    """What each release will guarantee, and at which noise."""
    sources = (Column(escape(visible(release.source)), overflow="fold") for release in releases)
    table = Table("", *sources, title="Planned releases; no data were opened")
    said = [guaranteed(release.record) for release in releases]
    table.add_row("mechanism", *(escape(release.record.mechanism.name) for release in releases))
    for name in FACTS:
        table.add_row(name, *(escape(facts.get(name, "-")) for facts in said))
    table.add_row("guarantee", *(escape(release.record.standing) for release in releases))
    spent = total(releases)
    if spent.epsilon is None or spent.delta is None:
        together = f"No total: {escape(visible(spent.reason or ''))}."
    else:
        if_so = ", under the conditions of each" if spent.conditions else ""
        together = f"Together: epsilon {rounded_up(spent.epsilon)} at delta {shown_delta(spent.delta)}{if_so}."
    table.caption = f"{together} Planned for {num_users}."
    table.caption_justify = "left"
    return table


def paper_table(record: PrivacyRecord) -> Table | None:
    """The same epsilon in PriCDR's own calibration: its noise, and what that noise really gives; None for others."""
    mechanism, epsilon, delta = record.mechanism, record.epsilon, record.delta
    one_rating = record.relation is Relation.CHANGE_ONE_RATING
    if not isinstance(mechanism, JLT) or epsilon is None or delta is None or not one_rating:
        return None
    numbers = (Column(name, justify="right") for name in ("w", "epsilon that it really gives"))
    table = Table("calibration", *numbers, title="The same epsilon in the calibration that the paper prints")
    asked, dim = record.requested_epsilon or epsilon, mechanism.dim
    really = JLT.calibrate(epsilon=asked, delta=delta, dim=dim, calibration="paper")
    table.add_row("here", f"{mechanism.w:.6g}", rounded_up(epsilon))
    table.add_row("the paper's", f"{paper_w(dim, asked, delta):.6g}", rounded_up(really.epsilon))
    return table
