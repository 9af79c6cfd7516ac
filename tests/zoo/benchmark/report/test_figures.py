"""Curves: one for each kind of guarantee, the same text for the same runs, with everything named that is drawn."""

import dataclasses
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.colors
import matplotlib.image
import numpy as np
import pytest

from tests.zoo.benchmark.report.fabricate import GRID, JLT, Facts, Record, facts_of, line_of, proved, reread
from zoo.benchmark.grid import Row
from zoo.benchmark.report.figures import COLOURS, REFERENCES
from zoo.benchmark.report.figures import curves as pictures
from zoo.benchmark.report.files import WrittenReport
from zoo.benchmark.report.results import Results

pytestmark = pytest.mark.thorough

TASK = "book-music"
RATING = "one rating (change one rating), delta 1e-05"
USER = "one user (replace one user), delta 1e-05"
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
ONE = [{"publisher": "JLT", "epsilons": [1], "noise_control": False}]


def curves(results: Results, task: str) -> dict[str, str]:
    """The figures as SVG."""
    return {name: picture.svg for name, picture in pictures(results, task).items()}


@pytest.fixture(scope="module")
def drawn(written: WrittenReport) -> dict[str, str]:
    """Those of one task in the report."""
    return {name: picture.svg for name, picture in written.pictures.items() if name.startswith(TASK)}


def of(drawn: dict[str, str], kind: str) -> str:
    """The figure whose title names a kind of guarantee."""
    [svg] = [svg for svg in drawn.values() if any(text.endswith(f": {kind}") for text in texts(svg))]
    return svg


def texts(svg: str) -> list[str]:
    """Everything that is written in a figure."""
    return [
        "".join(element.itertext()).strip() for element in ET.fromstring(svg).iter() if element.tag.endswith("}text")
    ]


def private(
    folder: Path,
    record: Callable[[Row], Record],
    releases: list[dict[str, Any]],
    name: str = "PriCDR",
    task: str = TASK,
) -> Results:
    """One system with these releases, whose records are as told."""

    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(dataclasses.replace(row, task=TASK, system="PriCDR"), seed)
        if made is not None and row.control != "noise":
            made.records = {"book": record(row)}
        return made

    system = {"config": "system.yaml", "releases": releases}
    grid = GRID | {"tasks": {task: {"title": "Music"}}, "systems": {name: system}}
    return reread(folder, grid, facts)


def test_every_kind_of_guarantee_has_a_figure(results: Results, drawn: dict[str, str]) -> None:
    kinds = {str(line.guarantee) for line in results.lines[TASK] if line.guarantee is not None}
    assert len(drawn) == len(kinds) == 3
    assert len({of(drawn, kind) for kind in kinds}) == 3
    assert sum(name.startswith("book-music-rating-change-one-rating-1") for name in drawn) == 1


def test_without_a_guarantee_there_is_no_figure(tmp_path: Path) -> None:
    grid = GRID | {"systems": {name: GRID["systems"][name] for name in ("Popularity", "EASE")}}
    assert curves(reread(tmp_path, grid), TASK) == {}


@pytest.mark.parametrize("other", [9.6e-6, 1.00000001e-5])
def test_deltas_that_differ_little_are_two_kinds(tmp_path: Path, other: float) -> None:
    deltas = {1.0: 1e-5, 2.0: other}
    releases = [{"publisher": "JLT", "epsilons": [1, 2]}]
    results = private(tmp_path, lambda row: proved(1.0, deltas[row.epsilon or 0]), releases)
    assert len({line.guarantee for line in results.lines[TASK] if line.guarantee}) == 2
    assert len(curves(results, TASK)) == 2


def test_a_control_is_no_series_whatever_it_guarantees(tmp_path: Path) -> None:
    shuffled = {"publisher": {"class_path": "Shuffled", "init_args": {"of": JLT}}}
    results = private(tmp_path, lambda row: proved(row.epsilon or 3.0), [*ONE, shuffled])
    assert line_of(results, TASK, "PriCDR, Shuffled").guarantee == line_of(results, TASK, "PriCDR, JLT eps 1").guarantee
    [svg] = curves(results, TASK).values()
    assert "PriCDR, JLT" in texts(svg)
    assert "Shuffled" not in svg


def test_a_figure_s_name_is_that_of_a_file(tmp_path: Path) -> None:
    results = private(tmp_path, lambda row: proved(), ONE, task="Book -> mu/sic_1")
    [name] = curves(results, "Book -> mu/sic_1")
    assert re.fullmatch(r"[\w.-]+", name)


def test_a_figure_is_well_formed_and_needs_nothing_from_outside(drawn: dict[str, str]) -> None:
    for svg in drawn.values():
        assert svg.startswith("<svg")
        assert ET.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
        assert set(re.findall(r"https?://[^\"'\s<]+", svg)) <= NAMESPACES
        assert re.findall(r'(?:href="|url\()(?!#)', svg) == []
        assert "<image" not in svg
        assert "<script" not in svg
        assert not re.search(r"metadata|dc:|Matplotlib|\b20\d\d-\d\d|\d\d:\d\d:\d\d", svg), "no date"
        ids = re.findall(r'\bid="([^"]+)"', svg)
        assert len(ids) == len(set(ids))
        assert {*re.findall(r'href="#([^"]+)"', svg), *re.findall(r"url\(#([^)]+)\)", svg)} <= set(ids)


