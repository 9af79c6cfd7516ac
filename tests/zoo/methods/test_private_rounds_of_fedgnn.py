"""FedGNN and FedGCDR in private rounds: each client alone, clipped; what is counted, kept through resume, said and refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import Callback, EarlyStopping
from torch import Tensor

import zoo.methods.fedgnn as fedgnn
from callbacks import PrivacyBudget
from tests.zoo.methods.quiet_trainer import quiet
from tests.zoo.methods.test_fedgcdr import of_two, two_sources
from tests.zoo.methods.test_fedgnn import Alone, Seen, around, begun, some
from zoo import EmbeddingPublisher, FedGCDR, FedGNN
from zoo.data.batch_types import UserBatch
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import Guarantee
from zoo.privacy.training.private_rounds import PrivateRounds
from zoo.publishers.trained import SourceRatings

pytestmark = pytest.mark.thorough

PRIVATE: dict[str, Any] = {"epsilon": 8.0, "clip": 0.5, "num_rounds": 6, "rate": 0.5}
USERS, ITEMS = 40, 30


def trainer_of(*callbacks: Callback, epochs: int = 9, **settings: Any) -> Trainer:  # noqa: ANN401
    unvalidated = {"max_epochs": epochs, "num_sanity_val_steps": 0, "limit_val_batches": 0}
    return quiet(**unvalidated | settings, callbacks=[*callbacks])


def fitted(method: FedGNN, *callbacks: Callback, epochs: int = 9, path: Path | None = None) -> Trainer:
    seed_everything(4)
    trainer = trainer_of(*callbacks, epochs=epochs)
    trainer.fit(method, datamodule=around(), ckpt_path=path, weights_only=path is not None)
    return trainer


def private(**settings: Any) -> FedGNN:  # noqa: ANN401
    return FedGNN(**{"num_factors": 3} | PRIVATE | settings)


def without_noise(method: FedGNN) -> None:
    assert method.private_gradient is not None
    plan = replace(method.private_gradient.plan, noise_multiplier=0.0)
    method.private_gradient = PrivateRounds(plan, USERS, NoiseSource.os())


@pytest.mark.parametrize(
    "settings",
    [{"clip": 0.01}, {"rounds": "fedavg", "local_steps": 2, "local_lr": 0.4, "attention": "gat", "clip": 0.005}],
    ids=str,
)
def test_a_round_is_of_each_client_alone_clipped(settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one; all weigh alike, the whole update is clipped, and what is divided by counts those who have nothing."""
    method = begun(**PRIVATE | {"rate": 1.0} | settings)
    without_noise(method)
    empty = method.target_rows.starts.clone()
    empty[4:] -= empty[4] - empty[3]
    empty[13:] = empty[12]
    method.target_rows.starts = empty  # user 3 has none, and all after the first twelve
    monkeypatch.setattr(fedgnn, "unowned_items", seen := Seen())
    method.step(UserBatch(torch.arange(2)))["loss"].backward()  # type: ignore[no-untyped-call]
    playing = [user for user in range(12) if user != 3]
    table = torch.zeros(ITEMS, 3).double()
    attention = {name: torch.zeros_like(part) for name, part in method.graphs.named_parameters()}
    scaled = 0
    for place, user in enumerate(playing):
        client = Alone(method, user, seen.of(place))
        client.train()
        moves = {item: client.moved(item) for item in client.rows} | {n: client.moved(n) for n in attention}
        norm = float(sum(move.square().sum() for move in moves.values())) ** 0.5
        share = min(1.0, settings["clip"] / norm)
        scaled += share < 1
        for item in client.rows:
            table[item] += share * moves[item]
        for name, part in attention.items():
            part += share * moves[name]
        assert torch.allclose(method._moved[1][place], client.vector)
    assert scaled > 3
    assert method._moved[0].tolist() == playing
    assert method.items.grad is not None
    assert torch.allclose(method.items.grad, -table / USERS, atol=1e-8)
    for name, part in method.graphs.named_parameters():
        assert part.grad is not None
        assert torch.allclose(part.grad, -attention[name] / USERS, atol=1e-8)


class Weights(Callback):
    """Keeps what the server has, and clients' vectors, after each round."""

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:  # noqa: ANN401
        self.seen = [{name: part.clone() for name, part in pl_module.state_dict().items()}]

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: object) -> None:  # noqa: ANN401
        self.seen.append({name: part.clone() for name, part in pl_module.state_dict().items()})


