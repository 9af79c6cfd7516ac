"""One report as Markdown and as a self-contained HTML page, from the same sections."""

import html
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from zoo.benchmark.grid import slug
from zoo.benchmark.report import tables
from zoo.benchmark.report.figures import Picture, curves, learning_curves, overview, stored_epoch, validation_curve
from zoo.benchmark.report.leaderboard import leaderboards, pair_table
from zoo.benchmark.report.paired_differences import NOISE_BASELINE, TESTED_METRICS, Gain, Transfer, series_tasks, sweeps
from zoo.benchmark.report.papers import compare_with_papers
from zoo.benchmark.report.results import PRIMARY_METRIC, RANKINGS, Line, Results, Run, other_tests
from zoo.benchmark.report.tables import Table
from zoo.privacy.record.record import rounded_up
from zoo.runtime.run_folder import CONFIG, markdown, visible
from zoo.runtime.suggestions import count_of

#: Maximum number of tasks whose best row is named.
NAMED = 3
#: Said of the best rows with a guarantee.
CHOICE = " Epsilon is that of one run; a choice by these results costs all releases of the ratings together."
#: Notes may come from elsewhere and a page loads nothing: no HTML, no pictures.
NOTES = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")


@dataclass(frozen=True)
class Section:
    """A heading with its tables, figures by name, and the caption of these."""

    title: str
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, Picture] = field(default_factory=dict)
    caption: str = "NDCG@10 by epsilon"


@dataclass(frozen=True)
class Chapter:
    """A task with an introduction and its sections."""

    task: str
    title: str
    intro: str
    sections: list[Section]


def chapters(results: Results, found: Sequence[Gain], transfers: Sequence[Transfer] = ()) -> list[Chapter]:
    """Return a chapter for each task, and then one for the negative transfer of each series of tasks."""
    made = []
    for task, lines in results.lines.items():
        sections = [each for each in _sections(results, task, lines, found) if each.tables or each.figures]
        made.append(Chapter(task, results.benchmark["tasks"][task]["title"], _intro(results, task, lines), sections))
    return [*made, *(_series(results, title, transfers) for title in dict.fromkeys(each.series for each in transfers))]


def _sections(results: Results, task: str, lines: Sequence[Line], found: Sequence[Gain]) -> list[Section]:
    """Return the sections of one task, empty ones included."""
    own = [gain for gain in found if gain.task == task]
    compared = [ranking for ranking in RANKINGS if any(gain.ranking == ranking for gain in own)]
    bars = {ranking: results.baseline_of(task, ranking) if results.baseline is None else "" for ranking in compared}
    gained = [
        table for ranking, bar in bars.items() for table in tables.gain_tables(lines, own, ranking, PRIMARY_METRIC, bar)
    ]
    leaders = [tables.leader_table(own, ranking, PRIMARY_METRIC) for ranking in compared]
    pairs = [pair_table(results, task, ranking) for ranking in RANKINGS]
    of_papers = compare_with_papers(results, task)
    shapes = [each for each in sweeps(results) if each.task == task]
    settings = [tables.edge_table(lines), tables.search_table(lines), tables.settings_table(lines)]
    titles = {ranking: f"{ranking.title()} ranking ({words})" for ranking, words in RANKINGS.items()}
    return [
        *(Section(title, leaderboards(results, task, ranking)) for ranking, title in titles.items()),
        Section("Privacy and utility", [tables.guarantee_table(lines)], curves(results, task)),
        Section("Gains over baselines", [*gained, *filter(None, leaders)]),
        Section("Pairwise differences", [*filter(None, pairs)]),
        Section("Shape of sweeps", [tables.sweep_table(shapes)] if shapes else []),
        Section("Learning curves", figures=learning_curves(results, task), caption="validation NDCG@10 by epoch"),
        Section("Slices", tables.slice_tables(lines)),
        Section("Comparison with published figures", [tables.papers_table(of_papers)] if of_papers else []),
        Section("Consistency of the figures", [tables.arithmetic_table(results, task)]),
        Section("Settings", [*filter(None, settings)]),
        Section("Cost", [tables.cost_table(lines)]),
    ]


