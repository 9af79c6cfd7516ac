"""Training on another device, in half precision and compiled: what a step makes where and waits for; it learns the same."""

import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from torch import Generator, Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import zoo
from callbacks import CompiledStep
from datamodules import CrossDomainDataModule, Synthetic
from tests.contracts.test_methods import NAMES, tiny_method
from zoo import SPPG, Recommender
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
#: What waits for a size: how many entries its result has is known to the device alone.
SIZED = ("bincount", "masked_select", "nonzero", "unique", "_unique", "repeat_interleave")
#: Where steps do, once for a batch, and for the size of what.
SIZES = {
    "zoo/data/unseen.py: draw": "which draws hit what users have, of negatives of a source, which are drawn in the step",
    "zoo/methods/darec.py: _source_loss": "patterns of whoever is in a source",
    "zoo/methods/darec.py: patterns": "who is in a source",
    "zoo/methods/darec.py: step": "whose patterns are told apart",
    "zoo/methods/emcdr.py: map_loss": "different users of triples, whose vectors are mapped once",
    "zoo/methods/etl.py: _encoded": "who is in a source",
    "zoo/methods/fedcdr.py: <genexpr>": "who is in a source",
    "zoo/methods/fedcdr.py: transfer_loss": "as EMCDR",
    "zoo/methods/fedct.py: _standard": "who has a vector, at the first step",
    "zoo/methods/fedct.py: transfer_loss": "as EMCDR",
    "zoo/nn/cross_network.py: history": "different users of pairs, whose histories are read once",
    "zoo/nn/rows.py: bags": "entries of the rows of a batch",
}
#: Who may make something elsewhere or wait for a number, and why.
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
    """Notes where the project's code makes a tensor without naming a device, or waits for one or for its size."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.sized: set[str] = set()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        if function in WAITS or (function in MAKERS and kwargs.get("device") is None):
            if ours := self._ours():
                self.found.add(f"{self._file(ours)}:{ours.lineno} {function.__name__}: {ours.line}")
        elif self._is_sized(function, args, kwargs) and (ours := self._ours()):
            self.sized.add(f"{self._file(ours)}: {ours.name}")
        return function(*args, **kwargs)

    @staticmethod
    def _is_sized(function: Any, args: Any, kwargs: Any) -> bool:  # noqa: ANN401
        if function in (Tensor.__getitem__, Tensor.__setitem__):
            places = args[1] if isinstance(args[1], tuple) else (args[1],)
            return any(isinstance(place, Tensor) and place.dtype == torch.bool for place in places)
        return function.__name__.startswith(SIZED) and "output_size" not in kwargs

    @staticmethod
    def _ours() -> traceback.FrameSummary | None:
        return next((frame for frame in reversed(traceback.extract_stack()) if frame.filename.startswith(ROOT)), None)

    @staticmethod
    def _file(frame: traceback.FrameSummary) -> str:
        return str(Path(frame.filename).relative_to(Path(ROOT).parent))


def trained(method: Recommender, data: CrossDomainDataModule, **settings: Any) -> Trainer:  # noqa: ANN401  a trainer's
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    common: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "limit_val_batches": 0,
        "max_epochs": 1,
        "logger": False,
    }
    trainer = Trainer(**quiet | common | settings)
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
    allowed = type(method).__name__ in MAY
    assert bool(watch.found) == allowed, "\n".join(sorted(watch.found))
    assert allowed or watch.sized <= SIZES.keys(), "a step waits for a size that is not told of"


@pytest.mark.slow
def test_mixed_precision_trains_and_ranks_or_is_refused(make: Make) -> None:
    """Weights, their gradients and moments stay in single precision, and figures are numbers."""
    method, data = make()
    if isinstance(method, SPPG):
        with pytest.raises(ValueError, match="SPPG trains in single precision; got 'bf16-mixed'"):
            trained(method, data, precision="bf16-mixed")
        return
    trainer = trained(method, data, precision="bf16-mixed")
    moments = [
        part for optimiser in trainer.optimizers for state in optimiser.state.values() for part in state.values()
    ]
    kept = [*method.parameters(), *moments, *(part.grad for part in method.parameters() if part.grad is not None)]
    assert {part.dtype for part in kept if isinstance(part, Tensor)} <= {torch.float32}
    trainer.test(method, datamodule=data, verbose=False)
    figures = trainer.callback_metrics
    assert all(bool(value.isfinite()) for value in figures.values())
    assert 0 <= float(figures["test/sampled/ndcg@10"]) <= 1


@pytest.mark.slow
def test_a_compiled_step_learns_the_same_or_is_refused(make: Make) -> None:
    """With the graph alone compiled (`eager`): machine code takes minutes, and sums in another order."""
    torch.manual_seed(0)
    plain, data = make()
    trained(plain, data)
    torch.manual_seed(0)
    compiled, data = make()
    if not plain.automatic_optimization or plain.batches in ("once", "steps"):
        with pytest.raises(ValueError, match="Leave CompiledStep out"):
            trained(compiled, data, callbacks=[CompiledStep("eager")])
        return
    trained(compiled, data, callbacks=[CompiledStep("eager")])
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_the_exceptions_are_methods() -> None:
    assert set(MAY) <= set(NAMES)


class DrawnByTheProcessor(TorchDispatchMode):
    """Has everything random drawn by the processor's generators, with the seed of the device's, and moved to where it is wanted."""

    def __init__(self) -> None:
        super().__init__()
        self.twins: dict[Generator, Generator] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in function.tags:
            return function(*args, **kwargs)
        drawn = function(*tree_map(self._here, args), **tree_map(self._here, kwargs))
        if function._schema.is_mutable:
            return args[0].copy_(drawn)
        device = kwargs.get("device") or next((part.device for part in args if isinstance(part, Tensor)), "cpu")
        return tree_map(lambda part: part.to(device) if isinstance(part, Tensor) else part, drawn)

    def _here(self, part: object) -> object:
        if isinstance(part, Generator) and part.device.type != "cpu":
            return self.twins.setdefault(part, Generator().manual_seed(part.initial_seed()))
        if isinstance(part, torch.device):
            return torch.device("cpu")
        return part.cpu() if isinstance(part, Tensor) else part


@pytest.mark.parametrize("draw", [
    lambda place, generator: torch.rand(5, device=place, generator=generator),
    lambda place, generator: torch.randint(9, (5,), device=place, generator=generator),
    lambda place, generator: torch.randperm(9, device=place, generator=generator),
    lambda place, generator: torch.zeros(5, device=place).normal_(generator=generator),
    lambda place, _: torch.randn_like(torch.zeros(5, device=place)),
    lambda place, _: torch.dropout(torch.ones(50, device=place), 0.5, True),
])  # fmt: skip
def test_the_processor_draws_what_it_would_draw(draw: Callable[[str, Generator], Tensor]) -> None:
    torch.manual_seed(3)
    expected = draw("cpu", Generator().manual_seed(5))
    torch.manual_seed(3)
    with DrawnByTheProcessor():
        assert torch.equal(draw("cpu", Generator().manual_seed(5)), expected)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_an_epoch_on_cuda_is_one_on_the_cpu(make: Make) -> None:
    """With draws of the processor on both, as those of a device are others; sums in another order differ by rounding."""
    torch.manual_seed(0)
    here, data = make()
    trained(here, data)
    torch.manual_seed(0)
    there, data = make()
    with DrawnByTheProcessor():
        trained(there, data, accelerator="gpu")
    assert there.device.type == "cuda"
    users = torch.arange(5)
    for method in (here, there.cpu()):
        method.eval()
    assert torch.allclose(here.score_all(users), there.score_all(users), rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_run_on_cuda_trains_and_ranks(make: Make) -> None:
    method, data = make()
    trainer = trained(method, data, accelerator="gpu")
    trainer.test(method, datamodule=data, verbose=False)
    assert all(bool(value.isfinite()) for name, value in trainer.callback_metrics.items() if "ndcg" in name)
