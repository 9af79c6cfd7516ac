"""PPGenCDR: what its loss is, whose profile comes from where, and that a source's ratings are nowhere within its reach."""

import gc
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest
import torch
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import Callback
from torch import Tensor, nn

from callbacks import RobustnessConductor
from datamodules import CrossDomainDataModule, Douban, Evaluation, Synthetic
from zoo import (
    SPPG,
    GeneratorPublisher,
    Noise,
    Partial,
    Plaintext,
    Popularity,
    PPGenCDR,
    Publisher,
    Ratings,
    Recommender,
    Release,
)
from zoo.data.batches import UserBatch
from zoo.nn.generator import RowGenerator
from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.record.record import unprotected_record
from zoo.publisher import PlannedRelease, PublicSizes

SIZES: dict[str, Any] = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "batch_size": 16, "seed": 1}
TINY: dict[str, Any] = {"dims": (8, 4), "encoder_dims": (6,)}
STILL: dict[str, Any] = TINY | {"source_dropout": 0.0, "input_dropout": 0.0, "item_dropout": 0.0}


class ByHand(Publisher):
    """A generator that is drawn or put together, and not trained."""

    def tensors(self, source: Ratings) -> dict[str, Tensor]:
        """Of a generator with random weights, larger than those that training begins from."""
        torch.manual_seed(source.num_users)
        generator = RowGenerator(source.num_users, source.num_items, 3, (5,))
        return {name: 3 * tensor for name, tensor in generator.tensors().items()}

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        """Its release, without a guarantee."""
        record = unprotected_record("by hand", "it was made for a test")
        return PlannedRelease.of_tensors(record, NonPrivateEvent(), lambda source, _: self.tensors(source), "generator")


class ByHeart(ByHand):
    """A generator that makes everybody's row as it is."""

    def tensors(self, source: Ratings) -> dict[str, Tensor]:
        """A condition of its own for everybody, and the rows as weights."""
        rows = torch.from_numpy(source.matrix.toarray()).float()
        bias = torch.full((source.num_items,), -10.0)
        return {"embedding": torch.eye(source.num_users), "weight_0": 20 * rows.T.contiguous(), "bias_0": bias}


def trainer_of(*callbacks: Callback, epochs: int = 1, **settings: Any) -> Trainer:  # noqa: ANN401
    return Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0, callbacks=[*callbacks], **settings,
    )  # fmt: skip


def read(method: PPGenCDR, data: CrossDomainDataModule) -> PPGenCDR:
    """The method with its first weights, and the data read."""
    seed_everything(0)
    trainer_of(epochs=0).fit(method, datamodule=data)
    return method.train()


def two_sources(folder: Path) -> Synthetic:
    """A generator of half of the users' rows and plain rows of the others' and some more; some users have no history."""
    settings: dict[str, Any] = SIZES | {"sources": ["book", "film"], "evaluation": Evaluation(split="cold_start")}
    paths = {}
    for name, publisher in {"book": Partial(ByHand(), 0.5), "film": Partial(Plaintext(), 0.6, seed=4)}.items():
        paths[name] = publisher.publish(Synthetic(**settings).source(name), name).save(folder / name)
    return Synthetic(**settings, missing_users="zero", releases=paths)


@pytest.fixture
def both(tmp_path: Path) -> Synthetic:
    return two_sources(tmp_path)


# The loss, written out.

Floats = npt.NDArray[np.float64]


def array(tensor: Tensor) -> Floats:
    return tensor.detach().double().numpy()


def layer(linear: nn.Module, inputs: Floats) -> Floats:
    assert isinstance(linear, nn.Linear)
    return array(linear.weight) @ inputs + array(linear.bias)


def tower(made: nn.Module, row: Floats) -> Floats:
    first, rest = made.first, made.rest  # two layers
    hidden = row @ array(first.weight) + array(first.bias)  # type: ignore[union-attr,arg-type]
    return layer(rest[1], np.maximum(hidden, 0))  # type: ignore[index]


def generated(release: Release, row: int) -> Floats:
    """A row of a release, from its tensors."""
    if release.kind == "ratings":
        found = np.zeros(release.width)
        begin, end = (int(at) for at in release.tensors["starts"][row : row + 2])
        found[release.tensors["items"][begin:end].numpy()] = 1
        return found
    weights = {name: array(tensor) for name, tensor in release.tensors.items()}
    hidden = np.maximum(weights["weight_0"] @ weights["embedding"][row] + weights["bias_0"], 0)
    return 1 / (1 + np.exp(-(weights["weight_1"] @ hidden + weights["bias_1"])))


