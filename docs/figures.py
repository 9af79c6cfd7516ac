"""Draw the figures of pages as PNG from the CSV files next to them. `FIGURES` has an entry for each.

python docs/figures.py                                      # from the committed CSV files alone
python docs/figures.py --critic-gap runs/benchmarks/sppg    # first reads critic_gap.csv from the logs of these runs
python docs/figures.py --one-bit OUT                        # first averages what benchmarks/one_bit.py wrote to OUT
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import polars as pl
from matplotlib.axes import Axes
from result_tables import ATTACKS, AUDITED, CONTROLS, LINKS, RATIOS
from scipy.stats import t as student
from tables import Row, distinct, read, where

from zoo.privacy.accounting.gaussian import gauss_mu

DOCS = Path(__file__).parent
HIT, NUMBER = "sampled/hit_rate@10", r"([\d.]+)"
#: Share of the users that a mapping matrix is learned from, by its name in the report on the reach of a bridge.
SHARES = {"an eighth": 0.125, "a quarter": 0.25, "a half": 0.5, "all": 1.0}
EPSILONS, CLEAR = (0.25, 0.5, 1.0, 2.0), 1e6  # of a user; the last is hardly any noise
#: Trainings with a drawn critic gap: folder of the runs, and label.
STABILISED = {"no-privacy": "with GANStabilizer (tau 2)", "no-privacy-gs": "without"}
STYLE = {"text.parse_math": False, "axes.titlesize": 10, "xtick.labelsize": 8}  # names are no formulas
DASHED = ", (published|printed|noise|expected)$"  # variants, of the line with the rest of the name
DASHES = (":", "-.", "--", (0, (1, 3)), (0, (5, 5)))

#: Rows that cross the panels of sweeps.
LEVELS = {"Plaintext, all": ("PriCDR", "Plaintext"), "Nothing": (".*", "Nothing"), "Popularity": ("Popularity", "")}

#: Place on the horizontal axis (None: a level across it), mean, and spread over seeds or draws.
Point = tuple[Any, float, float]


class Panel(NamedTuple):
    """Names of a panel's axes, and its title."""

    across: str
    up: str = "HR@10 at the target"
    title: str = ""


class Line(NamedTuple):
    """A curve or a level of a panel. Lines of one label look the same; those of a `DASHED` variant are dashed."""

    panel: Panel
    label: str
    points: list[Point]

    @property
    def key(self) -> tuple[bool, str]:
        """Whether it is a level, and its name without the mark of a variant."""
        return self.level, re.sub(DASHED, "", self.label)

    @property
    def level(self) -> bool:
        """Whether it crosses the whole panel."""
        return self.points[0][0] is None

    def draw(self, axis: Axes, number: int) -> None:
        """Draw the line in the colour or dashes of this number."""
        x, y, spread = zip(*self.points, strict=True)
        if self.level:
            axis.axhline(y[0], label=self.label, color="0.3", lw=1, ls=DASHES[number % len(DASHES)])
        else:
            style = "" if isinstance(x[0], str) else "--" if re.search(DASHED, self.label) else "-"
            form = {"marker": "." if len(x) < 20 else "", "capsize": 2, "color": f"C{number}", "ls": style}
            axis.errorbar(x, y, spread if any(spread) else None, label=self.label, **form)


