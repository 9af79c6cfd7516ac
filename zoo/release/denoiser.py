"""Denoiser: reduce the noise of a release at the target before a recommender reads it."""

from dataclasses import dataclass, replace

import torch
from scipy.sparse import csr_array

from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.rows.denoising import EntryModel, SparseEntries, posterior_rows, posterior_sparse, shrunk_rows
from zoo.release.layouts import check_width
from zoo.release.release import Release

MOST_COMPONENTS = 1024  # a bundle of another party may state any number
_SMALLEST, _LARGEST = 1e-30, 1e30  # accepted noise scale of a record


@dataclass(frozen=True)
class Denoiser:
    """Estimate the rows behind noisy rows. Costs no privacy, because it reads only release and record.

    * Flipped or noisy entries become posterior means: probabilities of ones, given the noise of the record and a prior estimated
      from the release itself.
    * Of sparse rows only the stored entries get a value: how much likelier they are to be ones than the other entries.
    * Projections, and rows clipped to protect whole users, become their mean row plus the singular components above the noise.
    * Unprocessed ratings, generators and releases without users stay unchanged.

    See `zoo.privacy.rows.denoising` for the estimates and their sources. Record and ledger stay those of the release. A record
    with a claim was compared with ledger and rows; the values of one without a guarantee are used unchecked.

    Args:
        max_components: Number of singular components, 0 to 1,024, that refine the prior or are kept of projections.

    Examples:
        >>> from datamodules import Synthetic
        >>> from zoo.publishers.rows import NoisyRows
        >>> ratings = Synthetic(num_users=60, num_items=40).source("book")
        >>> release = NoisyRows(epsilon=8.0).publish(ratings, "book")
        >>> rows = Denoiser()(release).tensors["rows"]
        >>> rows.shape, 0 <= rows.min() <= rows.max() <= 1
        (torch.Size([60, 40]), tensor(True))
    """

    max_components: int = 64

    def __post_init__(self) -> None:
        if type(self.max_components) is not int or not 0 <= self.max_components <= MOST_COMPONENTS:
            raise ValueError(
                f"max_components is {self.max_components!r}. Allowed: integers from 0 to {MOST_COMPONENTS}."
            )

    def __call__(self, release: Release) -> Release:
        """Return the same users' rows with less noise; `ValueError` unless the record describes the noise."""
        if release.kind != "rows" or not release.num_users:
            return release
        check_width(release.domain, release.width)
        cells = release.record.mechanism.entry_model
        if release.sparse:
            return replace(release, tensors={**release.tensors, "weights": self._kept(release, cells)})
        rows = release.tensors["rows"].numpy()
        if cells is None:
            denoised = shrunk_rows(rows, _noise(release.record), self.max_components)
        else:
            denoised = posterior_rows(rows, cells, self.max_components)
        return replace(release, tensors={"rows": torch.from_numpy(denoised)})

    def _kept(self, release: Release, cells: EntryModel | None) -> torch.Tensor:
        if not isinstance(cells, SparseEntries):
            raise ValueError(f"The record of {release.domain!r} has no sparse probabilities. Omit the denoiser.")
        starts, items, weights = (release.tensors[name].numpy() for name in ("starts", "items", "weights"))
        rows = csr_array((weights, items, starts), shape=(release.num_users, release.width))
        return torch.from_numpy(posterior_sparse(rows, cells, self.max_components).data)


def _noise(record: PrivacyRecord) -> float:
    """Return the noise scale of a record, checked to be positive and small enough to be squared."""
    scale = record.noise_scale
    if scale is None or not _SMALLEST <= scale <= _LARGEST:
        raise ValueError(
            f"noise_scale of {record.mechanism.name} is {scale!r}. Allowed: [{_SMALLEST:g}, {_LARGEST:g}]. Omit it."
        )
    return scale
