"""Markdown and HTML say the same, hold together, and need nothing from outside."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.zoo.benchmark.report.fabricate import BARE, GRID, NOTES, Facts, facts_of, proved, reread
from tests.zoo.benchmark.report.pages import Page, markdown_tables, plain
from zoo.benchmark.grid import Row
from zoo.benchmark.report.files import write_report
from zoo.benchmark.report.page import Chapter, cell, chapters, context, inline, prose, render
from zoo.benchmark.report.paired_differences import Gain
from zoo.benchmark.report.results import Results
from zoo.benchmark.report.tables import Table

#: Of each task 3 + 2 of figures, 2 of gains, 2 of pairs, guarantees, slices and cost; papers, arithmetic and settings of one.
TABLES = 46
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def every_table(made: list[Chapter]) -> Iterator[Table]:
    return (table for chapter in made for section in chapter.sections for table in section.tables)


@pytest.fixture(scope="module")
def made(results: Results, found: list[Gain]) -> list[Chapter]:
    return chapters(results, found)


@pytest.fixture(scope="module")
def markdown(report: Path) -> str:
    return (report / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def source(report: Path) -> str:
    return (report / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(source: str) -> Page:
    return Page(source)


@pytest.mark.thorough
def test_both_have_every_table(made: list[Chapter], markdown: str, page: Page) -> None:
    expected = [[table.columns, *table.rows] for table in every_table(made) if table.rows]
    assert len(expected) == TABLES
    assert all(len({len(row) for row in table}) == 1 < len(table) for table in expected), "rectangles under a head"
    shown = [[list(map(plain, row)) for row in table] for table in expected]
    for tables in (markdown_tables(markdown), page.tables):
        assert [[list(map(plain, row)) for row in table] for table in tables] == shown


def test_both_have_every_heading(made: list[Chapter], markdown: str, page: Page) -> None:
    headings = [chapter.title for chapter in made]
    assert headings == ["Book -> Music", "Music & nothing known"]
    assert [line[3:] for line in markdown.splitlines() if line.startswith("## ")][2:] == headings
    assert page.texts["h2"][2:] == headings
    sections = [section.title for chapter in made for section in chapter.sections]
    assert [line[4:] for line in markdown.splitlines() if line.startswith("### ")] == sections == page.texts["h3"]
    assert sections[:7] == [
        *("Full ranking (all items)", "Sampled ranking (1 + 99 candidates)", "Privacy and utility"),
        *("Gains over baselines", "Pairwise differences", "Slices", "Comparison with published figures"),
    ]


def test_both_have_every_title_and_note(made: list[Chapter], markdown: str, page: Page) -> None:
    for chapter in made:
        for section in chapter.sections:
            for table in section.tables:
                if table.collapsed:
                    assert f'\n<details markdown="1"><summary>{table.title}</summary>\n\n' in markdown
                    assert table.title in page.texts["summary"]
                elif table.title not in ("", section.title):
                    assert f"\n**{table.title}**\n" in markdown
                    assert table.title in page.texts["caption"]
                assert all(f"\n{note}\n" in markdown and note in page.texts["p"] for note in table.notes)
        assert f"\n{chapter.intro}\n" in markdown
        assert chapter.intro in page.texts["p"]


def test_bold_is_bold_in_both(markdown: str, page: Page, source: str) -> None:
    bold = [text for table in markdown_tables(markdown) for row in table for text in row if "**" in text]
    assert len(bold) > 30
    assert page.texts["b"] == [re.findall(r"\*\*(.+?)\*\*", text)[0] for text in bold]
    assert "**" not in source


def test_every_figure_is_in_both(made: list[Chapter], markdown: str, page: Page, report: Path) -> None:
    names = [name for chapter in made for section in chapter.sections for name in section.figures]
    assert len(names) == 4
    assert re.findall(r"!\[.*\]\((.+)\)", markdown) == [f"{name}.svg" for name in ("overview", *names)]
    assert all((report / f"{name}.svg").is_file() for name in ("overview", *names))
    assert page.count("svg") == page.count("figure") == 5


def test_a_chapter_says_how_much_is_finished(made: list[Chapter]) -> None:
    assert made[0].intro.startswith(
        "45 of 48 runs are finished. Each is tested once, on 60 held-out cases, after the last epoch."
    )
    assert made[1].intro.startswith("26 of 26 runs are finished.")


def test_sections_without_content_are_left_out(tmp_path: Path) -> None:
    grid = GRID | {"systems": {"DMF": {"config": "system.yaml"}}, "tasks": {"cold": {"title": "Cold"}}}
    [chapter] = chapters(reread(tmp_path, grid), [])
    assert [section.title for section in chapter.sections] == [
        *("Full ranking (all items)", "Sampled ranking (1 + 99 candidates)", "Privacy and utility"),
        *("Consistency of the figures", "Cost"),
    ]


def test_markdown_is_laid_out_as_every_reader_needs_it(markdown: str) -> None:
    lines = markdown.splitlines()
    for before, line, after in zip(lines, lines[1:], lines[2:], strict=False):
        if line.startswith("|"):
            assert before == "" or before.startswith("|")
            assert after == "" or after.startswith("|")
    assert not [line for line in markdown.splitlines() if line != line.rstrip()]
    assert markdown.endswith("\n")
    assert not markdown.endswith("\n\n")


def test_markdown_begins_with_title_words_notes_and_commands(markdown: str) -> None:
    assert markdown.startswith("# Fabricated &lt;runs> & figures\n\n- Compared: 27 rows")
    head = markdown.split("\n## How these figures")[0]
    assert head.endswith(f"\n\n![NDCG@10 of the best rows](overview.svg)\n\nRanks are drawn, not learned.\n\n{NOTES}")
    assert "\n```\npython -m zoo benchmark --config bench.yaml\npython -m zoo report runs/benchmarks/bench" in markdown
    assert "\n- Versions: zoo 0.1.0, torch 2.0.\n- Commit: 0123abcd (70 runs); not recorded (1 run).\n" in markdown
    assert "\n- Threads: 1 (70 runs); 2 (1 run).\n- Machine: a processor, 2 cores.\n- Cases: cases.parquet" in markdown


def test_the_page_is_closed_as_it_was_opened(page: Page, source: str) -> None:
    assert source.startswith("<!doctype html>\n<html lang")
    assert source.rstrip().endswith("</html>")
    assert [page.count(tag) for tag in ("html", "head", "body", "h1", "nav")] == [1] * 5
    assert page.texts["title"] == page.texts["h1"] == [GRID["title"]]
    assert page.count("table") == page.count("thead") == page.count("tbody") == page.count("caption") == TABLES


def test_the_page_needs_nothing_from_outside(page: Page, source: str) -> None:
    assert [attributes for tag, attributes in page.seen if tag == "script"] == [{}], "its own, which sorts tables"
    assert not re.search(r"fetch|import|XMLHttp|eval|innerHTML|document\.write", source.split("<script>")[1])
    for tag in ("link", "img", "iframe", "object", "embed", "image", "base", "form"):
        assert page.count(tag) == 0, tag
    assert page.values("src") == page.values("srcset") == page.values("background") == []
    outside = [link for link in page.values("href") + page.values("xlink:href") if not link.startswith("#")]
    assert outside == ["https://example.org/a?b=1&c=2"], "a link of the notes, which is only followed when asked for"
    assert not re.findall(r"url\((?!#)", source)
    assert "@import" not in source
    assert not [name for _, attributes in page.seen for name in attributes if name.startswith("on")]
    assert set(re.findall(r"https?://[^\"'\s<)]+", source)) <= {*NAMESPACES, "https://example.org/a?b=1&amp;c=2"}


def test_no_two_elements_share_an_id_and_every_reference_has_one(page: Page, source: str) -> None:
    ids = page.values("id")
    assert len(ids) > 200
    assert len(ids) == len(set(ids))
    links = [link for link in page.values("href") + page.values("xlink:href") if link.startswith("#")]
    used = [link[1:] for link in links] + re.findall(r"url\(#([^)]+)\)", source)
    assert len(used) > 100
    assert set(used) <= set(ids)


def test_the_navigation_leads_to_every_task(page: Page, results: Results) -> None:
    anchors = [attributes["href"] for tag, attributes in page.seen if tag == "a"]
    heads = [attributes["id"] for tag, attributes in page.seen if tag == "h2" and "id" in attributes]
    assert heads == list(results.lines)
    assert [link for link in anchors if link.startswith("#")] == [f"#{head}" for head in heads]


AWKWARD = "A|B <b>&amp; \\ `c` 2**3 and 2**4 a\x1b[31m\u202e"
LABEL = "\"q\" | <script>alert('x')</script>"
#: The names as pages show them: without anything that a terminal or a browser obeys.
NAME = f"{AWKWARD}, {LABEL}".replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
#: What a source may write into the record of its release.
CONDITION = "it is [so](https://evil.example/?a=1) ![x](https://evil.example/x.png) [y][z] <img src=x>"


@pytest.fixture(scope="module")
def awkward(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on a benchmark whose names hold everything that means something to either page."""

    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(row, seed)
        if made is not None:
            made.more = {"machine": "a\n\n## Heading\n\nProved."}
        if made is not None and row.release == LABEL:
            made.records = {"book": proved() | {"guarantee": "conditional", "conditions": [CONDITION]}}
        return made

    system = {"config": "system.yaml", "releases": [{"publisher": "JLT", "label": LABEL, "noise_control": False}]}
    grid = GRID | {
        "title": "<i>T</i> & co b\x9b1A",
        "about": "</p><script>1</script>",
        "tasks": {"book-music": GRID["tasks"]["book-music"] | {"title": 'Cold <u> & "new"'}},
        "systems": {
            AWKWARD: system,
            "DMF": {"config": "system.yaml", "published_as": "DMF", "reason": "another\nloss\n"},
        },
    }
    folder = tmp_path_factory.mktemp("awkward")
    write_report(reread(folder, grid, facts), folder / "out")
    return folder / "out"


