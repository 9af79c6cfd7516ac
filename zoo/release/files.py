"""Files of a release: the manifest and the tensors in one file or in several, read as untrusted input."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save, save_file
from torch import Tensor

from zoo.runtime.settings_files import SettingsFileError, read_json

MANIFEST = "release.json"
TENSORS = "tensors.safetensors"
SIGNATURE = "release.sig"
TENSOR_FILE = r"tensors(-[0-9]{5})?\.safetensors"
"""Pattern of the names of files with tensors."""
SCHEMA = 3
"""The newest schema. 1: all tensors in one file. 2: dense rows in several files. 3: either, with `ReleaseMetadata`."""

LONGEST_NAME = 256
"""Largest number of characters of a name: a numpy array reserves space for the longest id."""
LARGEST_VALUE = 1e12
"""Largest absolute value in a release: products and sums of larger ones would leave float32."""
MANIFEST_BYTES = 2**20
"""Largest size of a manifest without its user ids."""

_FIELDS: dict[str, type] = {"schema": int, "kind": str, "domain": str, "record": dict, "ledger": list, "user_ids": list}
_PLACES: dict[str, type] = {"sha256": dict, "shards": list}
_FINITE = 2**22  # values checked at a time
_PART = 2**20  # bytes of a manifest read at a time
_ID_BYTES = 12 * LONGEST_NAME + 8  # of the longest id in JSON, with separators
_BETWEEN_IDS = 16  # bytes of blanks, line ends and commas at most
# Also one without an end, and possessive: else text of another party could take quadratic time.
STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_HEADER_BYTES = 2**20  # largest size of a file's names, types and shapes
_ENTRY = ("dtype", "shape", "data_offsets")  # in the order of the library
_ROOM = 2**26  # bytes that are always allowed for a manifest, and for an array of ids


class ReleaseError(ValueError):
    """A release that is damaged, of another schema, or inconsistent with its kind."""


def check_name(what: str, name: str) -> None:
    """Refuse a name that is empty, too long (`LONGEST_NAME`) or not printable; `ReleaseError`.

    Not printable, by Unicode, are control characters, escape sequences, line breaks, marks that change the direction of text,
    and blanks other than the space. ``what`` names the kind of name.
    """
    if len(name) > LONGEST_NAME:
        raise ReleaseError(
            f"A {what} has {len(name):,} characters: {name[:80]!r}... Allowed: {LONGEST_NAME}. Rename it."
        )
    if not name or not name.isprintable():
        raise ReleaseError(f"A {what} is {name[:80]!r}. Allowed: printable characters. Rename it.")


def check_ids(ids: Sequence[str]) -> None:
    """Check every user id by `check_name`, and the memory of their array, which is as wide as the longest id.

    The array takes four bytes a character, and at most 64 MiB or sixteen times as many bytes as the ids have characters.
    """
    for user in ids:
        check_name("user id", user)
    longest, characters = max(map(len, ids), default=0), sum(map(len, ids))
    if (size := 4 * longest * len(ids)) > max(_ROOM, 16 * characters):
        raise ReleaseError(
            f"The longest of {len(ids):,} user ids has {longest} characters (mean {characters / len(ids):.1f}): "
            f"{size / 2**20:,.0f} MiB in all. Use ids of similar length."
        )


def shard_name(number: int) -> str:
    """Return the name of a file of rows, counted from 1."""
    return f"tensors-{number:05d}.safetensors"


def header(dtype: torch.dtype, shape: Sequence[int]) -> bytes:
    """Return the first bytes of a tensor's digest: its type and shape."""
    return f"{dtype} {list(shape)} ".encode()


