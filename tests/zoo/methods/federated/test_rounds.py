"""Rounds of several processes: one round of all clients, each counted once, and what a part does not know of."""

import torch

from tests.zoo.methods.federated.test_updates import UPDATES
from zoo.methods.federated.rounds import Played, gathered, joined
from zoo.methods.federated.updates import weighted_mean

WHOLE = Played(torch.tensor([5, 2, 9]), UPDATES, torch.arange(6.0).reshape(3, 2), torch.tensor([0.1, 0.2, 0.3]))


def same(ours: Played, theirs: Played) -> bool:
    pairs = [(ours.users, theirs.users), (ours.vectors, theirs.vectors), (ours.losses, theirs.losses)]
    one, other = ours.updates, theirs.updates
    pairs += [(one.clients, other.clients), (one.rows, other.rows), (one.differences, other.differences)]
    pairs += [(one.shared[name], other.shared[name]) for name in one.shared.keys() | other.shared.keys()]
    return all(torch.equal(*pair) for pair in [*pairs, (one.weights, other.weights)])


def test_parts_of_a_round_are_the_round_again() -> None:
    first, rest = (WHOLE.among(torch.tensor(mask)) for mask in ([True, False, False], [False, True, True]))
    assert first.updates.rows.tolist() == [1, 3]
    assert rest.updates.clients.tolist() == [0, 1]
    assert same(joined([first, rest]), WHOLE)
    assert same(joined([WHOLE]), WHOLE)


def test_a_client_of_two_processes_counts_once_as_the_first_has_played_it() -> None:
    second = WHOLE.among(torch.tensor([False, True, True]))._replace(losses=torch.tensor([9.0, 0.3]))
    assert same(joined([WHOLE.among(torch.tensor([True, True, False])), second]), WHOLE)


def test_what_a_part_has_not_changed_is_zero() -> None:
    first, rest = (WHOLE.among(torch.tensor(mask)) for mask in ([True, False, False], [False, True, True]))
    shared = {name: part for name, part in rest.updates.shared.items() if name != "vector"}
    found = joined([first, rest._replace(updates=rest.updates._replace(shared=shared))]).updates
    assert found.shared["vector"].tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert torch.equal(weighted_mean(found, 4).shared["vector"], torch.tensor([1 / 8, 0.0]))


def test_alone_a_round_is_what_it_is() -> None:
    assert gathered(WHOLE) is WHOLE
    assert same(joined([WHOLE.among(torch.zeros(3, dtype=torch.bool)), WHOLE]), WHOLE), "nobody of the first"
