"""Federated: base class of methods that learn in rounds (plan, count, record, checks), and local computation of clients."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from typing import Any, NamedTuple

import torch
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor

from zoo.data.ratings import Step
from zoo.methods.base import Recommender
from zoo.methods.checkpoint_identity import NOT_ENDED
from zoo.methods.target_data import Sizes
from zoo.privacy.accounting.events import NonPrivateEvent, PrivacyEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.training import rounds_audits
from zoo.privacy.audits.two_world import Audit
from zoo.privacy.record.record import PrivacyRecord, unprotected_record
from zoo.privacy.record.steps import recorded_steps
from zoo.privacy.record.words import CHOSEN_BY_METRICS
from zoo.privacy.training.private_rounds import PrivateRounds
from zoo.privacy.training.round_privacy import RoundPrivacy


class Federated(Recommender):
    """Base class of methods whose users are clients of a server; with ``epsilon`` their rounds are those of DP-FedAvg.

    Then a batch only triggers a round, and `zoo.privacy.training.private_rounds` samples its clients. There are `num_rounds` of
    them, over all resumed runs, and ``1 / rate`` in an epoch. Nothing of a round is logged. Users that would be ranked by item
    counts are scored without them, as counts are not protected.

    Args:
        epsilon: Privacy loss of all rounds, for one user; null: no clipping, no noise and no guarantee.
        delta: Null: the smaller of 1e-5 and a tenth of one over the number of users.
        clip: L2 norm that a client's whole update is clipped to: a public number. Needed with epsilon.
        num_rounds: With epsilon, number of rounds in all; without, epochs determine it.
        rate: With epsilon, probability of each user to be in a round, independent of others; replaces the data's `batch_size`.
        relation: `zero_out_one_user` or `replace_one_user`.
        noise_seed: Null: noise and samples of the operating system. A number repeats them, without any guarantee.
    """

    #: Draws the clients of a round, adds the noise and counts, for `PrivacyBudget` too; None without epsilon and before `build`.
    private_gradient: PrivateRounds | None
    guarantee_bearing = frozenset({"epsilon", "delta", "clip", "num_rounds", "rate", "relation", "noise_seed"})

    def __init__(
        self,
        epsilon: float | None,
        delta: float | None,
        clip: float | None,
        num_rounds: int,
        rate: float,
        relation: str,
        noise_seed: int | None,
    ) -> None:
        super().__init__()
        #: What the guarantee rests on; None where there is none.
        self.privacy: RoundPrivacy | None = None
        self.private_gradient = None
        if epsilon is None:
            if (delta, clip, noise_seed) != (None, None, None):
                raise ValueError(
                    f"delta, clip, noise_seed are {delta}, {clip}, {noise_seed} without epsilon. Set epsilon, or remove them."
                )
            return
        if clip is None:
            raise ValueError("clip is missing, which epsilon needs. Set the L2 norm of a client's update, e.g. 0.5.")
        self.privacy = RoundPrivacy(
            epsilon=epsilon, delta=delta, clip=clip, num_rounds=num_rounds, rate=rate, relation=Relation(relation),
            noise_seed=noise_seed,
        )  # fmt: skip
        # The number of batches must not depend on ratings.
        self.batches, self.steps_per_epoch = "steps", min(num_rounds, ceil(1 / rate))

    def build(self, sizes: Sizes) -> None:
        """Compute the noise."""
        if self.privacy is not None:
            self.private_gradient = self.privacy.rounds(sizes["num_users"])

    @property
    def single_process_reason(self) -> str:
        """Reason to train in one process with private rounds: other processes would sample their own clients and noise."""
        return (
            "" if self.privacy is None else "plays private rounds in one process, which draws all clients and the noise"
        )

    def setup(self, stage: str) -> None:
        """Refuse half precision for private rounds; then read the ratings."""
        if self.privacy is not None and (precision := self.trainer.precision) != "32-true":
            raise ValueError(f"trainer.precision is {precision!r}. Private rounds need 32-true. Set it.")
        super().setup(stage)

    def on_fit_start(self) -> None:
        """Refuse other uses of ratings beside private rounds: penalties, and validation, which chooses the epoch."""
        if self.privacy is None:
            return
        if self._penalties:
            raise ValueError(
                f"A callback adds a penalty to {sorted(self._penalties)}, which is not clipped. Remove it, or epsilon."
            )
        validated = self.trainer.limit_val_batches != 0 and len(self.trainer.datamodule.validation.users) > 0  # type: ignore[attr-defined]
        if self.privacy.noise_seed is None and validated:
            raise ValueError(
                "Validation would choose the epoch by held-out ratings, which epsilon does not cover. Set "
                "trainer.limit_val_batches to 0, or noise_seed."
            )

    def figures(self) -> set[str]:
        """Return the names of logged figures: private rounds log none."""
        return super().figures() if self.privacy is None else set()

    @property
    def hides_item_counts(self) -> bool:
        """Whether rounds are private."""
        return self.privacy is not None

    # What is spent, by the rounds that were played.

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Also store the number of rounds used."""
        super().on_save_checkpoint(checkpoint)
        if self.private_gradient is not None:
            checkpoint["zoo"]["spent"] = self.private_gradient.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Continue the count of rounds, which never decreases."""
        super().on_load_checkpoint(checkpoint)
        if self.private_gradient is None:
            return
        spent = checkpoint["zoo"].get("spent")
        if spent and self.has_trainer and self.trainer.state.fn != TrainerFn.FITTING:
            # An older epoch may be looked at; the weights of a later one were here, and cost what they cost.
            spent = {**spent, "steps_taken": max(spent["steps_taken"], self.private_gradient.steps_taken)}
        self.private_gradient.load_state_dict(spent)

    # What is claimed.

    def privacy_record(self) -> PrivacyRecord | None:
        """Return what the completed rounds protect; None without epsilon, and before there are data."""
        rounds, privacy = self.private_gradient, self.privacy
        if rounds is None or privacy is None or not self.has_trainer:
            return None
        if not rounds.steps_taken:
            return self.planned_record().without_guarantee(NOT_ENDED)
        train = self.data.train
        record = self.of_these_ratings(privacy.record(train.num_users, train.num_items, train.applied, rounds))
        return record.assuming(CHOSEN_BY_METRICS) if self.ended_by_ratings() else record

    def planned_record(self) -> PrivacyRecord:
        """Return what all planned rounds will protect, on the data at hand."""
        train = self.data.train
        return self.forecast(train.num_users, train.num_items, train.applied)

    def forecast(self, num_users: int, num_items: int, applied: Sequence[Step] = ()) -> PrivacyRecord:
        """Return the record of the whole training from public settings; ``applied`` are earlier steps on the ratings."""
        if self.privacy is None:
            reason, inputs = "clients' updates have no noise", {"num_items": num_items}
            return unprotected_record("federated rounds", reason, recorded_steps(applied), public_inputs=inputs)
        return self.privacy.record(num_users, num_items, applied)

    def events(self, num_users: int) -> list[PrivacyEvent]:
        """Return the privacy events of the whole training, from public settings."""
        return [NonPrivateEvent()] if self.privacy is None else self.privacy.events(num_users)

    def audits(self) -> list[Audit]:
        """Return white-box audits of rounds, with fewer rounds; none without a guarantee."""
        return [] if self.privacy is None or self.privacy.noise_seed is not None else rounds_audits(self.privacy)


Copies = dict[str, Tensor]
Uniform = Callable[[tuple[int, ...]], Tensor]
"""From a shape to independent numbers in [0, 1), in double precision."""


class TouchedRows(NamedTuple):
    """Rows of a server's table that the clients of a round copy, each row once per client."""

    clients: Tensor  # which client each copy is of, rising, (copies,)
    rows: Tensor  # of which row, (copies,)
    places: Tensor  # the copy that each row asked for is in, (asked,)


