"""Users' vectors from a network: clipped layer by layer, with noise added once.

The clip bounds what a user's own vector reveals, however it was computed. It does not bound the influence of the user's ratings on
the network, and so on the vectors of others. The caller states this.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from zoo.privacy.accounting.gaussian import gauss_epsilon, target_mu
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.mechanisms.base import (
    ONE_USER,
    Arrays,
    Finding,
    GaussianMechanism,
    MechanismError,
    Plain,
    Statement,
    check_positive,
)
from zoo.privacy.mechanisms.goodness_of_fit import Squares, square_findings
from zoo.privacy.randomness.noise import NoiseSource, round_to_lattice
from zoo.privacy.rows.bounds import l2_sensitivity

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_MOST_RELEASES = 10**6  # that can share an epsilon


@dataclass(frozen=True, kw_only=True)
class UserVectors(GaussianMechanism):
    """Gaussian noise on users' vectors of several layers; see `UserVectors.calibrate`."""

    name = "EmbeddingPublisher"
    relations = ONE_USER
    tensors, output_name, checks_noise = frozenset({"vectors"}), "vectors", True

    clip: float  # L2 norm that each layer of a user's vectors is clipped to
    num_layers: int = 1
    width: int = 1
    num_releases: int = 1  # that share the requested epsilon

    def __post_init__(self) -> None:
        """Refuse vectors without layers."""
        super().__post_init__()
        check_positive(self, "noise_multiplier", "clip", "num_layers", "width")
        check_releases(self.num_releases)
        if self.num_releases > _MOST_RELEASES:
            raise MechanismError(f"num_releases is {self.num_releases}. At most {_MOST_RELEASES} can share an epsilon.")

    @classmethod
    def calibrate(
        cls,
        *,
        epsilon: float | None = None,
        attack_success: float | None = None,
        delta: float,
        clip: float | None,
        num_layers: int,
        num_releases: int = 1,
        relation: Relation = Relation.REPLACE_ONE_USER,
        width: int = 1,
        num_users: int = 1,
        num_items: int = 1,
    ) -> Self:
        """Return the mechanism with the least noise on a user's vectors for epsilon or an attack success. Opens no data.

        Protects one user, for the user's own vectors. Each layer is clipped to an L2 norm of ``clip``, a public number and
        never a quantile of the data. Replacing the user moves a layer by at most ``2 clip``, and zeroing it out by ``clip``.
        The layers compose: all together move by the root of their number as much.

        Releases of several sources that may contain the same user compose too. ``num_releases`` of them share ``epsilon``, and
        each has the root of their number as much noise. The cost of one is the mechanism's ``epsilon``, that of all is
        ``requested_epsilon``.

        Reference: Yang et al., *FedGCDR* (NeurIPS 2024), section 4.2, whose noise is for one layer of norm 1 that moves by 1.
        """
        if relation.unit is not Unit.USER:
            raise ValueError(f"relation is {relation.value!r}. Vectors protect users: use replace_one_user.")
        check_releases(num_releases)
        l2_sensitivity(relation, 1.0, clip)  # refuses a user without a bound
        assert clip is not None
        mu = target_mu(epsilon, delta, attack_success) / math.sqrt(num_releases)
        if num_releases > 1 and not gauss_epsilon(delta, mu):
            raise ValueError(
                f"epsilon is {epsilon}, shared among {num_releases} releases: too little at delta {delta:g}. Raise "
                "epsilon, or use fewer releases."
            )
        return cls(
            relation=relation,
            delta=delta,
            noise_multiplier=1 / mu,
            clip=clip,
            num_layers=num_layers,
            width=width,
            num_releases=num_releases,
            num_users=num_users,
            num_items=num_items,
        )

    @property
    def sensitivity(self) -> float:
        """``clip`` (zeroing out) or ``2 clip`` (replacement), times the root of the number of layers."""
        return math.sqrt(self.num_layers) * super().sensitivity

    @property
    def requested_epsilon(self) -> float | None:
        """Epsilon of all releases that share it, or None."""
        if self.num_releases == 1:
            return None
        return gauss_epsilon(self.delta, math.sqrt(self.num_releases) / self.noise_multiplier)

    @property
    def statement(self) -> Statement:
        """Codes for one user's vectors, with everything else fixed."""
        return Statement(
            ("layers_clipped", "settings_chosen_blind", *(("shared_epsilon",) if self.num_releases > 1 else ())),
            ("users", "influence_on_others", "metrics", "evaluation_items", "training_failure"),
            ("others_given",),
        )

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Sizes of the vectors, and the number of releases that share epsilon."""
        shared: dict[str, Plain] = {} if self.num_releases == 1 else {"num_releases": self.num_releases}
        return {"num_users": self.num_users, "num_layers": self.num_layers, "width": self.width, **shared}

    def check(self, tensors: Arrays) -> list[Finding]:
        """Test the lattice, and the squares of all numbers."""
        vectors = tensors["vectors"]
        users, layers, width = vectors.shape
        if (self.num_layers, self.width) != (layers, width) or users > self.num_users:
            raise MechanismError(
                f"The vectors have shape {vectors.shape}. The record of {self.name} has ({self.num_users}, "
                f"{self.num_layers}, {self.width})."
            )
        flat = vectors.reshape(users, layers * width)
        squares = Squares.of(flat, self.noise_std, centred=False, binary=False)
        return square_findings(squares, self.noise_std, centred=False, independent=True)


@dataclass(frozen=True, kw_only=True)
class UserPositions(UserVectors):
    """The same for users' positions in the directions of a domain: one layer, of length 1 at most."""

    name = "ProjectionPublisher"

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Inputs of `UserVectors`, and the number of items."""
        return {**super().public_inputs, "num_items": self.num_items}


def check_releases(num_releases: int) -> None:
    """Refuse a number of releases that is no positive integer."""
    if isinstance(num_releases, bool) or not isinstance(num_releases, int) or num_releases < 1:
        raise ValueError(f"num_releases is {num_releases!r}. Allowed: integers >= 1.")


def clip_vectors(vectors: npt.NDArray[np.floating[Any]], clip: float | None) -> Floats:
    """Return vectors (users, layers, width) with each layer clipped to an L2 norm of ``clip``; None clips nothing.

    Raises:
        ValueError: The vectors hold NaN or infinite values, which no clip bounds.
    """
    values: Floats = np.array(vectors, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("The vectors hold NaN or infinite values. Lower lr or max_epochs.")
    if clip is None:
        return values
    norms = np.linalg.norm(values, axis=2, keepdims=True)
    clipped: Floats = values * np.minimum(1.0, clip / np.maximum(norms, clip))
    return clipped


def noisy_vectors(vectors: npt.NDArray[np.floating[Any]], plan: UserVectors, noise: NoiseSource) -> Singles:
    """Return vectors (users, layers, width) with clip and noise of the mechanism, on its public lattice, float32.

    Any use of them is post-processing. Every possible user has a row; the row of a user without data is zero.
    """
    if vectors.ndim != 3 or vectors.shape[1] != plan.num_layers:
        raise ValueError(f"The vectors have shape {vectors.shape}. The plan needs (users, {plan.num_layers}, width).")
    noisy = clip_vectors(vectors, plan.clip)
    noisy += plan.noise_std * noise.normal(noisy.shape)
    return round_to_lattice(noisy, plan.noise_std).astype(np.float32)
