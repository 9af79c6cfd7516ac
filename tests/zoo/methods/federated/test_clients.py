"""What clients do at home: draws of items they have not, copies, and steps that equal those of each client alone."""

import pytest
import torch
from torch import Tensor

from zoo.methods.federated.base import local_moves, touched_rows, unowned_items

ITEMS = torch.tensor([0, 1, 4, 2, 0, 1, 2, 3, 5])
COUNTS = torch.tensor([3, 1, 5])  # of three clients, of 6 items in all


def test_items_are_drawn_that_a_client_has_not_and_all_alike() -> None:
    """120,000 draws for each client: of n items each is expected 120,000 / n times; 5 standard deviations fail below 1e-5."""
    torch.manual_seed(0)
    drawn = torch.cat([unowned_items(ITEMS, COUNTS, 6, 40_000) for _ in range(2)])  # rows of the clients, twice
    owners = torch.repeat_interleave(COUNTS).repeat(2)
    for client, own in enumerate(ITEMS.split(COUNTS.tolist())):
        counts = torch.bincount(drawn[owners == client].flatten(), minlength=6)
        others = [item for item in range(6) if item not in own]
        assert counts[own].sum() == 0
        expected = int(counts.sum()) / len(others)
        assert all(abs(int(counts[item]) - expected) <= 5 * expected**0.5 for item in others)


def test_a_client_with_every_item_is_refused() -> None:
    with pytest.raises(ValueError, match=r"1 clients have all 2 items, and no negatives\. Leave them"):
        unowned_items(torch.tensor([0, 1, 1]), torch.tensor([2, 1]), 2, 3)


def test_a_client_copies_a_row_once_and_shares_no_copy() -> None:
    clients, rows = torch.tensor([0, 1, 0, 0, 1]), torch.tensor([5, 5, 2, 5, 0])
    touched = touched_rows(clients, rows, 6)
    assert list(zip(touched.clients.tolist(), touched.rows.tolist(), strict=True)) == [(0, 2), (0, 5), (1, 0), (1, 5)]
    assert torch.equal(touched.rows[touched.places], rows)
    assert torch.equal(touched.clients[touched.places], clients)


@pytest.mark.parametrize("num_steps", [1, 4])
def test_steps_of_all_clients_at_once_are_those_of_each_alone(num_steps: int) -> None:
    torch.manual_seed(0)
    start = {"vectors": torch.randn(3, 2).double(), "shared": torch.randn(2).double().expand(3, 2)}

    def losses(copies: dict[str, Tensor]) -> Tensor:
        return ((copies["vectors"] * copies["shared"]).sum(1) - 1).square()

    moves, before = local_moves(losses, start, num_steps, 0.1)
    assert torch.equal(before, losses(start))
    for client in range(3):
        vector, shared = start["vectors"][client].clone(), start["shared"][client].clone()
        for _ in range(num_steps):
            error = 2 * (vector @ shared - 1)
            vector, shared = vector - 0.1 * error * shared, shared - 0.1 * error * vector
        assert torch.allclose(moves["vectors"][client], vector - start["vectors"][client])
        assert torch.allclose(moves["shared"][client], shared - start["shared"][client])
    assert not any(part.requires_grad for part in (*moves.values(), before, *start.values()))
