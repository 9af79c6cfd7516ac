"""What parties agree on in public: users, the items of a catalogue, or columns that items are hashed to."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from datamodules.open_table import column_names, open_table
from datamodules.protocol import Evaluation
from datamodules.splits import PAIR
from zoo.data.ratings import Step, map_ids
from zoo.data.sampling import hash_ids, mix, uniform_integers
from zoo.runtime.run_folder import write_table

#: The two words that the argument `users` knows beside a path.
OWN, COMMON = "own", "common"
#: Column of a list that says that nobody agreed on it: it comes of ratings, wherever it is taken.
WORKED_OUT = "worked_out_of_ratings"
#: A source may have so many columns at most: what `uniform_integers` tells apart.
MOST_COLUMNS = 2**32
#: Public and the same for everybody: nothing about the data decides which items share a column.
_SALT = "columns of a source"

_NAMED = "{} are those that the ratings themselves name"


def read_users(path: Path) -> list[str]:
    """Ids of a CSV file's column user_id, sorted: the users that parties agreed on, rated anything or not."""
    return _read_list(path, "user_id", "users must be 'own', 'common' or a CSV file with a column user_id.")


def read_catalogue(path: Path) -> list[str]:
    """Ids of a CSV file's column item_id, sorted: the items that a domain may have, rated or not."""
    return _read_list(path, "item_id", "catalogues name a CSV file with a column item_id for a domain.")


def _read_list(path: Path, column: str, allowed: str) -> list[str]:
    what = f"{column.removesuffix('_id')}s"
    if not path.is_file():
        raise FileNotFoundError(f"No list of {what} at {path.resolve()}. {allowed}")
    listed = open_table(path, ".csv", packed=False, needed=[column])
    if column not in listed.columns:
        raise ValueError(f"{path} has the columns {listed.columns}; it needs a column {column}, one a row.")
    found: list[str] = listed[column].drop_nulls().unique().sort().to_list()
    if not found:
        raise ValueError(f"{path} lists nothing; it needs one id a row under {column}.")
    return found


def check_users(users: object) -> None:
    """Refuse an argument `users` that is neither a word nor a path; a config's `null` gets here."""
    if not isinstance(users, str) or not users:
        raise ValueError(
            f"users must be 'own', 'common' or the path of a CSV file with a column user_id; got {users!r}."
        )


def agreed_users(users: str) -> list[str] | None:
    """Ids that the parties agreed on, from the argument `users`; None where each domain has its own. `common` is refused."""
    if users == OWN:
        return None
    if users == COMMON:
        raise ValueError(
            "users is 'common', which only `fit` can work out, where all domains are at hand. Pass the list of users that the "
            "parties agreed on: --data.users FILE. The users.csv of a run is no such list: it comes of all ratings."
        )
    return read_users(Path(users))


def is_derived_list(users: str) -> bool:
    """Whether the argument `users` names a list that a run has worked out of ratings and saved; opens no ratings."""
    path = Path(users)
    return users not in (OWN, COMMON) and path.is_file() and WORKED_OUT in column_names(path, ".csv")


def list_steps(users: str, *, worked_out: bool, catalogue: Path | int | None, shipped: bool) -> tuple[Step, Step]:
    """Return the steps that say what a domain's users and items are, with the conditions of a guarantee on them.

    A list of users may be ``worked_out`` of all ratings, here or by an earlier run (`is_derived_list`); a ``catalogue`` lists the
    items or says how many columns they are hashed to, and ``shipped`` are lists that the data set defines.
    """
    if users == COMMON or worked_out:
        words = "users cut to those in common, worked out from all domains' ratings (research only)"
        whose = Step(words, "users_in_common")
    elif users != OWN:
        whose = Step("users are a list agreed on beforehand, rated anything or not")
    elif shipped:
        whose = Step("users are those that the data set defines, rated anything or not")
    else:
        whose = Step(_NAMED.format("users"), "users_from_ratings")
    if isinstance(catalogue, int):
        return whose, Step(f"items are hashed to {catalogue} columns, a number and a hash that are public")
    if catalogue is not None:
        return whose, Step("items are a catalogue, rated or not")
    if shipped:
        return whose, Step("items are those that the data set defines, rated or not")
    return whose, Step(_NAMED.format("items"), "items_from_ratings")


def write_users(users: Sequence[str], path: Path) -> Path:
    """Write users in common as such a file, whole or not at all; it says of itself that it was worked out of ratings."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(path, pl.DataFrame({"user_id": list(users), WORKED_OUT: [True] * len(users)}))
    return path


def column_ids(number: int) -> list[str]:
    """Names of so many columns, in order."""
    width = len(str(number - 1))
    return [f"column-{at:0{width}d}" for at in range(number)]


def hash_items(table: pl.DataFrame, number: int) -> pl.DataFrame:
    """Return the rows with a column's name for an item's, one for each (user, column): feature hashing, without signs.

    An item's column is a hash of its id, so it depends on no rating, and no list of items is needed. Of a user's rows in one
    column the last counts. Hence one rating moves one entry at most: the entry (user, column) is made of this user's rows of
    the column's items alone, and each row is of one item.

    Source: Weinberger et al., *Feature Hashing for Large Scale Multitask Learning*, ICML 2009. Departures: no random signs, and
    items that share a column are not added up; a sum of k ratings would have k times the range.
    """
    at = map_ids(table["item_id"], lambda items: uniform_integers(mix(_SALT, hash_ids(items)), number))
    names = pl.Series(column_ids(number), dtype=pl.Categorical())
    return table.with_columns(item_id=names.gather(at)).unique(PAIR, keep="last", maintain_order=True)


def check_columns(catalogues: Mapping[str, int | Path], target: str, evaluation: Evaluation) -> None:
    """Refuse a number of columns, by domain, where it means nothing."""
    for name, given in catalogues.items():
        if not isinstance(given, int):
            continue
        if not 1 <= given <= MOST_COLUMNS or isinstance(given, bool):
            raise ValueError(f"catalogues.{name} is {given}; a number of columns is from 1 to 2^32. Take e.g. 8192.")
        if name == target:
            raise ValueError(
                f"catalogues.{name} is a number of columns, {given}, and {name!r} is the target, which ranks items. Name a CSV "
                "file with a column item_id, or leave it out."
            )
        if evaluation.hold_out_of_sources:
            raise ValueError(
                f"catalogues.{name} is a number of columns, {given}, and evaluation.hold_out_of_sources takes single items out. "
                "Name a CSV file, or hold nothing out."
            )
