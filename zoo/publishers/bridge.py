"""BridgePublisher: a private map from a source's items to a target's directions, for people whom the target does not know yet."""

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


class BridgePublisher(Publisher):
    """Releases ``C = sum_u r_u q_u' + sigma N``: what the users whom both parties know say of how their tastes go together.

    ``r_u`` is a user's 0/1 row at the source, clipped to ``clip`` (of unit length by default), ``q_u`` the target's projection
    of the same user, of length 1 at most. Before it, noisy sums of the rows are released, which choose the items that the map
    has. Nobody's row is in the release, neither as it is nor noised: a person is scored with the map and the person's own row,
    which is read only where it lies. See `Bridge`.

    Who is protected: one user's data at the source, or one rating. Neighbours: ``zero_out_one_user``, ``replace_one_user`` or
    ``change_one_rating``. Sensitivity, L2: ``clip`` for zero-out, twice that for replacement, 1 for a rating, of the sums and
    of the map (Frobenius) alike, whatever the projections are. Afterwards: anything, as often as wanted. What a person is shown
    is made with the map and the person's own row: that is *joint* differential privacy (the billboard model): all that others
    are shown tells no more of the person than the map does; what the person is shown, and whoever sees it, may tell of the
    person's own row.

    The projections are private as well, those of the target's users, and have a record of their own: the target publishes them
    (`ProjectionPublisher`, with an epsilon), and the source has ``received`` them. Or both domains lie at one place, for
    research: ``fit`` makes the projections of the target's training ratings there, with or without noise. The package in
    ``examples/encrypted_bridge`` makes a map of projections that the source cannot read.

    References: Kearns, Pai, Roth & Ullman, *Mechanism Design in Large Games*, ITCS 2014 (joint privacy); Hsu et al., *Private
    Matchings and Allocations*, STOC 2014 (the billboard). Not from a paper of cross-domain recommendation.

    Args:
        epsilon: Privacy loss of sums and map together.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        relation: `zero_out_one_user`, `replace_one_user` or `change_one_rating`.
        clip: L2 norm that users' rows are clipped to: a public number. 1 makes all of unit length; larger ones let long rows count
            more, which for one rating costs nothing.
        kept_items: How many items the map has, those with the largest noisy sums; null: all.
        counts_share: What the sums take of the budget, of the squared mu.
        projections: Makes the projections where both domains lie at one place; null: `ProjectionPublisher` without noise.
        received: Folder of the target's release of projections, where it has published them.
        noise_seed: Null: noise from the operating system. A number makes the release repeatable, and anybody who knows it can
            subtract the noise: the record then says `guarantee: none`.
        trusted: Public keys (a PEM file, or a folder of them), one of which must have signed what was ``received``; null: it may be
            from anybody.
    """

    joins_users = True
    projections_kind: ClassVar[str] = "embeddings"  # kind of the target's release

    def __init__(
        self,
        epsilon: float,
        delta: float | None = None,
        relation: Literal["zero_out_one_user", "replace_one_user", "change_one_rating"] = "zero_out_one_user",
        clip: float = 1.0,
        kept_items: int | None = 400,
        counts_share: float = 0.1,
        projections: ProjectionPublisher | None = None,
        received: Path | None = None,
        noise_seed: int | None = None,
        trusted: Path | None = None,
    ) -> None:
        if projections is not None and received is not None:
            raise ValueError("projections makes what received has: give one of them.")
        if trusted is not None and received is None:
            raise ValueError(
                f"trusted is {str(trusted)!r}, and nothing is received that a key could have signed. Leave it out."
            )
        self.epsilon, self.delta, self.relation, self.clip = epsilon, delta, Relation(relation), clip
        self.kept_items, self.counts_share, self.noise_seed = kept_items, counts_share, noise_seed
        self.projections = ProjectionPublisher() if projections is None else projections
        self.received = None if received is None else Path(received)
        self.trusted = None if trusted is None else Path(trusted)
        self._given: Release | None = None
        self._plan = partial(
            Bridge.calibrate,
            epsilon=epsilon,
            relation=self.relation,
            clip=clip,
            counts_share=counts_share,
            kept_items=kept_items,
        )
        self._plan(delta=1e-5 if delta is None else delta)  # refuse bad settings now, before data are opened

    def for_target(self, target: Ratings) -> BridgePublisher:
        """The same with the projections of a target's training ratings, where these lie at the same place."""
        if self.received is not None:
            return self
        made = copy.copy(self)
        made._given = Stamped(self.projections).publish(target, "target")
        return made

    @cached_property
    def _from_file(self) -> Release | None:
        if self.received is None:
            return None
        return Release.load(self.received, None if self.trusted is None else TrustedKeys.read(self.trusted))

    def given(self) -> Release | None:
        """Return the target's release of projections, if it is available here."""
        given = self._given if self.received is None else self._from_file
        if given is not None and given.kind != self.projections_kind:
            raise ValueError(
                f"{self.received} is a release of kind {given.kind!r}. Projections are of kind {self.projections_kind!r}. Ask the "
                "target for what its ProjectionPublisher makes."
            )
        return given

    def plan_for(self, sizes: PublicSizes) -> Bridge:
        """Return the noise of the map and the counts, for ratings of these sizes."""
        given = self.given()
        return self._plan(
            delta=sizes.delta(self.delta),
            num_directions=self.projections.num_directions if given is None else given.width,
            num_users=sizes.num_users,
            num_items=sizes.num_items,
        )

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Two Gaussian releases, one after the other; only 0/1 ratings."""
        plan = self.plan_for(sizes)
        return PlannedRelease.of(
            plan, self.noise_seed, sizes, partial(self.tensors, plan), kind="map", notes=self.notes(self.given())
        )

    def notes(self, given: Release | None) -> dict[str, Plain]:
        """Return the public inputs of a record from which nothing follows: where the projections come from."""
        if given is None:
            return {"item_damping": self.projections.item_damping}
        made = "at one place with the source's ratings (research)" if self.received is None else "by the target"
        stated = f"made {made}, under a record of their own: {given.record.summary()}"
        return {"item_damping": _damping(given), "projections": stated}

    def tensors(self, plan: Bridge, source: Ratings, domain: str) -> Mapping[str, Tensor]:
        """Return the tensors of a release of the source's ratings."""
        given = self.given()
        if given is None:
            raise ValueError(
                "A bridge needs the projections of the target's users, and there are none. Set received to the release that the "
                "target made with ProjectionPublisher, or use fit with both domains at one place."
            )
        if not source.binary:
            raise ValueError(
                f"Ratings of {domain!r} are not all 1. Set filters.threshold (ratings then count as 1): a bridge is of who "
                "has what."
            )
        made = self.mapped(given, source, plan, NoiseSource.of(self.noise_seed))
        return {name: torch.from_numpy(part) for name, part in made._asdict().items()}

    def mapped(self, given: Release, source: Ratings, plan: Bridge, noise: NoiseSource) -> NamedTuple:
        """Return the arrays of the release by name: the map of the given projections, with its noise."""
        return noisy_map(source.matrix, _of_users(given, source), plan, noise)

    def audits(self) -> list[Audit]:
        """The worst user, or rating, in two worlds."""
        plan = self._plan(delta=1e-5 if self.delta is None else self.delta)
        return [bridge_audit(plan.name, plan)]


def _damping(given: Release) -> float:
    """The item damping that a release of projections states; it may come from anybody."""
    stated = given.record.public_inputs.get("item_damping")
    if isinstance(stated, bool) or not isinstance(stated, int | float) or not 0 <= stated <= 2:
        raise ValueError(
            f"The release of {given.domain!r} states no item_damping in [0, 2] but {str(stated)[:80]!r}, so it is no release of "
            "projections. Ask the target for what ProjectionPublisher makes."
        )
    return stated


def _of_users(given: Release, source: Ratings) -> npt.NDArray[np.float64]:
    """The projections of the source's users, (users, directions); zeros of whom the target does not know."""
    vectors = given.tensors["vectors"].flatten(1).double().numpy()
    if not len(vectors):
        return np.zeros((source.num_users, vectors.shape[1]))
    rows = index_of(given.user_ids, source.user_ids)
    found: npt.NDArray[np.float64] = vectors[np.maximum(rows, 0)] * (rows >= 0)[:, None]
    return found
