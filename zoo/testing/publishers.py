"""What every publisher must do, for the tests of whoever writes one."""

import copy
from pathlib import Path

import pytest
import torch

from zoo import Release
from zoo.data.ratings import Ratings
from zoo.privacy.accounting.accountant import Accountant
from zoo.privacy.accounting.events import ComposedEvent
from zoo.publishers.base import Publisher, Stamped
from zoo.testing.tiny import ratings


class PublisherContract:
    """Tests of a publisher: subclass it in a test module, and say how the publisher is made.

    ```python
    class TestMine(PublisherContract):
        def make(self) -> Publisher:
            return Mine(epsilon=4.0)
    ```
    """

    def make(self) -> Publisher:
        """The publisher, as it is used: with noise that nobody can repeat, if it draws any."""
        raise NotImplementedError(f"{type(self).__name__} must say how its publisher is made: def make(self).")

    @pytest.fixture
    def publisher(self) -> Publisher:
        """The publisher that is tested."""
        return self.make()

    @pytest.fixture
    def source(self) -> Ratings:
        """Ratings of the source: 9 users, 7 items."""
        return ratings()

    def test_a_release_survives_its_file(self, publisher: Publisher, source: Ratings, tmp_path: Path) -> None:
        """What is read is what was written, and all checks of a reader pass."""
        release = Stamped(publisher).publish(source, "book")
        loaded = Release.load(release.save(tmp_path / "book"))
        assert loaded.digest == release.digest
        assert loaded.record == release.record
        assert loaded.ledger == release.ledger
        assert all(torch.equal(loaded.tensors[name], release.tensors[name]) for name in release.tensors)

    def test_the_plan_is_what_is_spent(self, publisher: Publisher, source: Ratings) -> None:
        """Beforehand, from public sizes alone."""
        planned = Accountant().compose(ComposedEvent(tuple(publisher.plan(source.num_users, source.num_items))))
        spent = Accountant().compose(ComposedEvent(Stamped(publisher).publish(source, "book").ledger))
        assert planned.epsilon(1e-5) == spent.epsilon(1e-5)

    def test_what_is_forecast_is_what_the_release_says(self, publisher: Publisher, source: Ratings) -> None:
        """But for what was done to the ratings before, what is drawn for a release, and what a wrapper notes of its own."""
        record = Stamped(publisher).publish(source, "book").record
        forecast, again = (Stamped(publisher).forecast(source.num_users, source.num_items) for _ in range(2))
        inputs = forecast.public_inputs
        drawn = {key for key, value in inputs.items() if again.public_inputs[key] != value}
        assert {key: record.public_inputs[key] for key in inputs.keys() - drawn} == {
            key: inputs[key] for key in inputs.keys() - drawn
        }
        for name in (
            "guarantee",
            "relation",
            "epsilon",
            "delta",
            "mu",
            "sensitivity",
            "noise_scale",
            "clip",
            "compositions",
        ):
            assert getattr(record, name) == getattr(forecast, name), name
        for name in ("conditions", "assumptions", "not_protected"):
            stated = [code for code in getattr(record, name) if "split random2" not in code]
            assert stated == [*getattr(forecast, name)], name
        assert record.reasons == forecast.reasons

    def test_no_noise_is_used_twice(self, publisher: Publisher, source: Ratings) -> None:
        """Whatever a publisher keeps, and whatever the global seed: where something is claimed, releases differ."""
        made = []
        for again in (publisher, publisher, copy.deepcopy(publisher)):
            torch.manual_seed(1)
            made.append(Stamped(again).publish(source, "book"))
        if any(release.record.claims for release in made):
            assert all(release.record.claims for release in made)
            assert len({release.digest for release in made}) == len(made)

    def test_no_epsilon_without_a_guarantee(self, publisher: Publisher, source: Ratings) -> None:
        """A record claims with an epsilon, or does not and has none."""
        record = Stamped(publisher).publish(source, "book").record
        assert record.claims == (record.epsilon is not None)
        if not record.claims:
            assert "epsilon" not in str(record)
            assert record.summary().startswith("none (")

    def test_the_record_says_what_was_done_before(self, publisher: Publisher, source: Ratings) -> None:
        """To the ratings, by its datamodule."""
        record = Stamped(publisher).publish(source, "book").record
        assert any("split random2" in text for text in record.sentences("assumptions"))

    def test_the_data_are_left_as_they_were(self, publisher: Publisher, source: Ratings) -> None:
        """Publishing writes into nothing that it is given."""
        before = source.digest()
        Stamped(publisher).publish(source, "book")
        assert source.digest() == before
