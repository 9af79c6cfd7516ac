"""Tables of docs/results/cross_domain.md: what a source brings each cross-domain method, over all tasks of the grid `cross_domain`.

They stand between marks and are written by `python docs/generate.py`.
"""

from __future__ import annotations

from pathlib import Path

from tables import Row, name, read, table

from zoo.benchmark.report.gains import NOISE

RESULTS = Path(__file__).parent / "results"
PAGE = RESULTS / "cross_domain.md"
#: Reports, and how a table calls their tasks.
TASKS = {
    "cross_domain_cold": "Books <- Movies, no history",
    "cross_domain_warm": "Books <- Movies",
    "cross_domain_kitchen_random": "Kitchen <- Food, random",
    "cross_domain_kitchen": "Kitchen <- Food, latest",
    "cross_domain_food": "Food <- Kitchen, latest",
    "cross_domain_ciao": "Ciao 1 <- 10",
    "cross_domain_book_music": "Douban Music <- Book",
    "cross_domain_music_book": "Douban Book <- Music",
}
#: What stands in the place of a release where nothing is known of the source.
NONE = ("", "Nothing")
COLD = "cross_domain_cold"
#: Methods, and the releases without noise that they read.
PLAIN = {
    "UserKNN": "Plaintext", "Ridge": "Plaintext", "PriCDR": "Plaintext", "EMCDR": "vectors", "BiTGCF": "Plaintext",
    "ETL": "Plaintext", "DARec": "Plaintext", "CoNet": "Plaintext", "DDTCDR": "Plaintext",
}  # fmt: skip
FIGURE = "sampled/hit_rate@10"
#: From when on a difference is told from chance.
LEVEL = 0.05


def gained(row: Row) -> str:
    """What a row has over its noise control, bold where users tell it from none."""
    text = f"{float(row['difference']):+.3f}"
    return f"**{text}**" if float(row["p_users_holm"]) < LEVEL else text


def gains(report: str) -> dict[str, Row]:
    """HR@10 of the rows of a report over their own noise controls, by row."""
    found = read(RESULTS / report / "gains.csv")
    return {row["row"]: row for row in found if (row["against"], row["figure"]) == (NOISE, FIGURE)}


def best(report: str, release: bool) -> str:
    """The row of the highest HR@10 in a report, of those with a plain release or of those with none."""
    rows = read(RESULTS / report / "results.csv")
    wanted = [
        row for row in rows if (PLAIN.get(row["system"]) == row["release"] if release else row["release"] in NONE)
    ]
    row = max(wanted, key=lambda row: float(row[FIGURE]))
    return f"{row['system'] if release else name(row)} {float(row[FIGURE]):.3f}"


def plain() -> str:
    """Methods x tasks, what plain releases bring, and the best rows of each task."""
    found = {report: gains(report) for report in TASKS}
    lines = [
        (task, *(gained(row) if (row := found[report].get(f"{method}, {release}")) else "-" for method, release in PLAIN.items()),
         best(report, release=False), best(report, release=True))
        for report, task in TASKS.items()
    ]  # fmt: skip
    return table(("task", *PLAIN, "best of the target alone", "best with the plain source"), lines, left=1)


def private() -> str:
    """Methods x epsilons, for users without history: HR@10 of flipped cells, and what of it is not in the noise control."""
    found = gains(COLD)
    figures = {name(row): row for row in read(RESULTS / COLD / "results.csv")}
    lines = []
    for method, release in PLAIN.items():
        names = [f"{method}, {kind}" for kind in ("FlippedRows eps 4", "FlippedRows eps 8", release)]
        if found.keys() >= set(names):
            lines.append((method, *(f"{float(figures[row][FIGURE]):.3f} ({gained(found[row])})" for row in names)))
    return table(("method", "epsilon 4", "epsilon 8", "plain"), lines, left=1)


def vectors() -> str:
    """What EMCDR has of vectors at epsilon 8, from the least to the most over all tasks, and what it has of plain ones."""
    noised, bare = (
        sorted(float(gains(report)[f"EMCDR, {release}"]["difference"]) for report in TASKS)
        for release in ("vectors eps 8", "vectors")
    )
    least, most = (f"{ends[0]:+.3f} to {ends[-1]:+.3f}" for ends in (noised, bare))
    return f"Over its noise control EMCDR has {least} HR@10, over all tasks; plain vectors bring {most}."


def parts() -> dict[str, str]:
    """The texts, by the names of their marks."""
    return {"plain": plain(), "private": private(), "vectors": vectors()}
