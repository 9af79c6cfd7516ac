"""``fit --resume``: a run goes on from its folder alone, as the run that it was; and what an interrupted one says and leaves."""

import json
import logging
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import polars as pl
import pytest
import torch
import yaml
from pytorch_lightning import Trainer
from torch import Tensor

import zoo
from datamodules import Evaluation, Files, Filters, Frames, Synthetic
from tests.quickstart import PROJECTED
from zoo import PriCDR
from zoo.commands.run import main
from zoo.methods.checkpoint_identity import ELSEWHERE
from zoo.methods.members import Member
from zoo.methods.target_data import ReleaseMismatchError
from zoo.runs import resume
from zoo.runs.cli import ZooCLI
from zoo.runs.inputs import UsageError
from zoo.testing.tiny import trainer

Command = Callable[..., ZooCLI]
ROOT = Path(__file__).parents[3]


def folder_of(done: ZooCLI) -> Path:
    return Path(str(done.trainer.log_dir)).resolve()


def weights(run: Path) -> dict[str, Tensor]:
    state: dict[str, Tensor] = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    return state


def figures(run: Path) -> dict[str, float]:
    found: dict[str, float] = json.loads((run / "metrics.json").read_text())["metrics"]
    return found


@pytest.mark.thorough
def test_a_run_that_was_moved_goes_on_from_its_folder_and_equals_an_unbroken_one(
    cli: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    half = folder_of(cli("fit", *PROJECTED))
    release = ("--data.releases.book", half / "releases" / "book")
    whole = folder_of(cli("fit", *PROJECTED, *release, "--trainer.max_epochs", "4"))
    moved = half.rename(tmp_path / "a run that was moved")
    settings = (moved / "config.yaml").read_text()
    (moved / "config.yaml").write_text(f"# cdr-zoo 0.3.0; with the callbacks Mine, Other\n{settings}")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = folder_of(cli("fit", "--resume", moved, "--trainer.max_epochs", "4"))
    (moved / "config.yaml").write_text(f"# cdr-zoo 0.3.0; with the callbacks PrivacyBudget\n{settings}")
    with pytest.raises(UsageError, match="Resume it in Python, with the callback"):
        cli("fit", "--resume", moved)
    said = capsys.readouterr().err
    assert "Resuming with changed settings: trainer.max_epochs from 2 to 4." in said
    assert "Resuming without Mine, Other: " in said
    ours, theirs = weights(done), weights(whole)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert figures(done) == figures(whole), "the best epoch of the first half still counts"
    facts = [json.loads((run / "metrics.json").read_text()) for run in (moved, done, whole)]
    stored = torch.load(done / "checkpoints" / "best.ckpt", weights_only=False)["epoch"] + 1
    assert facts[1]["tested_epoch"] == facts[2]["tested_epoch"] == stored
    assert facts[1]["train_seconds"] > facts[0]["train_seconds"], "those of the first half count too"
    saved = yaml.safe_load((done / "config.yaml").read_text())
    assert saved["data"]["init_args"]["releases"] == {"book": str(moved / "releases" / "book")}
    assert not {"resume", "ckpt_path"} & saved.keys()


def test_a_run_resumes_from_its_last_epoch_and_from_its_best_where_it_kept_that_alone(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.yaml").touch()
    for name in ("best.ckpt", "last.ckpt"):
        (tmp_path / "checkpoints" / name).touch()
        assert resume.resume_arguments(tmp_path)[-1] == str(tmp_path / "checkpoints" / name)


def test_other_settings_would_be_another_run(cli: Command, finished: Path) -> None:
    with pytest.raises(UsageError, match=r"these settings changed: model.init_args.lr from 0.001 to 0.5. Omit them"):
        cli("fit", "--resume", finished, "--model.lr", "0.5")
    with pytest.raises(UsageError, match=r"--ckpt_path is other, but --resume chooses the checkpoint"):
        cli("fit", f"--resume={finished}", "--ckpt_path", "other")


def test_what_is_no_run_folder_or_has_no_epoch_is_told(cli: Command, finished: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"checkpoints is no run folder .no config.yaml."):
        cli("fit", "--resume", finished / "checkpoints")
    (tmp_path / "config.yaml").write_bytes((finished / "config.yaml").read_bytes())
    with pytest.raises(UsageError, match=r"has no checkpoint. Start again: python -m zoo fit --config .*yaml"):
        cli("fit", "--resume", tmp_path)


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"trainer": {"max_epochs": 2}}, {"trainer": {"max_epochs": 3}}, "trainer.max_epochs from 2 to 3"),
        ({"trainer": {"max_epochs": 2}}, {"trainer": {"max_epochs": -1}}, "trainer.max_epochs from 2 to -1"),
        ({"data": {"init_args": {"root": "a"}}}, {"data": {"init_args": {"root": "b"}}}, "data.init_args.root from 'a' to 'b'"),
        ({"recommendations": {"top_k": 1}}, {"recommendations": {"top_k": 2}}, "recommendations.top_k from 1 to 2"),
        ({"seed_everything": 1}, {"seed_everything": 1}, ""),
    ],
)  # fmt: skip
def test_what_makes_no_other_run_is_shown(before: dict[str, Any], now: dict[str, Any], said: str) -> None:
    assert resume.check_same_run(before, now) == said


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"trainer": {"max_epochs": 2}}, {"trainer": {"max_epochs": 1}}, "from 2 to 1 (it may only grow)"),
        ({"trainer": {"max_epochs": None}}, {"trainer": {"max_epochs": 9}}, "from None to 9 (it may only grow)"),
        ({"seed_everything": 1}, {"seed_everything": 2}, "seed_everything from 1 to 2"),
        ({"data": {"rooted": 1}}, {"data": {"rooted": 2}}, "data.rooted from 1 to 2"),
        ({"publisher": {"epsilon": 1}}, {"publisher": None}, "publisher.epsilon from 1 to None"),
    ],
)
def test_what_makes_another_run_is_refused(before: dict[str, Any], now: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        resume.check_same_run(before, now)
    assert said in str(refused.value)


def test_the_folder_is_found_among_the_arguments() -> None:
    assert resume.resume_folder(["fit", "--resume", "a b", "--trainer.max_epochs", "3"]) == Path("a b")
    assert resume.resume_folder(["fit", "--resume=a"]) == Path("a")
    assert resume.resume_folder(["fit", "--config", "x", "--resume"]) is None


@pytest.fixture
def chatter() -> Iterator[None]:
    """What a command says to a logger of the libraries, a process of its own would take away with it."""
    logger = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    level = logger.level
    yield
    logger.setLevel(level)


@pytest.mark.thorough
@pytest.mark.usefixtures("chatter")
@pytest.mark.parametrize(
    ("at", "said"),
    [(1, "To resume:\n  python -m zoo fit --resume runs/PriCDR/version_0\n"), (0, "nothing to resume.\n")],
)
def test_an_interrupt_prints_how_to_resume(
    at: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    step = PriCDR.step

    def interrupted(self: PriCDR, batch: Any) -> Any:  # noqa: ANN401
        if self.trainer.current_epoch == at:
            raise KeyboardInterrupt
        return step(self, batch)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PriCDR, "step", interrupted)
    monkeypatch.setattr("sys.argv", ["zoo", "fit", *PROJECTED])
    monkeypatch.setattr("signal.signal", lambda *_: None)  # Lightning's is for good
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == resume.INTERRUPTED == 130
    assert capsys.readouterr().err.endswith(said)


@pytest.mark.usefixtures("chatter")
def test_before_there_is_a_run_it_is_said_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("zoo.commands.run.ZooCLI", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "Interrupted before training started.\n")


@pytest.mark.usefixtures("chatter")
def test_what_wandb_refuses_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoKeyError(Exception):
        __module__ = "wandb.errors.errors"

    monkeypatch.setattr("zoo.commands.run.ZooCLI", Mock(side_effect=NoKeyError("No API key configured.")))
    with pytest.raises(
        SystemExit, match=r"^W&B: NoKeyError: No API key configured\. Without an account: WANDB_MODE=offl"
    ):
        main()
    monkeypatch.setattr("zoo.commands.run.ZooCLI", Mock(side_effect=KeyError("a slip of ours")))
    with pytest.raises(KeyError, match="a slip of ours"):
        main()


def test_a_folder_with_spaces_is_quoted(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "a run").symlink_to(finished)
    assert resume.resume_hint(tmp_path / "a run").endswith(f"--resume '{tmp_path}/a run'")


@pytest.mark.slow
@pytest.mark.processes
def test_a_process_that_is_interrupted_goes_on_by_the_command_that_it_names(tmp_path: Path) -> None:
    endless = [*PROJECTED, "--trainer.max_epochs", "-1", "--trainer.callbacks", "null"]
    run = [sys.executable, "-m", "zoo", "fit", *endless]
    # A shell that runs the suite in the background has interrupts ignored, and a child inherits that.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        run, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heard
    )
    last = tmp_path / "runs" / "PriCDR" / "version_0" / "checkpoints" / "last.ckpt"
    while not last.is_file() and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    command = said.splitlines()[-1].split()
    assert command[-2:] == ["--resume", "runs/PriCDR/version_0"]
    reached = torch.load(last, weights_only=True)["epoch"]
    again = [sys.executable, *command[1:], "--trainer.max_time", "00:00:00:01"]
    done = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    assert torch.load(last.parents[2] / "version_1" / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] > reached


