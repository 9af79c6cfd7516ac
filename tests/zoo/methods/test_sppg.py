"""SPPG: what a private training spends, hides and stops at; what a critic's step reads; that without noise it beats chance."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import Callback
from pytorch_lightning.trainer.states import TrainerFn
from torch import Tensor

from callbacks import GANStabilizer
from datamodules import Evaluation, Synthetic
from tests.zoo.privacy.critics import HUGE, bare_plan
from zoo import SPPG
from zoo.privacy.events import NonPrivateEvent, SelfComposedEvent
from zoo.privacy.record import unprotected_record
from zoo.release import Release

SIZES: dict[str, Any] = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "batch_size": 16, "seed": 1}
SMALL: dict[str, Any] = {
    "steps": 7, "sample_size": 8, "n_critic": 2, "condition_dim": 4, "generator_dims": (8,), "critic_dims": (8, 4),
}  # fmt: skip


def trainer_of(*callbacks: Callback, epochs: int = 20, **settings: Any) -> Trainer:  # noqa: ANN401
    return Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[*callbacks], **settings,
    )  # fmt: skip


class Spied(SPPG):
    """Keeps what it logs, and the scores of real rows, which it must not."""

    logged: list[tuple[str, float]]
    real: list[Tensor]

    def build(self, sizes: dict[str, Any]) -> None:
        """Begin to keep."""
        super().build(sizes)
        self.logged, self.real = [], []
        self.critic.register_forward_hook(lambda _critic, _inputs, scores: self.real.append(scores.detach()))

    def log(self, name: str, value: Any, **settings: Any) -> None:  # type: ignore[override]  # noqa: ANN401
        """Keep it."""
        self.logged.append((name, float(value)))
        super().log(name, value, **settings)


class Beginning(Callback):
    """Keeps the weights that training begins from."""

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:  # noqa: ANN401
        self.weights = {name: values.clone() for name, values in pl_module.state_dict().items()}


class Run(NamedTuple):
    method: Spied
    trainer: Trainer
    before: dict[str, Tensor]


@pytest.fixture(scope="module", params=["private_d", "first_layer_only"])
def private(request: pytest.FixtureRequest) -> Run:
    """A finished private training, with noise from the operating system."""
    seed_everything(0)
    method, beginning = Spied(mechanism=request.param, epsilon=8.0, **SMALL), Beginning()
    trainer = trainer_of(GANStabilizer(), beginning)
    trainer.fit(method, datamodule=Synthetic(**SIZES))
    return Run(method, trainer, beginning.weights)


@pytest.fixture
def without_noise(monkeypatch: pytest.MonkeyPatch) -> Callable[..., SPPG]:
    """Makes a private method whose plan has no noise and clips at nothing, on data in which some users have no rating."""
    monkeypatch.setattr(SPPG, "plan", lambda _self, _users: bare_plan(0.0, clip=HUGE, rate=0.2))

    def make(**settings: Any) -> SPPG:  # noqa: ANN401
        seed_everything(0)
        method = SPPG(**(SMALL | settings))
        data = Synthetic(**SIZES, evaluation=Evaluation(split="cold_start"))
        trainer_of(GANStabilizer(), epochs=0).fit(method, datamodule=data)
        method.train()
        return method

    return make


def gradients(method: SPPG, users: Tensor) -> list[Tensor]:
    """What a private step leaves of some users' losses."""
    assert method.private_gradient is not None
    method.private_gradient(users, method._real_loss)
    return [p.grad.clone() for p in method.critic.parameters() if p.grad is not None]


# A private training.


def test_it_takes_exactly_the_planned_steps_and_stops(private: Run) -> None:
    method, trainer, _ = private
    gradient = method.private_gradient
    assert gradient is not None
    assert (gradient.steps_taken, gradient.steps_left, method.steps_left) == (7, 0, 0)
    assert trainer.should_stop
    assert trainer.current_epoch < 3, "seven critic steps are four batches, an epoch has three"
    critic, generator = (next(iter(optimizer.state.values()))["step"] for optimizer in trainer.optimizers)
    assert (int(critic), int(generator)) == (7, 4)
    assert len(method.real) <= 7, "an empty sample scores nobody"


def test_its_ledger_is_within_what_was_asked_for(private: Run) -> None:
    gradient = private.method.private_gradient
    assert gradient is not None
    plan = gradient.plan
    assert gradient.events() == (SelfComposedEvent(plan.step_event, 7),)
    assert gradient.private
    assert 7.9 < gradient.epsilon_spent <= 8.0, "and not far below it"
    assert (plan.rate, plan.clip, plan.steps, plan.delta) == (8 / 40, 1.0, 7, 1e-5)
    assert gradient.expected_size == pytest.approx(8)


