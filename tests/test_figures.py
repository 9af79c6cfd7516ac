"""Figures and tables of pages: which lines a figure has, which rows a table has, and that all are drawn."""

import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import polars as pl
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

DOCS = Path(__file__).parent.parent / "docs"
HIT = ("sampled/hit_rate@10", "sampled/hit_rate@10 sd")
Drawn = dict[tuple[str, str, str], list[tuple[Any, float, float]]]


@pytest.fixture(scope="module")
def figures() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield importlib.import_module("figures")


@pytest.fixture
def tables(figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Tables that are read from a folder of the test."""
    module = importlib.import_module("result_tables")
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    monkeypatch.setattr(module, "PRIVACY", tmp_path)
    return module


def rows_of(keys: Sequence[str], *rows: Sequence[object]) -> list[dict[str, str]]:
    return [{key: str(value) for key, value in zip(keys, row, strict=True)} for row in rows]


def results(*rows: tuple[str, str, str, float]) -> list[dict[str, str]]:
    return rows_of(("task", "system", "release", *HIT), *((*row, "" if row[3] == 0.4 else 0.01) for row in rows))


def drawn(figures: ModuleType, name: str, rows: list[dict[str, str]], folder: str = "") -> Drawn:
    """Points by title or axis, vertical axis, and label."""
    [figure] = [one for one in figures.FIGURES if one.name == name and folder in one.csv]
    lines = list(figure.lines(rows))
    plt.close(figure.drawn(lines))
    return {(line.panel.title or line.panel.across, line.panel.up, line.label): line.points for line in lines}


@pytest.mark.thorough
def test_every_figure_of_a_page_is_in_the_table_and_is_drawn(
    figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for source in {path for figure in figures.FIGURES for path in DOCS.glob(figure.csv)} | {
        *DOCS.glob("privacy/*.csv")
    }:
        (tmp_path / source.relative_to(DOCS)).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / source.relative_to(DOCS)).write_bytes(source.read_bytes())
    monkeypatch.setattr(figures, "DOCS", tmp_path)
    made = {path.relative_to(tmp_path) for figure in figures.FIGURES for path in figure.draw()}
    by_callbacks = {Path("results/fedgcdr/attention.png"), Path("methods/fedgcdr_attention.png")}
    assert made == {path.relative_to(DOCS) for path in DOCS.rglob("*.png")} - by_callbacks
    assert all((tmp_path / path).read_bytes().startswith(b"\x89PNG") for path in made)


def test_swept_values_are_read_from_the_names_of_rows(figures: ModuleType) -> None:
    rows = results(
        ("t", "PPGenCDR", "tau 5", 0.5), ("t", "PPGenCDR", "tau 0.1", 0.4),
        ("t", "PPGenCDR", "private_d eps 16", 0.6), ("t", "lambda_A 20", "private_d eps 5", 0.3),
    )  # fmt: skip
    assert figures.hits(rows, "PPGenCDR", r"tau ([\d.]+)") == [(0.1, 0.4, 0.0), (5.0, 0.5, 0.01)]
    assert figures.hits(rows, r"lambda_A ([\d.]+)", ".*") == [(20.0, 0.3, 0.01)]
    assert figures.hits(rows, "PPGenCDR", "tau 5") == [(None, 0.5, 0.01)], "a level"
    assert figures.hits(rows, "PPGenCDR", "tau 5", 7.0) == [(7.0, 0.5, 0.01)]
    five = [row | {"seeds": "5"} for row in results(("t", "P", "tau 5", 0.5), ("t", "P", "Noise (tau 5)", 0.3))]
    own, noise = figures.sweeps(five, [("tau", "P", [("P", r"tau ([\d.]+)")])])
    half = 2.7764 * 0.01 / 5**0.5  # Student's t with 4 degrees of freedom
    assert (own.label, noise.label, own.key) == ("P", "P, noise", noise.key)
    assert (*own.points[0], *noise.points[0]) == pytest.approx((5.0, 0.5, half, 5.0, 0.3, half), abs=1e-6)


def test_the_figure_of_pricdr_shows_its_sweeps_and_in_each_the_row_at_8(figures: ModuleType) -> None:
    names = [f"{m} {what}" for m in ("JLT", "SJLT") for what in ("eps 8", "eps 0.5", "n' 100", "ratings 12.5 %")]
    names += ["SJLT density 0.1", "Plaintext", "Plaintext ratings 25 %", "Nothing", "Noise (JLT eps 8)"]
    rows = [("t", "PriCDR", name, 0.5 if "eps 8" in name else 0.4) for name in names]
    found = drawn(figures, "sweeps.png", results(*rows, ("t", "Popularity", "", 0.3)), "pricdr")
    curves = {(axis.split()[0], label): line for (axis, _, label), line in found.items() if line[0][0] is not None}
    assert curves == {
        **{("epsilon", kind): [(0.5, 0.4, 0.0), (8.0, 0.5, 0.01)] for kind in ("JLT", "SJLT")},
        **{("n'", kind): [(100.0, 0.4, 0.0), (400.0, 0.5, 0.01)] for kind in ("JLT", "SJLT")},
        **{("ratings", kind): [(12.5, 0.4, 0.0), (100.0, 0.5, 0.01)] for kind in ("JLT", "SJLT")},
        ("ratings", "Plaintext"): [(25.0, 0.4, 0.0), (100.0, 0.4, 0.0)],
        ("epsilon", "JLT, noise"): [(8.0, 0.5, 0.01)],
        ("density", "SJLT"): [(0.1, 0.4, 0.0), (0.5, 0.5, 0.01)],
    }
    levels = [(label, line[0][1]) for (axis, _, label), line in found.items() if axis == "n'" and line[0][0] is None]
    assert levels == [("Plaintext, all", 0.4), ("Nothing", 0.4), ("Popularity", 0.3)]


def test_the_figures_of_ppgencdr_show_its_sweeps_and_in_each_the_row_at_5(figures: ModuleType) -> None:
    names = "private_d eps 5", "gs_wgan eps 1", "tau 1", "ratings 25 %", "Nothing"
    rows = [("t", "PPGenCDR", name, 0.5) for name in names]
    rows += [("t", f"lambda_{which} 10", "private_d eps 5", 0.4) for which in "AR"]
    shown = {"weights": "sweeps.png", "robustness": "sweeps.png", "budgets": "epsilon.png"}
    each = [drawn(figures, name, results(*rows), f"ppgencdr_{one}").items() for one, name in shown.items()]
    found = {(axis.split()[0], label): [at for at, *_ in line] for one in each for (axis, _, label), line in one}
    assert found == {
        ("lambda_A", "PPGenCDR"): [1.0, 10.0], ("tau", "PPGenCDR"): [1.0, 2.0],
        ("lambda_R", "PPGenCDR"): [pytest.approx(0.1293, abs=1e-4), 10.0], ("ratings", "PPGenCDR"): [25.0, 100.0],
        ("epsilon", "private_d"): [5.0], ("epsilon", "gs_wgan"): [1.0],
        **{(axis, "Nothing"): [None] for axis in ("lambda_A", "tau", "lambda_R", "ratings", "epsilon")},
    }  # fmt: skip


@pytest.mark.parametrize(("name", "word"), [("overlap.png", "overlap"), ("density.png", "ratings")])
def test_every_method_is_drawn_with_its_whole_release(figures: ModuleType, name: str, word: str) -> None:
    rows = [("cold", "Popularity", "", 0.1), ("warm", "Popularity", "", 0.2), ("cold", "Ridge", "Plaintext", 0.4)]
    rows += [(task, "UserKNN", release, 0.4) for task in ("cold", "warm") for release in ("Plaintext", f"{word} 25 %")]
    rows += [("cold", "Ridge", f"{word} 12.5 %", 0.4), ("cold", "Ridge", "Noise (Plaintext)", 0.1)]
    found = {key[::2]: line for key, line in drawn(figures, name, results(*rows)).items()}
    knn = [(25.0, 0.4, 0.0), (100.0, 0.4, 0.0)]
    assert found == {
        ("cold", "Ridge"): [(12.5, 0.4, 0.0), (100.0, 0.4, 0.0)],
        ("cold", "UserKNN"): knn, ("cold", "Popularity"): [(None, 0.1, 0.01)],
        ("warm", "UserKNN"): knn, ("warm", "Popularity"): [(None, 0.2, 0.01)],
    }  # fmt: skip


def test_gains_of_a_bridge_are_parts_of_that_of_all_users_without_noise(figures: ModuleType) -> None:
    rows = [("home", "Popularity", "", 0.3), ("home", "Ridge", "Plaintext", 0.6), ("known", "Popularity", "", 0.9)]
    rows += [
        ("home", "Bridge", f"{words} eps {epsilon:g}", 0.3 + 0.2 * share * min(epsilon, 1))
        for words, share in figures.SHARES.items()
        for epsilon in (*figures.EPSILONS, figures.CLEAR)
    ]
    found = drawn(figures, "signal.png", results(*rows))
    by_share, left = [line for (_, _, label), line in found.items() if label == "epsilon 0.5"]
    assert [point[:2] for point in by_share] == [
        (share, pytest.approx(0.3 + 0.1 * share)) for share in figures.SHARES.values()
    ]
    assert [part for _, part, _ in left] == pytest.approx([0.5] * 4), "of placed users; all others have popularity's"
    # mu of (0.5, 1e-5) by the hockey-stick divergence of N(0, 1) and N(mu, 1), solved with scipy
    mu = brentq(
        lambda m: norm.cdf(m / 2 - 0.5 / m) - 2.718281828459045**0.5 * norm.cdf(-m / 2 - 0.5 / m) - 1e-5, 0.01, 5
    )
    assert [at for at, _, _ in left] == pytest.approx([mu / 8, mu / 4, mu / 2, mu], rel=1e-6)
    assert len(found) == 5 + 4 + 2, "by epsilon, the left with hardly any noise as well, and two levels"


#: Series, kind, row, domains, against, fewer, mean, mean of what it is compared with.
TRANSFERS = [
    ("Books", "soft", "EMCDR, vectors", 4, "LightGCN", "", 0.3, 0.2),
    ("Books", "soft", "EMCDR, vectors", 16, "LightGCN", "", 0.1, 0.2),
    ("Books", "hard", "EMCDR, vectors", 16, "4 domains", 4, 0.1, 0.3),
    ("Books", "hard", "PriCDR, JLT", 16, "8 domains", 8, 0.25, 0.15),
    ("Books", "soft", "FedGCDR-M, vectors", 16, "FedGNN", "", 0.1, 0.2),
    ("Ciao", "soft", "EMCDR, vectors", 4, "EASE", "", 0.45, 0.5),
    ("Ciao", "soft", "EMCDR, vectors", 8, "EASE", "", 0.4, 0.5),
]
TRANSFER = (
    "series", "kind", "row", "domains", "against", "fewer", "mean", "against_mean", "sd", "against_sd", "figure",
)  # fmt: skip


def transfers() -> list[dict[str, str]]:
    found = []
    for name, shift in (
        ("sampled/hit_rate@5", 0.0),
        ("sampled/ndcg@5", 0.05),
        ("full/ndcg@5", 0.5),
        ("sampled/ndcg@10", 0.5),
    ):
        found += [(*words, mean + shift, other + shift, 0.01, "", name) for *words, mean, other in TRANSFERS]
    return rows_of(TRANSFER, *found)


def test_negative_transfer_has_every_row_at_several_numbers_of_domains_and_each_baseline(figures: ModuleType) -> None:
    found = drawn(figures, "negative_transfer_5.png", transfers())
    books = {label: line for (title, up, label), line in found.items() if (title, up) == ("Books", "HR@5")}
    assert books == {
        "EMCDR, vectors": [(4.0, 0.3, 0.01), (16.0, 0.1, 0.01)],
        "LightGCN": [(None, 0.2, 0.0)],
        "PriCDR, JLT": [(8.0, 0.15, 0.0), (16.0, 0.25, 0.01)],
    }, "a row at one number of domains makes no line, nor does its baseline"
    assert found["Ciao", "NDCG@5", "EMCDR, vectors"] == [(4.0, 0.5, 0.01), (8.0, 0.45, 0.01)]
    assert len(found) == 2 * (3 + 2)


def test_the_area_below_a_baseline_is_shaded_and_lines_of_one_label_look_the_same(figures: ModuleType) -> None:
    [figure] = [one for one in figures.FIGURES if one.name == "negative_transfer_5.png"]
    picture = figure.drawn(list(figure.lines(transfers())))
    axis, other = picture.axes[:2]
    [dotted] = [line for line in axis.lines if line.get_label() == "LightGCN"]
    assert (dotted.get_linestyle(), set(dotted.get_ydata())) == (":", {0.2})
    [shaded] = axis.patches
    box = shaded.get_extents().transformed(axis.transData.inverted())
    assert (box.y0, box.y1) == (pytest.approx(axis.get_ylim()[0]), pytest.approx(0.2))
    assert axis.get_ylim()[0] < 0.1 < 0.3 < axis.get_ylim()[1]
    assert other.containers[0].lines[0].get_color() == axis.containers[0].lines[0].get_color() == "C0"
    assert axis.containers[1].lines[0].get_color() == "C1"
    plt.close(picture)


def test_attention_has_a_mark_for_each_source_and_layer(figures: ModuleType) -> None:
    keys = ("task", "row", "source", "layer", "mean", "sd", "overlap", "seeds")
    rows = rows_of(
        keys,
        ("t", "A", "film", 1, 0.25, 0.07, 0.6, 2),
        ("t", "A", "film", 2, 0.4, "", 0.5, 1),
        ("t", "A", "$x_{", 1, "", "", 0, 1),
    )
    found = drawn(figures, "attention_{}.png", rows)
    assert [(key[0], key[2], line) for key, line in found.items()] == [
        ("A", "layer 1", [("film (60%)", 0.25, 0.07)]),
        ("A", "layer 2", [("film (50%)", 0.4, 0.0)]),
    ]


def test_the_gap_is_read_from_the_logs_and_has_a_line_for_each_seed(
    figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "DOCS", tmp_path)
    (tmp_path / "results" / "sppg").mkdir(parents=True)
    with pytest.raises(SystemExit, match="No runs in"):
        figures.write_gap(tmp_path)
    for folder in figures.STABILISED:
        for seed in (0, 1):
            log = tmp_path / "runs" / "book" / folder / f"seed-{seed}" / "metrics.csv"
            log.parent.mkdir(parents=True)
            log.write_text("epoch,train/critic_gap,loss\n0,0.0,\n1,0.1,\n2,,7\n")
    figures.write_gap(tmp_path / "runs")
    rows = figures.read(tmp_path / "results" / "sppg" / "critic_gap.csv")
    assert rows[0] == {
        "task": "book",
        "training": figures.STABILISED["no-privacy"],
        "seed": "0",
        "epoch": "0",
        "gap": "0.0",
    }
    assert len(rows) == 8, "two trainings, two seeds, two epochs; a row of another log is no point"
    lines = list(figures.critic_gap(rows))
    assert [line.label for line in lines] == [label for label in figures.STABILISED.values() for _ in range(2)]
    assert {tuple(line.points) for line in lines} == {((0, 0.0, 0.0), (1, 0.1, 0.0))}


LEAKED = ("source", "network", "known", "release", "epsilon", "attack", "control", "figure", "mean", "sd", "seeds")


def leaked(network: str) -> list[dict[str, str]]:
    """Rows of `privacy attack`: leakage 0.9, 0.6 and 0.7; AUC less by 0.1, precision by 0.2."""
    rows: list[tuple[object, ...]] = []
    for number, figure in enumerate(("leakage", "auc", "precision")):
        for release, epsilon, value in (("plain", "", 0.9), ("noisy", "4.0", 0.6), ("noisy", "16.0", 0.7)):
            for attack, more in (("ridge", 0.0), ("perceptron", 0.01)):
                for control, seen in (("", value + more), ("shuffled", 0.5 + more)):
                    rows.append((release, epsilon, attack, control, figure, round(seen - number / 10, 6), 0.002, 5))
        if number:
            rows.append(("nothing", "", "popularity", "", figure, f"0.4{number}", 0.001, 5))
    rows += [
        ("update", "", "rows named", "", name, f"0.{value}", "", 1) for name, value in (("precision", 2), ("recall", 3))
    ]
    return rows_of(LEAKED, *(("a", network, 0.5, *row) for row in rows))


@pytest.fixture
def attacked(figures: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of `privacy attack`, where tables and figure look for them."""
    monkeypatch.setattr(figures, "DOCS", tmp_path)
    (tmp_path / "privacy").mkdir()
    for folder in (tmp_path, tmp_path / "privacy"):
        for word, network in (("fedgnn", "FedGNN"), ("bpr", "BPR"), ("pseudo", "FedGNN")):
            pl.DataFrame(leaked(network)).write_csv(folder / f"leakage_{word}.csv")


@pytest.mark.usefixtures("attacked")
def test_tables_of_leakage_show_each_attack_and_the_better_of_its_controls(tables: ModuleType) -> None:
    parts = tables.leakage()
    assert parts.keys() == {"vectors of FedGNN", "vectors of BPR", "updates"}
    lines = [table.splitlines()[2:] for table in parts["vectors of BPR"].split("\n\n")]
    leakage, auc, precision = [[[cell.strip() for cell in line.strip("|").split("|")] for line in of] for of in lines]
    assert [row[0] for row in auc] == ["unclipped, no noise", "epsilon 4", "epsilon 16", "popularity"]
    assert leakage[1][1:] == ["0.600 ±0.002", "0.610 ±0.002", "0.510 ±0.002"]
    assert auc[2][1:] + precision[2][1:] == [
        f"{found} ±0.002" for found in ("0.600", "0.610", "0.410", "0.500", "0.510", "0.310")
    ]
    assert (auc[3][3], precision[3][3]) == ("0.410 ±0.001", "0.420 ±0.001")
    assert "| the same, and 30 pseudo items | rows named | 0.200 | 0.300 |" in parts["updates"]


@pytest.mark.usefixtures("attacked")
def test_the_figure_of_leakage_has_a_line_for_each_attack_and_its_levels(figures: ModuleType) -> None:
    found = drawn(figures, "leakage.png", leaked("FedGNN"))
    assert len(found) == 2 * (5 + 6 + 6)
    auc = {
        label: line for (title, up, label), line in found.items() if (title, up) == ("vectors of BPR", "AUC of items")
    }
    assert auc == {
        "ridge": [(4.0, 0.5, 0.002), (16.0, 0.6, 0.002)], "perceptron": [(4.0, 0.51, 0.002), (16.0, 0.61, 0.002)],
        "ridge, no noise": [(None, 0.8, 0.002)], "perceptron, no noise": [(None, 0.81, 0.002)],
        "ridge, shuffled": [(4.0, 0.4, 0.002), (16.0, 0.4, 0.002)], "popularity alone": [(None, 0.41, 0.001)],
    }  # fmt: skip


ONE_BIT = (
    "data", "observed", "link", "mechanism", "published", "epsilon", "draw", "figure", "value", "guarantee",
    "seconds",
)  # fmt: skip
Averaged = Callable[..., list[dict[str, str]]]


@pytest.fixture
def averaged(figures: ModuleType, tables: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Averaged:
    """Means over draws of rows: mechanism, epsilon, draw and value, of a data set and an observed share."""
    (tmp_path / "results" / "one_bit").mkdir(parents=True)
    monkeypatch.setattr(figures, "DOCS", tmp_path)
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "results")

    def average(
        *rows: tuple[str, float, int, float], data: str = "synthetic", observed: float = 0.15
    ) -> list[dict[str, str]]:
        made = [
            (data, observed, "probit", name, False, epsilon, draw, "average_relative_error", value, "proved", 0.5)
            for name, epsilon, draw, value in rows
        ]
        pl.DataFrame(rows_of(ONE_BIT, *made)).write_csv(tmp_path / "results-all-0.csv")
        (tmp_path / "trials.csv").write_text(
            "data,link,mechanism,setting,sign_accuracy\nrc,probit,InP,tau=10.0,0.6\nrc,probit,InP,tau=20.0,0.65\n"
        )
        figures.write_means(tmp_path)
        found: list[dict[str, str]] = figures.read(tmp_path / "results" / "one_bit" / "means.csv")
        return found

    return average


def test_means_and_spreads_are_over_draws(figures: ModuleType, tables: ModuleType, averaged: Averaged) -> None:
    means = averaged(("InP", 1.0, 0, 1.0), ("InP", 1.0, 1, 3.0), ("InP", 2.0, 0, 5.0), ("Clear", 0.0, 0, 0.5))
    assert [tables.entry(means, "InP", epsilon) for epsilon in (1, 2, 4)] == ["2.000 ±1.414", "5.000", "-"]
    assert {(row["draws"], row["guarantee"]) for row in means} == {("1", "proved"), ("2", "proved")}
    found = drawn(figures, "figure_1.png", means)
    assert [line for (_, _, label), line in found.items() if label == "InP"] == [[(1.0, 2.0, 1.4142), (2.0, 5.0, 0.0)]]
    assert [line for (_, _, label), line in found.items() if label == "Clear"] == [[(None, 0.5, 0.0)]]


def test_tables_show_controls_first_and_what_was_measured(tables: ModuleType, averaged: Averaged) -> None:
    rows = averaged(("OutP, published", 1.0, 0, 9.0), ("InP", 1.0, 0, 1.0), ("Clear", 0.0, 0, 0.5))
    lines = tables.by_epsilon(rows, "probit").splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["Clear", "InP", "OutP, published"]
    assert lines[3].split("|")[2:5] == [" proved ", " 1.000 ", " - "]
    assert tables.settings().splitlines()[2:] == ["| rc | probit | InP | tau=20.0 | 0.65 |"], "the best of the trials"


def test_a_panel_for_each_observed_share(figures: ModuleType, averaged: Averaged) -> None:
    found = drawn(figures, "figure_4.png", averaged(("InP", 1.0, 0, 1.0), ("InP", 2.0, 0, 1.0), observed=0.2))
    assert list(found) == [("20% observed, probit (Gaussian noise)", "average relative error", "InP")]


def test_every_mechanism_has_an_audit(figures: ModuleType) -> None:
    tables = importlib.import_module("result_tables")
    audited = tables.audits()
    for mechanism in tables.AUDITED:
        assert f"| {mechanism} |" in audited, mechanism
    assert "| OutP, published | published OutP, d = 10 | no | violation |" in audited
