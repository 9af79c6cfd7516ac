"""Losses that methods share; each says how it is reduced."""

from torch import Tensor, repeat_interleave
from torch.nn import functional as F

from zoo.nn.rows import Bags


def all_items_loss(logits: Tensor, observed: Bags) -> Tensor:
    """Binary cross-entropy of every item of every user in the batch, summed, without sampled negatives.

    Equal to ``binary_cross_entropy_with_logits(logits, dense_rows, reduction="sum")``: the softplus of all logits less
    the logits at the observed entries, so that the dense 0/1 matrix is never made.

    Args:
        logits: Shape ``(users, items)``.
        observed: The same users' rows; weights are targets in [0, 1].
    """
    lengths = observed.offsets.diff(append=observed.offsets.new_tensor([len(observed.items)]))
    rows = repeat_interleave(lengths)
    return F.softplus(logits).sum() - (logits[rows, observed.items] * observed.weights).sum()


def reconstruction_loss(decoded: Tensor, rows: Tensor, present: Tensor) -> Tensor:
    """Squared error of decoded rows (batch, width), summed over those that are present (batch,)."""
    return ((decoded - rows).square().sum(1) * present).sum()


def alignment_loss(source: Tensor, target: Tensor, present: Tensor) -> Tensor:
    """Squared distance between the two factors of each user, summed over users that have both.

    Row by row: user i's source factor is pulled to user i's target factor and to nobody else's.
    Reference: Chen et al., PriCDR (WWW 2022), equation 7.

    Args:
        source: Shape ``(batch, dim)``.
        target: Shape ``(batch, dim)``.
        present: Which users have a source factor, shape ``(batch,)``.
    """
    return ((source - target).square().sum(1) * present).sum()
