"""Alignment: from which domains a target may learn, and which row of a release belongs to which of its users."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.data.arrays import Ids
from zoo.data.ratings import index_of
from zoo.release.files import ReleaseError, check_name
from zoo.release.release import Release
from zoo.release.signature import TrustedKeys


class MissingReleaseError(FileNotFoundError):
    """The release of a source is missing."""


class UserMismatchError(ValueError):
    """The users of the target and of a release do not match."""


def check_sources(target: str, sources: Sequence[str]) -> None:
    r"""Refuse a source that is the target or is named twice, and names of domains that no file or folder can have.

    Examples:
        >>> check_sources("books", ["films.v2", "items"])
        >>> check_sources("books", ["../films"])
        Traceback (most recent call last):
        ...
        ValueError: A domain is '../films'. Allowed: printable characters except / and \, and neither . nor .. alone. Rename it.
    """
    if isinstance(sources, str):
        raise TypeError(f"sources is {sources!r}. Write [{sources!r}].")
    for name in (target, *sources):
        check_name("domain", name)
        if name in (".", "..") or {*name} & {*"/\\"}:
            allowed = r"printable characters except / and \, and neither . nor .. alone"
            raise ValueError(f"A domain is {name!r}. Allowed: {allowed}. Rename it.")
    if target in sources:
        raise ValueError(f"sources are {list(sources)}. Remove the target {target!r}.")
    if repeated := sorted(name for name, count in Counter(sources).items() if count > 1):
        raise ValueError(f"sources repeat {repeated}. Name each source once.")


def check_domains(argument: str, given: Iterable[str], allowed: Sequence[str]) -> None:
    """Refuse an argument by domain that names other domains than those allowed."""
    if unknown := sorted({*given} - {*allowed}):
        raise ValueError(f"{argument} has {unknown}. It may have {allowed}.")


@contextmanager
def needing_all_domains(what: str, instead: str = "") -> Iterator[None]:
    """Add to the error of a missing file what needs all domains, and what to do instead."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{what} needs all domains locally: {error}{instead}") from error


def load_releases(
    sources: Sequence[str], paths: Mapping[str, Path], trusted: Path | None
) -> Iterator[tuple[str, Release]]:
    """Yield the release of each source; refuse a missing one, and one that is read before training.

    Args:
        sources: Names of the sources.
        paths: Folder of each release.
        trusted: Public keys, of which one must have signed each release; None: any release is read.
    """
    if missing := [name for name in sources if name not in paths]:
        option = f"--data.releases.{missing[0]} PATH (in Python releases={{{missing[0]!r}: PATH}})"
        raise MissingReleaseError(f"No release of {missing}. Set {option}, or set `publisher` and use `fit`.")
    keys = None if trusted is None else TrustedKeys.read(trusted)
    for name in sources:
        release = Release.load(paths[name], keys)
        if why := release.layout.before_training:
            raise ReleaseError(f"{paths[name]} is a release of kind {release.kind!r}. {why}")
        yield name, release


def link_users(users: Ids, name: str, release: Release, path: str, *, missing_is_error: bool) -> Tensor:
    """Return the row of each target user in a release of the source ``name``, shape ``(users,)``, -1 for none.

    Users of the release that the target does not have are ignored. A release without users links none, and is no error.

    Raises:
        UserMismatchError: If the release (``path`` in the message) is of another domain, or lacks required users.
    """
    if release.domain != name:
        domain = release.domain
        raise UserMismatchError(f"{path} is the release of {domain!r}, not of {name!r}. Set --data.releases.{domain}.")
    return torch.from_numpy(aligned_rows(users, release.user_ids, path, missing_is_error=missing_is_error))


def aligned_rows(users: Ids, others: Ids, what: str, *, missing_is_error: bool) -> npt.NDArray[np.int64]:
    """Return the row of each user among others, shape ``(users,)``, -1 for none; ``what`` names the others in messages."""
    rows = index_of(others, users).copy()
    common, total = int((rows >= 0).sum()), len(users)
    if len(others) and not common:
        ids = f"there: {str(others[0])!r}, target: {str(users[0])!r}"
        none = f"{what} covers {len(others)} users, none of the target's {total}"
        raise UserMismatchError(f"{none}. Use the same ids in both ({ids}).")
    if len(others) and common < total and missing_is_error:
        some = f"{what} covers {len(others)} users; {total - common} of the target's {total} have no row"
        raise UserMismatchError(f"{some}. Publish with an agreed --data.users FILE, or set --data.missing_users zero.")
    return rows
