"""Readings of PPGenCDR that protect nobody: the examples that refute them, exactly, at any amount of noise."""

import pytest
import torch
from torch import Tensor, nn

from tests.zoo.privacy.training.critics import ITEMS, USERS, Losses, SmallCritic, bare_plan, looped, norm_of, some_rows
from zoo.data.rows import SparseRows
from zoo.nn.item_sum import ItemSum, padded
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.privacy.training.published_readings import FirstLayerNoise, UpstreamNoise

EVERYBODY, NOBODY = torch.arange(USERS), torch.arange(0)
SIZE = 20.0
SIGMAS = [1.0, 1e3, 1e6]


class TwoLayers(nn.Module):
    """``v relu(W r)``, of which v is 0."""

    def __init__(self) -> None:
        super().__init__()
        self.first = ItemSum(ITEMS, 8, bias=False)
        self.second = nn.Linear(8, 1, bias=False)
        nn.init.zeros_(self.second.weight)

    def forward(self, items: Tensor, weights: Tensor) -> Tensor:
        """Scores, shape ``(batch,)``."""
        out: Tensor = self.second(self.first(items, weights).relu())
        return out.squeeze(1)

    def score_rows(self, rows: Tensor) -> Tensor:
        """The same of dense rows."""
        out: Tensor = self.second(self.first.dense(rows).relu())
        return out.squeeze(1)


def rows_of(dense: Tensor) -> SparseRows:
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), (dense != 0).sum(1).cumsum(0)])
    return SparseRows(starts, dense.nonzero()[:, 1], dense[dense != 0], dense.shape[1])


def first_layer_noise(critic: TwoLayers | SmallCritic, sigma: float, clip: float = 1.0) -> FirstLayerNoise:
    others = [parameter for name, parameter in critic.named_parameters() if not name.startswith("first")]
    return FirstLayerNoise(others, PrivateGradient(critic, bare_plan(sigma, clip), SIZE, NoiseSource.os()))


@pytest.mark.parametrize("sigma", SIGMAS)
def test_noise_on_the_first_layer_alone_tells_one_user_from_nobody_with_certainty(sigma: float) -> None:
    """While nobody has rated, v stays 0 and so does what reaches the generator; one user with ratings, and neither does.

    The user's row moves at least three of v's numbers, before any noise does. None of them is seen in what reaches the
    generator only if noise leaves all three of them off in each of twelve rows: with probability below 2^-36.
    """
    arrived = {}
    for somebody in (False, True):
        torch.manual_seed(0)
        critic, dense = TwoLayers(), torch.zeros(USERS, ITEMS)
        dense[7, [2, 5]] = float(somebody)
        rows = rows_of(dense)
        step = first_layer_noise(critic, sigma)
        step(EVERYBODY, lambda users, critic=critic, rows=rows: -critic(*padded(rows.bags(users))))  # type: ignore[misc]
        critic.score_rows(torch.zeros(4, ITEMS)).mean().backward()  # the generator's rows are empty too
        assert critic.second.weight.grad is not None
        assert int(critic.second.weight.grad.count_nonzero()) >= 3 * somebody
        assert bool(critic.second.weight.grad.any()) == somebody
        with torch.no_grad():
            for parameter in critic.parameters():
                assert parameter.grad is not None
                parameter -= 0.01 * parameter.grad
        assert critic.first.weight.grad is not None
        assert critic.first.weight.grad.count_nonzero() > 0.9 * critic.first.weight.numel(), "noise there is"
        made = torch.eye(ITEMS, requires_grad=True)
        (gradient,) = torch.autograd.grad(critic.score_rows(made).sum(), made)
        arrived[somebody] = bool(gradient.any())
    assert arrived == {False: False, True: True}


def test_noise_on_all_layers_hides_that_user() -> None:
    """The same example where everything takes noise: v moves whether or not anybody has rated."""
    torch.manual_seed(0)
    critic, rows = TwoLayers(), rows_of(torch.zeros(USERS, ITEMS))
    PrivateGradient(critic, bare_plan(1.0, clip=1.0), SIZE, NoiseSource.os())(
        EVERYBODY, lambda users: -critic(*padded(rows.bags(users)))
    )
    assert critic.second.weight.grad is not None
    assert critic.second.weight.grad.all()