class Figure(NamedTuple):
    """A figure: its CSV file (a pattern: one figure for each match), its name in the same folder, and its lines."""

    csv: str
    name: str
    lines: Callable[[list[Row]], Iterator[Line]]
    rows: int = 1
    powers: Sequence[str] = ()  # names of horizontal axes with powers of two
    share: bool = False  # one vertical axis for all panels
    log: bool = False  # which is logarithmic
    each: str = ""  # a column whose values have a figure each
    shaded: bool = False  # the area below the levels is

    def draw(self) -> Iterator[Path]:
        """Write the figure for each file and yield the paths. The same rows give the same bytes."""
        for source in sorted(DOCS.glob(self.csv)):
            rows = read(source)
            for value in (one for (one,) in distinct(rows, self.each)) if self.each else [""]:
                path = source.with_name(self.name.format(value))
                with mpl.rc_context(STYLE):
                    drawn = self.drawn(list(self.lines(where(rows, **{self.each: value}) if value else rows)))
                    drawn.savefig(path, dpi=110, metadata={"Software": None})
                plt.close(drawn)
                yield path

    def drawn(self, lines: Sequence[Line]) -> Any:  # noqa: ANN401  matplotlib's figure
        """Draw the panels row by row, with one legend for all."""
        panels = list(dict.fromkeys(line.panel for line in lines))
        columns = len(panels) // self.rows
        keys = list(dict.fromkeys(line.key for line in lines))
        numbers = {key: [other for other in keys if other[0] == key[0]].index(key) for key in keys}
        form = {"figsize": (max(4.4 * columns, 6), 3.2 * self.rows + 0.9), "layout": "constrained"}
        figure, axes = plt.subplots(self.rows, columns, squeeze=False, sharey=self.share, **form)
        for axis, panel in zip(axes.flat, panels, strict=True):
            own = [line for line in lines if line.panel == panel]
            for line in own:
                line.draw(axis, numbers[line.key])
            self.finish(axis, own)
        named = {}
        for axis in axes.flat:
            named |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
        shown = {"loc": "outside lower center", "ncols": 2 + columns, "fontsize": 8, "frameon": False}
        figure.legend(named.values(), named, **shown)
        return figure

    def finish(self, axis: Axes, lines: Sequence[Line]) -> None:
        """Shade the area below levels; set the scale and names of a panel's axes."""
        low, high = axis.get_ylim()
        for line in lines if self.shaded else ():
            if line.level:
                axis.axhspan(low, line.points[0][1], color="C3", alpha=0.08, lw=0)
                axis.set_ylim(low, high)
        panel = lines[0].panel
        axis.set(xlabel=panel.across, ylabel=panel.up, title=panel.title)
        if self.log:
            axis.set_yscale("log")
            axis.yaxis.set_major_formatter("{x:.3g}")
        if panel.across in self.powers:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter("{x:.3g}")
        if any(isinstance(line.points[0][0], str) for line in lines):
            axis.tick_params("x", rotation=60)


def hits(
    rows: Sequence[Row], system: str, release: str, place: float | None = None, *, interval: bool = False
) -> list[Point]:
    """Return HR@10 of the rows whose system and release match: at a place, or at the number in a pattern's brackets.

    The spread is the standard deviation over seeds, or half of the 95 % interval of their mean.
    """
    found = []
    for row in rows:
        one, other = re.fullmatch(system, row["system"]), re.fullmatch(release, row["release"])
        if one and other:
            at = place or next((float(number) for number in (*one.groups(), *other.groups())), None)
            seeds = int(row.get("seeds") or 1)
            factor = float(student.ppf(0.975, seeds - 1)) / seeds**0.5 if interval and seeds > 1 else 1.0
            found.append((at, float(row[HIT]), factor * float(row[f"{HIT} sd"] or 0)))
    return sorted(found)


def means(rows: Sequence[Row], key: str = "epsilon") -> list[Point]:
    """Return means by epsilon; a level where there is none."""
    return sorted((float(row[key] or 0) or None, float(row["mean"]), float(row["sd"] or 0)) for row in rows)


def sweeps(rows: list[Row], entries: Sequence[tuple[str, str, list[tuple[Any, ...]]]]) -> Iterator[Line]:
    """Yield a line for each entry: axis, label, and the arguments of `hits`: of the swept rows, and of those to add.

    Noise baselines of the rows have a line, too, all points their 95 % interval, and the panels the levels of some rows.
    """
    axes = dict.fromkeys(across for across, *_ in entries)
    levels = [(across, label, [row]) for across in axes for label, row in LEVELS.items()]
    for across, label, own in (*entries, *levels):
        noise = [(system, rf"Noise \({release}\)", *place) for system, release, *place in own]
        for name, (swept, *others) in ((label, own), (f"{label}, noise", noise)):
            line = hits(rows, *swept, interval=True)
            if line and (name == label or line[0][0] is not None):  # levels have no line of noise
                added = [point for other in others for point in hits(rows, *other, interval=True)]
                yield Line(Panel(across), name, sorted({*line, *added}))


