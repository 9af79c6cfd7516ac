"""The delta of a release, derived from the public number of users."""


def default_delta(num_users: int) -> float:
    """Return ``min(1e-5, 1 / (10 num_users))``, the delta of a release when none is requested.

    It uses the number of users for every privacy unit, because the number of ratings is not public.

    Examples:
        >>> default_delta(50_000)
        2e-06
    """
    if num_users < 1:
        raise ValueError(f"num_users is {num_users!r}. Allowed: integers >= 1.")
    return min(1e-5, 1 / (10 * num_users))


def delta_for(num_users: int, requested: float | None) -> float:
    """Return the requested delta, or the default; a ValueError unless it is below ``1 / num_users``."""
    default = default_delta(num_users)
    delta = default if requested is None else requested
    if delta >= 1 / num_users:
        raise ValueError(f"delta is {delta:g}. Allowed: below 1/{num_users} (users). Take {default:g}, or omit it.")
    return delta
