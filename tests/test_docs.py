"""Generated text is as fresh as the reports, every method has a page, every cited figure is in a report."""

import csv
import importlib
import inspect
import math
import re
import subprocess
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import ModuleType

import pytest

import zoo
from zoo.benchmark.report.papers import violations
from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.audits.catalogue import all_audits
from zoo.privacy.mechanisms import BUILT_IN
from zoo.privacy.mechanisms.base import field_types
from zoo.privacy.record.record import unprotected_record
from zoo.privacy.record.words import SENTENCES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
#: A figure with its source behind it: `0.4050<!-- report/task: row | sampled/ndcg@10 -->`, a gain over noise if it has a sign. In a
#: table the bar is escaped.
SOURCE = re.compile(r"<!--\s+\w+/[\w-]+:\s[^|]*\|.*?-->", re.DOTALL)
CITED = re.compile(
    r"(?<![\w.])(?P<value>[+-]?\d\.\d{4})"
    r"<!-- (?P<report>\w+)/(?P<task>[\w-]+): (?P<row>[^|]+?) \\?\| (?P<figure>\w+/\w+@\d+) -->"
)


#: Computed apart from this project at n' = 400 and delta 1e-5: epsilon, w of the paper, w unit, paper/unit, w gaussian, true
#: epsilon at the paper's w.
CALIBRATION = """
0.5 14934  140.64 106.2 141.62 0.00275
1   7466.9 74.613 100.1 75.206 0.00616
2   3733.5 39.876 93.6  40.240 0.0136
4   1866.7 21.623 86.3  21.855 0.0295
8   933.36 12.005 77.8  12.161 0.0636
16  466.68 6.8835 67.8  6.9970 0.136
32  233.34 4.0987 56.9  4.1870 0.290
64  116.67 2.5343 46.0  2.6072 0.618
"""


@pytest.fixture(scope="module")
def docs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")
        yield


@pytest.fixture(scope="module")
def generate(docs: None) -> ModuleType:
    return importlib.import_module("generate")


@pytest.fixture(scope="module")
def privacy(docs: None) -> ModuleType:
    return importlib.import_module("generate_privacy")


@pytest.fixture(scope="module")
def results(docs: None) -> ModuleType:
    return importlib.import_module("privacy_results")


