"""Items that a user has not: uniform, never one that the user has, whether or not each cell has its own bit."""

from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from zoo.data.unseen import UnseenItems

EXACT, HASHED = 1 << 28, 0


def some_pairs(num_users: int, num_items: int, density: float, seed: int = 0) -> torch.Tensor:
    """Cells that are taken, rising; nobody has everything."""
    taken = np.random.default_rng(seed).random((num_users, num_items)) < density
    taken[:, -1] = False
    return torch.from_numpy(np.flatnonzero(taken))


@given(st.integers(1, 30), st.integers(1, 40), st.floats(0, 0.9), st.integers(0, 99), st.sampled_from([EXACT, HASHED]))
def test_what_users_have_is_what_the_pairs_say(
    users: int, items: int, density: float, seed: int, every_entry: int
) -> None:
    pairs = some_pairs(users, items, density, seed)
    cells = torch.cartesian_prod(torch.arange(users), torch.arange(items))
    seen = UnseenItems(pairs, users, items, every_entry).seen(cells[:, 0], cells[:, 1])
    assert seen.nonzero().squeeze(1).tolist() == pairs.tolist()


def test_who_shares_a_bit_with_a_pair_is_told_from_it() -> None:
    pairs = torch.arange(0, 10**9, 99_991)
    unseen = UnseenItems(pairs, 10**5, 10**4)
    cells = torch.arange(1, 10**9, 4_999)
    bits = unseen._bits(cells)
    assert ((unseen.bitmap[bits >> 3].long() >> (bits & 7)) & 1).sum() > 1_000, "some do"
    assert torch.equal(unseen.seen(cells // 10**4, cells % 10**4), torch.isin(cells, pairs))


@pytest.mark.parametrize("every_entry", [EXACT, HASHED])
def test_negatives_are_uniform_over_the_rest(every_entry: int) -> None:
    pairs = torch.tensor([0, 2, 3, 5, 8, 10])  # of users 0 and 1, of 7 items each
    generator = torch.Generator() if every_entry == EXACT else None  # torch's own
    drawn = UnseenItems(pairs, 2, 7, every_entry).draw(torch.ones(40_000, dtype=torch.long), generator)
    free = [0, 2, 4, 5, 6]
    counts = np.bincount(drawn.numpy(), minlength=7)
    assert counts.sum() == counts[free].sum()
    # Five standard deviations per item: a right sampler fails with probability below 1e-5.
    assert np.abs(counts[free] - 8_000).max() < 5 * np.sqrt(8_000)


def test_nearly_full_users_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By chance alone, each of these negatives takes 2^17 draws; a received release may have such rows."""
    items, free = 1 << 18, {1: [0, 77_777, (1 << 18) - 1], 2: [5, 6]}
    rated = torch.ones(4, items, dtype=torch.bool)
    rated[0, 9:] = False
    for user, few in free.items():
        rated[user, few] = False
    unseen = UnseenItems(rated.flatten().nonzero().squeeze(1), 4, items)
    looked = Mock(side_effect=unseen.seen)
    monkeypatch.setattr(unseen, "seen", looked)
    users = torch.tensor([2, 0, 1]).repeat(3_000)
    drawn = unseen.draw(users, torch.Generator().manual_seed(1))
    assert looked.call_count <= 65
    for user, few in free.items():
        found, counts = torch.unique(drawn[users == user], return_counts=True)
        assert found.tolist() == few
        expected = 3_000 / len(few)  # five standard deviations: a right sampler fails with probability below 1e-5
        assert (counts - expected).abs().max() < 5 * expected**0.5
    with pytest.raises(RuntimeError, match=r"[Zz]ero"):
        unseen.draw(torch.tensor([3]))


def test_memory_is_a_bit_a_cell_or_linear_in_pairs() -> None:
    pairs = torch.arange(0, 10**12, 10**9)
    hashed = UnseenItems(pairs, 10**6, 10**6)
    assert not hashed.exact
    assert 32 * len(pairs) / 8 <= len(hashed.bitmap) <= 2 * 32 * len(pairs) / 8
    assert len(UnseenItems(torch.arange(5), 1_000, 1_000).bitmap) == 10**6 // 8 + 1


def test_draws_are_those_of_the_generator() -> None:
    unseen = UnseenItems(some_pairs(5, 9, 0.5), 5, 9)
    users = torch.arange(5).repeat(20)
    first, second = (unseen.draw(users, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(first, unseen.draw(users, torch.Generator().manual_seed(4)))
