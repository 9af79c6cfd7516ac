"""What a benchmark compares: tasks x systems x releases x epsilons x seeds, read from one YAML file."""

from __future__ import annotations

import dataclasses
import json
import math
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

#: What a search may set: nothing that changes who is tested on what, or what the source publishes of.
SEARCHABLE = ("model.", "trainer.", "publisher.", "data.batch_size")
MOST_CELLS = 100_000
#: Folder of a cell's trials, and the file that lists them.
SEARCH, TRIALS = "search", "search.json"
#: A key that means nothing is refused; a number in quotes is no number.
STRICT = ConfigDict(extra="forbid", strict=True)


class BenchmarkError(ValueError):
    """A benchmark that cannot be run."""


@dataclass(frozen=True, config=STRICT)
class PublishedTask:
    """Where the papers' figures for a task stand."""

    dataset: str  # as in the table of published figures
    source: str
    target: str


@dataclass(frozen=True, config=STRICT)
class Task:
    """Data, and what is asked of them."""

    title: str  # heading of its tables
    # Dotted settings that make the task out of a config, such as ``data.target``.
    settings: dict[str, Any] = field(default_factory=dict)
    published: PublishedTask | None = None  # the same task in the papers, where there is one
    seeds: list[int] | None = None  # of this task; null: those of the benchmark


@dataclasses.dataclass(frozen=True)
class Row:
    """A line of the tables: one system with one release on one task, over its seeds."""

    task: str  # its key, as that of the system
    system: str
    release: str = ""  # what it is given, in words; empty for nothing
    # ``noise`` for the noise control of another row, ``control`` for the others, empty for what is compared.
    control: Literal["", "noise", "control"] = ""
    of: str = ""  # for a noise control: the release that it imitates
    epsilon: float | None = None  # as it is asked of the publisher
    publisher: dict[str, Any] | None = None  # its settings
    published_as: str = ""  # name in the papers' tables
    reason: str = ""  # why our figure and the paper's may differ

    @property
    def name(self) -> str:
        """What the line is called."""
        return f"{self.system}, {self.release}" if self.release else self.system


@dataclass(frozen=True, config=STRICT)
class Released:
    """What a system is given to learn from; one row for each epsilon, and one for the noise control of each."""

    # A class name, or class_path and init_args. Unset settings have the class's defaults, not the config's values.
    publisher: str | dict[str, Any]
    label: str = ""  # what rows call it; by default the class name
    epsilons: list[float] = field(default_factory=list)  # one row each; empty: the publisher as it is
    # The setting in the publisher's ``init_args``, dotted if it is in another class's.
    epsilon_key: str = "epsilon"
    tasks: list[str] | None = None  # which tasks it is run on; null: all of the system's
    # Whether the noise baseline (`Noise`) is a row of its own.
    noise_control: bool = True
    published_as: str = ""  # name in the papers' tables, where this is what they ran
    reason: str = ""  # why our figure and the paper's may differ

    def __post_init__(self) -> None:
        """Refuse settings that name no class."""
        _expect_publisher(self.publisher)

    def rows(self, task: str, system: str) -> Iterator[Row]:
        """Yield a row for each epsilon, followed by its noise baseline."""
        publisher = {"class_path": self.publisher} if isinstance(self.publisher, str) else self.publisher
        is_control = getattr(publisher_class(publisher), "control", False)
        epsilons: list[float] | list[None] = self.epsilons or [None]
        for epsilon in epsilons:
            label, settings = self.label or publisher["class_path"].rsplit(".", 1)[-1], publisher
            if epsilon is not None:
                label = f"{label} eps {epsilon:g}"
                settings = _with(publisher, ["init_args", *self.epsilon_key.split(".")], epsilon)
            control: Literal["", "control"] = "control" if is_control else ""
            yield Row(task, system, label, control, "", epsilon, settings, self.published_as, self.reason)
            if self.noise_control and not is_control:
                noise = {"class_path": "Noise", "init_args": {"of": settings}}
                yield Row(task, system, f"Noise ({label})", "noise", label, epsilon, noise)


@dataclass(frozen=True, config=STRICT)
class Range:
    """Values that a hyperparameter search may choose from: `low` to `high`, or `choices`."""

    low: float | None = None
    high: float | None = None
    log: bool = False  # searched on a logarithmic scale
    integer: bool = False  # whole numbers only
    choices: list[Any] = field(default_factory=list)  # values to choose from instead, of any kind

    def __post_init__(self) -> None:
        """Refuse a range that says nothing."""
        low, high = self.low, self.high
        if low is None or high is None:
            sound = bool(self.choices) and low is None and high is None and not self.log and not self.integer
        else:
            sound = math.isfinite(low) and math.isfinite(high) and low < high and not self.choices
            sound &= low > 0 or not self.log
            sound &= (low.is_integer() and high.is_integer()) or not self.integer
        if not sound:
            said = f"low {low}, high {high}, log {self.log}, integer {self.integer}, choices {self.choices}"
            raise BenchmarkError(f"A range is {said}. It needs finite low < high (log: above 0; integer) or choices.")