#: PriCDR's figures 2 to 5. Axis: what was swept, and the place of the rows at epsilon 8.
PRICDR_AXES = {
    "epsilon for one rating, delta 2.8e-8": ("eps", "", 8.0),
    "n'": ("n'", "", 400.0),
    "density of the projection": ("density", "", 0.5),
    "ratings of the source, %": ("ratings", " %", 100.0),
}
PRICDR = [
    (across, kind, [("PriCDR", f"{kind} {word} {NUMBER}{sign}"), ("PriCDR", whole, place)])
    for across, (word, sign, place) in PRICDR_AXES.items()
    for kind, whole in (("JLT", "JLT eps 8"), ("SJLT", "SJLT eps 8"), ("Plaintext", "Plaintext"))
]
#: PPGenCDR's figures 4 and 3.
WHOLE = ("PPGenCDR", "private_d eps 5")
WEIGHTS = [
    ("lambda_A", "PPGenCDR", [(f"lambda_A {NUMBER}", WHOLE[1]), (*WHOLE, 1.0)]),
    ("tau", "PPGenCDR", [("PPGenCDR", f"tau {NUMBER}"), (*WHOLE, 2.0)]),
]
ROBUSTNESS = [
    ("lambda_R", "PPGenCDR", [(f"lambda_R {NUMBER}", WHOLE[1]), (*WHOLE, 10 / 77.344)]),  # weight 77.344 is lambda_R 1
    ("ratings of the source, %", "PPGenCDR", [("PPGenCDR", f"ratings {NUMBER} %"), (*WHOLE, 100.0)]),
]
BUDGETS = [
    ("epsilon for a whole user, delta 1e-5", kind, [("PPGenCDR", f"{kind} eps {NUMBER}")])
    for kind in ("private_d", "first_layer_only", "gs_wgan")
]


def by_task(rows: list[Row], word: str, across: str) -> Iterator[Line]:
    """Yield HR@10 of every method against the released part of the source, a panel for each task."""
    for (task,) in distinct(rows, "task"):
        own, panel = where(rows, task=task), Panel(across, title=task)
        for (system,) in distinct(own, "system"):
            if line := hits(own, system, f"{word} {NUMBER} %"):
                yield Line(panel, system, sorted([*line, *hits(own, system, "Plaintext", 100.0)]))
        for system in ("Popularity", "LowRank + UserKNN"):
            if level := hits(own, re.escape(system), "|Nothing"):
                yield Line(panel, system, level)


def bridge(rows: list[Row]) -> Iterator[Line]:
    """Yield HR@10 against the share of the users, and the remaining part of the gain against share times mu."""
    rows = where(rows, task="home")
    left, right = map(Panel, BRIDGED, ("HR@10, 1 + 99", "gain of embedded users (1: all, no noise)"))
    floor, most = (hits(rows, *one)[0][1] for one in (("Popularity", ""), ("Bridge", re.escape(f"all eps {CLEAR:g}"))))
    for epsilon in (*EPSILONS, CLEAR):
        label = "hardly any noise" if epsilon == CLEAR else f"epsilon {epsilon:g}"
        names = {re.escape(f"{words} eps {epsilon:g}"): share for words, share in SHARES.items()}
        line = [point for release, share in names.items() for point in hits(rows, "Bridge", release, share)]
        yield Line(left, label, line)
        if epsilon != CLEAR:
            mu = gauss_mu(epsilon, 1e-5)
            yield Line(right, label, [(at * mu, (hit - floor) / (most - floor) / at, 0.0) for at, hit, _ in line])
    yield Line(left, "Popularity", hits(rows, "Popularity", ""))
    yield Line(left, "Ridge, Plaintext", hits(rows, "Ridge", "Plaintext"))


def critic_gap(rows: list[Row]) -> Iterator[Line]:
    """Yield mean real less mean generated score by epoch, a panel for each task, a line for each seed."""
    for task, training, seed in distinct(rows, "task", "training", "seed"):
        own = where(rows, task=task, training=training, seed=seed)
        panel = Panel("epoch (8 critic steps)", "critic gap", f"Douban {task}")
        yield Line(panel, training, [(int(row["epoch"]), float(row["gap"]), 0.0) for row in own])


def negative_transfer(rows: list[Row], k: int) -> Iterator[Line]:
    """Yield FedGCDR's figures 4 and 6: HR and NDCG by number of domains, and single-domain baselines as levels."""
    counts: dict[tuple[str, str], set[str]] = {}
    for row in rows:
        counts.setdefault((row["series"], row["row"]), set()).update({row["domains"], row["fewer"] or row["domains"]})
    rows = [row for row in rows if len(counts[row["series"], row["row"]]) > 1]  # one number of domains makes no curve
    lines: dict[Panel, dict[str, dict[float | None, Point]]] = {}
    for (measure, name), (series,) in product((("hit_rate", "HR"), ("ndcg", "NDCG")), distinct(rows, "series")):
        found = lines.setdefault(Panel("domains, the target among them", f"{name}@{k}", series), {})
        for row in where(rows, series=series, figure=f"sampled/{measure}@{k}"):
            fewer = float(row["fewer"]) if row["kind"] == "hard" else None
            label = row["row"] if fewer else row["against"]
            count = float(row["domains"])
            found.setdefault(row["row"], {})[count] = count, float(row["mean"]), float(row["sd"] or 0)
            other = fewer, float(row["against_mean"]), float(row["against_sd"] or 0)
            found.setdefault(label, {}).setdefault(fewer, other)
    for panel, found in lines.items():
        for label, points in found.items():
            yield Line(panel, label, sorted(points.values()))


