"""One fabricated benchmark for all tests of the report, and its results, differences and files."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.zoo.benchmark.report.fabricate import GRID, NOTES, Facts, fabricate, facts_of, reread
from zoo.benchmark.grid import Row
from zoo.benchmark.report.files import WrittenReport, write_report
from zoo.benchmark.report.paired_differences import Gain, paired_differences
from zoo.benchmark.report.results import Results, read_results


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a benchmark's runs; not to be changed."""
    return fabricate(tmp_path_factory.mktemp("fabricated"))


@pytest.fixture
def own_runs(runs: Path, tmp_path: Path) -> Path:
    """A copy of them, to be changed."""
    return Path(shutil.copytree(runs, tmp_path / "runs"))


@pytest.fixture(scope="session")
def results(runs: Path) -> Results:
    """What is read from them."""
    return read_results(runs)


@pytest.fixture(scope="session")
def found(results: Results) -> list[Gain]:
    """Every difference."""
    return paired_differences(results)


@pytest.fixture(scope="session")
def written(results: Results, tmp_path_factory: pytest.TempPathFactory) -> WrittenReport:
    """The report on them, with notes."""
    out = tmp_path_factory.mktemp("report")
    (out / "notes.md").write_text(NOTES, encoding="utf-8")
    return write_report(results, out)


@pytest.fixture(scope="session")
def report(written: WrittenReport) -> Path:
    """Its folder."""
    return written.folder


@pytest.fixture(scope="session")
def full_only(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The same of runs that ranked among all items alone."""

    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(row, seed)
        return made and replace(made, ranks={"full": made.ranks["full"]})

    return reread(tmp_path_factory.mktemp("full"), GRID, facts)
