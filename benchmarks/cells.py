"""One cell of a table: an ordinary run in a folder of its own, run once and read ever after."""

from __future__ import annotations

import hashlib
import json
import logging
import resource
import shutil
import statistics
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

MEASURES = tuple(f"{name}@{k}" for k in (5, 10) for name in ("hit_rate", "ndcg", "mrr"))
TITLES = {m: m.replace("hit_rate", "HR").replace("ndcg", "NDCG").replace("mrr", "MRR") for m in MEASURES}


@dataclass(frozen=True)
class Cell:
    """A system on one task with one seed.

    Attributes:
        system: What the row of the table is called.
        arguments: Of ``python -m zoo fit``: config first, then what differs from it.
        seed: Of splits, candidates, batches and networks.
        root: Folder of the whole table.
    """

    system: str
    arguments: tuple[str, ...]
    seed: int
    root: Path

    @property
    def folder(self) -> Path:
        """The run folder."""
        slug = "".join(c if c.isalnum() or c in "-." else "-" for c in self.system.lower())
        return self.root / slug / f"seed-{self.seed}"

    def result(self) -> dict[str, Any] | None:
        """What the finished run says of itself; None if there is none, or it was run with other settings."""
        path, kept = self.folder / "metrics.json", self.folder / "cell.json"
        if not path.is_file() or not kept.is_file() or kept.read_text(encoding="utf-8") != self._settings():
            return None
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def _settings(self) -> str:
        configs = [Path(text) for text in self.arguments if text.endswith(".yaml")]
        digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in configs]
        return json.dumps({"arguments": self.arguments, "configs": digests}, indent=1)

    def run(self) -> dict[str, Any]:
        """Run it unless it is finished; a half-written folder is begun anew."""
        if (done := self.result()) is not None:
            return done
        shutil.rmtree(self.folder, ignore_errors=True)
        _fit([*self.arguments, *self._own_arguments()])
        for checkpoint in self.folder.glob("checkpoints/*.ckpt"):
            checkpoint.unlink()  # a table needs figures; a checkpoint is some 30 MB
        (self.folder / "cell.json").write_text(self._settings(), encoding="utf-8")
        done = self.result()
        if done is None:
            raise RuntimeError(f"{self.folder} ended without metrics.json.")
        return done

    def _own_arguments(self) -> list[str]:
        logger = {
            "class_path": "pytorch_lightning.loggers.CSVLogger",
            "init_args": {"save_dir": str(self.root), "name": self.folder.parent.name, "version": self.folder.name},
        }
        quiet = ["--trainer.enable_progress_bar", "false", "--checkpoint.keep_last", "false"]
        return ["--seed_everything", str(self.seed), "--trainer.logger", json.dumps(logger), *quiet]


def _fit(arguments: Sequence[str]) -> None:
    from zoo.cli import ZooCLI, import_names

    import_names()
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ZooCLI(args=["fit", *arguments])


def run_all(cells: Iterable[Cell]) -> list[Cell]:
    """Run every cell in this process, the finished ones not again; one that fails is shown and passed over."""
    console, failed, cells = Console(), [], list(cells)
    began, done = time.perf_counter(), 0
    for number, cell in enumerate(cells, 1):
        if cell.result() is not None:
            continue
        try:
            cell.run()
        except Exception:  # one cell must not stop the others
            console.print_exception()
            failed.append(cell)
        done += 1
        left = (time.perf_counter() - began) / done * sum(c.result() is None for c in cells[number:])
        console.print(f"[{number}/{len(cells)}] {cell.system}, seed {cell.seed}; about {left / 60:.0f} min left")
    return failed


def peak_memory() -> float:
    """Largest resident memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def mean_sd(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation; 0 for one value."""
    return statistics.mean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def table(systems: dict[str, list[dict[str, Any]]], ranking: str) -> str:
    """Markdown: a row per system with mean and sd over its seeds, best mean in bold."""
    keys = [f"test/{ranking}/{measure}" for measure in MEASURES]
    means = {name: [mean_sd([r["metrics"][key] for r in runs]) for key in keys] for name, runs in systems.items()}
    best = [max(row[i][0] for row in means.values()) for i in range(len(keys))]
    lines = ["| system | " + " | ".join(TITLES.values()) + " | seeds | seconds | epochs |", "|---|" + "---:|" * 9]
    for name, row in means.items():
        runs, cells = systems[name], []
        mark = " †" if runs[0]["ranked_by_item_counts"] else ""
        for (mean, sd), top in zip(row, best, strict=True):
            text = f"**{mean:.4f}**" if mean == top else f"{mean:.4f}"
            cells.append(text + (f" ±{sd:.4f}" if len(runs) > 1 else ""))
        seconds = statistics.mean(r["train_seconds"] for r in runs)
        epochs = statistics.mean(r["epochs"] for r in runs)
        lines.append(f"| {name}{mark} | {' | '.join(cells)} | {len(runs)} | {seconds:.0f} | {epochs:.0f} |")
    return "\n".join(lines)
