"""Training batches with negative sampling, and random states of every process: a resumed training repeats both."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor

from zoo.data.arrays import Integers
from zoo.data.batch_types import Batch, PairBatch, TripleBatch, UserBatch
from zoo.data.ratings import Ratings
from zoo.data.rows import LinkedRows, SparseRows
from zoo.data.unseen import UnseenItems

Made = TypeVar("Made")
#: Draws one row for each example index (examples,).
Draw: TypeAlias = Callable[[Tensor, Generator], Tensor]
#: Makes a batch of example indices (batch,), their drawn rows, and their summed counts.
Make: TypeAlias = Callable[[Tensor, Tensor, Sequence[int]], Made]

CPU = torch.device("cpu")
_DRAWN_AT_ONCE = 1 << 16  # examples per block: a few MiB; a resumed epoch redraws the block it stopped in


def draw_nothing(index: Tensor, generator: Generator) -> Tensor:
    """Return empty rows, shape ``(examples, 0)``, for batches without random parts."""
    return index.new_empty(len(index), 0)


class Share(NamedTuple):
    """The part of an epoch that a process trains on, by its rank."""

    rank: int = 0
    world_size: int = 1


def share_of(trainer: Any) -> Share:  # noqa: ANN401  a trainer, without Lightning
    """Return the part of a trainer's process; processes with shards of one model have the same part."""
    sampler = trainer.distributed_sampler_kwargs or {"rank": 0, "num_replicas": 1}
    return Share(sampler["rank"], sampler["num_replicas"])


def seeded(*parts: int, device: torch.device = CPU) -> Generator:
    """Return a torch generator whose stream depends on all parts and on the kind of device alone."""
    state = np.random.SeedSequence([part & 0xFFFFFFFFFFFFFFFF for part in parts]).generate_state(1, np.uint64)[0]
    return Generator(device).manual_seed(int(state) & 0x7FFFFFFFFFFFFFFF)


class Batches(Generic[Made]):
    """Training batches that depend on (seed, epoch, batch, rank) alone, so that a run can resume inside an epoch.

    It is no ``DataLoader``: Lightning would shard it again, and could not resume one inside an epoch. All processes get the same
    number of batches; the shuffled order is padded with its own start. Draws and batches are made on the ``device``; the order is
    the same on all devices.

    Args:
        size: Number of examples.
        batch_size: Examples in a batch of one process.
        make: Makes a batch of example indices (batch,), their drawn rows, and their counts.
        seed: Seed of order and draws.
        epoch: Returns the epoch.
        share: The part of this process.
        shuffle: Whether to reorder the examples in each epoch.
        draw: Draws random rows for example indices (examples,), for many batches at once.
        device: Device of the indices.
        counts: Counts of examples, (examples, kinds), summed on the CPU for each batch, which avoids synchronising the device.

    Examples:
        >>> batches = Batches(5, 2, lambda index, drawn, counts: index.tolist(), seed=0, shuffle=False)
        >>> list(batches)
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        make: Make[Made],
        seed: int,
        epoch: Callable[[], int] = lambda: 0,
        share: Share = Share(),  # noqa: B008  a NamedTuple is immutable
        shuffle: bool = True,
        draw: Draw = draw_nothing,
        device: torch.device = CPU,
        counts: Integers | None = None,
    ) -> None:
        self.device = device
        self.counts = counts
        self.size, self.batch_size, self.make, self.seed = size, batch_size, make, seed
        self.epoch, self.share, self.shuffle, self.draw = epoch, share, shuffle, draw
        self._start = self._at = 0

    def __len__(self) -> int:
        per_process = -(-self.size // self.share.world_size)
        return -(-per_process // self.batch_size)

    def __iter__(self) -> Iterator[Made]:
        epoch = self.epoch()  # read at the first batch, after Lightning has restored it
        start, self._start = self._start, 0
        order = self._order(epoch)
        on_device = order.to(self.device)
        at_once = max(_DRAWN_AT_ONCE // self.batch_size, 1)  # batches
        for block in range(start // at_once, -(-len(self) // at_once)):
            examples = slice(block * at_once * self.batch_size, (block + 1) * at_once * self.batch_size)
            index = on_device[examples]
            drawn = self.draw(index, seeded(self.seed, epoch, block, self.share.rank, device=self.device))
            parts = (*(torch.split(part, self.batch_size) for part in (index, drawn)), self._counted(order[examples]))
            for k, part in enumerate(zip(*parts, strict=True), block * at_once):
                if k >= start:
                    self._at = k + 1
                    yield self.make(*part)

    def _counted(self, index: Tensor) -> Sequence[Sequence[int]]:
        batches = max(-(-len(index) // self.batch_size), 1)  # `torch.split` gives one part of an empty tensor
        if self.counts is None:
            return [()] * batches
        parts = (self.counts[part.numpy()].sum(0) for part in torch.split(index, self.batch_size))
        return [part.tolist() for part in parts]

    def _order(self, epoch: int) -> Tensor:
        generator = seeded(self.seed, epoch)
        order = torch.randperm(self.size, generator=generator) if self.shuffle else torch.arange(self.size)
        padding = -self.size % self.share.world_size
        return torch.cat([order, order[:padding]])[self.share.rank :: self.share.world_size]

    def state_dict(self) -> dict[str, int]:
        """Return the position in the epoch; at its end that is the start of the next."""
        return {"at": self._at % max(len(self), 1)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a position."""
        self._start = int(state["at"])


