"""Links: which row of a release is which user of the target."""

import torch
from torch import Tensor

from zoo.data.pairs import Ids
from zoo.data.ratings import index_of
from zoo.release.release import Release


class MissingReleaseError(FileNotFoundError):
    """The target was asked to train without the release of a source."""


class UserMismatchError(ValueError):
    """The users of the target and of a release do not fit."""


def link_users(users: Ids, name: str, release: Release, path: str, *, missing_is_error: bool) -> Tensor:
    """Row of each target user in a release, shape ``(users,)``, -1 for none.

    Users of the release whom the target does not know are of no account. A release of nobody (the control that releases
    nothing) links nobody, whatever is asked of missing users. In errors the release, of the source ``name``, is called ``path``.
    """
    if release.domain != name:
        raise UserMismatchError(
            f"{path} is the release of {release.domain!r}, not of {name!r}. Pass it as "
            f"--data.releases.{release.domain}, or ask for the right one."
        )
    links = index_of(release.user_ids, users)
    common, total = int((links >= 0).sum()), len(users)
    if release.num_users and not common:
        raise UserMismatchError(
            f"{path} covers {release.num_users} users, none of the target's {total}. Check that both parties name the "
            f"same person by the same id (release: {str(release.user_ids[0])!r}, target: {str(users[0])!r})."
        )
    if release.num_users and common < total and missing_is_error:
        raise UserMismatchError(
            f"{path} covers {release.num_users} users, the target has {total}; {total - common} of them have no row. "
            "Publish again with --data.users FILE (an agreed list of users), or set --data.missing_users zero."
        )
    return torch.from_numpy(links.copy())
