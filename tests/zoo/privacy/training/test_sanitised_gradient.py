"""Sanitised gradients: what comes back, what is counted and what is refused. Seeds are fixed where a test is statistical."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from pytorch_lightning import seed_everything
from scipy.stats import chi2
from torch import Tensor, nn

from zoo.privacy.accounting.events import GaussianEvent, SelfComposedEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing
from zoo.privacy.training.noisy_steps import BudgetSpentError
from zoo.privacy.training.sanitised_gradient import SanitisationPlan, SanitisedGradient

ROWS, WIDTH = 6, 5
LITTLE = 1e-9  # noise that does not show in single precision


def planned(noise_multiplier: float = LITTLE, clip: float = 1.0, rows: int = ROWS, steps: int = 10) -> SanitisationPlan:
    """A plan that nobody calculated."""
    return SanitisationPlan(
        noise_multiplier=noise_multiplier,
        clip=clip,
        rows=rows,
        steps=steps,
        relation=Relation.ZERO_OUT_ONE_USER,
        delta=1e-5,
    )


def made(plan: SanitisationPlan, seed: int | None = None) -> SanitisedGradient:
    return SanitisedGradient(plan, NoiseSource.of(seed))


def some_rows(rows: int = ROWS, width: int = WIDTH) -> Tensor:
    return torch.rand(rows, width, generator=torch.Generator().manual_seed(0)).requires_grad_()


def weights_of(lengths: Tensor) -> Tensor:
    """Directions of the given lengths, one for each row."""
    drawn = torch.randn(len(lengths), WIDTH, generator=torch.Generator().manual_seed(1))
    return drawn / drawn.norm(dim=1, keepdim=True) * lengths[:, None]


def gradient_of(passing: SanitisedGradient, rows: Tensor, weights: Tensor) -> Tensor:
    """What the rows get back of the mean of ``<w_i, row_i>``, whose gradient is ``w_i / rows`` without it."""
    rows.grad = None
    (passing(rows) * weights).sum(dim=1).mean().backward()
    assert rows.grad is not None
    return rows.grad


def test_rows_pass_bit_by_bit() -> None:
    rows = some_rows()
    passed = made(planned(1000.0))(rows)
    assert torch.equal(passed, rows)
    assert passed.grad_fn is not None


def test_every_row_is_clipped_by_itself() -> None:
    """A loop over rows: shorter ones stay, longer ones are cut to the clip, and none depends on another."""
    clip = 0.7
    lengths = torch.tensor([0.0, 1e-3, 0.69, 0.71, 5.0, 1e6])
    weights = weights_of(lengths)
    found = gradient_of(made(planned(clip=clip)), some_rows(), weights)
    for row, (weight, length) in enumerate(zip(weights, lengths, strict=True)):
        expected = weight if length <= clip else weight * clip / length
        assert torch.allclose(found[row] * ROWS, expected, rtol=1e-5, atol=1e-6), row
        assert float((found[row] * ROWS).double().norm()) <= clip * (1 + 1e-6)
    spoiled = weights.clone()
    spoiled[5] *= -1e3
    other = gradient_of(made(planned(clip=clip)), some_rows(), spoiled)
    assert torch.allclose(other[:5], found[:5], atol=1e-7)


def test_little_noise_and_a_huge_clip_leave_the_ordinary_gradient() -> None:
    """Through a network on either side: of its parameters, of what it reads, and of its rows."""
    torch.manual_seed(0)
    generator, critic = nn.Sequential(nn.Linear(3, WIDTH), nn.Sigmoid()), nn.Sequential(nn.Linear(WIDTH, 4), nn.Tanh())
    inputs = torch.randn(ROWS, 3)
    rows = generator(inputs)
    ordinary = torch.autograd.grad(-critic(rows).sum(dim=1).mean(), list(generator.parameters()))
    passing = made(planned(1e-15, clip=1e6))
    loss = -critic(passing(generator(inputs))).sum(dim=1).mean()
    found = torch.autograd.grad(loss, list(generator.parameters()))
    for one, other in zip(found, ordinary, strict=True):
        assert float((one - other).abs().max()) <= 1e-6 * float(other.abs().max())


def test_only_the_sanitised_gradient_of_the_rows_reaches_what_made_them() -> None:
    """Every gradient behind the rows is the vector-Jacobian product with it, whatever the critic is."""
    torch.manual_seed(0)
    generator, critic = nn.Sequential(nn.Linear(3, WIDTH), nn.Sigmoid()), nn.Linear(WIDTH, 1)
    inputs = torch.randn(ROWS, 3)
    passing = made(planned(2.0, clip=0.1))
    seen: list[Tensor] = []
    rows = generator(inputs)
    rows.register_hook(seen.append)
    (-critic(passing(rows)).mean() + 0.1 * critic(passing.plan.clip * torch.ones(1, WIDTH)).mean()).backward()
    (sanitised,) = seen
    again = torch.autograd.grad(generator(inputs), list(generator.parameters()), grad_outputs=sanitised)
    found = [parameter.grad for parameter in generator.parameters()]
    assert all(one is not None and torch.equal(one, other) for one, other in zip(found, again, strict=True))
    assert critic.weight.grad is not None, "the critic's own gradients are what they are"


def test_noise_is_gaussian_of_the_planned_size_on_the_mean_over_rows_and_independent() -> None:
    """Chi-square intervals of its square, moments and correlations within 5 deviations: fails with probability < 2e-5."""
    rows, width, clip, multiplier = 300, 300, 3.0, 0.7
    passing = made(planned(multiplier, clip, rows, steps=2), seed=0)
    weights = torch.zeros(rows, width)
    draws = []
    for _ in range(2):
        found = gradient_of(passing, some_rows(rows, width), weights).double().numpy()
        draws.append(found * rows / (multiplier * clip))
    for draw in draws:
        for part in (draw.ravel(), draw[0], draw[:, -1]):  # all of it, a row, a column
            assert chi2.ppf(1e-6, part.size) < float(part @ part) < chi2.isf(1e-6, part.size)
        flat = draw.ravel()
        assert abs(float((flat**3).sum())) < 5 * math.sqrt(15 * flat.size)
        assert abs(float((flat**4 - 3).sum())) < 5 * math.sqrt(96 * flat.size)
        assert abs(float((draw[1:] * draw[:-1]).sum())) < 5 * math.sqrt(flat.size)
        assert abs(float((draw[:, 1:] * draw[:, :-1]).sum())) < 5 * math.sqrt(flat.size)
    assert abs(float((draws[0] * draws[1]).sum())) < 5 * math.sqrt(draws[0].size), "drawn anew in every step"


def test_noise_is_added_to_what_was_clipped() -> None:
    """The same seed with and without a gradient: what differs is the clipped gradient, to the lattice's spacing."""
    plan = planned(3.0, clip=0.5)
    weights = weights_of(torch.full((ROWS,), 2.0))
    rows = some_rows()
    with_it, without = (
        gradient_of(made(plan, seed=4), rows, factor * weights).double() * ROWS for factor in (1.0, 0.0)
    )
    assert torch.allclose(with_it - without, weights.double() / 4, atol=1.01 * lattice_spacing(1.5) + 1e-6)