def cells(table: str) -> list[list[str]]:
    """The rows of a table, without its header."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


@pytest.mark.thorough
def test_generated_text_is_not_stale(generate: ModuleType) -> None:
    stale = [str(path.relative_to(ROOT)) for path, text in generate.generated().items() if path.read_text() != text]
    assert not stale, "run python docs/generate.py"


def test_a_page_has_the_marks_of_its_parts_once_and_no_others(generate: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- generated: x begin -->\nold\n<!-- generated: x end -->\nb\n")
    whole = "a\n<!-- generated: x begin -->\n\nnew\n\n<!-- generated: x end -->\nb\n"
    assert generate.filled(page, {"x": "new"}) == whole
    for parts in ({"y": "new"}, {"": "new"}, {}):
        with pytest.raises(ValueError, match=r"marks|must have"):
            generate.filled(page, parts)


def test_every_method_has_a_page_with_all_its_parts(generate: ModuleType) -> None:
    pages = generate.pages()
    assert pages.keys() == zoo.METHODS.keys()
    for method, (page, said) in pages.items():
        text = page.read_text(encoding="utf-8")
        headings = re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
        assert headings == ["Idea", "Who sees what", "Command", "Figures", "Departures"], page.name
        assert "python -m zoo fit --config configs/" in text, page.name
        assert said["paper"] == "none" or "\nPaper: " in text, method
        idea = text.split("## Idea\n\n")[1].split("\n\n")[0]
        assert 3 <= len(re.findall(r"[.?](?:\s|$)", idea)) <= 6, f"{page.name}: the idea in five sentences"
        for config in re.findall(r"--config (configs/\S+?\.yaml)", text):
            assert (ROOT / config).is_file(), config


def test_the_table_of_departures_has_every_default(generate: ModuleType) -> None:
    """Each argument with a default is a row, and its last cell is that default."""

    def shown(value: object) -> str:
        if isinstance(value, tuple):
            return ", ".join(map(str, value)) or "none"
        if value is None or isinstance(value, bool):
            return {None: "null", True: "yes", False: "no"}[value]
        return f"{value:g}" if isinstance(value, float) else str(value)

    for method, (page, _) in generate.pages().items():
        departures = page.read_text(encoding="utf-8").split("\n## Departures\n")[1]
        _, _, table = departures.partition("| constant | paper | released code | here |\n|---|---|---|---|\n")
        rows = [line.strip("| ").split(" | ") for line in table.split("\n\n")[0].splitlines()]
        assert rows, page.name
        assert {len(row) for row in rows} == {4}, page.name
        found = {row[0].strip("`"): row[3] for row in rows if row[0].startswith("`")}
        arguments = inspect.signature(getattr(zoo, method).__init__).parameters.values()
        assert found == {a.name: shown(a.default) for a in arguments if a.default is not a.empty}, page.name


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        text = re.sub(
            r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL
        )  # code calls what it looks up
        for target in re.findall(r"(?:\]\(|^\[\w+\]: )([^)#\s]+)", text, flags=re.MULTILINE):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asks git which files are committed")
def test_only_pages_tables_and_shown_figures_are_committed() -> None:
    """Built pages and figures that no page shows are written again by `python -m zoo report`."""
    listed = subprocess.run(["git", "ls-files", "docs"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = {ROOT / line for line in listed.splitlines() if (ROOT / line).is_file()}
    kinds = {file.suffix for file in files if DOCS / "results" in file.parents}
    assert {".md", ".csv", ".png", ".svg"} <= kinds <= {".md", ".csv", ".png", ".svg", ".json", ".parquet"}
    assert not [file for file in files if file.suffix == ".html"]
    pages = [ROOT / "README.md", *(file for file in files if file.suffix == ".md")]
    shown = {
        (page.parent / target).resolve()
        for page in pages
        for target in re.findall(r"!\[[^]]*\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8"))
    }
    figures = {file for file in files if file.suffix in {".png", ".svg"}}
    assert not figures - shown, "remove them, or show them on a page"


NOTES = [path.relative_to(DOCS).as_posix() for path in sorted((DOCS / "results").glob("*/notes.md"))]
CITING = ["choosing.md", "privacy/utility.md", *NOTES]
PAGES = [path.relative_to(DOCS).as_posix() for path in sorted(DOCS.rglob("*.md")) if path.name != "README.md"]


def lines_of(report: Path) -> list[dict[str, str]]:
    with report.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.thorough
def test_every_cited_figure_is_in_its_report() -> None:
    for page in PAGES:
        check_citations(page)


def check_citations(page: str) -> None:
    source = (DOCS / page).read_text(encoding="utf-8")
    assert not re.search(r"^\|.*<!--[^>]*[^\\]\|.*-->", source, re.M), f"{page}: write \\| in the comments of a table"
    text = " ".join(source.split())
    cited = list(CITED.finditer(text))
    assert cited or page not in CITING, f"{page} cites no row"
    assert len(cited) == len(SOURCE.findall(text)), f"{page} has a source without a figure of four digits before it"
    for match in cited:
        where = match.groupdict()
        gain = where["value"][0] in "+-"
        path = DOCS / "results" / where["report"] / ("gains.csv" if gain else "results.csv")
        rows = [row for row in lines_of(path) if row["task"] == where["task"]]
        if gain:
            found = [row for row in rows if (row["row"], row["figure"]) == (where["row"], where["figure"])]
            shown = [f"{float(row['difference']):+.4f}" for row in found]
        else:
            named = [(f"{row['system']}, {row['release']}".removesuffix(", "), row) for row in rows]
            shown = [f"{float(row[where['figure']]):.4f}" for name, row in named if name == where["row"]]
        assert where["value"] in shown, f"{page} cites {match[0]}, the report has {shown}"


def test_no_report_and_no_leaderboard_leads_with_a_guarantee_without_meaning(docs: None) -> None:
    leaderboard = importlib.import_module("leaderboard")
    for path in leaderboard.RESULTS.glob("*/results.csv"):
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        flips = [row for row in rows if row["epsilon"] and float(row["delta"]) == 0]
        weak = [row for row in flips if 1 / (1 + math.exp(-float(row["epsilon"]))) > 0.99]
        weak += [row for row in rows if float(row.get("attack_success") or 0) > 0.99]
        assert not any(leaderboard.KINDS["private"](row) for row in weak)
        best = "".join(re.findall("^- Best, .*", (path.parent / "README.md").read_text(encoding="utf-8"), re.MULTILINE))
        assert not any(f"{row['system']}, {row['release']} with" in best for row in weak), path
        assert ("§" in best) == bool(weak), path
    assert leaderboard.marks({"conditions": "x", "label": "y", "unprotected_metrics": "z", "epsilon": "1"}) == " ‡ § ¶"


def test_no_committed_figure_breaks_the_arithmetic_of_ranks() -> None:
    """What papers' tables are held against, on our own; means over seeds of one checkpoint each keep it too."""
    names = [f"{metric}@{k}" for metric in ("hit_rate", "ndcg", "mrr") for k in (5, 10)]
    for report in (DOCS / "results").glob("*/results.csv"):
        rows = lines_of(report)
        assert rows, report
        for row, kind in product(rows, ("sampled", "full")):
            figures = {name: float(row[f"{kind}/{name}"]) for name in names if row.get(f"{kind}/{name}")}
            assert violations(figures, 1e-6, joint=True) == [], (report.parent.name, row["task"], row["system"], kind)


