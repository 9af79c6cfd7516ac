"""What every exported publisher must do."""

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

import zoo
from tests.samples import binary, some_ratings
from zoo import (
    BPR,
    JLT,
    SJLT,
    SPPG,
    BridgePublisher,
    EmbeddingPublisher,
    FlippedRows,
    GeneratorPublisher,
    Noise,
    NoisyRows,
    Nothing,
    Partial,
    Plaintext,
    ProjectionPublisher,
    Publisher,
    Ratings,
    Shuffled,
    Thinned,
)
from zoo.privacy.accounting.accountant import Accountant
from zoo.privacy.accounting.events import NonPrivateEvent, NoOpEvent
from zoo.publishers.base import PublicSizes
from zoo.testing import PublisherContract

MAKERS: dict[str, Callable[[], Publisher]] = {
    "BridgePublisher": lambda: BridgePublisher(epsilon=4.0, kept_items=5, noise_seed=1).for_target(binary()),
    "EmbeddingPublisher": lambda: EmbeddingPublisher(
        BPR(num_factors=3), epsilon=4.0, clip=1.0, max_epochs=1, noise_seed=1
    ),
    "FlippedRows": lambda: FlippedRows(epsilon=4.0, noise_seed=1),
    "GeneratorPublisher": lambda: GeneratorPublisher(
        SPPG(steps=3, sample_size=4, condition_dim=2, generator_dims=(3,), noise_seed=1)
    ),
    "JLT": lambda: JLT(epsilon=4.0, num_components=5, seed=2, noise_seed=1),
    "Noise": lambda: Noise(JLT(epsilon=4.0, num_components=5, seed=2, noise_seed=1)),
    "NoisyRows": lambda: NoisyRows(epsilon=4.0, noise_seed=1),
    "Nothing": lambda: Nothing(),
    "Partial": lambda: Partial(JLT(epsilon=4.0, num_components=5, seed=2, noise_seed=1), share=0.5),
    "Plaintext": lambda: Plaintext(),
    "ProjectionPublisher": lambda: ProjectionPublisher(epsilon=4.0, num_directions=3, noise_seed=1),
    "SJLT": lambda: SJLT(epsilon=4.0, num_components=5, seed=2, noise_seed=1),
    "Shuffled": lambda: Shuffled(JLT(epsilon=4.0, num_components=5, seed=2, noise_seed=1)),
    "Thinned": lambda: Thinned(JLT(epsilon=4.0, num_components=5, seed=2, noise_seed=1), share=0.5),
}


def test_every_publisher_is_tested_here() -> None:
    assert set(MAKERS) == set(zoo.PUBLISHERS)


class TestEveryPublisher(PublisherContract):
    @pytest.fixture(params=sorted(zoo.PUBLISHERS))
    def publisher(self, request: pytest.FixtureRequest) -> Publisher:
        return MAKERS[request.param]()


@pytest.fixture(params=sorted(zoo.PUBLISHERS))
def publisher(request: pytest.FixtureRequest) -> Publisher:
    return MAKERS[request.param]()


def test_publishing_is_repeatable_with_seeds(publisher: Publisher) -> None:
    assert publisher.publish(binary(), "book").digest == publisher.publish(binary(), "book").digest


@pytest.mark.parametrize(
    "publisher",
    [
        FlippedRows(0.1),  # nearly coins: two releases are the same with probability 2^-cells
        NoisyRows(4.0),
        NoisyRows(4.0, threshold=0.5),
        JLT(4.0, num_components=5, seed=2),
        SJLT(4.0, num_components=5, seed=2),
        Thinned(FlippedRows(0.1), share=0.5),
        BridgePublisher(4.0).for_target(binary()),
        ProjectionPublisher(4.0),
        EmbeddingPublisher(BPR(num_factors=3), 4.0, clip=1.0, max_epochs=1),
        *(
            GeneratorPublisher(SPPG(mechanism, steps=3, sample_size=4, condition_dim=2, generator_dims=(3,)))
            for mechanism in ("private_d", "gs_wgan")
        ),
    ],
    ids=lambda publisher: type(publisher).__name__,
)
def test_no_noise_is_used_twice(publisher: Publisher) -> None:
    """Whatever a publisher keeps, and whatever the global seed: what is public is the same in all these releases."""
    made = []
    for again in (publisher, publisher, copy.deepcopy(publisher)):
        torch.manual_seed(1)
        made.append(again.publish(binary(), "book"))
    assert all(release.record.claims for release in made)
    assert len({release.digest for release in made}) == 3


