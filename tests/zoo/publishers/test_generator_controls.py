"""Controls around GeneratorPublisher: a part of it, a shuffled one, noise in its place, and a sparser source."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.zoo.publishers.generators import network, ratings, same
from zoo import GeneratorPublisher, Noise, Partial, Publisher, Ratings, Release, Shuffled, Thinned
from zoo.privacy.accounting.events import NonPrivateEvent

pytestmark = pytest.mark.filterwarnings("ignore:.*has no guarantee")


def rows_by_user(release: Release) -> dict[str, Tensor]:
    return dict(zip(release.user_ids.tolist(), release.rows(torch.arange(release.num_users)), strict=True))


@pytest.fixture(scope="module")
def of() -> Publisher:
    return GeneratorPublisher(network())


@pytest.fixture(scope="module")
def whole(of: Publisher) -> Release:
    return of.publish(ratings(), "book")


def test_a_part_of_it_has_the_conditions_of_fewer_users(of: Publisher, whole: Release, tmp_path: Path) -> None:
    part = Partial(of, 0.25).publish(ratings(), "book")
    assert part.tensors["embedding"].shape == (5, 2)
    assert part.tensors.keys() == whole.tensors.keys()
    for name, tensor in part.tensors.items():
        kept = np.isin(whole.user_ids, part.user_ids) if name == "embedding" else slice(None)
        assert torch.equal(tensor, whole.tensors[name][kept])
    ours, theirs = rows_by_user(Release.load(part.save(tmp_path / "book"))), rows_by_user(whole)
    assert len(ours) == 5
    assert all(torch.allclose(row, theirs[user]) for user, row in ours.items())


def test_a_shuffled_one_leaves_nobody_a_row(of: Publisher, whole: Release) -> None:
    shuffled = Shuffled(of).publish(ratings(), "book")
    assert same(whole.tensors, shuffled.tensors)
    assert sorted(whole.user_ids) == sorted(shuffled.user_ids)
    assert not (whole.user_ids == shuffled.user_ids).any()


def test_noise_in_its_place_has_its_form_and_nothing_of_any_person(of: Publisher, whole: Release) -> None:
    noise = Noise(of).publish(ratings(), "book")
    assert {name: t.shape for name, t in noise.tensors.items()} == {name: t.shape for name, t in whole.tensors.items()}
    assert not same(whole.tensors, noise.tensors)
    turned = Ratings(ratings().matrix[::-1], ratings().user_ids, ratings().item_ids)
    assert same(noise.tensors, Noise(of).publish(turned, "book").tensors)
    assert noise.ledger == (NonPrivateEvent(),)
    assert noise.record.reason == "seeded noise; control: the ratings were redrawn at random"


def test_a_sparser_source_is_what_it_is_trained_on(of: Publisher, whole: Release) -> None:
    thinned = Thinned(of, 0.5)
    release = thinned.publish(ratings(), "book")
    assert same(release.tensors, of.publish(thinned.thin(ratings()), "book").tensors)
    assert not same(release.tensors, whole.tensors)
