"""Cache of the target's training ratings and held-out cases, for the next start with the same large files and settings."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pooch
import torch
from polars.exceptions import PanicException, PolarsError
from pytorch_lightning.utilities import rank_zero_only
from safetensors import SafetensorError
from safetensors.torch import load_file
from scipy.sparse import csr_array

import zoo.data.ratings
from datamodules.data_quality import collected_warnings, unreliable_reasons, users_with_every_item, warn_once
from datamodules.protocol import Evaluation
from zoo.data.held_out_cases import HeldOutCases
from zoo.data.open_table import open_table
from zoo.data.ratings import Ratings, Step, as_ids, check_pointers
from zoo.data.rows import SparseRows
from zoo.release.files import save_tensors
from zoo.runtime.run_folder import atomic_folder, plain, visible, write_json, write_table
from zoo.runtime.settings_files import user_path

#: Bytes of files that are reported and cached; smaller ones take a second or two.
LARGE = 1 << 26
#: Number of ratings from which on each stage is reported.
MANY = 2_000_000
#: Attributes of a datamodule that do not affect the result; a list of users counts by its content.
_INDIFFERENT = {"releases", "release_paths", "links", "trusted", "denoiser", "made_with", "trainer", "summary"}
_INDIFFERENT |= {"batch_size", "evaluation_batch_size", "top_k", "users", "users_from_ratings", "seed"}
_TENSORS, _IDS = "ratings.safetensors", ("users.parquet", "items.parquet")
_WARNED, _FACTS, _DIGESTS = "warned.json", "facts.json", "digests.json"
#: Errors of cache files, which never stop a run.
_BROKEN = (
    OSError, LookupError, TypeError, ValueError, RuntimeError, RecursionError,
    SafetensorError, PolarsError, PanicException,
)  # fmt: skip
_NUMBERS = {"values", "ratings"}  # the other tensors hold indices


class PreparedTarget(NamedTuple):
    """Training ratings and held-out cases of a target, and facts about them: `unknown_items`, `ties_in_time` and `remarks`."""

    train: Ratings
    validation: HeldOutCases
    test: HeldOutCases
    facts: Mapping[str, Any]

    def summary(self, domain: str, evaluation: Evaluation, signs: bool, seed: int) -> dict[str, Any]:
        """Return counts for people, and reasons why the metrics may be unreliable."""
        train, validation, test, facts = self
        odd = unreliable_reasons(train, test, evaluation, signs)
        rated = len(test.seen.items)  # the test has seen every pair
        negatives = (test.candidates >= 0).sum(1).tolist() if evaluation.num_candidates else []
        target = {"domain": domain, "users": train.num_users, "items": train.num_items, "ratings": rated}
        cases = {"validation_cases": len(validation.users), "test_cases": len(test.users)}
        return {
            "target": {**target, "density": rated / (train.num_users * train.num_items)},
            **{"train_ratings": train.num_ratings, **cases},
            "users_without_test_item": train.num_users - len(torch.unique(test.users)),
            **{"split": evaluation.split, "signs": signs, "seed": seed, "releases": {}},
            **facts,
            **{
                "remarks": [*odd, *facts["remarks"], *([] if signs else users_with_every_item(train))],
                "test_says_little": odd,
                "negatives": [min(negatives), max(negatives)] if negatives else [],
            },
        }

    def without_candidates(self) -> PreparedTarget:
        """Return the same target without sampled candidates, which scoring does not need."""
        validation, test = (part._replace(candidates=part.candidates[:, :0]) for part in (self.validation, self.test))
        return PreparedTarget(self.train, validation, test, self.facts)

    def save(self, folder: Path, warned: Sequence[str] = ()) -> None:
        """Write it to a folder, atomically, with the warnings given while it was made."""
        with suppress(*_BROKEN):  # a full disk, a read-only folder, or a faster process
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # ratings are private
            with atomic_folder(folder, private=True) as temporary:
                save_tensors(self._tensors(), temporary / _TENSORS)
                for name, ids in zip(_IDS, (self.train.user_ids, self.train.item_ids), strict=True):
                    write_table(temporary / name, pl.DataFrame({"id": ids}))
                write_json(temporary / _WARNED, list(warned))
                write_json(temporary / _FACTS, dict(self.facts))
                (temporary / _DIGESTS).write_text(json.dumps(_digests(temporary)), encoding="utf-8")

    def _tensors(self) -> dict[str, torch.Tensor]:
        starts, columns, values = self.train.compressed()
        tensors = {"starts": starts, "columns": columns.int(), "values": values}
        if self.train.times is not None:
            tensors["times"] = torch.from_numpy(self.train.times)
        for phase, cases in (("validation", self.validation), ("test", self.test)):
            tensors |= {f"{phase}.{name}": getattr(cases, name) for name in ("users", "items", "candidates", "ratings")}
            tensors |= {f"{phase}.seen.starts": cases.seen.starts, f"{phase}.seen.items": cases.seen.items.int()}
        tensors["left_out"] = self.test.left_out  # of both phases
        return {name: tensor.contiguous() for name, tensor in tensors.items()}

    @classmethod
    def load(cls, folder: Path, applied: tuple[Step, ...]) -> PreparedTarget | None:
        """Read what `save` wrote, and repeat its warnings; None if it is missing or was changed."""
        try:
            if json.loads((folder / _DIGESTS).read_text(encoding="utf-8")) != _digests(folder):
                return None
            tensors = load_file(folder / _TENSORS)
            _check_types(tensors)
            users, items = (as_ids(open_table(folder / name, ".parquet", "", ["id"])["id"]) for name in _IDS)
            parts = tuple(tensors[name].numpy() for name in ("values", "columns", "starts"))
            check_pointers(parts[2], len(parts[1]))
            warned = json.loads((folder / _WARNED).read_text(encoding="utf-8"))
            times = tensors["times"].numpy() if "times" in tensors else None
            train = Ratings(csr_array(parts, shape=(len(users), len(items))), users, items, applied, times)
            facts = dict(json.loads((folder / _FACTS).read_text(encoding="utf-8")))
            validation, test = (_cases(tensors, phase, train) for phase in ("validation", "test"))
            found = cls(train, validation, test, facts)
        except _BROKEN:
            return None
        for text in warned:
            warn_once(text)
        return found


def _digests(folder: Path) -> dict[str, str]:
    return {name: _digest(folder / name).hex() for name in (_TENSORS, *_IDS, _WARNED, _FACTS)}


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _check_types(tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuse types and dimensions that are not written: torch fails on some of them only when users are scored."""
    for name, tensor in tensors.items():
        last = name.rpartition(".")[2]
        kinds = (torch.float32, torch.float64) if last in _NUMBERS else (torch.int32, torch.int64)
        if tensor.dtype not in kinds or tensor.ndim != (2 if last == "candidates" else 1):
            raise ValueError(name)


