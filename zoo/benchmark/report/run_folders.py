"""Runs outside of a benchmark as the rows of one report: which of them share a table, and the names of the rows."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import yaml

from zoo.benchmark.grid import Row, slug
from zoo.benchmark.report.results import DECIDING, RANKINGS, Line, Results, ResultsError, Run, read_files
from zoo.benchmark.runs import BENCHMARK
from zoo.runtime.exports import PUBLISHERS
from zoo.runtime.run_folder import CASES, CONFIG, DATA, FREE, METRICS, PRIVACY, flat

#: Settings in which runs of one row differ.
SEEDS = ("seed_everything", "data.init_args.seed", "publisher.init_args.seed", "publisher.init_args.of.init_args.seed")
#: Settings of the data that do not change the test, so that they may differ within a table.
OF_TRAINING = ("sources", "catalogues", "batch_size", "denoiser", "missing_users", "top_k")
#: Why two runs of one seed are not in one table, with the form for a title.
SHORT = {
    "other items are held out": "other items held out",
    "there are other ratings to train on": "other ratings",
    "held-out items are ranked among other candidates": "other candidates",
    "ties are counted otherwise": "other ties",
}
ITEMS, RATINGS, CANDIDATES, TIES = SHORT
#: The reason for each part of the test that differs.
SAME = {"held out": ITEMS, "history": RATINGS, "ratings": RATINGS, "drawn": CANDIDATES, "candidates": CANDIDATES}
SAME["ties"] = TIES
#: Settings that a name has at most; if more differ, the folder names the row.
IN_A_NAME = 3


@dataclass(frozen=True)
class Release:
    """What a run was given, as a row of a benchmark has it."""

    name: str = ""  # empty: nothing
    control: Literal["", "noise", "control"] = ""
    of: str = ""  # for a noise control: the release that it imitates
    epsilon: float | None = None


@dataclass(frozen=True, eq=False)
class RunFolder:
    """One run, and what its folder says of how it was made and on what it was tested."""

    path: Path
    run: Run
    settings: dict[str, Any]  # plain, as its config has them
    data: dict[str, Any]  # the summary of its data

    @property
    def method(self) -> str:
        """Class of the method."""
        return str(self.run.report["method"])

    @cached_property
    def release(self) -> Release:
        """What it was given, in words."""
        return release_of(self.settings.get("publisher"), self.run)

    @property
    def target(self) -> dict[str, Any]:
        """Of these, what the target's data are and what is held out of them."""
        free = tuple(f"data.init_args.{name}" for name in OF_TRAINING)
        own = self.run.settings.items()
        return {key: value for key, value in own if key.startswith("data.") and not _under(key, free)}

    @cached_property
    def tested(self) -> dict[str, str]:
        """What it was tested on, by the keys of `SAME`; runs of earlier versions do not tell all of it."""
        cases = self.run.cases.sort("user_id", "item_id")
        evaluation = self.settings.get("data", {}).get("init_args", {}).get("evaluation") or {}
        drawn = [evaluation.get(key) for key in ("num_candidates", "shared_candidates", "weighted_candidates")]
        found = {
            "held out": _digest(cases["user_id"].to_list(), cases["item_id"].to_list()),
            "history": _digest(cases["train_items"].to_list()),
            **self.run.report.get("tested", {}),
        }
        if any(value is not None for value in drawn):
            found["drawn"] = json.dumps(drawn)
        return found | ({"ties": str(evaluation["ties"])} if "ties" in evaluation else {})


@dataclass(eq=False)
class _Grouped:
    """Runs of one row, by seed, and later the table that they stand in."""

    runs: dict[int, RunFolder]

    @property
    def first(self) -> RunFolder:
        return next(iter(self.runs.values()))


@dataclass(eq=False)
class _Table:
    """Rows that were tested on the same, and why they stand apart from those of the first table."""

    rows: list[_Grouped]
    apart: list[str] = field(default_factory=list)

    def differs(self, row: _Grouped) -> list[str]:
        """Why a row may not stand here; nothing if it may."""
        said: list[str] = []
        for other in self.rows:
            both = row.runs.keys() & other.runs.keys()
            for seed in sorted(both):
                ours, theirs = row.runs[seed].tested, other.runs[seed].tested
                common = ours.keys() & theirs.keys()
                said += [why for key, why in SAME.items() if key in common and ours[key] != theirs[key]]
            mine, theirs = row.first.target, other.first.target
            if not both and (changed := sorted(k for k in {*mine, *theirs} if mine.get(k) != theirs.get(k))):
                names = ", ".join(map(short, changed))
                said.append(f"no seed is common, and these settings of the data differ: {names}")
        return list(dict.fromkeys(said))


