"""Best items: what each user of a batch is recommended, or each case lists, by the scores of all items."""

from typing import NamedTuple

import polars as pl
import torch
from torch import Tensor

from zoo.data.batch_types import PredictBatch, RankingBatch
from zoo.data.ratings import Ratings

#: Columns of a table of recommendations.
SCHEMA = {"user_id": pl.String, "rank": pl.Int32, "item_id": pl.String, "score": pl.Float32}

_GROUP = 16  # items of which the highest is looked at first


class Recommendations(NamedTuple):
    """Best unseen items of a batch of users, best first."""

    users: Tensor  # (batch,)
    items: Tensor  # (batch, k); -1 where a user has fewer unseen items
    scores: Tensor  # logits, (batch, k)


def best_unseen(scores: Tensor, batch: PredictBatch, k: int) -> Recommendations:
    """The ``k`` best items that each user has not seen, by scores (batch, num_items); NaN is worse than every score."""
    return Recommendations(batch.users, *_best(scores, batch, k))


def best_listed(scores: Tensor, batch: RankingBatch, k: int) -> Tensor:
    """The ``k`` best items of each case among those that it is ranked with, its held-out item with them; else as `best_unseen`."""
    return _best(scores, batch, k)[0]


def _best(scores: Tensor, batch: PredictBatch | RankingBatch, k: int) -> tuple[Tensor, Tensor]:
    """Items and scores, best first, (batch, at most k); seen items are put last in the scores themselves, and back again."""
    frozen = scores.requires_grad or (scores.is_inference() and not torch.is_inference_mode_enabled())
    own = scores if scores.is_contiguous() and not frozen else scores.clone()  # torch lets the others be written to
    seen = batch.seen_rows, batch.seen_items
    before = own[seen]
    try:
        own[seen] = -torch.inf
        values, items = _highest(own, min(k, scores.shape[1]))
    finally:
        own[seen] = before
    return items.masked_fill(values == -torch.inf, -1), values


def _highest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` highest scores of each row and their columns, NaN being minus infinity.

    The highest ``k`` of a row lie in the ``k`` groups of columns with the highest maxima, or tie with some that do. Finding
    those takes one pass of comparisons, where `torch.topk` on a CPU looks at each number by itself.
    """
    width = scores.shape[1] // _GROUP
    if scores.device.type != "cpu" or width < 4 * k:
        return scores.nan_to_num(-torch.inf, torch.inf, -torch.inf).topk(k, dim=1)
    grouped = width * _GROUP
    groups = scores[:, :grouped].view(-1, _GROUP, width).amax(1).topk(k, dim=1, sorted=False).indices
    columns = (groups[:, :, None] + torch.arange(0, grouped, width)).flatten(1)
    rest = torch.arange(grouped, scores.shape[1]).expand(len(scores), -1)
    columns = torch.cat([columns, rest], dim=1)
    values, places = scores.gather(1, columns).topk(k, dim=1)
    if values.isnan().any():  # NaN is the highest of all in a maximum, so one anywhere is among these
        return scores.nan_to_num(-torch.inf, torch.inf, -torch.inf).topk(k, dim=1)
    return values, columns.gather(1, places)


def table_of(train: Ratings, found: Recommendations) -> pl.DataFrame:
    """Recommendations with the ids of the ratings in the place of indexes: the columns of `SCHEMA`, no row for no item."""
    users, items, scores = (tensor.cpu().numpy() for tensor in found)
    count = items.shape[1]
    rows = pl.DataFrame(
        {
            "user_id": train.user_ids[users].repeat(count).tolist(),
            "rank": list(range(1, count + 1)) * len(users),
            "item_id": train.item_ids[items.ravel()].tolist(),
            # As a list, so that it is copied: kept where it is, a small array holds the memory of a batch's scores apart.
            "score": scores.ravel().tolist(),
        },
        schema=SCHEMA,
    )
    return rows.filter(pl.Series(items.ravel() >= 0))
