"""JLT: project rows by a public random matrix, with Gaussian noise (drawn in `zoo.privacy.mechanisms.jlt.release_rows`)."""

from zoo.privacy.mechanisms import jlt
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.public_matrix import GaussianMatrix, PublicMatrix
from zoo.privacy.rows.svd_lift import Floats, lifted_release
from zoo.publishers.projected import Projected


class JLT(Projected):
    """Johnson-Lindenstrauss projection with noise: ``(M R + w N) / sqrt(n')``, M public, N Gaussian.

    Privacy unit: one rating (an entry of the matrix, its presence included) or, with ``relation`` on users, all of one user's
    data. Neighbours: ``change_one_rating`` by at most ``rating_range``; ``zero_out_one_user`` or ``replace_one_user``.
    Sensitivity, L2 before projection: ``rating_range``; ``clip`` for zero-out, twice that for replacement. Allowed use: any. Two
    releases compose, each with its own M. With one M they compose under `unit` and `max`; under `gaussian` and `paper` they do
    not (`zoo.privacy.record.shared_projection`): the first release makes M public, and the data of the second may depend on it.

    Reference: Chen et al., *Differential Private Knowledge Transfer for Privacy-Preserving Cross-Domain
    Recommendation*, WWW 2022, algorithm 1 with JLT.

    Departures: the paper lifts singular values instead of adding noise. With at least as many items as users that has the same
    law; with fewer it has no guarantee, so it needs ``paper_faithful``. M is public, which allows an exact calibration of the
    noise: at epsilon 1 about a hundredth of the paper's. Rows are centred over users after the noise, which is post-processing;
    centring first would let one rating move a whole row of the items x users matrix.

    Examples:
        >>> from datamodules import Synthetic
        >>> ratings = Synthetic(num_users=60, num_items=40).source("book")
        >>> release = JLT(epsilon=8.0, num_components=8).publish(ratings, "book")
        >>> release.tensors["rows"].shape, release.record.epsilon
        (torch.Size([60, 8]), 8.0)
    """

    mechanism = jlt.JLT

    def matrix(self, num_items: int, seed: int) -> PublicMatrix:
        """Return independent standard normals, with columns rescaled for the calibration `unit`."""
        return GaussianMatrix(self.num_components, num_items, seed, unit=self.calibration == "unit")

    def lifted_rows(self, lifted: Floats, plan: jlt.JLT, noise: NoiseSource) -> Floats:
        """Return `lifted_release`."""
        return lifted_release(lifted, plan, noise)
