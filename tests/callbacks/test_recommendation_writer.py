"""RecommendationWriter: indexes become ids, lists keep their order, and each process writes a whole file of its own."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from callbacks import RecommendationWriter
from tests.samples import memory_below
from zoo.data.best_items import SCHEMA, Names, Recommendations, table_of

TRAIN = SimpleNamespace(user_ids=np.array(["ann", "bob", "eve"]), item_ids=np.array(["x", "y", "z", "w"]))


def trainer_of(folder: Path | None, rank: int = 0, world_size: int = 1) -> Any:  # noqa: ANN401  a trainer as far as it is asked
    data = SimpleNamespace(train=TRAIN)
    return SimpleNamespace(datamodule=data, log_dir=folder, global_rank=rank, world_size=world_size)


def written(writer: RecommendationWriter, trainer: Any, *batches: Recommendations) -> pl.DataFrame:  # noqa: ANN401
    method: Any = None
    writer.setup(trainer, method, "predict")
    for number, batch in enumerate(batches):
        writer.on_predict_batch_end(trainer, method, batch, None, number)
    writer.on_predict_end(trainer, method)
    assert writer.path is not None
    [file] = writer.path.parent.iterdir()
    return pl.read_parquet(file)


#: Of eve two items and of ann one, as -1 stands for no item; then of bob two.
FIRST = Recommendations(
    torch.tensor([2, 0]), torch.tensor([[3, 0], [1, -1]]), torch.tensor([[0.75, 0.5], [2.0, -torch.inf]])
)
SECOND = Recommendations(torch.tensor([1]), torch.tensor([[2, 1]]), torch.tensor([[-1.0, -1.5]]))


def test_indexes_become_ids_in_the_order_of_the_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = written(RecommendationWriter(), trainer_of(tmp_path), FIRST, SECOND)
    assert table.rows() == [
        *(("eve", 1, "w", 0.75), ("eve", 2, "x", 0.5), ("ann", 1, "y", 2.0)),
        *(("bob", 1, "z", -1.0), ("bob", 2, "y", -1.5)),
    ]
    assert table.schema == SCHEMA
    assert f"Recommendations for 3 users: {tmp_path / 'recommendations.parquet'}" in capsys.readouterr().out


def test_a_table_holds_nothing_of_the_scores(tmp_path: Path) -> None:
    """Or the memory of each batch would be kept with it."""
    scores = torch.tensor([[0.5, 0.25]])
    table = table_of(TRAIN, Recommendations(torch.tensor([1]), torch.tensor([[2, 1]]), scores))  # type: ignore[arg-type]
    scores.zero_()
    assert table["score"].to_list() == [0.5, 0.25]
    names = Names(np.array(["a", *map(str, range(99)), "b" * 1000]), np.array(["x"]))
    many = Recommendations(torch.arange(100), torch.zeros(100, 100, dtype=torch.long), torch.zeros(100, 100))
    with memory_below(1e7):  # rows as wide as the longest id would take 40 MB
        table_of(names, many)


def test_a_path_of_ones_own_is_made_and_a_second_prediction_begins_anew(tmp_path: Path) -> None:
    writer = RecommendationWriter(tmp_path / "new" / "best.parquet")
    assert len(written(writer, trainer_of(None), FIRST)) == 3
    assert written(writer, trainer_of(None), SECOND)["user_id"].to_list() == ["bob", "bob"]


def test_every_process_writes_a_part_of_its_own_also_one_without_users(tmp_path: Path) -> None:
    for rank, batches in ((0, [FIRST]), (1, [])):
        writer = RecommendationWriter(tmp_path / str(rank) / "best.parquet")
        table = written(writer, trainer_of(None, rank, world_size=2), *batches)
        assert (tmp_path / str(rank) / f"best-0000{rank}.parquet").is_file()
        assert table.schema == SCHEMA
        assert len(table) == 3 * len(batches)


def test_other_commands_choose_no_path(tmp_path: Path) -> None:
    writer = RecommendationWriter()
    method: Any = None
    writer.setup(trainer_of(tmp_path), method, "test")
    assert writer.path is None