def _series(results: Results, title: str, transfers: Sequence[Transfer]) -> Chapter:
    own = [transfer for transfer in transfers if transfer.series == title]
    sections = []
    for ranking, words in RANKINGS.items():
        made = [tables.transfer_table(own, ranking, measure) for measure in TESTED_METRICS]
        sections.append(Section(f"Negative transfer, {words}", [*filter(None, made)]))
    titles = {
        domains: results.benchmark["tasks"][task]["title"] for domains, task in series_tasks(results, title).items()
    }
    intro = (
        f"One target with an increasing number of domains: {', '.join(f'{n} ({task})' for n, task in titles.items())}."
    )
    return Chapter(f"series {title}", f"Negative transfer: {title}", intro, [s for s in sections if s.tables])


def _intro(results: Results, task: str, lines: Sequence[Line]) -> str:
    wanted = sum(len(row["seeds"]) for row in results.benchmark["rows"] if row["task"] == task)
    done = sum(len(line.runs) for line in lines)
    unreliable = list(dict.fromkeys(sentence for line in lines for run in line.runs for sentence in run.test_warnings))
    warning = f" **These metrics are unreliable:** {'; '.join(unreliable)}." if unreliable else ""
    negatives = {number for line in lines for run in line.runs for number in run.num_negatives}
    if negatives - {99}:
        least, most = min(negatives), max(negatives)
        number = f"{least} to {most}" if least < most else f"{most}"
        warning += f" **The sampled ranking has {number} negatives of a test case, not 99.**"
    finished = f"{done} of {count_of(wanted, 'run')} {'is' if done == 1 else 'are'} finished"
    chosen = " or ".join(sorted({_chosen(run) for line in lines for run in line.runs}))
    reason = f"{results.separation[task]} " if task in results.separation else ""
    return (
        f"{reason}{finished}. Each is tested once, on {_cases(lines)}, {chosen}. Figures: mean and sample standard deviation "
        f"over seeds, the best mean of a column in bold. {_ties(lines)}{warning} {_probed(lines[0].runs[0].folder)}"
    )


def _ties(lines: Sequence[Line]) -> str:
    """Return a sentence on ties; of earlier runs without a config that says otherwise they count in expectation."""
    runs = [run for line in lines if not line.is_external for run in line.runs]
    rules = {run.tested.get("ties", run.settings.get("data.init_args.evaluation.ties", "expected")) for run in runs}
    if rules == {"expected"}:
        return "Ties count in expectation."
    return "Ties count as misses." if "expected" not in rules else "Ties count as misses in some rows."


def _chosen(run: Run) -> str:
    """Return which epoch was tested; one before the log was the best when the run was resumed."""
    validated = validation_curve(run.folder)
    if not validated or stored_epoch(run, validated) == max(validated) != max(validated, key=validated.__getitem__):
        return "after the last epoch"
    return "at the epoch with the best validation NDCG@10"


