"""``python -m zoo report``: what a benchmark's runs say."""

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from zoo.report.attention import attention_rows
from zoo.report.files import attention_csv, gains_csv, negative_transfer_csv, results_csv
from zoo.report.gains import gains
from zoo.report.negative_transfer import transfers
from zoo.report.page import context, render
from zoo.report.results import BASELINE, Results, ResultsError, read_results
from zoo.report.run_folders import named, read_run_folders
from zoo.run_folder import CONFIG, refusal, visible, write_together

#: Written by hand, put at the top of the page.
NOTES = "notes.md"


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    made = argparse.ArgumentParser(
        prog="python -m zoo report",
        description="Leaderboards, paired tests, curves, slices and cost of a benchmark's finished runs, or of any runs that fit "
        "has left, as Markdown (README.md), CSV (results.csv, gains.csv), figures (SVG) and one self-contained HTML page "
        "(report.html). Runs that were tested on other items, candidates or data stand in tables of their own.",
        epilog=f"What stands in {NOTES} of the output folder is put at the top of the page.",
    )
    option = made.add_argument
    said = "folder of a benchmark's runs, such as runs/benchmarks/smoke, or folders of runs that fit has left, such as runs/*/*"
    option("runs", type=Path, nargs="+", metavar="RUNS", help=said)
    option(
        "--baseline",
        metavar="NAME",
        help="row to hold all others against (default: a benchmark's own, or EASE; of runs none)",
    )
    option("--out", type=Path, default=Path("report"), help="folder to write (default: %(default)s)")
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command; a refusal ends with its message."""
    options = parser().parse_args(arguments)
    console = Console()
    try:
        with console.status("Reading runs and testing differences ..."):
            one = len(options.runs) == 1 and not (options.runs[0] / CONFIG).is_file()
            results = read_results(options.runs[0]) if one else read_run_folders(options.runs)
            if options.baseline is not None:
                results = results.held_against(options.baseline)
            written = write_report(results, options.out)
    except (ResultsError, OSError) as error:
        sys.exit(refusal(error))
    for path in written:
        print(visible(str(path)))
    if results.finished < results.cells:
        console.print(f"{results.finished} of {results.cells} cells are finished; the report says so.")
    about = [results.benchmark["about"]] if results.folders and results.benchmark["about"] else []
    for said in (*about, *results.apart.values()):
        console.print(visible(said), markup=False, soft_wrap=True)


def commands(results: Results, out: Path) -> list[str]:
    """What to give to make these runs and this report again, without names of folders of this machine."""
    where = f"--out {out if not out.is_absolute() else 'report/'}"
    if results.folders:
        other = f" --baseline {shlex.quote(results.baseline)}" if results.baseline else ""
        return [f"python -m zoo report {shlex.join(map(named, results.folders))}{other} {where}"]
    name, config = results.benchmark["name"], results.benchmark["config"]
    asked = results.baseline != (results.benchmark.get("baseline") or BASELINE)
    other = f" --baseline {shlex.quote(results.baseline)}" if asked else ""
    return [f"python -m zoo benchmark --config {config}", f"python -m zoo report runs/benchmarks/{name}{other} {where}"]


def write_report(results: Results, out: Path) -> list[Path]:
    """Write every file of the report, and give them, the pages last; each is whole or not there."""
    found, moved = gains(results), transfers(results)
    notes = out / NOTES
    values = context(
        results, found, commands(results, out), notes.read_text(encoding="utf-8") if notes.is_file() else "", moved
    )
    files = {"results.csv": results_csv(results), "gains.csv": gains_csv(found)}
    if moved:
        files["negative_transfer.csv"] = negative_transfer_csv(moved)
    if weighed := attention_rows(results):
        files["attention.csv"] = attention_csv(weighed)
    files["overview.svg"] = values["overview"]
    for chapter in values["chapters"]:
        for section in chapter.sections:
            files |= {f"{figure}.svg": svg for figure, svg in section.figures.items()}
    files |= {"README.md": render("page.md.j2", values), "report.html": render("page.html.j2", values)}
    write_together(out, files, last="README.md")
    return [out / file for file in files]