def test_a_start_that_failed_leaves_no_folder(cli: Command, zoo_data: Path, tmp_path: Path) -> None:
    model = ("--model", "BPR", "--trainer.max_epochs", "1")
    with pytest.raises(FileNotFoundError, match="No ratings of 'nothing'"):
        cli("fit", *model, "--data", "Files", "--data.name", "partly", "--data.target", "nothing")
    with pytest.raises(ValueError, match="OneBitMC needs signs"):
        cli("fit", "--model", "OneBitMC", "--model.tau", "5", "--data", "Synthetic", "--trainer.max_epochs", "1")
    assert list(tmp_path.iterdir()) == []
    assert zoo_data.is_dir()


def test_only_an_empty_run_folder_is_taken_away(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "BPR" / "version_0"
    (run / "checkpoints").mkdir(parents=True)
    (run / "hparams.yaml").touch()
    (run / "metrics.csv").touch()
    resume.remove_if_empty(run)
    assert run.is_dir()
    (run / "metrics.csv").unlink()
    (tmp_path / "runs" / "other").touch()
    resume.remove_if_empty(run)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["other"]
    resume.remove_if_empty(run)


def ratings_table(users: range, last: int) -> pl.DataFrame:
    """Return ratings of items 3u to 3u + last (of 60, cyclic), one a day."""
    rows = [(f"u{user}", f"i{(3 * user + day) % 60}", 1, day) for user in users for day in range(last)]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "rating", "timestamp"], orient="row")