def test_every_item_of_the_papers_has_a_status_and_every_published_row_a_claim(docs: None) -> None:
    page = importlib.import_module("papers_page")
    for paper, about in page.papers().items():
        for item in about["items"]:
            assert all(line[-1].strip() for line in page.lines(paper, item)), (paper, item)
    claimed = {id(row) for key in page.grid_names() for row in page.claimed(key)}
    for row in page.all_published():
        listed = bool(page.not_rebuilt(row))
        assert (id(row) in claimed) != listed, f"{row}: claimed by a row of a grid, or listed with a reason, not both"
    assert all(each.noise or each.alone for each in page.measured_comparisons() if each.status != "not comparable")


# docs/privacy


def test_the_calibration_table_has_the_figures_computed_elsewhere(privacy: ModuleType) -> None:
    found = cells(privacy.calibration_table())
    expected = [line.split() for line in CALIBRATION.strip().splitlines()]
    assert [row[0] for row in found] == [row[0] for row in expected]
    for row, (_, *figures, true_epsilon) in zip(found, expected, strict=True):
        assert [float(cell) for cell in row[1:5]] == pytest.approx([float(figure) for figure in figures], rel=1e-4)
        # The page rounds up to three digits what is lost, the other figures are rounded to the nearest.
        assert 0.995 * float(true_epsilon) <= float(row[5]) <= 1.01 * float(true_epsilon)
    sigmas = {row[0]: float(row[6]) for row in found}
    assert [sigmas[e] for e in ("0.5", "1", "2", "4", "8", "16", "32", "64")] == pytest.approx(
        [7.0318266756, 3.7306316348, 1.9938124456, 1.0811618495, 0.6002290722, 0.3441774285, 0.204935, 0.126714],
        rel=1e-4,
    )
    flips = {row[0]: float(row[7]) for row in found}
    assert [1 - flips[e] for e in ("1", "2", "4")] == pytest.approx([0.731059, 0.880797, 0.982014], abs=1e-5)


