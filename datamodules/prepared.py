"""The target's ratings as they are learned from and held out: made once of a large file, and kept for the next start."""

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

import numpy as np
import polars as pl
import pooch
import torch
from polars.exceptions import PanicException, PolarsError
from pytorch_lightning.utilities import rank_zero_only
from safetensors import SafetensorError
from safetensors.torch import load_file
from scipy.sparse import csr_array

import zoo.data.ratings
from datamodules.protocol import Evaluation
from datamodules.remarks import hearing, on_cases, warn_once
from zoo.data.evaluation import HeldOutCases
from zoo.data.ratings import Ratings, Step
from zoo.data.rows import SparseRows
from zoo.release.files import save_tensors
from zoo.runtime.run_folder import atomic_folder, plain, visible, write_json, write_table

#: Bytes of files from which on it is said what is being done, and what was prepared is kept: smaller ones take a second or two.
LARGE = 1 << 26
#: Ratings from which on each stage is told.
MANY = 2_000_000
#: Attributes of a datamodule that decide nothing of what is made of its files; a list of users counts by its content.
_INDIFFERENT = {"releases", "release_paths", "links", "trusted", "denoiser", "made_with", "trainer", "summary"}
_INDIFFERENT |= {"batch_size", "evaluation_batch_size", "top_k", "users", "users_worked_out", "seed"}
_TENSORS, _IDS = "ratings.safetensors", ("users.parquet", "items.parquet")
_WARNED, _DIGESTS = "warned.json", "digests.json"
#: What may go wrong with files of a cache, which is no reason to stop.
_BROKEN = (OSError, KeyError, ValueError, RecursionError, SafetensorError, PolarsError, PanicException)


class Prepared(NamedTuple):
    """What is learned from, and what is held out of it."""

    train: Ratings
    validation: HeldOutCases
    test: HeldOutCases

    def summary(self, domain: str, evaluation: Evaluation, signs: bool, seed: int) -> dict[str, Any]:
        """Plain numbers for people, and what is odd about them."""
        train, validation, test = self
        odd = on_cases(train, test, evaluation, signs)
        rated = len(test.seen.items)  # at the test, every pair has been seen
        return {
            "target": {
                "domain": domain,
                "users": train.num_users,
                "items": train.num_items,
                "ratings": rated,
                "density": rated / (train.num_users * train.num_items),
            },
            "train_ratings": train.num_ratings,
            "validation_cases": len(validation.users),
            "test_cases": len(test.users),
            "users_without_test_item": train.num_users - len(torch.unique(test.users)),
            "split": evaluation.split,
            "signs": signs,
            "seed": seed,
            "releases": {},
            "remarks": [*odd],
            "test_says_little": odd,
        }

    def save(self, folder: Path, warned: Sequence[str] = ()) -> None:
        """Write it as a folder of a given name, whole or not at all, with what was ``warned`` of as it was made."""
        # A full disk, a folder that may not be written, or another process that was first: a cache is no reason to stop.
        with suppress(*_BROKEN):
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # ratings are nobody else's
            with atomic_folder(folder, private=True) as temporary:
                save_tensors(self._tensors(), temporary / _TENSORS)
                for name, ids in zip(_IDS, (self.train.user_ids, self.train.item_ids), strict=True):
                    write_table(temporary / name, pl.DataFrame({"id": ids}))
                write_json(temporary / _WARNED, list(warned))
                (temporary / _DIGESTS).write_text(json.dumps(_digests(temporary)), encoding="utf-8")

    def _tensors(self) -> dict[str, torch.Tensor]:
        starts, columns, values = self.train.compressed()
        tensors = {"starts": starts, "columns": columns.int(), "values": values}
        for phase, cases in (("validation", self.validation), ("test", self.test)):
            tensors |= {f"{phase}.{name}": getattr(cases, name) for name in ("users", "items", "candidates", "ratings")}
            tensors |= {f"{phase}.seen.starts": cases.seen.starts, f"{phase}.seen.items": cases.seen.items.int()}
        return {name: tensor.contiguous() for name, tensor in tensors.items()}

    @classmethod
    def load(cls, folder: Path, applied: tuple[Step, ...]) -> Prepared | None:
        """Read what `save` wrote, and warn again; None where there is nothing, or not to the byte what was written."""
        try:
            if json.loads((folder / _DIGESTS).read_text(encoding="utf-8")) != _digests(folder):
                return None
            tensors = load_file(folder / _TENSORS)
            users, items = (pl.read_parquet(folder / name)["id"].to_numpy().astype(np.str_) for name in _IDS)
            parts = tuple(tensors[name].numpy() for name in ("values", "columns", "starts"))
            warned = json.loads((folder / _WARNED).read_text(encoding="utf-8"))
            train = Ratings(csr_array(parts, shape=(len(users), len(items))), users, items, applied)
            found = cls(train, *(_cases(tensors, phase, len(items)) for phase in ("validation", "test")))
        except _BROKEN:
            return None
        for text in warned:
            warn_once(text)
        return found


