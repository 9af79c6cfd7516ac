"""The private step: what it adds, what it counts and what it refuses. Seeds are fixed where a test is statistical."""

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import seed_everything
from scipy.stats import chi2
from torch import Tensor, nn

from tests.zoo.privacy.training.critics import HUGE, ITEMS, USERS, Losses, SmallCritic, bare_plan, some_rows
from zoo.nn.item_sum import padded
from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import PoissonSampledGaussianEvent, SelfComposedEvent
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.clipped_sum import clipped_sum
from zoo.privacy.training.dp_sgd import TrainingPlan
from zoo.privacy.training.noisy_steps import BudgetSpentError
from zoo.privacy.training.poisson import PoissonSampler
from zoo.privacy.training.private_gradient import PrivateGradient

EVERYBODY = torch.arange(USERS)
NOBODY = torch.arange(0)
SIZE = 20.0


def made(plan: TrainingPlan, seed: int | None = None) -> tuple[PrivateGradient, Losses]:
    torch.manual_seed(0)
    losses = Losses(SmallCritic(), some_rows())
    return PrivateGradient(losses.critic, plan, SIZE, NoiseSource.of(seed)), losses


def filled(gradient: PrivateGradient) -> Tensor:
    """All of ``.grad``, in one row."""
    parts = [parameter.grad for parameter in gradient.module.parameters()]
    return torch.cat([part.flatten() for part in parts if part is not None])


def test_it_is_the_clipped_sum_and_noise_over_the_expected_size() -> None:
    plan = bare_plan(2.0, clip=0.3)
    gradient, losses = made(plan, seed=1)
    sums = torch.cat([part.flatten() for part in clipped_sum(losses.critic, losses, EVERYBODY, 0.3).values()])
    gradient(EVERYBODY, losses)
    with_users = filled(gradient)
    alone, _ = made(plan, seed=1)
    alone(NOBODY, losses)
    # Both are rounded to a lattice of at most a thousandth of the noise.
    assert torch.allclose(with_users - filled(alone), sums / SIZE, atol=1.1 * 0.6 / 1024 / SIZE)


def test_an_infinitesimal_clip_freezes_and_huge_noise_swamps() -> None:
    gradient, losses = made(bare_plan(1.0, clip=1e-9))
    gradient(EVERYBODY, losses)
    assert float(filled(gradient).abs().max()) < 1e-8
    gradient, losses = made(bare_plan(1000.0, clip=1.0), seed=0)
    gradient(EVERYBODY, losses)
    signal = torch.cat([part.flatten() for part in clipped_sum(losses.critic, losses, EVERYBODY, 1.0).values()])
    assert float(filled(gradient).norm()) > 100 * float(signal.norm()) / SIZE


def test_an_empty_sample_makes_noise_and_reads_nobody() -> None:
    gradient, losses = made(bare_plan(1.0, clip=1.0))
    gradient(NOBODY, losses)
    assert losses.calls == 0
    assert gradient.steps_taken == 1
    assert filled(gradient).count_nonzero() > 0.9 * filled(gradient).numel()


def test_noise_is_gaussian_of_the_planned_size_and_independent() -> None:
    # Chi-square interval of its square and, within 5 standard deviations, correlations between neighbours, layers and
    # steps, and the third and fourth moment: fails with probability below 1e-5.
    wide = nn.Linear(300, 300)
    gradient = PrivateGradient(wide, bare_plan(0.7, clip=3.0), SIZE, NoiseSource.seeded(0))
    draws = []
    for _ in range(2):
        gradient(NOBODY, lambda users: wide(users))
        assert wide.weight.grad is not None
        assert wide.bias.grad is not None
        draws.append(np.append(wide.weight.grad.double().numpy(), wide.bias.grad.double().numpy()) * SIZE / (0.7 * 3.0))
    for draw in draws:
        count = len(draw)
        assert chi2.ppf(1e-6, count) < float(draw @ draw) < chi2.isf(1e-6, count)
        assert abs(float(draw[1:] @ draw[:-1])) < 5 * math.sqrt(count)
        assert abs(float((draw**3).sum())) < 5 * math.sqrt(15 * count)
        assert abs(float((draw**4 - 3).sum())) < 5 * math.sqrt(96 * count)
    assert abs(float(draws[0] @ draws[1])) < 5 * math.sqrt(len(draws[0]))


