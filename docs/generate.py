"""Writes what README and pages say of figures: from the reports under docs/results, or computed.

    python docs/generate.py            # after a new report, method, audit, import or option of `fit`

Generated text stands between two marks, with the name of the part where a page has several; everything around it is
written by hand. A test fails when it is stale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import yaml
from api_pages import parts as api_parts
from command_pages import parts as command_parts
from data_cards import parts as data_parts
from generate_privacy import parts as privacy_parts
from generate_privacy import pictures
from house import house_table
from result_tables import cross_domain, gains, leakage, one_bit, quickstart
from tables import Row, name, read, table, where

import zoo
from zoo.benchmark.report.papers import published
from zoo.commands.listing import first_line
from zoo.privacy.record.record import rounded_up

ROOT = Path(__file__).parent.parent
METHODS = ROOT / "docs" / "methods"
RESULTS = ROOT / "docs" / "results"
DATA = ROOT / "docs" / "data.md"
LEAKAGE = ROOT / "docs" / "leakage.md"
ONE_BIT, CROSS_DOMAIN = RESULTS / "one_bit.md", RESULTS / "cross_domain.md"
#: The task that the README compares on: the one that can be rebuilt row for row, and its papers' figures.
TASK, PUBLISHED = "book-music", ("douban", "book", "music")
#: Reports that have it; a method is shown from the first that has the method.
REPORTS = ("douban", "ppgencdr", "single_domain")
#: What p-values are corrected for, under a table that has some.
FAMILY = (
    "\n\np: of paired t-tests, after Holm's correction for all rows of the same report and task that have such a control. A row "
    "that two reports share may have another p in each."
)
#: A method that reads releases is shown at the guarantee nearest to this.
EPSILON = 8.0


def front_matter(page: Path) -> dict[str, str]:
    """Return name, paper and guarantee of a method page; raise ValueError without them."""
    match = re.match(r"---\n(.*?)\n---\n", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found: dict[str, str] = yaml.safe_load(match[1]) if match else {}
    if found.keys() != {"method", "paper", "guarantee"}:
        raise ValueError(f"{page} must begin with method, paper and guarantee between two lines of ---.")
    return found


def pages() -> dict[str, tuple[Path, dict[str, str]]]:
    """Page and front matter of every method that has a page."""
    return {(found := front_matter(page))["method"]: (page, found) for page in sorted(METHODS.glob("*.md"))}


def results() -> list[Row]:
    """Every line of every report's table of results, with the report's name."""
    paths = sorted(RESULTS.glob("*/results.csv"))
    return [{"benchmark": path.parent.name, **row} for path in paths for row in read(path)]


def gained(row: Row | None) -> str:
    """A gain over the noise baseline with its p-values."""
    if row is None:
        return "-"
    seeds = f", {float(row['p_seeds_holm']):.2g} over seeds" if row["p_seeds_holm"] else ""
    return f"{float(row['difference']):+.4f} (p {float(row['p_users_holm']):.2g} over users{seeds})"


def figure(row: Row, key: str) -> str:
    """A figure with its spread."""
    spread = f" ±{float(row[f'{key} sd']):.4f}" if row[f"{key} sd"] else ""
    return f"{float(row[key]):.4f}{spread}" if row[key] else "-"


def methods_table() -> str:
    """The README's table: every exported method."""
    known, rows = pages(), results()
    reached: list[Row] = []
    titles = ("method", "paper", "what it is", "guarantee", "ours, NDCG@10 / HR@10")
    titles += ("with noise for a release", "without one", "the paper's")
    lines = []
    for method, module in sorted(zoo.METHODS.items()):
        page, said = known[method]
        what = first_line(ROOT / (module.replace(".", "/") + ".py"), method).rstrip(".")
        row = shown(method, rows)
        ours = both(row)
        if row and row["release"]:
            ours += f" ({row['release']}{marked(row)})"
        reached += [row] if row else []
        link = f"[{method}]({page.relative_to(ROOT)})"
        controls = [both(control(row, release, rows)) for release in ("Noise ({})", "Nothing")]
        lines.append((link, said["paper"], what, said["guarantee"], ours, *controls, theirs(row)))
    note = "Douban Book -> Music, one item among 1 + 99, mean over seeds; a method that reads a release at the guarantee nearest "
    note += f"to epsilon {EPSILON:g}, beside the same with a release of redrawn ratings and with none: only what is above both has "
    note += "come of the source. All figures: [docs/results](docs/results)."
    return f"{table(titles, lines, left=4)}\n\n{note}{under(reached)}"


def both(row: Row | None) -> str:
    """NDCG@10 and HR@10 of a row among 1 + 99."""
    return f"{float(row['sampled/ndcg@10']):.4f} / {float(row['sampled/hit_rate@10']):.4f}" if row else "-"


