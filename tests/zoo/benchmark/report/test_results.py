"""What is read from the folder of a benchmark, and what is refused."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import edit_json
from tests.zoo.benchmark.report.fabricate import (
    GRID,
    SEEDS,
    Record,
    a_line,
    a_run,
    cell_folder,
    fabricate,
    line_of,
    proved,
    unproved,
)
from zoo.benchmark.grid import Row
from zoo.benchmark.report.results import MEASURES, RANKINGS, GuaranteeKind, Line, Results, ResultsError, read_results
from zoo.benchmark.runs import BENCHMARK, RUN_FILE
from zoo.privacy.accounting.gaussian import gauss_epsilon, gauss_mu
from zoo.privacy.accounting.relation import Relation

TASK = "book-music"
FIRST = "book-music/pricdr/jlt-eps-1/seed-0"
ONE = {"PriCDR": {"config": "system.yaml", "releases": [{"publisher": "JLT", "epsilons": [1]}]}}


def small(folder: Path, **changed: object) -> Path:
    """A row with noise baseline, three seeds each."""
    return fabricate(folder, GRID | {"tasks": {TASK: {"title": "Music"}}, "systems": ONE} | changed)


def found_in(results: Results) -> set[tuple[str, str, int]]:
    return {(task, ln.name, run.seed) for task, lines in results.lines.items() for ln in lines for run in ln.runs}


def test_rows_stand_in_the_order_of_the_benchmark(results: Results) -> None:
    assert [line.name for line in results.lines[TASK]] == [
        *("Popularity", "EASE", "DMF", "PriCDR, Plaintext", "PriCDR, Noise (Plaintext)"),
        *("PriCDR, JLT eps 1", "PriCDR, Noise (JLT eps 1)", "PriCDR, JLT eps 8", "PriCDR, Noise (JLT eps 8)"),
        *("PriCDR, JLT eps 64", "PriCDR, Noise (JLT eps 64)", "PriCDR, Shuffled", "PriCDR, Nothing"),
        *("Whole users, JLT eps 4", "Whole users, Noise (JLT eps 4)", "Whole users, smaller delta", "Searched, JLT"),
    ]
    assert [run.seed for run in line_of(results, TASK, "EASE").runs] == [0]
    assert [run.seed for run in line_of(results, TASK, "DMF").runs] == SEEDS


def test_cells_are_counted_and_what_is_unfinished_left_out(results: Results) -> None:
    unfinished = 2 * len(SEEDS) + 2  # one system on two tasks; of the controls, one seed on a task that nobody has run
    assert results.num_finished == len(found_in(results)) == results.num_runs - unfinished == 71
    assert results.lines.keys() == {TASK, "cold"}
    assert "Unfinished" not in {line.name for line in results.lines[TASK]}
    assert "empty" in results.benchmark["tasks"]


def test_figures_are_those_of_the_files(results: Results, runs: Path) -> None:
    line = line_of(results, TASK, "PriCDR, JLT eps 8")
    for ranking in RANKINGS:
        for measure in MEASURES:
            kept = [json.loads((cell_folder(runs, line, n) / "metrics.json").read_text())["metrics"] for n in SEEDS]
            expected = [metrics[f"test/{ranking}/{measure}"] for metrics in kept]
            assert [run.figure(ranking, measure) for run in line.runs] == expected
            assert line.mean(ranking, measure) == pytest.approx(sum(expected) / 3)
            spread = math.sqrt(sum((x - sum(expected) / 3) ** 2 for x in expected) / 2)
            assert line.sd(ranking, measure) == pytest.approx(spread)


def test_one_seed_has_no_spread_and_an_absent_figure_is_no_number(results: Results) -> None:
    line = line_of(results, TASK, "EASE")
    assert math.isnan(line.sd("full", "ndcg@10"))
    assert math.isnan(line.runs[0].figure("full", "ndcg@3"))


def test_cases_bear_their_seed(results: Results) -> None:
    line = line_of(results, TASK, "DMF")
    assert line.cases.height == 3 * 60
    for run in line.runs:
        own = line.cases.filter(seed=run.seed)
        assert own.drop("seed").equals(pl.read_parquet(run.folder / "test_cases.parquet"))
        assert own["full/ndcg@10"].cast(pl.Float64).mean() == pytest.approx(run.figure("full", "ndcg@10"), abs=1e-7)


def test_a_search_is_known_by_its_trials(results: Results) -> None:
    trials = {line.name: max(run.num_trials for run in line.runs) for line in results.lines[TASK]}
    assert {name for name, count in trials.items() if count} == {"Searched, JLT"}
    assert trials["Searched, JLT"] == 7


def test_one_run_ranked_by_item_counts_is_enough_to_be_known(results: Results) -> None:
    counted = {(task, line.name) for task, lines in results.lines.items() for line in lines if line.uses_item_counts}
    assert counted == {("cold", "EASE")}
    line = a_line(proved(), proved())
    assert not line.uses_item_counts
    line.runs[1].report["ranked_by_item_counts"] = 3
    assert line.uses_item_counts
    assert line.average(lambda run: run.report["ranked_by_item_counts"]) == 1.5


def test_a_missing_or_half_written_run_is_left_out(tmp_path: Path) -> None:
    root = small(tmp_path)
    before = read_results(root)
    (root / FIRST / RUN_FILE).rename(root / FIRST / f".{RUN_FILE}.tmp")
    (root / FIRST / "metrics.json").write_text("{", encoding="utf-8")
    now = read_results(root)
    assert found_in(before) - found_in(now) == {(TASK, "PriCDR, JLT eps 1", 0)}
    assert (now.num_finished, now.num_runs) == (before.num_finished - 1, before.num_runs)


def test_runs_of_other_settings_or_an_earlier_benchmark_are_left_out(tmp_path: Path) -> None:
    root = small(tmp_path)
    whole, left = found_in(read_results(root)), {(TASK, "PriCDR, JLT eps 1", 0)}
    others: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        (f"{FIRST}/{RUN_FILE}", lambda cell: cell["settings"].update(row="other")),
        (f"{FIRST}/{RUN_FILE}", lambda cell: cell["settings"].update(search="other")),
        (BENCHMARK, lambda kept: kept["cells"].update({FIRST: "0" * 64})),
        (BENCHMARK, lambda kept: kept["cells"].pop(FIRST)),
    ]
    for name, change in others:
        before = (root / name).read_bytes()
        edit_json(root / name, change)
        assert whole - found_in(read_results(root)) == left
        (root / name).write_bytes(before)


def test_a_config_that_was_changed_since_makes_all_its_runs_stale(tmp_path: Path) -> None:
    root = small(tmp_path)
    systems = ONE | {"DMF": {"config": "other.yaml", "seeds": [0]}}
    (tmp_path / "other.yaml").write_text("model: DMF\n", encoding="utf-8")
    grid = GRID | {"tasks": {TASK: {"title": "Music"}}, "systems": systems}
    assert read_results(fabricate(tmp_path, grid)).num_finished == 7
    (tmp_path / "other.yaml").write_text("model: DMF\nseed: 3\n", encoding="utf-8")
    fabricate(tmp_path, grid, lambda row, seed: None)  # keeps the benchmark anew and runs nothing
    now = read_results(root)
    assert (now.num_finished, now.num_runs) == (6, 7)
    assert {line.row.system for line in now.lines[TASK]} == {"PriCDR"}


def test_seeds_that_the_benchmark_no_longer_has_are_left_out(tmp_path: Path) -> None:
    assert read_results(small(tmp_path)).num_finished == 6
    grid = GRID | {"tasks": {TASK: {"title": "Music"}}, "systems": ONE, "seeds": [2, 1]}
    fabricate(tmp_path, grid, lambda row, seed: None)
    now = read_results(tmp_path / "runs")
    assert [[run.seed for run in line.runs] for line in now.lines[TASK]] == [[2, 1], [2, 1]]


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"{}", b'{"tasks": {}}', b"\xff\xfe{", b"[" * 10**5])
def test_a_corrupt_benchmark_is_refused(tmp_path: Path, text: bytes) -> None:
    (tmp_path / BENCHMARK).write_bytes(text)
    with pytest.raises(
        ResultsError, match=r"benchmark\.json or one of its runs is unreadable \(\w+: .*Repeat the benchmark"
    ):
        read_results(tmp_path)


def test_a_record_of_somebody_elses_mechanism_is_not_called_proved(tmp_path: Path) -> None:
    """As a method of another package leaves it, that made it without a publisher."""
    root = small(tmp_path)
    for path in root.rglob("privacy.json"):
        path.write_text(json.dumps({"book": proved() | {"mechanism": "MyRows"}}), encoding="utf-8")
    for line in (line for lines in read_results(root).lines.values() for line in lines):
        assert line.guarantee_status == "conditional"
        assert line.conditions == ("the claim of 'MyRows' is true, not audited here",)


def test_cases_take_as_much_memory_as_a_table_of_their_size(tmp_path: Path) -> None:
    root = small(tmp_path)
    pl.select(rank=pl.repeat(1.0, 9 * 10**6)).write_parquet(root / FIRST / "test_cases.parquet")
    line = next(iter(read_results(root).lines.values()))[0]
    with pytest.raises(ResultsError, match=r"test_cases\.parquet is unreadable \(.* needs 275 MiB .*\)\. Delete"):
        _ = line.cases


def without(key: str) -> Callable[[dict[str, Any]], object]:
    return lambda kept: kept.pop(key)


#: What files of an older form, or corrupt ones, lack or hold.
OLDER: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
    *((BENCHMARK, without(key)) for key in ("title", "name", "config", "tasks", "rows", "cells")),
    *((f"{FIRST}/metrics.json", without(key)) for key in ("metrics", "peak_memory", "ranked_by_item_counts")),
    *((f"{FIRST}/{RUN_FILE}", without(key)) for key in ("settings", "seconds", "versions")),
    (BENCHMARK, lambda kept: [row.pop("seeds") for row in kept["rows"]]),
    (BENCHMARK, lambda kept: [row.pop("task") for row in kept["rows"]]),
    (BENCHMARK, lambda kept: kept.update(tasks=3)),
    (BENCHMARK, lambda kept: kept.update(cells=list(kept["cells"]))),
    (BENCHMARK, lambda kept: kept.update(rows=["PriCDR"])),
    (f"{FIRST}/privacy.json", lambda records: records["book"].update(epsilon=-1.0)),
    (f"{FIRST}/privacy.json", lambda records: records["book"].update(guarantee="sure")),
    (f"{FIRST}/privacy.json", lambda records: records["book"].update(relation=None)),
    (f"{FIRST}/privacy.json", lambda records: records["book"].update(num_users=10**400)),
]


def test_a_file_of_an_older_form_is_refused(tmp_path: Path) -> None:
    root = small(tmp_path)
    for name, change in OLDER:
        before = (root / name).read_bytes()
        edit_json(root / name, change)
        with pytest.raises(ResultsError, match=r"is unreadable \(\w+Error: .*Repeat the benchmark"):
            read_results(root)
        (root / name).write_bytes(before)


def test_what_a_newer_benchmark_says_of_its_rows_is_passed_over(tmp_path: Path) -> None:
    root = small(tmp_path)
    before = found_in(read_results(root))
    edit_json(root / BENCHMARK, lambda kept: [row.update(colour="red") for row in kept["rows"]])
    assert found_in(read_results(root)) == before


@settings(max_examples=60, deadline=None)
@given(records=st.lists(st.none() | st.tuples(st.floats(1e-3, 1e4), st.floats(1e-9, 0.5)), min_size=1, max_size=6))
def test_the_guarantee_is_the_weakest_of_all(records: list[tuple[float, float] | None]) -> None:
    line = a_line(*(unproved() if record is None else proved(*record) for record in records))
    stated = [record for record in records if record is not None]
    if len(stated) < len(records):
        assert line.guarantee is None
        assert line.epsilon is None
    else:
        assert line.guarantee == GuaranteeKind("rating", "change_one_rating", max(delta for _, delta in stated))
        assert line.epsilon == max(epsilon for epsilon, _ in stated)


def test_all_sources_of_a_run_count() -> None:
    """Of ratings they add up: one (user, item) pair may be in two."""
    row = Row("music", "PriCDR", "JLT")
    weak = Line(row, (a_run(records={"book": proved(1.0), "movie": proved(6.0)}),))
    assert weak.epsilon == pytest.approx(7.0)
    gaussian = {name: proved(gauss_epsilon(1e-5, mu), 1e-5, mu=mu) for name, mu in {"book": 0.3, "movie": 0.4}.items()}
    assert Line(row, (a_run(records=gaussian),)).epsilon == pytest.approx(gauss_epsilon(1e-5, 0.5), rel=1e-9)
    none = Line(row, (a_run(records={"book": proved(1.0), "movie": unproved("seeded noise")}),))
    assert (none.guarantee, none.epsilon, none.guarantee_status) == (None, None, "none")
    assert none.reasons == ["seeded noise"]
    assert Line(row, (a_run(),)).guarantee is None


def of_users(mu: float, delta: float = 1e-5) -> Record:
    """The record of a Gaussian release that protects users."""
    return proved(gauss_epsilon(delta, mu), delta, Relation.REPLACE_ONE_USER, mu=mu)


def test_gaussian_releases_of_a_users_data_in_every_source_compose_exactly() -> None:
    """Against another accountant. Added up, 15 of what FedGCDR's sources spend of an epsilon of 8 would be more than 20."""
    mu = gauss_mu(8.0, 1e-5) / math.sqrt(15)
    line = Line(Row("music", "FedGCDR", "vectors"), (a_run(records={f"s{i}": of_users(mu) for i in range(15)}),))
    assert line.epsilon == pytest.approx(8.0, rel=1e-8)
    assert line.guarantee == GuaranteeKind("user", "replace_one_user", 1e-5)
    reference = PLDAccountant(value_discretization_interval=1e-3).compose(GaussianDpEvent(1 / mu), 15)
    assert line.epsilon == pytest.approx(reference.get_epsilon(1e-5), rel=1e-3)
    assert 15 * gauss_epsilon(1e-5, mu) > 20


