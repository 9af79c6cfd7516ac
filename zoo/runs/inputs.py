"""Inputs of a run: the releases that it reads and its list of users."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from jsonargparse import ArgumentParser, Namespace, get_loader, set_loader
from pytorch_lightning import Trainer
from pytorch_lightning.utilities import rank_zero_warn
from pytorch_lightning.utilities.seed import isolate_rng

from datamodules import CrossDomainDataModule
from datamodules.protocol import marked
from datamodules.public_lists import COMMON, OWN, write_users
from zoo.data.ratings import Ratings
from zoo.methods.base import Recommender
from zoo.methods.target_data import refuse_other_data
from zoo.privacy.spending.total import entry_of
from zoo.publishers.base import Publisher, Stamped
from zoo.release.release import Release
from zoo.runtime.exports import VERSION
from zoo.runtime.run_folder import (
    PUBLISHER,
    RELEASES,
    TARGET_RELEASE,
    differing,
    flat,
    folder_of_run,
    load_tensors,
    plain,
    write_json,
)
from zoo.runtime.settings_files import check_keys, check_size, read_json, with_home
from zoo.runtime.suggestions import suggest

#: Environment variable with the inputs that rank 0 prepared, for the processes that Lightning starts.
HANDOVER = "ZOO_HANDOVER"
#: In the run folder: the users in common.
USERS = "users.csv"
Published = tuple[dict[str, Release], Release | None]
"""Releases of sources, and what the target published for them."""


class UsageError(ValueError):
    """A command or call whose settings do not fit together."""


_load_yaml = get_loader("yaml")


def _checked_yaml(text: str) -> Any:  # noqa: ANN401  what YAML holds
    """Return what every parser reads of a file or an argument; refuse repeated keys."""
    check_keys(text)
    return with_home(_load_yaml(text))


set_loader("yaml", _checked_yaml, (yaml.YAMLError,))


@dataclass(frozen=True)
class Inputs:
    """Inputs of a run other than the ratings of the target."""

    releases: Mapping[str, Path]  # folder of the release of each source
    users: str  # ``own``, ``common`` or the path of a list

    def with_defaults(self, others: Inputs) -> Inputs:
        """Return these inputs, completed from others."""
        missing = {name: path for name, path in others.releases.items() if name not in self.releases}
        return Inputs({**self.releases, **missing}, others.users if self.users == COMMON else self.users)

    def relocated(self, run: Path, saved: Inputs) -> Inputs:
        """Return the inputs with those that the run of a checkpoint made itself in its present folder."""
        releases = {
            name: run / RELEASES / name
            if path == saved.releases.get(name)
            and path.parts[-2:] == (RELEASES, name)
            and (run / RELEASES / name).is_dir()
            else path
            for name, path in self.releases.items()
        }
        own = self.users == saved.users and Path(self.users).name == USERS and (run / USERS).is_file()
        return Inputs(releases, str(run / USERS) if own else self.users)

    def absolute(self) -> Inputs:
        """Return the inputs with absolute paths, for a saved config."""
        users = self.users if self.users in (OWN, COMMON) else str(Path(self.users).resolve())
        return Inputs({name: path.resolve() for name, path in self.releases.items()}, users)

    def plain(self) -> dict[str, Any]:
        """Return plain values for a checkpoint or the handover."""
        return {"paths": {name: str(path) for name, path in self.releases.items()}, "users": self.users}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> Inputs:
        """Invert :meth:`plain`."""
        return cls({name: Path(path) for name, path in values["paths"].items()}, values["users"])


def resolve(
    data: CrossDomainDataModule,
    trainer: Trainer,
    *,
    reads: bool,
    publisher: Publisher | Namespace | None = None,
    ckpt_path: str | Path | None = None,
) -> Inputs:
    """Return the inputs of a run: those that the data name, and the rest from the first available source.

    1. The checkpoint that is resumed or scored: nothing is published, and inputs in its run folder are found if it was moved.
    2. In a process that Lightning started: the inputs that the first process handed over.
    3. Releases that the first process publishes now if the method ``reads`` any, and the users in common.

    A `UsageError` refuses another publisher than that of the checkpoint or of a release of `fit`, a control that a given release
    replaces, and publishing where it is impossible.
    """
    named = Inputs(data.release_paths, data.users)
    requested = plain(publisher)
    if ckpt_path:
        saved = _checkpoint_inputs(Path(ckpt_path), requested)
        return named.with_defaults(saved).relocated(Path(ckpt_path).resolve().parent.parent, saved).absolute()
    _refuse_other_publisher(named, publisher)
    missing = [name for name in data.sources if name not in named.releases] if reads else []
    if missing or named.users == COMMON:
        if HANDOVER in os.environ and os.environ.get("LOCAL_RANK", "0") != "0":
            made = Inputs.from_plain(json.loads(os.environ[HANDOVER]))
        else:
            _refuse_external_processes(trainer)
            made = _prepare(publisher, data, trainer, missing)
            os.environ[HANDOVER] = json.dumps(named.with_defaults(made).plain())
        named = named.with_defaults(made)
    return named.absolute()


def make_publisher(given: Publisher | Namespace | None) -> Publisher:
    """Return a publisher, instantiated from settings if needed; raise a `UsageError` without one."""
    if isinstance(given, Publisher):
        return given
    if given is None:
        raise UsageError(
            "publisher is not set and a release is missing. Set it, or pass --data.releases.NAME PATH (Python: "
            "releases={NAME: PATH} of the datamodule)."
        )
    made: Publisher = instantiate("publisher", Publisher, given)
    return made


def instantiate(part: str, base: type, settings: Any) -> Any:  # noqa: ANN401  of that class
    """Return the object that the settings of a part of an experiment describe."""
    parser = ArgumentParser(exit_on_error=False)  # its own, without Lightning's instantiators
    parser.add_subclass_arguments(base, part)
    return parser.instantiate(parser.parse_object({part: settings}))[part]


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of a checkpoint, tensors and plain values only; raise a `UsageError` if it is invalid."""
    if not path.is_file():
        raise FileNotFoundError(f"No checkpoint at {path}. A run has checkpoints/best.ckpt and last.ckpt.")
    try:
        found = load_tensors(path)
    except ValueError as error:
        raise UsageError(f"{error} Use checkpoints/best.ckpt or last.ckpt, or train again.") from error
    own = found.get("zoo") if isinstance(found, dict) else None
    if not isinstance(own, dict) or not {"sizes", "digests", "rng", "paths", "users"} <= own.keys():
        raise UsageError(f"{path} is no checkpoint of this project since 0.2. Train again.")
    return {**found}


