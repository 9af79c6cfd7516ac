"""Training loop of methods with two networks that learn against each other."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from pytorch_lightning.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim import Optimizer

from zoo.data.batch_types import Batch
from zoo.methods.base import Outputs, Recommender
from zoo.runtime import checks


class Adversarial(Recommender):
    """Train a discriminator and a generator, one step each on every batch, the discriminator first.

    A subclass makes ``generator`` and ``discriminator`` in ``build``. :meth:`discriminator_step` and ``step`` return their
    losses, which are means over users. Penalties are added to ``critic`` and ``generator``. A penalty on ``loss`` is a sum over
    the rows of a batch: it is divided by their number and added to the generator's loss.

    Random numbers come from the global stream, which checkpoints store: a resumed run equals an uninterrupted one. Several
    processes average their gradients in each step. What a loss reads of a whole batch is each process's own.
    """

    logs = frozenset({"train/discriminator_loss"})

    generator: nn.Module
    discriminator: nn.Module

    def __init__(
        self,
        lr_generator: float,
        lr_discriminator: float,
        weight_decay_generator: float,
        weight_decay_discriminator: float,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        checks.positive(lr_generator=lr_generator, lr_discriminator=lr_discriminator)
        checks.not_negative(
            weight_decay_generator=weight_decay_generator, weight_decay_discriminator=weight_decay_discriminator
        )
        self.adam: dict[str, dict[str, Any]] = {
            "generator": {"lr": lr_generator, "weight_decay": weight_decay_generator},
            "discriminator": {"lr": lr_discriminator, "weight_decay": weight_decay_discriminator},
        }

    @abstractmethod
    def discriminator_step(self, batch: Batch) -> Outputs:
        """Return ``loss`` of the discriminator, and the ``step_outputs`` that its penalties read."""

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        """Take one step of the discriminator, then one of the generator, on the same users."""
        optimizers: Any = self.optimizers()
        discriminator, generator = optimizers
        outputs = self.discriminator_step(batch)
        self._learn(discriminator, outputs["loss"] + self.penalties(outputs, to="critic").mean())
        self.log_mean("train/discriminator_loss", outputs["loss"], len(batch.users))
        outputs = self.step(batch)
        loss = outputs["loss"] + self.penalties(outputs, to="generator").mean()
        loss = loss + self.penalties(outputs).mean() / len(batch.users)
        self._learn(generator, loss)
        self.log_mean("train/loss", loss, len(batch.users))

    def _learn(self, optimizer: Optimizer, loss: Tensor) -> None:
        optimizer.zero_grad()
        own = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        strategy: Any = self.trainer.strategy
        # What averages gradients by itself would wait for those of the other network, too.
        with strategy.block_backward_sync() if self.trainer.world_size > 1 else nullcontext():
            self.manual_backward(loss, inputs=own)  # the other network's gradients are not wanted, nor worked out
        if self.trainer.world_size > 1:
            average_gradients(own, strategy.reduce)
        optimizer.step()

    def configure_optimizers(self) -> OptimizerLRScheduler:
        """Return Adam for each network, the discriminator's first."""
        players = {"discriminator": self.discriminator, "generator": self.generator}
        return [torch.optim.Adam(net.parameters(), fused=True, **self.adam[name]) for name, net in players.items()]


def average_gradients(parameters: Sequence[nn.Parameter], reduce: Callable[..., Tensor]) -> None:
    """Replace each gradient by its mean over processes; a gradient that no process has stays None.

    Args:
        parameters: Parameters, identical and in one order in all processes.
        reduce: Reduces a tensor over all processes by ``reduce_op``, as a strategy of Lightning does.
    """
    there = torch.tensor([float(parameter.grad is not None) for parameter in parameters], device=parameters[0].device)
    anywhere = reduce(there, reduce_op="sum") > 0
    learned = [parameter for parameter, some in zip(parameters, anywhere.tolist(), strict=True) if some]
    for parameter in learned:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [parameter.grad for parameter in learned if parameter.grad is not None]
    vector_to_parameters(reduce(parameters_to_vector(gradients), reduce_op="mean"), gradients)
