"""BPR whose tables of users and items lie in parts on several devices: for tables that no device alone can hold.

    export PYTHONPATH=examples
    python -m zoo fit --config configs/bpr/ml_100k.yaml --config configs/overlays/sharded.yaml --trainer.devices 2

Each process keeps some rows of both tables, with their gradients and what Adam keeps of them. A batch is the same in every process:
each looks up the rows that it has, and what they answer is added up. The tables are DTensors of torch, in the hands of Lightning's
`ModelParallelStrategy`; both libraries call that experimental.
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
    """An embedding whose rows lie in parts, one after another, on the processes of a mesh of one dimension.

    Torch's own `RowwiseParallel` looks up the same, but its gradient is the whole table in every process (seen with torch 2.13).
    """

    def __init__(self, num_rows: int, dim: int, mesh: DeviceMesh, device: torch.device, seed: int) -> None:
        super().__init__()
        place, number = mesh.get_local_rank(), mesh.size()
        each = -(-num_rows // number)  # as torch divides them; the last have fewer
        self.first = min(place * each, num_rows)
        self.num_here = min(self.first + each, num_rows) - self.first
        deviation = math.sqrt(2 / (num_rows + dim))  # Glorot's, of the whole table
        rows = torch.randn(self.num_here, dim, generator=seeded(seed, place)) * deviation
        whole = DTensor.from_local(
            rows.to(device), mesh, [Shard(0)], shape=torch.Size((num_rows, dim)), stride=(dim, 1)
        )
        self.weight = nn.Parameter(whole)

    def forward(self, rows: Tensor) -> Tensor:
        """Rows of any shape, shape ``(*shape, dim)``: those that are here, and zeros for the others, added up over processes."""
        places = rows - self.first
        here = (places >= 0) & (places < self.num_here)
        own = F.embedding(places.where(here, 0), self.weight.to_local()) * here[..., None]
        summed = DTensor.from_local(own, self.weight.device_mesh, [Partial()]).redistribute(placements=[Replicate()])
        found: Tensor = summed.to_local()
        return found


class ShardedBPR(BPR):
    """`BPR` with its tables in parts: the same loss, the same batches, the same scores.

    Args:
        num_factors: Width of a user's and of an item's factor.
        l2: Half of it times the squared factors of a triple is added to the triple's loss.
        lr: Step size of Adam.
        init_seed: Of the first values of the rows, which each process draws for its own.
    """

    def __init__(self, num_factors: int = 64, l2: float = 0.0, lr: float = 1e-3, init_seed: int = 0) -> None:
        super().__init__(num_factors, l2, lr)
        self.init_seed = init_seed

    def build(self, sizes: Sizes) -> None:
        """Make the rows that are here; all of them where one process scores with a checkpoint."""
        if self.device_mesh is None:
            super().build(sizes)
            return
        mesh = self.device_mesh["tensor_parallel"]
        self.factors = nn.Module()
        for number, (name, rows) in enumerate({"users": sizes["num_users"], "items": sizes["num_items"]}.items()):
            table = ShardedTable(rows, self.num_factors, mesh, self.device, 2 * self.init_seed + number)
            self.factors.add_module(name, table)

    def score(self, users: Tensor, items: Tensor) -> Tensor:
        """Inner products with given items, shape ``(batch, candidates)``."""
        return (self.factors.users(users)[:, None] * self.factors.items(items)).sum(-1)

    def score_all(self, users: Tensor) -> Tensor:
        """Inner products with all items, shape ``(batch, num_items)``; each process works out those of its items."""
        items = self.factors.items.weight
        factors: Tensor = self.factors.users(users)
        if isinstance(items, DTensor):
            shared = DTensor.from_local(factors, items.device_mesh, [Replicate()])
            scores: Tensor = (shared @ items.T).full_tensor()
            return scores
        return factors @ items.T
