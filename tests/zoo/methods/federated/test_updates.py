"""What clients send: one at a time, its bytes, what is not finite, the mean, and the gradient that it is taken for."""

import math

import pytest
import torch

from zoo.methods.federated import updates

UPDATES = updates.ClientUpdates(
    clients=torch.tensor([0, 0, 1, 2]),
    rows=torch.tensor([1, 3, 1, 0]),
    differences=torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]),
    shared={"vector": torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]), "number": torch.tensor([1.0, 2.0, 4.0])},
    weights=torch.tensor([1.0, 2.0, 5.0]).double(),
)


def test_one_client_sends_its_rows_what_is_shared_and_its_weight() -> None:
    first = UPDATES.of(0)
    assert first.rows.tolist() == [1, 3]
    assert first.differences.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert {name: part.tolist() for name, part in first.shared.items()} == {"vector": [1.0, 0.0], "number": 1.0}
    assert first.weight == 1.0
    # two row numbers of 8 bytes, four differences of 4, three shared numbers of 4, and a weight of 8
    assert first.bytes == 16 + 16 + 12 + 8
    assert sum(UPDATES.of(client).bytes for client in range(3)) == UPDATES.bytes


def test_the_mean_is_weighted_and_counts_rows_that_a_client_has_not_as_zero() -> None:
    mean = updates.weighted_mean(UPDATES, 4)
    expected = [[35 / 8, 5.0], [11 / 8, 14 / 8], [0, 0], [3 / 8, 0.5]]
    assert torch.allclose(mean.table, torch.tensor(expected))
    assert torch.allclose(mean.shared["vector"], torch.tensor([11 / 8, 12 / 8]))
    assert float(mean.shared["number"]) == pytest.approx((1 + 4 + 20) / 8)


@pytest.mark.parametrize("where", ["differences", "vector", "number"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_who_is_not_finite_is_found_and_left_out(where: str, value: float) -> None:
    differences, shared = UPDATES.differences.clone(), {name: part.clone() for name, part in UPDATES.shared.items()}
    (differences if where == "differences" else shared[where])[2 if where == "differences" else 1] = value
    broken = UPDATES._replace(differences=differences, shared=shared)
    finite = broken.finite()
    assert finite.tolist() == [True, False, True]
    kept, shared = [0, 1, 3], {name: part[[0, 2]] for name, part in UPDATES.shared.items()}
    rows = torch.tensor([0, 0, 1]), UPDATES.rows[kept], UPDATES.differences[kept]
    expected = updates.weighted_mean(updates.ClientUpdates(*rows, shared, UPDATES.weights[[0, 2]]), 4)
    found = updates.weighted_mean(broken.without(~finite), 4)
    assert torch.allclose(found.table, expected.table)
    assert all(torch.allclose(found.shared[name], expected.shared[name]) for name in expected.shared)


def test_a_round_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match=r"No client of the round counts: all weights are 0\."):
        updates.weighted_mean(UPDATES.without(torch.tensor([True, True, True])), 4)


def test_the_mean_is_what_descent_with_a_step_of_one_adds() -> None:
    parameters = {"table": torch.randn(4, 2, requires_grad=True), "number": torch.tensor(2.0, requires_grad=True)}
    directions = {"table": torch.randn(4, 2), "number": torch.tensor(0.5)}
    before = {name: part.detach().clone() for name, part in parameters.items()}
    loss = updates.surrogate_loss(torch.tensor(3.25), parameters, directions)
    assert loss.item() == 3.25
    loss.backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(parameters.values(), lr=1.0).step()
    for name, part in parameters.items():
        assert torch.allclose(part.detach(), before[name] + directions[name])


def test_pseudo_rows_have_their_clients_mean_and_spread_and_stand_among_the_others() -> None:
    """Of client 0 4,998 rows: mean 2 and 3, spread 1; means of so many draws are off by 5/sqrt(4998) in one of 1e6 cases."""
    torch.manual_seed(0)
    rows = torch.arange(5000)
    found = updates.with_pseudo_rows(UPDATES, torch.zeros(5000, dtype=torch.int64), rows)
    first = found.of(0)
    assert first.rows.tolist() == rows.tolist()
    assert torch.equal(first.differences[[1, 3]], UPDATES.of(0).differences)
    drawn = first.differences[(rows != 1) & (rows != 3)]
    assert torch.allclose(drawn.mean(0), torch.tensor([2.0, 3.0]), atol=0.08)
    assert torch.allclose(drawn.std(0), torch.ones(2), atol=0.08)
    for client in (1, 2):
        assert torch.equal(found.of(client).differences, UPDATES.of(client).differences)
        assert torch.equal(found.of(client).rows, UPDATES.of(client).rows)
    assert found.shared is UPDATES.shared
    assert found.weights is UPDATES.weights


def test_a_pseudo_row_that_is_asked_for_twice_or_changed_already_is_sent_once() -> None:
    found = updates.with_pseudo_rows(UPDATES, torch.tensor([1, 1, 1, 2]), torch.tensor([1, 2, 2, 1]))
    assert found.of(1).rows.tolist() == [1, 2]
    assert found.of(2).rows.tolist() == [0, 1]
    assert torch.equal(found.of(1).differences, UPDATES.of(1).differences[[0, 0]])  # of one change the spread is 0


WHOLE = updates.Played(torch.tensor([5, 2, 9]), UPDATES, torch.arange(6.0).reshape(3, 2), torch.tensor([0.1, 0.2, 0.3]))


def same(ours: updates.Played, theirs: updates.Played) -> bool:
    pairs = [(ours.users, theirs.users), (ours.vectors, theirs.vectors), (ours.losses, theirs.losses)]
    one, other = ours.updates, theirs.updates
    pairs += [(one.clients, other.clients), (one.rows, other.rows), (one.differences, other.differences)]
    pairs += [(one.shared[name], other.shared[name]) for name in one.shared.keys() | other.shared.keys()]
    return all(torch.equal(*pair) for pair in [*pairs, (one.weights, other.weights)])


def test_parts_of_a_round_are_the_round_again() -> None:
    first, rest = (WHOLE.among(torch.tensor(mask)) for mask in ([True, False, False], [False, True, True]))
    assert first.updates.rows.tolist() == [1, 3]
    assert rest.updates.clients.tolist() == [0, 1]
    assert same(updates.joined([first, rest]), WHOLE)
    assert same(updates.joined([WHOLE]), WHOLE)
    assert updates.gathered(WHOLE) is WHOLE
    assert same(updates.joined([WHOLE.among(torch.zeros(3, dtype=torch.bool)), WHOLE]), WHOLE), "nobody of the first"


def test_a_client_of_two_processes_counts_once_as_the_first_has_played_it() -> None:
    second = WHOLE.among(torch.tensor([False, True, True]))._replace(losses=torch.tensor([9.0, 0.3]))
    assert same(updates.joined([WHOLE.among(torch.tensor([True, True, False])), second]), WHOLE)


def test_what_a_part_has_not_changed_is_zero() -> None:
    first, rest = (WHOLE.among(torch.tensor(mask)) for mask in ([True, False, False], [False, True, True]))
    shared = {name: part for name, part in rest.updates.shared.items() if name != "vector"}
    found = updates.joined([first, rest._replace(updates=rest.updates._replace(shared=shared))]).updates
    assert found.shared["vector"].tolist() == [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert torch.equal(updates.weighted_mean(found, 4).shared["vector"], torch.tensor([1 / 8, 0.0]))