@dataclass(frozen=True, config=STRICT)
class Search:
    """A hyperparameter search inside the cells of a system, on validation alone."""

    trials: int  # if choices allow no more, each setting is tried once, and the first of equal ones is taken
    # By dotted setting. With a setting of the publisher every trial is a release, and the record counts all of them.
    parameters: dict[str, Range]
    # Whether the cell of each seed searches, or that of a row's first seed for all.
    seeds: Literal["each", "first"] = "each"

    def __post_init__(self) -> None:
        """Refuse a search of nothing, and one whose releases some cells would not count."""
        if self.trials < 1 or not self.parameters:
            raise BenchmarkError(f"A search has {self.trials} trials of {[*self.parameters]}. It needs one of each.")
        if self.combinations is not None and self.trials > self.combinations:
            raise BenchmarkError(f"A search has {self.trials} trials. Its choices allow {self.combinations}; use that.")
        if unknown := sorted(name for name in self.parameters if not name.startswith(SEARCHABLE)):
            raise BenchmarkError(f"A search sets {unknown}. It may set {', '.join(SEARCHABLE)}, not the test data.")
        if self.touches_source and self.seeds == "first":
            raise BenchmarkError("seeds is 'first', and each trial publishes. Only 'each' counts all releases.")

    @property
    def combinations(self) -> int | None:
        """The number of settings; None if one has a range."""
        sizes = [len(values.choices) for values in self.parameters.values()]
        return math.prod(sizes) if all(sizes) else None

    @property
    def touches_source(self) -> bool:
        """Whether every trial publishes."""
        return any(name == "publisher" or name.startswith("publisher.") for name in self.parameters)


@dataclass(frozen=True, config=STRICT)
class System:
    """A recommender as it is compared."""

    config: Path  # the experiment it is run with; paths are relative to the folder that the command is run in
    settings: dict[str, Any] = field(default_factory=dict)  # dotted settings that differ from the config
    releases: list[Released] = field(default_factory=list)  # what it is given; empty: it learns from the target alone
    seeds: list[int] | None = None  # of this system; null: those of the task. One seed for what no seed changes
    tasks: list[str] | None = None  # which tasks it is run on; null: all
    search: Search | None = None
    single: str = ""  # the single-domain row that its rows are compared with for negative transfer
    published_as: str = ""  # name in the papers' tables, for a system without release
    reason: str = ""  # why our figure and the paper's may differ

    def __post_init__(self) -> None:
        """Find a config that comes with the code wherever one stands."""
        object.__setattr__(self, "config", builtin_configs.find(self.config))


