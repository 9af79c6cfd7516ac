"""What publishing would cost, before any data are opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from zoo.commands.privacy.experiment import Experiment
from zoo.commands.privacy.show import guaranteed
from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.accounting.gaussian_mixture import paper_w
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.record.record import Guarantee, PrivacyRecord, rounded_up
from zoo.privacy.rows.projection import plan_projection

#: Where nobody says how many users there are, a delta is planned that is good for this many.
USERS = 10_000


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
        record = experiment.publisher.forecast(num_users, num_items)
        made.append(Planned(source, record, tuple(experiment.publisher.plan(num_users, num_items))))
    return made


def total(releases: Sequence[Planned]) -> tuple[float, float] | None:
    """Epsilon and delta of all releases together; None where one guarantees nothing or they protect different things.

    A rating lies in one domain, so for ratings the largest release is the total. A user may be in every domain, so for
    users the releases compose.
    """
    records = [release.record for release in releases]
    if any(record.guarantee is Guarantee.NONE for record in records) or len({r.relation for r in records}) > 1:
        return None
    delta = max(float(record.delta or 0) for record in records)
    relation = records[0].relation
    if records[0].unit is not Unit.USER:
        return max(epsilon_of(release.events, delta, relation) for release in releases), delta
    return epsilon_of([event for release in releases for event in release.events], delta, relation), delta


#: What the table says of a guarantee, in the words of `guaranteed`, between the mechanism and whether it is proved.
FACTS = ("unit", "neighbours", "sensitivity", "noise scale", "uses of the data", "epsilon", "delta")


def _cells(record: PrivacyRecord) -> list[str]:
    """What a release's column says, line by line."""
    said = guaranteed(record)
    facts = [said.get(name, "-") for name in FACTS]
    return [record.mechanism, *facts, "proved" if said else f"none ({record.reason})"]


def plan_table(releases: Sequence[Planned], num_users: str) -> Table:
    """What each release will guarantee, and at which noise."""
    table = Table(title="Planned releases; no data were opened")
    table.add_column("")
    for release in releases:
        table.add_column(escape(release.source), overflow="fold")
    columns = [("mechanism", *FACTS, "guarantee"), *(_cells(release.record) for release in releases)]
    for name, *cells in zip(*columns, strict=True):
        table.add_row(name, *map(escape, cells))
    spent = total(releases)
    together = f"Together: epsilon {rounded_up(spent[0])} at delta {spent[1]:.3g}. " if spent else ""
    table.caption = f"{together}Planned for {num_users}."
    return table


def paper_table(record: PrivacyRecord) -> Table | None:
    """The same epsilon in PriCDR's own calibration: its noise, and what that noise really gives; None for others."""
    dim, epsilon, delta = record.public_inputs.get("num_components"), record.epsilon, record.delta
    one_rating = record.relation is Relation.CHANGE_ONE_RATING
    if not isinstance(dim, int) or epsilon is None or delta is None or not one_rating:
        return None
    table = Table(title="The same epsilon in the calibration that the paper prints")
    for column in ("calibration", "w", "epsilon that it really gives"):
        table.add_column(column, justify="left" if column == "calibration" else "right")
    own = float(record.public_inputs["w"])
    asked = record.requested_epsilon or epsilon
    really = plan_projection(epsilon=asked, delta=delta, dim=dim, calibration="paper")
    table.add_row("here", f"{own:.6g}", rounded_up(epsilon))
    table.add_row("the paper's", f"{paper_w(dim, asked, delta):.6g}", rounded_up(really.epsilon))
    return table
