"""What users of two domains take over from each other, against the rule worked out user by user."""

import pytest
import torch
from torch import Tensor

from zoo.nn.feature_transfer import FeatureTransfer

#: Rows of five target users in a source of five, and the ratings of all there and here: users 0 to 2 are in both, 2 with a row of
#: zeros; 3 has no row, 4 no target history; row 1 is a stranger's.
LINKS = torch.tensor([3, 0, 2, -1, 4])
TARGET_COUNTS, SOURCE_COUNTS = torch.tensor([6, 1, 4, 2, 0]), torch.tensor([3, 7, 0, 2, 5])


def by_hand(own: Tensor, other: Tensor, n: int, m: int, own_lambda: float) -> Tensor:
    mixed = own_lambda * own + (1 - own_lambda) * other
    return (mixed + (n * own + m * other) / (n + m)) / 2


@pytest.mark.parametrize(("target_lambda", "source_lambda"), [(0.8, 0.8), (1.0, 0.3), (0.0, 1.0)])
def test_users_take_over_what_the_rule_says(target_lambda: float, source_lambda: float) -> None:
    transfer = FeatureTransfer(LINKS, TARGET_COUNTS, SOURCE_COUNTS, target_lambda, source_lambda)
    target, source = torch.randn(5, 3, generator=torch.Generator().manual_seed(0)), torch.arange(15.0).reshape(5, 3)
    new_target, new_source = target.clone(), source.clone()
    for user, row in [(0, 3), (1, 0)]:
        n, m = int(TARGET_COUNTS[user]), int(SOURCE_COUNTS[row])
        new_target[user] = by_hand(target[user], source[row], n, m, target_lambda)
        new_source[row] = by_hand(source[row], target[user], m, n, source_lambda)
    new_source[2] = target[2]  # nothing is known of this user there
    new_target[4] = source[4]  # nor of this one here
    to_target, to_source = transfer(target, source)
    assert torch.allclose(target + to_target, new_target, atol=1e-6)
    assert torch.allclose(source + to_source, new_source, atol=1e-6)


def test_each_domain_learns_from_the_others_loss() -> None:
    transfer = FeatureTransfer(LINKS, TARGET_COUNTS, SOURCE_COUNTS, 0.8, 0.8)
    target, source = torch.ones(5, 2, requires_grad=True), torch.zeros(5, 2, requires_grad=True)
    to_target, to_source = transfer(target, source)
    (of_source,) = torch.autograd.grad(to_target.sum(), source)
    (of_target,) = torch.autograd.grad(to_source.sum(), target)
    assert (of_source[:, 0] > 0).tolist() == [True, False, False, True, True]
    assert (of_target[:, 0] > 0).tolist() == [True, True, True, False, False]


def test_with_nobody_in_common_nothing_is_taken_over() -> None:
    transfer = FeatureTransfer(torch.full((5,), -1), TARGET_COUNTS, SOURCE_COUNTS, 0.8, 0.8)
    gains = transfer(torch.ones(5, 2), torch.zeros(5, 2))
    assert not any(gain.any() for gain in gains)
    assert transfer.state_dict() == {}
