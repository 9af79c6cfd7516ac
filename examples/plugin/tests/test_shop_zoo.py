"""The plugin's classes, held to the zoo's own contracts, and what is particular to them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning.callbacks import Callback

import zoo
from datamodules import CrossDomainDataModule
from shop_zoo.callbacks import StopWhenGood
from shop_zoo.datamodules import Shops
from shop_zoo.methods import RowMap
from shop_zoo.publishers import LaplaceRows
from zoo import Publisher, Recommender
from zoo.publishers.base import Stamped
from zoo.testing import CallbackContract, DatamoduleContract, MethodContract, PublisherContract


class TestRowMap(MethodContract):
    def method(self) -> Recommender:
        return RowMap(dropout=0.5)


class TestLaplaceRows(PublisherContract):
    def make(self) -> Publisher:
        return LaplaceRows(epsilon=4.0)


class TestShops(DatamoduleContract):
    def make(self, **settings: Any) -> CrossDomainDataModule:  # noqa: ANN401
        return Shops(**settings)


class TestStopWhenGood(CallbackContract):
    def make(self) -> Callback:
        return StopWhenGood(least=0.9)


def test_noise_has_the_scale_that_the_record_states() -> None:
    """At epsilon 2 the mean absolute noise is 1/2; of 40,000 cells that is hit within 3 % with all but certainty."""
    release = Stamped(LaplaceRows(epsilon=2.0)).publish(Shops(customers=200, articles=200).source("cheese"), "cheese")
    plain = Shops(customers=200, articles=200).source("cheese").matrix.toarray()
    noise = release.tensors["rows"].numpy() - plain
    assert np.abs(noise).mean() == pytest.approx(0.5, rel=0.03)
    assert release.record.epsilon == 2.0
    assert release.record.delta == 0.0
    assert release.record.requested_epsilon is None, "the release alone costs the epsilon of its settings"
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    for text in (release.record.standing, readme, LaplaceRows.__doc__ or ""):
        assert "the claim of shop_zoo.publishers.LaplaceRows is true, not audited here" in " ".join(text.split())


def test_the_map_finds_what_the_release_tells_and_the_callback_ends_it(tmp_path: Path) -> None:
    run = zoo.fit(
        RowMap(dropout=0.0),
        Shops(),
        publisher=LaplaceRows(epsilon=8.0),
        runs=tmp_path,
        callbacks=[StopWhenGood(least=0.9)],
        max_epochs=60,
        accelerator="cpu",
    )
    assert run.test()["test/full/ndcg@10"] > 0.5
    assert torch.isfinite(torch.tensor(list(run.test().values()))).all()


@pytest.mark.parametrize(
    "wrong", [lambda: RowMap(dropout=1.0), lambda: LaplaceRows(epsilon=0.0), lambda: Shops(kinds=0)]
)
def test_what_cannot_be_is_refused(wrong: Any) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=r"must|Allowed"):
        wrong()
