"""Measures one experiment as its data grow tenfold, and tenfold again, by the commands that a user gives.

    python benchmarks/scaling.py RESULTS.jsonl            # 2e5, 2e6 and 2e7: every step that the file does not have yet
    python benchmarks/scaling.py RESULTS.jsonl 1e8        # one size, by the ratings of its target; 1e8 is loaded alone

Ratings are generated: 20 of each user in the target and 20 in the source, some items far more popular than others, everybody in
both, a tenth as many items as users. Each step is a process of its own; its line of JSON says the seconds that passed, the
processors' seconds (which say more where others use the machine) and the most memory that it held.

`load` reads the target, holds the latest two ratings of each user out and draws 99 negatives for each, and keeps what it has
made, from where later steps take it, as any second start does. `fit` trains one epoch, validates and tests among these candidates.
The graph of LightGCN is propagated for each batch, so its batches have a million pairs. PriCDR's loss is over every item: it
is trained for some batches of users alone. `predict` ranks all items, for everybody.
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
#: Users, by the ratings of the target.
SIZES = {"2e5": 10_000, "2e6": 100_000, "2e7": 1_000_000, "1e8": 5_000_000}
#: Those that are measured where none is named.
USUAL = ("2e5", "2e6", "2e7")
PUBLISHERS = {
    "FlippedRows, keep .25": {"class_path": "FlippedRows", "init_args": {"epsilon": 8.0, "keep": 0.25}},
    "JLT, n' = 100": {"class_path": "JLT", "init_args": {"epsilon": 8.0, "num_components": 100}},
    "NoisyRows above 4 sd": {"class_path": "NoisyRows", "init_args": {"epsilon": 8.0, "threshold": 4.0}},
}
FITS = {
    "BPR": ["--model=BPR", "--data.batch_size=65536"],
    "LightGCN": ["--model=LightGCN", "--data.batch_size=1048576"],
    f"PriCDR, {BATCHES} batches of 512 users": [
        "--model=PriCDR",
        "--data.batch_size=512",
        f"--trainer.limit_train_batches={BATCHES}",
        "--data.releases.source=releases/jlt",
    ],
}


#: Steps that are left out of a size: 10^8 ratings are loaded alone.
LEFT_OUT = {"1e8": ("publish", "fit", "predict")}


def prepare(folder: Path, users: int) -> None:
    """Both domains, and an experiment for each publisher."""
    for seed, domain in enumerate(("target", "source")):
        write_ratings(
            folder / f"{domain}.csv",
            users * EACH,
            users // 10,
            lambda _, start, rows: np.arange(start, start + rows) // EACH,
            seed,
        )
    evaluation = {"split": "latest2", "full_ranking": False}
    data = {
        "name": "generated",
        "root": str(folder),
        "target": "target",
        "sources": ["source"],
        "evaluation": evaluation,
    }
    for publisher in PUBLISHERS.values():
        whole = {
            "seed_everything": 0,
            "model": {"class_path": "PriCDR"},
            "data": {"class_path": "Files", "init_args": data},
            "publisher": publisher,
            "trainer": {"max_epochs": 1, "accelerator": "cpu", "devices": 1},
        }
        (folder / f"{_short(publisher)}.yaml").write_text(yaml.safe_dump(whole, sort_keys=False))


def steps(folder: Path) -> dict[str, list[str]]:
    """What is measured, in order, and the command of each, given in the folder."""
    zoo = [sys.executable, "-m", "zoo"]
    made = {"load": [sys.executable, str(Path(__file__).resolve()), "load", str(folder)]}
    for name, publisher in PUBLISHERS.items():
        short = _short(publisher)
        made[f"publish {name}"] = [*zoo, "publish", f"--config={short}.yaml", f"--out=releases/{short}"]
    for name, options in FITS.items():
        made[f"fit {name}"] = [*zoo, "fit", "--config=jlt.yaml", "--publisher=null", *options]
    run = folder / "runs" / "BPR" / "version_0"
    best = run / "checkpoints" / "best.ckpt"
    made["predict BPR"] = [*zoo, "predict", f"--config={run / 'config.yaml'}", f"--ckpt_path={best}"]
    return made


def _short(publisher: dict[str, Any]) -> str:
    return str(publisher["class_path"]).lower()


def measured(command: list[str], folder: Path) -> dict[str, float]:
    """Seconds, processors' seconds and the most memory of a command, which must succeed."""
    began = time.perf_counter()
    log = folder / "log.txt"
    with log.open("w") as said:
        process = subprocess.Popen(
            command, cwd=folder, stdout=said, stderr=subprocess.STDOUT, env=os.environ | {"ZOO_CACHE": str(folder)}
        )
        _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{command} ended with {status}:\n{log.read_text()[-2000:]}")
    cpu = usage.ru_utime + usage.ru_stime
    seconds = time.perf_counter() - began
    return {"s": round(seconds, 1), "cpu_s": round(cpu, 1), "GiB": round(usage.ru_maxrss / 2**20, 2)}


def load(folder: Path) -> None:
    """Read the target as every command does."""
    from datamodules import Evaluation, Files

    Files(
        "generated", "target", ["source"], root=folder, evaluation=Evaluation("latest2", full_ranking=False), seed=0
    ).read_target()


def main() -> None:
    """Measure what is missing."""
    if sys.argv[1] == "load":
        return load(Path(sys.argv[2]))
    results = Path(sys.argv[1])
    kept = [json.loads(line) for line in results.read_text().splitlines()] if results.is_file() else []
    done = {(line["ratings"], line["step"]) for line in kept}
    for ratings in sys.argv[2:] or USUAL:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            prepare(folder, SIZES[ratings])
            for step, command in steps(folder).items():
                if step.startswith(LEFT_OUT.get(ratings, ())):
                    continue
                found = measured(command, folder)
                if (ratings, step) not in done:
                    line = json.dumps({"ratings": ratings, "step": step} | found)
                    print(line, flush=True)
                    with results.open("a") as file:
                        file.write(line + "\n")
    return None


if __name__ == "__main__":
    main()
