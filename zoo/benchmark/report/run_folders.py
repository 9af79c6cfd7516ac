"""Runs outside a benchmark as rows of a report: their tables and their names."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from zoo.benchmark.grid import Row, slug
from zoo.benchmark.report.results import PRIMARY_METRIC, RANKINGS, REASONS, Line, Results, ResultsError, Run, read_files
from zoo.benchmark.runs import BENCHMARK
from zoo.runtime.exports import PUBLISHERS
from zoo.runtime.run_folder import (
    CASES,
    CONFIG,
    DATA,
    FREE,
    METRICS,
    PRIVACY,
    RELEASES,
    differing,
    flat,
    read_mapping,
    read_summary,
    visible,
)
from zoo.runtime.settings_files import check_size, read_yaml

#: Settings in which runs of one row differ.
SEEDS = (
    "seed_everything",
    "data.init_args.seed",
    *(f"publisher.{'init_args.of.' * n}init_args.seed" for n in range(5)),
)
#: Settings of the data that do not affect the test and may differ within a table.
TRAINING_SETTINGS = ("sources", "catalogues", "batch_size", "denoiser", "missing_users", "top_k")
#: Maximum number of settings in a name; if more differ, the folder names the row.
MAX_SETTINGS_IN_NAME = 3


@dataclass(frozen=True, eq=False)
class RunFolder:
    """A run with its settings and a description of its test."""

    path: Path
    run: Run
    settings: dict[str, Any]  # content of its config
    data: dict[str, Any]  # summary of its data

    @property
    def method(self) -> str:
        """Class name of the method."""
        return str(self.run.report["method"])

    @cached_property
    def row(self) -> Row:
        """Release that it was trained with, as in a row of a benchmark, without task and system."""
        return infer_row(self.settings.get("publisher"), self.run)

    @property
    def target(self) -> dict[str, Any]:
        """Settings of the target's data and of their split."""
        free = tuple(f"data.init_args.{name}" for name in TRAINING_SETTINGS)
        own = self.run.settings.items()
        return {key: value for key, value in own if key.startswith("data.") and not _under(key, free)}

    @cached_property
    def tested(self) -> dict[str, str]:
        """Description of the test by the keys of `REASONS`; runs of earlier versions lack some keys."""
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
        if "ties" in evaluation:  # an earlier version averaged over cases
            found |= {"ties": str(evaluation["ties"]), "average": str(evaluation.get("average", "cases"))}
        return found


@dataclass(eq=False)
class _RowRuns:
    """Runs of one row by seed."""

    runs: dict[int, RunFolder]

    @property
    def first(self) -> RunFolder:
        return next(iter(self.runs.values()))


@dataclass(eq=False)
class _Table:
    """Rows with the same test, and the reasons for a separate table."""

    rows: list[_RowRuns]
    separation: list[str] = field(default_factory=list)

    def differs(self, row: _RowRuns) -> list[str]:
        """Return the reasons why a row does not fit; empty if it does."""
        reasons: list[str] = []
        for other in self.rows:
            both = row.runs.keys() & other.runs.keys()
            for seed in sorted(both):
                ours, theirs = row.runs[seed].tested, other.runs[seed].tested
                common = ours.keys() & theirs.keys()
                reasons += [why for key, why in REASONS.items() if key in common and ours[key] != theirs[key]]
            if not both and (changed := differing(row.first.target, other.first.target)):
                names = ", ".join(map(short_setting, changed))
                reasons.append(f"no common seed, and other settings of the data: {names}")
        return list(dict.fromkeys(reasons))


def read_run_folders(folders: Sequence[Path]) -> Results:
    """Read runs of `fit`, with a table for each test.

    Runs that differ only in their seed form one row. `Results.separation` has the reasons for separate tables. Untested runs are
    left out.

    Raises:
        ResultsError: If a folder is not a tested run, or is named twice.
    """
    tested, left_out = _tested(folders)
    lines: dict[str, list[Line]] = {}
    titles: dict[str, str] = {}
    separation: dict[str, str] = {}
    for table in _tables(_rows([read_run(folder) for folder in tested])):
        title = _title(table)
        task = _unique_name(slug(title), lines)
        if table.separation:
            first = next(iter(titles.values()))
            separation[task] = f"Separate from the table of {first}: {'; '.join(table.separation)}."
        titles[task] = title if task == slug(title) else _unique_title(title, table, titles.values())
        lines[task] = list(_lines(task, table))
    described = _as_benchmark(tested, titles, lines) | {"about": left_out}
    return Results(described, lines, len(tested), "", separation, tuple(tested))


