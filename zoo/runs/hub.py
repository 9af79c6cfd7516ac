"""Models by name: bundles in a folder, or in repositories of Hugging Face (extra ``hub``)."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from zoo.runs.inputs import UsageError
from zoo.runtime.settings_files import user_path
from zoo.runtime.suggestions import suggest

#: Address of the public repositories.
HUB = "https://huggingface.co"
NAME = re.compile(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@([\w.-]+))?", re.ASCII)
#: Files of a bundle; others of a repository are not downloaded.
FILES = ("*.json", "*.safetensors", "config.yaml", "README.md")


def located(name: str, registry: Path | str) -> Path:
    """Return the folder of a bundle by its name; download it if the registry is an address.

    Args:
        name: ``OWNER/NAME``; at an address also ``OWNER/NAME@REVISION``.
        registry: Folder that has ``OWNER/NAME``, or an address such as `HUB`.

    Raises:
        UsageError: There is no such model, or the extra ``hub`` is not installed.

    Examples:
        >>> import tempfile
        >>> located("cdr-zoo/bpr-ml-100k", tempfile.mkdtemp())
        Traceback (most recent call last):
        ...
        zoo.runs.inputs.UsageError: No model 'cdr-zoo/bpr-ml-100k' in ...
    """
    repository, revision = _parts(name)
    if _is_address(registry):
        client = _client()
        try:
            found = client.snapshot_download(
                repository, revision=revision, endpoint=str(registry), allow_patterns=list(FILES)
            )
        except Exception as error:  # its HTTP client has errors of its own
            raise UsageError(
                f"{registry} gave no {name!r} ({type(error).__name__}). Check name, revision, network and access."
            ) from error
        return Path(found)
    if revision:
        raise UsageError(f"The model is {name!r}. A folder has no revisions. Omit @{revision}.")
    root = user_path(registry)
    if not (root / repository).is_dir():
        known = sorted(path.relative_to(root).as_posix() for path in root.glob("*/*/"))
        raise UsageError(f"No model {name!r} in {root}.{suggest(repository, known)} It needs a folder {repository}.")
    return root / repository


def check_push(data: Any, name: str, registry: str, elsewhere: bool, *, with_ratings: bool) -> None:  # noqa: ANN401  a datamodule
    """Refuse to publish a bundle whose data set is not public, that was also learned elsewhere, or that has ratings.

    A proved record is no reason: it covers a release or a training. A bundle also has counts, digests and metrics without noise.
    """
    if _parts(name)[1] is not None:
        raise UsageError(f"push is {name!r}. A push makes a revision. Pass OWNER/NAME.")
    if not _is_address(registry):
        raise UsageError(f"registry is {str(registry)!r}. Pass an address such as {HUB}; for a folder, export into it.")
    if elsewhere or not vars(type(data)).get("terms"):
        whose = "also those of an earlier fit or a given release" if elsewhere else type(data).__name__
        raise UsageError(
            f"The data are {whose}, which names no terms of a public data set. Nothing was pushed. Export without push."
        )
    if with_ratings:
        raise UsageError("push takes no ratings: a bundle with ratings is a copy of the data set. Omit with_ratings.")
    _client()


def push(bundle: Path, name: str, registry: str) -> None:
    """Upload a bundle to a repository, which is created if it does not exist."""
    interface = _client().HfApi(endpoint=registry)
    try:
        interface.create_repo(name, exist_ok=True)
        interface.upload_folder(repo_id=name, folder_path=bundle, commit_message="Upload a bundle")
    except Exception as error:  # its HTTP client has errors of its own
        raise UsageError(
            f"{registry} did not take {name!r} ({type(error).__name__}). The bundle is in {bundle}. Check login and access."
        ) from error


def _parts(name: str) -> tuple[str, str | None]:
    if (matched := NAME.fullmatch(name)) is None:
        raise UsageError(f"The model is {name!r}. With a registry it is OWNER/NAME, such as cdr-zoo/bpr-ml-100k.")
    return matched[1], matched[2]


def _is_address(registry: Path | str) -> bool:
    return str(registry).startswith(("https://", "http://"))


def _client() -> Any:  # noqa: ANN401  a module
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise UsageError("huggingface_hub is not installed. Run pip install -e '.[hub]' in the clone.") from error
