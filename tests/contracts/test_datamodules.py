"""What every exported datamodule must do."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from jsonargparse import ArgumentError, ArgumentParser, Namespace

import datamodules
from datamodules import CrossDomainDataModule, Evaluation, Synthetic
from zoo.testing import DatamoduleContract

NAMES = sorted(
    name
    for name in datamodules.__all__
    if isinstance(getattr(datamodules, name), type)
    and issubclass(getattr(datamodules, name), CrossDomainDataModule)
    and name != "CrossDomainDataModule"
)
READ = {
    name: Synthetic("music", num_users=24, num_items=30, ratings_per_user=6).read(name) for name in ("music", "book")
}
#: Those that the command line can make: tables in memory are for Python.
CONFIGURABLE = [name for name in NAMES if name != "Frames"]
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
    "Frames": {"target": READ["music"], "sources": {"book": READ["book"]}, "evaluation": Evaluation(split="random2")},
    "LowRank": {"num_users": 24, "num_items": 30, "observed": 0.3},
    "Synthetic": {"num_users": 24, "num_items": 30, "ratings_per_user": 6},
}


class TestEveryDatamodule(DatamoduleContract):
    @pytest.fixture(params=NAMES, autouse=True)
    def kind(self, request: pytest.FixtureRequest, zoo_data: Path) -> None:
        assert zoo_data.exists()
        self.name = request.param

    def make(self, **settings: Any) -> CrossDomainDataModule:  # noqa: ANN401  of the datamodule
        made: CrossDomainDataModule = getattr(datamodules, self.name)(**ARGUMENTS.get(self.name, {}), **settings)
        return made


def parsed(name: str, *arguments: str) -> tuple[ArgumentParser, Namespace]:
    parser = ArgumentParser(exit_on_error=False, allow_abbrev=False)
    parser.add_subclass_arguments(CrossDomainDataModule, "data")
    required = ["--data.name=x", "--data.target=y"] if name == "Files" else []
    return parser, parser.parse_args([f"--data=datamodules.{name}", *required, *arguments])


@pytest.mark.parametrize("name", CONFIGURABLE)
def test_the_command_line_offers_every_setting_of_the_base_with_its_own_defaults(name: str) -> None:
    parser, found = parsed(name, "--data.batch_size=7", "--data.filters.min_user_ratings=3")
    shared = inspect.signature(CrossDomainDataModule).parameters.keys() - {"target", "sources"}
    assert shared <= vars(found.data.init_args).keys()
    made = parser.instantiate(found).data
    by_hand = getattr(datamodules, name)(**({"name": "x", "target": "y"} if name == "Files" else {}))
    assert (made.batch_size, made.filters.min_user_ratings) == (7, 3)
    for setting in shared - {"batch_size", "filters", "catalogues", "releases"}:
        assert getattr(made, setting) == getattr(by_hand, setting)


@pytest.mark.parametrize("name", CONFIGURABLE)
def test_a_typo_is_refused(name: str) -> None:
    for argument in ("--data.batchsize=7", "--data.batch_size=many", "--data.evaluation.splt=given"):
        with pytest.raises(ArgumentError, match=r"not accepted|unrecognized arguments|Expected a <class 'int'>"):
            parsed(name, argument)