def test_no_seed_repeats_the_noise_and_no_noise_moves_the_seed() -> None:
    draws = []
    for _ in range(2):
        seed_everything(42, verbose=False)
        passing, rows = made(planned(1.0)), some_rows()
        before = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
        draws.append(gradient_of(passing, rows, torch.zeros(ROWS, WIDTH)))
        assert torch.equal(torch.get_rng_state(), before[0])
        assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert float((draws[0] == draws[1]).double().mean()) < 0.1


def test_steps_are_counted_as_they_begin_and_end_with_the_plan() -> None:
    plan = planned(30.0, steps=3)
    passing, rows, weights = made(plan), some_rows(), torch.ones(ROWS, WIDTH)
    assert passing.events() == ()
    for taken in range(1, 4):
        gradient_of(passing, rows, weights)
        assert (passing.steps_taken, passing.steps_left) == (taken, 3 - taken)
        assert passing.events() == (SelfComposedEvent(GaussianEvent(30.0 / (2 * math.sqrt(ROWS))), taken),)
    with pytest.raises(BudgetSpentError, match="All 3 planned steps were taken"):
        passing(rows)
    assert passing.steps_taken == 3


def test_a_step_without_a_way_back_counts_all_the_same() -> None:
    passing = made(planned())
    with torch.no_grad():
        passing(some_rows())
    assert passing.steps_taken == 1


