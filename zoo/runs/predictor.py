"""Predictor: a trained method with its data, which recommends items to users by their ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from datamodules import CrossDomainDataModule
from datamodules.frames import in_kind_of, values_of
from zoo.data.batch_types import PredictBatch
from zoo.data.best_items import SCHEMA, best_unseen, table_of
from zoo.data.held_out_cases import entries
from zoo.data.ratings import as_ids, index_of
from zoo.data.rows import SparseRows
from zoo.methods.base import Recommender
from zoo.methods.target_data import TargetData
from zoo.runs.inputs import UsageError
from zoo.runtime.exports import VERSION
from zoo.runtime.renamed import OldName
from zoo.runtime.run_folder import visible
from zoo.runtime.suggestions import suggest

#: Number of users that are scored together.
BATCH = 512


class UnknownUserError(ValueError):
    """A user is in neither the data nor a release that the method can score by."""


class DataNotAvailableError(LookupError):
    """A method needs ratings or releases that are not available here."""


#: Its name in versions before 0.3.
NotHeldError = DataNotAvailableError


def needs_of(method: Recommender, missing: Collection[str]) -> str:
    """Return which of the missing data (``ratings``, ``releases``) a method needs for scoring, in words; "" for none."""
    needed = " and the ".join(sorted(method.scoring_needs & set(missing)))
    return f"the {needed} of its training" if needed else ""


class WithExtraUsers:
    """Data of a target with further users without ratings; ``rows`` (num_added,) are their release rows or -1."""

    def __init__(self, data: TargetData, users: Sequence[str], rows: Mapping[str, Tensor]) -> None:
        self._data, self.train = data, data.train.with_users(users)
        self.links = {name: torch.cat([link, rows[name].to(link)]) for name, link in data.links.items()}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the data have
        return getattr(self._data, name)


class Predictor:
    """A trained method with its data, as `zoo.load` returns it.

    Args:
        method: Method with its weights.
        data: Data of its training, or the available part.
        seen: Items that each user of ``data`` has, which are not recommended.
        folder: Folder of the run or bundle.
        has_user_ids: Whether ``data`` has the ids of users.
        has_ratings: Whether ``seen`` is known; otherwise a user's items may be recommended again.
        missing: Which of ``ratings`` and ``releases`` are not available; a method that needs them refuses to score.

    Examples:
        >>> import tempfile, zoo
        >>> from datamodules import Synthetic
        >>> quiet = {"accelerator": "cpu", "enable_progress_bar": False}
        >>> data = Synthetic(num_users=60, num_items=40, sources=[])
        >>> run = zoo.fit(zoo.Popularity(), data, runs=tempfile.mkdtemp(), **quiet)
        Data: target music, split latest2, seed 0...
        >>> predictor = zoo.load(run)
        >>> len(predictor.user_ids), len(predictor.item_ids)
        (60, 40)
        >>> predictor.recommend(predictor.user_ids[:1], k=2)["rank"].to_list()
        [1, 2]
    """

    named, sees = OldName("has_user_ids"), OldName("has_ratings")

    def __init__(
        self,
        method: Recommender,
        data: Any,  # noqa: ANN401  as `TargetData`, or as much of it as there is
        seen: SparseRows,
        folder: Path,
        *,
        has_user_ids: bool = True,
        has_ratings: bool = True,
        missing: Collection[str] = (),
    ) -> None:
        self.method, self.data, self.seen, self.folder = method.eval().requires_grad_(False), data, seen, folder
        self.has_user_ids, self.has_ratings, self.missing = has_user_ids, has_ratings, missing
        self._read: object = None  # data that the method reads now

    @property
    def user_ids(self) -> list[str]:
        """Ids of the training users; empty for a bundle without user ids."""
        ids: list[str] = self.data.train.user_ids.tolist() if self.has_user_ids else []
        return ids

    @property
    def item_ids(self) -> list[str]:
        """Ids of the ranked items."""
        ids: list[str] = self.data.train.item_ids.tolist()
        return ids

    def recommend(
        self, user_ids: Iterable[str | int], k: int = 10, *, seen: Mapping[str, Iterable[str]] | None = None
    ) -> Any:  # noqa: ANN401  any table
        """Return the ``k`` best items for each user, without items that the user has.

        A user who is in a release but not in the target is scored by the release, if the method can.

        Args:
            user_ids: Ids of users, as in the target or in a release.
            k: Number of items for each user, or fewer if fewer are left.
            seen: Further items to exclude, by user.

        Returns:
            Columns user_id, rank (from 1), item_id and score; users in the given order. It is a polars table, or of the kind of the
            tables of `datamodules.Frames`.

        Raises:
            DataNotAvailableError: The method needs data that are not available.
            UnknownUserError: A user is in neither the target nor a release that the method can score by.
            ValueError: ``k`` is below 1.
        """
        users = list(dict.fromkeys(_listed(user_ids)))
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ValueError(f"k is {k!r}. It must be an integer of at least 1.")
        at = index_of(self.data.train.user_ids, users) if users and self.has_user_ids else [-1] * len(users)
        known = [user for user, index in zip(users, at, strict=True) if index >= 0]
        others = [user for user, index in zip(users, at, strict=True) if index < 0]
        more = {str(user): _listed(items) for user, items in (seen or {}).items()}
        tables = [pl.DataFrame(schema=SCHEMA), self._recommended(self.data, self.seen, known, k, more)]
        if others:
            tables.append(self._recommended(*self._with_extra_users(others), others, k, more))
        order = pl.DataFrame({"user_id": users, "at": range(len(users))}, schema={"user_id": pl.String, "at": pl.Int64})
        table = pl.concat(tables).join(order, on="user_id")
        return in_kind_of(self.data, table.sort("at", "rank").select(*SCHEMA))

    def _with_extra_users(self, others: Sequence[str]) -> tuple[Any, SparseRows]:
        """Return the data and seen items with users of releases added; refuse unknown users."""
        method = self.method
        releases = self.data.releases if method.scores_by_rows else {}
        found = {name: index_of(release.user_ids, others) for name, release in releases.items()}
        missing = [user for index, user in enumerate(others) if all(rows[index] < 0 for rows in found.values())]
        if missing:
            where = "the training data" + (f" or the releases of {sorted(found)}" if found else "")
            reason = "" if method.scores_by_rows else f" {type(method).__name__} scores only users of its training."
            if not self.has_user_ids:
                reason += " The bundle has no user ids. Export it --with-user-ids, or load it with data=..."
            listed = ", ".join(repr(visible(user)) for user in missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise UnknownUserError(f"{len(missing)} users are not in {where}: {listed}.{reason} Omit them.")
        wide = WithExtraUsers(self.data, others, {name: torch.from_numpy(rows.copy()) for name, rows in found.items()})
        starts = torch.cat([self.seen.starts, self.seen.starts[-1:].expand(len(others))])
        return wide, SparseRows(starts, self.seen.items, self.seen.weights, self.seen.width)

    def _recommended(
        self,
        data: Any,  # noqa: ANN401  as `TargetData`
        seen: SparseRows,
        users: Sequence[str],
        k: int,
        more: Mapping[str, Sequence[str]],
    ) -> pl.DataFrame:
        train = data.train
        index = torch.from_numpy(index_of(train.user_ids, list(users)).copy()) if users else torch.zeros(0).long()
        parts = [pl.DataFrame(schema=SCHEMA)]
        for batch in torch.split(index, BATCH) if len(index) else ():
            rows, items = entries(seen, batch)
            for row, user in enumerate(train.user_ids[batch.numpy()].tolist()):
                if found := [at for at in index_of(train.item_ids, more[user]) if at >= 0] if more.get(user) else []:
                    rows = torch.cat([rows, torch.full((len(found),), row)])
                    items = torch.cat([items, torch.tensor(found)])
            best = best_unseen(self.scores(data, batch), PredictBatch(batch, rows, items), k)
            parts.append(table_of(train, best))
        return pl.concat(parts)

    @torch.inference_mode()
    def scores(self, data: Any, users: Tensor) -> Tensor:  # noqa: ANN401  as `TargetData`
        """Return logits of all items (batch, num_items) for users (batch,) of the data; the method reads the data first."""
        if needs := needs_of(self.method, self.missing):
            raise DataNotAvailableError(
                f"{type(self.method).__name__} needs {needs}, which the bundle lacks. Pass zoo.load(PATH, data=..., "
                "releases={NAME: PATH}), or export --with-user-ids --with-ratings."
            )
        if self._read is not data:
            self._read = None
            self.method.cache = {}
            self.method.read_data(data)
            self.method.prepare_scoring()
            self._read = data
        return self.method.ranking_scores(users).clone()


def _listed(ids: Iterable[str | int]) -> list[str]:
    """Return ids as strings; refuse a string, which would be read letter by letter."""
    if isinstance(ids, str):
        raise TypeError(f"Ids are the string {ids!r}. Pass a list: [{ids!r}].")
    given = (str(one) if isinstance(one, int | np.integer) else one for one in values_of(ids))
    found: list[str] = as_ids(list(given)).tolist()
    return found


def check_names(releases: Collection[str], sources: Collection[str]) -> None:
    """Refuse releases of domains that are no sources."""
    if others := sorted(set(releases) - set(sources)):
        raise UsageError(f"releases names {others}. The sources are {sorted(sources)}.{suggest(others[0], sources)}")


def read_inputs(data: CrossDomainDataModule, method: Recommender) -> None:
    """Read the target, and the releases if the method uses them."""
    data.read_target()
    method.check_signs(data.signs)
    if method.accepted_releases and not data.releases:
        data.read_releases()


@contextmanager
def explain_mismatch(folder: Path, saved: Mapping[str, Any]) -> Iterator[None]:
    """Raise a `UsageError` with both versions if weights do not fit the method."""
    try:
        yield
    except (KeyError, RuntimeError, TypeError) as error:
        version = saved.get("version", "an older version")
        raise UsageError(
            f"The weights in {folder} (version {version}) do not fit version {VERSION}. Use that version, or train "
            "again."
        ) from error
