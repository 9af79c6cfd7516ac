"""Generated text is as fresh as the reports, every method has a page, every cited figure is in a report."""

import csv
import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

import zoo

ROOT = Path(__file__).parent.parent
CITED = re.compile(r"`(?P<report>\w+)/(?P<task>[\w-]+): (?P<row>[^`]+)` (?P<figure>\w+/\w+@\d+) (?P<value>\d\.\d{4})")
GAINED = re.compile(
    r"`(?P<report>\w+)/(?P<task>[\w-]+): (?P<row>[^`]+)` (?P<figure>\w+/\w+@\d+) (?P<value>[+-]\d\.\d{4})"
)


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_generated_text_is_not_stale(generate: ModuleType) -> None:
    stale = [str(path.relative_to(ROOT)) for path, text in generate.generated().items() if path.read_text() != text]
    assert not stale, "run python docs/generate.py"


def test_every_method_has_a_page_with_all_its_parts(generate: ModuleType) -> None:
    pages = generate.pages()
    assert pages.keys() == zoo.METHODS.keys()
    for method, (page, said) in pages.items():
        text = page.read_text(encoding="utf-8")
        for part in ("**Idea.**", "**Who sees what.**", "python -m zoo fit --config configs/", "**Our figures.**"):
            assert part in text, f"{page.name} lacks {part}"
        assert "**Departures.**" in text or "| here |" in text, f"{page.name} names no departure"
        assert said["paper"] == "none" or "**Paper.**" in text, method
        idea = text.split("**Idea.**")[1].split("\n\n")[0]
        assert 3 <= len(re.findall(r"[.?](?:\s|$)", idea)) <= 6, f"{page.name}: the idea in five sentences"
        for config in re.findall(r"--config (configs/\S+?\.yaml)", text):
            assert (ROOT / config).is_file(), config


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8")):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


@pytest.mark.parametrize("page", ["choosing.md", "results/douban/notes.md", "results/cold_start/notes.md"])
def test_every_cited_figure_is_in_its_report(page: str) -> None:
    text = " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())
    cited = [*CITED.finditer(text), *GAINED.finditer(text)]
    assert cited, f"{page} cites no row"
    for match in cited:
        where = match.groupdict()
        gain = where["value"][0] in "+-"
        path = ROOT / "docs" / "results" / where["report"] / ("gains.csv" if gain else "results.csv")
        with path.open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["task"] == where["task"]]
        if gain:
            values = [
                float(row["difference"])
                for row in rows
                if row["row"] == where["row"] and row["figure"] == where["figure"]
            ]
        else:
            values = [
                float(row[where["figure"]])
                for row in rows
                if where["row"] == (f"{row['system']}, {row['release']}" if row["release"] else row["system"])
            ]
        shown = [f"{value:+.4f}" if gain else f"{value:.4f}" for value in values]
        assert where["value"] in shown, f"{page} cites {match[0]}, the report has {shown}"
