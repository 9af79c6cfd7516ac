"""Steps of SPPG: what the critic's reads, what the generator's is told, what is averaged, what protects nobody."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch_lightning import seed_everything
from torch import Tensor

from callbacks import GANStabilizer
from datamodules import Evaluation, Synthetic
from tests.zoo.methods.sppg_runs import SIZES, SMALL, fitted, gradients, same, trainer_of
from tests.zoo.privacy.training.critics import HUGE, bare_plan, looped, norm_of
from zoo import SPPG
from zoo.data.batch_types import UserBatch
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.record.record import warn_once
from zoo.privacy.training.clipped_sum import clipped_sum
from zoo.privacy.training.critic_steps import CriticSteps
from zoo.privacy.training.generator_privacy import UNSOUND, GeneratorPrivacy
from zoo.privacy.training.published_readings import FirstLayerNoise, UpstreamNoise
from zoo.privacy.training.sanitised_gradient import SanitisationPlan, SanitisedGradient

pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore:SPPG with .* has no guarantee")]
BOTH = pytest.mark.parametrize("conditioning", ["product", "sum"])
Make = Callable[..., SPPG]


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a private method whose plan has no noise and clips at nothing, on data in which some users have no rating."""
    plan = bare_plan(0.0, clip=HUGE, rate=0.2)
    monkeypatch.setattr(GeneratorPrivacy, "training_plan", lambda _self, _users: plan)

    def make(**settings: Any) -> SPPG:  # noqa: ANN401
        seed_everything(0)
        method = SPPG(**(SMALL | settings))
        data = Synthetic(**SIZES, evaluation=Evaluation(split="cold_start"))
        trainer_of(GANStabilizer(), epochs=0).fit(method, datamodule=data)
        method.train()
        return method

    return make


class RealLosses:
    """A method's losses of real rows, for `looped`."""

    def __init__(self, method: SPPG) -> None:
        self.critic, self.losses = method.critic, method._real_loss

    def __call__(self, users: Tensor) -> Tensor:
        return self.losses(users)


@BOTH
def test_the_critic_raises_the_scores_of_people_and_the_generator_those_of_its_rows(conditioning: str) -> None:
    method = SPPG(mechanism="none", **(SMALL | {"conditioning": conditioning}))
    trainer_of(epochs=0).fit(method, datamodule=Synthetic(**SIZES))
    users = torch.arange(40)
    scores = method.critic.score_rows(method.target_rows.dense(users), method.generator.embedding(users))
    assert torch.allclose(method._real_loss(users), -scores, atol=1e-5)
    made = method.step(UserBatch(users))
    assert torch.allclose(made["loss"], -made["fake_scores"].mean())
    assert made["fake_scores"].shape == (40,)


def test_a_step_of_the_generator_works_out_no_gradient_of_the_critic() -> None:
    method = SPPG(mechanism="none", **SMALL)
    trainer_of(epochs=0).fit(method, datamodule=Synthetic(**SIZES))
    expected = torch.autograd.grad(method.step(UserBatch(torch.arange(8)))["loss"], [*method.generator.parameters()])
    method.critic_steps.random_users = lambda: torch.arange(8)  # type: ignore[method-assign]
    method._generator_step(torch.optim.SGD(method.generator.parameters(), lr=1.0))
    assert all(parameter.grad is None for parameter in method.critic.parameters())
    for parameter, gradient in zip(method.generator.parameters(), expected, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, gradient, atol=1e-7)


@BOTH
@pytest.mark.parametrize("critic_dims", [(6,), (8, 4)])
def test_every_users_gradient_is_clipped_as_a_loop_over_users_clips_it(
    without_noise: Make, conditioning: str, critic_dims: tuple[int, ...]
) -> None:
    """By ghost clipping, in the middle of the users' norms; the stabiliser's part of a user's loss included."""
    method, users = without_noise(conditioning=conditioning, critic_dims=critic_dims), torch.arange(40)
    own = looped(RealLosses(method), users)  # type: ignore[arg-type]
    norms = torch.tensor([norm_of(gradient) for gradient in own])
    clip = float(norms[norms > 0].median())
    assert 0 < int((norms > clip).sum()) < 40
    found = clipped_sum(method.critic, method._real_loss, users, clip, check=True)
    for name, total in found.items():
        expected = sum(gradient[name] * min(1.0, clip / max(norm_of(gradient), 1e-12)) for gradient in own)
        assert isinstance(expected, Tensor)
        assert torch.allclose(total.double(), expected, rtol=1e-4, atol=1e-5), name


