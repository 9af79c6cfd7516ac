"""Differences against a count by hand, the families of Holm's correction, and what the tests find."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.zoo.benchmark.report.fabricate import (
    GRID,
    OTHERS,
    SEEDS,
    Facts,
    a_run,
    cases_of,
    facts_of,
    line_of,
    reread,
    rng_of,
)
from tests.zoo.benchmark.report.test_significance import by_hand
from zoo.benchmark.grid import Row
from zoo.benchmark.report.files import write_report
from zoo.benchmark.report.leaderboard import leaderboards
from zoo.benchmark.report.page import chapters, summary
from zoo.benchmark.report.paired_differences import (
    NO_RELEASE,
    NOISE_BASELINE,
    TESTED_METRICS,
    Gain,
    control_of,
    paired_differences,
    sweeps,
)
from zoo.benchmark.report.results import RANKINGS, REASONS, Line, Results, other_tests
from zoo.benchmark.report.significance import Comparison, holm, shape

pytestmark = pytest.mark.thorough

TASK, EASE = "book-music", "EASE"
PRIVATE = {"PriCDR": {"config": "system.yaml", "releases": [{"publisher": "JLT", "epsilons": [1]}]}}
NULLS = 40


def test_the_default_baseline_is_the_best_single_domain_row_of_each_ranking(results: Results) -> None:
    free = replace(results, baseline=None)
    assert results.baseline_of("cold", "full") == EASE, "a given baseline is taken"
    free = replace(
        free, lines={TASK: [line for line in free.lines[TASK] if line.name != EASE and line.epsilon is None]}
    )
    found = paired_differences(free)
    for task, ranking in ((task, ranking) for task in free.lines for ranking in RANKINGS):
        alone = [line for line in free.lines[task] if line.row.release in ("", "Nothing")]
        best = max(alone, key=lambda line: line.mean(ranking, "ndcg@10"))
        assert free.baseline_of(task, ranking) == best.name
        made = [gain for gain in found if (gain.task, gain.ranking) == (task, ranking)]
        bars = {gain.against for gain in made} - {NOISE_BASELINE, NO_RELEASE}
        assert bars == {best.name}
        assert best.name not in {gain.line.name for gain in made if gain.against == best.name}
        assert best.name == "DMF", "whatever its family"
    without = [line for line in free.lines[TASK] if line.row.release not in ("", "Nothing")]
    assert replace(free, lines={TASK: without}).baseline_of(TASK, "full") == ""


def by_user(line: Line, name: str) -> dict[int, dict[str, float]]:
    """Seed -> user -> mean over the user's cases."""
    found: dict[int, dict[str, list[float]]] = {}
    for run in line.runs:
        cases = pl.read_parquet(run.folder / "test_cases.parquet")
        own = found.setdefault(run.seed, defaultdict(list))
        for user, value in zip(cases["user_id"].to_list(), cases[name].to_list(), strict=True):
            own[user].append(value)
    return {seed: {user: float(np.mean(values)) for user, values in own.items()} for seed, own in found.items()}


def differences(line: Line, control: Line, name: str) -> dict[int, dict[str, float]]:
    """Seed -> user -> ours less theirs; one run of what no seed changes stands for every seed."""
    ours, theirs = by_user(line, name), by_user(control, name)
    for one, other in ((ours, theirs), (theirs, ours)):
        if len(one) == 1 and len(other) > 1:
            [only] = one.values()
            if all(own.keys() == only.keys() for own in other.values()):
                one.update(dict.fromkeys(other, only))
                if 0 not in other:
                    one.pop(0)
    common = {seed: ours[seed].keys() & theirs[seed].keys() for seed in ours.keys() & theirs.keys()}
    return {s: {u: ours[s][u] - theirs[s][u] for u in users} for s, users in common.items() if users}


def same(found: Comparison, expected: Comparison) -> bool:
    plain = ("difference", "low", "high", "p_value")
    close = all(getattr(found, k) == pytest.approx(getattr(expected, k), rel=1e-6, abs=1e-9) for k in plain)
    return close and (found.pairs, found.better) == (expected.pairs, expected.better)


def expected_pairs(results: Results, task: str) -> set[tuple[str, str]]:
    """Row and control, by the names of the rows."""
    names = {line.name for line in results.lines[task]}
    rows = {name for name in names if "Noise" not in name}
    pairs = {(name, EASE) for name in rows - {"EASE"}}
    for name in rows:
        system, _, release = name.partition(", ")
        if f"{system}, Noise ({release})" in names:
            pairs.add((name, NOISE_BASELINE))
        if release and release != "Nothing" and f"{system}, Nothing" in names:
            pairs.add((name, NO_RELEASE))
    return pairs


