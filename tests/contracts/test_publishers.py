"""What every exported publisher must do."""

import copy
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from tests.samples import binary, some_ratings
from zoo.privacy.accounting.accountant import Accountant
from zoo.privacy.accounting.events import NonPrivateEvent, NoOpEvent
from zoo.privacy.training.generator_privacy import Mechanism
from zoo.publishers.base import PublicSizes
from zoo.publishers.controls import Wrapper
from zoo.testing import PublisherContract


def generator(mechanism: Mechanism = "private_d", seed: int | None = None) -> zoo.GeneratorPublisher:
    sizes: dict[str, Any] = {"steps": 3, "sample_size": 4, "condition_dim": 2, "generator_dims": (3,)}
    return zoo.GeneratorPublisher(zoo.SPPG(mechanism, **sizes, noise_seed=seed))


def projected(seed: int | None) -> zoo.JLT:
    return zoo.JLT(epsilon=4.0, num_components=5, seed=2, noise_seed=seed)


#: Of a seed of the noise; None: the system's entropy.
MAKERS: dict[str, Callable[[int | None], zoo.Publisher]] = {
    "BridgePublisher": lambda seed: zoo.BridgePublisher(4.0, kept_items=5, noise_seed=seed).for_target(binary()),
    "EmbeddingPublisher": lambda seed: zoo.EmbeddingPublisher(
        zoo.BPR(num_factors=3), epsilon=4.0, clip=1.0, max_epochs=1, noise_seed=seed
    ),
    "FlippedRows": lambda seed: zoo.FlippedRows(0.1, noise_seed=seed),  # nearly coins: two are the same at 2^-cells
    "GeneratorPublisher": lambda seed: generator(seed=seed),
    "JLT": projected,
    "Noise": lambda seed: zoo.Noise(projected(seed)),
    "NoisyRows": lambda seed: zoo.NoisyRows(epsilon=4.0, noise_seed=seed),
    "Nothing": lambda seed: zoo.Nothing(),
    "Partial": lambda seed: zoo.Partial(projected(seed), share=0.5),
    "Plaintext": lambda seed: zoo.Plaintext(),
    "ProjectionPublisher": lambda seed: zoo.ProjectionPublisher(epsilon=4.0, num_directions=3, noise_seed=seed),
    "SJLT": lambda seed: zoo.SJLT(epsilon=4.0, num_components=5, seed=2, noise_seed=seed),
    "Shuffled": lambda seed: zoo.Shuffled(projected(seed)),
    "Thinned": lambda seed: zoo.Thinned(projected(seed), share=0.5),
}


#: Of what is wrapped.
WRAPPERS: dict[str, Callable[[zoo.Publisher], zoo.Publisher]] = {
    "Noise": zoo.Noise,
    "Partial": lambda of: zoo.Partial(of, share=0.5),
    "Shuffled": zoo.Shuffled,
    "Thinned": lambda of: zoo.Thinned(of, share=0.9),
}


def test_every_publisher_is_tested_here() -> None:
    assert set(MAKERS) == set(zoo.PUBLISHERS)
    assert set(WRAPPERS) == {name for name in MAKERS if issubclass(getattr(zoo, name), Wrapper)}
    read = set(zoo.Publisher.__annotations__)  # attributes that others read of a publisher: pass on a new one
    assert read == {"control", "joins_users", "repeats_seed"}, "the last is about a class's own seed"


def test_a_wrapper_is_read_like_what_it_wraps_at_any_depth() -> None:
    """Around a publisher that joins its users with the target's: controls permute and drop users before."""
    for (inner, within), (outer, wrap) in product(WRAPPERS.items(), repeat=2):
        once = within(zoo.BridgePublisher(1e9, delta=1e-5, noise_seed=1))
        unknown, known = wrap(once), wrap(once).for_target(binary())
        assert (unknown.joins_users, known.joins_users, unknown.target_release()) == (True, True, None)
        assert known.target_release() is not None
        assert known.control == (not {inner, outer}.isdisjoint({"Noise", "Shuffled"}))
        release, plain = (made.publish(binary(), "book") for made in (known, once.for_target(binary())))
        assert release.record.mechanism.num_users == release.num_users, "nobody else is in the map"
        if outer == "Shuffled" and inner != "Noise":  # which draws ratings for whatever ids there are
            assert not torch.allclose(release.tensors["map"], plain.tensors["map"], atol=0.1)
    for publisher in (zoo.JLT(4.0), zoo.NoisyRows(4.0), zoo.Plaintext()):
        assert publisher.for_target(binary()) is publisher
        assert not wrap(publisher).joins_users


