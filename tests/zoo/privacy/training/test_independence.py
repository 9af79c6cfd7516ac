"""Losses in which users look at each other, by ways that no gradient goes, and honest ones beside them."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.zoo.privacy.training.critics import ITEMS, USERS, Losses, SmallCritic, bare_plan, some_rows
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.clipped_sum import clipped_sum
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.privacy.training.random_draws import RandomDraws

EVERYBODY = torch.arange(USERS)
Loss = Callable[[Tensor, Tensor], Tensor]
"""Scores (batch,) and users (batch,) in, losses out."""


def scaled_by(others: Callable[[Tensor], Tensor]) -> Loss:
    """The gradient of a user's own score alone, as large as a number of others says."""
    return lambda scores, _: scores * (1 + others(scores.detach()))


def slope_only(scores: Tensor, _: Tensor) -> Tensor:
    """The losses are the users' own, their gradients are not."""
    return scores + (scores - scores.detach()) * scores.detach().mean()


class Remembers:
    """Losses less a running mean of all scores that were seen so far."""

    def __init__(self) -> None:
        self.mean = 0.0

    def __call__(self, scores: Tensor, _: Tensor) -> Tensor:
        before, self.mean = self.mean, 0.9 * self.mean + 0.1 * float(scores.detach().mean())
        return (scores - before).square()


CHEATS: dict[str, Callable[[], Loss]] = {
    "mean": lambda: lambda scores, _: (scores - scores.detach().mean()).square(),
    "standard deviation": lambda: scaled_by(lambda scores: scores.std()),
    "neighbour": lambda: scaled_by(lambda scores: scores.roll(1)),
    "rank": lambda: scaled_by(lambda scores: scores.argsort().argsort().float()),
    "the largest": lambda: scaled_by(lambda scores: scores.max()),
    "gradient alone": lambda: slope_only,
    "memory": Remembers,
}


def critic_and_losses(loss: Loss) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
    torch.manual_seed(0)
    scores = Losses(SmallCritic(), some_rows())
    return scores.critic, lambda users: loss(scores(users), users)


OTHERS = (
    "(batch's other users|sample's size or order)"  # who is left out of a smaller sample may be the one that counts
)


def refused_within(
    calls: int, module: nn.Module, losses: Callable[[Tensor], Tensor], users: Tensor, match: str = OTHERS
) -> None:
    def steps() -> None:
        for _ in range(calls):
            clipped_sum(module, losses, users, 1.0, check=True, seed=1)

    with pytest.raises(RuntimeError, match=f"A user's loss changes with the {match}"):
        steps()


@pytest.mark.parametrize("name", CHEATS)
def test_losses_that_look_at_others_are_refused_though_no_gradient_goes_there(name: str) -> None:
    # The largest of all is among those that are replaced in half of the calls, so 40 miss it with probability 1e-12.
    module, losses = critic_and_losses(CHEATS[name]())
    refused_within(40, module, losses, EVERYBODY, OTHERS if name == "the largest" else "batch's other users")


def test_one_user_who_looks_at_one_other_is_found() -> None:
    # In a quarter of the calls and more: 100 calls miss it with probability below 1e-12.
    def spies(scores: Tensor, users: Tensor) -> Tensor:
        seen = scores.detach()[users == 7].sum()
        return torch.where(users == 3, scores * (1 + seen), scores)

    module, losses = critic_and_losses(spies)
    refused_within(100, module, losses, EVERYBODY)
    refused_within(50, module, losses, torch.tensor([3, 7]))


@pytest.mark.thorough
@pytest.mark.parametrize("scale", [1.0, 1e4, 1e6, 1e8])
def test_large_losses_of_others_do_not_hide_it(scale: float) -> None:
    """Losses of even users are this many times as large; one odd user's gradient, not the loss, turns beside user 7."""

    def spies(scores: Tensor, users: Tensor) -> Tensor:
        turned = torch.where((users == 3) & (users == 7).any(), 2 * scores.detach() - scores, scores)
        return torch.where(users % 2 == 0, scale * scores, turned)

    module, losses = critic_and_losses(spies)
    refused_within(100, module, losses, EVERYBODY)
    module, honest = critic_and_losses(lambda scores, users: torch.where(users % 2 == 0, scale * scores, scores))
    for _ in range(20):
        clipped_sum(module, honest, EVERYBODY, 1.0, check=True)


def test_inputs_that_hold_others_rows_are_found_where_no_loss_shows_them() -> None:
    """A layer that is still 0 says the same of all rows; its gradient is the row."""
    layer, rows = nn.Linear(ITEMS, 1), torch.rand(8, ITEMS, generator=torch.Generator().manual_seed(0))
    nn.init.zeros_(layer.weight)
    refused_within(1, layer, lambda users: layer(rows[users] - rows[users].mean(0))[:, 0], torch.arange(8))


