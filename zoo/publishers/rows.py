"""Rows without projection: the 0/1 matrix itself, with Gaussian noise or with its entries flipped."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor

from zoo.data.ratings import Ratings
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.audits.rows import flipped_rows_audit, noisy_rows_audit
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.mechanisms import flipped_rows, noisy_rows
from zoo.privacy.mechanisms.base import Mechanism
from zoo.privacy.randomness.noise import NoiseSource
from zoo.publishers.base import PlannedRelease, PublicSizes, Publisher
from zoo.release.layouts import compressed

Rows = npt.NDArray[np.float32] | csr_array

_SMALL = 2**24  # entries up to which a release is stored dense: 64 MiB
_LARGEST = 2**30  # entries up to which all can be released: 4 GiB

# An audit sees nothing with a very high threshold or a very small share.
_AUDITED_THRESHOLD, _AUDITED_KEEP = 0.5, 0.5


class NoisyRows(Publisher):
    """The 0/1 matrix with Gaussian noise on every entry: ``R + sigma N``; of a large one, the entries above a threshold.

    Privacy unit: one rating (an entry of the matrix, its presence included) or, with ``relation`` on users, all of one user's
    data. Neighbours: ``change_one_rating``; ``zero_out_one_user`` or ``replace_one_user``. Sensitivity, L2: 1 for a rating;
    ``clip`` for zero-out, twice that for replacement. Allowed use: any, such as the threshold itself.

    Not from a paper of cross-domain recommendation. JLT has narrower rows with less information. For ratings, `FlippedRows`
    carries more at the same epsilon, without delta.

    Args:
        epsilon: Privacy loss; null with `attack_success`.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users, or of entries if one rating is protected.
        threshold: Standard deviations of the noise above which a value is stored, at least 0, e.g. 2.0; other values are 0.
            Null: all values are stored, which takes four bytes for every user and item.
        relation: `change_one_rating`, `zero_out_one_user` or `replace_one_user`.
        clip: L2 norm that users' rows are clipped to; for users only.
        noise_seed: Null: noise from the operating system. A number repeats the release, and makes the noise subtractable: the
            record then says `guarantee: none`.
        attack_success: Instead of epsilon: largest success rate of an attack on a yes-or-no fact with even odds, such as 0.6.
            Under `zero_out_one_user` the fact is whether a user's ratings were used at all.

    Examples:
        >>> from datamodules import Synthetic
        >>> ratings = Synthetic(num_users=60, num_items=40).source("book")
        >>> release = NoisyRows(epsilon=4.0, threshold=2.0).publish(ratings, "book")
        >>> release.record.epsilon, release.width
        (4.0, 40)
    """

    def __init__(
        self,
        epsilon: float | None = None,
        delta: float | None = None,
        threshold: float | None = None,
        relation: Literal["change_one_rating", "zero_out_one_user", "replace_one_user"] = "change_one_rating",
        clip: float | None = None,
        noise_seed: int | None = None,
        attack_success: float | None = None,
    ) -> None:
        self.epsilon, self.delta, self.threshold = epsilon, delta, threshold
        self.attack_success = attack_success
        self.relation, self.clip, self.noise_seed = Relation(relation), clip, noise_seed
        self._plan = partial(
            noisy_rows.NoisyRows.calibrate,
            epsilon=epsilon,
            attack_success=attack_success,
            relation=self.relation,
            clip=clip,
        )
        # Refuse bad settings now, before data are opened.
        self._plan(delta=1e-5 if delta is None else delta, threshold=threshold)

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan one Gaussian release of all users' rows; only 0/1 ratings, and all values only if they fit into memory."""
        _check_sizes(sizes)
        plan = self._plan(
            delta=sizes.delta(self.delta, self.relation),
            threshold=self.threshold,
            num_users=sizes.num_users,
            num_items=sizes.num_items,
        )
        if self.threshold is None and sizes.num_users * sizes.num_items > _LARGEST:
            size = sizes.num_users * sizes.num_items / 2**28
            raise ValueError(f"All values would take {size:.0f} GiB. Set threshold, e.g. 2.0.")

        def rows(matrix: csr_array, noise: NoiseSource, small: bool) -> Rows:
            dense = small or plan.threshold is None
            return (noisy_rows.noisy_rows if dense else noisy_rows.noisy_rows_above)(matrix, plan, noise)

        return _planned(plan, self.noise_seed, sizes, rows)

    def audits(self) -> list[Audit]:
        """Return the audit of one rating or user in two worlds: all entries for users, those above a low threshold for ratings."""
        whole = self.threshold is None or self.relation.unit is Unit.USER
        threshold = None if whole else min(self.threshold or 0.0, _AUDITED_THRESHOLD)
        plan = self._plan(delta=1e-5 if self.delta is None else self.delta, threshold=threshold)
        return [noisy_rows_audit(plan.name, plan)]


