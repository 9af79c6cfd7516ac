"""Measures what a source is worth to PriCDR, and writes the result page.

    python benchmarks/transfer.py book-music                 # runs what is missing, then writes the page
    python benchmarks/transfer.py book-music --shard 0/2     # one of two processes: runs its share, writes nothing
    python benchmarks/transfer.py book-music --report        # writes the page from finished runs

Every cell of a table is an ordinary run in a folder of its own under `runs/<task>`; finished cells are not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from cells import Cell, mean_sd, peak_memory, run_all, table

SEEDS = range(5)


def jlt(epsilon: float, **settings: Any) -> dict[str, Any]:  # noqa: ANN401  any setting
    """Settings of a JLT publisher."""
    return {"class_path": "JLT", "init_args": {"epsilon": epsilon, "num_components": 400, **settings}}


def control(name: str, of: dict[str, Any]) -> dict[str, Any]:
    """Settings of a control; the seed of its draw is that of the cell."""
    return {"class_path": name, "init_args": {"of": of}}


PLAINTEXT: dict[str, Any] = {"class_path": "Plaintext"}
PUBLISHERS: dict[str, dict[str, Any]] = {
    "Plaintext": PLAINTEXT,
    "JLT eps 64": jlt(64.0),
    "JLT eps 16": jlt(16.0),
    "JLT eps 8": jlt(8.0),
    "JLT eps 4": jlt(4.0),
    "JLT eps 1": jlt(1.0),
    "JLT with the paper's w for eps 8": jlt(8.0, calibration="paper"),
    "Shuffled (JLT eps 8)": control("Shuffled", jlt(8.0)),
    "Noise (JLT eps 8)": control("Noise", jlt(8.0)),
    "Noise (Plaintext)": control("Noise", PLAINTEXT),
    "Nothing": {"class_path": "Nothing"},
}


@dataclass(frozen=True)
class Task:
    """One direction of a task, and which systems are compared on it.

    Attributes:
        name: Folder of its runs.
        title: Heading on the page.
        config: Of PriCDR on this task.
        data: Arguments that make the direction.
        deterministic: Systems that are run once, as no seed changes them.
        variants: Extra settings of PriCDR, by the name that its rows bear, with the publishers they are run with.
    """

    name: str
    title: str
    config: str
    data: tuple[str, ...]
    deterministic: frozenset[str]
    variants: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]

    def systems(self, seed: int) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Name and arguments of every system with one seed."""
        for method in ("Popularity", "EASE", "DMF"):
            yield method, ("--model", method, "--publisher", "null")
        symmetric = ("--model", "PriCDRSym", "--model.alignment_weight", "1")
        yield "PriCDRSym, JLT eps 8", (*symmetric, "--publisher", json.dumps(PUBLISHERS["JLT eps 8"]))
        for variant, (settings, publishers) in self.variants.items():
            for name in publishers:
                drawn = ("--publisher.seed", str(seed)) if name.startswith(("Noise", "Shuffled")) else ()
                yield f"{variant}, {name}", (*settings, "--publisher", json.dumps(PUBLISHERS[name]), *drawn)

    def cells(self, root: Path) -> list[Cell]:
        """Every system with every seed."""
        base = ("--config", self.config, *self.data)
        cells = [
            Cell(system, (*base, *arguments), seed, root / self.name)
            for seed in SEEDS
            for system, arguments in self.systems(seed)
            if seed == SEEDS[0] or system not in self.deterministic
        ]
        order = [system for system, _ in self.systems(SEEDS[0])]
        return sorted(cells, key=lambda cell: order.index(cell.system))


def douban(source: str, target: str) -> Task:
    """Douban in one direction, with the paper's alignment weight of 100."""
    return Task(
        f"{source}-{target}",
        f"Douban {source.title()} -> {target.title()}",
        "configs/pricdr/douban.yaml",
        ("--data.target", target, "--data.sources", f"[{source}]"),
        frozenset({"Popularity", "EASE"}),
        {
            "PriCDR": ((), tuple(name for name in PUBLISHERS if name != "Noise (Plaintext)")),
        },
    )


TASKS = {
    "book-music": [douban("book", "music"), douban("music", "book")],
    "cold-start": [
        Task(
            "books-movies-cold",
            "Amazon Books <- Movies, cold start",
            "configs/pricdr/cold_start.yaml",
            (),
            frozenset(),
            {"PriCDR": ((), tuple(PUBLISHERS))},
        )
    ],
}
PAGES = {"book-music": "douban-book-music", "cold-start": "cold-start"}


