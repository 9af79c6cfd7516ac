"""Lists of users that parties agree on: read and written."""

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
    if not path.is_file():
        raise FileNotFoundError(
            f"No list of users at {path.resolve()}. users must be 'own', 'common' or a CSV file with a column user_id."
        )
    listed = pl.read_csv(path, infer_schema=False)
    if "user_id" not in listed.columns:
        raise ValueError(f"{path} has the columns {listed.columns}; it needs a column user_id, one user a row.")
    users: list[str] = listed["user_id"].drop_nulls().unique().sort().to_list()
    if not users:
        raise ValueError(f"{path} lists nobody; it needs one user a row under user_id.")
    return users


def write_users(users: Sequence[str], path: Path) -> Path:
    """Write a list of users as such a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    pl.DataFrame({"user_id": list(users)}).write_csv(temporary)
    return temporary.rename(path)