def _cases(tensors: Mapping[str, torch.Tensor], phase: str, train: Ratings) -> HeldOutCases:
    seen, starts = tensors[f"{phase}.seen.items"].long(), tensors[f"{phase}.seen.starts"]
    rows = SparseRows(starts, seen, torch.ones(len(seen)), train.num_items)
    users, items, listed, ratings = (tensors[f"{phase}.{name}"] for name in ("users", "items", "candidates", "ratings"))
    found = HeldOutCases(users, items, listed, ratings, rows, tensors["left_out"])
    # Of a received run: such numbers would be looked up beyond a table, or allocate one of their size.
    check_pointers(starts.numpy(), len(seen))
    sizes = ((users, 0, train.num_users), *((each, 0, train.num_items) for each in (items, seen, found.left_out)))
    sizes = (*sizes, (listed, -1, train.num_items))  # padded with -1
    fits = (least <= int(index.min()) <= int(index.max()) < size for index, least, size in sizes if index.numel())
    if len(starts) != train.num_users + 1 or not all(fits):
        raise ValueError(phase)
    return found


def load_or_prepare(
    files: Iterable[Path] | None,
    settings: Mapping[str, Any],
    applied: tuple[Step, ...],
    make: Callable[[], PreparedTarget],
) -> PreparedTarget:
    """Return what ``make`` gives, or the cached result of an earlier start with the same files and settings.

    Large files (`LARGE`) are cached in the folder ``ZOO_CACHE``, else in the user's cache folder, under a digest of the files'
    contents, the settings, and the code. The cache holds the target's own data; a source's ratings are never cached. A folder
    that others may write to is not used.

    Args:
        files: The files that are read; None if they are unknown: then nothing is cached.
        settings: All settings that affect the result.
        applied: Steps of preprocessing, for privacy records.
        make: Prepares the target.
    """
    existing, reading = _large(files)
    if not reading:
        return make()
    key = _key(existing, settings)
    folder = user_path(os.environ.get("ZOO_CACHE") or pooch.os_cache("cdr-zoo")) / "prepared" / key
    if _is_open_to_others(folder.parent):
        report(
            f"The cache {folder.parent} is not used: others may write to it. Empty it and run chmod 700, or set ZOO_CACHE."
        )
        return make()
    if (cached := PreparedTarget.load(folder, applied)) is not None:
        report(f"Prepared ratings read from the cache {folder}.")
        return cached
    report(f"{reading}. The next start reads the cache.")
    with collected_warnings() as warned:
        made = make()
    if _key(existing, settings) == key:  # no file changed while it was read
        if folder.exists():
            shutil.rmtree(folder, ignore_errors=True)  # a damaged cache
        made.save(folder, warned)
    return made


