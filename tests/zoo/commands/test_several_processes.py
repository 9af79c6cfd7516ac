"""Runs of two processes as somebody starts them: what is said once, what a death ends, what is published, and how they go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import polars as pl
import pytest
import torch

from tests.contracts.test_two_processes import free_port
from tests.quickstart import PROJECTED
from tests.tiny import arguments
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.spending.budget import Budget, Cap
from zoo.release.release import Release

ROOT = Path(__file__).parents[3]
OVERLAYS = ROOT / "configs" / "overlays"
ZOO = [sys.executable, "-m", "zoo"]
TWO = ["--trainer.accelerator", "cpu", "--trainer.devices", "2", "--trainer.strategy", "ddp"]
BPR = ["--model", "BPR", *arguments("model", "BPR"), "--data", "Synthetic", *arguments("data", "Synthetic")]
ENDLESS = [*BPR, *TWO, "--trainer.max_epochs", "-1", "--trainer.enable_progress_bar", "false"]
SENTENCE = "One of the 2 processes ended, usually for lack of memory"

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def done(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A command that has come to its end."""
    own = {name: value for name, value in os.environ.items() if name not in ("LOCAL_RANK", "PL_GLOBAL_SEED")}
    return subprocess.run(
        command, cwd=folder, env={**own, "PYTHONPATH": str(ROOT), **environment}, capture_output=True, text=True,
        check=False, timeout=600
    )  # fmt: skip


def fit(folder: Path, *asked: str) -> Path:
    """The folder of a run that two processes have finished."""
    finished = done([*ZOO, "fit", *asked, *TWO], folder)
    assert finished.returncode == 0, finished.stderr
    return folder / finished.stdout.split("Run folder: ")[1].strip()


