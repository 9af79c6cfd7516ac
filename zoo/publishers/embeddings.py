"""EmbeddingPublisher: train a single-domain recommender at the source and release its user embeddings."""

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

#: Reason without a guarantee if there is no noise.
BARE = "what the network made of each user is handed over without noise"


@runtime_checkable
class EmbedsUsers(Protocol):
    """Members that `EmbeddingPublisher` needs of a single-domain recommender: `BPR`, `NeuMF`, `LightGCN` and `FedGNN` have them."""

    @property
    def vector_shape(self) -> tuple[int, int]:
        """Layers and width of a user's vectors, from settings alone."""

    def user_vectors(self) -> Tensor:
        """Return the vectors of all users after training, ``(num_users, layers, width)``."""


class EmbeddingPublisher(TrainedPublisher):
    """Train a recommender on one source domain, and release the vectors of its users; no item vectors.

    Privacy unit: one user, limited to the user's own vectors. Neighbours: ``replace_one_user``, or ``zero_out_one_user``.
    Sensitivity, L2: ``2 clip`` a layer for replacement and ``clip`` for zero-out, times the root of the number of layers. All
    layers get Gaussian noise at once. Allowed use: any.

    **Limits of the guarantee.** The clip bounds only a user's own vectors. The network was trained on the user's ratings too,
    which changed the released vectors of all others. The guarantee takes these as given, and the record states this condition:
    the epsilon covers a user's own vectors, never the user's ratings in the whole release.

    **Several sources.** The losses of a user in several sources add up, exactly by the roots of sums of squares. With
    `num_releases` set to the number of sources, each release has the root of that many times the noise, and all of them together
    cost `epsilon`; each record states its own cost, and that it is one of several. With 1, `epsilon` is that of each release: right
    for one protected domain per user, and for a single source.

    A user of the source without ratings has vectors of zeros before the noise, so the noise hides which users have any. With
    ``epsilon: null`` there is no noise and no guarantee. The last epoch is released; nothing is selected by the ratings.

    References: Man et al., *EMCDR*, IJCAI 2017, for the released vectors; Yang et al., *FedGCDR*, NeurIPS 2024, for the noise.

    Departures: in FedGCDR the noise is for a sensitivity of 1 where replacement moves a vector of norm 1 by 2, layers and domains
    are not composed, and the classical formula is used beyond its range.

    Args:
        network: The trained recommender: `BPR`, `NeuMF`, `LightGCN`, `FedGNN`, or another LightningModule with the members of
            `EmbedsUsers` that reads no release.
        epsilon: Privacy loss of all `num_releases` together; null without `attack_success`: no noise and no guarantee.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        clip: L2 norm that each layer of a user's vectors is clipped to: a public number, independent of the data. Required with
            epsilon; without, null leaves vectors unclipped.
        num_releases: Number of releases of the same users that share `epsilon`: that of the source domains. It is not checked
            here; `privacy total`, a budget and a report add up actual releases.
        relation: `replace_one_user` or `zero_out_one_user`.
        max_epochs: Epochs of training; public, the same for all ratings.
        batch_size: Observed pairs, or users, in a batch of the training.
        noise_seed: Null: noise from the operating system. A number repeats the release, and makes the noise subtractable: the
            record then says `guarantee: none`.
        callbacks: Callbacks of the training; no guarantee depends on them.
        attack_success: Instead of epsilon: largest success rate of an attack on a yes-or-no fact about the user's own vectors, with
            even odds, such as 0.6; of all `num_releases` together. Under `zero_out_one_user`: on whether the user's ratings
            were used at all.
        **training: Further arguments of :class:`TrainedPublisher`.

    Examples:
        >>> import zoo
        >>> publisher = EmbeddingPublisher(zoo.BPR(num_factors=4), epsilon=8.0, clip=1.0)
        >>> publisher.forecast(num_users=1000, num_items=500).epsilon
        8.0
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
        attack_success: float | None = None,
        **training: Any,  # noqa: ANN401
    ) -> None:
        if not isinstance(network, EmbedsUsers) or getattr(network, "accepted_releases", None):
            raise TypeError(
                f"{type(network).__name__} has no user vectors to publish. Take BPR, NeuMF, LightGCN, FedGNN."
            )
        if getattr(network, "private_gradient", None) is not None or getattr(network, "privacy", None) is not None:
            raise ValueError(
                f"{type(network).__name__} has an epsilon of its own, which protects item vectors, not users'."
            )
        if min(max_epochs, batch_size) < 1:
            raise ValueError(f"max_epochs and batch_size must be at least 1; got {max_epochs}, {batch_size}.")
        super().__init__(network, callbacks, **training)
        self.epsilon, self.delta, self.clip, self.relation = epsilon, delta, clip, Relation(relation)
        self.max_epochs, self.batch_size, self.noise_seed = max_epochs, batch_size, noise_seed
        check_releases(num_releases)
        self.num_releases, self.attack_success = num_releases, attack_success
        self.has_noise = epsilon is not None or attack_success is not None
        if not self.has_noise:
            _check_bare(clip, delta, noise_seed, num_releases)
        else:
            self._plan(1e-5 if delta is None else delta)  # refuse bad settings now, before data are opened

    def _plan(self, delta: float, num_users: int = 1) -> UserVectors:
        layers, width = self.network.vector_shape
        return UserVectors.calibrate(
            epsilon=self.epsilon,
            attack_success=self.attack_success,
            delta=delta,
            clip=self.clip,
            num_layers=layers,
            num_releases=self.num_releases,
            relation=self.relation,
            width=width,
            num_users=num_users,
        )

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan one Gaussian release of all users' vectors, or one without a guarantee."""
        notes: dict[str, Plain] = {"network": type(self.network).__name__, "max_epochs": self.max_epochs}
        if not self.has_noise:
            layers, width = self.network.vector_shape
            inputs = notes | {"num_users": sizes.num_users, "num_layers": layers, "width": width}
            record = unprotected_record(UserVectors.name, BARE, sizes.steps, public_inputs=inputs)
            return PlannedRelease.of_tensors(record, NonPrivateEvent(), sizes, self._bare, "embeddings")
        plan = self._plan(sizes.delta(self.delta, self.relation), sizes.num_users)
        tensors = partial(self._noisy, plan)
        planned = PlannedRelease.of(
            plan, self.noise_seed, sizes, tensors, kind="embeddings", notes=notes, withdrawn=self.withdrawn
        )
        return _claimed_by(type(self.network), planned)

    def _bare(self, source: Ratings, domain: str) -> Mapping[str, Tensor]:
        vectors = self.learn(source, domain)[1].double().numpy()
        return {"vectors": torch.from_numpy(clip_vectors(vectors, self.clip)).float()}

    def _noisy(self, plan: UserVectors, source: Ratings, domain: str) -> Mapping[str, Tensor]:
        vectors = self.learn(source, domain)[1].numpy()
        return {"vectors": torch.from_numpy(noisy_vectors(vectors, plan, NoiseSource.of(self.noise_seed)))}

    @property
    def repeats_noise(self) -> bool:
        """Whether there is a noise seed."""
        return self.noise_seed is not None

    def learn(self, source: Ratings, domain: str) -> tuple[LightningModule, Tensor]:
        """Return the trained network, and each user's vectors (users, layers, width) before clip and noise; neither is a release.

        Users without ratings have zeros.
        """
        check_has_ratings(source, domain)
        ratings = SourceRatings(source, batch_size=self.batch_size, seed=self.training_seed(), target=domain)
        network = self.trained(ratings, self.max_epochs).cpu().eval()
        with torch.no_grad():
            vectors = network.user_vectors().detach()  # possibly a view of the weights
        shape = (source.num_users, *network.vector_shape)
        if vectors.shape != shape:
            raise ValueError(f"{type(network).__name__} has vectors of shape {tuple(vectors.shape)}, not {shape}.")
        starts, _, _ = source.compressed()
        return network, vectors * (starts.diff() > 0)[:, None, None]

    def audits(self) -> list[Audit]:
        """Return the audit of one user's vectors in two worlds; none without a claim."""
        if not self.has_noise or self.withdrawn is not None:
            return []
        return [vectors_audit(UserVectors.name, self._plan(1e-5 if self.delta is None else self.delta))]


def _check_bare(clip: float | None, delta: float | None, noise_seed: int | None, num_releases: int) -> None:
    if num_releases > 1:
        raise ValueError(f"num_releases is {num_releases}, and there is no epsilon to share. Set it.")
    if delta is not None or noise_seed is not None:
        raise ValueError(f"delta and noise_seed go with epsilon; got delta {delta}, noise_seed {noise_seed}.")
    if clip is not None and not 0 < clip < float("inf"):
        raise ValueError(f"clip must be a positive finite number, or null; got {clip}.")


def _claimed_by(network: type, planned: PlannedRelease) -> PlannedRelease:
    """Return the same release, with a third-party network named as the source of the claim."""
    record = planned.record.claimed_by(network)
    return replace(
        planned, record=record, make=lambda source, domain: replace(planned.make(source, domain), record=record)
    )
