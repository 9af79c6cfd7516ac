"""Benchmarks small enough to run whole: tiny synthetic data, configs for it, and a place to run them in."""

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tiny import SIZES
from zoo.benchmark.grid import Benchmark
from zoo.benchmark.grid_file import read_benchmark

#: Popularity: the quickest run there is.
POPULARITY: dict[str, Any] = {
    "model": {"class_path": "Popularity"},
    "data": {"class_path": "Synthetic", "init_args": SIZES["Synthetic"]},
    "trainer": {"max_epochs": 1, "accelerator": "cpu"},
}
#: PriCDR, as small as it goes.
PRICDR: dict[str, Any] = POPULARITY | {
    "model": {"class_path": "PriCDR", "init_args": {"dims": [*SIZES["PriCDR"]["dims"]]}},
    "publisher": {"class_path": "JLT", "init_args": SIZES["JLT"] | {"epsilon": 8.0}},
    "trainer": {"max_epochs": 2, "accelerator": "cpu"},
}
LEAST: dict[str, Any] = {
    "title": "Tiny",
    "tasks": {"music": {"title": "Music"}},
    "seeds": [0],
    "systems": {"Popularity": {"config": "popularity.yaml"}},
}

Furnish = Callable[..., Path]


@pytest.fixture(scope="session")
def furnish() -> Furnish:
    """Writes ``popularity.yaml``, ``pricdr.yaml`` and ``bench.yaml`` to a folder.

    The benchmark has one task, one system and one seed, unless a setting is given; one that is None is left out.
    """

    def write(folder: Path, **settings: object) -> Path:
        given = {key: value for key, value in (LEAST | settings).items() if value is not None}
        for name, content in (("popularity", POPULARITY), ("pricdr", PRICDR), ("bench", given)):
            text = yaml.safe_dump(content, sort_keys=False)
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
        return folder / "bench.yaml"

    return write


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables stay on their lines."""
    monkeypatch.setenv("COLUMNS", "300")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, furnish: Furnish) -> Path:
    """A folder of its own to run in, with these files."""
    furnish(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")  # a run sets it; so it is taken away again
    return tmp_path


@pytest.fixture
def write(place: Path, furnish: Furnish) -> Callable[..., Path]:
    """Writes the benchmark of some settings."""
    return lambda **settings: furnish(place, **settings)


@pytest.fixture
def made(write: Callable[..., Path]) -> Callable[..., Benchmark]:
    """The benchmark of some settings."""
    return lambda **settings: read_benchmark(write(**settings))


@pytest.fixture
def here(place: Path) -> Iterator[None]:
    """Lets a test run runs in its own process, and puts back what a run changes there."""
    loggers = [logging.getLogger(name) for name in ("pytorch_lightning", "lightning_fabric")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
    assert "ZOO_HANDOVER" not in os.environ