def test_another_fit_takes_no_further_step(private: Run) -> None:
    method, _, _ = private
    before = {name: values.clone() for name, values in method.state_dict().items()}
    trainer_of(epochs=1, limit_val_batches=0).fit(method, datamodule=Synthetic(**SIZES))
    assert method.steps_left == 0
    assert all(torch.equal(values, before[name]) for name, values in method.state_dict().items())


def test_what_is_trained_moves_and_nothing_else(private: Run) -> None:
    method, _, before = private
    moved = {name for name, values in method.state_dict().items() if not torch.equal(values, before[name])}
    first = {"critic.first.weight", "critic.first.bias"}
    assert {name for name in moved if name.startswith("generator")}
    critic = {f"critic.{name}" for name, _ in method.critic.named_parameters()}
    assert moved & critic == (first if method.mechanism == "first_layer_only" else critic)


def test_no_log_has_anything_of_a_real_score(private: Run) -> None:
    method, trainer, _ = private
    train = {name for name, _ in method.logged if name.startswith("train/")}
    assert train == {
        "train/loss", "train/penalty/gan_stabilizer", "train/score_drift", "train/gradient_norm/0",
        "train/gradient_norm/1",
    }  # fmt: skip
    assert {name for name in trainer.callback_metrics if name.startswith("train/")} == train
    values = [value for name, value in method.logged if name.startswith("train/")]
    assert method.real
    for scores in method.real:
        for secret in (scores.mean(), scores.square().mean(), float(len(scores))):
            assert all(abs(value - float(secret)) > 1e-9 for value in values)
    assert sum(name == "train/penalty/gan_stabilizer" for name, _ in method.logged) == 7, "generated rows' alone"


def test_a_count_of_steps_survives_a_checkpoint_and_never_falls(private: Run, tmp_path: Path) -> None:
    method, trainer, _ = private
    assert method.private_gradient is not None
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    loaded = type(method).load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert loaded.private_gradient is not None
    assert loaded.private_gradient.steps_taken == 7
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
    checkpoint["zoo"]["spent"]["steps_taken"] = 3
    with pytest.raises(ValueError, match="steps that were taken stay taken"):
        method.on_load_checkpoint(checkpoint)
    try:
        method.trainer.state.fn = TrainerFn.TESTING
        method.on_load_checkpoint(checkpoint)  # an older epoch is only looked at
    finally:
        method.trainer.state.fn = TrainerFn.FITTING
    assert method.private_gradient.steps_taken == 7


def test_noise_with_a_seed_leaves_no_guarantee(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SPPG, "plan", lambda _self, _users: bare_plan(2.0, clip=1.0, rate=0.2))
    found = []
    for _ in range(2):
        seed_everything(0)
        method = SPPG(**SMALL, noise_seed=3)
        trainer_of(epochs=1, limit_val_batches=0).fit(method, datamodule=Synthetic(**SIZES))
        assert method.private_gradient is not None
        assert method.private_gradient.epsilon_spent == float("inf")
        found.append(method.state_dict())
    assert all(torch.equal(values, found[1][name]) for name, values in found[0].items()), "but it is repeatable"


# What a step of the critic reads.


def test_a_private_step_without_noise_is_the_ordinary_gradient(without_noise: Callable[..., SPPG]) -> None:
    method, users = without_noise(), torch.arange(0, 40, 3)
    found = gradients(method, users)
    parameters = list(method.critic.parameters())
    loss = method._real_loss(users).sum() / method.sampler.expected_size
    expected = torch.autograd.grad(loss, parameters)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, expected, strict=True))
    assert all(part.any() for part in found)


def test_a_user_without_ratings_contributes_nothing(without_noise: Callable[..., SPPG]) -> None:
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


def test_generated_rows_are_of_all_users_whether_or_not_they_have_rated(
    without_noise: Callable[..., SPPG],
) -> None:
    """Who is in a batch depends on who has rated. 1,600 draws among 40 users: one is missed with probability < 1e-15."""
    for method in (without_noise(), without_noise(mechanism="none")):
        drawn = [method._some_users() for _ in range(200)]
        assert {len(users) for users in drawn} == {8}
        assert set(torch.cat(drawn).tolist()) == set(range(40))


