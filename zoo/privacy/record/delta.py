"""The delta of a release, from the number of users, which is public."""


def default_delta(num_users: int) -> float:
    """``min(1e-5, 1 / (10 num_users))``: the delta of a release when none is asked for.

    Depends on the number of users, which is public, for every unit; the number of ratings is not public.
    """
    if num_users < 1:
        raise ValueError(f"num_users must be at least 1, got {num_users!r}. It is the public number of users.")
    return min(1e-5, 1 / (10 * num_users))


def delta_for(num_users: int, asked: float | None) -> float:
    """The delta that is asked for, or the default for so many users; a ValueError unless it is below one over their number."""
    default = default_delta(num_users)
    delta = default if asked is None else asked
    if delta >= 1 / num_users:
        raise ValueError(
            f"delta {delta:g} is not below one over the {num_users} users, at which handing over one user's data whole would "
            f"count as private. Take {default:g} or less, or leave it out."
        )
    return delta
