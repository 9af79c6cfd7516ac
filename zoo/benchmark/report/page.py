"""One report as Markdown and as a self-contained HTML page, from the same sections."""

import html
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from zoo.benchmark.grid import slug
from zoo.benchmark.report import tables
from zoo.benchmark.report.figures import Picture, curves, learning_curves, overview
from zoo.benchmark.report.gains import CLAIMED, NOISE, Gain, Transfer, tasks_of
from zoo.benchmark.report.leaderboard import leaderboards, pair_table
from zoo.benchmark.report.papers import versus
from zoo.benchmark.report.results import DECIDING, RANKINGS, Line, Results
from zoo.benchmark.report.tables import Table
from zoo.privacy.record.record import rounded_up
from zoo.runtime.run_folder import visible
from zoo.runtime.suggestions import count_of

#: Of how many tasks the best row is named; of more it is counted.
NAMED = 3
#: Notes may come from elsewhere, and a page loads nothing: no HTML, no pictures.
NOTES = MarkdownIt("commonmark", {"html": False}).disable("image")


@dataclass(frozen=True)
class Section:
    """A heading with its figures by name, what they show, and its tables."""

    title: str
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, Picture] = field(default_factory=dict)
    shows: str = "NDCG@10 against epsilon"


@dataclass(frozen=True)
class Chapter:
    """One task: its key and title, how much of it is finished on how many cases, and its sections."""

    task: str
    title: str
    said: str
    sections: list[Section]


def chapters(results: Results, found: Sequence[Gain], moved: Sequence[Transfer] = ()) -> list[Chapter]:
    """The report, task by task, and then what sources do to each series of tasks."""
    made = []
    for task, lines in results.lines.items():
        kept = [section for section in _sections(results, task, lines, found) if section.tables or section.figures]
        made.append(Chapter(task, results.benchmark["tasks"][task]["title"], _said(results, task, lines), kept))
    return [*made, *(_series(results, title, moved) for title in dict.fromkeys(each.series for each in moved))]


def _sections(results: Results, task: str, lines: Sequence[Line], found: Sequence[Gain]) -> list[Section]:
    """The sections of one task, empty ones among them."""
    own = [gain for gain in found if gain.task == task]
    compared = [ranking for ranking in RANKINGS if any(gain.ranking == ranking for gain in own)]
    gained = [tables.gain_table(lines, own, ranking, DECIDING) for ranking in compared]
    leaders = [tables.leader_table(own, ranking, DECIDING) for ranking in compared]
    pairs = [pair_table(results, task, ranking) for ranking in RANKINGS]
    beside = versus(results, task)
    settings = [tables.search_table(lines), tables.settings_table(lines)]
    titles = {ranking: f"{ranking.title()} ranking ({words})" for ranking, words in RANKINGS.items()}
    return [
        *(Section(title, leaderboards(results, task, ranking)) for ranking, title in titles.items()),
        Section("Privacy and utility", [tables.guarantee_table(lines)], curves(results, task)),
        Section("What a row gains over its controls", [*gained, *filter(None, leaders)]),
        Section("Any two rows", [*filter(None, pairs)]),
        Section("Learning curves", figures=learning_curves(results, task), shows="validation NDCG@10 by epoch"),
        Section("Slices", tables.slice_tables(lines)),
        Section("Beside the papers", [tables.versus_table(beside)] if beside else []),
        Section("Arithmetic of the figures", [tables.arithmetic_table(results, task)]),
        Section("Settings", [*filter(None, settings)]),
        Section("Cost", [tables.cost_table(lines)]),
    ]


def _series(results: Results, title: str, moved: Sequence[Transfer]) -> Chapter:
    """Negative transfer in one series."""
    own = [transfer for transfer in moved if transfer.series == title]
    sections = []
    for ranking, words in RANKINGS.items():
        made = [tables.transfer_table(own, ranking, measure) for measure in CLAIMED]
        sections.append(Section(f"Negative transfer, {words}", [*filter(None, made)]))
    titles = {domains: results.benchmark["tasks"][task]["title"] for domains, task in tasks_of(results, title).items()}
    said = f"One target with more and more domains: {', '.join(f'{n} ({task})' for n, task in titles.items())}."
    return Chapter(f"series {title}", f"Negative transfer: {title}", said, [s for s in sections if s.tables])


