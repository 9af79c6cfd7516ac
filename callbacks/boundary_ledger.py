"""BoundaryLedger: count every tensor that leaves a client or a domain in a run."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from safetensors import safe_open
from torch import Tensor

from callbacks.run_report import records
from zoo.methods.federated.updates import ClientUpdates
from zoo.privacy.accounting.events import PrivacyEvent, read_ledger
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.spending.total import record_of
from zoo.privacy.training.private_rounds import PrivateRounds
from zoo.runtime.run_folder import TARGET_RELEASE, folder_of_run, visible, write_table

#: File of all crossings in the run folder.
BOUNDARY = "boundary.csv"

_BYTES = {"F32": 4, "I64": 8}  # of a number, by the types of tensors of a release
_UNPROTECTED = {"mechanism": "none", "event": "NonPrivateEvent", "privacy": "none (unprotected)"}


class Crossing(NamedTuple):
    """One tensor that leaves a client or a domain; the tensors of all clients of a round count as one stack."""

    round: int  # from 1; 0 before the first
    sender: str
    receiver: str
    tensor: str
    clients: int  # number of senders or receivers, or of rows of a release; 0 if a domain is the receiver
    shape: tuple[int, ...]
    bytes: int
    whole_table_bytes: int  # if all items were exchanged, as the paper counts
    mechanism: str
    event: str  # privacy event of the mechanism
    privacy: str  # the guarantee and its conditions


class BoundaryLedger(Callback):
    """Count the tensors that leave clients and domains: sender, receiver, shape, bytes, round, mechanism and privacy event.

    Bytes are those of the numbers, without transport:

    - projections that the target published for a release of this or another `fit`: tensors and user ids, to its domain;
    - each release, from its domain to the target's, or to the clients of a federated method, each of which gets its own row:
      tensors as in its files, before denoising, and all user ids in UTF-8;
    - in each round of a federated method, server to clients: the requested item rows, and all shared parts;
    - clients to server: requested rows, changed rows and their changes, shared parts, weights. A client that is left out has
      requested and received, but sent nothing. `FedGCDR` shares maps of sources with a client of the round;
    - in private rounds (`zoo.privacy.training.private_rounds`) the participants are secret: the exchange of whole tables by the
      expected number of clients is counted. Their updates are only clipped: the trusted server adds the noise, or gets sums.

    A method is federated if it has `sent` (`zoo.methods.federated.updates.ClientUpdates` of the last round) and `fetched`
    (requested rows of each client, ``(clients,)``). A round is a batch. ``train/bytes_up`` and ``train/bytes_down`` are logged
    for each. At the end of `fit` a table shows the totals, and ``boundary.csv`` holds every `Crossing` of this `fit`. Whole
    tables are counted as in the paper: O(F + |I| F) each way for a client in a round.

    Reference: Yang et al., *Federated Graph Learning for Cross-Domain Recommendation* (FedGCDR), NeurIPS 2024, appendix B.2.

    The ledger protects nothing. The numbers of changed rows depend on ratings: the file is for simulations, and no release.

    Examples:
        >>> callbacks = [BoundaryLedger()]  # zoo.fit(zoo.FedGNN(), data, callbacks=callbacks)
    """

    logs = frozenset({"train/bytes_up", "train/bytes_down"})

    def __init__(self) -> None:
        self.crossings: list[Crossing] = []
        self._folder: Path | None = None
        self._played, self._claim = 0, ""  # private rounds over all runs, and their guarantee

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Choose the folder on every process."""
        self._folder = folder_of_run(trainer)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start with the crossings of the releases."""
        rounds: PrivateRounds | None = getattr(pl_module, "private_gradient", None) if is_federated(pl_module) else None
        if rounds is not None:
            method: Any = pl_module
            self._played, self._claim = rounds.steps_taken, method.planned_record().claimed_by(type(method)).summary()
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        domain, federated = _domain(trainer), is_federated(pl_module)
        self.crossings = []
        for name, release in data.releases.items():
            clients = int((data.links[name] >= 0).sum()) if federated else 0
            receiver = f"{'clients of' if federated else 'domain'} {domain}"
            self.crossings += of_target(domain, name, data.release_paths[name].parent / TARGET_RELEASE)
            self.crossings += released(name, receiver, release, data.release_paths[name], clients)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Remove the file of an earlier training in a folder with a name, which states its epsilon."""
        if self._folder is not None and trainer.is_global_zero:
            (self._folder / BOUNDARY).unlink(missing_ok=True)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Count a round and log its totals."""
        method: Any = pl_module
        if not is_federated(method):
            return
        if method.sent is None:
            self._count_private(_domain(trainer), method)
            return
        number = trainer.fit_loop.epoch_loop.total_batch_idx + 1
        down = list(to_clients(number, _domain(trainer), method.sent, method.fetched, method.sizes["num_items"]))
        up = list(to_server(number, _domain(trainer), method.sent, method.fetched, method.sizes["num_items"]))
        self.crossings += down + up
        for name, crossings in (("down", down), ("up", up)):
            # Double precision: single cannot represent odd numbers above 16 MiB.
            total = torch.tensor(sum(crossing.bytes for crossing in crossings), dtype=torch.float64)
            pl_module.log(f"train/bytes_{name}", total, on_step=True, on_epoch=False, batch_size=1)

    def _count_private(self, domain: str, method: Any) -> None:  # noqa: ANN401  any recommender
        rounds: PrivateRounds = method.private_gradient
        if rounds.steps_taken > self._played:
            self._played = rounds.steps_taken
            self.crossings += private_round(
                domain, rounds, {"item rows": method.items, **method.learned()}, self._claim
            )

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Print the totals, and write every crossing atomically."""
        if not trainer.is_global_zero:
            return
        if self._claim:  # as the run's record has it by now, with the conditions of all runs
            own = records(trainer.datamodule, pl_module)[type(pl_module).__name__].summary()  # type: ignore[attr-defined]
            self.crossings = [one._replace(privacy=one.privacy.replace(self._claim, own)) for one in self.crossings]
        Console().print(boundary_table(self.crossings, type(pl_module).__name__, is_federated(pl_module)))
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            rows = [crossing._replace(shape=_shown(crossing.shape))._asdict() for crossing in self.crossings]  # type: ignore[arg-type]
            write_table(self._folder / BOUNDARY, pl.DataFrame(rows, schema=list(Crossing._fields)))


