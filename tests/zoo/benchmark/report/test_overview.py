"""What a report opens with: five lines that its figures bear out, and one figure; and curves of validation."""

import dataclasses
import re
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.zoo.benchmark.report.fabricate import a_run, cell_folder, in_memory, line_of
from tests.zoo.benchmark.report.test_tables import TASK
from zoo.benchmark.report.figures import learning_curves, stored_epoch, validation_curve
from zoo.benchmark.report.files import WrittenReport
from zoo.benchmark.report.page import summary
from zoo.benchmark.report.paired_differences import NOISE_BASELINE, Gain, paired_differences
from zoo.benchmark.report.results import Line, Results, read_results

LOG = "epoch,step,train/loss,val/ndcg@10\n0,9,,0.125\n0,9,3.5,\n1,19,,0.5\n1,19,2.5,\n2,29,,nan\n,,,\n"


def drawn(svg: str) -> str:
    assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    return " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", svg))


def test_five_lines_say_what_the_tables_hold(results: Results, found: list[Gain]) -> None:
    compared, best, private, against, transfer = summary(results, found)
    rows = [line for lines in results.lines.values() for line in lines]
    controls = sum(bool(line.row.control) for line in rows)
    assert compared.startswith(f"Compared: {len(rows)} rows, {controls} of them controls, on 2 tasks; 71 of 79 runs ")
    assert compared.endswith(", each tested on 60 held-out cases.")
    for said, wanted in (
        (best, lambda line: line.epsilon is None or line.epsilon < 4.59),
        (private, lambda line: line.epsilon is not None and line.epsilon < 4.59),
    ):
        for task, lines in results.lines.items():
            top = max((x for x in lines if not x.row.control and wanted(x)), key=lambda x: x.mean("full", "ndcg@10"))
            title = results.benchmark["tasks"][task]["title"]
            assert f"{top.name} with {top.mean('full', 'ndcg@10'):.4f} among all items on {title}" in said
    assert "epsilon 1.00 (proved) for one rating (change one rating), delta 1e-05" in private
    assert "64" not in private + best, "whose attack bound is above 99 %"
    assert best.startswith("Best, controls and rows marked § excluded, by NDCG@10: ")
    assert private.endswith(
        " Epsilon is that of one run; a choice by these results costs all releases of the ratings together."
    )
    own = [g for g in found if (g.ranking, g.measure) == ("full", "ndcg@10") and not g.line.row.control]
    sure = [g for g in own if g.against == results.baseline and g.users_holm < 0.05]
    above = sum(g.users.difference > 0 for g in sure)
    others = sum(g.against == results.baseline for g in own) - len(sure)
    assert f": {above} rows significantly better, {len(sure) - above} significantly worse, {others} not " in against
    noise = [g for g in own if g.against == NOISE_BASELINE]
    most = max((g for g in noise if not g.line.view.label), key=lambda g: g.users.difference)
    gaining = sum(g.users_holm < 0.05 and g.users.difference > 0 for g in noise)
    assert transfer.startswith(f"Transfer: {gaining} of {len(noise)} rows gain significantly over their noise baseline")
    assert transfer.endswith(
        f"Largest gain, rows marked § excluded: {most.line.name}, {most.users.difference:+.4f} NDCG@10."
    )


def test_what_there_is_not_is_said(results: Results) -> None:
    line = line_of(results, TASK, "DMF")
    alone = in_memory([line])
    bare = dataclasses.replace(alone, baseline="", benchmark=alone.benchmark | {"cells": {"only": ""}})
    compared, best, private, against, transfer = summary(bare, paired_differences(bare))
    assert compared == "Compared: 1 row on 1 task; 1 of 1 run finished, each tested on 60 held-out cases."
    assert best == f"Best, controls excluded, by NDCG@10: DMF with {line.mean('full', 'ndcg@10'):.4f} among all items."
    assert private == "Best with a guarantee: none of the rows."
    assert against.startswith("Baseline: none")
    assert transfer.startswith("Transfer: no row has a noise baseline")
    few, most = line.runs[0], dataclasses.replace(line.runs[0], seed=9, listed=line.runs[0].cases[:50])
    uneven = dataclasses.replace(bare, lines={TASK: [dataclasses.replace(line, runs=(few, most))]})
    assert summary(uneven, [])[0].endswith(", each tested on 50 to 60 held-out cases.")


def test_of_many_tasks_the_best_rows_are_counted(results: Results) -> None:
    lines = results.lines[TASK]
    tasks = {f"t{i}": lines for i in range(5)} | {"last": [line_of(results, TASK, "DMF")]}
    many = Results({"tasks": {task: {"title": task} for task in tasks}, "cells": {}}, tasks, 1)
    assert summary(many, [])[1].endswith(" excluded, by NDCG@10, of 6 tasks: PriCDR, Plaintext on 5; DMF on 1.")


def test_the_figure_names_every_row_but_controls(results: Results, written: WrittenReport) -> None:
    said = drawn(written.pictures["overview"].svg)
    for task, lines in results.lines.items():
        assert results.benchmark["tasks"][task]["title"].replace("&", "&amp;").replace(">", "&gt;") in said
        for line in lines:
            assert (line.name in said) == (not line.row.control), line.name


def test_a_task_is_summed_up_by_the_ranking_that_its_rows_have(results: Results) -> None:
    assert results.ranking_of(TASK) == "full"
    line = line_of(results, TASK, "DMF")
    runs = tuple(dataclasses.replace(run) for run in line.runs)
    sampled = Line(line.row, runs)
    sampled.__dict__["cases"] = line.cases.drop("full/ndcg@10")
    assert in_memory([sampled]).ranking_of(TASK) == "sampled"


def test_validation_is_read_by_epoch(tmp_path: Path) -> None:
    assert validation_curve(tmp_path) == {}, "no log"
    (tmp_path / "metrics.csv").write_text(LOG, encoding="utf-8")
    assert validation_curve(tmp_path) == {1: 0.125, 2: 0.5}
    (tmp_path / "metrics.csv").write_text("epoch,val/ndcg@10\n1,0.25\n0,0.5\n0,0.125\n0,nan\n", encoding="utf-8")
    assert list(validation_curve(tmp_path).items()) == [(1, 0.5), (2, 0.25)], (
        "of several in an epoch the best is stored"
    )
    for broken in ("epoch,val/ndcg@10\nx,0.5\n", "epoch\n1\n", ""):
        (tmp_path / "metrics.csv").write_text(broken, encoding="utf-8")
        assert validation_curve(tmp_path) == {}


def test_the_tested_epoch_is_the_one_that_the_run_states() -> None:
    validated, run = {1: 0.2, 2: 0.1}, a_run()
    assert stored_epoch(run, validated) == 1, "of an earlier version"
    run.report["tested_epoch"] = 2
    assert stored_epoch(run, validated) == 2


def test_rows_that_were_validated_twice_have_a_curve(own_runs: Path) -> None:
    results = read_results(own_runs)
    assert learning_curves(results, TASK) == {}
    for name, log in (("DMF", LOG), ("PriCDR, Nothing", LOG), ("EASE", LOG.split("1,19")[0])):
        (cell_folder(own_runs, line_of(results, TASK, name)) / "metrics.csv").write_text(log, encoding="utf-8")
    [(name, picture)] = learning_curves(results, TASK).items()
    said = drawn(picture.svg)
    assert name == "book-music-learning"
    assert "DMF" in said
    assert "Nothing" not in said, "a control"
    assert "EASE" not in said, "solved in one epoch"
