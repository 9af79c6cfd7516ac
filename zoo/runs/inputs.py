"""Where the inputs of a run come from: the releases that it reads, and the list of its users."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from pytorch_lightning import Trainer
from pytorch_lightning.utilities.seed import isolate_rng

from datamodules import CrossDomainDataModule
from datamodules.public_lists import COMMON, OWN, write_users
from zoo.data.ratings import Ratings
from zoo.publishers.base import Publisher, Stamped
from zoo.release.release import Release
from zoo.runtime.run_folder import differing, folder_of_run, load_tensors, plain, write_json

#: Carries the inputs that rank 0 prepared to the processes that Lightning's launcher starts.
HANDOVER = "ZOO_HANDOVER"
#: In the run folder: the releases that `fit` published, the users in common that it worked out.
RELEASES, USERS = "releases", "users.csv"
#: Lies beside the releases that `fit` published: what made them.
PUBLISHER = "publisher.json"


class UsageError(ValueError):
    """A command that cannot be carried out as it was given."""


@dataclass(frozen=True)
class Inputs:
    """What a run reads beside the target's own ratings."""

    releases: Mapping[str, Path]  # folder of the release of each source
    users: str  # ``own``, ``common`` or the path of a list

    def completed(self, others: Inputs) -> Inputs:
        """These, and of others what they leave open."""
        missing = {name: path for name, path in others.releases.items() if name not in self.releases}
        return Inputs({**self.releases, **missing}, others.users if self.users == COMMON else self.users)

    def found_in(self, run: Path, kept: Inputs) -> Inputs:
        """Those that a checkpoint's own run published or worked out, where its folder lies now; others as they are."""
        releases = {
            name: run / RELEASES / name
            if path == kept.releases.get(name)
            and path.parts[-2:] == (RELEASES, name)
            and (run / RELEASES / name).is_dir()
            else path
            for name, path in self.releases.items()
        }
        own = self.users == kept.users and Path(self.users).name == USERS and (run / USERS).is_file()
        return Inputs(releases, str(run / USERS) if own else self.users)

    def resolved(self) -> Inputs:
        """With absolute paths, which a saved config needs."""
        users = self.users if self.users in (OWN, COMMON) else str(Path(self.users).resolve())
        return Inputs({name: path.resolve() for name, path in self.releases.items()}, users)

    def plain(self) -> dict[str, Any]:
        """As a checkpoint and the handover keep them."""
        return {"paths": {name: str(path) for name, path in self.releases.items()}, "users": self.users}

    @classmethod
    def from_plain(cls, kept: Mapping[str, Any]) -> Inputs:
        """Those that :meth:`plain` gave."""
        return cls({name: Path(path) for name, path in kept["paths"].items()}, kept["users"])


def resolve(
    data: CrossDomainDataModule,
    trainer: Trainer,
    *,
    reads: bool,
    publisher: Publisher | Namespace | None = None,
    ckpt_path: str | Path | None = None,
) -> Inputs:
    """Return the inputs of a run: those that the data name, and the rest from the first of these places that there is.

    1. The checkpoint that is resumed or scored: it keeps its releases and users, and nothing is published beside them. What lies in
       its run folder is taken from there, wherever that was moved.
    2. What the first process of this run handed over, in those that it started.
    3. What is published here, and the users in common that are worked out here, by the first process.

    Args:
        data: Names releases and users, as far as they are known.
        trainer: Of the run.
        reads: Whether the method reads releases.
        publisher: A publisher, or the settings of one; it is made only if something has to be published.
        ckpt_path: The checkpoint.

    Raises:
        UsageError: The publisher is not the one that made the checkpoint or a release; or nothing can be published here.
    """
    named = Inputs(data.release_paths, data.users)
    asked = plain(publisher)
    if ckpt_path:
        kept = _kept(Path(ckpt_path), asked)
        return named.completed(kept).found_in(Path(ckpt_path).resolve().parent.parent, kept).resolved()
    _refuse_other_publisher(named, asked)
    missing = [name for name in data.sources if name not in named.releases] if reads else []
    if missing or named.users == COMMON:
        if HANDOVER in os.environ and os.environ.get("LOCAL_RANK", "0") != "0":
            made = Inputs.from_plain(json.loads(os.environ[HANDOVER]))
        else:
            _refuse_processes_from_outside(trainer)
            made = _made_here(publisher, data, trainer, missing)
            os.environ[HANDOVER] = json.dumps(named.completed(made).plain())
        named = named.completed(made)
    return named.resolved()


