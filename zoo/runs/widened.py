"""A target's data with users added who have rated nothing there, and are known by their rows in releases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from zoo.data.ratings import Ratings
from zoo.methods.target_data import TargetData
from zoo.runs.held import Counts


class Widened:
    """Data as of another, but for the ratings and the links.

    Args:
        of: The data that are widened.
        train: Its ratings, with rows added.
        links: Its links, with those of the added users.
    """

    def __init__(self, of: TargetData, train: Ratings | Counts, links: Mapping[str, Tensor]) -> None:
        self.of, self.train, self.links = of, train, links

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  whatever the data have
        return getattr(self.of, name)


def widened(data: TargetData, users: Sequence[str], rows: Mapping[str, Tensor]) -> Any:  # noqa: ANN401  as TargetData
    """Data with users added after all others: they have rated nothing, and by source the ``rows`` (users,) of its release."""
    train: Ratings | Counts = data.train
    if isinstance(train, Counts):
        wide: Ratings | Counts = train.with_users(users)
    else:
        matrix, total = train.matrix, train.num_users + len(users)
        starts = np.concatenate([matrix.indptr, np.full(len(users), matrix.indptr[-1])])
        ids = np.concatenate([train.user_ids, np.array(users, dtype=np.str_)])
        whole = csr_array((matrix.data, matrix.indices, starts), shape=(total, train.num_items))
        wide = Ratings(whole, ids, train.item_ids, train.applied)
    links = {name: torch.cat([link, rows[name].to(link)]) for name, link in data.links.items()}
    return Widened(data, wide, links)
