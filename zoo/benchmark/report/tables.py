"""The tables of a report, as text cells: Markdown and HTML render the same ones."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product

import polars as pl

from zoo.benchmark.report.gains import NOISE, Gain, Transfer
from zoo.benchmark.report.papers import Versus, published, violations
from zoo.benchmark.report.results import DECIDING, LIST_NAMES, MEASURES, RANKINGS, Line, Results
from zoo.benchmark.report.run_folders import said, short
from zoo.privacy.record.record import rounded_up
from zoo.runtime.run_folder import METRIC_NAMES

#: Upper ends of the groups of training items; the last is open.
EDGES = (0, 5, 10, 20, 50)
#: In the place of a setting that a run does not have.
ABSENT = object()
#: What slices are called, and which cases are in each.
Slices = dict[str, pl.Expr]


@dataclass(frozen=True)
class Table:
    """Cells of text; ``**`` marks bold ones."""

    title: str
    columns: list[str]  # their names; the first ``words`` are left-aligned
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)  # sentences below it
    words: int = 1  # columns of text rather than numbers
    reasoned: bool = False  # whether the last column is text, too, and may be long
    folded: bool = False  # whether it is shown on request only


def metric(measure: str) -> str:
    """``ndcg@10`` as tables have it: ``NDCG@10``."""
    name, k = measure.split("@")
    return f"{(METRIC_NAMES | LIST_NAMES)[name]}@{k}"


def under(lines: Sequence[Line]) -> list[str]:
    """A sentence for each set of conditions that an epsilon of these rows is under."""
    sets: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if line.conditions and line.epsilon is not None:
            sets.setdefault(line.conditions, []).append(line.name)
    only = "it is the epsilon of the source's own file only if"
    whose = {conditions: f" ({', '.join(names)})" if len(sets) > 1 else "" for conditions, names in sets.items()}
    return [f"‡ conditional{names}: {only} {'; and if '.join(conditions)}." for conditions, names in whose.items()]


def gain_table(ordered: Sequence[Line], found: Sequence[Gain], ranking: str, measure: str) -> Table:
    """A figure of every row less that of its controls, the rows in the order given."""
    chosen = [gain for gain in found if (gain.ranking, gain.measure) == (ranking, measure)]
    gains = {(gain.line, gain.against): gain for gain in chosen}
    controls = list(dict.fromkeys(gain.against for gain in chosen))
    rows = []
    for line in ordered:
        own = [gains.get((line, control)) for control in controls]
        if any(own):
            rows.append([line.name, *(cell for gain in own for cell in _gain_cells(gain))])
    columns = ["row", *(name for control in controls for name in (f"less {control}", "p over users", "p over seeds"))]
    note = (
        "Difference of the means, with a 95 % interval over users. p-values are two-sided, of paired t-tests over users (each "
        "averaged over its seeds) and over seeds, after Holm's correction for the rows of this table and control; bold below "
        "0.05. Over users tells whether these trained models differ on people like these, over seeds whether training again "
        "does."
    )
    return Table(f"{metric(measure)}, {RANKINGS[ranking]}", columns, rows, [note])


def leader_table(found: Sequence[Gain], ranking: str, measure: str) -> Table | None:
    """What gains most over its own noise control at each epsilon of each guarantee; None where no two rows compete."""
    groups: dict[tuple[str, str], list[Gain]] = {}
    for gain in found:
        if (gain.ranking, gain.measure, gain.against) == (ranking, measure, NOISE):
            line = gain.line
            epsilon = "-" if line.epsilon is None else rounded_up(line.epsilon)
            groups.setdefault((str(line.guarantee or "none"), epsilon), []).append(gain)
    if all(len(group) < 2 for group in groups.values()):
        return None
    rows = []
    for (guarantee, epsilon), group in sorted(groups.items(), key=lambda entry: _by_epsilon(*entry[0])):
        best = max(group, key=lambda gain: gain.users.difference)
        rows.append([best.line.name, guarantee, epsilon, *_gain_cells(best), str(len(group))])
    columns = ["row", "guarantee", "epsilon", f"less {NOISE}", "p over users", "p over seeds", "of rows"]
    note = "Of all rows with a noise control and the same guarantee at the same epsilon, "
    note += "the one that gains most over it."
    return Table(f"What gains most, {metric(measure)}, {RANKINGS[ranking]}", columns, rows, [note], words=2)


def transfer_table(found: Sequence[Transfer], ranking: str, measure: str) -> Table | None:
    """A figure of every row with sources, held against its target alone and against fewer sources; None without any."""
    rows = []
    for transfer in found:
        gain = transfer.gain
        if (gain.ranking, gain.measure) == (ranking, measure):
            means = [f"{line.mean(ranking, measure):.4f}" for line in (gain.line, transfer.other)]
            names = [gain.line.name, gain.against, str(transfer.domains)]
            rows.append([*names, *means, *_gain_cells(gain), transfer.said])
    columns = ["row", "held against", "domains", metric(measure), "theirs", "less theirs", "p over users"]
    note = (
        "Soft: below the same target without sources. Hard: below the same row with fewer sources. Domains: the target among "
        "them. p-values as those over controls, corrected for the soft and for the hard rows of this table; within chance: .05 or "
        "more over users."
    )
    title = f"{metric(measure)}, {RANKINGS[ranking]}"
    return Table(title, [*columns, "p over seeds", "negative transfer"], rows, [note], words=2) if rows else None


def _by_epsilon(guarantee: str, epsilon: str) -> tuple[bool, str, float]:
    return guarantee == "none", guarantee, 0.0 if epsilon == "-" else float(epsilon)


def _gain_cells(gain: Gain | None) -> list[str]:
    if gain is None:
        return ["-", "-", "-"]
    users = gain.users
    difference = f"{signed(users.difference)} [{signed(users.low)}, {signed(users.high)}]"
    return [difference, p_value(gain.users_holm), "-" if gain.seeds_holm is None else p_value(gain.seeds_holm)]


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"{round(value, 4) + 0.0:+.4f}"  # adding 0 makes a negative zero positive


def p_value(value: float) -> str:
    """A p-value, bold below 0.05."""
    text = "<.001" if value < 0.001 else f"{value:.3f}".replace("0.", ".", 1)
    return f"**{text}**" if value < 0.05 else text


def item_slices() -> Slices:
    """By the number of training items: none (cold start), 1 to 5, and so on."""
    items = pl.col("train_items")
    made = {"no training item": items == 0}
    made |= {f"{low + 1} to {high}": (items > low) & (items <= high) for low, high in pairwise(EDGES)}
    return made | {f"more than {EDGES[-1]}": items > EDGES[-1]}


def overlap_slices() -> Slices:
    """By whether the release has a row of the user."""
    return {"in the release": pl.col("linked"), "not in the release": ~pl.col("linked")}


def sliced(line: Line, slices: Slices, figure: str) -> list[tuple[float | None, float]]:
    """Mean of a figure in each slice and cases per seed; None where a slice has no case."""
    columns = [line.cases.filter(where)[figure].cast(pl.Float64) for where in slices.values()]
    means = [values.mean() for values in columns]
    counts = [len(values) / len(line.runs) for values in columns]
    return [(mean if isinstance(mean, float) else None, count) for mean, count in zip(means, counts, strict=True)]


def slice_tables(lines: Sequence[Line]) -> list[Table]:
    """NDCG@10 by what is known of the users; only slices that somebody is in, only tables with two of them."""
    ranking = max(("sampled", "full"), key=lambda ranking: sum(line.has(ranking) for line in lines))
    lines = [line for line in lines if line.has(ranking)]
    # A row without release has nobody in one: beside the overlap it would add nothing but its name.
    both = [line for line in lines if line.cases["linked"].n_unique() == 2]
    by_items = _slice_table("Training items of the user", item_slices(), lines, ranking)
    return [*filter(None, (by_items, _slice_table("Overlap", overlap_slices(), both, ranking)))]


def _slice_table(title: str, slices: Slices, lines: Sequence[Line], ranking: str) -> Table | None:
    cells = [sliced(line, slices, f"{ranking}/{DECIDING}") for line in lines]
    used = [i for i in range(len(slices)) if any(row[i][0] is not None for row in cells)]
    if len(used) < 2:
        return None
    rows = []
    for line, row in zip(lines, cells, strict=True):
        shown = [("-" if value is None else f"{value:.4f}") + f" ({count:.0f})" for value, count in row]
        rows.append([line.name, *(shown[i] for i in used)])
    columns = ["row", *(name for i, name in enumerate(slices) if i in used)]
    title = f"{title}: {metric(DECIDING)}, {RANKINGS[ranking]}"
    return Table(title, columns, rows, ["In brackets: cases per seed."], folded=True)


def search_table(lines: Sequence[Line]) -> Table | None:
    """What the search of each run chose, and how that did on validation; None where nobody searched."""
    rows = []
    for line, run in ((own, run) for own in lines for run in own.runs):
        if run.search is not None:
            best = max(trial["val/ndcg@10"] for trial in run.search["trials"])
            shown = {name: f"{v:.3g}" if isinstance(v, float) else str(v) for name, v in run.search["chosen"].items()}
            chosen = ", ".join(f"{name} {value}" for name, value in shown.items())
            rows.append([line.name, chosen, str(run.seed), str(len(run.search["trials"])), f"{best:.4f}"])
    note = (
        "By NDCG@10 on validation. A row that has one line and more seeds uses the first one's settings for all of them; that they "
        "were chosen with another draw of the release is not counted in an epsilon."
    )
    columns = ["row", "chosen", "seed", "trials", metric(DECIDING)]
    return Table("What the search chose", columns, rows, [note], words=2, folded=True) if rows else None


def settings_table(lines: Sequence[Line]) -> Table | None:
    """What the settings of rows are, those left out that all have in common; None of a benchmark's rows, whose file says it."""
    own = [line.runs[0].settings for line in lines]
    classes = {"model.class_path", "publisher", "publisher.class_path"}
    keys = sorted({key for settings in own for key in settings} - classes)
    keys = [key for key in keys if any(settings.get(key, ABSENT) != own[0].get(key, ABSENT) for settings in own)]
    if not keys:
        return None
    rows = [
        [line.name, ", ".join(f"{short(key)} {said(settings[key])}" for key in keys if key in settings) or "-"]
        for line, settings in zip(lines, own, strict=True)
    ]
    note = "Of a row with several seeds, those of its first. "
    note += "Settings that all rows share stand in any run's config.yaml."
    return Table("Settings in which rows differ", ["row", "settings"], rows, [note], reasoned=True)


