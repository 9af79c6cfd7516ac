"""Write the generated parts of README and pages, from reports under docs/results or computed.

    python docs/generate.py            # after a new report, method, audit, import or option of `fit`

Generated text is between two marks, with a name if a page has several parts. A test fails when it is stale.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from textwrap import fill, wrap

import yaml
from api_pages import parts as api_parts
from command_pages import parts as command_parts
from data_cards import parts as data_parts
from generate_privacy import parts as privacy_parts
from generate_privacy import pictures
from house import house_table
from leaderboard import leaderboard
from papers_page import PAGE as PAPERS
from papers_page import parts as paper_parts
from papers_page import report_pages
from result_tables import cross_domain, gains, leakage, one_bit, serving
from tables import MARKS, Row, distinct, marks, name, read, table, where

import zoo
from callbacks.robustness_conductor import NEEDED
from zoo.privacy.record.legacy import earlier_sentences
from zoo.privacy.record.record import rounded_up
from zoo.privacy.record.words import SENTENCES
from zoo.runtime.exports import METHODS as METHOD_NAMES

ROOT = Path(__file__).parent.parent
METHODS = ROOT / "docs" / "methods"
RESULTS = ROOT / "docs" / "results"
DATA, CALLBACKS = ROOT / "docs" / "data.md", ROOT / "docs" / "callbacks.md"
LEAKAGE, SERVING = ROOT / "docs" / "leakage.md", ROOT / "docs" / "serving.md"
ONE_BIT, CROSS_DOMAIN = RESULTS / "one_bit.md", RESULTS / "cross_domain.md"
FAMILIES = ("cross-domain", "federated", "single-domain", "private training")
COLUMNS = {"NDCG@10, all": "full/ndcg@10", "NDCG@10": "sampled/ndcg@10", "HR@10": "sampled/hit_rate@10"}
#: The code of each condition as earlier reports word it.
CODES = {text: code for code, texts in earlier_sentences().items() for text in texts}
#: What a gain of a method's page and its p-values are.
FAMILY = (
    "Gain: over the noise baseline of the row. In brackets p over users / over seeds, of paired t-tests with Holm's correction for "
    "all rows of the report and task."
)


def front_matter(page: Path) -> dict[str, str]:
    """Return name, paper and guarantee of a method page; raise ValueError without them."""
    match = re.match(r"---\n(.*?)\n---\n", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found: dict[str, str] = yaml.safe_load(match[1]) if match else {}
    if found.keys() != {"method", "paper", "guarantee"}:
        raise ValueError(f"{page} must begin with ---, method, paper, guarantee, ---.")
    return found


def pages() -> dict[str, tuple[Path, dict[str, str]]]:
    """Return page and front matter of every method that has a page."""
    return {(found := front_matter(page))["method"]: (page, found) for page in sorted(METHODS.glob("*.md"))}


@cache
def results() -> list[Row]:
    """Return every line of every report's table of results, with the report's name."""
    paths = sorted(RESULTS.glob("*/results.csv"))
    return [{"benchmark": path.parent.name, **row} for path in paths for row in read(path)]


def gained(row: Row | None) -> str:
    """Return a gain over the noise baseline with its p-values over users and seeds."""
    if row is None:
        return "-"
    seeds = f" / {float(row['p_seeds_holm']):.2g}" if row["p_seeds_holm"] else ""
    return f"{float(row['difference']):+.4f} ({float(row['p_users_holm']):.2g}{seeds})"


def family(method: str, guarantee: str) -> str:
    """Return the family that a method is listed in."""
    if guarantee.startswith("target only"):
        return "single-domain"
    if method.startswith("Fed"):
        return "federated"
    return "cross-domain" if method == "Ensemble" or getattr(zoo, method).accepted_releases else "private training"


def methods_table() -> str:
    """Return the README's methods by family, without figures: a table, and the single-domain baselines in a paragraph."""
    groups: dict[str, list[tuple[str, ...]]] = {name: [] for name in FAMILIES}
    for method, (page, about) in sorted(pages().items()):
        reads = "as its members" if method == "Ensemble" else ", ".join(sorted(getattr(zoo, method).accepted_releases))
        year = "".join(re.findall(r"\b\d{4}\b", about["paper"])[-1:])
        guarantee = re.split(r"[:,]| that its", about["guarantee"])[0]
        link = f"[{method}]({page.relative_to(ROOT)})"
        groups[family(method, about["guarantee"])].append((link, year or "-", reads or "target ratings", guarantee))
    baselines = [f"{link} ({year})" if year != "-" else link for link, year, *_ in groups.pop("single-domain")]
    lines = [("" if place else name, *line) for name, found in groups.items() for place, line in enumerate(found)]
    listed = fill(
        f"Single-domain baselines, which read target ratings only: {', '.join(baselines)}.", 108, break_on_hyphens=False
    )
    return f"{table(('family', 'method', 'year', 'reads', 'guarantee'), lines, left=5)}\n\n{listed}"


