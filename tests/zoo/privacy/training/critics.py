"""A small critic of rating rows, some users, and their gradients by a loop over users."""

import torch
from torch import Tensor, nn

from zoo.data.rows import SparseRows
from zoo.nn.item_sum import ItemSum, padded
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.training.clipped_sum import trainable
from zoo.privacy.training.dp_sgd import TrainingPlan

USERS, ITEMS = 40, 12
HUGE = 1e9


class SmallCritic(nn.Module):
    """A row through `ItemSum`, a condition of the user beside it, two layers on both."""

    def __init__(self, *, bias: bool = True, norm: bool = False) -> None:
        super().__init__()
        self.first = ItemSum(ITEMS, 6, bias=bias)
        self.condition = nn.Embedding(USERS, 3)
        middle: list[nn.Module] = [nn.LayerNorm(9)] if norm else []
        self.rest = nn.Sequential(*middle, nn.Linear(9, 5), nn.ReLU(), nn.Linear(5, 1))

    def forward(self, items: Tensor, weights: Tensor, users: Tensor) -> Tensor:
        """Scores, shape ``(batch,)``."""
        out: Tensor = self.rest(torch.cat([self.first(items, weights), self.condition(users)], dim=1))
        return out.squeeze(1)


def some_rows(seed: int = 0, users: int = USERS, items: int = ITEMS, density: float = 0.4) -> SparseRows:
    """Rows of ratings from 1 to 5, the first one empty."""
    generator = torch.Generator().manual_seed(seed)
    dense = torch.randint(1, 6, (users, items), generator=generator).float()
    dense *= torch.rand(users, items, generator=generator) < density
    dense[0] = 0
    starts = torch.cat([torch.zeros(1, dtype=torch.int64), (dense != 0).sum(1).cumsum(0)])
    found = dense.nonzero()
    return SparseRows(starts, found[:, 1], dense[dense != 0], items)


class Losses:
    """Losses of users by a critic, whose size differs from user to user; counts its calls."""

    def __init__(self, critic: nn.Module, rows: SparseRows) -> None:
        self.critic, self.rows, self.calls = critic, rows, 0

    def __call__(self, users: Tensor) -> Tensor:
        """A real term and a stabilising one, of the same score, shape ``(batch,)``."""
        self.calls += 1
        score: Tensor = self.critic(*padded(self.rows.bags(users)), users)
        return -score + score.square() * (1 + users % 3)


def looped(losses: Losses, users: Tensor) -> list[dict[str, Tensor]]:
    """Each user's gradient, from a batch of that user alone, by name, in double precision."""
    parameters = trainable(losses.critic)
    found = []
    for user in users:
        own = torch.autograd.grad(losses(user[None]).sum(), list(parameters.values()))
        found.append({name: part.double() for name, part in zip(parameters, own, strict=True)})
    return found


def norm_of(gradient: dict[str, Tensor]) -> float:
    """Over all parameters together."""
    return float(torch.stack([part.norm() for part in gradient.values()]).norm())


def bare_plan(noise_multiplier: float, clip: float = HUGE, steps: int = 10, rate: float = 0.5) -> TrainingPlan:
    """A plan that nobody calculated; without noise it has no guarantee."""
    return TrainingPlan(
        noise_multiplier=noise_multiplier,
        clip=clip,
        rate=rate,
        steps=steps,
        relation=Relation.ZERO_OUT_ONE_USER,
        delta=1e-5,
    )