def check_names(releases: Collection[str], sources: Collection[str]) -> None:
    """Refuse releases of domains that are no sources."""
    if others := sorted(set(releases) - set(sources)):
        raise UsageError(f"releases names {others}. The sources are {sorted(sources)}.{suggest(others[0], sources)}")


def read_inputs(data: CrossDomainDataModule, method: Recommender, stored: Mapping[str, Any]) -> None:
    """Read the target, and the releases if the method uses them; refuse others than ``stored``, see `refuse_other_data`."""
    data.read_target()
    ratings_alone = {**stored["digests"], **data.digests}  # first: a new user may be in no release
    refuse_other_data(stored, ratings_alone, data.target)
    method.check_signs(data.signs)
    if method.accepted_releases and not data.releases:
        data.read_releases()
    refuse_other_data(stored, data.digests, data.target)


@contextmanager
def explain_mismatch(folder: Path, saved: Mapping[str, Any]) -> Iterator[None]:
    """Raise a `UsageError` with both versions if weights do not fit the method."""
    try:
        yield
    except (KeyError, RuntimeError, TypeError) as error:
        version = saved.get("version", "an older version")
        raise UsageError(
            f"The weights in {folder} (version {version}) do not fit version {VERSION}. Use that version, or train "
            "again."
        ) from error


def _checkpoint_inputs(ckpt: Path, publisher: Any) -> Inputs:  # noqa: ANN401  plain settings
    """Return the inputs of the run of a checkpoint; refuse another publisher."""
    checkpoint = read_checkpoint(ckpt)
    ours, theirs = flat(publisher or {}), flat(checkpoint.get("publisher") or {})
    # A run of Python states no defaults; whether releases are the same is compared by digests.
    if changed := sorted(key for key in ours.keys() & theirs.keys() if ours[key] != theirs[key]):
        raise UsageError(
            f"The checkpoint was trained with another publisher; these settings differ: {changed}. Use its run's "
            "config, or train again."
        )
    return Inputs.from_plain(checkpoint["zoo"])


