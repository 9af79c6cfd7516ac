"""ETL: its losses and scores written out user by user, and a planted transfer that it finds."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import seed_everything
from torch import Tensor, nn
from torch.nn import functional as F

from datamodules import Evaluation
from tests.zoo.methods.quiet_trainer import cold_hit_rate, quiet, released
from zoo import ETL, JLT, FlippedRows, Nothing, Partial, Plaintext, Publisher, Shuffled
from zoo.data.batch_types import UserBatch
from zoo.methods.etl import PriorDiscriminator

SIZES: dict[str, Any] = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "seed": 1}
USERS = torch.tensor([3, 0, 17, 25])
WITHOUT_DROPOUT: dict[str, Any] = {"source_dropout": 0.0, "input_dropout": 0.0, "discriminator_dropout": 0.0}


def made(folder: Path, *publishers: Publisher, split: str = "random2", **settings: Any) -> ETL:  # noqa: ANN401
    """The method with the data read and weights far from what they began as, without dropout; one source a publisher."""
    names = [f"book{k}" for k in range(len(publishers))]
    shape = SIZES | {"missing_users": "zero", "evaluation": Evaluation(split=split)}  # type: ignore[arg-type]
    data = released(folder, dict(zip(names, publishers, strict=True)), **shape)
    seed_everything(0)
    method = ETL(**{"dims": (8, 4)} | WITHOUT_DROPOUT | settings)
    quiet(max_epochs=0, limit_val_batches=0).fit(method, datamodule=data)
    for name in names:
        torch.nn.init.normal_(method.generator.sources[name].map.weight, std=0.5)
    torch.nn.init.normal_(method.generator.users.weight, std=2.0)
    return method.eval()


def codes(method: ETL, user: int) -> dict[str, Tensor]:
    """A user's codes by domain, not yet rectified; a source that has not the user is left out."""
    net, one = method.generator, torch.tensor([user])
    row, first = method.target_rows.dense(one), net.encoder.first
    own = net.encoder.rest(row @ first.weight + first.bias)
    found = {"target": own[0] + net.users.weight[user]}
    for name in method.sources:
        source, present = method.source_rows(name, one)
        if present:
            found[name] = net.sources[name].encoder(source)[0] + net.users.weight[user]
    return found


def expected_loss(method: ETL, user: int) -> float:
    """The paper's loss of one user."""
    net, one, found = method.generator, torch.tensor([user]), codes(method, user)
    wanted = {name: method.source_rows(name, one)[0][0] for name in method.sources}
    row = method.target_rows.dense(one)[0]

    def bits(logits: Tensor, row: Tensor) -> Tensor:
        return F.binary_cross_entropy(logits.sigmoid(), row, reduction="sum")

    def fit(name: str, decoded: Tensor) -> Tensor:
        return bits(decoded, wanted[name]) if method.bits[name] else ((decoded - wanted[name]) ** 2).sum()

    y = found["target"].clamp(min=0)
    loss = bits(net.decoder(y), row)
    for name in found.keys() - {"target"}:
        side, x = net.sources[name], found[name].clamp(min=0)
        w = side.map.weight
        loss = loss + fit(name, side.decoder(x))
        loss = loss + method.cross_weight * (bits(net.decoder(x @ w), row) + fit(name, side.decoder(w @ y)))
        loss = loss + method.equivalence_weight * ((x - w @ (x @ w)).abs().sum() + (y - (w @ y) @ w).abs().sum())
    for name, critic in zip(["target", *method.sources], method.discriminator, strict=True):
        if name in found:
            loss = loss - method.adversarial_weight * critic(found[name][None])[0].sigmoid().log()
    return float(loss.detach())