def written_out(method: PPGenCDR, data: Synthetic, users: list[int]) -> tuple[float, list[Floats]]:
    """The loss of some users, one by one and item by item, and their profiles."""
    train = data.train.matrix.toarray().astype(float)
    items = [tower(method.towers.item_tower, column) for column in train.T]
    total, profiles = 0.0, []
    for user in users:
        own, codes = tower(method.towers.user_tower, train[user]), []
        for name, release in data.releases.items():
            if (linked := int(data.links[name][user])) < 0:
                continue
            row, autoencoder = generated(release, linked), method.source_side.autoencoders[name]
            code = layer(autoencoder.encoder[2], np.maximum(layer(autoencoder.encoder[0], row), 0))  # type: ignore[index]
            inner = autoencoder.decoder[1]  # type: ignore[index]
            decoded = layer(inner[2], np.maximum(layer(inner[0], np.maximum(code, 0)), 0))  # type: ignore[index]
            total += sum((row - decoded) ** 2) + method.alignment_weight * sum((code - own) ** 2)
            codes.append(code)
        profile = own
        if codes:
            share = method.source_share if train[user].any() else 1.0
            profile = (1 - share) * own + share * np.mean(codes, axis=0)
        profiles.append(profile)
        for item, factor in enumerate(items):
            cosine = profile @ factor / (np.linalg.norm(profile) * np.linalg.norm(factor))
            chance = 1 / (1 + math.exp(-method.scale * cosine))
            total -= math.log(chance if train[user, item] else 1 - chance)
    return total, profiles


def known_to(data: Synthetic, history: bool, rows: int) -> list[int]:
    """Users with or without a history, with a row in so many releases."""
    linked = sum((data.links[name] >= 0).int() for name in data.releases)
    rated = torch.from_numpy(data.train.matrix.sum(1) > 0)
    return ((linked == rows) & (rated == history)).nonzero().squeeze(1).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("share", "weight"), [(0.3, 0.7), (0.0, 1.0), (1.0, 0.0)])
def test_the_loss_is_what_its_equations_give(both: Synthetic, share: float, weight: float) -> None:
    method = read(PPGenCDR(source_share=share, alignment_weight=weight, **STILL), both)
    users = [user for rows in (0, 1, 2) for user in known_to(both, history=True, rows=rows)[:3]]
    assert len(users) == 9
    loss, profiles = written_out(method, both, users)
    outputs = method.step(UserBatch(torch.tensor(users)))
    assert float(outputs["loss"].detach()) == pytest.approx(loss, rel=1e-5)
    assert np.allclose(array(outputs["user_factors"]), profiles, atol=1e-5)


def test_a_profile_is_of_what_is_known_of_the_user(both: Synthetic) -> None:
    methods = {share: read(PPGenCDR(source_share=share, **STILL), both).eval() for share in (0.0, 0.5, 1.0)}

    def parts(users: list[int]) -> tuple[dict[float, Tensor], Tensor, Tensor]:
        index, method = torch.tensor(users), methods[0.5]
        own = method.towers.users(method.target_rows, index)
        code, _ = method.source_side.mean_code(method.all_source_rows(index), own)
        return {share: other.user_factors(index) for share, other in methods.items()}, own, code

    with torch.no_grad():
        found, own, code = parts([*known_to(both, True, 1), *known_to(both, True, 2)])
        assert not torch.allclose(own, code, atol=0.1)
        assert torch.equal(found[0.0], own), "as printed"
        assert torch.allclose(found[0.5], (own + code) / 2, atol=1e-6), "as released"
        assert torch.allclose(found[1.0], code, atol=1e-6)
        for history in (True, False):
            found, own, _ = parts(known_to(both, history, 0))
            assert len(own)
            assert all(torch.equal(profiles, own) for profiles in found.values()), "no row, no other profile"
        found, _, code = parts([*known_to(both, False, 1), *known_to(both, False, 2)])
        assert len(code)
        assert all(torch.allclose(profiles, code, atol=1e-6) for profiles in found.values()), "nothing else is known"