@pytest.fixture(scope="module")
def odd_markdown(awkward: Path) -> str:
    return (awkward / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def odd_page(awkward: Path) -> Page:
    return Page((awkward / "report.html").read_text(encoding="utf-8"))


def test_names_are_escaped_in_html(odd_page: Page) -> None:
    assert odd_page.count("script") == 1, "its own"
    assert odd_page.count("i") == odd_page.count("u") == odd_page.count("img") == 0
    assert odd_page.texts["h1"] == ["<i>T</i> & co b\\x9b1A"]
    assert odd_page.texts["h2"][-1] == 'Cold <u> & "new"'
    assert "</p><script>1</script>" in odd_page.texts["p"]
    assert NAME in {row[0] for table in odd_page.tables for row in table}
    assert any(CONDITION in text for text in odd_page.texts["p"])


def test_bars_and_lines_in_names_do_not_end_a_cell_of_markdown(odd_markdown: str, odd_page: Page) -> None:
    tables = markdown_tables(odd_markdown)
    assert len(tables) == len(odd_page.tables)
    assert all({len(row) for row in table} == {len(table[0])} for table in tables)
    assert sum(plain(row[0]) == plain(NAME) for table in tables for row in table) >= 4
    assert "</p>&lt;script>1" in odd_markdown.replace("&lt;/p", "</p"), "of the benchmark's own words"
    assert "Machine: a\\n\\n## Heading" in odd_markdown, "a text of a run begins no heading"


def test_names_and_conditions_are_no_html_links_or_pictures_in_markdown(odd_markdown: str) -> None:
    names = [line for line in odd_markdown.splitlines() if line.startswith(("|", "# ", "## ", "!["))]
    assert sum("&lt;script>" in line for line in names) >= 4
    notes = [line for line in odd_markdown.splitlines() if "it is [so]" in line]
    assert notes
    assert not any(re.search(r"<[A-Za-z/!?]", line) for line in names + notes)
    assert not any(re.search(r"\]\(|\]\[", note) for note in notes)


def test_no_file_holds_a_character_that_is_obeyed(awkward: Path) -> None:
    for name in ("README.md", "report.html", "overview.svg", "results.csv", "seeds.csv", "gains.csv"):
        source = (awkward / name).read_text(encoding="utf-8")
        assert "a\\x1b[31m\\u202e" in source, name
        assert all(line.isprintable() for line in source.split("\n")), name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("<b>&\"'", "&lt;b&gt;&amp;&quot;&#x27;"),
        ("**0.1234** ±0.0001", "<b>0.1234</b> ±0.0001"),
        ("**a** and **b**", "**a** and **b**"),
        ("**<.001**", "<b>&lt;.001</b>"),
        ("one ** alone", "one ** alone"),
        ("****", "****"),
        ("", ""),
    ],
)
def test_a_cell_is_text_with_bold(text: str, expected: str) -> None:
    assert cell(text) == expected


