"""The run folder: names of files that one room writes and another reads; each is there whole or not at all."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
