"""Folders of benchmark runs as training leaves them, written without training: every rank is drawn here."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
import yaml

from tests.zoo.privacy.record.stated import earlier_file
from zoo.benchmark.command import save_grid
from zoo.benchmark.grid import SEARCH, TRIALS, Row
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.report.results import CUT_OFFS, MEASURES, RANKINGS, Line, Results, Run, read_results
from zoo.benchmark.runs import RUN_FILE, BenchmarkRun, folder_of, runs_of
from zoo.data.metrics import METRICS, ranking_values
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.record.record import PrivacyRecord, unprotected_record

#: What somebody writes beside a report.
NOTES = """WrittenReport by hand: **two words**, `code <T>`, [a page](https://example.org/a?b=1&c=2).

## What stands out

- first entry
- second **entry**
  on two lines
- 2 < 3 & 4

Last words.
"""

Record = dict[str, Any]
Ranks = npt.NDArray[np.int64]

VERSIONS = {"zoo": "0.1.0", "torch": "2.0"}
#: Candidates beside the positive, by ranking.
OTHERS = {"full": 149, "sampled": 99}
SEEDS = [0, 1, 2]
JLT = {"class_path": "JLT", "init_args": {"num_components": 8}}
CONFIG: dict[str, Any] = {"config": "system.yaml"}
EASE = CONFIG | {"seeds": [0]}
DOUBAN = {"dataset": "douban", "source": "book", "target": "music"}
#: Every kind of row once: controls with one seed, rows with and without a guarantee, three kinds of guarantee.
GRID: dict[str, Any] = {
    "title": "Fabricated <runs> & figures",
    "about": "Ranks are drawn, not learned.\n",
    "seeds": SEEDS,
    "tasks": {
        "book-music": {"title": "Book -> Music", "published": DOUBAN},
        "cold": {"title": "Music & nothing known"},
        "empty": {"title": "Nobody has run this"},
    },
    "systems": {
        "Popularity": EASE,
        "EASE": EASE,
        "DMF": {"config": "system.yaml", "tasks": ["book-music"], "published_as": "DMF", "reason": "another loss"},
        "PriCDR": {
            "config": "system.yaml",
            "tasks": ["book-music", "cold"],
            "releases": [
                {"publisher": "Plaintext"},
                {"publisher": JLT, "epsilons": [1, 8], "published_as": "PriCDR-J", "reason": "another noise"},
                {"publisher": JLT, "epsilons": [64], "published_as": "PriCDR-J", "tasks": ["book-music"]},
                {"publisher": {"class_path": "Shuffled", "init_args": {"of": "Plaintext"}}},
                {"publisher": "Nothing"},
            ],
        },
        "Whole users": {
            "config": "system.yaml",
            "tasks": ["book-music"],
            "releases": [
                {"publisher": JLT, "epsilons": [4]},
                {"publisher": JLT, "label": "smaller delta", "noise_control": False},
            ],
        },
        "Searched": {
            **EASE,
            "tasks": ["book-music"],
            "releases": [{"publisher": JLT, "noise_control": False}],
            "search": {"trials": 7, "parameters": {"model.lr": {"low": 0.1, "high": 1.0}}},
        },
        "Unfinished": {"config": "system.yaml", "tasks": ["book-music", "empty"]},
    },
}

#: A few rows on one task, and the same without a guarantee, of which nothing is drawn.
SMALL: dict[str, Any] = GRID | {
    "tasks": {"cold": {"title": "Cold"}},
    "systems": {"EASE": EASE, "PriCDR": {**CONFIG, "releases": [{"publisher": JLT, "epsilons": [1]}]}},
}
BARE: dict[str, Any] = SMALL | {
    "systems": {"EASE": EASE, "PriCDR": {**CONFIG, "releases": [{"publisher": "Plaintext"}]}}
}


@dataclass
class Facts:
    """What a run is to have found: everything that its files say.

    Attributes:
        ranks: Candidates above the positive of every case, by ranking.
        users: Of every case.
        train_items: Of the user of every case.
        linked: Whether the release has a row of the user.
        records: Of the releases, by source.
        counted: Cases ranked by item counts.
        more: Other entries of ``metrics.json``.
    """

    ranks: dict[str, Ranks]
    users: list[str]
    train_items: list[int]
    linked: list[bool]
    records: dict[str, Record] = field(default_factory=dict)
    counted: int = 0
    more: dict[str, Any] = field(default_factory=dict)


FactsOf = Callable[[Row, int], Facts | None]


def proved(
    epsilon: float = 1.0, delta: float = 1e-5, relation: Relation = Relation.CHANGE_ONE_RATING, **changed: object
) -> Record:
    """The record of a release with a guarantee."""
    return earlier_file(epsilon=epsilon, delta=delta, relation=relation) | changed


def unproved(reason: str = "the ratings are handed over as they are") -> Record:
    """The record of a release that protects nobody."""
    return unprotected_record("Plaintext", reason).to_dict()


def rng_of(*names: object) -> np.random.Generator:
    """Draws that depend on nothing but these names."""
    return np.random.default_rng(zlib.crc32(repr(names).encode()))


def drawn_ranks(rng: np.random.Generator, hardness: npt.NDArray[np.float64]) -> dict[str, Ranks]:
    """Ranks of cases: the harder, the further down; in the same order in both rankings."""
    drawn = rng.exponential(hardness)
    return {ranking: np.minimum(drawn * others / 99, others).astype(np.int64) for ranking, others in OTHERS.items()}


def facts_of(row: Row, seed: int, cases: int = 60) -> Facts | None:
    """The runs of :data:`GRID`: a release helps a little and the less so the stronger its guarantee."""
    if row.system == "Unfinished" or row.task == "empty":
        return None
    cold = row.task == "cold"
    users = [f"u{i:03}" for i in range(cases)]
    if cold:  # users follow the seed
        users = [f"u{i:03}" for i in rng_of("users", seed).permutation(2 * cases)[:cases]]
    hardness = rng_of("hardness", row.task).gamma(2.0, 8.0, 2 * cases)[[int(user[1:]) for user in users]]
    gain = {"DMF": 1.0, "EASE": 1.2}.get(row.system, 0.4 if not row.release else 0.9)
    if row.release == "Plaintext":
        gain = 1.5
    elif row.epsilon and not row.control:
        gain = 1.0 + row.epsilon / 100
    linked = [bool(row.release) and row.release != "Nothing" and not (cold and int(u[1:]) % 5 == 0) for u in users]
    return Facts(
        drawn_ranks(rng_of("ranks", row.task, row.name, seed), hardness / gain),
        users,
        [0 if cold else (7 * int(user[1:])) % 61 for user in users],
        linked,
        {"book": record_of(row)} if row.release else {},
        counted=cases if cold and row.system == "EASE" else 0,
    )


def record_of(row: Row) -> Record:
    """What the release of a row of :data:`GRID` guarantees."""
    if row.control == "noise":
        return unproved("control: the ratings were redrawn at random")
    if row.release == "Nothing":
        return unproved("control: nothing is released")
    if row.release in ("Plaintext", "Shuffled"):
        return unproved()
    epsilon = row.epsilon or 5.0
    if row.system == "Whole users":
        return proved(epsilon, 1e-6 if row.release == "smaller delta" else 1e-5, relation=Relation.REPLACE_ONE_USER)
    return proved(epsilon)


def fabricate(folder: Path, grid: dict[str, Any] = GRID, facts: FactsOf = facts_of) -> Path:
    """Write ``bench.yaml``, its config and the runs of its cells into a folder; gives the folder of the runs."""
    folder.mkdir(parents=True, exist_ok=True)
    grid = ({"baseline": "EASE"} if "EASE" in grid["systems"] else {}) | grid
    (folder / "system.yaml").write_text("model: Popularity\n", encoding="utf-8")
    (folder / "bench.yaml").write_text(yaml.safe_dump(grid, sort_keys=False), encoding="utf-8")
    with contextlib.chdir(folder):  # paths of a benchmark are relative to where its command is run
        benchmark, root = read_benchmark(Path("bench.yaml")), Path("runs")
        root.mkdir(exist_ok=True)
        save_grid(benchmark, Path("bench.yaml"), root)
        for cell in runs_of(benchmark, root):
            if (found := facts(cell.row, cell.seed)) is not None:
                write_run(cell, found)
    return folder / "runs"


def write_run(cell: BenchmarkRun, facts: Facts) -> None:
    """The files of a finished cell, as far as a report reads them."""
    cell.prepare_folder()
    cases = cases_of(facts)
    cases.write_parquet(cell.folder / "test_cases.parquet")
    search = cell.settings()["search"]
    report = {
        "method": cell.row.system.split()[0],
        "seed": cell.seed,
        "train_seconds": 2.0 + cell.seed,
        "epochs": 3 + cell.seed,
        "parameters": 1234,
        "ranked_by_item_counts": facts.counted,
        "tested": {"candidates": "of every seed"},
        "metrics": {f"test/{name}": float(np.float32(cases[name].cast(pl.Float64).mean())) for name in figures(cases)},
        "peak_memory": 400 + cell.seed,
        "commit": "" if search else "0123abcd",
        "threads": 2 if search else 1,
        "machine": "a processor, 2 cores",
        "release_bytes": dict.fromkeys(facts.records, 1000),
        "privacy": {name: PrivacyRecord.from_dict(record).summary() for name, record in facts.records.items()},
    }
    kept = {"settings": cell.settings(), "seconds": 10.0 + (100 if search else 0), "versions": VERSIONS}
    if search:
        chosen = {name: values["low"] for name, values in search["parameters"].items()}
        trials = [{"settings": chosen, "val/ndcg@10": 0.1}] * search["trials"]
        (cell.folder / SEARCH).mkdir()
        (cell.folder / SEARCH / TRIALS).write_text(json.dumps({"chosen": chosen, "trials": trials}), encoding="utf-8")
    for name, value in (("metrics.json", report | facts.more), ("privacy.json", facts.records), (RUN_FILE, kept)):
        (cell.folder / name).write_text(json.dumps(value) + "\n", encoding="utf-8")


def cases_of(facts: Facts) -> pl.DataFrame:
    """``test_cases.parquet`` of ranks."""
    columns: dict[str, Any] = {
        "user_id": facts.users,
        "item_id": [f"i{i}" for i in range(len(facts.users))],
        "train_items": facts.train_items,
        "linked": facts.linked,
    }
    for ranking, ranks in facts.ranks.items():
        values = ranking_values(torch.as_tensor(ranks), torch.zeros(len(ranks), dtype=torch.long), CUT_OFFS)
        for i, k in enumerate(CUT_OFFS):
            columns |= {f"{ranking}/{name}@{k}": values[i, j].float().numpy() for j, name in enumerate(METRICS)}
    return pl.DataFrame(columns).sort("user_id", "item_id")


def figures(cases: pl.DataFrame) -> list[str]:
    """Columns of figures."""
    return [name for name in cases.columns if "/" in name]


def a_run(seed: int = 0, records: dict[str, Record] | None = None, **metrics: float) -> Run:
    """A run in memory: its records, and figures by ``sampled_ndcg_10``; it has no cases."""
    found = {f"test/{ranking}/{measure}": 0.1 for ranking in RANKINGS for measure in MEASURES}
    for name, value in metrics.items():
        ranking, rest = name.split("_", 1)
        found[f"test/{ranking}/{'@'.join(rest.rsplit('_', 1))}"] = value
    report = {"metrics": found, "ranked_by_item_counts": 0}
    return Run(seed, Path("nowhere"), report, records or {}, 1.0, 0, VERSIONS)


def a_line(*records: Record, name: str = "PriCDR", release: str = "JLT") -> Line:
    """A row in memory, with a run for each record."""
    return Line(Row("music", name, release), tuple(a_run(i, {"book": r}) for i, r in enumerate(records)))


def line_of(results: Results, task: str, name: str) -> Line:
    """A row by its name."""
    [found] = [line for line in results.lines[task] if line.name == name]
    return found


def cell_folder(root: Path, line: Line, seed: int = 0) -> Path:
    """Where a run lies."""
    return root / folder_of(line.row) / f"seed-{seed}"


def reread(folder: Path, grid: dict[str, Any] = GRID, facts: FactsOf = facts_of) -> Results:
    """Write runs and read them."""
    return read_results(fabricate(folder, grid, facts))


def in_memory(lines: list[Line], task: str = "book-music", where: dict[str, str] | None = None) -> Results:
    """Rows as if they were read."""
    return Results({"tasks": {task: {"title": "M", "published": where}}}, {task: lines}, len(lines))
