"""Kinds of releases: how the tensors of each are checked, read and cut to some users, and what a target does with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

import torch
from scipy.sparse import csr_array
from torch import Tensor

from zoo.data.rows import DenseRows, SparseRows
from zoo.nn.generator import GeneratedRows, generator_shapes
from zoo.privacy.accounting.events import PrivacyEvent
from zoo.privacy.record.record import PrivacyRecord
from zoo.release.files import ReleaseError, all_finite
from zoo.release.lazy_rows import LazyRows
from zoo.runtime import plugins

LARGEST_WIDTH = 2**31


class UnknownKindError(ReleaseError):
    """A release of a kind that neither the zoo nor an installed package knows."""


class Layout(ABC):
    """The tensors of a release, by name.

    A kind of release is one subclass. Built-in kinds are in `KINDS`; an installed package brings others by entry points of the
    group ``zoo.release_kinds``, each named after the kind.
    """

    kind: ClassVar[str]
    #: Whether a target reads its users' own rows at the source with it.
    reads_own_rows: ClassVar[bool] = False
    #: What has to be done with a release before a target can train on it; empty if nothing.
    before_training: ClassVar[str] = ""

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Layout:
        """Return the layout of these tensors, for a kind that has several."""
        return cls(tensors)

    @property
    def num_layers(self) -> int:
        """Layers of embeddings that a row holds one after the other; 1 of every other kind."""
        return 1

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = tensors

    @abstractmethod
    def check(self, num_users: int) -> None:
        """Raise `ReleaseError` unless the tensors are those of so many users; everything of them may be hostile."""

    def check_record(self, record: PrivacyRecord, ledger: Iterable[PrivacyEvent]) -> None:  # noqa: B027
        """Raise `ReleaseError` or `RecordError` if a release of this kind cannot have this record; every record may be hostile."""

    @abstractmethod
    def of_users(self, index: Tensor) -> dict[str, Tensor]:
        """The tensors of the users ``index`` (users,) alone."""

    @abstractmethod
    def module(self) -> SparseRows | DenseRows | GeneratedRows:
        """The rows as a module whose buffers follow a model's device."""

    @property
    def width(self) -> int:
        """Width of a row."""
        return self.module().width

    def _expect(self, dtypes: Mapping[str, torch.dtype]) -> None:
        """Tensors of these names and types, and finite."""
        if self.tensors.keys() != dtypes.keys():
            raise ReleaseError(f"The tensors must be exactly {sorted(dtypes)}, got {sorted(self.tensors)}.")
        for name, dtype in dtypes.items():
            if self.tensors[name].dtype != dtype:
                raise ReleaseError(f"Tensor {name!r} must be {dtype}, got {self.tensors[name].dtype}.")
            if dtype.is_floating_point and not all_finite(self.tensors[name]):
                raise ReleaseError(f"Tensor {name!r} holds NaN or infinite values; a release must be finite.")


class Dense(Layout):
    """``rows`` (users, width), float32. Of `LazyRows` the shape is known, and values are checked when they are made.

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
            raise ReleaseError(f"Tensor 'rows' must have shape ({num_users}, width >= 1), got {shape}.")

    def of_users(self, index: Tensor) -> dict[str, Tensor]:  # noqa: D102
        return {"rows": self.tensors["rows"][index]}

    def module(self) -> DenseRows:  # noqa: D102
        return DenseRows(self.tensors["rows"])

    @property
    def width(self) -> int:
        """That of the matrix, which is not made for it."""
        return self._shape[1]

    @property
    def _shape(self) -> tuple[int, ...]:
        rows = self.tensors
        return (rows.num_users, rows.width) if isinstance(rows, LazyRows) else tuple(rows["rows"].shape)


class Compressed(Layout):
    """``starts`` (users + 1,), ``items`` (entries,) and ``weights`` (entries,): rows compressed; ``num_items`` (1,)."""

    kind = "rows"
    _NAMES = ("starts", "items", "weights", "num_items")

    def check(self, num_users: int) -> None:
        """Of row pointers that rise, and items within the width."""
        self._expect({**dict.fromkeys(self._NAMES, torch.int64), "weights": torch.float32})
        starts, items, weights, width = (self.tensors[name] for name in self._NAMES)
        if width.shape != (1,) or not 1 <= int(width) <= LARGEST_WIDTH:
            raise ReleaseError("Tensor 'num_items' must hold one number of items, at least 1.")
        if starts.shape != (num_users + 1,) or items.ndim != 1 or weights.shape != items.shape:
            raise ReleaseError(
                f"Compressed rows of {num_users} users need starts ({num_users + 1},) and items and weights of one length; "
                f"got {tuple(starts.shape)}, {tuple(items.shape)}, {tuple(weights.shape)}."
            )
        if int(starts[0]) != 0 or int(starts[-1]) != len(items) or bool((starts.diff() < 0).any()):
            raise ReleaseError("Row pointers 'starts' must rise from 0 to the number of entries.")
        if len(items) and not 0 <= int(items.min()) <= int(items.max()) < int(width):
            raise ReleaseError(f"Tensor 'items' must lie in [0, {int(width)}).")

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
            raise ReleaseError("Ratings as they are have no guarantee, and the record claims one.")


class Generator(Layout):
    """A network that makes a user's row from the user alone, all in float32; see `zoo.nn.generator`.

    ``embedding`` (users, condition), then, layer by layer, ``weight_0`` (outer, inner), ``bias_0`` (outer,) and so on.
    """

    kind = "generator"

    def check(self, num_users: int) -> None:
        """Of layers that fit one another."""
        try:
            width = generator_shapes(self.tensors)[-1]
        except ValueError as error:
            raise ReleaseError(str(error)) from error
        self._expect(dict.fromkeys(self.tensors, torch.float32))
        if len(self.tensors["embedding"]) != num_users or not 1 <= width <= LARGEST_WIDTH:
            raise ReleaseError(
                f"A generator for {num_users} users needs as many embeddings and a width of at least 1; got "
                f"{len(self.tensors['embedding'])} and {width}."
            )

    def of_users(self, index: Tensor) -> dict[str, Tensor]:
        """The same network with these users' embeddings."""
        return {**self.tensors, "embedding": self.tensors["embedding"][index]}

    def module(self) -> GeneratedRows:  # noqa: D102
        return GeneratedRows(self.tensors)