def test_a_step_has_one_backward_pass() -> None:
    """Other noise on the same gradient would be a release of its own: two of them average the noise away."""
    passing, rows = made(planned(1.0)), some_rows()
    loss = passing(rows).sum(dim=1).mean()
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="A step has one backward pass"):
        loss.backward()


def test_a_step_is_over_when_another_has_begun() -> None:
    passing, rows = made(planned(1.0)), some_rows()
    stale = passing(rows).sum(dim=1).mean()
    passing(rows).sum(dim=1).mean().backward()
    with pytest.raises(RuntimeError, match="A step has one backward pass"):
        stale.backward()


def test_penalties_on_the_same_rows_are_sanitised_with_them() -> None:
    """Two terms behind one pass come back together, in one gradient that is clipped once."""
    passing, rows = made(planned(clip=1.0)), some_rows()
    passed = passing(rows)
    (3 * passed.sum(dim=1).mean() + 4 * passed.sum(dim=1).mean()).backward()
    assert rows.grad is not None
    assert torch.allclose((rows.grad * ROWS).norm(dim=1), torch.ones(ROWS), atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        (torch.zeros(ROWS - 1, WIDTH), r"got torch.float32 of the shape \(5, 5\)"),
        (torch.zeros(ROWS + 1, WIDTH), r"got torch.float32 of the shape \(7, 5\)"),
        (torch.zeros(ROWS), r"got torch.float32 of the shape \(6,\)"),
        (torch.zeros(ROWS, WIDTH, dtype=torch.float64), "got torch.float64"),
        (torch.zeros(ROWS, WIDTH, dtype=torch.bfloat16), "got torch.bfloat16"),
    ],
    ids=["too few", "too many", "a vector", "double", "half"],
)
def test_rows_that_are_not_planned_are_refused_and_cost_nothing(rows: Tensor, found: str) -> None:
    passing = made(planned())
    with pytest.raises(ValueError, match=f"A step is planned for 6 rows of float32; {found}"):
        passing(rows)
    assert passing.steps_taken == 0


def test_autocast_is_refused() -> None:
    passing = made(planned())
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="Autocast is on"):
        passing(some_rows())
    assert passing.steps_taken == 0


@pytest.mark.parametrize("spoiled", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_refused_and_its_step_spent(spoiled: float) -> None:
    passing, rows = made(planned(1.0)), some_rows()
    weights = torch.ones(ROWS, WIDTH)
    weights[2, 1] = spoiled
    with pytest.raises(FloatingPointError, match=r"The critic's gradient is not finite\. Lower lr"):
        gradient_of(passing, rows, weights)
    assert passing.steps_taken == 1
    assert rows.grad is None
    with pytest.raises(RuntimeError, match="one backward pass"):
        passing.sanitise(torch.zeros(ROWS, WIDTH), 1)


def test_planned_steps_are_those_of_its_settings() -> None:
    state = made(planned(2.0)).state_dict()
    assert state == {"steps_taken": 0, "private": True, "settings": planned(2.0).settings()}
    assert replace(planned(2.0), steps=9).settings() != state["settings"]