def attention(rows: list[Row]) -> Iterator[Line]:
    """Yield the mean attention weight of every source and layer, with its overlap, a panel for each row."""
    for name, layer in distinct(rows, "row", "layer"):
        own = [row for row in where(rows, row=name, layer=layer) if row["mean"]]
        points = [(f"{row['source']} ({float(row['overlap']):.0%})", *means([row], "layer")[0][1:]) for row in own]
        if points:
            yield Line(Panel("source (overlap)", "attention, mean over users", name), f"layer {layer}", points)


def leakage(rows: list[Row]) -> Iterator[Line]:
    """Yield leakage, AUC and precision against epsilon, with levels of vectors without noise, for each network."""
    rows = [*rows, *read(DOCS / "privacy" / "leakage_bpr.csv")]
    figures = {"leakage": "leakage", "auc": "AUC of items", "precision": "precision of items"}
    for (figure, up), (network,) in product(figures.items(), distinct(rows, "network")):
        own, panel = where(rows, figure=figure, network=network), Panel(LEAKED, up, f"vectors of {network}")
        for attack in ATTACKS:
            yield Line(panel, attack, means(where(own, release="noisy", attack=attack, control="")))
            yield Line(panel, f"{attack}, no noise", means(where(own, release="plain", attack=attack, control="")))
        yield Line(panel, "ridge, shuffled", means(where(own, release="noisy", attack="ridge", control="shuffled")))
        if popular := where(own, attack="popularity"):
            yield Line(panel, "popularity alone", means(popular))


def one_bit(rows: list[Row], data: str, title: str, panels: Sequence[tuple[str, str]]) -> Iterator[Line]:
    """Yield error or accuracy against epsilon, a panel for each observed share and link."""
    up = "average relative error" if data == "synthetic" else "sign accuracy"
    for observed, link in panels:
        said = f"{title or f'{float(observed):.0%} observed'}, {LINKS[link]}"
        for mechanism in (*AUDITED, *CONTROLS):
            if own := where(rows, data=data, observed=observed, link=link, mechanism=mechanism):
                yield Line(Panel("epsilon of one rating's value, asked for", up, said), mechanism, means(own))


def theorem(rows: list[Row], panels: Sequence[tuple[str, str, str, str]]) -> Iterator[Line]:
    """Yield the cases of statements, a panel for each statement, pattern of cases, and names of both axes."""
    for statement, pattern, across, up in panels:
        for (case,) in distinct(where(rows, statement=statement), "case"):
            if found := re.fullmatch(pattern, case):
                own = where(rows, statement=statement, case=case)
                yield Line(Panel(across, up), found.group(found.lastindex or 0), means(own, "place"))