def make_publisher(given: Publisher | Namespace | None) -> Publisher:
    """Return a publisher, made from its settings if it was not made yet; a `UsageError` if there is none."""
    if isinstance(given, Publisher):
        return given
    if given is None:
        raise UsageError(
            "No publisher in the settings, so nothing can be published here. Set `publisher` (python -m zoo list shows "
            "them; in Python zoo.fit(method, data, publisher=...)), or pass the release that the source party made: "
            "--data.releases.NAME PATH (in Python releases={NAME: PATH} of the datamodule)."
        )
    parser = ArgumentParser(exit_on_error=False)  # its own: Lightning's instantiators stay out
    parser.add_subclass_arguments(Publisher, "publisher")
    made: Publisher = parser.instantiate(parser.parse_object({"publisher": given})).publisher
    return made


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What a checkpoint of a run holds, tensors and plain values alone; a UsageError if it is none or is damaged."""
    if not path.is_file():
        raise FileNotFoundError(
            f"No checkpoint at {path}. A run keeps checkpoints/best.ckpt and checkpoints/last.ckpt."
        )
    try:
        found = load_tensors(path)
    except ValueError as error:
        raise UsageError(
            f"{error} A run keeps checkpoints/best.ckpt and checkpoints/last.ckpt: take the other one, or train anew."
        ) from error
    kept = found.get("zoo") if isinstance(found, dict) else None
    if not isinstance(kept, dict) or not {"sizes", "digests", "rng", "paths", "users"} <= kept.keys():
        raise UsageError(f"{path} is no checkpoint of this project, or of a version before 0.2: train anew.")
    return {**found}


def _kept(ckpt: Path, publisher: Any) -> Inputs:  # noqa: ANN401  plain settings
    """Inputs of the run that a checkpoint is of; refuses another publisher than its own."""
    checkpoint = read_checkpoint(ckpt)
    made = checkpoint.get("publisher")
    if publisher and made and (changed := differing(publisher, made)):
        raise UsageError(
            f"The settings ask for another publisher than the checkpoint was trained with; these differ: {changed}. "
            "A checkpoint keeps its releases: use the run's own config, or train anew."
        )
    return Inputs.from_plain(checkpoint["zoo"])


def _made_here(
    given: Publisher | Namespace | None, data: CrossDomainDataModule, trainer: Trainer, missing: Sequence[str]
) -> Inputs:
    """Publish what is missing and work out the users in common; files are written once nothing can go wrong any more."""
    publisher = make_publisher(given) if missing else None
    if missing and data.trusted is not None:
        raise UsageError(
            f"data.trusted asks for releases that are signed, and those of {missing} would be published here, by nobody's key. "
            "Pass what the source party published and signed (--data.releases.NAME PATH), or leave data.trusted out."
        )
    users = data.common_users() if data.users == COMMON else None
    with tempfile.TemporaryDirectory() as scratch:
        if users is not None:  # the sources and the target are read with them from here on
            data.users, data.users_from_ratings = str(write_users(users, Path(scratch) / "users.csv")), True
        data.read_target()  # whatever is wrong with the target is said before anything is spent
        releases = {} if publisher is None else _published(publisher, data, missing)
    folder = _folder(trainer)
    paths = {name: release.save(folder / RELEASES / name) for name, release in releases.items()}
    if releases:
        write_json(folder / RELEASES / PUBLISHER, plain(given))
    return Inputs(paths, data.users if users is None else str(write_users(users, folder / USERS)))


def _published(publisher: Publisher, data: CrossDomainDataModule, names: Sequence[str]) -> dict[str, Release]:
    """A release of each source, the first made when it is known that all can be read and have users of the target."""
    releases = {}
    with isolate_rng():  # the same random stream as a run that is handed the releases
        sources = {name: _own_ratings(data, name) for name in names}
        for name, source in sources.items():
            if not publisher.control:  # which may be of nobody, or say of itself that it is of others
                data.check_source_users(name, source)
        for name in names:
            releases[name] = Stamped(publisher.for_target(data.train)).publish(sources.pop(name), name)
            data.link_users(name, releases[name], f"The release of {name!r} just made")
    return releases


def _own_ratings(data: CrossDomainDataModule, name: str) -> Ratings:
    """The ratings of a source; where they do not lie here, it is said what a target party gives in their place."""
    try:
        return data.source(name)
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error} A target party, which has none of {name!r}, passes what the source party published: "
            f"--data.releases.{name} PATH (in Python releases={{{name!r}: PATH}} of the datamodule)."
        ) from error


def _folder(trainer: Trainer) -> Path:
    """The run folder; a temporary one where there is none."""
    if (folder := folder_of_run(trainer)) is None:
        return Path(tempfile.mkdtemp(prefix="zoo-"))
    _ = trainer.loggers[0].experiment  # type: ignore[attr-defined]  # the CSV log makes its folder before anything lies in it
    return folder.resolve()


def _refuse_other_publisher(named: Inputs, publisher: Any) -> None:  # noqa: ANN401  plain settings
    """A release that was published by `fit` keeps its settings beside it; others may not be asked for in vain."""
    for name, path in named.releases.items():
        beside = path.parent / PUBLISHER
        if not publisher or not beside.is_file():
            continue
        if changed := differing(publisher, json.loads(beside.read_text(encoding="utf-8"))):
            raise UsageError(
                f"The settings name a release of {name!r} that was published with another publisher; these differ: "
                f"{changed}. To publish anew, leave the release out (--data.releases null)."
            )


def _refuse_processes_from_outside(trainer: Trainer) -> None:
    """Of processes that somebody else started, none knows when another has published."""
    environment = getattr(trainer.strategy, "cluster_environment", None)  # one process has none
    outside = environment is not None and environment.creates_processes_externally and trainer.world_size > 1
    if outside or trainer.num_nodes > 1:
        raise UsageError(
            "These processes were started from outside (torchrun, SLURM, several nodes), so none of them is alone to "
            "publish or to work out users in common. Run `python -m zoo publish` first and pass --data.releases.NAME "
            "PATH, and --data.users FILE in the place of 'common'."
        )
