"""EmbeddingPublisher: what is released of whom, what its record says and does not, and what it refuses."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.callbacks import EarlyStopping

from datamodules import Synthetic
from tests.samples import binary, some_ratings
from zoo import BPR, EASE, EmbeddingPublisher, LightGCN, NeuMF, Noise, PriCDR, Ratings, Release, fit
from zoo.commands.privacy.show import guaranteed
from zoo.methods.epoch_averages import DivergedError
from zoo.privacy.accounting.events import GaussianEvent, NonPrivateEvent
from zoo.privacy.accounting.gaussian import gauss_epsilon, gauss_mu
from zoo.privacy.mechanisms.vectors import UserVectors, noisy_vectors
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing
from zoo.privacy.record.record import Guarantee, PrivacyRecord, RecordError
from zoo.privacy.spending.total import Account, total_of
from zoo.publishers.trained import SourceRatings
from zoo.release.files import ReleaseError

NETWORKS: dict[str, tuple[Callable[[], LightningModule], tuple[int, int]]] = {
    "BPR": (lambda: BPR(num_factors=3), (1, 3)),
    "LightGCN": (lambda: LightGCN(num_factors=3, num_layers=2), (3, 3)),
    "NeuMF": (lambda: NeuMF(gmf_dim=2, mlp_dims=(6, 2)), (1, 5)),
    "GMF": (lambda: NeuMF(parts="gmf", gmf_dim=2), (1, 2)),
    "MLP": (lambda: NeuMF(parts="mlp", mlp_dims=(6, 2)), (1, 3)),
}


def publisher(network: str = "BPR", **settings: Any) -> EmbeddingPublisher:  # noqa: ANN401
    known = {} if "epsilon" in settings else {"seed": 0}  # repeats the training, and leaves no guarantee
    return EmbeddingPublisher(NETWORKS[network][0](), **{"max_epochs": 2, "progress": False, **known, **settings})


def ratings() -> Ratings:
    """Of 20 users, the first of whom has none."""
    some = some_ratings(20, 7, density=0.4, seed=2)
    some.matrix.data[:] = 1
    matrix = some.matrix.tolil()
    matrix[0] = 0
    return Ratings(matrix.tocsr(), some.user_ids, some.item_ids)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_vectors_are_those_of_the_trained_network(name: str) -> None:
    made = publisher(name)
    release = made.publish(ratings(), "book")
    vectors = release.tensors["vectors"]
    assert (release.kind, tuple(vectors.shape)) == ("embeddings", (20, *NETWORKS[name][1]))
    assert (release.num_layers, release.width) == (NETWORKS[name][1][0], np.prod(NETWORKS[name][1]))
    network: Any = made.trained(SourceRatings(ratings(), batch_size=2048), 2)
    assert torch.allclose(vectors[1:], network.user_vectors().detach()[1:])
    assert not vectors[0].any(), "somebody without ratings is at the origin"


def test_all_layers_of_light_gcn_are_released() -> None:
    """Mixed by its weights they are what it scores with."""
    network: Any = publisher("LightGCN").trained(SourceRatings(ratings()), 1)
    mixed = network.user_vectors().mean(dim=1)
    assert torch.allclose(mixed, network.nodes()[0], atol=1e-6)


def test_without_noise_there_is_no_guarantee() -> None:
    release = publisher(clip=0.01).publish(binary(), "book")
    assert release.record.guarantee is Guarantee.NONE
    assert release.record.reason == "what the network made of each user is handed over without noise"
    assert release.ledger == (NonPrivateEvent(),)
    assert release.tensors["vectors"].norm(dim=2).max() == pytest.approx(0.01)


def test_noise_is_that_of_the_plan_on_clipped_vectors() -> None:
    bare = publisher(clip=0.1).publish(binary(), "book").tensors["vectors"].numpy()
    noisy = publisher(epsilon=2.0, clip=0.1, noise_seed=7).publish(binary(), "book").tensors["vectors"]
    plan = UserVectors.calibrate(epsilon=2.0, delta=1e-5, clip=0.1, num_layers=1)
    assert np.array_equal(noisy, noisy_vectors(bare, plan, NoiseSource.seeded(7)))


def test_the_claim_is_of_a_users_own_vectors_alone(tmp_path: Path) -> None:
    release = publisher("LightGCN", epsilon=4.0, clip=1.0).publish(binary(), "book")
    record = release.record
    assert record.guarantee is Guarantee.CONDITIONAL
    assert "others_given" in record.conditions
    assert record.sensitivity == pytest.approx(2 * 3**0.5)
    assert release.ledger == (GaussianEvent((record.noise_scale or 0) / (2 * 3**0.5)),)
    assert Release.load(release.save(tmp_path / "book")).digest == release.digest
    with pytest.raises(RecordError, match="parameters give"):
        PrivacyRecord.from_dict(record.to_dict() | {"conditions": [], "guarantee": "proved"})


def test_releases_of_all_sources_spend_the_epsilon_together(tmp_path: Path) -> None:
    """FedGCDR's 16 domains: the noise that privacy.md has for them, and what each record says of its own and of all."""
    network = LightGCN(num_factors=3, num_layers=1)  # two layers are released
    made = EmbeddingPublisher(network, 8.0, clip=1.0, delta=1e-5, num_releases=15, max_epochs=1, progress=False)
    release = made.publish(binary(), "book")
    record = release.record
    assert record.noise_scale == pytest.approx(6.5752, abs=5e-5)
    assert record.epsilon == pytest.approx(gauss_epsilon(1e-5, gauss_mu(8.0, 1e-5) / math.sqrt(15)), rel=1e-8)
    assert (record.epsilon or 9) < 2
    assert record.requested_epsilon == pytest.approx(8.0, rel=1e-8)
    assert record.public_inputs["num_releases"] == 15
    assert "requested      epsilon 8 of all 15 releases together" in str(record)
    assert guaranteed(record)["epsilon asked for, of all 15 releases together"] == "8"
    assert any("15 releases share the requested epsilon" in text for text in record.sentences("assumptions"))
    assert Release.load(release.save(tmp_path / "book")).record == record
    names = [f"source {number}" for number in range(15)]
    total = total_of(Account(name, name, 9, made.forecast(9, 7), tuple(made.plan(9, 7))) for name in names)
    assert (total.epsilon, total.delta) == (pytest.approx(8.0, rel=1e-8), 1e-5)
    assert (total.epsilon or 9) <= 8.0 * (1 + 1e-9), "a budget of 8 pays for all"
    sixteen = total_of(Account(name, name, 9, record, release.ledger) for name in [*names, "one more"])
    assert (sixteen.epsilon or 0) == pytest.approx(gauss_epsilon(1e-5, gauss_mu(8.0, 1e-5) * math.sqrt(16 / 15)))


