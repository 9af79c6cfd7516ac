"""Run folder: its file names, atomic writes, settings as plain values, and printable messages."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import secrets
import select
import shutil
import sys
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from jsonargparse import Namespace

from zoo.runtime.processes import is_process_dead, machine

if TYPE_CHECKING:
    import polars as pl
    from torch import Tensor

#: Largest total size of the tensors in a checkpoint, each counted at every mention, in sizes of its file.
MOST_COPIES = 16
#: Most plain values in a checkpoint, each counted at every mention: messages and settings write them out.
MOST_MENTIONS = 1_000_000
#: Settings of a run, and its best checkpoint.
CONFIG, BEST = "config.yaml", "checkpoints/best.ckpt"
#: Begins the names of callbacks that were objects, in the first line of the settings.
FROM_PYTHON = "; with the callbacks "
#: Training ratings and held-out cases of a run, for scoring without the files of the data; a private folder.
TARGET = "target"
#: Metrics of every test case.
CASES = "test_cases.parquet"
#: Weight of each source by layer, for methods with attention over domains.
ATTENTION = "attention.csv"
#: Summary of the data with warnings.
DATA = "data.json"
#: Privacy records of the releases and of the training.
PRIVACY = "privacy.json"
#: Releases that `fit` published, and next to them the settings of their publisher.
RELEASES, PUBLISHER = "releases", "publisher.json"
#: Next to releases of `fit`: sizes and privacy of what the target published for them, such as projections; no row.
TARGET_RELEASE = "target_release.json"
#: Test metrics and training cost; and the names of metrics in tables.
METRICS, METRIC_NAMES = "metrics.json", {"hit_rate": "HR", "ndcg": "NDCG", "mrr": "MRR"}

#: Settings that a resumed run may change: devices, paths of data (digests check their content) and output.
FREE = (
    *(f"trainer.{name}" for name in ("accelerator", "devices", "strategy", "num_nodes", "logger", "default_root_dir")),
    *(
        f"trainer.{name}"
        for name in ("enable_progress_bar", "enable_model_summary", "log_every_n_steps", "max_time", "profiler")
    ),
    *("checkpoint.keep_last", "recommendations", "trackers", "keep_ratings"),
    *(f"data.init_args.{name}" for name in ("root", "releases", "trusted", "users", "evaluation_batch_size")),
)


#: Numbers of the summaries of a run, mappings to numbers, and other values with their type.
_NUMBERS, _MAPPINGS = (
    (
        "train_seconds",
        "epochs",
        "tested_epoch",
        "parameters",
        "ranked_by_item_counts",
        "seed",
        "peak_memory",
        "energy_kwh",
        "co2_kg",
    ),
    ("metrics", "release_bytes"),
)
_OTHERS = {"method": str, "tested": dict, "target": dict, "test_says_little": list, "negatives": list}
#: Largest number in a summary, and its most bytes.
_LARGEST, _LARGEST_SUMMARY = 1e12, 2**20


def read_mapping(path: Path) -> dict[str, Any]:
    """Return a JSON file of a run, which may come from another party; `ValueError` if it is none or too large."""
    if (size := path.stat().st_size) > _LARGEST_SUMMARY:
        raise ValueError(f"{path} has {size:,} bytes. Allowed: {_LARGEST_SUMMARY:,}. Repeat the run.")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except RecursionError as error:
        raise ValueError(f"{path} has too many levels. Repeat the run.") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} is of type {type(found).__name__}. Allowed: a mapping. Repeat the run.")
    return found


def read_summary(path: Path) -> dict[str, Any]:
    """Return ``metrics.json`` or ``data.json`` of a run, which may come from another party; `ValueError` for other values."""
    found = read_mapping(path)
    for name, value in found.items():
        if name in _NUMBERS or name in _MAPPINGS:
            inside: list[Any] = [*value.values()] if isinstance(value, dict) else [None]
            parts = [value] if name in _NUMBERS else inside
            fits = all(type(part) in (int, float) and not abs(part) > _LARGEST for part in parts)  # NaN fits
        else:
            fits = isinstance(value, _OTHERS.get(name, object))
        if not fits:
            raise ValueError(f"{path}: {name} is {str(value)[:80]!r}. Repeat the run.")
    return found


def folder_of_run(trainer: Any) -> Path | None:  # noqa: ANN401  a trainer, without Lightning
    """Return the folder of a run, or None if nothing is logged; every process has to call it."""
    log_dir = trainer.log_dir
    return Path(log_dir) if log_dir is not None and trainer.loggers else None


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to, which replaces ``path`` on success and is removed on failure.

    Processes that write the same file do not collide. Temporary files of killed processes are removed.

    Examples:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "note.txt"
        >>> with atomic_write(path) as temporary:
        ...     _ = temporary.write_text("done")
        >>> path.read_text()
        'done'
    """
    temporary = _beside(path)
    try:
        with saying_where(path):
            yield temporary
            temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def atomic_folder(path: Path, *, private: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to write files into, which becomes ``path`` on success and is removed on failure.

    Until then only its owner can read it; then everybody, unless it is private. An `OSError` refuses a folder that exists and is
    not empty. Temporary folders of killed processes are removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with folder_beside(path) as temporary, saying_where(path):
        yield temporary
        if not private:
            make_readable(temporary)
        temporary.rename(path)


@contextmanager
def folder_beside(path: Path) -> Iterator[Path]:
    """Yield a private temporary folder next to ``path``, and remove it; the next write removes that of a killed process."""
    folder = _beside(path)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_readable(folder: Path) -> None:
    """Let everybody read a folder of files."""
    for file in folder.iterdir():
        file.chmod(0o644)
    folder.chmod(0o755)


@contextmanager
def saying_where(path: Path) -> Iterator[None]:
    """Add a path to an `OSError` without one, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_together(folder: Path, files: Mapping[str, str | bytes], last: str) -> None:
    """Write texts or bytes into a folder, all or none: the file ``last`` exists only if the others are complete."""
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for name in sorted(files, key=lambda name: name != last):  # entered first, left last
            path, content = stack.enter_context(atomic_write(folder / name)), files[name]
            path.write_bytes(content) if isinstance(content, bytes) else path.write_text(content, encoding="utf-8")
        (folder / last).unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """Return a temporary path next to a path, and remove those of dead processes."""
    temporary = re.compile(rf"\.{re.escape(path.name)}\.([0-9a-f]*)-([0-9]+)-[0-9a-f]{{4}}\.tmp")
    with suppress(OSError):  # no folder: writing will fail
        for old in path.parent.iterdir():
            if (found := temporary.fullmatch(old.name)) and is_process_dead(found[1], int(found[2])):
                with suppress(OSError):
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
    return path.with_name(f".{path.name}.{machine()}-{os.getpid()}-{secrets.token_hex(2)}.tmp")


def write_json(path: Path, value: object) -> None:
    """Write plain values as JSON, atomically."""
    with atomic_write(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def load_tensors(path: Path) -> Any:  # noqa: ANN401  whatever was saved
    """Return what `torch.save` wrote, tensors and plain values only.

    A `ValueError` refuses damaged and compressed archives, and tensors that expand when they are copied: one larger than its
    storage, or all together more than `MOST_COPIES` times the file.
    """
    import torch

    try:
        if not path.is_file():  # a pipe would be waited for
            raise FileNotFoundError(path)
        with zipfile.ZipFile(path) as archive:
            inside = archive.infolist()
        packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in inside)
        if packed or sum(entry.file_size for entry in inside) > path.stat().st_size:
            raise zipfile.BadZipFile("compressed")
        found = torch.load(path, map_location="cpu", weights_only=True)
        tensors = [*_tensors(found)]
        views = sum(each.nbytes for each in tensors) > MOST_COPIES * path.stat().st_size  # many of one storage
        if views or any(each.is_meta or each.nbytes > each.untyped_storage().nbytes() for each in tensors):
            raise zipfile.BadZipFile("expanded")
        return found
    except Exception as error:  # torch documents no set of errors
        raise ValueError(f"{path} is no checkpoint, or is damaged ({type(error).__name__}).") from error


def _tensors(value: Any) -> Iterator[Tensor]:  # noqa: ANN401  whatever was saved
    """Yield each mention of a tensor inside plain values, which may contain each other."""
    left, count = [value], 0
    while left:
        if hasattr(each := left.pop(), "untyped_storage"):
            yield each
        elif isinstance(each, Mapping | list | tuple | set):
            left += each.values() if isinstance(each, Mapping) else each
        if (count := count + 1) > MOST_MENTIONS:
            raise zipfile.BadZipFile("expanded")


def write_table(path: Path, table: pl.DataFrame) -> None:
    """Write a table atomically, as CSV if the name ends so, else as Parquet; an `OSError` names the path."""
    from polars.exceptions import PolarsError

    write = table.write_csv if path.suffix == ".csv" else table.write_parquet
    with atomic_write(path) as temporary:
        try:
            write(temporary)
        except (PolarsError, OSError) as error:  # those of polars have no path
            raise OSError(f"{path} cannot be written ({error}).") from error


class CapturesInit:
    """Remembers the arguments of its constructor, so that `plain` returns settings that make the object again."""

    made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *positional: Any, **named: Any) -> Self:  # noqa: ANN401  a constructor's own
        """Store the arguments of the constructor; refuse numbers of numpy and torch, which no YAML has."""
        for name, value in (*enumerate(positional, 1), *named.items()):
            for number in value if isinstance(value, list | tuple) else (value,):
                if type(number).__module__ in ("numpy", "torch") and getattr(number, "shape", None) == ():
                    raise TypeError(
                        f"Argument {name} of {cls.__name__} is {number!r}. Pass {number.item()!r} (`.item()`)."
                    )
        self = super().__new__(cls)
        object.__setattr__(self, "made_with", (positional, named))
        return self

    @property
    def settings_given(self) -> dict[str, Any]:
        """``class_path`` and ``init_args``, as in a config, without arguments that were not given."""
        positional, named = self.made_with
        signature = inspect.signature(type(self).__init__)
        given = dict(signature.bind(self, *positional, **named).arguments)
        given.pop(next(iter(signature.parameters)))
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                given |= given.pop(name, {})
        return {"class_path": class_path(type(self)), "init_args": plain(given)}


def class_path(cls: type) -> str:
    """Return the import path of a class: its package if that exports it, else its module."""
    package = sys.modules[cls.__module__.partition(".")[0]]
    exported = getattr(package, cls.__name__, None) is cls
    return f"{package.__name__}.{cls.__name__}" if exported else f"{cls.__module__}.{cls.__qualname__}"


def plain(value: Any) -> Any:  # noqa: ANN401  any parsed value, or an object that was made of some
    """Return a value as plain dictionaries, lists, strings and numbers.

    Examples:
        >>> plain({"path": Path("a/b"), "sizes": (1, 2)})
        {'path': 'a/b', 'sizes': [1, 2]}
    """
    if isinstance(value, Namespace):
        value = value.as_dict()
    if isinstance(value, CapturesInit):
        value = value.settings_given
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        value = value.value
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def flat(value: Any, prefix: str = "") -> dict[str, Any]:  # noqa: ANN401  any plain value
    """Return nested dictionaries with dotted keys.

    Examples:
        >>> flat({"data": {"seed": 1}})
        {'data.seed': 1}
    """
    if not isinstance(value, dict):
        return {prefix: value}
    return {k: v for key, item in value.items() for k, v in flat(item, f"{prefix}.{key}".lstrip(".")).items()}


def differing(ours: Any, theirs: Any) -> list[str]:  # noqa: ANN401  any plain value
    """Return the dotted keys in which two plain settings differ."""
    ours, theirs = flat(ours), flat(theirs)
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))


def refusal(error: BaseException) -> str:
    """Return the printable message of an error, or of its cause if the parser wrapped it; raise that of a closed output."""
    if isinstance(error, BrokenPipeError):
        output = select.poll()
        output.register(1, 0)
        if output.poll(0):  # its reader is gone, as after ``| head``; other pipes are errors
            raise error
    while error.__cause__ is not None and str(error).startswith("Does not validate"):
        error = error.__cause__
    return "\n".join(map(visible, f"{type(error).__name__}: {error}".split("\n")))


#: Letters and signs that look like blanks, and could imitate the layout of a page.
_BLANK = "\u115f\u1160\u2800\u3164\uffa0"


def visible(text: str) -> str:
    r"""Return a text with control characters, line breaks, direction marks and invisible characters escaped.

    Markup of rich or HTML stays; it is escaped when it is printed.

    Examples:
        >>> print(visible("a\x1bb"))
        a\x1bb
    """
    shapeless = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return "".join(
        f"\\u{ord(c):04x}" if c in _BLANK else repr(c)[1:-1] if unicodedata.category(c) in shapeless else c
        for c in text
    )


def markdown(text: str, plain: bool = False) -> str:
    r"""Return a text for Markdown without HTML elements, ends of cells and links; a plain one also without emphasis and code.

    Examples:
        >>> print(markdown("<b> **0.5**"), markdown("*a* `b` [c](d)", plain=True))
        &lt;b> **0.5** \*a\* \`b\` \[c\]\(d)
    """
    text = re.sub(r"([\\`*_~\[\]])", r"\\\1", text) if plain else text
    return re.sub(r"<(?=[A-Za-z/!?])", "&lt;", text).replace("|", "\\|").replace("](", "]\\(").replace("][", "]\\[")