def test_gaussian_releases_of_different_noise_and_delta_compose_at_the_largest_delta() -> None:
    records = {"book": of_users(0.3), "film": of_users(0.4, 1e-6)}
    line = Line(Row("music", "FedGCDR", "vectors"), (a_run(records=records),))
    assert line.epsilon == pytest.approx(gauss_epsilon(1e-5, 0.5), rel=1e-9)
    assert line.guarantee == GuaranteeKind("user", "replace_one_user", 1e-5)
    one = Line(Row("music", "FedGCDR", "vectors"), (a_run(records={"film": records["film"]}),))
    assert (one.epsilon, one.guarantee) == (records["film"]["epsilon"], GuaranteeKind("user", "replace_one_user", 1e-6))


def test_what_has_no_mu_is_added_to_what_has() -> None:
    more = proved(1.5, 2e-5, Relation.REPLACE_ONE_USER)
    records = {"book": of_users(0.3), "film": of_users(0.4), "music": more}
    line = Line(Row("music", "FedGCDR", "vectors"), (a_run(records=records),))
    assert line.epsilon is not None
    assert gauss_epsilon(1e-5, 0.5) + 1.4 < line.epsilon <= gauss_epsilon(1e-5, 0.5) + 1.5
    assert line.guarantee == GuaranteeKind("user", "replace_one_user", pytest.approx(3e-5))