def display_path(folder: Path) -> str:
    """Return a folder for a page; of an absolute path the last two parts.

    >>> display_path(Path("/home/me/runs/PriCDR/version_0"))
    'PriCDR/version_0'
    """
    return str(Path(*folder.parts[-2:]) if folder.is_absolute() else folder)


def _tested(folders: Sequence[Path]) -> tuple[list[Path], str]:
    """Return the folders of tested runs, and a sentence that names the others."""
    runs = [folder for folder in folders if _trained_and_tested(folder)]
    places = [folder.resolve() for folder in runs]
    if twice := [str(folder) for i, folder in enumerate(runs) if places[i] in places[:i]]:
        raise ResultsError(f"Repeated runs: {', '.join(twice)}. Name each run once.")
    if not runs or not all(folder.is_dir() for folder in folders):  # `read_run` says what they lack
        return list(folders), ""
    others = [folder for folder in folders if folder not in runs]
    return runs, f"Left out (no test of `fit`): {', '.join(map(display_path, others))}." if others else ""


def _trained_and_tested(folder: Path) -> bool:
    """Return whether `fit` wrote test metrics; those of `test` describe no training."""
    if not all((folder / name).is_file() for name in (CONFIG, METRICS)):
        return False
    try:
        found = read_mapping(folder / METRICS)
    except ValueError:
        return True  # `read_run` reports the damage
    tested = found.get("metrics") != {}  # with the split `none`, `fit` measures nothing
    return ("train_seconds" in found and tested) or "method" not in found


def _tables(rows: Sequence[_RowRuns]) -> list[_Table]:
    """Put each row into the first table that it fits, or into a new one."""
    tables: list[_Table] = []
    for row in rows:
        reasons = [table.differs(row) for table in tables]
        if [] in reasons:
            tables[reasons.index([])].rows.append(row)
        else:
            tables.append(_Table([row], reasons[0] if reasons else []))
    return tables


def read_run(folder: Path) -> RunFolder:
    """Return a tested run; raise `ResultsError` for any other folder."""
    if (folder / BENCHMARK).is_file():
        raise ResultsError(f"{folder} is a benchmark. Report on it alone.")
    if missing := [name for name in (CONFIG, METRICS, PRIVACY, CASES) if not (folder / name).is_file()]:
        raise ResultsError(f"{folder} has no {missing[0]}, so it is no tested run. Test it, with held-out items.")
    try:
        check_size(folder / CONFIG)
        text = (folder / CONFIG).read_text(encoding="utf-8")
        settings = read_yaml(text, folder / CONFIG)
        report, privacy = read_files(folder)
        data = read_summary(path) if (path := folder / DATA).is_file() else {}
        versions = dict(re.findall(r"^#\s*([\w-]+)[= ]+([\w.+-]+)", text, re.M)[:1])
        given = (settings.get("data", {}).get("init_args") or {}).get("releases") or {}
        # The config may name another publisher than that of a given release. `fit` refuses controls for one.
        if _published(settings.get("publisher")).control == "" and not all(
            (folder / RELEASES / name).is_dir() for name in given
        ):
            settings["publisher"] = None
        own = identifying_settings(settings, with_publisher=bool(report["release_bytes"]))
        if report["release_bytes"] and not settings.get("publisher"):
            own |= flat({f"publisher.{name}": _recorded(entry) for name, entry in privacy.items()})
        run = Run(int(report["seed"]), folder, report, privacy, float(report["train_seconds"]), 0, versions, None, own)
        made = RunFolder(folder, run, settings, data)
        if not any(f"test/{ranking}/{PRIMARY_METRIC}" in report["metrics"] for ranking in RANKINGS):
            raise ResultsError(f"{folder} has no test NDCG@10. It needs held-out items and a ranking.")
        made.tested  # noqa: B018  fails now if unreadable
    except ResultsError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, OSError, RecursionError, yaml.YAMLError) as error:
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise ResultsError(f"{folder} is unreadable ({reason}). Omit it, or train again.") from error
    return made


