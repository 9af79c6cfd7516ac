"""AttentionFigure: draw the attention that a method gives to each source, and each source's overlap."""

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from zoo.runtime.run_folder import ATTENTION, atomic_write, folder_of_run, visible

#: Also written: the course (a line for each epoch, source and layer) and the figure of both.
COURSE, FIGURE = "attention_course.csv", "attention.png"
#: Users per computation of attention.
_USERS_AT_ONCE = 1024


class Weights(NamedTuple):
    """Attention to a source in a layer, over the target's warm-start users with a row at the source; NaN without any."""

    source: str
    layer: int  # from 1
    users: int
    overlap: float  # their share of the target's warm-start users
    mean: float
    sd: float
    low: float  # the 5th, 25th, 50th, 75th and 95th percentile
    lower: float
    median: float
    upper: float
    high: float


class AttentionFigure(Callback):
    """Draw a method's domain attention by source and layer: its spread over users, its course, and the source's overlap.

    After each epoch before fine-tuning it calls the method's `domain_attention(users)`, which returns ``(users, layers)`` by
    source, as `FedGCDR` does, for all warm-start users. A source's mean covers the users with a row at it, in each layer. At the
    end of `fit` the run folder gets ``attention.csv`` (last such epoch, not the best checkpoint), ``attention_course.csv`` (all
    epochs) and ``attention.png``.

    Other methods are refused before training; so are private rounds, because attention depends on ratings outside of any
    epsilon. The files hold means and percentiles over users, and are no release.

    Reference: Yang et al., *Federated Graph Learning for Cross-Domain Recommendation* (FedGCDR), NeurIPS 2024, section 3.2.3.

    Examples:
        >>> callbacks = [AttentionFigure()]  # zoo.fit(zoo.FedGCDR(), data, callbacks=callbacks)
    """

    def __init__(self) -> None:
        self.course: dict[int, list[Weights]] = {}
        self._folder: Path | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a method without domain attention, or with private rounds; choose the folder on every process."""
        if not hasattr(pl_module, "domain_attention"):
            raise TypeError(f"{type(pl_module).__name__} has no domain_attention. AttentionFigure needs FedGCDR.")
        if getattr(pl_module, "privacy", None) is not None:
            raise ValueError("No epsilon of private rounds covers attention. Omit either.")
        self._folder = folder_of_run(trainer)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remove the course of an earlier training."""
        self.course = {}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Store the attention of this epoch, unless fine-tuning has begun."""
        method: Any = pl_module
        if not bool(getattr(method, "tuning", False)):
            self.course[trainer.current_epoch] = attention_of(method)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the files atomically."""
        if self._folder is None or not trainer.is_global_zero or not self.course:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        last = self.course[max(self.course)]
        _write(self._folder / ATTENTION, Weights._fields, last)
        lines = [(epoch, *row) for epoch, rows in sorted(self.course.items()) for row in rows]
        _write(self._folder / COURSE, ("epoch", *Weights._fields), lines)
        draw_attention(self.course, self._folder / FIGURE)


def attention_of(method: Any) -> list[Weights]:  # noqa: ANN401  has domain_attention
    """Return the attention to each source in each layer, over the warm-start users with a row at it."""
    known = (method.target_rows.counts() > 0).nonzero().squeeze(1)
    parts: dict[str, list[Tensor]] = {name: [] for name in method.sources}
    with torch.no_grad():
        for users in torch.split(known, _USERS_AT_ONCE):
            for name, weights in method.domain_attention(users).items():
                parts[name].append(weights[method.sources[name].links[users] >= 0].double().cpu())
    found = []
    for name, weights in parts.items():
        every = torch.cat(weights) if weights else torch.zeros(0, 1, dtype=torch.float64)
        found += [_summed_up(name, layer, of_layer, len(known)) for layer, of_layer in enumerate(every.T, 1)]
    return found


