"""EmbeddingPublisher: trains a recommender of one domain at the source and releases what it made of each user."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from pytorch_lightning import Callback, LightningModule
from torch import Tensor

from zoo.data.ratings import Ratings
from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.rows import vectors_audit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.base import Plain
from zoo.privacy.mechanisms.vectors import UserVectors, check_releases, clip_vectors, noisy_vectors
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import unprotected_record
from zoo.publishers.base import PlannedRelease, PublicSizes
from zoo.publishers.trained import SourceRatings, TrainedPublisher, check_has_ratings

#: Why there is no guarantee where no noise is asked for.
BARE = "what the network made of each user is handed over without noise"


@runtime_checkable
class EmbedsUsers(Protocol):
    """What a recommender of one domain offers to be trained by `EmbeddingPublisher`: `BPR`, `NeuMF`, `LightGCN` and `FedGNN` do."""

    @property
    def vector_shape(self) -> tuple[int, int]:
        """Layers and width of a user's vectors, from settings alone."""

    def user_vectors(self) -> Tensor:
        """Vectors of all users, shape ``(num_users, layers, width)``, after training."""


class EmbeddingPublisher(TrainedPublisher):
    """Trains a recommender on one source domain, and releases the vectors of its users; nothing of the items.

    Who is protected: one user, as far as the user's own vectors go. Neighbours: ``replace_one_user``, or ``zero_out_one_user``.
    Sensitivity, L2: ``2 clip`` a layer for replacement and ``clip`` for zero-out, times the root of the number of layers. All
    layers are noised at once by the Gaussian mechanism. Afterwards: anything, as often as wanted.

    **What that does not prove.** The clip bounds a user's own vectors however they were computed, and nothing else. The network
    was trained on the user's ratings too, so they also moved everybody else's vectors, which the release holds. The guarantee
    takes these as given, and the record says so as a condition: the epsilon is that of the channel which carries a user's own
    vectors, never of the user's ratings in the whole release.

    **Several sources.** A user may be in every one of them, so what the releases of all lose adds up, exactly by the roots of sums
    of squares. With `num_releases` set to the number of sources, each release has the root of that many times the noise, and all of
    them together spend `epsilon`; its record states what it spends alone, and that it is one of so many. Left at 1, `epsilon` is
    that of each release by itself: right where only one domain's data of a user are to be protected, and for a single source.

    A user of the source without ratings has vectors of zeros before the noise, so that the noise hides who has any. With
    ``epsilon: null`` there is no noise and no guarantee. The last epoch is released; nothing is chosen by the ratings.

    References: Man et al., *EMCDR*, IJCAI 2017, for what is released; Yang et al., *FedGCDR*, NeurIPS 2024, for the noise.

    Departures: in FedGCDR the noise is for a sensitivity of 1 where replacement moves a vector of norm 1 by 2, layers and domains
    are not composed, and the classical formula is used beyond its range.

    Args:
        network: What is trained: `BPR`, `NeuMF`, `LightGCN`, `FedGNN`, or another LightningModule with the members of
            `EmbedsUsers` that reads no release.
        epsilon: Privacy loss of all `num_releases` together; null: no noise and no guarantee.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        clip: L2 norm that each layer of a user's vectors is clipped to: a public number, never read off the data. Needed with
            epsilon; without, null leaves vectors as they are.
        num_releases: How many releases of the same users spend `epsilon` together: that of the source domains. Nobody counts them
            here; what was spent is what `privacy total`, a budget and a report add up.
        relation: `replace_one_user` or `zero_out_one_user`.
        max_epochs: Epochs of training; public, the same whatever the ratings are.
        batch_size: Observed pairs, or users, in a batch of the training.
        noise_seed: Null: noise from the operating system. A number makes the release repeatable, and anybody who knows it can
            subtract the noise: the record then says `guarantee: none`.
        callbacks: Of its training; no guarantee rests on them.
        **training: As :class:`TrainedPublisher` takes it.
    """

    def __init__(
        self,
        network: LightningModule,
        epsilon: float | None = None,
        delta: float | None = None,
        clip: float | None = None,
        num_releases: int = 1,
        relation: Literal["replace_one_user", "zero_out_one_user"] = "replace_one_user",
        max_epochs: int = 50,
        batch_size: int = 2048,
        noise_seed: int | None = None,
        callbacks: list[Callback] | None = None,
        **training: Any,  # noqa: ANN401
    ) -> None:
        if not isinstance(network, EmbedsUsers) or getattr(network, "reads", None):
            raise TypeError(
                f"EmbeddingPublisher trains a recommender of one domain that has vectors of users; {type(network).__name__} "
                "is none. Take BPR, NeuMF, LightGCN or FedGNN, or a LightningModule with the members of EmbedsUsers that reads "
                "no release."
            )
        if getattr(network, "private_gradient", None) is not None or getattr(network, "privacy", None) is not None:
            raise ValueError(
                f"{type(network).__name__} has an epsilon of its own, which protects item vectors: not those of users, which are "
                "released here, and both together are not counted. Leave network.epsilon out, and give epsilon to the publisher."
            )
        if min(max_epochs, batch_size) < 1:
            raise ValueError(f"max_epochs and batch_size must be at least 1; got {max_epochs} and {batch_size}.")
        super().__init__(network, callbacks, **training)
        self.epsilon, self.delta, self.clip, self.relation = epsilon, delta, clip, Relation(relation)
        self.max_epochs, self.batch_size, self.noise_seed = max_epochs, batch_size, noise_seed
        check_releases(num_releases)
        self.num_releases = num_releases
        if epsilon is None:
            _check_bare(clip, delta, noise_seed, num_releases)
        else:
            self._plan(1e-5 if delta is None else delta)  # refuse bad settings now, before data are opened

    def _plan(self, delta: float, num_users: int = 1) -> UserVectors:
        assert self.epsilon is not None
        layers, width = _embedder(self.network).vector_shape
        return UserVectors.calibrate(
            epsilon=self.epsilon,
            delta=delta,
            clip=self.clip,
            num_layers=layers,
            num_releases=self.num_releases,
            relation=self.relation,
            width=width,
            num_users=num_users,
        )

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """One Gaussian release of all users' vectors, or one that costs everything."""
        notes: dict[str, Plain] = {"network": type(self.network).__name__, "max_epochs": self.max_epochs}
        if self.epsilon is None:
            layers, width = _embedder(self.network).vector_shape
            inputs = notes | {"num_users": sizes.num_users, "num_layers": layers, "width": width}
            record = unprotected_record(UserVectors.name, BARE, sizes.steps, public_inputs=inputs)
            return PlannedRelease.of_tensors(record, NonPrivateEvent(), sizes, self._bare, "embeddings")
        plan = self._plan(sizes.delta(self.delta), sizes.num_users)
        tensors = partial(self._noisy, plan)
        planned = PlannedRelease.of(plan, self.noise_seed, sizes, tensors, kind="embeddings", notes=notes)
        return _claimed_by(type(self.network), planned)

    def _bare(self, source: Ratings, domain: str) -> Mapping[str, Tensor]:
        vectors = self.learn(source, domain)[1].double().numpy()
        return {"vectors": torch.from_numpy(clip_vectors(vectors, self.clip)).float()}

    def _noisy(self, plan: UserVectors, source: Ratings, domain: str) -> Mapping[str, Tensor]:
        vectors = self.learn(source, domain)[1].numpy()
        return {"vectors": torch.from_numpy(noisy_vectors(vectors, plan, NoiseSource.of(self.noise_seed)))}

    def learn(self, source: Ratings, domain: str) -> tuple[LightningModule, Tensor]:
        """The network after its training on a source, and what it made of each user (users, layers, width), before clip and noise.

        Zeros of users without ratings. Neither is a release.
        """
        check_has_ratings(source, domain)
        ratings = SourceRatings(source, batch_size=self.batch_size, seed=self.seed, target=domain)
        network = self.trained(ratings, self.max_epochs).cpu().eval()
        with torch.no_grad():
            vectors = _embedder(network).user_vectors().detach()  # it may be a view of the weights
        shape = (source.num_users, *_embedder(network).vector_shape)
        if vectors.shape != shape:
            raise ValueError(
                f"{type(network).__name__} has vectors of shape {tuple(vectors.shape)}, where its vector_shape and the users of "
                f"{domain!r} make {shape}."
            )
        starts, _, _ = source.compressed()
        return network, vectors * (starts.diff() > 0)[:, None, None]

    def audits(self) -> list[Audit]:
        """One user's vectors in two worlds; none where nothing is claimed."""
        if self.epsilon is None:
            return []
        return [vectors_audit(UserVectors.name, self._plan(1e-5 if self.delta is None else self.delta))]


def _embedder(network: object) -> EmbedsUsers:
    assert isinstance(network, EmbedsUsers)
    return network


def _check_bare(clip: float | None, delta: float | None, noise_seed: int | None, num_releases: int) -> None:
    if num_releases > 1:
        raise ValueError(
            f"{num_releases} releases share an epsilon, and there is none. Set epsilon, e.g. 8.0, or leave num_releases at 1."
        )
    if delta is not None or noise_seed is not None:
        raise ValueError(
            f"delta and noise_seed go with epsilon; got delta {delta} and noise_seed {noise_seed} without. Set epsilon, e.g. "
            "8.0, or leave them out."
        )
    if clip is not None and not 0 < clip < float("inf"):
        raise ValueError(f"clip must be a positive finite number, or null for vectors as they are; got {clip}.")


def _claimed_by(network: type, planned: PlannedRelease) -> PlannedRelease:
    """The same release, on the word of whoever wrote the network, if that is none of ours."""
    record = planned.record.claimed_by(network)
    return replace(
        planned,
        record=record,
        make=lambda source, domain: replace(planned.make(source, domain), record=record),
    )