def callback_table() -> str:
    """Return which methods each callback with a requirement applies to, by the classes' own attributes."""
    methods = {name: getattr(zoo, name) for name in METHOD_NAMES}

    def having(attribute: str) -> list[str]:
        """Return the methods that have or declare an attribute."""
        return [
            name for name, kind in methods.items()
            if hasattr(kind, attribute) or any(attribute in getattr(one, "__annotations__", {}) for one in kind.__mro__)
        ]  # fmt: skip

    def returning(needed: frozenset[str]) -> list[str]:
        """Return the methods whose step has these outputs."""
        return [name for name, kind in methods.items() if kind.step_outputs >= needed]

    needs = {
        "AttentionFigure": ("`domain_attention`", having("domain_attention")),
        "GANStabilizer": (
            "`fake_scores`, `real_scores` of `step`",
            returning(frozenset({"real_scores", "fake_scores"})),
        ),
        "PrivacyBudget": ("`private_gradient`: private steps", having("private_gradient")),
        "RobustnessConductor": ("factors of `step`", returning(NEEDED)),
    }
    lines = []
    for callback, (what, found) in needs.items():
        for place, part in enumerate(wrap(", ".join(found), 38)):  # no line of a table is wider than 110 characters
            lines.append(("" if place else f"[`{callback}`](#{callback.lower()})", "" if place else what, part))
    return table(("callback", "needs", "methods"), lines, left=3)


def under(rows: list[Row]) -> str:
    """Return what the marks of these rows mean, each assumption of a conditional epsilon with its reports."""
    reports: dict[str, dict[str, None]] = {}
    for row in rows:
        for condition in filter(None, re.split("; (?!here )", row["conditions"])):
            reports.setdefault(SENTENCES.get(CODES.get(condition, ""), condition), {})[row["benchmark"]] = None
    items = "\n".join(f"- {text[0].upper()}{text[1:]}. ({', '.join(found)})" for text, found in reports.items())
    assumed = f"\n\n‡ The epsilon of the source's file assumes:\n\n{items}" if items else ""
    others = [
        f"\n\n{mark} {MARKS[mark]}." for mark in "§¶" if any(mark in marks(row) for row in rows if row["epsilon"])
    ]
    return assumed + "".join(others)


def figures_table(method: str) -> str:
    """Return the rows of a method in all reports, for its page; a line in bold names the report of the rows below it."""
    rows = [row for row in results() if row["method"] == method and row["control"] != "noise"]
    if not rows:
        return "No report has this method."
    found = {report: gains(RESULTS / report, "sampled/ndcg@10") for report in {row["benchmark"] for row in rows}}
    titles = ("row", "epsilon", *COLUMNS, "gain in NDCG@10")
    lines: list[tuple[str, ...]] = []
    for report, task in distinct(rows, "benchmark", "task"):
        lines.append((f"**[{report}](../results/{report}/README.md), {task}**", *[""] * (len(titles) - 1)))
        for row in where(rows, benchmark=report, task=task):
            epsilon = rounded_up(float(row["epsilon"])) + marks(row) if row["epsilon"] else "-"
            cells = [f"{float(row[key]):.4f}" if row[key] else "-" for key in COLUMNS.values()]
            lines.append((shortened(row), epsilon, *cells, gained(found[report].get((task, name(row))))))
    note = f"\n\n{FAMILY}" if any("(" in line[-1] for line in lines) else ""
    said = "All: among all items. Others: 1 + 99 candidates. Spreads are in the reports."
    return f"{table(titles, lines, left=1)}\n\n{said}{note}{under(rows)}"


def shortened(row: Row) -> str:
    """Return the name of a row without its method and epsilon, which the page and another column have."""
    return re.sub(r" eps [\d.e+]+$", "", name(row).removeprefix(f"{row['method']}, ").removeprefix(f"{row['method']} "))


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
        raise ValueError(f"{page} has {unknown} marks that nothing generates. Known: {sorted(parts)}.")
    return whole


def generated() -> dict[Path, str]:
    """Return every page with generated text, as it should be."""
    made = {
        ROOT / "README.md": filled(ROOT / "README.md", {"": methods_table()}),
        ROOT / "CONTRIBUTING.md": filled(ROOT / "CONTRIBUTING.md", {"map": house_table()}),
        CALLBACKS: filled(CALLBACKS, {"callbacks": callback_table()}),
        DATA: filled(DATA, data_parts()),
        LEAKAGE: filled(LEAKAGE, leakage()),
        SERVING: filled(SERVING, serving()),
        ONE_BIT: filled(ONE_BIT, one_bit()),
        CROSS_DOMAIN: filled(CROSS_DOMAIN, cross_domain()),
        RESULTS / "index.md": filled(RESULTS / "index.md", {"": leaderboard()}),
    }
    made |= {page: filled(page, found) for page, found in (api_parts() | command_parts() | privacy_parts()).items()}
    made |= pictures() | dict(report_pages()) | {PAPERS: filled(PAPERS, paper_parts())}
    for method, (page, _) in pages().items():
        made[page] = filled(page, {"": figures_table(method)})
    return made


def main() -> None:
    """Write the stale pages."""
    for path, text in generated().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
