"""PPGenCDR and its sources: rows are made when they are read, and no rating of a source is within its reach."""

import gc
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from pytorch_lightning import seed_everything
from torch import Tensor

from datamodules import CrossDomainDataModule, Douban, Synthetic
from tests.zoo.methods.ppgencdr_runs import SIZES, STILL, TINY, ByHand, read, trainer_of
from zoo import SPPG, GeneratorPublisher, Plaintext, PPGenCDR, Publisher, Ratings, Release

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The release of a generator that takes noise."""
    network = SPPG(mechanism="none", steps=3, sample_size=8, condition_dim=3, generator_dims=(5,), noise_dim=2)
    source = Synthetic(**SIZES).source("book")
    folder = tmp_path_factory.mktemp("noisy")
    return GeneratorPublisher(network).publish(source, "book").save(folder / "book")


def test_rows_are_made_when_they_are_read(noisy: Path) -> None:
    data = Synthetic(**SIZES, releases={"book": noisy})
    method = read(PPGenCDR(**STILL), data)
    users = torch.arange(5)
    rows, present = method.source_rows("book", users)
    assert present.all()
    assert not rows.requires_grad, "the generator stays as it is"
    assert not torch.equal(rows, method.source_rows("book", users)[0]), "with other noise while training"
    method.eval()
    again = Release.load(noisy).rows(users)
    assert torch.allclose(method.source_rows("book", users)[0], again, atol=1e-6), "and none afterwards"
    method.read_data(data)
    assert torch.allclose(method.source_rows("book", users)[0], again, atol=1e-6), "nor if they are given then"
    assert not [name for name in method.state_dict() if name.startswith("sources")], "no checkpoint has any of it"


def test_other_weights_of_the_generator_give_other_scores(noisy: Path, tmp_path: Path) -> None:
    data = Synthetic(**SIZES, releases={"book": noisy})
    method = read(PPGenCDR(**STILL), data).eval()
    users = torch.arange(40)
    with torch.no_grad():
        before = method.score_all(users)
        data.releases["book"].tensors["bias_1"].neg_()
        method.read_data(data)
        assert not torch.allclose(method.score_all(users), before)
        data.releases["book"].tensors["bias_1"].neg_()
        method.read_data(data)
        assert torch.equal(method.score_all(users), before)


def douban(root: Path, **settings: Any) -> Douban:  # noqa: ANN401
    return Douban(root=root, batch_size=8, seed=0, **settings)


def trained(data: CrossDomainDataModule) -> tuple[PPGenCDR, Tensor]:
    """A trained method, and its scores."""
    seed_everything(0)
    method = PPGenCDR(**TINY)
    trainer_of(epochs=2).fit(method, datamodule=data)
    with torch.no_grad():
        return method, method.eval().score_all(torch.arange(20))


def tiny_network(mechanism: str) -> SPPG:
    return SPPG(mechanism=mechanism, steps=6, sample_size=4, condition_dim=3, generator_dims=(5,), noise_seed=2)  # type: ignore[arg-type]


def test_once_released_nothing_depends_on_the_sources_ratings(zoo_data: Path, tmp_path: Path) -> None:
    root = tmp_path / "both"
    shutil.copytree(zoo_data / "douban-book-music", root)
    source = douban(root).source("book")
    release = {"book": GeneratorPublisher(tiny_network("private_d")).publish(source, "book").save(tmp_path / "release")}
    as_it_was, scores = trained(douban(root, releases=release))
    books = (root / "book.csv").read_text().splitlines()
    swapped = [re.sub(r"book(\d+)", lambda found: f"book{29 - int(found[1])}", line) for line in books]
    (root / "book.csv").write_text("\n".join(swapped) + "\n")
    assert douban(root).source("book").digest() != source.digest()
    others, with_others = trained(douban(root, releases=release))
    for file in root.glob("book*"):
        file.unlink()
    gone, without = trained(douban(root, releases=release))
    for method, found in ((others, with_others), (gone, without)):
        assert torch.equal(found, scores)
        assert all(torch.equal(tensor, as_it_was.state_dict()[name]) for name, tensor in method.state_dict().items())


def reachable(root: object) -> Iterator[object]:
    """Everything that an object refers to, over however many others; not what modules and classes hold."""
    seen: dict[int, object] = {}
    left = [root]
    while left:
        thing = left.pop()
        if id(thing) in seen or isinstance(thing, type | ModuleType | CodeType | FrameType | BuiltinFunctionType):
            continue
        seen[id(thing)] = thing
        yield thing
        if isinstance(thing, FunctionType):
            left += [cell.cell_contents for cell in thing.__closure__ or ()] + list(thing.__defaults__ or ())
        else:
            left += gc.get_referents(thing)


class Traces:
    """Knows ratings again: by the names of their items, as pairs or as rows."""

    def __init__(self, ratings: Ratings) -> None:
        self.names = {str(item) for item in ratings.item_ids}
        self.columns, self.dense = ratings.matrix.indices, ratings.matrix.toarray()

    def within(self, things: list[object]) -> bool:
        """Whether any of these is one of them."""
        return any(map(self.is_in, things))

    def is_in(self, thing: object) -> bool:
        """Whether this is one of them."""
        if isinstance(thing, str):
            return thing in self.names
        if isinstance(thing, pl.DataFrame):
            return self.within([*thing.get_columns()])
        if isinstance(thing, pl.Series):
            return not self.names.isdisjoint(map(str, thing.to_list()))
        if isinstance(thing, Tensor):
            thing = thing.detach().numpy()
        if not isinstance(thing, np.ndarray):
            return False
        if thing.dtype.kind in "UTO":
            return not self.names.isdisjoint(map(str, thing.ravel()))
        if thing.shape == self.columns.shape and np.array_equal(thing, self.columns):
            return True
        same_width = thing.ndim == 2 and thing.shape[1] == self.dense.shape[1]
        return same_width and bool((thing[:, None] == self.dense).all(2).any())


@pytest.mark.parametrize(
    ("publisher", "kept"),
    [(GeneratorPublisher(tiny_network("private_d")), False), (ByHand(), False), (Plaintext(), True)],
    ids=["private", "by hand", "plain ratings"],
)  # fmt: skip
def test_the_sources_ratings_are_nowhere_within_reach(
    publisher: Publisher, kept: bool, zoo_data: Path, tmp_path: Path
) -> None:
    """From the method one gets to parameters, buffers, trainer and datamodule; where ratings were released, to them too."""
    root = zoo_data / "douban-book-music"
    path = publisher.publish(douban(root).source("book"), "book").save(tmp_path / "release")
    method, _ = trained(douban(root, releases={"book": path}))
    things = list(reachable(method))
    assert any(thing is method.trainer.datamodule for thing in things)  # type: ignore[attr-defined]
    assert any(thing is method.target_rows.items for thing in things)
    targets = douban(root, target="book", sources=["music"]).source("music")
    assert Traces(targets).within(things), "its own are"
    assert Traces(douban(root).source("book")).within(things) == kept
