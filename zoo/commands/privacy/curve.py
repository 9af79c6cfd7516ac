"""Privacy curve of a release, and utility against epsilon."""

import csv
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.record.record import PrivacyRecord
from zoo.runtime.run_folder import atomic_write, visible

#: Deltas at which epsilon is computed.
DELTAS = np.logspace(-12, -1, 45)
#: Of legends: below the axes, as names are long.
BELOW: dict[str, Any] = {"frameon": False, "fontsize": 7, "loc": "upper left", "bbox_to_anchor": (0, -0.17)}


def draw_curve(
    accounts: Mapping[str, tuple[PrivacyRecord, Sequence[PrivacyEvent]]], results: Path | None, out: Path
) -> Path:
    """Write a PNG: delta against epsilon of each ledger, and NDCG@10 against epsilon of private rows in ``results.csv``, if given.

    NDCG@10 is among 1 + 99 candidates, or among all items if a row was tested without candidates.
    Refused are a record without guarantee, whatever its ledger, and one that states more than its ledger gives.
    """
    figure = Figure(figsize=(5.5 if results is None else 11, 4), layout="constrained")
    panels = figure.subplots(1, 1 if results is None else 2, squeeze=False)[0]
    for name, (record, ledger) in accounts.items():
        if not record.claims:
            raise ValueError(f"{name} has no guarantee ({record.reason}). Pass releases with one.")
        if record.exceeds(ledger):
            raise ValueError(f"{name} states more than its ledger. Omit it.")
        epsilons = [epsilon_of(ledger, float(delta), record.relation) for delta in DELTAS]
        panels[0].plot(epsilons, DELTAS, label=as_label(f"{name}: {record.guarantee.value} per {record.unit}"))
    panels[0].set(xlabel="epsilon", ylabel="delta", yscale="log", title="Ledger")
    panels[0].legend(**BELOW)
    if results is not None:
        try:
            _draw_utility(panels[1], results)
        except (KeyError, TypeError, UnicodeDecodeError) as error:
            raise ValueError(f"{results} is no results.csv of a report ({error}). Pass one.") from error
    legends = ("\n".join(text.get_text() for text in panel.get_legend().get_texts()) for panel in panels)
    figure.set_figheight(3.6 + 0.16 * max(legend.count("\n") + 1 for legend in legends))
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(out) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    return out


def as_label(name: str) -> str:
    """Return a name for a legend, in lines: a dollar would start a formula, and a leading underscore would hide it."""
    lines = "\n".join(textwrap.wrap(visible(name), 72))
    return lines.replace("$", r"\$").replace("_", "\u2009_", 1 if name.startswith("_") else 0)


def _draw_utility(panel: Axes, results: Path) -> None:
    with results.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["epsilon"]]
    if not rows:
        raise ValueError(f"{results} has no row with a guarantee. Pass a report with private rows.")
    shown = {"sampled": "1 + 99 candidates", "full": "all items"}
    ranking = next((name for name in shown if all(row[f"{name}/ndcg@10"] for row in rows)), "")
    if not ranking:
        raise ValueError(f"{results} has private rows without a common ranking. Report them alone.")
    series: dict[str, list[tuple[float, float, float]]] = {}
    units = {row["unit"] for row in rows}
    for row in rows:
        release = re.split(" (?:eps|attack success) ", row["release"])[0]
        name = f"{row['task']}: {row['system']}, {release}" + (f", per {row['unit']}" if len(units) > 1 else "")
        spread = float(row[f"{ranking}/ndcg@10 sd"] or 0)
        series.setdefault(name, []).append((float(row["epsilon"]), float(row[f"{ranking}/ndcg@10"]), spread))
    panel.set_prop_cycle(color=colormaps["tab20"].colors)  # type: ignore[attr-defined]
    for name, points in series.items():
        x, y, sd = zip(*sorted(points), strict=True)
        panel.errorbar(x, y, sd, marker="o", markersize=4, capsize=2, linewidth=1, label=as_label(name))
    word = "conditional" if any(row["guarantee"] == "conditional" for row in rows) else "proved"
    panel.set(xlabel=f"epsilon, {word}", ylabel=f"NDCG@10, {shown[ranking]}", xscale="log", title=results.parent.name)
    panel.legend(**BELOW)