FEW = ("--trainer.max_epochs", "1", "--trainer.accelerator", "cpu", "--trainer.enable_progress_bar", "false")
QUIET: dict[str, Any] = {"accelerator": "cpu", "enable_progress_bar": False, "max_epochs": 1}


def warm_start_needs_the_releases_of_the_earlier_run(tmp_path: Path) -> None:
    """Fewer would hide in the record what the weights hold of the others, here of plain ratings; so would a renamed domain."""
    made = partial(Synthetic, num_users=60, num_items=40, evaluation=Evaluation("none"))
    book, movie = made(sources=["book"]), made(sources=["movie"])
    paths = {"book": tmp_path / "book", "movie": tmp_path / "movie"}
    zoo.publish(zoo.NoisyRows(epsilon=4.0), book, paths["book"])
    zoo.publish(zoo.Plaintext(), movie, paths["movie"])
    both = zoo.fit(
        zoo.PriCDR([8]), made(sources=["book", "movie"], releases=paths), runs=tmp_path / "runs", seed=1, **QUIET
    )
    for name in paths:
        other = made(sources=[name], releases={name: paths[name]})
        with pytest.raises(
            ReleaseMismatchError, match=f"from other releases of {'movie' if name == 'book' else 'book'}"
        ):
            zoo.fit(zoo.PriCDR([8]), other, runs=tmp_path / "runs", warm_start=both, **QUIET)
    same = made(sources=["movie", "book"], releases=paths)
    assert zoo.fit(zoo.PriCDR([8]), same, runs=tmp_path / "runs", warm_start=both, **QUIET).folder.is_dir()


