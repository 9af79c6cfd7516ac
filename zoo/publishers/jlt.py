"""JLT: rows projected by a public random matrix, with Gaussian noise (drawn in `zoo.privacy.mechanisms.jlt.release_rows`)."""

from zoo.privacy.mechanisms import jlt
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.svd_lift import Floats, lifted_release
from zoo.publishers.projected import Projected


class JLT(Projected):
    """Johnson-Lindenstrauss projection with noise: ``(M R + w N) / sqrt(n')``, M public, N Gaussian.

    Who is protected: one rating (a cell of the matrix, its presence included) or, with ``relation`` on users, all of
    one user's data. Neighbours: ``change_one_rating`` by at most ``rating_range``; ``zero_out_one_user`` or
    ``replace_one_user``. Sensitivity, L2 before projection: ``rating_range``; ``clip`` for zero-out, twice that for
    replacement. Afterwards: anything, as often as wanted. Two releases compose, each with an M of its own. Through one M they do
    under `unit` and `max`; under `gaussian` and `paper` they are not counted together
    (`zoo.privacy.record.shared_projection`): the first has made M public, and the second's data may have changed since.

    Reference: Chen et al., *Differential Private Knowledge Transfer for Privacy-Preserving Cross-Domain
    Recommendation*, WWW 2022, algorithm 1 with JLT.

    Departures: the paper lifts singular values instead of adding noise. With at least as many items as users that has
    the same law; with fewer it protects nobody, so the lift is made on request alone (``paper_faithful``). M is public,
    which lets the noise be calibrated exactly: at epsilon 1 about a hundredth of the paper's. Rows are centred over users
    after the noise, which is post-processing, so that one rating does not move a whole centred row of the items x users
    matrix first.
    """

    mechanism = jlt.JLT

    def matrix(self, num_items: int, seed: int) -> PublicMatrix:
        """Independent standard normals, their columns rescaled for the calibration `unit`."""
        return GaussianMatrix(self.num_components, num_items, seed, unit=self.calibration == "unit")

    def lift_weakness(self, num_users: int, num_items: int) -> str | None:
        """The printed form has a guarantee if there are at least as many items as users."""
        if num_items >= num_users:  # the lift reaches every direction, and the law is that of noise
            return None
        return f"the lift of {num_items} items misses directions of {num_users} users, and the rows show which"

    def lifted_rows(self, lifted: Floats, plan: jlt.JLT, noise: NoiseSource) -> Floats:
        """`lifted_release`."""
        return lifted_release(lifted, plan, noise)