def _said(results: Results, task: str, lines: Sequence[Line]) -> str:
    wanted = sum(len(row["seeds"]) for row in results.benchmark["rows"] if row["task"] == task)
    done = sum(len(line.runs) for line in lines)
    cases = max(len(run.cases) for line in lines for run in line.runs)
    odd = list(dict.fromkeys(sentence for line in lines for run in line.runs for sentence in run.says_little))
    said = f" **Of a test these figures say little:** {'; '.join(odd)}." if odd else ""
    finished = f"{done} of {count_of(wanted, 'run')} {'is' if done == 1 else 'are'} finished"
    apart = f"{results.apart[task]} " if task in results.apart else ""
    return (
        f"{apart}{finished}. Each is tested once, on {count_of(cases, 'held-out case')}, at the epoch of its best validation "
        "NDCG@10. Mean and sample standard deviation over seeds; the best mean of a column is bold; ties count in expectation."
        f"{said}"
    )


def summary(results: Results, found: Sequence[Gain]) -> list[str]:
    """Return five lines: rows and runs, the best row, the best private row, and gains over baseline and noise."""
    best = _best(results, "Best", lambda line: True)
    private = _best(results, "Best with a guarantee", lambda line: line.guarantee is not None)
    return [_compared(results), best, private, _against(results, found), _over_noise(results, found)]


def _compared(results: Results) -> str:
    lines = results.rows
    controls = sum(bool(line.row.control) for line in lines)
    rows = count_of(len(lines), "row") + (f", {controls} of them controls," if controls else "")
    cases = sorted({len(run.cases) for line in lines for run in line.runs})
    tested = f"{cases[0]:,}" if len(cases) == 1 else f"{cases[0]:,} to {cases[-1]:,}"
    return (
        f"Compared: {rows} on {count_of(len(results.lines), 'task')}; {results.finished:,} of {count_of(results.cells, 'run')} "
        f"finished, each tested on {tested} held-out case{'' if tested == '1' else 's'}."
    )


def _best(results: Results, head: str, wanted: Callable[[Line], bool]) -> str:
    """The best row of each task that is no control; of many tasks, how often each is."""
    best: dict[str, Line] = {}
    for task in results.lines:
        lines = [line for line in results.ranked(task, results.ranking_of(task)) if not line.row.control]
        if (first := next(filter(wanted, lines), None)) is not None:
            best[task] = first
    if not best:
        return f"{head}: none of the rows."
    if len(best) <= NAMED:
        return f"{head}, by {tables.metric(DECIDING)}: {'; '.join(_placed(results, task, line) for task, line in best.items())}."
    names = [line.name for line in best.values()]
    often = sorted(dict.fromkeys(names), key=names.count, reverse=True)
    said = "; ".join(f"{name} on {names.count(name)}" for name in often[:NAMED])
    return f"{head}, by {tables.metric(DECIDING)}, of {len(best)} tasks: {said}{'; and others' if len(often) > NAMED else ''}."


def _placed(results: Results, task: str, line: Line) -> str:
    ranking = results.ranking_of(task)
    where = f" on {results.benchmark['tasks'][task]['title']}" if len(results.lines) > 1 else ""
    said = f"{line.name} with {line.mean(ranking, DECIDING):.4f} among {RANKINGS[ranking]}{where}"
    if line.epsilon is None:
        return said
    return f"{said}, epsilon {rounded_up(line.epsilon)} ({line.standing}) for {line.guarantee}"


