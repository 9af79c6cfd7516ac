"""What every exported method must do; a method is tested here by being exported."""

import json
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import Callback, ModelCheckpoint

import zoo
import zoo.runs.trained
from callbacks.recommendation_writer import table_of
from datamodules import CrossDomainDataModule, Evaluation, LowRank, Synthetic
from tests.tiny import SIZES
from zoo import BPR, SPPG, EmbeddingPublisher, GeneratorPublisher, Noise, Plaintext, Publisher, Recommender
from zoo.data.batches import PredictBatch
from zoo.data.evaluation import entries
from zoo.metrics import best_unseen
from zoo.run_folder import BEST, CONFIG, plain
from zoo.runs.bundle import BUNDLE
from zoo.runs.held import NotHeldError
from zoo.runs.widened import widened
from zoo.target_data import ReleaseMismatchError

ROOT = Path(__file__).parent.parent.parent
NAMES = sorted(zoo.METHODS)
#: What a contract needs of a method beside tiny sizes.
SETTINGS: dict[str, dict[str, Any]] = {
    "CFGAN": {"scheme": "ZP"},
    "FedGCDR": {"num_layers": 1},  # as many as the release has
    "NeuMF": {"dropout": 0.1},
    # A tolerance that is out of reach in so few iterations.
    "OneBitMC": {"tau": 20.0, "tolerance": 1e-12, "max_iterations": 9},
    # A private training draws from the operating system and cannot be repeated.
    "SPPG": {
        "mechanism": "none",
        "steps": 100,
        "sample_size": 8,
        "n_critic": 2,
        "condition_dim": 4,
        "generator_dims": (8,),
        "critic_dims": (8, 4),
    },
}

#: Whose weights are all that they score by; the others read ratings, or a release.
SCORES_ALONE = {"BPR", "NeuMF", "OneBitMC", "Popularity", "SPPG", "GANMF"}


def publisher_for(kind: str) -> Publisher:
    """Of a release that a method reads: the ratings, vectors of users, or a generator that takes noise."""
    if kind == "embeddings":
        return EmbeddingPublisher(BPR(num_factors=3), max_epochs=1, progress=False)
    if kind != "generator":
        return Plaintext()
    network = SPPG(mechanism="none", steps=2, sample_size=8, condition_dim=4, generator_dims=(8,), noise_dim=2)
    return GeneratorPublisher(network)


def tiny_method(name: str) -> Recommender:
    made: Recommender = getattr(zoo, name)(**SIZES.get(name, {}) | SETTINGS.get(name, {}))
    return made


Make = Callable[..., tuple[Recommender, CrossDomainDataModule]]
DATA = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "batch_size": 16, "seed": 1}


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """Releases for whoever reads one, each published once: the right one, and one that it was not trained with."""

    @cache
    def publish(kind: str, release: str) -> Path:
        publisher = publisher_for(kind)
        publisher = publisher if release == "right" else Noise(publisher)
        source = Synthetic(**DATA).source("book")
        return publisher.publish(source, "book").save(tmp_path_factory.mktemp("released") / release)

    return publish


@pytest.fixture(params=NAMES, scope="module")
def make(request: pytest.FixtureRequest, released: Callable[[str, str], Path]) -> Make:
    """Makes the method, and tiny data with a release for whoever reads one."""
    named = getattr(zoo, request.param)

    def build(release: str = "right", **settings: Any) -> tuple[Recommender, CrossDomainDataModule]:  # noqa: ANN401
        if named.reads_signs:
            method = tiny_method(request.param)
            split = {"evaluation": Evaluation(split="random2")}  # with a validation set
            return method, LowRank(**{"num_users": 40, "num_items": 30, "observed": 0.3, "seed": 1} | split | settings)
        kind = next((kind for kind in ("generator", "ratings") if kind in named.reads), "embeddings")
        path = released(kind if named.reads else "ratings", release)
        seed_everything(5)
        method = tiny_method(request.param)
        size = {} if method.batches == "users" else {"batch_size": 90}  # three batches an epoch of either kind
        return method, Synthetic(**(DATA | size | settings), releases={"book": path})

    return build


def trainer(folder: Path, *callbacks: Callback, epochs: int = 3, **settings: Any) -> Trainer:  # noqa: ANN401
    return Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[ModelCheckpoint(folder, filename="last", save_top_k=1, enable_version_counter=False), *callbacks],
        **settings,
    )


@dataclass(frozen=True)
class Trained:
    """A method after three epochs, with what it was trained on and by, and the folder of its checkpoint."""

    method: Recommender
    data: CrossDomainDataModule
    run: Trainer
    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "last.ckpt"

    def after(self, batches: int) -> Path:
        """The checkpoint of a run that was interrupted after so many batches."""
        return self.folder / f"{batches}.ckpt"


#: After so many batches a checkpoint is saved: inside the second epoch, and at its last batch.
INSIDE, AT_THE_END = 4, 6