def children(process: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A training by two processes that has kept an epoch and does not end by itself."""
    # A shell that runs the suite in the background has interrupts ignored, and a child inherits that.
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        [*ZOO, "fit", *ENDLESS], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, preexec_fn=heard,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )  # fmt: skip
    last = tmp_path / "runs" / "BPR" / "version_0" / "checkpoints" / "last.ckpt"
    while not last.is_file() and process.poll() is None:
        time.sleep(0.1)
    others = children(process.pid)
    yield process
    for one in (process.pid, *others):
        if alive(one):
            os.kill(one, signal.SIGKILL)
    process.wait()


@pytest.mark.parametrize("dying", ["the first", "the second"])
def test_one_that_dies_ends_the_other_within_seconds(running: subprocess.Popen[str], dying: str) -> None:
    (second,) = children(running.pid)
    os.kill(second if dying == "the second" else running.pid, signal.SIGKILL)
    _, said = running.communicate(timeout=90)  # seconds, on a machine that does nothing else
    assert running.returncode != 0
    ends = time.monotonic() + 90
    while alive(second) and time.monotonic() < ends:
        time.sleep(0.1)
    assert not alive(second), "no orphan"
    assert "Traceback" not in said
    if running.returncode == 1:  # Lightning's own watch may be earlier, and kills
        assert said.count(SENTENCE) == 1
        assert said.rstrip().endswith("python -m zoo fit --resume runs/BPR/version_0")


def test_who_interrupts_both_is_told_once_how_to_go_on(running: subprocess.Popen[str]) -> None:
    (second,) = children(running.pid)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=90)
    assert running.returncode == 130, said
    assert said.count("Interrupted. To resume:\n  python -m zoo fit --resume runs/BPR/version_0") == 1
    assert not alive(second)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            ["--model", "EASE", "--data", "Synthetic"],
            "EASE is solved by one process; got 2 processes. Set trainer.devices to 1.",
        ),
        (
            ["--model", "SPPG", "--data", "Synthetic"],
            "SPPG takes its steps in one process, since what is accounted for",
        ),
        ([*BPR[:2], "--data", "Files", "--data.name", "nothing", "--data.target", "books"], "No ratings of 'books' in"),
    ],
    ids=["closed form", "private", "no data"],
)
def test_what_is_refused_is_said_once(tmp_path: Path, asked: list[str], message: str) -> None:
    refused = done([*ZOO, "fit", *asked, *TWO], tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.count(message) == 1
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "runs").exists()


def by_torchrun(folder: Path, *asked: str) -> tuple[int, str]:
    """Exit code and standard error of a command that torchrun starts twice."""
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--master-port",
        str(free_port()),
    ]
    ended = done([*torchrun, "-m", "zoo", "fit", *asked, *TWO], folder)
    return ended.returncode, ended.stderr


def by_slurm(folder: Path, *asked: str) -> tuple[int, str]:
    """The same of two tasks on one node, by the variables that srun sets."""
    shared = {
        "SLURM_JOB_ID": "1", "SLURM_JOB_NAME": "zoo", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NODEID": "0",
        "SLURM_JOB_NODELIST": "localhost", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())
    }  # fmt: skip
    tasks = [
        subprocess.Popen(
            [*ZOO, "fit", *asked, *TWO], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **shared, "SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank)}
        )
        for rank in range(2)
    ]  # fmt: skip
    said = [task.communicate(timeout=600)[1] for task in tasks]
    return max(task.returncode for task in tasks), "".join(said)


@pytest.mark.parametrize("started", [by_torchrun, by_slurm])
def test_two_that_were_started_from_outside_train(tmp_path: Path, started: partial[tuple[int, str]]) -> None:
    code, said = started(tmp_path, "--config", str(OVERLAYS / "ddp.yaml"), *BPR, "--trainer.max_epochs", "2")
    assert code == 0, said
    assert [run.name for run in (tmp_path / "runs" / "BPR").iterdir()] == ["version_0"]
    cases = pl.read_parquet(tmp_path / "runs" / "BPR" / "version_0" / "test_cases.parquet")
    assert len(cases) == len(cases.unique(["user_id", "item_id"])) == 23, "of 24; training does not know one item"


def test_two_that_were_started_from_outside_do_not_publish_and_say_so(tmp_path: Path) -> None:
    code, said = by_torchrun(tmp_path, *PROJECTED)
    assert code == 1
    assert "UsageError: Processes of torchrun, SLURM or several nodes cannot publish" in said
    assert not (tmp_path / "runs").exists()


def test_tables_lie_in_parts_behind_any_config_of_bpr(tmp_path: Path) -> None:
    parts = ("--config", str(ROOT / "configs/bpr/ml_100k.yaml"), "--config", str(OVERLAYS / "sharded.yaml"))
    asked = [*parts, *BPR[4:], "--trainer.accelerator", "cpu", "--trainer.devices", "2", "--trainer.max_epochs", "1"]
    finished = done([*ZOO, "fit", *asked], tmp_path, PYTHONPATH=f"{ROOT}:{ROOT / 'examples'}")
    assert finished.returncode == 0, finished.stderr
    assert "processes take" not in finished.stdout, "all have the same batch"
    run = tmp_path / "runs" / "ShardedBPR" / "version_0"
    kept = torch.load(run / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    assert kept["factors.items.weight"].shape == (30, 64), "whole in the checkpoint"
    assert len(pl.read_parquet(run / "test_cases.parquet")) == 23


# What is published, and how a run goes on.

SCRIPT = """
import sys
import zoo
from datamodules import Synthetic
from zoo import JLT, PriCDR

sizes = {"num_users": 24, "num_items": 30, "ratings_per_user": 6}
out, budget = sys.argv[1:]
release = zoo.publish(JLT(epsilon=8.0, num_components=8), Synthetic(**sizes), out, budget=budget)
run = zoo.fit(
    PriCDR(dims=(8, 4)), Synthetic(**sizes, releases={"book": out}), max_epochs=1, accelerator="cpu", devices=2, strategy="ddp",
    enable_progress_bar=False,
)
assert run.test()["test/full/ndcg@10"] >= 0
print("digest", release.digest, flush=True)
"""


def test_a_script_of_two_processes_publishes_once_and_pays_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    budget = Budget.create(tmp_path / "spent.jsonl", Cap(20.0, 1e-4, Relation.CHANGE_ONE_RATING))
    ended = done([sys.executable, "script.py", "released", str(budget.path)], tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert len(Budget(budget.path).entries) == 1
    digests = [line.split()[1] for line in ended.stdout.splitlines() if line.startswith("digest")]
    assert digests == [Release.load(tmp_path / "released").digest] * 2


def test_what_is_published_here_is_shared_and_a_run_goes_on_exactly(tmp_path: Path) -> None:
    long = ("--trainer.max_epochs", "3")
    whole = fit(tmp_path, *PROJECTED, *long)
    assert sorted(path.name for path in (whole / "releases").iterdir()) == ["book", "publisher.json"]
    released = ("--data.releases.book", str(whole / "releases" / "book"))
    half = fit(tmp_path, *PROJECTED, *released, "--trainer.max_epochs", "1")
    gone_on = fit(tmp_path, "--resume", str(half), *long)
    ours, theirs = (torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (whole, gone_on))
    assert ours["epoch"] == theirs["epoch"] == 2
    assert all(torch.equal(values, theirs["state_dict"][name]) for name, values in ours["state_dict"].items())
    figures = [json.loads((run / "metrics.json").read_text())["metrics"] for run in (whole, gone_on)]
    assert figures[0] == figures[1]
