"""RunReport: what a run says of itself, on the terminal and in its folder."""

import hashlib
import resource
import sys
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.trainer.states import TrainerFn
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from callbacks.progress import end_bar
from callbacks.references import Figures, curve, in_words, references
from zoo.data.metrics import SELECTION_METRIC
from zoo.data.training_batches import share_of
from zoo.privacy.accounting.events import event_to_dict
from zoo.privacy.record.record import PrivacyRecord, rounded_up, shown_delta
from zoo.runtime.run_folder import DATA, METRIC_NAMES, METRICS, PRIVACY, folder_of_run, visible, write_json
from zoo.runtime.suggestions import count_of

#: What the figures of a stage are called.
NAMES = {"test": "test", "val": "validation"}
#: What a batch is counted in, by the form of batches that a method wants.
UNITS = {"users": "users", "pairs": "observed pairs", "triples": "observed pairs"}
#: Of figures that bear a mark.
THESE = "these figures say little"
SAYS_LITTLE = f"* {THESE}: the remarks on the data, above, say why"
_MAXRSS_PER_MIB = 1024**2 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere


class RunReport(Callback):
    """Prints a summary of the data before training and one table at the end; keeps both in the run folder.

    Files: ``data.json`` (summary of the data), ``privacy.json`` (record and ledger of each release, and the record of the
    training where it has one, under the method's name), ``metrics.json`` (figures of the test, seconds, epochs, parameters,
    peak memory of the
    process in MiB, for each release its bytes and its privacy in one line, what chance and item counts reach on the cases, and
    digests of what was tested, by which reports tell whether two runs may stand in one table).
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.facts: dict[str, Any] = {}
        self._summarised = False  # whether the summary of the data, with its remarks, was printed
        self._began = 0.0
        self._validated: list[float] = []  # NDCG@10 after each epoch of this run
        self._bytes: dict[str, int] = {}  # of each release

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the folder on every process, as this asks all of them, and weigh the releases, which may be gone at the end."""
        self.folder = folder_of_run(trainer)
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        for name in data.releases.keys() - self._bytes.keys():
            files = filter(Path.is_file, data.release_paths[name].iterdir())
            self._bytes[name] = sum(path.stat().st_size for path in files)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print and keep the summary of the data and the records of the releases."""
        self._began, self._validated = time.perf_counter(), []
        summary = trainer.datamodule.summary  # type: ignore[attr-defined]
        if trainer.is_global_zero:
            Console().print(data_table(summary))
            self._summarised = True
            if said := batch_in_words(trainer, pl_module):
                Console().print(said)
        self._write(trainer, DATA, summary)
        self._write_records(trainer, pl_module)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep what training took, and what it protects."""
        self._write_records(trainer, pl_module)
        self.facts = {
            "train_seconds": round(time.perf_counter() - self._began, 3),
            "epochs": trainer.current_epoch,
            "parameters": sum(p.numel() for p in pl_module.parameters()),
        }
        dry: bool | int = trainer.fast_dev_run  # type: ignore[attr-defined]  # set when it is made
        if not dry and trainer.datamodule.summary["split"] == "none":  # type: ignore[attr-defined]  # no test will follow
            self._report(trainer, pl_module, "test", METRICS)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the figures, or keep those of an epoch for the end."""
        if (
            trainer.state.fn == TrainerFn.FITTING
            and not trainer.sanity_checking
            and SELECTION_METRIC in trainer.callback_metrics
        ):
            self._validated.append(float(trainer.callback_metrics[SELECTION_METRIC]))
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._report(trainer, pl_module, "val", "validation.json")

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print and keep the test figures."""
        self._report(trainer, pl_module, "test", METRICS)

    def _report(self, trainer: Trainer, pl_module: Any, stage: str, file: str) -> None:  # noqa: ANN401  a recommender
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        figures = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith(f"{stage}/")}
        users = (data.test if stage == "test" else data.validation).users
        by_counts = int((~pl_module.can_score(users.to(pl_module.device))).sum())
        protected = records(data, pl_module)
        beside = {} if data.signs or not figures else references_of(data, stage)
        report = {
            "method": type(pl_module).__name__,
            "seed": data.split_seed,
            **self.facts,
            "ranked_by_item_counts": by_counts,
            "metrics": figures,
            "references": beside,
            "tested": tested_on(data, stage),
            "peak_memory": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MAXRSS_PER_MIB),
            "release_bytes": {name: self._bytes[name] for name in data.releases},  # what crosses the border
            "privacy": {name: record.summary() for name, record in protected.items()},
        }
        self._write(trainer, file, report)
        if trainer.is_global_zero:
            counted = f" ({count_of(by_counts, 'case')} ranked by item counts)" if by_counts else ""
            odd = data.summary["test_says_little"] if stage == "test" else []
            # Sentences that stand above, with the data, are not said again.
            remarks = [SAYS_LITTLE] if odd else []
            if not self._summarised:
                others = [remark for remark in data.summary["remarks"] if remark not in odd]
                remarks = [f"* {THESE}: {'; '.join(odd)}", *others] if odd else others
            if not figures:
                remarks = ["nothing is held out (split none), so nothing was measured"]
            read_by = [curve(self._validated)] if stage == "test" else []
            read_by += [in_words(beside)] if beside else []
            end_bar(trainer)
            said = [*filter(None, [*read_by, *remarks])]
            title = f"{type(pl_module).__name__}{counted}"
            Console().print(result_table(title, stage, figures, data.ks, protected, said, "*" if odd else ""))

    def _write_records(self, trainer: Trainer, method: LightningModule) -> None:
        found = records(trainer.datamodule, method)  # type: ignore[attr-defined]
        releases = trainer.datamodule.releases  # type: ignore[attr-defined]
        ledgers = {
            name: {"ledger": [event_to_dict(event) for event in one.ledger], "num_users": one.source_users}
            for name, one in releases.items()
        }
        self._write(
            trainer, PRIVACY, {name: record.to_dict() | ledgers.get(name, {}) for name, record in found.items()}
        )

    def _write(self, trainer: Trainer, name: str, value: object) -> None:
        if self.folder is not None and trainer.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / name, value)


