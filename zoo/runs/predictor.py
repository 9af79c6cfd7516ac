"""Predictor: a trained method with what it scores on, which recommends to users by their own ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import torch
from torch import Tensor

from datamodules import CrossDomainDataModule
from zoo.data.batch_types import PredictBatch
from zoo.data.best_items import SCHEMA, best_unseen, table_of
from zoo.data.evaluation import entries
from zoo.data.ratings import as_ids, index_of
from zoo.data.rows import SparseRows
from zoo.methods.base import Recommender
from zoo.methods.target_data import TargetData
from zoo.runs.inputs import UsageError
from zoo.runtime.exports import VERSION
from zoo.runtime.run_folder import visible
from zoo.runtime.suggestions import suggest

#: Users that are scored at a time.
BATCH = 512


class UnknownUserError(ValueError):
    """Recommendations are asked for somebody of whom nothing is known."""


class DataNotAvailableError(LookupError):
    """A method needs ratings or releases that are not available here."""


#: Its name in versions before 0.3.
NotHeldError = DataNotAvailableError


def needs_of(method: Recommender, missing: Collection[str]) -> str:
    """What of the missing data (``ratings``, ``releases``) a method needs for scoring, in words; empty for nothing."""
    needed = " and the ".join(sorted(method.scoring_needs & set(missing)))
    return f"the {needed} that it was trained on" if needed else ""


class WithExtraUsers:
    """Data of a target with users added after all others, who have rated nothing; all else is that of the data.

    Args:
        data: The data.
        users: Ids of the added users.
        rows: By source, the row of each added user in its release, -1 for none; each (num_added,).
    """

    def __init__(self, data: TargetData, users: Sequence[str], rows: Mapping[str, Tensor]) -> None:
        self._data, self.train = data, data.train.with_users(users)
        self.links = {name: torch.cat([link, rows[name].to(link)]) for name, link in data.links.items()}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the data have
        return getattr(self._data, name)


class Predictor:
    """A trained method and what it scores on: what `zoo.load` gives.

    Args:
        method: The method, its weights in place.
        data: What it was trained on, or as much of it as there is.
        seen: Items that each user of ``data`` has, which are never recommended.
        folder: Where it was loaded from.
        named: Whether users have their own ids in ``data``.
        sees: Whether ``seen`` is known; if not, all that a user has may be recommended again, unless it is named.
        missing: What of ``ratings`` and ``releases`` is not available here; a method that needs it is refused when it scores.
    """

    def __init__(
        self,
        method: Recommender,
        data: Any,  # noqa: ANN401  as `TargetData`, or as much of it as there is
        seen: SparseRows,
        folder: Path,
        *,
        named: bool = True,
        sees: bool = True,
        missing: Collection[str] = (),
    ) -> None:
        self.method, self.data, self.seen, self.folder = method.eval().requires_grad_(False), data, seen, folder
        self.named, self.sees, self.missing = named, sees, missing
        self._read: object = None  # what the method reads at present

    @property
    def user_ids(self) -> list[str]:
        """Users whom the method was trained on; none where a bundle does not name them."""
        ids: list[str] = self.data.train.user_ids.tolist() if self.named else []
        return ids

    @property
    def item_ids(self) -> list[str]:
        """Items that it ranks."""
        ids: list[str] = self.data.train.item_ids.tolist()
        return ids

    def recommend(
        self, user_ids: Iterable[str | int], k: int = 10, *, seen: Mapping[str, Iterable[str]] | None = None
    ) -> pl.DataFrame:
        """The ``k`` best items for each user, without those that the user has.

        Who is no user of the target, but has a row in a release, is scored by that row where the method can.

        Args:
            user_ids: The users' own ids, as the target or a release has them.
            k: Items for each user; fewer where fewer are left.
            seen: More items to leave out, by user; items that are not ranked are of no account.

        Returns:
            The columns user_id, rank (from 1), item_id and score, users in the order in which they were asked for.

        Raises:
            DataNotAvailableError: The method scores by data that are not available here.
            UnknownUserError: A user is neither in the target nor in a release that the method can score by.
            ValueError: ``k`` is below 1.
        """
        users = list(dict.fromkeys(_listed(user_ids)))
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ValueError(f"k is how many items to recommend, a whole number of at least 1; got {k!r}.")
        at = index_of(self.data.train.user_ids, users) if users and self.named else [-1] * len(users)
        known = [user for user, index in zip(users, at, strict=True) if index >= 0]
        others = [user for user, index in zip(users, at, strict=True) if index < 0]
        more = {str(user): _listed(items) for user, items in (seen or {}).items()}
        tables = [pl.DataFrame(schema=SCHEMA), self._recommended(self.data, self.seen, known, k, more)]
        if others:
            tables.append(self._recommended(*self._with_extra_users(others), others, k, more))
        order = pl.DataFrame({"user_id": users, "at": range(len(users))}, schema={"user_id": pl.String, "at": pl.Int64})
        table = pl.concat(tables).join(order, on="user_id")
        return table.sort("at", "rank").select(*SCHEMA)

    def _with_extra_users(self, others: Sequence[str]) -> tuple[Any, SparseRows]:
        """The data with users of releases alone added to it; refuses users who are nowhere."""
        method = self.method
        by_rows = method.scores_by_rows
        found = (
            {name: index_of(release.user_ids, others) for name, release in self.data.releases.items()}
            if by_rows
            else {}
        )
        missing = [user for index, user in enumerate(others) if all(rows[index] < 0 for rows in found.values())]
        if missing:
            where = "the data that it was trained on" + (f", nor in the releases of {sorted(found)}" if found else "")
            reason = "" if by_rows else f" {type(method).__name__} scores none but those whom it was trained with."
            if not self.named:
                reason += (
                    " This bundle names no users: export it --with-user-ids, or load it with the data of its training."
                )
            named = ", ".join(repr(visible(user)) for user in missing[:5]) + (", ..." if len(missing) > 5 else "")
            raise UnknownUserError(
                f"{len(missing)} of the users asked for are not in {where}: {named}.{reason} Check that they are written as "
                "there, or leave them out."
            )
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
        """Recommendations for users (of whom each is in the data)."""
        train = data.train
        index = torch.from_numpy(index_of(train.user_ids, list(users)).copy()) if users else torch.zeros(0).long()
        parts = [pl.DataFrame(schema=SCHEMA)]
        for batch in torch.split(index, BATCH) if len(index) else ():
            rows, items = entries(seen, batch)
            for row, user in enumerate(train.user_ids[batch.numpy()].tolist()):
                if found := [at for at in index_of(train.item_ids, more[user]) if at >= 0] if more.get(user) else []:
                    rows, items = (
                        torch.cat([rows, torch.full((len(found),), row)]),
                        torch.cat([items, torch.tensor(found)]),
                    )
            best = best_unseen(self.scores(data, batch), PredictBatch(batch, rows, items), k)
            parts.append(table_of(train, best))
        return pl.concat(parts)

    @torch.inference_mode()
    def scores(self, data: Any, users: Tensor) -> Tensor:  # noqa: ANN401  as `TargetData`
        """Logits of all items (batch, num_items) for users (batch,) of the data, which the method reads if it did not yet."""
        if needs := needs_of(self.method, self.missing):
            raise DataNotAvailableError(
                f"{type(self.method).__name__} scores by {needs}, which are not in this bundle. Load it with what it "
                "needs, zoo.load(PATH, data=..., releases={NAME: PATH}), or export the run --with-user-ids --with-ratings."
            )
        if self._read is not data:
            self._read = None
            self.method.cache = {}
            self.method.read_data(data)
            self.method.prepare_scoring()
            self._read = data
        return self.method.ranking_scores(users).clone()


def _listed(ids: Iterable[str | int]) -> list[str]:
    """Ids as strings; a single text is refused, whose letters would be taken for ids."""
    if isinstance(ids, str):
        raise TypeError(f"Ids are given as a list, such as [{ids!r}]; got the text {ids!r}.")
    found: list[str] = as_ids([str(one) if isinstance(one, int) else one for one in ids]).tolist()
    return found


def check_names(releases: Collection[str], sources: Collection[str]) -> None:
    """Refuse releases of domains that it was not trained with."""
    if others := sorted(set(releases) - set(sources)):
        known = f"its sources are {sorted(sources)}" if sources else "it has no sources"
        raise UsageError(f"releases names {others}, which are no sources of it; {known}.{suggest(others[0], sources)}")


def read_inputs(data: CrossDomainDataModule, method: Recommender) -> None:
    """Read the target, and the releases for a method that learns from them."""
    data.read_target()
    method.check_signs(data.signs)
    if method.accepted_releases and not data.releases:
        data.read_releases()


@contextmanager
def of_this_version(folder: Path, kept: Mapping[str, Any]) -> Iterator[None]:
    """Say which version made the weights where they do not fit the method as it is here."""
    try:
        yield
    except (KeyError, RuntimeError, TypeError) as error:
        by = kept.get("version", "an older version")
        raise UsageError(
            f"The weights in {folder} were made by {by} of this project, and do not fit the method as {VERSION} has it. "
            "Use that version, or train anew."
        ) from error
