"""Norms of users' gradients by layer, against a loop over users; nothing is registered with Opacus."""

from collections.abc import Callable, Sequence

import pytest
import torch
from opacus.grad_sample import GradSampleHooks, GradSampleHooksFastGradientClipping
from opacus.layers.dp_rnn import RNNLinear
from torch import Tensor, nn

from tests.zoo.privacy.training.critics import USERS, Losses, SmallCritic, some_rows
from zoo.nn.item_sum import ItemSum
from zoo.privacy.training.clipped_sum import check_module, clipped_sum
from zoo.privacy.training.user_norms import _LAYERS, has_user_norms, user_norms

Inputs = Callable[[], list[Tensor]]


def floats(*shape: int) -> Inputs:
    return lambda: [torch.randn(*shape, generator=torch.Generator().manual_seed(1))]


def ids(*shape: int) -> Inputs:
    return lambda: [torch.randint(4, shape, generator=torch.Generator().manual_seed(1))]


#: A layer of each kind that is accepted, with inputs of six users.
LAYERS: list[tuple[nn.Module, Inputs]] = [
    (nn.Linear(5, 3), floats(6, 5)),
    (nn.Linear(5, 3, bias=False), floats(6, 4, 5)),
    (nn.Linear(5, 3), floats(6, 2, 4, 5)),
    (nn.LayerNorm(5), floats(6, 5)),
    (nn.LayerNorm(5), floats(6, 4, 5)),
    (nn.RMSNorm(5), floats(6, 4, 5)),
    (nn.GroupNorm(2, 4), floats(6, 4, 3)),
    (nn.InstanceNorm1d(4, affine=True), floats(6, 4, 5)),
    (nn.InstanceNorm2d(4, affine=True), floats(6, 4, 3, 2)),
    (nn.InstanceNorm3d(2, affine=True), floats(6, 2, 2, 3, 2)),
    (nn.Conv1d(4, 6, 3, stride=2, dilation=2, groups=2, padding=1), floats(6, 4, 9)),
    (nn.Conv2d(4, 6, (2, 3), padding="same"), floats(6, 4, 4, 3)),
    (nn.Conv3d(2, 3, 2, bias=False), floats(6, 2, 3, 3, 2)),
    (nn.Embedding(4, 3), ids(6)),
    (nn.Embedding(4, 3), ids(6, 9)),
    (nn.Embedding(4, 3), ids(6, 2, 5)),
    (ItemSum(4, 3), lambda: [torch.tensor([[0, 3], [1, 0]] * 3), torch.tensor([[2.0, 1.0], [5.0, 0.0]] * 3)]),
]


@pytest.mark.parametrize(("layer", "inputs"), LAYERS, ids=lambda part: str(part) if isinstance(part, nn.Module) else "")
def test_norms_are_those_of_a_loop_over_users(layer: nn.Module, inputs: Inputs) -> None:
    given = inputs()
    out = layer(*given)
    outward = torch.randn(out.shape, generator=torch.Generator().manual_seed(2))
    norms = user_norms(layer, given, outward)
    assert has_user_norms(layer)
    assert set(norms) == set(layer.parameters())
    for user in range(6):
        loss = (layer(*(tensor[user : user + 1] for tensor in given)) * outward[user]).sum()
        for parameter, gradient in zip(
            layer.parameters(), torch.autograd.grad(loss, list(layer.parameters())), strict=True
        ):
            assert float(norms[parameter][user]) == pytest.approx(float(gradient.norm()), rel=1e-5)


@pytest.mark.parametrize("layer", [nn.Bilinear(2, 2, 2), nn.EmbeddingBag(4, 3, mode="sum"), RNNLinear(2, 2)])
def test_a_layer_whose_norm_is_unknown_or_wrong_is_refused(layer: nn.Module) -> None:
    """Opacus has norms of the last two: of a bag's they are too small where an id repeats, and of the other nobody tried them."""
    with pytest.raises(ValueError, match="The norm of a user's gradient is unknown for the module"):
        check_module(layer)


def test_each_layer_that_is_accepted_is_compared_with_a_loop() -> None:
    assert {type(layer) for layer, _ in LAYERS} == {*_LAYERS, ItemSum}


class OwnNorms(nn.Conv1d):
    """Wraps around, and computes its norms."""

    def user_norms(self, inputs: Sequence[Tensor], gradients: Tensor) -> dict[nn.Parameter, Tensor]:
        return {}


@pytest.mark.parametrize(
    ("layer", "setting"),
    [
        *(
            (nn.Conv1d(1, 1, 3, padding=1, padding_mode=mode), f"padding_mode='{mode}'")
            for mode in ("circular", "reflect")
        ),
        (nn.Conv2d(1, 1, 3, padding=1, padding_mode="replicate"), "padding_mode='replicate'"),
        (nn.Embedding(4, 3, max_norm=1.0), "max_norm=1.0"),
        (nn.Embedding(4, 3, scale_grad_by_freq=True), "scale_grad_by_freq=True"),
        (nn.Embedding(4, 3, padding_idx=0), "padding_idx=0"),
        (nn.Embedding(4, 3, sparse=True), "sparse=True"),
        (nn.LayerNorm(3, bias=False), "bias=False"),
    ],
)
def test_a_setting_that_opacus_ignores_is_refused_by_name(layer: nn.Module, setting: str) -> None:
    with pytest.raises(ValueError, match=f"unknown for the module .* with {setting}"):
        check_module(layer)
    assert has_user_norms(OwnNorms(1, 1, 3, padding_mode="circular"))
    assert has_user_norms(nn.Conv1d(1, 1, 3, padding=1))


@pytest.mark.parametrize("more", [0, 6, 40])  # the rule for long sequences, and the one for short ones
def test_norms_of_sequences_whose_gradients_nearly_cancel_are_exact_for_all_users(more: int) -> None:
    generator, layer = torch.Generator().manual_seed(0), nn.Linear(6 + more, 3 + more)
    first, gradients = (
        1e4 * torch.randn(24, 1, 6 + more, generator=generator),
        torch.randn(24, 1, 3 + more, generator=generator),
    )
    rows = torch.cat([first, first + 0.1 * torch.randn(24, 1, 6 + more, generator=generator)], dim=1)
    gradients = torch.cat([gradients, -gradients], dim=1)
    exact = torch.einsum("nki,nkj->nij", rows.double(), gradients.double()).flatten(1).norm(dim=1)
    assert torch.allclose(user_norms(layer, [rows], gradients)[layer.weight].double(), exact, rtol=1e-4, atol=0)


def test_nothing_is_registered_with_opacus() -> None:
    """Its tables belong to the process: another private training in it must find them as they were."""
    tables = [
        GradSampleHooks.GRAD_SAMPLERS,
        *(getattr(GradSampleHooksFastGradientClipping, name) for name in ("GRAD_SAMPLERS", "NORM_SAMPLERS")),
    ]
    before = [dict(table) for table in tables]
    torch.manual_seed(0)
    losses = Losses(SmallCritic(), some_rows())
    clipped_sum(losses.critic, losses, torch.arange(USERS), 1.0, check=True)
    assert [dict(table) for table in tables] == before
    assert not any(ItemSum in table for table in tables)
