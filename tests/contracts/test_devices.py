"""Training on another device: no step makes a tensor elsewhere or waits for the processor, and CUDA gives what the CPU gives."""

import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from torch import Tensor
from torch.overrides import TorchFunctionMode

import zoo
from datamodules import CrossDomainDataModule, Synthetic
from tests.contracts.test_methods import NAMES, tiny_method
from zoo import Recommender
from zoo.testing.tiny import SYNTHETIC, data_for, publisher_for

ROOT = str(Path(zoo.__file__).parent)
#: What makes a tensor on the CPU unless a device is named, and what waits for a number of a device.
MAKERS = {
    getattr(torch, name)
    for name in ("zeros", "ones", "full", "empty", "arange", "tensor", "eye", "linspace", "rand", "randn", "randint", "randperm")
}  # fmt: skip
WAITS = {
    getattr(Tensor, name)
    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__")
}
#: Who may, in a file of which room, and why.
MAY = {
    "FedGCDR": "a round of clients, of which those without items or with a NaN are counted: once a round",
    "FedGNN": "as FedGCDR",
    "Bridge": "solved once, by the processor",
    "Ensemble": "trains a copy and chooses weights: once an epoch",
    "IALS": "rows are solved in blocks, whose lengths are counted: twice an epoch",
    "OneBitMC": "a solver logs its objective once a step, and stops by it",
    "Ridge": "solved once, by the processor",
    "SLIM": "solved once, by the processor",
    "SPPG": "who is sampled is drawn of the processor's noise, and the longest row of a batch decides its shape",
}

Make = Callable[[], tuple[Recommender, CrossDomainDataModule]]


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Callable[[frozenset[str]], Path]:
    """Where the release lies that a method of these kinds is given, published once."""

    @cache
    def publish(reads: frozenset[str]) -> Path:
        source = Synthetic(**SYNTHETIC).source("book")
        return publisher_for(reads).publish(source, "book").save(tmp_path_factory.mktemp("released") / "book")

    return publish


@pytest.fixture(params=NAMES)
def make(request: pytest.FixtureRequest, released: Callable[[frozenset[str]], Path]) -> Make:
    def made() -> tuple[Recommender, CrossDomainDataModule]:
        method = tiny_method(request.param)
        return method, data_for(method, released(frozenset(method.reads)))

    return made


class Watch(TorchFunctionMode):
    """Notes where the project's code makes a tensor without naming a device, or waits for one."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        if function in WAITS or (function in MAKERS and kwargs.get("device") is None):
            ours = [frame for frame in traceback.extract_stack() if frame.filename.startswith(ROOT)]
            if ours:
                self.found.add(
                    f"{ours[-1].filename[len(ROOT) + 1 :]}:{ours[-1].lineno} {function.__name__}: {ours[-1].line}"
                )
        return function(*args, **kwargs)


def trained(method: Recommender, data: CrossDomainDataModule, accelerator: str = "cpu") -> Trainer:
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    trainer = Trainer(accelerator=accelerator, devices=1, logger=False, limit_val_batches=0, max_epochs=1, **quiet)
    trainer.fit(method, datamodule=data)
    return trainer


@pytest.mark.slow
def test_no_step_leaves_its_device(make: Make) -> None:
    """Seen without another device: whatever names none would lie on the CPU, and whatever is asked for would be waited for."""
    method, data = make()
    watch, step = Watch(), method.training_step

    def watched(batch: Any, batch_idx: int) -> Tensor | None:  # noqa: ANN401
        with watch:
            return step(batch, batch_idx)

    method.training_step = watched  # type: ignore[method-assign]
    trained(method, data)
    assert bool(watch.found) == (type(method).__name__ in MAY), "\n".join(sorted(watch.found))


def test_the_exceptions_are_methods() -> None:
    assert set(MAY) <= set(NAMES)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_epoch_on_cuda_is_one_on_the_cpu(make: Make) -> None:
    """With draws of the processor on both, as those of a device are others; sums in another order differ by rounding."""
    if make()[0].batches in ("pairs", "triples"):
        pytest.skip("draws negatives on its device, which are others")
    torch.manual_seed(0)
    here, data = make()
    trained(here, data)
    torch.manual_seed(0)
    there, data = make()
    trained(there, data, "gpu")
    assert there.device.type == "cuda"
    users = torch.arange(5)
    for method in (here, there.cpu()):
        method.eval()
    assert torch.allclose(here.score_all(users), there.score_all(users), rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_run_on_cuda_trains_and_ranks(make: Make) -> None:
    method, data = make()
    trainer = trained(method, data, "gpu")
    trainer.test(method, datamodule=data, verbose=False)
    assert all(bool(value.isfinite()) for name, value in trainer.callback_metrics.items() if "ndcg" in name)