def test_every_row_has_its_own_noise_control(results: Results) -> None:
    noise = {line.name: control_of(results, line, NOISE_BASELINE) for line in results.lines[TASK]}
    assert {name: control.name for name, control in noise.items() if control is not None} == {
        "PriCDR, Plaintext": "PriCDR, Noise (Plaintext)",
        "PriCDR, JLT eps 1": "PriCDR, Noise (JLT eps 1)",
        "PriCDR, JLT eps 8": "PriCDR, Noise (JLT eps 8)",
        "PriCDR, JLT eps 64": "PriCDR, Noise (JLT eps 64)",
        "Whole users, JLT eps 4": "Whole users, Noise (JLT eps 4)",
    }


def test_the_model_without_a_release_is_the_same_model(results: Results) -> None:
    for line in results.lines[TASK]:
        found = control_of(results, line, NO_RELEASE)
        row = line.row
        own = row.system == "PriCDR" and row.release != "Nothing" and row.control != "noise"
        assert (found.name if found else None) == ("PriCDR, Nothing" if own else None)


def test_ease_is_not_its_own_control_and_what_is_unfinished_is_none(results: Results) -> None:
    ease = control_of(results, line_of(results, "cold", "PriCDR, JLT eps 1"), EASE)
    assert ease is line_of(results, "cold", "EASE")
    assert control_of(results, ease, EASE) is None
    left = {task: [line for line in lines if line.row.control != "noise"] for task, lines in results.lines.items()}
    made = replace(results, lines=left)
    assert all(control_of(made, line, NOISE_BASELINE) is None for lines in left.values() for line in lines)


def test_every_difference_is_that_counted_by_hand(results: Results, found: list[Gain]) -> None:
    for gain in found:
        control = control_of(results, gain.line, gain.against)
        assert control is not None
        d = differences(gain.line, control, f"{gain.ranking}/{gain.measure}")
        users = sorted(set().union(*d.values()))
        assert same(gain.users, by_hand([np.mean([d[s][u] for s in d if u in d[s]]) for u in users])), gain
        if len(d) < 2:
            assert gain.seeds is None
        else:
            assert gain.seeds is not None
            assert same(gain.seeds, by_hand([np.mean(list(d[s].values())) for s in sorted(d)])), gain


def test_every_row_is_compared_with_every_control_that_it_has(results: Results, found: list[Gain]) -> None:
    for task in results.lines:
        for ranking in RANKINGS:
            for measure in TESTED_METRICS:
                family = [g for g in found if (g.task, g.ranking, g.measure) == (task, ranking, measure)]
                pairs = {(g.line.name, g.against) for g in family}
                assert len(pairs) == len(family)
                assert pairs == expected_pairs(results, task)


def test_one_run_of_ease_is_compared_with_every_seed_or_its_own(found: list[Gain], results: Results) -> None:
    own = [g for g in found if g.task == TASK and g.against == EASE and len(g.line.runs) == 3]
    assert own
    assert all(g.seeds is not None and g.seeds.pairs == 3 and g.users.pairs == 60 for g in own)
    own = [g for g in found if g.task == "cold" and g.against == EASE]  # where users follow the seed
    assert own
    assert all(g.seeds is None and g.seeds_holm is None and g.users.pairs == 60 for g in own)


@pytest.mark.parametrize("other", ["items", "candidates"])
def test_one_seed_stands_for_no_other_test(other: str, tmp_path: Path) -> None:
    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(row, seed)
        assert made is not None
        made.users = made.users[::-1] if seed and other == "items" else made.users
        made.more = {"tested": {"candidates": str(seed)}}
        return made

    systems = {"EASE": {"config": "system.yaml", "seeds": [0]}, **PRIVATE}
    results = reread(tmp_path, GRID | {"tasks": {TASK: {"title": "M"}}, "systems": systems}, facts)
    found = [g for g in paired_differences(results) if g.against == EASE]
    assert len(found) == 4
    for gain in found:
        name = f"{gain.ranking}/{gain.measure}"
        seeds = [0] if other == "items" else SEEDS
        ours = gain.line.cases.filter(pl.col("seed").is_in(seeds))[name].mean()
        assert gain.users.difference == pytest.approx(ours - line_of(results, TASK, EASE).cases[name].mean(), abs=1e-6)
        assert (gain.seeds is None) == (other == "items" or gain.ranking == "sampled")


