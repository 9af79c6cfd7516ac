"""Denoiser: what a target makes of a noisy release before its recommender reads it."""

from dataclasses import dataclass, replace

import torch
from scipy.sparse import csr_array

from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.rows.denoising import Cells, GaussianCells, KeptCells, posterior_kept, posterior_rows, shrunk_rows
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
    read of a record that claims something was compared with its ledger before, or with the rows (`zoo.privacy.record.claims`,
    `zoo.release.plausible`); of one without a guarantee it is taken as it is said.

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
        cells = _cells(release.record)
        if release.sparse:
            return replace(release, tensors={**release.tensors, "weights": self._kept(release, cells)})
        rows = release.tensors["rows"].numpy()
        if cells is None:
            denoised = shrunk_rows(rows, _number(release.record, "noise_scale"), self.max_components)
        else:
            denoised = posterior_rows(rows, cells, self.max_components)
        return replace(release, tensors={"rows": torch.from_numpy(denoised)})

    def _kept(self, release: Release, cells: Cells | None) -> torch.Tensor:
        if not isinstance(cells, KeptCells):
            raise ValueError(
                f"The rows of {release.domain!r} are kept sparse, and the record of {release.record.mechanism} does not say "
                "with what probability a one and a zero were kept. Leave the denoiser out for it."
            )
        starts, items, weights = (release.tensors[name].numpy() for name in ("starts", "items", "weights"))
        rows = csr_array((weights, items, starts), shape=(release.num_users, release.width))
        return torch.from_numpy(posterior_kept(rows, cells, self.max_components).data)


def _cells(record: PrivacyRecord) -> Cells | None:
    """How the cells of a 0/1 matrix were drawn; None if the rows are no such cells."""
    if "flip_probability" in record.public_inputs:
        return KeptCells.flipped(_number(record, "flip_probability", 0.5), _number(record, "keep", 1.0))
    if "sigma" not in record.public_inputs or record.clip is not None:
        return None
    sigma = _number(record, "sigma")
    if "threshold" not in record.public_inputs:
        return GaussianCells(sigma)
    return KeptCells.above(_number(record, "threshold"), sigma)


def _number(record: PrivacyRecord, name: str, largest: float = 1 / _SMALLEST) -> float:
    """A number of the record, which may come from anybody: positive, and such that it can be squared."""
    value = record.noise_scale if name == "noise_scale" else record.public_inputs.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not _SMALLEST <= value <= largest:
        raise ValueError(
            f"A denoiser needs {name} from the record of {record.mechanism}, a number from {_SMALLEST:g} to {largest:g}; it "
            f"says {repr(value)[:80]}. Leave the denoiser out, or ask the source party for a record that says how rows were "
            "drawn."
        )
    return float(value)
