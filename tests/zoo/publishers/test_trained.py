"""What publishers share that train on a source: its ratings as a method reads them, in batches of the method's own form."""

from typing import Any

import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from torch import Tensor

from tests.samples import binary
from zoo import BPR, EASE, SPPG, EmbeddingPublisher, GeneratorPublisher, NeuMF
from zoo.data.batch_types import PairBatch, TripleBatch, UserBatch
from zoo.publishers.base import PublicSizes
from zoo.publishers.trained import SourceRatings, TrainedPublisher


class Listener(LightningModule):
    """Keeps the batches that it is given."""

    num_negatives, steps_per_epoch = 2, 3

    def __init__(self, batches: str) -> None:
        super().__init__()
        self.batches, self.seen = batches, []  # type: list[Any]
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        self.seen.append(batch)

    def configure_optimizers(self) -> None:
        return None


def trained(network: LightningModule, source: SourceRatings, epochs: int = 1) -> Trainer:
    trainer = Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0,
    )  # fmt: skip
    trainer.fit(network, datamodule=source)
    return trainer


def observed(users: Tensor, items: Tensor) -> set[tuple[int, int]]:
    return set(zip(users.tolist(), items.tolist(), strict=True))


RATED = observed(*(torch.from_numpy(index) for index in binary().pairs()))


def test_triples_are_of_the_sources_ratings_each_once_an_epoch() -> None:
    listener = Listener("triples")
    trained(listener, SourceRatings(binary(), batch_size=4, seed=3), epochs=2)
    assert all(isinstance(batch, TripleBatch) for batch in listener.seen)
    assert max(len(batch.users) for batch in listener.seen) == 4
    users, positives, negatives = (torch.cat(parts) for parts in zip(*listener.seen, strict=True))
    assert len(users) == 2 * len(RATED)
    half = len(listener.seen) // 2
    first, second = (
        torch.cat([batch.users for batch in part]) for part in (listener.seen[:half], listener.seen[half:])
    )
    assert not torch.equal(first, second), "another order in each epoch"
    assert observed(users, positives) == RATED
    assert not observed(users, negatives) & RATED


def test_pairs_have_the_methods_number_of_negatives() -> None:
    listener = Listener("pairs")
    trained(listener, SourceRatings(binary(), batch_size=5))
    assert all(isinstance(batch, PairBatch) for batch in listener.seen)
    labels = torch.cat([batch.labels for batch in listener.seen])
    assert (int((labels == 1).sum()), int((labels == 0).sum())) == (len(RATED), 2 * len(RATED))


@pytest.mark.parametrize(("form", "count"), [("full_batch", 1), ("steps", 3)])
def test_solvers_have_everybody_in_every_batch(form: str, count: int) -> None:
    listener = Listener(form)
    trained(listener, SourceRatings(binary(), batch_size=2))
    known = sorted({user for user, _ in RATED})
    assert [batch.users.tolist() for batch in listener.seen] == [known] * count


@pytest.mark.parametrize("form", ["users", "triples"])
def test_who_takes_samples_of_its_own_has_so_many_batches_with_nobody_in_them(form: str) -> None:
    listener = Listener(form)
    trained(listener, SourceRatings(binary(), num_batches=4))
    assert all(isinstance(batch, UserBatch) for batch in listener.seen)
    assert [len(batch.users) for batch in listener.seen] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "method",
    [BPR(), NeuMF(), EASE(), SPPG(mechanism="none", steps=2, sample_size=2, condition_dim=2)],
    ids=["triples", "pairs", "full_batch", "users"],
)
def test_methods_of_one_domain_train_on_a_source(method: Any) -> None:  # noqa: ANN401
    ratings = binary()
    trained(method, SourceRatings(ratings))
    assert method.sizes == {"num_users": ratings.num_users, "num_items": ratings.num_items, "sources": {}}
    assert method.target_rows.items.tolist() == ratings.matrix.indices.tolist()
    assert not method.rankings, "nothing is ranked"
    with torch.no_grad():
        assert method.eval().score_all(torch.arange(3)).shape == (3, ratings.num_items)


def test_all_bits_of_a_secret_seed_reach_the_first_weights() -> None:
    class Drawn(BPR):
        def configure_optimizers(self) -> Any:  # noqa: ANN401
            self.numbers = torch.rand(4)
            return super().configure_optimizers()

    def numbers(high: int) -> Tensor:
        publisher = EmbeddingPublisher(Drawn(3), epsilon=4.0, clip=1.0, progress=False)
        found: Tensor = publisher.trained(SourceRatings(binary(), seed=7 + (high << 32))).numbers
        return found

    assert not torch.equal(numbers(0), numbers(5)), "a CPU's own seeding drops the high bits"
    assert torch.equal(numbers(0), numbers(0))


@pytest.mark.thorough
@pytest.mark.parametrize("generator", [False, True])
def test_the_seed_of_a_training_comes_from_the_operating_system(generator: bool) -> None:
    """A fixed seed lets a reader repeat the training, so it leaves no guarantee."""

    def publisher(**settings: Any) -> TrainedPublisher:  # noqa: ANN401
        if generator:
            return GeneratorPublisher(SPPG(steps=2, sample_size=2, condition_dim=2, generator_dims=(3,)), **settings)
        return EmbeddingPublisher(BPR(num_factors=3), epsilon=4.0, clip=1.0, max_epochs=1, **settings)

    seeds = {publisher().training_seed() for _ in range(9)}
    assert len(seeds) == 9
    assert publisher().prepare(PublicSizes.of(binary())).record.claims
    known = publisher(seed=3)
    assert known.training_seed() == 3
    for record in (known.forecast(60, 40), known.publish(binary(), "book").record):
        assert (record.guarantee, record.epsilon) == ("none", None)
        assert record.reason is not None
        assert record.reason.startswith("the seed of the training was fixed")
    assert not known.audits()