def test_noise_is_on_a_public_grid_of_single_precision() -> None:
    gradient = PrivateGradient(nn.Linear(30, 30), bare_plan(1.0, clip=1.0), 1.0, NoiseSource.os())
    gradient(NOBODY, lambda users: users)
    steps = filled(gradient).double() * 1024
    assert torch.equal(steps, steps.round())


def test_no_seed_repeats_the_noise_and_no_noise_moves_the_seed() -> None:
    draws = []
    for _ in range(2):
        seed_everything(42, verbose=False)
        gradient, losses = made(bare_plan(1.0, clip=1.0))
        seed_everything(42, verbose=False)
        before = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
        gradient(NOBODY, losses)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
        draws.append(filled(gradient))
    assert float((draws[0] == draws[1]).double().mean()) < 0.1
    gradient(NOBODY, losses)
    assert float((filled(gradient) == draws[1]).double().mean()) < 0.1


def test_only_the_entropy_of_the_system_is_private() -> None:
    gradient, losses = made(bare_plan(1.0, clip=1.0))
    assert gradient.private
    seeded, _ = made(bare_plan(1.0, clip=1.0), seed=0)
    assert not seeded.private
    seeded(NOBODY, losses)
    assert not seeded.private
    again, _ = made(bare_plan(1.0, clip=1.0), seed=0)
    again(NOBODY, losses)
    assert torch.equal(filled(seeded), filled(again)), "a test repeats"


def test_it_cannot_be_copied() -> None:
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.deepcopy(made(bare_plan(1.0))[0])


def test_the_budget_is_counted_and_kept() -> None:
    plan = bare_plan(3.0, clip=1.0, steps=3, rate=0.25)
    gradient, losses = made(plan)
    assert gradient.events() == ()
    sampler = PoissonSampler(USERS, plan.rate, NoiseSource.os())
    for taken in range(1, 4):
        gradient(sampler.sample(), losses)
        assert (gradient.steps_taken, gradient.steps_left) == (taken, 3 - taken)
    assert gradient.events() == (SelfComposedEvent(PoissonSampledGaussianEvent(3.0, 0.25), 3),)
    assert epsilon_of(gradient.events(), plan.delta, plan.relation) == plan.epsilon
    before = filled(gradient)
    for users in (EVERYBODY, NOBODY):
        with pytest.raises(BudgetSpentError, match="All 3 planned steps were taken"):
            gradient(users, losses)
    assert torch.equal(filled(gradient), before)


def test_a_step_that_failed_counts_and_leaves_nothing() -> None:
    gradient, losses = made(bare_plan(1.0))
    with pytest.raises(ValueError, match="one per user"):
        gradient(EVERYBODY, lambda users: losses(users).mean())
    assert gradient.steps_taken == 1
    assert all(parameter.grad is None for parameter in gradient.module.parameters())


def test_the_module_trains_outside_of_it_as_before() -> None:
    gradient, losses = made(bare_plan(0.1, clip=1.0))
    plain = copy.deepcopy(losses.critic)
    gradient(EVERYBODY, losses)
    gradient.module.zero_grad()
    losses(EVERYBODY).mean().backward()
    ordinary = filled(gradient)
    Losses(plain, losses.rows)(EVERYBODY).mean().backward()
    parts = [parameter.grad for parameter in plain.parameters()]
    assert torch.equal(ordinary, torch.cat([part.flatten() for part in parts if part is not None]))
    # Terms that read nobody's data may be added to what it filled, and their gradients taken as one likes.
    gradient(EVERYBODY, losses)
    private = filled(gradient)
    weights = torch.rand(7, ITEMS, requires_grad=True)
    critic = gradient.module
    critic(torch.arange(ITEMS).repeat(7, 1), weights, EVERYBODY[:7]).mean().backward()
    assert weights.grad is not None
    assert not torch.equal(filled(gradient), private)


