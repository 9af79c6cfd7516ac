"""TargetData: what a recommender reads, whoever holds it: a datamodule at the target, or a source that trains."""

from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from zoo.data.ratings import Ratings
from zoo.metrics import Ties
from zoo.release.release import Release

Sizes = dict[str, Any]


class TargetData(Protocol):
    """What a datamodule gives a recommender after its ``setup``, and all that a recommender asks of one."""

    #: Plain numbers that networks are built from: ``num_users``, ``num_items``, and by source ``sources[name]["width"]``.
    sizes: Sizes
    #: What the data and each release were, by domain; a checkpoint is refused where they differ.
    digests: dict[str, str]
    train: Ratings  # to learn from
    releases: dict[str, Release]  # what each source released, by domain
    links: dict[str, Tensor]  # row of each user of `train` in a release, -1 for none, by domain, each (num_users,)
    release_paths: Mapping[str, Any]  # where the releases lay
    users: str  # the list of users that the parties agreed on, as it was set
    #: Cut-offs of the ranking metrics; like ``ties`` and ``top_k`` not asked for where nothing is ranked.
    ks: tuple[int, ...]
    ties: Ties  # how ties are treated
    full_ranking: bool  # whether held-out items are ranked among all items
    sampled_ranking: bool  # whether they are ranked among sampled candidates
    top_k: int  # how many items ``predict`` recommends
    signs: bool  # whether ratings are signs, +1 and -1
