"""BoundaryLedger with FedGCDR: releases, maps and attention, before and after fine-tuning began, counted by hand."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from callbacks import BoundaryLedger
from callbacks.boundary_ledger import Crossing
from datamodules import Synthetic
from tests.zoo.methods.mixed_runs import around, embeddings
from tests.zoo.methods.quiet_trainer import quiet
from zoo import Bridge, BridgePublisher, EmbeddingPublisher, FedGCDR, FedGNN, ProjectionPublisher, Thinned, fit
from zoo.testing.tiny import SYNTHETIC

USERS, ITEMS, F, LAYERS, HIDDEN = 40, 30, 3, 2, 4
DATA: dict[str, Any] = {"num_users": USERS, "num_items": ITEMS, "sources": ["book", "film"], "batch_size": 16}
WIDTHS = {"book": 3, "film": 5}
#: Numbers of a source's map: two layers with their biases.
MAPS = {name: (width + 1) * HIDDEN + (HIDDEN + 1) * F for name, width in WIDTHS.items()}
GAT, TUNING = 2, 1  # epochs


class Watch(Callback):
    """Keeps who is in each round, and how many rows each touched."""

    def __init__(self, broken: bool = False) -> None:
        self.rounds: list[tuple[Tensor, list[int]]] = []
        self.broken = broken

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        if self.broken:
            pl_module.factors[batch.users[0]] = torch.nan

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        self.rounds.append((batch.users, pl_module.fetched.tolist()))


def run(
    folder: Path, members: dict[str, Tensor], broken: bool = False, epochs: int = GAT + TUNING
) -> tuple[list[Crossing], Watch]:
    """A training with sources of these users, and its crossings."""
    torch.manual_seed(3)
    releases = {
        name: embeddings(torch.randn(len(users), LAYERS, WIDTHS[name]), users, name, **DATA).save(folder / name)
        for name, users in members.items()
    }
    ledger, watch = BoundaryLedger(), Watch(broken)
    seed_everything(4)
    trainer = quiet(max_epochs=epochs, num_sanity_val_steps=0, limit_val_batches=0, callbacks=[ledger, watch])
    method = FedGCDR(num_factors=F, num_layers=LAYERS, map_dims=(HIDDEN,), finetune_after=GAT)
    trainer.fit(method, datamodule=around(releases, **DATA))
    return ledger.crossings, watch


def totals(crossings: list[Crossing], number: int, to: str) -> tuple[int, int]:
    found = [c for c in crossings if c.round == number and c.receiver == f"{to} of music"]
    return sum(c.bytes for c in found), sum(c.whole_table_bytes for c in found)


def test_rounds_are_counted_by_hand_before_and_after_fine_tuning_began(tmp_path: Path) -> None:
    """One user alone is in the second source, so in most rounds nobody is."""
    members = {"book": torch.arange(30), "film": torch.tensor([7])}
    crossings, watch = run(tmp_path, members)
    assert len(watch.rounds) == 3 * (GAT + TUNING)
    without_film = 0
    for number, (users, touched) in enumerate(watch.rounds, 1):
        tuning = number > 3 * GAT
        present = {name for name, known in members.items() if bool(torch.isin(users, known).any())}
        without_film += "film" not in present and not tuning
        shared = 0 if tuning else 4 * (LAYERS * F + sum(MAPS[name] for name in present))
        down = sum(shared + 4 * F * rows for rows in touched)
        up = sum(8 * rows + 8 * rows + 4 * F * rows + shared + 8 for rows in touched)
        whole = len(users) * (shared + 4 * ITEMS * F)
        assert totals(crossings, number, "clients") == (down, whole)
        assert totals(crossings, number, "server") == (up, whole + 8 * len(users))
        maps = {
            c.tensor.split("maps.")[1].split(".")[0] for c in crossings if c.round == number and "maps." in c.tensor
        }
        assert maps == (set() if tuning else present)
    assert without_film == 2 * GAT


def test_rounds_within_a_source_stand_in_a_table_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    source = Synthetic(**SYNTHETIC).source("book")
    network = FedGNN(num_factors=F, num_layers=LAYERS)
    publisher = EmbeddingPublisher(network, max_epochs=2, batch_size=8, callbacks=[BoundaryLedger()])
    publisher.publish(source, "book")
    table = capsys.readouterr().out
    assert "FedGNN: what left clients and domains" in table
    assert "clients of book" in table
    assert "server of book" in table
    assert f"{2 * -(-source.num_users // 8)} rounds" in table


def test_it_adds_up_to_appendix_b_where_everybody_is_in_every_source(tmp_path: Path) -> None:
    """T_G N (N_m F^2 + F + |I| F) + T_F N |I| F numbers each way, with a map for each source and a vector for each layer."""
    crossings, _ = run(tmp_path, dict.fromkeys(WIDTHS, torch.arange(USERS)))
    paper = GAT * USERS * (sum(MAPS.values()) + LAYERS * F + ITEMS * F) + TUNING * USERS * ITEMS * F
    for to, weights in (("clients", 0), ("server", 8 * USERS * (GAT + TUNING))):
        found = sum(c.whole_table_bytes for c in crossings if c.round and c.receiver == f"{to} of music")
        assert found == 4 * paper + weights


def test_a_target_publishes_once_and_sends_it_to_all_its_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time the target's projections would cost its users their epsilon."""
    targets, for_target = list[object](), BridgePublisher.for_target
    monkeypatch.setattr(
        BridgePublisher, "for_target", lambda own, target: targets.append(own) or for_target(own, target)
    )
    for epsilon, event, said in (
        (8.0, "GaussianEvent", "user (zero out one user), eps 8.00"),
        (None, "NonPrivateEvent", "none ("),
    ):
        targets.clear()
        projections, ledger = ProjectionPublisher(num_directions=4, epsilon=epsilon), BoundaryLedger()
        publisher = Thinned(BridgePublisher(8.0, projections=projections), 0.9)
        run = fit(Bridge(), Synthetic(**DATA), publisher=publisher, runs=tmp_path, max_epochs=1, callbacks=[ledger])
        assert len([*(run.folder / "releases").glob("*/release.json")]) == 2
        assert len(targets) == 1
        sent = {(c.receiver, c.tensor): c for c in ledger.crossings if c.sender == "domain music"}
        assert sent.keys() == {(f"domain {name}", tensor) for name in WIDTHS for tensor in ("vectors", "user ids")}
        for (_, tensor), crossing in sent.items():
            assert crossing.shape == ((USERS, 1, 4) if tensor == "vectors" else (USERS,))
            assert crossing.bytes == USERS * (4 * 4 if tensor == "vectors" else len("u0001"))
            assert (crossing.event, crossing.privacy[: len(said)]) == (event, said)


