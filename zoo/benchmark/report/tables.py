"""The tables of a report as text entries, which Markdown and HTML share."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

import polars as pl

from zoo.benchmark.report.lists import activity_groups
from zoo.benchmark.report.paired_differences import NOISE_BASELINE, Gain, Sweep, Transfer
from zoo.benchmark.report.papers import DECISIVE, PaperComparison, published, violations
from zoo.benchmark.report.results import LIST_NAMES, MEASURES, PRIMARY_METRIC, RANKINGS, Line, Results
from zoo.benchmark.report.run_folders import format_value, short_setting
from zoo.privacy.record.fields import Guarantee
from zoo.privacy.record.record import rounded_up
from zoo.privacy.record.words import MEANINGLESS, MOST_SUCCESS, standing
from zoo.runtime.run_folder import METRIC_NAMES
from zoo.runtime.suggestions import count_of

#: Upper ends of the groups of training items; the last is open.
EDGES = (0, 5, 10, 20, 50)
#: Value of a setting that a run does not have.
ABSENT = object()
#: Condition on the cases by name of the slice.
Slices = dict[str, pl.Expr]


@dataclass(frozen=True)
class Table:
    """A table of text entries; ``**`` marks bold ones."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)  # sentences below the table
    num_text_columns: int = 1  # leading columns of text, aligned to the left
    last_is_text: bool = False  # whether the last column is text, too, and may be long
    collapsed: bool = False  # whether a click opens it


def metric_title(measure: str) -> str:
    """Return the title of a metric.

    >>> metric_title("ndcg@10")
    'NDCG@10'
    """
    name, *k = measure.split("@")
    return "@".join([(METRIC_NAMES | LIST_NAMES)[name], *k])


def condition_notes(lines: Sequence[Line]) -> list[str]:
    """Return a sentence for each set of conditions that an epsilon of these rows assumes, and for each other mark."""
    sets: dict[tuple[str, ...], list[str]] = {}
    for line in lines:
        if line.conditions and line.epsilon is not None:
            sets.setdefault(line.conditions, []).append(line.name)
    names = {conditions: f"{', '.join(own)}: " if len(sets) > 1 else "" for conditions, own in sets.items()}
    notes = [f"‡ {own}{standing(Guarantee.CONDITIONAL, conditions, None)}." for conditions, own in names.items()]
    stated = [line for line in lines if line.epsilon is not None]
    if any(line.view.label for line in stated):
        notes.append(f"§ {MEANINGLESS}: attack success may exceed {MOST_SUCCESS * 100:.0f} %.")
    unprotected = dict.fromkeys(line.unprotected_metrics for line in stated if line.unprotected_metrics)
    return [*notes, *(f"¶ {text}." for text in unprotected)]


def marks(line: Line) -> str:
    """Return the marks of an epsilon that `condition_notes` explains."""
    found = {"‡": line.conditions, "§": line.view.label, "¶": line.unprotected_metrics}
    return "".join(f" {mark}" for mark, applies in found.items() if applies)


def gain_tables(
    ordered: Sequence[Line], found: Sequence[Gain], ranking: str, measure: str, chosen_baseline: str = ""
) -> list[Table]:
    """Return a table for each baseline: the gain of every row over it, rows in the given order."""
    chosen = [gain for gain in found if (gain.ranking, gain.measure) == (ranking, measure)]
    gains = {(gain.line, gain.against): gain for gain in chosen}
    note = (
        "Gain: mean over users of each user's difference, averaged over common seeds, with a 95 % interval. A row of one "
        "seed is paired with every seed that has its held-out items. The gain can differ from the difference of the "
        "leaderboard's means, which are over cases (or as `average` says). p: two-sided paired t-tests over users and over seeds, "
        "Holm-corrected for the rows of this table; bold below 0.05. Over users: whether these trained models differ for "
        "similar users. Over seeds: whether the difference holds when training is repeated."
    )
    best = (
        f"{chosen_baseline} is the best single-domain row of this ranking, by test NDCG@10. This choice favours the baseline, so "
        "gains over it are cautious. Losses of other single-domain rows to it are not."
    )
    return [
        Table(
            f"{metric_title(measure)} gain over {against}, {RANKINGS[ranking]}",
            ["row", "gain", "p over users", "p over seeds"],
            [[line.name, *_gain_entries(gains[line, against])] for line in ordered if (line, against) in gains],
            [note, *([best] if against == chosen_baseline else [])],
        )
        for against in dict.fromkeys(gain.against for gain in chosen)
    ]


