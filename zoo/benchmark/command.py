"""``python -m zoo benchmark``: run a grid of experiments in parallel or on a cluster; it resumes after a kill."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from zoo.benchmark.cluster import COMMON, JOBS, Cluster, cluster_of
from zoo.benchmark.estimate import Estimate, duration
from zoo.benchmark.experiments import grids_of
from zoo.benchmark.grid import Benchmark, BenchmarkError
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.runner import Outcome, locked, run_all
from zoo.benchmark.runs import BENCHMARK, LOG, BenchmarkRun, runs_of, select_runs
from zoo.runtime.arguments import Arguments
from zoo.runtime.processes import cores
from zoo.runtime.run_folder import refusal, visible, write_json
from zoo.runtime.suggestions import count_of


def parser() -> Arguments:
    """Return the options of the command."""
    made = Arguments(
        prog="python -m zoo benchmark",
        description="Run a grid of experiments (tasks x systems x releases x epsilons x seeds), each in its own folder. "
        "Finished runs are not repeated: after a kill, use the same command.",
        epilog="Then: python -m zoo report RUNS --out report/. Later: python -m zoo benchmark --verify report/",
    )
    option = made.add_argument
    option("--config", type=Path, help="the grid, such as configs/benchmarks/smoke.yaml")
    option(
        "--paper",
        metavar="NAME",
        help="pricdr, ppgencdr or fedgcdr: instead of --config, the grids of a table or figure",
    )
    option("--figure", metavar="N", help="with --paper: a figure; docs/papers.md lists them")
    option("--table", metavar="N", help="with --paper: a table")
    folder = (
        "folder of the runs (default: runs/benchmarks/<name of the config>); with --verify: their number (default: 3)"
    )
    option("--runs", type=Path, help=folder)
    option("--processes", type=int, help="number of parallel runs (default: one per available core; on a cluster: 256)")
    matching = "only runs whose name matches one of these, separated by spaces, such as 'music/pricdr*/seed-0'"
    option("--only", metavar="PATTERN", help=matching)
    option("--keep-checkpoints", action="store_true", help="keep best.ckpt of every run (about 30 MB each)")
    option(
        "--dry-run",
        action="store_true",
        help="check settings and files, list the runs and their estimated time; run nothing",
    )
    option("--cluster", choices=["slurm"], help="submit an array with one job per run, and exit; needs submitit")
    resources = f"resources of each job, by submitit's names: {', '.join(COMMON)}, ... (default: a day and one CPU)"
    option("--cluster-options", nargs="+", action="extend", default=[], metavar="NAME=VALUE", help=resources)
    verified = "repeat runs of this report, drawn at random, and compare their figures; exit with code 1 if one differs"
    option("--verify", type=Path, metavar="REPORT", help=verified)
    option("--seed", type=int, help="with --verify: seed of the draw (default: from the clock)")
    widest = "with --verify: largest absolute difference (default: by row, as the page on reports describes)"
    option("--tolerance", type=float, help=widest)
    option(
        "--search", action="store_true", help="with --verify: search settings again instead of taking the chosen ones"
    )
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command; exit with a message on an error, with code 1 on failed runs."""
    options = parser().parse_args(arguments)
    console = Console()
    try:
        if options.processes is not None and options.processes < 1:
            raise BenchmarkError(f"--processes is {options.processes}. It must be at least 1.")
        if [options.config, options.paper, options.verify].count(None) != 2:
            raise BenchmarkError("Give one of --config, --paper and --verify.")
        if options.verify is not None:
            verify_report(options, console)
            return
        grids = grids_of(options.paper, options.figure, options.table) if options.paper else [(options.config, "*")]
        cluster = cluster_of(options)
        failed = [run_grid(config, pattern, options, cluster, console, len(grids) > 1) for config, pattern in grids]
    except (BenchmarkError, OSError) as error:
        sys.exit(refusal(error))
    except KeyboardInterrupt:
        sys.exit("Stopped. Finished runs are kept. Use the same command to resume.")
    if any(failed):
        sys.exit(1)


def run_grid(
    config: Path,
    pattern: str,
    options: argparse.Namespace,
    cluster: Cluster | None,
    console: Console,
    is_one_of_several: bool,
) -> bool:
    """Run the pending runs of a grid whose names match the pattern, or ``--only``; return whether one failed."""
    benchmark, only = read_benchmark(config), options.only or pattern
    root = options.runs or Path("runs/benchmarks") / config.stem
    if options.runs and is_one_of_several:
        root = options.runs / config.stem
    runs = select_runs(runs_of(benchmark, root), only)
    processes = cluster.options["slurm_array_parallelism"] if cluster else options.processes or cores()
    estimate = Estimate(runs, config.stem)
    todo = [run for run in runs if run.finished() is None]
    if todo:
        check_all(todo, console)
    if options.dry_run:
        console.print(run_table(benchmark, runs, estimate, processes))
        return False
    busy = f"Another benchmark command uses {root}. Wait for it, or choose another folder with --runs."
    with locked(root / BENCHMARK, busy):
        save_grid(benchmark, config, root)
        if todo and cluster:
            submit(cluster, todo, [str(config), str(root), only], options.keep_checkpoints, console)
            return False
        failed = run_pending(todo, len(runs), estimate, processes, console, options.keep_checkpoints)
    console.print(f"{len(runs) - len(failed)} of {len(runs)} runs are finished: {_shown(root)}", soft_wrap=True)
    console.print(
        failure_table(failed) if failed else f"Report: python -m zoo report {_shown(root)} --out report/",
        soft_wrap=True,
    )
    return bool(failed)


