"""Releases too large to hold: made while they are saved, and the same as in memory."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.samples import binary
from zoo import JLT, SJLT, Noise, Partial, Release, Shuffled
from zoo.commands.cli import ZooCLI
from zoo.privacy.audits.one_run import OneRunAudit, run_once
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing
from zoo.privacy.rows.public_matrix import GaussianMatrix
from zoo.publisher import PublicSizes


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every release is too large to hold."""
    monkeypatch.setattr("zoo.publishers.projected.LAZY_BYTES", 0)


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("shard_bytes", [1, 80, 120, 10**6])
@pytest.mark.parametrize("of", [JLT, SJLT])
def test_a_large_release_is_that_of_the_same_noise_in_memory(
    of: type[JLT | SJLT], shard_bytes: int, centre: bool, large: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zoo.release.lazy_rows.SHARD_BYTES", shard_bytes)
    publisher = of(epsilon=8.0, num_components=5, noise_seed=3, centre=centre)
    release = publisher.publish(binary(), "book")
    assert release.lazy
    loaded = Release.load(release.save(tmp_path / "book"))
    monkeypatch.setattr("zoo.publishers.projected.LAZY_BYTES", 10**6)
    eager = publisher.publish(binary(), "book")
    assert not eager.lazy
    assert loaded.digest == release.digest == eager.digest
    assert torch.equal(loaded.tensors["rows"], eager.tensors["rows"])
    assert len(list((tmp_path / "book").glob("*.safetensors"))) == {1: 9, 80: 3, 120: 2, 10**6: 1}[shard_bytes]


def test_a_matrix_too_large_to_hold_gives_the_same_release(
    large: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows may round to a neighbouring point of the lattice, for sums over items are added up in blocks."""
    publisher = JLT(epsilon=8.0, num_components=5, noise_seed=3, centre=False)
    whole = publisher.publish(binary(), "book").realised()
    monkeypatch.setattr(JLT, "matrix", lambda self, items: GaussianMatrix(5, items, 0, unit=True, matrix_bytes=120))
    assert not publisher.matrix(7).fits
    blocks = Release.load(publisher.publish(binary(), "book").save(tmp_path / "book"))
    step = lattice_spacing(float(blocks.record.noise_scale or 0))
    assert float((blocks.tensors["rows"] - whole.tensors["rows"]).abs().max()) <= step
    assert blocks.record == whole.record


def test_a_large_release_is_refused_where_a_small_one_is(large: None) -> None:
    ratings = binary()
    ratings.matrix.data[0] = 5
    with pytest.raises(ValueError, match=r"lie in \[1, 5\], beyond \[0, 1\]"):
        JLT(epsilon=1.0, num_components=5).publish(ratings, "book")


def test_controls_and_choice_take_large_releases(large: None, tmp_path: Path) -> None:
    jlt = JLT(epsilon=8.0, num_components=5)
    for number, control in enumerate((Noise(jlt), Shuffled(jlt), Partial(jlt, share=0.5))):
        release = control.publish(binary(), "book")
        assert Release.load(release.save(tmp_path / str(number))).digest == release.digest
    chosen = jlt.publish(binary(), "book").chosen_among([jlt.publish(binary(), "book")])
    assert chosen.record.epsilon is not None
    assert chosen.record.epsilon > 8
    assert Release.load(chosen.save(tmp_path / "chosen")).record == chosen.record


@pytest.mark.parametrize(
    "publisher",
    [
        JLT(epsilon=2.0),
        SJLT(epsilon=2.0, density=0.2),
        JLT(epsilon=2.0, calibration="max", rating_range=5.0),
        JLT(epsilon=2.0, calibration="gaussian", seed=3),
        SJLT(epsilon=2.0, calibration="max"),
    ],
)
def test_one_run_of_the_publishers_own_width_is_audited(publisher: JLT | SJLT) -> None:
    # A fresh seed fails a sound release with probability 1e-3; this one is fixed.
    (audit,) = (audit for audit in publisher.audits() if isinstance(audit, OneRunAudit))
    assert audit.name == f"{publisher.mechanism} {publisher.calibration}, one run"
    plan = publisher.projection(PublicSizes(1000, 600))
    assert (audit.epsilon, audit.delta, audit.sigma, audit.canaries) == (2.0, 1e-5, plan.noise_std, 1500)
    assert run_once(audit, noise=NoiseSource.seeded(1)).verdict == "pass"


def test_one_run_is_for_ratings_and_for_noise_that_is_added() -> None:
    users = JLT(epsilon=2.0, num_components=8, calibration="gaussian", relation="zero_out_one_user", clip=2.0)
    assert users.audits()
    assert not any(isinstance(audit, OneRunAudit) for audit in users.audits())
    assert not JLT(epsilon=2.0, num_components=8, paper_faithful=True).audits()


def test_a_control_is_audited_as_what_it_controls() -> None:
    of = SJLT(epsilon=2.0, num_components=8)
    for control in (Shuffled(of), Partial(of, share=0.5)):
        assert [audit.name for audit in control.audits()] == [audit.name for audit in of.audits()]


def test_the_command_line_publishes_and_trains_with_large_releases(
    large: None, zoo_data: Path, cli: Callable[..., ZooCLI], capsys: pytest.CaptureFixture[str]
) -> None:
    config, small = (
        Path(__file__).parents[3] / "configs" / "pricdr" / "douban.yaml",
        ("--publisher.num_components", "8"),
    )
    cli("publish", "--config", config, *small, "--out", "published")
    assert "guarantee      proved" in capsys.readouterr().out
    assert (Path("published") / "tensors-00001.safetensors").is_file()
    run = cli("fit", "--config", config, *small, "--model.dims", "[8, 4]", "--trainer.max_epochs", "1")
    (used,) = Path(str(run.trainer.log_dir)).glob("releases/*/release.json")
    assert json.loads(used.read_text())["schema"] == 2