class BatchForm(NamedTuple):
    """Arguments of `Batches` for a form of batches."""

    size: int  # examples
    make: Make[Batch]
    draw: Draw
    counts: Integers | None = None  # (examples, kinds)


class TrainingExamples:
    """Training batches of every form from training ratings, with ``num_negatives`` for each observed pair of a batch.

    A user with every item has no negative: pairs and triples leave such users out; batches of users do so if
    ``with_full_users`` is false. ``released`` has, by source, the number of entries of a release that are read for each user
    (users,).
    """

    def __init__(
        self,
        train: Ratings,
        num_negatives: int = 1,
        device: torch.device = CPU,
        released: Mapping[str, Integers] = MappingProxyType({}),
        with_full_users: bool = True,
    ) -> None:
        lengths = np.diff(train.matrix.indptr).astype(np.int64)
        full = lengths == train.num_items
        self.full_users = int(full.sum())
        users, items = train.pairs()
        if self.full_users:
            users, items = users[~full[users]], items[~full[users]]
        self.users, self.items = (torch.from_numpy(part).to(device) for part in (users, items))
        self.num_items = train.num_items
        self.num_negatives = num_negatives
        known = np.flatnonzero((lengths > 0) & (with_full_users | ~full))
        self.known = torch.from_numpy(known).to(device)
        self.counts = np.stack([counts[known] for counts in (lengths, *released.values())], axis=1)
        self._train, self._sources = train, tuple(released)

    @cached_property
    def _unseen(self) -> UnseenItems:
        pairs = torch.from_numpy(self._train.pair_keys).to(self.users.device)
        return UnseenItems(pairs, self._train.num_users, self._train.num_items)

    def batches(self, form: str) -> BatchForm:
        """Return number of examples, maker, draws and counts of a form: users, full_batch, steps, pairs or triples.

        Raises:
            ValueError: If negatives are needed, and all users with ratings have every item.
        """
        if form in ("users", "full_batch"):
            self._require(len(self.known))
            return BatchForm(len(self.known), self.of_users, draw_nothing, self.counts)
        if form == "steps":
            all_users = self._user_batch(self.known, self.counts.sum(0).tolist())
            return BatchForm(len(self.users), lambda *_: all_users, draw_nothing)
        self._require(len(self.users))
        if form == "pairs":
            return BatchForm(len(self.users), self.pairs, self.negatives)
        return BatchForm(len(self.users), {"triples": self.triples}[form], partial(self.negatives, count=1))

    def _require(self, examples: int) -> None:
        if self.full_users and not examples:
            full = f"All {self.full_users} users with ratings have all {self.num_items} items"
            raise ValueError(f"{full}, so there are no negatives. Use a method of whole rows, e.g. EASE.")

    def of_users(self, index: Tensor, _: Tensor, counts: Sequence[int]) -> UserBatch:
        """Return a batch of users with ratings, by their positions (batch,) among these, with counts."""
        return self._user_batch(self.known[index], counts)

    def _user_batch(self, users: Tensor, counts: Sequence[int]) -> UserBatch:
        return UserBatch(users, counts[0], dict(zip(self._sources, counts[1:], strict=True)))

    def pairs(self, index: Tensor, negatives: Tensor, _: Sequence[int] = ()) -> PairBatch:
        """Return observed pairs (batch,) with label 1, then their negatives (batch, num_negatives) with label 0."""
        users, items = self.users[index], self.items[index]
        count = negatives.shape[1]
        labels = torch.zeros(len(users) * (1 + count), device=users.device)
        labels[: len(users)] = 1
        return PairBatch(users.repeat(1 + count), torch.cat([items, negatives.T.flatten()]), labels)

    def triples(self, index: Tensor, negatives: Tensor, _: Sequence[int] = ()) -> TripleBatch:
        """Return observed pairs (batch,) with one negative each, (batch, 1)."""
        return TripleBatch(self.users[index], self.items[index], negatives.squeeze(1))

    def negatives(self, index: Tensor, generator: Generator, count: int | None = None) -> Tensor:
        """Return items that the users of observed pairs (examples,) have not rated in training, shape ``(examples, count)``.

        They are uniform over all such items, with replacement. The default of ``count`` is ``num_negatives``.
        """
        users = self.users[index].repeat_interleave(self.num_negatives if count is None else count)
        return self._unseen.draw(users, generator).reshape(len(index), -1)