@pytest.mark.parametrize("other", [Relation.CHANGE_ONE_RATING, Relation.ZERO_OUT_ONE_USER])
@pytest.mark.parametrize("of_one_run", [True, False])
def test_releases_that_protect_different_things_have_no_total(other: Relation, of_one_run: bool) -> None:
    """As the vectors of FedGCDR's sources, which protect against replacing a user, and its private rounds by default."""
    both = proved(2.0, relation=Relation.REPLACE_ONE_USER), proved(3.0, relation=other), proved(1.0, relation=other)
    runs = (a_run(records=dict(zip("abc", both, strict=True))),) if of_one_run else a_line(*both).runs
    line = Line(Row("music", "Odd", "JLT"), runs)
    assert (line.guarantee, line.epsilon, line.view.guarantee, line.view.epsilon) == (None, None, "none", None)
    each = ", ".join(sorted((f"{other.value} 3.00", "replace_one_user 2.00")))
    assert line.reasons == [f"the relations differ (largest epsilon of one release: {each}), so losses do not add up"]
    assert not line.view.meaningful


def test_reasons_are_said_once() -> None:
    line = a_line(unproved("b"), unproved("a"), unproved("b"), proved(), proved(relation=Relation.REPLACE_ONE_USER))
    assert line.reasons == ["a", "b"]


def test_a_guarantee_is_said_in_words() -> None:
    assert str(GuaranteeKind("user", "replace_one_user", 1e-5)) == "one user (replace one user), delta 1e-05"
    assert str(GuaranteeKind("rating", "change_one_rating", 0.0)) == "one rating (change one rating), delta 0"


@settings(max_examples=60, deadline=None)
@given(delta=st.floats(1e-12, 0.9))
def test_a_delta_is_never_shown_lower(delta: float) -> None:
    shown = float(str(GuaranteeKind("user", "replace_one_user", delta)).rsplit(" ", 1)[1])
    assert delta * (1 - 1e-8) <= shown <= delta * 1.01
