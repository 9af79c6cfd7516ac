"""Best items of each user or case of a batch, by the scores of all items."""

from typing import NamedTuple

import polars as pl
import torch
from torch import Tensor

from zoo.data.arrays import Ids
from zoo.data.batch_types import NONE, PredictBatch, RankingBatch
from zoo.data.ratings import Ratings

#: Columns of a table of recommendations.
SCHEMA = {"user_id": pl.String, "rank": pl.Int32, "item_id": pl.String, "score": pl.Float32}

_GROUP = 16  # columns whose maximum is compared first
_AT_ONCE = 1 << 20  # scores of left-out items that are copied at once


class Recommendations(NamedTuple):
    """Best unseen items of a batch of users, best first."""

    users: Tensor  # (batch,)
    items: Tensor  # (batch, k); -1 if a user has fewer unseen items
    scores: Tensor  # logits, (batch, k)


def best_unseen(scores: Tensor, batch: PredictBatch, k: int) -> Recommendations:
    """Return the ``k`` best items that each user has not seen, by scores (batch, num_items); NaN is below every score.

    Of equal scores the item with the smaller index comes first, on every machine.

    Examples:
        >>> import torch
        >>> users, seen = torch.tensor([0]), torch.tensor([2])  # user 0 has seen item 2
        >>> batch = PredictBatch(users, seen_rows=torch.tensor([0]), seen_items=seen)
        >>> best_unseen(torch.tensor([[0.1, 0.7, 0.9]]), batch, k=2).items
        tensor([[1, 0]])
    """
    return Recommendations(batch.users, *_best(scores, batch, k))


def best_listed(scores: Tensor, batch: RankingBatch, k: int) -> Tensor:
    """Return the ``k`` best items of each case in full ranking (cases, k), the held-out one included; as `best_unseen`.

    Items of ``batch.left_out`` are never listed.
    """
    return _best(scores, batch, k, batch.left_out)[0]


def _best(scores: Tensor, batch: PredictBatch | RankingBatch, k: int, left_out: Tensor = NONE) -> tuple[Tensor, Tensor]:
    """Return items and scores, best first, (batch, at most k); seen scores are overwritten in place and restored."""
    frozen = scores.requires_grad or (scores.is_inference() and not torch.is_inference_mode_enabled())
    own = scores if scores.is_contiguous() and not frozen else scores.clone()  # others are writable
    seen = batch.seen_rows, batch.seen_items
    before = own[seen]
    try:
        own[seen] = -torch.inf
        values, items = _highest_of_others(own, min(k, scores.shape[1]), left_out)
    finally:
        own[seen] = before
    return items.masked_fill(values == -torch.inf, -1), values


def _highest_of_others(scores: Tensor, k: int, left_out: Tensor) -> tuple[Tensor, Tensor]:
    """Return `_highest` without the columns ``left_out``, which are overwritten in place and restored, block by block."""
    if not len(left_out):
        return _highest(scores, k)
    found = []
    for block in torch.split(scores, max(_AT_ONCE // len(left_out), 1)):
        before = block[:, left_out]
        block[:, left_out] = -torch.inf
        found.append(_highest(block, k))
        block[:, left_out] = before
    values, columns = zip(*found, strict=True)
    return torch.cat(values), torch.cat(columns)


def _highest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the ``k`` highest scores of each row and their columns, by falling score and rising column; NaN is minus infinity.

    Only rows with a tie among their highest ``k + 1`` scores take further passes.
    """
    values, columns = _highest_by_any(scores, min(k + 1, scores.shape[1]))
    tied = ((values[:, 1:] == values[:, :-1]) & (values[:, 1:] > -torch.inf)).any(1)
    values, columns = values[:, :k], columns[:, :k]
    for rows in torch.split(tied.nonzero()[:, 0], max(_AT_ONCE // scores.shape[1], 1)) if tied.any() else ():
        columns[rows] = _first_of_ties(scores[rows], values[rows, -1:], k)
    return values, columns


def _first_of_ties(scores: Tensor, last: Tensor, k: int) -> Tensor:
    """Return the columns of the ``k`` highest scores of each row, of which ``last`` (rows, 1) is the lowest."""
    rows, columns = (~(scores < last)).nonzero(as_tuple=True)  # by row and column; NaN is taken for minus infinity
    values, bounds = scores[rows, columns].nan_to_num(-torch.inf, torch.inf, -torch.inf), last[rows, 0]
    equal, better = values == bounds, values > bounds
    taken, room = equal.cumsum(0), k - torch.bincount(rows[better], minlength=len(scores))
    before = torch.bincount(rows[equal], minlength=len(scores)).cumsum(0).roll(1)
    before[0] = 0  # equal scores of earlier rows
    chosen = better | equal & (taken <= (before + room)[rows])
    found = values[chosen].view(-1, k).sort(dim=1, descending=True, stable=True)
    return columns[chosen].view(-1, k).gather(1, found.indices)


def _highest_by_any(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the ``k`` highest scores of each row and their columns, ties in any order.

    The highest ``k`` of a row are in the ``k`` groups of columns with the highest maxima, or tie with some that are. On a CPU the
    maxima take one vectorised pass, unlike `torch.topk`.
    """
    width = scores.shape[1] // _GROUP
    if scores.device.type != "cpu" or width < 4 * k:
        return scores.nan_to_num(-torch.inf, torch.inf, -torch.inf).topk(k, dim=1)
    grouped = width * _GROUP
    groups = scores[:, :grouped].view(-1, _GROUP, width).amax(1).topk(k, dim=1, sorted=False).indices
    columns = (groups[:, :, None] + torch.arange(0, grouped, width)).flatten(1)
    rest = torch.arange(grouped, scores.shape[1]).expand(len(scores), -1)
    columns = torch.cat([columns, rest], dim=1)
    values, positions = scores.gather(1, columns).topk(k, dim=1)
    if values.isnan().any():  # NaN is the maximum of its group, so any is among these
        return scores.nan_to_num(-torch.inf, torch.inf, -torch.inf).topk(k, dim=1)
    return values, columns.gather(1, positions)


class Names(NamedTuple):
    """Ids of users and items."""

    user_ids: Ids
    item_ids: Ids


def table_of(train: Ratings | Names, found: Recommendations) -> pl.DataFrame:
    """Return recommendations as a table with ids (`SCHEMA`), without rows for missing items."""
    users, items, scores = (tensor.cpu().numpy() for tensor in found)
    count = items.shape[1]
    rows = pl.DataFrame(
        {
            # As objects: repeats of an array are as wide as its longest id, which a client may choose.
            "user_id": train.user_ids[users].astype(object).repeat(count).tolist(),
            "rank": list(range(1, count + 1)) * len(users),
            "item_id": train.item_ids[items.ravel()].tolist(),
            # A list is a copy: a view would keep the memory of a batch's scores.
            "score": scores.ravel().tolist(),
        },
        schema=SCHEMA,
    )
    return rows.filter(pl.Series(items.ravel() >= 0))
