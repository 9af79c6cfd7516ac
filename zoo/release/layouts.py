"""Kinds of releases: how to check, read and subset the tensors of each."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from zoo.data.rows import DenseRows, SparseRows
from zoo.nn.generator import GeneratedRows, generator_shapes
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.record.record import PrivacyRecord
from zoo.release.files import ReleaseError, check_values
from zoo.release.lazy_rows import LazyRows
from zoo.runtime import plugins

LARGEST_WIDTH = 2**24
"""Most columns of a row: a release of few bytes may state any width, and methods make weights for it."""

#: Most columns of a release that are read, and most entries of a layer of them; ``ZOO_MOST_COLUMNS`` replaces both.
MOST_COLUMNS, MOST_ENTRIES = 2**20, 2**30
#: Most units of a generator's input or hidden layer: each batch has as many numbers for every user in it.
MOST_INNER = 2**16


MOST_DIRECTIONS = 2048
"""Most columns of a map: those of `examples/encrypted_bridge`. Each user and item of the target gets as many numbers."""


class UnknownKindError(ReleaseError):
    """A release of a kind that neither the zoo nor an installed package defines."""


class Layout(ABC):
    """The tensors of a release, by name.

    Each subclass is a kind of release. Built-in kinds are in `KINDS`; installed packages add others by entry points of the group
    ``zoo.release_kinds``, each named after the kind.
    """

    kind: ClassVar[str]
    #: Whether the target also reads its users' own rows at the source.
    reads_own_rows: ClassVar[bool] = False
    #: Required step before a target can train on the release, or "".
    before_training: ClassVar[str] = ""

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Layout:
        """Return the layout of these tensors, for a kind that has several."""
        return cls(tensors)

    @property
    def num_layers(self) -> int:
        """Number of embedding layers in a row; 1 of every other kind."""
        return 1

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors

    @abstractmethod
    def check(self, num_users: int) -> None:
        """Raise `ReleaseError` unless the tensors are those of ``num_users``; they are untrusted input."""

    def check_record(self, record: PrivacyRecord, ledger: Iterable[PrivacyEvent]) -> None:  # noqa: B027
        """Raise `ReleaseError` or `RecordError` if a release of this kind cannot have this untrusted record."""

    @abstractmethod
    def of_users(self, index: Tensor) -> dict[str, Tensor]:
        """Return the tensors of the users ``index`` (users,) alone."""

    @abstractmethod
    def module(self) -> SparseRows | DenseRows | GeneratedRows:
        """Return the rows as a module whose buffers follow a model's device."""

    @property
    def width(self) -> int:
        """Width of a row."""
        return self.module().width

    def _expect(self, dtypes: Mapping[str, torch.dtype]) -> None:
        if self.tensors.keys() != dtypes.keys():
            raise ReleaseError(f"The tensors must be exactly {sorted(dtypes)}, got {sorted(self.tensors)}.")
        for name, dtype in dtypes.items():
            if self.tensors[name].dtype != dtype:
                raise ReleaseError(f"Tensor {name!r} must be {dtype}, got {self.tensors[name].dtype}.")
            if dtype.is_floating_point:
                check_values(name, self.tensors[name])


class Dense(Layout):
    """``rows`` (users, width), float32. `LazyRows` have a known shape; their values are checked when they are made.

    Rows may also be stored compressed.
    """

    kind = "rows"

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Layout:  # noqa: D102
        return Compressed(tensors) if "starts" in tensors else cls(tensors)

    def check(self, num_users: int) -> None:  # noqa: D102  as in the base
        if not isinstance(self.tensors, LazyRows):
            self._expect({"rows": torch.float32})
        shape = self._shape
        if len(shape) != 2 or shape[0] != num_users or not 1 <= shape[1] <= LARGEST_WIDTH:
            raise ReleaseError(f"Tensor 'rows' must have shape ({num_users}, 1 <= width <= 2**24), got {shape}.")

    def of_users(self, index: Tensor) -> dict[str, Tensor]:  # noqa: D102
        return {"rows": self.tensors["rows"][index]}

    def module(self) -> DenseRows:  # noqa: D102
        return DenseRows(self.tensors["rows"])

    @property
    def width(self) -> int:
        """Width of the matrix, without making it."""
        return self._shape[1]

    @property
    def _shape(self) -> tuple[int, ...]:
        rows = self.tensors
        return (rows.num_users, rows.width) if isinstance(rows, LazyRows) else tuple(rows["rows"].shape)


