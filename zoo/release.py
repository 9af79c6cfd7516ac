"""Release: the only thing that crosses from a source party to a target party."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from zoo.nn.rows import Bags, DenseRows, SparseRows, gather_bags, scatter_dense
from zoo.privacy.accounting import UnsupportedEventError
from zoo.privacy.events import EventError, PrivacyEvent, event_from_dict, event_to_dict
from zoo.privacy.record import Guarantee, PrivacyRecord, RecordError, UnderstatedPrivacyError

Kind = Literal["rows", "ratings"]

SCHEMA = 1
MANIFEST = "release.json"
TENSORS = "tensors.safetensors"


class ReleaseError(ValueError):
    """A release that is damaged, of another schema, or not what its kind promises."""


@dataclass(frozen=True, eq=False)
class Release:
    """What a source party hands over: tensors, whose they are, and what was protected.

    Kinds and their tensors:

    * ``rows``: ``rows`` (users, width), float32.
    * ``ratings``: ``starts`` (users + 1,), ``items`` (entries,) and ``weights`` (entries,): compressed rows as they
      are, and ``num_items`` (1,).

    A file from another party is untrusted input: it is safetensors and JSON, never a pickle, and everything in it is
    checked against its kind before it is used. Reading a release costs no privacy, whatever is done with it.

    Attributes:
        kind: What the tensors are.
        domain: Name of the source domain.
        tensors: By name, on the CPU.
        user_ids: Whose row each is, shape ``(users,)``. The ids themselves say who is a user of the source.
        record: What was protected, for whom, how strongly, and what was not.
        ledger: The events that the record's epsilon is computed from.

    Raises:
        ReleaseError: If tensors and kind do not go together, an id repeats or a value is not finite.
        UnderstatedPrivacyError: If the record states less epsilon than the ledger gives.
    """

    kind: Kind
    domain: str
    tensors: Mapping[str, Tensor]
    user_ids: npt.NDArray[np.str_]
    record: PrivacyRecord
    ledger: tuple[PrivacyEvent, ...]

    def __post_init__(self) -> None:
        """Check everything, whether made here or read from a file."""
        if self.kind not in get_args(Kind):
            raise ReleaseError(f"Release kind must be one of {get_args(Kind)}, got {self.kind!r}.")
        if not self.domain or (self.user_ids == "").any():
            raise ReleaseError("A release must name its domain and each of its users; one of these names is empty.")
        if len(np.unique(self.user_ids)) != len(self.user_ids):
            raise ReleaseError("A user id occurs twice among the release's users; each user has one row.")
        check = {"rows": _check_rows, "ratings": _check_ratings}[self.kind]
        check(self.tensors, len(self.user_ids))
        if self.record.guarantee is Guarantee.PROVED:
            if self.kind == "ratings":
                raise ReleaseError("Ratings as they are have no guarantee, and the record claims one.")
            if self.record.delta is not None and self.record.delta * max(self.num_users, 1) >= 1:
                raise ReleaseError(
                    f"delta {self.record.delta:g} is not below one over the {self.num_users} users, so the guarantee would "
                    "hold for handing over one user's data whole."
                )
        self.record.check_against(self.ledger)

    @property
    def num_users(self) -> int:
        """Users with a row."""
        return len(self.user_ids)

    @property
    def width(self) -> int:
        """Width of a row."""
        return int(self.tensors["num_items"]) if self.kind == "ratings" else self.tensors["rows"].shape[1]

    def rows(self, index: Tensor) -> Tensor:
        """Rows ``index`` (batch,) of the release, dense, shape ``(batch, width)``; fill one batch, not all users."""
        if self.kind == "rows":
            return self.tensors["rows"][index]
        return scatter_dense(self.bags(index), self.width)

    def bags(self, index: Tensor) -> Bags:
        """Rows ``index`` (batch,) for ``torch.nn.functional.embedding_bag``.

        Raises:
            TypeError: If this kind is not kept sparse.
        """
        if self.kind == "rows":
            raise TypeError("Dense rows have no sparse form; read them with rows().")
        return gather_bags(self.tensors["starts"], self.tensors["items"], self.tensors["weights"], index)

    def device_rows(self) -> SparseRows | DenseRows:
        """The rows as a module whose buffers follow a model's device."""
        if self.kind == "rows":
            return DenseRows(self.tensors["rows"])
        return SparseRows(self.tensors["starts"], self.tensors["items"], self.tensors["weights"], self.width)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of tensors, ids and record: two releases are the same if it is."""
        return hashlib.sha256(json.dumps(self._manifest(), sort_keys=True).encode()).hexdigest()

    def _manifest(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "kind": self.kind,
            "domain": self.domain,
            "record": self.record.to_dict(),
            "ledger": [event_to_dict(event) for event in self.ledger],
            "user_ids": self.user_ids.tolist(),
            "sha256": {name: _sha256(tensor) for name, tensor in sorted(self.tensors.items())},
        }

    def save(self, path: Path | str) -> Path:
        """Write the release as a folder, whole or not at all.

        Raises:
            FileExistsError: If there is something at ``path``; a release is never overwritten.
        """
        path = Path(path)
        if path.exists():
            raise FileExistsError(
                f"{path} exists, and a release is never overwritten. Choose another path or remove it."
            )
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        try:
            (folder / MANIFEST).write_text(json.dumps(self._manifest(), indent=1, allow_nan=False), encoding="utf-8")
            save_file({name: tensor.contiguous() for name, tensor in self.tensors.items()}, folder / TENSORS)
            for entry, mode in ((folder, 0o755), (folder / MANIFEST, 0o644), (folder / TENSORS, 0o644)):
                entry.chmod(mode)  # temporary folders are private to their owner; a release is to be handed over
            os.rename(folder, path)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return path

    @classmethod
    def load(cls, path: Path | str) -> Release:
        """Read a release and check all of it.

        Raises:
            ReleaseError: If it is missing, truncated, of a newer schema, or not what its kind promises.
            UnderstatedPrivacyError: If its record states less epsilon than its ledger gives.
        """
        path = Path(path)
        for name in (MANIFEST, TENSORS):
            if not (path / name).is_file():
                raise ReleaseError(
                    f"{path} is no release: it has no {name}. Ask the source party for the whole folder."
                )
        manifest = _read_manifest(path / MANIFEST)
        try:
            tensors = load_file(path / TENSORS)
        except (SafetensorError, OSError, ValueError) as error:
            raise ReleaseError(
                f"{path / TENSORS} cannot be read ({error}). Ask the source party for it again."
            ) from error
        if manifest["sha256"] != {name: _sha256(tensor) for name, tensor in tensors.items()}:
            raise ReleaseError(
                f"{path / TENSORS} does not hold what {MANIFEST} says it does (SHA-256). It was damaged or replaced on the "
                "way: ask the source party for the whole folder again."
            )
        try:
            record = PrivacyRecord.from_dict(manifest["record"])
            ledger = tuple(event_from_dict(event) for event in manifest["ledger"])
            user_ids = np.array(manifest["user_ids"], dtype=np.str_)
            return cls(manifest["kind"], manifest["domain"], tensors, user_ids, record, ledger)
        except UnderstatedPrivacyError as error:
            raise UnderstatedPrivacyError(f"{path}: {error}") from error
        except (ReleaseError, RecordError, EventError, UnsupportedEventError) as error:
            raise ReleaseError(f"{path}: {error} Ask the source party for the release again.") from error


def _read_manifest(path: Path) -> dict[str, Any]:
    def once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        """Refuse a repeated key: of two values JSON would silently take the last."""
        keys = [key for key, _ in pairs]
        if len(set(keys)) != len(keys):
            raise ReleaseError(f"{path} holds a key twice: {sorted({k for k in keys if keys.count(k) > 1})}.")
        return dict(pairs)

    def refuse(constant: str) -> float:
        raise ReleaseError(f"{path} holds {constant}, which is no JSON number.")

    try:
        manifest = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once, parse_constant=refuse)
    except ReleaseError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReleaseError(f"{path} is no JSON ({error}). Ask the source party for it again.") from error
    if not isinstance(manifest, dict) or not isinstance(manifest.get("schema"), int):
        raise ReleaseError(f"{path} names no schema; it is not the manifest of a release.")
    if manifest["schema"] < 1:
        raise ReleaseError(f"{path} has schema {manifest['schema']}; schemas count from 1.")
    if manifest["schema"] > SCHEMA:
        raise ReleaseError(
            f"{path} has schema {manifest['schema']}, this version reads up to {SCHEMA}. Upgrade cdr-zoo at this party."
        )
    types = {
        "schema": int,
        "kind": str,
        "domain": str,
        "record": dict,
        "ledger": list,
        "user_ids": list,
        "sha256": dict,
    }
    if manifest.keys() != types.keys():
        raise ReleaseError(f"{path} must hold exactly {sorted(types)}, it holds {sorted(manifest)}.")
    for key, kind in types.items():
        if not isinstance(manifest[key], kind):
            raise ReleaseError(f"{path}: {key} must be a {kind.__name__}, got {type(manifest[key]).__name__}.")
    if not all(isinstance(user, str) for user in manifest["user_ids"]):
        raise ReleaseError(f"{path}: user ids must be strings.")
    return manifest


def _sha256(tensor: Tensor) -> str:
    return hashlib.sha256(
        f"{tensor.dtype} {list(tensor.shape)} ".encode() + tensor.contiguous().numpy().tobytes()
    ).hexdigest()


def _expect(tensors: Mapping[str, Tensor], dtypes: Mapping[str, torch.dtype]) -> None:
    if tensors.keys() != dtypes.keys():
        raise ReleaseError(f"The tensors must be exactly {sorted(dtypes)}, got {sorted(tensors)}.")
    for name, dtype in dtypes.items():
        if tensors[name].dtype != dtype:
            raise ReleaseError(f"Tensor {name!r} must be {dtype}, got {tensors[name].dtype}.")
        if dtype.is_floating_point and not bool(torch.isfinite(tensors[name]).all()):
            raise ReleaseError(f"Tensor {name!r} holds NaN or infinite values; a release must be finite.")


def _check_rows(tensors: Mapping[str, Tensor], num_users: int) -> None:
    _expect(tensors, {"rows": torch.float32})
    rows = tensors["rows"]
    if rows.ndim != 2 or len(rows) != num_users or not 1 <= rows.shape[1] <= 2**31:
        raise ReleaseError(f"Tensor 'rows' must have shape ({num_users}, width >= 1), got {tuple(rows.shape)}.")


def _check_ratings(tensors: Mapping[str, Tensor], num_users: int) -> None:
    _expect(
        tensors,
        {"starts": torch.int64, "items": torch.int64, "weights": torch.float32, "num_items": torch.int64},
    )
    starts, items, weights = tensors["starts"], tensors["items"], tensors["weights"]
    if tensors["num_items"].shape != (1,) or not 1 <= int(tensors["num_items"]) <= 2**31:
        raise ReleaseError("Tensor 'num_items' must hold one number of items, at least 1.")
    if starts.shape != (num_users + 1,) or items.ndim != 1 or weights.shape != items.shape:
        raise ReleaseError(
            f"Compressed rows of {num_users} users need starts ({num_users + 1},) and items and weights of one length; "
            f"got {tuple(starts.shape)}, {tuple(items.shape)}, {tuple(weights.shape)}."
        )
    if int(starts[0]) != 0 or int(starts[-1]) != len(items) or bool((starts.diff() < 0).any()):
        raise ReleaseError("Row pointers 'starts' must rise from 0 to the number of entries.")
    if len(items) and not 0 <= int(items.min()) <= int(items.max()) < int(tensors["num_items"]):
        raise ReleaseError(f"Tensor 'items' must lie in [0, {int(tensors['num_items'])}).")
