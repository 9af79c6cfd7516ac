"""BoundaryLedger: what leaves clients and domains, against counts by hand and the paper's formula."""

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.loggers import CSVLogger
from rich.console import Console
from safetensors.torch import save_file

from callbacks import BoundaryLedger
from callbacks.boundary_ledger import Crossing, boundary_table, is_federated, released, to_clients, to_server
from callbacks.run_report import records
from datamodules import Synthetic
from tests.samples import MARKUP
from tests.zoo.methods.quiet_trainer import quiet
from zoo import BPR, EMCDR, EmbeddingPublisher, FedGNN
from zoo.methods.federated.updates import ClientUpdate, ClientUpdates
from zoo.privacy.record.record import unprotected_record

USERS, ITEMS, F, LAYERS = 40, 30, 3, 2


class Watch(Callback):
    """Keeps what each client sends, one by one, and what the ledger logs; may break the first client's vector."""

    def __init__(self, broken: bool = False) -> None:
        self.rounds: list[list[ClientUpdate]] = []
        self.logged: list[tuple[float, float]] = []
        self.broken = broken

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        if self.broken:
            pl_module.factors[batch.users[0]] = torch.nan

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: object) -> None:  # noqa: ANN401
        if is_federated(pl_module):
            clients = range(len(pl_module.sent.weights))
            self.rounds.append([pl_module.sent.of(client) for client in clients])
            figures = trainer.callback_metrics
            self.logged.append((float(figures["train/bytes_up"]), float(figures["train/bytes_down"])))


def run(
    method: LightningModule, folder: Path, watch: Watch | None = None, epochs: int = 1, **settings: Any  # noqa: ANN401
) -> BoundaryLedger:  # fmt: skip
    data = Synthetic(num_users=USERS, num_items=ITEMS, ratings_per_user=6, batch_size=16, **settings)
    ledger = BoundaryLedger()
    seed_everything(4)
    quiet(
        max_epochs=epochs, logger=CSVLogger(folder), log_every_n_steps=1, num_sanity_val_steps=0, limit_val_batches=0,
        callbacks=[ledger, *([watch] if watch else [])],
    ).fit(method, datamodule=data)  # fmt: skip
    return ledger


def totals(crossings: list[Crossing], number: int, to: str) -> tuple[int, int]:
    found = [c for c in crossings if c.round == number and c.receiver.startswith(to)]
    return sum(c.bytes for c in found), sum(c.whole_table_bytes for c in found)


def shown(crossings: list[Crossing], method: str, federated: bool, width: int = 200) -> list[str]:
    console = Console(width=width, record=True, file=StringIO())
    console.print(boundary_table(crossings, method, federated))
    return console.export_text().splitlines()


def test_a_second_training_begins_anew() -> None:
    ledger, data = BoundaryLedger(), SimpleNamespace(releases={}, links={}, target="music")
    ledger.crossings = [Crossing(1, "a", "b", "rows", 0, (1,), 4, 4, "none", "none", "none")]
    ledger.on_fit_start(SimpleNamespace(datamodule=data), BPR(num_factors=F))  # type: ignore[arg-type]
    assert ledger.crossings == []


@pytest.mark.parametrize("pseudo", [0, 3])
def test_rounds_are_counted_client_by_client(tmp_path: Path, pseudo: int, capsys: pytest.CaptureFixture[str]) -> None:
    watch = Watch()
    ledger = run(FedGNN(num_factors=F, num_layers=LAYERS, num_pseudo_items=pseudo), tmp_path, watch, epochs=2)
    assert [len(clients) for clients in watch.rounds] == [16, 16, 8] * 2
    assert {c.round for c in ledger.crossings} == set(range(1, 7))
    for number, (clients, logged) in enumerate(zip(watch.rounds, watch.logged, strict=True), 1):
        touched = [len(set(client.rows.tolist())) for client in clients]
        model = 4 * LAYERS * F
        down = sum(model + 4 * F * rows for rows in touched)
        up = sum(8 * rows for rows in touched) + sum(client.bytes for client in clients)
        assert up == sum(model + 4 * F * rows + 16 * rows + 8 for rows in touched)
        # Appendix B.2: model and item table, O(F + |I| F), down, and gradients of their size up; the weight is ours.
        paper = len(clients) * 4 * (LAYERS * F + ITEMS * F)
        assert totals(ledger.crossings, number, "clients") == (down, paper)
        assert totals(ledger.crossings, number, "server") == (up, paper + 8 * len(clients))
        assert logged == (up, down)
    # The paper's sum over epochs, each client once in each: T N (F + |I| F) numbers each way.
    every = sum(c.whole_table_bytes for c in ledger.crossings if c.receiver == "clients of music")
    assert every == 4 * 2 * USERS * (LAYERS * F + ITEMS * F)

    (file,) = tmp_path.rglob("boundary.csv")
    written = pl.read_csv(file)
    assert tuple(written.columns) == Crossing._fields
    assert written["bytes"].to_list() == [c.bytes for c in ledger.crossings]
    assert written["shape"][0] == " x ".join(map(str, ledger.crossings[0].shape))
    assert set(written["event"]) == {"NonPrivateEvent"}
    (log,) = tmp_path.rglob("metrics.csv")
    assert pl.read_csv(log)["train/bytes_up"].drop_nulls().to_list() == [up for up, _ in watch.logged]
    said = capsys.readouterr().out
    assert "6 rounds" in said
    assert f"{every + sum(c.whole_table_bytes for c in ledger.crossings if c.receiver == 'server of music'):,}" in said


