"""Feature transfer: what the users whom two domains share take over from each other."""

import torch
from torch import Tensor, nn


class FeatureTransfer(nn.Module):
    """Mixes the vectors of users whom two graphs share: each takes a share of what the other domain knows of the user.

    With lambda a domain's own and ``n``, ``m`` a user's edges in it and in the other, the user's vector there becomes::

        own' = (mixed + common) / 2,    mixed = lambda own + (1 - lambda) other,    common = (n own + m other) / (n + m)

    which is ``own + share (other - own)`` with ``share = (1 - lambda + m / (n + m)) / 2``. The first half keeps what is
    particular to the domain; the second is the same in both, and leans on the domain that knows more of the user. One pass is
    worked out for both at once, from the vectors of before.

    A user without an edge in a domain has nothing there to keep: the share is 1. One without an edge in the other, or whom the
    other does not know, keeps all: it is 0.
    """

    users: Tensor  # target's users who have a row in the source, (common,)
    rows: Tensor  # their rows there, (common,)
    target_shares: Tensor  # what each takes over from the source, (common, 1)
    source_shares: Tensor  # and the other way round, (common, 1)

    def __init__(
        self, links: Tensor, target_counts: Tensor, source_counts: Tensor, target_lambda: float, source_lambda: float
    ) -> None:
        """Takes the row of each target user in the source (num_users,), -1 for none, and the edges of all in both domains."""
        super().__init__()
        users = (links >= 0).nonzero().squeeze(1)
        rows = links[users]
        target, source = target_counts[users], source_counts[rows]
        shares = {"target": _shares(target, source, target_lambda), "source": _shares(source, target, source_lambda)}
        buffers = {"users": users, "rows": rows} | {f"{name}_shares": value for name, value in shares.items()}
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, target: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        """What is added to the vectors of the target's users (users, dim) and of the source's (rows, dim), in these shapes."""
        difference = source[self.rows] - target[self.users]
        gained = torch.zeros_like(target).index_add(0, self.users, self.target_shares * difference)
        return gained, torch.zeros_like(source).index_add(0, self.rows, -self.source_shares * difference)


def _shares(own: Tensor, other: Tensor, own_lambda: float) -> Tensor:
    """What users with so many edges here and there (users,) take over, shape ``(users, 1)``."""
    mixed = (1 - own_lambda + other / (own + other).clamp(min=1)) / 2
    return torch.where(other == 0, 0.0, torch.where(own == 0, 1.0, mixed))[:, None]
