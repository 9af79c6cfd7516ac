"""The shipped sweep by the real `wandb sweep` and `wandb agent`, against a stand-in for W&B's server on this machine."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.callbacks.wandb_stand_in import ENTITY, SWEEP, standing_in
from tests.tiny import arguments
from tests.wandb_log import told

ROOT = Path(__file__).parent.parent.parent
SHIPPED = ROOT / "configs" / "sweeps" / "pricdr.yaml"
DATA = arguments("data", "Synthetic")
TINY = [*arguments("model", "PriCDR"), *DATA, "--trainer.max_epochs", "1"]
PUBLISH = ["publish", "--config", "configs/pricdr/quickstart.yaml", *DATA, *arguments("publisher", "JLT")]
TRIALS = [{"model.lr": 0.001, "model.alignment_weight": 2.5}, {"model.lr": 0.004, "model.alignment_weight": 0.25}]


def environment(folder: Path, url: str) -> dict[str, str]:
    """That of somebody with a key, whose `python` is this one, and whose runs stay on this machine."""
    (folder / "bin").mkdir()
    (folder / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    (folder / "bin" / "python").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "PL_"))}
    own = ("WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR")
    return kept | {name: str(folder / "own") for name in own} | {
        "NETRC": str(folder / "netrc"),
        "NO_PROXY": "127.0.0.1",
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "WANDB_API_KEY": "0123456789" * 4,
        "WANDB_BASE_URL": url,
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_MODE": "offline",
    }  # fmt: skip


def ran(folder: Path, own: dict[str, str], *module: str) -> str:
    """What a module says that ends well."""
    command = [sys.executable, "-m", *module]
    done = subprocess.run(command, cwd=folder, env=own, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_an_agent_runs_the_trials_that_it_is_given(tmp_path: Path) -> None:
    sweep = yaml.safe_load(SHIPPED.read_text(encoding="utf-8"))
    assert sweep["command"].pop() == "${args}"
    (tmp_path / "sweep.yaml").write_text(yaml.safe_dump(sweep | {"command": [*sweep["command"], *TINY, "${args}"]}))
    with standing_in(TRIALS) as server:
        own = environment(tmp_path, server.url)
        ran(tmp_path, own, "zoo", *PUBLISH, "--out", "releases/book")
        released = {path.name: path.read_bytes() for path in (tmp_path / "releases" / "book").iterdir()}
        assert f"wandb agent {ENTITY}/cdr-zoo/{SWEEP}" in ran(tmp_path, own, "wandb", "sweep", "sweep.yaml")
        said = ran(tmp_path, own, "wandb", "agent", f"{ENTITY}/cdr-zoo/{SWEEP}")

    assert set(server.asked) == {"Viewer", "UpsertSweep", "SweepWithRuns", "CreateAgent", "Heartbeat"}
    assert list(dict.fromkeys(name for running in server.states for name in running)) == ["trial1", "trial2"], said
    for number, chosen in enumerate(TRIALS):
        folder = tmp_path / "runs" / "PriCDR" / f"version_{number}"
        settings = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
        assert {f"model.{name}": settings["model"]["init_args"][name] for name in ("lr", "alignment_weight")} == chosen
        [kept] = (tmp_path / "runs" / "wandb").glob(f"offline-run-*-trial{number + 1}")
        sent = told(kept)
        assert (sent["project"], sent["sweep"]) == ("cdr-zoo", SWEEP)
        assert sent["config"].items() >= chosen.items()
        assert sent["config"]["privacy"]["book"]["epsilon"] == 8.0
        with (folder / "metrics.csv").open(encoding="utf-8") as file:
            [figure] = filter(None, (row[sweep["metric"]["name"]] for row in csv.DictReader(file)))
        assert sent["logged"][sweep["metric"]["name"]] == pytest.approx(float(figure))

    assert [path.parent for path in tmp_path.rglob("release.json")] == [tmp_path / "releases" / "book"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "releases" / "book").iterdir()} == released
