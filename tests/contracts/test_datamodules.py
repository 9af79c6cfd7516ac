"""What every exported datamodule must do."""

import inspect
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jsonargparse import ArgumentError, ArgumentParser, Namespace

import datamodules
from datamodules import CrossDomainDataModule, Evaluation
from tests.datamodules.test_base import READER, attach
from tests.samples import rated
from zoo import Plaintext

NAMES = sorted(
    name
    for name in datamodules.__all__
    if isinstance(getattr(datamodules, name), type)
    and issubclass(getattr(datamodules, name), CrossDomainDataModule)
    and name != "CrossDomainDataModule"
)
ARGUMENTS: dict[str, dict[str, Any]] = {
    "Amazon": {
        "name": "amazon-sport-cloth",
        "target": "sport",
        "sources": ("cloth",),
        "evaluation": Evaluation(split="given"),
    },
    "Files": {
        "name": "douban-book-music",
        "target": "music",
        "sources": ("book",),
        "evaluation": Evaluation(split="random2"),
    },
    "LowRank": {"num_users": 24, "num_items": 30, "observed": 0.3},
    "Synthetic": {"num_users": 24, "num_items": 30, "ratings_per_user": 6},
}


@pytest.fixture(params=NAMES)
def data(request: pytest.FixtureRequest, zoo_data: Path, tmp_path: Path) -> CrossDomainDataModule:
    """The datamodule with a plaintext release of its source."""
    kind, settings = getattr(datamodules, request.param), ARGUMENTS.get(request.param, {})
    assert zoo_data.exists()
    party: CrossDomainDataModule = kind(**settings)
    releases = {
        source: Plaintext().publish(party.source(source), source).save(tmp_path / source) for source in party.sources
    }
    made = attach(kind(**settings, **({"releases": releases} if releases else {})))
    made.setup("fit")
    return made


def test_sizes_are_plain_and_right(data: CrossDomainDataModule) -> None:
    assert json.loads(json.dumps(data.sizes)) == data.sizes
    assert (data.sizes["num_users"], data.sizes["num_items"]) == (data.train.num_users, data.train.num_items)


def test_summary_is_plain(data: CrossDomainDataModule) -> None:
    assert json.loads(json.dumps(data.summary)) == data.summary
    assert data.summary["users_without_test_item"] == data.train.num_users - len(data.test.users.unique())


def test_what_is_held_out_is_not_learned_from(data: CrossDomainDataModule) -> None:
    for cases in (data.validation, data.test):
        users, items = cases.users.numpy(), cases.items.numpy()
        assert not rated(data.train, users, items).any()
        listed = cases.candidates.numpy()
        assert not (listed == items[:, None]).any()
        rows = np.broadcast_to(users[:, None], listed.shape)
        assert not rated(data.train, rows, listed).any()
        assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in listed)


def test_setup_twice_changes_nothing(data: CrossDomainDataModule) -> None:
    before, digests = data.train, data.digests
    data.setup("test")
    assert data.train is before
    assert data.digests == digests


def test_links_name_the_same_person(data: CrossDomainDataModule) -> None:
    assert data.releases.keys() == set(data.sources)
    for name, release in data.releases.items():
        links = data.links[name].numpy()
        assert (release.user_ids[links] == data.train.user_ids).all()


def test_batches_cover_the_training_ratings(data: CrossDomainDataModule) -> None:
    users = torch.cat([batch.users for batch in data.train_dataloader()])
    assert sorted(users.tolist()) == sorted(set(data.train.pairs()[0].tolist()))
    assert data.trainer is not None
    data.trainer.lightning_module.batches = "pairs"  # type: ignore[assignment]
    pairs = list(data.train_dataloader())
    READER.batches = "users"
    positives = sum(int(batch.labels.sum()) for batch in pairs)  # type: ignore[union-attr]
    assert positives == data.train.num_ratings


def test_lists_that_ship_are_whole_and_said(data: CrossDomainDataModule) -> None:
    for domain in (data.target, *data.sources):
        shipped, table = data.public_ids(domain), data.read(domain)
        named = [step for step in data.steps(domain) if "that the ratings themselves name" in step.words]
        assert len(named) == (2 if shipped is None else 0)
        assert all(step.condition for step in named)
        for ids, column in zip(shipped or (), ("user_id", "item_id"), strict=shipped is not None):
            assert set(table[column]) <= set(ids)
            assert ids.to_list() == sorted(set(ids))


def test_an_unknown_domain_is_refused(data: CrossDomainDataModule) -> None:
    with pytest.raises(ValueError, match="'film' is no source of this experiment"):
        data.source("film")


def parsed(name: str, *arguments: str) -> tuple[ArgumentParser, Namespace]:
    parser = ArgumentParser(exit_on_error=False, allow_abbrev=False)
    parser.add_subclass_arguments(CrossDomainDataModule, "data")
    required = ["--data.name=x", "--data.target=y"] if name == "Files" else []
    return parser, parser.parse_args([f"--data=datamodules.{name}", *required, *arguments])


@pytest.mark.parametrize("name", NAMES)
def test_the_command_line_offers_every_setting_of_the_base_with_its_own_defaults(name: str) -> None:
    parser, found = parsed(name, "--data.batch_size=7", "--data.filters.min_user_ratings=3")
    shared = inspect.signature(CrossDomainDataModule).parameters.keys() - {"target", "sources"}
    assert shared <= vars(found.data.init_args).keys()
    made = parser.instantiate(found).data
    by_hand = getattr(datamodules, name)(**({"name": "x", "target": "y"} if name == "Files" else {}))
    assert (made.batch_size, made.filters.min_user_ratings) == (7, 3)
    for setting in shared - {"batch_size", "filters", "catalogues", "releases"}:
        assert getattr(made, setting) == getattr(by_hand, setting)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("argument", ["--data.batchsize=7", "--data.batch_size=many", "--data.evaluation.splt=given"])
def test_a_typo_is_refused(name: str, argument: str) -> None:
    with pytest.raises(ArgumentError, match=r"not accepted|unrecognized arguments|Expected a <class 'int'>"):
        parsed(name, argument)