def leader_table(found: Sequence[Gain], ranking: str, measure: str) -> Table | None:
    """Return the largest gain over a noise baseline by guarantee and epsilon; None if no two rows compete."""
    groups: dict[tuple[str, str], list[Gain]] = {}
    for gain in found:
        if (gain.ranking, gain.measure, gain.against) == (ranking, measure, NOISE_BASELINE):
            line = gain.line
            epsilon = "-" if line.epsilon is None else rounded_up(line.epsilon)
            groups.setdefault((str(line.guarantee or "none"), epsilon), []).append(gain)
    if all(len(group) < 2 for group in groups.values()):
        return None
    rows, leaders = [], []
    for (guarantee, epsilon), group in sorted(groups.items(), key=lambda entry: _by_epsilon(*entry[0])):
        best = max(group, key=lambda gain: gain.users.difference)
        shown = epsilon + (marks(best.line) if best.line.epsilon is not None else "")
        rows.append([best.line.name, guarantee, shown, *_gain_entries(best), str(len(group))])
        leaders.append(best.line)
    columns = ["row", "guarantee", "epsilon", "gain", "p over users", "p over seeds", "of rows"]
    note = f"The row with the largest gain over its {NOISE_BASELINE}, of all rows with this guarantee and epsilon."
    title = f"Largest {metric_title(measure)} gain over {NOISE_BASELINE}, {RANKINGS[ranking]}"
    return Table(title, columns, rows, [note, *condition_notes(leaders)], num_text_columns=2)


def transfer_table(found: Sequence[Transfer], ranking: str, measure: str) -> Table | None:
    """Return every row with sources, compared with its single-domain baseline and with fewer sources; None for no row."""
    rows = []
    for transfer in found:
        gain = transfer.gain
        if (gain.ranking, gain.measure) == (ranking, measure):
            means = [f"{line.mean(ranking, measure):.4f}" for line in (gain.line, transfer.other)]
            names = [gain.line.name, gain.against, str(transfer.domains)]
            rows.append([*names, *means, *_gain_entries(gain), transfer.verdict])
    columns = ["row", "baseline", "domains", metric_title(measure), "baseline's", "gain", "p over users"]
    note = (
        "Soft: below the single-domain baseline. Hard: below the same row with fewer sources. Domains include the target. p-values "
        "are Holm-corrected for the soft and for the hard rows of this table. Not significant: p over users is at least .05."
    )
    title = f"{metric_title(measure)}, {RANKINGS[ranking]}"
    columns += ["p over seeds", "negative transfer"]
    return Table(title, columns, rows, [note], num_text_columns=2) if rows else None


def sweep_table(found: Sequence[Sweep]) -> Table:
    """Return the tests of the shape of each sweep."""
    rows = []
    for sweep in found:
        bend, trend = sweep.shape.bend, f"{sweep.shape.correlation:+.2f}"
        interval = f"{format_signed(bend.difference)} [{format_signed(bend.low)}, {format_signed(bend.high)}]"
        tests = [trend, format_p_value(sweep.trend_holm), interval, format_p_value(sweep.bend_holm)]
        rows.append([sweep.title, sweep.of, f"{len(sweep.rows)} x {sweep.seeds}", *tests, sweep.verdict])
    note = (
        "Trend: mean over seeds of Spearman's correlation of setting and figure, with Page's trend test. Bend: the middle above "
        "the ends of a parabola through each seed's levels, with a 95 % interval and a t-test over seeds; positive for a bell. "
        "p-values are two-sided and Holm-corrected for the rows of one metric. The tests say whether the shape holds when "
        "training is repeated. '-': none is significant, which does not show that there is none."
    )
    columns = ["sweep", "of", "levels x seeds", "trend", "p of trend", "bend", "p of bend", "shape"]
    return Table("", columns, rows, [note], num_text_columns=2, last_is_text=True)


