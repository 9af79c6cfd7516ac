"""Predictor: a trained method with its data, which recommends items to users by their ids."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
import torch
from torch import Tensor

from datamodules.frames import in_kind_of
from zoo.data.arrays import Ids
from zoo.data.batch_types import PredictBatch
from zoo.data.best_items import SCHEMA, Names, best_unseen, table_of
from zoo.data.ratings import index_of
from zoo.data.rows import MOST_NUMBERS, SparseRows
from zoo.methods.base import Recommender
from zoo.methods.ranking import usable
from zoo.methods.target_data import TargetData
from zoo.runs.inputs import UsageError
from zoo.runs.requests import Answer, Lists, Request, Unknown, counted, listed_ids
from zoo.runtime.renamed import OldName
from zoo.runtime.run_folder import visible
from zoo.runtime.suggestions import count_of

logger = logging.getLogger(__name__)

#: Most users that are scored together; fewer where rows are wide.
BATCH = 512
#: Columns of a table of similar items or users.
SIMILAR = {"id": pl.String, "rank": pl.Int32, "similar_id": pl.String, "similarity": pl.Float32}


class UnknownUserError(ValueError):
    """A user is in neither the data nor a release that the method can score by."""


class DataNotAvailableError(LookupError):
    """A method needs ratings or releases that are not available here."""


NotHeldError = DataNotAvailableError  # its name before 0.3


def needs_of(needed: Collection[str], missing: Collection[str]) -> str:
    """Return which of the needed data (``ratings``, ``releases``) are missing, in words; "" for none."""
    needed = " and the ".join(sorted(set(needed) & set(missing)))
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
        self.device = torch.device("cpu")  # on which scores are computed
        self._read: object = None  # data that the method reads now

    def to(self, device: torch.device | str) -> Predictor:
        """Compute scores on a device from now on, and return the predictor."""
        self.device, self._read = torch.device(device), None
        return self

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

    @cached_property
    def user_at(self) -> dict[str, int]:
        """Index of each training user by id."""
        return {user: at for at, user in enumerate(self.user_ids)}

    @cached_property
    def item_at(self) -> dict[str, int]:
        """Index of each item by id."""
        return {item: at for at, item in enumerate(self.item_ids)}

    def recommend(
        self,
        user_ids: Iterable[str | int],
        k: int = 10,
        *,
        seen: Lists | None = None,
        histories: Lists | None = None,
        candidates: Lists | None = None,
        include_seen: bool = False,
        unknown: Unknown = "error",
    ) -> Any:  # noqa: ANN401  any table
        """Return the ``k`` best items for each user, without items that the user has.

        A user who is in a release but not in the target is scored by the release, if the method can. Counts of unknown ids are
        logged as a warning.

        Args:
            user_ids: Ids of users, as in the target, in a release, or in ``histories``.
            k: Number of items for each user, or fewer if fewer are left.
            seen: Further items to exclude, by user.
            histories: Items by user that count as ratings since training, next to those of training. The user is scored by all of
                them, if the method can fold in (`zoo.Recommender.folds_in`). All count as positive.
            candidates: Items to rank, by user; a user without an entry has none.
            include_seen: Whether items of training and histories may be recommended; those of ``seen`` never are.
            unknown: What happens to users who are not in training, histories or a release: ``error``, ``skip``, or ``popular`` (the
                items with most training ratings).

        Returns:
            Columns user_id, rank (from 1), item_id and score; users in the given order. It is a polars table, or of the kind of the
            tables of `datamodules.Frames`.

        Raises:
            DataNotAvailableError: The method needs data that are not available.
            UnknownUserError: A user is unknown, and ``unknown`` is ``error``.
            ValueError: ``k`` is below 1, the method cannot fold in, or a private training protects the counts of ``popular``.
        """
        users = list(dict.fromkeys(listed_ids(user_ids)))
        request = Request.of(k, seen, histories, candidates, include_seen, unknown)
        answers = list(self.answers(users, request))
        if said := counted(answers):
            logger.warning(said)
        return in_kind_of(self.data, pl.concat([pl.DataFrame(schema=SCHEMA), *(answer.table for answer in answers)]))

    def answers(self, users: Sequence[str], request: Request) -> Iterator[Answer]:
        """Yield the answer for each batch of distinct users, in order; see `recommend`."""
        self.check_unknown(request.unknown)
        if request.unknown == "error":
            self._refuse_unknown([user for user in users if not self._is_known(user, request)])
        for first in range(0, len(users), size := self._at_once(0)):
            yield self._answer(users[first : first + size], request)

    def _at_once(self, width: int) -> int:
        """Return the number of users whose scores of all items, release rows, and ``width`` numbers each fit in memory."""
        sizes = self.data.sizes
        widest: int = max(width, sizes["num_items"], sum(source["width"] for source in sizes["sources"].values()))
        return max(1, min(BATCH, MOST_NUMBERS // widest))

    def check_unknown(self, unknown: Unknown) -> None:
        """Refuse popular items where the training protects which items users have: exact counts have no noise."""
        if unknown == "popular" and self.method.hides_item_counts:
            raise UsageError(
                f"unknown is 'popular'. The training of {type(self.method).__name__} protects item counts. Pass --unknown skip or "
                "error (Python: unknown='skip')."
            )

    def _is_known(self, user: str, request: Request) -> bool:
        has_history = user in request.histories and bool(self._known_items(request.histories[user]))
        return user in self.user_at or has_history or user in self._released_users

    @cached_property
    def _released_users(self) -> set[str]:
        """Ids in releases by which the method scores users without target history."""
        releases = self.data.releases if self.method.scores_by_rows else {}
        return {user for release in releases.values() for user in release.user_ids.tolist()}

    def _refuse_unknown(self, missing: Sequence[str]) -> None:
        if not missing:
            return
        method, found = self.method, sorted(self.data.releases) if self.method.scores_by_rows else []
        where = "the training data" + (f" or the releases of {found}" if found else "")
        reason = "" if method.scores_by_rows else f" {type(method).__name__} scores only users of its training."
        if not self.has_user_ids:
            reason += " The bundle has no user ids. Export it --with-user-ids, or load it with data=..."
        listed = ", ".join(repr(visible(user)) for user in missing[:5]) + (", ..." if len(missing) > 5 else "")
        choices = "skip" if method.hides_item_counts else "popular or skip"
        raise UnknownUserError(
            f"{count_of(len(missing), 'user')} not found in {where}: {listed}.{reason} Omit them, or pass --unknown {choices} "
            "(Python: unknown='skip')."
        )

    def _answer(self, users: Sequence[str], request: Request) -> Answer:
        """Return the answer for at most `BATCH` users."""
        folded = [user for user in users if self._known_items(request.histories.get(user, ()))]
        with_history = {*folded}
        others = [user for user in users if user not in with_history]
        known = [user for user in others if user in self.user_at]
        released = [user for user in others if user not in self.user_at and user in self._released_users]
        if released and self.method.folds_in == "rows":
            both = {*folded, *released}
            folded, released = [user for user in users if user in both], []
        unknown = [user for user in others if user not in self.user_at and user not in self._released_users]
        parts, fallbacks = list[pl.DataFrame](), list[str]()
        index = torch.tensor([self.user_at[user] for user in known], dtype=torch.long)
        if known:
            scores = self.scores(self.data, index)
            can = self.method.can_score(index.to(self.device)).tolist()
            fallbacks += [user for user, scored in zip(known, can, strict=True) if not scored]
            parts.append(self._ranked(known, self._usable(known, scores, fallbacks), request))
        if folded:
            scores = self._usable(folded, self._folded(folded, request), fallbacks)
            parts.append(self._ranked(folded, scores, request))
        if released:
            wide = self._with_extra_users(released)
            added = torch.arange(len(released)) + self.data.train.num_users
            scores = self._usable(released, self.scores(wide, added), fallbacks)
            parts.append(self._ranked(released, scores, request))
        if unknown and request.unknown == "popular":
            if "ratings" in self.missing:  # nothing else of them is known
                counts = self.data.train.by_item  # `zoo.runs.bundle.Counts`
            else:
                self._read_once(self.data)
                counts = self.method.item_counts.cpu()
            popular = counts.float().expand(len(unknown), -1)
            parts.append(self._ranked(unknown, popular, request))
            fallbacks += unknown
        if request.candidates is not None:  # the others get no list
            fallbacks = [user for user in fallbacks if user in request.candidates]
        table = parts[0] if parts else pl.DataFrame(schema=SCHEMA)
        if len(parts) > 1:  # one part is in order
            order = pl.DataFrame({"user_id": users, "at": range(len(users))})
            table = pl.concat(parts).join(order, on="user_id").sort("at", "rank").select(*SCHEMA)
        return Answer(table, unknown, fallbacks, self.num_unknown_items(users, request))

    def _usable(self, users: Sequence[str], scores: Tensor, fallbacks: list[str]) -> Tensor:
        """Return scores to recommend by; add to ``fallbacks`` the users that have item counts in their place."""
        found, replaced = usable(scores, self.method.item_counts.cpu())
        fallbacks += [user for user, one in zip(users, replaced.tolist(), strict=True) if one]
        return found

    def num_unknown_items(self, users: Iterable[str], request: Request) -> int:
        """Return the number of unknown item ids in the lists of users."""
        lists = (request.seen, request.histories, request.candidates or {})
        return sum(item not in self.item_at for one in lists for user in users for item in one.get(user, ()))

    def _ranked(self, users: Sequence[str], scores: Tensor, request: Request) -> pl.DataFrame:
        """Return the best items of users by scores (users, num_items)."""
        if request.candidates is not None:
            listed = torch.zeros_like(scores, dtype=torch.bool)
            for row, user in enumerate(users):
                listed[row, self._known_items(request.candidates.get(user, ()))] = True
            scores = scores.masked_fill(~listed, -torch.inf)
        rows, items = [], []
        for row, user in enumerate(users):
            at = None if request.include_seen else self.user_at.get(user)
            own = self.seen.bags(torch.tensor([at])).items.tolist() if at is not None else []
            new = () if request.include_seen else request.histories.get(user, ())
            own += self._known_items([*request.seen.get(user, ()), *new])
            rows += [row] * len(own)
            items += own
        left_out = (torch.tensor(part, dtype=torch.long) for part in (rows, items))
        best = best_unseen(scores, PredictBatch(torch.arange(len(users)), *left_out), request.k)
        return table_of(Names(np.array(users, dtype=np.str_), self.data.train.item_ids), best)

    def _known_items(self, items: Iterable[str]) -> list[int]:
        return [self.item_at[item] for item in items if item in self.item_at]

    def _with_extra_users(self, others: Sequence[str]) -> WithExtraUsers:
        """Return the data with users of releases added."""
        rows = {
            name: torch.from_numpy(index_of(release.user_ids, others).copy())
            for name, release in self.data.releases.items()
        }
        return WithExtraUsers(self.data, others, rows)

    @torch.inference_mode()
    def _folded(self, users: Sequence[str], request: Request) -> Tensor:
        """Return logits of all items (users, num_items) by the users' training ratings and histories."""
        method = self.method
        self.check_histories(users)
        self._read_once(self.data)
        known = torch.tensor([self.user_at.get(user, -1) for user in users])
        own = method.target_rows.bags(known.clamp(min=0).to(self.device))
        trained = [part.tolist() for part in torch.split(own.items.cpu(), own.lengths.tolist())]
        lists = []
        for user, at, items in zip(users, known.tolist(), trained, strict=True):
            kept = items if at >= 0 and self.has_ratings else []
            lists.append(sorted({*kept, *self._known_items(request.histories.get(user, ()))}))
        starts = torch.tensor([0, *map(len, lists)]).cumsum(0)
        columns = torch.tensor([item for one in lists for item in one], dtype=torch.long)
        rows = SparseRows(starts, columns, torch.ones(len(columns)), self.data.train.num_items)
        links = {}
        for name in method.sources:
            release = torch.from_numpy(index_of(self.data.releases[name].user_ids, users).copy())
            links[name] = torch.where(known >= 0, self.data.links[name][known], release)
        moved = {name: link.to(self.device) for name, link in links.items()}
        return method.fold_in(rows.to(self.device), known.to(self.device), moved).to("cpu", copy=True)

    def similar(
        self, ids: Iterable[str | int], k: int = 10, *, of: Literal["items", "users"] = "items"
    ) -> pl.DataFrame:
        """Return the ``k`` most similar items or users of each given one, by the method's vectors.

        Args:
            ids: Ids of items or users of the training.
            k: Number of similar ones for each.
            of: Kind of the ids.

        Returns:
            Columns id, rank (from 1), similar_id and similarity, in the given order.

        Raises:
            UnknownUserError: An id is not in the training data.
            ValueError: The method has no vectors.
        """
        Request.of(k)
        if of not in ("items", "users"):
            raise ValueError(f"of is {of!r}. Allowed: items, users.")
        at, every = (self.item_at, self.item_ids) if of == "items" else (self.user_at, self.user_ids)
        given = list(dict.fromkeys(listed_ids(ids)))
        if missing := [one for one in given if one not in at]:
            raise UnknownUserError(
                f"{count_of(len(missing), of[:-1])} not found in the training data: {visible(missing[0])!r}. Omit them."
            )
        tables = [pl.DataFrame(schema=SIMILAR)]
        for first in range(0, len(given), size := self._at_once(len(every))):
            some = given[first : first + size]
            tables.append(self._similar(some, torch.tensor([at[one] for one in some]), np.array(every), k, of))
        return pl.concat(tables)

    @torch.inference_mode()
    def _similar(self, some: Sequence[str], index: Tensor, every: Ids, k: int, of: str) -> pl.DataFrame:
        self._require(self.method.scoring_needs)
        self._read_once(self.data)
        score = self.method.item_similarities if of == "items" else self.method.user_similarities
        batch = PredictBatch(torch.arange(len(some)), torch.arange(len(some)), index)  # without oneself
        found = table_of(
            Names(np.array(some), every), best_unseen(score(index.to(self.device)).to("cpu", copy=True), batch, k)
        )
        return found.rename(dict(zip(SCHEMA, SIMILAR, strict=True))).select(
            pl.col(name).cast(kind) for name, kind in SIMILAR.items()
        )

    @torch.inference_mode()
    def vectors(self) -> tuple[pl.DataFrame, pl.DataFrame]:
        """Return the method's vectors of users and of items: columns id and vector; raise a `ValueError` without vectors."""
        both = zip((self.user_ids, self.item_ids), self.ready().factors_of_all(), strict=True)
        users, items = (
            pl.DataFrame({"id": ids or [None] * len(rows), "vector": rows.float().cpu().numpy()}) for ids, rows in both
        )
        return users, items

    def ready(self) -> Recommender:
        """Return the method, ready to score its training users; raise `DataNotAvailableError` if it needs other data."""
        self._require(self.method.scoring_needs)
        self._read_once(self.data)
        return self.method

    def check_histories(self, users: Iterable[str]) -> None:
        """Raise `DataNotAvailableError` if histories of these users cannot be scored with the data at hand."""
        needs = self.method.scoring_needs if (own := self.method.fold_in_needs) is None else own
        known = self.method.folds_in and any(user in self.user_at for user in users)
        self._require({*needs, "ratings"} if known else needs)  # training ratings of known users count, too

    def _require(self, needed: Collection[str]) -> None:
        if needs := needs_of(needed, self.missing):
            exported = {*needed} & {*self.missing} == {"ratings"}  # no bundle has releases
            raise DataNotAvailableError(
                f"{type(self.method).__name__} needs {needs}, which the bundle lacks. Pass zoo.load(PATH, data=..., "
                f"releases={{NAME: PATH}}){', or export --with-user-ids --with-ratings' if exported else ''}."
            )

    def _read_once(self, data: Any) -> None:  # noqa: ANN401  as `TargetData`
        if self._read is not data:
            self._read = None
            self.method.cache = {}
            self.method.read_data(data)
            self.method.to(self.device).prepare_scoring()
            self._read = data

    @torch.inference_mode()
    def scores(self, data: Any, users: Tensor) -> Tensor:  # noqa: ANN401  as `TargetData`
        """Return logits of all items (batch, num_items) for users (batch,) of the data; the method reads the data first."""
        self._require(self.method.scoring_needs)
        self._read_once(data)
        return self.method.ranking_scores(users.to(self.device)).to("cpu", copy=True)