def test_a_release_that_shares_no_epsilon_says_nothing_of_it() -> None:
    record = publisher(epsilon=8.0, clip=1.0, num_releases=1).forecast(9, 7)
    assert (record.requested_epsilon, "num_releases" in record.public_inputs) == (None, False)
    assert record == publisher(epsilon=8.0, clip=1.0).forecast(9, 7)


def test_one_that_was_chosen_among_several_asked_for_no_epsilon() -> None:
    made = publisher(epsilon=8.0, clip=1.0, num_releases=3)
    one, other = made.publish(binary(), "book"), made.publish(binary(), "book")
    chosen = one.chosen_among([other])
    chosen.record.check_against(chosen.ledger)
    assert chosen.record.requested_epsilon is None
    assert chosen.record.mu == pytest.approx(gauss_mu(8.0, 1e-5) * math.sqrt(2 / 3))


def test_others_vectors_move_too_which_is_why_there_is_a_condition() -> None:
    """One user's ratings replaced: others' vectors move by more than the noise would hide, were they counted."""
    here, there = ratings(), ratings().matrix.toarray()
    there[5] = 1 - there[5]
    replaced = Ratings(type(here.matrix)(there), here.user_ids, here.item_ids)
    both = [publisher(max_epochs=20, clip=1.0).publish(data, "book").tensors["vectors"] for data in (here, replaced)]
    moved = (both[0] - both[1]).flatten(1).norm(dim=1)
    assert moved[5] <= 2
    assert moved[torch.arange(20) != 5].norm() > 0.01


def test_the_noise_control_is_trained_on_redrawn_ratings() -> None:
    release = Noise(publisher()).publish(binary(), "book")
    again = publisher().publish(Noise(publisher()).redraw(binary()), "book")
    assert torch.equal(release.tensors["vectors"], again.tensors["vectors"])
    assert not torch.equal(release.tensors["vectors"], publisher().publish(binary(), "book").tensors["vectors"])


def test_a_network_that_is_none_of_ours_is_taken_at_its_word() -> None:
    class Mine(BPR):
        pass

    made = EmbeddingPublisher(Mine(num_factors=3), epsilon=2.0, clip=1.0, max_epochs=1, progress=False)
    for record in (made.forecast(9, 7), made.publish(binary(), "book").record):
        assert "Mine is true, not audited here" in record.standing


