"""MultVAE: its bound written out, its annealing, and a pattern that it must learn."""

import math

import numpy as np
import pytest
import torch

from tests.zoo.methods.single_domain import fitted, learned, popular
from zoo import MultVAE
from zoo.data.batch_types import UserBatch

USERS = torch.tensor([5, 0, 40])


@torch.no_grad()
def test_the_loss_is_the_negative_bound() -> None:
    """Written out in numpy; without noise, as when scoring, what is drawn is the mean."""
    method, trainer = fitted(MultVAE(dims=(7, 6, 3), kl_weight=0.4, anneal_steps=10), 0)
    x = trainer.datamodule.train.matrix.toarray()[USERS].astype(float)  # type: ignore[attr-defined]
    method.eval()
    method.steps.fill_(4)
    state = {name: value.double().numpy() for name, value in method.state_dict().items()}
    hidden = np.tanh(x / np.linalg.norm(x, axis=1, keepdims=True) @ state["first.weight"] + state["first.bias"])
    hidden = np.tanh(hidden @ state["encoder.1.weight"].T + state["encoder.1.bias"])
    latent = hidden @ state["encoder.3.weight"].T + state["encoder.3.bias"]
    mean, log_variance = latent[:, :3], latent[:, 3:]
    out = np.tanh(mean @ state["decoder.0.weight"].T + state["decoder.0.bias"])
    out = np.tanh(out @ state["decoder.1.1.weight"].T + state["decoder.1.1.bias"])
    logits = out @ state["decoder.1.3.weight"].T + state["decoder.1.3.bias"]
    assert np.allclose(method.score_all(USERS).numpy(), logits, atol=1e-5)
    probabilities = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    likelihood = (x * np.log(probabilities)).sum(1)
    divergence = [
        sum(0.5 * (math.exp(v) + m * m - 1 - v) for m, v in zip(ms, vs, strict=True))
        for ms, vs in zip(mean, log_variance, strict=True)
    ]
    expected = (0.4 * 0.4 * np.array(divergence) - likelihood).mean()
    outputs = method.step(UserBatch(USERS))
    assert float(outputs["loss"]) == pytest.approx(expected, rel=1e-5)
    assert np.allclose(outputs["user_factors"].numpy(), mean, atol=1e-5)
    assert int(method.steps) == 4, "who only looks takes no step"


def test_beta_grows_with_steps_that_are_taken() -> None:
    method, _ = fitted(MultVAE(dims=(4, 2), kl_weight=0.5, anneal_steps=10), 3)
    taken = int(method.steps)
    assert taken == 3 * math.ceil(120 / 64)
    assert float(method.beta) == pytest.approx(0.05 * taken)
    method.steps.fill_(1000)
    assert float(method.beta) == pytest.approx(0.5)
    at_once, _ = fitted(MultVAE(dims=(4, 2), kl_weight=0.5, anneal_steps=0), 0)
    assert float(at_once.beta) == pytest.approx(0.5)


def test_latents_are_drawn_while_training_alone() -> None:
    """With the variance that the encoder says: over 4,000 draws within 10 %, which fails with probability below 1e-5."""
    method, _ = fitted(MultVAE(dims=(4, 2), input_dropout=0.0), 0)
    with torch.no_grad():
        method.encoder[-1].bias[2:] = 1.5  # a variance that is not its own root
    seen: list[torch.Tensor] = []
    method.decoder[0].register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0].detach()))
    one = UserBatch(USERS[:1].expand(4000))
    method.eval().step(one)
    mean, log_variance = (part.detach() for part in method.encode(method.target_rows.bags(USERS[:1])))
    assert torch.allclose(seen[0], mean.expand_as(seen[0]), atol=1e-6)
    torch.manual_seed(1)
    method.train().step(one)
    assert torch.allclose(seen[1].std(0), (0.5 * log_variance[0]).exp(), rtol=0.1)


def test_entries_are_left_out_while_training_alone() -> None:
    method, _ = fitted(MultVAE(dims=(4, 2), input_dropout=0.5), 0)
    whole = method.eval()._inputs(method.target_rows.bags(USERS))
    lengths = whole.weights.new_zeros(3).index_add_(0, whole.rows, whole.weights.square())
    assert torch.allclose(lengths, torch.ones(3))
    thinned = method.train()._inputs(method.target_rows.bags(USERS.repeat(50))).weights
    assert 0.3 < float((thinned == 0).float().mean()) < 0.7


def test_it_learns_tastes() -> None:
    _, trainer = fitted(MultVAE(dims=(64, 16), lr=1e-2, anneal_steps=100), 40)
    assert learned(trainer) > 1.3 * popular()
