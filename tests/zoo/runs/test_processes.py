"""Several processes of one run: what is refused before there are any, who speaks, and what ends the others."""

import signal
from pathlib import Path
from unittest.mock import Mock

import pytest
from pytorch_lightning import Trainer
from pytorch_lightning.utilities import rank_zero_only

from datamodules import Synthetic
from tests.tiny import SIZES
from zoo import BPR, EASE, SPPG, FedGNN, Plaintext, publish
from zoo.release.release import Release
from zoo.runs import processes
from zoo.runs.checks import check_run
from zoo.runs.inputs import UsageError
from zoo.runs.processes import LostProcessError, is_first, kill_on_failure, let_the_first_speak

#: What gloo of torch 2.13 says in the process that is left.
GLOO = (
    "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [127.0.0.1]:23474: Connection reset by "
    "peer. This is typically caused by a remote worker hanging"
)


def trainer_of_two() -> Trainer:
    return Trainer(accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False)


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the second process of a run."""
    monkeypatch.setattr(rank_zero_only, "rank", 1)


def test_what_one_process_has_to_train_is_refused_before_there_are_two() -> None:
    check_run(BPR(), Synthetic(), trainer_of_two())
    check_run(FedGNN(), Synthetic(), trainer_of_two())
    for method in (EASE(), SPPG(), FedGNN(epsilon=8.0, clip=0.5)):
        with pytest.raises(ValueError, match=r"one process, .*got 2 processes|one process; got 2 processes"):
            check_run(method, Synthetic(), trainer_of_two())


def test_others_wait_for_the_first_to_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(processes.time, "sleep", slept.append)
    monkeypatch.setattr(rank_zero_only, "rank", 0)
    assert is_first()
    let_the_first_speak()
    assert slept == []
    monkeypatch.setattr(rank_zero_only, "rank", 3)
    assert not is_first()
    let_the_first_speak()
    assert slept == [processes.PATIENCE]


def test_one_that_fails_ends_those_that_it_has_started() -> None:
    trainer = Mock(world_size=2)
    with pytest.raises(ValueError, match="a slip"), kill_on_failure(trainer):
        raise ValueError("a slip")
    trainer.strategy.launcher.kill.assert_called_once_with(signal.SIGKILL)
    alone = Mock(world_size=1)
    alone.strategy.launcher = None  # nothing was started
    with pytest.raises(RuntimeError, match="Connection reset by peer"), kill_on_failure(alone):
        raise RuntimeError(GLOO)


def test_one_that_is_left_says_so() -> None:
    with pytest.raises(LostProcessError, match="One of the 2 processes ended"), kill_on_failure(Mock(world_size=2)):
        raise RuntimeError(GLOO)
    with pytest.raises(RuntimeError, match="shapes"), kill_on_failure(Mock(world_size=2)):
        raise RuntimeError("shapes do not fit")


@pytest.mark.usefixtures("second")
def test_another_process_publishes_nothing_and_reads_what_the_first_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = Synthetic(**SIZES["Synthetic"])
    with pytest.raises(UsageError, match=r"No release at .* yet, and only the first process"):
        publish(Plaintext(), data, tmp_path / "book")
    assert not (tmp_path / "book").exists()
    with monkeypatch.context() as first:
        first.setattr(rank_zero_only, "rank", 0)
        released = publish(Plaintext(), data, tmp_path / "book")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "book").iterdir()}
    found = publish(Plaintext(), data, tmp_path / "book", budget=tmp_path / "no budget")
    assert isinstance(found, Release)
    assert found.digest == Release.load(tmp_path / "book").digest
    assert (found.domain, found.num_users) == (released.domain, released.num_users)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "book").iterdir()} == before
