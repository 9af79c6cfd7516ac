"""Benchmark files that were damaged or hold odd values: a grid of cells, or a refusal in words; names are shown and not obeyed."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from tests.fuzz.damage import CHANGES, HITS, ODD, Change, Hit, cases, changed, damaged, refusal_of
from zoo.benchmark.command import run_table
from zoo.benchmark.estimate import Estimate
from zoo.benchmark.grid import BenchmarkError
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.runs import runs_of

pytestmark = pytest.mark.thorough

WHOLE: dict[str, Any] = {
    "title": "Small",
    "about": "Two systems.",
    "tasks": {"music": {"title": "Music", "settings": {"data.num_users": 40}, "seeds": [0, 1]}, "books": {"title": "B"}},
    "seeds": [0, 2],
    "series": {"How many": {1: "music", 2: "books"}},
    "systems": {
        "EASE": {"config": "pricdr/quickstart", "settings": {"model": "EASE"}, "seeds": [0], "single": ""},
        "PriCDR": {
            "config": "pricdr/quickstart",
            "tasks": ["music"],
            "releases": [
                {"publisher": {"class_path": "JLT", "init_args": {"num_components": 8}}, "epsilons": [1, 4.5], "label": "J"},
                {"publisher": "Plaintext", "published_as": "Plain", "reason": "x", "noise_control": False}
            ],
            "search": {"trials": 2, "parameters": {"model.lr": {"low": 0.1, "high": 1, "log": True}}, "seeds": "first"}
        }
    }
}  # fmt: skip
TEXT = yaml.safe_dump(WHOLE, sort_keys=False, allow_unicode=True).encode()


def grid_or_refused(path: Path, content: bytes) -> None:
    """The table of its cells, in which a terminal obeys nothing but rich's own colours; or a refusal that names the file."""
    path.write_bytes(content)
    try:
        benchmark = read_benchmark(path)
        cells = runs_of(benchmark, path.parent / "runs")
    except BenchmarkError as refused:
        refusal_of(refused, path.name if "share a folder" not in str(refused) else "")
        return
    assert all(len(cell.digest) == 64 and cell.finished() is None for cell in cells)
    console = Console(width=200, no_color=True)
    with console.capture() as said:
        console.print(run_table(benchmark, cells, Estimate(cells, "x"), 2))
    assert all(line.isprintable() for line in said.get().split("\n"))


def with_changes(path: Path, changes: list[Change]) -> None:
    values: Any = WHOLE
    for shares, odd in changes:
        values = changed(values, shares, ODD[odd])
    grid_or_refused(path, json.dumps(values).encode() if changes[0][1] % 2 else yaml.safe_dump(values).encode())


def test_the_whole_one_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_bytes(TEXT)
    assert len(runs_of(read_benchmark(path), tmp_path)) == 2 + 2 * 5
    grid_or_refused(path, TEXT)


@cases(60, 1_500)
@given(changes=CHANGES)
def test_a_benchmark_of_odd_values_is_refused_in_words(tmp_path: Path, changes: list[Change]) -> None:
    with_changes(tmp_path / "x.yaml", changes)


@cases(30, 1_000)
@given(hits=HITS)
def test_a_damaged_benchmark_is(tmp_path: Path, hits: list[Hit]) -> None:
    grid_or_refused(tmp_path / "x.yaml", damaged(TEXT, hits, False))


#: Ten to the ninth values, in few bytes.
LAUGHS = "a: &a [1]\n" + "".join(
    f"{y}: &{y} [{','.join([f'*{x}'] * 10)}]\n" for x, y in zip("abcdefghi", "bcdefghij", strict=True)
)


def test_what_yaml_allows_and_no_benchmark_needs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    for content in (
        "title: &a [*a]\n",  # of itself
        "tasks: &a {b: *a}\n",
        "[" * 500,
        "title: " + "{a: " * 500,
        LAUGHS,
        "? [1, 2]\n: 3\n",
        "? {a: 1}\n: 3\n",
        "title: 2020-01-01\n",
        "title: !!binary aGVsbG8=\n",
        "title: !!set {a, b}\n",
        "title: !!python/object/apply:os.system [ls]\n",
        "title: t\ntasks: {}\nsystems: {}\nseeds: " + "x" * 10_000,
        "<<: 1\n",
        "<<: [1]\n",
        "title: 0x" + "f" * 5_000 + "\n",
        "seeds: [" + "9" * 5_000 + "]\n",
        'title: "\\uD800"\n',
        "--- 1\n--- 2\n",
        "",
        "title: " + "x" * (1 << 20),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(BenchmarkError) as refused:
            read_benchmark(path)
        refusal_of(refused.value, path.name)
        assert len(str(refused.value)) < 2_000


def test_a_benchmark_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    released = {"publisher": "JLT", "epsilons": list(range(1, 400)), "noise_control": False}
    for seeds, tasks in ((400, 1), (1, 400)):
        given_tasks = {f"t{i}": {"title": "t"} for i in range(tasks)}
        system = {"config": "pricdr/quickstart", "releases": [released]}
        path.write_text(
            json.dumps({"title": "x", "tasks": given_tasks, "systems": {"A": system}, "seeds": list(range(seeds))})
        )
        with pytest.raises(BenchmarkError, match="at most 100,000 runs"):
            read_benchmark(path)


@given(name=st.text(min_size=1))
@cases(6)
def test_names_are_shown_and_not_obeyed(tmp_path: Path, name: str) -> None:
    grid_or_refused(tmp_path / "x.yaml", TEXT.replace(b"Music", json.dumps(name + "[red]\x1b[31m").encode()))
