"""What tests of rows share: a projection of rows as they are."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.mechanisms.jlt import JLT, release_rows
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.public_matrix import PublicMatrix

Floats = npt.NDArray[np.float64]


def project(rows: csr_array, matrix: PublicMatrix, w: float, noise: NoiseSource) -> Floats:
    """The release of ratings up to 1e9 with any w and any matrix."""
    plan = JLT.calibrate(epsilon=1.0, delta=1e-5, dim=matrix.dim)
    return release_rows(
        rows, replace(plan, w=w, calibration="gaussian", largest_norm=None, rating_range=1e9), matrix, noise
    )
