"""RecentPopularity: the baseline that every method must beat where the split is by time."""

from typing import Any

import torch
from torch import Tensor

from zoo.data.batch_types import Batch
from zoo.data.item_scores import choose_window, recent_popularity, window_start
from zoo.methods.base import Outputs
from zoo.methods.popularity import Popularity
from zoo.methods.target_data import Sizes
from zoo.runtime import checks

_DAY = 86_400
#: Times between these are taken for seconds since 1970: the years 1990 to 2100.
_SECONDS = 631_152_000, 4_102_444_800


class RecentPopularity(Popularity):
    """Rank items by their number of ratings in the latest part of training, the same ranking for all users.

    Target only, closed form. A split by time rewards recency, so a method that does not beat this row may have learned trends
    alone. The window is a share of the training ratings by time, so it has no unit. Equal items are ordered by all their ratings.

    Reference: Ji, Sun, Zhang and Li, *A Re-visit of the Popularity Baseline in Recommender Systems*, SIGIR 2020: popularity of the
    most recent days before each test time. Departures: one window that ends with training, instead of one before each test case;
    its length is a share of the ratings, chosen on validation, instead of a number of days. Training logs the share as
    ``train/window`` and, if times look like seconds since 1970, its span in days as ``train/window_days``.

    Args:
        window: Share of the training ratings in (0, 1], the latest ones; null: the share in `zoo.data.item_scores.WINDOWS` (1, 1/2,
            ..., 1/1024) with the best validation NDCG@10, the largest of equal ones, or 1/8 without a validation set.

    Raises:
        ValueError: In `fit`, if the training ratings have no times: the split is not by time, or some rows lack a time.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.RecentPopularity(), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    reads_times = True
    logs = frozenset({"train/window", "train/window_days"})

    chosen_window: Tensor

    def __init__(self, window: float | None = None) -> None:
        super().__init__()
        checks.positive(window=window)
        if window is not None and window > 1:
            raise ValueError(f"window is {window}. Allowed: a share in (0, 1], or null.")
        self.window = window

    def build(self, sizes: Sizes) -> None:
        """Make the buffers of the item scores and of the window."""
        super().build(sizes)
        self.register_buffer("chosen_window", torch.tensor(float("nan")))

    def setup(self, stage: str) -> None:
        """Check that the ratings have times."""
        if stage == "fit" and self.data.train.times is None:
            reason = (
                "The training ratings have no times. RecentPopularity needs a split by time and a time on every row."
            )
            raise ValueError(f"{reason} Choose one, or use Popularity.")
        super().setup(stage)

    def step(self, batch: Batch) -> Outputs:
        """Choose the window, unless it is set, and count the ratings in it."""
        data: Any = self.data  # its validation cases are no part of what other methods read
        train, window = data.train, self.window
        if window is None:
            window = choose_window(train, data.validation, data.ties, sampled=data.sampled_ranking)
        self.popularity.copy_(recent_popularity(train, window))
        self.chosen_window.fill_(window)
        self.log_mean("train/window", window)
        last = int(train.times.max())
        if _SECONDS[0] <= int(train.times.min()) and last <= _SECONDS[1]:
            self.log_mean("train/window_days", (last - window_start(train, window)) / _DAY)
        return {}
