"""What every datamodule must do, for the tests of whoever writes one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from datamodules import CrossDomainDataModule
from zoo.testing.tiny import attached, rated


class DatamoduleContract:
    """Tests of a datamodule: subclass it in a test module, and say how the datamodule is made.

    ```python
    class TestMine(DatamoduleContract):
        def make(self, **settings: Any) -> CrossDomainDataModule:
            return Mine(root=SOME_FOLDER, **settings)
    ```
    """

    def make(self, **settings: Any) -> CrossDomainDataModule:  # noqa: ANN401  of the datamodule
        """The datamodule with settings; the tests pass ``releases`` for one that has sources."""
        raise NotImplementedError(
            f"{type(self).__name__} must say how its datamodule is made: def make(self, **settings)."
        )

    @pytest.fixture
    def data(self, tmp_path: Path) -> CrossDomainDataModule:
        """The datamodule set up, with a plaintext release of each source."""
        party = self.make()
        releases = {
            source: zoo.Plaintext().publish(party.source(source), source).save(tmp_path / source)
            for source in party.sources
        }
        made = attached(self.make(**({"releases": releases} if releases else {})))
        made.setup("fit")
        return made

    def test_sizes_are_plain_and_right(self, data: CrossDomainDataModule) -> None:
        """A method is built from them."""
        assert json.loads(json.dumps(data.sizes)) == data.sizes
        assert (data.sizes["num_users"], data.sizes["num_items"]) == (data.train.num_users, data.train.num_items)

    def test_summary_is_plain(self, data: CrossDomainDataModule) -> None:
        """It becomes ``data.json`` of a run."""
        assert json.loads(json.dumps(data.summary)) == data.summary
        assert data.summary["users_without_test_item"] == data.train.num_users - len(set(data.test.users.tolist()))

    def test_what_is_held_out_is_not_learned_from(self, data: CrossDomainDataModule) -> None:
        """Neither the held-out items nor those that they are ranked among, which are no item twice."""
        for cases in (data.validation, data.test):
            users, items = cases.users.numpy(), cases.items.numpy()
            assert not rated(data.train, users, items).any()
            listed = cases.candidates.numpy()
            assert not (listed == items[:, None]).any()
            rows = np.broadcast_to(users[:, None], listed.shape)
            assert not rated(data.train, rows, listed).any()
            assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in listed)

    def test_setup_twice_changes_nothing(self, data: CrossDomainDataModule) -> None:
        """Lightning calls it before every stage."""
        before, digests = data.train, data.digests
        data.setup("test")
        assert data.train is before
        assert data.digests == digests

    def test_links_name_the_same_person(self, data: CrossDomainDataModule) -> None:
        """A row of a release is a user's by their own id."""
        assert data.releases.keys() == set(data.sources)
        for name, release in data.releases.items():
            links = data.links[name].numpy()
            linked = links >= 0
            assert (linked == np.isin(data.train.user_ids, release.user_ids)).all()
            assert (release.user_ids[links[linked]] == data.train.user_ids[linked]).all()

    def test_batches_cover_the_training_ratings(self, data: CrossDomainDataModule) -> None:
        """Every user with a rating, and every rating, once an epoch."""
        users = torch.cat([batch.users for batch in data.train_dataloader()])
        assert sorted(users.tolist()) == sorted(set(data.train.pairs()[0].tolist()))
        assert data.trainer is not None
        data.trainer.lightning_module.batches = "pairs"  # type: ignore[assignment]  # of the one in `attached`
        pairs: list[Any] = list(data.train_dataloader())
        positives = sum(int(batch.labels.sum()) for batch in pairs)
        assert positives == data.train.num_ratings

    def test_lists_that_ship_are_whole_and_said(self, data: CrossDomainDataModule) -> None:
        """Lists of users and items are public or are read off the ratings, which is a condition."""
        for domain in (data.target, *data.sources):
            shipped, table = data.public_ids(domain), data.read(domain)
            named = [step for step in data.steps(domain) if "that the ratings themselves name" in step.words]
            assert len(named) == (2 if shipped is None else 0)
            assert all(step.condition for step in named)
            for ids, column in zip(shipped or (), ("user_id", "item_id"), strict=shipped is not None):
                assert set(table[column]) <= set(ids)
                assert ids.to_list() == sorted(set(ids))

    def test_an_unknown_domain_is_refused(self, data: CrossDomainDataModule) -> None:
        """With its name."""
        with pytest.raises(ValueError, match="'film' is no source of this experiment"):
            data.source("film")
