"""Parts of docs/papers.md, and comparisons with papers in the pages of reports; all from committed CSV files."""

from __future__ import annotations

import fnmatch
import math
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tables import Row, name, read, table, where

from zoo.benchmark.experiments import papers
from zoo.benchmark.grid import Benchmark
from zoo.benchmark.grid import Row as GridRow
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.report.papers import Measured, PaperComparison, Published, all_published, compared, published
from zoo.benchmark.report.results import MEASURES
from zoo.benchmark.report.tables import papers_table
from zoo.benchmark.runs import folder_of
from zoo.runtime.suggestions import count_of

ROOT = Path(__file__).parent.parent
PAGE, RESULTS = ROOT / "docs" / "papers.md", ROOT / "docs" / "results"
GRIDS = ROOT / "configs" / "benchmarks"
HEADING, BEFORE = "### Comparison with published figures\n\n", "### Consistency of the figures"


@cache
def grid(key: str) -> Benchmark:
    """Return a grid by its name."""
    return read_benchmark(GRIDS / f"{key}.yaml")


@cache
def rows_of(key: str) -> list[GridRow]:
    """Return the rows of a grid."""
    return [*grid(key).rows()]


def reports(key: str) -> list[Path]:
    """Return the reports of a grid: its own, and one for each task that has its own."""
    names = [key, *(f"{key}_{task.replace('-', '_')}" for task in grid(key).tasks)]
    return [RESULTS / each for each in names if (RESULTS / each / "results.csv").is_file()]


def figures(row: Row) -> dict[str, float]:
    """Return the figures of a row of results among 1 + 99 candidates; NaN where there is none."""
    return {measure: float(row[f"sampled/{measure}"] or math.nan) for measure in MEASURES}


@cache
def comparisons(report: Path, key: str) -> dict[str, list[PaperComparison]]:
    """Return the comparisons of a report of a grid, by task; the grid says which rows papers have."""
    found = {}
    for task, about in grid(key).tasks.items():
        rows = {name(row): Measured(row["system"], row["release"], row["control"], figures(row))
                for row in where(read(report / "results.csv"), task=task)}  # fmt: skip
        claims = [(row.published_as, row.reason, rows[row.name]) for row in rows_of(key)
                  if row.task == task and row.name in rows]  # fmt: skip
        place = vars(about.published) if about.published else None
        if made := compared(place, claims, [*rows.values()]):
            found[task] = made
    return found


def claimed(key: str) -> list[Published]:
    """Return the published rows that a grid has a row for, measured or not."""
    made = grid(key)
    places = {task: about.published for task, about in made.tasks.items() if about.published}
    return [
        paper
        for row in rows_of(key)
        if (place := places.get(row.task))
        for paper in published(place.dataset, place.source, place.target)
        if paper.method in row.published_as.split(", ")
    ]


def grid_names() -> list[str]:
    """Return the names of all grids."""
    return sorted(path.stem for path in GRIDS.glob("*.yaml"))


def not_rebuilt(paper: Published) -> str:
    """Return why a published row is not rebuilt, or "" without a reason."""
    for about in papers()[paper.paper].get("not_rebuilt", []):
        if all(getattr(paper, part) == value for part, value in about.items() if part != "reason"):
            return str(about["reason"])
    return ""


def measured_comparisons() -> list[PaperComparison]:
    """Return the comparisons of all reports."""
    return [
        each for key in grid_names() for report in reports(key)
        for found in comparisons(report, key).values() for each in found
    ]  # fmt: skip


def status(paper: str, item: str) -> str:
    """Return the status of an item without grids."""
    about = papers()[paper]["items"][item]
    if "see" in about:
        return "; ".join(line[-1] for line in lines(paper, about["see"]))
    if "none" in about:
        return f"not repeated: {about['none']}"
    if "script" in about:
        drawn = RESULTS / "one_bit" / f"{item.replace(' ', '_')}.png"
        return "measured" if drawn.is_file() else "not measured"
    if "shown" in about:
        return f"on the page; {about['differs']}" if "differs" in about else "on the page"
    return str(about.get("verdict") or "tested")


def grid_status(paper: str, item: str, key: str, pattern: str) -> str:
    """Return how the reports of one grid replicate a table, or how many rows of a figure they have."""
    found = [each for report in reports(key) for task in comparisons(report, key).values() for each in task]
    counts = Counter(each.status for each in found if (each.paper.paper, f"table {each.paper.table}") == (paper, item))
    if counts:
        return ", ".join(f"{count} {what}" for what, count in counts.most_common())
    seeds = {(row["task"], name(row)): row["seeds"] for report in reports(key) for row in read(report / "results.csv")}
    wanted = [(row.task, row.name) for row in rows_of(key)
              if any(fnmatch.fnmatch(f"{folder_of(row)}/seed-0", one) for one in pattern.split())]  # fmt: skip
    measured = sorted(int(seeds[row]) for row in wanted if row in seeds)
    if not measured:
        return "not measured"
    spread = "-".join(map(str, sorted({measured[0], measured[-1]})))
    return f"{len(measured)} of {len(wanted)} rows, {spread} seed{'s' * (spread != '1')}"


