"""RunReport: summarize a run on the terminal and in its folder."""

import hashlib
import json
import re
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.trainer.states import TrainerFn
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from callbacks.energy import Energy
from callbacks.progress import end_bar
from callbacks.references import Figures, curve, in_words, references
from zoo.data.held_out_cases import protocol_lines
from zoo.data.item_scores import choose_window, item_counts, recent_popularity
from zoo.data.metrics import SELECTION_METRIC
from zoo.data.training_batches import share_of
from zoo.methods.checkpoint_identity import ELSEWHERE, NOT_ENDED
from zoo.privacy.mechanisms.third_party import ThirdPartyMechanism
from zoo.privacy.record.fields import RecordError
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.record.selection import chosen_among
from zoo.privacy.record.words import CHOSEN_BY_METRICS, UNCOUNTED, sentence
from zoo.privacy.spending.total import OWN_ROWS, entry_of
from zoo.runtime.processes import provenance
from zoo.runtime.run_folder import CASES, DATA, METRIC_NAMES, METRICS, PRIVACY, folder_of_run, visible, write_json
from zoo.runtime.suggestions import count_of

#: Metrics of a run that was only validated.
VALIDATION = "validation.json"
#: Names of the stages.
NAMES = {"test": "test", "val": "validation"}
#: Unit of a batch, by the method's form of batches.
UNITS = {"users": "users", "pairs": "observed pairs", "triples": "observed pairs"}
#: Footnote of metrics with a mark.
UNRELIABLE = "these metrics are unreliable"
SEE_REMARKS = f"* {UNRELIABLE}: see the remarks on the data above"
_LONGEST = 1e12  # seconds, as in a summary
_MAXRSS_PER_MIB = 1024**2 if sys.platform == "darwin" else 1024  # bytes there, KiB elsewhere


