"""Release: the only data that pass from a source party to a target party."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from torch import Tensor

from zoo.data.rows import DenseRows, SparseRows
from zoo.nn.generator import GeneratedRows
from zoo.privacy.accounting.accountant import UnsupportedEventError
from zoo.privacy.accounting.events import EventError, PrivacyEvent, event_to_dict, read_ledger
from zoo.privacy.mechanisms import BUILT_IN
from zoo.privacy.mechanisms.base import MechanismError
from zoo.privacy.mechanisms.goodness_of_fit import FALSE_ALARM, refuse_unlikely
from zoo.privacy.record.record import PrivacyRecord, RecordError, UnderstatedPrivacyError
from zoo.privacy.record.selection import chosen_among
from zoo.release.files import (
    MANIFEST,
    SCHEMA,
    SIGNATURE,
    TENSORS,
    ReleaseError,
    check_ids,
    check_name,
    check_rest,
    check_size,
    manifest_bytes,
    parsed_manifest,
    read_tensors,
    save_tensors,
    tensor_digest,
)
from zoo.release.layouts import Compressed, Layout, UnknownKindError, layout_of
from zoo.release.lazy_rows import LazyRows
from zoo.release.metadata import ReleaseMetadata
from zoo.release.packing import LARGEST, PackedRelease, unpack_files
from zoo.release.signature import SigningKey, TrustedKeys, check_signature
from zoo.runtime.renamed import OldName
from zoo.runtime.run_folder import atomic_folder
from zoo.runtime.settings_files import user_path


@dataclass(frozen=True, eq=False)
class Release:
    """A source party's release: tensors, their users, and the record of their protection.

    Kinds: ``rows``, noisy rows, dense or sparse; ``ratings``, unprocessed rows; ``generator``, a network that makes a user's row.
    See `zoo.release.layouts` for their tensors. A file from another party is untrusted input: it is safetensors and JSON, never a
    pickle. Reading a release costs no privacy, however it is used.

    The rows of a lazy release are made while `save` writes them, once. Reading its tensors makes them in memory instead.

    All parts are checked, whether made or read: `ReleaseError` if they are inconsistent, an id repeats or a value is not finite,
    `UnderstatedPrivacyError` if the record states less epsilon than the ledger gives.

    Examples:
        >>> from datamodules import Synthetic
        >>> from zoo.publishers.jlt import JLT
        >>> ratings = Synthetic(num_users=60, num_items=40).source("book")
        >>> release = JLT(epsilon=8.0, num_components=8).publish(ratings, "book")
        >>> release.kind, release.num_users, release.width
        ('rows', 60, 8)
        >>> release.save("book") == Path("book")
        True
        >>> Release.load("book").digest == release.digest
        True
    """

    kind: str
    domain: str  # name of the source domain
    tensors: Mapping[str, Tensor]  # by name, on the CPU; `LazyRows` for rows that are not made yet
    user_ids: npt.NDArray[np.str_]  # of the rows, (users,); the ids reveal who is a user of the source
    record: PrivacyRecord  # privacy unit, guarantee, and what is not protected
    ledger: tuple[PrivacyEvent, ...]  # the record's epsilon is computed from these events
    metadata: ReleaseMetadata | None = None  # date, publisher and purpose; None before it is published
    # Record and ledger as read from a file: the digest stays the same when versions write other fields.
    as_written: Mapping[str, Any] = field(init=False, repr=False, default_factory=dict)

    about = OldName("metadata")

    def __post_init__(self) -> None:
        check_name("domain", self.domain)
        check_ids(self.user_ids.tolist())
        if len(np.unique(self.user_ids)) != len(self.user_ids):
            raise ReleaseError("A user id is repeated. Remove the repeats.")
        self.layout.check(self.num_users)
        self.layout.check_record(self.record, self.ledger)
        delta, stated = self.record.delta, self.record.mechanism
        unknown = self.record.is_earlier and stated.num_users == 0
        if self.record.claims and isinstance(stated, BUILT_IN) and not unknown and stated.num_users < self.num_users:
            raise ReleaseError(f"The record states {stated.num_users} users, the release {self.num_users}.")
        if self.record.claims and delta is not None and delta * max(self.source_users, 1) >= 1:
            raise ReleaseError(f"delta is {delta:g}. Allowed: below 1/{self.source_users} (users). Lower it.")
        self.record.check_against(self.ledger)

    @property
    def num_users(self) -> int:
        """Number of users with a row."""
        return len(self.user_ids)

    @property
    def source_users(self) -> int:
        """Number of users of the source: that of the record, and at least those with a row."""
        return max(self.num_users, self.record.mechanism.num_users)

    @property
    def sparse(self) -> bool:
        """Whether the rows are stored compressed; missing entries are 0."""
        return isinstance(self.layout, Compressed)

    @property
    def width(self) -> int:
        """Width of a row."""
        return self.layout.width

    @property
    def num_layers(self) -> int:
        """Number of embedding layers in a row; 1 of every other kind."""
        return self.layout.num_layers

    @property
    def sizes(self) -> dict[str, Any]:
        """Kind and plain numbers that a method's networks are built from."""
        return {"kind": self.kind, "num_users": self.num_users, "width": self.width, "num_layers": self.num_layers}

    @cached_property
    def layout(self) -> Layout:
        """The tensors as the layout of the release's kind."""
        return layout_of(self.kind, self.tensors)

    def stated(self, name: str, most: float, default: float | None = None) -> float:
        """Return a number of the record's public inputs, which the publisher chose; `ValueError` unless it is in [0, most]."""
        value = self.record.public_inputs.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
            raise ValueError(f"{name} of {self.domain!r} is {str(value)[:80]!r}. It must lie in [0, {most:g}].")
        return float(value)

    @property
    def lazy(self) -> bool:
        """Whether the rows are not in memory: not made yet, or made and written."""
        return isinstance(self.tensors, LazyRows) and not self.tensors.in_memory

    def materialize(self) -> Release:
        """Return the same release with its rows in memory; `ReleaseError` if they were written before."""
        return replace(self, tensors={"rows": self.tensors["rows"]}) if isinstance(self.tensors, LazyRows) else self

    realised = OldName("materialize")

    def rows(self, index: Tensor) -> Tensor:
        """Return the rows ``index`` (batch,), dense, ``(batch, width)``; for one batch, not all users."""
        return self.device_rows().eval().dense(index)

    def tensors_of(self, index: Tensor) -> dict[str, Tensor]:
        """Return the tensors of a release of the users ``index`` (users,) alone."""
        return self.layout.of_users(index)

    def device_rows(self) -> SparseRows | DenseRows | GeneratedRows:
        """Return the rows as a module whose buffers follow a model's device."""
        return self.layout.module()

    def chosen_among(self, others: Sequence[Release]) -> Release:
        """Return the same release with a record that counts the other candidates of a selection by results."""
        record, ledger = chosen_among((self.record, self.ledger), [(other.record, other.ledger) for other in others])
        return replace(self, record=record, ledger=ledger)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of tensors, ids and record, independent of files, publisher and date; `ReleaseError` if lazy and not saved."""
        return hashlib.sha256(json.dumps(self._manifest(None), sort_keys=True).encode()).hexdigest()

    def _manifest(self, about: ReleaseMetadata | None, shards: list[dict[str, Any]] | None = None) -> dict[str, Any]:
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

    def save(self, path: Path | str, sign: SigningKey | None = None, *, private: bool = False) -> Path:
        """Write the release as a folder, atomically, and sign it if there is a key; only its owner can read a private one.

        Lazy rows are made now and written to several files, which `load` joins again; `ReleaseError` if they were written before.
        """
        path = user_path(path)
        if path.exists():
            raise FileExistsError(f"{path} exists. A release is never overwritten. Choose another path.")
        with atomic_folder(path, private=private) as folder:
            if isinstance(self.tensors, LazyRows) and not self.tensors.in_memory:
                manifest = self._manifest(self.metadata, self.tensors.write(folder))
            else:
                manifest = self._manifest(self.metadata)
                save_tensors({name: tensor.contiguous() for name, tensor in self.tensors.items()}, folder / TENSORS)
            content = json.dumps(manifest, indent=1, allow_nan=False).encode()
            check_size(content, folder)  # as `load` does, also below
            check_rest(manifest, folder / MANIFEST)
            read_ledger(manifest["ledger"])
            (folder / MANIFEST).write_bytes(content)
            if sign is not None:
                (folder / SIGNATURE).write_text(sign.signature(content), encoding="utf-8")
        if isinstance(self.tensors, LazyRows):
            self.tensors.written(path)
        return path

    def check_noise(self, false_alarm: float = FALSE_ALARM) -> None:
        """Refuse tensors that fail the noise test of the record's mechanism; `ReleaseError` names the statistic."""
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
        """Read a release and check it.

        Memory holds at most its tensors, the ids of its users, one more file, and 200 MiB for tests of the noise.

        With trusted keys, one of them must have signed it: `SignatureError` otherwise, before the manifest is parsed. A signature
        that does not match is always refused.
        """
        path = user_path(path)
        content = manifest_bytes(path)
        check_signature(path, content, trusted)
        manifest = parsed_manifest(content, path / MANIFEST)
        tensors = read_tensors(path, manifest)
        try:
            about = ReleaseMetadata.from_dict(manifest["about"]) if "about" in manifest else None
            ledger = read_ledger(manifest["ledger"])
            record = PrivacyRecord.from_dict(manifest["record"], ledger)
            user_ids = np.array(manifest["user_ids"], dtype=np.str_)
            release = cls(manifest["kind"], manifest["domain"], tensors, user_ids, record, ledger, about)
            object.__setattr__(release, "as_written", {name: manifest[name] for name in ("record", "ledger")})
            release.check_noise()
            return release
        except (UnderstatedPrivacyError, UnknownKindError) as error:
            raise type(error)(f"{path}: {error}") from error
        except (ReleaseError, RecordError, EventError, UnsupportedEventError, ArithmeticError) as error:
            raise ReleaseError(f"{path}: {error} Ask the source party again.") from error

    @staticmethod
    def pack(path: Path | str) -> PackedRelease:
        """Return the folder of a release as one byte stream, which is read from its files part by part.

        Examples:
            >>> import io, tempfile
            >>> from datamodules import Synthetic
            >>> from zoo.publishers.jlt import JLT
            >>> ratings = Synthetic(num_users=60, num_items=40).source("book")
            >>> book = JLT(epsilon=8.0, num_components=8).publish(ratings, "book").save(tempfile.mkdtemp() + "/book")
            >>> stream = io.BytesIO(b"".join(Release.pack(book)))
            >>> Release.unpack(stream, tempfile.mkdtemp() + "/arrived").num_users
            60
        """
        return PackedRelease(user_path(path))

    @classmethod
    def unpack(
        cls, stream: BinaryIO, path: Path | str, *, limit: int = LARGEST, trusted: TrustedKeys | None = None
    ) -> Release:
        """Write the folder of a packed release, atomically, if `load` accepts it; its files are those that were packed.

        The stream is untrusted: at most ``limit`` bytes are read, and it can name only files of a release in this folder.

        Raises:
            ReleaseError: The stream is no packed release, is too large or cut off, or `load` refuses its files.
            FileExistsError: ``path`` exists.
        """
        path = user_path(path)
        if path.exists():
            raise FileExistsError(f"{path} exists. A release is never overwritten. Choose another path.")
        with atomic_folder(path) as folder:
            unpack_files(stream, folder, limit)
            return cls.load(folder, trusted)