def _summed_up(name: str, layer: int, weights: Tensor, known: int) -> Weights:
    if not len(weights):
        return Weights(name, layer, 0, 0.0, *[math.nan] * 7)
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
    # A subsample: torch's quantiles allow at most 16 million values.
    percentiles = torch.quantile(weights[:: 1 + len(weights) // 10**7], levels).tolist()
    sd = float(weights.std(correction=0))
    return Weights(name, layer, len(weights), len(weights) / known, float(weights.mean()), sd, *percentiles)


def draw_attention(course: Mapping[int, Sequence[Weights]], path: Path) -> None:
    """Draw three panels on one axis of sources: last attention of each layer over users, overlap, and course of the mean."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    last = course[max(course)]
    # The largest mean is on top; NaN of sources without users is last.
    means = _means(last)
    sources = sorted(means, key=lambda name: (math.isnan(means[name]), -means[name]))
    with rc_context({"text.parse_math": False}):  # names are no formulas
        figure = Figure(figsize=(11, 1.8 + 0.34 * max(len(sources), 4)), layout="constrained")
        weights, overlap, epochs = figure.subplots(1, 3, sharey=True, width_ratios=(4, 1.2, 3))
        _draw_weights(weights, last, sources)
        shares = {row.source: 100 * row.overlap for row in last}
        overlap.barh(range(len(sources)), [shares[name] for name in sources], color="0.6", height=0.6)
        overlap.set(xlabel="% of users", title="overlap", xlim=(0, 100))
        _draw_course(figure, epochs, course, sources)
        weights.set_yticks(range(len(sources)), [_shown(name) for name in sources])
        weights.set_ylim(max(len(sources), 1) - 0.5, -0.5)
        if not sources:
            weights.text(0.5, 0.5, "no source", ha="center", va="center", transform=weights.transAxes)
        with atomic_write(path) as temporary:
            figure.savefig(temporary, format="png", dpi=130, metadata={"Software": None})


def _means(rows: Sequence[Weights]) -> dict[str, float]:
    """Return the mean weight of each source over its layers."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row.source, []).append(row.mean)
    return {name: sum(values) / len(values) for name, values in found.items()}


def _draw_weights(axes: Any, rows: Sequence[Weights], sources: Sequence[str]) -> None:  # noqa: ANN401  matplotlib's
    layers = max((row.layer for row in rows), default=1)
    for layer in range(1, layers + 1):
        own = [row for row in rows if row.layer == layer and row.users]
        boxes = [
            {"whislo": r.low, "q1": r.lower, "med": r.median, "q3": r.upper, "whishi": r.high, "mean": r.mean}
            for r in own
        ]
        places = [sources.index(row.source) + (layer - (layers + 1) / 2) * 0.8 / layers for row in own]
        colour = f"C{(layer - 1) % 10}"
        if boxes:
            axes.bxp(
                boxes, positions=places, widths=0.6 / layers, orientation="horizontal", showfliers=False, showmeans=True,
                patch_artist=True, manage_ticks=False, boxprops={"facecolor": colour, "alpha": 0.4},
                medianprops={"color": colour}, meanprops={"marker": "D", "markersize": 3.5, "mfc": "black", "mec": "black"},
            )  # fmt: skip
        axes.plot([], [], color=colour, lw=5, alpha=0.4, label=f"layer {layer}")
    axes.set(xlabel="weight", title="attention: mean, and 5 to 95 % of users")
    axes.legend(frameon=False, fontsize=8)
    axes.set_xlim(left=0)


def _draw_course(figure: Any, axes: Any, course: Mapping[int, Sequence[Weights]], sources: Sequence[str]) -> None:  # noqa: ANN401
    axes.set(xlabel="epoch", title="mean over layers and users")
    if not sources:
        return
    columns = [_means(rows) for _, rows in sorted(course.items())]
    table = [[column[name] for column in columns] for name in sources]
    first, last = min(course) + 1, max(course) + 1
    shown = axes.imshow(
        table, aspect="auto", cmap="viridis", extent=(first - 0.5, last + 0.5, len(sources) - 0.5, -0.5), vmin=0
    )  # fmt: skip
    axes.locator_params(axis="x", integer=True)
    figure.colorbar(shown, ax=axes)


def _shown(name: str) -> str:
    text = visible(name)
    return text if len(text) <= 28 else f"{text[:27]}…"


def _write(path: Path, names: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
