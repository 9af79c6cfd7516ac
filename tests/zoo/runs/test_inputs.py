"""Where the inputs of a run come from: what settings name goes first, and who may publish."""

import json
import os
from pathlib import Path

import pytest
import torch
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from pytorch_lightning import Trainer

from datamodules import Evaluation, Files, Synthetic
from datamodules.alignment import UserMismatchError
from datamodules.public_lists import COMMON, OWN
from zoo import Plaintext
from zoo.publishers.base import PlannedRelease, PublicSizes
from zoo.runs.inputs import HANDOVER, Inputs, UsageError, resolve


class StartedFromOutside(LightningEnvironment):
    """As torchrun and SLURM start processes."""

    @property
    def creates_processes_externally(self) -> bool:
        return True


def trainer_of(processes: int, *plugins: LightningEnvironment) -> Trainer:
    strategy = "ddp" if processes > 1 else "auto"
    return Trainer(accelerator="cpu", devices=processes, strategy=strategy, plugins=list(plugins), logger=False)


def test_what_is_named_goes_before_what_others_have() -> None:
    ours = Inputs({"book": Path("a")}, OWN)
    theirs = Inputs({"film": Path("b"), "book": Path("c")}, "listed.csv")
    assert ours.with_defaults(theirs) == Inputs({"book": Path("a"), "film": Path("b")}, OWN)
    assert list(ours.with_defaults(theirs).releases) == ["book", "film"]
    assert Inputs({}, COMMON).with_defaults(theirs).users == "listed.csv"


def test_inputs_are_kept_as_plain_values_and_named_whole() -> None:
    inputs = Inputs({"book": Path("a")}, "listed.csv")
    assert Inputs.from_plain(json.loads(json.dumps(inputs.plain()))) == inputs
    assert inputs.absolute() == Inputs({"book": Path("a").resolve()}, str(Path("listed.csv").resolve()))
    assert Inputs({}, OWN).absolute().users == OWN


def test_what_a_run_made_itself_is_taken_from_where_its_folder_lies_now(tmp_path: Path) -> None:
    kept = Inputs({"book": Path("/old/releases/book"), "film": Path("/partner/film")}, "/old/users.csv")
    assert kept.relocated(tmp_path, kept) == kept, "there is nothing"
    for name in ("book", "film"):
        (tmp_path / "releases" / name).mkdir(parents=True)
    (tmp_path / "users.csv").touch()
    ours = {"book": tmp_path / "releases" / "book", "film": Path("/partner/film")}
    assert kept.relocated(tmp_path, kept) == Inputs(ours, str(tmp_path / "users.csv"))
    named = Inputs({"book": Path("/new/releases/book")}, "agreed.csv")
    assert named.relocated(tmp_path, kept) == named, "what somebody names is meant"
    assert Inputs({}, OWN).relocated(tmp_path, Inputs({}, OWN)) == Inputs({}, OWN)


def test_a_process_that_was_started_takes_what_the_first_hands_over(monkeypatch: pytest.MonkeyPatch) -> None:
    handed = Inputs({"book": Path("/releases/book")}, OWN)
    monkeypatch.setenv(HANDOVER, json.dumps(handed.plain()))
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert resolve(Synthetic(), trainer_of(1), reads=True) == handed
    monkeypatch.setenv("LOCAL_RANK", "0")
    with pytest.raises(UsageError, match="publisher is not set"):
        resolve(Synthetic(), trainer_of(1), reads=True)


def test_what_needs_no_release_publishes_none() -> None:
    assert resolve(Synthetic(), trainer_of(1), reads=False) == Inputs({}, OWN)
    assert HANDOVER not in os.environ


def test_processes_that_were_started_from_outside_do_not_publish() -> None:
    with pytest.raises(
        UsageError, match=r"torchrun, SLURM or several nodes cannot publish.*Run `python -m zoo publish` first"
    ):
        resolve(Synthetic(), trainer_of(2, StartedFromOutside()), reads=True)
    with pytest.raises(UsageError, match="publisher is not set"):  # so these may
        resolve(Synthetic(), trainer_of(2), reads=True)
    with pytest.raises(UsageError, match="publisher is not set"):
        resolve(Synthetic(), trainer_of(1, StartedFromOutside()), reads=True)


class Careless(Plaintext):
    """Draws from the random numbers of everybody."""

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        torch.rand(1)
        return super().prepare(sizes)


def test_publishing_leaves_the_runs_random_numbers_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv(HANDOVER, "")  # so that what is handed over goes with the test
    before = torch.get_rng_state()
    data = Synthetic(num_users=24, num_items=30, ratings_per_user=6)
    assert list(resolve(data, trainer_of(1), reads=True, publisher=Careless()).releases) == ["book"]
    assert torch.equal(torch.get_rng_state(), before)


class Counted(Plaintext):
    """Remembers what it has been asked to publish."""

    def __init__(self) -> None:
        self.asked = 0

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        self.asked += 1
        return super().prepare(sizes)


@pytest.mark.usefixtures("zoo_data")
@pytest.mark.parametrize("last", ["strangers", "absent"])
def test_nothing_is_published_where_a_later_source_does_not_fit(
    last: str, zoo_data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for domain in ("left", "right"):
        (tmp_path / f"{domain}.csv").write_text((zoo_data / "partly" / f"{domain}.csv").read_text())
    (tmp_path / "strangers.csv").write_text("user_id,item_id,rating,timestamp\nnobody,i0,4,1\n")
    publisher = Counted()
    monkeypatch.setenv(HANDOVER, "")
    split = Evaluation(split="random2")
    data = Files("made", "left", ["right", last], root=tmp_path, missing_users="zero", evaluation=split)
    with pytest.raises((UserMismatchError, FileNotFoundError), match=r"The source 'strangers'|No ratings of 'absent'"):
        resolve(data, trainer_of(1), reads=True, publisher=publisher)
    assert publisher.asked == 0
