"""The publisher and the public sizes of an experiment's file; opens no data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytorch_lightning.cli import LightningArgumentParser

from datamodules.users import COMMON, OWN, read_catalogue, read_users
from zoo.commands.cli import ZooCLI, import_names
from zoo.commands.inputs import UsageError, make_publisher
from zoo.publisher import Publisher


class _Parsed(ZooCLI):
    """The parser of every command, and nothing made of what it reads."""

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:  # noqa: ANN401  LightningCLI's own
        """Parse what is given, whatever stands on the command line."""
        self.config = parser.parse_args(args)

    def instantiate_classes(self) -> None:
        """Nothing: the publisher is made when it is asked for."""


@dataclass(frozen=True)
class Experiment:
    """What planning needs of an experiment."""

    publisher: Publisher
    sources: tuple[str, ...]  # each gets a release of its own
    users: int | None  # number of users on the list that the file names, if it names one
    items: dict[str, int]  # number of items of each source's catalogue, where the file names one


def read_experiment(config: Path, overrides: Sequence[str]) -> Experiment:
    """Read an experiment's file as every command does, with overrides such as ``--publisher.epsilon 4``.

    Lists of users and catalogues are public and are counted; no rating is read. A file that names no publisher is refused.
    """
    if not config.is_file():
        raise FileNotFoundError(f"No config at {config}. Those that are shipped lie in configs/; python -m zoo list.")
    import_names()
    parsed = _Parsed(args=["--config", str(config), *overrides], run=False, seed_everything_default=False)
    data = parsed.settings().get("data")
    if data is None:
        raise UsageError(f"{config} has no section `data`, so it names no source domain.")
    settings = data.init_args
    listed = settings.get("users", OWN)
    users = None if listed in (OWN, COMMON) else len(read_users(Path(listed)))
    catalogues = settings.get("catalogues") or {}
    items = {name: len(read_catalogue(Path(path))) for name, path in catalogues.items()}
    return Experiment(make_publisher(parsed.settings()), tuple(settings.get("sources") or ()), users, items)
