"""PPGenCDR: what its loss is, whose profile comes from where, and that it finds a transfer."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor, nn

from callbacks import RobustnessConductor
from datamodules import Evaluation, Synthetic
from tests.zoo.methods.ppgencdr_runs import SIZES, STILL, TINY, ByHand, ByHeart, read, trainer_of
from tests.zoo.methods.quiet_trainer import cold_hit_rate, released
from zoo import Noise, Partial, Plaintext, Popularity, PPGenCDR, Publisher, Recommender, Release
from zoo.data.batch_types import UserBatch


def two_sources(folder: Path) -> Synthetic:
    """A generator of half of the users' rows and plain rows of the others' and some more; some users have no history."""
    settings: dict[str, Any] = SIZES | {"evaluation": Evaluation(split="cold_start")}
    publishers = {"book": Partial(ByHand(), 0.5), "film": Partial(Plaintext(), 0.6, seed=4)}
    return released(folder, publishers, missing_users="zero", **settings)


@pytest.fixture
def both(tmp_path: Path) -> Synthetic:
    return two_sources(tmp_path)


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


def test_it_needs_no_layer_before_the_code(both: Synthetic) -> None:
    method = read(PPGenCDR(dims=(4,), encoder_dims=()), both)
    assert method.step(UserBatch(torch.tensor([0, 1])))["loss"].isfinite()


def test_the_robustness_conductor_works_with_it(both: Synthetic) -> None:
    trainer, method = trainer_of(RobustnessConductor(weight=10.0)), PPGenCDR(**TINY)
    trainer.fit(method, datamodule=both)
    assert 0 < float(trainer.callback_metrics["train/penalty/robustness_conductor"]) <= 10.0 * 2 * 16
    plain = trainer_of()
    plain.fit(PPGenCDR(**TINY), datamodule=both)
    assert "train/penalty/robustness_conductor" not in plain.callback_metrics


@pytest.mark.thorough
def test_a_planted_transfer_is_found_and_noise_is_not_taken_for_one(tmp_path: Path) -> None:
    """80 cold test users, two seeds: the margin is two standard errors of a difference of five; seeds are fixed."""

    def mean(publisher: Publisher, make: Callable[[], Recommender]) -> float:
        return sum(cold_hit_rate(make, publisher, tmp_path, 12, seed) for seed in (0, 1)) / 2

    make = partial(PPGenCDR, dims=(64, 32), encoder_dims=(64,), lr=5e-3)
    most = max(mean(Plaintext(), Popularity), mean(Noise(Plaintext()), make))
    assert min(mean(Plaintext(), make), mean(ByHeart(), make)) > most + 0.1