class RunReport(Callback):
    """Print a summary of the data before training and a table of results at the end; write both to the run folder.

    Files: ``data.json`` (summary of the data), ``privacy.json`` (record and ledger of each release, and the record of the
    training, if any, under the method's name) and ``metrics.json``: metrics of the test, seconds, epochs and the one tested,
    parameters, energy if measured (`Energy`), peak memory of the process in MiB, commit, threads and machine, bytes and privacy of
    each release, metrics of chance, of item counts and of recent ones on the same cases, and digests of the test data, by which
    reports decide whether runs are comparable.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> from zoo.privacy.record.record import unprotected_record
        >>> figures = {f"test/full/{name}@10": 0.25 for name in ("hit_rate", "ndcg", "mrr")}
        >>> protected = {"book": unprotected_record("rows", "no noise")}
        >>> result_table("BPR", "test", figures, (10,), protected).row_count
        3
    """

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.facts: dict[str, Any] = {}
        self._summarised = False  # whether the summary of the data was printed
        self._began = 0.0
        self._before = 0.0  # seconds of training before it was resumed
        self._validated: dict[int, float] = {}  # NDCG@10 after each epoch, from 1
        self._stopped = ""  # by which callback, and when
        self._bytes: dict[str, int] = {}  # of each release

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the folder on every process, and measure the releases, which may be deleted before the end."""
        self.folder = folder_of_run(trainer)
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        for name in data.releases.keys() - self._bytes.keys():
            files = filter(Path.is_file, data.release_paths[name].iterdir())
            self._bytes[name] = sum(path.stat().st_size for path in files)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the summary of the data and messages about the releases."""
        self._began, self._before, self._validated = time.perf_counter() - self._before, 0.0, {}
        vars(pl_module)["loaded_epoch"] = None  # weights are those of training; a module's type has no such attribute
        summary = trainer.datamodule.summary  # type: ignore[attr-defined]
        if trainer.is_global_zero:
            Console().print(data_table(summary))
            self._summarised = True
            data: Any = trainer.datamodule  # type: ignore[attr-defined]
            protected = {name: record for name, record in records(data, pl_module).items() if name in data.releases}
            for message in (*release_messages(pl_module, protected), batch_message(trainer, pl_module)):
                if message:
                    Console().print(message, markup=False)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Replace what an earlier training left in a folder with a name, once training starts."""
        for name in (METRICS, VALIDATION, CASES):
            if self.folder is not None and trainer.is_global_zero:
                (self.folder / name).unlink(missing_ok=True)
        self._write(trainer, DATA, trainer.datamodule.summary)  # type: ignore[attr-defined]
        self._write_records(trainer, pl_module, NOT_ENDED)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Store the cost of training, and write its record."""
        self._write_records(trainer, pl_module)
        self.facts = {
            "train_seconds": round(time.perf_counter() - self._began, 3),
            "epochs": trainer.current_epoch,
            "parameters": sum(p.numel() for p in pl_module.parameters()),
        }
        self._stopped = next(
            (
                f"stopped after epoch {trainer.current_epoch} by {type(one).__name__}"
                for one in trainer.early_stopping_callbacks
                if one.stopping_reason_message and one.stopped_epoch + 1 == trainer.current_epoch
            ),
            "",
        )
        dry: bool | int = trainer.fast_dev_run  # type: ignore[attr-defined]  # set in its constructor
        if not dry and trainer.datamodule.summary["split"] == "none":  # type: ignore[attr-defined]  # no test will follow
            self._report(trainer, pl_module, "test", METRICS)

    def state_dict(self) -> dict[str, Any]:
        """Return the seconds of training so far."""
        return {"seconds": time.perf_counter() - self._began if self._began else 0.0}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting seconds; a received checkpoint may state anything."""
        seconds = state_dict.get("seconds")
        self._before = seconds if isinstance(seconds, float) and 0 <= seconds < _LONGEST else 0.0

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the validation, or store the metric of an epoch."""
        if (
            trainer.state.fn == TrainerFn.FITTING
            and not trainer.sanity_checking
            and SELECTION_METRIC in trainer.callback_metrics
        ):
            epoch, value = trainer.current_epoch + 1, float(trainer.callback_metrics[SELECTION_METRIC])
            self._validated[epoch] = max(value, self._validated.get(epoch, value))  # several, by `val_check_interval`
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._report(trainer, pl_module, "val", VALIDATION)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the test."""
        self._report(trainer, pl_module, "test", METRICS)
        if getattr(pl_module, "compared", ()):  # by a search, after the training
            self._write_records(trainer, pl_module)

    def _report(self, trainer: Trainer, pl_module: Any, stage: str, file: str) -> None:  # noqa: ANN401  a recommender
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        figures = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith(f"{stage}/")}
        users = (data.test if stage == "test" else data.validation).users
        by_counts = int((~pl_module.can_score(users.to(pl_module.device))).sum())
        protected = records(data, pl_module)
        own = {name: f"not protected: {sentence('metrics')}" for name in pl_module.own_rows_read(data)}
        others: Sequence[Callback] = trainer.callbacks  # type: ignore[attr-defined]  # set in __init__
        baselines = {} if data.signs or not figures else references_of(data, stage)
        loaded: int | None = getattr(pl_module, "loaded_epoch", None)
        tested = self.facts.get("epochs") if loaded is None else loaded
        report = {
            "method": type(pl_module).__name__,
            "seed": data.split_seed,
            **self.facts,
            **({"tested_epoch": tested} if figures and tested is not None else {}),
            **{name: fact for one in others if isinstance(one, Energy) for name, fact in one.facts.items()},
            "ranked_by_item_counts": by_counts,
            "metrics": figures,
            "references": baselines,
            "tested": tested_on(data, stage),
            **provenance(torch.get_num_threads()),
            "peak_memory": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MAXRSS_PER_MIB),
            "release_bytes": {name: self._bytes[name] for name in data.releases},
            "privacy": {
                name: record.summary() + (f"; {own[name]}" if name in own else "") for name, record in protected.items()
            },
        }
        self._write(trainer, file, report)
        if trainer.is_global_zero:
            counted = f" ({count_of(by_counts, 'case')} ranked by item counts)" if by_counts else ""
            odd = data.summary["test_says_little"] if stage == "test" else []
            notes = [curve(self._validated, tested or 0), self._stopped] if stage == "test" else []
            notes += [in_words(baselines) if baselines else ""]
            if not figures:
                notes.append("nothing is held out (split none), so nothing was measured")
            elif self._summarised:  # the remarks are above, with the data
                notes += [SEE_REMARKS] if odd else []
            else:
                notes += [f"* {UNRELIABLE}: {'; '.join(odd)}"] if odd else []
                notes += [remark for remark in data.summary["remarks"] if remark not in odd]
            notes += [f"{visible(name)}: {said}" for name, said in own.items()]
            end_bar(trainer)
            title, mark = f"{type(pl_module).__name__}{counted}", "*" if odd else ""
            Console().print(result_table(title, stage, figures, data.ks, protected, [*filter(None, notes)], mark))

    def _write_records(self, trainer: Trainer, method: LightningModule, open_because: str = "") -> None:
        found = records(trainer.datamodule, method)  # type: ignore[attr-defined]
        own = found.get(name := type(method).__name__)
        if own is not None and own.claims and open_because:  # if this run is killed, its checkpoints have more steps
            found[name] = own.without_guarantee(open_because)
        releases = trainer.datamodule.releases  # type: ignore[attr-defined]
        read = method.own_rows_read(trainer.datamodule)  # type: ignore[attr-defined, operator]
        entries = {name: record.to_dict() for name, record in found.items()}
        for name, one in releases.items():
            entries[name] = entry_of(found[name], one.ledger, one.source_users)
            entries[name] |= {OWN_ROWS: True} if name in read else {}
        self._write(trainer, PRIVACY, entries)

    def _write(self, trainer: Trainer, name: str, value: object) -> None:
        if self.folder is not None and trainer.is_global_zero:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_json(self.folder / name, value)


def release_messages(method: Any, protected: Mapping[str, PrivacyRecord]) -> list[str]:  # noqa: ANN401  any recommender
    """Return a message if a method reads another release than it was published with; none for an empty release.

    Examples:
        >>> import zoo
        >>> from zoo.publishers.jlt import JLT
        >>> release_messages(zoo.PPGenCDR(), {"book": JLT(epsilon=8.0, num_components=4).forecast(60, 40)})
        ["PPGenCDR as published reads GeneratorPublisher(SPPG). book is of 'JLT': rating (change one rating), eps 8.00, ..."]
    """
    known = {*re.findall(r"\w+", method.published_with), "Nothing"}
    others = {name: one for name, one in protected.items() if one.mechanism.name.partition(",")[0] not in known}
    if not method.published_with:
        return []
    return [
        f"{type(method).__name__} as published reads {method.published_with}. {visible(name)} is of "
        f"{visible(one.mechanism.name)!r}: {visible(one.summary())}."
        for name, one in others.items()
    ]


def batch_message(trainer: Trainer, method: Any) -> str:  # noqa: ANN401  any recommender
    """Return the batch size of several processes together; "" for a single process."""
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
    """Return the record of each release, and of the training under the method's name.

    The record of a release whose source's rows the scores read assumes that choices by metrics reveal nothing, if there were any.
    That of a private training counts the other trainings of its search; without a search, it assumes that these reveal nothing.
    It claims nothing if the number of its batches depends on ratings.
    """
    found = {name: release.record for name, release in data.releases.items()}
    if chosen := getattr(method, "chosen_by_metrics", False):
        found |= {name: found[name].assuming(CHOSEN_BY_METRICS) for name in method.own_rows_read(data)}
    own = method.privacy_record()
    if own is None:
        return found
    if own.claims and getattr(method, "batches", "steps") in ("users", "pairs", "triples"):
        own = own.without_guarantee("the number of its training steps depends on the ratings")
    if own.claims and any(getattr(method, name, False) for name in ("learned_elsewhere", "prepared_otherwise")):
        own = own.without_guarantee(ELSEWHERE)
    own = own.claimed_by(type(method))
    for step in getattr(
        data, "read_by_plugin", ()
    ):  # also if the class gives ratings of its own, such as by a property
        own = own.assuming(step.condition)
    if chosen and own.claims:
        # The events of another package's training are unknown, so they cannot be added up.
        others = () if isinstance(own.mechanism, ThirdPartyMechanism) else method.compared
        own = own.assuming(CHOSEN_BY_METRICS if others else UNCOUNTED)
        try:
            own, _ = chosen_among((own, own.ledger), [(one, one.ledger) for one in others])
        except RecordError as error:  # such as trainings of several relations
            own = own.without_guarantee(f"the search's trainings: {error}")
    return found | {type(method).__name__: own}


def references_of(data: Any, stage: str) -> dict[str, Figures]:  # noqa: ANN401  any datamodule
    """Return the metrics of chance, item counts and (split by time) recent ones on a stage's cases, without the stage's name."""
    cases = data.test if stage == "test" else data.validation
    scores = {"popularity": item_counts(data.train)}
    if data.train.times is not None:
        window = choose_window(data.train, data.validation, data.ties, sampled=data.sampled_ranking)
        scores["recent_popularity"] = recent_popularity(data.train, window)
    full = data.full_ranking is True or (data.full_ranking == "test" and stage == "test")
    return references(scores, cases, data.ks, data.ties, full, data.sampled_ranking, data.average)


def tested_on(data: Any, stage: str) -> dict[str, str]:  # noqa: ANN401  any datamodule
    """Return the SHA-256 of the target's training and test ratings and of the candidates of a stage, and the rules of the test."""
    cases = data.test if stage == "test" else data.validation
    candidates = hashlib.sha256(cases.candidates.contiguous().numpy())
    rules = data.evaluation
    drawn = json.dumps([rules.num_candidates, rules.shared_candidates, rules.weighted_candidates])
    digests = {"ratings": data.digests[data.target], "candidates": candidates.hexdigest()}
    return digests | {"drawn": drawn, "ties": rules.ties, "average": rules.average}