def batch_in_words(trainer: Trainer, method: Any) -> str:  # noqa: ANN401  any recommender
    """What processes take in a step together; nothing where all have the same batch, which is then the one that was set."""
    number = share_of(trainer).world_size
    if number == 1:
        return ""
    size, unit = trainer.datamodule.batch_size, UNITS[method.batches]  # type: ignore[attr-defined]
    of = f" over {trainer.accumulate_grad_batches} batches" if trainer.accumulate_grad_batches > 1 else ""
    return (
        f"{number} processes take {size} {unit} each in a batch, {number * size} together; a step follows the mean of their "
        f"gradients{of}. --data.batch_size {max(size // number, 1)} takes as many as one process."
    )


def records(data: Any, method: Any) -> dict[str, PrivacyRecord]:  # noqa: ANN401  any datamodule, any recommender
    """What protects whom in a run: the record of each release, and of the training under the method's name."""
    found = {name: release.record for name, release in data.releases.items()}
    own = method.privacy_record()
    return found if own is None else found | {type(method).__name__: own.claimed_by(type(method))}


def references_of(data: Any, stage: str) -> dict[str, Figures]:  # noqa: ANN401  any datamodule
    """What chance and item counts reach on the cases of a stage, by the names of the run's own figures without the stage."""
    cases = data.test if stage == "test" else data.validation
    counts = torch.from_numpy(np.bincount(data.train.matrix.indices, minlength=data.train.num_items))
    full = data.full_ranking is True or (data.full_ranking == "test" and stage == "test")
    return references(counts, cases, data.ks, data.ties, full, data.sampled_ranking)


def tested_on(data: Any, stage: str) -> dict[str, str]:  # noqa: ANN401  any datamodule
    """SHA-256 of the target's ratings, trained on and held out, and of the candidates of a stage."""
    cases = data.test if stage == "test" else data.validation
    candidates = hashlib.sha256(cases.candidates.contiguous().numpy())
    return {"ratings": data.digests[data.target], "candidates": candidates.hexdigest()}


