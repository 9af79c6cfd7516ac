"""Training batches: a plain resumable iterable of vectorised batches, with negative sampling."""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor

from zoo.data.batches import Batch, PairBatch, TripleBatch, UserBatch
from zoo.data.ratings import Ratings
from zoo.data.unseen import UnseenItems

Made = TypeVar("Made")
#: What is drawn for example indices (examples,), one row for each.
Draw: TypeAlias = Callable[[Tensor, Generator], Tensor]

CPU = torch.device("cpu")
_DRAWN_AT_ONCE = 1 << 16  # examples: a few MiB, and a resumed epoch begins with the block it stopped in


def nothing_drawn(index: Tensor, generator: Generator) -> Tensor:
    """What a form draws that has nothing random: rows of no number, shape ``(examples, 0)``."""
    return index.new_empty(len(index), 0)


class Share(NamedTuple):
    """Which part of an epoch a process takes: that of its rank among so many processes."""

    rank: int = 0
    world_size: int = 1


def share_of(trainer: Any) -> Share:  # noqa: ANN401  a trainer, without Lightning
    """The part of a trainer's process: that of its rank, but the same for processes that hold parts of one model."""
    asked = trainer.distributed_sampler_kwargs or {"rank": 0, "num_replicas": 1}
    return Share(asked["rank"], asked["num_replicas"])


def seeded(*parts: int, device: torch.device = CPU) -> Generator:
    """A torch generator of a device, whose stream depends on every part and on the kind of device, and on nothing else."""
    state = np.random.SeedSequence([part & 0xFFFFFFFFFFFFFFFF for part in parts]).generate_state(1, np.uint64)[0]
    return Generator(device).manual_seed(int(state) & 0x7FFFFFFFFFFFFFFF)


