"""What every method must make of every release: learn from it and score with it, or say at once which ones it reads."""

import re
from functools import cache
from pathlib import Path

import pytest
import torch
from pytorch_lightning import seed_everything

import zoo
from datamodules import CrossDomainDataModule, Evaluation, Synthetic
from tests.tiny import SIZES
from zoo.data.rows import is_binary
from zoo.data.training_batches import training_batches
from zoo.methods.target_data import ReleaseMismatchError

METHODS = sorted(name for name in zoo.METHODS if getattr(zoo, name).accepted_releases)
#: Those that learn from who has which item, which real numbers do not tell.
OF_PAIRS = {"BiTGCF", "CoNet", "DDTCDR"}
SOURCE = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "seed": 1}
PUBLISHERS: dict[str, zoo.Publisher] = {
    "Plaintext": zoo.Plaintext(),
    "Noise": zoo.Noise(zoo.Plaintext()),
    "Shuffled": zoo.Shuffled(zoo.Plaintext()),
    "Partial": zoo.Partial(zoo.Plaintext(), share=0.5),
    "Thinned": zoo.Thinned(zoo.Plaintext(), share=0.5),
    "Nothing": zoo.Nothing(),
    "Nothing, ratings": zoo.Nothing("ratings"),
    "FlippedRows": zoo.FlippedRows(epsilon=4.0),
    "Partial of FlippedRows": zoo.Partial(zoo.FlippedRows(epsilon=4.0), share=0.5),
    "NoisyRows": zoo.NoisyRows(epsilon=4.0),
    "NoisyRows above": zoo.NoisyRows(epsilon=4.0, threshold=1.0),
    "JLT": zoo.JLT(epsilon=8.0, num_components=5),
    "embeddings": zoo.EmbeddingPublisher(zoo.BPR(num_factors=3), max_epochs=1, progress=False),
    "embeddings of layers": zoo.EmbeddingPublisher(
        zoo.LightGCN(num_factors=3, num_layers=1), epsilon=8.0, clip=1.0, max_epochs=1, progress=False
    ),
    "Nothing, embeddings": zoo.Nothing("embeddings"),
    "map": zoo.BridgePublisher(epsilon=8.0, kept_items=20).for_target(Synthetic(**SOURCE).source("book")),
    "Nothing, map": zoo.Nothing("map"),
}  # fmt: skip
DATA = {**SOURCE, "missing_users": "zero"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("releases")


@cache
def data_with(name: str, folder: Path) -> CrossDomainDataModule:
    """Data of which some users have no target history, with a release; each is published once."""
    path = PUBLISHERS[name].publish(Synthetic(**DATA).source("book"), "book").save(folder / name)
    data = Synthetic(**DATA, evaluation=Evaluation(split="cold_start"), releases={"book": path})
    data.setup("fit")
    data.read_releases()  # as for a method that reads them
    return data


def built(method: str, data: CrossDomainDataModule) -> zoo.Recommender:
    made: zoo.Recommender = getattr(zoo, method)(**SIZES.get(method, {}))
    made._build_once(data.sizes)
    made.read_data(data)
    return made


def refused(method: str, release: zoo.Release) -> str | None:
    """What a method must say of a release that it cannot learn from; None of one that it can."""
    kinds = getattr(zoo, method).accepted_releases
    if release.kind not in kinds:
        return rf"kind '{release.kind}'\. {method} reads {re.escape(str(sorted(kinds)))}\. Choose another publisher"
    if method == "FedGCDR" and release.num_users and release.num_layers != 2:
        return r"num_layers is 2; the release of 'book' has 1 layers\. Set model\.num_layers to 1, or publish"
    if method in OF_PAIRS and not is_binary(release.device_rows()):
        return r"needs a binary release of 'book', and .* Use Plaintext or FlippedRows"
    return None


@pytest.mark.thorough
@pytest.mark.parametrize("method", METHODS)
def test_every_release_is_learned_from_or_refused_with_what_would_do(method: str, folder: Path) -> None:
    for name in PUBLISHERS:
        check_release(method, name, folder)


def check_release(method: str, name: str, folder: Path) -> None:
    """Learn from one release, or be refused."""
    seed_everything(1)
    data = data_with(name, folder)
    release = data.releases["book"]
    if (refusal := refused(method, release)) is not None:
        with pytest.raises(TypeError, match=refusal):
            built(method, data)
        return
    made = built(method, data)
    batch = next(iter(training_batches(data.train, made, 16, 0, lambda: 0)))
    if made.batches not in ("full_batch", "steps"):
        outputs = made.step(batch)
        assert torch.isfinite(outputs["loss"])
    everybody = torch.arange(data.train.num_users)
    with torch.no_grad():
        scores = made.eval().ranking_scores(everybody)
    assert scores.shape == (data.train.num_users, data.train.num_items)
    assert torch.isfinite(scores).all()


@pytest.mark.parametrize("other", ["embeddings of layers", "Nothing, embeddings", "Plaintext"])
def test_networks_for_vectors_of_another_width_or_layer_count_are_refused(other: str, folder: Path) -> None:
    made = built("EMCDR", data_with("embeddings", folder))
    with pytest.raises(ReleaseMismatchError, match=r"sources.book.width: 3 against .* Use its data"):
        made._build_once(data_with(other, folder).sizes)