def test_a_sample_leaves_no_trace_in_the_global_random_state(without_noise: Callable[..., SPPG]) -> None:
    """It is kept in checkpoints, and what the generator draws next depends on it."""
    method = without_noise(dropout=0.5)
    assert method.generator.dropout.p == 0.5
    before = torch.get_rng_state()
    gradients(method, torch.arange(5))
    method.sampler.sample()
    method._some_users()
    assert torch.equal(torch.get_rng_state(), before)


# Without noise.


@pytest.fixture(scope="module")
def learned() -> Run:
    """A training without noise."""
    seed_everything(0)
    method = Spied(
        mechanism="none", steps=1000, sample_size=75, n_critic=2, condition_dim=16, generator_dims=(),
        critic_dims=(64,), lr_generator=1e-2, lr_critic=1e-2,
    )  # fmt: skip
    trainer = trainer_of(GANStabilizer(), epochs=1000, check_val_every_n_epoch=10**6)
    data = Synthetic(num_users=150, num_items=140, ratings_per_user=30, seed=0, batch_size=1000)
    trainer.fit(method, datamodule=data)
    trainer.validate(method, datamodule=data, verbose=False)
    return Run(method, trainer, {})


def test_without_noise_it_ranks_better_than_chance(learned: Run) -> None:
    """Seeded. Chance is 0.1 for each of 150 users; 0.175 is three standard deviations above it."""
    assert float(learned.trainer.callback_metrics["val/sampled/hit_rate@10"]) > 0.175


def test_a_release_of_it_gives_the_rows_that_it_makes(learned: Run) -> None:
    method = learned.method
    method.eval()
    users = torch.tensor([5, 0, 149, 5])
    names = np.array([f"u{user}" for user in range(150)])
    record = unprotected_record("SPPG", "trained without noise")
    release = Release("generator", "book", method.generator.tensors(), names, record, (NonPrivateEvent(),))
    with torch.no_grad():
        rows = method.generator(users)
        assert torch.allclose(release.rows(users), rows, atol=1e-6)
        assert torch.allclose(method.score_all(users).sigmoid(), rows.clamp(1e-7, 1 - 1e-7), atol=1e-6)


def test_a_bounded_critic_stays_bounded() -> None:
    seed_everything(0)
    method, beginning = SPPG(mechanism="none", critic_bound=0.0625, **SMALL), Beginning()
    trainer_of(GANStabilizer(), beginning, limit_val_batches=0).fit(method, datamodule=Synthetic(**SIZES))
    assert method.steps_left == 0
    for name, values in method.critic.named_parameters():
        assert float(beginning.weights[f"critic.{name}"].abs().max()) <= 0.0625, "from the start"
        assert float(values.detach().abs().max()) <= 0.0625
        assert not torch.equal(values, beginning.weights[f"critic.{name}"])


# What is refused.


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"mechanism": "gs_wgan"},
            r"mechanism must be one of \('private_d', 'first_layer_only', 'none'\), got 'gs_wgan'",
        ),
        ({"generator_dims": (8, 0)}, "Steps, sizes and widths must be at least 1"),
        ({"steps": 0}, "Steps, sizes and widths must be at least 1"),
        ({"noise_dim": -1}, "noise_dim at least 0"),
        ({"critic_dims": ()}, "critic_dims must name at least one layer"),
        ({"critic_bound": 0.0}, "critic_bound must be positive, or null for none"),
        ({"lr_critic": 0.0}, "lr must be positive"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\)"),
        ({"relation": "one_item"}, "is not a valid Relation"),
    ],
)
def test_bad_settings_are_refused_at_once(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SPPG(**(SMALL | settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sample_size": 41}, "sample_size 41 is more than the 40 users. Take at most as many"),
        ({"sample_size": 41, "mechanism": "none"}, "sample_size 41 is more than the 40 users"),
        ({"delta": 1 / 40}, "delta 0.025 is not below one over the 40 users. Take 1e-05 or less"),
        ({"epsilon": 0.0}, "epsilon must"),
        ({"clip": 0.0}, "clip must be a positive finite number"),
        ({"relation": "change_one_rating"}, "Training protects whole users"),
    ],
)
def test_what_does_not_fit_the_data_is_refused_before_training(settings: dict[str, Any], message: str) -> None:
    method, started = SPPG(**(SMALL | settings)), Beginning()
    with pytest.raises(ValueError, match=message):
        trainer_of(started).fit(method, datamodule=Synthetic(**SIZES))
    assert not hasattr(started, "weights")