def read_run_folders(folders: Sequence[Path]) -> Results:
    """Read runs of `fit`, with a table for those that were tested on the same.

    Runs that differ in their seed alone are one row. `Results.apart` says why a table is separate. Untested runs are left out.

    Raises:
        ResultsError: If a folder is not a tested run, or is named twice.
    """
    tested, left_out = _tested(folders)
    lines: dict[str, list[Line]] = {}
    titles: dict[str, str] = {}
    apart: dict[str, str] = {}
    for table in _tables(_rows([_read(folder) for folder in tested])):
        title = _title(table)
        task = _new(slug(title), lines)
        if table.apart:
            first = next(iter(titles.values()))
            apart[task] = f"These runs do not stand in the table of {first}: {'; '.join(table.apart)}."
        titles[task] = title if task == slug(title) else _told_apart(title, table, titles.values())
        lines[task] = list(_lines(task, table))
    described = _as_benchmark(tested, titles, lines) | {"about": left_out}
    return Results(described, lines, len(tested), "", apart, tuple(tested))


def named(folder: Path) -> str:
    """A folder for a page: as it was given, but without where on this machine it lies."""
    return str(Path(*folder.parts[-2:]) if folder.is_absolute() else folder)


def _tested(folders: Sequence[Path]) -> tuple[list[Path], str]:
    """Folders to read, without those that hold no run that was tested, and a sentence that names these."""
    runs = [folder for folder in folders if _trained_and_tested(folder)]
    places = [folder.resolve() for folder in runs]
    if twice := [str(folder) for i, folder in enumerate(runs) if places[i] in places[:i]]:
        raise ResultsError(f"Named more than once: {', '.join(twice)}. Name each run once.")
    if not runs or not all(folder.is_dir() for folder in folders):  # it is said what they lack
        return list(folders), ""
    others = [folder for folder in folders if folder not in runs]
    said = f"Left out, as `fit` has not left a test there: {', '.join(map(named, others))}." if others else ""
    return runs, said


def _trained_and_tested(folder: Path) -> bool:
    """Whether `fit` has left it with the figures of a test; what `test` finds of a checkpoint says nothing of a training."""
    if not all((folder / name).is_file() for name in (CONFIG, METRICS)):
        return False
    try:
        found = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    except ValueError:
        return True  # it is damaged, which whoever reads it says
    return not isinstance(found, dict) or "train_seconds" in found or "method" not in found


def _tables(rows: Sequence[_Grouped]) -> list[_Table]:
    """Each row in the first table where it may stand, or in one of its own."""
    tables: list[_Table] = []
    for row in rows:
        reasons = [table.differs(row) for table in tables]
        if [] in reasons:
            tables[reasons.index([])].rows.append(row)
        else:
            tables.append(_Table([row], reasons[0] if reasons else []))
    return tables


def _read(folder: Path) -> RunFolder:
    if (folder / BENCHMARK).is_file():
        raise ResultsError(f"{folder} is the folder of a benchmark. It has its own report: name it alone.")
    if missing := [name for name in (CONFIG, METRICS, PRIVACY, CASES) if not (folder / name).is_file()]:
        raise ResultsError(f"{folder} is no folder of a tested run: it has no {missing[0]}. Name runs of fit.")
    try:
        text = (folder / CONFIG).read_text(encoding="utf-8")
        settings = yaml.safe_load(text)
        report, privacy = read_files(folder)
        data = json.loads(path.read_text(encoding="utf-8")) if (path := folder / DATA).is_file() else {}
        versions = dict(re.findall(r"^#\s*([\w-]+)[= ]+([\w.+-]+)", text, re.M)[:1])
        own = own_settings(settings, with_publisher=bool(report["release_bytes"]))
        run = Run(int(report["seed"]), folder, report, privacy, float(report["train_seconds"]), 0, versions, None, own)
        made = RunFolder(folder, run, settings, data)
        if not any(f"test/{ranking}/{DECIDING}" in report["metrics"] for ranking in RANKINGS):
            raise ResultsError(f"{folder} has no test NDCG@10: it held nothing out, or ranked nothing.")
        made.tested  # noqa: B018  what cannot be read is said now
    except ResultsError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, OSError, yaml.YAMLError) as error:
        said = str(error).split("\n", 1)[0]
        kind = type(error).__name__
        raise ResultsError(f"{folder} cannot be read ({kind}: {said}). Leave it out, or train it again.") from error
    return made


