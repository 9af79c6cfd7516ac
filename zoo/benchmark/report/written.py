"""Written: a report's files, tables and figures and pages together, whole or not at all."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.benchmark.grid import slug
from zoo.benchmark.report.attention import attention_rows
from zoo.benchmark.report.figures import Picture
from zoo.benchmark.report.files import attention_csv, gains_csv, negative_transfer_csv, results_csv, seeds_csv
from zoo.benchmark.report.gains import gains
from zoo.benchmark.report.negative_transfer import transfers
from zoo.benchmark.report.page import context, render
from zoo.benchmark.report.results import BASELINE, Results
from zoo.benchmark.report.run_folders import named
from zoo.runtime.run_folder import write_together

#: Written by hand, put at the top of the page.
NOTES = "notes.md"


@dataclass(frozen=True)
class Written:
    """A report that was written."""

    folder: Path
    files: dict[str, str]  # their texts by name, the pages last
    pictures: dict[str, Picture]  # by the names of their files without an ending

    @property
    def paths(self) -> list[Path]:
        """Where the files are."""
        return [self.folder / file for file in self.files]


def commands(results: Results, out: Path, tasks: Sequence[str] = ()) -> list[str]:
    """What to give to make these runs and this report again, without names of folders of this machine."""
    where = f"--out {out if not out.is_absolute() else 'report/'}"
    if results.folders:
        other = f" --baseline {shlex.quote(results.baseline)}" if results.baseline else ""
        return [f"python -m zoo report {shlex.join(map(named, results.folders))}{other} {where}"]
    name, config = results.benchmark["name"], results.benchmark["config"]
    asked = results.baseline != (results.benchmark.get("baseline") or BASELINE)
    other = f" --baseline {shlex.quote(results.baseline)}" if asked else ""
    only = [f" --only {shlex.quote(f'{slug(task)}/*')}" for task in tasks] or [""]
    chosen = "".join(f" --task {shlex.quote(task)}" for task in tasks)
    ran = [f"python -m zoo benchmark --config {config}{part}" for part in only]
    return [*ran, f"python -m zoo report runs/benchmarks/{name}{chosen}{other} {where}"]


def write_report(results: Results, out: Path, tasks: Sequence[str] = ()) -> Written:
    """Write every file of the report; each is whole or not there. `tasks` are those asked for."""
    found, moved = gains(results), transfers(results)
    notes = out / NOTES
    values = context(
        results,
        found,
        commands(results, out, tasks),
        notes.read_text(encoding="utf-8") if notes.is_file() else "",
        moved,
    )
    files = {"results.csv": results_csv(results), "seeds.csv": seeds_csv(results), "gains.csv": gains_csv(found)}
    if moved:
        files["negative_transfer.csv"] = negative_transfer_csv(moved)
    if weighed := attention_rows(results):
        files["attention.csv"] = attention_csv(weighed)
    pictures: dict[str, Picture] = {"overview": values["overview"]}
    for chapter in values["chapters"]:
        for section in chapter.sections:
            pictures |= section.figures
    files |= {f"{name}.svg": picture.svg for name, picture in pictures.items()}
    files |= {"README.md": render("page.md.j2", values), "report.html": render("page.html.j2", values)}
    write_together(out, files, last="README.md")
    return Written(out, files, pictures)