@dataclass(frozen=True, config=STRICT)
class Benchmark:
    """A grid of experiments."""

    title: str  # heading of the report
    tasks: dict[str, Task]  # by a short key
    systems: dict[str, System]  # by the name that their rows bear
    # Of splits, candidates, networks, batches and the draws of controls.
    seeds: list[int] = field(default_factory=lambda: [0, 1, 2, 3, 4])
    about: str = ""  # a paragraph for the report
    baseline: str = ""  # the row that the report compares all others with; empty: EASE if there is one
    # For negative transfer: tasks of one target that differ in their sources alone, by number of domains and by title.
    series: dict[str, dict[int, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the grid."""
        for what in ("tasks", "systems", "seeds"):
            if not getattr(self, what):
                raise BenchmarkError(f"A benchmark needs {what}, and this one has none.")
        tasks = [(name, task.seeds) for name, task in self.tasks.items()]
        systems = [(name, system.seeds) for name, system in self.systems.items()]
        for name, seeds in [("the benchmark", self.seeds), *tasks, *systems]:
            if seeds is not None and (not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0):
                raise BenchmarkError(f"Seeds must be distinct numbers from 0 on; {name} has {seeds}.")
        for name, system in self.systems.items():
            self._check_system(name, system)
        self._check_names()
        for title, by_domains in self.series.items():
            self._check_series(title, by_domains)

    def _check_system(self, name: str, system: System) -> None:
        """Its tasks and config."""
        asked = {*(system.tasks or []), *(task for released in system.releases for task in released.tasks or [])}
        if unknown := sorted(asked - self.tasks.keys()):
            raise BenchmarkError(f"{name} is to run on {unknown}, which are no tasks; there are {list(self.tasks)}.")
        if not system.config.is_file():
            raise BenchmarkError(f"{name} has no config at {system.config}. Builtin ones: python -m zoo configs list.")

    def _check_names(self) -> None:
        """Every name makes a folder, and every row has a name of its own."""
        rows = list(islice(self.rows(), MOST_CELLS + 1))
        if not rows:
            raise BenchmarkError("No system runs on any task, so there is nothing to run.")
        if len(rows) > MOST_CELLS or sum(len(self.seeds_of(row)) for row in rows) > MOST_CELLS:
            raise BenchmarkError(f"A benchmark has at most {MOST_CELLS:,} cells. Cut it into several files.")
        for name in [*self.tasks, *self.systems, *(row.release for row in rows if row.release)]:
            if not slug(name):
                raise BenchmarkError(f"{name!r} names a folder of runs, and needs a letter or a digit for that.")
        if self.baseline and self.baseline not in (names := list(dict.fromkeys(row.name for row in rows))):
            raise BenchmarkError(f"The baseline is {self.baseline!r}. It must be one of the rows {names}.")
        lines = Counter(f"{row.task}: {row.name}" for row in rows)
        if repeated := sorted(line for line, count in lines.items() if count > 1):
            raise BenchmarkError(f"Several rows are called {repeated}; give their releases different labels.")

    def _check_series(self, title: str, tasks: dict[int, str]) -> None:
        """Its tasks and single-domain rows."""
        if unknown := sorted(set(tasks.values()) - self.tasks.keys()):
            raise BenchmarkError(f"The series {title!r} has {unknown}. It must have tasks of {list(self.tasks)}.")
        if not tasks or min(tasks) < 1 or len(set(tasks.values())) != len(tasks):
            raise BenchmarkError(f"The series {title!r} is {tasks}. It needs one task for each number of domains.")
        rows = [row for row in self.rows() if row.task in tasks.values()]
        alone = {row.name for row in rows if not row.release or row.control == "control"}
        for name in dict.fromkeys(row.system for row in rows):
            single = self.systems[name].single
            if single and single not in alone:
                raise BenchmarkError(f"single of {name} is {single!r}. In {title!r} it must be one of {sorted(alone)}.")

    def rows(self) -> Iterator[Row]:
        """Every line of every task, in the order of the file."""
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
        """Seeds that a row is run with: its system's, else its task's, else the benchmark's."""
        for own in (self.systems[row.system].seeds, self.tasks[row.task].seeds):
            if own is not None:
                return own
        return self.seeds

    def arguments(self, row: Row, seed: int) -> list[str]:
        """Arguments of ``python -m zoo fit`` for one cell, but for its folder."""
        system = self.systems[row.system]
        arguments = ["--config", str(system.config)]
        for settings in (self.tasks[row.task].settings, system.settings):
            for key, value in settings.items():
                arguments += as_argument(key, value)
        if row.publisher is not None:
            # Null first: otherwise a publisher of the config's class would inherit the config's settings.
            arguments += [*as_argument("publisher", None), *as_argument("publisher", _with_seed(row.publisher, seed))]
        return [*arguments, "--seed_everything", str(seed)]

    def plain(self) -> dict[str, Any]:
        """As plain values, its rows among them."""
        rows = [{**dataclasses.asdict(row), "seeds": self.seeds_of(row)} for row in self.rows()]
        kept: dict[str, Any] = json.loads(json.dumps({**dataclasses.asdict(self), "rows": rows}, default=str))
        return kept


def slug(text: str) -> str:
    """A name as a folder: lower case, letters, digits, dots and single dashes."""
    words = "".join(c if c.isalnum() or c == "." else " " for c in text.lower()).split()
    return "-".join(word.strip(".") for word in words if word.strip("."))


def as_argument(key: str, value: Any) -> list[str]:  # noqa: ANN401  any setting
    """A dotted setting as the command line takes it."""
    return [f"--{key}", value if isinstance(value, str) else json.dumps(value)]


def publisher_class(settings: dict[str, Any]) -> object:
    """Return the class that settings name; None if there is none, which the check of the cell refuses."""
    path = str(settings["class_path"])
    brought = plugins.brought("publishers")
    try:
        return brought[path].load() if path in brought else resolve_name(path if "." in path else f"zoo.{path}")
    except (ImportError, AttributeError, ValueError):
        return None


def _expect_publisher(settings: object) -> None:
    """Refuse settings of no class, also inside of a wrapper."""
    if isinstance(settings, str):
        return
    own = settings if isinstance(settings, dict) else {}
    given = own.get("init_args")
    if not (isinstance(own.get("class_path"), str) and isinstance(given or {}, dict)):
        raise BenchmarkError(f"A publisher is a class name, or class_path and init_args; got {str(settings)[:200]}.")
    if isinstance(given, dict) and isinstance(given.get("of"), dict):
        _expect_publisher(given["of"])


def _with_seed(publisher: dict[str, Any], seed: int) -> dict[str, Any]:
    given = dict(publisher.get("init_args") or {})
    if isinstance(given.get("of"), dict):
        given["of"] = _with_seed(given["of"], seed)
    if getattr(publisher_class(publisher), "seed_of_cell", False):
        given = {"seed": seed, **given}
    return {**publisher, "init_args": given} if given else publisher


def _with(settings: Any, keys: Sequence[str], value: float) -> dict[str, Any]:  # noqa: ANN401  plain settings
    """The settings with another value at a path."""
    if not isinstance(settings, dict):
        found = str(settings)[:80]
        raise BenchmarkError(f"epsilon_key leads to {found!r} at {'.'.join(keys)!r}. It must lead through settings.")
    key, *rest = keys
    return {**settings, key: _with(settings.get(key) or {}, rest, value) if rest else value}
