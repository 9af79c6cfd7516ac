"""Compressed rows against dense ones."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.samples import some_ratings
from zoo.data.rows import DenseRows, LinkedRows, SparseRows


@settings(max_examples=40, deadline=None)
@given(index=st.lists(st.integers(0, 8), max_size=20), density=st.floats(0, 1), seed=st.integers(0, 9))
def test_dense_and_bags_equal_the_matrix(index: list[int], density: float, seed: int) -> None:
    ratings = some_ratings(density=density, seed=seed)
    rows = SparseRows.from_ratings(ratings)
    wanted = torch.tensor(index, dtype=torch.long)
    dense = torch.from_numpy(ratings.matrix.toarray())
    entries = int((dense[wanted] != 0).sum())
    for known in (None, entries):
        assert torch.equal(rows.dense(wanted, known), dense[wanted])
    for wrong in (entries - 1, entries + 1) if index and entries else ():
        with pytest.raises(RuntimeError, match="size"):
            rows.bags(wanted, wrong)
    table = torch.randn(7, 3)
    bags = rows.bags(wanted)
    assert torch.allclose(bags.times(table), dense[wanted] @ table, atol=1e-5)
    assert bags.lengths.tolist() == [int((row != 0).sum()) for row in dense[wanted]]
    assert rows.counts_of(wanted).tolist() == bags.lengths.tolist() == rows.all_bags().lengths[wanted].tolist()
    assert bags.rows.tolist() == [place for place, row in enumerate(dense[wanted]) for _ in row.nonzero()]


@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
def test_transposed_rows_are_those_of_the_transposed_matrix(density: float) -> None:
    ratings = some_ratings(density=density)
    ours, theirs = SparseRows.from_ratings(ratings).transposed(), SparseRows.from_ratings(ratings.transpose())
    assert (ours.num_rows, ours.width) == (theirs.num_rows, theirs.width) == (7, ratings.num_users)
    for name, buffer in theirs.named_buffers():
        assert torch.equal(buffer, dict(ours.named_buffers())[name])


def test_the_mean_row_is_that_of_rows_with_an_entry() -> None:
    ratings = some_ratings(density=0.15)
    dense = torch.from_numpy(ratings.matrix.toarray())
    there = dense.any(1)
    assert not there.all()
    assert torch.allclose(SparseRows.from_ratings(ratings).mean(), dense[there].mean(0))
    assert torch.allclose(DenseRows(dense).mean(), dense.mean(0))


def test_buffers_stay_out_of_checkpoints() -> None:
    assert SparseRows.from_ratings(some_ratings()).state_dict() == {}


@pytest.mark.parametrize("sparse", [True, False])
def test_linked_rows_are_zero_where_there_is_none(sparse: bool) -> None:
    ratings = some_ratings()
    dense = torch.from_numpy(ratings.matrix.toarray())
    linked = LinkedRows(SparseRows.from_ratings(ratings) if sparse else DenseRows(dense), torch.tensor([3, -1, 0]))
    rows, present = linked.dense(torch.tensor([0, 1, 2, 0]))
    assert present.tolist() == [True, False, True, True]
    assert torch.equal(rows, torch.stack([dense[3], torch.zeros(7), dense[0], dense[3]]))


def test_entries_that_linked_rows_read_are_known_beforehand() -> None:
    linked = LinkedRows(SparseRows.from_ratings(some_ratings()), torch.tensor([3, -1, 0, 5]))
    each, users = linked.entries_per_user(), torch.tensor([2, 1, 0, 1, 3])
    assert each.tolist() == [linked.rows.counts()[row] for row in (3, 0, 0, 5)]  # type: ignore[operator]
    for ours, theirs in zip(linked.dense(users, int(each[users].sum())), linked.dense(users), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(RuntimeError, match="size"):
        linked.dense(users, int(each[users].sum()) - 1)


@pytest.mark.parametrize("sparse", [True, False])
def test_linked_rows_of_nobody(sparse: bool) -> None:
    nothing = torch.zeros(0)
    none = SparseRows(torch.tensor([0]), nothing.long(), nothing, 1) if sparse else DenseRows(nothing[:, None])
    linked = LinkedRows(none, torch.tensor([-1, -1]))
    rows, present = linked.dense(torch.tensor([1, 0, 1]), 0)
    assert rows.shape == (3, 1)
    assert not present.any()
    assert not sparse or linked.entries_per_user().tolist() == [0, 0]


def test_rows_that_nobody_is_linked_to_are_strangers() -> None:
    linked = LinkedRows(DenseRows(torch.ones(4, 2)), torch.tensor([2, -1, 0]))
    assert linked.shared().tolist() == [True, False, True, False]
    assert LinkedRows(DenseRows(torch.ones(0, 2)), torch.tensor([-1, -1])).shared().tolist() == []
