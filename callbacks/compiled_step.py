"""CompiledStep: a method's step through ``torch.compile``."""

from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback


class CompiledStep(Callback):
    """Compiles a method's step, and nothing of the trainer around it.

    The first step takes some 20 seconds on a CPU, where it needs a C++ compiler; for speed see docs/benchmarks.md. Figures
    equal those of an uncompiled run up to rounding. Methods that are solved and private trainings are refused.

    Args:
        backend: Compiler of the graphs, as `torch.compile` names it; `inductor` makes machine code.
        dynamic: Whether sizes may vary without recompiling; null: found out.
    """

    def __init__(self, backend: str = "inductor", dynamic: bool | None = None) -> None:
        if backend not in (known := torch._dynamo.list_backends(exclude_tags=())):
            raise ValueError(f"No backend {backend!r} of torch.compile; there are {', '.join(sorted(known))}.")
        self.backend, self.dynamic = backend, dynamic

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Compile when training begins; the graph is made in the first step."""
        method: Any = pl_module
        if stage != "fit":
            return
        if method.batches in ("full_batch", "steps"):
            raise ValueError(
                f"{type(method).__name__} is solved, not trained by steps of a network. Leave CompiledStep out."
            )
        if not method.automatic_optimization or (
            method.guarantee_bearing and method.hparams.get("epsilon", ...) is not None
        ):
            raise ValueError(
                f"{type(method).__name__} takes its gradients itself, which torch.compile would not see. Leave CompiledStep out."
            )
        method.step = torch.compile(method.step, backend=self.backend, dynamic=self.dynamic)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Leave the method as it was."""
        if stage == "fit":
            pl_module.__dict__.pop("step", None)
