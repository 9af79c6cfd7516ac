"""Random states of a training: kept of every process, each gone on from by its own."""

from pathlib import Path

import pytest
import torch
from pytorch_lightning import Trainer

from datamodules import Synthetic
from tests.tiny import SIZES
from zoo import DMF
from zoo.data.training_batches import Share, random_states, restore_state, saved_states, separate_streams

CPU = torch.device("cpu")


def test_a_process_goes_on_with_its_own() -> None:
    states = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        states += random_states(CPU)
    drawn = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        drawn.append(torch.rand(3))
    for rank in (1, 0):
        torch.manual_seed(7)
        restore_state(states, rank, CPU)
        assert torch.equal(torch.rand(3), drawn[rank])


def test_streams_of_processes_part_and_the_first_goes_on_as_alone() -> None:
    drawn = []
    for rank in (0, 1, 2, 1):
        torch.manual_seed(7)
        separate_streams(rank)
        drawn.append(torch.rand(3))
    torch.manual_seed(7)
    assert torch.equal(drawn[0], torch.rand(3))
    assert torch.equal(drawn[1], drawn[3])
    assert len({tuple(numbers.tolist()) for numbers in drawn}) == 3


def test_a_process_that_there_was_none_of_gets_a_stream_of_its_own() -> None:
    states, drawn = random_states(CPU), []
    for rank, seed in ((0, 7), (1, 7), (1, 8)):
        torch.manual_seed(seed)
        restore_state(states, rank, CPU)
        drawn.append(torch.rand(3))
    assert not torch.equal(drawn[0], drawn[1])
    assert torch.equal(drawn[1], drawn[2]), "a run that goes on repeats"


def test_all_processes_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(into: list[object], own: object) -> None:
        into[:] = [f"of rank {rank}" for rank in range(len(into))]

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    assert random_states(CPU) == ["of rank 0", "of rank 1", "of rank 2"]


def test_a_checkpoint_of_before_holds_one_process() -> None:
    state = torch.get_rng_state()
    assert saved_states([state]) == [[state]]
    assert saved_states([state, state]) == [[state, state]], "of a processor and a GPU"
    assert saved_states([[state], [state]]) == [[state], [state]]


def test_another_number_of_processes_is_told_of(tmp_path: Path) -> None:
    def fitted(epochs: int, ckpt: Path | None = None) -> Trainer:
        trainer = Trainer(
            max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, limit_val_batches=0, limit_train_batches=1,
        )  # fmt: skip
        data = Synthetic(**SIZES["Synthetic"])
        trainer.fit(DMF(**SIZES["DMF"]), datamodule=data, ckpt_path=ckpt, weights_only=True)
        return trainer

    fitted(1).save_checkpoint(tmp_path / "one.ckpt")
    checkpoint = torch.load(tmp_path / "one.ckpt", weights_only=True)
    checkpoint["zoo"]["rng"] *= 2
    torch.save(checkpoint, tmp_path / "two.ckpt")
    with pytest.warns(UserWarning, match="has 1 processes; the checkpoint was trained with 2. Use 2"):
        fitted(2, tmp_path / "two.ckpt")


def test_a_training_parts_its_streams_by_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    parted: list[int] = []
    monkeypatch.setattr("zoo.methods.checkpoint_identity.separate_streams", parted.append)
    monkeypatch.setattr("zoo.methods.checkpoint_identity.share_of", lambda _: Share(3, 4))
    trainer = Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0, limit_train_batches=1,
    )  # fmt: skip
    trainer.fit(DMF(**SIZES["DMF"]), datamodule=Synthetic(**SIZES["Synthetic"]))
    assert parted == [3]