BRIDGED = ["share of the users that the mapping matrix is learned from", "share of the users x mu"]
LEAKED = "epsilon of one user's own vectors"
WIDTH = ["n'", "d, half of the entries of d x d"]
LAMBDAS = ["lambda_A", "tau", "lambda_R"]
TRANSFER = {"rows": 2, "powers": ["domains, the target among them"], "shaded": True}
#: Every figure of a page.
FIGURES = [
    Figure("results/bridge_reach/results.csv", "signal.png", bridge, powers=BRIDGED),
    Figure("results/overlap/results.csv", "overlap.png", partial(by_task, word="overlap", across="users in the release, %")),
    Figure("results/density/results.csv", "density.png", partial(by_task, word="ratings", across="ratings of the source, %")),
    Figure("results/pricdr_sweeps/results.csv", "sweeps.png", partial(sweeps, entries=PRICDR), 2, [*PRICDR_AXES][:1], share=True),
    Figure("results/ppgencdr_weights/results.csv", "sweeps.png", partial(sweeps, entries=WEIGHTS), 2, LAMBDAS, share=True),
    Figure("results/ppgencdr_robustness/results.csv", "sweeps.png", partial(sweeps, entries=ROBUSTNESS), 2, LAMBDAS, share=True),
    Figure("results/ppgencdr_budgets/results.csv", "epsilon.png", partial(sweeps, entries=BUDGETS), powers=[BUDGETS[0][0]]),
    Figure("results/sppg/critic_gap.csv", "critic_gap.png", critic_gap, share=True),
    Figure("results/*/negative_transfer.csv", "negative_transfer_5.png", partial(negative_transfer, k=5), **TRANSFER),
    Figure("results/*/negative_transfer.csv", "negative_transfer_10.png", partial(negative_transfer, k=10), **TRANSFER),
    Figure("results/*/attention.csv", "attention_{}.png", attention, each="task"),
    *(
        Figure("privacy/theorems.csv", name, partial(theorem, panels=panels), powers=WIDTH, log=log)
        for name, log, *panels in (
            ("concentration.png", True, ("5.4", "(.*), without noise|gamma.*", WIDTH[0], "relative deviation of the squared norm")),
            ("preconditioning.png", True, ("5.5", "sd of a squared norm, (.*)", "density of P", "relative sd of a squared norm")),
            ("width.png", False, ("n'", "epsilon.*", WIDTH[0], "correlation of released and true products")),
            ("constants.png", False, *((name, ".*", "epsilon", f"{name}, for alpha = 1") for name in ("L", "beta"))),
            ("rates.png", True, ("rate", ".*", WIDTH[1], "rate of the error")),
        )
    ),
    Figure("privacy/leakage_fedgnn.csv", "leakage.png", leakage, 3, [LEAKED]),
    *(
        Figure("results/one_bit/means.csv", name, partial(one_bit, data=data, title=title, panels=panels), share=True, log=log)
        for name, data, title, panels, log in (
            ("figure_1.png", "synthetic", "Synthetic, 15 % observed", [*product(["0.15"], LINKS)], True),
            ("figure_2.png", "ml-100k", "MovieLens 100K, u1", [*product(["0.0"], LINKS)], False),
            ("figure_3.png", "rc", "Restaurant", [*product(["0.0"], LINKS)], False),
            ("figure_4.png", "synthetic", "", [*product(RATIOS, ["probit"])], True),
            ("figure_5.png", "synthetic", "", [*product(RATIOS, ["logistic"])], True),
        )
    ),
]  # fmt: skip


def write_gap(runs: Path) -> None:
    """Write the critic's gap by epoch from the logs in the folder of a benchmark's runs; exit if there are none."""
    found = []
    for folder, label in STABILISED.items():
        for log in sorted(runs.glob(f"*/{folder}/*/metrics.csv")):
            own = {"task": log.parts[-4], "training": label, "seed": log.parent.name.removeprefix("seed-")}
            read = pl.read_csv(log, infer_schema=False).select("epoch", pl.col("train/critic_gap").alias("gap"))
            literals = [pl.lit(value).alias(name) for name, value in own.items()]
            found.append(read.drop_nulls("gap").select(*literals, pl.all()))
    if not found:
        raise SystemExit(f"No runs in {runs}. Run: python -m zoo benchmark --config configs/benchmarks/sppg.yaml")
    pl.concat(found).write_csv(DOCS / "results" / "sppg" / "critic_gap.csv")


def write_means(measured: Path) -> None:
    """Write means and standard deviations over draws, and copy the trials, from the folder of ``benchmarks/one_bit.py``."""
    keys = ["data", "observed", "link", "mechanism", "epsilon", "figure"]
    value, seconds = (pl.col(name).cast(pl.Float64) for name in ("value", "seconds"))
    spread = [value.mean().alias("mean"), value.std().alias("sd"), pl.len().alias("draws")]
    rows = pl.concat([pl.read_csv(path, infer_schema=False) for path in sorted(measured.glob("results*.csv"))])
    made = rows.group_by(keys).agg(*spread, pl.col("guarantee").first(), seconds.mean()).sort(keys)
    made.write_csv(DOCS / "results" / "one_bit" / "means.csv", float_precision=4)
    (DOCS / "results" / "one_bit" / "trials.csv").write_bytes((measured / "trials.csv").read_bytes())


def main() -> None:
    """Read what was measured, if it is given, and draw every figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--critic-gap", type=Path, metavar="RUNS", help="runs of the benchmark sppg")
    parser.add_argument("--one-bit", type=Path, metavar="OUT", help="folder that benchmarks/one_bit.py wrote to")
    options = parser.parse_args()
    if options.critic_gap:
        write_gap(options.critic_gap)
    if options.one_bit:
        write_means(options.one_bit)
    for figure in FIGURES:
        for path in figure.draw():
            print(path.relative_to(DOCS.parent))


if __name__ == "__main__":
    main()
