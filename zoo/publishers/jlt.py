"""JLT: rows projected by a public random matrix, with Gaussian noise."""

from __future__ import annotations

from typing import Literal

from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.projection import Calibration, ProjectionPlan, public_matrix
from zoo.privacy.rows.public_matrix import PublicMatrix
from zoo.privacy.rows.svd_lift import Floats, lift_holds, lifted_release
from zoo.publishers.projected import Projected


class JLT(Projected):
    """Johnson-Lindenstrauss projection with noise: ``(M R + w N) / sqrt(n')``, M public, N Gaussian.

    Who is protected: one rating (a cell of the matrix, its presence included) or, with ``relation`` on users, all of
    one user's data. Neighbours: ``change_one_rating`` by at most ``rating_range``; ``zero_out_one_user`` or
    ``replace_one_user``. Sensitivity, L2 before projection: ``rating_range``; ``clip`` for zero-out, twice that for
    replacement. Afterwards: anything, as often as wanted. Two releases compose, whether or not they share M.

    Reference: Chen et al., *Differential Private Knowledge Transfer for Privacy-Preserving Cross-Domain
    Recommendation*, WWW 2022, algorithm 1 with JLT.

    Departures: the paper lifts singular values instead of adding noise. With at least as many items as users that has
    the same law; with fewer it protects nobody, so the lift is made on request alone (``paper_faithful``). M is public,
    which lets the noise be calibrated exactly: at epsilon 1 about a hundredth of the paper's. Rows are centred over users
    after the noise, which is post-processing, so that one rating does not move a whole centred row of the items x users
    matrix first.

    Args:
        epsilon: Privacy loss.
        num_components: Width n' of the published rows.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        calibration: `unit` (columns of M of equal norm; least noise), `gaussian` (M as in the paper; the only one for
            users), `max` (largest column of the realised M), or `paper` (the paper's w; the record states the epsilon
            that this noise really gives).
        relation: `change_one_rating`, `zero_out_one_user` or `replace_one_user`.
        rating_range: Largest rating; 1 for binary data.
        clip: L2 norm that users' rows are clipped to; for users only.
        centre: Whether to subtract the published mean row.
        seed: Of M, public and in the record.
        noise_seed: Null: noise from the operating system. A number makes the release repeatable, and anybody who knows
            it can subtract the noise: the record then says `guarantee: none`.
        paper_faithful: Whether to publish as the paper prints it, for comparison: ratings centred first, singular values
            lifted by the paper's w, a secret M. Slow, and in memory whole. With at least as many items as users the
            record states the epsilon that this really gives; with fewer it says `guarantee: none`.

    Raises:
        ValueError: If an argument is out of range or does not go with the others.
    """

    mechanism = "JLT"

    def __init__(
        self,
        epsilon: float,
        num_components: int = 400,
        delta: float | None = None,
        calibration: Calibration = "unit",
        relation: Literal["change_one_rating", "zero_out_one_user", "replace_one_user"] = "change_one_rating",
        rating_range: float = 1.0,
        clip: float | None = None,
        centre: bool = True,
        seed: int = 0,
        noise_seed: int | None = None,
        paper_faithful: bool = False,
    ) -> None:
        super().__init__(
            epsilon,
            num_components,
            delta,
            calibration,
            relation,
            rating_range,
            clip,
            centre,
            seed,
            noise_seed,
            paper_faithful,
        )

    def matrix(self, num_items: int) -> PublicMatrix:
        """Independent standard normals, their columns rescaled for the calibration `unit`."""
        return public_matrix(self.calibration, self.num_components, num_items, self.seed)

    def lift_weakness(self, num_users: int, num_items: int) -> str | None:
        """The printed form has a guarantee if there are at least as many items as users."""
        if lift_holds(num_users, num_items):
            return None
        return f"the lift of {num_items} items misses directions of {num_users} users, and the rows show which"

    def _lifted_release(self, lifted: Floats, plan: ProjectionPlan, noise: NoiseSource) -> Floats:
        return lifted_release(lifted, plan, noise)