def is_federated(method: Any) -> bool:  # noqa: ANN401  any recommender
    """Whether a method has its clients' updates and requests."""
    return hasattr(method, "sent") and hasattr(method, "fetched")


def released(
    source: str, receiver: str, release: Any, folder: Path, clients: int = 0  # noqa: ANN401  a release
) -> Iterator[Crossing]:  # fmt: skip
    """Yield the crossings of a release: the tensors of its files and the user ids, a row for each client."""
    said = _said(release.record, release.ledger)
    sizes = {name: (shape, _BYTES[dtype] * prod(shape)) for name, (shape, dtype) in _tensors(folder).items()}
    ids = release.user_ids.tolist()
    sizes["user ids"] = (len(ids),), sum(len(name.encode()) for name in ids)
    for name, (shape, size) in sizes.items():
        yield Crossing(0, f"domain {source}", receiver, name, clients, shape, size, size, **said)


def of_target(target: str, source: str, file: Path) -> Iterator[Crossing]:
    """Yield the crossings of what a target published for the release of a source, by the file that `fit` wrote next to it."""
    found = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"tensors": {}}
    for name, sizes in found["tensors"].items():
        said = _said(record_of(found["privacy"]), read_ledger(found["privacy"]["ledger"]))
        size = sizes["bytes"]
        yield Crossing(0, f"domain {target}", f"domain {source}", name, 0, tuple(sizes["shape"]), size, size, **said)


def _said(record: PrivacyRecord, ledger: Iterable[PrivacyEvent]) -> dict[str, str]:
    events = Counter(type(event).__name__ for event in ledger)
    return {
        "mechanism": record.mechanism.name,
        "event": ", ".join(name if count == 1 else f"{count} x {name}" for name, count in events.items()) or "none",
        "privacy": record.summary(),
    }


