"""The delta of a release, derived from the public number of users or entries."""

from zoo.privacy.accounting.relation import Unit

LARGEST = 1e-5
"""Largest default."""


def default_delta(num_units: int) -> float:
    """Return ``min(1e-5, 1 / (10 num_units))``, the delta of a release when none is requested.

    The units are users, or the entries of the matrix if one rating is protected. A mechanism may release each unit with
    probability delta, so a delta near one over their number would allow the release of a random rating.

    Examples:
        >>> default_delta(50_000)
        2e-06
    """
    if num_units < 1:
        raise ValueError(f"num_units is {num_units!r}. Allowed: integers >= 1.")
    return min(LARGEST, 1 / (10 * num_units))


def num_units(unit: Unit, num_users: int, num_items: int) -> int:
    """Return the public number of units that a default delta counts: users, or users times items for one rating.

    Examples:
        >>> num_units(Unit.RATING, 100, 40)
        4000
    """
    return num_users * num_items if unit is Unit.RATING else num_users


def delta_for(num_users: int, requested: float | None, unit: Unit = Unit.USER, num_items: int = 1) -> float:
    """Return the requested delta, or the default of the unit; a ValueError unless it is below ``1 / num_users``."""
    default = default_delta(num_units(unit, num_users, num_items))
    delta = default if requested is None else requested
    if delta >= 1 / num_users:
        raise ValueError(f"delta is {delta:g}. Allowed: below 1/{num_users} (users). Take {default:g}, or omit it.")
    return delta


def delta_rule(
    delta: float | None, unit: Unit | None, num_users: int, num_items: int, *, earlier: bool = False
) -> str | None:
    """Return the code of the rule that gives this delta; None without a delta, and for values of a public set of pairs.

    ``delta_of_entries`` and ``delta_of_users`` are the defaults, that of users also for ratings of ``earlier`` releases.
    ``delta_requested`` is any other.

    Examples:
        >>> delta_rule(2.5e-6, Unit.RATING, 200, 200)
        'delta_of_entries'
    """
    if not delta or unit not in (Unit.USER, Unit.RATING) or num_users < 1:
        return None
    if unit is Unit.RATING and num_items and delta == default_delta(num_users * num_items):
        return "delta_of_entries"
    default = delta == default_delta(num_users) and (unit is Unit.USER or earlier)
    return "delta_of_users" if default else "delta_requested"
