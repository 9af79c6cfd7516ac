"""What methods of two networks share: gradients that several processes average."""

from threading import Barrier, Thread
from typing import Literal

import torch
from torch import Tensor, nn

from zoo.methods.adversarial import average_gradients


class Meeting:
    """Reduces tensors of two threads, as a strategy does those of two processes."""

    def __init__(self) -> None:
        self.met, self.brought = Barrier(2, timeout=60), dict[int, Tensor]()

    def reduce(self, rank: int, tensor: Tensor, reduce_op: Literal["sum", "mean"]) -> Tensor:
        self.brought[rank] = tensor
        self.met.wait()
        found = torch.stack([self.brought[0], self.brought[1]])
        self.met.wait()
        return found.sum(0) if reduce_op == "sum" else found.mean(0)


def averaged(gradients: list[list[Tensor | None]]) -> list[list[Tensor | None]]:
    """What two processes with these gradients have afterwards."""
    meeting = Meeting()
    own = [[nn.Parameter(torch.zeros(shape)) for shape in ((2, 2), (3,), (1,))] for _ in range(2)]
    for parameters, given in zip(own, gradients, strict=True):
        for parameter, gradient in zip(parameters, given, strict=True):
            parameter.grad = gradient

    def run(rank: int) -> None:
        average_gradients(own[rank], lambda tensor, reduce_op: meeting.reduce(rank, tensor, reduce_op))

    threads = [Thread(target=run, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return [[parameter.grad for parameter in parameters] for parameters in own]


def test_gradients_of_processes_are_averaged_and_what_nobody_has_stays_none() -> None:
    first = [torch.arange(4.0).reshape(2, 2), torch.tensor([2.0, 4.0, 6.0]), None]
    second = [torch.ones(2, 2), None, None]
    for found in averaged([first, second]):
        table, vector, nothing = found
        assert table is not None
        assert torch.equal(table, torch.tensor([[0.5, 1.0], [1.5, 2.0]]))
        assert vector is not None
        assert torch.equal(vector, torch.tensor([1.0, 2.0, 3.0]))
        assert nothing is None