def test_who_is_left_out_has_asked_and_sent_nothing(tmp_path: Path) -> None:
    watch = Watch(broken=True)
    with pytest.warns(UserWarning, match="1 of 16 clients"):
        ledger = run(FedGNN(num_factors=F, num_layers=LAYERS), tmp_path, watch)
    first = {c.tensor: c for c in ledger.crossings if c.round == 1}
    sent = sum(len(client.rows) for client in watch.rounds[0])
    assert (first["rows changed"].clients, first["rows changed"].shape) == (15, (sent,))
    assert first["weights"].bytes == 15 * 8
    assert first["changes of sending"].shape == (15, LAYERS, F)
    assert first["changes of item rows"].whole_table_bytes == 15 * ITEMS * F * 4
    asked = first["rows requested"]
    assert asked.clients == first["item rows"].clients == first["sending"].clients == 16
    assert asked.shape[0] == first["item rows"].shape[0] > sent
    assert asked.shape[0] - sent <= ITEMS


def test_a_resumed_run_counts_its_own_rounds(tmp_path: Path) -> None:
    def trained(epochs: int, path: Path | None) -> tuple[BoundaryLedger, Trainer]:
        ledger = BoundaryLedger()
        trainer = quiet(max_epochs=epochs, num_sanity_val_steps=0, limit_val_batches=0, callbacks=[ledger])
        data = Synthetic(num_users=USERS, num_items=ITEMS, ratings_per_user=6, batch_size=16)
        trainer.fit(FedGNN(num_factors=F), datamodule=data, ckpt_path=path, weights_only=True)
        return ledger, trainer

    first, trainer = trained(1, None)
    trainer.save_checkpoint(tmp_path / "first.ckpt")
    second, _ = trained(2, tmp_path / "first.ckpt")
    assert {c.round for c in first.crossings} == {1, 2, 3}
    assert {c.round for c in second.crossings} == {4, 5, 6}


class Mine(FedGNN):
    """A method of another package."""


@pytest.mark.thorough
def test_private_rounds_are_counted_by_public_numbers_alone(tmp_path: Path) -> None:
    """Half of 40 clients are expected, each with the whole table; who came, and with which rows, is nowhere."""
    private: dict[str, Any] = {"epsilon": 8.0, "clip": 0.5, "num_rounds": 5, "rate": 0.5}
    method = Mine(num_factors=F, num_layers=LAYERS, **private)
    method.chosen_by_metrics = True  # as in a sweep
    ledger = run(method, tmp_path, epochs=4)
    assert [c.round for c in ledger.crossings] == [n for n in range(1, 6) for _ in range(4)]
    model, table = (20, LAYERS, F), (20, ITEMS, F)
    lines = {(c.receiver, c.tensor, c.clients, c.shape, c.bytes) for c in ledger.crossings}
    assert lines == {
        ("clients of music", "item rows", 20, table, 4 * 20 * ITEMS * F),
        ("clients of music", "sending", 20, model, 4 * 20 * LAYERS * F),
        ("server of music", "changes of item rows", 20, table, 4 * 20 * ITEMS * F),
        ("server of music", "changes of sending", 20, model, 4 * 20 * LAYERS * F),
    }
    for crossing in ledger.crossings:
        if crossing.receiver == "server of music":
            assert (crossing.mechanism, crossing.event) == ("clipped to 0.5", "NonPrivateEvent")
            assert "none against the server, which is trusted" in crossing.privacy
        else:
            assert (crossing.mechanism, crossing.event) == ("DP-FedAvg", "PoissonSampledGaussianEvent")
            assert crossing.privacy.startswith("user (zero out one user), eps 8.00, delta 1e-05, conditional (assumes ")
            assert crossing.privacy == f"{records(method.data, method)['Mine'].summary()}, of all rounds"
            assert "chosen among" in crossing.privacy
    assert (
        not list(tmp_path.rglob("metrics.csv")) or "train/bytes" not in next(tmp_path.rglob("metrics.csv")).read_text()
    )


