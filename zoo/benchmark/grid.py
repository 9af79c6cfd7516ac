"""Grid of a benchmark: tasks x systems x releases x epsilons x seeds, read from one YAML file."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import field
from itertools import islice
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Literal

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from zoo.runtime import builtin_configs, plugins

#: Settings that a search may set: none that changes the test data or the source's ratings.
SEARCHABLE = ("model.", "trainer.", "publisher.", "data.batch_size")
MOST_RUNS = 100_000
#: Folder of a run's trials, the file that lists them, and how names of trials of an unfinished search begin.
SEARCH, TRIALS, EARLIER = "search", "search.json", "earlier-"
#: Refuse unknown keys and quoted numbers.
STRICT = ConfigDict(extra="forbid", strict=True)


class BenchmarkError(ValueError):
    """A benchmark cannot be run."""


@dataclass(frozen=True, config=STRICT)
class PublishedTask:
    """A task in the table of published results."""

    dataset: str  # as in that table
    source: str
    target: str
    differs: str = ""  # how data or split differ from the paper's, which makes figures not comparable


@dataclass(frozen=True, config=STRICT)
class Task:
    """Data and evaluation."""

    title: str  # heading of its tables
    # Dotted settings that change a config to the task, such as ``data.target``.
    settings: dict[str, Any] = field(default_factory=dict)
    published: PublishedTask | None = None  # the same task in papers, if any
    seeds: list[int] | None = None  # of this task; null: those of the benchmark
    # For cross-validation: number of folds (`evaluation.split` is `folds`), for which the seeds are 0, 1, ... of every system.
    folds: int | None = None
    repeats: int = 1  # number of partitions into folds


@dataclasses.dataclass(frozen=True)
class Row:
    """A row of the tables: one system with one release on one task, over its seeds."""

    task: str  # its key, as that of the system
    system: str
    release: str = ""  # label of its release; empty without one
    # ``noise`` for the noise baseline of another row, ``control`` for other baselines, empty for compared systems.
    control: Literal["", "noise", "control"] = ""
    of: str = ""  # for a noise baseline: label of the imitated release
    epsilon: float | None = None  # of the publisher, or the number at another ``epsilon_key``
    publisher: dict[str, Any] | None = None  # its settings
    published_as: str = ""  # names in the papers' tables, separated by commas
    reason: str = ""  # why our result may differ from the paper's

    @property
    def name(self) -> str:
        """Name of the row."""
        return f"{self.system}, {self.release}" if self.release else self.system


@dataclass(frozen=True, config=STRICT)
class Released:
    """A release of a system: one row for each epsilon, and one for the noise baseline of each."""

    # A class name, or class_path and init_args. Unset settings have the class's defaults, not the config's values.
    publisher: str | dict[str, Any]
    label: str = ""  # name in rows; default: the class name
    epsilons: list[float] = field(default_factory=list)  # one row each; empty: the publisher's own
    # The setting in the publisher's ``init_args``, dotted if it is nested. Its last part is in row names: ``eps 4`` for an
    # epsilon, otherwise as in ``attack success 0.6``.
    epsilon_key: str = "epsilon"
    tasks: list[str] | None = None  # tasks it is run on; null: all of the system's
    # Whether the noise baseline (`Noise`) has its own row.
    noise_control: bool = True
    published_as: str = ""  # name in the papers' tables, if they have the same
    reason: str = ""  # why our result may differ from the paper's

    def __post_init__(self) -> None:
        _expect_publisher(self.publisher)

    def rows(self, task: str, system: str) -> Iterator[Row]:
        """Yield a row for each epsilon, followed by its noise baseline."""
        publisher = {"class_path": self.publisher} if isinstance(self.publisher, str) else self.publisher
        is_control = any(getattr(publisher_class(each), "control", False) for each in _wrapped(publisher))
        epsilons: list[float] | list[None] = self.epsilons or [None]
        for epsilon in epsilons:
            label, settings = self.label or publisher["class_path"].rsplit(".", 1)[-1], publisher
            if epsilon is not None:
                kind = self.epsilon_key.rsplit(".", 1)[-1]
                label = f"{label} {'eps' if kind.endswith('epsilon') else kind.replace('_', ' ')} {epsilon:g}"
                settings = _with(publisher, ["init_args", *self.epsilon_key.split(".")], epsilon)
            control: Literal["", "control"] = "control" if is_control else ""
            yield Row(task, system, label, control, "", epsilon, settings, self.published_as, self.reason)
            if self.noise_control and not is_control:
                noise = {"class_path": "Noise", "init_args": {"of": settings}}
                yield Row(task, system, f"Noise ({label})", "noise", label, epsilon, noise)


@dataclass(frozen=True, config=STRICT)
class Range:
    """Values of a hyperparameter search: from `low` to `high`, or `choices`."""

    low: float | None = None
    high: float | None = None
    log: bool = False  # logarithmic scale
    integer: bool = False  # whole numbers only
    choices: list[Any] = field(default_factory=list)  # alternative: a list of values of any kind

    def __post_init__(self) -> None:
        low, high = self.low, self.high
        if low is None or high is None:
            sound = bool(self.choices) and low is None and high is None and not self.log and not self.integer
        else:
            sound = math.isfinite(low) and math.isfinite(high) and low < high and not self.choices
            sound &= low > 0 or not self.log
            sound &= (low.is_integer() and high.is_integer()) or not self.integer
        if not sound:
            found = f"low {low}, high {high}, log {self.log}, integer {self.integer}, choices {self.choices}"
            raise BenchmarkError(f"A range is {found}. It needs finite low < high (log: above 0; integer) or choices.")

    @property
    def least(self) -> float | None:
        """The lower end, whole if the range is: a method may refuse 1.0 for 1."""
        return int(self.low) if self.integer and self.low is not None else self.low

    def __contains__(self, value: object) -> bool:
        """Return whether a search can choose a value.

        Examples:
            >>> [each in Range(low=1, high=9, integer=True) for each in (9, 2.5, 10, True)]
            [True, False, False, False]
        """
        if self.low is None or self.high is None:
            return value in self.choices
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return self.low <= value <= self.high and not (self.integer and isinstance(value, float))


@dataclass(frozen=True, config=STRICT)
class Search:
    """A hyperparameter search inside the runs of a system, on validation data only."""

    trials: int  # if choices have only so many combinations, each is tried once
    # By dotted setting. With a setting of the publisher every trial is a release, and the record counts all of them; the row of a
    # noise baseline searches the imitated publisher.
    parameters: dict[str, Range]
    # Whether the run of each seed searches, or that of a row's first seed for all.
    seeds: Literal["each", "first"] = "each"

    def __post_init__(self) -> None:
        if self.trials < 1 or not self.parameters:
            raise BenchmarkError(f"A search has {self.trials} trials of {[*self.parameters]}. It needs both.")
        if self.combinations is not None and self.trials > self.combinations:
            raise BenchmarkError(f"A search has {self.trials} trials. Its choices allow {self.combinations}.")
        if unknown := sorted(name for name in self.parameters if not name.startswith(SEARCHABLE)):
            raise BenchmarkError(f"A search sets {unknown}. It may set {', '.join(SEARCHABLE)}.")
        if self.touches_source and self.seeds == "first":
            raise BenchmarkError("seeds is 'first', and each trial publishes. Set 'each'.")

    @property
    def combinations(self) -> int | None:
        """Number of combinations of choices; None if a setting has a range."""
        sizes = [len(values.choices) for values in self.parameters.values()]
        return math.prod(sizes) if all(sizes) else None

    @property
    def touches_source(self) -> bool:
        """Whether every trial publishes."""
        return any(name == "publisher" or name.startswith("publisher.") for name in self.parameters)


@dataclass(frozen=True, config=STRICT)
class System:
    """A compared recommender."""

    config: Path  # its experiment; relative to the folder of the command, or builtin
    settings: dict[str, Any] = field(default_factory=dict)  # dotted settings that differ from the config
    releases: list[Released] = field(default_factory=list)  # empty: a single-domain baseline
    seeds: list[int] | None = None  # of this system; null: those of the task. One if system and split use no seed
    tasks: list[str] | None = None  # tasks it is run on; null: all
    search: Search | None = None
    single: str = ""  # the single-domain row that its rows are compared with for negative transfer
    published_as: str = ""  # name in the papers' tables, for a system without release
    reason: str = ""  # why our result may differ from the paper's

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", builtin_configs.find(self.config))


@dataclass(frozen=True, config=STRICT)
class Benchmark:
    """A grid of experiments."""

    title: str  # heading of the report
    tasks: dict[str, Task]  # by a short key
    systems: dict[str, System]  # by name in rows
    # Of splits, candidates, networks, batches and baselines.
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    about: str = ""  # a paragraph for the report
    baseline: str = ""  # baseline row for paired tests; empty: the best single-domain row of each task
    # For negative transfer: tasks of the same test cases that differ only in their sources, by number of domains and by title.
    series: dict[str, dict[int, str]] = field(default_factory=dict)
    # For tests of a shape: rows in the order of one setting, at least three, by title.
    sweeps: dict[str, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for what in ("tasks", "systems", "seeds"):
            if not getattr(self, what):
                raise BenchmarkError(f"{what} is empty. Add one.")
        tasks = [(name, task.seeds) for name, task in self.tasks.items()]
        systems = [(name, system.seeds) for name, system in self.systems.items()]
        for name, seeds in [("the benchmark", self.seeds), *tasks, *systems]:
            if seeds is not None and (not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0):
                raise BenchmarkError(f"seeds of {name} are {seeds}. They must be distinct and not negative.")
        for name, task in self.tasks.items():
            if (task.folds is not None and (task.folds < 2 or task.seeds is not None)) or task.repeats < 1:
                raise BenchmarkError(
                    f"folds of {name} are {task.folds}. They need 2 or more, repeats >= 1 and no seeds."
                )
        for name, system in self.systems.items():
            self._check_system(name, system)
        self._check_names()
        for title, by_domains in self.series.items():
            self._check_series(title, by_domains)

    def _check_system(self, name: str, system: System) -> None:
        named = {*(system.tasks or []), *(task for released in system.releases for task in released.tasks or [])}
        if unknown := sorted(named - self.tasks.keys()):
            raise BenchmarkError(f"tasks of {name} have {unknown}. They must be of {list(self.tasks)}.")
        if not system.config.is_file():
            raise BenchmarkError(f"{name} has no config at {system.config}. Builtin ones: python -m zoo configs list.")

    def _check_names(self) -> None:
        rows = list(islice(self.rows(), MOST_RUNS + 1))
        if not rows:
            raise BenchmarkError("No system runs on any task. Change their `tasks`.")
        if len(rows) > MOST_RUNS or sum(len(self.seeds_of(row)) for row in rows) > MOST_RUNS:
            raise BenchmarkError(f"A benchmark has at most {MOST_RUNS:,} runs. Split it.")
        for name in [*self.tasks, *self.systems, *(row.release for row in rows if row.release)]:
            if not slug(name):
                raise BenchmarkError(f"{name!r} needs a letter or a digit.")
        names = list(dict.fromkeys(row.name for row in rows))
        if self.baseline and self.baseline not in names:
            raise BenchmarkError(f"baseline is {self.baseline!r}. It must be one of {names}.")
        for title, swept in self.sweeps.items():
            if (unknown := sorted(set(swept) - set(names))) or len(set(swept)) < 3:
                found = f"The sweep {title!r} has {len(swept)} rows, unknown: {unknown}."
                raise BenchmarkError(f"{found} It needs three rows.")
        lines = Counter(f"{row.task}: {row.name}" for row in rows)
        if repeated := sorted(line for line, count in lines.items() if count > 1):
            raise BenchmarkError(f"Several rows have the names {repeated}. Use different labels.")

    def _check_series(self, title: str, tasks: dict[int, str]) -> None:
        if unknown := sorted(set(tasks.values()) - self.tasks.keys()):
            raise BenchmarkError(f"The series {title!r} has {unknown}. It must have tasks of {list(self.tasks)}.")
        if not tasks or min(tasks) < 1 or len(set(tasks.values())) != len(tasks):
            raise BenchmarkError(f"The series {title!r} is {tasks}. It needs one task per number of domains.")
        rows = [row for row in self.rows() if row.task in tasks.values()]
        alone = {row.name for row in rows if not row.release or row.control == "control"}
        for name in dict.fromkeys(row.system for row in rows):
            single = self.systems[name].single
            if single and single not in alone:
                raise BenchmarkError(f"single of {name} is {single!r}. In {title!r} it must be one of {sorted(alone)}.")

    def rows(self) -> Iterator[Row]:
        """Yield every row of every task, in the order of the file."""
        for task in self.tasks:
            for name, system in self.systems.items():
                if system.tasks is not None and task not in system.tasks:
                    continue
                if not system.releases:
                    yield Row(task, name, published_as=system.published_as, reason=system.reason)
                for released in system.releases:
                    if released.tasks is None or task in released.tasks:
                        yield from released.rows(task, name)

    def seeds_of(self, row: Row) -> list[int]:
        """Return the seeds of a row: one per fold, else its system's, else its task's, else the benchmark's."""
        if (task := self.tasks[row.task]).folds is not None:
            return list(range(task.folds * task.repeats))
        for own in (self.systems[row.system].seeds, self.tasks[row.task].seeds):
            if own is not None:
                return own
        return self.seeds

    def search_of(self, row: Row) -> Search | None:
        """Return the search of a row; for a noise baseline it sets the imitated publisher."""
        search = self.systems[row.system].search
        if search is None or row.control != "noise":
            return search
        names = [re.sub(r"^publisher(\.init_args)?\.", "publisher.of.init_args.", name) for name in search.parameters]
        return dataclasses.replace(search, parameters=dict(zip(names, search.parameters.values(), strict=True)))

    def arguments(self, row: Row, seed: int) -> list[str]:
        """Return the arguments of ``python -m zoo fit`` for one run, without its folder."""
        system = self.systems[row.system]
        arguments = ["--config", str(system.config)]
        task = self.tasks[row.task]
        own = {"data.evaluation.split": "folds", "data.evaluation.folds": task.folds} if task.folds else {}
        for settings in (task.settings, own, system.settings):
            for key, value in settings.items():
                arguments += as_argument(key, value)
        if row.publisher is not None:
            # Null first, or a publisher of the config's class would inherit the config's settings.
            arguments += [*as_argument("publisher", None), *as_argument("publisher", _with_seed(row.publisher, seed))]
        return [*arguments, "--seed_everything", str(seed)]

    def plain(self) -> dict[str, Any]:
        """Return the grid as plain values, with its rows."""
        rows = [{**dataclasses.asdict(row), "seeds": self.seeds_of(row)} for row in self.rows()]
        values: dict[str, Any] = json.loads(json.dumps({**dataclasses.asdict(self), "rows": rows}, default=str))
        return values