def cost_table(lines: Sequence[Line]) -> Table:
    """Seconds, epochs, memory, parameters, bytes across the border."""
    rows = []
    for line in lines:
        costs = line.costs
        seconds = [f"{costs[name]:.1f}" for name in ("train_seconds", "cell_seconds")]
        counts = [f"{costs[name]:,.0f}" for name in ("parameters", "peak_mib", "bytes_released")]
        rows.append([line.name, *seconds, f"{costs['epochs']:.0f}", *counts, str(line.trials or "-")])
    columns = ["row", "seconds of training", "seconds in all", "epochs", "parameters", "peak MiB", "bytes released"]
    note = (
        "Means over seeds. Peak memory is that of the run's process, libraries included. Trials: of the hyperparameter search "
        "that chose a row's settings, on validation alone."
    )
    return Table("Cost", [*columns, "trials"], rows, [note], folded=True)


def guarantee_table(lines: Sequence[Line]) -> Table:
    """What the release of each row guarantees, and why where it is nothing."""
    rows = []
    for line in lines:
        text = f"none ({'; '.join(line.reasons)})" if line.row.release else "no release"
        if line.epsilon is not None:
            text = f"{line.guarantee}, epsilon {rounded_up(line.epsilon)}: {line.standing}{' ‡' if line.conditions else ''}"
        rows.append([line.name, text])
    return Table("What the releases guarantee", ["row", "guarantee"], rows, under(lines), words=2, folded=True)