def control(row: Row | None, release: str, rows: list[Row]) -> Row | None:
    """The row of the same system with another release, in whose name the row's own stands for ``{}``."""
    if row is None or not row["release"]:
        return None
    wanted = {key: row[key] for key in ("benchmark", "task", "system")}
    return next(iter(where(rows, **wanted, release=release.format(row["release"]))), None)


def marked(row: Row) -> str:
    """Return the mark of a conditional epsilon."""
    return " ‡" if row["conditions"] else ""


def under(rows: list[Row]) -> str:
    """Return a sentence for each set of conditions of these rows, with its reports."""
    pairs, text = dict.fromkeys((row["conditions"], row["benchmark"]) for row in rows if row["conditions"]), ""
    for conditions in dict.fromkeys(conditions for conditions, _ in pairs):
        reports = ", ".join(report for own, report in pairs if own == conditions)
        text += f"\n\n‡ Conditional ({reports}): the epsilon is that of the source's own file only if "
        text += f"{conditions.replace('; ', '; and if ')}."
    return text


def shown(method: str, rows: list[Row]) -> Row | None:
    """The row that stands for a method in the README."""
    found = where(rows, task=TASK, system=method, control="")
    own = next(filter(None, (where(found, benchmark=report) for report in REPORTS)), [])
    private = [row for row in own if row["epsilon"]]
    nearest = sorted(private, key=lambda row: abs(round(float(row["epsilon"]), 2) - EPSILON))
    return next(iter([*nearest, *own]), None)


def theirs(row: Row | None) -> str:
    """The papers' figures for what a row repeats; marked where they cannot all be true."""
    if row is None or not row["published_as"]:
        return "-"
    cells = []
    for paper in published(*PUBLISHED):
        if paper.method == row["published_as"]:
            doubt = " (inconsistent)" if paper.inconsistencies else ""
            cells.append(f"{paper.figures['ndcg@10']:.4f} / {paper.figures['hit_rate@10']:.4f}{doubt}")
    return "; ".join(cells) or "-"


def figures_table(method: str) -> str:
    """All rows of a method in all reports, for its page."""
    rows = [row for row in results() if row["method"] == method and row["control"] != "noise"]
    if not rows:
        return "None of the reports has it."
    found = {report: gains(RESULTS / report, "sampled/ndcg@10") for report in {row["benchmark"] for row in rows}}
    titles = ("report", "row", "epsilon", "NDCG@10, all items", "NDCG@10, 1 + 99", "HR@10, 1 + 99")
    lines = []
    for row in rows:
        place = f"[{row['benchmark']}](../results/{row['benchmark']}/README.md), {row['task']}"
        cells = [figure(row, key) for key in ("full/ndcg@10", "sampled/ndcg@10", "sampled/hit_rate@10")]
        epsilon = rounded_up(float(row["epsilon"])) + marked(row) if row["epsilon"] else "-"
        gain = found[row["benchmark"]].get((row["task"], name(row)))
        lines.append((place, name(row), epsilon, *cells, gained(gain)))
    made = table((*titles, "NDCG@10 less its noise control"), lines, left=2)
    return made + (FAMILY if any("(p " in line[-1] for line in lines) else "") + under(rows)


def filled(page: Path, parts: Mapping[str, str]) -> str:
    """Return a page with texts between their marks; raise ValueError if marks are missing, repeated or unknown."""
    whole = page.read_text(encoding="utf-8")
    for part, text in parts.items():
        begin, end = (f"<!-- generated: {part}{' ' * bool(part)}{side} -->" for side in ("begin", "end"))
        if whole.count(begin) != 1 or whole.count(end) != 1 or whole.index(end) < whole.index(begin):
            raise ValueError(f"{page} must have {begin} and after it {end}, once each.")
        head, rest = whole.split(begin)
        whole = f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}"
    if unknown := whole.count("<!-- generated: ") - 2 * len(parts):
        raise ValueError(f"{page} has {unknown} marks of parts that nothing generates; the known are {sorted(parts)}.")
    return whole


def generated() -> dict[Path, str]:
    """Every page that holds generated text, as it should be."""
    made = {
        ROOT / "README.md": filled(ROOT / "README.md", {"": methods_table(), "quickstart": quickstart()}),
        ROOT / "CONTRIBUTING.md": filled(ROOT / "CONTRIBUTING.md", {"map": house_table()}),
        DATA: filled(DATA, data_parts()),
        LEAKAGE: filled(LEAKAGE, leakage()),
        ONE_BIT: filled(ONE_BIT, one_bit()),
        CROSS_DOMAIN: filled(CROSS_DOMAIN, cross_domain()),
    }
    made |= {page: filled(page, found) for page, found in (api_parts() | command_parts() | privacy_parts()).items()}
    made |= pictures()
    for method, (page, _) in pages().items():
        made[page] = filled(page, {"": figures_table(method)})
    return made


def main() -> None:
    """Write what is stale."""
    for path, text in generated().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
