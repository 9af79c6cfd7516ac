"""Vectors that a network made of each user: clipped layer by layer, and noised once.

The clip alone bounds what a user's own vector says of the user, however it was computed. It bounds nothing of what the user's
ratings did to the network, and so to the vectors of others: that is the caller's to say.
"""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from zoo.privacy.accounting.events import GaussianEvent
from zoo.privacy.accounting.gaussian import gauss_epsilon, gauss_mu
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.mechanisms.base import (
    ONE_USER,
    Arrays,
    Finding,
    Mechanism,
    MechanismError,
    Plain,
    Statement,
    check_positive,
    of_row,
)
from zoo.privacy.mechanisms.goodness_of_fit import Squares, of_squares
from zoo.privacy.randomness.noise import NoiseSource, round_to_lattice
from zoo.privacy.rows.bounds import l2_sensitivity

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_MOST_RELEASES = 10**6  # that can share an epsilon


@dataclass(frozen=True, kw_only=True)
class UserVectors(Mechanism):
    """Gaussian noise on users' vectors of several layers; see `UserVectors.calibrate`."""

    name = "EmbeddingPublisher"
    relations = ONE_USER
    tensors, made, checks_noise = frozenset({"vectors"}), "vectors", True

    noise_multiplier: float  # standard deviation of the noise over the sensitivity
    clip: float  # L2 norm that each layer of a user's vectors is clipped to
    num_layers: int = 1
    width: int = 1
    num_releases: int = 1  # that spend the epsilon asked for together

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
        epsilon: float,
        delta: float,
        clip: float | None,
        num_layers: int,
        num_releases: int = 1,
        relation: Relation = Relation.REPLACE_ONE_USER,
        width: int = 1,
        num_users: int = 1,
        num_items: int = 1,
    ) -> Self:
        """Return how much Gaussian noise a user's vectors need for an epsilon at delta. Opens no data.

        Protects one user, as far as the user's own vectors go. Each layer is clipped to an L2 norm of ``clip``, a public number and
        never a quantile of the data, so that replacing the user moves it by at most ``2 clip``, taking the user out (a vector of
        zeros) by ``clip``, and all layers together by the root of their number as much: they compose.

        So do the releases of several sources that may all have the user: ``epsilon`` is what ``num_releases`` of them, each such
        a one, spend together, so that each has the root of their number as much noise. What one alone spends is the
        ``epsilon`` of this, and ``requested_epsilon`` what all of them do.

        Source: Yang et al., *FedGCDR* (NeurIPS 2024), section 4.2, whose noise is for one layer of norm 1 that moves by 1.
        """
        if relation.unit is not Unit.USER:
            raise ValueError(
                f"Vectors are made of all that a user has, so users are protected, not {relation.value!r}. Take replace_one_user."
            )
        if num_layers < 1:
            raise ValueError(f"num_layers must be at least 1, got {num_layers}.")
        check_releases(num_releases)
        l2_sensitivity(relation, 1.0, clip)  # refuses a user without a bound
        assert clip is not None
        mu = gauss_mu(epsilon, delta) / math.sqrt(num_releases)
        if num_releases > 1 and not gauss_epsilon(delta, mu):
            raise ValueError(
                f"epsilon {epsilon:g} shared among {num_releases} releases leaves each of them none at delta {delta:g}, so its "
                "record could claim nothing. Take a larger epsilon, or fewer releases."
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
    def event(self) -> GaussianEvent:
        """One Gaussian release of all layers."""
        return GaussianEvent(self.noise_multiplier)

    @property
    def sensitivity(self) -> float:
        """``clip`` for zero-out, twice that for replacement, times the root of the number of layers."""
        return math.sqrt(self.num_layers) * of_row(self.relation, self.clip)

    @property
    def noise_std(self) -> float:
        """``noise_multiplier sensitivity``."""
        return self.noise_multiplier * self.sensitivity

    @property
    def requested_epsilon(self) -> float | None:
        """What all releases together cost that share it."""
        if self.num_releases == 1:
            return None
        return gauss_epsilon(self.delta, math.sqrt(self.num_releases) / self.noise_multiplier)

    @property
    def statement(self) -> Statement:
        """That of one user's vectors, everything else being given."""
        return Statement(
            ("layers_clipped", "settings_chosen_blind", *(("shared_epsilon",) if self.num_releases > 1 else ())),
            (
                "users",
                "influence_on_others",
                "metrics",
                "evaluation_items",
                "training_failure",
            ),
            ("others_given",),
        )

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Sizes of the vectors, and how many releases share the epsilon."""
        shared: dict[str, Plain] = {} if self.num_releases == 1 else {"num_releases": self.num_releases}
        return {"num_users": self.num_users, "num_layers": self.num_layers, "width": self.width, **shared}

    def check(self, tensors: Arrays) -> list[Finding]:
        """Lattice, and squares of all numbers."""
        vectors = tensors["vectors"]
        users, layers, width = vectors.shape
        if (self.num_layers, self.width) != (layers, width) or users > self.num_users:
            raise MechanismError(
                f"The record of {self.name} is of {self.num_users} users, {self.num_layers} layers and width {self.width}. The "
                f"vectors have the shape {vectors.shape}."
            )
        squares = Squares.of(vectors.reshape(users, layers * width), self.noise_std, centred=False, cells=False)
        return of_squares(squares, self.noise_std, centred=False, independent=True)


@dataclass(frozen=True, kw_only=True)
class UserPositions(UserVectors):
    """The same for users' positions in the directions of a domain, which are one layer and no longer than 1."""

    name = "ProjectionPublisher"

    @property
    def public_inputs(self) -> dict[str, Plain]:
        """Those of vectors, and the number of items."""
        return {**super().public_inputs, "num_items": self.num_items}


def check_releases(num_releases: int) -> None:
    """Refuse an epsilon that is shared among fewer than one release."""
    if isinstance(num_releases, bool) or not isinstance(num_releases, int) or num_releases < 1:
        raise ValueError(
            f"num_releases must be a whole number of at least 1, got {num_releases!r}: how many releases of the same users spend "
            "epsilon together, one for each source domain."
        )


def clip_vectors(vectors: npt.NDArray[np.floating[Any]], clip: float | None) -> Floats:
    """Vectors (users, layers, width), each layer scaled down to an L2 norm of at most ``clip``; None leaves all as they are.

    `ValueError` if they hold NaN or infinite values, which no clip bounds.
    """
    values: Floats = np.array(vectors, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(
            "The users' vectors hold NaN or infinite values, so training diverged. Lower the network's lr, or train it for fewer "
            "epochs."
        )
    if clip is None:
        return values
    norms = np.linalg.norm(values, axis=2, keepdims=True)
    clipped: Floats = values * np.minimum(1.0, clip / np.maximum(norms, clip))
    return clipped


def noisy_vectors(vectors: npt.NDArray[np.floating[Any]], plan: UserVectors, noise: NoiseSource) -> Singles:
    """Vectors (users, layers, width) clipped and noised as the mechanism says, on the public lattice of its noise, float32.

    Afterwards anything may be done with them. Everybody who may be in the data has a row: one of zeros, if there is nothing.
    """
    if vectors.ndim != 3 or vectors.shape[1] != plan.num_layers:
        raise ValueError(
            f"The plan is for {plan.num_layers} layers, and the vectors have the shape {vectors.shape}, not (users, layers, width)."
        )
    noisy = clip_vectors(vectors, plan.clip)
    noisy += plan.noise_std * noise.normal(noisy.shape)
    return round_to_lattice(noisy, plan.noise_std).astype(np.float32)
