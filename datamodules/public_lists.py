"""Public lists that the parties agree on: users, the items of a catalogue, or a number of columns that items are hashed to."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from datamodules.data_quality import warn_once
from datamodules.protocol import Evaluation
from datamodules.splits import PAIR
from zoo.data.open_table import column_names, distinct_ids
from zoo.data.ratings import Step, map_ids
from zoo.data.sampling import hash_ids, mix, uniform_integers
from zoo.runtime.run_folder import visible, write_table

#: Values of the argument `users` that are no path.
OWN, COMMON = "own", "common"
#: Column of a list that a run derived from ratings; the second is its name before version 0.4.
DERIVED, DERIVED_0_3 = "derived_from_ratings", "worked_out_of_ratings"
#: Column of a list that two parties found by private set intersection.
INTERSECTION = "found_by_private_set_intersection"
#: Limit of `uniform_integers`.
MOST_COLUMNS = 2**32
#: Public and the same everywhere: which items share a column depends on no data.
_SALT = "columns of a source"


def read_users(path: Path) -> list[str]:
    """Return the ids of a CSV file's column user_id, sorted: the agreed users, rated anything or not."""
    return _read_list(path, "user_id", "users must be 'own', 'common' or a CSV file with a column user_id.")


def read_catalogue(path: Path) -> list[str]:
    """Return the ids of a CSV file's column item_id, sorted: the items that a domain may have, rated or not."""
    return _read_list(path, "item_id", "catalogues must name a CSV file with a column item_id for a domain.")


def _read_list(path: Path, column: str, allowed: str) -> list[str]:
    if not path.is_file():
        raise FileNotFoundError(
            f"No list of {column.removesuffix('_id')}s at {visible(str(path.resolve()))}. {allowed}"
        )
    found, left_out = distinct_ids(path, column)
    if not found:
        raise ValueError(f"{path} is empty. Needed: ids under {column}.")
    if left_out:
        warn_once(left_out)
    return found


def check_lists(users: object, catalogues: Mapping[str, int | Path], target: str, evaluation: Evaluation) -> None:
    """Refuse `users` that is neither a word nor a path, such as null, and numbers of columns that cannot be used."""
    if not isinstance(users, str) or not users:
        raise ValueError(f"users is {users!r}. Allowed: 'own', 'common', or a CSV file with user_id.")
    for name, number in catalogues.items():
        if not isinstance(number, int):
            continue
        if not 1 <= number <= MOST_COLUMNS or isinstance(number, bool):
            raise ValueError(f"catalogues.{name} is {number}. Allowed: from 1 to 2^32, e.g. 8192.")
        if name == target:
            raise ValueError(f"catalogues.{name} is {number}, and {name!r} is the target. Name a CSV file.")
        for hides in ("hold_out_of_sources", "earlier_sources"):  # one row of a column would stand for all of it
            if getattr(evaluation, hides):
                raise ValueError(f"catalogues.{name} is {number}; evaluation.{hides} is true. Name a CSV file.")


def check_no_ratings(users: str, catalogues: Mapping[str, int | Path], files: Iterable[Path]) -> None:
    """Refuse a list that is one of the domains' files, or has columns user_id and item_id: it was made from ratings."""
    read = {path.resolve() for path in files}
    named = [Path(users)] * (users not in (OWN, COMMON)) + [
        path for path in catalogues.values() if isinstance(path, Path)
    ]
    for path in filter(Path.is_file, named):
        if path.resolve() in read or {*PAIR} <= {*column_names(path)}:
            raise ValueError(f"{path} is a file of ratings, and no list agreed on beforehand. Pass such a list.")


def agreed_users(users: str) -> list[str] | None:
    """Return the ids of an agreed list, from the argument `users`; None if each domain has its own. `common` is refused."""
    if users == OWN:
        return None
    if users == COMMON:
        raise ValueError("users is 'common', which only `fit` supports. Pass --data.users FILE.")
    return read_users(Path(users))


def is_derived_list(users: str) -> bool:
    """Return whether the argument `users` names a list that a run derived from ratings; opens no ratings."""
    return not {DERIVED, DERIVED_0_3}.isdisjoint(_columns(users))


