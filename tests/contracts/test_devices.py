"""Training on another device, in half precision and compiled: what a step makes where and waits for; it learns the same."""

import traceback
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import Callback
from torch import Generator, Tensor
from torch._dynamo.utils import counters
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

import zoo
from callbacks import CompiledStep
from datamodules import CrossDomainDataModule, Synthetic
from tests.contracts.test_methods import NAMES, tiny_method
from tests.zoo.methods.quiet_trainer import quiet
from zoo import SPPG, Recommender
from zoo.methods.target_data import Sizes
from zoo.testing.tiny import SYNTHETIC, data_for, publisher_for

ROOT = str(Path(zoo.__file__).parent)
#: What makes a tensor on the CPU unless a device is named, and what waits for a number of a device.
MAKERS = {
    getattr(torch, name)
    for name in ("zeros", "ones", "full", "empty", "arange", "tensor", "eye", "linspace", "rand", "randn", "randint", "randperm")
}  # fmt: skip
WAITS = {
    getattr(Tensor, name)
    for name in ("item", "tolist", "cpu", "numpy", "__bool__", "__int__", "__float__", "__index__", "new_tensor")
} | {torch.tensor, torch.equal, torch.allclose}  # a copy of the processor's numbers waits as well, wherever it lies
#: What waits for a size, unless it is told: how many entries its result has is known to the device alone.
SIZED = ("bincount", "masked_select", "nonzero", "unique", "_unique", "repeat_interleave")
TOLD = ("output_size", "size")
_HITS = "which draws hit what users have, of negatives of a source, which are drawn in the step"
_LINKED = "who of the batch is in a source"
_DIFFERENT = "different users of the batch, each of whom is read once"
#: Which methods' steps do, where, and for the size of what; all others do not.
SIZES = {
    "BiTGCF": {"zoo/data/unseen.py: draw": _HITS},
    "CoNet": {
        "zoo/data/unseen.py: draw": _HITS,
        "zoo/methods/conet.py: history": _DIFFERENT,
        "zoo/data/rows.py: bags": "what these have rated",
    },
    "DARec": {
        "zoo/methods/darec.py: patterns": _LINKED,
        "zoo/methods/darec.py: step": "patterns of whoever is in one",
        "zoo/methods/darec.py: _source_loss": "the same, source by source",
        "zoo/data/rows.py: bags": "what those whom a source has have rated, once more for it",
    },
    "DDTCDR": {"zoo/data/unseen.py: draw": _HITS},
    "ETL": {"zoo/methods/etl.py: _encoded": _LINKED, "zoo/data/rows.py: bags": "what these have rated"},
    "FedCDR": {"zoo/methods/fedcdr.py: transfer_loss": _LINKED},
    "FedCT": {"zoo/methods/fedct.py: transfer_loss": _DIFFERENT},
}
#: The same of other settings: pairs for `DMF`, a perceptron that maps for `EMCDR`.
BY_SETTINGS = {
    "DMF": {
        "zoo/methods/dmf.py: step": "different users and items of the batch, each of which is read once",
        "zoo/data/rows.py: bags": "what these have rated, or who them",
    },
    "EMCDR": {"zoo/methods/emcdr.py: transfer_loss": _DIFFERENT},
}
#: Who may make something elsewhere or wait for a number, and why.
MAY = {
    "FedGCDR": "a round of clients, of which those without items or with a NaN are counted: once a round",
    "FedGNN": "as FedGCDR",
    "Bridge": "solved once, by the processor",
    "Ensemble": "trains a copy and chooses weights: once an epoch",
    "IALS": "rows are solved in blocks, whose lengths are counted: twice an epoch",
    "RecentPopularity": "chooses its window once, by the processor",
    "OneBitMC": "a solver logs its objective once a step, and stops by it",
    "Ridge": "solved once, by the processor",
    "SLIM": "solved once, by the processor",
    "SPPG": "who is sampled is drawn of the processor's noise, and the longest row of a batch decides its shape",
}
#: Who copies to the device in a step, which a processor does not show.
COPIES = {"EASE": "rows that the processor multiplied, once", "LowRank": "places that the processor found, once"}

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
        return method, data_for(method, released(frozenset(method.accepted_releases)))

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
        told = any(kwargs.get(name) is not None for name in TOLD)
        return function.__name__.startswith(SIZED) and not told

    @staticmethod
    def _ours() -> traceback.FrameSummary | None:
        return next((frame for frame in reversed(traceback.extract_stack()) if frame.filename.startswith(ROOT)), None)

    @staticmethod
    def _file(frame: traceback.FrameSummary) -> str:
        return str(Path(frame.filename).relative_to(Path(ROOT).parent))