class Learner(Protocol):
    """A method's settings of its batches; see `zoo.methods.base.Recommender`."""

    batches: str
    num_negatives: int
    steps_per_epoch: int
    trains_full_users: bool


def _entries(sources: Mapping[str, LinkedRows]) -> dict[str, Integers]:
    sparse = {name: linked for name, linked in sources.items() if isinstance(linked.rows, SparseRows)}
    return {name: linked.entries_per_user().cpu().numpy() for name, linked in sparse.items()}


def training_batches(
    train: Ratings,
    method: Learner,
    batch_size: int,
    seed: int,
    epoch: Callable[[], int],
    share: Share = Share(),  # noqa: B008  a NamedTuple is immutable
    shuffle: bool = True,
    device: torch.device = CPU,
) -> Batches[Batch]:
    """Return batches of a method's form; arguments as those of `Batches`."""
    released = _entries(getattr(method, "sources", {}))
    with_full = getattr(method, "trains_full_users", True)
    examples = TrainingExamples(train, method.num_negatives, device, released, with_full)
    size, make, draw, counts = examples.batches(method.batches)
    if method.batches == "steps":
        size, batch_size, shuffle = method.steps_per_epoch, 1, False
    elif method.batches == "full_batch":
        batch_size, shuffle = size, False
    return Batches(size, batch_size, make, seed, epoch, share, shuffle, draw, device, counts)


RandomState = list[Tensor]
"""Torch's random state of one process, and that of its GPU if it has one."""


def random_states(device: torch.device) -> list[RandomState]:
    """Return the state of every process, by rank. Every process must call it."""
    own = [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if device.type == "cuda" else [])]
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return [own]
    states: list[RandomState] = [[] for _ in range(distributed.get_world_size())]
    distributed.all_gather_object(states, own)
    return states


def saved_states(saved: Sequence[RandomState] | RandomState) -> list[RandomState]:
    """Return the states of a checkpoint; before version 0.3 it had that of the first process alone, not in a list."""
    first, *others = saved
    return [[first, *others]] if isinstance(first, Tensor) else [first, *others]


def separate_streams(rank: int) -> None:
    """Give every process but the first its own stream, by its rank: with one seed all would draw the same numbers."""
    if rank:
        torch.manual_seed(seeded(int(torch.randint(1 << 62, ())), rank).initial_seed())


def restore_state(states: Sequence[RandomState], rank: int, device: torch.device) -> None:
    """Restore the state of this rank; a rank without saved state gets its own stream."""
    own = states[rank if rank < len(states) else 0]
    torch.set_rng_state(own[0].cpu())
    if len(own) > 1 and device.type == "cuda":
        torch.cuda.set_rng_state(own[1].cpu())
    if rank >= len(states):
        separate_streams(rank)
