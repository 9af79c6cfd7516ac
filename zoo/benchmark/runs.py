"""Runs of a benchmark, each in its own folder."""

import fnmatch
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

from zoo.benchmark.grid import EARLIER, SEARCH, TRIALS, Benchmark, BenchmarkError, Row, slug
from zoo.runtime.exports import VERSION
from zoo.runtime.processes import provenance
from zoo.runtime.run_folder import PRIVACY, RELEASES, write_json

#: Written last: a folder without it is incomplete. The name is that of version 0.2.
RUN_FILE = "cell.json"
LOG = "log.txt"
#: Digest of the settings of a run that has begun.
BEGUN = "begun.txt"
#: The benchmark, next to its runs.
BENCHMARK = "benchmark.json"


@dataclass(frozen=True)
class BenchmarkRun:
    """One row of a benchmark with one seed."""

    benchmark: Benchmark
    row: Row
    seed: int  # of splits, candidates, networks, batches and baselines
    root: Path  # folder of the whole benchmark
    chosen: dict[str, Any] | None = None  # settings that an earlier search chose, used instead of a search

    @property
    def name(self) -> str:
        """Folder of the run below the root, which ``--only`` matches."""
        return f"{folder_of(self.row)}/seed-{self.seed}"

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.root / self.name

    def settings(self) -> dict[str, Any]:
        """Return all settings that may affect the result."""
        system, search = self.benchmark.systems[self.row.system], self.benchmark.search_of(self.row)
        found = {
            "row": {**asdict(self.row), "published_as": "", "reason": ""},  # without texts, which affect no result
            "seed": self.seed,
            "arguments": self.benchmark.arguments(self.row, self.seed),
            "configs": {str(system.config): hashlib.sha256(system.config.read_bytes()).hexdigest()},
            "search": asdict(search) if search else None,
        }
        plain: dict[str, Any] = json.loads(json.dumps(found))  # as a file has it
        return plain

    @property
    def digest(self) -> str:
        """SHA-256 of the settings."""
        return digest_of(self.settings())

    def finished(self) -> dict[str, Any] | None:
        """Return the report of the finished run; None without one, or if it had other settings."""
        try:
            report: dict[str, Any] = json.loads((self.folder / RUN_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return report if isinstance(report, dict) and report.get("settings") == self.settings() else None

    @property
    def searcher(self) -> "BenchmarkRun":
        """The run that searches this run's settings: itself, or that of the row's first seed."""
        search = self.benchmark.search_of(self.row)
        shared = search is not None and search.seeds == "first" and self.chosen is None
        return replace(self, seed=self.benchmark.seeds_of(self.row)[0]) if shared else self

    def waits_for(self, unfinished: Collection[str]) -> bool:
        """Return whether the run that searches its settings is another, unfinished one."""
        return (searcher := self.searcher.name) != self.name and searcher in unfinished

    def chosen_settings(self) -> dict[str, Any]:
        """Return the settings that its search chose; raise `BenchmarkError` if it is not finished."""
        if self.finished() is None:
            raise BenchmarkError(f"{self.name} is not finished. It searches {self.row.name}. Run it first.")
        found: dict[str, Any] = json.loads((self.folder / SEARCH / TRIALS).read_text(encoding="utf-8"))["chosen"]
        return found

    def prepare_folder(self) -> Path:
        """Replace an incomplete folder by an empty one; return the path of its log.

        Trials of an unfinished search with these settings that published or trained privately stay, as ``search/earlier-NUMBER``:
        they count.
        """
        kept, begun = self.folder.with_name(f"{self.folder.name}.earlier"), self.folder / BEGUN
        again = begun.is_file() and begun.read_text(encoding="utf-8") == self.digest
        again &= not (self.folder / RUN_FILE).is_file()
        (self.folder / RUN_FILE).unlink(missing_ok=True)  # first: a partly removed run must not count as finished
        for trial in sorted((self.folder / SEARCH).glob("*/")) if again else ():
            if _spent(trial):
                kept.mkdir(exist_ok=True)
                trial.rename(kept / f"{EARLIER}{len(list(kept.iterdir()))}")
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        begun.write_text(self.digest, encoding="utf-8")
        if kept.is_dir():
            for checkpoint in kept.rglob("*.ckpt"):
                checkpoint.unlink()
            kept.rename(self.folder / SEARCH)
        return self.folder / LOG

    def execute(self, keep_checkpoints: bool = False) -> None:
        """Train and test, after :meth:`prepare_folder`."""
        import torch  # listing and reading runs do not need it

        from zoo.benchmark.fit import train_and_test
        from zoo.benchmark.search import run_best, settings

        began, origin = time.perf_counter(), provenance(torch.get_num_threads())  # first: files may change meanwhile
        arguments = self.benchmark.arguments(self.row, self.seed)
        search = self.benchmark.search_of(self.row)
        first = self.searcher
        if search is None or self.chosen is not None:
            train_and_test([*arguments, *settings(self.chosen or {})], self.folder, chosen=self.chosen is not None)
        elif first.seed != self.seed:
            train_and_test([*arguments, *settings(first.chosen_settings())], self.folder, chosen=True)
        else:
            run_best(search, arguments, self.folder, self.seed)
        if not keep_checkpoints:
            for checkpoint in self.folder.rglob("*.ckpt"):
                checkpoint.unlink()  # about 30 MB, which reports do not need
        report = {
            "settings": self.settings(),
            "seconds": round(time.perf_counter() - began, 3),
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": {"zoo": VERSION, "torch": str(torch.__version__), "python": platform.python_version()},
            **origin,
        }
        write_json(self.folder / RUN_FILE, report)

    def check(self) -> None:
        """Build all objects of the run, without opening data."""
        from zoo.benchmark.fit import check
        from zoo.benchmark.search import any_settings

        search = self.benchmark.search_of(self.row)
        arguments = [*self.benchmark.arguments(self.row, self.seed), *(any_settings(search) if search else [])]
        check(arguments, self.folder, searches=search is not None)


def _spent(trial: Path) -> bool:
    """Return whether a trial published, or trained privately: such an entry of its records has no ledger beside it."""
    file = trial / PRIVACY
    records = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return any((trial / RELEASES).glob("*/")) or any("ledger" not in one for one in records.values())


def digest_of(settings: dict[str, Any]) -> str:
    """Return the SHA-256 of plain values."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()


def folder_of(row: Row) -> str:
    """Return the folder of a row's runs, below that of the benchmark."""
    return "/".join(slug(part) for part in (row.task, row.system, row.release) if part)


def runs_of(benchmark: Benchmark, root: Path) -> list[BenchmarkRun]:
    """Return all runs, the first seed of all rows before the second of any; refuse two runs with one folder."""
    runs = [BenchmarkRun(benchmark, row, seed, root) for row in benchmark.rows() for seed in benchmark.seeds_of(row)]
    if shared := sorted(name for name, count in Counter(run.name for run in runs).items() if count > 1):
        raise BenchmarkError(f"Several runs share a folder: {shared}. Use different labels.")
    return sorted(runs, key=lambda run: benchmark.seeds_of(run.row).index(run.seed))


def select_runs(runs: list[BenchmarkRun], pattern: str) -> list[BenchmarkRun]:
    """Return the runs whose name matches one of the patterns, which spaces separate; no match is an error."""
    found = [run for run in runs if any(fnmatch.fnmatch(run.name, one) for one in pattern.split())]
    if not found:
        raise BenchmarkError(f"No run matches {pattern!r}, such as {runs[0].name}. List them: --dry-run.")
    return found