def test_shuffling_leaves_nobody_a_row() -> None:
    ratings = binary()
    plain, shuffled = Plaintext().publish(ratings, "book"), Shuffled(Plaintext()).publish(ratings, "book")
    assert sorted(shuffled.user_ids) == sorted(plain.user_ids)
    assert not (shuffled.user_ids == plain.user_ids).any()
    assert torch.equal(shuffled.tensors["items"], plain.tensors["items"])


def test_shuffling_one_user_is_refused() -> None:
    one = Ratings(binary().matrix[:1], np.array(["u"]), binary().item_ids)
    with pytest.raises(ValueError, match=r"has 1 users. Shuffling needs at least two"):
        Shuffled(Plaintext()).publish(one, "book")


def test_noise_keeps_shape_and_mean_and_nothing_else() -> None:
    ratings = binary()
    control = Noise(Plaintext()).publish(ratings, "book")
    counts = control.tensors["starts"].diff()
    assert (counts == round(ratings.num_ratings / ratings.num_users)).all()
    assert control.width == ratings.num_items
    assert list(control.user_ids) == list(ratings.user_ids)
    assert (
        control.record.reason == "the ratings are handed over as they are; control: the ratings were redrawn at random"
    )
    other = Ratings(ratings.matrix[::-1], ratings.user_ids, ratings.item_ids)
    assert torch.equal(Noise(Plaintext()).publish(other, "book").tensors["items"], control.tensors["items"])


@pytest.mark.parametrize("kind", ["rows", "ratings", "embeddings", "map"])
def test_nothing_is_released_in_any_kind(kind: str) -> None:
    release = Nothing(kind).publish(binary(), "book")  # type: ignore[arg-type]
    assert (release.kind, release.num_users, release.width) == (kind, 0, 1)
    assert release.ledger == (NoOpEvent(),)


def test_handing_over_the_ratings_costs_everything() -> None:
    assert Plaintext().plan(9, 7) == [NonPrivateEvent()]
    assert Accountant().compose(NonPrivateEvent()).epsilon(0.1) == float("inf")


@pytest.mark.parametrize("publisher", [JLT(epsilon=4.0, num_components=5), SJLT(epsilon=4.0, num_components=5)])
def test_a_forecast_differs_in_the_projection_alone_which_is_drawn_for_each_release(publisher: Publisher) -> None:
    record = publisher.publish(replace(binary(), applied=()), "book").record
    forecast = publisher.forecast(9, 7)
    seeds = {planned.public_inputs["projection_seed"] for planned in (record, forecast, publisher.forecast(9, 7))}
    assert len(seeds) == 3
    assert replace(record, mechanism=replace(record.mechanism, seed=forecast.mechanism.seed)) == forecast


@pytest.mark.parametrize(
    "publisher",
    [
        JLT(epsilon=4.0, num_components=5),
        NoisyRows(epsilon=4.0),
        Shuffled(FlippedRows(epsilon=1.0)),
        Noise(JLT(epsilon=4.0, num_components=5)),
    ],
)
def test_a_plan_is_made_into_one_release(publisher: Publisher) -> None:
    """What is drawn for a release, such as its projection, is public with it."""
    ratings = binary()
    planned = publisher.prepare(PublicSizes.of(ratings))
    with pytest.raises(ValueError, match="Plan anew"):
        planned.make(some_ratings(9, 8), "book")
    release = planned.make(ratings, "book")
    assert release.ledger == planned.events
    with pytest.raises(RuntimeError, match=r"A plan is for one release, which was made\. Plan anew"):
        planned.make(ratings, "book")
    publisher.prepare(PublicSizes.of(ratings)).make(ratings, "book")
