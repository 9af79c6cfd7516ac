"""Contract tests of publishers, datamodules and callbacks, for the tests of your package."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback

import zoo
from datamodules import CrossDomainDataModule, Synthetic
from zoo import Release
from zoo.data.ratings import Ratings
from zoo.methods.base import Recommender
from zoo.privacy.accounting.accountant import Accountant
from zoo.privacy.accounting.events import ComposedEvent
from zoo.publishers.base import Publisher, Stamped
from zoo.testing.tiny import SYNTHETIC, attached, data_for, publisher_for, rated, ratings, trainer


class PublisherContract:
    """Contract tests of a publisher: subclass it in a test module and define `make`.

    Examples:
        >>> class TestMine(PublisherContract):
        ...     def make(self) -> Publisher:
        ...         return zoo.FlippedRows(epsilon=4.0)
    """

    def make(self) -> Publisher:
        """Return the publisher, without a noise seed."""
        raise NotImplementedError(f"{type(self).__name__} has no publisher. Define make(self).")

    @pytest.fixture
    def publisher(self) -> Publisher:
        """Tested publisher."""
        return self.make()

    @pytest.fixture
    def source(self) -> Ratings:
        """Ratings of 9 users and 7 items."""
        return ratings()

    def test_a_release_survives_its_file(self, publisher: Publisher, source: Ratings, tmp_path: Path) -> None:
        """A loaded release equals the saved one and passes every check."""
        release = Stamped(publisher).publish(source, "book")
        loaded = Release.load(release.save(tmp_path / "book"))
        assert loaded.digest == release.digest
        assert loaded.record == release.record
        assert loaded.ledger == release.ledger
        assert all(torch.equal(loaded.tensors[name], release.tensors[name]) for name in release.tensors)

    def test_the_plan_is_what_is_spent(self, publisher: Publisher, source: Ratings) -> None:
        """The plan from public sizes costs the same as the release."""
        planned = Accountant().compose(ComposedEvent(tuple(publisher.plan(source.num_users, source.num_items))))
        spent = Accountant().compose(ComposedEvent(Stamped(publisher).publish(source, "book").ledger))
        assert planned.epsilon(1e-5) == spent.epsilon(1e-5)

    def test_what_is_forecast_is_what_the_release_says(self, publisher: Publisher, source: Ratings) -> None:
        """The forecast equals the record except for earlier steps, values drawn for a release, and notes of wrappers."""
        record = Stamped(publisher).publish(source, "book").record
        forecast, again = (Stamped(publisher).forecast(source.num_users, source.num_items) for _ in range(2))
        inputs = forecast.public_inputs
        settled = [key for key, value in inputs.items() if again.public_inputs[key] == value]
        assert {key: record.public_inputs[key] for key in settled} == {key: inputs[key] for key in settled}
        numbers = ("epsilon", "delta", "mu", "sensitivity", "noise_scale", "clip", "compositions")
        for name in ("guarantee", "relation", *numbers, "reasons"):
            assert getattr(record, name) == getattr(forecast, name), name
        for name in ("conditions", "assumptions", "not_protected"):
            stated = [code for code in getattr(record, name) if "split random2" not in code]
            assert stated == [*getattr(forecast, name)], name

    def test_no_noise_is_used_twice(self, publisher: Publisher, source: Ratings) -> None:
        """Releases with a claim differ, for any global seed and any state of the publisher."""
        made = []
        for again in (publisher, publisher, copy.deepcopy(publisher)):
            torch.manual_seed(1)
            made.append(Stamped(again).publish(source, "book"))
        if any(release.record.claims for release in made):
            assert all(release.record.claims for release in made)
            assert len({release.digest for release in made}) == len(made)

    def test_no_epsilon_without_a_guarantee(self, publisher: Publisher, source: Ratings) -> None:
        """A record has an epsilon if and only if it has a claim."""
        record = Stamped(publisher).publish(source, "book").record
        assert record.claims == (record.epsilon is not None)
        if not record.claims:
            assert "epsilon" not in str(record)
            assert record.summary().startswith("none (")

    def test_the_record_says_what_was_done_before(self, publisher: Publisher, source: Ratings) -> None:
        """The record names the steps of the datamodule."""
        record = Stamped(publisher).publish(source, "book").record
        assert any("split random2" in text for text in record.sentences("assumptions"))

    def test_the_data_are_left_as_they_were(self, publisher: Publisher, source: Ratings) -> None:
        """Publishing does not change its input."""
        before = source.digest()
        Stamped(publisher).publish(source, "book")
        assert source.digest() == before


class DatamoduleContract:
    """Contract tests of a datamodule: subclass it in a test module and define `make`.

    Examples:
        >>> class TestMine(DatamoduleContract):
        ...     def make(self, **settings: Any) -> CrossDomainDataModule:
        ...         return Synthetic(num_users=40, num_items=30, **settings)
    """

    def make(self, **settings: Any) -> CrossDomainDataModule:  # noqa: ANN401  of the datamodule
        """Return the datamodule with settings, such as ``releases`` if it has sources."""
        raise NotImplementedError(f"{type(self).__name__} has no datamodule. Define make(self, **settings).")

    @pytest.fixture
    def data(self, tmp_path: Path) -> CrossDomainDataModule:
        """Tested datamodule, set up with a plaintext release of each source."""
        party = self.make()
        releases = {
            source: zoo.Plaintext().publish(party.source(source), source).save(tmp_path / source)
            for source in party.sources
        }
        made = attached(self.make(**({"releases": releases} if releases else {})))
        made.setup("fit")
        return made

    def test_sizes_are_plain_and_right(self, data: CrossDomainDataModule) -> None:
        """Sizes are JSON and equal those of the ratings."""
        assert json.loads(json.dumps(data.sizes)) == data.sizes
        assert (data.sizes["num_users"], data.sizes["num_items"]) == (data.train.num_users, data.train.num_items)

    def test_summary_is_plain(self, data: CrossDomainDataModule) -> None:
        """The summary is JSON."""
        assert json.loads(json.dumps(data.summary)) == data.summary
        assert data.summary["users_without_test_item"] == data.train.num_users - len(set(data.test.users.tolist()))

    def test_what_is_held_out_is_not_learned_from(self, data: CrossDomainDataModule) -> None:
        """Held-out items and candidates are not in the training set; candidates are distinct."""
        for cases in (data.validation, data.test):
            users, items = cases.users.numpy(), cases.items.numpy()
            assert not rated(data.train, users, items).any()
            listed = cases.candidates.numpy()
            assert not (listed == items[:, None]).any()
            rows = np.broadcast_to(users[:, None], listed.shape)
            assert not rated(data.train, rows, listed).any()
            assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in listed)

    def test_setup_twice_changes_nothing(self, data: CrossDomainDataModule) -> None:
        """A second setup changes nothing."""
        before, digests = data.train, data.digests
        data.setup("test")
        assert data.train is before
        assert data.digests == digests

    def test_links_name_the_same_person(self, data: CrossDomainDataModule) -> None:
        """Rows of a release are linked by user id."""
        assert data.releases.keys() == set(data.sources)
        for name, release in data.releases.items():
            links = data.links[name].numpy()
            linked = links >= 0
            assert (linked == np.isin(data.train.user_ids, release.user_ids)).all()
            assert (release.user_ids[links[linked]] == data.train.user_ids[linked]).all()

    def test_batches_cover_the_training_ratings(self, data: CrossDomainDataModule) -> None:
        """An epoch has every user with a rating, and every rating, once."""
        users = torch.cat([batch.users for batch in data.train_dataloader()])
        assert sorted(users.tolist()) == sorted(set(data.train.pairs()[0].tolist()))
        assert data.trainer is not None
        data.trainer.lightning_module.batches = "pairs"  # type: ignore[assignment]  # of the one in `attached`
        pairs: list[Any] = list(data.train_dataloader())
        positives = sum(int(batch.labels.sum()) for batch in pairs)
        assert positives == data.train.num_ratings

    def test_lists_that_ship_are_whole_and_said(self, data: CrossDomainDataModule) -> None:
        """Lists of users and items are public, or a condition says that they are derived from the ratings."""
        for domain in (data.target, *data.sources):
            shipped, table = data.public_ids(domain), data.read(domain)
            named = [step for step in data.steps(domain) if "derived from the ratings" in step.words]
            assert len(named) == (2 if shipped is None else 0)
            assert all(step.condition for step in named)
            for ids, column in zip(shipped or (), ("user_id", "item_id"), strict=shipped is not None):
                assert set(table[column]) <= set(ids)
                assert ids.to_list() == sorted(set(ids)), f"sort the ids of {domain}, each once"

    def test_an_unknown_domain_is_refused(self, data: CrossDomainDataModule) -> None:
        """The message names the domain."""
        with pytest.raises(ValueError, match="'film' is no source"):
            data.source("film")


class CallbackContract:
    """Contract tests of a callback: subclass it in a test module and define `make`, and `method` if BPR does not fit.

    Examples:
        >>> class TestMine(CallbackContract):
        ...     def make(self) -> Callback:
        ...         return Callback()
    """

    def make(self) -> Callback:
        """Return the callback."""
        raise NotImplementedError(f"{type(self).__name__} has no callback. Define make(self).")

    def method(self) -> Recommender:
        """Return the method to train."""
        return zoo.BPR(num_factors=4)

    def trained(self, folder: Path, **settings: Any) -> Trainer:  # noqa: ANN401  of a fit
        """Return the trainer after two epochs with the callback."""
        method = self.method()
        release = publisher_for(method.accepted_releases).publish(Synthetic(**SYNTHETIC).source("book"), "book")
        data = data_for(method, release.save(folder / "book"))
        run = trainer(folder, self.make(), epochs=2)
        run.fit(method, datamodule=data, **settings)
        return run

    @pytest.fixture
    def run(self, tmp_path: Path) -> Trainer:
        """Trainer after two epochs with the callback."""
        return self.trained(tmp_path)

    def test_a_training_ends_with_it(self, run: Trainer) -> None:
        """Training ends with finite metrics, after its last epoch or earlier."""
        assert 0 < run.current_epoch <= 2
        assert 0 <= float(run.callback_metrics["val/ndcg@10"]) <= 1

    def test_a_checkpoint_with_it_is_tensors_and_plain_values(self, run: Trainer, tmp_path: Path) -> None:
        """The checkpoint is read without running code."""
        kept = torch.load(tmp_path / "last.ckpt", weights_only=True)
        assert isinstance(kept["callbacks"], Mapping)

    def test_a_training_goes_on_with_it(self, run: Trainer, tmp_path: Path) -> None:
        """Training resumes from a checkpoint."""
        resumed = self.trained(tmp_path / "resumed", ckpt_path=tmp_path / "last.ckpt", weights_only=True)
        assert resumed.current_epoch == run.current_epoch