def _by_epsilon(guarantee: str, epsilon: str) -> tuple[bool, str, float]:
    return guarantee == "none", guarantee, 0.0 if epsilon == "-" else float(epsilon)


def _gain_entries(gain: Gain) -> list[str]:
    users = gain.users
    difference = f"{format_signed(users.difference)} [{format_signed(users.low)}, {format_signed(users.high)}]"
    over_seeds = "-" if gain.seeds_holm is None else format_p_value(gain.seeds_holm)
    return [difference, format_p_value(gain.users_holm), over_seeds]


def format_signed(value: float) -> str:
    """Return a difference with its sign.

    >>> format_signed(0.01234)
    '+0.0123'
    """
    return f"{round(value, 4) + 0.0:+.4f}"  # adding 0 makes a negative zero positive


def format_p_value(value: float) -> str:
    """Return a p-value, bold below 0.05.

    >>> format_p_value(0.0004), format_p_value(0.25)
    ('**<.001**', '.250')
    """
    text = "<.001" if value < 0.001 else f"{value:.3f}".replace("0.", ".", 1)
    return f"**{text}**" if value < 0.05 else text


def item_slices() -> Slices:
    """Return slices by the number of training items: none (cold start), 1 to 5, and so on."""
    items = pl.col("train_items")
    made = {"no training item": items == 0}
    made |= {f"{low + 1} to {high}": (items > low) & (items <= high) for low, high in pairwise(EDGES)}
    return made | {f"more than {EDGES[-1]}": items > EDGES[-1]}


def overlap_slices() -> Slices:
    """Return slices by whether the release has a row of the user."""
    return {"in the release": pl.col("linked"), "not in the release": ~pl.col("linked")}


def sliced(line: Line, slices: Slices, figure: str) -> list[tuple[float | None, float]]:
    """Return the mean of a figure (None without a case) and the cases per seed of each slice."""
    columns = [line.cases.filter(where)[figure].cast(pl.Float64) for where in slices.values()]
    means = [values.mean() for values in columns]
    counts = [len(values) / len(line.runs) for values in columns]
    return [(mean if isinstance(mean, float) else None, count) for mean, count in zip(means, counts, strict=True)]


def slice_tables(lines: Sequence[Line]) -> list[Table]:
    """Return NDCG@10 by training items, quarters of users and overlap; slices without cases, tables of one slice are left out."""
    ranking = max(("sampled", "full"), key=lambda ranking: sum(line.has(ranking) for line in lines))
    lines = [line for line in lines if line.has(ranking)]
    # A row without a release has no linked users.
    both = [line for line in lines if line.cases["linked"].n_unique() == 2]
    by_items = _slice_table("Training items of the user", item_slices(), lines, ranking)
    quarters = activity_groups(lines[0].cases) if lines else {}
    by_quarter = _slice_table("Training items, quarters of the users", quarters, lines, ranking)
    return [*filter(None, (by_items, by_quarter, _slice_table("Overlap", overlap_slices(), both, ranking)))]


def _slice_table(title: str, slices: Slices, lines: Sequence[Line], ranking: str) -> Table | None:
    means = [sliced(line, slices, f"{ranking}/{PRIMARY_METRIC}") for line in lines]
    used = [i for i in range(len(slices)) if any(row[i][0] is not None for row in means)]
    if len(used) < 2:
        return None
    rows = []
    for line, row in zip(lines, means, strict=True):
        shown = [("-" if value is None else f"{value:.4f}") + f" ({count:.0f})" for value, count in row]
        rows.append([line.name, *(shown[i] for i in used)])
    columns = ["row", *(name for i, name in enumerate(slices) if i in used)]
    title = f"{title}: {metric_title(PRIMARY_METRIC)}, {RANKINGS[ranking]}"
    return Table(title, columns, rows, ["In brackets: cases per seed."], collapsed=True)


