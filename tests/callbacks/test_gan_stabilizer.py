"""GANStabilizer: the pendulum that it damps at the rate that control theory says, what it is refused on, what it logs."""

import math
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from pytorch_lightning import Callback, LightningModule, Trainer, seed_everything
from torch import Tensor

from callbacks import GANStabilizer
from datamodules import Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from tests.zoo.privacy.training.critics import bare_plan
from zoo import DMF, SPPG
from zoo.privacy.training.generator_privacy import GeneratorPrivacy

pytestmark = pytest.mark.thorough

SIZES: dict[str, Any] = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "batch_size": 16, "seed": 1}
SMALL: dict[str, Any] = {
    "steps": 8, "sample_size": 8, "n_critic": 2, "condition_dim": 4, "generator_dims": (8,), "critic_dims": (8, 4),
}  # fmt: skip
STEP = 0.004


def dirac_game(callback: GANStabilizer | None, points: Tensor, time: float) -> tuple[Tensor, Tensor]:
    """A game for each real point: critic ``D(x) = phi x`` and one generated point, both moving down their gradients.

    Returns:
        How far the generated point is from the real one, and phi, at every step; shape ``(steps, games)``.
    """
    fake, phi = (1.01 * points).requires_grad_(), torch.zeros_like(points).requires_grad_()
    path = []
    for _ in range(round(time / STEP)):
        path.append(torch.stack([fake - points, phi]).detach())
        real_scores, fake_scores = phi * points, phi * fake
        critic = -real_scores + fake_scores
        if callback is not None:  # one by one, as a private critic asks
            critic = critic + callback.penalty({"real_scores": real_scores})
            critic = critic + callback.penalty({"fake_scores": fake_scores})
        (down,) = torch.autograd.grad(critic.sum(), phi, retain_graph=True)
        (along,) = torch.autograd.grad(-fake_scores.sum(), fake)
        with torch.no_grad():
            phi -= STEP * down
            fake -= STEP * along
    distance, slope = torch.stack(path).unbind(dim=1)
    return distance, slope


def turns(distance: Tensor, slope: Tensor) -> tuple[list[float], list[float]]:
    """When one game's generated point turns, and how far away it is then."""
    at = ((slope[:-1] * slope[1:] < 0).nonzero().squeeze(1) + 1).tolist()
    return [STEP * step for step in at], [float(distance[step].abs()) for step in at]


def test_without_it_players_circle() -> None:
    points = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64)
    distance, slope = dirac_game(None, points, time=4 * math.pi)
    away = (distance.square() + slope.square()).sqrt()
    assert (away[-1] >= away[0]).all()
    assert (away[-1] < 1.1 * away[0]).all(), "no further than the finite step explains"
    for game in range(3):
        times, _ = turns(distance[:, game], slope[:, game])
        assert times[-1] - times[0] == pytest.approx(math.pi * (len(times) - 1), rel=0.01), "round in 2 pi"


def test_below_one_over_c_squared_it_spirals_in_at_the_rate_of_the_poles() -> None:
    """Roots of ``s^2 + 2 tau c^2 s + 1``: real part ``-tau c^2``, imaginary part ``sqrt(1 - tau^2 c^4)``."""
    tau, points = 0.3, torch.tensor([0.7, 1.0, 1.4], dtype=torch.float64)
    distance, slope = dirac_game(GANStabilizer(tau), points, time=9.0)
    for game, point in enumerate(points.tolist()):
        damping = tau * point**2
        assert damping < 1
        times, away = turns(distance[:, game], slope[:, game])
        assert len(times) >= 2
        half = times[1] - times[0]
        assert math.log(away[0] / away[1]) / half == pytest.approx(damping, rel=0.05)
        assert half == pytest.approx(math.pi / math.sqrt(1 - damping**2), rel=0.05)


