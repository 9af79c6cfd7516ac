"""``python -m zoo benchmark``: a grid of experiments, run in parallel or as jobs of a cluster, resumable after a kill."""

import argparse
import fnmatch
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from zoo.benchmark.cell import BENCHMARK, LOG, Cell, cells_of
from zoo.benchmark.cluster import COMMON, JOBS, Cluster, cluster_of
from zoo.benchmark.estimate import Estimate, duration
from zoo.benchmark.grid import Benchmark, BenchmarkError
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.runner import Outcome, locked, run_cells
from zoo.runtime.arguments import Arguments
from zoo.runtime.processes import cores
from zoo.runtime.run_folder import refusal, visible, write_json
from zoo.runtime.suggestions import count_of


def parser() -> Arguments:
    """Options of the command."""
    made = Arguments(
        prog="python -m zoo benchmark",
        description="Run a grid of experiments (tasks x systems x releases x epsilons x seeds). Each cell is an ordinary run "
        "in a folder of its own. Finished cells are never run again: after a kill, give the same command.",
        epilog="Then: python -m zoo report RUNS --out report/",
    )
    option = made.add_argument
    option("--config", type=Path, required=True, help="the grid, such as configs/benchmarks/smoke.yaml")
    option("--runs", type=Path, help="folder of the runs (default: runs/benchmarks/<name of the config>)")
    together = "cells at a time (default: one for each core that the command may use; jobs of a cluster: 256)"
    option("--processes", type=int, help=together)
    matching = "run only cells whose name matches, such as 'music/pricdr*/seed-0'"
    option("--only", default="*", metavar="PATTERN", help=matching)
    option("--keep-checkpoints", action="store_true", help="keep best.ckpt of every cell (some 30 MB each)")
    option("--dry-run", action="store_true", help="list the cells and the time they may take; run nothing")
    option("--cluster", choices=["slurm"], help="submit an array with one job for each cell, and end; needs submitit")
    asked = f"what each job asks for, by submitit's names: {', '.join(COMMON)} and others (default: a day and one CPU)"
    option("--cluster-options", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=asked)
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command; a refusal ends with its message, failed cells with code 1."""
    options = parser().parse_args(arguments)
    console = Console()
    try:
        if options.processes is not None and options.processes < 1:
            raise BenchmarkError(f"--processes is {options.processes}. It must be at least 1.")
        cluster = cluster_of(options)
        benchmark = read_benchmark(options.config)
        root = options.runs or Path("runs/benchmarks") / options.config.stem
        cells = chosen(cells_of(benchmark, root), options.only)
        processes = cluster.options["slurm_array_parallelism"] if cluster else options.processes or cores()
        estimate = Estimate(cells, options.config.stem)
        if options.dry_run:
            console.print(cell_table(benchmark, cells, estimate, processes))
            return
        todo = [cell for cell in cells if cell.finished() is None]
        if todo:
            check_all(todo, console)
        busy = f"Another benchmark command is running in {root}. Wait for it, or choose another folder with --runs."
        with locked(root / BENCHMARK, busy):
            keep(benchmark, options.config, root)
            if todo and cluster:
                submit(cluster, todo, options, root, console)
                return
            failed = run(todo, len(cells), estimate, processes, console, options.keep_checkpoints)
    except (BenchmarkError, OSError) as error:
        sys.exit(refusal(error))
    except KeyboardInterrupt:
        sys.exit("Stopped. Finished cells are kept; give the same command to go on.")
    console.print(f"{len(cells) - len(failed)} of {len(cells)} cells are finished: {_shown(root)}", soft_wrap=True)
    if failed:
        console.print(failure_table(failed))
        sys.exit(1)
    console.print(f"Report: python -m zoo report {_shown(root)} --out report/", soft_wrap=True)


def submit(cluster: Cluster, cells: Sequence[Cell], options: argparse.Namespace, root: Path, console: Console) -> None:
    """Submit a job for each cell, and print their numbers, where their logs are and how to list what is finished."""
    jobs = cluster.submit(cells, root / JOBS, options.keep_checkpoints)
    only = [] if options.only == "*" else ["--only", options.only]
    words = ["--config", str(options.config), "--runs", str(root), *only, "--dry-run"]
    for line in (
        f"{count_of(len(jobs), 'job')} submitted to SLURM, one for each cell: {' to '.join(dict.fromkeys((jobs[0], jobs[-1])))}",
        f"Their logs: {root / JOBS}/<job>_0_log.out",
        f"What is finished: python -m zoo benchmark {shlex.join(words)}",
    ):
        console.print(_shown(line), highlight=False, soft_wrap=True)


def keep(benchmark: Benchmark, config: Path, root: Path) -> None:
    """Write the benchmark next to its runs, with the digest of the settings of each cell."""
    digests = {cell.name: cell.digest for cell in cells_of(benchmark, root)}
    root.mkdir(parents=True, exist_ok=True)
    write_json(root / BENCHMARK, {"name": config.stem, "config": str(config), **benchmark.plain(), "cells": digests})


def chosen(cells: list[Cell], pattern: str) -> list[Cell]:
    """The cells whose name matches; that none does is refused."""
    found = [cell for cell in cells if fnmatch.fnmatch(cell.name, pattern)]
    if not found:
        raise BenchmarkError(f"No cell matches {pattern!r}. Names are such as {cells[0].name}; --dry-run lists them.")
    return found


def check_all(cells: Sequence[Cell], console: Console) -> None:
    """Build the objects of every row once, so that a wrong setting is reported before anything runs."""
    first = {(cell.row.task, cell.row.name): cell for cell in reversed(cells)}
    with console.status("Checking settings ...") as status:
        for number, cell in enumerate(first.values(), 1):
            status.update(f"Checking settings of row {number} of {len(first)}: {_shown(cell.row.name)}")
            try:
                cell.check()
            except SystemExit as error:  # what the parser refuses; it has said why
                raise BenchmarkError(f"{cell.row.task}: {cell.row.name} cannot be run with its settings.") from error
            except Exception as error:
                raise BenchmarkError(f"{cell.row.task}: {cell.row.name}: {error}") from error


def run(
    todo: Sequence[Cell], count: int, estimate: Estimate, processes: int, console: Console, keep_checkpoints: bool
) -> list[Outcome]:
    """Run cells with a progress bar and a line for each that ends; gives the failed ones."""
    threads = max(1, cores() // processes)
    left = list(todo)
    columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as progress:

        def remaining() -> str:
            return f"about {duration(estimate.total(left, processes))} left"

        bar = progress.add_task(remaining(), total=count, completed=count - len(todo))

        def ended(outcome: Outcome) -> None:
            left.remove(outcome.cell)
            if not outcome.error:
                estimate.add(outcome.cell, outcome.seconds)
            progress.update(bar, advance=1, description=remaining())
            row = outcome.cell.row
            name = _shown(f"{row.task}: {row.name}, seed {outcome.cell.seed}")
            said = f"[red]failed: {_shown(outcome.error)}[/red]" if outcome.error else f"{outcome.seconds:.0f} s"
            line = f"[{count - len(left)}/{count}] {name}: {said}; {remaining()}"
            progress.console.print(line, highlight=False, soft_wrap=True)

        outcomes = run_cells(todo, processes, threads, ended, keep_checkpoints=keep_checkpoints)
    return [outcome for outcome in outcomes if outcome.error]


def cell_table(benchmark: Benchmark, cells: Sequence[Cell], estimate: Estimate, processes: int) -> Table:
    """Rows, seeds, what is finished and what the rest may take."""
    todo = [cell for cell in cells if cell.finished() is None]
    table = Table(title=f"{_shown(benchmark.title)}: {count_of(len(cells), 'cell')}, {len(cells) - len(todo)} finished")
    for column in ("task", "row", "seeds", "to run", "a cell", "together"):
        table.add_column(column, justify="left" if column in ("task", "row") else "right")
    rows: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        rows.setdefault((cell.row.task, cell.row.name), []).append(cell)
    for (task, name), own in rows.items():
        mine = [cell for cell in own if cell in todo]
        each, together = estimate.of(own[0]), estimate.total(mine, 1)
        seeds = " ".join(str(cell.seed) for cell in own)
        table.add_row(_shown(task), _shown(name), seeds, str(len(mine)), duration(each), duration(together))
    total = duration(estimate.total(todo, processes))
    table.caption = f"{count_of(len(todo), 'cell')} to run, {processes} at a time: about {total}"
    return table


def failure_table(failed: Sequence[Outcome]) -> Table:
    """Which cells failed, why, and where they say more."""
    table = Table(title=f"{count_of(len(failed), 'cell')} failed; give the same command to run them again")
    for column in ("cell", "error", "log"):
        table.add_column(column, overflow="fold")
    for outcome in failed:
        table.add_row(*map(_shown, (outcome.cell.name, outcome.error, outcome.cell.folder / LOG)))
    return table


def _shown(name: object) -> str:
    """Return a name from a file without markup and control characters."""
    return escape(visible(str(name)))