def _tensors(folder: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return shape and type of each tensor of a release from the headers of its files; shards are joined."""
    found: dict[str, tuple[tuple[int, ...], str]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  no mapping
                part = file.get_slice(name)
                rows, *rest = part.get_shape()
                before = found[name][0][0] if name in found else 0
                found[name] = (before + rows, *rest), part.get_dtype()
    return found


def to_clients(number: int, domain: str, sent: ClientUpdates, fetched: Tensor, num_items: int) -> Iterator[Crossing]:
    """Yield the server's crossings in a round: the requested item rows, and the shared parts."""
    clients, rows = len(fetched), int(fetched.sum())
    parts = {"item rows": (rows, *sent.differences.shape[1:])}
    parts |= {name: tuple(part.shape) for name, part in sent.shared.items()}
    for name, shape in parts.items():
        width = sent.shared.get(name, sent.differences).element_size()
        size = width * prod(shape)
        table = width * clients * num_items * prod(shape[1:]) if name == "item rows" else size
        yield Crossing(
            number, f"server of {domain}", f"clients of {domain}", name, clients, shape, size, table, **_UNPROTECTED
        )


def to_server(number: int, domain: str, sent: ClientUpdates, fetched: Tensor, num_items: int) -> Iterator[Crossing]:
    """Yield the clients' crossings in a round: requests of all clients, and updates of those that are not left out."""
    counted = sent.weights > 0
    senders = int(counted.sum())
    parts: dict[str, tuple[int, Tensor]] = {
        "rows requested": (len(fetched), sent.rows.new_empty(int(fetched.sum()))),
        "rows changed": (senders, sent.rows),
        "changes of item rows": (senders, sent.differences),
        **{f"changes of {name}": (senders, part[counted]) for name, part in sent.shared.items()},
        "weights": (senders, sent.weights[counted]),
    }
    for name, (clients, part) in parts.items():
        table = 0 if name.startswith("rows ") else part.nbytes
        if name == "changes of item rows":
            table = part.element_size() * clients * num_items * part.shape[1]
        shape = tuple(part.shape)
        yield Crossing(
            number, f"clients of {domain}", f"server of {domain}", name, clients, shape, part.nbytes, table, **_UNPROTECTED
        )  # fmt: skip


def private_round(domain: str, rounds: PrivateRounds, parts: Mapping[str, Tensor], claim: str) -> list[Crossing]:
    """Return the crossings of the last private round by public numbers: expected clients exchange all parameters."""
    clients, server = f"clients of {domain}", f"server of {domain}"
    event = type(rounds.plan.step_event).__name__
    noisy = {"mechanism": "DP-FedAvg", "event": event, "privacy": f"{claim}, of all rounds"}
    clipped = {
        "mechanism": f"clipped to {rounds.plan.clip:g}",
        "event": "NonPrivateEvent",
        "privacy": "none against the server, which is trusted and noises the sum (or gets the sum alone)",
    }
    number, expected, found = rounds.steps_taken, round(rounds.expected_clients), []
    for sender, receiver, prefix, said in ((server, clients, "", noisy), (clients, server, "changes of ", clipped)):
        for name, part in parts.items():
            shape = (expected, *part.shape)
            size = part.element_size() * prod(shape)
            found.append(Crossing(number, sender, receiver, prefix + name, expected, shape, size, size, **said))
    return found


def boundary_table(crossings: list[Crossing], method: str, federated: bool) -> Table:
    """Return the table of totals: each kind of tensor between two parties, and all of them."""
    # Numbers must not be cut; text may continue on the next line.
    numbers = (Column(name, justify="right", no_wrap=True) for name in ("bytes", "whole tables"))
    table = Table("from, to", "tensor", *numbers, Column("mechanism, event", overflow="fold"), box=box.SIMPLE)
    table.title = f"{method}: what left clients and domains"
    totals: dict[tuple[str, str, str, str, str], list[Crossing]] = {}
    for crossing in crossings:
        key = (crossing.sender, crossing.receiver, crossing.tensor, crossing.mechanism, crossing.event)
        totals.setdefault(key, []).append(crossing)
    for key, found in totals.items():
        sender, receiver, tensor, mechanism, event = (escape(visible(word)) for word in key)
        table.add_row(f"{sender},\n{receiver}", tensor, *_sums(found), f"{mechanism},\n{event}")
    table.add_row("all", "", *_sums(crossings), "")
    rounds = len({crossing.round for crossing in crossings if crossing.round})
    caption = f"{rounds:,} rounds; next to their bytes, those of whole item tables"
    table.caption = caption if federated else f"{method} is not federated: no client sends anything"

    return table


def _sums(crossings: list[Crossing]) -> tuple[str, str]:
    return f"{sum(c.bytes for c in crossings):,}", f"{sum(c.whole_table_bytes for c in crossings):,}"


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _domain(trainer: Trainer) -> str:
    name: str = trainer.datamodule.target  # type: ignore[attr-defined]
    return name