class TestEveryPublisher(PublisherContract):
    @pytest.fixture(params=sorted(zoo.PUBLISHERS))
    def publisher(self, request: pytest.FixtureRequest) -> zoo.Publisher:
        return MAKERS[request.param](None)


@pytest.mark.parametrize("name", MAKERS)
def test_publishing_is_repeatable_with_seeds(name: str) -> None:
    publisher = MAKERS[name](1)
    assert publisher.publish(binary(), "book").digest == publisher.publish(binary(), "book").digest


@pytest.mark.parametrize(
    "publisher",
    [zoo.NoisyRows(4.0, threshold=0.5), zoo.Thinned(zoo.FlippedRows(0.1), share=0.5), generator("gs_wgan")],
    ids=lambda publisher: type(publisher).__name__,
)
def test_no_noise_is_used_twice_in_other_forms_either(publisher: zoo.Publisher) -> None:
    """Whatever a publisher keeps, and whatever the global seed: what is public is the same in all these releases."""
    made = []
    for again in (publisher, publisher, copy.deepcopy(publisher)):
        torch.manual_seed(1)
        made.append(again.publish(binary(), "book"))
    assert all(release.record.claims for release in made)
    assert len({release.digest for release in made}) == 3


def test_shuffling_leaves_nobody_a_row() -> None:
    ratings = binary()
    plain, shuffled = zoo.Plaintext().publish(ratings, "book"), zoo.Shuffled(zoo.Plaintext()).publish(ratings, "book")
    assert sorted(shuffled.user_ids) == sorted(plain.user_ids)
    assert not (shuffled.user_ids == plain.user_ids).any()
    assert torch.equal(shuffled.tensors["items"], plain.tensors["items"])
    one = zoo.Ratings(binary().matrix[:1], np.array(["u"]), binary().item_ids)
    with pytest.raises(ValueError, match=r"has 1 users. Shuffling needs at least two"):
        zoo.Shuffled(zoo.Plaintext()).publish(one, "book")


def test_noise_keeps_shape_and_mean_and_nothing_else() -> None:
    ratings = binary()
    control = zoo.Noise(zoo.Plaintext()).publish(ratings, "book")
    counts = control.tensors["starts"].diff()
    assert (counts == round(ratings.num_ratings / ratings.num_users)).all()
    assert control.width == ratings.num_items
    assert list(control.user_ids) == list(ratings.user_ids)
    assert (
        control.record.reason == "the ratings are handed over as they are; control: the ratings were redrawn at random"
    )
    other = zoo.Ratings(ratings.matrix[::-1], ratings.user_ids, ratings.item_ids)
    assert torch.equal(zoo.Noise(zoo.Plaintext()).publish(other, "book").tensors["items"], control.tensors["items"])


@pytest.mark.parametrize("kind", ["rows", "ratings", "embeddings", "map"])
def test_nothing_is_released_in_any_kind(kind: str) -> None:
    release = zoo.Nothing(kind).publish(binary(), "book")  # type: ignore[arg-type]
    assert (release.kind, release.num_users, release.width) == (kind, 0, 1)
    assert release.ledger == (NoOpEvent(),)


def test_handing_over_the_ratings_costs_everything() -> None:
    assert zoo.Plaintext().plan(9, 7) == [NonPrivateEvent()]
    assert Accountant().compose(NonPrivateEvent()).epsilon(0.1) == float("inf")


@pytest.mark.parametrize("publisher", [zoo.JLT(epsilon=4.0, num_components=5), zoo.SJLT(epsilon=4.0, num_components=5)])
def test_a_forecast_differs_in_the_projection_alone_which_is_drawn_for_each_release(publisher: zoo.Publisher) -> None:
    record = publisher.publish(replace(binary(), applied=()), "book").record
    forecast = publisher.forecast(9, 7)
    seeds = {planned.public_inputs["projection_seed"] for planned in (record, forecast, publisher.forecast(9, 7))}
    assert len(seeds) == 3
    assert replace(record, mechanism=replace(record.mechanism, seed=forecast.mechanism.seed)) == forecast


@pytest.mark.parametrize(
    "publisher",
    [
        zoo.JLT(epsilon=4.0, num_components=5),
        zoo.NoisyRows(epsilon=4.0),
        zoo.Shuffled(zoo.FlippedRows(epsilon=1.0)),
        zoo.Noise(zoo.JLT(epsilon=4.0, num_components=5)),
    ],
)
def test_a_plan_is_made_into_one_release(publisher: zoo.Publisher) -> None:
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
