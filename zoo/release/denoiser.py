"""Denoiser: what a target makes of a noisy release before its recommender reads it."""

from dataclasses import dataclass, replace

import torch
from scipy.sparse import csr_array

from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.rows.denoising import EntryModel, SparseEntries, posterior_rows, posterior_sparse, shrunk_rows
from zoo.release.release import Release

_SMALLEST = 1e-30  # number of a record that is taken for one; the largest is its inverse


@dataclass(frozen=True)
class Denoiser:
    """Turns noisy rows into what they say of the rows behind them; free, as it reads release and record alone.

    * Flipped cells and noisy cells become posterior means: probabilities of ones, given the noise that the record states
      and a prior estimated from the release itself.
    * Kept sparse, only the cells that are there get a value: how much likelier they are to be ones than if they were not.
    * Projections, and rows clipped to protect whole users, become their mean row plus the singular components that stand
      out of the noise.
    * Ratings as they are, generators and a release of nobody stay what they are.

    See `zoo.privacy.rows.denoising` for the estimates and their sources. Record and ledger stay those of the release. What is
    read of a record that claims something follows from its mechanism, which was compared with ledger and rows; of one without a
    guarantee it is taken as it is said.

    Args:
        max_components: Singular components, at least 0, that may refine the prior of cells, or be kept of projections.
    """

    max_components: int = 64

    def __post_init__(self) -> None:
        if self.max_components < 0:
            raise ValueError(
                f"max_components must be at least 0, got {self.max_components}; 0 leaves activity and means."
            )

    def __call__(self, release: Release) -> Release:
        """The same users' rows without what is known to be noise; `ValueError` unless the record says how they were drawn."""
        if release.kind != "rows" or not release.num_users:
            return release
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
            raise ValueError(
                f"The rows of {release.domain!r} are kept sparse, and the record of {release.record.mechanism.name} does not say "
                "with what probability a one and a zero were kept. Leave the denoiser out for it."
            )
        starts, items, weights = (release.tensors[name].numpy() for name in ("starts", "items", "weights"))
        rows = csr_array((weights, items, starts), shape=(release.num_users, release.width))
        return torch.from_numpy(posterior_sparse(rows, cells, self.max_components).data)


def _noise(record: PrivacyRecord) -> float:
    """The noise on each number, which may come from anybody: positive, and such that it can be squared."""
    scale = record.noise_scale
    if scale is None or not _SMALLEST <= scale <= 1 / _SMALLEST:
        raise ValueError(
            f"A denoiser needs noise_scale from the record of {record.mechanism.name}, a number from {_SMALLEST:g} to "
            f"{1 / _SMALLEST:g}; it says {scale!r}. Leave the denoiser out, or ask the source party for a record that says how "
            "rows were drawn."
        )
    return scale
