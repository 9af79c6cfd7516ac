"""Settings of SPPG: which are refused, and before what; that it learns, with noise and without."""

from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from callbacks import GANStabilizer
from datamodules import Synthetic
from tests.zoo.methods.sppg_runs import SIZES, SMALL, Weights, fitted, trainer_of
from tests.zoo.privacy.training.critics import bare_plan
from zoo import SPPG
from zoo.privacy.training.generator_privacy import GeneratorPrivacy


class Popular(Synthetic):
    """15 of 80 items have nine tenths of the ratings. Who likes what differs by chance alone."""

    def public_ids(self, domain: str) -> tuple[pl.Series, pl.Series]:
        """All users and items."""
        users = pl.Series([f"u{user:03d}" for user in range(self.num_users)])
        return users, pl.Series([f"i{item}" for item in range(80)]).sort()

    def read(self, domain: str) -> pl.DataFrame:
        """All interactions."""
        rng = np.random.default_rng(0)
        odds = np.where(np.arange(80) < 15, 1.0, 0.03)
        keys = np.log(odds) + rng.gumbel(size=(self.num_users, 80))
        taken = rng.permuted(np.argsort(-keys, axis=1)[:, :8], axis=1)
        return pl.DataFrame(
            {
                "user_id": [f"u{user:03d}" for user in range(self.num_users) for _ in range(8)],
                "item_id": [f"i{item}" for item in taken.ravel()],
                "rating": np.ones(taken.size),
                "timestamp": np.tile(np.arange(8), self.num_users),
            }
        )


def hit_rate(**settings: Any) -> float:  # noqa: ANN401
    """Of the validation items of 500 users among all that they have not rated, where 10 of 73 is chance."""
    seed_everything(0)
    method = SPPG(
        steps=100, sample_size=100, condition_dim=4, generator_dims=(), critic_dims=(8,), lr_generator=1e-2,
        lr_critic=1e-2, **settings
    )  # fmt: skip
    data = Popular(num_users=500, num_items=80, seed=0, batch_size=5)
    trainer = trainer_of(epochs=1, num_sanity_val_steps=0)
    trainer.fit(method, datamodule=data)
    assert method.steps_left == 0
    return float(trainer.callback_metrics["val/sampled/hit_rate@10"])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings", [{"mechanism": "none"}, {"epsilon": 8.0, "noise_seed": 0}], ids=["none", "private_d"]
)
def test_it_learns_what_users_have_in_common(settings: dict[str, Any]) -> None:
    """Seeded. Measured at this seed and two others: at least 0.78 without noise, 0.82 at epsilon 8, where chance is 0.14."""
    assert hit_rate(**settings) > 0.5


@pytest.mark.thorough
def test_overwhelming_noise_leaves_nothing_to_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seeded. Users get nearly the same ranking: a random one hits 0.14 on average, and at nine seeds at most 0.17."""
    plan = bare_plan(1000.0, clip=1.0, steps=100, rate=0.2)
    monkeypatch.setattr(GeneratorPrivacy, "training_plan", lambda _self, _users: plan)
    assert hit_rate(noise_seed=0) < 0.3


def test_a_bounded_critic_stays_bounded() -> None:
    method, _, weights = fitted(GANStabilizer(), mechanism="none", critic_bound=0.0625)
    assert method.steps_left == 0
    for name, values in method.critic.named_parameters():
        assert float(weights.before[f"critic.{name}"].abs().max()) <= 0.0625, "from the start"
        assert float(values.detach().abs().max()) <= 0.0625
        assert not torch.equal(values, weights.before[f"critic.{name}"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sample_size": 41}, "sample_size 41 exceeds the 40 users. Take a tenth"),
        ({"sample_size": 41, "mechanism": "gs_wgan"}, "sample_size 41 exceeds the 40 users"),
        ({"delta": 1 / 40}, "delta is 0.025. Allowed: below 1/40 .*Take 1e-05"),
        ({"epsilon": 0.0}, "epsilon is 0"),
        ({"relation": "change_one_rating"}, "Training protects whole users"),
    ],
    ids=str,
)
def test_what_does_not_fit_the_data_is_refused_before_training(settings: dict[str, Any], message: str) -> None:
    method, weights = SPPG(**(SMALL | settings)), Weights()
    with pytest.raises(ValueError, match=message):
        trainer_of(weights).fit(method, datamodule=Synthetic(**SIZES))
    assert not hasattr(weights, "before")


def assert_refused(match: str, error: type[Exception] = ValueError, **trainer: Any) -> None:  # noqa: ANN401
    """Before anything is built."""
    method, weights = SPPG(mechanism="gs_wgan", **SMALL), Weights()
    with pytest.raises(error, match=match):
        trainer_of(weights, **trainer).fit(method, datamodule=Synthetic(**SIZES))
    assert not hasattr(weights, "before")
    assert method.private_gradient is None


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true", "64-true"])
def test_other_precisions_are_refused(precision: str) -> None:
    assert_refused(f"SPPG trains in single precision; got '{precision}'. Set 32-true", precision=precision)


@pytest.mark.filterwarnings("ignore:.*16-mixed.*")
def test_half_precision_is_refused_by_whatever_name_it_runs() -> None:
    assert_refused(r"SPPG trains in single precision; got '(bf)?16-mixed'", precision="16-mixed")


def test_layers_that_no_release_may_have_are_refused_before_a_training() -> None:
    with pytest.raises(ValueError, match=r"generator_dims is .* each of width 1 to 65536\."):
        SPPG(**SMALL | {"generator_dims": (8, 2**16 + 1)})
    with pytest.raises(ValueError, match=r"input has 65,537 units\. Allowed: 65,536"):
        SPPG(**SMALL | {"condition_dim": 2**15 + 1, "noise_dim": 2**15})


def test_several_processes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "world_size", property(lambda _self: 2))
    assert_refused("SPPG takes its steps in one process, since .* is one sample and one noise a step; got 2 processes")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gradient_clip_val": 1.0}, "Automatic gradient clipping is not"),
        ({"accumulate_grad_batches": 2}, "accumulation"),
    ],
)
def test_a_second_clip_or_added_up_batches_are_refused(settings: dict[str, Any], message: str) -> None:
    assert_refused(message, MisconfigurationException, **settings)