def trained(method: Recommender, data: CrossDomainDataModule, **settings: Any) -> Trainer:  # noqa: ANN401  a trainer's
    trainer = quiet(**{"devices": 1, "limit_val_batches": 0, "max_epochs": 1} | settings)
    trainer.fit(method, datamodule=data)
    return trainer


def watched_steps(method: Recommender, data: CrossDomainDataModule) -> Watch:
    """What is noted of an epoch's steps."""
    watch, step = Watch(), method.training_step

    def watched(batch: Any, batch_idx: int) -> Tensor | None:  # noqa: ANN401
        with watch:
            return step(batch, batch_idx)

    method.training_step = watched  # type: ignore[method-assign]
    trained(method, data)
    return watch


@pytest.mark.slow
def test_no_step_leaves_its_device(make: Make) -> None:
    """Seen without another device: whatever names none would lie on the CPU, and whatever is asked for would be waited for."""
    method, data = make()
    watch, name = watched_steps(method, data), type(method).__name__
    assert bool(watch.found) == (name in MAY), "\n".join(sorted(watch.found))
    assert name in MAY or watch.sized == SIZES.get(name, {}).keys()


@pytest.mark.slow
@pytest.mark.parametrize(
    "publisher", [zoo.NoisyRows(epsilon=8.0), zoo.FlippedRows(epsilon=8.0)], ids=["dense", "sparse"]
)
@pytest.mark.parametrize("name", ["DARec", "ETL", "PPGenCDR", "PriCDR", "PriCDRSym"])
def test_no_step_waits_for_rows_of_a_release(name: str, publisher: zoo.Publisher, tmp_path: Path) -> None:
    publisher.publish(Synthetic(**SYNTHETIC).source("book"), "book").save(tmp_path / "book")
    method = tiny_method(name)
    watch = watched_steps(method, data_for(method, tmp_path / "book"))
    assert watch.sized == SIZES.get(name, {}).keys()
    assert not watch.found


@pytest.mark.slow
@pytest.mark.parametrize("method", [
    zoo.DMF(dims=(8,), loss="sampled"),
    zoo.EMCDR(num_factors=4, map_dims=(4,)),
    zoo.PriCDR(dims=(8,), transfer_weight=1.0),
], ids=lambda method: type(method).__name__)  # fmt: skip
def test_what_a_step_waits_for_by_its_settings_is_told(method: Recommender, released: Callable[..., Path]) -> None:
    watch = watched_steps(method, data_for(method, released(frozenset(method.accepted_releases))))
    assert watch.sized == BY_SETTINGS.get(type(method).__name__, {}).keys()
    assert not watch.found


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
    if not plain.automatic_optimization or plain.batches in ("full_batch", "steps"):
        with pytest.raises(ValueError, match="Leave CompiledStep out"):
            trained(compiled, data, callbacks=[CompiledStep("eager")])
        return
    trained(compiled, data, callbacks=[CompiledStep("eager")])
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DMF", "PriCDR"])
def test_batches_of_other_numbers_of_ratings_are_not_compiled_for_one_by_one(
    name: str, released: Callable[[frozenset[str]], Path]
) -> None:
    """What is compiled in the first epoch, of eight batches with other numbers each, is all that is."""
    graphs: list[int] = []

    class Graphs(Callback):
        def on_train_epoch_end(self, *_: object) -> None:
            graphs.append(counters["stats"]["unique_graphs"])

    torch.compiler.reset()
    counters.clear()
    method = tiny_method(name)
    data = data_for(method, released(frozenset(method.accepted_releases)), batch_size=5)
    trained(method, data, callbacks=[CompiledStep("eager"), Graphs()], max_epochs=3)
    assert graphs[0] == graphs[1] == graphs[2] > 0