@pytest.mark.parametrize(
    ("other", "reasons"),
    [
        ("items", ["other test items"]),
        ("fewer", ["other test items"]),
        ("candidates", ["other candidates"]),
        ("drawn", ["other candidates"]),
        ("ties", ["another rule for ties"]),
        ("average", ["another average (cases or users)"]),
        ("", []),
    ],
)
def test_a_row_that_is_tested_otherwise_is_named_and_paired_over_the_same_items(
    other: str, reasons: list[str], tmp_path: Path
) -> None:
    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(row, seed)
        assert made is not None
        odd = row.system == "EASE" and seed < 2
        made.more = (
            {"tested": {other: f"other than that of {row.system}" if odd else "usual"}} if other in REASONS else {}
        )
        if odd:
            made.users = made.users[::-1] if other == "items" else made.users
            if other == "fewer":
                cut = {name: ranks[:-1] for name, ranks in made.ranks.items()}
                made = Facts(cut, made.users[:-1], made.train_items[:-1], made.linked[:-1], made.records)
        return made

    systems = {"EASE": {"config": "system.yaml"}, "BPR": {"config": "system.yaml"}, **PRIVATE}
    results = reread(tmp_path, GRID | {"tasks": {TASK: {"title": "M"}}, "systems": systems}, facts)
    assert other_tests(results.lines[TASK]) == ({"EASE": reasons} if reasons else {})
    found = [g for g in paired_differences(results) if g.against == EASE]
    full = {"full"}
    rankings = {"items": set(), "ties": set(), "candidates": full, "drawn": full}.get(other, {*RANKINGS})
    assert {(g.users.pairs, g.ranking) for g in found} == {(60, ranking) for ranking in rankings}
    named = f"**Rows do not share one test: EASE ({', '.join(reasons)}).** Not compared in pairs: "
    for table in (leaderboards(results, TASK, ranking)[0] for ranking in RANKINGS):
        assert any(note.startswith(named) for note in table.notes) == bool(reasons)
    assert ("do not share one test: EASE.**" in summary(results, found)[0]) == bool(reasons)


def test_without_a_majority_all_rows_are_named_and_seeds_do_not_hide_another_rule(tmp_path: Path) -> None:
    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(row, seed)
        assert made is not None
        drawn, ties = ("[10]", "pessimistic") if row.system == "EASE" else ("[99]", "expected")
        made.more = {"tested": {"candidates": f"{row.system} {seed}", "drawn": drawn, "ties": ties}}
        return made

    systems = {"EASE": {"config": "system.yaml", "seeds": [7]}, "BPR": {"config": "system.yaml", "seeds": [0]}}
    results = reread(tmp_path, GRID | {"tasks": {TASK: {"title": "M"}}, "systems": systems}, facts)
    reasons = ["other candidates", "another rule for ties"]
    assert other_tests(results.lines[TASK]) == {"EASE": reasons, "BPR": reasons}
    assert paired_differences(results) == []
    (chapter,) = chapters(results, [])
    assert "Ties count as misses in some rows." in chapter.intro
    (ease, bpr) = results.lines[TASK]
    assert results.baseline_of(TASK, "full") in ("EASE", "BPR"), "all are named"
    several = [replace(bpr, row=replace(bpr.row, system=name)) for name in ("BPR", "DMF", "SLIM")]
    many = replace(ease, runs=tuple(replace(ease.runs[0], seed=seed) for seed in range(7, 12)))
    results = replace(results, baseline=None, lines={TASK: [many, *several]})
    assert other_tests(results.lines[TASK]) == {"EASE": reasons}, "rows count, not runs"
    assert [results.baseline_of(TASK, ranking) for ranking in RANKINGS] == ["BPR"] * 2
    alone = replace(results, lines={TASK: [ease]})
    assert "Ties count as misses." in chapters(alone, [])[0].intro


def private(folder: Path, ours: set[int], theirs: set[int], **changed: object) -> Results:
    """A row with some seeds, and noise baseline with others."""

    def facts(row: Row, seed: int) -> Facts | None:
        if seed not in (theirs if row.control else ours):
            return None
        return facts_of(row, seed)

    return reread(folder, GRID | {"tasks": {TASK: {"title": "M"}}, "systems": PRIVATE} | changed, facts)