def search_table(lines: Sequence[Line]) -> Table | None:
    """Return the settings that each run's search chose, with their validation figure; None without a search."""
    rows = []
    for line, run in ((own, run) for own in lines for run in own.runs):
        if run.search is not None:
            best = max(trial["val/ndcg@10"] or 0.0 for trial in run.search["trials"])  # null if it diverged
            shown = {name: f"{v:.3g}" if isinstance(v, float) else str(v) for name, v in run.search["chosen"].items()}
            chosen = ", ".join(f"{name} {value}" for name, value in shown.items())
            rows.append([line.name, chosen, str(run.seed), str(len(run.search["trials"])), f"{best:.4f}"])
    note = (
        "Chosen by validation NDCG@10. A row with one line and several seeds uses these settings for all seeds. The epsilon of a "
        "run covers all trials of its own search, and no release of another seed's."
    )
    columns = ["row", "chosen", "seed", "trials", metric_title(PRIMARY_METRIC)]
    return Table("Hyperparameter search", columns, rows, [note], num_text_columns=2, collapsed=True) if rows else None


def edge_table(lines: Sequence[Line]) -> Table | None:
    """Return the searched numbers that were chosen at an edge of their range or choices; None without one."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for row, seed, search in ((line.name, run.seed, run.search) for line in lines for run in line.runs if run.search):
        tried = {trial["val/ndcg@10"] for trial in search["trials"]}
        for name, values in search.get("parameters", {}).items():
            if len(tried) > 1 and is_at_edge(chosen := search["chosen"][name], values):  # equal trials choose nothing
                scale = ", log" if values["log"] else ""
                given = values["choices"] or [f"{values['low']:g} to {values['high']:g}{scale}"]
                key = row, name, format_value(chosen), ", ".join(map(str, given))
                rows.setdefault(key, []).append(str(seed))
    note = "A better value may lie outside. Edge: the smallest or largest choice, or within 5 % of an end of the range."
    columns = ["row", "setting", "chosen", "searched", "seeds"]
    entries = [[*key, ", ".join(seeds)] for key, seeds in rows.items()]
    return (
        Table("Choices at an edge", columns, entries, [note], num_text_columns=2, last_is_text=True) if rows else None
    )


def is_at_edge(chosen: object, values: Mapping[str, Any]) -> bool:
    """Return whether a number is the smallest or largest of its choices, or within 5 % of an end of its range, on its scale.

    >>> scale = {"low": 0.001, "high": 1.0, "log": True, "choices": []}
    >>> is_at_edge(0.0012, scale), is_at_edge(0.002, scale), is_at_edge("b", {"choices": ["a", "b"], "log": False})
    (True, False, False)
    """
    ends = values["choices"] or [values["low"], values["high"]]
    numbers = [float(end) for end in (chosen, *ends) if isinstance(end, int | float) and not isinstance(end, bool)]
    if len(numbers) <= len(ends):
        return False
    at, *rest = (math.log(number) if values["log"] else number for number in numbers)
    low, high = min(rest), max(rest)
    margin = 0.0 if values["choices"] else 0.05 * (high - low)
    return low < high and not low + margin < at < high - margin


def settings_table(lines: Sequence[Line]) -> Table | None:
    """Return the settings in which rows differ; None if there are none, as for the rows of a benchmark."""
    own = [line.runs[0].settings for line in lines]
    classes = {"model.class_path", "publisher", "publisher.class_path"}
    keys = sorted({key for settings in own for key in settings} - classes)
    keys = [key for key in keys if any(settings.get(key, ABSENT) != own[0].get(key, ABSENT) for settings in own)]
    if not keys:
        return None
    rows = [
        [
            line.name,
            ", ".join(f"{short_setting(key)} {format_value(settings[key])}" for key in keys if key in settings) or "-",
        ]
        for line, settings in zip(lines, own, strict=True)
    ]
    note = "Settings of the first seed. Settings that all rows share are in config.yaml of any run."
    return Table("Differing settings", ["row", "settings"], rows, [note], last_is_text=True)


def cost_table(lines: Sequence[Line]) -> Table:
    """Return times, epochs, memory, parameters and size of the releases."""
    rows = []
    for line in (line for line in lines if not line.is_external):
        costs = line.costs
        seconds = [f"{costs[name]:.1f}" for name in ("train_seconds", "cell_seconds")]
        counts = [f"{costs[name]:,.0f}" for name in ("parameters", "peak_mib", "bytes_released")]
        rows.append([line.name, *seconds, f"{costs['epochs']:.0f}", *counts, str(line.num_trials or "-")])
    columns = ["row", "training, s", "total, s", "epochs", "parameters", "peak MiB", "bytes released"]
    note = "Means over seeds. Peak memory is that of the process, with libraries. Trials: of the hyperparameter search."
    return Table("Cost", [*columns, "trials"], rows, [note], collapsed=True)


def guarantee_table(lines: Sequence[Line]) -> Table:
    """Return the guarantee of each row's release, or the reason why it has none."""
    rows = []
    for line in lines:
        text = f"none ({'; '.join(line.reasons)})" if line.row.release else "no release"
        if line.epsilon is not None:
            text = f"{line.guarantee}, epsilon {rounded_up(line.epsilon)}: {line.guarantee_status}{marks(line)}"
        rows.append([line.name, text])
    return Table(
        "Privacy guarantees", ["row", "guarantee"], rows, condition_notes(lines), num_text_columns=2, collapsed=True
    )


