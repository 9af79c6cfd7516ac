"""BridgePublisher: a private mapping matrix from a source's items to a target's directions, for cold-start users."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.data.directions import MOST_DIRECTIONS
from zoo.data.ratings import Ratings, index_of
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.bridge import bridge_audit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms.base import Plain
from zoo.privacy.mechanisms.bridge import Bridge, noisy_map
from zoo.privacy.randomness.noise import NoiseSource
from zoo.publishers.base import PlannedRelease, PublicSizes, Publisher, Stamped
from zoo.publishers.projections import ProjectionPublisher
from zoo.release.release import Release
from zoo.release.signature import TrustedKeys
from zoo.runtime.renamed import OldName
from zoo.runtime.settings_files import user_path


class BridgePublisher(Publisher):
    """Release ``C = sum_u r_u q_u' + sigma N``: how the tastes of common users correspond between the domains.

    ``r_u`` is a user's 0/1 row at the source, clipped to ``clip`` (of unit length by default), ``q_u`` the target's projection of
    the same user, of length 1 at most. First, noisy sums of the rows are released, which choose the items of the matrix. The
    release contains no user's row: a user is scored with the matrix and the user's own row, which stays at the source. See
    `Bridge`.

    Privacy unit: one user's data at the source, or one rating. Neighbours: ``zero_out_one_user``, ``replace_one_user`` or
    ``change_one_rating``. Sensitivity, L2: ``clip`` for zero-out, twice that for replacement, 1 for a rating, of the sums and
    of the matrix (Frobenius), whatever the projections are. Allowed use: any. A user's recommendations depend on the matrix and
    the user's own row: that is *joint* differential privacy (the billboard model). Recommendations of others reveal no more of
    the user than the matrix does; the user's own recommendations may reveal the user's row to those who see them.

    The projections of the target's users are private as well and have their own record: the target publishes them
    (`ProjectionPublisher`, with an epsilon), and the source has ``received`` them. For research, with both domains at one place,
    ``fit`` makes the projections of the target's training ratings, with or without noise. The package in
    ``examples/encrypted_bridge`` makes a matrix of encrypted projections.

    References: Kearns, Pai, Roth & Ullman, *Mechanism Design in Large Games*, ITCS 2014 (joint privacy); Hsu et al., *Private
    Matchings and Allocations*, STOC 2014 (the billboard). Not from a paper of cross-domain recommendation.

    Args:
        epsilon: Privacy loss of sums and matrix together; null with `attack_success`.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users, or of entries if one rating is protected.
        relation: `zero_out_one_user`, `replace_one_user` or `change_one_rating`.
        clip: L2 norm that users' rows are clipped to: a public number. 1 makes all of unit length; larger ones give long rows
            more weight, which for one rating costs nothing.
        kept_items: Number of items of the matrix, those with the largest noisy sums; null: all.
        counts_share: Share of the sums in the budget, of the squared mu.
        projections: Makes the projections where both domains are at one place; null: `ProjectionPublisher` without noise.
        received: Folder of the target's release of projections.
        noise_seed: Null: noise from the operating system. A number repeats the release, and makes the noise subtractable: the
            record then says `guarantee: none`.
        trusted: Public keys (a PEM file, or a folder of them), one of which must have signed ``received``; null: not checked.
        attack_success: Instead of epsilon: largest success rate of an attack on a yes-or-no fact with even odds, such as 0.6.
            Under `zero_out_one_user` the fact is whether a user's ratings were used at all.

    Examples:
        >>> from datamodules import Synthetic
        >>> data = Synthetic("movie", ("book", "music"), num_users=60, num_items=40)
        >>> publisher = BridgePublisher(epsilon=8.0, kept_items=10).for_target(data.source("music"))
        >>> publisher.publish(data.source("book"), "book").tensors["map"].shape
        torch.Size([10, 6])
    """

    joins_users = True
    projections_kind: ClassVar[str] = "embeddings"  # kind of the target's release

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        relation: Literal["zero_out_one_user", "replace_one_user", "change_one_rating"] = "zero_out_one_user",
        clip: float = 1.0,
        kept_items: int | None = 400,
        counts_share: float = 0.1,
        projections: ProjectionPublisher | None = None,
        received: Path | None = None,
        noise_seed: int | None = None,
        trusted: Path | None = None,
        attack_success: float | None = None,
    ) -> None:
        if projections is not None and received is not None:
            raise ValueError("projections and received are both set. Set one of them.")
        if trusted is not None and received is None:
            raise ValueError(f"trusted is {str(trusted)!r}. It needs received. Set both.")
        self.epsilon, self.delta, self.relation, self.clip = epsilon, delta, Relation(relation), clip
        self.attack_success = attack_success
        self.kept_items, self.counts_share, self.noise_seed = kept_items, counts_share, noise_seed
        self.projections = ProjectionPublisher() if projections is None else projections
        self.received = None if received is None else user_path(received)
        self.trusted = None if trusted is None else user_path(trusted)
        self._own: Release | None = None
        self._plan = partial(
            Bridge.calibrate,
            epsilon=epsilon,
            attack_success=attack_success,
            relation=self.relation,
            clip=clip,
            counts_share=counts_share,
            kept_items=kept_items,
        )
        self._plan(delta=1e-5 if delta is None else delta)  # refuse bad settings now, before data are opened

    def for_target(self, target: Ratings) -> BridgePublisher:
        """Return the publisher with projections of a target's training ratings at the same place."""
        if self.received is not None:
            return self
        known = copy.copy(self)
        known._own = Stamped(self.projections).publish(target, "target")
        return known

    def target_release(self) -> Release | None:
        """Return the projections that `for_target` made; received ones are not."""
        return self._own

    @cached_property
    def _from_file(self) -> Release | None:
        if self.received is None:
            return None
        return Release.load(self.received, None if self.trusted is None else TrustedKeys.read(self.trusted))

    def target_projections(self) -> Release | None:
        """Return the target's release of projections, if it is available here."""
        found = self._own if self.received is None else self._from_file
        if found is not None and found.kind != self.projections_kind:
            raise ValueError(f"{self.received} has kind {found.kind!r}. It must have kind {self.projections_kind!r}.")
        if found is not None and found.width > MOST_DIRECTIONS:
            raise ValueError(f"{self.received} has {found.width:,} directions. Allowed: at most {MOST_DIRECTIONS}.")
        return found

    def plan_for(self, sizes: PublicSizes) -> Bridge:
        """Return the noise of the map and the counts, for ratings of these sizes."""
        found = self.target_projections()
        return self._plan(
            delta=sizes.delta(self.delta, self.relation),
            num_directions=self.projections.num_directions if found is None else found.width,
            num_users=sizes.num_users,
            num_items=sizes.num_items,
        )

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan two consecutive Gaussian releases; only for 0/1 ratings."""
        plan = self.plan_for(sizes)
        notes = self.notes(self.target_projections())
        return PlannedRelease.of(plan, self.noise_seed, sizes, partial(self.tensors, plan), kind="map", notes=notes)

    def notes(self, projections: Release | None) -> dict[str, Plain]:
        """Return further public inputs of a record: the origin of the projections."""
        if projections is None:
            return {"item_damping": self.projections.item_damping}
        made = "at one place with the source's ratings (research)" if self.received is None else "by the target"
        stated = f"made {made}, under a record of their own: {projections.record.summary()}"
        return {"item_damping": projections.stated("item_damping", 2), "projections": stated}

    def tensors(self, plan: Bridge, source: Ratings, domain: str) -> Mapping[str, Tensor]:
        """Return the tensors of a release of the source's ratings."""
        projections = self.target_projections()
        if projections is None:
            raise ValueError("A bridge needs the target's projections. Set received, or use fit.")
        if not source.binary:
            raise ValueError(f"Ratings of {domain!r} are not all 1. Set filters.threshold.")
        made = self.mapped(projections, source, plan, NoiseSource.of(self.noise_seed))
        return {name: torch.from_numpy(part) for name, part in made._asdict().items()}

    def mapped(self, projections: Release, source: Ratings, plan: Bridge, noise: NoiseSource) -> NamedTuple:
        """Return the arrays of the release by name: the noisy matrix of the given projections."""
        return noisy_map(source.matrix, _of_users(projections, source), plan, noise)

    given = OldName("target_projections")

    def audits(self) -> list[Audit]:
        """Return the audit of the worst user, or rating, in two worlds."""
        plan = self._plan(delta=1e-5 if self.delta is None else self.delta)
        return [bridge_audit(plan.name, plan)]


def _of_users(projections: Release, source: Ratings) -> npt.NDArray[np.float64]:
    """Return the projections of the source's users, (users, directions); zeros of users unknown to the target."""
    vectors = projections.tensors["vectors"].flatten(1).double().numpy()
    if not len(vectors):
        return np.zeros((source.num_users, vectors.shape[1]))
    rows = index_of(projections.user_ids, source.user_ids)
    found: npt.NDArray[np.float64] = vectors[np.maximum(rows, 0)] * (rows >= 0)[:, None]
    return found
