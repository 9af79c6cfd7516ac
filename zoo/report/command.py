"""``python -m zoo report``: what a benchmark's runs say."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from zoo.report.attention import attention_rows
from zoo.report.files import attention_csv, gains_csv, negative_transfer_csv, results_csv
from zoo.report.gains import gains
from zoo.report.negative_transfer import transfers
from zoo.report.page import context, render
from zoo.report.results import Results, ResultsError, read_results
from zoo.run_folder import refusal, visible, write_together

#: Written by hand, put at the top of the page.
NOTES = "notes.md"


def parser() -> argparse.ArgumentParser:
    """Options of the command."""
    made = argparse.ArgumentParser(
        prog="python -m zoo report",
        description="Tables, paired tests, curves, slices and cost of a benchmark's finished runs, as Markdown (README.md), CSV "
        "(results.csv, gains.csv), figures (SVG) and one self-contained HTML page (report.html).",
        epilog=f"What stands in {NOTES} of the output folder is put at the top of the page.",
    )
    option = made.add_argument
    option("runs", type=Path, metavar="RUNS", help="folder of a benchmark's runs, such as runs/benchmarks/smoke")
    option("--out", type=Path, default=Path("report"), help="folder to write (default: %(default)s)")
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command; a refusal ends with its message."""
    options = parser().parse_args(arguments)
    console = Console()
    try:
        with console.status("Reading runs and testing differences ..."):
            results = read_results(options.runs)
            written = write_report(results, options.out)
    except (ResultsError, OSError) as error:
        sys.exit(refusal(error))
    for path in written:
        print(visible(str(path)))
    if results.finished < results.cells:
        console.print(f"{results.finished} of {results.cells} cells are finished; the report says so.")


def write_report(results: Results, out: Path) -> list[Path]:
    """Write every file of the report, and give them, the pages last; each is whole or not there."""
    found, moved = gains(results), transfers(results)
    notes = out / NOTES
    name, config = results.benchmark["name"], results.benchmark["config"]
    commands = [
        f"python -m zoo benchmark --config {config}",
        f"python -m zoo report runs/benchmarks/{name} --out {out if not out.is_absolute() else 'report/'}",
    ]
    values = context(results, found, commands, notes.read_text(encoding="utf-8") if notes.is_file() else "", moved)
    files = {"results.csv": results_csv(results), "gains.csv": gains_csv(found)}
    if moved:
        files["negative_transfer.csv"] = negative_transfer_csv(moved)
    if weighed := attention_rows(results):
        files["attention.csv"] = attention_csv(weighed)
    for chapter in values["chapters"]:
        for section in chapter.sections:
            files |= {f"{figure}.svg": svg for figure, svg in section.figures.items()}
    files |= {"README.md": render("page.md.j2", values), "report.html": render("page.html.j2", values)}
    write_together(out, files, last="README.md")
    return [out / file for file in files]