def test_members_read_data_where_the_data_lie(released: Callable[[frozenset[str]], Path]) -> None:
    """Lightning builds on the trainer's device, and members read their data meanwhile; `meta` stands for a device."""
    method = tiny_method("Ensemble")
    build, places = method.build, set()

    def twice(sizes: Sizes) -> None:
        with torch.device("meta"):
            build(sizes)
        places.update(rows.device.type for name, rows in method.named_buffers() if "target_rows" in name)
        del method.methods[:]
        build(sizes)

    method.build = twice  # type: ignore[method-assign]
    trained(method, data_for(method, released(frozenset(method.accepted_releases))))
    assert places == {"cpu"}


def test_the_exceptions_are_methods() -> None:
    assert {*MAY, *SIZES, *COPIES} <= set(NAMES)
    assert not MAY.keys() & SIZES.keys()


@pytest.mark.parametrize("sized", [
    lambda x: x[x > 0],
    lambda x: x.nonzero(),
    lambda x: torch.unique(x),
    lambda x: torch.repeat_interleave(x),
    lambda x: torch.repeat_interleave(x, x, output_size=None),
])  # fmt: skip
def test_a_size_that_is_not_told_is_noted(sized: Callable[[Tensor], Tensor]) -> None:
    assert Watch._is_sized(*called(sized))


@pytest.mark.parametrize("known", [
    lambda x: x[1:],
    lambda x: x[x],
    lambda x: torch.where(x > 0, x, x),
    lambda x: torch.repeat_interleave(x, x, output_size=3),
    lambda x: torch.nonzero_static(x, size=2),
])  # fmt: skip
def test_a_size_that_is_known_is_not(known: Callable[[Tensor], Tensor]) -> None:
    assert not Watch._is_sized(*called(known))


def called(function: Callable[[Tensor], Tensor]) -> tuple[Any, Any, Any]:
    """The last thing that a function asks of torch, with what it gives it."""
    calls: list[tuple[Any, Any, Any]] = []

    class Calls(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
            calls.append((function, args, kwargs or {}))
            return function(*args, **kwargs or {})

    numbers = torch.tensor([0, 1, 2])
    with Calls():
        function(numbers)
    return calls[-1]


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
        trainer = trained(there, data, accelerator="gpu")
    assert trainer.strategy.root_device.type == "cuda"
    users = torch.arange(5)
    for method in (here, there.cpu()):
        method.eval()
    assert torch.allclose(here.score_all(users), there.score_all(users), rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_no_step_waits_on_cuda(make: Make) -> None:
    method, data = make()
    if type(method).__name__ in {*MAY, *SIZES, *COPIES}:
        pytest.skip("waits, as the lists above say")
    step = method.training_step

    def strict(batch: Any, batch_idx: int) -> Tensor | None:  # noqa: ANN401
        torch.cuda.set_sync_debug_mode("error")
        try:
            return step(batch, batch_idx)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    method.training_step = strict  # type: ignore[method-assign]
    trained(method, data, accelerator="gpu")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_run_on_cuda_trains_and_ranks(make: Make) -> None:
    method, data = make()
    trainer = trained(method, data, accelerator="gpu")
    trainer.test(method, datamodule=data, verbose=False)
    assert all(bool(value.isfinite()) for name, value in trainer.callback_metrics.items() if "ndcg" in name)