class Embeddings(Layout):
    """``vectors`` (users, layers, width), float32: what a network made of each user, layer by layer; a row holds all of them."""

    kind = "embeddings"

    def check(self, num_users: int) -> None:
        """Of one shape for all users."""
        self._expect({"vectors": torch.float32})
        shape = tuple(self.tensors["vectors"].shape)
        if len(shape) != 3 or shape[0] != num_users or min(shape[1:]) < 1 or shape[1] * shape[2] > LARGEST_WIDTH:
            raise ReleaseError(f"Tensor 'vectors' must have shape ({num_users}, layers >= 1, width >= 1), got {shape}.")

    def of_users(self, index: Tensor) -> dict[str, Tensor]:  # noqa: D102
        return {"vectors": self.tensors["vectors"][index]}

    def module(self) -> DenseRows:
        """Rows of all layers side by side, the first layer first."""
        return DenseRows(self.tensors["vectors"].flatten(1))

    @property
    def num_layers(self) -> int:  # noqa: D102
        return int(self.tensors["vectors"].shape[1])


class Map(Layout):
    """``map`` (kept, directions) and ``counts`` (items,), float32, and which items are kept, ``items`` (kept,), rising.

    It is of nobody: the users of the release are those of the source, whose rows lie there.
    """

    kind = "map"
    reads_own_rows = True

    def check(self, num_users: int) -> None:
        """Of items that there are, each once."""
        self._expect({"map": torch.float32, "items": torch.int64, "counts": torch.float32})
        table, items, counts = (self.tensors[name] for name in ("map", "items", "counts"))
        if (
            table.ndim != 2
            or not 1 <= table.shape[1] <= LARGEST_WIDTH
            or items.shape != table.shape[:1]
            or counts.ndim != 1
        ):
            raise ReleaseError(
                f"A map needs map (kept, directions >= 1), items (kept,) and counts (items,); got {tuple(table.shape)}, "
                f"{tuple(items.shape)} and {tuple(counts.shape)}."
            )
        if len(items) and (int(items[0]) < 0 or int(items[-1]) >= len(counts) or bool((items.diff() <= 0).any())):
            raise ReleaseError(f"Tensor 'items' must rise and lie in [0, {len(counts)}).")

    def of_users(self, index: Tensor) -> dict[str, Tensor]:
        """The same map, whoever is asked for."""
        return dict(self.tensors)

    def module(self) -> DenseRows:
        """The map itself, a row for each kept item: nobody's row is in it."""
        return DenseRows(self.tensors["map"])


def compressed(rows: csr_array) -> dict[str, Tensor]:
    """Sparse float32 rows as tensors of the layout `Compressed`."""
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

    A release of another party names its kind and nothing else: only the class that an installed package registered under that
    name is imported.

    Raises:
        UnknownKindError: Nobody knows the kind, or the package that brings it cannot be imported.
    """
    return (KINDS.get(kind) or _plugged_in(kind)).of(tensors)


def _plugged_in(kind: str) -> type[Layout]:
    brought = plugins.brought("release kinds")
    if kind not in brought:
        known = ", ".join([*KINDS, *sorted(brought.keys() - KINDS.keys())])
        raise UnknownKindError(
            f"Release kind {kind[:80]!r} is unknown. Known kinds: {known}. Install the "
            "package that provides it; the source party can name it."
        )
    try:
        found = brought[kind].load()
    except plugins.PluginError as error:
        raise UnknownKindError(str(error)) from error
    if not issubclass(found, Layout) or getattr(found, "kind", None) != kind:
        raise UnknownKindError(f"{kind} of the installed package {brought[kind].package} is no Layout of that kind.")
    return found