def verify_report(options: argparse.Namespace, console: Console) -> None:
    """Repeat runs of a report and print a table of their figures; exit with code 1 if one was not reproduced."""
    from zoo.benchmark.verify import check_table, verify

    number = "3" if options.runs is None else str(options.runs)
    if not number.isdecimal() or int(number) < 1:
        raise BenchmarkError(f"--runs is {number}. With --verify it must be at least 1.")
    options.runs = int(number)
    checks = verify(options.verify, options, console)
    console.print(check_table(checks))
    if not all(check.holds for check in checks):
        sys.exit(1)


def submit(
    cluster: Cluster, runs: Sequence[BenchmarkRun], grid: Sequence[str], keep_checkpoints: bool, console: Console
) -> None:
    """Submit a job for each run of a grid (file, root, pattern); print jobs, logs, and the command that lists finished runs."""
    config, root, only = grid
    jobs = cluster.submit(runs, Path(root) / JOBS, keep_checkpoints)
    words = ["--config", config, "--runs", root, *([] if only == "*" else ["--only", only]), "--dry-run"]
    for line in (
        f"{count_of(len(jobs), 'job')} submitted to SLURM, one for each run: {' to '.join(dict.fromkeys((jobs[0], jobs[-1])))}",
        f"Logs: {Path(root) / JOBS}/<job>_0_log.out",
        f"Finished runs: python -m zoo benchmark {shlex.join(words)}",
    ):
        console.print(_shown(line), highlight=False, soft_wrap=True)


def save_grid(benchmark: Benchmark, config: Path, root: Path) -> None:
    """Write the benchmark next to its runs, with the digest of each run's settings."""
    digests = {run.name: run.digest for run in runs_of(benchmark, root)}
    root.mkdir(parents=True, exist_ok=True)
    write_json(root / BENCHMARK, {"name": config.stem, "config": str(config), **benchmark.plain(), "cells": digests})


def check_all(runs: Sequence[BenchmarkRun], console: Console) -> None:
    """Build the objects of every row once, to report wrong settings before anything runs."""
    first = {(run.row.task, run.row.name): run for run in reversed(runs)}
    with console.status("Checking settings ...") as status:
        for number, run in enumerate(first.values(), 1):
            status.update(f"Checking settings of row {number} of {len(first)}: {_shown(run.row.name)}")
            try:
                run.check()
            except SystemExit as error:  # the parser has printed why
                raise BenchmarkError(f"{run.row.task}: {run.row.name} has wrong settings. See above.") from error
            except Exception as error:
                raise BenchmarkError(f"{run.row.task}: {run.row.name}: {error}") from error


def run_pending(
    todo: Sequence[BenchmarkRun],
    count: int,
    estimate: Estimate,
    processes: int,
    console: Console,
    keep_checkpoints: bool,
) -> list[Outcome]:
    """Execute runs with a progress bar and a line for each that ends; return the failed ones."""
    threads = max(1, cores() // processes)
    left = list(todo)
    columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("{task.description}"), console=console) as progress:

        def remaining() -> str:
            return f"about {duration(estimate.total(left, processes))} left"

        bar = progress.add_task(remaining(), total=count, completed=count - len(todo))

        def ended(outcome: Outcome) -> None:
            left.remove(outcome.run)
            if not outcome.error:
                estimate.add(outcome.run, outcome.seconds)
            progress.update(bar, advance=1, description=remaining())
            row = outcome.run.row
            name = _shown(f"{row.task}: {row.name}, seed {outcome.run.seed}")
            result = f"[red]failed: {_shown(outcome.error)}[/red]" if outcome.error else f"{outcome.seconds:.0f} s"
            line = f"[{count - len(left)}/{count}] {name}: {result}; {remaining()}"
            progress.console.print(line, highlight=False, soft_wrap=True)

        outcomes = run_all(todo, processes, threads, ended, keep_checkpoints=keep_checkpoints)
    return [outcome for outcome in outcomes if outcome.error]


def run_table(benchmark: Benchmark, runs: Sequence[BenchmarkRun], estimate: Estimate, processes: int) -> Table:
    """Return a table of rows with seeds, pending runs and estimated time."""
    todo = [run for run in runs if run.finished() is None]
    table = Table(title=f"{_shown(benchmark.title)}: {count_of(len(runs), 'run')}, {len(runs) - len(todo)} finished")
    for column in ("task", "row", "seeds", "pending", "per run", "total"):
        table.add_column(column, justify="left" if column in ("task", "row") else "right")
    rows: dict[tuple[str, str], list[BenchmarkRun]] = {}
    for run in runs:
        rows.setdefault((run.row.task, run.row.name), []).append(run)
    for (task, name), own in rows.items():
        mine = [run for run in own if run in todo]
        each, together = estimate.seconds_of(own[0]), estimate.total(mine, 1)
        seeds = " ".join(str(run.seed) for run in own)
        table.add_row(_shown(task), _shown(name), seeds, str(len(mine)), duration(each), duration(together))
    total = duration(estimate.total(todo, processes))
    table.caption = f"{count_of(len(todo), 'run')} pending, {processes} at a time: about {total}"
    if todo and (kwh := estimate.kwh(todo)) is not None:
        table.caption += f", {kwh:.2g} kWh"
    return table


def failure_table(failed: Sequence[Outcome]) -> Table:
    """Return a table of failed runs with their errors and logs."""
    table = Table(title=f"{count_of(len(failed), 'run')} failed. Use the same command to repeat them.")
    for column in ("run", "error", "log"):
        table.add_column(column, overflow="fold")
    for outcome in failed:
        table.add_row(*map(_shown, (outcome.run.name, outcome.error, outcome.run.folder / LOG)))
    return table


def _shown(name: object) -> str:
    """Return a name from a file without markup and control characters."""
    return escape(visible(str(name)))