def test_only_seeds_that_both_have_are_paired(tmp_path: Path) -> None:
    results = private(tmp_path, {0, 1, 2}, {1, 2, 3}, seeds=[0, 1, 2, 3])
    for gain in paired_differences(results):
        control = control_of(results, gain.line, NOISE_BASELINE)
        assert control is not None
        d = differences(gain.line, control, f"{gain.ranking}/{gain.measure}")
        assert d.keys() == {1, 2}
        assert gain.seeds is not None
        assert gain.seeds.pairs == 2
        assert gain.seeds.difference == pytest.approx(np.mean([np.mean(list(own.values())) for own in d.values()]))


def test_rows_without_a_seed_in_common_are_passed_over(tmp_path: Path) -> None:
    assert paired_differences(private(tmp_path, {0, 1}, {2, 3}, seeds=[0, 1, 2, 3])) == []


def test_one_finished_seed_of_several_does_not_stand_for_the_others(tmp_path: Path) -> None:
    results = private(tmp_path, {0}, {0, 1, 2})
    for gain in paired_differences(results):
        control = control_of(results, gain.line, NOISE_BASELINE)
        assert control is not None
        cases = [pl.read_parquet(line.runs[0].folder / "test_cases.parquet") for line in (gain.line, control)]
        name = f"{gain.ranking}/{gain.measure}"
        assert gain.users.difference == pytest.approx(cases[0][name].mean() - cases[1][name].mean(), abs=1e-6)
        assert gain.seeds is None


def test_rows_with_one_user_in_common_are_passed_over(tmp_path: Path) -> None:
    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(row, seed)
        assert made is not None
        made.users = [made.users[0], *(f"{row.control}{user}" for user in made.users[1:])]
        return made

    assert (
        paired_differences(reread(tmp_path, GRID | {"tasks": {TASK: {"title": "M"}}, "systems": PRIVATE}, facts)) == []
    )


def test_several_items_of_one_user_count_as_one(tmp_path: Path) -> None:
    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(row, seed)
        assert made is not None
        made.users = [f"u{i // 3}" for i in range(len(made.users))]
        return made

    results = reread(tmp_path, GRID | {"tasks": {TASK: {"title": "M"}}, "systems": PRIVATE}, facts)
    found = paired_differences(results)
    assert {gain.users.pairs for gain in found} == {20}
    for gain in found:
        control = control_of(results, gain.line, NOISE_BASELINE)
        assert control is not None
        d = differences(gain.line, control, f"{gain.ranking}/{gain.measure}")
        assert same(gain.users, by_hand([np.mean([own[f"u{i}"] for own in d.values()]) for i in range(20)]))


def test_a_ranking_that_was_not_asked_for_has_no_difference(tmp_path: Path) -> None:
    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(row, seed)
        assert made is not None
        return Facts({"full": made.ranks["full"]}, made.users, made.train_items, made.linked, made.records)

    found = paired_differences(reread(tmp_path, GRID | {"tasks": {TASK: {"title": "M"}}, "systems": PRIVATE}, facts))
    assert {gain.ranking for gain in found} == {"full"}
    assert len(found) == len(TESTED_METRICS)


def families(found: Sequence[Gain]) -> dict[tuple[str, ...], list[Gain]]:
    made: dict[tuple[str, ...], list[Gain]] = defaultdict(list)
    for gain in found:
        made[gain.task, gain.against, gain.ranking, gain.measure].append(gain)
    return made


def test_p_values_are_corrected_within_task_control_and_figure(found: list[Gain]) -> None:
    made = families(found)
    assert len(made) == 2 * 3 * len(RANKINGS) * len(TESTED_METRICS)
    for family in made.values():
        assert [gain.users_holm for gain in family] == holm([gain.users.p_value for gain in family])
        tested = [gain for gain in family if gain.seeds is not None]
        seeds = [gain.seeds.p_value for gain in tested if gain.seeds is not None]
        assert [gain.seeds_holm for gain in tested] == holm(seeds)
        assert all(gain.seeds_holm is None for gain in family if gain.seeds is None)


def test_a_test_that_cannot_be_made_makes_no_family_larger(found: list[Gain]) -> None:
    family = families(found)[TASK, EASE, "full", "ndcg@10"]
    untested = {gain.line.name for gain in family if gain.seeds is None}
    assert untested == {"Popularity", "Searched, JLT"}
    smallest = min((gain for gain in family if gain.seeds), key=lambda gain: gain.seeds.p_value if gain.seeds else 1)
    assert smallest.seeds is not None
    assert smallest.seeds_holm == pytest.approx(min(1, smallest.seeds.p_value * (len(family) - len(untested))))


