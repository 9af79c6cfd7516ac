"""OrthogonalMap: there and back, and what its penalties are, against loops over single numbers."""

import pytest
import torch
from torch import nn

from zoo.nn.orthogonal import OrthogonalMap


def test_there_and_back_is_nowhere() -> None:
    torch.manual_seed(0)
    there, factors = OrthogonalMap(6), torch.randn(2, 5, 6)
    mapped = there(factors)
    assert mapped.shape == (2, 5, 6)
    assert not torch.allclose(mapped, factors, atol=0.1)
    assert torch.allclose(mapped.norm(dim=-1), factors.norm(dim=-1), atol=1e-5)
    assert torch.allclose(there.back(mapped), factors, atol=1e-5)
    assert float(there.penalty().detach()) == pytest.approx(0, abs=1e-4)
    assert float(there.round_trip(factors).detach()) == pytest.approx(0, abs=1e-4)


def test_each_way_and_each_penalty_is_what_it_says() -> None:
    torch.manual_seed(0)
    there = OrthogonalMap(3, nn.init.normal_)
    weight, factors = there.weight.detach(), torch.randn(4, 3)
    expected = torch.tensor([[sum(z[a] * weight[a, b] for a in range(3)) for b in range(3)] for z in factors])
    assert torch.allclose(there(factors), expected, atol=1e-5)
    back = torch.tensor([[sum(z[b] * weight[a, b] for b in range(3)) for a in range(3)] for z in factors])
    assert torch.allclose(there.back(factors), back, atol=1e-5)
    off = sum(abs(float(weight[a] @ weight[b]) - (a == b)) for a in range(3) for b in range(3))
    assert float(there.penalty().detach()) == pytest.approx(off, rel=1e-5)
    lost = sum(float((z - there.weight.detach() @ (z @ there.weight.detach())).abs().sum()) for z in factors)
    assert float(there.round_trip(factors).detach()) == pytest.approx(lost, rel=1e-4)
    lost = sum(float((z - (z @ weight.T) @ weight).abs().sum()) for z in factors)
    assert float(there.return_trip(factors).detach()) == pytest.approx(lost, rel=1e-4)
    assert off > 1


def test_descent_on_the_penalty_makes_any_matrix_orthogonal() -> None:
    torch.manual_seed(0)
    there = OrthogonalMap(4, nn.init.xavier_normal_)
    before = float(there.penalty().detach())
    optimizer = torch.optim.SGD(there.parameters(), lr=0.005)
    for _ in range(300):
        optimizer.zero_grad()
        there.penalty().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert float(there.penalty().detach()) < 0.1 * before