def test_other_layers_have_the_ordinary_gradient_and_the_first_one_a_private_one() -> None:
    torch.manual_seed(0)
    losses = Losses(SmallCritic(), some_rows())
    critic = losses.critic
    assert isinstance(critic, SmallCritic)
    ordinary = dict(
        zip(
            dict(critic.named_parameters()),
            torch.autograd.grad(losses(EVERYBODY).sum() / SIZE, list(critic.parameters())),
            strict=True,
        )
    )
    first_layer_noise(critic, sigma=0.0, clip=0.4)(EVERYBODY, losses)
    own = [
        {name: part for name, part in user.items() if name.startswith("first")} for user in looped(losses, EVERYBODY)
    ]
    clipped = {
        name: torch.stack([part[name] * min(1, 0.4 / max(norm_of(part), 1e-12)) for part in own]) for name in own[0]
    }
    for name, parameter in critic.named_parameters():
        assert parameter.grad is not None
        expected = clipped[name].sum(0) / SIZE if name in clipped else ordinary[name]
        assert torch.allclose(parameter.grad.double(), expected.double(), atol=1e-5), name
        assert parameter.requires_grad


def test_an_empty_sample_leaves_noise_in_the_first_layer_and_nothing_in_the_others() -> None:
    critic = SmallCritic()
    first_layer_noise(critic, sigma=1.0)(NOBODY, Losses(critic, some_rows()))
    for name, parameter in critic.named_parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.any()) == name.startswith("first")


def upstream_noise(critic: SmallCritic, sigma: float, clip: float = 1.0) -> UpstreamNoise:
    return UpstreamNoise(critic, critic.first, bare_plan(sigma, clip), SIZE, NoiseSource.os())


@pytest.mark.parametrize("sigma", SIGMAS)
def test_upstream_noise_shows_which_items_nobody_rated(sigma: float) -> None:
    """A single row, then one user among others who share its items: exact zeros elsewhere, noise in its columns."""
    dense = torch.zeros(USERS, ITEMS)
    dense[:, :6] = torch.tensor([0.0, 1, 0, 0, 1, 0])
    for users in (torch.tensor([3]), EVERYBODY):
        torch.manual_seed(0)
        critic = SmallCritic()
        upstream_noise(critic, sigma)(users, Losses(critic, rows_of(dense)))
        assert critic.first.weight.grad is not None
        rated = critic.first.weight.grad.any(dim=1)
        assert rated.nonzero().squeeze(1).tolist() == [1, 4]
        assert [column for column in range(6) if not rated[column]] == [0, 2, 3, 5]
        assert critic.first.weight.grad[rated].all()


def test_the_upstream_gradient_is_clipped_user_by_user_and_the_rest_is_ordinary() -> None:
    torch.manual_seed(0)
    losses = Losses(SmallCritic(), some_rows())
    critic = losses.critic
    assert isinstance(critic, SmallCritic)
    clip, users = 0.4, EVERYBODY[::2]
    ordinary = torch.autograd.grad(losses(users).sum() / SIZE, [*critic.rest.parameters(), critic.condition.weight])
    upstream_noise(critic, sigma=0.0, clip=clip)(users, losses)
    # One user at a time: the gradient of the bias is what comes back to that user's outputs.
    bias, table = torch.zeros(6), torch.zeros(ITEMS, 6)
    rows = losses.rows.bags(users)
    assert critic.first.bias is not None
    for place, user in enumerate(users):
        (back,) = torch.autograd.grad(losses(user[None]).sum(), critic.first.bias)
        back = back * min(1.0, clip / max(float(back.norm()), 1e-12))
        bias += back / SIZE
        row = torch.zeros(ITEMS)
        end = int(rows.offsets[place + 1]) if place + 1 < len(users) else len(rows.items)
        own = slice(int(rows.offsets[place]), end)
        row[rows.items[own].long()] = rows.weights[own]
        table += torch.outer(row, back) / SIZE
    assert critic.first.weight.grad is not None
    assert critic.first.bias.grad is not None
    assert torch.allclose(critic.first.bias.grad, bias, atol=1e-6)
    assert torch.allclose(critic.first.weight.grad, table, atol=1e-6)
    for parameter, expected in zip([*critic.rest.parameters(), critic.condition.weight], ordinary, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, expected, atol=1e-6)


def test_a_step_leaves_no_hook_and_an_empty_one_no_gradient() -> None:
    torch.manual_seed(0)
    losses = Losses(SmallCritic(), some_rows())
    critic = losses.critic
    assert isinstance(critic, SmallCritic)
    step = upstream_noise(critic, sigma=1.0)
    step(EVERYBODY, losses)
    step(NOBODY, losses)
    assert losses.calls == 1
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in critic.parameters())
    first, second = (torch.autograd.grad(losses(EVERYBODY).sum(), critic.first.weight)[0] for _ in range(2))
    assert torch.equal(first, second), "no noise outside of a step"
