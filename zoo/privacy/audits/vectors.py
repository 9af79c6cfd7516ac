"""Worst pair of published vectors: a user whose vectors point one way, and the other way, or who has none."""

import numpy as np

from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.two_world import Audit, Floats, worlds_of
from zoo.privacy.mechanisms.vectors import UserVectors, noisy_vectors
from zoo.privacy.randomness.noise import NoiseSource

_WIDTH = 3
_BEYOND = 3.0  # length of a vector in clips
_AT_ONCE = 2**18


def vectors_audit(name: str, plan: UserVectors) -> Audit:
    """Audit of Gaussian noise on clipped vectors, in two worlds that are as far apart as clipping lets them be.

    Every user is a run, for noise is drawn user by user. Vectors are longer than the clip; a mechanism that clips all layers
    together, or none, is seen.
    """
    way = np.ones((plan.num_layers, _WIDTH)) / np.sqrt(_WIDTH)
    other = -way if plan.relation is Relation.REPLACE_ONE_USER else np.zeros_like(way)

    def noisy(vectors: Floats, count: int, noise: NoiseSource) -> Floats:
        return noisy_vectors(np.broadcast_to(vectors, (count, *vectors.shape)), plan, noise).astype(np.float64)

    def scores(vectors: Floats, count: int, noise: NoiseSource) -> Floats:
        found: Floats = (noisy(vectors, count, noise) * way).sum(axis=(1, 2))
        return found

    def residuals(count: int, noise: NoiseSource) -> Floats:
        users = -(-count // way.size)
        added: Floats = noisy(_BEYOND * plan.clip * way, users, noise) - plan.clip * way
        return added

    worlds = worlds_of(
        scores, _BEYOND * plan.clip * other, _BEYOND * plan.clip * way, at_once=max(1, _AT_ONCE // way.size)
    )
    return Audit(
        name,
        plan.epsilon,
        plan.delta,
        worlds,
        mu=plan.mu,
        relation=plan.relation,
        residuals=residuals,
        sigma=plan.noise_std,
    )


def vector_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Audits of vectors of one layer and of several, under both relations."""
    return [
        vectors_audit(
            "EmbeddingPublisher", UserVectors.calibrate(epsilon=epsilon, delta=delta, clip=0.5, num_layers=1)
        ),
        vectors_audit(
            "EmbeddingPublisher, 3 layers", UserVectors.calibrate(epsilon=epsilon, delta=delta, clip=0.5, num_layers=3)
        ),
        vectors_audit(
            "EmbeddingPublisher, zero out one user",
            UserVectors.calibrate(
                epsilon=epsilon, delta=delta, clip=0.5, num_layers=2, relation=Relation.ZERO_OUT_ONE_USER
            ),
        ),
    ]
