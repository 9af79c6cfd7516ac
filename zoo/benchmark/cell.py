"""A cell of a benchmark: a run in its own folder."""

import hashlib
import json
import platform
import shutil
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from zoo.benchmark.grid import SEARCH, TRIALS, Benchmark, BenchmarkError, Row, slug
from zoo.runtime.exports import VERSION
from zoo.runtime.run_folder import write_json

#: Written last: a folder without it is half-written.
CELL = "cell.json"
LOG = "log.txt"
#: Beside the runs: the benchmark as it was run.
BENCHMARK = "benchmark.json"


@dataclass(frozen=True)
class Cell:
    """One row of a benchmark with one seed."""

    benchmark: Benchmark
    row: Row
    seed: int  # of splits, candidates, networks, batches and the draws of controls
    root: Path  # folder of the whole benchmark

    @property
    def name(self) -> str:
        """Folder of the run below the root; also what ``--only`` matches."""
        return f"{folder_of(self.row)}/seed-{self.seed}"

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.root / self.name

    def settings(self) -> dict[str, Any]:
        """Return everything that may affect the result."""
        system = self.benchmark.systems[self.row.system]
        found = {
            "row": {**asdict(self.row), "published_as": "", "reason": ""},  # words that change no figure
            "seed": self.seed,
            "arguments": self.benchmark.arguments(self.row, self.seed),
            "configs": {str(system.config): hashlib.sha256(system.config.read_bytes()).hexdigest()},
            "search": asdict(system.search) if system.search else None,
        }
        kept: dict[str, Any] = json.loads(json.dumps(found))  # as it will be read
        return kept

    @property
    def digest(self) -> str:
        """SHA-256 of the settings."""
        return digest_of(self.settings())

    def finished(self) -> dict[str, Any] | None:
        """Return the report of the finished run; None without one, or if it had other settings."""
        try:
            kept: dict[str, Any] = json.loads((self.folder / CELL).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return kept if isinstance(kept, dict) and kept.get("settings") == self.settings() else None

    @property
    def searcher(self) -> "Cell":
        """The cell whose search gives this one's settings: itself, or that of the row's first seed."""
        search = self.benchmark.systems[self.row.system].search
        shared = search is not None and search.seeds == "first"
        return replace(self, seed=self.benchmark.seeds_of(self.row)[0]) if shared else self

    def waits_for(self, unfinished: Collection[str]) -> bool:
        """Return whether one of these unfinished cells searches its settings."""
        return (searcher := self.searcher.name) != self.name and searcher in unfinished

    def chosen(self) -> dict[str, Any]:
        """Return what its search chose; raise `BenchmarkError` if it is not finished."""
        if self.finished() is None:
            raise BenchmarkError(f"{self.name} is not finished. It searches settings of {self.row.name}. Run it first.")
        found: dict[str, Any] = json.loads((self.folder / SEARCH / TRIALS).read_text(encoding="utf-8"))["chosen"]
        return found

    def begin(self) -> Path:
        """Replace a half-written folder by an empty one; return the path of its log."""
        (self.folder / CELL).unlink(missing_ok=True)  # first: nothing that is half removed may count as finished
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self.folder / LOG

    def run(self, keep_checkpoints: bool = False) -> None:
        """Run it, after :meth:`begin`."""
        import torch  # here, since listing and reading cells do without

        from zoo.benchmark.fit import tested
        from zoo.benchmark.search import run_best, settings

        began = time.perf_counter()
        arguments = self.benchmark.arguments(self.row, self.seed)
        asked = self.benchmark.systems[self.row.system].search
        first = self.searcher
        if asked is None:
            tested(arguments, self.folder)
        elif first.seed != self.seed:
            tested([*arguments, *settings(first.chosen())], self.folder)
        else:
            run_best(asked, arguments, self.folder, self.seed)
        if not keep_checkpoints:
            for checkpoint in self.folder.rglob("*.ckpt"):
                checkpoint.unlink()  # a table needs figures; a checkpoint is some 30 MB
        report = {
            "settings": self.settings(),
            "seconds": round(time.perf_counter() - began, 3),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": {"zoo": VERSION, "torch": str(torch.__version__), "python": platform.python_version()},
        }
        write_json(self.folder / CELL, report)

    def check(self) -> None:
        """Build everything that the run needs, without opening data."""
        from zoo.benchmark.fit import check
        from zoo.benchmark.search import any_settings

        search = self.benchmark.systems[self.row.system].search
        check([*self.benchmark.arguments(self.row, self.seed), *(any_settings(search) if search else [])])


def digest_of(settings: dict[str, Any]) -> str:
    """SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def folder_of(row: Row) -> str:
    """Folder of a row's runs, below that of the benchmark."""
    return "/".join(slug(part) for part in (row.task, row.system, row.release) if part)


def cells_of(benchmark: Benchmark, root: Path) -> list[Cell]:
    """Return every cell, the first seed of all rows before the second of any.

    Raises:
        BenchmarkError: If two cells would share a folder.
    """
    cells = [Cell(benchmark, row, seed, root) for row in benchmark.rows() for seed in benchmark.seeds_of(row)]
    if shared := sorted(name for name, count in Counter(cell.name for cell in cells).items() if count > 1):
        raise BenchmarkError(f"Several cells share a folder: {shared}.")
    return sorted(cells, key=lambda cell: benchmark.seeds_of(cell.row).index(cell.seed))
