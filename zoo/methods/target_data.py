"""TargetData: what a recommender asks of a datamodule, and the refusal of data that a checkpoint is not of."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from pytorch_lightning import LightningModule
from torch import Tensor

from zoo.data.metrics import Ties
from zoo.data.ratings import Ratings
from zoo.release.release import Release

Sizes = dict[str, Any]


class TargetData(Protocol):
    """What a datamodule gives a recommender after its ``setup``, and all that a recommender asks of one."""

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
    #: Cut-offs of the ranking metrics; like ``ties`` and ``top_k`` not asked for where nothing is ranked.
    ks: tuple[int, ...]
    ties: Ties  # how ties are treated
    full_ranking: (
        bool | Literal["test"]
    )  # whether held-out items, or those of the test alone, are ranked among all items
    sampled_ranking: bool  # whether they are ranked among sampled candidates
    top_k: int  # how many items ``predict`` recommends
    signs: bool  # whether ratings are signs, +1 and -1


class TargetModule(LightningModule):
    """A module whose trainer has a `TargetData` for its datamodule."""

    @property
    def has_trainer(self) -> bool:
        """Whether a trainer runs it: ``load_from_checkpoint`` does without."""
        try:
            return self.trainer is not None
        except RuntimeError:  # what Lightning says of a module by itself
            return False

    @property
    def data(self) -> TargetData:
        """The datamodule of the trainer at hand."""
        data: TargetData = self.trainer.datamodule  # type: ignore[attr-defined]
        return data


class ReleaseMismatchError(RuntimeError):
    """A checkpoint meets other data or another release than it was trained on."""


def refuse_other_data(kept: Mapping[str, Any], digests: Mapping[str, str]) -> None:
    """Refuse data and releases, by their digests, that are not those that a checkpoint was trained on (what it ``kept``)."""
    theirs = kept["digests"]
    if differing := sorted(k for k in {*digests, *theirs} if digests.get(k) != theirs.get(k)):
        raise ReleaseMismatchError(
            f"The checkpoint was trained on other data or releases than those at hand; these differ: {differing}. "
            f"Its releases lay at {kept['paths'] or 'no path'}: pass them (in Python releases={{NAME: PATH}}, on the command line "
            "--data.releases.NAME PATH), with the run's own data settings and seed, or train anew."
        )
