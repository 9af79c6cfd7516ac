"""Inverses that an adversary learns: from what was released of some users to what is known of them, then applied to others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.mapping import RidgeMap
from zoo.nn.ridge import Floats

Integers = npt.NDArray[np.int64]
#: From released vectors (users, width) to guesses (users, columns).
Inverse = Callable[[Floats], Floats]

#: Of guesses, at most so many are dense at a time: 32 MiB of them.
CELLS = 2**22


def ridge_inverse(released: Floats, targets: Floats | csr_array) -> Inverse:
    """The linear map with an intercept that guesses targets (users, columns) best; its penalty by leave-one-out, in closed form.

    Of a release that says nothing it is the mean target, which for 0/1 rows of items is their popularity.
    """
    ridge = RidgeMap(released)
    mean = np.asarray(targets.mean(axis=0), dtype=np.float64)
    if not len(ridge.spectrum.energies):  # all vectors are one
        return lambda rows: np.tile(mean, (len(rows), 1))
    penalty = ridge.spectrum.best_penalty(targets, chunk_size=rows_at_once(targets.shape[1]))
    weights = ridge.spectrum.weights(targets, penalty)
    return lambda rows: mean + (rows - ridge.centre) @ weights


def perceptron_inverse(
    released: Floats, targets: Floats | csr_array, seed: int = 0, hidden: int = 64, max_epochs: int = 200
) -> Inverse:
    """A perceptron with one hidden layer of tanh: squared error on dense targets, cross-entropy on 0/1 rows (a ``csr_array``).

    Each number of a vector is divided by its spread. A tenth of the users is left out of learning and chooses the epoch, from
    the first one's start on, where the perceptron guesses the mean. The global random state is neither read nor moved.
    """
    centre, spread = released.mean(axis=0), released.std(axis=0) + 1e-12
    loss = F.mse_loss if isinstance(targets, np.ndarray) else F.binary_cross_entropy_with_logits

    def scaled(rows: Floats) -> Tensor:
        return torch.from_numpy(((rows - centre) / spread).astype(np.float32))

    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(released.shape[1], hidden), nn.Tanh(), nn.Linear(hidden, targets.shape[1]))
        _begin_with_the_mean(net, targets)
        order = torch.randperm(len(released)).numpy()
        chosen_by, learned_from = np.split(order, [max(1, len(order) // 10)])
        _learn(net, loss, scaled(released), targets, learned_from, chosen_by, max_epochs)

    def guess(rows: Floats) -> Floats:
        with torch.no_grad():
            made: Floats = net(scaled(rows)).double().numpy()
        return made

    return guess


def _begin_with_the_mean(net: nn.Sequential, targets: Floats | csr_array) -> None:
    mean = torch.from_numpy(np.asarray(targets.mean(axis=0), dtype=np.float32))
    last = net[-1]
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        last.weight.zero_()
        last.bias.copy_(mean if isinstance(targets, np.ndarray) else mean.clamp(1e-5, 1 - 1e-5).logit())


def _learn(
    net: nn.Sequential,
    loss: Callable[[Tensor, Tensor], Tensor],
    inputs: Tensor,
    targets: Floats | csr_array,
    learned_from: Integers,
    chosen_by: Integers,
    max_epochs: int,
) -> None:
    """Adam until ten epochs brought nothing to those left out, which is all that holds it back; the best weights are kept."""
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)

    def cost_of_those_left_out() -> float:
        with torch.no_grad():
            parts = [(loss(net(inputs[u]), _dense(targets, u)).item(), len(u)) for u in _batches(chosen_by, targets)]
        return sum(cost * count for cost, count in parts) / len(chosen_by)

    def weights() -> dict[str, Tensor]:
        return {name: part.clone() for name, part in net.state_dict().items()}

    least, best, since = cost_of_those_left_out(), weights(), 0
    for _ in range(max_epochs):
        for users in _batches(learned_from[torch.randperm(len(learned_from)).numpy()], targets):
            optimizer.zero_grad()
            torch.autograd.backward(loss(net(inputs[users]), _dense(targets, users)))
            optimizer.step()
        cost, since = cost_of_those_left_out(), since + 1
        if cost < least:
            least, best, since = cost, weights(), 0
        if since == 10:
            break
    net.load_state_dict(best)


def rows_at_once(columns: int) -> int:
    """How many rows of so many columns may be dense together."""
    return max(1, min(512, CELLS // max(columns, 1)))


def _batches(users: Integers, targets: Floats | csr_array) -> Iterator[Integers]:
    size = min(128, rows_at_once(targets.shape[1]))
    return (users[first : first + size] for first in range(0, len(users), size))


def _dense(targets: Floats | csr_array, users: Integers) -> Tensor:
    rows = targets[users]
    return torch.from_numpy((rows if isinstance(rows, np.ndarray) else rows.toarray()).astype(np.float32))