def test_series_and_levels_are_named(drawn: dict[str, str]) -> None:
    written = texts(of(drawn, RATING))
    assert {"PriCDR, JLT", "PriCDR, JLT: noise baseline", "Searched, JLT"} <= set(written)
    assert {"Popularity", "EASE", "PriCDR, Plaintext", "PriCDR, Nothing"} <= set(written)
    assert "Searched, JLT: noise baseline" not in written
    assert not any("DMF" in text or "Shuffled" in text or "Whole users" in text for text in written)
    assert "Book -> Music: one rating (change one rating), delta 1e-05" in written
    assert {"all items", "1 + 99 candidates"} <= set(written)
    assert (written.count("epsilon, proved"), written.count("NDCG@10")) == (2, 2)
    series = [text for text in written if ", " in text and "delta" not in text and text != "epsilon, proved"]
    assert len(series) == len(set(series)) == 5, "the legend names each once, for both panels"


def test_figures_of_other_guarantees_have_their_own_series(drawn: dict[str, str]) -> None:
    written = texts(of(drawn, USER))
    assert {"Whole users, JLT", "Whole users, JLT: noise baseline", "EASE"} <= set(written)
    assert not any("PriCDR, JLT" in text or "smaller delta" in text for text in written)


def test_an_epsilon_stands_where_it_is_proved(drawn: dict[str, str]) -> None:
    written = texts(of(drawn, RATING))
    assert [float(text) for text in written[: written.index("epsilon, proved")]] == [1, 5, 8, 64]


def test_an_epsilon_is_never_written_lower_on_the_axis(tmp_path: Path) -> None:
    proofs = {1.0: 1.04, 2.0: 124.0}
    releases = [{"publisher": "JLT", "epsilons": [1, 2], "noise_control": False}]
    results = private(tmp_path, lambda row: proved(proofs[row.epsilon or 0]), releases)
    [svg] = curves(results, TASK).values()
    written = texts(svg)
    shown = [float(text) for text in written[: written.index("epsilon, proved")]]
    assert len(shown) == 2
    assert all(low <= x for low, x in zip(proofs.values(), shown, strict=True))


def test_rows_by_attack_success_are_one_series(tmp_path: Path) -> None:
    proofs = {0.6: 1.0, 0.95: 18.9}
    releases = [{"publisher": "NoisyRows", "epsilons": [*proofs], "epsilon_key": "attack_success"}]
    [svg] = curves(private(tmp_path, lambda row: proved(proofs[row.epsilon or 0]), releases), TASK).values()
    found = [text for text in texts(svg) if "NoisyRows" in text]
    assert found == ["PriCDR, NoisyRows attack success", "PriCDR, NoisyRows attack success: noise baseline"]


def named(folder: Path, *names: str) -> list[str]:
    """What is written where systems are called so."""
    systems = {name: {"config": "system.yaml", "releases": ONE} for name in names}
    results = reread(folder, GRID | {"tasks": {TASK: {"title": "Music"}}, "systems": systems})
    [svg] = curves(results, TASK).values()
    return texts(svg)


def test_names_are_written_as_they_are(tmp_path: Path) -> None:
    names = ["A < B && C", "\"one\" 'two'", "100 %", "a\\b", "Müller", "from $5 to $6", "a $\\lost$", "_hidden"]
    assert {f"{name}, JLT" for name in names} <= set(named(tmp_path, *names))
    releases = [{"publisher": "JLT", "label": "JLT eps 16 of half", "noise_control": False}]
    [svg] = curves(private(tmp_path, lambda row: proved(), releases), TASK).values()
    assert "PriCDR, JLT eps 16 of half" in texts(svg)


def test_one_ranking_has_one_panel(tmp_path: Path) -> None:
    def facts(row: Row, seed: int) -> Facts | None:
        made = facts_of(row, seed)
        return made and dataclasses.replace(made, ranks={"sampled": made.ranks["sampled"]})

    grid = GRID | {"systems": {name: GRID["systems"][name] for name in ("EASE", "Searched")}}
    [svg] = curves(reread(tmp_path, grid, facts), TASK).values()
    written = texts(svg)
    assert written.count("NDCG@10") == 1
    assert "all items" not in written
    assert "1 + 99 candidates" in written


def test_series_have_colours_of_their_own_and_levels_a_style(drawn: dict[str, str]) -> None:
    svg = of(drawn, RATING).lower()
    assert COLOURS[0].lower() in svg
    assert COLOURS[1].lower() in svg
    assert COLOURS[2].lower() not in svg, "there are two series"
    assert len(set(REFERENCES.values())) == len(REFERENCES)


def test_another_result_gives_another_figure(results: Results, drawn: dict[str, str]) -> None:
    users = [line for line in results.lines[TASK] if line.row.system in ("Whole users", "Popularity", "EASE")]
    kept = [line for line in users if line.row.release != "smaller delta"]
    fewer = [dataclasses.replace(line, runs=line.runs[:2]) if line.guarantee else line for line in kept]
    [same] = curves(dataclasses.replace(results, lines={TASK: kept}), TASK).values()
    [other] = curves(dataclasses.replace(results, lines={TASK: fewer}), TASK).values()
    assert same != other


def test_a_png_shows_what_the_svg_does_and_leaves_it_as_it_is(tmp_path: Path) -> None:
    results = private(tmp_path, lambda row: proved(), ONE, name="from $5 to $\\lost")
    [(name, picture)] = pictures(results, TASK).items()
    shown = matplotlib.image.imread(BytesIO(picture.png()))
    width, height = (float(size) for size in re.findall(r'(?:width|height)="([\d.]+)pt"', picture.svg)[:2])
    assert shown.shape[:2] == (round(height / 72 * 150), round(width / 72 * 150))
    assert (shown[..., :3] == 1).mean() > 0.5, "on white"
    colour = np.array(matplotlib.colors.to_rgb(COLOURS[0]))
    assert (np.abs(shown[..., :3] - colour) < 0.01).all(axis=2).sum() > 100, "with its line"
    assert pictures(results, TASK) == {name: picture}, "and drawn again they are equal"
