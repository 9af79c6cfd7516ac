"""TargetData: the attributes of a datamodule that a recommender reads, and the check of a checkpoint against other data."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from pytorch_lightning import LightningModule
from torch import Tensor

from zoo.data.batch_types import Average
from zoo.data.metrics import Ties
from zoo.data.ratings import Ratings
from zoo.release.release import Release

Sizes = dict[str, Any]


class TargetData(Protocol):
    """Attributes that a datamodule offers after ``setup``; a recommender reads no others.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.Popularity(), data, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> data.sizes["num_users"], data.train.num_items, data.releases
        (60, 40, {})
    """

    #: Plain numbers that networks are built from: ``num_users``, ``num_items``, and by source those of its release:
    #: ``sources[name]["width"]`` of a row, ``["num_users"]`` rows, ``["num_layers"]`` of embeddings (else 1), and its ``["kind"]``.
    sizes: Sizes
    #: What the data and each release were, by domain; a checkpoint is refused where they differ.
    digests: dict[str, str]
    train: Ratings  # to learn from
    releases: dict[str, Release]  # what each source released, by domain
    own_rows: Mapping[str, Ratings]  # by source of a map: its rows, if available locally; for methods that read maps
    links: dict[str, Tensor]  # row of each user of `train` in a release, -1 for none, by domain, each (num_users,)
    release_paths: Mapping[str, Any]  # where the releases lay
    users: str  # the list of users that the parties agreed on, as it was set
    #: Cut-offs of the ranking metrics; like ``ties``, ``average`` and ``top_k`` not asked for where nothing is ranked.
    ks: tuple[int, ...]
    ties: Ties  # how ties are treated
    average: Average  # what a mean metric counts once: each case, or each user
    full_ranking: (
        bool | Literal["test"]
    )  # whether held-out items, or those of the test alone, are ranked among all items
    sampled_ranking: bool  # whether they are ranked among sampled candidates
    top_k: int  # how many items ``predict`` recommends
    signs: bool  # whether ratings are signs, +1 and -1


class TargetModule(LightningModule):
    """A module whose trainer has a `TargetData` as its datamodule."""

    @property
    def has_trainer(self) -> bool:
        """Whether a trainer is attached; ``load_from_checkpoint`` has none."""
        try:
            return self.trainer is not None
        except RuntimeError:  # what Lightning says of a module by itself
            return False

    @property
    def data(self) -> TargetData:
        """The datamodule of the trainer."""
        data: TargetData = self.trainer.datamodule  # type: ignore[attr-defined]
        return data


class ReleaseMismatchError(RuntimeError):
    """A checkpoint meets other data, or another release, than those of its training."""


def refuse_other_data(stored: Mapping[str, Any], digests: Mapping[str, str], target: str = "") -> None:
    """Raise a `ReleaseMismatchError` if data or releases differ, by digest, from those of a checkpoint.

    Args:
        stored: ``digests`` and ``paths`` of the checkpoint's training.
        digests: Digests of the data and releases at hand, by domain.
        target: Name of the target, where its new ratings may be passed as histories.
    """
    theirs = stored["digests"]
    if target and digests.get(target) != theirs.get(target):
        raise ReleaseMismatchError(
            f"The ratings of {target!r}, or their split, changed since training. Train again, or load without data and "
            "pass new ratings as histories."
        )
    if differing := sorted(k for k in {*digests, *theirs} if digests.get(k) != theirs.get(k)):
        raise ReleaseMismatchError(
            f"The checkpoint was trained on other data or releases; these differ: {differing}. Pass "
            f"--data.releases.NAME PATH ({stored['paths'] or 'no path'}) with the run's settings, or train again."
        )