class SaveInside(Callback):
    """Saves checkpoints inside an epoch, as somebody who interrupts the run then would."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.batches = folder, 0

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        self.batches += 1  # not Lightning's global step, which counts every optimiser's
        if self.batches in (INSIDE, AT_THE_END):
            trainer.save_checkpoint(self.folder / f"{self.batches}.ckpt")


@pytest.fixture(scope="module")
def trained_once(make: Make, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    method, data = make()
    folder = tmp_path_factory.mktemp("trained")
    run = trainer(folder, SaveInside(folder))
    run.fit(method, datamodule=data)
    return Trained(method, data, run, folder)


@pytest.fixture
def trained(trained_once: Trained) -> Iterator[Trained]:
    """What several tests look at; each finds it as it was trained, since a source of noise cannot be copied."""
    method = trained_once.method
    state, training = deepcopy(method.state_dict()), method.training
    yield trained_once
    method.load_state_dict(state)
    method.train(training)


def test_the_constructor_builds_nothing(make: Make) -> None:
    method, _ = make()
    assert list(method.parameters()) == []
    assert method.sizes is None


def test_it_says_what_it_is(make: Make) -> None:
    method, _ = make()
    name = type(method).__name__
    assert method.batches in ("users", "pairs", "triples", "once", "steps")
    assert type(method).__doc__
    assert list((ROOT / "configs").rglob("*.yaml"))
    module = zoo.METHODS[name].split(".")[2]
    assert (ROOT / "docs" / "methods" / f"{module}.md").is_file(), "a method has a page"
    configs = [path.read_text() for path in (ROOT / "configs").rglob("*.yaml")]
    assert any(f"class_path: {name}\n" in text for text in configs), "a method has a config"


def test_scores_of_given_items_are_those_of_all_items(trained: Trained) -> None:
    method, data = trained.method, trained.data
    method.eval()
    users = torch.tensor([3, 0, 39, 3])
    with torch.no_grad():
        scores = method.score_all(users)
        assert scores.shape == (4, data.train.num_items)
        assert torch.isfinite(scores).all()
        items = torch.tensor([[0, 5], [29, 1], [2, 2], [7, 8]]).clamp(max=data.train.num_items - 1)
        assert torch.allclose(method.score(users, items), scores.gather(1, items), atol=1e-5)


def test_exposed_tensors_are_returned(trained: Trained) -> None:
    method, data = trained.method, trained.data
    if method.batches in ("once", "steps"):
        assert not method.exposes
        return
    outputs = method.step(next(iter(data.train_dataloader())))
    if method.automatic_optimization:
        assert set(outputs) == {"loss", *method.exposes}
    else:  # of several losses `step` has one, and a penalty sees what each of them has
        assert {"loss"} <= set(outputs) <= {"loss", *method.exposes}
    assert outputs["loss"].ndim == 0


def test_a_penalty_is_added_to_the_loss(make: Make, tmp_path: Path) -> None:
    method, data = make()
    if method.batches in ("once", "steps"):
        pytest.skip("what is solved has no loss")
    losses = []

    def penalty(outputs: dict[str, torch.Tensor]) -> torch.Tensor:
        losses.append(float(outputs["loss"].detach()))
        return 0 * outputs["loss"] + 7.0

    # With two players, what `step` says is the generator's.
    method.add_penalty("seven", penalty, to="loss" if method.automatic_optimization else "generator")
    run = trainer(tmp_path / "run", epochs=1, limit_train_batches=1)
    run.fit(method, datamodule=data)
    assert float(run.callback_metrics["train/loss"]) == pytest.approx(losses[-1] + 7.0, rel=1e-5)
    assert float(run.callback_metrics["train/penalty/seven"]) == 7.0


def test_ranking_figures_are_logged(trained: Trained) -> None:
    for key in ("val/ndcg@10", "val/sampled/hit_rate@10", "val/full/mrr@5"):
        assert 0 <= float(trained.run.callback_metrics[key]) <= 1


@pytest.mark.parametrize("stop", [INSIDE, AT_THE_END, None], ids=["inside an epoch", "at its last batch", "after it"])
def test_a_resumed_run_equals_an_unbroken_one(make: Make, trained: Trained, tmp_path: Path, stop: int | None) -> None:
    if trained.method.batches == "once":
        pytest.skip("a closed form has nothing to resume")
    if trained.method.batches != "steps":
        assert len(trained.data.train_dataloader()) == AT_THE_END // 2
    if stop is None:
        halted, data = make()
        checkpoint = tmp_path / "halted" / "last.ckpt"
        trainer(tmp_path / "halted", epochs=2).fit(halted, datamodule=data)
    else:
        checkpoint = trained.after(stop)
    torch.manual_seed(99)
    resumed, data = make()
    torch.manual_seed(123)
    trainer(tmp_path / "resumed").fit(resumed, datamodule=data, ckpt_path=checkpoint)
    ours, theirs = trained.method.state_dict(), resumed.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_loaded_checkpoint_scores_the_same(trained: Trained) -> None:
    method, data = trained.method, trained.data
    loaded = type(method).load_from_checkpoint(trained.checkpoint, weights_only=True)
    loaded.read_data(data)
    users = torch.arange(data.train.num_users)
    with torch.no_grad():
        assert torch.equal(loaded.eval().score_all(users), method.eval().score_all(users))


def test_another_release_is_refused(make: Make, trained: Trained, tmp_path: Path) -> None:
    method, data = make("wrong")
    run = trainer(tmp_path / "other", epochs=4)
    if not method.reads:
        run.test(method, datamodule=data, ckpt_path=trained.checkpoint, verbose=False)
        assert "test/sampled/ndcg@10" in run.callback_metrics
        return
    with pytest.raises(ReleaseMismatchError, match=r"these differ: \['book'\]"):
        run.test(method, datamodule=data, ckpt_path=trained.checkpoint)


def test_another_split_is_refused(make: Make, trained: Trained, tmp_path: Path) -> None:
    method, data = make(seed=2, evaluation=Evaluation(split="random2"))
    with pytest.raises(ReleaseMismatchError, match=r"Use the data|these differ"):
        trainer(tmp_path / "other").test(method, datamodule=data, ckpt_path=trained.checkpoint)


def test_users_without_history_are_ranked(make: Make, tmp_path: Path) -> None:
    method, data = make(evaluation=Evaluation(split="cold_start"))
    run = trainer(tmp_path / "run", epochs=1)
    run.fit(method, datamodule=data)
    run.test(method, datamodule=data, verbose=False)
    method.eval()
    cold = data.test.users
    assert (method.target_rows.counts()[cold] == 0).all()
    with torch.no_grad():
        scores = method.ranking_scores(cold)
    by_counts = torch.equal(scores, method.item_counts.expand(len(cold), -1))
    assert by_counts != (method.scores_cold_users and bool(method.reads))


@pytest.fixture(scope="module")
def run_folder(trained_once: Trained) -> Path:
    """The trained method as a run leaves it: its settings beside its best checkpoint."""
    folder = trained_once.folder / "run"
    (folder / BEST).parent.mkdir(parents=True)
    shutil.copyfile(trained_once.checkpoint, folder / BEST)
    settings = plain({"model": trained_once.method, "data": trained_once.data})
    (folder / CONFIG).write_text(yaml.safe_dump(settings), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def loaded(run_folder: Path) -> zoo.runs.trained.Trained:
    return zoo.load(run_folder)


def test_a_loaded_run_recommends_what_predict_does(trained: Trained, loaded: zoo.runs.trained.Trained) -> None:
    data, method = trained.data, trained.method.eval()
    users = torch.tensor([3, 0, 39])
    with torch.no_grad():
        batch = PredictBatch(users, *entries(data.test.seen, users))
        expected = table_of(data.train, best_unseen(method.ranking_scores(users), batch, 4))
    found = loaded.recommend(data.train.user_ids[users.numpy()].tolist(), k=4)
    assert found.drop("score").equals(expected.drop("score"))
    assert found["score"].to_numpy() == pytest.approx(expected["score"].to_numpy(), abs=1e-5)


def test_a_bundle_recommends_the_same_or_says_what_it_lacks(
    trained: Trained, loaded: zoo.runs.trained.Trained, tmp_path: Path
) -> None:
    users, data = loaded.user_ids[5:7], loaded.data
    expected = loaded.recommend(users, k=3)
    whole = zoo.export(loaded, tmp_path / "whole", with_user_ids=True, with_ratings=True)
    assert zoo.load(whole, releases=trained.data.release_paths).recommend(users, k=3).equals(expected)
    bare = zoo.load(zoo.export(loaded, tmp_path / "bare", with_user_ids=True))
    needs = json.loads((bare.folder / BUNDLE).read_text())["needs"]
    own = {
        user: data.train.item_ids[data.test.seen.bags(torch.tensor([5 + at])).items] for at, user in enumerate(users)
    }
    name = type(trained.method).__name__
    assert bool(needs) == (name not in SCORES_ALONE)
    if needs:
        with pytest.raises(NotHeldError, match=f"{name} scores by {needs}, which are not in this bundle"):
            bare.recommend(users, k=3, seen=own)
    else:
        assert bare.recommend(users, k=3, seen=own).equals(expected)


def test_somebody_of_a_release_alone_is_scored_as_a_user_without_ratings(make: Make, tmp_path: Path) -> None:
    method, data = make(evaluation=Evaluation(split="cold_start"))
    if not method.scores_by_rows:
        pytest.skip("it scores nobody whom it was not trained with")
    trainer(tmp_path / "run", epochs=1).fit(method, datamodule=data)
    cold = data.test.users[:2]
    scored = zoo.runs.trained.Trained(method, data, data.test.seen, tmp_path)
    expected = scored.scores(data, cold)
    wide = widened(data, ["new", "newer"], {name: links[cold] for name, links in data.links.items()})
    assert torch.allclose(scored.scores(wide, torch.tensor([40, 41])), expected, atol=1e-6)