def results(task: Task, root: Path) -> dict[str, list[dict[str, Any]]]:
    """Finished runs by system, in the order of the table."""
    found: dict[str, list[dict[str, Any]]] = {}
    for cell in task.cells(root):
        if (result := cell.result()) is not None:
            found.setdefault(cell.system, []).append(result)
    return found


def differences(systems: dict[str, list[dict[str, Any]]], control: str) -> str:
    """Markdown: each PriCDR row less its control, paired by seed (split and candidates are then the same)."""
    keys = ["test/sampled/hit_rate@10", "test/sampled/ndcg@10", "test/full/ndcg@10"]
    lines = [
        f"| less {control} | HR@10 sampled | NDCG@10 sampled | NDCG@10 full |",
        "|---|---:|---:|---:|",
    ]
    variant, _ = control.rsplit(", ", 1)
    base = {r["seed"]: r["metrics"] for r in systems[control]}
    for name, runs in systems.items():
        if not name.startswith(f"{variant}, ") or name == control or name.rsplit(", ", 1)[0] != variant:
            continue
        cells = []
        for key in keys:
            gaps = [r["metrics"][key] - base[r["seed"]][key] for r in runs if r["seed"] in base]
            mean, sd = mean_sd(gaps)
            cells.append(f"{mean:+.4f} ±{sd:.4f} ({sum(g > 0 for g in gaps)} of {len(gaps)} above 0)")
        lines.append(f"| {name.rsplit(', ', 1)[1]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def privacy(systems: dict[str, list[dict[str, Any]]]) -> str:
    """Markdown: what the release of each row guarantees."""
    lines = ["| system | its release |", "|---|---|"]
    for name, runs in systems.items():
        said = sorted(set(runs[0]["privacy"].values())) or ["no release"]
        lines.append(f"| {name} | {'; '.join(said)} |")
    return "\n".join(lines)


def page(name: str, root: Path) -> str:
    """The tables of a page, between the marks that surround generated text."""
    parts = []
    for task in TASKS[name]:
        systems = results(task, root)
        wanted, done = len(task.cells(root)), sum(map(len, systems.values()))
        parts += [f"## {task.title}", f"{done} of {wanted} runs. Mean and standard deviation over seeds."]
        for ranking, words in (("sampled", "1 + 99 candidates"), ("full", "all items")):
            parts += [f"### {ranking.title()} ranking ({words})", table(systems, ranking)]
        parts.append("### The source's worth: PriCDR against its own noise control, paired by seed")
        parts += [differences(systems, control) for control in systems if ", Noise (" in control]
        parts += ["### What the releases guarantee", privacy(systems)]
        seconds = statistics.mean(r["train_seconds"] for runs in systems.values() for r in runs)
        parts.append(f"Training took {seconds:.0f} s a run on average.")
    return "\n\n".join(parts)


BEGIN, END = "<!-- generated: begin -->", "<!-- generated: end -->"


def write_page(name: str, root: Path, folder: Path) -> Path:
    """Put the tables between the page's marks; what is written around them stays."""
    path = folder / f"{PAGES[name]}.md"
    text = path.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    path.write_text(f"{head}{BEGIN}\n\n{page(name, root)}\n\n{END}{tail}", encoding="utf-8")
    return path


def main() -> None:
    """Run what is missing, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("--runs", type=Path, default=Path("runs/transfer"), help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="folder of the page")
    parser.add_argument("--shard", default="", help="i/n: run every n-th cell from the i-th on, write no page")
    parser.add_argument("--report", action="store_true", help="run nothing, write the page")
    options = parser.parse_args()
    cells = [cell for task in TASKS[options.task] for cell in task.cells(options.runs)]
    cells.sort(key=lambda cell: cell.system.count(", ") > 1)  # the variants last, in every direction
    if options.shard:
        torch.set_num_threads(1)
        first, step = map(int, options.shard.split("/"))
        cells = cells[first::step]
    failed = [] if options.report else run_all(cells)
    if not options.shard:
        print(f"Page: {write_page(options.task, options.runs, options.out)}; peak memory {peak_memory():.0f} MiB")
    if failed:
        raise SystemExit(f"{len(failed)} cells failed: {[cell.system for cell in failed]}")


if __name__ == "__main__":
    main()
