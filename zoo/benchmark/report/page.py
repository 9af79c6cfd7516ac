"""One report as Markdown and as a self-contained HTML page, from the same sections."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from zoo.benchmark.grid import slug
from zoo.benchmark.report import tables
from zoo.benchmark.report.figures import Picture, curves
from zoo.benchmark.report.gains import CLAIMED, Gain
from zoo.benchmark.report.leaderboard import leaderboards, pair_table
from zoo.benchmark.report.learning import learning_curves
from zoo.benchmark.report.negative_transfer import Transfer, tasks_of
from zoo.benchmark.report.overview import overview, ranking_of, summary
from zoo.benchmark.report.papers import versus
from zoo.benchmark.report.results import RANKINGS, Line, Results
from zoo.benchmark.report.tables import Table
from zoo.runtime.run_folder import visible
from zoo.runtime.suggestions import count_of


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
    pairs = [pair_table(results, task, ranking) for ranking in RANKINGS]
    drawn = curves(results, task)
    learned = learning_curves(results, task, ranking_of(results, task))
    beside = versus(results, task)
    settings = [tables.search_table(lines), tables.settings_table(lines)]
    return [
        *(
            Section(f"{ranking.title()} ranking ({words})", leaderboards(results, task, ranking))
            for ranking, words in RANKINGS.items()
        ),
        Section("Privacy and utility", [tables.guarantee_table(lines)], drawn),
        Section("What a row gains over its controls", tables.gain_tables(lines, own, compared)),
        Section("Any two rows", [table for table in pairs if table is not None]),
        Section("Learning curves", figures=learned, shows="validation NDCG@10 by epoch"),
        Section("Slices", tables.slice_tables(lines)),
        Section("Beside the papers", [tables.versus_table(beside)] if beside else []),
        Section("Arithmetic of the figures", [tables.arithmetic_table(results, task)]),
        Section("Settings", [table for table in settings if table is not None]),
        Section("Cost", [tables.cost_table(lines)]),
    ]


def _series(results: Results, title: str, moved: Sequence[Transfer]) -> Chapter:
    """Negative transfer in one series."""
    own = [transfer for transfer in moved if transfer.series == title]
    sections = []
    for ranking, words in RANKINGS.items():
        made = [tables.transfer_table(own, ranking, measure) for measure in CLAIMED]
        sections.append(Section(f"Negative transfer, {words}", [table for table in made if table is not None]))
    titles = {domains: results.benchmark["tasks"][task]["title"] for domains, task in tasks_of(results, title).items()}
    counts = ", ".join(f"{domains} ({task})" for domains, task in titles.items())
    said = f"One target with more and more domains: {counts}."
    return Chapter(f"series {title}", f"Negative transfer: {title}", said, [s for s in sections if s.tables])


def _said(results: Results, task: str, lines: Sequence[Line]) -> str:
    wanted = sum(len(row["seeds"]) for row in results.benchmark["rows"] if row["task"] == task)
    done = sum(len(line.runs) for line in lines)
    cases = max(len(run.cases) for line in lines for run in line.runs)
    apart = f"{results.apart[task]} " if task in results.apart else ""
    odd = list(dict.fromkeys(sentence for line in lines for run in line.runs for sentence in run.says_little))
    said = f" **Of a test these figures say little:** {'; '.join(odd)}." if odd else ""
    finished = f"{done} of {count_of(wanted, 'run')} {'is' if done == 1 else 'are'} finished"
    return (
        f"{apart}{finished}. Each is tested once, on {count_of(cases, 'held-out case')}, at the epoch of its best validation "
        "NDCG@10. Mean and sample standard deviation over seeds; the best mean of a column is bold; ties count in expectation."
        f"{said}"
    )


def context(
    results: Results, found: Sequence[Gain], commands: Sequence[str], notes: str, moved: Sequence[Transfer] = ()
) -> dict[str, Any]:
    """What the templates are filled with."""
    benchmark = results.benchmark
    runs = [run for lines in results.lines.values() for line in lines for run in line.runs]
    versions = {", ".join(f"{name} {value}" for name, value in run.versions.items()) for run in runs}
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
    environment = Environment(
        loader=PackageLoader("zoo.benchmark.report", "."),
        autoescape=escapes,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {"cell": cell, "slug": slug, "svg": inline, "prose": prose, "text": text}
    return environment


def cell(text: str) -> Markup:
    """A cell of a table for HTML: escaped, a figure between ``**`` in bold."""
    return Markup(re.sub(r"^\*\*((?:&lt;)?[-+.\d]+)\*\*", r"<b>\1</b>", html.escape(text)))


def text(name: str) -> str:
    """A name, a cell or a note for Markdown: what would begin an element of HTML, end a cell, or be a link, is text."""
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", name).replace("|", "\\|").replace("](", "]\\(").replace("][", "]\\[")


def prose(text: str) -> Markup:
    """Notes written in Markdown for HTML: paragraphs, lists, bold, code and links; everything else is text."""
    blocks = []
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("- "):
            entries = (_words(entry) for entry in re.split(r"\n- ", block[2:]))
            blocks.append("<ul>" + "".join(f"<li>{entry}</li>" for entry in entries) + "</ul>")
        elif block.startswith("## "):
            head, _, rest = block[3:].partition("\n")
            blocks.append(f"<h2>{_words(head)}</h2>" + (f"<p>{_words(rest)}</p>" if rest else ""))
        else:
            blocks.append(f"<p>{_words(block)}</p>")
    return Markup("\n".join(blocks))


def _words(text: str) -> str:
    """Code, and outside of it bold and links, of one block."""
    parts = re.split(r"`([^`]+)`", html.escape(text))
    for i in range(0, len(parts), 2):
        linked = re.sub(r"\[([^\[\]<>]+)\]\(([^)\s]+)\)", r'<a href="\2">\1</a>', parts[i])
        parts[i] = re.sub(r"\*\*([^*<>]+)\*\*", r"<b>\1</b>", linked)
    return "".join(f"<code>{part}</code>" if i % 2 else part for i, part in enumerate(parts))


def inline(svg: str, name: str) -> Markup:
    """A figure inside the page; its element names are made its own, so that two figures do not share any."""
    prefix = slug(name)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'(xlink:href="|href="|url\()#([^")]+)', rf"\1#{prefix}-\2", svg)
    return Markup(svg)