class Compressed(Layout):
    """Compressed rows: ``starts`` (users + 1,), ``items`` (entries,), ``weights`` (entries,), and ``num_items`` (1,)."""

    kind = "rows"
    _NAMES = ("starts", "items", "weights", "num_items")

    def check(self, num_users: int) -> None:
        """Check that row pointers rise and items lie within the width."""
        self._expect({**dict.fromkeys(self._NAMES, torch.int64), "weights": torch.float32})
        starts, items, weights, width = (self.tensors[name] for name in self._NAMES)
        if width.shape != (1,) or not 1 <= int(width) <= LARGEST_WIDTH:
            raise ReleaseError("Tensor 'num_items' must hold one number from 1 to 2**24.")
        if starts.shape != (num_users + 1,) or items.ndim != 1 or weights.shape != items.shape:
            raise ReleaseError(
                f"Rows of {num_users} users need starts ({num_users + 1},), equally long items and weights; got "
                f"{tuple(starts.shape)}, {tuple(items.shape)}, {tuple(weights.shape)}."
            )
        if int(starts[0]) != 0 or int(starts[-1]) != len(items) or bool((starts[1:] < starts[:-1]).any()):
            raise ReleaseError("Row pointers 'starts' must rise from 0 to the number of entries.")
        if len(items) and not 0 <= int(items.min()) <= int(items.max()) < int(width):
            raise ReleaseError(f"Tensor 'items' must lie in [0, {int(width)}).")
        self._check_repeats(num_users)

    def _check_repeats(self, num_users: int) -> None:
        starts, items, _, width = (self.tensors[name] for name in self._NAMES)
        inside = torch.ones(max(len(items) - 1, 0), dtype=torch.bool)  # pairs of neighbours in one row
        inside[starts[(starts > 0) & (starts < len(items))] - 1] = False
        if bool((inside & (items.diff() <= 0)).any()):
            parts = (np.zeros(len(items), dtype=np.int8), items.numpy().copy(), starts.numpy().copy())
            rows = csr_array(parts, shape=(num_users, int(width)))
            rows.sort_indices()
            if bool((inside & (torch.from_numpy(rows.indices).diff() == 0)).any()):
                raise ReleaseError("Tensor 'items' repeats an item in a row.")

    def of_users(self, index: Tensor) -> dict[str, Tensor]:  # noqa: D102
        items, offsets, weights = self.module().bags(index)
        starts = torch.cat([offsets, torch.tensor([len(items)])])
        return {"starts": starts, "items": items, "weights": weights, "num_items": self.tensors["num_items"]}

    def module(self) -> SparseRows:  # noqa: D102
        starts, items, weights, width = (self.tensors[name] for name in self._NAMES)
        return SparseRows(starts, items, weights, int(width))


class Ratings(Compressed):
    """Unprocessed ratings, as compressed rows."""

    kind = "ratings"

    def check_record(self, record: PrivacyRecord, ledger: Iterable[PrivacyEvent]) -> None:
        """Refuse a guarantee."""
        if record.claims:
            raise ReleaseError("The record claims a guarantee. Unprocessed ratings have none.")


class Generator(Layout):
    """A network that makes a user's row from the user alone, all in float32; see `zoo.nn.generator`.

    ``embedding`` (users, condition), then for each layer ``weight_0`` (outer, inner), ``bias_0`` (outer,) and so on.
    """

    kind = "generator"

    def check(self, num_users: int) -> None:
        """Check that consecutive layers fit."""
        try:
            *inner, width = generator_shapes(self.tensors)
        except ValueError as error:
            raise ReleaseError(str(error)) from error
        self._expect(dict.fromkeys(self.tensors, torch.float32))
        if len(self.tensors["embedding"]) != num_users or not 1 <= width <= LARGEST_WIDTH:
            raise ReleaseError(f"The generator needs {num_users} embeddings of 1 <= width <= 2**24; it has {width}.")
        if max(inner) > MOST_INNER:
            raise ReleaseError(f"The generator has a layer of width {max(inner):,}. Allowed inside: {MOST_INNER:,}.")

    def check_record(self, record: PrivacyRecord, ledger: Iterable[PrivacyEvent]) -> None:
        """Refuse sizes in the record that are not those of the tensors."""
        noise, *hidden, _ = generator_shapes(self.tensors)
        condition = self.tensors["embedding"].shape[1]
        dims = ", ".join(map(str, hidden)) or "none"
        sizes = {"condition_dim": condition, "noise_dim": noise - condition, "generator_dims": dims}
        for name, size in sizes.items():
            if name in record.public_inputs and record.public_inputs[name] != size:
                raise ReleaseError(
                    f"The record states {name} {record.public_inputs[name]!r}; the generator has {size!r}."
                )

    def of_users(self, index: Tensor) -> dict[str, Tensor]:
        """Return the same network with these users' embeddings."""
        return {**self.tensors, "embedding": self.tensors["embedding"][index]}

    def module(self) -> GeneratedRows:  # noqa: D102
        return GeneratedRows(self.tensors)


