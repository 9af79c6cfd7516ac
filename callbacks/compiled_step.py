"""CompiledStep: compile a method's step with ``torch.compile``."""

from typing import Any

import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback

from zoo.methods.base import is_private


class CompiledStep(Callback):
    """Compile a method's step, without the trainer around it.

    The first step takes about 20 seconds on a CPU and needs a C++ compiler there; for speed see docs/benchmarks.md. Metrics equal
    those of an uncompiled run up to rounding. Solved methods and private trainings are refused.

    Args:
        backend: Compiler of the graphs, as of `torch.compile`; `inductor` makes machine code.
        dynamic: Whether sizes may vary without recompiling; null: automatic.

    Examples:
        >>> callbacks = [CompiledStep(backend="eager")]  # zoo.fit(zoo.BPR(), data, callbacks=callbacks)
    """

    def __init__(self, backend: str = "inductor", dynamic: bool | None = None) -> None:
        if backend not in (known := torch._dynamo.list_backends(exclude_tags=())):
            raise ValueError(f"backend is {backend!r}. torch.compile has {', '.join(sorted(known))}.")
        self.backend, self.dynamic = backend, dynamic

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Compile when training begins; the graph is made in the first step."""
        method: Any = pl_module
        if stage != "fit":
            return
        if not method.automatic_optimization or is_private(method):
            raise ValueError(f"{type(method).__name__} computes its gradients itself. Leave CompiledStep out.")
        if method.batches in ("full_batch", "steps"):
            raise ValueError(f"{type(method).__name__} is solved, not trained in steps. Leave CompiledStep out.")
        method.step = torch.compile(method.step, backend=self.backend, dynamic=self.dynamic)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Restore the method."""
        if stage == "fit":
            pl_module.__dict__.pop("step", None)
