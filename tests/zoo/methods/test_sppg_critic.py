"""Critics of rows: what a score is, that no user's depends on another's row, and the bound."""

import pytest
import torch
from torch import Tensor

from zoo.data.rows import SparseRows
from zoo.methods.sppg import Conditioning, Critic
from zoo.nn.item_sum import padded

ITEMS = 7
BOTH = pytest.mark.parametrize("conditioning", ["sum", "product"])


def critic(
    dims: tuple[int, ...] = (6, 5, 4), dropout: float = 0.0, conditioning: Conditioning = "sum", items: int = ITEMS
) -> Critic:
    torch.manual_seed(0)
    return Critic(items, 3, dims, dropout, conditioning)


def rows() -> tuple[SparseRows, Tensor]:
    """Sparse and dense; the second is empty."""
    dense = torch.tensor([[1.0, 0, 0, 1, 0, 0, 1], [0] * ITEMS, [0, 1, 0, 0, 0, 0, 0], [0, 0, 1, 1, 1, 0, 0]])
    starts = torch.tensor([0, 3, 3, 4, 7])
    return SparseRows(starts, dense.nonzero()[:, 1], dense[dense != 0], ITEMS), dense


def test_a_score_is_the_mean_of_a_perceptron_on_row_and_condition_side_by_side() -> None:
    made, (_, dense), conditions = critic(), rows(), torch.randn(4, 3)
    hidden = torch.cat([dense, conditions], dim=1) @ torch.cat([made.first.weight, made.condition.weight.T])
    assert made.first.bias is not None
    hidden = (hidden + made.first.bias).relu()
    (second, second_bias), (third, third_bias) = (list(made.rest[layer].parameters()) for layer in (1, 3))
    expected = ((hidden @ second.T + second_bias).relu() @ third.T + third_bias).mean(dim=1)
    assert len(made.rest) == 4
    assert torch.allclose(made.score_rows(dense, conditions), expected, atol=1e-6)


def test_with_one_layer_a_product_is_the_inner_product_of_row_and_condition() -> None:
    """By brute force over users, items, conditions and their two constants."""
    made, (_, dense), conditions = critic(dims=(5,), conditioning="product"), rows(), torch.randn(4, 3)
    assert made.first.bias is not None
    torch.nn.init.normal_(made.first.bias)
    scores = made.score_rows(dense, conditions)
    for user in range(4):
        total = 0.0
        for k in range(5):
            row = made.first.bias[k] + sum(dense[user, item] * made.first.weight[item, k] for item in range(ITEMS))
            condition = made.condition.bias[k]
            condition = condition + sum(made.condition.weight[k, d] * conditions[user, d] for d in range(3))
            total += float((row * condition).detach())
        assert float(scores[user].detach()) == pytest.approx(total, abs=1e-5)


def test_a_product_of_several_layers_sums_what_the_last_makes_of_the_product() -> None:
    made, (_, dense), conditions = critic(dims=(5, 4), conditioning="product"), rows(), torch.randn(4, 3)
    hidden = ((dense @ made.first.weight + made.first.bias) * made.condition(conditions)).relu()
    last = made.rest[1]
    assert isinstance(last, torch.nn.Linear)
    expected = (hidden @ last.weight.T + last.bias).sum(dim=1)
    assert torch.allclose(made.score_rows(dense, conditions), expected, atol=1e-6)


def test_a_product_of_one_layer_tells_rows_by_their_mean_alone_and_a_perceptron_does_not() -> None:
    """A row and its opposite against halves, which are their mean: ReLU bends between them, whatever the generator does."""
    real = torch.bernoulli(torch.full((50, 30), 0.5), generator=torch.Generator().manual_seed(1))
    conditions = torch.randn(1, 3, generator=torch.Generator().manual_seed(2)).expand(50, 3)
    gaps = {}
    for conditioning, dims in (("product", (8,)), ("sum", (64, 1))):
        made = critic(dims, conditioning=conditioning, items=30)  # type: ignore[arg-type]
        with torch.no_grad():
            for parameter in made.rest.parameters():
                parameter.abs_()
            halves = made.score_rows(torch.full((50, 30), 0.5), conditions)
            sums = made.score_rows(real, conditions) + made.score_rows(1 - real, conditions)
            gaps[conditioning] = sums / 2 - halves
    assert torch.allclose(gaps["product"], torch.zeros(50), atol=1e-5)
    assert float(gaps["sum"].min()) > 1e-2


@BOTH
def test_a_sparse_row_scores_what_the_dense_one_does(conditioning: Conditioning) -> None:
    made, (sparse, dense), conditions = critic(conditioning=conditioning), rows(), torch.randn(4, 3)
    users = torch.tensor([3, 1, 0, 2])
    items, weights = padded(sparse.bags(users))
    assert torch.allclose(made(items, weights, conditions), made.score_rows(dense[users], conditions), atol=1e-6)


def test_one_layer_is_enough_and_its_outputs_are_averaged() -> None:
    made, (_, dense), conditions = critic(dims=(5,)), rows(), torch.randn(4, 3)
    expected = (made.first.dense(dense) + made.condition(conditions)).mean(dim=1)
    assert torch.equal(made.score_rows(dense, conditions), expected)


@BOTH
def test_a_score_depends_on_its_own_user_alone(conditioning: Conditioning) -> None:
    made, (_, dense), conditions = critic(conditioning=conditioning), rows(), torch.randn(4, 3)
    dense = dense.clone().requires_grad_()
    gradient, others = torch.autograd.grad(made.score_rows(dense, conditions.requires_grad_())[2], [dense, conditions])
    for found in (gradient, others):
        assert found[2].any()
        assert not found[[0, 1, 3]].any()


def test_dropout_leaves_out_of_the_condition_and_only_while_training() -> None:
    made, (_, dense), conditions = critic(dropout=0.5), rows(), torch.ones(4, 3)
    scores = {float(made.score_rows(dense, conditions)[1].detach()) for _ in range(40)}
    assert 1 < len(scores) <= 2**3, "three numbers, each there or not"
    made.eval()
    assert torch.equal(made.score_rows(dense, conditions), made.score_rows(dense, conditions))


def test_the_bound_cuts_every_parameter_and_no_more_than_it_must() -> None:
    made = critic()
    before = {name: parameter.detach().clone() for name, parameter in made.named_parameters()}
    assert max(float(values.abs().max()) for values in before.values()) > 0.2
    made.bound(0.2)
    for name, parameter in made.named_parameters():
        assert torch.equal(parameter, before[name].clamp(-0.2, 0.2)), name
