"""``python -m zoo report``: what a benchmark's runs say.

What the command needs is imported when it runs: ``--help`` and a refusal of its options stay quick.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from zoo.runtime.arguments import Arguments
from zoo.runtime.run_folder import CONFIG, refusal, visible

if TYPE_CHECKING:
    from zoo.benchmark.report.files import Written
    from zoo.benchmark.report.results import Results


def parser() -> Arguments:
    """Options of the command."""
    made = Arguments(
        prog="python -m zoo report",
        description="Leaderboards, paired tests, curves, slices and cost of a benchmark's finished runs, or of any runs that fit "
        "has left, as Markdown (README.md), CSV (results.csv, seeds.csv, gains.csv), figures (SVG) and one self-contained HTML "
        "page (report.html). Runs that were tested on other items, candidates or data stand in tables of their own.",
        epilog="What stands in notes.md of the output folder is put at the top of the page.",
    )
    option = made.add_argument
    said = "folder of a benchmark's runs, such as runs/benchmarks/smoke, or folders of runs that fit has left, such as runs/*/*"
    option("runs", type=Path, nargs="+", metavar="RUNS", help=said)
    against = "row to hold all others against (default: a benchmark's own, or EASE; of runs none)"
    option("--baseline", metavar="NAME", help=against)
    alone = "of a benchmark this task alone; may be given several times (default: all)"
    option("--task", action="append", default=[], metavar="NAME", help=alone)
    option("--out", type=Path, default=Path("report"), help="folder to write (default: %(default)s)")
    told = "also tell this tracker, as a run of its own in the project cdr-zoo: figures, results.csv and gains.csv, and what "
    told += "each row guarantees; W&B without an account: WANDB_MODE=offline"
    option("--tracker", choices=("wandb", "tensorboard"), help=told)
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command; a refusal ends with its message."""
    options = parser().parse_args(arguments)
    from zoo.benchmark.report.files import write_report
    from zoo.benchmark.report.results import ResultsError, read_results
    from zoo.benchmark.report.run_folders import read_run_folders

    console = Console()
    if options.tracker:
        _check(options.tracker)
    try:
        with console.status("Reading runs and testing differences ..."):
            one = len(options.runs) == 1 and not (options.runs[0] / CONFIG).is_file()
            results = read_results(options.runs[0]) if one else read_run_folders(options.runs)
            if options.task:
                results = results.of_tasks(options.task)
            if options.baseline is not None:
                results = results.held_against(options.baseline)
            written = write_report(results, options.out, options.task)
    except (ResultsError, OSError) as error:
        sys.exit(refusal(error))
    for path in written.paths:
        print(visible(str(path)))
    _say(results, console)
    if options.tracker:
        _track(options.tracker, results, written)


def _say(results: "Results", console: Console) -> None:
    """What is not finished, what is missing, and what stands apart."""
    if results.finished < results.cells:
        console.print(f"{results.finished} of {results.cells} cells are finished; the report says so.")
    about = [results.benchmark["about"]] if results.folders and results.benchmark["about"] else []
    for said in (*about, *results.apart.values()):
        console.print(visible(said), markup=False, soft_wrap=True)


def _check(tracker: str) -> None:
    """Refuse a tracker that takes no run, before anything is read."""
    from zoo.runs.trackers import TrackerError, check  # imports Lightning, which a report does without

    try:
        check(tracker)
    except TrackerError as error:
        sys.exit(visible(str(error)))


def _track(tracker: str, results: "Results", written: "Written") -> None:
    """Send the report to a tracker; if it refuses, the report stays."""
    from zoo.benchmark.report.files import as_tracked
    from zoo.runs.trackers import TrackerError, send_report

    try:
        print(visible(send_report(tracker, **as_tracked(results, written))))
    except (TrackerError, OSError) as error:
        said = visible(str(error)) if isinstance(error, TrackerError) else refusal(error)
        sys.exit(f"The report is written, and no tracker was told of it. {said}")
