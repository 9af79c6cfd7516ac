"""Measure the commands of one experiment as its data grow tenfold, twice.

    python benchmarks/scaling.py RESULTS.jsonl            # 2e5, 2e6 and 2e7: all steps that are missing from the file
    python benchmarks/scaling.py RESULTS.jsonl 1e8        # one size, by the ratings of its target; 1e8 is only loaded

Every user has 20 generated ratings in each domain. There are a tenth as many items as users, some far more popular. Each step is a
process; its line of JSON has wall-clock time, CPU time and peak memory.

`load` fills the cache for later steps. `fit` trains one epoch, validates and tests among 99 candidates. LightGCN has batches of a
million pairs, since it propagates its graph for each. PriCDR's loss is over all items, so it trains for a few batches. `predict`
ranks all items for every user.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from generated import write_ratings

EACH, BATCHES = 20, 20
EVALUATION: dict[str, Any] = {"split": "latest2", "full_ranking": False}
#: Users, by the ratings of the target.
SIZES = {"2e5": 10_000, "2e6": 100_000, "2e7": 1_000_000, "1e8": 5_000_000}
#: Default sizes.
USUAL = ("2e5", "2e6", "2e7")
PUBLISHERS = {
    "FlippedRows, keep .25": {"class_path": "FlippedRows", "init_args": {"epsilon": 8.0, "keep": 0.25}},
    "JLT, n' = 100": {"class_path": "JLT", "init_args": {"epsilon": 8.0, "num_components": 100}},
    "NoisyRows above 4 sd": {"class_path": "NoisyRows", "init_args": {"epsilon": 8.0, "threshold": 4.0}},
}
OF_BATCHES = ["--data.batch_size=512", f"--trainer.limit_train_batches={BATCHES}"]
FITS = {
    "BPR": ["--model=BPR", "--data.batch_size=65536"],
    "LightGCN": ["--model=LightGCN", "--data.batch_size=1048576"],
    f"PriCDR, {BATCHES} batches of 512 users": ["--model=PriCDR", *OF_BATCHES, "--data.releases.source=releases/jlt"],
}


def prepare(folder: Path, users: int) -> None:
    """Write both domains, and an experiment for each publisher."""
    for seed, domain in enumerate(("target", "source")):
        own = lambda _, start, rows: np.arange(start, start + rows) // EACH  # noqa: E731
        write_ratings(folder / f"{domain}.csv", users * EACH, users // 10, own, seed)
    data = {"name": "generated", "root": str(folder), "target": "target", "sources": ["source"]}
    whole = {
        "seed_everything": 0,
        "model": {"class_path": "PriCDR"},
        "data": {"class_path": "Files", "init_args": data | {"evaluation": EVALUATION}},
        "trainer": {"max_epochs": 1, "accelerator": "cpu", "devices": 1},
    }
    for publisher in PUBLISHERS.values():
        text = yaml.safe_dump(whole | {"publisher": publisher}, sort_keys=False)
        (folder / f"{_short(publisher)}.yaml").write_text(text)


def steps(folder: Path) -> dict[str, list[str]]:
    """Return the command of each step, in order; its working directory is the folder."""
    zoo = [sys.executable, "-m", "zoo"]
    commands = {"load": [sys.executable, str(Path(__file__).resolve()), "load", str(folder)]}
    for name, publisher in PUBLISHERS.items():
        short = _short(publisher)
        commands[f"publish {name}"] = [*zoo, "publish", f"--config={short}.yaml", f"--out=releases/{short}"]
    for name, options in FITS.items():
        commands[f"fit {name}"] = [*zoo, "fit", "--config=jlt.yaml", "--publisher=null", *options]
    run = folder / "runs" / "BPR" / "version_0"
    best = run / "checkpoints" / "best.ckpt"
    commands["predict BPR"] = [*zoo, "predict", f"--config={run / 'config.yaml'}", f"--ckpt_path={best}"]
    return commands


def _short(publisher: dict[str, Any]) -> str:
    return str(publisher["class_path"]).lower()


def measured(command: list[str], folder: Path) -> dict[str, float]:
    """Return wall-clock time, CPU time and peak memory of a command, which must succeed."""
    began = time.perf_counter()
    log, environment = folder / "log.txt", os.environ | {"ZOO_CACHE": str(folder)}
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, env=environment)
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{command} failed with {status}:\n{log.read_text()[-2000:]}")
    cpu = round(usage.ru_utime + usage.ru_stime, 1)
    return {"s": round(time.perf_counter() - began, 1), "cpu_s": cpu, "GiB": round(usage.ru_maxrss / 2**20, 2)}


def load(folder: Path) -> None:
    """Read the target as every command does."""
    from datamodules import Evaluation, Files

    Files("generated", "target", ["source"], root=folder, evaluation=Evaluation(**EVALUATION), seed=0).read_target()


def main() -> None:
    """Measure missing steps."""
    if sys.argv[1] == "load":
        load(Path(sys.argv[2]))
        return
    results = Path(sys.argv[1])
    earlier = [json.loads(line) for line in results.read_text().splitlines()] if results.is_file() else []
    done = {(line["ratings"], line["step"]) for line in earlier}
    for ratings in sys.argv[2:] or USUAL:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            prepare(folder, SIZES[ratings])
            for step, command in steps(folder).items():
                if ratings == "1e8" and step != "load":
                    continue
                found = measured(command, folder)
                if (ratings, step) not in done:
                    line = json.dumps({"ratings": ratings, "step": step} | found)
                    print(line, flush=True)
                    with results.open("a") as file:
                        file.write(line + "\n")


if __name__ == "__main__":
    main()