def test_above_it_creeps_in_at_the_slower_pole() -> None:
    tau, points = 1.5, torch.tensor([1.0], dtype=torch.float64)
    distance, slope = dirac_game(GANStabilizer(tau), points, time=9.0)
    assert (distance > 0).all(), "it does not swing over"
    assert not turns(distance[:, 0], slope[:, 0])[0]
    early, late = round(6 / STEP), -1
    passed = STEP * (len(distance) - 1 - early)
    rate = float((distance[early] / distance[late]).log()) / passed
    assert rate == pytest.approx(tau - math.sqrt(tau**2 - 1), rel=0.05)


def test_a_users_value_is_half_of_tau_times_its_squared_scores() -> None:
    real, fake = torch.tensor([1.0, -2.0, 0.0]).requires_grad_(), torch.tensor([3.0, 0.5, -1.0]).requires_grad_()
    callback = GANStabilizer(tau=3.0)
    both = callback.penalty({"real_scores": real, "fake_scores": fake})
    assert both.tolist() == [15.0, 6.375, 1.5]
    (found,) = torch.autograd.grad(both.sum(), real)
    assert found.tolist() == [3.0, -6.0, 0.0]
    assert callback.penalty({"real_scores": real}).tolist() == [1.5, 6.0, 0.0]
    assert callback.penalty({"fake_scores": fake[:0]}).shape == (0,)


@pytest.mark.parametrize("tau", [-1.0, math.nan, math.inf])
def test_a_bad_tau_is_refused(tau: float) -> None:
    with pytest.raises(ValueError, match=rf"tau is {tau}\. It must be finite and not negative\."):
        GANStabilizer(tau)


def test_who_exposes_no_scores_is_refused_by_name() -> None:
    message = (
        r"DMF has the step outputs \['item_factors', 'user_factors'\]\. GANStabilizer needs real_scores and fake_scores"
    )
    with pytest.raises(TypeError, match=message):
        GANStabilizer().setup(Trainer(accelerator="cpu", logger=False), DMF(), "fit")
    with pytest.raises(TypeError, match=r"LightningModule has the step outputs \[\]\. .*Use SPPG"):
        GANStabilizer().setup(Trainer(accelerator="cpu", logger=False), LightningModule(), "fit")


def fitted(mechanism: str, *callbacks: Callback, **settings: Any) -> tuple[SPPG, Trainer]:  # noqa: ANN401
    """A short training."""
    seed_everything(0)
    trainer = quiet(max_epochs=3, limit_val_batches=0, callbacks=[*callbacks])
    method = SPPG(mechanism=mechanism, **(SMALL | settings))  # type: ignore[arg-type]
    trainer.fit(method, datamodule=Synthetic(**SIZES))
    return method, trainer


def figures(mechanism: str, *callbacks: GANStabilizer, **settings: Any) -> dict[str, float]:  # noqa: ANN401
    """What it logs."""
    _, trainer = fitted(mechanism, *callbacks, **settings)
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