class Unshaped(BPR):
    @property
    def vector_shape(self) -> tuple[int, int]:
        return 2, 3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 1.0}, "clip is missing"),
        ({"delta": 1e-5}, "delta and noise_seed go with epsilon; got delta 1e-05"),
        ({"noise_seed": 1}, "delta and noise_seed go with epsilon"),
        ({"clip": -1.0}, "clip must be a positive finite number, or null"),
        ({"num_releases": 0}, "num_releases is 0. Allowed: integers >= 1"),
        ({"num_releases": 7}, "num_releases is 7, and there is no epsilon to share"),
        ({"max_epochs": 0}, "max_epochs and batch_size must be at least 1; got 0"),
        ({"epsilon": 1.0, "clip": 1.0, "relation": "change_one_rating"}, "Vectors protect users"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        publisher(**settings)


@pytest.mark.parametrize("network", [EASE(), PriCDR()])
def test_networks_without_vectors_of_users_are_refused(network: LightningModule) -> None:
    with pytest.raises(
        TypeError, match=f"{type(network).__name__} has no user vectors.* Take BPR, NeuMF, LightGCN, FedGNN"
    ):
        EmbeddingPublisher(network)


def test_a_network_that_was_trained_before_is_refused(tmp_path: Path) -> None:
    run = fit(BPR(4), Synthetic(num_users=20, num_items=40, sources=[]), runs=tmp_path, max_epochs=1)
    with pytest.raises(ValueError, match=r"BPR was trained before\. Pass a new one\."):
        EmbeddingPublisher(run.method)
    publisher = EmbeddingPublisher(BPR(4))
    publisher.network = run.method
    with pytest.raises(ValueError, match="was trained before"):
        publisher.publish(binary(), "book")


def test_data_that_give_no_vectors_are_refused() -> None:
    empty = Ratings(0 * binary().matrix, binary().user_ids, binary().item_ids)
    empty.matrix.eliminate_zeros()
    with pytest.raises(ValueError, match="'book' has no rating"):
        publisher().publish(empty, "book")
    with pytest.raises(ValueError, match=r"vectors of shape \(9, 1, 3\), not \(9, 2, 3\)"):
        EmbeddingPublisher(Unshaped(num_factors=3), max_epochs=1, progress=False).publish(binary(), "book")
    with pytest.raises(ValueError, match=r"'book' stopped after \d of 9 epochs"):
        publisher(max_epochs=9, callbacks=[EarlyStopping("train/loss", patience=0, stopping_threshold=9.0)]).publish(
            binary(), "book"
        )
    with pytest.raises(DivergedError, match="train/loss is NaN in epoch 2: BPR diverged"):
        EmbeddingPublisher(BPR(num_factors=3, lr=1e38), max_epochs=2, progress=False).publish(binary(), "book")


def test_vectors_without_the_noise_of_their_record_are_refused(tmp_path: Path) -> None:
    network = BPR(num_factors=16)
    release = EmbeddingPublisher(network, 4.0, clip=0.1, max_epochs=1, progress=False).publish(ratings(), "book")
    vectors, sigma = release.tensors["vectors"], release.record.noise_scale or 0.0
    Release.load(release.save(tmp_path / "honest"))

    def refused(name: str, tensor: torch.Tensor, message: str) -> None:
        path = replace(release, tensors={"vectors": tensor}).save(tmp_path / name)
        with pytest.raises(ReleaseError, match=message):
            Release.load(path)

    spacing = lattice_spacing(sigma)
    refused("half", (vectors / 2 / spacing).round() * spacing, "they vary too little")
    refused("one user", vectors * (torch.arange(20) != 3)[:, None, None], "those of some users vary too little")
    refused("moved", vectors + spacing / 4, "are off the lattice")
    refused("wider", torch.cat([vectors, vectors], dim=2), r"shape \(20, 1, 32\)\. .* has \(20, 1, 16\)")
    rows = replace(release, kind="rows", tensors={"rows": vectors.flatten(1)}).save(tmp_path / "rows")
    with pytest.raises(ReleaseError, match="makes vectors"):
        Release.load(rows)


@pytest.mark.parametrize("shape", [(9, 3), (9, 0, 3), (8, 1, 3), (9, 1, 0)])
def test_a_file_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    release = publisher().publish(binary(), "book")
    with pytest.raises(ReleaseError, match="must have shape"):
        replace(release, tensors={"vectors": torch.zeros(shape)})


def test_a_file_with_nan_is_refused() -> None:
    release = publisher().publish(binary(), "book")
    with pytest.raises(ReleaseError, match="'vectors' has NaN or values beyond"):
        replace(release, tensors={"vectors": torch.full((9, 1, 3), torch.nan)})