def _recorded(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what tells the releases of two publishers apart by their records, without seeds and what follows from them."""
    found = {name: entry.get(name) for name in ("mechanism", "relation", "delta", "noise_source", "reasons")}
    parts = (entry.get(name) or {} for name in ("parameters", "notes"))
    every = {name: value for part in (found, *parts) for name, value in part.items()}
    return {name: value for name, value in every.items() if not re.search("seed|^w$|^largest_norm$", name)}


def identifying_settings(settings: Mapping[str, Any], *, with_publisher: bool) -> dict[str, Any]:
    """Return the dotted settings that identify a row: without seeds, machine settings, and the publisher of an unused release.

    >>> within = {"init_args": {"of": {"init_args": {"of": {"init_args": {"seed": 1, "epsilon": 4.0}}}}}}
    >>> identifying_settings({"publisher": within, "seed_everything": 1}, with_publisher=True)
    {'publisher.init_args.of.init_args.of.init_args.epsilon': 4.0}
    >>> identifying_settings({"model": {"lr": 0.1}, "publisher": within}, with_publisher=False)
    {'model.lr': 0.1}
    """
    left_out = ("checkpoint",) if with_publisher else ("checkpoint", "publisher")
    dotted = flat({key: value for key, value in settings.items() if key not in left_out})
    return {key: value for key, value in dotted.items() if not _under(key, (*FREE, *SEEDS))}


def _rows(runs: Sequence[RunFolder]) -> list[_RowRuns]:
    """Group runs that differ only in their seed; a repeated seed starts a new row."""
    rows: list[tuple[str, _RowRuns]] = []
    for made in runs:
        key = json.dumps([made.method, made.row.release, made.run.settings], sort_keys=True, default=str)
        seeded = next((row for own, row in rows if own == key and made.run.seed not in row.runs), None)
        if seeded is None:
            rows.append((key, _RowRuns({made.run.seed: made})))
        else:
            seeded.runs[made.run.seed] = made
    return [row for _, row in rows]


def _lines(task: str, table: _Table) -> Iterator[Line]:
    """Yield the rows of a table with unique names."""
    firsts = [row.first for row in table.rows]
    places = ["/".join(made.path.parts[-2:]) for made in firsts]
    # Without the publisher's settings: a row and its noise baseline have the same name.
    own = [{k: v for k, v in made.run.settings.items() if not k.startswith("publisher")} for made in firsts]
    named_by = zip(firsts, own, places, strict=True)
    systems = system_names([(made.method, made.row.release, settings, place) for made, settings, place in named_by])
    for row, system in zip(table.rows, systems, strict=True):
        runs = tuple(made.run for _, made in sorted(row.runs.items()))
        yield Line(replace(_imitating(row.first, firsts), task=task, system=system), runs)


def _imitating(made: RunFolder, others: Sequence[RunFolder]) -> Row:
    """Return its row, without `of` if no other row has the imitated publisher."""
    of = init_args(made.settings.get("publisher")).get("of")
    imitated = [other for other in others if other.row.release == made.row.of]
    there = any(same_settings(of, other.settings.get("publisher")) for other in imitated)
    return made.row if there or made.row.control != "noise" else replace(made.row, of="")


def _title(table: _Table) -> str:
    made = table.rows[0].first
    target = made.data.get("target", {}).get("domain") or made.target.get("data.init_args.target") or "target"
    source, split = class_name(made.settings.get("data")), made.data.get("split")
    return visible(f"{target} ({source}, split {split})" if split else f"{target} ({source})")


def _unique_title(title: str, table: _Table, taken: Collection[str]) -> str:
    """Return a new title: with the reasons for the table, or else with one of its runs."""
    words = list(dict.fromkeys(why if why in REASONS.values() else "other data" for why in table.separation))
    by_reason = f"{title}, {' and '.join(words)}"
    return f"{by_reason}, of {display_path(table.rows[0].first.path)}" if by_reason in taken or not words else by_reason


def _unique_name(name: str, taken: Mapping[str, object]) -> str:
    """Return the name, with a number if it is taken."""
    numbers = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return name if name not in taken else next(other for other in numbers if other not in taken)


def _as_benchmark(
    folders: Sequence[Path], titles: Mapping[str, str], lines: Mapping[str, list[Line]]
) -> dict[str, Any]:
    """Return the runs in the form of ``benchmark.json``."""
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


def infer_row(publisher: Any, run: Run) -> Row:  # noqa: ANN401  plain settings
    """Return the row of a release by the settings of its publisher, or without one by its record."""
    sources = run.report["release_bytes"]
    if not sources:
        return Row("", "")
    if publisher:
        return _published(publisher)
    records = [run.records[name] for name in sources if name in run.records]
    epsilons = ["" if record.epsilon is None else f" eps {record.epsilon:g}" for record in records]
    names = dict.fromkeys(
        f"{record.mechanism.name}{epsilon}" for record, epsilon in zip(records, epsilons, strict=True)
    )
    # What the publishers of `zoo.publishers.controls` write.
    texts = [text for record in records for text in (*record.reasons, *map(str, record.notes.values()))]
    if any("control" in text for text in texts) or "Nothing" in names:
        return Row("", "", f"control ({' and '.join(names)})", "control")
    return Row("", "", " and ".join(names) or "a release")


def _published(publisher: Any) -> Row:  # noqa: ANN401  plain settings
    name, given = class_name(publisher), init_args(publisher)
    if name in ("Noise", "Partial", "Thinned"):
        of = _published(given.get("of") or "")
        if name == "Noise":
            return Row("", "", f"Noise ({of.release})", "noise", of.release, of.epsilon)
        shown = f"{name} {given.get('share')} ({of.release})"
        return replace(of, release=shown, control="control" if of.control else "", of="")
    numbers = (given.get(key) for key in ("epsilon", "attack_success"))
    number, limit = (float(value) if isinstance(value, int | float) else None for value in numbers)
    shown = f" eps {number:g}" if number is not None else "" if limit is None else f" attack success {limit:g}"
    is_control = PUBLISHERS.get(name, "").endswith(".controls")
    return Row("", "", name + shown, "control" if is_control else "", "", number)


def class_name(settings: Any) -> str:  # noqa: ANN401  plain settings
    """Return the class name of settings or of a path.

    >>> class_name({"class_path": "zoo.PriCDR"})
    'PriCDR'
    """
    path = settings.get("class_path", "") if isinstance(settings, dict) else str(settings or "")
    return str(path).rsplit(".", 1)[-1]


def init_args(settings: Any) -> dict[str, Any]:  # noqa: ANN401  plain settings
    """Return the arguments of a class."""
    return dict(settings.get("init_args") or {}) if isinstance(settings, dict) else {}


def same_settings(ours: Any, theirs: Any) -> bool:  # noqa: ANN401  plain settings
    """Return whether two settings are equal apart from the seed."""
    mine, others = ({k: v for k, v in init_args(settings).items() if k != "seed"} for settings in (ours, theirs))
    return class_name(ours) == class_name(theirs) and mine == others


def system_names(rows: Sequence[tuple[str, str, Mapping[str, Any], str]]) -> list[str]:
    """Return a name for each row without its release: the method with its differing settings, or the first folder with them.

    Args:
        rows: Method, release, settings without the publisher's, and folder of each row.

    Examples:
        >>> system_names([("PriCDR", "", {"model.lr": 0.1}, "a"), ("PriCDR", "", {"model.lr": 0.2}, "b")])
        ['PriCDR model.lr 0.1', 'PriCDR model.lr 0.2']
    """
    names = [f"{method}{_differing(rows, number)}" for number, (method, *_) in enumerate(rows)]
    full = [(name, release) for name, (_, release, *_) in zip(names, rows, strict=True)]
    return [
        f"{name} [{folder}]" if full.count((name, release)) > 1 and not name.endswith(f" [{folder}]") else name
        for name, (_, release, _, folder) in zip(names, rows, strict=True)
    ]


def _differing(rows: Sequence[tuple[str, str, Mapping[str, Any], str]], number: int) -> str:
    method, _, own, _ = rows[number]
    alike = [settings for other, _, settings, _ in rows if other == method]
    keys = sorted({key for settings in alike for key in settings if any(o.get(key) != settings[key] for o in alike)})
    if not keys:
        return ""
    if len(keys) > MAX_SETTINGS_IN_NAME:  # rows of one name are compared as one model with several releases
        return f" [{next(folder for other, _, settings, folder in rows if other == method and settings == own)}]"
    return " " + ", ".join(f"{short_setting(key)} {format_value(own.get(key))}" for key in keys)


def short_setting(key: str) -> str:
    """Return the short name of a setting.

    >>> short_setting("model.init_args.lr"), short_setting("publisher.init_args.seed")
    ('lr', 'publisher.seed')
    """
    party = "publisher." if key.startswith("publisher.") else ""
    return party + key.rsplit("init_args.", 1)[-1].removeprefix("trainer.").removeprefix(party)


def format_value(value: Any) -> str:  # noqa: ANN401  any setting
    """Return a value as text; of classes the names.

    >>> format_value([{"class_path": "zoo.JLT"}, "Noise"]), format_value(0.10)
    ('JLT and Noise', '0.1')
    """
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        return " and ".join(class_name(entry) for entry in value)
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