def _against(results: Results, found: Sequence[Gain]) -> str:
    """How many rows are told from the baseline; without one, whether the best row is told from the next."""
    own = _of_tasks(results, found, results.baseline)
    if not own:
        return "Told from a baseline: none is named that others could be held against; --baseline NAME names one."
    sure = [gain for gain in own if gain.users_holm < 0.05]
    above = sum(gain.users.difference > 0 for gain in sure)
    return (
        f"Against {results.baseline}, paired over users: {count_of(above, 'row')} above and {len(sure) - above} below it (p < .05 "
        f"after Holm's correction), {len(own) - len(sure)} not told from it."
    )


def _over_noise(results: Results, found: Sequence[Gain]) -> str:
    """What rows gain over their own noise controls; of runs without any, that there is none."""
    own = _of_tasks(results, found, NOISE)
    if not own:
        return "Transfer: no row has a noise control, by which one would tell what comes of the sources' ratings."
    sure = [gain for gain in own if gain.users_holm < 0.05 and gain.users.difference > 0]
    most = max(own, key=lambda gain: gain.users.difference)
    return (
        f"Transfer: {len(sure)} of {count_of(len(own), 'row')} with a noise control gain over it (p < .05, Holm's correction); "
        f"most does {most.line.name}, {tables.signed(most.users.difference)} {tables.metric(DECIDING)}."
    )


def _of_tasks(results: Results, found: Sequence[Gain], against: str) -> list[Gain]:
    """Differences from one control, each task in the ranking that it is summed up by, controls left out."""
    own = [gain for gain in found if (gain.against, gain.measure) == (against, DECIDING)]
    return [gain for gain in own if not gain.line.row.control and gain.ranking == results.ranking_of(gain.task)]


def context(
    results: Results, found: Sequence[Gain], commands: Sequence[str], notes: str, moved: Sequence[Transfer] = ()
) -> dict[str, Any]:
    """Return the values of the templates."""
    benchmark = results.benchmark
    made_with = [run.versions for line in results.rows for run in line.runs]
    versions = {", ".join(f"{name} {value}" for name, value in own.items()) for own in made_with}
    return {
        "title": benchmark["title"],
        "about": benchmark["about"].strip(),
        "notes": notes.strip(),
        "commands": list(commands),
        "chapters": chapters(results, found, moved),
        "versions": "; ".join(sorted(filter(None, versions))),
        "summary": summary(results, found),
        "overview": overview(results),
    }


def render(template: str, values: dict[str, Any]) -> str:
    """Fill one of the templates beside this file."""
    page = _environment(escapes=template.endswith("html.j2")).get_template(template).render(values)
    return "\n".join(map(visible, page.split("\n")))  # nothing that a terminal or a browser would obey


@cache
def _environment(escapes: bool) -> Environment:
    blocks: dict[str, Any] = {"trim_blocks": True, "lstrip_blocks": True, "keep_trailing_newline": True}
    loader = PackageLoader("zoo.benchmark.report", ".")
    environment = Environment(loader=loader, autoescape=escapes, undefined=StrictUndefined, **blocks)
    environment.filters |= {"cell": cell, "slug": slug, "svg": inline, "prose": prose, "text": text}
    return environment


def cell(text: str) -> Markup:
    """A cell of a table for HTML: escaped, a figure between ``**`` in bold."""
    return Markup(re.sub(r"^\*\*((?:&lt;)?[-+.\d]+)\*\*", r"<b>\1</b>", html.escape(text)))


def text(name: str) -> str:
    """A name, a cell or a note for Markdown: what would begin an element of HTML, end a cell, or be a link, is text."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", name).replace("|", "\\|").replace("](", "]\\(").replace("][", "]\\[")


def prose(text: str) -> Markup:
    """Return notes in Markdown as HTML: comments are dropped, other HTML is text, and pictures are not loaded."""
    return Markup(NOTES.render(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)).rstrip("\n"))


def inline(svg: str, name: str) -> Markup:
    """A figure inside the page; its element names are made its own, so that two figures do not share any."""
    prefix = slug(name)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    return Markup(re.sub(r'(href="|url\()#([^")]+)', rf"\1#{prefix}-\2", svg))
