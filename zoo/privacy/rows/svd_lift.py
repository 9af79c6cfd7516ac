"""PriCDR's publishing as printed (Chen et al., WWW 2022, Algorithm 1): singular values lifted, a secret M, no noise.

For comparison with what this project releases instead, `zoo.privacy.mechanisms.jlt`, which says when the lift
``R1 = U sqrt(S^2 + w^2) V^T`` of ``R = U S V^T`` has the law of noise. R is items x users here, as in the paper's proofs.

* Fewer items than users: the lift misses the directions outside R's row space. What is published always lies in that
  space, which shows it: no guarantee, whatever w is.
* With the sparse-aware M a published row lies, given the non-zeros of P, in the span of some rows of ``H D R1``, which moves
  when a rating moves: no guarantee either.
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
"""Bytes of the dense ratings beyond which a decomposition is refused."""


def svd_lift(ratings: Floats, w: float) -> Floats:
    """``U sqrt(S^2 + w^2) V^T`` of ``U S V^T``, shape ``(items, users)``. Not to be released.

    The decomposition is LAPACK's, thin and complete: a truncated or randomised one would miss directions.
    """
    left, values, right = np.linalg.svd(ratings, full_matrices=False)
    return np.asarray((left * np.hypot(values, w)) @ right)


def lifted_ratings(rows: csr_array, plan: JLT, *, centre: bool) -> Floats:
    """Lines 2 to 5 of the algorithm: ratings ``(users, items)`` bounded, each item centred over users, lifted.

    Not to be released. Centring first moves a whole row with one rating, by ``(1 - 1/users)^1/2`` of its change (L2):
    less than without. The result, R1, has shape ``(items, users)``.
    """
    size = 8 * rows.shape[0] * rows.shape[1]
    if size > LARGEST_LIFT:
        raise ValueError(
            f"The published form decomposes {rows.shape[1]:,} x {rows.shape[0]:,} dense ratings, {size / 2**30:.1f} GiB; at "
            f"most {LARGEST_LIFT / 2**30:g} GiB are tried. Leave paper_faithful out: the release then has the same law "
            "where that one holds, and needs no decomposition."
        )
    ratings = np.ascontiguousarray(bounded_rows(rows, plan).toarray().T)
    if centre:
        ratings -= ratings.mean(axis=1, keepdims=True)
    return svd_lift(ratings, plan.w)


def lifted_release(lifted: Floats, plan: JLT, noise: NoiseSource) -> Floats:
    """``M R1 / sqrt(dim)`` of R1 ``(items, users)`` with a secret M of independent standard normals, shape ``(users, dim)``.

    Protects what ``plan.relation`` says with the paper's w, if there are at least as many items as users
    and M is drawn from a private source and never shown: in law the rows are ``M R + w N``, with the sensitivity
    ``plan.sensitivity`` (L2, before projection). Whatever is done with the result is post-processing. With fewer items
    than users it protects nobody.
    """
    secret = noise.normal((plan.dim, len(lifted)))
    scale = math.sqrt(plan.dim)
    return round_to_lattice((secret @ lifted / scale).T, plan.w / scale)


def sparse_lifted_release(lifted: Floats, plan: JLT, density: float, noise: NoiseSource) -> Floats:
    """``P H D R1 / sqrt(dim)`` of R1 ``(items, users)``, the sparse-aware form, ``(users, dim)``. Protects nobody, whatever w is.

    P, of which ``density`` is not zero, and D are secret. Items are padded with zeros to a power of two, where H is orthogonal.
    """
    items, users = lifted.shape
    padded = np.zeros((padded_size(items), users))
    padded[:items] = lifted * np.where(noise.uniform((items, 1)) < 0.5, -1.0, 1.0)
    mixed = hadamard_transform(padded)
    sparse = sparse_gaussian(noise.uniform((plan.dim, len(padded))), density)
    return np.asarray(csr_array(sparse) @ mixed).T / math.sqrt(plan.dim)