PRIVATE: dict[str, Callable[[], zoo.Recommender]] = {
    "SPPG": lambda: zoo.SPPG(epsilon=4.0, steps=40, sample_size=8, condition_dim=4, generator_dims=(8,)),
    "FedGNN": lambda: zoo.FedGNN(num_factors=2, epsilon=4.0, num_rounds=12, rate=0.5, clip=0.1, server="sgd"),
    "OneBitMC": lambda: zoo.OneBitMC(10.0, perturbation=zoo.InputPerturbation(epsilon=8.0), max_iterations=6),
}


@pytest.mark.parametrize("name", PRIVATE)
def test_a_private_training_goes_on_with_the_steps_that_it_began_with(name: str, tmp_path: Path) -> None:
    """Equal ratings after other steps have other conditions, which the record of the last steps does not state."""

    def data(threshold: float | str) -> Frames:
        table = ratings_table(range(16), 8).with_columns(pl.int_range(pl.len()).mod(5).add(1.0).alias("rating"))
        kept = Filters(threshold=threshold, signs=name == "OneBitMC")
        return Frames(table, filters=kept, evaluation=Evaluation(split="none"), batch_size=8)

    def fit(method: zoo.Recommender, ratings: Frames, epochs: int, **resumed: Any) -> Trainer:  # noqa: ANN401
        done = trainer(tmp_path, epochs=epochs, limit_val_batches=0, limit_train_batches=1 if epochs == 1 else 1.0)
        done.fit(method, datamodule=ratings, **resumed)
        return done

    last = {"ckpt_path": tmp_path / "first.ckpt", "weights_only": True}
    fit(first := PRIVATE[name](), data(3), 1).save_checkpoint(last["ckpt_path"])
    fit(resumed := PRIVATE[name](), data(3), 9, **last)
    assert (record := resumed.privacy_record()) is not None
    assert record.claims
    for other in (2.5, "mean"):
        said = rf"private.* other steps \(.*ratings >= 3.*ratings >= {'the mean' if other == 'mean' else other}"
        with pytest.raises(ReleaseMismatchError, match=said):
            fit(PRIVATE[name](), data(other), 9, **last)
    with pytest.raises(ReleaseMismatchError, match="private"):
        trainer(tmp_path).test(PRIVATE[name](), data(2.5), **last)
    second = fit(first, data(2.5), 9)
    second.save_checkpoint(tmp_path / "second.ckpt")
    fit(third := PRIVATE[name](), data(2.5), 9, ckpt_path=tmp_path / "second.ckpt", weights_only=True)
    for method in (first, third):
        assert (record := method.privacy_record()) is not None
        assert record.reason == ELSEWHERE
    kept = torch.load(last["ckpt_path"], weights_only=True)
    del kept["zoo"]["steps"]
    torch.save(kept, last["ckpt_path"])
    with pytest.raises(ReleaseMismatchError, match="not stated"):
        fit(PRIVATE[name](), data(3), 9, **last)