def report_large_files(files: Iterable[Path] | None) -> None:
    """Report which files are read, if they are large."""
    if reading := _large(files)[1]:
        report(f"{reading}.")


def _large(files: Iterable[Path] | None) -> tuple[list[Path], str]:
    """Return the existing files, and a sentence on them if they are large."""
    existing = [path for path in files or () if path.is_file()]
    size = sum(path.stat().st_size for path in existing)
    names = ", ".join(path.name for path in existing)
    return existing, f"Reading {names} ({size / 2**20:,.0f} MiB)" if size >= LARGE else ""


def _is_open_to_others(folder: Path) -> bool:
    """Return whether another user owns the folder or a link to it, or may write to it."""
    if not hasattr(os, "getuid"):
        return False
    try:
        named, found = folder.lstat(), folder.stat()
    except (OSError, ValueError):  # missing, or an error that saving and loading will meet
        return False
    return {named.st_uid, found.st_uid} != {os.getuid()} or bool(stat.S_IMODE(found.st_mode) & 0o022)


def cache_key_settings(attributes: Mapping[str, Any], kind: str, users: str, seed: int) -> dict[str, Any]:
    """Return the settings of the cache key: all that may affect the result."""
    own = {name: plain(value) for name, value in attributes.items() if name not in _INDIFFERENT and name[0] != "_"}
    return {**own, "class": kind, "users": users, "split_seed": seed}


def _key(files: Iterable[Path], settings: Mapping[str, Any]) -> str:
    state = hashlib.sha256(json.dumps(settings, sort_keys=True).encode() + _code())
    for path in files:
        state.update(path.name.encode() + _digest(path))
    return state.hexdigest()[:32]


@cache
def _code() -> bytes:
    """Return the SHA-256 of the code that prepares data: a changed version may prepare it differently."""
    state = hashlib.sha256()
    for room in (Path(__file__).parent, Path(zoo.data.ratings.__file__).parent):
        for file in sorted(room.glob("*.py")):
            state.update(file.read_bytes())
    return state.digest()


def progress_reporter(num_ratings: int) -> Callable[[str], None]:
    """Return `report` if there are many ratings (`MANY`), else a function that does nothing."""
    return report if num_ratings >= MANY else lambda _: None


@rank_zero_only
def report(sentence: str) -> None:
    """Print progress to standard error, in the first of several processes."""
    print(visible(sentence), file=sys.stderr, flush=True)