def test_who_is_left_out_sends_no_map(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="1 of 16 clients"):
        crossings, _ = run(tmp_path, dict.fromkeys(WIDTHS, torch.arange(USERS)), broken=True, epochs=1)
    first = {c.tensor: c for c in crossings if c.round == 1}
    assert (first["maps.film.1.weight"].clients, first["maps.film.1.weight"].shape) == (16, (16, HIDDEN, 5))
    assert first["changes of maps.film.1.weight"].shape == (15, HIDDEN, 5)
    assert first["changes of sending"].clients == 15


def test_a_release_goes_to_clients_each_its_own_row(tmp_path: Path) -> None:
    members = {"book": torch.arange(30), "film": torch.tensor([7])}
    crossings, _ = run(tmp_path, members, epochs=1)
    released = [c for c in crossings if c.round == 0]
    assert {(c.sender, c.receiver) for c in released} == {(f"domain {name}", "clients of music") for name in WIDTHS}
    for name, known in members.items():
        vectors, ids = (c for c in released if c.sender == f"domain {name}")
        assert (vectors.clients, ids.clients) == (len(known), len(known))
        assert (vectors.tensor, vectors.shape) == ("vectors", (len(known), LAYERS, WIDTHS[name]))
        assert vectors.bytes == 4 * len(known) * LAYERS * WIDTHS[name]
        assert vectors.privacy.startswith("none")
