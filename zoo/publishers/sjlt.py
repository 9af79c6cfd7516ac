"""SJLT: project rows by a public sparse-aware random matrix, with Gaussian noise."""

from typing import Any, Literal

from zoo.privacy.mechanisms import jlt
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.public_matrix import PublicMatrix
from zoo.privacy.rows.sparse_matrix import SparseMatrix, check_density
from zoo.privacy.rows.svd_lift import Floats, sparse_lifted_release
from zoo.publishers.projected import Projected


class SJLT(Projected):
    """Sparse-aware projection with noise: ``(M R + w N) / sqrt(n')``, ``M = P H D`` public, N Gaussian.

    P is a sparse Gaussian matrix, H the Walsh-Hadamard transform, D random signs: H spreads the few ratings of a user
    over all coordinates before P picks some.

    Privacy unit: one rating (an entry of the matrix, its presence included); not a whole user, whose row may lie in a direction
    that M stretches. Neighbours: ``change_one_rating`` by at most ``rating_range``. Sensitivity, L2 before projection:
    ``rating_range``. Allowed use: any. Two releases compose, with one M or two, because both calibrations hold for every M.

    Reference: Chen et al., *Differential Private Knowledge Transfer for Privacy-Preserving Cross-Domain
    Recommendation*, WWW 2022, algorithm 1 with SJLT, definition 3.7.

    Departures: the paper lifts singular values and adds no noise, which protects no user with this M; this needs
    ``paper_faithful``. M is public and N protects, with the accounting of `JLT`. Items are padded to a power of two, where H is
    orthogonal. Columns of M are rescaled to equal norm. Rows are centred after the noise.

    Args:
        epsilon: Privacy loss; null with `attack_success`.
        num_components: Width n' of the published rows.
        density: Share q of non-zeros in P.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of entries (users times items).
        calibration: `unit` (columns of M of equal norm; least noise) or `max` (largest column of ``P H D``).
        relation: `change_one_rating`; those on users are refused.
        settings: The others of `Projected`.

    Examples:
        >>> from datamodules import Synthetic
        >>> ratings = Synthetic(num_users=60, num_items=40).source("book")
        >>> SJLT(epsilon=8.0, num_components=8).publish(ratings, "book").width
        8
    """

    mechanism = jlt.SJLT

    def __init__(
        self,
        epsilon: float | None = None,
        num_components: int = 400,
        density: float = 0.5,
        delta: float | None = None,
        calibration: Literal["unit", "max"] = "unit",
        relation: Literal["change_one_rating", "zero_out_one_user", "replace_one_user"] = "change_one_rating",
        **settings: Any,  # noqa: ANN401  checked by the base
    ) -> None:
        check_density(density)
        if calibration not in ("unit", "max"):
            raise ValueError(f"calibration of SJLT must be 'unit' or 'max', got {calibration!r}. Or use JLT.")
        if relation != "change_one_rating":
            raise ValueError(f"SJLT does not protect a whole user, and relation is {relation!r}. Use JLT.")
        self.density = density
        super().__init__(epsilon, num_components, delta, calibration, relation, clip=None, **settings)

    def matrix(self, num_items: int, seed: int) -> PublicMatrix:
        """Return ``P H D``, with columns rescaled for the calibration `unit`."""
        unit = self.calibration == "unit"
        return SparseMatrix(self.num_components, num_items, seed, density=self.density, unit=unit)

    def lifted_rows(self, lifted: Floats, plan: jlt.JLT, noise: NoiseSource) -> Floats:
        """Return `sparse_lifted_release`."""
        return sparse_lifted_release(lifted, plan, self.density, noise)
