"""Random states: torch's own of every process of a training, as a checkpoint keeps them and a resumed run goes on from."""

from collections.abc import Sequence

import torch
from torch import Tensor

from zoo.data.training import seeded

RandomState = list[Tensor]
"""Torch's own state of one process, and where it computes on a GPU that of the GPU's."""


def random_states(device: torch.device) -> list[RandomState]:
    """The state of every process, in order of rank. It asks every process, so every process has to call it."""
    own = [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if device.type == "cuda" else [])]
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return [own]
    states: list[RandomState] = [[] for _ in range(distributed.get_world_size())]
    distributed.all_gather_object(states, own)
    return states


def kept_states(kept: Sequence[RandomState] | RandomState) -> list[RandomState]:
    """What `random_states` gave, out of a checkpoint: before version 0.3 it held that of the first process, in no list."""
    first, *others = kept
    return [[first, *others]] if isinstance(first, Tensor) else [first, *others]


def part_streams(rank: int) -> None:
    """Give every process but the first a stream of its own, by its rank; the first goes on as it would alone.

    All begin with one seed: without this they would leave out the same numbers, and draw the same pairs of a release.
    """
    if rank:
        torch.manual_seed(seeded(int(torch.randint(1 << 62, ())), rank).initial_seed())


def go_on_from(states: Sequence[RandomState], rank: int, device: torch.device) -> None:
    """Continue as the process of this rank would have; one that there was none of gets a stream of its own."""
    own = states[rank if rank < len(states) else 0]
    torch.set_rng_state(own[0].cpu())
    if len(own) > 1 and device.type == "cuda":
        torch.cuda.set_rng_state(own[1].cpu())
    if rank >= len(states):
        part_streams(rank)