def test_a_round_made_by_hand() -> None:
    """Two clients, of three and one rows; the second is left out. F is 2 in double precision, the model one number."""
    model = torch.zeros(2, 1)
    sent = ClientUpdates(
        torch.tensor([0, 0, 0]), torch.tensor([4, 5, 9]), torch.zeros(3, 2).double(), {"bias": model},
        torch.tensor([3.0, 0.0]).double(),
    )  # fmt: skip
    fetched = torch.tensor([3, 1])
    down = {c.tensor: (c.clients, c.shape, c.bytes, c.whole_table_bytes) for c in to_clients(7, "a", sent, fetched, 10)}
    assert down == {"item rows": (2, (4, 2), 64, 320), "bias": (2, (2, 1), 8, 8)}
    up = {c.tensor: (c.clients, c.shape, c.bytes, c.whole_table_bytes) for c in to_server(7, "a", sent, fetched, 10)}
    assert up == {
        "rows requested": (2, (4,), 32, 0),
        "rows changed": (1, (3,), 24, 0),
        "changes of item rows": (1, (3, 2), 48, 160),
        "changes of bias": (1, (1, 1), 4, 4),
        "weights": (1, (1,), 8, 8),
    }
    parties = {(c.round, c.sender, c.receiver) for c in to_server(7, "a", sent, fetched, 10)}
    assert parties == {(7, "clients of a", "server of a")}


def test_a_release_crosses_from_domain_to_domain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = Synthetic(num_users=USERS, num_items=ITEMS, ratings_per_user=6)
    seed_everything(4)
    release = EmbeddingPublisher(BPR(num_factors=4), epsilon=4.0, clip=1.0, max_epochs=1).publish(
        data.source("book"), "book"
    )
    path = release.save(tmp_path / "book")
    ledger = run(EMCDR(num_factors=4), tmp_path / "run", releases={"book": path})
    layers, width = release.num_layers, release.width // release.num_layers
    vectors, ids = ledger.crossings
    assert (vectors.tensor, vectors.shape, vectors.bytes) == (
        "vectors",
        (USERS, layers, width),
        4 * USERS * release.width,
    )
    assert (ids.tensor, ids.bytes) == ("user ids", len("".join(release.user_ids.tolist()).encode()))
    for crossing in ledger.crossings:
        assert (crossing.round, crossing.sender, crossing.receiver) == (0, "domain book", "domain music")
        assert crossing.whole_table_bytes == crossing.bytes
        assert (crossing.mechanism, crossing.event) == (release.record.mechanism.name, "GaussianEvent")
        assert crossing.privacy == release.record.summary()
    said = capsys.readouterr().out
    assert "EMCDR is not federated: no client sends anything" in " ".join(said.split())
    assert len(list(tmp_path.rglob("boundary.csv"))) == 1


class Split:
    """A release whose rows lie in two files, with two events alike and one other."""

    ledger = (np.int64(1), np.int64(2), 3.0)
    record = unprotected_record("mine", "no noise")
    user_ids = np.array(["ä", "bc"])


def test_a_release_in_several_files_is_counted_whole(tmp_path: Path) -> None:
    for name, count in (("rows-0", 3), ("rows-1", 2)):
        save_file({"rows": torch.zeros(count, 7)}, tmp_path / f"{name}.safetensors")
    save_file({"items": torch.zeros(4, dtype=torch.int64)}, tmp_path / "tensors.safetensors")
    found = {c.tensor: c for c in released("a", "domain b", Split(), tmp_path)}
    assert (found["rows"].shape, found["rows"].bytes) == ((5, 7), 140)
    assert (found["items"].shape, found["items"].bytes) == ((4,), 32)
    assert found["user ids"].bytes == 4
    assert found["rows"].event == "2 x int64, float"
    assert found["rows"].privacy == "none (no noise)"


def test_a_method_that_is_not_federated_sends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger = run(BPR(num_factors=4), tmp_path)
    assert ledger.crossings == []
    assert "BPR is not federated: no client sends anything" in " ".join(capsys.readouterr().out.split())
    (file,) = tmp_path.rglob("boundary.csv")
    assert file.read_text().strip() == ",".join(Crossing._fields)


def test_names_are_neither_markup_nor_obeyed() -> None:
    name = f"{MARKUP}\x1b[31m"
    crossing = Crossing(0, name, "b", "rows", 0, (1,), 4, 4, "m", "e", "none")
    lines = shown([crossing], "BPR", federated=False)
    assert any(f"{MARKUP}\\x1b[31m" in line for line in lines)


def test_no_figure_is_cut_off_on_a_narrow_terminal() -> None:
    crossing = Crossing(
        1, "server of books", "clients of books", "changes of item rows", 9, (1,), 10**10, 10**12, *"mep"
    )
    lines = [line.split() for line in shown([crossing] * 3, "FedGNN", True, width=80)]
    assert ["all", "30,000,000,000", "3,000,000,000,000"] in lines