@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet="<>&\"'*a |\\`", max_size=30))
def test_a_cell_is_well_formed_whatever_it_says(text: str) -> None:
    page = Page(f"<table><tr><td>{cell(text)}</td></tr></table>")
    assert {tag for tag, _ in page.seen} <= {"table", "tr", "td", "b"}
    assert page.tables[0][0][0].replace("*", "") == text.replace("*", "")


def test_notes_stand_at_the_top_of_the_page(page: Page, source: str) -> None:
    assert page.texts["h2"][:2] == ["What stands out", "How these figures were made"]
    assert page.texts["li"][5:] == ["first entry", "second entry\non two lines", "2 < 3 & 4"]
    assert page.texts["code"] == ["code <T>"]
    assert page.texts["strong"] == ["two words", "entry"]
    assert '<a href="https://example.org/a?b=1&amp;c=2">a page</a>' in source
    assert "Last words." in page.texts["p"]
    assert source.index("What stands out") < source.index("How these figures were made")


def test_without_notes_nothing_stands_there(tmp_path: Path) -> None:
    values = context(reread(tmp_path, BARE), [], ["a command"], " \n")
    assert values["notes"] == ""
    assert "overview.svg)\n\nRanks are drawn, not learned.\n\n## How" in render("page.md.j2", values)
    assert Page(render("page.html.j2", values)).texts["h2"][0] == "How these figures were made"


