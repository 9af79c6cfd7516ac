"""Fetching a data set from its owner: known files alone, checked by size and SHA-256, from a folder first and then from hosts."""

from __future__ import annotations

import gzip
import hashlib
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field

from zoo.commands.data.by_hand import BY_HAND, said_of
from zoo.runtime.run_folder import saying_where, whole
from zoo.runtime.suggestions import suggest


class Member(BaseModel):
    """A table inside a published zip archive, without a header."""

    model_config = ConfigDict(extra="forbid")
    member: str  # its path in the archive
    separator: str = ","
    header: str = "user_id,item_id,rating,timestamp"


class Published(BaseModel):
    """A file as somebody publishes it."""

    model_config = ConfigDict(extra="forbid")
    urls: list[str] = Field(min_length=1)  # tried in this order
    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    size: int = Field(gt=0)  # bytes
    tables: dict[str, Member] = {}  # what an archive is unpacked to; empty: the file is taken as it is


class DataSet(BaseModel):
    """What a data set consists of, by the name of each published file, and on which terms."""

    model_config = ConfigDict(extra="forbid")
    licence: str
    files: dict[str, Published]


#: What may be fetched by name. Of others no address with a known content is recorded: `zoo.commands.data.by_hand`.
KNOWN: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("known.yaml").read_text(encoding="utf-8"))


def registered(name: str, registry: Path | None = None) -> DataSet:
    """The data set of a name, from a registry of one's own first.

    Raises:
        ValueError: It is one to be got by hand, and the message says where; or there is none, and it names the nearest.
    """
    known = KNOWN if registry is None else KNOWN | yaml.safe_load(registry.read_text(encoding="utf-8"))
    if name in known:
        return DataSet.model_validate(known[name])
    if name in BY_HAND:
        raise ValueError(f"{said_of(name)} A file of your own is fetched with --registry.")
    raise ValueError(
        f"There is no data set {name!r}.{suggest(name, [*known, *BY_HAND])} Fetched are {', '.join(sorted(known))}; "
        f"it is said where to get {', '.join(BY_HAND)} by hand. A file of your own is fetched with --registry."
    )


def fetch(data: DataSet, folder: Path, offline: Path | None = None) -> None:
    """Put a data set's tables into a folder, whole or not at all; tables that are there stay as they are.

    Raises:
        OSError: No host gives the file.
        ValueError: What a host, or the offline folder, gives is not the file that is known.
    """
    for name, published in data.files.items():
        wanted = [*(published.tables or [name])]
        if all((folder / table).is_file() for table in wanted):
            print(f"There already: {', '.join(str(folder / table) for table in wanted)}")
            continue
        print(f"Terms of {name}: {data.licence}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as scratch:
            file = _found(name, published, offline) or _downloaded(name, published, Path(scratch))
            folder.mkdir(parents=True, exist_ok=True)
            for table in wanted:
                with whole(folder / table) as temporary:
                    if published.tables:
                        _unpack(file, published.tables[table], temporary)
                    else:
                        shutil.copyfile(file, temporary)
        print(f"Written: {', '.join(str(folder / table) for table in wanted)}")


def _found(name: str, published: Published, offline: Path | None) -> Path | None:
    path = None if offline is None else offline / name
    return _checked(path, name, published, str(path)) if path is not None and path.is_file() else None


def _checked(path: Path, name: str, published: Published, whence: str) -> Path:
    size, digest = path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()
    if (size, digest) != (published.size, published.sha256):
        raise ValueError(
            f"{whence} is not the {name} that is known: it has {size:,} bytes and SHA-256 {digest}, and should have "
            f"{published.size:,} and {published.sha256}. It was changed or cut short; nothing was written."
        )
    return path


def _downloaded(name: str, published: Published, scratch: Path) -> Path:
    import pooch
    import requests

    failed = []
    for url in published.urls:
        try:
            # Checked below, in our words and with the size.
            path = Path(pooch.retrieve(url, known_hash=None, fname=name, path=scratch, progressbar=False))
        except (requests.exceptions.RequestException, OSError) as error:
            failed.append(f"{url} ({type(error).__name__})")
            continue
        return _checked(path, name, published, url)
    raise OSError(
        f"No host gives {name}: {'; '.join(failed)}. If it is gone, get the file elsewhere ({published.size:,} bytes, SHA-256 "
        f"{published.sha256}), put it into a folder and say --offline FOLDER."
    )


def _unpack(archive: Path, table: Member, path: Path) -> None:
    with zipfile.ZipFile(archive) as packed:
        rows = packed.read(table.member).decode().replace(table.separator, ",")
    with saying_where(path):
        path.write_bytes(gzip.compress(f"{table.header}\n{rows}".encode(), mtime=0))