def data_table(summary: dict[str, Any]) -> Table:
    """Return the table of a run's data."""
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
    table.caption = "\n".join(
        [f"{summary['train_ratings']:,} ratings to train on, {held_out}", *protocol_lines(summary)]
    )
    table.caption_justify = "left"
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
    """Return the table of metrics and of each guarantee, 80 columns wide for names of at most ten characters.

    Args:
        method: Title of the table.
        stage: ``test`` or ``val``.
        figures: Metrics by name, with the stage.
        ks: Cut-offs.
        protected: Record of each release, and of the training, by name.
        remarks: Lines below the table.
        mark: Added to each metric; ``*`` if the metrics are unreliable.
    """
    kinds = [kind for kind in ("sampled", "full") if any(key.startswith(f"{stage}/{kind}/") for key in figures)]
    accuracy = (Column(kind, justify="right") for kind in kinds)
    privacy_columns = (Column(name, no_wrap=True) for name in ("unit", "epsilon", "delta", "guarantee"))
    table = Table("", *accuracy, Column("release", overflow="fold"), *privacy_columns, box=box.SIMPLE, pad_edge=False)
    table.padding = (0, 0, 0, 1)
    table.title = f"{method}: {NAMES[stage] if figures else 'trained'}"
    for key in (key for key in figures if key.count("/") == 1 and "@" not in key):  # of signs, or of a known matrix
        table.add_row(key.removeprefix(f"{stage}/"), f"{figures[key]:.4f}{mark}", *[""] * (len(kinds) + 4))
    measures = [(measure, k) for k in ks for measure in METRIC_NAMES] if figures else []
    privacy = [(escape(visible(name)), *privacy_cells(record)) for name, record in protected.items()] or [
        ("none", *"----")
    ]
    # Metrics on the left and releases on the right share lines; either may be the longer list.
    for row, record in zip_longest(measures, privacy):
        title = f"{METRIC_NAMES[row[0]]}@{row[1]}" if row else ""
        shown = [f"{figures[f'{stage}/{kind}/{row[0]}@{row[1]}']:.4f}{mark}" if row else "" for kind in kinds]
        table.add_row(title, *shown, *(record or [""] * 5))
    notes = [f"{escape(visible(name))}: no guarantee ({escape(r.reason)})" for name, r in protected.items() if r.reason]
    notes += [
        f"{escape(visible(name))}: {texts['relation']}, {escape(r.standing)}"
        for name, r in protected.items()
        if (texts := r.view.texts)
    ]
    if any("/pessimistic/" in key for key in figures):
        notes.append("many ties: scores may have collapsed or saturated; pessimistic metrics are in the run folder")
    table.caption = "\n".join([*notes, *map(escape, remarks)])
    table.caption_justify = "left"
    return table


def privacy_cells(record: PrivacyRecord) -> tuple[str, str, str, str]:
    """Return unit, epsilon, delta and guarantee of a record for a table; "-" without a guarantee."""
    if not record.claims:
        return "-", "-", "-", "none"
    view = record.view
    guarantee = "assumes" if view.conditions else view.guarantee  # the conditions are below the table
    return view.texts["unit"], view.texts["epsilon"], view.texts["delta"], "too weak" if view.label else guarantee
