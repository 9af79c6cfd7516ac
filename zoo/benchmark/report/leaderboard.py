"""Leaderboards: every row of a task in one table, whatever it guarantees, best first; and any two of the best, tested."""

import math
from collections.abc import Sequence
from itertools import combinations

from zoo.benchmark.report.gains import paired_tests
from zoo.benchmark.report.results import DECIDING, LIST_MEASURES, MEASURES, RANKINGS, Line, Results, or_least
from zoo.benchmark.report.significance import holm
from zoo.benchmark.report.tables import Table, metric, p_value, signed, under
from zoo.privacy.record.record import rounded_up
from zoo.runtime.suggestions import count_of

#: So many of the best rows are held against each other, two by two.
BEST = 10


def leaderboards(results: Results, task: str, ranking: str) -> list[Table]:
    """What is compared, what is told of its lists, and the controls, folded away; nothing where nobody ranked so."""
    lines = results.ranked(task, ranking)
    compared, controls = ([line for line in lines if bool(line.row.control) is control] for control in (False, True))
    made = []
    if compared:
        made = [_figures("", compared, ranking), *_lists(compared, ranking)]
    if controls:
        made.append(_figures(f"Controls ({count_of(len(controls), 'row')})", controls, ranking, folded=bool(compared)))
    return made


def _figures(title: str, lines: Sequence[Line], ranking: str, *, folded: bool = False) -> Table:
    measures = [m for m in MEASURES if any(line.has(ranking, m) for line in lines)]
    cells = _cells(lines, ranking, measures, bold=not folded)
    rows = [[*_head(line), *own, str(len(line.runs))] for line, own in zip(lines, cells, strict=True)]
    counted = "† ranks some users by item counts, because its scores mean nothing for them."
    notes = [*([counted] if any(line.counted for line in lines) else []), *under(lines)]
    columns = ["row", "guarantee", "epsilon", *map(metric, measures), "seeds"]
    return Table(title, columns, rows, notes, words=2, folded=folded)


def _lists(lines: Sequence[Line], ranking: str) -> list[Table]:
    """Recall, precision, MAP, coverage and novelty, where runs or their cases have any of them."""
    measures = [m for m in LIST_MEASURES if any(not math.isnan(line.mean(ranking, m)) for line in lines)]
    if ranking != "full" or not measures:
        return []
    rows = [[*_head(line), *cells] for line, cells in zip(lines, _cells(lines, ranking, measures), strict=True)]
    note = (
        "Of the first K of each user's list, without what is known of the user otherwise. Recall: the share of the held-out items "
        "that stand there; precision: the share of the K that they are; MAP: the mean precision at the places of those found, over "
        "the most that can be found. Of one held-out item each these are HR, HR/K and MRR. Coverage: the share of all items that "
        "stand in some list; novelty: the mean of log2(users / users who have the item), in bits; neither has a best. A dash: the "
        "run did not measure it, or is of an earlier version."
    )
    columns = ["row", "guarantee", "epsilon", *map(metric, measures)]
    return [Table("What the lists hold", columns, rows, [note], words=2)]


def _head(line: Line) -> list[str]:
    """Name, guarantee and epsilon."""
    said = str(line.guarantee) if line.guarantee else line.standing
    epsilon = "-" if line.epsilon is None else rounded_up(line.epsilon) + (" ‡" if line.conditions else "")
    return [line.name + (" †" if line.counted else ""), said, epsilon]


def _cells(lines: Sequence[Line], ranking: str, measures: Sequence[str], *, bold: bool = True) -> list[list[str]]:
    """Mean and sd of each figure of each row, the best mean of a column bold; novelty and coverage have no best."""
    means = [[line.mean(ranking, m) for m in measures] for line in lines]
    best = [
        math.nan if not bold or m.startswith(("coverage", "novelty")) else max(or_least(row[i]) for row in means)
        for i, m in enumerate(measures)
    ]
    return [
        [_cell(mean, line.sd(ranking, m), mean == top) for mean, m, top in zip(own, measures, best, strict=True)]
        for line, own in zip(lines, means, strict=True)
    ]


def _cell(mean: float, sd: float, is_best: bool) -> str:
    if math.isnan(mean):
        return "-"
    text = f"**{mean:.4f}**" if is_best else f"{mean:.4f}"
    return text if math.isnan(sd) else f"{text} ±{sd:.4f}"


def pair_table(results: Results, task: str, ranking: str) -> Table | None:
    """NDCG@10 of each of the best rows less that of each below it, paired over users; None where there are not two."""
    lines = [line for line in results.ranked(task, ranking) if not line.row.control][:BEST]
    name = f"{ranking}/{DECIDING}"
    pairs = {(i, j): paired_tests(results, lines[i], lines[j], name) for i, j in combinations(range(len(lines)), 2)}
    tested = {pair: found[0] for pair, found in pairs.items() if found}
    if not tested:
        return None
    corrected = dict(zip(tested, holm([comparison.p_value for comparison in tested.values()]), strict=True))
    others = range(1, len(lines))
    shown = {pair: _difference(tested[pair].difference, corrected[pair]) for pair in tested}
    rows = [[f"{i + 1}. {line.name}", *(shown.get((i, j), "") for j in others)] for i, line in enumerate(lines)]
    note = (
        f"Mean {metric(DECIDING)} of a row less that of one further down, by its number; in brackets the two-sided p-value of a "
        "paired t-test over users (each averaged over its seeds), after Holm's correction for all pairs of this table; bold below "
        f"0.05. At most the best {BEST} rows; --baseline NAME holds every row against any one."
    )
    title = f"Any two, {metric(DECIDING)}, {RANKINGS[ranking]}"
    columns = ["row", *(f"less {other + 1}." for other in others)]
    return Table(title, columns, rows, [note], folded=not results.folders)  # a benchmark says what it compares


def _difference(difference: float, p: float) -> str:
    text = signed(difference)
    return f"{f'**{text}**' if p < 0.05 else text} ({p_value(p).replace('**', '')})"
