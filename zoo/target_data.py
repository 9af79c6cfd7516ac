"""TargetData: what a recommender reads, whoever holds it: a datamodule at the target, or a source that trains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from zoo.data.ratings import Ratings
from zoo.metrics import Ties
from zoo.release.release import Release

Sizes = dict[str, Any]


class TargetData(Protocol):
    """What a datamodule gives a recommender after its ``setup``, and all that a recommender asks of one.

    Attributes:
        sizes: Plain numbers that networks are built from: ``num_users``, ``num_items``, and by source
            ``sources[name]["width"]``.
        digests: What the data and each release were, by domain; a checkpoint is refused where they differ.
        train: The ratings to learn from.
        releases: What each source released, by domain.
        links: Row of each user of ``train`` in a release, -1 for none, by domain, each of shape ``(num_users,)``.
        release_paths: Where the releases lay.
        users: The list of users that the parties agreed on, as it was set.
        ks: Cut-offs of the ranking metrics; like ``ties`` and ``top_k`` not asked for where nothing is ranked.
        ties: How ties are treated.
        full_ranking: Whether held-out items are ranked among all items.
        sampled_ranking: Whether they are ranked among sampled candidates.
        top_k: How many items ``predict`` recommends.
        signs: Whether ratings are signs, +1 and -1.
    """

    sizes: Sizes
    digests: dict[str, str]
    train: Ratings
    releases: dict[str, Release]
    links: dict[str, Tensor]
    release_paths: Mapping[str, Any]
    users: str
    ks: tuple[int, ...]
    ties: Ties
    full_ranking: bool
    sampled_ranking: bool
    top_k: int
    signs: bool