def test_rounds_end_with_the_plan_noise_every_row_and_tell_nothing() -> None:
    method, weights = private(server="sgd", lr=1.0), Weights()
    trainer = fitted(method, weights)
    assert method.private_gradient is not None
    assert (method.private_gradient.steps_taken, trainer.global_step, trainer.current_epoch) == (6, 6, 3)
    for before, after in zip(weights.seen, weights.seen[1:], strict=False):
        assert (before["items"] != after["items"]).any(1).all(), "also rows that nobody touched"
        assert (before["graphs.sending"] != after["graphs.sending"]).any()
        assert (before["factors"] != after["factors"]).any(1).float().mean() < 0.9, "who is not in it keeps its vector"
    assert not [name for name in trainer.callback_metrics if name.startswith("train/")]
    assert method.sent is None
    assert method.fetched is None
    record = method.privacy_record()
    assert record is not None
    assert (record.mechanism.name, record.guarantee, record.compositions) == ("DP-FedAvg", Guarantee.PROVED, 6)
    assert record.epsilon is not None
    assert 7.9 < record.epsilon <= 8.0
    assert record == method.forecast(USERS, ITEMS, method.data.train.applied)


def test_no_seed_repeats_a_round_and_no_round_moves_the_seed() -> None:
    drawn: list[Tensor] = []
    for _ in range(2):
        method = private(rate=1.0)
        fitted(method, epochs=0)
        without_noise(method)
        torch.manual_seed(0)
        before = torch.get_rng_state()
        loss = method.step(UserBatch(torch.arange(1)))["loss"]
        assert torch.equal(torch.get_rng_state(), before)
        loss.backward()  # type: ignore[no-untyped-call]
        assert method.items.grad is not None
        drawn.append(method.items.grad)
    assert not torch.equal(*drawn), "negatives, which are all that differs, are secret"


def test_the_count_goes_on_where_a_run_stopped(tmp_path: Path) -> None:
    first = private(rate=1.0)
    trainer = fitted(first, EarlyStopping("of another package", strict=False, verbose=False), epochs=2)
    trainer.save_checkpoint(tmp_path / "first.ckpt")
    again = private(rate=1.0)
    trainer = fitted(again, path=tmp_path / "first.ckpt")
    assert again.private_gradient is not None
    assert (again.private_gradient.steps_taken, trainer.global_step) == (6, 6)
    records = [method.privacy_record() for method in (first, again)]
    assert all("chosen_by_metrics" in record.conditions for record in records if record is not None), (
        "it may have ended it"
    )
    trainer.save_checkpoint(tmp_path / "all.ckpt")
    finished = private(rate=1.0)
    weights = Weights()
    fitted(finished, weights, path=tmp_path / "all.ckpt")
    assert finished.private_gradient is not None
    assert finished.private_gradient.steps_taken == 6
    assert all(torch.equal(seen["items"], weights.seen[0]["items"]) for seen in weights.seen), "nothing is left to do"
    with pytest.raises(ValueError, match=r"noise_multiplier was .* and is .*Restore them"):
        fitted(private(rate=1.0, epsilon=9.0), path=tmp_path / "first.ckpt")
    with pytest.raises(ValueError, match=r"steps was 6 and is 12"):
        fitted(private(rate=1.0, num_rounds=12), path=tmp_path / "first.ckpt")
    fitted(plain := FedGNN(num_factors=3), epochs=1).save_checkpoint(tmp_path / "plain.ckpt")
    assert plain.privacy_record() is None
    with pytest.raises(ValueError, match="Restart training"):
        fitted(private(rate=1.0), path=tmp_path / "plain.ckpt")
    seeded = private(rate=1.0, noise_seed=1)
    fitted(seeded, epochs=2).save_checkpoint(tmp_path / "seeded.ckpt")
    after = private(rate=1.0)
    fitted(after, path=tmp_path / "seeded.ckpt")
    record = after.privacy_record()
    assert record is not None
    assert (record.guarantee, record.reason) == (Guarantee.NONE, "some of its rounds had seeded noise")


def test_a_budget_ends_it_earlier() -> None:
    method = private(rate=1.0)
    with pytest.raises(ValueError, match=r"epsilon 1 does not cover one step"):
        fitted(method, PrivacyBudget(1.0))
    method = private(rate=1.0)
    trainer = fitted(method, PrivacyBudget(7.0))
    assert method.private_gradient is not None
    taken = method.private_gradient.steps_taken
    assert 1 < taken < 6
    shown, plan = float(trainer.callback_metrics["train/epsilon_zero_out_one_user"]), method.private_gradient.plan
    assert plan.epsilon_after(taken) <= shown < 7.1
    assert plan.epsilon_after(taken) <= 7.0 < plan.epsilon_after(taken + 1)
    record = method.privacy_record()
    assert record is not None
    assert (record.compositions, record.conditions) == (taken, ())


