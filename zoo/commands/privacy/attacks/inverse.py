"""Inverses that an attacker learns from releases of known users, and applies to others."""

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

#: Largest number of dense guesses at a time: 32 MiB.
CELLS = 2**22


def ridge_inverse(released: Floats, targets: Floats | csr_array) -> Inverse:
    """Return the best linear map with intercept from releases to targets; its penalty minimises the leave-one-out error.

    For an uninformative release it returns the mean target, which is the popularity for 0/1 rows of items.

    Args:
        released: Released vectors, (users, width).
        targets: Values to recover, (users, columns).

    Returns:
        A function from released vectors (users, width) to guesses (users, columns).

    Examples:
        >>> released = np.arange(8.0).reshape(8, 1)
        >>> ridge_inverse(released, 2 * released)(np.array([[10.0]])).round(0)
        array([[20.]])
    """
    ridge = RidgeMap(released)
    mean = np.asarray(targets.mean(axis=0), dtype=np.float64)
    if not len(ridge.spectrum.energies):  # all vectors are equal
        return lambda rows: np.tile(mean, (len(rows), 1))
    penalty = ridge.spectrum.best_penalty(targets, chunk_size=rows_at_once(targets.shape[1]))
    weights = ridge.spectrum.weights(targets, penalty)
    return lambda rows: mean + (rows - ridge.centre) @ weights


def perceptron_inverse(
    released: Floats, targets: Floats | csr_array, seed: int = 0, hidden: int = 64, max_epochs: int = 200
) -> Inverse:
    """Return a perceptron with one hidden tanh layer from releases to targets.

    The loss is squared error for dense targets and cross-entropy for 0/1 rows (a ``csr_array``). Inputs are standardised. A tenth
    of the users is held out to choose the epoch; the initial network guesses the mean. The global random state is not used.

    Args:
        released: Released vectors, (users, width).
        targets: Values to recover, (users, columns).
        seed: Seed of weights, split and batches.
        hidden: Number of hidden units.
        max_epochs: Largest number of epochs.

    Returns:
        A function from released vectors (users, width) to guesses (users, columns).

    Examples:
        >>> released = np.arange(20.0).reshape(20, 1)
        >>> perceptron_inverse(released, released, max_epochs=1)(released).shape
        (20, 1)
    """
    centre, spread = released.mean(axis=0), released.std(axis=0) + 1e-12
    loss = F.mse_loss if isinstance(targets, np.ndarray) else F.binary_cross_entropy_with_logits

    def scaled(rows: Floats) -> Tensor:
        return torch.from_numpy(((rows - centre) / spread).astype(np.float32))

    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(released.shape[1], hidden), nn.Tanh(), nn.Linear(hidden, targets.shape[1]))
        _start_at_mean(net, targets)
        order = torch.randperm(len(released)).numpy()
        held_out, train = np.split(order, [max(1, len(order) // 10)])
        _learn(net, loss, scaled(released), targets, train, held_out, max_epochs)

    def guess(rows: Floats) -> Floats:
        with torch.no_grad():
            guesses: Floats = net(scaled(rows)).double().numpy()
        return guesses

    return guess


def _start_at_mean(net: nn.Sequential, targets: Floats | csr_array) -> None:
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
    train: Integers,
    held_out: Integers,
    max_epochs: int,
) -> None:
    """Train with Adam until ten epochs bring no improvement on held-out users; restore the best weights."""
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)

    def held_out_loss() -> float:
        with torch.no_grad():
            parts = [(loss(net(inputs[u]), _dense(targets, u)).item(), len(u)) for u in _batches(held_out, targets)]
        return sum(cost * count for cost, count in parts) / len(held_out)

    def weights() -> dict[str, Tensor]:
        return {name: part.clone() for name, part in net.state_dict().items()}

    least, best, since = held_out_loss(), weights(), 0
    for _ in range(max_epochs):
        for users in _batches(train[torch.randperm(len(train)).numpy()], targets):
            optimizer.zero_grad()
            torch.autograd.backward(loss(net(inputs[users]), _dense(targets, users)))
            optimizer.step()
        cost, since = held_out_loss(), since + 1
        if cost < least:
            least, best, since = cost, weights(), 0
        if since == 10:
            break
    net.load_state_dict(best)


def rows_at_once(columns: int) -> int:
    """Return the number of rows that may be dense at a time.

    Examples:
        >>> rows_at_once(2**20)
        4
    """
    return max(1, min(512, CELLS // max(columns, 1)))


def _batches(users: Integers, targets: Floats | csr_array) -> Iterator[Integers]:
    size = min(128, rows_at_once(targets.shape[1]))
    return (users[first : first + size] for first in range(0, len(users), size))


def _dense(targets: Floats | csr_array, users: Integers) -> Tensor:
    rows = targets[users]
    return torch.from_numpy((rows if isinstance(rows, np.ndarray) else rows.toarray()).astype(np.float32))
