"""Bundles: trained methods as files, read as untrusted input."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jsonargparse import ArgumentError, ArgumentParser
from safetensors import SafetensorError
from safetensors.torch import load_file
from scipy.sparse import csr_array
from torch import Tensor

from callbacks.best_checkpoint import digest_of
from datamodules import CrossDomainDataModule
from datamodules.alignment import link_users
from zoo.data.arrays import Ids
from zoo.data.ratings import Ratings, Step, check_pointers
from zoo.data.rows import SparseRows
from zoo.methods.base import Recommender
from zoo.methods.target_data import ReleaseMismatchError
from zoo.release.denoiser import Denoiser
from zoo.release.files import MANIFEST_BYTES, STRING, ReleaseError, all_finite, check_header_length, check_ids
from zoo.release.release import Release
from zoo.runs.import_policy import importing_nothing
from zoo.runs.inputs import check_names, explain_mismatch, read_inputs
from zoo.runs.predictor import Predictor
from zoo.runtime import plugins
from zoo.runtime.exports import METHODS, VERSION, exported
from zoo.runtime.run_folder import CONFIG, METRICS, MOST_COPIES, PRIVACY, flat, visible
from zoo.runtime.settings_files import read_json, user_path

#: Manifest of a bundle, with the SHA-256 of every other file; its model card.
BUNDLE, CARD = "bundle.json", "README.md"
TENSORS, ITEMS, USERS = "tensors.safetensors", "items.json", "users.json"
SCHEMA = 1
_FIELDS = {"schema": int, "version": str, "method": str} | dict.fromkeys(
    ("settings", "sizes", "digests", "holds", "sha256"), dict
)
#: Types of tensors on which all operations are defined.
_TYPES = {
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
}  # fmt: skip
#: Largest list of ids, in bytes.
_MOST_TEXT = 2**28
#: Bytes of weights that are made though scoring does not use them; more for large bundles.
_MOST_UNUSED = 2**26
#: Most sources; and users times sources, or numbers that scoring stores, that are always allowed; more by bytes of the files.
_MOST_SOURCES, _MOST_LINKS, _PER_BYTE = 1_000, 2**25, 2
STATE = "state."
# Other values would take up to 24 times their bytes in memory.
_IDS = re.compile(rb"\s*+\[(?:[\s,]*+" + STRING.pattern + rb")*+[\s,]*+\]\s*+", re.DOTALL)


class BundleError(ValueError):
    """A bundle that is damaged or invalid."""


def _damaged(problem: str) -> BundleError:
    return BundleError(f"{problem.removesuffix('.')}. Ask for the bundle again.")


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of ratings instead of `zoo.data.ratings.Ratings`, for methods that score without ratings."""

    user_ids: Ids
    item_ids: Ids
    by_user: Tensor  # ratings of each user, (num_users,)
    by_item: Tensor  # ratings of each item, (num_items,)

    @property
    def num_users(self) -> int:
        """Number of users."""
        return len(self.user_ids)

    @property
    def num_items(self) -> int:
        """Number of items."""
        return len(self.item_ids)

    def compressed(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return row pointers, and zeros without memory for the unknown columns and values."""
        starts = torch.cat([torch.zeros(1).long(), self.by_user.cumsum(0)])
        columns, values = (torch.zeros(1, dtype=kind).expand(int(starts[-1])) for kind in (torch.long, torch.float))
        return starts, columns, values

    def transpose(self) -> Counts:
        """Return the counts with users and items swapped."""
        return Counts(self.item_ids, self.user_ids, self.by_item, self.by_user)

    def with_users(self, ids: Sequence[str]) -> Counts:
        """Return the counts with further users, who have no ratings."""
        named = np.concatenate([self.user_ids, np.array(ids, dtype=np.str_)])
        return replace(self, user_ids=named, by_user=torch.cat([self.by_user, torch.zeros(len(ids)).long()]))


@dataclass(frozen=True)
class MissingRelease:
    """Placeholder for a release that is not available: it has no rows."""

    kind: str
    width: int
    user_ids: Ids

    def device_rows(self) -> SparseRows:
        """Return no rows."""
        return SparseRows(torch.zeros(1).long(), torch.zeros(0).long(), torch.zeros(0), self.width)


@dataclass
class BundleData:
    """Data of a bundle, as a `zoo.methods.target_data.TargetData`."""

    sizes: dict[str, Any]
    digests: dict[str, str]
    train: Any  # `Ratings`, or their `Counts`
    releases: dict[str, Any]
    links: dict[str, Tensor]
    signs: bool
    threshold: float | str | None  # least rating that counts as positive; a text if it is unknown
    release_paths: Mapping[str, Any] = field(default_factory=dict)
    users: str = ""
    ks: tuple[int, ...] = (10,)
    ties: Any = "expected"
    full_ranking: Any = False
    sampled_ranking: bool = False
    top_k: int = 10


def load_bundle(
    folder: Path, data: CrossDomainDataModule | None = None, releases: Mapping[str, Path | str] | None = None
) -> Predictor:
    """Load a bundle, which is untrusted input; see `zoo.runs.loading.load`."""
    manifest = _manifest(folder)
    for name, digest in manifest["sha256"].items():
        if not (folder / name).is_file() or digest_of(folder / name) != digest:
            raise _damaged(f"{folder / name} is missing, truncated or changed")
    try:
        check_header_length(folder / TENSORS)
        tensors = load_file(folder / TENSORS)
    except (ReleaseError, SafetensorError, OSError, TypeError) as error:  # torch adds its stack to the error of a shape
        said = str(error).partition("\n")[0]
        raise _damaged(f"{folder / TENSORS} is damaged: {said}") from error
    if odd := sorted(str(kind) for kind in {tensor.dtype for tensor in tensors.values()} - _TYPES):
        raise _damaged(f"{folder / TENSORS} has tensors of type {odd[0]}")
    if data is not None:
        method = _method(folder, manifest, tensors, {})
        check_names(releases or {}, data.sources)
        data.release_paths |= {name: user_path(path) for name, path in (releases or {}).items()}
        read_inputs(data, method, {"digests": manifest["digests"], "paths": None})
        return Predictor(method, data, data.test.seen, folder)
    own, seen = _bundle_data(folder, manifest, tensors, releases or {})
    method = _method(folder, manifest, tensors, {name: own.releases[name] for name in releases or {}})
    user_ids, ratings = (bool(manifest["holds"].get(part)) for part in ("user_ids", "ratings"))
    missing = [] if ratings else ["ratings"]
    missing += ["releases"] if own.sizes["sources"].keys() - (releases or {}) else []
    return Predictor(method, own, seen, folder, has_user_ids=user_ids, has_ratings=ratings, missing=missing)


def _manifest(folder: Path) -> dict[str, Any]:
    manifest = _json(folder, BUNDLE)
    if not isinstance(manifest, dict) or any(type(manifest.get(name)) is not kind for name, kind in _FIELDS.items()):
        raise _damaged(f"{folder / BUNDLE} must hold {sorted(_FIELDS)}")
    if manifest["schema"] != SCHEMA:
        raise BundleError(
            f"{folder} has schema {manifest['schema']} (version {manifest['version'][:20]!r}); version {VERSION} "
            f"reads schema {SCHEMA}. Use that version, or export again."
        )
    if TENSORS not in manifest["sha256"] or ITEMS not in manifest["sha256"]:
        raise _damaged(f"{folder / BUNDLE} names neither {TENSORS} nor {ITEMS}")
    if other := manifest["sha256"].keys() - {CARD, CONFIG, METRICS, PRIVACY, TENSORS, ITEMS, USERS}:
        raise _damaged(f"{folder / BUNDLE} names other files: {[name[:80] for name in sorted(other)[:3]]}")
    own = manifest.get("own_rows", [])
    texts = [*manifest["digests"].values(), *own] if isinstance(own, list) else [None]
    if not _are_sizes(manifest["sizes"]) or not all(isinstance(one, str) for one in texts):
        raise _damaged(f"{folder / BUNDLE} has invalid sizes or digests")
    return manifest


def _are_sizes(sizes: Mapping[str, Any]) -> bool:
    sources = sizes.get("sources")
    if not isinstance(sources, dict) or len(sources) > _MOST_SOURCES or {*map(type, sources.values())} - {dict}:
        return False
    numbers = [(sizes.get("num_users"), 1), (sizes.get("num_items"), 1)]
    for source in sources.values():
        if source.keys() != {"kind", "num_users", "width", "num_layers"} or not isinstance(source["kind"], str):
            return False
        numbers += [(source["num_users"], 0), (source["width"], 1), (source["num_layers"], 1)]  # a release may be empty
    return all(type(number) is int and least <= number < 2**40 for number, least in numbers)


def _json(folder: Path, name: str) -> Any:  # noqa: ANN401  what JSON holds
    path = folder / name
    if (size := path.stat().st_size) > (most := MANIFEST_BYTES if name == BUNDLE else _MOST_TEXT):
        raise BundleError(f"{path} has {size:,} bytes. At most {most:,} are read.")
    content = path.read_bytes()
    if name != BUNDLE and not _IDS.fullmatch(content):
        raise _damaged(f"{path} must be a list of ids")
    try:
        return read_json(content.decode("utf-8"), path)
    except (ValueError, RecursionError) as error:
        raise _damaged(f"{path} is damaged: {error}") from error


def _class(name: str) -> type[Recommender]:
    """Return a method of the zoo, of a plugin or of an imported module; nothing else is imported."""
    module, _, last = name.rpartition(".")
    for plugin in plugins.brought("methods").values():
        if plugin.path == name:
            plugin.load()
    names = vars(sys.modules[module]) if module in sys.modules else {}  # getattr might import
    found = exported(name) if name in METHODS else names.get(last)
    if not (isinstance(found, type) and issubclass(found, Recommender)):
        raise BundleError(
            f"The method {name[:200]!r} is not one of the zoo. If you trust its package, import it first."
        )
    return found


def _method(
    folder: Path, manifest: Mapping[str, Any], tensors: Mapping[str, Tensor], given: Mapping[str, Release]
) -> Recommender:
    """Return the method with its weights; it is built only after the shapes of all tensors were checked."""
    own = _class(manifest["method"])
    state = {name.removeprefix(STATE): value for name, value in tensors.items() if name.startswith(STATE)}
    state = scored_by(own, state)  # bundles of 0.3 hold all weights
    if not all(all_finite(value) for value in state.values() if value.is_floating_point()):
        raise _damaged(f"Weights in {folder} are NaN or infinite")
    with explain_mismatch(folder, manifest):
        try:
            with torch.device("meta"):
                _check_numbers(own(**manifest["settings"]), manifest["sizes"], tensors, given)
                with importing_nothing(folder / BUNDLE):
                    _check_types(own, manifest["settings"])
                weights = _built(own, manifest).state_dict()
            shapes = scored_by(own, weights)
            unused = sum(weights[name].nbytes for name in weights.keys() - shapes.keys())
            if unused > (most := max(_MOST_UNUSED, MOST_COPIES * (folder / TENSORS).stat().st_size)):
                raise ValueError(f"{unused:,} bytes that scoring does not use, at most {most:,} are allowed")
            if {k: v.shape for k, v in shapes.items()} != {k: v.shape for k, v in state.items()}:
                raise RuntimeError("Weights and settings differ.")
            method = _built(own, manifest)
            method.load_state_dict(state, strict=False)  # the names were compared above
            method.from_bundle = True
            method.adopt(manifest)
        except BundleError:
            raise
        except (ValueError, AttributeError, IndexError, OverflowError, ArgumentError) as error:
            raise _damaged(f"Invalid settings in {folder / BUNDLE}: {' '.join(str(error)[:500].split())}") from error
    kinds = {source["kind"] for source in manifest["sizes"]["sources"].values()}
    if method.accepted_releases and not kinds <= method.accepted_releases:
        raise _damaged(f"{folder / BUNDLE} names releases that {own.__name__} cannot read")
    return method


def _check_types(own: type[Recommender], settings: Mapping[str, Any]) -> None:
    """Refuse settings of other types than the constructor takes, some of which would fail only in scoring."""
    for name, parameter in inspect.signature(own).parameters.items():  # the parser takes a null for any type
        may = parameter.default is None or re.search("None|Optional|Any|_empty", str(parameter.annotation))
        if settings.get(name, 0) is None and not may:
            raise ValueError(f"{name} is null")
    if large := [name for name, value in flat({**settings}).items() if isinstance(value, int) and abs(value) >= 2**63]:
        raise ValueError(f"{large[0]} has more than 63 bits")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(own, "settings", fail_untyped=False)
    parser.parse_object({"settings": deepcopy({**settings})})  # which it changes


def _check_numbers(
    method: Recommender, sizes: Mapping[str, Any], tensors: Mapping[str, Tensor], given: Mapping[str, Release]
) -> None:
    """Refuse settings by which scoring stores many more numbers than the files have bytes: many copies, wide vectors."""
    parts = [value for release in given.values() for value in release.tensors.values()]
    entries = sum(value.numel() for value in [*parts, tensors.get("train.items", torch.zeros(0))])
    sources = sizes["sources"] | {name: release.sizes for name, release in given.items()}
    if not given:  # then no vector of a source is read
        sources = {name: {**source, "width": 0} for name, source in sources.items()}
    number = method.stored_numbers({**sizes, "sources": sources}, entries)
    if number > (most := max(_MOST_LINKS, _PER_BYTE * sum(value.nbytes for value in [*parts, *tensors.values()]))):
        raise BundleError(
            f"Scoring would store {number:,} numbers, at most {most:,} are allowed for files of this size. Load the run itself."
        )


def scored_by(own: type[Recommender], state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights that scoring reads."""
    return {name: value for name, value in state.items() if not name.startswith(own.unused_in_scoring)}


def _built(own: type[Recommender], manifest: Mapping[str, Any]) -> Recommender:
    method = own(**manifest["settings"])
    method.sizes = manifest["sizes"]
    method.build(manifest["sizes"])
    return method


def _bundle_data(
    folder: Path, manifest: Mapping[str, Any], tensors: Mapping[str, Tensor], releases: Mapping[str, Path | str]
) -> tuple[BundleData, SparseRows]:
    sizes, holds = manifest["sizes"], manifest["holds"]
    items = _ids(folder, ITEMS, sizes.get("num_items"))
    users = _ids(folder, USERS, sizes.get("num_users")) if holds.get("user_ids") else None
    counts = ((tensors.get(name), more) for name, more in (("by_user", 0), ("train.starts", 1)))
    rows = {len(each) - more for each, more in counts if each is not None and each.ndim == 1}  # others may be empty
    if users is None and sizes["num_users"] not in rows:  # before a placeholder is made for each
        raise _damaged(f"{folder / TENSORS} has no row for each of {sizes['num_users']} users")
    # A source takes 60 bytes of the manifest, and eight for each user once others are added.
    if sizes["num_users"] * len(sizes["sources"]) > max(_MOST_LINKS, _PER_BYTE * (folder / TENSORS).stat().st_size):
        raise _damaged(f"{folder / BUNDLE} has too many sources for its users: {len(sizes['sources']):,}")
    # Placeholders cannot equal a user id, which has no line break.
    ids = np.array([f"\n{row}" for row in range(sizes["num_users"])]) if users is None else users
    train, seen = _ratings(folder, holds, tensors, ids, items)
    check_names(releases, sizes["sources"])
    given = {name: Release.load(path) for name, path in releases.items()}
    try:
        denoiser = None if not manifest.get("denoiser") else Denoiser(**manifest["denoiser"])
    except (TypeError, ValueError) as error:
        raise _damaged(f"{folder / BUNDLE} has no such denoiser ({visible(str(error))[:200]})") from error
    for name, release in given.items():
        if release.digest + ("" if denoiser is None else f", {denoiser}") != manifest["digests"].get(name):
            raise ReleaseMismatchError(f"{releases[name]} is not the release of {name!r} from training.")
        given[name] = release if denoiser is None else denoiser(release)
        if given[name].sizes != sizes["sources"][name]:
            raise _damaged(f"{folder / BUNDLE} states wrong sizes of {name!r}")
    linked: dict[str, Any] = {}
    links: dict[str, Tensor] = {}
    unlinked = torch.full((len(ids),), -1)
    for name, source in sizes["sources"].items():
        if name in given and users is not None:
            links[name] = link_users(users, name, given[name], str(releases[name]), missing_is_error=False)
        else:  # users of a release alone are added later
            links[name] = unlinked
        linked[name] = given.get(name) or MissingRelease(source["kind"], source["width"], ids[:0])
    least = manifest.get("threshold", "unknown")
    if not (least is None or least in ("mean", "unknown") or (type(least) in (int, float) and abs(least) < 2**63)):
        raise _damaged(f"{folder / BUNDLE} has an invalid threshold")
    return BundleData(sizes, manifest["digests"], train, linked, links, bool(manifest.get("signs")), least), seen


def _ids(folder: Path, name: str, count: Any) -> Ids:  # noqa: ANN401  of a manifest
    found = _json(folder, name)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found) or len(found) != count:
        raise _damaged(f"{folder / name} must be a list of {count} ids")
    try:
        check_ids(found)
    except ReleaseError as error:
        raise BundleError(f"{folder / name}: {error}") from error
    if len(set(found)) != len(found):
        raise _damaged(f"{folder / name} names an id twice")
    return np.array(found, dtype=np.str_)


