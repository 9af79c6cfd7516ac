"""Download known data sets, checked by size and SHA-256, from a local folder or from their owners."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from datamodules.recipe import Recipe
from zoo.commands.data.manual_downloads import MANUAL_DOWNLOADS, download_hint
from zoo.data.text_table import unpacked
from zoo.runtime.run_folder import atomic_write, saying_where
from zoo.runtime.settings_files import read_yaml
from zoo.runtime.suggestions import suggest


class Member(BaseModel):
    """A table inside a published zip archive, without a header."""

    model_config = ConfigDict(extra="forbid")
    member: str  # path in the archive
    separator: str = ","
    header: str | None = "user_id,item_id,rating,timestamp"  # null: the table is copied as it is


class Published(BaseModel):
    """A published file."""

    model_config = ConfigDict(extra="forbid")
    urls: list[str] = Field(min_length=1)  # tried in this order
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int | None = Field(default=None, gt=0)  # bytes; null: unknown
    tables: dict[str, Member] = {}  # tables of an archive; empty: the file is a table


class DataSet(BaseModel):
    """Terms of a data set, and its files by name."""

    model_config = ConfigDict(extra="forbid")
    licence: str
    files: dict[str, Published]


#: Data sets that can be downloaded.
KNOWN: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("known.yaml").read_text(encoding="utf-8"))


def registered(name: str, registry: Path | None = None) -> DataSet:
    """Return a known data set, of a registry first; raise a `ValueError` that says how to get another one.

    Examples:
        >>> list(registered("ml-100k").files)
        ['ml-100k.zip']
    """
    known = KNOWN if registry is None else KNOWN | read_yaml(registry.read_text(encoding="utf-8"), registry)
    if name in known:
        data = DataSet.model_validate(known[name])
        for file in (*data.files, *(table for each in data.files.values() for table in each.tables)):
            if file in ("", "..") or Path(file).name != file:
                raise ValueError(f"A file in {registry} is {file!r}. Allowed: a name without a folder. Rename it.")
        return data
    if name in Recipe.names():
        recipe = Recipe.named(name)
        if recipe.files:
            return DataSet.model_validate({"licence": recipe.licence, "files": recipe.files})
        named = f"{name} must be downloaded manually. {recipe.about} {recipe.licence} See {recipe.address}."
        raise ValueError(f"{named} Put its files into $ZOO_DATA/{name}. Read them with Files, recipe {name}.")
    if name in MANUAL_DOWNLOADS:
        raise ValueError(download_hint(name))
    raise ValueError(
        f"Unknown data set {name!r}.{suggest(name, [*known, *Recipe.names(), *MANUAL_DOWNLOADS])} Known: "
        f"{', '.join([*sorted(known), *Recipe.names()])}; manual: {', '.join(MANUAL_DOWNLOADS)}. Or use --registry."
    )


def fetch(data: DataSet, folder: Path, offline: Path | None = None) -> None:
    """Write the tables of a data set into a folder, atomically; existing tables stay. Files with another SHA-256 are refused."""
    for name, published in data.files.items():
        wanted = [*(published.tables or [name])]
        if all((folder / table).is_file() for table in wanted):
            print(f"Exists: {', '.join(str(folder / table) for table in wanted)}")
            continue
        print(f"Terms of {name}: {data.licence}", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
            file = _found(name, published, offline) or _downloaded(name, published, Path(scratch))
            folder.mkdir(parents=True, exist_ok=True)
            for table in wanted:
                with atomic_write(folder / table) as temporary:
                    if published.tables:
                        _unpack(file, published.tables[table], temporary)
                    else:
                        shutil.copyfile(file, temporary)
        print(f"Written: {', '.join(str(folder / table) for table in wanted)}")


def _found(name: str, published: Published, offline: Path | None) -> Path | None:
    path = None if offline is None else offline / name
    return _checked(path, name, published, str(path)) if path is not None and path.is_file() else None


def _checked(path: Path, name: str, published: Published, source: str) -> Path:
    size, digest = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
    if (published.size or size, published.sha256) != (size, digest):
        raise ValueError(
            f"{source} has {size:,} bytes and SHA-256 {digest}; {name} must have {published.size or size:,} and "
            f"{published.sha256}."
        )
    return path


def _downloaded(name: str, published: Published, scratch: Path) -> Path:
    import pooch
    import requests

    failed = []
    for url in published.urls:
        try:
            # Checked below, by size too. A fixed name stays in the folder.
            path = Path(pooch.retrieve(url, known_hash=None, fname="file", path=scratch, progressbar=False))
        except (requests.exceptions.RequestException, OSError) as error:
            failed.append(f"{url} ({type(error).__name__})")
            continue
        return _checked(path, name, published, url)
    raise OSError(
        f"No host has {name}: {'; '.join(failed)}. Get it elsewhere (SHA-256 {published.sha256}) and pass --offline "
        "FOLDER."
    )


def _unpack(archive: Path, table: Member, path: Path) -> None:
    content = unpacked(archive, ".zip", table.member)
    with saying_where(path):
        if table.header is None:
            path.write_bytes(content)
        else:
            rows = content.decode().replace(table.separator, ",")
            path.write_bytes(gzip.compress(f"{table.header}\n{rows}".encode(), mtime=0))
