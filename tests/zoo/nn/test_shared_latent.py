"""SharedLatents: the loss number by number, who counts, and latents that come to say what all domains have in common."""

import math

import pytest
import torch
from torch import Tensor

from zoo.nn.shared_latent import SharedLatents

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
            decoded = (
                coder.decoder.weight @ torch.tensor(drawn, dtype=torch.float64) + coder.decoder.bias - vector
            ).tolist()
            expected += mean_square([e - s for e, s in zip(encoded, (*means, *logs), strict=True)])
            expected += mean_square(decoded)
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
