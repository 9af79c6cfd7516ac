"""The pages as a site: each is in its navigation, its examples are of this code, the notebooks run, and it is built strictly."""

import importlib
import importlib.util
import re
import subprocess
import sys
from math import log
from pathlib import Path

import pytest
import yaml

from zoo.__main__ import HELP
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.runs import runs_of
from zoo.privacy.record.words import MEANINGLESS

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.ipynb"))
#: A figure of a notebook that was committed is no larger, in KiB.
FIGURE = 100


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}: pip install -e '.[dev,docs]'")


def navigation() -> set[str]:
    """Every page that ``mkdocs.yml`` leads to; its tags of Python objects are not read."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    return set(re.findall(r"(\S+\.md)$", text[text.index("\nnav:") :], re.M))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S)


def test_every_page_is_in_the_navigation_and_nothing_else_is() -> None:
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path.name != "notes.md"}
    assert navigation() == pages | {f"notebooks/{path.stem}.md" for path in NOTEBOOKS}


def test_pages_name_commands_that_there_are() -> None:
    known = set(re.findall(r"^  ([a-z]+)  ", HELP.split("commands:")[1].split("examples:")[0], re.M))
    for path in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        named = set(re.findall(r"^python -m zoo ([a-z]+)", path.read_text(encoding="utf-8"), re.M))
        assert named <= known, path.relative_to(ROOT)


def test_the_example_of_a_benchmark_file_has_the_cells_that_its_page_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "example.yaml").write_text(blocks("benchmark_file.md", "yaml")[0], encoding="utf-8")
    benchmark = read_benchmark(tmp_path / "example.yaml")
    assert len(list(benchmark.rows())) == 6
    assert len(runs_of(benchmark, tmp_path)) == 18


def test_stars_of_a_help_text_are_shown_as_stars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    cell = importlib.import_module("command_pages").cell
    assert cell("runs/*/*, or\n  `a*`: one | two <x>") == "runs/\\*/\\*, or `a*`: one | two &lt;x>"


def test_examples_in_yaml_can_be_read() -> None:
    for page in ("benchmark_file.md", "running.md", "tutorials/own_data.md", "tutorials/choose_epsilon.md"):
        for text in blocks(page, "yaml"):
            assert yaml.safe_load(text), page


def test_the_page_for_data_protection_has_neither_code_nor_formula() -> None:
    text = (DOCS / "data_protection.md").read_text(encoding="utf-8")
    assert "```" not in text
    assert not re.search(r"`python|\$|e\^|sqrt", text)


def test_figures_of_notebooks_are_small_and_were_made() -> None:
    assert len(NOTEBOOKS) == 4
    for path in NOTEBOOKS:
        cells = yaml.safe_load(path.read_text(encoding="utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", [])]
        pictures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
        assert outputs, path.name
        assert pictures or path.stem == "csv_to_service", path.name  # its results are lists
        assert all(len(picture) * 3 / 4 < FIGURE * 1024 for picture in pictures), path.name
        assert not [output for output in outputs if output["output_type"] == "error"], path.name
        printed = "".join(line for output in outputs for line in output.get("text", ())).splitlines()
        for line in printed:
            if found := re.search(r"eps ([\d.]+), delta 0, proved", line):
                assert (MEANINGLESS in line) == (float(found[1]) > log(99)), f"{path.name}: {line}"


@pytest.mark.slow
@needs("nbclient", "ipykernel")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_its_first_cell_to_its_last(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.syspath_prepend(DOCS)
    done = importlib.import_module("run_notebooks").executed(path, tmp_path)
    code = [cell for cell in done.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    drawn = any("image/png" in output.get("data", {}) for cell in code for output in cell.outputs)
    assert drawn != (path.stem == "csv_to_service")  # its results are lists


@pytest.mark.slow
@needs("properdocs", "mkdocs", "mkdocstrings", "nbconvert")
@pytest.mark.parametrize("builder", ["properdocs", "mkdocs"])
def test_the_site_is_built_strictly(builder: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", builder, "build", "--strict", "-f", str(ROOT / "mkdocs.yml"), "-d", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    reference = (tmp_path / "api" / "methods" / "index.html").read_text(encoding="utf-8")
    assert "zoo.PriCDR" in reference
    assert "alignment_weight" in reference
    assert ":class:" not in reference
    assert "data:image/png" in (tmp_path / "notebooks" / "item_neighbours" / "index.html").read_text(encoding="utf-8")
    outside = [
        link
        for page in tmp_path.rglob("*.html")
        if page.name == "index.html"
        for link in re.findall(
            r'<(?:script|link|img)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text(encoding="utf-8")
        )
    ]
    assert not outside, "a page loads something from another host"
