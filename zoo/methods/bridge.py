"""Bridge: latent positions of cold-start users from a private mapping matrix and their own source rows, which stay local."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from zoo.data.batch_types import Batch
from zoo.data.directions import Directions, check_form, directions_of
from zoo.data.ratings import Ratings, index_of
from zoo.data.rows import SparseRows
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import ReleaseMismatchError, Sizes, TargetData
from zoo.privacy.rows.bounds import clip_rows
from zoo.release.files import LARGEST_VALUE, ReleaseError
from zoo.release.release import Release

Floats = npt.NDArray[np.float64]


class Bridge(Recommender):
    """Score a user by the target's mean row plus a latent position in its directions, predicted by a private mapping matrix.

    A release of `BridgePublisher` is a matrix ``C`` from the source's items to the target's directions. A user with the source
    row ``r`` has the position ``g (r - m) C``, where ``m`` is the mean row by the noisy counts of the release. Positions of
    several sources and of the target history add up. Scores are the mean target row (rows of unit length) plus the position
    times the target's decoder. Closed form; memory is linear in ratings, users and items. Without a mapping matrix, as with
    `Nothing`, directions follow the arguments.

    The gain ``g`` is public. For a matrix with noise variance ``s`` and ``n`` common users, the signal is ``t = (|C|^2 - s kept
    k) / n``. Then ``g = t / (k s clip^2 + t^2 / explained_share)`` is the least-squares factor.

    **Where rows are read.** A user's row is read without noise, for that user's own list alone: by the source, or on the user's
    device with `latent_positions` and the exported mean and decoder. The datamodule reads it where the source's file is
    available locally (research); elsewhere cold-start users get the mean row. A checkpoint of such a training holds the
    positions of those users: it belongs to them and the source, and not to the target. Metrics of such a run, and choices based
    on them, are not protected: no epoch is chosen, and a search adds a condition to the run's privacy record.

    References: mean and projection are `zoo.data.directions`; the release is `BridgePublisher`'s. Not from a paper.

    Args:
        explained_share: Share in (0, 1] of the variance of positions that the source would explain without noise.
        num_directions: Number of the target's directions, where no mapping matrix fixes it.
        item_damping: Damping of the target's directions, where no mapping matrix fixes it; see `ProjectionPublisher`.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> data.read_target()
        >>> projections = zoo.ProjectionPublisher(num_directions=3)
        >>> publisher = zoo.BridgePublisher(epsilon=8.0, kept_items=20, projections=projections).for_target(data.train)
        >>> run = zoo.fit(zoo.Bridge(), data, publisher=publisher, max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> run.method.places.shape
        torch.Size([60, 3])
    """

    batches = "full_batch"
    accepted_releases = frozenset({"map"})
    scores_cold_users = True
    scoring_needs = frozenset({"releases"})
    folds_in = "rows"
    fold_in_needs = frozenset({"ratings", "releases"})

    mean: Tensor
    decoder: Tensor
    places: Tensor

    def __init__(self, explained_share: float = 0.25, num_directions: int = 6, item_damping: float = 0.5) -> None:
        super().__init__()
        if not 0 < explained_share <= 1:
            raise ValueError(f"explained_share must lie in (0, 1], got {explained_share}.")
        check_form(num_directions, item_damping)
        self.explained_share, self.num_directions, self.item_damping = explained_share, num_directions, item_damping

    def build(self, sizes: Sizes) -> None:
        """Make the buffers of mean, decoder and positions."""
        widths = {name: source["width"] for name, source in sizes["sources"].items() if source["num_users"]}
        if len(set(widths.values())) > 1:
            raise ReleaseMismatchError(
                f"The maps have {widths} directions. All must have the same ones. Ask for maps to the same projections."
            )
        width = next(iter(widths.values()), self.num_directions)
        self.register_buffer("mean", torch.zeros(sizes["num_items"]))
        self.register_buffer("decoder", torch.zeros(width, sizes["num_items"]))
        self.register_buffer("places", torch.zeros(sizes["num_users"], width))

    def read_data(self, data: TargetData) -> None:
        """Also store the damping of the mapping matrices."""
        super().read_data(data)
        maps = data.releases.values() if self.accepted_releases else ()
        given = [release for release in maps if getattr(release, "num_users", 0)]
        self._dampings = sorted({release.stated("item_damping", 2, 0.0) for release in given})
        self._embed: Callable[[csr_array], Floats] | None = None

    def _directions(self, rows: csr_array) -> Directions:
        return directions_of(rows, self.decoder.shape[0], self._dampings[0] if self._dampings else self.item_damping)

    def step(self, batch: Batch) -> Outputs:
        """Compute the target's directions and the position of every user."""
        train = self.data.train
        if len(self._dampings) > 1:
            raise ReleaseMismatchError(
                f"The maps have item_damping {self._dampings}. Ask for maps to the same projections."
            )
        found = self._directions(train.matrix)
        self.mean.copy_(torch.from_numpy(found.mean))
        self.decoder.copy_(torch.from_numpy(found.decoder))
        places = found.projections
        history = torch.from_numpy(np.diff(train.matrix.indptr) > 0)
        for name, release in self._maps().items():
            own = self.data.own_rows.get(name)
            if own is not None:
                both = int((history & (self.data.links[name].cpu() >= 0)).sum())
                places = places + self._told(release, own, both)
        self.places.copy_(torch.from_numpy(places))
        return {}

    def _maps(self) -> dict[str, Release]:
        found = self.data.releases if self.accepted_releases else {}
        return {name: release for name, release in found.items() if release.num_users}

    def _told(self, release: Release, own: Ratings, both: int) -> Floats:
        """Positions of the target's users from a release and source rows, (users, directions); zeros for others."""
        told = place(release, own, both, self.explained_share)
        rows = index_of(own.user_ids, self.data.train.user_ids)
        found: Floats = told[np.maximum(rows, 0)] * (rows >= 0)[:, None]
        return found

    def fold_in_scores(self, users: Tensor, known: Tensor) -> Tensor:
        """Return the mean row plus positions times decoder (batch, num_items).

        A position is that of the row, plus what the mapping matrices add to a known user's position.
        """
        train = self.target_columns.transposed()
        if self._embed is None:
            self._embed = self._directions(_matrix(train)).embed
        own, before = self._embed(_matrix(self.target_rows, users)), self._embed(_matrix(train, known.clamp(min=0)))
        told = (self.places[known].double().cpu() - torch.from_numpy(before)) * (known.cpu() >= 0)[:, None]
        return self.mean + (torch.from_numpy(own) + told).to(self.decoder) @ self.decoder

    def score_all(self, users: Tensor) -> Tensor:
        """Return the mean row plus positions times decoder, shape ``(batch, num_items)``."""
        return self.mean + self.places[users] @ self.decoder


def _matrix(rows: SparseRows, index: Tensor | None = None) -> csr_array:
    """Return rows, or some of them (batch,), as a sparse matrix."""
    bags = rows.all_bags() if index is None else rows.bags(index)
    starts = torch.cat([bags.offsets, bags.offsets.new_tensor([len(bags.items)])])
    return csr_array(
        tuple(part.cpu().numpy() for part in (bags.weights, bags.items, starts)), shape=(len(bags.offsets), rows.width)
    )


def place(release: Release, rows: Ratings, num_common: int, explained_share: float = 0.25) -> Floats:
    """Return latent positions of users (users, directions) from a mapping matrix and their source rows.

    Args:
        release: A release of `BridgePublisher`.
        rows: The users' own rows at the source, read without noise; a user without a rating gets zeros.
        num_common: Number of users of both parties; public.
        explained_share: Setting `explained_share` of `Bridge`.

    Raises:
        ReleaseMismatchError: Rows and mapping matrix have different items.
        ReleaseError: A position is larger than any value of a release may be.
    """
    table, items, counts = (release.tensors[name].double().numpy() for name in ("map", "items", "counts"))
    if rows.num_items != len(counts):
        raise ReleaseMismatchError(
            f"The map of {release.domain!r} is of {len(counts)} items, and the rows have {rows.num_items}. Use the "
            "source's."
        )
    decrypted = "sigma_decrypted" in release.record.public_inputs  # with the noise that a target added, if it did
    sigma = release.stated("sigma_decrypted" if decrypted else "sigma", LARGEST_VALUE)
    clip, kept = release.stated("row_clip", LARGEST_VALUE), items.astype(np.int64)
    cut = clip_rows(csr_array(rows.matrix.tocsc()[:, kept].tocsr()), clip)
    centre = np.maximum(counts[kept], 0.0) / max(release.source_users, 1)
    told: Floats = (cut @ table - centre @ table) * (np.diff(rows.matrix.indptr) > 0)[:, None]
    signal = max(float((table**2).sum()) - sigma**2 * table.size, 0.0) / max(num_common, 1)
    spread = table.shape[1] * (sigma * clip) ** 2 + signal**2 / explained_share
    told = told * (signal / spread if spread else 0.0)
    if not (largest := float(np.abs(told).max(initial=0.0))) <= LARGEST_VALUE:
        raise ReleaseError(
            f"The map of {release.domain!r} gives positions up to {largest:.0e}. Allowed: {LARGEST_VALUE:g}."
        )
    return told
