"""AttentionFigure: its figures are those of `domain_attention`, its file is drawn for any number of sources, and who is refused."""

import csv
import math
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from pytorch_lightning import LightningModule, seed_everything
from pytorch_lightning.loggers import CSVLogger

from callbacks import AttentionFigure
from callbacks.attention_figure import COURSE, FIGURE, Weights, attention_of, draw_attention
from tests.samples import MARKUP
from tests.zoo.methods.mixed_runs import around, embeddings, of_nobody
from tests.zoo.methods.quiet_trainer import quiet
from zoo import EMCDR, FedGCDR
from zoo.data.rows import SparseRows
from zoo.runtime.run_folder import ATTENTION

pytestmark = pytest.mark.thorough

TWO: dict[str, Any] = {"sources": ["book", "film"], "batch_size": 16}
PNG = b"\x89PNG"


def run(folder: Path, epochs: int, callback: bool = True, **settings: Any) -> tuple[FedGCDR, AttentionFigure]:  # noqa: ANN401
    """A training with one source of half of the users, one of three of them."""
    torch.manual_seed(3)
    members = {"book": torch.arange(0, 60, 2), "film": torch.tensor([7, 8, 9])}
    releases = {
        name: embeddings(torch.randn(len(users), 2, 3), users, name, **TWO).save(folder / name)
        for name, users in members.items()
    }
    method = FedGCDR(num_factors=3, map_dims=(4,), lr=0.1, **settings)
    return method, fitted(method, folder, releases, epochs, callback)


def fitted(
    method: LightningModule, folder: Path, releases: dict[str, Path], epochs: int, callback: bool = True
) -> AttentionFigure:
    figure = AttentionFigure()
    seed_everything(4)
    settings: dict[str, Any] = {"num_sanity_val_steps": 0, "limit_val_batches": 0, "max_epochs": epochs}
    trainer = quiet(logger=CSVLogger(folder / "runs"), callbacks=[figure] if callback else [], **settings)
    trainer.fit(method, datamodule=around(releases, **TWO))
    return figure


def read(folder: Path, name: str) -> list[dict[str, str]]:
    (path,) = folder.rglob(name)
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_what_is_written_is_what_domain_attention_says(tmp_path: Path) -> None:
    method, _ = run(tmp_path, 2, finetune_after=None)
    rows = read(tmp_path, ATTENTION)
    known = (method.target_rows.counts() > 0).nonzero().squeeze(1)
    with torch.no_grad():
        said = method.domain_attention(known)
    assert [(row["source"], row["layer"]) for row in rows] == [(name, layer) for name in said for layer in ("1", "2")]
    for row in rows:
        present = method.sources[row["source"]].links[known] >= 0
        weights = said[row["source"]][present, int(row["layer"]) - 1].double().numpy()
        assert (int(row["users"]), float(row["overlap"])) == (len(weights), len(weights) / len(known))
        assert float(row["mean"]) == pytest.approx(weights.mean(), rel=1e-6)
        assert float(row["sd"]) == pytest.approx(weights.std(), rel=1e-6)
        levels = [float(row[name]) for name in ("low", "lower", "median", "upper", "high")]
        assert levels == pytest.approx(np.percentile(weights, [5, 25, 50, 75, 95]).tolist(), rel=1e-6)
    course = read(tmp_path, COURSE)
    assert [{name: row[name] for name in Weights._fields} for row in course if row["epoch"] == "1"] == rows
    assert {row["epoch"] for row in course} == {"0", "1"}
    (drawn,) = tmp_path.rglob(FIGURE)
    assert drawn.read_bytes().startswith(PNG)
    assert not list(drawn.parent.glob(".*"))


def test_it_ends_with_the_epoch_before_fine_tuning_and_changes_no_training(tmp_path: Path) -> None:
    with_it, figure = run(tmp_path / "with", 3, finetune_after=2)
    without, _ = run(tmp_path / "without", 3, callback=False, finetune_after=2)
    assert sorted(figure.course) == [0, 1]
    assert torch.equal(with_it.items, without.items)
    assert {row["epoch"] for row in read(tmp_path / "with", COURSE)} == {"0", "1"}


def test_sources_of_nobody_have_no_weight_and_are_drawn(tmp_path: Path) -> None:
    method = FedGCDR(num_factors=3, map_dims=(4,))
    fitted(method, tmp_path, of_nobody(tmp_path), 1)
    rows = attention_of(method)
    assert [(row.source, row.users, row.overlap) for row in rows] == [
        (name, 0, 0.0) for name in ("book", "film") for _ in range(2)
    ]
    assert all(math.isnan(row.mean) for row in rows)
    assert len(list(tmp_path.rglob(FIGURE))) == 1


@pytest.mark.parametrize("count", [0, 1, 15])
def test_any_number_of_sources_of_any_name_is_drawn(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{MARKUP}$x_{{{number}\x1b[31m" if number % 2 else f"domain {number}" for number in range(count)]
    rows = [
        Weights(name, layer, 9, 0.5, 0.01 * number, 0.01, 0, 0.005, 0.01, 0.02, 0.1)
        for number, name in enumerate(names)
        for layer in (1, 2)
    ]
    made: list[Figure] = []
    saved = Figure.savefig

    def keep(figure: Figure, *given: Any, **named: Any) -> None:  # noqa: ANN401
        made.append(figure)
        saved(figure, *given, **named)

    monkeypatch.setattr(Figure, "savefig", keep)
    draw_attention({0: rows, 1: rows}, tmp_path / FIGURE)
    assert (tmp_path / FIGURE).read_bytes().startswith(PNG)
    axes = made[0].axes[0]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(labels) == count
    assert all(label.isprintable() and len(label) <= 28 for label in labels)
    if count == 15:
        assert labels[0] == "domain 14", "who weighs most is on top"
        boxes = [label.get_window_extent() for label in axes.get_yticklabels()]
        assert all(not one.overlaps(other) for one, other in pairwise(boxes))
        means = sorted({round(float(line.get_xdata()[0]), 6) for line in axes.lines if line.get_marker() == "D"})
        assert means == pytest.approx([0.01 * number for number in range(15)])


def test_who_has_no_attention_or_private_rounds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"EMCDR has no domain_attention\. AttentionFigure needs"):
        fitted(EMCDR(num_factors=4), tmp_path, of_nobody(tmp_path / "a"), 1)
    private = FedGCDR(num_factors=3, map_dims=(4,), epsilon=4.0, clip=1.0, num_rounds=2, rate=0.5, finetune_after=None)
    with pytest.raises(ValueError, match=r"No epsilon of private rounds covers attention\. Omit either"):
        fitted(private, tmp_path, of_nobody(tmp_path / "b"), 1)


def test_whoever_has_no_history_weighs_nothing_and_a_second_fit_begins_anew() -> None:
    rows = SparseRows(torch.tensor([0, 1, 1, 3]), torch.tensor([0, 0, 1]), torch.ones(3), 2)
    sources = {"book": SimpleNamespace(links=torch.tensor([0, 1, 2]))}
    weights: Any = SimpleNamespace(
        target_rows=rows, sources=sources, domain_attention=lambda users: {"book": users[:, None].float()}
    )
    (of_book,) = attention_of(weights)
    assert (of_book.users, of_book.overlap, of_book.mean) == (2, 1.0, 1.0)
    figure = AttentionFigure()
    figure.course = {7: [of_book]}
    figure.on_fit_start(Mock(), Mock())
    assert figure.course == {}
