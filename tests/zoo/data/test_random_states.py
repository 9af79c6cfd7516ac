"""Random states of a training: kept of every process, each gone on from by its own."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from pytorch_lightning import Trainer

from datamodules import Synthetic
from tests.tiny import SIZES
from zoo import DMF
from zoo.data.random_states import go_on_from, kept_states, random_states

ROOT = Path(__file__).parents[3]
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
        go_on_from(states, rank, CPU)
        assert torch.equal(torch.rand(3), drawn[rank])


def test_a_process_that_there_was_none_of_goes_on_as_it_is() -> None:
    states = random_states(CPU)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    go_on_from(states, 1, CPU)
    assert torch.equal(torch.rand(3), expected)


def test_all_processes_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def gather(into: list[object], own: object) -> None:
        into[:] = [f"of rank {rank}" for rank in range(len(into))]

    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 3)
    monkeypatch.setattr(torch.distributed, "all_gather_object", gather)
    assert random_states(CPU) == ["of rank 0", "of rank 1", "of rank 2"]


def test_a_checkpoint_of_before_holds_one_process() -> None:
    state = torch.get_rng_state()
    assert kept_states([state]) == [[state]]
    assert kept_states([state, state]) == [[state, state]], "of a processor and a GPU"
    assert kept_states([[state], [state]]) == [[state], [state]]


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
    with pytest.warns(
        UserWarning, match="a training by 2 processes, and 1 go on: with other batches and random numbers"
    ):
        fitted(2, tmp_path / "two.ckpt")


#: Each process draws as many numbers as its rank says, so that their streams part.
SCRIPT = """
import sys, torch
from pathlib import Path
from pytorch_lightning import Trainer, seed_everything
from datamodules import Synthetic
from tests.tiny import SIZES
from zoo import DMF

class Drawing(DMF):
    def step(self, batch):
        outputs = super().step(batch)
        return outputs | {"loss": outputs["loss"] * torch.rand(3 * self.global_rank + 1).sum()}

def fitted(name, epochs, ckpt=None):
    seed_everything(0)
    trainer = Trainer(
        max_epochs=epochs, devices=2, strategy="ddp", accelerator="cpu", logger=False, enable_progress_bar=False,
        enable_model_summary=False, enable_checkpointing=False,
    )
    trainer.fit(Drawing(**SIZES["DMF"]), datamodule=Synthetic(**SIZES["Synthetic"]), ckpt_path=ckpt, weights_only=True)
    trainer.save_checkpoint(Path(sys.argv[1]) / name)

fitted("whole.ckpt", 3)
fitted("half.ckpt", 1)
fitted("resumed.ckpt", 3, Path(sys.argv[1]) / "half.ckpt")
"""


@pytest.mark.slow
@pytest.mark.processes
def test_two_processes_resumed_equal_two_that_were_not_interrupted(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, str(tmp_path / "script.py"), str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    whole, resumed = (torch.load(tmp_path / f"{name}.ckpt", weights_only=True) for name in ("whole", "resumed"))
    states = whole["zoo"]["rng"]
    assert len(states) == 2
    assert not torch.equal(states[0][0], states[1][0]), "the streams have parted"
    for name, values in whole["state_dict"].items():
        assert torch.equal(values, resumed["state_dict"][name]), name
    assert all(torch.equal(*pair) for pair in zip(*(c["zoo"]["rng"][1] for c in (whole, resumed)), strict=True))
