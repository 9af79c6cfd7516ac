"""SPPG: what a private training spends, hides and stops at, what survives a checkpoint, and what it releases."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback, EarlyStopping
from pytorch_lightning.trainer.states import TrainerFn

from callbacks import GANStabilizer
from datamodules import Evaluation, Synthetic
from tests.zoo.methods.sppg_runs import SIZES, SMALL, Run, fitted, gradients, same, trainer_of
from zoo import SPPG
from zoo.data.batch_types import UserBatch
from zoo.data.ratings import Step
from zoo.methods.checkpoint_identity import ELSEWHERE, plain_steps
from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.record.record import Guarantee
from zoo.privacy.training.generator_privacy import FAITHFUL, UNSOUND, Mechanism
from zoo.privacy.training.noisy_steps import BudgetSpentError
from zoo.privacy.training.private_gradient import PrivateGradient
from zoo.release.release import Release

pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore:SPPG with .* has no guarantee")]


@pytest.fixture(scope="module", params=["private_d", "first_layer_only", "gs_wgan"])
def private(request: pytest.FixtureRequest) -> Run:
    """A finished private training, with noise from the operating system."""
    return fitted(GANStabilizer(), mechanism=request.param, epsilon=8.0)


def test_it_takes_exactly_the_planned_steps_and_stops(private: Run) -> None:
    method, trainer, _ = private
    spent = method.private_gradient
    assert spent is not None
    of_the_generator = method.privacy.mechanism == "gs_wgan"
    assert (spent.steps_taken, spent.steps_left, method.steps_left) == (4 if of_the_generator else 7, 0, 0)
    assert method.training_batches == 4
    assert trainer.should_stop
    assert trainer.current_epoch < 3, "seven critic steps are four batches, an epoch has three"
    critic, generator = (next(iter(optimizer.state.values()))["step"] for optimizer in trainer.optimizers)
    assert (int(critic), int(generator)) == (7, 4)
    # A private gradient asks again with other users beside, and for some of them alone; an empty sample scores nobody.
    assert len(method.real) <= (7 if of_the_generator else 21)


def test_its_ledger_is_within_what_was_asked_for(private: Run) -> None:
    method = private.method
    spent = method.private_gradient
    assert spent is not None
    assert spent.events() == (spent.plan.event_after(spent.plan.steps),) == tuple(method.events(40))
    assert spent.private
    assert 7.9 < spent.plan.epsilon_after(spent.steps_taken) <= 8.0 + 1e-9, "and not far below it"
    assert (spent.plan.steps, spent.plan.delta) == (4 if method.privacy.mechanism == "gs_wgan" else 7, 1e-5)
    if isinstance(spent, PrivateGradient):
        assert (spent.plan.rate, spent.plan.clip, spent.expected_size) == (8 / 40, 1.0, pytest.approx(8))
    else:
        assert (spent.plan.rows, spent.plan.clip) == (8, 1.0)


def test_another_fit_takes_no_further_step(private: Run) -> None:
    method, _, _ = private
    before = {name: values.clone() for name, values in method.state_dict().items()}
    trainer_of(epochs=1, limit_val_batches=0).fit(method, datamodule=Synthetic(**SIZES))
    assert method.steps_left == 0
    assert same(method.state_dict(), before)
    sanitised = method.privacy.mechanism == "gs_wgan"
    users = torch.arange(8)
    another = partial(method.step, UserBatch(users)) if sanitised else partial(gradients, method, users)
    with pytest.raises(BudgetSpentError, match="planned steps were taken"):
        another()


def test_what_is_trained_moves_and_nothing_else(private: Run) -> None:
    method, _, weights = private
    moved = {name for name, values in method.state_dict().items() if not torch.equal(values, weights.before[name])}
    assert {name for name in moved if name.startswith("generator")}
    critic = {f"critic.{name}" for name, _ in method.critic.named_parameters()}
    first = {"critic.first.weight", "critic.first.bias"}
    assert moved & critic == (first if method.privacy.mechanism == "first_layer_only" else critic)


def test_no_log_has_anything_of_what_is_secret(private: Run) -> None:
    """Real scores of a private critic; of one that is not, whatever it says, its losses and its gradients too."""
    method, trainer, _ = private
    train = {name for name, _ in (*method.logged, *method.to_average) if name.startswith("train/")}
    told = {"train/loss", "train/penalty/gan_stabilizer", "train/score_drift", "train/gradient_norm/0"}
    silent = method.privacy.mechanism == "gs_wgan"
    assert method.secret == ({"real_scores", "fake_scores", "critic"} if silent else {"real_scores"})
    assert train == {"train/gradient_norm/1"} | (set() if silent else told)
    assert {name for name in trainer.callback_metrics if name.startswith("train/")} == train
    values = [value for name, value in (*method.logged, *method.to_average) if name.startswith("train/")]
    assert method.real
    for scores in method.real:
        for secret in (scores.mean(), scores.square().mean(), float(len(scores))):
            assert all(abs(value - float(secret)) > 1e-9 for value in values)
    penalties = sum(name == "train/penalty/gan_stabilizer" for name, _ in method.to_average)
    assert penalties == (0 if silent else 7), "generated rows' alone"


def test_a_penalty_on_the_generator_is_not_logged_where_it_may_tell_of_the_critic() -> None:
    class Added(Callback):
        def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:  # noqa: ANN401
            squares = lambda outputs: outputs["fake_scores"].detach().square().mean()  # noqa: E731
            pl_module.add_penalty("squares", squares, to="generator")

    for mechanism, names in (("gs_wgan", set()), ("none", {"train/loss", "train/penalty/squares"})):
        run = fitted(Added(), mechanism=mechanism, epochs=1)
        assert {name for name, _ in run.method.logged} == names
        assert run.method.critic_steps.taken == 6


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize("mechanism", sorted(UNSOUND))
def test_where_nobody_is_protected_nothing_is_hidden_and_nothing_claimed(mechanism: str) -> None:
    method, trainer, _ = fitted(GANStabilizer(), mechanism=mechanism, paper_faithful=mechanism in FAITHFUL)
    assert method.secret == frozenset()
    assert "train/critic_gap" in trainer.callback_metrics
    assert "train/loss" in trainer.callback_metrics
    assert (method.steps_left, method.critic_steps.taken, method.private_gradient) == (0, 7, None)
    assert method.audits() == []
    release = method.release(method.data.train, "music")  # type: ignore[arg-type]
    assert release.ledger == (NonPrivateEvent(),) == tuple(method.events(40))
    for record in (release.record, method.forecast(40, 30)):
        assert (record.guarantee, record.reason) == (Guarantee.NONE, UNSOUND[mechanism])
        assert "epsilon" not in str(record)


def test_a_count_of_steps_survives_a_checkpoint_and_never_falls(private: Run, tmp_path: Path) -> None:
    method, trainer, _ = private
    assert method.private_gradient is not None
    taken = method.private_gradient.steps_taken
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    loaded = type(method).load_from_checkpoint(tmp_path / "last.ckpt", weights_only=True)
    assert loaded.private_gradient is not None
    assert (loaded.private_gradient.steps_taken, loaded.steps_left) == (taken, 0)
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
    about = {"mechanism": method.privacy.mechanism, "critic_steps": 7, "place": None}
    assert checkpoint["zoo"]["spent"] == {**about, "private": method.private_gradient.state_dict()}
    checkpoint["zoo"]["spent"]["private"]["steps_taken"] = 3
    with pytest.raises(ValueError, match="steps_taken must lie in"):
        method.on_load_checkpoint(checkpoint)
    try:
        method.trainer.state.fn = TrainerFn.TESTING
        method.on_load_checkpoint(checkpoint)  # an older epoch is only looked at
    finally:
        method.trainer.state.fn = TrainerFn.FITTING
    assert method.private_gradient.steps_taken == taken


@pytest.mark.usefixtures("planned")
@pytest.mark.parametrize("split", ["latest2", "cold_start"])
def test_epochs_have_the_same_length_whoever_has_ratings(
    split: Literal["latest2", "cold_start"], tmp_path: Path
) -> None:
    """Users without any, as of the second split, are listed too. Early stopping would show what epsilon does not cover."""
    data = Synthetic(**SIZES, evaluation=Evaluation(split=split))
    method, trainer, _ = fitted(data=data, epochs=1)
    empty = int((method.target_rows.counts() == 0).sum())
    assert (empty > 8) == (split == "cold_start"), "the others would fill two batches"
    assert (trainer.num_training_batches, method.critic_steps.taken) == (3, 6)
    stopped, stopping, _ = fitted(EarlyStopping("train/loss"), data=data, epochs=1)
    stopping.save_checkpoint(tmp_path / "stopped.ckpt")
    loaded = SPPG(**SMALL)
    trainer_of(limit_val_batches=0).test(loaded, data, tmp_path / "stopped.ckpt", weights_only=True, verbose=False)
    records = method.privacy_record(), stopped.privacy_record(), loaded.privacy_record()
    assert ["chosen_by_metrics" in record.conditions for record in records if record] == [False, True, True]
    stopping = trainer_of(EarlyStopping("train/loss"), epochs=1, limit_val_batches=0)
    stopping.fit(method := SPPG(**SMALL), datamodule=data)
    stopping.test(method, data, verbose=False)
    assert "chosen_by_metrics" in (record := method.release(data.train, "music").record).conditions
    assert record.claims
    trainer_of(epochs=1, limit_val_batches=0).fit(method, datamodule=Synthetic(**SIZES | {"ratings_per_user": 9}))
    assert method.release(data.train, "music").record.reason == "the weights were also learned from other ratings"


@pytest.mark.usefixtures("planned")
def test_what_the_weights_of_a_checkpoint_cost_is_counted_also_where_they_are_only_looked_at(tmp_path: Path) -> None:
    """They stay where they were loaded, to be released or trained further."""
    first = fitted(epochs=1)
    first.trainer.save_checkpoint(tmp_path / "six.ckpt")
    data = Synthetic(**SIZES)
    method = SPPG(**SMALL)
    trainer_of().test(method, datamodule=data, ckpt_path=tmp_path / "six.ckpt", weights_only=True, verbose=False)
    assert method.private_gradient is not None
    assert method.private_gradient.steps_taken == method.critic_steps.taken == 6
    record = method.release(data.train, "music").record
    assert record.compositions == 6
    trainer_of(limit_val_batches=0).fit(method, datamodule=data)
    plan = method.private_gradient.plan
    assert (method.private_gradient.steps_taken, plan.steps) == (plan.steps, 10)
    seeded = fitted(epochs=1, noise_seed=3)
    seeded.trainer.save_checkpoint(tmp_path / "seeded.ckpt")
    trainer_of().test(method, datamodule=data, ckpt_path=tmp_path / "seeded.ckpt", weights_only=True, verbose=False)
    release = method.release(data.train, "music")
    assert release.record.guarantee is Guarantee.NONE
    assert release.record.reason == "some of its steps were taken with seeded noise"


@pytest.mark.usefixtures("planned")
def test_a_training_without_noise_cannot_be_gone_on_with_as_private(tmp_path: Path) -> None:
    fitted(mechanism="none", epochs=1).trainer.save_checkpoint(tmp_path / "open.ckpt")
    where: dict[str, Any] = {"ckpt_path": tmp_path / "open.ckpt", "weights_only": True}
    with pytest.raises(ValueError, match="Restart training"):
        trainer_of().fit(SPPG(**SMALL), datamodule=Synthetic(**SIZES), **where)


def test_a_release_is_the_averaged_generator_and_claims_what_was_spent(private: Run, tmp_path: Path) -> None:
    method = private.method
    source = private.trainer.datamodule.train  # type: ignore[attr-defined]
    release = method.release(source, "music")
    assert release.kind == "generator"
    assert set(release.tensors) == {"embedding", "weight_0", "bias_0", "weight_1", "bias_1"}
    assert same(dict(release.tensors), method.scored.tensors())
    shapes = {tuple(values.shape) for values in release.tensors.values()}
    assert shapes == {(40, 4), (8, 4), (8,), (30, 8), (30,)}
    critic = [values.detach() for values in method.critic.parameters()]
    assert not any(torch.equal(values, part) for values in release.tensors.values() for part in critic)
    assert np.array_equal(release.user_ids, source.user_ids)
    spent = method.private_gradient
    assert spent is not None
    assert release.ledger == spent.events()
    done = source.applied
    assert release.record == method.privacy.record(40, done, method._public_inputs(30), spent.steps_taken)
    assert release.record.guarantee is Guarantee.PROVED, "the data define their users and items"
    assert release.record.epsilon == pytest.approx(spent.plan.epsilon_after(spent.steps_taken), rel=1e-8)
    assert method.forecast(40, 30).epsilon == release.record.epsilon
    counted = (Step("minimum of users", "no user is counted", "row"), Step("minimum of items", "no item is counted"))
    other = replace(source, applied=counted)
    assert method.release(other, "music").record.reason == ELSEWHERE, "the training knows of other steps"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method, "steps_before", plain_steps(other))
        record = method.release(other, "music").record
    assert record.conditions == ("no item is counted",), "what happens in a user's own row is bounded"
    assert record.guarantee is method.forecast(40, 30, counted).guarantee is Guarantee.CONDITIONAL
    kept = Release.load(release.save(tmp_path / "release"))
    assert (kept.record, kept.ledger) == (release.record, release.ledger)
    method.eval()
    users = torch.tensor([5, 0, 39, 5])
    with torch.no_grad():
        assert torch.allclose(kept.rows(users), method.scored(users), atol=1e-6)
        assert torch.allclose(method.score_all(users).sigmoid(), kept.rows(users).clamp(1e-7, 1 - 1e-7), atol=1e-6)


@pytest.mark.parametrize("mechanism", ["private_d", "none"])
@pytest.mark.usefixtures("planned")
def test_nothing_is_released_before_it_is_trained(mechanism: str) -> None:
    method, data = SPPG(mechanism=mechanism, **SMALL), Synthetic(**SIZES)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"SPPG has taken no step: nothing to release"):
        method.release(data.source("book"), "book")
    method = fitted(mechanism=mechanism, epochs=0).method
    with pytest.raises(RuntimeError, match="SPPG has taken no step"):
        method.release(data.source("book"), "book")


def went_on(tmp_path: Path, **settings: Any) -> SPPG:  # noqa: ANN401
    """Trained for an epoch, and from a checkpoint of that to the end."""
    first = fitted(epochs=1, **settings)
    first.trainer.save_checkpoint(tmp_path / "half.ckpt")
    torch.manual_seed(123)
    method = SPPG(**(SMALL | settings))
    data = Synthetic(**SIZES)
    trainer_of(limit_val_batches=0).fit(method, datamodule=data, ckpt_path=tmp_path / "half.ckpt", weights_only=True)
    return method


@pytest.mark.parametrize("mechanism", sorted(get_args(Mechanism)))
@pytest.mark.usefixtures("planned")
def test_with_a_seed_a_resumed_training_equals_an_unbroken_one(mechanism: Mechanism, tmp_path: Path) -> None:
    settings = {"mechanism": mechanism, "noise_seed": 3, "paper_faithful": mechanism in FAITHFUL, "steps": 9}
    whole = fitted(**settings).method
    resumed = went_on(tmp_path, **settings)
    assert whole.critic_steps.taken == resumed.critic_steps.taken >= 9
    assert same(whole.state_dict(), resumed.state_dict())


@pytest.mark.usefixtures("planned")
def test_without_a_seed_what_is_trained_from_a_checkpoint_has_noise_of_its_own_each_time(tmp_path: Path) -> None:
    one, other = (went_on(tmp_path, steps=9).state_dict() for _ in range(2))
    assert not same(one, other)