def touched_rows(clients: Tensor, rows: Tensor, num_rows: int) -> TouchedRows:
    """Return the copies needed by clients (requests,) for rows (requests,); pairs may repeat.

    Examples:
        >>> touched_rows(torch.tensor([0, 0, 1]), torch.tensor([2, 2, 2]), num_rows=3).rows.tolist()
        [2, 2]
    """
    keys, places = torch.unique(clients * num_rows + rows, return_inverse=True)
    return TouchedRows(keys // num_rows, keys % num_rows, places)


def unowned_items(
    items: Tensor, counts: Tensor, num_items: int, num_each: int, uniform: Uniform | None = None
) -> Tensor:
    """Sample ``num_each`` items for each of a client's own, uniformly and with replacement, from the client's unobserved items.

    Item number ``r`` of a client's others is ``r + k`` if ``k`` own items come before it; one search finds it for all clients.

    Args:
        items: Items of the clients (entries,), client by client, ascending within each.
        counts: Number of items of each client (clients,).
        num_items: Size of the catalogue.
        num_each: Samples for each entry.
        uniform: Returns uniform numbers of a shape; None: torch's global random state.

    Returns:
        Sampled items (entries, num_each).
    """
    if full := int((counts >= num_items).sum()):
        raise ValueError(f"{full} clients have all {num_items} items, and no negatives. Leave them out.")
    owners = torch.repeat_interleave(counts)
    starts = counts.cumsum(0) - counts
    # Before the j-th own item of a client lie as many of the others as its number less j.
    before = items - (torch.arange(len(items), device=items.device) - starts[owners])
    others = (num_items - counts)[owners, None].expand(-1, num_each)
    if uniform is None:
        uniform = partial(torch.rand, device=items.device, dtype=torch.float64)
    drawn = (uniform(tuple(others.shape)) * others).long()
    keys = owners * (num_items + 1) + before
    smaller = torch.searchsorted(keys, owners[:, None] * (num_items + 1) + drawn, right=True)
    return drawn + smaller - starts[owners, None]


def local_moves(
    losses: Callable[[Copies], Tensor], start: Mapping[str, Tensor], num_steps: int, lr: float
) -> tuple[Copies, Tensor]:
    """Run gradient descent of all clients at once; return each client's move and first loss (clients,).

    Moves have the shapes of ``start``; no gradient passes.

    Args:
        losses: Maps copies to the loss of each client, so the gradient of the sum is every client's own.
        start: Copies of the parameters by name, one row per client.
        num_steps: Number of steps.
        lr: Step size.
    """
    moves = {name: torch.zeros_like(part) for name, part in start.items()}
    before: list[Tensor] = []
    for _ in range(num_steps):
        copies = {name: (part.detach() + moves[name]).requires_grad_() for name, part in start.items()}
        with torch.enable_grad():
            each = losses(copies)
            gradients = torch.autograd.grad(each.sum(), list(copies.values()))
        before.append(each.detach())
        moves = {name: move - lr * gradient for (name, move), gradient in zip(moves.items(), gradients, strict=True)}
    return moves, before[0]
