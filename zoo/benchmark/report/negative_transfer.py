"""Negative transfer: what falls below its target alone (soft), and what falls as sources are added (hard).

Reference: Yang et al., *Federated Graph Learning for Cross-Domain Recommendation* (FedGCDR), NeurIPS 2024, section 4.2. Departures:
the paper compares means, and here each difference is tested, too, as one may be lower by chance; with more sources a row is held
against every smaller number of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, NamedTuple, get_args

from zoo.benchmark.report.gains import Gain, corrected, paired_tests
from zoo.benchmark.report.results import RANKINGS, Line, Results, ResultsError

Kind = Literal["soft", "hard"]
#: What the paper draws.
DRAWN = ("hit_rate@5", "ndcg@5", "hit_rate@10", "ndcg@10")


@dataclass(frozen=True)
class Transfer:
    """A row with its sources less the same with fewer of them, or less its target alone."""

    series: str  # title
    kind: Kind  # what it is if the row is the lower one
    domains: int  # how many there are, the target among them
    fewer: int | None  # domains of the same row with fewer sources; None where it is held against the target alone
    other: Line
    gain: Gain  # corrected for all rows of the series, of one kind and figure

    @property
    def negative(self) -> bool:
        """Whether the row is lower, as the paper defines it."""
        return self.gain.users.difference < 0

    @property
    def said(self) -> str:
        """`soft`, `hard` or `-`, and where the users do not tell it from none, that."""
        if not self.negative:
            return "-"
        return self.kind if self.gain.users_holm < 0.05 else f"{self.kind}, within chance"


def transfers(results: Results) -> list[Transfer]:
    """Every comparison of every series, in each figure that the paper draws."""
    found: list[Transfer] = []
    for title in results.benchmark.get("series", {}):
        pairs = list(_pairs(results, title))
        for pair in pairs:
            _check_same_cases(title, pair.line, pair.other)
        for ranking, measure in product(RANKINGS, DRAWN):
            found += _corrected(list(_family(results, title, pairs, ranking, measure)))
    return found


def tasks_of(results: Results, title: str) -> dict[int, str]:
    """The tasks of a series by how many domains they have, the fewest first."""
    return dict(sorted((int(domains), task) for domains, task in results.benchmark["series"][title].items()))


class _Pair(NamedTuple):
    """What is held against what."""

    kind: Kind
    domains: int
    line: Line
    fewer: int | None
    other: Line


def _corrected(family: Sequence[Transfer]) -> list[Transfer]:
    """Soft and hard apart: they are two questions."""
    made: list[Transfer] = []
    for kind in get_args(Kind):
        own = [found for found in family if found.kind == kind]
        gains = corrected([found.gain for found in own])
        made += [replace(found, gain=gain) for found, gain in zip(own, gains, strict=True)]
    return made


def _family(results: Results, title: str, pairs: Sequence[_Pair], ranking: str, measure: str) -> Iterator[Transfer]:
    for kind, domains, line, fewer, other in pairs:
        if not (line.has(ranking, measure) and other.has(ranking, measure)):
            continue
        if tested := paired_tests(results, line, other, f"{ranking}/{measure}"):
            against = other.name if fewer is None else f"{fewer} domains"
            gain = Gain(line.row.task, line, against, ranking, measure, *tested)
            yield Transfer(title, kind, domains, fewer, other, gain)


def _pairs(results: Results, title: str) -> Iterator[_Pair]:
    """Rows of systems that name a `single`, controls left out."""
    tables = {domains: results.lines.get(task, []) for domains, task in tasks_of(results, title).items()}
    for domains, lines in tables.items():
        for line in lines:
            single = results.benchmark["systems"][line.row.system].get("single")
            if not single or not line.row.release or line.row.control:
                continue
            everywhere = [lines, *tables.values()]
            alone = next((other for table in everywhere for other in table if other.name == single), None)
            if alone is not None:
                yield _Pair("soft", domains, line, None, alone)
            for fewer in (count for count in tables if count < domains):
                same = (other for other in tables[fewer] if other.name == line.name)
                yield from (_Pair("hard", domains, line, fewer, other) for other in same)


def _check_same_cases(title: str, line: Line, other: Line) -> None:
    """Refuse rows that were tested on others' items under the same seed."""
    key = ["seed", "user_id", "item_id"]
    ours, theirs = (some.cases.select(key) for some in (line, other))
    mine, others = ours.join(theirs, on="seed", how="semi"), theirs.join(ours, on="seed", how="semi")
    if mine.join(others, on=key, how="anti").height or others.join(mine, on=key, how="anti").height:
        raise ResultsError(
            f"In the series {title!r}, {line.name} on {line.row.task!r} and {other.name} on {other.row.task!r} were tested on "
            "different cases. Tasks of a series may differ in their sources alone: give them one target, split and filters."
        )