SIZES: dict[str, Loss] = {
    "mean": lambda scores, users: scores.square() / len(users),
    "what is the same at half of the size": lambda scores, users: (
        scores * (2 + math.sin(2 * math.pi * math.log2(len(users))))
    ),
    "mean, by the sample itself": lambda scores, _: scores.square() / len(EVERYBODY),
    "size of large samples": lambda scores, users: scores.square() / max(len(users), 30),
    "first place": lambda scores, users: scores.square() * (1 + 9 * (torch.arange(len(users)) == 0)),
    "place": lambda scores, users: scores * torch.arange(len(users)),
    "numbers of places": lambda scores, users: scores * torch.rand(40, generator=torch.Generator())[: len(users)],
    "numbers of places, beside dropout": lambda scores, users: (
        torch.dropout(scores, 0.1, True) * torch.rand(len(users), generator=torch.Generator())
    ),
    "mean, beside dropout": lambda scores, users: nn.functional.dropout(scores, 0.1).square() / len(users),
    "mean, of random items": lambda s, users: (s * torch.randint(5, (3, len(users), 2)).sum((0, 2))) / len(users),
}


@pytest.mark.parametrize("name", SIZES)
def test_losses_that_depend_on_size_or_place_are_refused(name: str) -> None:
    # The first user is among the others, in another place, in a third of the calls, and another number than half in six of
    # seven: 60 calls miss either with probability below 1e-9.
    module, losses = critic_and_losses(SIZES[name])
    sometimes = name in ("first place", "what is the same at half of the size")
    refused_within(60 if sometimes else 1, module, losses, EVERYBODY, "sample's size or order")
    if name not in ("size of large samples", "mean, by the sample itself", "what is the same at half of the size"):
        refused_within(1, module, losses, EVERYBODY[3:4], "sample's size or order")
    assert torch.equal(EVERYBODY, torch.arange(USERS))


def test_a_loss_that_ignores_its_argument_is_refused() -> None:
    module, losses = critic_and_losses(lambda scores, _: (scores - scores.detach().mean()).square())
    refused_within(1, module, lambda _: losses(EVERYBODY), EVERYBODY)
    with pytest.raises(ValueError, match=r"shape \(40,\) for \d\d users\. Use its argument"):
        clipped_sum(module, lambda _: losses(torch.arange(USERS)), EVERYBODY, 1.0, check=True)


def test_gradients_that_are_rounding_beside_the_clip_are_not_refused() -> None:
    module, losses = critic_and_losses(lambda scores, users: 1e-9 * scores / len(users))
    clipped_sum(module, losses, EVERYBODY, 1.0, check=True)


def test_draws_without_a_row_per_user_are_warned_of() -> None:
    module, losses = critic_and_losses(lambda scores, users: scores * torch.rand(3 * len(users)).view(3, -1).sum(0))
    with pytest.warns(UserWarning, match="Size and order are not checked"):
        clipped_sum(module, losses, EVERYBODY, 1.0, check=True)


@pytest.mark.parametrize("step", [2, 5])
def test_every_step_is_looked_at(step: int) -> None:
    torch.manual_seed(0)
    scores = Losses(SmallCritic(), some_rows())
    gradient = PrivateGradient(scores.critic, bare_plan(1.0, clip=1.0), 20.0, NoiseSource.os())

    def later(users: Tensor) -> Tensor:
        found = scores(users)
        return found - found.detach().mean() * found if gradient.steps_taken >= step else found

    for _ in range(step - 1):
        gradient(EVERYBODY, later)
    with pytest.raises(RuntimeError, match="changes with the batch's other users"):
        gradient(EVERYBODY, later)
    assert gradient.steps_taken == step, "it counts: the error may tell something of the data"


class Leaves(nn.Module):
    """Leaves out numbers at random, and has users without data."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(ITEMS, 5), nn.Dropout(0.5), nn.Linear(5, 1))
        self.rows = torch.rand(USERS, ITEMS) * (torch.arange(USERS) % 3 > 0)[:, None]

    def losses(self, users: Tensor) -> Tensor:
        found: Tensor = self.layers(self.rows[users])[:, 0].square()
        return found * (self.rows[users].sum(1) > 0)


@pytest.mark.thorough
def test_honest_losses_pass_and_nothing_moves() -> None:
    torch.manual_seed(0)
    module, scores = Leaves(), Losses(SmallCritic(norm=True), some_rows())

    def drawn(users: Tensor) -> Tensor:
        shared, own = torch.randn(2), torch.randint(3, (len(users), 2))
        return torch.native_dropout(scores(users) * (own * shared).sum(1), 0.3, True)[0]  # as on a GPU

    for losses, critic in ((module.losses, module), (scores, scores.critic), (drawn, scores.critic)):
        for size in (1, 2, 3, USERS):
            for _ in range(20):
                before = torch.get_rng_state()
                checked = clipped_sum(critic, losses, EVERYBODY[-size:], 1.0, check=True)
                plain = clipped_sum(critic, losses, EVERYBODY[-size:], 1.0)
                assert torch.equal(torch.get_rng_state(), before), "the global random stream is neither read nor moved"
                assert all(torch.equal(checked[name], total) for name, total in plain.items())
    draws = []
    for seed in (1, 1, 1 + 2**32, 1 + 2**96):
        with RandomDraws(seed, torch.device("cpu")).once():
            draws.append(torch.rand(4))
    equal = [torch.equal(one, other) for one in draws for other in draws]
    assert sum(equal) == 6, "all bits of a seed count; with 32 of them a seed can be found by trying"
