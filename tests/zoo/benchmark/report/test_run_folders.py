"""Runs without a benchmark: which stand in one table, what they are called, what is refused, and a report on them."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from scipy import stats

import zoo
from datamodules import Synthetic
from tests.samples import edit_json
from tests.zoo.benchmark.report.fabricate import Facts, cases_of, drawn_ranks, figures, proved, rng_of, unproved
from zoo.benchmark.report.command import main
from zoo.benchmark.report.page import chapters
from zoo.benchmark.report.paired_differences import NOISE_BASELINE, control_of
from zoo.benchmark.report.results import Line, Results, ResultsError
from zoo.benchmark.report.run_folders import read_run_folders, system_names
from zoo.benchmark.report.tables import settings_table
from zoo.privacy.spending.total import entry_of
from zoo.runtime.run_folder import flat

EVALUATION = {"num_candidates": 99, "shared_candidates": True, "weighted_candidates": False, "ties": "expected"}
GIVEN: dict[str, Any] = {"target": "music", "sources": ["book"], "batch_size": 128, "seed": None, "root": "/somewhere"}
DATA: dict[str, Any] = {"class_path": "datamodules.Douban", "init_args": GIVEN | {"evaluation": EVALUATION}}
SUMMARY = {"target": {"domain": "music"}, "split": "given"}
JLT = {"class_path": "zoo.JLT", "init_args": {"epsilon": 8.0, "num_components": 8}}


def facts_of(method: str, seed: int, users: int = 40) -> Facts:
    """Ranks that follow the method and the seed, of users that the seed has held out items of."""
    rng = rng_of(method, seed)
    hardness = rng_of("hardness", seed).gamma(2.0, 8.0, users)
    names = [f"u{seed}-{i:03}" for i in range(users)]
    return Facts(drawn_ranks(rng, hardness), names, [i % 7 for i in range(users)], [True] * users)


def a_run(
    folder: Path,
    method: str = "DMF",
    seed: int = 0,
    settings: dict[str, Any] | None = None,
    data: dict[str, Any] | None = None,
    publisher: Any = None,  # noqa: ANN401  plain settings
    records: dict[str, Any] | None = None,
    change: Callable[[pl.DataFrame], pl.DataFrame] = lambda cases: cases,
    **report: object,
) -> Path:
    """The files of a run as `fit` leaves them, as far as a report reads them."""
    folder.mkdir(parents=True)
    cases = change(cases_of(facts_of(f"{method} {settings}", seed)))
    cases.write_parquet(folder / "test_cases.parquet")
    config = {
        "seed_everything": seed,
        "trainer": {"max_epochs": 5, "devices": seed + 1},
        "model": {"class_path": f"zoo.{method}", "init_args": {"lr": 0.01, "dims": [8, 4]} | (settings or {})},
        "data": DATA | {"init_args": DATA["init_args"] | (data or {})},
        "publisher": publisher,
    }
    metrics = {f"test/{name}": cases[name].cast(pl.Float64).mean() for name in figures(cases)}
    said = {"method": method, "seed": seed, "train_seconds": 2.0, "epochs": 5, "parameters": 12, "peak_memory": 300}
    said |= {"ranked_by_item_counts": 0, "metrics": metrics, "release_bytes": dict.fromkeys(records or {}, 10)}
    (folder / "config.yaml").write_text(f"# cdr-zoo 0.3.0\n{yaml.safe_dump(config)}", encoding="utf-8")
    for name, value in (("metrics.json", said | report), ("privacy.json", records or {}), ("data.json", SUMMARY)):
        (folder / name).write_text(json.dumps(value), encoding="utf-8")
    return folder


def names(results: Results) -> list[list[str]]:
    return [[line.name for line in lines] for lines in results.lines.values()]


def test_runs_that_differ_in_their_seed_alone_are_one_row(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / f"{method}-{seed}", method, seed) for method in ("DMF", "EASE") for seed in (0, 1)]
    results = read_run_folders([*runs[::-1]])
    assert names(results) == [["EASE", "DMF"]]
    [lines] = results.lines.values()
    assert [[run.seed for run in line.runs] for line in lines] == [[0, 1], [0, 1]]
    assert results.seeds_of(lines[0]) == [0, 1]
    assert (results.num_finished, results.num_runs, results.separation, results.baseline) == (4, 4, {}, "")
    assert lines[0].runs[0].versions == {"cdr-zoo": "0.3.0"}


def test_rows_of_one_method_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    runs = [
        a_run(tmp_path / "a", settings={"lr": 0.01}),
        a_run(tmp_path / "b", settings={"lr": 0.002, "dims": [4]}),
        a_run(tmp_path / "c", "EASE"),
    ]
    assert names(read_run_folders(runs)) == [["DMF dims [8, 4], lr 0.01", "DMF dims [4], lr 0.002", "EASE"]]
    wide = a_run(tmp_path / "d", settings={"a": 1, "b": 2, "c": 3, "lr": 5})
    [[*dmf, ease]] = names(read_run_folders([*runs[:2], wide, runs[2]]))
    assert [name.split("/")[-1] for name in dmf] == ["a]", "b]", "d]"], "more than a name can hold: the folder"
    assert all(name.startswith("DMF [") for name in dmf)
    assert ease == "EASE"


def test_a_seed_that_is_run_twice_is_a_row_of_its_own(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "x" / name) for name in ("version_0", "version_1")]
    assert names(read_run_folders(runs)) == [["DMF [x/version_0]", "DMF [x/version_1]"]]


def test_rows_name_their_releases_and_find_their_noise_controls(tmp_path: Path) -> None:
    noise = {"class_path": "zoo.Noise", "init_args": {"of": JLT, "seed": 3}}
    records = {"book": proved(8.0)}
    wide = {"class_path": "zoo.JLT", "init_args": {"epsilon": 1.0}}
    limited = {"class_path": "zoo.JLT", "init_args": {"attack_success": 0.6}}
    thin = [{"class_path": "zoo.Thinned", "init_args": {"of": of, "share": 0.5}} for of in (JLT, limited, noise)]
    given = {"releases": {"book": str(tmp_path / "given")}}
    runs = [
        a_run(tmp_path / "a", "PriCDR", data=given, publisher=JLT, records=records),
        a_run(tmp_path / "b", "PriCDR", data=given, publisher=noise, records={"book": unproved("control")}),
        a_run(tmp_path / "c", "PriCDR", publisher="Plaintext", records={"book": unproved()}),
        a_run(tmp_path / "d", "PriCDR", publisher={"class_path": "zoo.Nothing"}, records={"book": unproved("nothing")}),
        a_run(tmp_path / "e", "UserKNN", data=given, publisher=wide, records=records),
        a_run(tmp_path / "f", "DMF", publisher=JLT),
        *(a_run(tmp_path / f"h{k}", "EASE", publisher=of, records=records) for k, of in enumerate(thin)),
    ]
    (tmp_path / "a" / "releases" / "book").mkdir(parents=True)
    results = read_run_folders(runs)
    [lines] = results.lines.values()
    found = {line.name: line for line in lines}
    assert list(found) == [
        *("PriCDR, JLT eps 8", "PriCDR, Noise (JLT eps 8)", "PriCDR, Plaintext", "PriCDR, Nothing"),
        *("UserKNN, JLT eps 8", "DMF", "EASE, Thinned 0.5 (JLT eps 8)", "EASE, Thinned 0.5 (JLT attack success 0.6)"),
        "EASE, Thinned 0.5 (Noise (JLT eps 8))",
    ]
    assert [line.row.control for line in lines] == ["", "noise", "", "control", "", "", "", "", "control"]
    assert control_of(results, found["PriCDR, JLT eps 8"], NOISE_BASELINE) is found["PriCDR, Noise (JLT eps 8)"]
    assert (found["PriCDR, JLT eps 8"].epsilon, found["DMF"].epsilon) == (8.0, None)
    of = {**JLT, "init_args": {**JLT["init_args"], "num_components": 9}}
    wider = {"class_path": "zoo.Noise", "init_args": {"of": of}}
    other = a_run(tmp_path / "g", "PriCDR", publisher=wider, records={"book": unproved("control")})
    [lines] = read_run_folders([runs[0], other]).lines.values()
    assert [line.name for line in lines] == ["PriCDR, JLT eps 8", "PriCDR, Noise (JLT eps 8)"]
    assert control_of(read_run_folders([runs[0], other]), lines[0], NOISE_BASELINE) is None, (
        "the noise of another release"
    )


def other_items(cases: pl.DataFrame) -> pl.DataFrame:
    return cases.with_columns(item_id=pl.col("item_id") + "x")


def more_history(cases: pl.DataFrame) -> pl.DataFrame:
    return cases.with_columns(train_items=pl.col("train_items") + 1)


#: What a run has changed, and why it then has a table of its own.
RATINGS, CANDIDATES = "other training ratings", "other candidates"
APART: dict[str, tuple[dict[str, Any], str]] = {
    "items": ({"change": other_items}, "other test items"),
    "history": ({"change": more_history}, RATINGS),
    "candidates by settings": ({"data": {"evaluation": EVALUATION | {"num_candidates": 50}}}, CANDIDATES),
    "candidates by digest": ({"tested": {"ratings": "r", "candidates": "d"}}, CANDIDATES),
    "ratings by digest": ({"tested": {"ratings": "s", "candidates": "c"}}, "other training or held-out ratings"),
    "ties": ({"data": {"evaluation": EVALUATION | {"ties": "pessimistic"}}}, "another rule for ties"),
    "average": ({"data": {"evaluation": EVALUATION | {"average": "users"}}}, "another average (cases or users)"),
}


@pytest.mark.parametrize("what", APART)
def test_runs_that_were_tested_on_something_else_stand_apart(tmp_path: Path, what: str) -> None:
    changed, why = APART[what]
    tested = {"ratings": "r", "candidates": "c"}
    first = [a_run(tmp_path / "a", tested=tested), a_run(tmp_path / "b", "EASE", tested=tested)]
    results = read_run_folders([*first, a_run(tmp_path / "c", "BPR", **({"tested": tested} | changed))])
    assert names(results) == [["DMF", "EASE"], ["BPR"]]
    [(task, sentence)] = results.separation.items()
    assert task == list(results.lines)[1]
    assert sentence == f"Separate from the table of music (Douban, split given): {why}."
    titles = [entry["title"] for entry in results.benchmark["tasks"].values()]
    assert titles == ["music (Douban, split given)", f"music (Douban, split given), {why}"]


def test_two_tables_that_differ_alike_are_named_by_a_run(tmp_path: Path) -> None:
    ties = [{"data": {"evaluation": EVALUATION | {"ties": kind}}} for kind in ("a", "b")]
    runs = [a_run(tmp_path / "a"), *(a_run(tmp_path / f"b{n}", "BPR", **changed) for n, changed in enumerate(ties))]
    titles = [entry["title"] for entry in read_run_folders(runs).benchmark["tasks"].values()]
    first = "music (Douban, split given)"
    assert titles == [
        first,
        f"{first}, another rule for ties",
        f"{first}, another rule for ties, of {tmp_path.name}/b1",
    ]


def test_what_was_not_kept_or_changes_the_training_alone_separates_nothing(tmp_path: Path) -> None:
    runs = [a_run(tmp_path / "a", tested={"ratings": "r", "candidates": "c"}), a_run(tmp_path / "b", "EASE")]
    assert names(read_run_folders(runs)) == [["DMF", "EASE"]]
    free = {"sources": None, "batch_size": 8, "root": "elsewhere", "seed": 0}
    runs = [a_run(tmp_path / "c"), a_run(tmp_path / "d", "EASE", data=free)]
    assert names(read_run_folders(runs)) == [["DMF", "EASE"]]


def test_seeds_apart_stand_together_only_on_the_same_data(tmp_path: Path) -> None:
    zero, one = a_run(tmp_path / "a", "DMF", 0), a_run(tmp_path / "b", "EASE", 1)
    assert names(read_run_folders([zero, one])) == [["DMF", "EASE"]]
    other = a_run(tmp_path / "c", "BPR", 2, data={"target": "movie"})
    results = read_run_folders([zero, one, other])
    assert names(results) == [["DMF", "EASE"], ["BPR"]]
    [sentence] = results.separation.values()
    assert sentence.endswith("no common seed, and other settings of the data: target.")


def test_what_is_no_tested_run_is_refused(tmp_path: Path) -> None:
    good = a_run(tmp_path / "good")
    with pytest.raises(ResultsError, match=r"absent has no config\.yaml"):
        read_run_folders([good, tmp_path / "absent"])
    (trained := a_run(tmp_path / "trained", seed=1)).joinpath("metrics.json").unlink()
    with pytest.raises(ResultsError, match=r"trained has no metrics\.json"):
        read_run_folders([trained])
    left = read_run_folders([trained, good])
    assert (names(left), left.num_finished) == ([["DMF"]], 1)
    assert left.benchmark["about"] == f"Left out (no test of `fit`): {tmp_path.name}/trained."
    checked = a_run(tmp_path / "checked")  # by `test`, which knows nothing of the training
    (checked / "metrics.json").write_text(json.dumps({"method": "DMF", "metrics": {}}))
    assert read_run_folders([checked, good]).benchmark["about"].endswith(f"{tmp_path.name}/checked.")
    produced = a_run(tmp_path / "produced", metrics={})  # with the split `none`
    (produced / "test_cases.parquet").unlink()
    assert read_run_folders([produced, good]).benchmark["about"].endswith(f"{tmp_path.name}/produced.")
    (tmp_path / "empty").mkdir()  # what a pattern such as runs/*/* finds beside runs
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "benchmark.json").write_text("{}")
    left = read_run_folders([good, tmp_path / "empty", tmp_path / "benchmark"])
    assert names(left) == [["DMF"]]
    assert left.benchmark["about"].endswith(f"{tmp_path.name}/empty, {tmp_path.name}/benchmark.")
    with pytest.raises(ResultsError, match=r"nothing has no test NDCG@10\. It needs held-out items"):
        read_run_folders([a_run(tmp_path / "nothing", metrics={})])
    (grid := a_run(tmp_path / "grid")).joinpath("benchmark.json").write_text("{}")
    with pytest.raises(ResultsError, match=r"grid is a benchmark\. Report on it alone"):
        read_run_folders([good, grid])
    with pytest.raises(ResultsError, match=r"Repeated runs: .*good\. Name each run once\."):
        read_run_folders([good, tmp_path / "good" / ".." / "good"])
    (good / "config.yaml").write_text("#" * (2**20 + 1))
    with pytest.raises(ResultsError, match=r"unreadable .*1,048,577 bytes\. Allowed: 1,048,576"):
        read_run_folders([good])


@pytest.mark.parametrize("file", ["config.yaml", "metrics.json", "privacy.json", "data.json", "test_cases.parquet"])
def test_a_damaged_file_is_refused_in_a_sentence(tmp_path: Path, file: str) -> None:
    run = a_run(tmp_path / "run")
    for damage in ((run / file).read_bytes() + b" " * 2**20, b"[1", b"[" * 10**5):
        (run / file).write_bytes(damage)
        with pytest.raises(ResultsError, match=r"is unreadable \(.*\)\.") as refused:
            read_run_folders([run])
        assert "\n" not in str(refused.value)


def test_values_that_no_run_writes_are_refused(tmp_path: Path) -> None:
    of_metrics = ({"test/full/ndcg@10": value} for value in ("x", 1e308, []))
    wrong: list[tuple[str, dict[str, Any]]] = [
        *(("metrics.json", {name: "many"}) for name in ("epochs", "peak_memory", "energy_kwh", "co2_kg")),
        *(("metrics.json", values) for values in ({"epochs": None}, {"release_bytes": ["a"]})),
        *(("metrics.json", {"metrics": values}) for values in of_metrics),
        *(("data.json", values) for values in ({"target": 5}, {"test_says_little": 5}, {"negatives": 5})),
    ]
    for at, (file, values) in enumerate(wrong):
        path = a_run(tmp_path / f"run{at}") / file
        path.write_text(json.dumps(json.loads(path.read_text()) | values))
        with pytest.raises(ResultsError, match=rf"{file}: {next(iter(values))} is .*\. Repeat the run"):
            read_run_folders([path.parent])


def test_rows_of_one_name_are_of_one_model() -> None:
    """However many settings differ: gains over baselines compare rows of one name."""
    wide, narrow = ({f"model.{name}": value for name in "abcd"} for value in (1, 2))
    rows = [
        ("DMF", release, kept, folder)
        for folder, (release, kept) in zip(
            "pqrs", [("JLT", wide), ("Nothing", narrow), ("Nothing", wide), ("JLT", wide)], strict=True
        )
    ]
    assert system_names(rows) == ["DMF [p]", "DMF [q]", "DMF [p]", "DMF [p] [s]"]


def test_given_releases_are_told_apart_by_their_records(tmp_path: Path) -> None:
    """Also those of one name and epsilon; controls are recognised. Seeds of noise and projections do not matter."""
    ratings = Synthetic(num_users=60, num_items=40).source("book")
    kinds = (zoo.JLT(epsilon=8.0, num_components=16), zoo.SJLT(epsilon=8.0, num_components=16, calibration="max"))
    made: list[tuple[int, zoo.Publisher]] = [(seed, kind) for kind in kinds for seed in (0, 1)]
    made += [(0, zoo.JLT(epsilon=8.0, num_components=2)), (1, zoo.JLT(epsilon=8.0, num_components=2, delta=1e-9))]
    made += [
        (0, zoo.Noise(zoo.JLT(epsilon=8.0, num_components=16))),
        (0, zoo.Plaintext()),
        (1, zoo.Shuffled(zoo.Plaintext())),
    ]
    runs = []
    for at, (seed, publisher) in enumerate(made):
        release = publisher.publish(ratings, "book")
        entry = entry_of(release.record, release.ledger, 60)
        runs.append(a_run(tmp_path / f"{at}", "PriCDR", seed, records={"book": entry}))
    (lines,) = read_run_folders(runs).lines.values()
    assert sorted(len(line.runs) for line in lines) == [1, 1, 1, 1, 1, 2, 2]
    assert sorted(line.row.release for line in lines if line.row.control) == ["control (JLT)", "control (Plaintext)"]


@pytest.mark.parametrize(("stated", "said"), [([99, 99], ""), ([39, 50], "39 to 50"), ([25, 25], "25"), (["39"], "")])
def test_a_page_says_if_the_sampled_ranking_has_other_numbers(tmp_path: Path, stated: list[object], said: str) -> None:
    run = a_run(tmp_path / "run")
    (run / "data.json").write_text(json.dumps(SUMMARY | {"negatives": stated}))
    (chapter,) = chapters(read_run_folders([run]), [])
    found = re.findall(r"has ([\d to]+) negatives of a test case, not 99", chapter.intro)
    assert found == [said] * bool(said)


def test_a_domain_begins_no_line_of_a_page(tmp_path: Path) -> None:
    run = a_run(tmp_path / "run")
    (run / "data.json").write_text(json.dumps(SUMMARY | {"target": {"domain": "music\n\n## Proved\n"}}))
    (task,) = read_run_folders([run]).benchmark["tasks"].values()
    assert task["title"].startswith("music\\n\\n## Proved")


@pytest.mark.parametrize("lost", [None, "user_id", "linked"])
def test_cases_with_texts_for_figures_or_without_a_column_are_refused(tmp_path: Path, lost: str | None) -> None:
    run = a_run(tmp_path / "run", change=lambda cases: cases)
    cases = pl.read_parquet(run / "test_cases.parquet")
    cases = cases.drop(lost) if lost else cases.with_columns(pl.lit("x").alias("full/ndcg@10"))
    cases.write_parquet(run / "test_cases.parquet")
    with pytest.raises(ResultsError, match=f"column {lost} is missing" if lost else "full/ndcg@10 is no number"):
        read_run_folders([run])


def test_a_baseline_that_no_row_is_called_is_refused(tmp_path: Path) -> None:
    results = read_run_folders([a_run(tmp_path / "a"), a_run(tmp_path / "b", "EASE")])
    assert results.with_baseline("EASE").baseline == "EASE"
    with pytest.raises(
        ResultsError, match=r"Baseline 'EASY' is no finished row\. Did you mean EASE\? Rows: DMF; EASE\.$"
    ):
        results.with_baseline("EASY")
    many = read_run_folders([a_run(tmp_path / f"{n}", f"M{n}") for n in range(10)])
    with pytest.raises(
        ResultsError, match=r"Baseline 'EASE' is no finished row\. Rows: M0; M1; M2; M3; M4; M5; M6; M7; and 2 more\.$"
    ):
        many.with_baseline("EASE")


def test_settings_that_differ_are_listed_and_shared_ones_are_not(tmp_path: Path) -> None:
    jlt = JLT | {"init_args": {"epsilon": 8.0}}
    other = {"l2": None, "callbacks": [{"class_path": "x.Stop"}]}
    runs = [
        a_run(tmp_path / "a", settings={"lr": 0.5}, publisher=jlt),
        a_run(tmp_path / "b", "EASE", settings=other, publisher=jlt, records={"book": proved(8.0)}),
    ]
    [lines] = read_run_folders(runs).lines.values()
    table = settings_table(lines)
    assert table is not None
    assert table.rows == [
        ["DMF", "lr 0.5"],
        ["EASE, JLT eps 8", "callbacks Stop, l2 none, lr 0.01, publisher.epsilon 8"],
    ]
    assert settings_table(lines[:1]) is None
    assert not any(key.startswith("publisher") for key in lines[0].runs[0].settings), "nobody published for it"
    assert "trainer.devices" not in flat(lines[0].runs[0].settings)


def test_a_report_on_runs_has_a_leaderboard_curves_settings_and_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [("a", "DMF", {"settings": {"lr": 0.5}}), ("b", "BPR", {}), ("c", "EASE", {"change": other_items})]
    for name, method, more in rows:
        a_run(Path("runs") / name, method, **more)  # type: ignore[arg-type]
        (Path("runs") / name / "metrics.csv").write_text("epoch,val/ndcg@10\n0,0.1\n1,0.2\n", encoding="utf-8")
    main(["runs/a", "runs/b", "runs/c", "--out", "out", "--baseline", "BPR"])
    said = capsys.readouterr().out
    assert "Separate from the table of music (Douban, split given): other test items." in said
    page = Path("out/README.md").read_text(encoding="utf-8")
    assert page.startswith("# 3 runs compared\n\n- Compared: 3 rows on 2 tasks; 3 of 3 runs finished")
    assert "Compared with BPR (paired over users, " in page
    assert "\npython -m zoo report runs/a runs/b runs/c --baseline BPR --out out\n" in page
    assert "\n- Versions: cdr-zoo 0.3.0.\n- Commit: not recorded.\n" in page
    assert "\nSeparate from the table of" in page
    assert ", at the epoch with the best validation NDCG@10. Figures" in page
    for name, epoch in (("c", 1), ("a", 2)):
        edit_json(Path("runs", name, "metrics.json"), lambda found, epoch=epoch: found.update(tested_epoch=epoch))
        Path("runs", name, "metrics.csv").write_text("epoch,val/ndcg@10\n0,0.3\n1,0.2\n", encoding="utf-8")
    main(["runs/a", "runs/c", "--out", "stored"])
    stored = Path("stored/README.md").read_text(encoding="utf-8")
    assert [words in stored for words in (", after the last epoch.", ", at the epoch with the best")] == [True, True]
    sections = ("### Learning curves", "### Pairwise differences", "### Settings")
    for words in (*sections, "gain over BPR", "learning.svg)", "| Recall@10 |"):
        assert words in page, words
    with Path("out/results.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["system"], row["method"]) for row in rows] == [("DMF", "DMF"), ("BPR", "BPR"), ("EASE", "EASE")]
    with Path("out/gains.csv").open(encoding="utf-8", newline="") as file:
        assert {(row["row"], row["against"]) for row in csv.DictReader(file)} == {("DMF", "BPR")}


def test_a_run_that_fit_has_left_is_reported(finished: Path, tmp_path: Path) -> None:
    main([str(finished), "--out", str(tmp_path / "out")])
    page = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert page.startswith("# One run\n")
    [lines] = read_run_folders([finished]).lines.values()
    [line] = lines
    assert isinstance(line, Line)
    assert line.name.startswith("PriCDR, ")
    assert line.mean("full", "coverage@10") > 0
    assert line.runs[0].report["tested"].keys() == {"ratings", "candidates", "drawn", "ties", "average"}
    assert str(finished) not in page, "no folder of this machine"


@pytest.mark.thorough
def test_a_significantly_worse_challenger_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def lowered(cases: pl.DataFrame) -> pl.DataFrame:
        return cases.with_columns(pl.col("full/ndcg@10") * 0.5)

    champion, same = (
        a_run(tmp_path / "champion"),
        a_run(tmp_path / "same", tested={"candidates": "c"}),
    )  # an earlier run
    worse, other = a_run(tmp_path / "worse", change=lowered), a_run(tmp_path / "other", change=other_items)
    out = ("--champion", "--out", str(tmp_path / "out"))
    with pytest.raises(SystemExit) as ended:
        main([str(champion), str(worse), *out])
    before, after = (pl.read_parquet(run / "test_cases.parquet")["full/ndcg@10"] for run in (champion, worse))
    assert ended.value.code == 1
    assert f"p = {stats.ttest_rel(after, before).pvalue:.2g}, 40 users: significantly worse." in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main([str(worse), str(champion), *out])
    assert "40 users: significantly better." in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main([str(champion), str(same), *out])
    assert "difference +0.0000" in (said := capsys.readouterr().out)
    assert "not significantly different" in said
    with pytest.raises(SystemExit, match=r"other test items than .* Train the champion's settings on the same data"):
        main([str(champion), str(other), *out])
    with pytest.raises(SystemExit, match="--champion has 1 runs"):
        main([str(champion), *out])