def versus_table(rows: Sequence[Versus]) -> Table:
    """Ours beside the papers'."""
    cells = []
    for row in rows:
        line, paper = row.line, row.paper
        printed = {measure: f"{value:.4f}" for measure, value in paper.figures.items()}
        figures = [f"{line.mean('sampled', m):.4f} ({printed.get(m, '-')})" for m in MEASURES]
        cells.append([line.name, f"{paper.method} ({paper.paper})", *figures, row.status, row.reason or "-"])
    columns = ["ours", "paper's", *map(metric, MEASURES), "status", "reason"]
    note = (
        "Ours, and the paper's in brackets, among 1 + 99 candidates. Reproduced: NDCG@10 within 5 % of the paper's or within two "
        "standard errors of our mean. A row of a paper whose figures cannot all be true is no target, whatever ours is."
    )
    return Table("Beside the papers", columns, cells, [note], words=2, reasoned=True)


def arithmetic_table(results: Results, task: str) -> Table:
    """The arithmetic of HR, NDCG and MRR, held against every row: ours, and the papers' on the same task."""
    lines, rows = results.lines[task], []
    for line in lines:
        for ranking, run in product(RANKINGS, line.runs):
            ours = {m: run.figure(ranking, m) for m in MEASURES if f"test/{ranking}/{m}" in run.report["metrics"]}
            broken = violations(ours, tolerance=1e-6, joint=True)
            rows += [[f"{line.name}, seed {run.seed}, {ranking}", sentence] for sentence in broken]
    count = sum(len(line.runs) for line in lines)
    note = f"Of ours {'not all' if rows else 'all'} {count} runs are consistent in every ranking."
    if count == 1:
        note = f"Our one run is {'not ' if rows else ''}consistent in every ranking."
    where = results.benchmark["tasks"][task]["published"]
    theirs = published(**where) if where else []
    for paper in theirs:
        rows += [[f"{paper.method} ({paper.paper} table {paper.table})", said] for said in paper.inconsistencies]
    wrong = sum(bool(paper.inconsistencies) for paper in theirs)
    if theirs:
        note += f" Of the papers' {len(theirs)} rows on this task {wrong} are not."
    return Table("Arithmetic of the figures", ["row", "what cannot be"], rows, [note], words=2, folded=bool(rows))
