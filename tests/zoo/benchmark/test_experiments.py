"""Every item of the papers has one kind of evidence, which exists, and tables and figures run by number."""

import re
from pathlib import Path
from pkgutil import resolve_name

import pytest

from tests.zoo.benchmark.processes import zoo_benchmark
from zoo.benchmark.experiments import grids_of, papers
from zoo.benchmark.grid import BenchmarkError
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.runs import runs_of, select_runs

ROOT = Path(__file__).parents[3]


@pytest.mark.thorough
@pytest.mark.parametrize("paper", papers())
def test_evidence_is_of_one_kind_and_exists(paper: str) -> None:
    items = papers()[paper]["items"]
    for item, about in items.items():
        kinds = about.keys() & {"runs", "code", "verdict", "script", "shown", "see", "none"}
        assert len(kinds) == 1, item
        assert about["what"], item
        for page in (about.get("page"), about.get("shown")):
            assert page is None or (ROOT / "docs" / page).is_file(), item
        assert "code" not in about or (resolve_name(about["code"]) and about["test"]), item
        assert "see" not in about or "see" not in items[about["see"]], item
        if "test" in about:
            file, name = about["test"].split("::")
            assert f"\ndef {name}(" in (ROOT / file).read_text(encoding="utf-8"), item
        if "runs" in about:
            kind, number = item.split()
            for config, pattern in grids_of(paper, *(number if kind == each else None for each in ("figure", "table"))):
                runs = runs_of(read_benchmark(config), Path("runs"))
                assert all(select_runs(runs, one) for one in pattern.split()), item


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("x", "1", None), r"--paper is 'x'\. Allowed: pricdr, ppgencdr, fedgcdr, one_bit\."),
        (("pricdr", None, None), r"Give --figure N or --table N\."),
        (("pricdr", "2", "1"), r"Give --figure N or --table N\."),
        (
            ("fedgcdr", "9", None),
            r"figure 9 of fedgcdr has no grid\. Allowed: table 1, table 2, table 5, figure 4, .*7\.",
        ),
        (("fedgcdr", "1", None), r"figure 1 of fedgcdr has no grid\."),
        (("one_bit", "1", None), r"figure 1 of one_bit has no grid\. Use python benchmarks/one_bit\.py"),
    ],
)
def test_what_has_no_grid_is_refused_with_a_list(arguments: tuple[str, str | None, str | None], message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        grids_of(*arguments)


@pytest.mark.thorough
def test_a_table_of_a_paper_runs_by_its_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    zoo_benchmark("--paper", "pricdr", "--table", "1", "--dry-run", "--only", "*/popularity/* */conet/plaintext/*")
    shown = capsys.readouterr().out
    assert re.search(r"Douban Book and Music: 2 runs", shown)
    assert re.search(r"CoNet, Plaintext", shown), "each grid of the table"
    assert not re.search(r"DDTCDR", shown)
    for wrong in (("--paper", "pricdr", "--table", "1", "--config", "a.yaml"), ()):
        with pytest.raises(SystemExit, match=r"Give one of --config"):
            zoo_benchmark(*wrong)