def test_what_a_grid_says_of_itself_is_read_as_its_notes_are(tmp_path: Path) -> None:
    values = context(reread(tmp_path, BARE | {"about": "Through `Denoiser`.\n\nFurther.\n"}), [], ["a command"], "")
    page = render("page.html.j2", values)
    assert "<p>Through <code>Denoiser</code>.</p>\n<p>Further.</p>\n" in page
    assert "Through `Denoiser`.\n\nFurther.\n" in render("page.md.j2", values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("**x** in [`y`](docs/a.md)", '<p><strong>x</strong> in <a href="docs/a.md"><code>y</code></a></p>'),
        ("## Head\n- <script>1</script>", "<h2>Head</h2>\n<ul>\n<li>&lt;script&gt;1&lt;/script&gt;</li>\n</ul>"),
        ("![x](https://evil.example/x.png)", '<p>!<a href="https://evil.example/x.png">x</a></p>'),
        ("[x](javascript:alert`1`)", "<p>[x](javascript:alert<code>1</code>)</p>"),
        ("0.1<!-- report/task: row |\nndcg -->, and", "<p>0.1, and</p>"),
    ],
)
def test_notes_are_markdown_without_html_pictures_or_scripts(text: str, expected: str) -> None:
    assert prose(text) == expected


def test_ids_of_a_figure_bear_its_name() -> None:
    svg = (
        '<svg><defs><path id="m1"/><clipPath id="p1"/></defs><g id="axes_1" clip-path="url(#p1)">'
        '<use xlink:href="#m1" x="1"/><use href="#m1"/></g></svg>'
    )
    assert inline(svg, "A b_c") == (
        '<svg><defs><path id="a-b-c-m1"/><clipPath id="a-b-c-p1"/></defs><g id="a-b-c-axes_1" clip-path="url(#a-b-c-p1)">'
        '<use xlink:href="#a-b-c-m1" x="1"/><use href="#a-b-c-m1"/></g></svg>'
    )


def test_figures_in_the_page_are_those_of_the_files(made: list[Chapter], report: Path, source: str) -> None:
    figures: dict[str, Any] = {k: v for c in made for section in c.sections for k, v in section.figures.items()}
    for name, picture in figures.items():
        assert (report / f"{name}.svg").read_text(encoding="utf-8") == picture.svg
        assert inline(picture.svg, name) in source