def _probed(folder: Path) -> str:
    """Return what trivial rules reach on the data of a run. A report loads no torch, so it asks a process of its own."""
    unavailable = "Probes: not measured, since the data of these runs are not available here."
    if not (folder / CONFIG).is_file():
        return unavailable
    if "pytorch_lightning" in sys.modules:
        try:
            return str(import_module("zoo.runs.probing").verdict_of_run(folder))
        except Exception:  # as of the other process, whatever the data lack
            return unavailable
    code = "import sys, pathlib, zoo.runs.probing as p; print(p.verdict_of_run(pathlib.Path(sys.argv[1])))"
    paths = os.pathsep.join(filter(None, [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, "-c", code, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}, check=False)
    return ended.stdout.strip().split("\n")[-1] if ended.returncode == 0 else unavailable


def summary(results: Results, found: Sequence[Gain]) -> list[str]:
    """Return the lines: rows and runs, the best row, the best private row, and gains over the baselines."""
    marked = any(line.view.label for line in results.rows)
    best = _best(results, f"Best, controls {'and rows marked § ' * marked}excluded", lambda line: not line.view.label)
    private = _best(results, "Best with a guarantee", lambda line: line.view.meaningful)
    private += CHOICE if "epsilon" in private else ""
    return [_compared(results), best, private, _against(results, found), _over_noise(results, found)]


def _compared(results: Results) -> str:
    lines = results.rows
    controls = sum(bool(line.row.control) for line in lines)
    rows = count_of(len(lines), "row") + (f", {controls} of them controls," if controls else "")
    others = list(dict.fromkeys(name for some in results.lines.values() for name in other_tests(some)))
    otherwise = f" **Rows do not share one test: {', '.join(others)}.**" if others else ""
    return (
        f"Compared: {rows} on {count_of(len(results.lines), 'task')}; {results.num_finished:,} of "
        f"{count_of(results.num_runs, 'run')} finished, each tested on {_cases(lines)}.{otherwise}"
    )


def _cases(lines: Sequence[Line]) -> str:
    """Return the number of cases, which can differ by seed, in words."""
    fewest, *_, most = sorted(len(run.cases) for line in lines for run in line.runs) * 2
    return (f"{fewest:,} to " if fewest < most else "") + count_of(most, "held-out case")


def _best(results: Results, head: str, wanted: Callable[[Line], bool]) -> str:
    """Name the best row of each task, controls excluded; for many tasks, how often each row is best."""
    best: dict[str, Line] = {}
    for task in results.lines:
        lines = [line for line in results.ranked(task, results.ranking_of(task)) if not line.row.control]
        if (first := next(filter(wanted, lines), None)) is not None:
            best[task] = first
    if not best:
        return f"{head}: none of the rows."
    head += f", by {tables.metric_title(PRIMARY_METRIC)}"
    if len(best) <= NAMED:
        stated = [line.unprotected_metrics for line in best.values() if line.epsilon is not None]
        note = next((f" N{text[1:]}." for text in stated if text), "")  # begins with "not protected"
        return f"{head}: {'; '.join(_placed(results, task, line) for task, line in best.items())}.{note}"
    names = [line.name for line in best.values()]
    often = sorted(dict.fromkeys(names), key=names.count, reverse=True)
    counts = "; ".join(f"{name} on {names.count(name)}" for name in often[:NAMED])
    return f"{head}, of {len(best)} tasks: {counts}{'; and others' if len(often) > NAMED else ''}."


def _placed(results: Results, task: str, line: Line) -> str:
    ranking = results.ranking_of(task)
    where = f" on {results.benchmark['tasks'][task]['title']}" if len(results.lines) > 1 else ""
    said = f"{line.name} with {line.mean(ranking, PRIMARY_METRIC):.4f} among {RANKINGS[ranking]}{where}"
    if line.epsilon is None:
        return said
    return f"{said}, epsilon {rounded_up(line.epsilon)} ({line.guarantee_status}) for {line.guarantee}"


def _against(results: Results, found: Sequence[Gain]) -> str:
    """Count the rows that differ significantly from the baseline."""
    bars = {task: results.baseline_of(task, results.ranking_of(task)) for task in results.lines}
    own = [gain for task, bar in bars.items() for gain in _of_tasks(results, found, bar) if gain.task == task]
    if not own:
        return "Baseline: none to compare with. Name one with --baseline NAME."
    titles = {
        bar: [results.benchmark["tasks"][task]["title"] for task in bars if bars[task] == bar] for bar in bars.values()
    }
    named = [f"{bar} on {', '.join(tasks)}" if len(titles) > 1 else bar for bar, tasks in titles.items() if bar]
    best = f"the best single-domain row{' of each task' if len(bars) > 1 else ''} ({'; '.join(named)})"
    significant = [gain for gain in own if gain.users_holm < 0.05]
    above = sum(gain.users.difference > 0 for gain in significant)
    return (
        f"Compared with {best if results.baseline is None else results.baseline} (paired over users, p < .05, Holm): "
        f"{count_of(above, 'row')} significantly better, {len(significant) - above} significantly worse, "
        f"{len(own) - len(significant)} not significantly different."
    )


def _over_noise(results: Results, found: Sequence[Gain]) -> str:
    """Count the rows that gain significantly over their noise baselines."""
    own = _of_tasks(results, found, NOISE_BASELINE)
    if not own:
        return "Transfer: no row has a noise baseline (a release of random ratings), so transfer cannot be measured."
    significant = [gain for gain in own if gain.users_holm < 0.05 and gain.users.difference > 0]
    named = [gain for gain in own if not gain.line.view.label] or own
    most = max(named, key=lambda gain: gain.users.difference)
    less = ", rows marked § excluded" * (len(named) < len(own))
    return (
        f"Transfer: {len(significant)} of {count_of(len(own), 'row')} gain significantly over their noise baseline (p < .05, "
        f"Holm). Largest gain{less}: {most.line.name}, {tables.format_signed(most.users.difference)} "
        f"{tables.metric_title(PRIMARY_METRIC)}."
    )


def _of_tasks(results: Results, found: Sequence[Gain], against: str) -> list[Gain]:
    """Return the gains over one baseline in the main ranking of each task, controls excluded."""
    own = [gain for gain in found if (gain.against, gain.measure) == (against, PRIMARY_METRIC)]
    return [gain for gain in own if not gain.line.row.control and gain.ranking == results.ranking_of(gain.task)]


def context(
    results: Results,
    found: Sequence[Gain],
    commands: Sequence[str],
    notes: str,
    transfers: Sequence[Transfer] = (),
    cases: str = "",
) -> dict[str, Any]:
    """Return the values of the templates; `cases` is a sentence on the file of cases."""
    benchmark = results.benchmark
    return {
        "title": benchmark["title"],
        "about": benchmark["about"].strip(),
        "notes": notes.strip(),
        "commands": list(commands),
        "chapters": chapters(results, found, transfers),
        "origins": [*_origins(results), *filter(None, [cases])],
        "summary": summary(results, found),
        "overview": overview(results),
    }


def origins(results: Results) -> dict[str, dict[str, int]]:
    """Return how many runs were made with each version, commit, number of threads and machine; "" if not recorded."""
    runs = [run for line in results.rows for run in line.runs]
    versions = [", ".join(f"{name} {value}" for name, value in run.versions.items()) for run in runs]
    found = {name: [str(run.report.get(name, "")) for run in runs] for name in ("commit", "threads", "machine")}
    return {name: dict(Counter(values).most_common()) for name, values in {"versions": versions, **found}.items()}


def _origins(results: Results) -> list[str]:
    """Return a line for each of `origins`, with numbers of runs where runs differ."""
    lines = []
    for name, counts in origins(results).items():
        each = [
            (value or "not recorded") + f" ({count_of(count, 'run')})" * (len(counts) > 1)
            for value, count in counts.items()
        ]
        lines.append(f"{name.capitalize()}: {'; '.join(each)}.")
    return lines


def render(template: str, values: dict[str, Any]) -> str:
    """Fill a template of this folder."""
    page = _environment(escapes=template.endswith("html.j2")).get_template(template).render(values)
    return "\n".join(map(visible, page.split("\n")))  # no control characters


@cache
def _environment(escapes: bool) -> Environment:
    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    loader = PackageLoader("zoo.benchmark.report", ".")
    environment = Environment(loader=loader, autoescape=escapes, undefined=StrictUndefined, **blocks)
    environment.filters |= {"cell": cell, "slug": slug, "svg": inline, "prose": prose}
    environment.filters |= {"line": visible, "paragraphs": markdown, "text": lambda text: markdown(visible(text))}
    return environment


def cell(text: str) -> Markup:
    """Return an entry of a table as HTML, a figure between ``**`` in bold.

    >>> cell("**0.5** <b>")
    Markup('<b>0.5</b> &lt;b&gt;')
    """
    return Markup(re.sub(r"^\*\*((?:&lt;)?[-+.\d]+)\*\*", r"<b>\1</b>", html.escape(text)))


def prose(text: str) -> Markup:
    """Return notes in Markdown as HTML: comments and pictures are dropped, other HTML is shown as text."""
    return Markup(NOTES.render(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)).rstrip("\n"))


def inline(svg: str, name: str) -> Markup:
    """Return a figure for inclusion in a page, with unique element names."""
    prefix = slug(name)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    return Markup(re.sub(r'(href="|url\()#([^")]+)', rf"\1#{prefix}-\2", svg))
