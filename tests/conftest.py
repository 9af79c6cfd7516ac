"""Tiny data sets under the names that the configs use, written once for the whole suite."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from zoo.cli import ZooCLI, import_names

torch.set_num_threads(1)


def write_csv(
    path: Path, rows: list[tuple[str, str]], rating: str = "4", header: str = "user_id,item_id,rating,timestamp"
) -> None:
    ending = f",{rating}," if header.count(",") == 3 else ""
    path.write_text("\n".join([header, *(f"{user},{item}{ending}" for user, item in rows)]) + "\n", encoding="utf-8")


def write_domain(folder: Path, domain: str, users: range, num_items: int, each: int, seed: int) -> None:
    """All rows, one validation and one test row and a list of 12 negatives for each user."""
    rng = np.random.default_rng(seed)
    rows, valid, test, negatives = [], [], [], []
    for user in users:
        items = [f"{domain}{i}" for i in rng.permutation(num_items)]
        rows += [(f"u{user}", item) for item in items[:each]]
        valid.append((f"u{user}", items[0]))
        test.append((f"u{user}", items[1]))
        negatives += [(f"u{user}", item) for item in items[each : each + 12]]
    write_csv(folder / f"{domain}.csv", rows)
    write_csv(folder / f"{domain}_valid.csv", valid)
    write_csv(folder / f"{domain}_test.csv", test)
    write_csv(folder / f"{domain}_negatives.csv", negatives, header="user_id,item_id")


@pytest.fixture(scope="session")
def tiny_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data sets: 20 users in each domain, in common or partly so, 30 items."""
    root = tmp_path_factory.mktemp("data")
    # every name that a config uses, with its domains and the users of each
    for name, domains in {
        "douban-book-music": {"book": range(20), "music": range(20)},
        "amazon-books-movies-dense": {"books": range(20), "movies": range(4, 24)},
        "amazon-food-kitchen": {"food": range(20), "kitchen": range(2, 22)},
        "apart": {"left": range(20), "right": range(100, 120)},
        "partly": {"left": range(20), "right": range(12, 32), "third": range(8, 28)},
    }.items():
        (root / name).mkdir()
        for seed, (domain, users) in enumerate(domains.items()):
            write_domain(root / name, domain, users, 30, 9, seed)
    return root


@pytest.fixture
def zoo_data(tiny_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The tiny data sets under ``$ZOO_DATA``."""
    monkeypatch.setenv("ZOO_DATA", str(tiny_root))
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    return tiny_root


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., ZooCLI]:
    """Runs a command in a folder of its own, as ``python -m zoo`` would."""
    import_names()
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> ZooCLI:
        monkeypatch.setattr("sys.argv", ["zoo", *map(str, arguments)])
        monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
        return ZooCLI()

    return run
