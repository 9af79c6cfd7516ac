"""A compiled step gives what the step gives, and is refused where it would not."""

from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer

from callbacks import CompiledStep
from datamodules import Synthetic
from tests.zoo.methods.quiet_trainer import quiet
from zoo import BPR, EASE, SPPG, FedGNN, Recommender


def trained(method: Recommender, *callbacks: Any) -> Recommender:  # noqa: ANN401
    data = Synthetic(num_users=24, num_items=30, ratings_per_user=6, batch_size=64, seed=1, sources=())
    quiet(limit_val_batches=0, max_epochs=2, callbacks=[*callbacks]).fit(method, datamodule=data)
    return method


@pytest.mark.thorough
def test_a_compiled_step_learns_the_same() -> None:
    """With the graph alone compiled (`eager`): machine code takes minutes, and sums in another order."""
    plain, compiled = BPR(num_factors=4), BPR(num_factors=4)
    steps: list[bool] = []
    torch.manual_seed(0)
    trained(plain)
    torch.manual_seed(0)
    callback = CompiledStep(backend="eager")
    compiled.on_train_start = lambda: steps.append("step" in compiled.__dict__)  # type: ignore[method-assign]
    trained(compiled, callback)
    assert steps == [True]
    assert "step" not in compiled.__dict__
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (EASE(), "EASE is solved"),
        (FedGNN(num_factors=4, epsilon=8.0, clip=0.5), "FedGNN computes its gradients itself"),
        (SPPG(steps=2, sample_size=4), "SPPG computes its gradients itself"),
    ],
)
def test_what_has_no_step_of_a_network_is_refused(method: Recommender, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CompiledStep().setup(Trainer(accelerator="cpu", logger=False, enable_checkpointing=False), method, "fit")


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ValueError, match=r"backend is 'inducter'. torch.compile has .*inductor"):
        CompiledStep(backend="inducter")
