"""Release: the only thing that crosses from a source party to a target party."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from zoo.data.rows import DenseRows, SparseRows
from zoo.nn.generator import GeneratedRows
from zoo.privacy.accounting.accountant import UnsupportedEventError
from zoo.privacy.accounting.events import EventError, PrivacyEvent, event_from_dict, event_to_dict
from zoo.privacy.mechanisms.base import MechanismError
from zoo.privacy.mechanisms.goodness_of_fit import FALSE_ALARM, refuse_unlikely
from zoo.privacy.record.record import PrivacyRecord, RecordError, UnderstatedPrivacyError
from zoo.privacy.record.selection import chosen_among
from zoo.release.about import About
from zoo.release.files import (
    MANIFEST,
    SCHEMA,
    SIGNATURE,
    TENSORS,
    ReleaseError,
    check_ids,
    check_name,
    check_size,
    manifest_bytes,
    parsed_manifest,
    read_tensors,
    save_tensors,
    tensor_digest,
)
from zoo.release.layouts import Compressed, Layout, UnknownKindError, layout_of
from zoo.release.lazy_rows import LazyRows
from zoo.release.signature import SigningKey, TrustedKeys, check_signature
from zoo.runtime.run_folder import atomic_folder


@dataclass(frozen=True, eq=False)
class Release:
    """What a source party hands over: tensors, whose they are, and what was protected.

    Kinds: ``rows``, noisy rows, dense or kept sparse; ``ratings``, rows as they are; ``generator``, a network that makes a
    user's row. What the tensors of each are stands in `zoo.release.layouts`. A file from another party is untrusted input: it
    is safetensors and JSON, never a pickle. Reading a release costs no privacy, whatever is done with it.

    A release too large to hold is lazy: its rows are made while `save` writes them, which can happen once (a second time
    would draw other noise). Whoever asks for its tensors instead has them made in memory, once.

    Whether made here or read from a file, everything is checked: `ReleaseError` if the parts do not go together, an id repeats
    or a value is not finite, `UnderstatedPrivacyError` if the record states less epsilon than the ledger gives.
    """

    kind: str
    domain: str  # name of the source domain
    tensors: Mapping[str, Tensor]  # by name, on the CPU; `LazyRows` for rows that are not made yet
    user_ids: npt.NDArray[np.str_]  # whose row each is, (users,); the ids themselves say who is a user of the source
    record: PrivacyRecord  # what was protected, for whom, how strongly, and what was not
    ledger: tuple[PrivacyEvent, ...]  # what the record's epsilon is computed from
    about: About | None = None  # when, with what, by whom and why it was published; None before it is
    # Record and ledger as its file has them, once it was read: its digest stays what it was when versions write other fields.
    as_written: Mapping[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        check_name("domain", self.domain)
        check_ids(self.user_ids.tolist())
        if len(np.unique(self.user_ids)) != len(self.user_ids):
            raise ReleaseError("A user id occurs twice among the release's users; each user has one row.")
        self.layout.check(self.num_users)
        self.layout.check_record(self.record, self.ledger)
        delta = self.record.delta
        if self.record.claims and delta is not None and delta * max(self.source_users, 1) >= 1:
            raise ReleaseError(
                f"delta {delta:g} is not below one over the {self.source_users} users, so the guarantee would "
                "hold for handing over one user's data whole."
            )
        self.record.check_against(self.ledger)

    @property
    def num_users(self) -> int:
        """Users with a row."""
        return len(self.user_ids)

    @property
    def source_users(self) -> int:
        """Users of the source: as many as the record says, and at least those with a row."""
        return max(self.num_users, self.record.mechanism.num_users)

    @property
    def sparse(self) -> bool:
        """Whether the rows are kept compressed; what is not in them reads as 0."""
        return isinstance(self.layout, Compressed)

    @property
    def width(self) -> int:
        """Width of a row."""
        return self.layout.width

    @property
    def num_layers(self) -> int:
        """Layers of embeddings that a row holds one after the other; 1 of every other kind."""
        return self.layout.num_layers

    @property
    def sizes(self) -> dict[str, Any]:
        """Plain numbers that the networks of a method are built from, and the kind."""
        return {"kind": self.kind, "num_users": self.num_users, "width": self.width, "num_layers": self.num_layers}

    @cached_property
    def layout(self) -> Layout:
        """The tensors, read as those of the release's kind."""
        return layout_of(self.kind, self.tensors)

    @property
    def lazy(self) -> bool:
        """Whether the rows are not in memory: not made yet, or made and written."""
        return isinstance(self.tensors, LazyRows) and not self.tensors.in_memory

    def realised(self) -> Release:
        """The same release with the same rows in memory; `ReleaseError` if they were made before and written."""
        return replace(self, tensors={"rows": self.tensors["rows"]}) if isinstance(self.tensors, LazyRows) else self

    def rows(self, index: Tensor) -> Tensor:
        """Rows ``index`` (batch,) of the release, dense, ``(batch, width)``: for one batch, not all users at once."""
        return self.device_rows().eval().dense(index)

    def tensors_of(self, index: Tensor) -> dict[str, Tensor]:
        """The tensors of a release of the users ``index`` (users,) alone."""
        return self.layout.of_users(index)

    def device_rows(self) -> SparseRows | DenseRows | GeneratedRows:
        """The rows as a module whose buffers follow a model's device."""
        return self.layout.module()

    def chosen_among(self, others: Sequence[Release]) -> Release:
        """The same release, with a record that counts the others among which it was chosen by results."""
        record, ledger = chosen_among((self.record, self.ledger), [(other.record, other.ledger) for other in others])
        return replace(self, record=record, ledger=ledger)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of tensors, ids and record, the same in one file or in several, whoever published it and when.

        `ReleaseError` if lazy and not saved yet.
        """
        return hashlib.sha256(json.dumps(self._manifest(None), sort_keys=True).encode()).hexdigest()

    def _manifest(self, about: About | None, shards: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        said = {
            "schema": SCHEMA if about is not None else 1 if shards is None else 2,
            "kind": self.kind,
            "domain": self.domain,
            **({} if about is None else {"about": about.to_dict()}),
            "record": self.record.to_dict(),
            "ledger": [event_to_dict(event) for event in self.ledger],
            "user_ids": self.user_ids.tolist(),
            **self.as_written,
        }
        if shards is not None:
            return {**said, "shards": shards}
        if isinstance(self.tensors, LazyRows):
            return {**said, "sha256": {"rows": self.tensors.digest}}
        return {**said, "sha256": {name: tensor_digest(tensor) for name, tensor in sorted(self.tensors.items())}}

    def save(self, path: Path | str, sign: SigningKey | None = None) -> Path:
        """Write the release as a folder, whole or not at all, signed if there is a key to sign with.

        Rows that are not made yet are made now and written to several files, which `load` puts together again; `ReleaseError`
        if they were made and written before.
        """
        path = Path(path)
        if path.exists():
            raise FileExistsError(
                f"{path} exists, and a release is never overwritten. Choose another path or remove it."
            )
        with atomic_folder(path) as folder:
            if isinstance(self.tensors, LazyRows) and not self.tensors.in_memory:
                manifest = self._manifest(self.about, self.tensors.write(folder))
            else:
                manifest = self._manifest(self.about)
                save_tensors({name: tensor.contiguous() for name, tensor in self.tensors.items()}, folder / TENSORS)
            content = json.dumps(manifest, indent=1, allow_nan=False).encode()
            check_size(content, folder)  # as whoever loads it will
            (folder / MANIFEST).write_bytes(content)
            if sign is not None:
                (folder / SIGNATURE).write_text(sign.signature(content), encoding="utf-8")
        if isinstance(self.tensors, LazyRows):
            self.tensors.written(path)
        return path

    def check_noise(self, false_alarm: float = FALSE_ALARM) -> None:
        """Refuse tensors that cannot have the noise of the record's mechanism; a record without a guarantee claims none.

        `ReleaseError` says which statistic of them is so unlikely.
        """
        if not self.record.claims:
            return
        try:
            refuse_unlikely(
                self.record.mechanism, {name: tensor.numpy() for name, tensor in self.tensors.items()}, false_alarm
            )
        except MechanismError as error:
            raise ReleaseError(str(error)) from error

    @classmethod
    def load(cls, path: Path | str, trusted: TrustedKeys | None = None) -> Release:
        """Read a release and check all of it. In memory there are never more than its tensors and one file besides.

        With trusted keys, one of them must have signed it: `SignatureError` otherwise, before anything of it is understood.
        A signature that lies beside a release and is not of it is refused in any case.
        """
        path = Path(path)
        content = manifest_bytes(path)
        check_signature(path, content, trusted)
        manifest = parsed_manifest(content, path / MANIFEST)
        tensors = read_tensors(path, manifest)
        try:
            about = About.from_dict(manifest["about"]) if "about" in manifest else None
            ledger = tuple(event_from_dict(event) for event in manifest["ledger"])
            record = PrivacyRecord.from_dict(manifest["record"], ledger)
            user_ids = np.array(manifest["user_ids"], dtype=np.str_)
            release = cls(manifest["kind"], manifest["domain"], tensors, user_ids, record, ledger, about)
            object.__setattr__(release, "as_written", {name: manifest[name] for name in ("record", "ledger")})
            release.check_noise()
            return release
        except (UnderstatedPrivacyError, UnknownKindError) as error:
            raise type(error)(f"{path}: {error}") from error
        except (ReleaseError, RecordError, EventError, UnsupportedEventError) as error:
            raise ReleaseError(f"{path}: {error} Ask the source party for the release again.") from error
