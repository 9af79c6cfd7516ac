"""What every method must do where two processes train or score together; a method is tested here by being exported."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

import zoo
from datamodules import Synthetic
from tests.contracts.by_two import DATA, EPOCHS, INSIDE, kind_of, made, scored, trainer_of
from tests.contracts.test_methods import NAMES, tiny_method
from zoo.testing.tiny import publisher_for

ROOT = Path(__file__).parent.parent.parent
ALONE = [name for name in NAMES if tiny_method(name).single_process_reason]
TOGETHER = [name for name in NAMES if name not in ALONE]

pytestmark = [pytest.mark.slow, pytest.mark.processes]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes have left of all methods: one pair for all of them, since torch takes its time to start."""
    out = tmp_path_factory.mktemp("by_two")
    for kind in {kind_of(name) for name in NAMES}:
        publisher_for(frozenset({kind}), **DATA).publish(Synthetic(**DATA).source("book"), "book").save(out / kind)
    for name in ALONE:  # trained by one process, scored by both
        method, data = made(name, out)
        trainer = trainer_of(out / name / "alone", devices=1, max_epochs=1)
        trainer.fit(method, datamodule=data)
        trainer.save_checkpoint(out / name / "whole.ckpt")
    shared = {"NODE_RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, "-m", "tests.contracts.by_two", str(out), *NAMES]
    pair = [
        subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **shared, "LOCAL_RANK": str(rank)}, text=True,
            stdout=subprocess.DEVNULL, stderr=(out / f"said_{rank}").open("w"),
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        codes = [process.wait(timeout=1800) for process in pair]
    finally:
        for process in pair:
            process.kill()
    assert codes == [0, 0], "\n".join((out / f"said_{rank}").read_text()[-3000:] for rank in range(2))
    for name in NAMES:
        scored(name, out, devices=1)
    return out


def map_ids(folder: Path, name: str) -> list[dict[str, Any]]:
    """What both processes have kept of a method, the first's first."""
    return [torch.load(folder / name / f"of_{rank}.pt", weights_only=True) for rank in range(2)]


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("name", TOGETHER)
def test_both_end_with_the_same_weights_and_other_random_numbers(folder: Path, name: str) -> None:
    first, second = map_ids(folder, name)
    assert same(first["weights"], second["weights"])
    assert not torch.equal(first["random"], second["random"]), "what is left out or drawn would be the same in both"


@pytest.mark.parametrize("name", TOGETHER)
def test_a_training_repeats_and_resumes_exactly(folder: Path, name: str) -> None:
    for found in map_ids(folder, name):
        assert same(found["weights"], found["again"])
        assert same(found["weights"], found["resumed"])
        assert len(found["batches"]) == 2 * EPOCHS
        assert found["resumed_batches"] == 2 * EPOCHS - INSIDE


@pytest.mark.parametrize("name", TOGETHER)
def test_they_share_every_epoch_and_draw_negatives_of_their_own(folder: Path, name: str) -> None:
    parts = [found["batches"] for found in map_ids(folder, name)]
    form = tiny_method(name).batches
    for epoch in range(EPOCHS):
        # Users or observed pairs of an epoch: the second has at most one of those that the first has.
        keys = [_examples(form, [batch for at, batch in part if at == epoch]) for part in parts]
        assert len(keys[0]) == len(keys[1])
        assert len(set(keys[0]) & set(keys[1])) <= 1
    if form == "users":
        return
    drawn = [[tuple(_negatives(form, batch)) for _, batch in part] for part in parts]
    assert len({*drawn[0], *drawn[1]}) == 2 * len(drawn[0]), "by process and by epoch"


def _examples(form: str, batches: list[tuple[torch.Tensor, ...]]) -> list[tuple[int, ...]]:
    found = []
    for users, *rest in batches:
        if form == "users":
            found += [(user,) for user in users.tolist()]
            continue
        items, labels = rest if form == "pairs" else (rest[0], torch.ones(len(users)))
        found += list(zip(users[labels > 0].tolist(), items[labels > 0].tolist(), strict=True))
    return found


def _negatives(form: str, batch: tuple[torch.Tensor, ...]) -> list[int]:
    items: list[int] = (batch[2] if form == "triples" else batch[1][batch[2] == 0]).tolist()
    return items


@pytest.mark.parametrize("name", NAMES)
def test_two_measure_and_recommend_what_one_does(folder: Path, name: str) -> None:
    own = folder / name
    one, two = (torch.load(own / f"by_{devices}" / "figures.pt") for devices in (1, 2))
    assert one.keys() == two.keys()
    assert len(one) >= (1 if getattr(zoo, name).reads_signs else 12)
    assert all(two[key] == pytest.approx(one[key], abs=1e-6) for key in one)
    cases = [pl.read_parquet(own / f"by_{devices}" / "test_cases.parquet") for devices in (1, 2)]
    assert cases[0].select("user_id", "item_id").equals(cases[1].select("user_id", "item_id")), "each case once"
    for column in set(cases[0].columns) - {"user_id", "item_id", "linked"}:
        theirs, ours = (table[column].to_list() for table in cases)
        assert ours == pytest.approx(theirs, abs=1e-6, nan_ok=True), f"{column}, case by case"
    assert cases[0]["linked"].equals(cases[1]["linked"])
    parts = [pl.read_parquet(own / "by_2" / f"best-{rank:05d}.parquet") for rank in range(2)]
    alone = pl.read_parquet(own / "by_1" / "best.parquet").drop("score")
    assert pl.concat(parts).drop("score").sort("user_id", "rank").equals(alone.sort("user_id", "rank"))


@pytest.fixture(scope="module")
def deaths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What became of a process whose other one died in the middle of a training, for each method."""
    out = tmp_path_factory.mktemp("dying")
    command = [sys.executable, "-m", "tests.contracts.dying", str(out), *TOGETHER]
    subprocess.run(command, cwd=ROOT, check=True, timeout=1800, stdout=subprocess.DEVNULL)
    return {name: json.loads((out / f"{name}.json").read_text()) for name in TOGETHER}


@pytest.mark.parametrize("name", TOGETHER)
def test_one_that_dies_ends_the_other_within_seconds(deaths: dict[str, dict[str, Any]], name: str) -> None:
    found = deaths[name]
    assert found["begun"], found["said"]
    assert found["code"] == 1, f"code {found['code']} after {found['seconds']:.0f} s: {found['said']}"
    assert found["said"].count("LostProcessError: One of the 2 processes ended") == 1, found["said"]


@pytest.mark.parametrize("name", ALONE)
def test_what_one_has_to_train_is_refused_by_name(folder: Path, name: str) -> None:
    for found in map_ids(folder, name):
        assert found["refused"].startswith(f"{name} ")
        assert found["refused"].endswith(" one process; got 2 processes. Set trainer.devices to 1.") or name == "SPPG"


def test_only_what_is_solved_private_or_of_several_is_refused() -> None:
    assert set(ALONE) == {
        "Bridge", "EASE", "Ensemble", "IALS", "LowRank", "OneBitMC", "Popularity",
        "RecentPopularity", "Ridge", "SLIM", "SPPG", "UserKNN",
    }  # fmt: skip