def test_a_share_of_nothing_ranks_by_the_target_factor_alone(both: Synthetic) -> None:
    method = read(PPGenCDR(source_share=0.0, **STILL), both).eval()
    warm, cold = torch.tensor(known_to(both, True, 2)), torch.tensor(known_to(both, False, 2))
    with torch.no_grad():
        before = method.score_all(warm), method.score_all(cold)
        for parameter in method.source_side.parameters():
            parameter.mul_(-2)
        after = method.score_all(warm), method.score_all(cold)
    assert torch.equal(before[0], after[0])
    assert not torch.allclose(before[1], after[1])


def test_rows_and_ratings_are_left_out_while_training_and_only_then(both: Synthetic) -> None:
    method, users = read(PPGenCDR(source_dropout=0.5, **TINY), both), torch.tensor(known_to(both, True, 2))
    with torch.no_grad():
        assert not torch.equal(method.user_factors(users), method.user_factors(users))
        method.eval()
        assert torch.equal(method.user_factors(users), method.user_factors(users))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dims": ()}, "Widths must be at least 1"),
        ({"dims": (8, 0)}, "Widths must be at least 1"),
        ({"encoder_dims": (0,)}, "Widths must be at least 1"),
        ({"scale": 0.0}, "scale positive"),
        ({"alignment_weight": -1.0}, "alignment_weight must not be negative"),
        ({"source_share": 1.5}, r"source_share must lie in \[0, 1\]; got 1.0 and 1.5"),
        ({"source_dropout": 1.0}, r"source_dropout must lie in \[0, 1\)"),
        ({"lr": 0.0}, "lr must be positive"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PPGenCDR(**settings)


def test_it_needs_no_layer_before_the_code(both: Synthetic) -> None:
    method = read(PPGenCDR(dims=(4,), encoder_dims=()), both)
    assert method.step(UserBatch(torch.tensor([0, 1])))["loss"].isfinite()


# What it reads of a source.


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


def test_it_refuses_a_release_of_another_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Synthetic(
        **SIZES, releases={"book": ByHand().publish(Synthetic(**SIZES).source("book"), "book").save(tmp_path / "book")}
    )
    assert PPGenCDR.reads == {"generator", "rows", "ratings"}
    monkeypatch.setattr(PPGenCDR, "reads", frozenset({"rows"}))
    with pytest.raises(
        TypeError,
        match=r"PPGenCDR reads releases of kind \['rows'\]; the release of 'book' is of kind 'generator'. Choose",
    ):
        read(PPGenCDR(**TINY), data)


# What comes of it.


def test_the_robustness_conductor_works_with_it(both: Synthetic) -> None:
    trainer, method = trainer_of(RobustnessConductor(weight=10.0)), PPGenCDR(**TINY)
    trainer.fit(method, datamodule=both)
    assert 0 < float(trainer.callback_metrics["train/penalty/robustness_conductor"]) <= 10.0 * 2 * 16
    plain = trainer_of()
    plain.fit(PPGenCDR(**TINY), datamodule=both)
    assert "train/penalty/robustness_conductor" not in plain.callback_metrics


def cold_hit_rate(method: Recommender, publisher: Publisher, folder: Path, seed: int) -> float:
    settings: dict[str, Any] = {"link": 1.0, "evaluation": Evaluation(split="cold_start"), "seed": seed}
    path = publisher.publish(Synthetic(**settings).source("book"), "book").save(
        folder / f"{seed}-{len(list(folder.iterdir()))}"
    )
    trainer = trainer_of(epochs=12)
    data = Synthetic(**settings, releases={"book": path})
    trainer.fit(method, datamodule=data)
    trainer.test(method, datamodule=data, verbose=False)
    return float(trainer.callback_metrics["test/full/hit_rate@10"])


def test_a_planted_transfer_is_found_and_noise_is_not_taken_for_one(tmp_path: Path) -> None:
    """80 cold test users, two seeds: the margin is two standard errors of a difference of five; seeds are fixed."""

    def mean(publisher: Publisher, method: type[Recommender] = PPGenCDR, **settings: Any) -> float:  # noqa: ANN401
        found = []
        for seed in (0, 1):
            seed_everything(seed)
            found.append(cold_hit_rate(method(**settings), publisher, tmp_path, seed))
        return sum(found) / len(found)

    settings: dict[str, Any] = {"dims": (64, 32), "encoder_dims": (64,), "lr": 5e-3}
    most = max(mean(Plaintext(), Popularity), mean(Noise(Plaintext()), **settings))
    assert mean(Plaintext(), **settings) > most + 0.1
    assert mean(ByHeart(), **settings) > most + 0.1
