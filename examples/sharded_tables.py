"""BPR with tables of users and items sharded over several devices, for tables that do not fit on one.

    export PYTHONPATH=examples
    python -m zoo fit --config configs/bpr/ml_100k.yaml --config configs/overlays/sharded.yaml --trainer.devices 2

Each process has some rows of both tables, with gradients and optimiser states. All processes get the same batch, look up their own
rows and sum the results. The tables are DTensors of torch, managed by Lightning's `ModelParallelStrategy`; both are experimental.
"""

import math

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn import functional as F

from zoo import BPR
from zoo.data.training_batches import seeded
from zoo.methods.target_data import Sizes


class ShardedTable(nn.Module):
    """An embedding with consecutive shards of rows on the processes of a one-dimensional mesh.

    The gradient of torch's `RowwiseParallel` is the whole table in every process (torch 2.13).
    """

    def __init__(self, num_rows: int, dim: int, mesh: DeviceMesh, device: torch.device, seed: int) -> None:
        super().__init__()
        place, number = mesh.get_local_rank(), mesh.size()
        each = -(-num_rows // number)  # as in torch; the last shards may be smaller
        self.first = min(place * each, num_rows)
        self.num_here = min(self.first + each, num_rows) - self.first
        deviation = math.sqrt(2 / (num_rows + dim))  # Glorot's, of the whole table
        rows = torch.randn(self.num_here, dim, generator=seeded(seed, place)) * deviation
        whole = DTensor.from_local(
            rows.to(device), mesh, [Shard(0)], shape=torch.Size((num_rows, dim)), stride=(dim, 1)
        )
        self.weight = nn.Parameter(whole)

    def forward(self, rows: Tensor) -> Tensor:
        """Return embeddings of rows, ``(*shape, dim)``: own rows, with zeros for others, summed over processes."""
        places = rows - self.first
        here = (places >= 0) & (places < self.num_here)
        own = F.embedding(places.where(here, 0), self.weight.to_local()) * here[..., None]
        summed = DTensor.from_local(own, self.weight.device_mesh, [Partial()]).redistribute(placements=[Replicate()])
        found: Tensor = summed.to_local()
        return found


class ShardedBPR(BPR):
    """`BPR` with sharded tables: same loss, batches and scores.

    Args:
        num_factors: Width of factors.
        l2: Weight of half the squared factors of a triple in its loss.
        lr: Step size of Adam.
        init_seed: Seed of the initial rows, which each process draws for its shard.
    """

    def __init__(self, num_factors: int = 64, l2: float = 0.0, lr: float = 1e-3, init_seed: int = 0) -> None:
        super().__init__(num_factors, l2, lr)
        self.init_seed = init_seed

    def build(self, sizes: Sizes) -> None:
        """Make the shard of this process, or the whole tables if a single process loads a checkpoint."""
        if self.device_mesh is None:
            super().build(sizes)
            return
        mesh = self.device_mesh["tensor_parallel"]
        self.factors = nn.Module()
        for number, (name, rows) in enumerate({"users": sizes["num_users"], "items": sizes["num_items"]}.items()):
            table = ShardedTable(rows, self.num_factors, mesh, self.device, 2 * self.init_seed + number)
            self.factors.add_module(name, table)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Return scores of given items, ``(batch, candidates)``."""
        return (self.factors.users(users)[:, None] * self.factors.items(items)).sum(-1)

    def score_all(self, users: Tensor) -> Tensor:
        """Return scores of all items, ``(batch, num_items)``; each process computes those of its items."""
        items = self.factors.items.weight
        factors: Tensor = self.factors.users(users)
        if isinstance(items, DTensor):
            shared = DTensor.from_local(factors, items.device_mesh, [Replicate()])
            scores: Tensor = (shared @ items.T).full_tensor()
            return scores
        return factors @ items.T