@pytest.mark.thorough
def test_a_warm_start_takes_factors_by_id_and_keeps_those_of_new_ones(
    cli: Command, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ratings_table(range(16), 8).write_csv(tmp_path / "old.csv")
    ratings_table(range(2, 20), 9).write_csv(tmp_path / "new.csv")
    old = zoo.fit(zoo.BPR(8), Files("files", "old", root=tmp_path), runs=tmp_path / "runs", seed=1, **QUIET)
    new = zoo.fit(
        zoo.BPR(8, lr=1e-9), Files("files", "new", root=tmp_path), runs=tmp_path, seed=2, warm_start=old, **QUIET
    )
    assert "Warm start: 14 users taken, 4 new, 2 gone; " in capsys.readouterr().out
    for table, ids in (("users", "user_ids"), ("items", "item_ids")):
        ours, theirs = (getattr(run.method.factors, table).weight for run in (new, old))
        before = getattr(old.data.train, ids).tolist()
        for row, one in enumerate(getattr(new.data.train, ids).tolist()):
            same = one in before and torch.allclose(ours[row], theirs[before.index(one)], atol=1e-6)
            assert same == (one in before), "new ones keep their random start"
    again = zoo.fit(zoo.BPR(8), new.data, runs=tmp_path, warm_start=new, **QUIET)  # the same ratings
    second = zoo.fit(
        old.method, Files("files", "old", root=tmp_path, evaluation=Evaluation("none")), runs=tmp_path, **QUIET
    )
    for number, (run, stated) in enumerate([(old, False), (new, True), (again, True), (second, True)]):
        text = (zoo.export(run.folder, tmp_path / f"bundle-{number}") / "README.md").read_text()
        assert ("**The weights were also learned from other ratings**" in text) == stated
    everything = Files("files", "new", root=tmp_path, evaluation=Evaluation("none"))
    whole = zoo.fit(zoo.BPR(8), everything, runs=tmp_path, keep_ratings=True, **QUIET)
    held_out = len(new.data.validation.users) + len(new.data.test.users)
    with pytest.raises(UsageError, match=f"was trained on {held_out} held-out ratings of this split"):
        zoo.fit(zoo.BPR(8), Files("files", "new", root=tmp_path), runs=tmp_path, warm_start=whole, **QUIET)
    with pytest.raises(UsageError, match=r"factors.users.weight is \(16, 8\) in the earlier run, \(18, 4\) here"):
        zoo.fit(zoo.BPR(4), Files("files", "new", root=tmp_path), runs=tmp_path, warm_start=old, **QUIET)
    with pytest.raises(UsageError, match=r"trained zoo.BPR, not NeuMF"):
        zoo.fit(zoo.NeuMF(), Files("files", "new", root=tmp_path), runs=tmp_path, warm_start=old, **QUIET)
    data = ("--data", "datamodules.Files", "--data.name", "files", "--data.root", tmp_path, "--data.target", "new")
    run = folder_of(cli("fit", "--model", "BPR", "--model.num_factors", "8", *data, *FEW, "--warm_start", old.folder))
    assert yaml.safe_load((run / "config.yaml").read_text())["warm_start"] == str(old.folder)
    shutil.rmtree(run / "target")
    with pytest.raises(UsageError, match="has no training ratings, so its ids are unknown"):
        zoo.fit(zoo.BPR(8), Files("files", "new", root=tmp_path), runs=tmp_path, warm_start=run, **QUIET)
    warm_start_needs_the_releases_of_the_earlier_run(tmp_path)


@pytest.mark.parametrize("name", ["BPR", "DMF", "GANMF", "IALS", "LightGCN", "MultVAE", "NeuMF"])
def test_weights_are_copied_by_row_or_whole(name: str) -> None:
    """Sizes 23 and 29, 24 and 27 occur in no layer, so a loop over shapes says whose rows a weight has."""
    earlier, method = getattr(zoo, name)(), getattr(zoo, name)()
    earlier._build_once({"num_users": 23, "num_items": 29, "sources": {}})
    method._build_once({"num_users": 24, "num_items": 27, "sources": {}})
    at = {"users": torch.randperm(24) - 1, "items": torch.randperm(29)[:27] - 1}
    before = {key: value.clone() for key, value in method.state_dict().items()}
    resume._copy_weights(method, earlier.state_dict(), at)
    for key, value in method.state_dict().items():
        theirs, owner = earlier.state_dict()[key], {24: "users", 27: "items"}.get(len(value) if value.ndim else 0)
        expected = (
            theirs
            if owner is None
            else [theirs[i] if i >= 0 else own for i, own in zip(at[owner], before[key], strict=True)]
        )
        assert torch.equal(value, torch.stack([*expected]) if owner else theirs), key


@pytest.mark.parametrize(
    ("method", "why"),
    [
        (zoo.EASE(), "EASE cannot start from run: it has no factors"),
        (zoo.FedGNN(), "FedGNN cannot start from run: its guarantee assumes a random start"),
        (zoo.Ensemble({"ease": Member(zoo.EASE())}), "Ensemble cannot start from run: it has no factors"),
    ],
)
def test_a_method_without_factors_is_refused_by_name(method: zoo.Recommender, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        resume.WarmStart(Path("run"), method)


def test_weights_that_belong_to_no_user_or_item_are_refused() -> None:
    method = zoo.CFGAN()
    method._build_once({"num_users": 23, "num_items": 29, "sources": {}})
    with pytest.raises(UsageError, match=r"CFGAN cannot start from a run: discriminator.first.weight has no row"):
        resume._copy_weights(method, method.state_dict(), {})
