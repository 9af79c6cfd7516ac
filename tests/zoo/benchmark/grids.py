"""Benchmarks of one system, as the settings of a file."""

from typing import Any

from zoo.benchmark.grid import Benchmark


def system(**settings: object) -> dict[str, Any]:
    return {"systems": {"S": {"config": "pricdr.yaml", **settings}}}


def released(**settings: object) -> dict[str, Any]:
    return system(releases=[{"publisher": "Plaintext", **settings}])


def searched(**settings: object) -> dict[str, Any]:
    return system(search={"trials": 2, "parameters": {"model.lr": settings}})


def names(benchmark: Benchmark) -> list[str]:
    return [f"{row.task}: {row.name}" for row in benchmark.rows()]