def test_the_classical_table_has_the_figures_computed_elsewhere(privacy: ModuleType) -> None:
    found = {row[0]: [float(cell) for cell in row[1:]] for row in cells(privacy.classical_table())}
    assert found["1"] == pytest.approx([4.844805, 3.730632, 0.751, 4.1e-8], rel=0.01)
    assert found["8"] == pytest.approx([0.605601, 0.600229, 7.914, 8.0e-6], rel=0.01)
    assert found["16"] == pytest.approx([0.302800, 0.344177, 18.90, 3.4e-4], rel=0.011)
    assert found["64"] == pytest.approx([0.075700, 0.126714, 142.73, 0.95], rel=0.011)


def test_many_ratings_cost_more_with_flips_than_with_gaussian_noise(privacy: ModuleType) -> None:
    events = privacy.several(1.0)
    assert epsilon_of([events["`FlippedRows`"](100)], 1e-5) == pytest.approx(79.841, abs=1e-3)
    assert epsilon_of([events["`NoisyRows`"](100)], 1e-5) == pytest.approx(14.429, abs=1e-3)
    rows = {(row[0], row[1]): row[2:] for row in cells(privacy.groups_table())}
    assert rows["1", "`FlippedRows`"][-1] == "79.9"  # rounded up
    assert rows["1", "`NoisyRows`"][-1] == "14.5"
    for (epsilon, _), found in rows.items():
        assert float(found[0]) == float(epsilon)
    assert {row[0]: row[1] for row in cells(privacy.user_level_table())} == {
        # Phi(mu/2), not (e^eps + delta)/(1 + e^eps)
        "1": "55.34 %", "2": "59.91 %", "4": "67.82 %", "8": "79.76 %", "16": "92.69 %",
    }  # fmt: skip
    # The row of k ratings of one person is that of a user with a clip of sqrt(k), whose w at epsilon 8 is 12.16 C.
    user = {row[0]: row[2:4] for row in cells(privacy.user_level_table())}
    assert [float(cell) for cell in user["8"]] == pytest.approx([0.6002290722, 12.161070370790775], rel=1e-4)


def test_the_answer_about_epsilon_8_has_the_delta_of_each_bound() -> None:
    answer = (DOCS / "faq.md").read_text(encoding="utf-8").partition("**Is epsilon 8 safe?**")[2].partition("**")[0]
    found = dict(re.findall(r"([\d.]+ %) at delta (1e-\d)", answer))
    assert found == {"79.76 %": "1e-5", "85.13 %": "1e-3"}
    for bound, delta in found.items():
        assert zoo.NoisyRows(epsilon=8.0, delta=float(delta)).forecast(100, 5).view.bound == bound


@pytest.mark.thorough
def test_the_audit_table_shows_audits_that_exist_and_no_surprise(results: ModuleType) -> None:
    found, names = results.audit_rows(), {audit.name for audit in all_audits()}
    assert found == results.read(results.AUDIT), "a section has each audit"
    assert {row["mechanism"] for row in found} <= names
    assert {(row["holds"], row["verdict"]) for row in found} == {("true", "pass"), ("false", "violation")}
    shown = [row for section in results.AUDITS for row in cells(results.audit_table(section))]
    assert len(shown) == len({tuple(row[:2]) for row in shown}) == len(found)


def test_the_page_on_records_has_every_key_parameter_and_code() -> None:
    known = {*re.findall(r"`(\w+)", (DOCS / "privacy" / "record.md").read_text(encoding="utf-8"))}
    parameters = {name for kind in BUILT_IN for name in field_types(kind)}
    assert {*unprotected_record("none", "no noise").to_dict(), *SENTENCES, *parameters} <= known


def test_every_protocol_says_what_a_deviating_party_can_do() -> None:
    """And names a test that shows it."""
    section = (DOCS / "privacy" / "models.md").read_text().partition("## Parties that deviate")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("|")
    ]
    protocols, shown = (" ".join(row[at] for row in rows[2:]) for at in (0, 3))
    named = ("rows", "generator", "bridge", "encrypted", "output perturbation", "requests", "intersection")
    assert [name for name in (*named, "FedCDR", "FedCT", "FedGNN", "FedGCDR") if name not in protocols] == []
    files = {path.stem for part in ("tests", "examples") for path in (ROOT / part).rglob("test_*.py")}
    assert {*re.findall(r"test_\w+", shown)} <= files