def _prepare(
    given: Publisher | Namespace | None, data: CrossDomainDataModule, trainer: Trainer, missing: Sequence[str]
) -> Inputs:
    """Publish missing releases and determine the users in common; write files after everything has succeeded."""
    publisher = make_publisher(given) if missing else None
    if missing and data.trusted is not None:
        raise UsageError(
            f"data.trusted is set, and the releases of {missing} would be unsigned. Pass signed ones "
            "(--data.releases.NAME PATH), or omit data.trusted."
        )
    users = data.common_users() if data.users == COMMON else None
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        if users is not None:
            data.users, data.users_from_ratings = str(write_users(users, Path(scratch) / "users.csv")), True
        data.read_target()  # refuse bad data before publishing
        releases, of_target = ({}, None) if publisher is None else _published(publisher, data, missing)
    folder = _folder(trainer)
    paths = {name: release.save(folder / RELEASES / name) for name, release in releases.items()}
    if releases:
        write_json(folder / RELEASES / PUBLISHER, plain(given))
    if of_target is not None:
        write_json(folder / RELEASES / TARGET_RELEASE, _without_rows(of_target))
    return Inputs(paths, data.users if users is None else str(write_users(users, folder / USERS)))


def _published(publisher: Publisher, data: CrossDomainDataModule, names: Sequence[str]) -> Published:
    """Publish each source, after all have been read and found to have users of the target."""
    releases = {}
    with isolate_rng():  # same random stream as with given releases
        sources = {name: _source_ratings(data, name) for name in names}
        for name, source in sources.items():
            if not publisher.control:  # a control may have other users
                data.check_source_users(name, source)
        stamped = Stamped(publisher).for_target(data.train)  # the target publishes for it, once for all sources
        for name in names:
            releases[name] = stamped.publish(sources.pop(name), name)
            data.link_users(name, releases[name], f"The new release of {name!r}")
    return releases, stamped.target_release()


def _without_rows(release: Release) -> dict[str, Any]:
    """Return shapes, bytes and privacy of a release as plain JSON, without a row or an id."""
    ids = release.user_ids.tolist()
    sizes = {name: {"shape": [*part.shape], "bytes": part.nbytes} for name, part in release.tensors.items()}
    sizes["user ids"] = {"shape": [len(ids)], "bytes": sum(len(name.encode()) for name in ids)}
    return {"tensors": sizes, "privacy": entry_of(release.record, release.ledger, release.source_users)}


def _source_ratings(data: CrossDomainDataModule, name: str) -> Ratings:
    """Return the ratings of a source; if they are not available, say how to pass a release."""
    try:
        found: Ratings = marked(data, data.source(name))  # also where the object replaces the method of its class
        return found
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{error} Pass the release of the source party: --data.releases.{name} PATH (Python: "
            f"releases={{{name!r}: PATH}} of the datamodule)."
        ) from error


def _folder(trainer: Trainer) -> Path:
    if (folder := folder_of_run(trainer)) is None:
        folder = Path(tempfile.mkdtemp(prefix="zoo-"))
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            atexit.register(shutil.rmtree, folder, ignore_errors=True)  # other processes read it during the run
        else:  # checkpoints need it
            rank_zero_warn(
                f"There is no logger, so no run folder. Releases and user list are kept in {folder}, checkpoints below "
                f"{trainer.default_root_dir}."
            )
        return folder
    _ = trainer.loggers[0].experiment  # type: ignore[attr-defined]  # the CSV log makes its folder, while it is empty
    return folder.resolve()


def _refuse_other_publisher(named: Inputs, publisher: Publisher | Namespace | None) -> None:
    """Refuse a publisher that differs from the one with which `fit` made a given release, and controls for other releases."""
    for name, path in (named.releases if publisher else {}).items():
        if not (beside := path.parent / PUBLISHER).is_file():
            if (made := make_publisher(publisher)).control:
                raise UsageError(
                    f"The release of {name!r} is given, so publisher {type(made).__name__} would not be applied. Set "
                    "--publisher null, or --data.releases null to publish again."
                )
        elif changed := _changed(plain(publisher), beside):
            raise UsageError(
                f"The release of {name!r} was published with another publisher; these settings differ: {changed}. To "
                "publish again, set --data.releases null."
            )


def _changed(publisher: object, beside: Path) -> list[str]:
    """Return the settings in which a publisher differs from that of a file, which another party may have written."""
    try:
        check_size(beside)
        return differing(publisher, read_json(beside.read_text(encoding="utf-8"), beside))
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{beside} cannot be read ({error}). Remove it.") from error


def _refuse_external_processes(trainer: Trainer) -> None:
    """Refuse processes that Lightning did not start: they cannot wait for the first one to publish."""
    environment = getattr(trainer.strategy, "cluster_environment", None)  # one process has none
    outside = environment is not None and environment.creates_processes_externally and trainer.world_size > 1
    if outside or trainer.num_nodes > 1:
        raise UsageError(
            "Processes of torchrun, SLURM or several nodes cannot publish. Run `python -m zoo publish` first; pass "
            "--data.releases.NAME PATH and --data.users FILE."
        )