def slug(text: str) -> str:
    """Return a name as a folder: lower case, letters, digits, dots and single dashes.

    Examples:
        >>> slug("FlippedRows eps 0.5")
        'flippedrows-eps-0.5'
    """
    words = "".join(c if c.isalnum() or c == "." else " " for c in text.lower()).split()
    return "-".join(word.strip(".") for word in words if word.strip("."))


def as_argument(key: str, value: Any) -> list[str]:  # noqa: ANN401  any setting
    """Return a dotted setting as a command-line option."""
    return [f"--{key}", value if isinstance(value, str) else json.dumps(value)]


def publisher_class(settings: dict[str, Any]) -> object:
    """Return the class of settings; None if there is none, which the check of a run refuses."""
    path = str(settings["class_path"])
    brought = plugins.brought("publishers")
    try:
        return brought[path].load() if path in brought else resolve_name(path if "." in path else f"zoo.{path}")
    except (ImportError, AttributeError, ValueError):
        return None


def _wrapped(publisher: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the settings of a publisher, and of all that it wraps."""
    yield publisher
    of = (publisher.get("init_args") or {}).get("of")
    if of:
        yield from _wrapped(of if isinstance(of, dict) else {"class_path": str(of)})


def _expect_publisher(settings: object) -> None:
    """Refuse settings without a class, also in a wrapper."""
    if isinstance(settings, str):
        return
    own = settings if isinstance(settings, dict) else {}
    arguments = own.get("init_args")
    if not (isinstance(own.get("class_path"), str) and isinstance(arguments or {}, dict)):
        found = str(settings)[:200]
        raise BenchmarkError(f"publisher is {found}. It must be a class name, or class_path and init_args.")
    if isinstance(arguments, dict) and isinstance(arguments.get("of"), dict):
        _expect_publisher(arguments["of"])


def _with_seed(publisher: dict[str, Any], seed: int) -> dict[str, Any]:
    arguments = dict(publisher.get("init_args") or {})
    if isinstance(arguments.get("of"), dict):
        arguments["of"] = _with_seed(arguments["of"], seed)
    if getattr(publisher_class(publisher), "repeats_seed", False):
        arguments = {"seed": seed, **arguments}
    return {**publisher, "init_args": arguments} if arguments else publisher


def _with(settings: Any, keys: Sequence[str], value: float) -> dict[str, Any]:  # noqa: ANN401  plain settings
    if not isinstance(settings, dict):
        found = str(settings)[:80]
        raise BenchmarkError(f"epsilon_key has {found!r} at {'.'.join(keys)!r}. Its path must consist of settings.")
    key, *rest = keys
    return {**settings, key: _with(settings.get(key) or {}, rest, value) if rest else value}
