"""The run folder: files that one room writes and another reads, whole or not at all; settings as plain values; refusals."""

import json
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

#: Figures of every held-out case of the test.
CASES = "test_cases.parquet"
#: The privacy record of each release, and of the training.
PRIVACY = "privacy.json"
#: What the test found and what training took, and how tables call what the test measures.
METRICS, METRIC_NAMES = "metrics.json", {"hit_rate": "HR", "ndcg": "NDCG", "mrr": "MRR"}


def folder_of_run(trainer: Any) -> Path | None:  # noqa: ANN401  a trainer, without Lightning
    """Where a run lies, None where nothing is logged. It asks every process, so every process has to call it."""
    log_dir = trainer.log_dir
    return Path(log_dir) if log_dir is not None and trainer.loggers else None


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A temporary name beside a path, to write to; it takes the path's place once everything is written."""
    temporary = path.with_name(f".{path.name}.tmp")
    yield temporary
    temporary.rename(path)


def write_json(path: Path, value: object) -> None:
    """Write plain values, whole or not at all."""
    with whole(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


def plain(value: Any) -> Any:  # noqa: ANN401  any parsed value
    """The same as plain dictionaries, lists, strings and numbers."""
    if isinstance(value, Namespace):
        value = value.as_dict()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        value = value.value
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def flat(value: Any, prefix: str = "") -> dict[str, Any]:  # noqa: ANN401  any plain value
    """Dotted keys of nested dictionaries."""
    if not isinstance(value, dict):
        return {prefix: value}
    return {k: v for key, item in value.items() for k, v in flat(item, f"{prefix}.{key}".lstrip(".")).items()}


def differing(ours: Any, theirs: Any) -> list[str]:  # noqa: ANN401  any plain value
    """Dotted keys in which two plain settings differ."""
    ours, theirs = flat(ours), flat(theirs)
    return sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))


def refusal(error: BaseException) -> str:
    """What the class itself said of its settings, without the parser's account of its attempts."""
    while error.__cause__ is not None and str(error).startswith("Does not validate"):
        error = error.__cause__
    said = f"{type(error).__name__}: {error}"
    return "\n".join(map(visible, said.split("\n")))


def visible(text: str) -> str:
    r"""The text as a terminal or a page can only show it, never obey it: ``\x1b`` in the place of an escape character.

    So are written control characters, line breaks, marks that turn the direction of text and characters that have no shape.
    What rich or HTML take for markup stays; it is escaped where either prints it.
    """
    return "".join(character if _has_shape(character) else repr(character)[1:-1] for character in text)


def _has_shape(character: str) -> bool:
    category = unicodedata.category(character)
    return category[0] != "C" and category not in ("Zl", "Zp")
