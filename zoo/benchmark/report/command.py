"""``python -m zoo report``: tables and figures of finished runs.

Heavy modules are imported when the command runs, so that ``--help`` and wrong options return fast.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from zoo.runtime.arguments import Arguments
from zoo.runtime.run_folder import CONFIG, refusal, visible

if TYPE_CHECKING:
    from zoo.benchmark.report.files import WrittenReport
    from zoo.benchmark.report.results import Results


def parser() -> Arguments:
    """Return the options of the command."""
    made = Arguments(
        prog="python -m zoo report",
        description="Write leaderboards, paired tests, curves, slices and cost of finished runs of a benchmark or of fit. Formats: "
        "Markdown (README.md), CSV (results.csv, seeds.csv, gains.csv), figures (SVG) and one HTML page (report.html). "
        "Runs of fit with other test items, candidates or data get separate tables; a benchmark's tables name such rows.",
        epilog="The text of notes.md in the output folder is copied to the top of the page.",
    )
    option = made.add_argument
    runs = "folder of a benchmark, such as runs/benchmarks/smoke, or folders of runs of fit, such as runs/*/*"
    option("runs", type=Path, nargs="+", metavar="RUNS", help=runs)
    baseline = "baseline row for paired tests (default: the benchmark's own, or each task's best single-domain row; none for fit)"
    option("--baseline", metavar="NAME", help=baseline)
    task = "report only this task of a benchmark; repeat for several (default: all)"
    option("--task", action="append", default=[], metavar="NAME", help=task)
    lists = "also rank the held-out items by lists of another library: Parquet or CSV with user_id, item_id, and rank or score; "
    lists += (
        "a column seed, if any, names the runs' seed (default: the smallest); NAME: of the row (default: of the file)"
    )
    option("--lists", action="append", default=[], metavar="[NAME=]FILE", help=lists)
    latex = "also write these tables as LaTeX (booktabs): all tables whose title contains this text; an empty text: all"
    option("--latex", metavar="TITLE", help=latex)
    columns = "columns of the LaTeX tables, such as row,HR@10,NDCG@10 (default: all)"
    option("--columns", metavar="NAMES", help=columns)
    option("--out", type=Path, default=Path("report"), help="output folder (default: %(default)s)")
    champion = "RUNS are two runs over the same test cases, the one in use first: exit with 1 if the second is significantly worse "
    option("--champion", action="store_true", help=f"{champion}(NDCG@10, paired over users, 5 %%)")
    tracker = (
        "also send figures, results.csv, gains.csv and guarantees to this tracker as a run of the project cdr-zoo; W&B "
    )
    tracker += "without an account: WANDB_MODE=offline"
    option("--tracker", choices=("wandb", "tensorboard", "mlflow"), help=tracker)
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command; exit with a message on errors."""
    options = parser().parse_args(arguments)
    from zoo.benchmark.other_lists import with_lists
    from zoo.benchmark.report.files import write_report
    from zoo.benchmark.report.paired_differences import champion_test
    from zoo.benchmark.report.results import ResultsError

    console = Console()
    if options.tracker:
        _check_tracker(options.tracker)
    try:
        compared = champion_test(options.runs) if options.champion else None
        with console.status("Reading runs and testing differences ..."):
            results = _read(options)
            for one in options.lists:
                results = with_lists(results, one)
            columns = options.columns.split(",") if options.columns else []
            written = write_report(results, options.out, options.task, options.latex, columns)
    except (ResultsError, OSError) as error:
        sys.exit(refusal(error))
    for path in written.paths:
        print(visible(str(path)))
    _print_remarks(results, console)
    if options.tracker:
        _send(options.tracker, results, written)
    if compared is not None:
        print(visible(compared.text))
        sys.exit(int(compared.worse))


def _read(options: argparse.Namespace) -> "Results":
    """Return the runs of the given folders and tasks, with the given baseline."""
    from zoo.benchmark.report.results import read_results
    from zoo.benchmark.report.run_folders import read_run_folders

    is_benchmark = len(options.runs) == 1 and not (options.runs[0] / CONFIG).is_file()
    results = read_results(options.runs[0]) if is_benchmark else read_run_folders(options.runs)
    if options.task:
        results = results.only_tasks(options.task)
    return results if options.baseline is None else results.with_baseline(options.baseline)


def _print_remarks(results: "Results", console: Console) -> None:
    """Print the number of finished runs, folders without a test, and reasons for separate tables."""
    if results.num_finished < results.num_runs:
        console.print(f"{results.num_finished} of {results.num_runs} runs are finished.")
    about = [results.benchmark["about"]] if (results.folders or results.lists) and results.benchmark["about"] else []
    for remark in (*about, *results.separation.values()):
        console.print(visible(remark), markup=False, soft_wrap=True)


def _check_tracker(tracker: str) -> None:
    """Refuse an unavailable tracker before any run is read."""
    from zoo.runs.trackers import TrackerError, check  # imports Lightning

    try:
        check(tracker)
    except TrackerError as error:
        sys.exit(visible(str(error)))


def _send(tracker: str, results: "Results", written: "WrittenReport") -> None:
    """Send the report to a tracker; the report stays if that fails."""
    from zoo.benchmark.report.files import tracker_payload
    from zoo.runs.trackers import TrackerError, send_report

    try:
        print(visible(send_report(tracker, **tracker_payload(results, written))))
    except (TrackerError, OSError) as error:
        reason = visible(str(error)) if isinstance(error, TrackerError) else refusal(error)
        sys.exit(f"The report is written, but was not sent to the tracker. {reason}")
