"""Leaderboards: all rows of a task, best first, and pairwise tests of the best rows."""

import math
from collections.abc import Sequence
from itertools import combinations, product

from zoo.benchmark.report.paired_differences import paired_tests
from zoo.benchmark.report.results import (
    CUT_OFFS,
    LIST_MEASURES,
    MEASURES,
    OF_CONTENTS,
    PRIMARY_METRIC,
    RANKINGS,
    Line,
    Results,
    nan_to_lowest,
    other_tests,
)
from zoo.benchmark.report.significance import holm
from zoo.benchmark.report.tables import Table, condition_notes, format_p_value, format_signed, marks, metric_title
from zoo.privacy.record.record import rounded_up
from zoo.runtime.suggestions import count_of

#: Rows with fewer seeds are named.
FEWEST_SEEDS = 3
#: Maximum number of rows that are compared pairwise.
BEST = 10


def leaderboards(results: Results, task: str, ranking: str) -> list[Table]:
    """Return the compared rows, their list metrics, and the controls (collapsed); empty without this ranking."""
    lines = results.ranked(task, ranking)
    compared, controls = ([line for line in lines if bool(line.row.control) is control] for control in (False, True))
    tables = []
    notes = test_notes(results.lines[task])
    if compared:
        tables = [*_figures("", compared, ranking, notes), *_lists(compared, ranking)]
    if controls:
        title = f"Controls ({count_of(len(controls), 'row')})"
        tables += _figures(title, controls, ranking, [] if compared else notes, collapsed=bool(compared))
    return tables


def _figures(
    title: str, lines: Sequence[Line], ranking: str, of_test: Sequence[str], *, collapsed: bool = False
) -> list[Table]:
    """Return a table of the largest cut-off, with notes on its test, and a collapsed one of each smaller cut-off."""
    tables: list[Table] = []
    for k in reversed(CUT_OFFS):
        measures = [m for m in MEASURES if m.endswith(f"@{k}") and any(line.has(ranking, m) for line in lines)]
        entries = _entries(lines, ranking, measures, bold=not collapsed)
        if not measures:
            continue
        if not tables:
            costs = [_energy(line) for line in lines]
            measured = ["hours", "kWh"] if any(kwh != "-" for _, kwh in costs) else []
            rows = [
                [_name(line), _privacy(line), *own, *(cost if measured else ()), str(len(line.runs))]
                for line, own, cost in zip(lines, entries, costs, strict=True)
            ]
            counted = "† The method cannot score some users; they are ranked by item counts."
            notes = [*([counted] if any(line.uses_item_counts for line in lines) else []), *condition_notes(lines)]
            notes += [*of_test, *seed_notes(lines)]
            columns = ["row", "epsilon", *map(metric_title, measures), *measured, "seeds"]
            tables.append(Table(title, columns, rows, notes, num_text_columns=2, collapsed=collapsed))
        else:
            rows = [[_name(line), *own] for line, own in zip(lines, entries, strict=True)]
            shown = ", ".join(filter(None, (title, f"cut-off {k}")))
            columns = ["row", *map(metric_title, measures)]
            tables.append(Table(shown[0].upper() + shown[1:], columns, rows, collapsed=True))
    return tables


def _energy(line: Line) -> tuple[str, str]:
    """Return hours and kWh of a training, means over seeds; "-" where energy was not measured."""
    costs = line.costs
    kwh = costs["energy_kwh"]
    return f"{costs['train_seconds'] / 3600:.3g}", "-" if math.isnan(kwh) else f"{kwh:.3g}"


def test_notes(lines: Sequence[Line]) -> list[str]:
    """Return a sentence that names rows with another test."""
    named = "; ".join(f"{name} ({', '.join(reasons)})" for name, reasons in other_tests(lines).items())
    rule = "Not compared in pairs: rows with other test items of a user or rule for ties, and figures among other candidates."
    return [f"**Rows do not share one test: {named}.** {rule}"] if named else []


def seed_notes(lines: Sequence[Line]) -> list[str]:
    """Return a sentence that names rows with too few seeds, and one on the draws of private releases."""
    few = [f"{line.name} ({len(line.runs)})" for line in lines if len(line.runs) < FEWEST_SEEDS]
    notes = [f"Fewer than {FEWEST_SEEDS} seeds: {', '.join(few)}."] if few else []
    if any(line.epsilon is not None for line in lines):
        notes.append(
            "A run that publishes draws new noise, so the seeds of such a private row are also its draws of noise."
        )
    return notes


