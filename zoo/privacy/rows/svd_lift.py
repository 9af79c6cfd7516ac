"""PriCDR's publishing as printed (Chen et al., WWW 2022, Algorithm 1): lifted singular values, a secret M, no noise.

It is for comparison with the release of this project. `zoo.privacy.mechanisms.jlt` states when the lift
``R1 = U sqrt(S^2 + w^2) V^T`` of ``R = U S V^T`` is distributed like noise. R is items x users here, as in the paper's proofs.

* With fewer items than users, the lift misses the directions outside R's row space. The output is always in that space and
  reveals it: no guarantee for any w.
* With the sparse-aware M, a published row is, given the non-zeros of P, in the span of some rows of ``H D R1``, which moves
  with a rating: no guarantee either.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from zoo.privacy.mechanisms.jlt import JLT, bounded_rows
from zoo.privacy.randomness.noise import NoiseSource, round_to_lattice
from zoo.privacy.rows.hadamard import hadamard_transform, padded_size
from zoo.privacy.rows.sparse_matrix import sparse_gaussian

Floats = npt.NDArray[np.float64]

LARGEST_LIFT = 2**33
"""Bytes of dense ratings above which a decomposition is refused."""


def svd_lift(ratings: Floats, w: float) -> Floats:
    """Return ``U sqrt(S^2 + w^2) V^T`` of ``U S V^T``, shape ``(items, users)``. Not to be released.

    The decomposition is LAPACK's, thin and complete: a truncated or randomised one would miss directions.
    """
    left, values, right = np.linalg.svd(ratings, full_matrices=False)
    return np.asarray((left * np.hypot(values, w)) @ right)


def lifted_ratings(rows: csr_array, plan: JLT, *, centre: bool) -> Floats:
    """Return R1 of lines 2 to 5 of the algorithm: ratings bounded, centred over users and lifted, ``(items, users)``.

    Not to be released. If ratings are centred first, one rating moves a whole row, by ``(1 - 1/users)^1/2`` of its change (L2),
    which is less than without.
    """
    size = 8 * rows.shape[0] * rows.shape[1]
    if size > LARGEST_LIFT:
        raise ValueError(
            f"The decomposition of {rows.shape[1]:,} x {rows.shape[0]:,} ratings takes {size / 2**30:.1f} GiB. "
            f"Allowed: {LARGEST_LIFT / 2**30:g}. Omit paper_faithful."
        )
    ratings = np.ascontiguousarray(bounded_rows(rows, plan).toarray().T)
    if centre:
        ratings -= ratings.mean(axis=1, keepdims=True)
    return svd_lift(ratings, plan.w)


def lifted_release(lifted: Floats, plan: JLT, noise: NoiseSource) -> Floats:
    """Return ``M R1 / sqrt(dim)`` of R1 ``(items, users)`` with a secret M of independent standard normals, ``(users, dim)``.

    Protects the privacy unit of ``plan.relation`` with the paper's w if there are at least as many items as users, and M is from
    a private source and stays secret. The rows are then distributed like ``M R + w N``, with the sensitivity
    ``plan.sensitivity`` (L2, before projection), and any use of them is post-processing. With fewer items than users there is no
    protection.
    """
    secret = noise.normal((plan.dim, len(lifted)))
    scale = math.sqrt(plan.dim)
    return round_to_lattice((secret @ lifted / scale).T, plan.w / scale)


def sparse_lifted_release(lifted: Floats, plan: JLT, density: float, noise: NoiseSource) -> Floats:
    """Return the sparse-aware form ``P H D R1 / sqrt(dim)`` of R1 ``(items, users)``, ``(users, dim)``. It protects no user.

    P, with a share ``density`` of non-zeros, and D are secret. Items are padded with zeros to a power of two, where H is
    orthogonal.
    """
    items, users = lifted.shape
    padded = np.zeros((padded_size(items), users))
    padded[:items] = lifted * np.where(noise.uniform((items, 1)) < 0.5, -1.0, 1.0)
    mixed = hadamard_transform(padded)
    sparse = sparse_gaussian(noise.uniform((plan.dim, len(padded))), density)
    return np.asarray(csr_array(sparse) @ mixed).T / math.sqrt(plan.dim)
