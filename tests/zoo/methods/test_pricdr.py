"""PriCDR finds a planted transfer, and finds none where there is none."""

from functools import partial
from pathlib import Path

import pytest
import torch
from pytorch_lightning import seed_everything

from datamodules import Evaluation, Synthetic
from tests.zoo.methods.quiet_trainer import cold_hit_rate, quiet, released
from zoo import Noise, Partial, Plaintext, PriCDR
from zoo.data.batch_types import UserBatch
from zoo.nn.losses import all_items_loss


@pytest.mark.thorough
def test_a_planted_transfer_is_found_and_noise_is_not_taken_for_one(tmp_path: Path) -> None:
    """80 cold test users, three seeds: the margin is some three standard errors of the difference; seeds are fixed."""
    make = partial(PriCDR, dims=(64, 32), lr=2e-3, alignment_weight=1.0, transfer_weight=1.0)
    linked, control, unlinked = (
        sum(cold_hit_rate(make, publisher, tmp_path, 12, seed, link=link) for seed in range(3)) / 3
        for publisher, link in ((Plaintext(), 1.0), (Noise(Plaintext()), 1.0), (Plaintext(), 0.0))
    )
    assert linked > control + 0.1
    assert linked > unlinked + 0.1


def test_alignment_weighs_what_it_says(tmp_path: Path) -> None:
    """The loss is linear in the weight, and its slope is the squared distance between code and factor."""
    path = Plaintext().publish(Synthetic(seed=0).source("book"), "book").save(tmp_path / "book")

    def loss(weight: float) -> tuple[float, float]:
        seed_everything(1)
        method = PriCDR(dims=(8, 4), alignment_weight=weight, source_dropout=0.0)
        data = Synthetic(seed=0, releases={"book": path})
        quiet(max_epochs=0).fit(method, datamodule=data)
        users = torch.arange(5)
        factors = method.towers.users(method.target_rows, users)
        code, _ = method.source_side.mean_code(method.all_source_rows(users), factors)
        return float(method.step(UserBatch(users))["loss"].detach()), float((code - factors).square().sum().detach())

    (none, distance), (some, _) = loss(0.0), loss(1000.0)
    assert (some - none) / 1000 == pytest.approx(distance, rel=1e-3)


def test_every_source_has_an_autoencoder_and_codes_are_averaged(tmp_path: Path) -> None:
    """By hand, for users in both sources, in one and in none: losses add up over sources, codes are means."""
    publishers = {"book": Partial(Plaintext(), 0.7), "film": Partial(Plaintext(), 0.4)}
    split = Evaluation(split="cold_start")
    data = released(tmp_path, publishers, seed=0, missing_users="zero", evaluation=split)
    seed_everything(1)
    method = PriCDR(dims=(8, 4), alignment_weight=3.0, source_dropout=0.0)
    trainer = quiet(max_epochs=0)
    trainer.fit(method, datamodule=data)
    method.eval()
    users = torch.arange(method.sizes["num_users"])
    rows = method.all_source_rows(users)
    assert len(set(zip(*(present.tolist() for _, present in rows.values()), strict=True))) == 3
    with torch.no_grad():
        target = method.towers.users(method.target_rows, users)
        logits = method.towers.logits(target, method.item_factors())
        expected = float(all_items_loss(logits, method.target_rows.bags(users)))
        total, count = torch.zeros_like(target), torch.zeros(len(users), 1)
        for name, (source, present) in rows.items():
            autoencoder = method.source_side.autoencoders[name]
            code = autoencoder.encoder(source)
            errors = (autoencoder.decoder(code) - source).square().sum(1)
            expected += float((errors + 3.0 * (code - target).square().sum(1))[present].sum())
            total, count = total + code * present[:, None], count + present[:, None]
        assert float(method.step(UserBatch(users))["loss"]) == pytest.approx(expected, rel=1e-4)
        cold = (method.target_rows.counts_of(users) == 0)[:, None]
        assert bool((cold & (count == 2)).any())
        factors = torch.where(cold, total / count.clamp(min=1), target)
        assert torch.allclose(method.user_factors(users), factors, atol=1e-5)
