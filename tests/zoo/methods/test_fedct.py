"""FedCT: what the latents are learned from, scores written out, factors that are BPR's, a planted transfer."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from datamodules import Evaluation
from tests.zoo.methods.mixed_runs import TRIPLES, TWO, around, cold_hit_rate, embedded, fitted, two_sources
from zoo import BPR, FedCT, Shuffled
from zoo.methods.fedct import SharedLatents, Vectors

EVERYBODY = torch.arange(60)


def of_two(folder: Path, epochs: int, **arguments: Any) -> FedCT:  # noqa: ANN401
    method = FedCT(**{"num_factors": 4, "latent_dim": 3, "lr": 0.05} | arguments)
    fitted(method, around(two_sources(folder), evaluation=Evaluation(split="cold_start"), **TWO), epochs)
    return method


def standardised_by_hand(values: Tensor, who: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Vectors, what they were centred by, and what they were divided by, so that those of some have mean 0 and mean square 1."""
    centre = values[who].mean(0)
    scale = (values[who] - centre).square().mean().sqrt()
    return (values - centre) / scale, centre, scale


def of_source(method: FedCT, name: str) -> tuple[Tensor, Tensor]:
    """Standardised vectors of the target's users in double precision, and who has one."""
    linked = method.sources[name]
    present = linked.links >= 0
    return standardised_by_hand(linked.rows.rows.double()[linked.links.clamp(min=0)], present)[0], present


def known(method: FedCT) -> Tensor:
    return method.target_rows.counts() > 0


