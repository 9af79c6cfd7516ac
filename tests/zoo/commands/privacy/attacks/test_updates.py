"""What an update tells of its client's items: counts by hand, planted directions, and a round of FedGNN."""

import pytest
import torch

from tests.zoo.methods.mixed_runs import around, fitted
from zoo import FedGNN
from zoo.commands.privacy.attacks.updates import guessed_right, rows_moved_alike, rows_named
from zoo.methods.federated.updates import ClientUpdates


def planted(noise: float = 0.0) -> tuple[ClientUpdates, torch.Tensor]:
    """Three clients: two of three rows of the first are its own, one of four of the second's; the third is left out."""
    torch.manual_seed(2)
    clients = torch.tensor([1, 0, 1, 0, 1, 0, 1])
    owned = torch.tensor([False, True, False, True, True, False, False])
    along = torch.randn(3, 5)[clients] * (torch.rand(7, 1) + 0.5)
    changes = torch.where(owned[:, None], along, -along) + noise * torch.randn(7, 5)
    weights = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    return ClientUpdates(clients, torch.tensor([9, 1, 2, 4, 5, 0, 3]), changes, {}, weights), owned


def test_all_rows_are_right_as_often_as_they_are_own_and_miss_none() -> None:
    updates, owned = planted()
    precision, recall = guessed_right(rows_named(updates), updates, owned)
    assert precision.tolist() == pytest.approx([2 / 3, 1 / 4, 0])
    assert recall.tolist() == [1, 1, 0]


@pytest.mark.parametrize("turned", [1, -1])
def test_rows_that_move_one_way_are_told_from_those_that_move_back(turned: int) -> None:
    """Whichever way is forward: the weight tells the sides apart."""
    updates, owned = planted(0.05)
    updates = updates._replace(differences=turned * updates.differences)
    assert torch.equal(rows_moved_alike(updates), owned)
    wrong = owned.clone()
    wrong[updates.clients == 1] = True
    precision, recall = guessed_right(wrong, updates, owned)
    assert (precision.tolist(), recall.tolist()) == ([1, 0.25, 0], [1, 1, 0])


def test_a_round_tells_most_of_its_clients_items() -> None:
    """An item drawn twice is named once, so rows alone are right a little more often than once in 1 + n."""
    method = FedGNN(num_factors=4, num_negatives=3)
    fitted(method, around(num_items=400, batch_size=16), 2)
    clients = (method.target_rows.counts() > 0).nonzero().squeeze(1)
    updates, _, _ = method.play(clients)
    keys = torch.repeat_interleave(method.target_rows.counts()) * 400 + method.target_rows.items
    owned = torch.isin(clients[updates.clients] * 400 + updates.rows, keys)
    named, recall = guessed_right(rows_named(updates), updates, owned)
    assert (recall == 1).all()
    assert 1 / 4 <= float(named.mean()) < 1 / 4 + 0.02
    precision, recall = guessed_right(rows_moved_alike(updates), updates, owned)
    assert min(float(precision.mean()), float(recall.mean())) > 0.8