def test_steps_and_modules_do_not_get_in_each_others_way() -> None:
    torch.manual_seed(0)
    critics = [SmallCritic(), SmallCritic(norm=True)]
    rows = some_rows()
    gradients = [PrivateGradient(critic, bare_plan(0.0), 1.0, NoiseSource.os()) for critic in critics]
    for step in range(3):
        users = EVERYBODY[step :: 3 + step]
        for gradient, critic in zip(gradients, critics, strict=True):
            losses = Losses(critic, rows)
            gradient(users, losses)
            private = filled(gradient)
            critic.zero_grad()
            losses(users).sum().backward()
            assert torch.allclose(private, filled(gradient), rtol=1e-4, atol=1e-4)
            with torch.no_grad():
                for parameter in critic.parameters():
                    parameter -= 1e-3 * parameter.grad  # type: ignore[operator]


def test_a_resumed_training_goes_on_counting() -> None:
    plan = bare_plan(1.0, clip=1.0, steps=4)
    first, losses = made(plan)
    for _ in range(3):
        first(NOBODY, losses)
    state = first.state_dict()
    assert json.loads(json.dumps(state)) == state, "plain values: no tensor, no noise"
    resumed, losses = made(plan)
    resumed.load_state_dict(state)
    assert (resumed.steps_taken, resumed.private) == (3, True)
    resumed(NOBODY, losses)
    first(NOBODY, losses)
    assert not torch.equal(filled(resumed), filled(first)), "no noise is used twice"
    with pytest.raises(BudgetSpentError):
        resumed(NOBODY, losses)
    with pytest.raises(ValueError, match=r"must lie in \[4, 4\], got 3"):
        resumed.load_state_dict(state)


def test_a_seed_is_never_forgotten() -> None:
    plan = bare_plan(1.0, clip=1.0)
    seeded, losses = made(plan, seed=0)
    seeded(NOBODY, losses)
    resumed, _ = made(plan)
    resumed.load_state_dict(seeded.state_dict())
    assert not resumed.private
    assert not resumed.state_dict()["private"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"settings": {"clip": 2.0}}, "clip was 2.0 and is 1.0"),
        (
            {"settings": {"noise_multiplier": 9.0, "expected_size": 1.0}},
            r"expected_size was 1.0 and is 20.0, noise_mult",
        ),
        ({"settings": {"relation": "replace_one_user"}}, "relation was 'replace_one_user'"),
        ({"settings": {"more": 1}}, "more was 1 and is None"),
        ({"steps_taken": 11}, r"must lie in \[1, 10\], got 11"),
        ({"steps_taken": 0}, r"must lie in \[1, 10\], got 0"),
        ({"steps_taken": 1.5}, "is not of noisy steps"),
        ({"private": None}, "is not of noisy steps"),
        ({"settings": []}, "is not of noisy steps"),
    ],
)
def test_other_states_are_refused(change: dict[str, Any], message: str) -> None:
    gradient, losses = made(bare_plan(1.0, clip=1.0))
    gradient(NOBODY, losses)
    state = gradient.state_dict()
    for name, value in change.items():
        state[name] = state[name] | value if isinstance(value, dict) else value
    with pytest.raises(ValueError, match=message):
        gradient.load_state_dict(state)
    with pytest.raises(ValueError, match="Restart training"):
        gradient.load_state_dict(None)
    assert gradient.steps_taken == 1


def test_autocast_is_refused() -> None:
    gradient, losses = made(bare_plan(1.0))
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="Autocast is on"):
        gradient(EVERYBODY, losses)
    gradient.module.automatic_optimization = True  # type: ignore[assignment]  # as of a LightningModule
    with pytest.raises(RuntimeError, match="automatic_optimization is True"):
        gradient(EVERYBODY, losses)
    assert (gradient.steps_taken, losses.calls) == (0, 0)


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient, losses = made(bare_plan(1.0))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(RuntimeError, match="2 processes train together"):
        gradient(EVERYBODY, losses)
    with pytest.raises(RuntimeError, match="2 processes train together"):
        made(bare_plan(1.0))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    gradient(EVERYBODY, losses)


@pytest.mark.parametrize(
    "users", [torch.tensor([3, 3]), torch.tensor([4, 1]), torch.tensor([[1]]), torch.tensor([1.0])]
)
def test_what_is_no_sample_is_refused(users: Tensor) -> None:
    gradient, losses = made(bare_plan(1.0))
    with pytest.raises(ValueError, match="strictly rising"):
        gradient(users, losses)
    assert losses.calls == 0