class Batches(Generic[Made]):
    """Training batches that depend on (seed, epoch, batch, rank) alone, so that a run can go on inside an epoch.

    It is no ``DataLoader`` and has neither ``sampler`` nor ``dataset``: Lightning would shard it a second time, and
    cannot resume one inside an epoch. Every process gets equally many batches; the shuffled order is padded with its
    own beginning where it does not divide.

    There are ``size`` examples, ``batch_size`` in a batch of one process. What is random in a batch is drawn for many of them at
    once: ``draw`` makes what belongs to example indices (examples,), row by row, of a generator, and ``make`` a batch of its
    indices (batch,) and rows. The seed is that of order and draws; each epoch has its own order where ``shuffle`` says so. Indices
    are on the ``device``, where all is drawn and made, so that no step waits for the processor; the order is the same on all.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        make: Callable[[Tensor, Tensor], Made],
        seed: int,
        epoch: Callable[[], int] = lambda: 0,
        share: Share = Share(),  # noqa: B008  a NamedTuple is immutable
        shuffle: bool = True,
        draw: Draw = nothing_drawn,
        device: torch.device = CPU,
    ) -> None:
        self.device = device
        self.size, self.batch_size, self.make, self.seed = size, batch_size, make, seed
        self.epoch, self.share, self.shuffle, self.draw = epoch, share, shuffle, draw
        self._start = self._at = 0

    def __len__(self) -> int:
        per_process = -(-self.size // self.share.world_size)
        return -(-per_process // self.batch_size)

    def __iter__(self) -> Iterator[Made]:
        epoch = self.epoch()  # read here, in the generator's body: Lightning has restored it by now
        start, self._start = self._start, 0
        order = self._order(epoch)
        at_once = max(_DRAWN_AT_ONCE // self.batch_size, 1)  # batches
        for block in range(start // at_once, -(-len(self) // at_once)):
            index = order[block * at_once * self.batch_size : (block + 1) * at_once * self.batch_size]
            drawn = self.draw(index, seeded(self.seed, epoch, block, self.share.rank, device=self.device))
            parts = zip(*(torch.split(part, self.batch_size) for part in (index, drawn)), strict=True)
            for k, (examples, rows) in enumerate(parts, block * at_once):
                if k >= start:
                    self._at = k + 1
                    yield self.make(examples, rows)

    def _order(self, epoch: int) -> Tensor:
        generator = seeded(self.seed, epoch)
        order = torch.randperm(self.size, generator=generator) if self.shuffle else torch.arange(self.size)
        padding = -self.size % self.share.world_size
        return torch.cat([order, order[:padding]])[self.share.rank :: self.share.world_size].to(self.device)

    def state_dict(self) -> dict[str, int]:
        """Where the epoch stands; at its end that is the beginning of the next."""
        return {"at": self._at % max(len(self), 1)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._start = int(state["at"])


class TrainingExamples:
    """Makes training batches of every form from training ratings, with ``num_negatives`` for each observed pair of a batch."""

    def __init__(self, train: Ratings, num_negatives: int = 1, device: torch.device = CPU) -> None:
        users, items = train.pairs()
        self.users, self.items = (torch.from_numpy(part).to(device) for part in (users, items))
        self.num_items = train.num_items
        self.num_negatives = num_negatives
        self.known = torch.unique(self.users)
        self.full_users = int((torch.bincount(self.users) == train.num_items).sum())
        self._train = train

    @cached_property
    def _unseen(self) -> UnseenItems:
        """Made when a form first draws negatives: whoever reads whole rows does without."""
        pairs = torch.from_numpy(self._train.pair_keys).to(self.users.device)
        return UnseenItems(pairs, self._train.num_users, self._train.num_items)

    def batches(self, form: str) -> tuple[int, Callable[[Tensor, Tensor], Batch], Draw]:
        """How many examples a form has, what makes a batch of it, and what is drawn for each example."""
        if form in ("users", "once"):
            return len(self.known), lambda index, _: UserBatch(self.known[index]), nothing_drawn
        if form == "steps":
            return len(self.users), lambda *_: UserBatch(self.known), nothing_drawn
        make: dict[str, Callable[[Tensor, Tensor], Batch]] = {"pairs": self.pairs, "triples": self.triples}
        return len(self.users), make[form], self.negatives if form == "pairs" else partial(self.negatives, count=1)

    def pairs(self, index: Tensor, negatives: Tensor) -> PairBatch:
        """Observed pairs (batch,) with label 1, then their negatives (batch, num_negatives) with label 0."""
        users, items = self.users[index], self.items[index]
        count = negatives.shape[1]
        labels = torch.zeros(len(users) * (1 + count), device=users.device)
        labels[: len(users)] = 1
        return PairBatch(users.repeat(1 + count), torch.cat([items, negatives.T.flatten()]), labels)

    def triples(self, index: Tensor, negatives: Tensor) -> TripleBatch:
        """Observed pairs (batch,) with one negative each, (batch, 1)."""
        return TripleBatch(self.users[index], self.items[index], negatives.squeeze(1))

    def negatives(self, index: Tensor, generator: Generator, count: int | None = None) -> Tensor:
        """Items that the users of observed pairs (examples,) have not rated in training, shape ``(examples, count)``.

        They are uniform over all such items, with replacement; ``count`` is ``num_negatives`` unless given.
        """
        if self.full_users:
            raise ValueError(
                f"{self.full_users} users have rated every one of the {self.num_items} items, so they have no negative "
                "item to sample. Use a method that reads whole rows, or filter these users out."
            )
        users = self.users[index].repeat_interleave(self.num_negatives if count is None else count)
        return self._unseen.draw(users, generator).reshape(len(index), -1)


class Learner(Protocol):
    """What a method says of the batches it learns from; see `zoo.recommender.Recommender`."""

    batches: str
    num_negatives: int
    steps_per_epoch: int


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
    """Batches of the form that a method wants; arguments as those of `Batches`."""
    size, make, draw = TrainingExamples(train, method.num_negatives, device).batches(method.batches)
    if method.batches == "steps":
        size, batch_size, shuffle = method.steps_per_epoch, 1, False
    elif method.batches == "once":
        batch_size, shuffle = size, False
    return Batches(size, batch_size, make, seed, epoch, share, shuffle, draw, device)
