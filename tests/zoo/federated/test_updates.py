"""What clients send: one at a time, its bytes, what is not finite, the mean, and the gradient that it is taken for."""

import math

import pytest
import torch

from zoo.federated.updates import ClientUpdates, surrogate_loss, weighted_mean

UPDATES = ClientUpdates(
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
    mean = weighted_mean(UPDATES, 4)
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
    found, expected = (
        weighted_mean(broken.without(~finite), 4),
        weighted_mean(
            ClientUpdates(
                torch.tensor([0, 0, 1]),
                UPDATES.rows[[0, 1, 3]],
                UPDATES.differences[[0, 1, 3]],
                {name: part[[0, 2]] for name, part in UPDATES.shared.items()},
                UPDATES.weights[[0, 2]],
            ),
            4,
        ),
    )
    assert torch.allclose(found.table, expected.table)
    assert all(torch.allclose(found.shared[name], expected.shared[name]) for name in expected.shared)


def test_a_round_of_nobody_is_refused() -> None:
    with pytest.raises(ValueError, match=r"No client of the round counts for anything: all weights are 0\."):
        weighted_mean(UPDATES.without(torch.tensor([True, True, True])), 4)


def test_the_mean_is_what_descent_with_a_step_of_one_adds() -> None:
    parameters = {"table": torch.randn(4, 2, requires_grad=True), "number": torch.tensor(2.0, requires_grad=True)}
    directions = {"table": torch.randn(4, 2), "number": torch.tensor(0.5)}
    before = {name: part.detach().clone() for name, part in parameters.items()}
    loss = surrogate_loss(torch.tensor(3.25), parameters, directions)
    assert loss.item() == 3.25
    loss.backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(parameters.values(), lr=1.0).step()
    for name, part in parameters.items():
        assert torch.allclose(part.detach(), before[name] + directions[name])