def is_intersection(users: str) -> bool:
    """Return whether the argument `users` names a list that `python -m zoo psi` wrote."""
    return INTERSECTION in _columns(users)


def _columns(users: str) -> list[str]:
    path = Path(users)
    return [] if users in (OWN, COMMON) or not path.is_file() else column_names(path)


def list_steps(users: str, *, derived: bool, catalogue: Path | int | None, shipped: bool) -> tuple[Step, ...]:
    """Return the steps that define a domain's users and items, with the conditions of a guarantee on them.

    Args:
        users: The argument `users` of a datamodule.
        derived: Whether the list of users was derived from all ratings, now or by an earlier run (`is_derived_list`).
        catalogue: List of items, or number of columns that they are hashed to.
        shipped: Whether the data set defines both.
    """
    if users != OWN and is_intersection(users):
        words = "users are those of both parties' lists, found by private set intersection without an epsilon"
        steps = [Step(words, "users_by_intersection")]
        steps += [Step("a prior list was derived from ratings", "users_in_common")] * derived
    elif users == COMMON or derived:
        words = "users are those in common, derived from all domains' ratings (research only)"
        steps = [Step(words, "users_in_common")]
    elif users != OWN:
        steps = [Step("users are a list agreed on beforehand")]
    elif shipped:
        steps = [Step("users are defined by the data set")]
    else:
        steps = [Step("users are derived from the ratings", "users_from_ratings")]
    if isinstance(catalogue, int):
        return *steps, Step(f"items are hashed to {catalogue} columns (number and hash are public)")
    if catalogue is not None:
        return *steps, Step("items are a public catalogue")
    if shipped:
        return *steps, Step("items are defined by the data set")
    return *steps, Step("items are derived from the ratings", "items_from_ratings")


def write_users(users: Sequence[str], path: Path) -> Path:
    """Write users in common as a list, atomically, marked as derived from ratings; return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, pl.DataFrame({"user_id": list(users), DERIVED: [True] * len(users)}))
    return path


def write_intersection(users: Sequence[str], path: Path, *, derived: bool = False) -> Path:
    """Write users found by private set intersection as a list, atomically; return its path.

    The list is marked so, and as derived from ratings if the party's own list was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    marks = {INTERSECTION: [True] * len(users)} | ({DERIVED: [True] * len(users)} if derived else {})
    write_table(path, pl.DataFrame({"user_id": list(users), **marks}))
    return path


def catalogue_ids(catalogue: int | Path) -> list[str]:
    """Return the item ids of a catalogue: those of the file, or names of so many columns, in order."""
    if not isinstance(catalogue, int):
        return read_catalogue(catalogue)
    width = len(str(catalogue - 1))
    return [f"column-{at:0{width}d}" for at in range(catalogue)]


def apply_catalogue(table: pl.DataFrame, catalogue: int | Path | None) -> pl.DataFrame:
    """Return the rows of the listed items, or all rows with hashed items."""
    if isinstance(catalogue, int):
        return hash_items(table, catalogue)
    return table if catalogue is None else table.filter(pl.col("item_id").is_in(read_catalogue(catalogue)))


def hash_items(table: pl.DataFrame, number: int) -> pl.DataFrame:
    """Return the rows with a column's name for each item's, one for each (user, column): feature hashing, without signs.

    An item's column is a hash of its id, so it depends on no rating, and no list of items is needed. Of a user's rows in one
    column the last counts. One rating changes at most one entry: the entry (user, column) depends on this user's rows of the
    column's items alone, and each row has one item.

    Reference: Weinberger et al., *Feature Hashing for Large Scale Multitask Learning*, ICML 2009. Departures: no random signs,
    and items that share a column are not added up, since a sum of k ratings would have k times the range.

    Examples:
        >>> import polars as pl
        >>> rows = pl.DataFrame({"user_id": ["ann"] * 3, "item_id": ["tea", "jam", "egg"]})
        >>> hash_items(rows, 16)["item_id"].to_list()
        ['column-09', 'column-08']
    """
    at = map_ids(table["item_id"], lambda items: uniform_integers(mix(_SALT, hash_ids(items)), number))
    names = pl.Series(catalogue_ids(number), dtype=pl.Categorical())
    return table.with_columns(item_id=names.gather(at)).unique(PAIR, keep="last", maintain_order=True)
