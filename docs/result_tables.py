"""Tables of pages about results, from committed CSV files. `generate.py` writes them between the marks of the pages."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

from tables import Row, distinct, name, read, spread, table, where

from zoo.benchmark.report.paired_differences import NOISE_BASELINE

DOCS = Path(__file__).parent
RESULTS, PRIVACY, SERVING = DOCS / "results", DOCS / "privacy", DOCS / "serving"
HIT = "sampled/hit_rate@10"

#: Reports of the grid `cross_domain`, and the names of their tasks.
TASKS = {
    "cross_domain_cold": "Books <- Movies, cold start",
    "cross_domain_warm": "Books <- Movies",
    "cross_domain_kitchen_random": "Kitchen <- Food, random",
    "cross_domain_kitchen": "Kitchen <- Food, latest",
    "cross_domain_food": "Food <- Kitchen, latest",
    "cross_domain_ciao": "Ciao 1 <- 10",
    "cross_domain_book_music": "Douban Music <- Book",
    "cross_domain_music_book": "Douban Book <- Music",
}
#: Methods, and the releases without noise that they read.
PLAIN = {
    "UserKNN": "Plaintext", "Ridge": "Plaintext", "PriCDR": "Plaintext", "EMCDR": "vectors", "BiTGCF": "Plaintext",
    "ETL": "Plaintext", "DARec": "Plaintext", "CoNet": "Plaintext", "DDTCDR": "Plaintext",
}  # fmt: skip

#: Vectors that an adversary sees, attacks on them, and figures of an attack.
SEEN = {"plain": "unclipped, no noise", "clipped": "clipped, no noise", "noisy": "epsilon {:g}"}
ATTACKS = ("ridge", "perceptron")
LEAKED = {"leakage": "leakage", "AUC": "auc", "precision": "precision"}

#: One-bit matrix completion: links, observed shares, rows without noise, and the audit of each mechanism (a prefix).
LINKS = {"probit": "probit (Gaussian noise)", "logistic": "logistic"}
RATIOS = ("0.2", "0.4", "0.6", "0.8")
CONTROLS = ("Clear", "Clear, rank 1", "zero", "bias", "majority")
AUDITED = {
    "InP": "InP", "ObjP": "ObjP Laplace", "ObjP, Gaussian": "ObjP Gaussian", "ObjP, published": "published ObjP",
    "GraP, Gaussian": "GraP Gaussian", "GraP, Laplace": "GraP Laplace", "GraP, published": "GraP Laplace",
    "OutP": "OutP Gaussian", "OutP, published": "published OutP",
}  # fmt: skip
BY_EPSILON = {"figure 1": ("synthetic", "0.15"), "figure 2": ("ml-100k", "0.0"), "figure 3": ("rc", "0.0")}


def gains(folder: Path, figure: str) -> dict[tuple[str, str], Row]:
    """Return a figure's gain of each row of a report over its noise baseline, by task and row."""
    rows = where(read(folder / "gains.csv"), against=NOISE_BASELINE, figure=figure)
    return {(row["task"], row["row"]): row for row in rows}


def gained(row: Row | None) -> str:
    """Return a gain, bold where the test over users is significant, or a dash."""
    text = f"{float(row['difference']):+.3f}" if row else "-"
    return f"**{text}**" if row and float(row["p_users_holm"]) < 0.05 else text


def best(report: str, *, release: bool) -> str:
    """Return the row of the highest HR@10 in a report, of those with a plain release or of those with none."""
    rows = read(RESULTS / report / "results.csv")
    own = [row for row in rows if row["release"] in ([PLAIN.get(row["system"])] if release else ["", "Nothing"])]
    row = max(own, key=lambda row: float(row[HIT]))
    return f"{row['system'] if release else name(row)} {float(row[HIT]):.3f}"