class FlippedRows(Publisher):
    """The 0/1 matrix with every entry flipped at random (randomised response); of a large one, a share of the ones.

    Privacy unit: one rating (an entry of the matrix, its presence included). Neighbours: ``change_one_rating``. Sensitivity, L1:
    1. Costs exactly epsilon without delta, because all draws are from integers. Allowed use: any, such as keeping a share of the
    reported ones.

    Not from a paper of cross-domain recommendation. The output of every mechanism on one entry at the same epsilon can be
    computed from its flip (Kairouz, Oh & Viswanath, *The Composition Theorem for Differential Privacy*, ICML 2015), so it carries
    more of ratings than Gaussian noise. It also reveals more of a user's ratings together: k ratings cost k epsilon, where
    `NoisyRows` costs sqrt(k) times its mu.

    Args:
        epsilon: Privacy loss; null with `attack_success`.
        keep: Share of the reported ones that are released, above 0 and at most 1. Null: 1, or the share that reduces the false
            ones to 2^23 on average; it depends on epsilon and the numbers of users and items. A number stays if a request lowers
            epsilon, so the release grows.
        noise_seed: Null: draws from the operating system. A number repeats the release, and makes the flips reversible: the
            record then says `guarantee: none`.
        attack_success: Instead of epsilon: largest success rate of an attack on a yes-or-no fact with even odds, such as 0.6.

    Examples:
        >>> from datamodules import Synthetic
        >>> ratings = Synthetic(num_users=60, num_items=40).source("book")
        >>> release = FlippedRows(epsilon=4.0).publish(ratings, "book")
        >>> release.record.epsilon, release.record.delta
        (4.0, 0.0)
    """

    def __init__(
        self,
        epsilon: float | None = None,
        keep: float | None = None,
        noise_seed: int | None = None,
        attack_success: float | None = None,
    ) -> None:
        self.epsilon, self.keep, self.noise_seed, self.attack_success = epsilon, keep, noise_seed, attack_success
        self._plan = partial(flipped_rows.FlippedRows.calibrate, epsilon=epsilon, attack_success=attack_success)
        self._plan(num_users=1, num_items=1, keep=keep)  # refuse bad settings before data are opened

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Plan one flip, because one rating is one entry; only 0/1 ratings."""
        _check_sizes(sizes)
        plan = self._plan(num_users=sizes.num_users, num_items=sizes.num_items, keep=self.keep)

        def rows(matrix: csr_array, noise: NoiseSource, small: bool) -> Rows:
            reported = flipped_rows.flipped_rows(matrix, plan, noise)
            return reported.toarray() if small else reported

        return _planned(plan, self.noise_seed, sizes, rows)

    def audits(self) -> list[Audit]:
        """Return the audit of one rating in two worlds, with at least half of the reported ones released."""
        keep = max(self.keep or 1.0, _AUDITED_KEEP)
        return [flipped_rows_audit("FlippedRows", self._plan(num_users=1, num_items=1, keep=keep))]


def _check_sizes(sizes: PublicSizes) -> None:
    if sizes.num_users < 1 or sizes.num_items < 1:
        raise ValueError(f"num_users and num_items are {sizes.num_users} and {sizes.num_items}. Give public sets.")


def _planned(
    mechanism: Mechanism,
    noise_seed: int | None,
    sizes: PublicSizes,
    rows: Callable[[csr_array, NoiseSource, bool], Rows],
) -> PlannedRelease:
    """Plan a release of 0/1 rows; ``rows`` gets whether they may be dense."""

    def tensors(source: Ratings, domain: str) -> Mapping[str, Tensor]:
        if not source.binary:
            data = source.matrix.data
            raise ValueError(
                f"Ratings of {domain!r} lie in [{data.min():g}, {data.max():g}] and are not all 1. Set "
                "filters.threshold, or use JLT."
            )
        small = source.num_users * source.num_items <= _SMALL
        made = rows(source.matrix, NoiseSource.of(noise_seed), small)
        return compressed(made) if isinstance(made, csr_array) else {"rows": torch.from_numpy(made)}

    return PlannedRelease.of(mechanism, noise_seed, sizes, tensors)