class Embeddings(Layout):
    """``vectors`` (users, layers, width), float32: a network's embeddings of each user; a row concatenates its layers."""

    kind = "embeddings"

    def check(self, num_users: int) -> None:
        """Check that all users have the same shape."""
        self._expect({"vectors": torch.float32})
        shape = tuple(self.tensors["vectors"].shape)
        if len(shape) != 3 or shape[0] != num_users or min(shape[1:]) < 1 or shape[1] * shape[2] > LARGEST_WIDTH:
            raise ReleaseError(
                f"Tensor 'vectors' must have shape ({num_users}, 1 <= layers * width <= 2**24), got {shape}."
            )

    def of_users(self, index: Tensor) -> dict[str, Tensor]:  # noqa: D102
        return {"vectors": self.tensors["vectors"][index]}

    def module(self) -> DenseRows:
        """Return rows of concatenated layers, the first layer first."""
        return DenseRows(self.tensors["vectors"].flatten(1))

    @property
    def num_layers(self) -> int:  # noqa: D102
        return int(self.tensors["vectors"].shape[1])


class Map(Layout):
    """``map`` (kept, directions) and ``counts`` (items,), float32, and the ascending indices of its items, ``items`` (kept,).

    It contains no user: the release's users are those of the source, whose rows stay there.
    """

    kind = "map"
    reads_own_rows = True

    def check(self, num_users: int) -> None:
        """Check that items exist, each once."""
        self._expect({"map": torch.float32, "items": torch.int64, "counts": torch.float32})
        table, items, counts = (self.tensors[name] for name in ("map", "items", "counts"))
        if (
            table.ndim != 2
            or not 1 <= table.shape[1] <= MOST_DIRECTIONS
            or items.shape != table.shape[:1]
            or counts.ndim != 1
        ):
            raise ReleaseError(
                f"A map needs map (kept, 1 <= directions <= {MOST_DIRECTIONS}), items (kept,), counts (items,); got "
                f"{tuple(table.shape)}, {tuple(items.shape)}, {tuple(counts.shape)}."
            )
        if len(items) and (int(items[0]) < 0 or int(items[-1]) >= len(counts) or bool((items.diff() <= 0).any())):
            raise ReleaseError(f"Tensor 'items' must rise and lie in [0, {len(counts)}).")

    def of_users(self, index: Tensor) -> dict[str, Tensor]:
        """Return the same map for all users."""
        return dict(self.tensors)

    def module(self) -> DenseRows:
        """Return the map, a row for each item; it contains no user's row."""
        return DenseRows(self.tensors["map"])


def compressed(rows: csr_array) -> dict[str, Tensor]:
    """Return sparse float32 rows as tensors of the layout `Compressed`."""
    return {
        "starts": torch.from_numpy(rows.indptr).long(),
        "items": torch.from_numpy(rows.indices).long(),
        "weights": torch.from_numpy(rows.data),
        "num_items": torch.tensor([rows.shape[1]]),
    }


#: Built-in kinds by name.
KINDS: Mapping[str, type[Layout]] = {kind.kind: kind for kind in (Dense, Ratings, Generator, Embeddings, Map)}


def layout_of(kind: str, tensors: Mapping[str, Tensor]) -> Layout:
    """Return the layout of a release's tensors.

    A release names only its kind; only the class that an installed package registered under that name is imported.

    Raises:
        UnknownKindError: If the kind is unknown, or its package cannot be imported.
    """
    return (KINDS.get(kind) or _plugged_in(kind)).of(tensors)


def _plugged_in(kind: str) -> type[Layout]:
    brought = plugins.brought("release kinds")
    if kind not in brought:
        known = ", ".join([*KINDS, *sorted(brought.keys() - KINDS.keys())])
        raise UnknownKindError(f"Release kind {kind[:80]!r} is unknown. Known: {known}. Install its package.")
    try:
        found = brought[kind].load()
    except plugins.PluginError as error:
        raise UnknownKindError(str(error)) from error
    if not issubclass(found, Layout) or getattr(found, "kind", None) != kind:
        raise UnknownKindError(f"{kind} of the installed package {brought[kind].package} is no such Layout.")
    return found


def check_width(name: str, width: int, units: int = 100) -> None:
    """Refuse a release with more columns than may be read, before a layer of ``units`` is made for them; `ValueError`."""
    given = os.environ.get("ZOO_MOST_COLUMNS") or str(min(MOST_COLUMNS, MOST_ENTRIES // units))
    if not given.isdecimal():
        raise ValueError(f"ZOO_MOST_COLUMNS is {given!r}. It must be a whole number.")
    if width > (most := int(given)):
        raise ValueError(
            f"The release of {name!r} has {width:,} columns: {width * units / 2**28:.1f} GiB for {units:,} units. "
            f"Allowed: {most:,}. If you trust it, set ZOO_MOST_COLUMNS={width}."
        )
