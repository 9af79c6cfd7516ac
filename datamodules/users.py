"""Lists that are public: users that parties agree on, and the items of a catalogue."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

#: The two words that the argument `users` knows beside a path.
OWN, COMMON = "own", "common"


def read_users(path: Path) -> list[str]:
    """Ids of a CSV file's column user_id, sorted.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has no such column, or no id.
    """
    return _read_list(path, "user_id", "users must be 'own', 'common' or a CSV file with a column user_id.")


def read_catalogue(path: Path) -> list[str]:
    """Ids of a CSV file's column item_id, sorted: the items that a domain may have, rated or not.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it has no such column, or no id.
    """
    return _read_list(path, "item_id", "catalogues name a CSV file with a column item_id for a domain.")


def _read_list(path: Path, column: str, allowed: str) -> list[str]:
    what = f"{column.removesuffix('_id')}s"
    if not path.is_file():
        raise FileNotFoundError(f"No list of {what} at {path.resolve()}. {allowed}")
    listed = pl.read_csv(path, infer_schema=False)
    if column not in listed.columns:
        raise ValueError(f"{path} has the columns {listed.columns}; it needs a column {column}, one a row.")
    found: list[str] = listed[column].drop_nulls().unique().sort().to_list()
    if not found:
        raise ValueError(f"{path} lists nothing; it needs one id a row under {column}.")
    return found


def write_users(users: Sequence[str], path: Path) -> Path:
    """Write a list of users as such a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    pl.DataFrame({"user_id": list(users)}).write_csv(temporary)
    return temporary.rename(path)