def _lists(lines: Sequence[Line], ranking: str) -> list[Table]:
    """Return metrics of accuracy and of contents by cut-off, where runs or their cases have any of them."""
    note = (
        "Of the first K items of each list, without items that are already known. Recall: share of the held-out items in the "
        "list. Precision: share of the list that is held out. MAP: mean average precision over min(m, K) for m held-out items. "
        "With one held-out item these are HR, HR/K and MRR. User NDCG: all held-out items of a user in one list, mean over users. "
        "NDCG gap: largest minus smallest mean NDCG of quarters of the users by training items. GAUC: share of the other items "
        "below a held-out item. A dash: not measured, or a run of an earlier version."
    )
    contents = (
        "Coverage: share of all items in any list. Gini: inequality of how often items are listed (0: equal). Novelty: mean of "
        "log2(users / users with the item), in bits. ARP: mean number of users with the item. Diversity: mean of 1 - cosine of "
        "two items' users."
    )
    tables: list[Table] = []
    kinds = [("List metrics", False, note), ("Contents of lists", True, contents)] if ranking == "full" else []
    for (title, of_contents, note), k in product(kinds, reversed(CUT_OFFS)):
        suffixes = (f"@{k}", "gauc") if k == max(CUT_OFFS) else f"@{k}"
        measures = [m for m in LIST_MEASURES if m.endswith(suffixes) and m.startswith((*OF_CONTENTS,)) is of_contents]
        measures = [m for m in measures if any(not math.isnan(line.mean(ranking, m)) for line in lines)]
        if measures:
            entries = _entries(lines, ranking, measures)
            rows = [[_name(line), *own] for line, own in zip(lines, entries, strict=True)]
            columns = ["row", *map(metric_title, measures)]
            notes = [] if any(note in table.notes for table in tables) else [note]
            tables.append(Table(f"{title}, cut-off {k}", columns, rows, notes))
    return tables


def _name(line: Line) -> str:
    return line.name + (" †" if line.uses_item_counts else "")


def _privacy(line: Line) -> str:
    """Return `8.00 per rating ‡`, or without an epsilon `none` or `no release`."""
    if line.guarantee is None or line.epsilon is None:
        return line.guarantee_status
    return f"{rounded_up(line.epsilon)} per {line.guarantee.unit}{marks(line)}"


def _entries(lines: Sequence[Line], ranking: str, measures: Sequence[str], *, bold: bool = True) -> list[list[str]]:
    """Return mean and sd of each figure; the best mean of a column is bold, except of contents and gaps."""
    means = [[line.mean(ranking, m) for m in measures] for line in lines]
    best = [
        math.nan
        if not bold or m.startswith((*OF_CONTENTS, "ndcg_gap"))
        else max(nan_to_lowest(row[i]) for row in means)
        for i, m in enumerate(measures)
    ]
    return [
        [_entry(mean, line.sd(ranking, m), mean == top) for mean, m, top in zip(own, measures, best, strict=True)]
        for line, own in zip(lines, means, strict=True)
    ]


def _entry(mean: float, sd: float, is_best: bool) -> str:
    if math.isnan(mean):
        return "-"
    text = f"**{mean:.4f}**" if is_best else f"{mean:.4f}"
    return text if math.isnan(sd) else f"{text} ±{sd:.4f}"


def pair_table(results: Results, task: str, ranking: str) -> Table | None:
    """Return NDCG@10 of each of the best rows minus each row below it, paired over users; None for fewer than two."""
    lines = [line for line in results.ranked(task, ranking) if not line.row.control][:BEST]
    name = f"{ranking}/{PRIMARY_METRIC}"
    pairs = {(i, j): paired_tests(results, lines[i], lines[j], name) for i, j in combinations(range(len(lines)), 2)}
    tested = {pair: found[0] for pair, found in pairs.items() if found}
    if not tested:
        return None
    corrected = dict(zip(tested, holm([comparison.p_value for comparison in tested.values()]), strict=True))
    others = range(1, len(lines))
    shown = {pair: _difference(tested[pair].difference, corrected[pair]) for pair in tested}
    rows = [[f"{i + 1}. {line.name}", *(shown.get((i, j), "") for j in others)] for i, line in enumerate(lines)]
    note = (
        f"Mean over users of the difference in {metric_title(PRIMARY_METRIC)} to the numbered row, each averaged over common "
        "seeds. In brackets: two-sided p-value of a paired t-test over users, Holm-corrected for all pairs; bold below .05. The "
        f"best {BEST} rows; --baseline NAME compares all rows with one."
    )
    title = f"Pairwise differences, {metric_title(PRIMARY_METRIC)}, {RANKINGS[ranking]}"
    columns = ["row", *(f"minus {other + 1}." for other in others)]
    return Table(title, columns, rows, [note], collapsed=not results.folders)  # a benchmark names its baseline


def _difference(difference: float, p: float) -> str:
    text = format_signed(difference)
    return f"{f'**{text}**' if p < 0.05 else text} ({format_p_value(p).replace('**', '')})"
