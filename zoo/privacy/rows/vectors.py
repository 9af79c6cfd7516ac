"""Vectors that a network made of each user: clipped layer by layer, and noised once.

The clip alone bounds what a user's own vector says of the user, however it was computed. It bounds nothing of what the user's
ratings did to the network, and so to the vectors of others: that is the caller's to say.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from zoo.privacy.accounting.events import GaussianEvent
from zoo.privacy.accounting.gaussian import gauss_epsilon, gauss_mu
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.randomness.noise import NoiseSource, round_to_lattice
from zoo.privacy.rows.bounds import l2_sensitivity
from zoo.privacy.rows.plan import RowsPlan

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class VectorsPlan(RowsPlan):
    """Gaussian noise on vectors of several layers; see `plan_vectors`."""

    mu: float
    clip: float
    num_layers: int
    num_releases: int = 1  # that spend the epsilon asked for together


def plan_vectors(
    *,
    epsilon: float,
    delta: float,
    clip: float | None,
    num_layers: int,
    num_releases: int = 1,
    relation: Relation = Relation.REPLACE_ONE_USER,
) -> VectorsPlan:
    """How much Gaussian noise a user's vectors need for an epsilon at delta. Opens no data.

    Protects one user, as far as the user's own vectors go. Each layer is clipped to an L2 norm of ``clip``, a public number and
    never a quantile of the data, so that replacing the user moves it by at most ``2 clip``, taking the user out (a vector of
    zeros) by ``clip``, and all layers together by the root of their number as much: they compose.

    So do the releases of several sources that may all have the user: ``epsilon`` is what ``num_releases`` of them, each of such
    a plan, spend together, so that each has the root of their number as much noise. What one alone spends is the plan's
    ``epsilon``, and ``requested_epsilon`` what all of them do.

    Source: Yang et al., *FedGCDR* (NeurIPS 2024), section 4.2, whose noise is for one layer of norm 1 that moves by 1.
    """
    if relation.unit is not Unit.USER:
        raise ValueError(
            f"Vectors are made of all that a user has, so users are protected, not {relation.value!r}. Take replace_one_user."
        )
    if num_layers < 1:
        raise ValueError(f"num_layers must be at least 1, got {num_layers}.")
    check_releases(num_releases)
    sensitivity = math.sqrt(num_layers) * l2_sensitivity(relation, 1.0, clip)
    assert clip is not None  # seen to by what bounds users
    mu = gauss_mu(epsilon, delta) / math.sqrt(num_releases)
    sigma = sensitivity / mu
    alone = gauss_epsilon(delta, mu) if num_releases > 1 else epsilon
    if not alone:
        raise ValueError(
            f"epsilon {epsilon:g} shared among {num_releases} releases leaves each of them none at delta {delta:g}, so its record "
            "could claim nothing. Take a larger epsilon, or fewer releases."
        )
    return VectorsPlan(
        relation=relation,
        epsilon=alone,
        requested_epsilon=gauss_epsilon(delta, math.sqrt(num_releases) * mu) if num_releases > 1 else None,
        delta=delta,
        mu=mu,
        sensitivity=sensitivity,
        clip=clip,
        noise_std=sigma,
        event=GaussianEvent(sigma / sensitivity),
        num_layers=num_layers,
        num_releases=num_releases,
    )


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


def noisy_vectors(vectors: npt.NDArray[np.floating[Any]], plan: VectorsPlan, noise: NoiseSource) -> Singles:
    """Vectors (users, layers, width) clipped and noised as a plan says, on the public lattice of its noise, float32.

    Afterwards anything may be done with them. Everybody who may be in the data has a row: one of zeros, if there is nothing.
    """
    if vectors.ndim != 3 or vectors.shape[1] != plan.num_layers:
        raise ValueError(
            f"The plan is for {plan.num_layers} layers, and the vectors have the shape {vectors.shape}, not (users, layers, width)."
        )
    noisy = clip_vectors(vectors, plan.clip)
    noisy += plan.noise_std * noise.normal(noisy.shape)
    return round_to_lattice(noisy, plan.noise_std).astype(np.float32)