@pytest.mark.parametrize(
    "publishers",
    [
        [Plaintext()],
        [JLT(num_components=6, epsilon=8.0)],
        [Partial(Plaintext(), share=0.5), Plaintext()],
        [Nothing()],
        [],
    ],
    ids=["bits", "numbers", "two sources, one of them partial", "nobody", "no source"],
)
def test_the_loss_is_the_sum_of_what_each_user_costs_and_each_source_that_has_the_user(
    tmp_path: Path, publishers: list[Publisher]
) -> None:
    method = made(tmp_path, *publishers, cross_weight=0.7, equivalence_weight=0.4, adversarial_weight=1.3)
    outputs = method.step(UserBatch(USERS))
    expected = sum(expected_loss(method, int(user)) for user in USERS) / len(USERS)
    assert float(outputs["loss"].detach()) == pytest.approx(expected, rel=1e-4)
    assert torch.allclose(outputs["user_factors"][1], codes(method, 0)["target"], atol=1e-5)
    assert outputs["item_factors"].shape == (30, 8), "one row of the decoder's last layer for each item"


def test_each_domain_has_a_discriminator_of_its_own_codes(tmp_path: Path) -> None:
    method = made(tmp_path, Plaintext(), Partial(Plaintext(), share=0.5))
    state = torch.get_rng_state()
    loss = float(method.discriminator_step(UserBatch(USERS))["loss"].detach())
    torch.set_rng_state(state)
    expected = 0.0
    for name, critic in zip(["target", *method.sources], method.discriminator, strict=True):
        users = [int(user) for user in USERS if name in codes(method, int(user))]
        real = torch.stack([codes(method, user)[name] for user in users])
        prior = critic(torch.randn(len(users), 4)).sigmoid()
        expected -= float((prior.log().sum() + (1 - critic(real).sigmoid()).log().sum()).detach())
    assert loss == pytest.approx(expected / len(USERS), rel=1e-4)


def moved(method: ETL, **settings: float) -> set[str]:
    """Whose weights a loss moves, by the part of the method that they are in."""
    for name, value in settings.items():
        setattr(method, name, value)
    method.zero_grad()
    method.step(UserBatch(USERS))["loss"].backward()  # type: ignore[no-untyped-call]
    named = {"map": "sources.book0.map", "decoder": "sources.book0.decoder", "encoder": "sources.book0.encoder"}
    parameters = method.generator.named_parameters()
    grads = {name for name, parameter in parameters if parameter.grad is not None and bool(parameter.grad.any())}
    return {part for part, prefix in named.items() if any(name.startswith(prefix) for name in grads)}


def test_without_cross_and_equivalence_the_map_stands_still(tmp_path: Path) -> None:
    method = made(tmp_path, Plaintext())
    assert moved(method) == {"map", "decoder", "encoder"}
    assert moved(method, cross_weight=0.0) == {"map", "decoder", "encoder"}
    assert moved(method, equivalence_weight=0.0) == {"decoder", "encoder"}


def test_the_source_moves_the_targets_network_and_the_target_the_sources(tmp_path: Path) -> None:
    """Gradients of the cross reconstructions alone, which the difference of two losses leaves."""
    method, grads = made(tmp_path, Plaintext(), equivalence_weight=0.0, adversarial_weight=0.0), {}
    net = method.generator
    for weight in (0.0, 1.0):
        method.cross_weight = weight
        method.zero_grad()
        method.step(UserBatch(USERS))["loss"].backward()  # type: ignore[no-untyped-call]
        wanted = (net.encoder.first.weight, net.item_factors, next(net.sources["book0"].decoder.parameters()))
        grads[weight] = [table.grad.clone() for table in wanted if table.grad is not None]
    for without, with_cross in zip(grads[0.0], grads[1.0], strict=True):
        assert float((without - with_cross).abs().max()) > 1e-3


def test_who_has_history_is_scored_by_own_and_cross_logits_and_who_has_none_by_the_cross_logits(tmp_path: Path) -> None:
    method = made(tmp_path, Plaintext(), Partial(Plaintext(), share=0.5), split="cold_start", cross_share=0.3)
    known = method.target_rows.counts() > 0
    net, shown = method.generator, set()
    users = torch.arange(40)
    scores = method.score_all(users)
    for user in range(40):
        found, warm = codes(method, user), bool(known[user])
        if not warm:
            found = {name: code - net.users.weight[user] for name, code in found.items()}
        own = net.decoder(found.pop("target").clamp(min=0))
        turned = [code.clamp(min=0) @ net.sources[name].map.weight for name, code in found.items()]
        cross = net.decoder(torch.stack(turned).mean(0))
        expected = 0.7 * own + 0.3 * cross if warm else cross
        assert torch.allclose(scores[user], expected, atol=1e-4)
        shown.add((warm, len(turned)))
    assert shown == {(True, 1), (True, 2), (False, 1), (False, 2)}
    method.cross_share = 0.0
    assert torch.allclose(method.score_all(users[known])[0], net.decoder(own_code(method, known)), atol=1e-5)