def own_settings(settings: Mapping[str, Any], *, with_publisher: bool) -> dict[str, Any]:
    """Of a config, dotted, what makes a run the run it is: without seeds, and without where it was computed.

    Without the publisher, too, where the run has read no release: then it is somebody else's setting.
    """
    left_out = ("checkpoint",) if with_publisher else ("checkpoint", "publisher")
    dotted = flat({key: value for key, value in settings.items() if key not in left_out})
    return {key: value for key, value in dotted.items() if not _under(key, (*FREE, *SEEDS))}


def _rows(runs: Sequence[RunFolder]) -> list[_Grouped]:
    """Runs that differ in nothing but the seed together; a seed that is run twice is a row of its own."""
    rows: list[tuple[str, _Grouped]] = []
    for made in runs:
        key = json.dumps([made.method, made.release.name, made.run.settings], sort_keys=True, default=str)
        seeded = next((row for own, row in rows if own == key and made.run.seed not in row.runs), None)
        if seeded is None:
            rows.append((key, _Grouped({made.run.seed: made})))
        else:
            seeded.runs[made.run.seed] = made
    return [row for _, row in rows]


def _lines(task: str, table: _Table) -> Iterator[Line]:
    """The rows of a table, with names that tell them apart."""
    firsts = [row.first for row in table.rows]
    places = ["/".join(made.path.parts[-2:]) for made in firsts]
    # Without the publisher's settings: a row and its noise baseline have the same name.
    own = [{k: v for k, v in made.run.settings.items() if not k.startswith("publisher")} for made in firsts]
    named_by = zip(firsts, own, places, strict=True)
    systems = system_names([(made.method, made.release.name, settings, place) for made, settings, place in named_by])
    for row, system in zip(table.rows, systems, strict=True):
        release = _imitating(row.first, firsts)
        runs = tuple(made.run for _, made in sorted(row.runs.items()))
        yield Line(Row(task, system, release.name, release.control, release.of, release.epsilon), runs)


def _imitating(made: RunFolder, others: Sequence[RunFolder]) -> Release:
    """Return its release, without `of` if no other row has the publisher that a noise baseline imitates."""
    of = arguments(made.settings.get("publisher")).get("of")
    imitated = [other for other in others if other.release.name == made.release.of]
    there = any(same_class(of, other.settings.get("publisher")) for other in imitated)
    return made.release if there or made.release.control != "noise" else replace(made.release, of="")


def _title(table: _Table) -> str:
    made = table.rows[0].first
    target = made.data.get("target", {}).get("domain") or made.target.get("data.init_args.target") or "target"
    source, split = of_class(made.settings.get("data")), made.data.get("split")
    return f"{target} ({source}, split {split})" if split else f"{target} ({source})"


def _told_apart(title: str, table: _Table, taken: Collection[str]) -> str:
    """A title that is not taken: with what is other there than in the first table, or else with a run of it."""
    words = list(dict.fromkeys(SHORT.get(why, "other data") for why in table.apart))
    by_reason = f"{title}, {' and '.join(words)}"
    return f"{by_reason}, of {named(table.rows[0].first.path)}" if by_reason in taken or not words else by_reason


def _new(name: str, taken: Mapping[str, object]) -> str:
    """A name that is not taken."""
    numbers = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(other for other in numbers if other not in taken)


