"""Gradient reversal: the sign and weight of the gradient, and what a step of one optimiser does to both sides."""

import pytest
import torch
from torch.nn import functional as F

from zoo.nn.gradient_reversal import DomainClassifier, reverse_gradient


@pytest.mark.parametrize("weight", [0.0, 0.1, 3.0])
def test_the_gradient_has_its_sign_turned_and_its_weight(weight: float) -> None:
    inputs = torch.tensor([[1.0, -2.0], [0.5, 4.0]], requires_grad=True)
    out = reverse_gradient(inputs, weight)
    assert torch.equal(out, inputs)
    (gradient,) = torch.autograd.grad(out.square().sum() / 2, [inputs])
    assert torch.equal(gradient, -weight * inputs.detach())


def classifier() -> DomainClassifier:
    torch.manual_seed(0)
    return DomainClassifier(3, (4,), 3)


FEATURES, DOMAINS = torch.randn(6, 3, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1, 2])


def test_the_classifier_itself_learns_with_the_gradient_as_it_is() -> None:
    """Its own gradients are those of cross-entropy whatever the weight; its inputs' are those, turned and weighted."""
    plain, turned, weight = classifier(), classifier(), 0.25
    features = FEATURES.clone().requires_grad_()
    loss = F.cross_entropy(plain.layers(features), DOMAINS, reduction="sum")
    reversed_loss = turned.loss(features, DOMAINS, weight)
    assert torch.equal(loss, reversed_loss)
    of_features, *own = torch.autograd.grad(loss, [features, *plain.parameters()])
    of_turned, *of_its_own = torch.autograd.grad(reversed_loss, [features, *turned.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(own, of_its_own, strict=True))
    assert of_features.abs().min() > 0
    torch.testing.assert_close(of_turned, -weight * of_features)


def test_features_of_two_domains_learn_not_to_be_told_apart() -> None:
    """With a wide margin between two domains, trained by one optimiser, the gap between their means closes by nine tenths."""
    torch.manual_seed(0)
    domains = torch.arange(2).repeat(16)
    features = torch.nn.Parameter(torch.randn(32, 2) * 0.1 + domains[:, None])
    told = DomainClassifier(2, (4,), 2)
    optimiser = torch.optim.SGD([features, *told.parameters()], lr=0.05)

    def gap() -> float:
        return float((features[domains == 1].mean(0) - features[domains == 0].mean(0)).detach().norm())

    before = gap()
    for _ in range(200):
        optimiser.zero_grad()
        told.loss(features, domains, 1.0).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    assert gap() < before / 10


def test_with_one_domain_or_nobody_there_is_nothing_to_tell() -> None:
    alone = DomainClassifier(3, (4,), 1)
    assert float(alone.loss(FEATURES, torch.zeros(6, dtype=torch.int64), 1.0)) == 0
    assert float(classifier().loss(FEATURES[:0], DOMAINS[:0], 1.0)) == 0