@pytest.mark.parametrize("size", [0.0, -1.0, math.inf, math.nan])
def test_an_expected_size_must_be_positive(size: float) -> None:
    with pytest.raises(ValueError, match="expected_size must be finite and positive"):
        PrivateGradient(nn.Linear(2, 1), bare_plan(1.0), size, NoiseSource.os())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda module: module.eval(), "evaluation mode"),
        (lambda module: module.half(), "float16"),
        (lambda module: module.rest.append(nn.BatchNorm1d(1)), "statistics over users"),
    ],
)
def test_a_module_that_cannot_be_trained_so_is_refused_before_and_in_training(
    spoil: Callable[[SmallCritic], object], message: str
) -> None:
    gradient, losses = made(bare_plan(1.0))
    assert isinstance(gradient.module, SmallCritic)
    spoil(gradient.module)
    with pytest.raises(ValueError, match=message):
        gradient(EVERYBODY, losses)
    assert losses.calls == 0
    with pytest.raises(ValueError, match=message):
        PrivateGradient(gradient.module, bare_plan(1.0), 1.0, NoiseSource.os())


def test_whoever_depends_on_others_is_found_in_the_first_step_that_has_some() -> None:
    gradient, losses = made(bare_plan(1.0, clip=1.0))

    def centred(users: Tensor) -> Tensor:
        values = losses(users)
        return (values - values.mean()) * (users > 0)  # the first user has no data

    gradient(NOBODY, centred)
    gradient(EVERYBODY[3:4], lambda users: losses(users))
    with pytest.raises(RuntimeError, match="rows of others"):
        gradient(EVERYBODY, centred)


@pytest.mark.parametrize("first", [0, 1])
def test_a_mean_over_the_sample_is_refused_in_the_first_step_that_has_one_and_later(first: int) -> None:
    # A later step finds it with probability 1/4: 80 miss it with probability 1e-10.
    gradient, losses = made(bare_plan(1.0, clip=1.0, steps=83))

    def mean(users: Tensor) -> Tensor:
        return losses(users) / (len(users) if gradient.steps_taken > 1 + first else 1)

    gradient(NOBODY, mean)
    for _ in range(first):
        gradient(EVERYBODY, mean)

    def later() -> None:
        for _ in range(80 if first else 1):
            gradient(EVERYBODY, mean)

    with pytest.raises(RuntimeError, match="sample's size or order"):
        later()


def test_random_numbers_of_losses_have_a_secret_seed() -> None:
    """Their places in the sample, or how far the global random state moved, would tell of a user."""
    drawn: list[Tensor] = []
    for _ in range(2):
        gradient, losses = made(bare_plan(1.0, clip=1.0))
        before = torch.manual_seed(0).get_state()

        def dropped(users: Tensor) -> Tensor:
            drawn.append(torch.rand(len(users)))
            return losses(users) * drawn[-1]  # noqa: B023

        gradient(EVERYBODY, dropped)
        assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(drawn[0], drawn[-1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_it_works_on_a_gpu() -> None:
    torch.manual_seed(0)
    critic, rows = SmallCritic().cuda(), some_rows().cuda()
    gradient = PrivateGradient(critic, bare_plan(0.0), 1.0, NoiseSource.os())
    losses = Losses(critic, rows)
    gradient(EVERYBODY.cuda(), losses)
    private = filled(gradient)
    critic.zero_grad()
    losses(EVERYBODY.cuda()).sum().backward()
    assert torch.allclose(private, filled(gradient), rtol=1e-4, atol=1e-4)


def test_padding_is_no_users_data() -> None:
    losses = made(bare_plan(0.0, clip=HUGE))[1]
    items, weights = padded(losses.rows.bags(EVERYBODY))
    assert bool((weights == 0).any())
    critic = losses.critic
    wider = (
        torch.cat([items, torch.zeros(USERS, 5, dtype=torch.int64)], 1),
        torch.cat([weights, torch.zeros(USERS, 5)], 1),
    )
    one = clipped_sum(critic, lambda users: critic(items[users], weights[users], users), EVERYBODY, 0.5)
    other = clipped_sum(critic, lambda users: critic(wider[0][users], wider[1][users], users), EVERYBODY, 0.5)
    for name in one:
        assert torch.allclose(one[name], other[name], atol=1e-6)