def test_shares_are_counted_from_popularity_to_the_plain_ratings(results: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    lines = [
        ("cold", "Popularity", "", "", 0.2),
        ("cold", "Ridge", "Plaintext", "", 0.4),
        ("cold", "Ridge", "FlippedRows eps 4", "", 0.3),
        ("cold", "Ridge", "Noise (FlippedRows eps 4)", "noise", 0.9),
        *(("cold", system, "Noise (Plaintext)", "noise", 0.25) for system in ("Ridge", "UserKNN", "PriCDR")),
        ("cold", "Ridge", "JLT with the paper's noise eps 16", "", 0.19),
        ("cold", "Ridge", "JLT eps 16 of half", "", 0.9),
        ("warm", "Ridge", "FlippedRows eps 2", "", 0.9),
        ("cold", "Ridge, denoised", "FlippedRows eps 1", "", 0.45),
        ("cold", "Ridge, denoised", "Nothing", "control", 0.21),
        ("cold", "UserKNN, denoised", "NoisyRows eps 8", "", 0.25),
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("task", "system", "release", "control", "sampled/hit_rate@10"))
        writer.writerows(lines)
    shares, metrics = results.transfer_tables(path).split("\n\n")
    assert cells(shares) == [
        ["Ridge", "FlippedRows", "-", "-", "50 % / 33 %", "-", "-"],
        ["Ridge", "JLT, paper's noise", "-", "-", "-", "-", "-5 % / -40 %"],
        ["Ridge, denoised", "FlippedRows", "125 % / 133 %", "-", "-", "-", "-"],
        ["UserKNN, denoised", "NoisyRows", "-", "-", "-", "- / -", "-"],
    ]
    assert [row[2:] for row in cells(metrics)] == [
        ["-", "-", "0.300", "-", "-"], ["-", "-", "-", "-", "0.190"], ["0.450", "-", "-", "-", "-"], ["-", "-", "-", "0.250", "-"],
    ]  # fmt: skip


def test_users_with_history_are_shown_with_their_gain_over_noise(results: ModuleType, tmp_path: Path) -> None:
    with (tmp_path / "results.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["task", "system", "release", "sampled/hit_rate@10"])
        for first, task in ((0.3, "latest"), (0.36, "random")):
            for number, name in enumerate(results.KNOWN):
                writer.writerow([task, *name.rsplit(", ", 1), first + number / 100])
    with (tmp_path / "gains.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["task", "row", "against", "figure", "difference", "p_users_holm", "p_seeds_holm"])
        of = ["latest", "UserKNN, Plaintext"]
        writer.writerow([*of, "noise baseline", "sampled/hit_rate@10", 0.0455, 5e-38, 0.000036])
        writer.writerow([*of, "EASE", "sampled/hit_rate@10", 0.1, 1, 1])
    table = results.known_users_table(tmp_path)
    assert "| UserKNN, Plaintext | 0.3100 | +0.0455 (5e-38 / 4e-05) | 0.3700 | - |" in table
    assert "| UserKNN, Nothing | 0.3000 | - | 0.3600 | - |" in table


def test_every_page_is_in_the_index_and_the_navigation() -> None:
    pages = [*DOCS.glob("methods/*.md"), *DOCS.glob("results/*/README.md")]
    names = [page.relative_to(DOCS).as_posix() for page in pages]
    index, navigation = (path.read_text(encoding="utf-8") for path in (DOCS / "index.md", ROOT / "mkdocs.yml"))
    assert not [name for name in names if f"({name})" not in index or f"- {name}\n" not in navigation]


def test_every_name_of_the_reference_has_an_example(docs: None) -> None:
    for text in (text for page in importlib.import_module("api_pages").parts().values() for text in page.values()):
        for path, name in re.findall(r"^::: (\S+)\.([A-Z]\w+|\w+_\w+|fit|load|publish|export)$", text, re.MULTILINE):
            assert ">>>" in (getattr(importlib.import_module(path), name).__doc__ or ""), f"{path}.{name}"