def test_who_has_nothing_or_everything_or_breaks_adds_nothing_and_nothing_fails() -> None:
    method = private(rate=1.0)
    fitted(method, epochs=0)
    without_noise(method)
    method.target_rows.starts = method.target_rows.starts * 0
    method.step(UserBatch(torch.arange(1)))["loss"].backward()  # type: ignore[no-untyped-call]
    assert method.items.grad is not None
    assert not method.items.grad.any()
    assert method.can_score(torch.arange(USERS)).all(), "nobody is ranked by item counts"
    assert not FedGNN.can_score(unprotected(method), torch.arange(USERS)).any()

    method = private(rate=1.0)
    trainer_of(epochs=1).fit(method, datamodule=SourceRatings(some([[1, 1, 1, 1], [0, 1, 1, 0]])))
    assert method._moved[0].tolist() == [1], "who has every item has no other to draw"

    method = private(rate=1.0)
    fitted(method, epochs=0)
    without_noise(method)
    method.factors[7] = torch.nan
    method.step(UserBatch(torch.arange(1)))["loss"].backward()  # type: ignore[no-untyped-call]
    assert 7 not in method._moved[0]
    assert len(method._moved[0]) == USERS - 1
    assert method.items.grad is not None
    assert method.items.grad.isfinite().all()
    with torch.no_grad():
        method.items[0] = torch.inf
    with pytest.raises(FloatingPointError, match=r"The model is not finite: it has diverged\. Lower lr"):
        method.step(UserBatch(torch.arange(1)))


def unprotected(method: FedGNN) -> FedGNN:
    method.privacy = None
    return method


def test_maps_are_noised_with_the_rest_and_fine_tuning_counts(tmp_path: Path) -> None:
    method = of_two(tmp_path, releases=two_sources(tmp_path), **PRIVATE, finetune_after=2, noise_seed=1)
    shared = {name: part.detach().clone() for name, part in method.shared().items()}
    assert any(name.startswith("maps.book") for name in shared)
    without_anybody(method)
    loss = method.step(UserBatch(torch.arange(1)))["loss"]
    loss.backward()  # type: ignore[no-untyped-call]
    for name, part in method.shared().items():
        assert part.grad is not None, name
        assert (part.grad != 0).any(), "also maps of sources that nobody of the round is in"
        part.grad = None
    method.tuning.fill_(True)
    method.step(UserBatch(torch.arange(1)))["loss"].backward()  # type: ignore[no-untyped-call]
    assert all(part.grad is None for part in method.shared().values()), "held, and so without noise"
    assert method.items.grad is not None
    assert (method.items.grad != 0).any(1).all()
    assert method.private_gradient is not None
    assert method.private_gradient.steps_taken == 2


def without_anybody(method: FedGCDR) -> None:
    method.target_rows.starts = method.target_rows.starts * 0


def test_a_training_of_fedgcdr_plays_its_plan_and_logs_no_attention(tmp_path: Path) -> None:
    method = of_two(tmp_path, epochs=5, releases=two_sources(tmp_path), **PRIVATE, finetune_after=2, noise_seed=1)
    assert method.private_gradient is not None
    assert (method.private_gradient.steps_taken, bool(method.tuning)) == (6, True)
    assert method.trainer is not None
    assert not [name for name in method.trainer.callback_metrics if "attention" in name or name.startswith("train/")]
    nowhere = ((method.target_rows.counts() == 0) & ~method.has_row(torch.arange(60))).nonzero().squeeze(1)
    assert len(nowhere)
    assert not method.score_all(nowhere).any(), "all items tie for users without history and row"


def test_validation_penalties_and_other_precisions_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"Validation would choose the epoch by held-out ratings.*Set trainer\.limit_val_batches to 0"
    ):
        trainer_of(limit_val_batches=1.0).fit(private(), datamodule=around())
    trainer_of(limit_val_batches=1.0, epochs=1).fit(private(noise_seed=1), datamodule=around())
    method = private()
    method.add_penalty("more", lambda _: torch.zeros(()))
    with pytest.raises(ValueError, match=r"A callback adds a penalty to \['loss'\], which is not clipped"):
        trainer_of().fit(method, datamodule=around())
    with pytest.raises(ValueError, match=r"trainer.precision is '64-true'\. Private rounds need 32-true"):
        trainer_of(precision="64-true").fit(private(), datamodule=around())


def test_its_users_vectors_are_not_published_beside() -> None:
    with pytest.raises(ValueError, match=r"FedGNN has an epsilon of its own, which protects item vectors, not"):
        EmbeddingPublisher(private(), 8.0, clip=1.0)


def test_audits_are_of_what_is_claimed() -> None:
    (audit,) = private(rate=1.0).audits()
    assert audit.name == "DP-FedAvg, 2 rounds"
    assert private(noise_seed=1).audits() == FedGNN().audits() == []
    assert FedGNN().forecast(5, 5).reason == "clients' updates have no noise"