def drawn(rows: int, gain: float) -> Results:
    """Rows in memory that are their noise control but for what a gain leaves of their ranks."""

    def line(row: Row) -> Line:
        runs = tuple(a_run(seed) for seed in SEEDS)
        for run in runs:
            ranks = rng_of("null", row.name, run.seed).exponential(15.0 if row.control else 15.0 / gain, 50)
            ranks = np.minimum(ranks, OTHERS["full"]).astype(np.int64)
            facts = Facts({"full": ranks}, [f"u{i}" for i in range(50)], [5] * 50, [True] * 50)
            run.__dict__["cases"] = cases_of(facts).with_columns(seed=pl.lit(run.seed))
        return Line(row, runs)

    names = [f"R{i}" for i in range(rows)]
    lines = [Row(TASK, "PriCDR", name) for name in names]
    lines += [Row(TASK, "PriCDR", f"Noise ({name})", "noise", name) for name in names]
    seeds = [{"task": TASK, "system": row.system, "release": row.release, "seeds": SEEDS} for row in lines]
    return Results({"tasks": {TASK: {"title": "M"}}, "rows": seeds}, {TASK: list(map(line, lines))}, 0)


def test_a_true_gain_is_found_over_users_and_over_seeds() -> None:
    # a seed's difference has mean 0.48 and sd 0.055; either test misses it in none of 20,000 draws
    [gain] = [g for g in paired_differences(drawn(1, 8.0)) if (g.ranking, g.measure) == ("full", "ndcg@10")]
    assert gain.users_holm < 1e-4
    assert gain.users.low > 0
    assert gain.seeds is not None
    assert gain.seeds_holm is not None
    assert gain.seeds_holm < 0.05
    assert gain.seeds.better == 3


def test_no_gain_is_found_as_rarely_as_stated() -> None:
    # 40 tests at 5 %: 2 expected, 8 or more with probability 7e-4; any at all after Holm with at most 0.05
    family = [g for g in paired_differences(drawn(NULLS, 1.0)) if (g.ranking, g.measure) == ("full", "ndcg@10")]
    assert len(family) == NULLS
    assert sum(gain.users.p_value < 0.05 for gain in family) < 8
    assert sum(gain.seeds is not None and gain.seeds.p_value < 0.05 for gain in family) < 8
    assert not any(gain.users_holm < 0.05 for gain in family)
    assert not any(gain.seeds_holm is None or gain.seeds_holm < 0.05 for gain in family)
    assert 0.2 < np.mean([gain.users.difference > 0 for gain in family]) < 0.8  # a coin: 2e-4


def test_the_shape_of_a_sweep_compares_rows_of_a_seed_and_their_noise(tmp_path: Path) -> None:
    names = [f"PriCDR, JLT eps {epsilon}" for epsilon in (1, 8, 64)]
    grid = GRID | {"sweeps": {"epsilon": names, "with a control": [*names, "PriCDR, Nothing"]}}
    results = reread(
        tmp_path / "runs", grid, lambda row, seed: None if row.control and seed == 1 else facts_of(row, seed)
    )
    found = sweeps(results)
    assert [(each.task, each.title, each.of, each.seeds) for each in found] == [
        (TASK, title, f"{figure}{gain}", seeds)
        for figure in ("HR@10, 1 + 99", "NDCG@10, all items")
        for title, gain, seeds in (("epsilon", "", 3), ("epsilon", ", gain over noise", 2), ("with a control", "", 2))
    ], "the other task lacks a row, and the control has no noise baseline"
    for own, name in ((found[:3], ("sampled", "hit_rate@10")), (found[3:], ("full", "ndcg@10"))):
        figures, noise = (
            np.array([[run.figure(*name) for run in line_of(results, TASK, row).runs] for row in rows])
            for rows in (names, [f"PriCDR, Noise ({row[8:]})" for row in names])
        )
        assert (own[0].shape, own[1].shape) == (shape(figures.T), shape((figures[:, [0, 2]] - noise).T))
        assert [each.trend_holm for each in own] == holm([each.shape.p_trend for each in own])
        assert [each.bend_holm for each in own] == holm([each.shape.bend.p_value for each in own])
    significant = replace(found[0], trend_holm=0.01, bend_holm=0.01)
    words = (found[0].shape.correlation > 0, found[0].shape.bend.difference > 0)
    assert significant.verdict == f"{('falls', 'rises')[words[0]]}, {('valley', 'bell')[words[1]]}"
    assert replace(found[0], trend_holm=0.06, bend_holm=0.06).verdict == "-"
    written = write_report(results, tmp_path / "report")
    assert written.files["sweeps.csv"].count("\n") == 7
    assert "| with a control | HR@10, 1 + 99 | 4 x 2 |" in written.files["README.md"]