def papers_table(comparisons: Sequence[PaperComparison]) -> Table:
    """Return our rows next to those of papers and to their own baselines."""
    rows, columns = [], ["ours", "paper's"]
    for measure in DECISIVE:
        columns += [metric_title(measure), "paper", "noise", "no source"]
    for each in comparisons:
        beside = (
            each.ours.figures,
            each.paper.figures,
            *(row.figures if row else {} for row in (each.noise, each.alone)),
        )
        figures = [f"{found[measure]:.4f}" if measure in found else "-" for measure in DECISIVE for found in beside]
        paper = f"{each.paper.method} ({each.paper.paper})"
        rows.append([each.ours.name, paper, *figures, each.status, each.reason or "-"])
    note = (
        "Our figures among 1 + 99 candidates. Noise: the row with a release of random ratings. No source: the same system without "
        "a release, or the best single-domain row. Status by HR@10 and NDCG@10: reproduced (both within 5 %), exceeded, below, or "
        "not comparable (data or split differ). Some rows of papers contradict themselves."
    )
    columns += ["status", "reason"]
    return Table("Comparison with published figures", columns, rows, [note], num_text_columns=2, last_is_text=True)


def arithmetic_table(results: Results, task: str) -> Table:
    """Return the figures, ours and the papers' of this task, that break the arithmetic of HR, NDCG and MRR."""
    lines, rows = results.lines[task], []
    for line in lines:
        for ranking, run in product(RANKINGS, line.runs):
            ours = {m: run.figure(ranking, m) for m in MEASURES if f"test/{ranking}/{m}" in run.report["metrics"]}
            broken = violations(ours, tolerance=1e-6, joint=True)
            rows += [[f"{line.name}, seed {run.seed}, {ranking}", sentence] for sentence in broken]
    count = sum(len(line.runs) for line in lines)
    note = f"Our {count_of(count, 'run')}: {'not all' if rows else 'all'} consistent."
    where = results.benchmark["tasks"][task]["published"]
    theirs = published(where["dataset"], where["source"], where["target"]) if where else []
    for paper in theirs:
        rows += [[f"{paper.method} ({paper.paper} table {paper.table})", said] for said in paper.inconsistencies]
    wrong = sum(bool(paper.inconsistencies) for paper in theirs)
    if theirs:
        note += f" Published rows of this task: {wrong} of {len(theirs)} inconsistent."
    return Table(
        "Consistency of the figures", ["row", "contradiction"], rows, [note], num_text_columns=2, collapsed=bool(rows)
    )