COMMON = {
    "train/loss", "train/penalty/gan_stabilizer", "train/score_drift", "train/gradient_norm/0", "train/gradient_norm/1",
}  # fmt: skip


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search for the noise."""
    plan = bare_plan(2.0, clip=1.0, rate=0.2)
    monkeypatch.setattr(GeneratorPrivacy, "training_plan", lambda _self, _users: plan)


def test_of_an_ordinary_critic_gap_drift_and_norms_are_logged() -> None:
    found = figures("none", GANStabilizer())
    assert found.keys() == COMMON | {"train/critic_gap"}
    assert all(math.isfinite(value) for value in found.values())
    assert found["train/gradient_norm/0"] > 0
    assert found["train/gradient_norm/1"] > 0
    assert found["train/score_drift"] > 0


def test_drift_is_from_one_batch_to_the_next() -> None:
    stabilizer, method = GANStabilizer(), Mock(secret=frozenset())
    for mean in (1.0, 4.0, 3.5):
        stabilizer.penalty({"fake_scores": torch.full((3,), mean)})
        stabilizer.on_train_batch_end(Mock(), method, None, None, 0)
    logged = [call.args for call in method.log_mean.call_args_list]
    assert logged == [("train/score_drift", 3.0), ("train/score_drift", 0.5)]


class Watch(Callback):
    """Notes, batch by batch and with its rows, what is to be averaged."""

    def __init__(self, stabilizer: GANStabilizer) -> None:
        self.stabilizer, self.rows = stabilizer, 0
        self.seen: dict[str, list[tuple[float, int]]] = {}

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.seen.clear()

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        self.rows = max(len(batch.users), 1)

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:  # noqa: ANN401
        number = [made is optimizer for made in trainer.optimizers].index(True)
        own = {id(p) for group in optimizer.param_groups for p in group["params"]}
        squares = [p.grad.square().sum() for p in pl_module.parameters() if id(p) in own and p.grad is not None]
        self._note(f"train/gradient_norm/{number}", math.sqrt(sum(map(float, squares))))

    def on_train_batch_end(self, *_: object) -> None:
        real, fake = (self.stabilizer._means[name] for name in ("real_scores", "fake_scores"))
        self._note("train/critic_gap", real - fake)

    def _note(self, name: str, value: float) -> None:
        self.seen.setdefault(name, []).append((value, self.rows))


def test_what_is_logged_is_the_mean_over_the_rows_of_an_epoch() -> None:
    stabilizer = GANStabilizer()
    watch = Watch(stabilizer)
    _, trainer = fitted("none", stabilizer, watch)
    assert watch.seen.keys() == {"train/critic_gap", "train/gradient_norm/0", "train/gradient_norm/1"}
    for name, seen in watch.seen.items():
        expected = sum(value * rows for value, rows in seen) / sum(rows for _, rows in seen)
        assert float(trainer.callback_metrics[name]) == pytest.approx(expected, rel=1e-5)


def test_a_tau_of_nothing_changes_no_bit_and_logs_all_the_same() -> None:
    (alone, _), (beside, trainer) = fitted("none"), fitted("none", GANStabilizer(tau=0.0))
    weights = beside.state_dict()
    assert all(torch.equal(values, weights[name]) for name, values in alone.state_dict().items())
    assert {"train/critic_gap", "train/score_drift"} <= trainer.callback_metrics.keys()
    assert float(trainer.callback_metrics["train/penalty/gan_stabilizer"]) == 0


@pytest.mark.usefixtures("planned")
def test_of_a_private_critic_the_gap_is_not_logged() -> None:
    assert figures("private_d", GANStabilizer()).keys() == COMMON


def test_where_what_a_critic_says_is_sanitised_it_says_nothing_to_a_log() -> None:
    """Neither scores nor losses nor gradients of the critic; those that the generator gets have their noise."""
    assert figures("gs_wgan", GANStabilizer()).keys() == {"train/gradient_norm/1"}


@pytest.mark.usefixtures("planned")
@pytest.mark.filterwarnings("ignore:SPPG with .* has no guarantee")
@pytest.mark.parametrize("mechanism", ["first_layer_noise", "upstream_noise"])
def test_where_nobody_is_protected_nothing_is_hidden(mechanism: str) -> None:
    assert figures(mechanism, GANStabilizer(), paper_faithful=True).keys() == COMMON | {"train/critic_gap"}


@pytest.mark.parametrize("conditioning", ["product", "sum"])
def test_a_strong_one_holds_scores_near_nothing(conditioning: str) -> None:
    """The same seeded training: the critic's squared scores fall to less than a tenth, measured 1/300."""
    weak, strong = (
        figures("none", GANStabilizer(tau=tau), conditioning=conditioning, lr_critic=1e-2) for tau in (1e-3, 50.0)
    )
    squares = [found["train/penalty/gan_stabilizer"] / tau for found, tau in ((weak, 1e-3), (strong, 50.0))]
    assert squares[1] < squares[0] / 10


def test_a_tau_of_zero_adds_nothing_and_is_told_of_the_scores() -> None:
    callback = GANStabilizer(tau=0.0)
    scores = {"real_scores": torch.tensor([1.0, 3.0]), "fake_scores": torch.tensor([0.5, 0.5])}
    assert callback.penalty(scores).tolist() == [0.0, 0.0]
    assert callback._means == {"real_scores": 2.0, "fake_scores": 0.5}
