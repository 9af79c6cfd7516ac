"""Links: from which domains a target may learn, and which row of a release is which of its users."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.data.pairs import Ids
from zoo.data.ratings import index_of
from zoo.release.release import Release


class MissingReleaseError(FileNotFoundError):
    """The target was asked to train without the release of a source."""


class UserMismatchError(ValueError):
    """The users of the target and of a release do not fit."""


def check_sources(target: str, sources: Sequence[str]) -> None:
    """Refuse a target that is to learn from itself, and a source from which it would learn twice."""
    if target in sources:
        raise ValueError(
            f"sources must be domains other than the target; {target!r} is among its own: {list(sources)}. Take it out."
        )
    if repeated := sorted(name for name, count in Counter(sources).items() if count > 1):
        raise ValueError(
            f"sources must be distinct, as each has one release; {repeated} stand more than once in {list(sources)}."
        )


def link_users(users: Ids, name: str, release: Release, path: str, *, missing_is_error: bool) -> Tensor:
    """Row of each target user in a release of the source ``name``, shape ``(users,)``, -1 for none; errors call it ``path``.

    Users of the release whom the target does not know are ignored. A release of nobody (the control that releases nothing)
    links nobody, whatever is asked of missing users.
    """
    if release.domain != name:
        raise UserMismatchError(
            f"{path} is the release of {release.domain!r}, not of {name!r}. Pass it as --data.releases.{release.domain}."
        )
    return torch.from_numpy(aligned_rows(users, release.user_ids, path, missing_is_error=missing_is_error))


def aligned_rows(users: Ids, others: Ids, what: str, *, missing_is_error: bool) -> npt.NDArray[np.int64]:
    """Row of each user among those of a release or source, which errors call ``what``, shape ``(users,)``, -1 for none."""
    rows = index_of(others, users).copy()
    common, total = int((rows >= 0).sum()), len(users)
    if len(others) and not common:
        raise UserMismatchError(
            f"{what} covers {len(others)} users, none of the target's {total}. Check that both parties use the same ids (there: "
            f"{str(others[0])!r}, target: {str(users[0])!r}), or take the domain out of --data.sources."
        )
    if len(others) and common < total and missing_is_error:
        raise UserMismatchError(
            f"{what} covers {len(others)} users, the target has {total}; {total - common} of them have no row. "
            "Publish with --data.users FILE (an agreed list of users), or set --data.missing_users zero."
        )
    return rows
