"""Training batches: a plain resumable iterable of vectorised batches, with negative sampling."""

from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor

from zoo.data.batches import Batch, PairBatch, TripleBatch, UserBatch
from zoo.data.pairs import contains
from zoo.data.ratings import Ratings

Made = TypeVar("Made")


class Share(NamedTuple):
    """Which part of an epoch a process takes: that of its rank among so many processes."""

    rank: int = 0
    world_size: int = 1


def seeded(*parts: int) -> Generator:
    """A torch generator whose stream depends on every part, and on nothing else."""
    state = np.random.SeedSequence([part & 0xFFFFFFFFFFFFFFFF for part in parts]).generate_state(1, np.uint64)[0]
    return Generator().manual_seed(int(state) & 0x7FFFFFFFFFFFFFFF)


class Batches(Generic[Made]):
    """Training batches that depend on (seed, epoch, batch, rank) alone, so that a run can go on inside an epoch.

    It is no ``DataLoader`` and has neither ``sampler`` nor ``dataset``: Lightning would shard it a second time, and
    cannot resume one inside an epoch. Every process gets equally many batches; the shuffled order is padded with its
    own beginning where it does not divide.

    There are ``size`` examples, ``batch_size`` in a batch of one process. ``make`` makes a batch of example indices (batch,)
    and a generator; the seed is that of order and negatives; each epoch has its own order where ``shuffle`` says so.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        make: Callable[[Tensor, Generator], Made],
        seed: int,
        epoch: Callable[[], int] = lambda: 0,
        share: Share = Share(),  # noqa: B008  a NamedTuple is immutable
        shuffle: bool = True,
    ) -> None:
        self.size, self.batch_size, self.make, self.seed = size, batch_size, make, seed
        self.epoch, self.share, self.shuffle = epoch, share, shuffle
        self._start = self._at = 0

    def __len__(self) -> int:
        per_process = -(-self.size // self.share.world_size)
        return -(-per_process // self.batch_size)

    def __iter__(self) -> Iterator[Made]:
        epoch = self.epoch()  # read here, in the generator's body: Lightning has restored it by now
        start, self._start = self._start, 0
        order = self._order(epoch)
        for k in range(start, len(self)):
            self._at = k + 1
            index = order[k * self.batch_size : (k + 1) * self.batch_size]
            yield self.make(index, seeded(self.seed, epoch, k, self.share.rank))

    def _order(self, epoch: int) -> Tensor:
        generator = seeded(self.seed, epoch)
        order = torch.randperm(self.size, generator=generator) if self.shuffle else torch.arange(self.size)
        padding = -self.size % self.share.world_size
        return torch.cat([order, order[:padding]])[self.share.rank :: self.share.world_size]

    def state_dict(self) -> dict[str, int]:
        """Where the epoch stands; at its end that is the beginning of the next."""
        return {"at": self._at % max(len(self), 1)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self._start = int(state["at"])


class TrainingExamples:
    """Makes training batches of every form from training ratings, with ``num_negatives`` for each observed pair of a batch."""

    def __init__(self, train: Ratings, num_negatives: int = 1) -> None:
        users, items = train.pairs()
        self.users, self.items = torch.from_numpy(users), torch.from_numpy(items)
        self.num_items = train.num_items
        self.keys = train.pair_keys
        self.num_negatives = num_negatives
        self.known = torch.from_numpy(np.unique(users))
        self.full_users = int((torch.bincount(self.users) == train.num_items).sum())

    def batches(self, form: str) -> tuple[int, Callable[[Tensor, Generator], Batch]]:
        """How many examples a form has, and what makes a batch of it."""
        if form in ("users", "once"):
            return len(self.known), lambda index, _: UserBatch(self.known[index])
        make: dict[str, Callable[[Tensor, Generator], Batch]] = {
            "pairs": self.pairs,
            "triples": self.triples,
            "steps": lambda *_: UserBatch(self.known),
        }
        return len(self.users), make[form]

    def pairs(self, index: Tensor, generator: Generator) -> PairBatch:
        """Observed pairs with label 1, then ``num_negatives`` sampled ones for each with label 0."""
        users, items = self.users[index], self.items[index]
        repeated = users.repeat(self.num_negatives)
        negatives = self.negatives(repeated, generator)
        labels = torch.cat([torch.ones(len(users)), torch.zeros(len(repeated))])
        return PairBatch(torch.cat([users, repeated]), torch.cat([items, negatives]), labels)

    def triples(self, index: Tensor, generator: Generator) -> TripleBatch:
        """Observed pairs with one sampled item each."""
        users = self.users[index]
        return TripleBatch(users, self.items[index], self.negatives(users, generator))

    def negatives(self, users: Tensor, generator: Generator) -> Tensor:
        """One item for each user (batch,), uniform over those the user has not rated in training: rejection sampling."""
        if self.full_users:
            raise ValueError(
                f"{self.full_users} users have rated every one of the {self.num_items} items, so they have no negative "
                "item to sample. Use a method that reads whole rows, or filter these users out."
            )
        items = torch.randint(self.num_items, (len(users),), generator=generator)
        # A user with n of the I items is drawn for I / (I - n) times on average: little more than once in sparse data.
        while len(rejected := contains(self.keys, (users * self.num_items + items).numpy()).nonzero()[0]):
            items[rejected] = torch.randint(self.num_items, (len(rejected),), generator=generator)
        return items


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
) -> Batches[Batch]:
    """Batches of the form that a method wants; arguments as those of `Batches`."""
    size, make = TrainingExamples(train, method.num_negatives).batches(method.batches)
    if method.batches == "steps":
        size, batch_size, shuffle = method.steps_per_epoch, 1, False
    elif method.batches == "once":
        batch_size, shuffle = size, False
    return Batches(size, batch_size, make, seed, epoch, share, shuffle)
