"""`ItemSum` against an ordinary layer on dense rows."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.samples import some_ratings
from zoo.data.rows import Bags, SparseRows
from zoo.nn.item_sum import ItemSum, padded, unpadded


def rows_and_dense() -> tuple[Tensor, Tensor, Tensor]:
    rows, index = SparseRows.from_ratings(some_ratings()), torch.tensor([3, 0, 8, 3])
    return *padded(rows.bags(index)), rows.dense(index)


@pytest.mark.parametrize("bias", [True, False])
def test_it_is_linear_on_the_dense_row(bias: bool) -> None:
    items, weights, dense = rows_and_dense()
    layer, linear = ItemSum(7, 4, bias=bias), nn.Linear(7, 4, bias=bias)
    with torch.no_grad():
        linear.weight.copy_(layer.weight.T)
        if layer.bias is not None:
            layer.bias.normal_()
            linear.bias.copy_(layer.bias)
    assert set(dict(layer.named_parameters())) == ({"weight", "bias"} if bias else {"weight"})
    expected = linear(dense)
    expected.square().sum().backward()
    for out in (layer(items, weights), layer.dense(dense)):
        assert torch.allclose(out, expected, atol=1e-6)
        layer.zero_grad()
        out.square().sum().backward()
        assert layer.weight.grad is not None
        assert linear.weight.grad is not None
        assert torch.allclose(layer.weight.grad, linear.weight.grad.T, atol=1e-5)


def test_weights_of_generated_rows_have_a_gradient() -> None:
    items, weights, _ = rows_and_dense()
    layer = ItemSum(7, 4)
    layer(items, weights.requires_grad_()).sum().backward()
    assert weights.grad is not None
    assert torch.allclose(weights.grad, layer.weight.detach().sum(1)[items], atol=1e-6)


def test_padding_keeps_rows_of_all_lengths_empty_ones_included() -> None:
    bags = Bags(torch.tensor([5, 2, 6]), torch.tensor([0, 0, 2, 3]), torch.tensor([1.0, 2.0, 3.0]))
    items, weights = padded(bags)
    assert items.tolist() == [[0, 0], [5, 2], [6, 0], [0, 0]]
    assert weights.tolist() == [[0, 0], [1, 2], [3, 0], [0, 0]]
    assert items.dtype == torch.int64


def test_padding_is_taken_away_again() -> None:
    bags = Bags(torch.tensor([5, 2, 6, 0]), torch.tensor([0, 0, 2, 3, 4]), torch.tensor([1.0, 2.0, 3.0, 0.5]))
    for there, back in zip(bags, unpadded(*padded(bags)), strict=True):
        assert torch.equal(there, back)


@pytest.mark.parametrize("shape", [(0, 1), (1, 1), (9, 30), (64, 200)])
def test_sums_and_their_gradient_are_those_of_an_embedding_bag_with_its_padding(shape: tuple[int, int]) -> None:
    chance = torch.Generator().manual_seed(0)
    items = torch.stack(
        [torch.randperm(300, generator=chance)[: shape[1]] for _ in range(shape[0])] or [torch.zeros(1)]
    )
    items = items[: shape[0]].long()
    weights = torch.rand(shape, generator=chance) * (torch.rand(shape, generator=chance) < 0.1)
    layer = ItemSum(300, 16, bias=False).double()
    outward = torch.randn(shape[0], 16, generator=chance, dtype=torch.float64)
    ours = layer(items, weights)
    theirs = F.embedding_bag(items, layer.weight, mode="sum", per_sample_weights=weights.double())
    found, expected = (torch.autograd.grad(sums, layer.weight, outward)[0] for sums in (ours, theirs))
    assert torch.allclose(ours, theirs, atol=1e-12)
    assert torch.allclose(found, expected, atol=1e-12)


def test_padding_costs_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch is as wide as its longest row, which is several times the mean."""
    seen: list[int] = []
    times = Bags.times
    monkeypatch.setattr(Bags, "times", lambda bags, table: seen.append(len(bags.items)) or times(bags, table))
    items, weights, dense = rows_and_dense()
    ItemSum(7, 4)(items, weights)
    assert seen == [int((dense != 0).sum())]


def test_nothing_but_empty_rows_is_padded_to_a_length_of_one() -> None:
    nothing = Bags(torch.zeros(0, dtype=torch.int64), torch.tensor([0, 0]), torch.zeros(0))
    items, weights = padded(nothing)
    assert items.tolist() == weights.tolist() == [[0], [0]]
    assert torch.equal(ItemSum(7, 4)(items, weights), torch.zeros(2, 4))
    nobody = padded(Bags(nothing.items, nothing.offsets[:0], nothing.weights))
    assert ItemSum(7, 4)(*nobody).shape == (0, 4)


def test_norms_are_those_of_the_gradients_themselves() -> None:
    """A user's gradient of the table is the outer product of row and outward gradient, that of the bias the latter."""
    items, weights, dense = rows_and_dense()
    layer, outward = ItemSum(7, 4), torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
    norms = layer.user_norms([items, weights], outward)
    gradients = {layer.weight: dense[:, :, None] * outward[:, None], layer.bias: outward}
    assert set(norms) == set(gradients) == set(layer.parameters())
    for parameter, norm in norms.items():
        assert torch.allclose(norm, gradients[parameter].flatten(1).double().norm(dim=1), rtol=1e-6)


def test_an_item_twice_in_a_row_is_refused_and_padding_is_not_one() -> None:
    layer, outward = ItemSum(7, 4), torch.ones(2, 4)
    items = torch.tensor([[3, 3, 0], [0, 0, 0]])
    fine = torch.tensor([[1.0, 0.0, 1.0], [2.0, 0.0, 0.0]])
    assert layer.user_norms([items, fine], outward)[layer.weight].tolist() == pytest.approx([8**0.5, 4.0])
    with pytest.raises(ValueError, match="twice"):
        layer.user_norms([items, torch.ones(2, 3)], outward)