def cross_domain() -> dict[str, str]:
    """Return the gain of each cross-domain method from plain ratings, private releases, and noisy vectors."""
    found = {report: {row: gain for (_, row), gain in gains(RESULTS / report, HIT).items()} for report in TASKS}
    plain = []
    for tasks in (list(TASKS)[:4], list(TASKS)[4:]):
        lines = [
            (method, *(gained(found[report].get(f"{method}, {release}")) for report in tasks))
            for method, release in PLAIN.items()
        ]
        lines.append(("best single-domain row", *(best(report, release=False) for report in tasks)))
        lines.append(("best with plain ratings", *(best(report, release=True) for report in tasks)))
        plain.append(table(("method", *(TASKS[report] for report in tasks)), lines, left=1))
    cold = found["cross_domain_cold"]
    figures = {name(row): float(row[HIT]) for row in read(RESULTS / "cross_domain_cold" / "results.csv")}
    private = []
    for method, release in PLAIN.items():
        names = [f"{method}, {kind}" for kind in ("FlippedRows eps 4", "FlippedRows eps 8", release)]
        if cold.keys() >= set(names):
            private.append((method, *(f"{figures[row]:.3f} ({gained(cold[row])})" for row in names)))
    noised, bare = (
        sorted(float(rows[f"EMCDR, {kind}"]["difference"]) for rows in found.values())
        for kind in ("vectors eps 8", "vectors")
    )
    said = (
        f"Over its noise baseline EMCDR gains {noised[0]:+.3f} to {noised[-1]:+.3f} HR@10 on the tasks with epsilon 8; "
    )
    return {
        "plain": "\n\n".join(plain),
        "private": table(("method", "epsilon 4", "epsilon 8", "plain"), private, left=1),
        "vectors": f"{said}plain vectors gain {bare[0]:+.3f} to {bare[-1]:+.3f}.",
    }


def leakage() -> dict[str, str]:
    """Return what attacks recovered from vectors, and what a server guesses of the items in an update."""
    files = {word: read(PRIVACY / f"leakage_{word}.csv") for word in ("fedgnn", "bpr", "pseudo")}
    lines = []
    for said, file in (
        ("own items, and four random ones for each", "fedgnn"),
        ("the same, and 30 pseudo items", "pseudo"),
    ):
        rows = where(files[file], release="update")
        for (attack,) in distinct(rows, "attack"):
            found = {row["figure"]: spread(row) for row in where(rows, attack=attack)}
            lines.append((said, attack, found["precision"], found["recall"]))
    updates = table(("the update names", "guess", "precision", "recall"), lines, left=2)
    vectors = {f"vectors of {network}": recovered(files[network.lower()]) for network in ("FedGNN", "BPR")}
    return vectors | {"updates": updates}


def recovered(rows: list[Row]) -> str:
    """Return what attacks recovered from vectors without noise, clipped, and at each epsilon: a table for each figure."""
    popular = {row["figure"]: spread(row) for row in where(rows, attack="popularity")}
    tables = []
    for said, figure in LEAKED.items():
        lines = []
        for release, epsilon in distinct([row for row in rows if row["release"] in SEEN], "release", "epsilon"):
            own = where(rows, release=release, epsilon=epsilon, figure=figure)
            cells = [spread(row) for attack in ATTACKS for row in where(own, control="", attack=attack)]
            cells.append(spread(max((row for row in own if row["control"]), key=lambda row: float(row["mean"]))))
            lines.append((SEEN[release].format(float(epsilon or 0)), *cells))
        if figure in popular:
            lines.append(("popularity", "-", "-", popular[figure]))
        tables.append(table((said, *ATTACKS, "shuffled"), lines, left=1))
    return "\n\n".join(tables)


def one_bit() -> dict[str, str]:
    """Return the tables of the page on one-bit matrix completion."""
    means = read(RESULTS / "one_bit" / "means.csv")
    made = {
        part: "\n\n".join(by_epsilon(where(means, data=data, observed=observed, link=link), link) for link in LINKS)
        for part, (data, observed) in BY_EPSILON.items()
    }
    by_link = {link: where(means, data="synthetic", link=link) for link in LINKS}
    made |= {"figure 4": by_ratio(by_link["probit"]), "figure 5": by_ratio(by_link["logistic"])}
    return made | {"audits": audits(), "settings": settings(), "seconds": speed(where(means, data="ml-100k"))}


def entry(rows: list[Row], mechanism: str, epsilon: float) -> str:
    """Return mean and spread of a mechanism at an epsilon, or a dash."""
    return next((spread(row) for row in where(rows, mechanism=mechanism, epsilon=f"{float(epsilon)}")), "-")