def lines(paper: str, item: str) -> list[tuple[str, ...]]:
    """Return the lines of an item: its name, content, evidence and status; one line for each grid."""
    about = papers()[paper]["items"][item]
    found = []
    for key, pattern in about.get("runs", {}).items():
        links = [f"[{key}](results/{report.name}/README.md)" for report in _shown(key)]
        differs = f"; {about['differs']}" if "differs" in about else ""
        found.append((", ".join(links) or f"`{key}`", grid_status(paper, item, key, pattern) + differs))
    if rows := [row for row in all_published() if (row.paper, f"table {row.table}") == (paper, item)]:
        missing = len({id(row) for row in rows} - {id(each.paper) for each in measured_comparisons()})
        found += [("-", f"{missing} of {len(rows)} rows not measured")] if missing else []
    found = found or [(_evidence(about), status(paper, item))]
    return [(*((item, about["what"]) if not place else ("", "")), *line) for place, line in enumerate(found)]


def _evidence(about: dict[str, Any]) -> str:
    """Return function and test, page, script or other item."""
    cells = []
    if "code" in about:
        cells.append(f"`{'.'.join(about['code'].split('.')[-2:])}`<!-- {about['code']} -->")
    if page := about.get("page") or about.get("shown"):
        cells.append(f"[{Path(page).stem}]({page})")
    test = about.get("test", "::").split("::")[0].split("/")[-1]
    if test and f"test_{about.get('code', '').split('.')[-2:][0]}.py" == test:
        cells[0] += f"<!-- {about['test']} -->"  # the file of the module's name
    elif test:
        cells.append(f"`{about['test'].split('::')[0].split('/')[-1]}`<!-- {about['test']} -->")
    if "script" in about:
        cells.append(f"`{about['script']}`")
    return ", ".join(cells) or about.get("see", "-")


def _shown(key: str) -> list[Path]:
    """Return the reports of a grid that papers have tasks of, or all."""
    return [report for report in reports(key) if comparisons(report, key)] or reports(key)


def items(paper: str) -> str:
    """Return the tables of one paper: tables and figures, then equations and theorems."""
    made = []
    for evidence, measured in (("config, linked to its report", True), ("function, page and test", False)):
        rows = [
            line
            for item in papers()[paper]["items"]
            if item.startswith(("table", "figure")) is measured
            for line in lines(paper, item)
        ]
        made.append(table(("item", "content", evidence, "status"), rows, left=4))
    return "\n\n".join(made)


def _digits(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def published_rows(paper: str) -> str:
    """Return each published row of a paper with our rows, their baselines and the status; then those that are not rebuilt."""
    made = []
    for each in measured_comparisons():
        if each.paper.paper == paper:
            beside = (each.ours, each.paper, each.noise, each.alone)
            cells = [
                " / ".join(_digits(row.figures[measure]) if row else "-" for row in beside)
                for measure in ("hit_rate@10", "ndcg@10")
            ]
            task = f"{each.paper.dataset}, {each.paper.target}"
            made.append((task, each.paper.method, each.ours.name, *cells, each.status))
    blocks = []
    for task in dict.fromkeys(line[0] for line in made):
        rows = [line[1:] for line in made if line[0] == task]
        titles = ("paper's row", "our row", "HR@10", "NDCG@10", "status")
        blocks.append(f"**{task}**\n\n{table(titles, rows, left=2)}")
    reasons = Counter(
        (row.dataset, not_rebuilt(row)) for row in all_published() if row.paper == paper and not_rebuilt(row)
    )
    left = [f"- {count_of(count, 'row')} of {dataset}: {reason}." for (dataset, reason), count in reasons.items()]
    found = {id(each.paper) for each in measured_comparisons()}
    pending = [
        row.method for row in all_published() if row.paper == paper and id(row) not in found and not not_rebuilt(row)
    ]
    left += [f"- Not measured yet: {', '.join(dict.fromkeys(pending))}."] if pending else []
    return "\n\n".join([*blocks, *(["Not rebuilt:\n\n" + "\n".join(left)] if left else [])])


def parts() -> dict[str, str]:
    """Return the parts of the page by their names."""
    made = {paper: items(paper) for paper in papers()}
    return made | {f"{paper} rows": published_rows(paper) for paper in papers() if paper != "one_bit"}


def report_pages() -> Iterator[tuple[Path, str]]:
    """Yield every report's page that papers have a task of, with its comparisons as the current function judges them."""
    for key in grid_names():
        for report in reports(key):
            text = (report / "README.md").read_text(encoding="utf-8")
            for task, found in comparisons(report, key).items():
                before, heading, chapter = text.partition(f"\n## {grid(key).tasks[task].title}\n")
                chapter, *others = re.split(r"(?=\n## )", chapter, maxsplit=1)
                chapter = re.sub(rf"{HEADING}.*?(?=### )", "", chapter, flags=re.DOTALL)
                chapter = chapter.replace(BEFORE, f"{HEADING}{_section(found)}\n\n{BEFORE}", 1)
                text = "".join([before, heading, chapter, *others])
            if comparisons(report, key):
                yield report / "README.md", text


def _section(found: list[PaperComparison]) -> str:
    """Return the table of a report's section, with its note."""
    made = papers_table(found)
    rows = [[cell.replace("|", "\\|") for cell in row] for row in made.rows]
    rule = "|---|---|" + "---:|" * (len(made.columns) - 3) + "---|"
    lines = [f"| {' | '.join(made.columns)} |", rule, *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines) + "\n\n" + "\n\n".join(made.notes)