def test_factors_are_those_of_bpr_without_a_source(tmp_path: Path) -> None:
    ours, alone = FedCT(num_factors=4, latent_dim=3, l2=0.02), BPR(num_factors=4, l2=0.02, lr=0.01)
    fitted(ours, around(two_sources(tmp_path), **TWO))
    fitted(alone, around(**TWO))
    for mine, theirs in zip(ours.factors.parameters(), alone.factors.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_latents_learn_from_the_vectors_of_all_domains_that_have_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users of the batch, each once; factors as they are at the moment, standardised over users with history."""
    method, seen = of_two(tmp_path, 2, kl_weight=0.3), []

    def loss(users: Tensor, vectors: Vectors, kl_weight: float) -> Tensor:
        seen.append((users, vectors, kl_weight))
        return torch.tensor(5.0)

    monkeypatch.setattr(method.latents, "loss", loss)
    assert float(method.transfer_loss(TRIPLES)) == 5
    ((users, vectors, kl_weight),) = seen
    assert (users.tolist(), kl_weight) == ([3, 7, 40], 0.3)
    factors = method.factors.users.weight.detach().double()
    found, who = vectors[""]
    assert who.all()
    assert torch.allclose(found.double(), standardised_by_hand(factors, known(method))[0][users], atol=1e-5)
    for name in ("book", "film"):
        values, present = of_source(method, name)
        found, who = vectors[name]
        assert torch.equal(who, present[users])
        assert torch.allclose(found.double()[who], values[users][who], atol=1e-5)
    assert {*vectors} == {"", "book", "film"}


def test_the_loss_is_that_of_triples_latents_and_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    method = of_two(tmp_path, 1, l2=0.3, coder_l2=0.4)
    monkeypatch.setattr(method.latents, "loss", lambda *_: torch.tensor(2.5))
    users, items = (table.weight.detach().double() for table in (method.factors.users, method.factors.items))
    expected = 2.5
    for user, positive, negative in zip(*TRIPLES, strict=True):
        read = (users[user], items[positive], items[negative])
        expected += float(torch.log(1 + torch.exp(read[0] @ read[2] - read[0] @ read[1])))
        expected += 0.15 * sum(float(factor @ factor) for factor in read)
    for name, part in method.latents.coders.named_parameters():
        expected += 0.2 * float(part.detach().square().sum()) * name.endswith("weight")
    assert float(method.step(TRIPLES)["loss"].detach()) == pytest.approx(expected, rel=1e-5)


def test_transfer_moves_latents_and_coders_alone(tmp_path: Path) -> None:
    method = of_two(tmp_path, 0)
    method.zero_grad()
    method.transfer_loss(TRIPLES._replace(users=torch.tensor([3, 35, 50, 59]))).backward()  # type: ignore[no-untyped-call]
    moved = {name for name, part in method.named_parameters() if part.grad is not None and float(part.grad.abs().sum())}
    assert moved == {name for name, _ in method.named_parameters() if name.startswith("latents")}


@pytest.mark.parametrize("share", [1.0, 0.3])
def test_history_and_rows_decide_what_a_user_is_scored_by(share: float, tmp_path: Path) -> None:
    """Known: the own latent, mixed; not known: the mean of what sources encode. Who is neither is ranked by item counts."""
    method = of_two(tmp_path, 3, source_share=share)
    scores, latents = method.ranking_scores(EVERYBODY).detach().double(), method.latents
    own, items = (table.weight.detach().double() for table in (method.factors.users, method.factors.items))
    _, centre, scale = standardised_by_hand(own, known(method))
    decoder, seen = latents.coder("").decoder, set()
    for user in range(60):
        encoded = []
        for name in ("book", "film"):
            values, present = of_source(method, name)
            if present[user]:
                encoder = latents.coder(name).encoder
                encoded.append((encoder.weight.double() @ values[user] + encoder.bias.double())[:3])
        is_known = bool(known(method)[user])
        seen.add((is_known, len(encoded)))
        expected = items @ own[user] if is_known else method.item_counts.double()
        if encoded:
            latent = latents.statistics.weight[user, :3].double() if is_known else sum(encoded) / len(encoded)
            decoded = (decoder.weight.double() @ latent + decoder.bias.double()) * scale + centre
            expected = items @ (share * decoded + (1 - share) * own[user] if is_known else decoded)
        assert torch.allclose(scores[user], expected.detach(), atol=1e-4)
    assert len(seen) == 6


def test_who_has_no_history_has_a_latent_that_nobody_moved(tmp_path: Path) -> None:
    method = of_two(tmp_path, 2)
    statistics = method.latents.statistics.weight
    assert not statistics[~known(method)].any()
    assert statistics[known(method)].any(1).all()


@pytest.mark.slow
def test_a_planted_transfer_is_found_for_cold_users(tmp_path: Path) -> None:
    """120 cold test users: the margin is some three standard errors of the difference; seeds are fixed."""
    both = embedded(), Shuffled(embedded())
    found, expected = (
        cold_hit_rate(FedCT(num_factors=8, latent_dim=8, lr=0.05), made, tmp_path, epochs=16) for made in both
    )
    assert found > expected + 0.18


WIDTHS = {"": 4, "book": 3, "film": 5}
USERS = torch.tensor([6, 1, 4])
PRESENT = {
    "": torch.tensor([True, True, False]),
    "book": torch.tensor([True, False, True]),
    "film": torch.tensor([False, True, True]),
}


def made() -> tuple[SharedLatents, dict[str, tuple[Tensor, Tensor]]]:
    torch.manual_seed(0)
    latents = SharedLatents(8, WIDTHS, 2).double()
    torch.nn.init.normal_(latents.statistics.weight)
    vectors = {name: (torch.randn(3, width).double(), PRESENT[name]) for name, width in WIDTHS.items()}
    return latents, vectors


def mean_square(numbers: list[float]) -> float:
    return sum(number**2 for number in numbers) / len(numbers)


def test_the_loss_is_errors_of_both_ways_and_divergence() -> None:
    """One user, one domain and one number after another."""
    latents, vectors = made()
    torch.manual_seed(5)
    found = float(latents.loss(USERS, vectors, kl_weight=0.7).detach())
    torch.manual_seed(5)
    noise, expected = torch.randn(3, 2, dtype=torch.float64), 0.0
    for place, user in enumerate(USERS):
        mean_0, mean_1, log_0, log_1 = latents.statistics.weight[user].tolist()
        means, logs = (mean_0, mean_1), (log_0, log_1)
        drawn = [m + math.exp(v / 2) * float(n) for m, v, n in zip(means, logs, noise[place], strict=True)]
        divergences = [(m**2 + math.exp(v) - 1 - v) / 2 for m, v in zip(means, logs, strict=True)]
        expected += 0.7 * sum(divergences) / 2
        for name, (values, present) in vectors.items():
            if not present[place]:
                continue
            coder, vector = latents.coder(name), values[place]
            encoded = (coder.encoder.weight @ vector + coder.encoder.bias).tolist()
            decoded = coder.decoder.weight @ torch.tensor(drawn, dtype=torch.float64) + coder.decoder.bias
            expected += mean_square([e - s for e, s in zip(encoded, (*means, *logs), strict=True)])
            expected += mean_square((decoded - vector).tolist())
    assert found == pytest.approx(expected, rel=1e-9)


def test_a_latent_starts_as_the_prior_and_costs_nothing_there() -> None:
    latents = SharedLatents(8, WIDTHS, 2)
    assert float(latents.loss(USERS, {}, kl_weight=3.0).detach()) == 0


def test_means_and_codes_are_the_first_half() -> None:
    latents, vectors = made()
    assert torch.equal(latents.means(USERS), latents.statistics.weight[USERS][:, :2])
    coder, (values, _) = latents.coder("film"), vectors["film"]
    assert torch.equal(latents.encoded("film", values), coder.encoder(values)[:, :2])


def test_weights_are_squared_without_biases() -> None:
    latents, _ = made()
    before = float(latents.squared_weights().detach())
    layers = [layer for coder in latents.coders for layer in (coder.encoder, coder.decoder)]
    assert before == pytest.approx(sum(float(layer.weight.square().sum().detach()) for layer in layers))
    for layer in layers:
        torch.nn.init.ones_(layer.bias)
    assert float(latents.squared_weights().detach()) == before


@pytest.mark.thorough
def test_what_one_domain_encodes_another_decodes() -> None:
    """Vectors of two domains are linear in two numbers of a user; the last 40 users are never learned from."""
    torch.manual_seed(1)
    said = torch.randn(200, 2)
    here, there = (said @ torch.randn(2, width) for width in (4, 3))
    latents = SharedLatents(200, {"": 4, "book": 3}, 2)
    optimizer, users = torch.optim.Adam(latents.parameters(), lr=0.02), torch.arange(160)
    everybody = torch.ones(160, dtype=torch.bool)
    for _ in range(400):
        optimizer.zero_grad()
        loss = latents.loss(users, {"": (here[:160], everybody), "book": (there[:160], everybody)}, kl_weight=0.05)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        decoded = latents.coder("").decoder(latents.encoded("book", there[160:]))
        own = latents.coder("").decoder(latents.means(users))
    for found, true in ((decoded, here[160:]), (own, here[:160])):
        assert float((found - true).square().mean()) < 0.1 * float(true.square().mean())
    assert torch.equal(latents.statistics.weight[160:], torch.zeros(40, 4))