def drawn_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same samples and users in every training, whatever draws them otherwise."""

    def drawn(steps: CriticSteps) -> torch.Generator:
        draws: torch.Generator = steps.__dict__.setdefault("draws", torch.Generator().manual_seed(5))
        return draws

    monkeypatch.setattr(CriticSteps, "sample", lambda own: torch.randperm(40, generator=drawn(own))[:9].sort().values)
    monkeypatch.setattr(CriticSteps, "random_users", lambda own: torch.randint(40, (8,), generator=drawn(own)))


@BOTH
def test_without_noise_and_clip_a_private_training_is_the_ordinary_one(
    monkeypatch: pytest.MonkeyPatch, conditioning: str
) -> None:
    """The mechanism is all that differs: DP-SGD and GS-WGAN, each with next to no noise and nothing to clip."""
    drawn_alike(monkeypatch)
    plan = bare_plan(0.0, clip=HUGE, steps=7)
    zeroed: dict[str, Any] = {"relation": Relation.ZERO_OUT_ONE_USER, "delta": 1e-5}
    sanitised = SanitisationPlan(noise_multiplier=1e-15, clip=1e6, rows=8, steps=4, **zeroed)
    monkeypatch.setattr(GeneratorPrivacy, "training_plan", lambda _self, _users: plan)
    monkeypatch.setattr(GeneratorPrivacy, "sanitisation_plan", lambda _self, _users: sanitised)
    mechanisms = ("none", "private_d", "gs_wgan")
    ordinary, *others = (fitted(GANStabilizer(), mechanism=kind, conditioning=conditioning) for kind in mechanisms)
    assert not same(ordinary.method.state_dict(), ordinary.weights.before)
    for run in others:
        assert run.method.critic_steps.taken == 7
        assert same(run.method.state_dict(), ordinary.method.state_dict(), within=1e-6)


@BOTH
def test_with_infinitesimal_clip_nothing_depends_on_ratings(monkeypatch: pytest.MonkeyPatch, conditioning: str) -> None:
    """Two data sets without a rating in common, the same seed: the same weights, but for rounding. Without it, other ones."""
    drawn_alike(monkeypatch)
    ends = {}
    for clip in (1e-9, HUGE):
        plan = bare_plan(1.0 if clip < 1 else 0.0, clip=clip, steps=7)
        monkeypatch.setattr(GeneratorPrivacy, "training_plan", lambda _self, _users, plan=plan: plan)
        both = [Synthetic(**SIZES, data_seed=data_seed) for data_seed in (0, 1)]
        ends[clip] = [fitted(data=data, conditioning=conditioning, noise_seed=3).method for data in both]
    (one, other), unclipped = ends[1e-9], ends[HUGE]
    assert same(one.state_dict(), other.state_dict(), within=1e-4)
    assert not same(unclipped[0].state_dict(), unclipped[1].state_dict(), within=1e-3)


def test_a_user_without_ratings_contributes_nothing(without_noise: Make) -> None:
    method = without_noise()
    empty = method.target_rows.counts() == 0
    assert 0 < int(empty.sum()) < 40
    with torch.no_grad():
        assert not method._real_loss(empty.nonzero().squeeze(1)).any()
        assert method._real_loss((~empty).nonzero().squeeze(1)).all()
    rated = (~empty).nonzero().squeeze(1)[:5]
    mixed = torch.cat([rated, empty.nonzero().squeeze(1)]).sort().values
    alone, together = gradients(method, rated), gradients(method, mixed)
    assert all(torch.allclose(a, b, atol=1e-7) for a, b in zip(alone, together, strict=True))
    assert not any(part.any() for part in gradients(method, empty.nonzero().squeeze(1)))


def test_generated_rows_are_of_all_users_whether_or_not_they_have_rated(without_noise: Make) -> None:
    """Who is in a batch depends on who has rated. 1,600 draws among 40 users: one is missed with probability < 1e-15."""
    for mechanism in ("private_d", "gs_wgan", "none"):
        method = without_noise(mechanism=mechanism)
        drawn = [method.critic_steps.random_users() for _ in range(200)]
        assert {len(users) for users in drawn} == {8}
        assert set(torch.cat(drawn).tolist()) == set(range(40))


def test_a_sample_leaves_no_trace_in_the_global_random_state(without_noise: Make) -> None:
    """It is kept in checkpoints, and what the generator draws next depends on it."""
    method = without_noise(dropout=0.5)
    assert method.generator.dropout.p == 0.5
    before = torch.get_rng_state()
    gradients(method, torch.arange(5))
    method.critic_steps.sample()
    method.critic_steps.random_users()
    assert torch.equal(torch.get_rng_state(), before)


def test_how_far_gs_wgan_moves_the_global_random_state_tells_of_no_rating() -> None:
    """Its samples are public, and drawn from there: two data sets leave the same state behind."""
    states = []
    for data_seed in (0, 1):
        fitted(mechanism="gs_wgan", dropout=0.5, noise_dim=2, data=Synthetic(**SIZES, data_seed=data_seed))
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@BOTH
def test_the_generator_sees_the_sanitised_gradient_of_its_rows_and_nothing_else(
    without_noise: Make, monkeypatch: pytest.MonkeyPatch, conditioning: str
) -> None:
    """The embedding, which is the critic's condition too, gets what comes through the rows alone."""
    method = without_noise(mechanism="gs_wgan", conditioning=conditioning)
    passing = method.private_gradient
    assert isinstance(passing, SanitisedGradient)
    sanitise, seen = passing.sanitise, []
    monkeypatch.setattr(passing, "sanitise", lambda *given: seen.append(sanitise(*given)) or seen[-1])
    users = torch.arange(8)
    method.step(UserBatch(users))["loss"].backward()
    (sanitised,) = seen
    parameters = list(method.generator.parameters())
    expected = torch.autograd.grad(method.generator(users), parameters, grad_outputs=sanitised)
    for parameter, gradient in zip(parameters, expected, strict=True):
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, gradient)
    assert (passing.steps_taken, method.critic_steps.taken) == (1, 0)