def _ratings(
    folder: Path, holds: Mapping[str, Any], tensors: Mapping[str, Tensor], users: Ids, items: Ids
) -> tuple[Ratings | Counts, SparseRows]:
    try:
        if not holds.get("ratings"):
            by_user, by_item = tensors["by_user"], tensors["by_item"]
            if by_user.shape != (len(users),) or by_item.shape != (len(items),):
                raise ValueError("counts have another shape")
            for counts, most in ((by_user, len(items)), (by_item, len(users))):
                if not 0 <= int(counts.min()) <= int(counts.max()) <= most:
                    raise ValueError(f"counts below 0 or above {most}")
            nothing = SparseRows(torch.zeros(len(users) + 1).long(), torch.zeros(0).long(), torch.zeros(0), len(items))
            return Counts(users, items, by_user.long(), by_item.long()), nothing
        matrices = []
        for name in ("train", "seen"):
            starts, columns, values = (tensors[f"{name}.{part}"].numpy() for part in ("starts", "items", "weights"))
            check_pointers(starts, len(columns))
            made = csr_array((values, columns, starts), shape=(len(users), len(items)))
            matrices.append(Ratings(made, users, items, (Step("read from a bundle"),)))
        return matrices[0], SparseRows.from_ratings(matrices[1])
    except (KeyError, ValueError, TypeError, IndexError, RuntimeError) as error:
        raise _damaged(f"{folder / TENSORS} holds no ratings of these users and items: {error}") from error