def _as_benchmark(
    folders: Sequence[Path], titles: Mapping[str, str], lines: Mapping[str, list[Line]]
) -> dict[str, Any]:
    """What a benchmark's file would say of these runs."""
    rows = [
        {"task": task, "system": line.row.system, "release": line.row.release, "seeds": [run.seed for run in line.runs]}
        for task, own in lines.items()
        for line in own
    ]
    return {
        "title": f"{len(folders)} runs compared" if len(folders) > 1 else "One run",
        "tasks": {task: {"title": title, "published": None} for task, title in titles.items()},
        "rows": rows,
        "cells": {str(folder): "" for folder in folders},
        "systems": {},
        "series": {},
    }


def _under(key: str, names: Sequence[str]) -> bool:
    return any(key == name or key.startswith(f"{name}.") for name in names)


def _digest(*values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def release_of(publisher: Any, run: Run) -> Release:  # noqa: ANN401  plain settings
    """By the settings of the publisher, or where the release was handed over, by its record."""
    sources = run.report["release_bytes"]
    if not sources:
        return Release()
    if publisher:
        return _published(publisher)
    records = [run.records[name] for name in sources if name in run.records]
    epsilons = ["" if record.epsilon is None else f" eps {record.epsilon:g}" for record in records]
    names = dict.fromkeys(f"{record.mechanism.name}{said}" for record, said in zip(records, epsilons, strict=True))
    return Release(" and ".join(names) or "a release")


def _published(publisher: Any) -> Release:  # noqa: ANN401  plain settings
    name, given = of_class(publisher), arguments(publisher)
    if name == "Noise":
        of = _published(given.get("of") or "")
        return Release(f"Noise ({of.name})", "noise", of.name, of.epsilon)
    epsilon = given.get("epsilon")
    asked = float(epsilon) if isinstance(epsilon, int | float) else None
    shown = name if asked is None else f"{name} eps {asked:g}"
    is_control = PUBLISHERS.get(name, "").endswith(".controls")
    return Release(shown, "control" if is_control else "", "", asked)


def of_class(settings: Any) -> str:  # noqa: ANN401  plain settings
    """``PriCDR`` of ``{class_path: zoo.PriCDR, ...}``, or of the name alone."""
    path = settings.get("class_path", "") if isinstance(settings, dict) else str(settings or "")
    return str(path).rsplit(".", 1)[-1]


def arguments(settings: Any) -> dict[str, Any]:  # noqa: ANN401  plain settings
    """What a class is made with."""
    return dict(settings.get("init_args") or {}) if isinstance(settings, dict) else {}


def same_class(ours: Any, theirs: Any) -> bool:  # noqa: ANN401  plain settings
    """Whether two settings make the same, whatever its seed."""
    mine, others = ({k: v for k, v in arguments(settings).items() if k != "seed"} for settings in (ours, theirs))
    return of_class(ours) == of_class(theirs) and mine == others


def system_names(rows: Sequence[tuple[str, str, Mapping[str, Any], str]]) -> list[str]:
    """Return a name for each row, without its release.

    Args:
        rows: Method, release, settings without the publisher's, and folder of each.

    Returns:
        The method with the settings that differ among its rows, or with the folder if that is not unique or too long.
    """
    names = [f"{method}{_differing(rows, number)}" for number, (method, *_) in enumerate(rows)]
    full = [(name, release) for name, (_, release, *_) in zip(names, rows, strict=True)]
    return [
        f"{name} [{folder}]" if full.count((name, release)) > 1 else name
        for name, (_, release, _, folder) in zip(names, rows, strict=True)
    ]


def _differing(rows: Sequence[tuple[str, str, Mapping[str, Any], str]], number: int) -> str:
    method, _, own, _ = rows[number]
    alike = [settings for other, _, settings, _ in rows if other == method]
    keys = sorted({key for settings in alike for key in settings if any(o.get(key) != settings[key] for o in alike)})
    if not keys or len(keys) > IN_A_NAME:
        return ""
    return " " + ", ".join(f"{short(key)} {said(own.get(key))}" for key in keys)


def short(key: str) -> str:
    """``lr`` of ``model.init_args.lr``: a setting as people call it; of a publisher with its name before it."""
    party = "publisher." if key.startswith("publisher.") else ""
    return party + key.rsplit("init_args.", 1)[-1].removeprefix("trainer.").removeprefix(party)


def said(value: Any) -> str:  # noqa: ANN401  any setting
    """A value in few words; of classes their names."""
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        return " and ".join(of_class(entry) for entry in value)
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