def _digests(folder: Path) -> dict[str, str]:
    return {name: _digest(folder / name).hex() for name in (_TENSORS, *_IDS, _WARNED)}


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _cases(tensors: Mapping[str, torch.Tensor], phase: str, num_items: int) -> HeldOutCases:
    seen = tensors[f"{phase}.seen.items"].long()
    rows = SparseRows(tensors[f"{phase}.seen.starts"], seen, torch.ones(len(seen)), num_items)
    users, items, listed, ratings = (tensors[f"{phase}.{name}"] for name in ("users", "items", "candidates", "ratings"))
    return HeldOutCases(users, items, listed, ratings, rows)


def prepared(
    files: Iterable[Path] | None, settings: Mapping[str, Any], applied: tuple[Step, ...], make: Callable[[], Prepared]
) -> Prepared:
    """Return what ``make`` gives, or what an earlier start has cached of the same files and settings.

    Large files (`LARGE`) are cached in the folder ``ZOO_CACHE``, else in the user's cache folder, under a digest of the files'
    contents, the settings, and the code. The cache holds the target's own data; a source's ratings are never cached. Where
    others may write to it, it is not used.

    Args:
        files: What is read; None: nobody knows, and nothing is cached.
        settings: All that decides what is made of the files.
        applied: What is done to the ratings, for the records of who reads them.
        make: Prepares it.
    """
    there, reading = _large(files)
    if not reading:
        return make()
    key = _key(there, settings)
    folder = Path(os.environ.get("ZOO_CACHE") or pooch.os_cache("cdr-zoo")) / "prepared" / key
    if _is_open_to_others(folder.parent):
        tell(
            f"Nothing is taken from {folder.parent} nor kept there: others than you may write to it. Empty it and make it yours "
            "alone (chmod 700), or point ZOO_CACHE elsewhere."
        )
        return make()
    if (kept := Prepared.load(folder, applied)) is not None:
        tell(f"Prepared ratings taken from {folder}.")
        return kept
    tell(f"{reading}; the next start reads what was made of it.")
    with hearing() as warned:
        made = make()
    if _key(there, settings) == key:  # nobody has changed a file while it was read
        shutil.rmtree(folder, ignore_errors=True)  # what is there is damaged
        made.save(folder, warned)
    return made


def tell_what_is_read(files: Iterable[Path] | None) -> None:
    """Say at a terminal which files are read, if they are large."""
    if reading := _large(files)[1]:
        tell(f"{reading}.")


def _large(files: Iterable[Path] | None) -> tuple[list[Path], str]:
    """Files that are there, and a sentence on them if they are large."""
    there = [path for path in files or () if path.is_file()]
    size = sum(path.stat().st_size for path in there)
    return there, f"Reading {', '.join(path.name for path in there)} ({size / 2**20:,.0f} MiB)" if size >= LARGE else ""


def _is_open_to_others(folder: Path) -> bool:
    """Whether somebody else may have written there: it, or a link to it, is another's, or others may write to it."""
    if not hasattr(os, "getuid"):
        return False
    try:
        named, found = folder.lstat(), folder.stat()
    except (OSError, ValueError):  # it is not there; or whatever else saving and loading will meet
        return False
    return {named.st_uid, found.st_uid} != {os.getuid()} or bool(stat.S_IMODE(found.st_mode) & 0o022)


def decisive(attributes: Mapping[str, Any], kind: str, users: str, seed: int) -> dict[str, Any]:
    """Cache key: every setting that may affect the result, from a datamodule's attributes, class, word for its users and seed."""
    own = {name: plain(value) for name, value in attributes.items() if name not in _INDIFFERENT and name[0] != "_"}
    return {**own, "class": kind, "users": users, "split_seed": seed}


def _key(files: Iterable[Path], settings: Mapping[str, Any]) -> str:
    state = hashlib.sha256(json.dumps(settings, sort_keys=True).encode() + _code())
    for path in files:
        state.update(path.name.encode() + _digest(path))
    return state.hexdigest()[:32]


@cache
def _code() -> bytes:
    """SHA-256 of the code that prepares: other code may make something else of the same settings."""
    state = hashlib.sha256()
    for room in (Path(__file__).parent, Path(zoo.data.ratings.__file__).parent):
        for file in sorted(room.glob("*.py")):
            state.update(file.read_bytes())
    return state.digest()


def teller(num_ratings: int) -> Callable[[str], None]:
    """Says what is being done, if it is done to so many ratings that people wait for it."""
    return tell if num_ratings >= MANY else lambda _: None


@rank_zero_only
def tell(sentence: str) -> None:
    """Say at a terminal, of ratings that take their time, what is being done."""
    print(visible(sentence), file=sys.stderr, flush=True)
