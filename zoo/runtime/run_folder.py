"""The run folder: files that one room writes and another reads, whole or not at all; settings as plain values; refusals."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import re
import secrets
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

#: The settings of a run, and the checkpoint that validation chose.
CONFIG, BEST = "config.yaml", "checkpoints/best.ckpt"
#: Figures of every held-out case of the test.
CASES = "test_cases.parquet"
#: What each source weighs, by layer, where a method weighs domains.
ATTENTION = "attention.csv"
#: The summary of the data, and what is odd about them.
DATA = "data.json"
#: The privacy record of each release, and of the training.
PRIVACY = "privacy.json"
#: What the test found and what training took, and how tables call what the test measures.
METRICS, METRIC_NAMES = "metrics.json", {"hit_rate": "HR", "ndcg": "NDCG", "mrr": "MRR"}

#: Settings that make no other run: where and how it computes, where data lie (digests know what they are), what is shown.
FREE = (
    "trainer.accelerator",
    "trainer.devices",
    "trainer.strategy",
    "trainer.num_nodes",
    "trainer.logger",
    "trainer.default_root_dir",
    "trainer.enable_progress_bar",
    "trainer.enable_model_summary",
    "trainer.log_every_n_steps",
    "trainer.max_time",
    "trainer.profiler",
    "checkpoint.keep_last",
    "recommendations",
    "trackers",
    "data.init_args.root",
    "data.init_args.releases",
    "data.init_args.trusted",
    "data.init_args.users",
    "data.init_args.evaluation_batch_size",
)


def folder_of_run(trainer: Any) -> Path | None:  # noqa: ANN401  a trainer, without Lightning
    """Where a run lies, None where nothing is logged. It asks every process, so every process has to call it."""
    log_dir = trainer.log_dir
    return Path(log_dir) if log_dir is not None and trainer.loggers else None


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary name beside a path, to write to; it takes the path's place once everything is written, or goes.

    The name is this process's own, so two that write the same file do not meet. Files that killed processes of this machine
    left of it go first.
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
def whole_folder(path: Path, *, private: bool = False) -> Iterator[Path]:
    """A temporary folder beside a path, to write files into; it takes the path's place once all are written, or goes.

    Until then it is its owner's alone; then everybody may read it, unless it is private. An `OSError` refuses a folder that is
    there already and not empty. Folders that killed processes left of it go first.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(path)
    temporary.mkdir(mode=0o700)
    try:
        with saying_where(path):
            yield temporary
            if not private:
                for file in temporary.iterdir():
                    file.chmod(0o644)
                temporary.chmod(0o755)
            temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


@contextmanager
def saying_where(path: Path) -> Iterator[None]:
    """Name a path in an error of the system that names none, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def write_together(folder: Path, files: Mapping[str, str], last: str) -> None:
    """Write texts into a folder, all or none: the old ones stay until all of them are on the disk.

    A process that is killed while they take their places leaves no file ``last``, by which a reader knows that the others are
    whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        for name in sorted(files, key=lambda name: name != last):  # what is entered first is left last
            stack.enter_context(whole(folder / name)).write_text(files[name], encoding="utf-8")
        (folder / last).unlink(missing_ok=True)


def _beside(path: Path) -> Path:
    """A temporary name beside a path, after what processes that have ended left of the same path was removed."""
    left = re.compile(rf"\.{re.escape(path.name)}\.([0-9a-f]*)-([0-9]+)-[0-9a-f]{{4}}\.tmp")
    with suppress(OSError):  # there is no folder, which whoever writes will say
        for old in path.parent.iterdir():
            if (found := left.fullmatch(old.name)) and is_process_dead(found[1], int(found[2])):
                with suppress(OSError):
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
    return path.with_name(f".{path.name}.{machine()}-{os.getpid()}-{secrets.token_hex(2)}.tmp")


def write_json(path: Path, value: object) -> None:
    """Write plain values, whole or not at all."""
    with whole(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def load_tensors(path: Path) -> Any:  # noqa: ANN401  whatever was saved
    """What `torch.save` wrote, tensors and plain values alone; a ValueError where that is damaged or something else.

    An archive that unpacks to more than its size is refused: torch compresses nothing.
    """
    import torch

    try:
        with zipfile.ZipFile(path) as archive:
            inside = archive.infolist()
        packed = any(entry.compress_type != zipfile.ZIP_STORED for entry in inside)
        if packed or sum(entry.file_size for entry in inside) > path.stat().st_size:
            raise zipfile.BadZipFile("it unpacks to more than it is")
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch names no set of errors: those of zip, pickle and whatever a damaged one leads to
        raise ValueError(f"{path} is no checkpoint, or is damaged ({type(error).__name__}).") from error


def write_table(path: Path, table: pl.DataFrame) -> None:
    """Write a table, whole or not at all, as CSV where the name ends so, else as Parquet; an `OSError` names the path."""
    from polars.exceptions import PolarsError  # whoever has a table has imported it

    write = table.write_csv if path.suffix == ".csv" else table.write_parquet
    with whole(path) as temporary:
        try:
            write(temporary)
        except (PolarsError, OSError) as error:  # polars' own errors of the system have neither number nor path
            raise OSError(f"{path} cannot be written ({error}).") from error


class CapturesInit:
    """Remembers what it was made with, so that `plain` writes an object down as settings that make it again."""

    made_with: tuple[tuple[Any, ...], dict[str, Any]]

    def __new__(cls, *positional: Any, **named: Any) -> Self:  # noqa: ANN401  a constructor's own
        """Keep the arguments of the constructor as they were given."""
        self = super().__new__(cls)
        object.__setattr__(self, "made_with", (positional, named))
        return self

    @property
    def settings_given(self) -> dict[str, Any]:
        """``class_path`` and ``init_args``, as a config has them; arguments left at their defaults are left out."""
        positional, named = self.made_with
        signature = inspect.signature(type(self).__init__)
        given = dict(signature.bind(self, *positional, **named).arguments)
        given.pop(next(iter(signature.parameters)))
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                given |= given.pop(name, {})
        return {"class_path": class_path(type(self)), "init_args": plain(given)}


def class_path(cls: type) -> str:
    """Where a class is imported from: its package, if that exports it, or else its module."""
    package = sys.modules[cls.__module__.partition(".")[0]]
    exported = getattr(package, cls.__name__, None) is cls
    return f"{package.__name__}.{cls.__name__}" if exported else f"{cls.__module__}.{cls.__qualname__}"


def plain(value: Any) -> Any:  # noqa: ANN401  any parsed value, or an object that was made of some
    """The same as plain dictionaries, lists, strings and numbers."""
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
    """Dotted keys of nested dictionaries."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {k: v for key, item in value.items() for k, v in flat(item, f"{prefix}.{key}".lstrip(".")).items()}


def differing(ours: Any, theirs: Any) -> list[str]:  # noqa: ANN401  any plain value
    """Dotted keys in which two plain settings differ."""
    ours, theirs = flat(ours), flat(theirs)
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))


def refusal(error: BaseException) -> str:
    """What the class itself said of its settings, without the parser's account of its attempts."""
    while error.__cause__ is not None and str(error).startswith("Does not validate"):
        error = error.__cause__
    said = f"{type(error).__name__}: {error}"
    return "\n".join(map(visible, said.split("\n")))


def visible(text: str) -> str:
    r"""The text as a terminal or a page can only show it, never obey it: ``\x1b`` in the place of an escape character.

    The same for control characters, line breaks, marks of text direction and characters without a shape. Markup of rich or HTML
    stays; it is escaped where either prints it.
    """
    shapeless = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in shapeless else c for c in text)