def own_code(method: ETL, known: Tensor) -> Tensor:
    return codes(method, int(known.nonzero()[0]))["target"].clamp(min=0)


def test_a_release_of_nobody_changes_no_score(tmp_path: Path) -> None:
    method = made(tmp_path, Nothing(), cross_share=0.5)
    mixed = method.score_all(USERS)
    method.cross_share = 0.0
    assert torch.equal(mixed, method.score_all(USERS))


@pytest.mark.slow
def test_a_planted_transfer_is_found(tmp_path: Path) -> None:
    """80 cold test users, one fixed seed."""
    make = partial(ETL, dims=(32,), lr_generator=1e-2, lr_discriminator=1e-2)
    both = Plaintext(), Shuffled(Plaintext())
    found, control = (cold_hit_rate(make, made, tmp_path, 12, num_users=200, num_items=60) for made in both)
    assert found > control + 0.15


@pytest.mark.parametrize("publisher", [FlippedRows(epsilon=4.0), JLT(num_components=6, epsilon=8.0)])
def test_private_rows_are_learned_from(tmp_path: Path, publisher: Publisher) -> None:
    method = made(tmp_path, publisher, lr_generator=1e-2)
    assert method.bits["book0"] is isinstance(publisher, FlippedRows)
    assert torch.isfinite(method.step(UserBatch(USERS))["loss"])


def test_losses_are_the_cross_entropies_of_single_verdicts() -> None:
    torch.manual_seed(0)
    critic, codes = PriorDiscriminator(4), torch.randn(6, 4) * 3
    first, second = critic.layers[0], critic.layers[3]
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)

    def verdict(code: torch.Tensor) -> float:
        hidden = [float((w @ code + b).detach().relu()) for w, b in zip(first.weight, first.bias, strict=True)]
        logit = sum(float(w.detach()) * h for w, h in zip(second.weight[0], hidden, strict=True))
        return 1 / (1 + math.exp(-logit - float(second.bias[0].detach())))

    assert len(first.bias) == 2
    real = [verdict(code) for code in codes]
    assert float(critic.loss_of(codes).detach()) == pytest.approx(-sum(math.log(p) for p in real), rel=1e-4)
    state = torch.get_rng_state()
    loss = float(critic.own_loss(codes).detach())
    torch.set_rng_state(state)
    drawn = [verdict(code) for code in torch.randn(6, 4)]
    expected = -sum(math.log(p) for p in drawn) - sum(math.log(1 - p) for p in real)
    assert loss == pytest.approx(expected, rel=1e-4)


def test_codes_come_nearer_to_the_prior() -> None:
    """They begin around 4 with a spread of 0.3; a game does not settle, so no more is asked than half the way."""
    torch.manual_seed(0)
    critic, codes = PriorDiscriminator(8), (4 + 0.3 * torch.randn(128, 8)).requires_grad_()
    learner, player = torch.optim.Adam(critic.parameters(), lr=5e-3), torch.optim.Adam([codes], lr=5e-2)
    for _ in range(200):
        learner.zero_grad()
        critic.own_loss(codes.detach()).backward()  # type: ignore[no-untyped-call]
        learner.step()
        player.zero_grad()
        critic.loss_of(codes).backward()  # type: ignore[no-untyped-call]
        player.step()
    assert float(codes.detach().mean().abs()) < 2


def test_of_nobody_there_is_nothing_to_tell_and_one_number_is_enough() -> None:
    critic = PriorDiscriminator(1)
    assert float(critic.own_loss(torch.zeros(0, 1)).detach()) == 0
    assert float(critic.loss_of(torch.zeros(0, 1)).detach()) == 0
    assert critic(torch.zeros(5, 1)).shape == (5,)