def data_table(summary: dict[str, Any]) -> Table:
    """The data of a run, for the terminal."""
    target = summary["target"]
    numbers = ("users", "items or width", "ratings", "density", "overlap")
    table = Table("", *(Column(name, justify="right") for name in numbers))
    domain = escape(visible(target["domain"]))
    table.title = f"Data: target {domain}, split {summary['split']}, seed {summary['seed']}"
    counts = [f"{target[name]:,}" for name in ("users", "items", "ratings")]
    table.add_row(f"target {domain}", *counts, f"{target['density']:.2%}", "")
    for name, release in summary["releases"].items():
        kind = f"{release['kind']}{', denoised' if release['denoised'] else ''}"
        overlap = f"{release['overlap']:,} ({release['overlap'] / max(target['users'], 1):.0%})"
        shape = (f"{release['users']:,}", f"{release['width']:,}")
        table.add_row(f"release of {escape(visible(name))} ({kind})", *shape, "", "", overlap)
    held_out = (
        f"{summary['validation_cases']:,} validation and {count_of(summary['test_cases'], 'test case')}; "
        f"{count_of(summary['users_without_test_item'], 'user')} without a test item"
    )
    if summary["split"] == "none":
        held_out = "nothing is held out, so all epochs are trained and nothing is measured"
    table.caption = f"{summary['train_ratings']:,} ratings to train on, {held_out}"
    table.caption_justify = "left"  # sentences, of several lines
    table.caption += "".join(f"\n{escape(remark)}" for remark in summary.get("remarks", ()))
    return table


def result_table(
    method: str,
    stage: str,
    figures: dict[str, float],
    ks: tuple[int, ...],
    protected: dict[str, PrivacyRecord],
    remarks: Sequence[str] = (),
    mark: str = "",
) -> Table:
    """Accuracy and, beside it, what every release, or the training itself, guarantees; figures that say little bear a mark."""
    kinds = [kind for kind in ("sampled", "full") if any(key.startswith(f"{stage}/{kind}/") for key in figures)]
    accuracy = (Column(kind, justify="right") for kind in kinds)
    table = Table("", *accuracy, "release", "unit", "epsilon", "delta", "guarantee", box=box.SIMPLE)
    table.title = f"{method}: {NAMES[stage] if figures else 'trained'}"
    for key in (key for key in figures if key.count("/") == 1 and "@" not in key):  # of signs, or of a known matrix
        table.add_row(key.removeprefix(f"{stage}/"), f"{figures[key]:.4f}{mark}", *[""] * (len(kinds) + 4))
    measures = [(measure, k) for k in ks for measure in METRIC_NAMES] if figures else []
    privacy = [(escape(visible(name)), *privacy_cells(record)) for name, record in protected.items()] or [
        ("none", *"----")
    ]
    # Accuracy on the left and releases on the right share their lines, and either may be the longer list.
    for row, record in zip_longest(measures, privacy):
        title = f"{METRIC_NAMES[row[0]]}@{row[1]}" if row else ""
        shown = [f"{figures[f'{stage}/{kind}/{row[0]}@{row[1]}']:.4f}{mark}" if row else "" for kind in kinds]
        table.add_row(title, *shown, *(record or [""] * 5))
    said = [f"{escape(visible(name))}: no guarantee ({escape(r.reason)})" for name, r in protected.items() if r.reason]
    said += [f"{escape(visible(name))}: {escape(r.standing)}" for name, r in protected.items() if r.conditions]
    if any("/pessimistic/" in key for key in figures):
        said.append("many ties: scores may have collapsed or saturated; pessimistic figures in the run folder")
    table.caption = "\n".join([*said, *map(escape, remarks)])
    table.caption_justify = "left"
    return table


def privacy_cells(record: PrivacyRecord) -> tuple[str, str, str, str]:
    """Unit, epsilon, delta and guarantee of a record, for a table; an epsilon only where there is one."""
    if not record.claims:
        return "-", "-", "-", "none"
    assert record.epsilon is not None
    assert record.delta is not None
    return str(record.unit), rounded_up(record.epsilon), shown_delta(record.delta), record.guarantee.value
