"""Batches: what they hold, what they depend on, how they go on."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning_fabric.utilities import move_data_to_device
from pytorch_lightning.utilities.data import extract_batch_size
from scipy.sparse import csr_array

from tests.samples import some_ratings
from zoo.data.batch_types import PairBatch, TripleBatch, UserBatch
from zoo.data.held_out_cases import EvaluationBatches, HeldOutCases
from zoo.data.ratings import Ratings
from zoo.data.rows import DenseRows, LinkedRows, SparseRows
from zoo.data.training_batches import Batches, Share, TrainingExamples, seeded, training_batches
from zoo.testing.tiny import rated


def batches(epoch: int = 0, seed: int = 0, share: Share = Share(), size: int = 23) -> Batches[torch.Tensor]:  # noqa: B008
    return Batches(size, 4, lambda index, *_: index, seed, lambda: epoch, share)


def test_an_epoch_holds_every_example_once() -> None:
    assert sorted(torch.cat(list(batches())).tolist()) == list(range(23))
    assert len(batches()) == 6


def test_order_depends_on_seed_and_epoch_alone() -> None:
    first = torch.cat(list(batches()))
    assert torch.equal(first, torch.cat(list(batches())))
    assert not torch.equal(first, torch.cat(list(batches(epoch=1))))
    assert not torch.equal(first, torch.cat(list(batches(seed=1))))


def test_an_epoch_goes_on_where_it_stopped() -> None:
    whole = list(batches())
    stopped = batches()
    head = [batch for batch, _ in zip(stopped, range(2), strict=False)]
    resumed = batches()
    resumed.load_state_dict({"at": 2})
    assert all(torch.equal(a, b) for a, b in zip(whole, head[:2] + list(resumed), strict=True))
    assert len(list(resumed)) == 6, "the next epoch is whole again"


def test_the_state_at_an_epochs_end_is_its_beginning() -> None:
    done = batches()
    list(done)
    assert done.state_dict() == {"at": 0}


def test_a_process_without_an_example_has_a_batch_of_nobody() -> None:
    """So that it makes as many steps as the others, which would wait for it."""
    for counts in (None, np.ones((1, 2), dtype=np.int64)):
        shares = [
            Batches(1, 4, lambda index, _, own: (len(index), [*own]), 0, share=Share(rank, 3), counts=counts)
            for rank in range(3)
        ]
        assert [len(list(share)) for share in shares] == [1, 1, 1]
        assert [size for share in shares for size, _ in share] == [1, 1, 0]


@pytest.mark.parametrize("world", [2, 3])
def test_processes_share_an_epoch_in_equal_parts(world: int) -> None:
    parts = [list(batches(share=Share(rank, world))) for rank in range(world)]
    assert len({len(part) for part in parts}) == len({len(torch.cat(part)) for part in parts}) == 1
    seen = torch.cat([torch.cat(part) for part in parts])
    assert set(seen.tolist()) == set(range(23))
    assert len(seen) <= 23 + world - 1


def numbers(epoch: int = 0, seed: int = 0, rank: int = 0, size: int = 24, batch_size: int = 4) -> Batches[list[int]]:
    """Batches of one random number for each example."""

    def draw(index: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(2**60, (len(index),), generator=generator)

    share = Share(rank, 2)
    return Batches(size, batch_size, lambda _, rows, __: rows.tolist(), seed, lambda: epoch, share, draw=draw)


def test_random_numbers_depend_on_seed_epoch_example_and_process() -> None:
    assert list(numbers()) == list(numbers())
    settings: list[dict[str, int]] = [{}, {"epoch": 1}, {"seed": 1}, {"rank": 1}]
    drawn = [number for some in settings for batch in numbers(**some) for number in batch]
    assert len(drawn) == len(set(drawn)) == 4 * 12


def test_numbers_of_many_batches_are_drawn_at_once_and_are_the_same_after_a_stop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zoo.data.training_batches._DRAWN_AT_ONCE", 12)  # three batches of four
    whole = list(numbers(size=46))  # 23 for each process: six batches, the last one short
    assert [len(batch) for batch in whole] == [4, 4, 4, 4, 4, 3]
    for stop in range(6):
        resumed = numbers(size=46)
        resumed.load_state_dict({"at": stop})
        assert list(resumed) == whole[stop:]
    assert len({number for batch in whole for number in batch}) == 23, "each block draws numbers of its own"


def test_evaluation_is_shared_without_padding() -> None:
    parts = [list(EvaluationBatches(23, 4, lambda index: index, Share(rank, 2))) for rank in range(2)]
    assert sorted(torch.cat([torch.cat(part) for part in parts]).tolist()) == list(range(23))


def test_a_process_without_a_case_is_refused() -> None:
    assert len(EvaluationBatches(3, 4, lambda index: index, Share(2, 3))) == 1
    with pytest.raises(ValueError, match=r"2 cases are too few for 3 processes. Lower trainer.devices"):
        EvaluationBatches(2, 4, lambda index: index, Share(0, 3))


def test_negatives_are_never_positives() -> None:
    ratings = some_ratings(density=0.5)
    examples = TrainingExamples(ratings, num_negatives=50)
    everything = torch.arange(ratings.num_ratings)
    batch = examples.pairs(everything, examples.negatives(everything, seeded(0)))
    assert len(batch.users) == 51 * ratings.num_ratings
    assert np.array_equal(rated(ratings, batch.users, batch.items), batch.labels.numpy() == 1)
    triples = examples.triples(everything, examples.negatives(everything, seeded(0), count=1))
    assert rated(ratings, triples.users, triples.positives).all()
    assert not rated(ratings, triples.users, triples.negatives).any()


def test_users_with_every_item_are_left_out_where_negatives_are_sampled() -> None:
    full = Ratings(csr_array(np.array([[1.0, 1], [0, 1], [1, 1]])), np.array(["u", "v", "w"]), np.array(["a", "b"]))
    for form in (TrainingExamples(full).batches(name) for name in ("pairs", "triples")):
        index = torch.arange(form.size)
        assert [part.tolist() for part in form.make(index, form.draw(index, seeded(0)), ())][:2] in (
            [[1, 1], [1, 0]],
            [[1], [1]],
        )
    for with_full, users in ((True, [0, 1, 2]), (False, [1])):
        examples = TrainingExamples(full, with_full_users=with_full)
        form = examples.batches("users")
        assert form.size == len(users) == len(form.counts if form.counts is not None else ())
        assert form.make(torch.arange(form.size), torch.empty(form.size, 0), [3]).users.tolist() == users
    every = Ratings(csr_array(np.ones((2, 2))), np.array(["u", "v"]), np.array(["a", "b"]))
    assert TrainingExamples(every).batches("users").size == 2
    for form in ("pairs", "triples"):
        with pytest.raises(ValueError, match=r"All 2 users with ratings have all 2 items, so"):
            TrainingExamples(every).batches(form)


def test_nobody_is_looked_for_where_no_negative_is_drawn() -> None:
    examples = TrainingExamples(some_ratings())
    size, make, draw, _ = examples.batches("users")
    make(torch.arange(size), draw(torch.arange(size), seeded(0)), [0])
    assert "_unseen" not in vars(examples)
    examples.negatives(torch.arange(3), seeded(0))
    assert "_unseen" in vars(examples)


def test_users_without_ratings_are_not_learned_from() -> None:
    matrix = csr_array(np.array([[1.0, 0], [0, 0], [1, 1]]))
    ratings = Ratings(matrix, np.array(["a", "b", "c"]), np.array(["x", "y"]))
    size, make, _, counts = TrainingExamples(ratings).batches("users")
    assert size == 2
    assert make(torch.arange(2), torch.empty(2, 0), [3]).users.tolist() == [0, 2]
    assert counts is not None
    assert counts.tolist() == [[1], [2]]


def known_counts(world: int, start: int = 0) -> list[UserBatch]:
    """The batches of all processes, from some on, of 23 users of whom a few have no rating, a few no row, and some share one."""
    ratings = some_ratings(users=23, density=0.15)
    assert (np.diff(ratings.matrix.indptr) == 0).any()
    links = torch.arange(23) % 9 - 1
    sources = {
        "book": LinkedRows(SparseRows.from_ratings(some_ratings()), links),
        "film": LinkedRows(DenseRows(links[:, None]), links),
        "art": LinkedRows(SparseRows.from_ratings(some_ratings(seed=1)), links.flip(0)),
    }
    method = SimpleNamespace(batches="users", num_negatives=1, steps_per_epoch=1, sources=torch.nn.ModuleDict(sources))
    found: list[UserBatch] = []
    for rank in range(world):
        made = training_batches(ratings, method, 4, 0, lambda: 1, Share(rank, world))
        made.load_state_dict({"at": start})
        found += [batch for batch in made if isinstance(batch, UserBatch)]
    rows = SparseRows.from_ratings(ratings)
    for batch in found:
        assert batch.ratings == int(rows.counts_of(batch.users).sum())
        assert torch.equal(rows.dense(batch.users, batch.ratings), rows.dense(batch.users))
        assert [*batch.released] == ["book", "art"]
        for name, entries in batch.released.items():
            assert entries == int(sources[name].entries_per_user()[batch.users].sum())
            assert torch.equal(*(sources[name].dense(batch.users, known)[0] for known in (entries, None)))
    return found


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_batch_knows_how_much_there_is_to_read(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.data.training_batches._DRAWN_AT_ONCE", 8)  # two batches at once
    whole = known_counts(world)
    assert len(torch.cat([batch.users for batch in whole])) % world == 0, "padded"
    each = len(whole) // world
    for start in range(each):
        resumed = known_counts(world, start)
        expected = [batch for at, batch in enumerate(whole) if at % each >= start]
        assert [batch.ratings for batch in resumed] == [batch.ratings for batch in expected]


@pytest.mark.parametrize("form", ["pairs", "triples"])
def test_a_method_has_as_many_negatives_as_it_asks_for(form: str) -> None:
    method = SimpleNamespace(batches=form, num_negatives=3, steps_per_epoch=1)
    (batch, *_) = training_batches(some_ratings(), method, 4, 0, lambda: 0)
    if isinstance(batch, PairBatch):
        assert batch.labels.tolist() == [1.0] * 4 + [0.0] * 12
        assert batch.users.tolist() == batch.users[:4].tolist() * 4
    else:
        assert isinstance(batch, TripleBatch)
        assert [part.shape for part in batch] == [(4,)] * 3


@pytest.mark.parametrize("form", ["full_batch", "steps"])
def test_a_batch_of_everybody_knows_all_ratings(form: str) -> None:
    method = SimpleNamespace(batches=form, num_negatives=1, steps_per_epoch=2)
    ratings = some_ratings()
    (batch, *others) = training_batches(ratings, method, 4, 0, lambda: 0)
    assert len(others) == (1 if form == "steps" else 0)
    assert isinstance(batch, UserBatch)
    assert batch.ratings == ratings.num_ratings
    assert len(batch.users) == len(np.flatnonzero(np.diff(ratings.matrix.indptr)))


def test_a_trainer_takes_users_for_the_number_of_a_batch() -> None:
    batch = UserBatch(torch.arange(5), 17, {"book": 3})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert extract_batch_size(batch) == 5
    moved = move_data_to_device(batch, torch.device("meta"))
    assert (moved.users.device.type, moved.ratings, moved.released) == ("meta", 17, {"book": 3})


def test_a_case_leaves_out_what_is_seen_and_keeps_its_own_item() -> None:
    seen = SparseRows(torch.tensor([0, 2, 3]), torch.tensor([0, 1, 2]), torch.ones(3), 4)
    listed, ratings = torch.tensor([[0, -1], [2, -1]]), torch.tensor([-1.0, 1.0])
    cases = HeldOutCases(torch.tensor([1, 0]), torch.tensor([2, 3]), listed, ratings, seen)
    batch = cases.batch(torch.tensor([0, 1]))
    assert batch.seen_rows.tolist() == [1, 1]
    assert batch.seen_items.tolist() == [0, 1]
    alone = cases.batch(torch.tensor([1]))
    assert (alone.ratings.tolist(), alone.candidates.tolist(), alone.seen_rows.tolist()) == ([1.0], [[2, -1]], [0, 0])