def by_epsilon(rows: list[Row], link: str) -> str:
    """Return a row for every mechanism: its guarantee, and its figure at some epsilons."""
    shown = (1, 2, 4, 8, 10)
    clear = [(one, "none", found, *[""] * 4) for one in CONTROLS if (found := entry(rows, one, 0)) != "-"]
    lines = [
        (mechanism, where(rows, mechanism=mechanism)[0]["guarantee"], *cells)
        for mechanism in AUDITED
        if set(cells := [entry(rows, mechanism, epsilon) for epsilon in shown]) != {"-"}
    ]
    return table((LINKS[link], "guarantee", *(f"epsilon {one}" for one in shown)), [*clear, *lines], left=2)


def by_ratio(rows: list[Row]) -> str:
    """Return the error of every mechanism at some epsilons, a table for every observed share."""
    epsilons, tables = (1, 5, 10), []
    for ratio in RATIOS:
        own, lines = where(rows, observed=ratio), []
        for mechanism in ("Clear", *AUDITED):
            cells = [entry(own, mechanism, 0 if mechanism == "Clear" else epsilon) for epsilon in epsilons]
            if mechanism == "Clear" or set(cells) != {"-"}:
                lines.append((mechanism, *cells))
        tables.append(table((f"{float(ratio):.0%} observed", *(f"epsilon {one}" for one in epsilons)), lines, left=1))
    return "\n\n".join(tables)


def audits() -> str:
    """Return what the committed audits of each mechanism found; lower bounds are rounded down."""
    lines = [
        (mechanism, row["mechanism"], "yes" if row["holds"] == "true" else "no", row["verdict"], row["claimed_epsilon"],
         f"{math.floor(float(row['epsilon_lower']) * 1000) / 1000:.3f}")
        for mechanism, prefix in AUDITED.items()
        for row in read(PRIVACY / "audit.csv")
        if row["mechanism"].startswith(prefix)
    ]  # fmt: skip
    return table(("row", "audit", "should hold", "verdict", "epsilon claimed", "at least"), lines, left=4)


def settings() -> str:
    """Return the best setting of each mechanism on a part of the training signs."""
    trials, keys = read(RESULTS / "one_bit" / "trials.csv"), ("data", "link", "mechanism")
    lines = []
    for key in distinct(trials, *keys):
        row = max(where(trials, **dict(zip(keys, key, strict=True))), key=lambda row: float(row["sign_accuracy"]))
        lines.append((*key, row["setting"], row["sign_accuracy"]))
    return table(("data", "link", "row", "chosen", "sign accuracy, validation"), lines, left=4)


def speed(rows: list[Row]) -> str:
    """Return the seconds of one completion, by mechanism and link."""
    lines = []
    for mechanism in ("Clear", *AUDITED):
        found = [[float(row["seconds"]) for row in where(rows, mechanism=mechanism, link=link)] for link in LINKS]
        if any(found):
            lines.append((mechanism, *(f"{statistics.mean(seconds):.1f}" if seconds else "-" for seconds in found)))
    return table(("row", *(f"{words}, seconds" for words in LINKS.values())), lines, left=1)


def serving() -> dict[str, str]:
    """Return what fold-in reaches next to retraining, as means over seeds, and the seconds of a service under load."""
    measured, found = read(SERVING / "fold_in.csv"), []
    for method, users in distinct(measured, "method", "users"):
        own = where(measured, method=method, users=users)
        means = (sum(float(row[name]) for row in own) / len(own) for name in ("stale", "folded", "retrained"))
        found.append([method, users, *(f"{mean:.3f}" for mean in means)])
    fold_in = table(["method", "users", "not used", "as histories", "in a new training"], found, left=2)
    titles = ["method", "clients", "p50 in ms", "p99 in ms", "requests a second", "answered"]
    rows = []
    for row in read(SERVING / "load.csv"):
        clients = f"{row['clients']}, a worker is killed" if row["step"] == "kill" else row["clients"]
        figures = [row[name] for name in ("p50_ms", "p99_ms", "requests_per_second")]
        rows.append([row["method"], clients, *figures, f"{row['answered']} of {row['requests']}"])
    return {"fold-in": fold_in, "load": table(titles, rows, left=2)}