def test_a_step_of_the_critic_leaves_the_generator_alone() -> None:
    for mechanism in ("gs_wgan", "none"):
        method = fitted(mechanism=mechanism, epochs=0).method
        before = {name: values.clone() for name, values in method.generator.state_dict().items()}
        optimizer = torch.optim.SGD(method.critic.parameters(), lr=0.1)
        method._critic_step(optimizer)
        assert all(parameter.grad is None for parameter in method.generator.parameters())
        assert same(dict(method.generator.state_dict()), before)


def test_what_is_scored_is_the_average_of_the_generator_over_its_steps() -> None:
    method, _, weights = fitted(mechanism="none", average=0.7, steps=12, lr_generator=1e-2)
    assert len(weights.steps) == 6
    average = {name: values.double() for name, values in weights.steps[0].items()}
    for after in weights.steps[1:]:
        average = {name: 0.7 * values + 0.3 * after[name].double() for name, values in average.items()}
    assert same(method.scored.tensors(), average, within=1e-6)
    assert not same(method.scored.tensors(), method.generator.tensors(), within=1e-4)
    method.eval()
    with torch.no_grad():
        assert torch.allclose(method.score_all(torch.arange(40)).sigmoid(), method.scored(torch.arange(40)), atol=1e-6)


def test_an_average_of_nothing_is_the_last_step() -> None:
    method, _, weights = fitted(mechanism="none", average=0.0)
    assert same(method.scored.tensors(), weights.steps[-1])
    assert same(method.scored.tensors(), method.generator.tensors())


def test_an_average_follows_the_steps_and_does_not_steer_them() -> None:
    ends = [fitted(mechanism="none", average=average).method.generator.state_dict() for average in (0.0, 0.98)]
    assert same(*ends)


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize(
    ("mechanism", "kind"), [("first_layer_noise", FirstLayerNoise), ("upstream_noise", UpstreamNoise)]
)
def test_a_reading_that_does_not_hold_is_warned_of_once_a_process(mechanism: str, kind: type[Any]) -> None:
    warn_once.cache_clear()
    with pytest.warns(UserWarning, match=f"SPPG with {mechanism} has no guarantee: {UNSOUND[mechanism]}") as warned:
        runs = [fitted(mechanism=mechanism, paper_faithful=True, epochs=1) for _ in range(2)]
    assert sum("has no guarantee" in str(warning.message) for warning in warned) == 1
    for run in runs:
        assert isinstance(run.method.critic_steps.gradient, kind)
        assert all(parameter.isfinite().all() for parameter in run.method.parameters())
        assert run.method.critic_steps.taken == 6