def raw(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor of any type, not copied if it is contiguous."""
    flat = tensor.contiguous().flatten()
    # An empty tensor may have any stride, and one of 0 cannot be viewed as bytes.
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def tensor_digest(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's type, shape and bytes."""
    digest = hashlib.sha256(header(tensor.dtype, tensor.shape))
    digest.update(raw(tensor))
    return digest.hexdigest()


def check_values(name: str, tensor: Tensor) -> None:
    """Refuse values that are NaN or beyond `LARGEST_VALUE`, one part at a time."""
    for part in torch.split(tensor.flatten(), _FINITE) if tensor.numel() else ():
        low, high = torch.aminmax(part)  # NaN if any value is
        if not -LARGEST_VALUE <= float(low) <= float(high) <= LARGEST_VALUE:
            raise ReleaseError(f"Tensor {name!r} has NaN or values beyond {LARGEST_VALUE:g}.")


def all_finite(tensor: Tensor) -> bool:
    """Whether no value is NaN or infinite; checks one part at a time."""
    return all(bool(torch.isfinite(part).all()) for part in torch.split(tensor.flatten(), _FINITE))


def manifest_bytes(folder: Path) -> bytes:
    """Return the stored manifest of a release's folder, whose bytes are signed.

    `ReleaseError` if it is larger than both 64 MiB and what its tensors allow (a user's part of them takes at least four bytes), so
    that the memory for reading stays in proportion to the files.
    """
    _must_exist(folder, MANIFEST)
    path = folder / MANIFEST
    most, content = max(_ROOM, _most_bytes(folder)), bytearray()
    with path.open("rb") as file:
        while len(content) <= most and (part := file.read(_PART)):
            if b"\0" in part:  # also the hole of a sparse file, which takes no room on disk
                raise ReleaseError(f"{path} has zero bytes. Ask the source party for it again.")
            content += part
    check_size(content, folder)
    return bytes(content)


def check_size(content: bytes | bytearray, folder: Path) -> None:
    """Refuse a manifest, or its first bytes, larger than both 64 MiB and what the tensors in its folder allow."""
    if len(content) > (most := max(_ROOM, _most_bytes(folder))):
        raise ReleaseError(f"{folder / MANIFEST} has more than the {most:,} bytes allowed for these tensors.")


def _most_bytes(folder: Path, of_an_id: int = _ID_BYTES, least: int = 0) -> int:
    files = [file for file in folder.glob("*.safetensors") if re.fullmatch(TENSOR_FILE, file.name)]
    return MANIFEST_BYTES + of_an_id * max(least, sum(file.stat().st_size for file in files) // 4)


def _between_strings(content: bytes) -> Iterator[bytes]:
    end = 0
    for found in STRING.finditer(content):
        yield content[end : found.start()]
        end = found.end()
    yield content[end:]


def parsed_manifest(content: bytes, path: Path) -> dict[str, Any]:
    """Parse a manifest and check its fields and types; `ReleaseError`, which names ``path``.

    What is outside strings is bounded before: three bytes there are a value, which takes 72 in memory. A map has no number of
    each user, so commas and blanks may also be those between as many texts.
    """
    strings = outside = values = 0
    for gap in _between_strings(content):
        strings, outside, values = strings + 1, outside + len(gap), values + len(gap.translate(None, b", \r\n\t"))
    most, between = _most_bytes(path.parent, _BETWEEN_IDS), _most_bytes(path.parent, _BETWEEN_IDS, strings)
    if values > most or outside > (most := between):
        raise ReleaseError(
            f"{path} has more than the {most:,} bytes outside strings allowed for these ids and tensors."
        )

    def refuse(constant: str) -> float:
        raise ReleaseError(f"{path} holds {constant}, no JSON number.")

    def finite(number: str) -> float:
        return float(number) if isfinite(float(number)) else refuse(number)

    try:
        manifest = read_json(content.decode("utf-8"), path, parse_constant=refuse, parse_float=finite)
    except ReleaseError:
        raise
    except SettingsFileError as error:
        raise ReleaseError(str(error)) from error
    except (ValueError, RecursionError) as error:
        raise ReleaseError(f"{path} is no JSON ({error}). Ask the source party for it again.") from error
    if not isinstance(manifest, dict) or type(manifest.get("schema")) is not int:
        raise ReleaseError(f"{path} names no schema, so it is no manifest.")
    _check_fields(path, manifest)
    check_rest(manifest, path)
    return manifest


def check_rest(manifest: Mapping[str, Any], path: Path) -> None:
    """Refuse a manifest whose fields without the user ids are larger than `MANIFEST_BYTES`."""
    if len(json.dumps({**manifest, "user_ids": []})) > MANIFEST_BYTES:
        raise ReleaseError(f"{path} has more than the {MANIFEST_BYTES:,} bytes allowed without user ids.")


def _check_fields(path: Path, manifest: Mapping[str, Any]) -> None:
    if manifest["schema"] < 1:
        raise ReleaseError(f"{path} has schema {manifest['schema']}. Allowed: >= 1.")
    if manifest["schema"] > SCHEMA:
        raise ReleaseError(f"{path} has schema {manifest['schema']}. Allowed: <= {SCHEMA}. Upgrade cdr-zoo.")
    types = _types(manifest)
    if manifest.keys() != types.keys():
        raise ReleaseError(f"{path} must hold exactly {sorted(types)}, it holds {sorted(manifest)}.")
    for key, wanted in types.items():
        if not isinstance(manifest[key], wanted):
            raise ReleaseError(f"{path}: {key} must be a {wanted.__name__}, got {type(manifest[key]).__name__}.")
    if not all(isinstance(user, str) for user in manifest["user_ids"]):
        raise ReleaseError(f"{path}: user ids must be strings.")
    try:
        check_ids(manifest["user_ids"])  # as written: a numpy array of texts drops trailing zeros
    except ReleaseError as error:
        raise ReleaseError(f"{path}: {error}") from error


def _types(manifest: Mapping[str, Any]) -> dict[str, type]:
    """Return the types of the fields of a manifest's schema; in the newest one, tensors may be in one or several files."""
    schema = manifest["schema"]
    place = {1: "sha256", 2: "shards"}.get(schema, "shards" if "shards" in manifest else "sha256")
    return {**_FIELDS, **({"about": dict} if schema > 2 else {}), place: _PLACES[place]}


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write contiguous tensors into one file; `OSError` if there is no space."""
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:
        raise OSError(f"{path} cannot be written ({error}).") from error


def read_tensors(folder: Path, manifest: Mapping[str, Any]) -> dict[str, Tensor]:
    """Read the tensors that a manifest names; `ReleaseError` unless the folder has exactly these files."""
    if "shards" not in manifest:
        _refuse_others(folder, [TENSORS])
        # Copied before the checks: loaded tensors may map the file, which another process could still change.
        tensors = {name: tensor.clone() for name, tensor in _load(folder / TENSORS).items()}
        if manifest["sha256"] != {name: tensor_digest(tensor) for name, tensor in tensors.items()}:
            raise _damaged(folder / TENSORS)
        return tensors
    return {"rows": _read_shards(folder, manifest["shards"], len(manifest["user_ids"]))}


def _read_shards(folder: Path, shards: Sequence[Any], num_users: int) -> Tensor:
    """Read the rows of all files into one tensor, allocated only after every file's size was checked."""
    _check_shards(folder, shards, num_users)
    parts = [(folder / shard["file"], *shard["users"], shard["sha256"]) for shard in shards]
    width = _shape(parts[0][0])[1]
    for path, start, stop, _ in parts:
        if (shape := _shape(path)) != (stop - start, width):
            raise ReleaseError(f"{path} has rows of shape {shape}. Expected users {start} to {stop}, width {width}.")
    rows = torch.empty(num_users, width)
    for path, start, stop, sha256 in parts:
        rows[start:stop] = _load(path)["rows"]
        if sha256 != {"rows": tensor_digest(rows[start:stop])}:
            raise _damaged(path)
    return rows


def _check_shards(folder: Path, shards: Sequence[Any], num_users: int) -> None:
    """Check that files are numbered, that their users are consecutive and complete, and that no other file exists."""
    path, names, done = folder / MANIFEST, [], 0
    for number, shard in enumerate(shards, 1):
        name = shard_name(number)
        if not isinstance(shard, dict) or shard.keys() != {"file", "users", "sha256"}:
            raise ReleaseError(f"{path}: each shard must name exactly file, users and sha256.")
        if shard["file"] != name:
            raise ReleaseError(f"{path}: shard {number} must be {name}, got {str(shard['file'])[:80]!r}.")
        users = shard["users"]
        if not (isinstance(users, list) and len(users) == 2 and all(type(user) is int for user in users)):
            raise ReleaseError(f"{path}: the users of {name} must be two integers, got {repr(users)[:80]}.")
        if users[0] != done or users[1] <= done:
            raise ReleaseError(f"{path}: {name} must hold users from {done}, got {users[0]} to {users[1]}.")
        done = users[1]
        names.append(name)
    if not names or done != num_users:
        raise ReleaseError(f"{path}: the shards hold {done} users. It has {num_users} ids.")
    _refuse_others(folder, names)


def _refuse_others(folder: Path, names: Sequence[str]) -> None:
    """Refuse a folder without one of these files, or with others than them, the manifest and a signature."""
    for name in names:
        _must_exist(folder, name)
    if extra := sorted({file.name for file in folder.iterdir()} - {*names, MANIFEST, SIGNATURE}):
        raise ReleaseError(f"{folder} holds {extra[:5]}, which {MANIFEST} does not name. Remove these.")


def _shape(path: Path) -> tuple[int, int]:
    """Return the shape of a file's rows from its header, which the library compares with the file's size."""
    check_header_length(path)
    with _readable(path), safe_open(path, framework="pt") as file:
        names = list(file.keys())
        if names != ["rows"]:
            raise ReleaseError(f"{path}: the tensors must be exactly ['rows'], got {sorted(names)}.")
        rows = file.get_slice("rows")
        shape, dtype = tuple(rows.get_shape()), rows.get_dtype()
    _check_header(path, ["rows"])
    if dtype != "F32" or len(shape) != 2 or shape[1] < 1:
        raise ReleaseError(f"{path}: rows must be float32 of shape (users, width >= 1), got {dtype} of shape {shape}.")
    return shape


def _load(path: Path) -> dict[str, Tensor]:
    check_header_length(path)
    with _readable(path):
        tensors = dict(load_file(path))
        order = json.loads(_header(save({name: tensor.new_empty(0) for name, tensor in tensors.items()})))
    _check_header(path, list(order))
    return tensors


def _header(content: bytes) -> bytes:
    return content[8 : 8 + int.from_bytes(content[:8], "little")]


def check_header_length(path: Path) -> None:
    """Refuse a header that is too long before the library reads it: a name takes 13 times its bytes in memory."""
    with _readable(path), path.open("rb") as file:
        if (length := int.from_bytes(file.read(8), "little")) > _HEADER_BYTES - 8:
            raise ReleaseError(f"{path} cannot be read: header of {length:,} bytes. Allowed: {_HEADER_BYTES - 8:,}.")


def _check_header(path: Path, names: Sequence[str]) -> None:
    """Refuse a file with other bytes than the library writes for tensors in this order, since no digest covers its header."""
    with _readable(path), path.open("rb") as file:
        content = _header(file.read(_HEADER_BYTES))
        header = json.loads(content)
    entries = {name: {key: header[name].get(key) for key in _ENTRY} for name in names}
    plain = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    starts = [entry["data_offsets"][0] for entry in entries.values()]
    if content != plain + b" " * (-len(plain) % 8) or starts != sorted(starts):
        raise ReleaseError(
            f"{path} holds metadata or other text beside its tensors, or another order. Ask the source party for it again."
        )


def _must_exist(folder: Path, name: str) -> None:
    if not folder.is_dir():
        there = {other.parent.name for other in folder.parent.glob(f"*/{MANIFEST}")}
        near = get_close_matches(folder.name, sorted(there), n=3)
        meant = f" Did you mean {' or '.join(near)}?" if near else ""
        raise ReleaseError(
            f"{folder} is no release: there is no such folder.{meant} Pass the source party's folder "
            "(--data.releases.NAME PATH, recommend --release NAME=PATH, releases={NAME: PATH})."
        )
    if not (folder / name).is_file():
        raise ReleaseError(f"{folder} is no release: it has no {name}. Ask the source party for the whole folder.")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except ReleaseError:
        raise
    except (SafetensorError, OSError, TypeError, ValueError) as error:  # torch adds its stack to the error of a shape
        said = str(error).partition("\n")[0]
        raise ReleaseError(f"{path} cannot be read ({said}). Ask the source party for it again.") from error


def _damaged(path: Path) -> ReleaseError:
    return ReleaseError(f"{path} differs from its SHA-256 in {MANIFEST}. Ask the source party for the folder again.")
