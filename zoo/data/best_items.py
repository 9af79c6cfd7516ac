"""Best items: what each user of a batch is recommended, or each case lists, by the scores of all items."""

from typing import NamedTuple

import torch
from torch import Tensor

from zoo.data.batches import PredictBatch, RankingBatch

_AT_ONCE = 1 << 19  # scores that a processor works on together: 2 MiB stay in its cache
_GROUP = 16  # items of which the highest is looked at first


class Recommendations(NamedTuple):
    """Best unseen items of a batch of users, best first.

    Attributes:
        users: Shape ``(batch,)``.
        items: Shape ``(batch, k)``; -1 where a user has fewer unseen items than that.
        scores: Logits, shape ``(batch, k)``.
    """

    users: Tensor
    items: Tensor
    scores: Tensor


def best_unseen(scores: Tensor, batch: PredictBatch, k: int) -> Recommendations:
    """The ``k`` best items that each user has not seen, by scores (batch, num_items); NaN is worse than every score."""
    items, best = _best(scores, batch, k)
    return Recommendations(batch.users, items, best)


def best_listed(scores: Tensor, batch: RankingBatch, k: int) -> Tensor:
    """The ``k`` best items of each case among those that it is ranked with, its held-out item with them; else as `best_unseen`."""
    return _best(scores, batch, k)[0]


def rows_at_once(scores: Tensor) -> int:
    """How many rows of scores (rows, columns) are worked on together: on a processor as many as its cache holds, else all."""
    return max(_AT_ONCE // max(scores.shape[1], 1) if scores.device.type == "cpu" else len(scores), 1)


def _best(scores: Tensor, batch: PredictBatch | RankingBatch, k: int) -> tuple[Tensor, Tensor]:
    """Items and scores, best first, (batch, at most k); the order of equal scores is nobody's business."""
    size, k = rows_at_once(scores), min(k, scores.shape[1])
    rows, order = batch.seen_rows.sort()
    seen = batch.seen_items[order]
    ends = [len(rows)]  # where the seen items of each block end
    if size < len(scores):  # else nothing is asked, so that no device is waited for
        ends = torch.bincount(rows // size, minlength=-(-len(scores) // size)).cumsum(0).tolist()
    kept = torch.empty_like(scores[:size])  # one block: the scores are others' and stay as they are
    values, items = scores.new_empty(len(scores), k), rows.new_empty(len(scores), k)
    for number, (block, begin, end) in enumerate(zip(torch.split(scores, size), [0, *ends], ends, strict=False)):
        at = slice(number * size, number * size + len(block))
        own = kept[: len(block)].copy_(block)
        own[rows[begin:end] - at.start, seen[begin:end]] = -torch.inf
        values[at], items[at] = _highest(own, k)
    return items.masked_fill_(values == -torch.inf, -1), values


def _highest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` highest scores of each row and their columns, NaN being minus infinity; may overwrite the scores.

    Whatever is among the highest ``k`` of a row lies in one of the ``k`` groups of columns with the highest maxima, or is as high
    as something that does. Finding those takes one pass of comparisons, where `torch.topk` on a processor looks at each
    number by itself.
    """
    width = scores.shape[1] // _GROUP
    if scores.device.type != "cpu" or width < 4 * k:
        return scores.nan_to_num_(-torch.inf, torch.inf, -torch.inf).topk(k, dim=1)
    grouped = width * _GROUP
    groups = scores[:, :grouped].view(-1, _GROUP, width).amax(1).topk(k, dim=1, sorted=False).indices
    columns = (groups[:, :, None] + torch.arange(0, grouped, width)).flatten(1)
    rest = torch.arange(grouped, scores.shape[1]).expand(len(scores), -1)
    columns = torch.cat([columns, rest], dim=1)
    values, places = scores.gather(1, columns).topk(k, dim=1)
    if values.isnan().any():  # NaN is the highest of all in a maximum, so one anywhere is among these
        return scores.nan_to_num_(-torch.inf, torch.inf, -torch.inf).topk(k, dim=1)
    return values, columns.gather(1, places)
