"""Ridge regression by a singular value decomposition of its rows, with the penalty of the least leave-one-out error."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

Floats = npt.NDArray[np.float64]

#: Penalties that leave-one-out chooses from, in units of the mean squared norm of the rows.
PENALTIES = tuple(float(p) for p in np.geomspace(0.03, 3000, 11))


@dataclass(frozen=True)
class Spectrum:
    """Singular value decomposition of centred rows, without directions of zero variance.

    Targets (users, columns) are sparse or dense. A penalty is in units of the mean squared norm of the rows.

    References: Hoerl & Kennard, *Ridge Regression*, Technometrics 1970; leave-one-out residuals: Allen, *The Relationship
    Between Variable Selection and Data Augmentation*, Technometrics 1974.
    """

    energies: Floats  # squared singular values, (rank,)
    coordinates: Floats  # rows in the basis of the right singular vectors, (users, rank)
    right: Floats  # right singular vectors, (width, rank)

    def best_penalty(
        self, targets: csr_array | Floats, penalties: tuple[float, ...] = PENALTIES, chunk_size: int = 512
    ) -> float:
        """Return the penalty with the least squared leave-one-out error: a residual is divided by one minus the user's leverage."""
        mean, moments = targets.mean(axis=0), self._moments(targets)
        errors = np.zeros(len(penalties))
        for first in range(0, len(self.coordinates), chunk_size):
            chunk = self.coordinates[first : first + chunk_size]
            rows = targets[first : first + chunk_size]
            rows = (rows.toarray() if isinstance(rows, csr_array) else rows) - mean
            for index, penalty in enumerate(penalties):
                share = chunk / (self.energies + self._absolute(penalty))
                leverage = (share * chunk).sum(axis=1) + 1 / len(self.coordinates)
                residuals = ((rows - share @ moments) ** 2).sum(axis=1) / np.maximum(1 - leverage, 1e-6) ** 2
                errors[index] += residuals.sum()
        return penalties[int(errors.argmin())]

    def weights(self, targets: csr_array | Floats, penalty: float) -> Floats:
        """Return the mapping matrix from centred rows to targets, shape ``(width, columns)``."""
        weights: Floats = self.right @ (self._moments(targets) / (self.energies + self._absolute(penalty))[:, None])
        return weights

    def _moments(self, targets: csr_array | Floats) -> Floats:
        moments: Floats = (targets.T @ self.coordinates).T  # rows are centred, so the mean target adds nothing
        return moments

    def _absolute(self, penalty: float) -> float:
        return penalty * float(self.energies.sum()) / len(self.coordinates)


def eigen(gram: Floats) -> tuple[Floats, Floats]:
    """Return the eigenvalues that are above rounding errors, with their vectors."""
    values, vectors = np.linalg.eigh(gram)
    clear = values > 1e-6 * max(float(values[-1]), 1e-30)
    return values[clear], vectors[:, clear]
