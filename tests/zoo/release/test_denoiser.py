"""Denoiser: what becomes of each publisher's release, what it leaves alone, what it refuses; in datamodule and command."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
import torch
import yaml
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import ModelCheckpoint
from scipy.sparse import csr_array
from scipy.special import expit, logit
from scipy.stats import norm

import zoo
from datamodules import Synthetic
from zoo.methods.target_data import ReleaseMismatchError
from zoo.privacy.mechanisms.noisy_rows import lattice_midpoint
from zoo.privacy.mechanisms.third_party import ThirdPartyMechanism
from zoo.release.files import ReleaseError
from zoo.runs.cli import ZooCLI
from zoo.testing.tiny import attached as attach

Floats = npt.NDArray[np.floating[Any]]


def planted(users: int = 300, items: int = 120) -> zoo.Ratings:
    """Two groups of users, each with items of its own; busy users and popular items among them."""
    generator = np.random.default_rng(0)
    alike = generator.integers(0, 2, users)[:, None] == generator.integers(0, 2, items)
    rates = np.outer(generator.gamma(4, 1 / 4, users), 0.12 * generator.gamma(2, 1 / 2, items))
    cells = generator.random((users, items)) < np.clip(rates * np.where(alike, 1.9, 0.1), 0, 0.9)
    ids = np.array([f"u{i}" for i in range(users)]), np.array([f"i{i}" for i in range(items)])
    return zoo.Ratings(csr_array(cells.astype(np.float32)), *ids)


SOURCE = planted()


def values(release: zoo.Release) -> Floats:
    """Rows in full."""
    rows: Floats = release.rows(torch.arange(release.num_users)).numpy()
    return rows


def error(guess: Floats, truth: Floats) -> float:
    return float(((guess - truth) ** 2).mean())


@pytest.mark.parametrize(
    ("publisher", "line"),
    [
        (zoo.FlippedRows(epsilon=2.0, noise_seed=1), (2.0, 1.0)),
        (zoo.FlippedRows(epsilon=4.0, keep=0.5, noise_seed=1), (4.0, 0.5)),
        (zoo.NoisyRows(epsilon=6.0, noise_seed=1), None),
        (zoo.NoisyRows(epsilon=6.0, threshold=1.0, noise_seed=1), None),
        (zoo.NoisyRows(epsilon=9.0, threshold=2.0, noise_seed=1), None),
    ],
)
def test_posteriors_are_nearer_to_the_ratings(publisher: zoo.Publisher, line: tuple[float, float] | None) -> None:
    """Than the rows as they came, than unbiased estimates, and than a guess without components."""
    release, truth = publisher.publish(SOURCE, "book"), SOURCE.matrix.toarray()
    found, plain = (values(zoo.Denoiser(components)(release)) for components in (64, 0))
    assert ((found >= 0) & (found <= 1)).all()
    assert error(found, truth) < 0.97 * error(plain, truth)
    assert error(found, truth) < 0.9 * error(np.full_like(truth, truth.mean()), truth)
    assert error(plain, truth) < 0.9 * error(values(release), truth)
    if line is not None:
        p, keep = 1 / (1 + math.exp(line[0])), line[1]
        unbiased = (values(release) / keep - p) / (1 - 2 * p)
        assert error(found, truth) < 0.5 * error(unbiased, truth)


@pytest.mark.parametrize("relation", ["zero_out_one_user", "replace_one_user"])
@pytest.mark.parametrize("threshold", [None, 1.0])
def test_clipped_rows_are_shrunk(
    relation: Literal["zero_out_one_user", "replace_one_user"], threshold: float | None
) -> None:
    publisher = zoo.NoisyRows(epsilon=16.0, relation=relation, clip=2.0, threshold=threshold, noise_seed=1)
    release, whole = publisher.publish(SOURCE, "book"), SOURCE.matrix.toarray()
    truth = whole * np.minimum(1, 2 / np.maximum(np.linalg.norm(whole, axis=1, keepdims=True), 1e-9))
    assert error(values(zoo.Denoiser()(release)), truth) < 0.5 * error(values(release), truth)


@pytest.mark.parametrize("kind", [zoo.JLT, zoo.SJLT])
@pytest.mark.parametrize("settings", [{}, {"centre": False}])
def test_projections_are_nearer_to_those_without_noise(
    kind: type[zoo.JLT | zoo.SJLT], settings: dict[str, Any]
) -> None:
    made, exact = (
        kind(epsilon, num_components=64, seed=0, noise_seed=1, **settings).publish(SOURCE, "book")
        for epsilon in (8.0, 1e7)
    )
    truth = values(exact)
    found, mean = (values(zoo.Denoiser(components)(made)) for components in (64, 0))
    assert error(found, truth) < 0.9 * error(mean, truth) < 0.9 * error(values(made), truth)
    whole = kind(1e7, num_components=64, seed=0, noise_seed=1, **settings).publish(SOURCE, "book")
    assert error(values(zoo.Denoiser()(whole)), truth) < 1e-3 * truth.var()


def test_lazy_projections_are_denoised_as_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = zoo.JLT(epsilon=8.0, num_components=16, seed=0, noise_seed=1)
    expected = values(zoo.Denoiser()(publisher.publish(SOURCE, "book")))
    monkeypatch.setattr("zoo.publishers.projected.LAZY_BYTES", 0)
    monkeypatch.setattr("zoo.release.lazy_rows.SHARD_BYTES", 4096)
    written = publisher.publish(SOURCE, "book")
    assert written.lazy
    path = written.save(tmp_path / "book")
    assert len(list(path.glob("tensors-*.safetensors"))) > 1
    np.testing.assert_allclose(values(zoo.Denoiser()(zoo.Release.load(path))), expected, atol=1e-4)
    unwritten = publisher.publish(SOURCE, "book")
    np.testing.assert_allclose(values(zoo.Denoiser()(unwritten)), expected, atol=1e-4)
    np.testing.assert_allclose(values(unwritten), values(zoo.Release.load(path)), atol=1e-6)


PUBLISHERS: dict[str, zoo.Publisher] = {
    "flipped": zoo.FlippedRows(epsilon=2.0),
    "noisy": zoo.NoisyRows(epsilon=4.0),
    "above": zoo.NoisyRows(epsilon=4.0, threshold=1.0),
    "users": zoo.NoisyRows(epsilon=8.0, relation="zero_out_one_user", clip=2.0),
    "projected": zoo.JLT(epsilon=8.0, num_components=16),
    "sparsely projected": zoo.SJLT(epsilon=8.0, num_components=16),
    "seeded": zoo.FlippedRows(epsilon=2.0, noise_seed=3),
    "noise": zoo.Noise(zoo.FlippedRows(epsilon=2.0)),
    "shuffled": zoo.Shuffled(zoo.NoisyRows(epsilon=4.0)),
    "part": zoo.Partial(zoo.FlippedRows(epsilon=2.0), share=0.5),
}


@pytest.mark.parametrize("name", PUBLISHERS)
def test_only_the_numbers_change(name: str, tmp_path: Path) -> None:
    release = PUBLISHERS[name].publish(SOURCE, "book")
    before = values(release).copy()
    denoised = zoo.Denoiser(8)(release)
    assert denoised.record is release.record
    assert denoised.ledger is release.ledger
    assert denoised.user_ids is release.user_ids
    assert (denoised.kind, denoised.domain, denoised.width) == ("rows", "book", release.width)
    assert denoised.digest != release.digest
    found = values(denoised)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    assert not np.array_equal(found, before)
    assert np.array_equal(values(release), before)
    assert np.array_equal(values(zoo.Denoiser(8)(release)), found)
    path = denoised.save(tmp_path / "book")
    if (
        release.record.claims
    ):  # and these no longer have the noise that the record claims: they are to be handed to nobody
        with pytest.raises(
            ReleaseError, match=r"lattice of their noise|Reported entries must be 1|not above the record's threshold"
        ):
            zoo.Release.load(path)
    else:
        assert np.array_equal(values(zoo.Release.load(path)), found)


@pytest.mark.parametrize("name", ["flipped", "above", "projected", "noise"])
def test_nothing_but_rows_and_how_they_were_drawn_is_read(name: str) -> None:
    release = PUBLISHERS[name].publish(SOURCE, "book")
    mechanism = replace(release.record.mechanism, num_users=1, num_items=1)
    record = replace(release.record.without_guarantee("for a test"), mechanism=mechanism, steps=())
    names = np.array([f"somebody {i}" for i in range(release.num_users)])
    other = replace(release, domain="film", user_ids=names, record=record)
    assert np.array_equal(values(zoo.Denoiser(8)(other)), values(zoo.Denoiser(8)(release)))


@pytest.mark.parametrize("publisher", [zoo.Plaintext(), zoo.Nothing("rows"), zoo.Nothing("ratings")])
def test_what_has_no_noise_is_left_alone(publisher: zoo.Publisher) -> None:
    release = publisher.publish(SOURCE, "book")
    assert zoo.Denoiser()(release) is release


@pytest.mark.parametrize(
    "publisher",
    [
        zoo.FlippedRows(epsilon=2.0, noise_seed=1),
        zoo.FlippedRows(epsilon=3.0, keep=0.3, noise_seed=1),
        zoo.NoisyRows(epsilon=6.0, threshold=1.0, noise_seed=1),
    ],
)
def test_a_kept_cell_says_the_same_in_either_layout(publisher: zoo.Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Odds of a kept cell differ from those of one that is not kept by the two likelihood ratios, and by nothing else."""
    monkeypatch.setattr("zoo.publishers.rows._SMALL", 10)
    sparse = publisher.publish(SOURCE, "book")
    rows = values(sparse)
    dense = replace(sparse, tensors={"rows": torch.from_numpy(rows)})
    found, posterior = zoo.Denoiser(8)(sparse), values(zoo.Denoiser(8)(dense)).astype(np.float64)
    assert found.sparse
    assert all(found.tensors[name] is sparse.tensors[name] for name in ("starts", "items", "num_items"))
    inputs: Any = sparse.record.public_inputs
    if "sigma" in inputs:
        sigma, threshold = inputs["sigma"], inputs["threshold"]
        assert threshold == lattice_midpoint(sigma, sigma)
        absent = norm.logcdf(threshold, 1, sigma) - norm.logcdf(threshold, 0, sigma)
        evidence = (rows - 0.5) / sigma**2 - absent
    else:
        p, s = inputs["flip_probability"], inputs["keep"]
        evidence = np.full(rows.shape, math.log((1 - p) / p) - math.log((1 - s * (1 - p)) / (1 - s * p)))
    with np.errstate(divide="ignore"):
        not_kept = expit(logit(posterior) - evidence)
    expected = np.where(rows != 0, posterior - not_kept, 0)
    np.testing.assert_allclose(values(found), expected, atol=2e-3)
    assert values(found).max() > 0.2


def test_both_layouts_of_the_same_flips_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    dense = zoo.Denoiser(8)(zoo.FlippedRows(epsilon=2.0, noise_seed=3).publish(SOURCE, "book"))
    monkeypatch.setattr("zoo.publishers.rows._SMALL", 10)
    sparse = zoo.Denoiser(8)(zoo.FlippedRows(epsilon=2.0, noise_seed=3).publish(SOURCE, "book"))
    assert sparse.sparse
    assert not dense.sparse
    kept = values(sparse) != 0
    odds = logit(values(dense)[kept].astype(np.float64)) - logit((values(dense) - values(sparse))[kept].astype(float))
    np.testing.assert_allclose(odds, 4.0, atol=0.05)  # twice epsilon: seen as a one against seen as a zero


def stated(publisher: zoo.Publisher, **inputs: object) -> zoo.Release:
    """A release whose record says something else; None takes a public input away."""
    release = publisher.publish(SOURCE, "book")
    said = {**release.record.public_inputs, **inputs}
    said = {name: value for name, value in said.items() if value is not None}
    record, mechanism = release.record, release.record.mechanism
    claimed = ThirdPartyMechanism(name=mechanism.name, noise_std=record.noise_scale, inputs=said)
    return replace(release, record=replace(record, mechanism=claimed))


FLIPPED, NOISY = zoo.FlippedRows(epsilon=2.0, noise_seed=1), zoo.NoisyRows(epsilon=4.0, threshold=1.0, noise_seed=1)


@pytest.mark.parametrize(
    ("publisher", "inputs", "said"),
    [
        (FLIPPED, {"keep": None}, "keep is None in the record of FlippedRows.*1e-30, 1"),
        (FLIPPED, {"keep": 1.5}, "keep is 1.5"),
        (FLIPPED, {"flip_probability": 0.7}, "flip_probability is 0.7 .*1e-30, 0.5"),
        (FLIPPED, {"flip_probability": 0}, "flip_probability is 0 .*Omit the denoiser"),
        (FLIPPED, {"flip_probability": True}, "flip_probability is True"),
        (FLIPPED, {"flip_probability": "0.1"}, "flip_probability is '0.1'"),
        (
            FLIPPED,
            {"flip_probability": 0.5},
            "released with probability 0.5, a zero with 0.5. The one must be likelier",
        ),
        (NOISY, {"sigma": -1.0}, r"sigma is -1.0 in the record of NoisyRows.*1e-30, 1e\+30"),
        (NOISY, {"sigma": 1e-200}, "sigma is 1e-200"),
        (NOISY, {"sigma": 10**400}, "sigma is 10000000"),
        (NOISY, {"threshold": "high"}, "threshold is 'high'"),
        (NOISY, {"threshold": 1e9}, "A one is released with probability 0, a zero with 0"),
    ],
)
def test_a_record_that_does_not_say_how_rows_were_drawn(
    publisher: zoo.Publisher, inputs: dict[str, object], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        zoo.Denoiser()(stated(publisher, **inputs))


def test_the_largest_sigma_is_accepted() -> None:
    assert ThirdPartyMechanism(name="x", inputs={"sigma": 1e30}).entry_model is not None


def test_projections_without_their_noise_scale_are_refused() -> None:
    release = zoo.JLT(epsilon=8.0, num_components=8, seed=0, noise_seed=1).publish(SOURCE, "book")
    for scale, said in ((None, "None"), (0.0, "0.0"), (2e30, "2e\\+30")):
        record = replace(release.record, mechanism=ThirdPartyMechanism(name="JLT", noise_std=scale))
        with pytest.raises(ValueError, match=rf"noise_scale of JLT is {said}\..* Omit"):
            zoo.Denoiser()(replace(release, record=record))
    largest = replace(release.record, mechanism=ThirdPartyMechanism(name="JLT", noise_std=1e30))
    assert zoo.Denoiser()(replace(release, record=largest)).num_users == release.num_users


@pytest.mark.parametrize("inputs", [{}, {"sigma": None}])
def test_sparse_rows_that_are_no_cells_are_refused(inputs: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.publishers.rows._SMALL", 10)
    publisher = zoo.NoisyRows(epsilon=4.0, relation="zero_out_one_user", clip=2.0, threshold=1.0, noise_seed=1)
    release = stated(publisher, **inputs)
    clipped = replace(release.record, mechanism=replace(release.record.mechanism, clip=2.0))
    with pytest.raises(ValueError, match=r"record of 'book' has no sparse probabilities"):
        zoo.Denoiser()(replace(release, record=clipped))
    monkeypatch.setenv("ZOO_MOST_COLUMNS", "3")
    with pytest.raises(ValueError, match=r"columns: .* Allowed: 3\. If you trust it, set ZOO_MOST_COLUMNS="):
        zoo.Denoiser()(release)


def test_settings_that_mean_nothing_are_refused() -> None:
    for value in (-1, 2.5, True, 10**30):
        with pytest.raises(ValueError, match=rf"max_components is {value}\. Allowed: integers from 0 to 1024"):
            zoo.Denoiser(value)  # type: ignore[arg-type]


# In a datamodule.

SIZES: dict[str, Any] = {"num_users": 40, "num_items": 30, "ratings_per_user": 8, "batch_size": 16, "seed": 1}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A release of flipped rows of the source."""
    release = zoo.FlippedRows(epsilon=4.0).publish(Synthetic(**SIZES).source("book"), "book")
    return release.save(tmp_path / "book")


def setup(path: Path, denoiser: zoo.Denoiser | None) -> Synthetic:
    data = Synthetic(**SIZES, releases={"book": path}, denoiser=denoiser)
    attach(data).setup("fit")
    return data


def test_releases_are_denoised_when_they_are_read(path: Path) -> None:
    data, raw = setup(path, zoo.Denoiser(4)), setup(path, None)
    assert np.array_equal(values(data.releases["book"]), values(zoo.Denoiser(4)(zoo.Release.load(path))))
    assert np.array_equal(values(raw.releases["book"]), values(zoo.Release.load(path)))
    assert data.sizes == raw.sizes
    assert torch.equal(data.links["book"], raw.links["book"])


def test_digests_say_what_was_made_of_a_release(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw, eight, default = (setup(path, denoiser).digests for denoiser in (None, zoo.Denoiser(8), zoo.Denoiser()))
    assert raw["book"] == zoo.Release.load(path).digest
    assert len({digests["book"] for digests in (raw, eight, default)}) == 3
    assert raw["music"] == eight["music"] == default["music"]
    # Another machine may round otherwise; that is no other release.
    monkeypatch.setattr("zoo.release.denoiser.posterior_rows", lambda rows, *_: np.nextafter(rows, np.float32(2)))
    assert setup(path, zoo.Denoiser(8)).digests == eight


def test_a_checkpoint_belongs_to_its_denoiser(path: Path, tmp_path: Path) -> None:
    def trainer(name: str) -> Trainer:
        saver = ModelCheckpoint(tmp_path / name, filename="last", enable_version_counter=False)
        quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        return Trainer(max_epochs=1, accelerator="cpu", default_root_dir=tmp_path / name, callbacks=[saver], **quiet)

    def parts(denoiser: zoo.Denoiser | None) -> tuple[zoo.PriCDR, Synthetic]:
        seed_everything(5)
        return zoo.PriCDR(dims=(8, 4)), Synthetic(**SIZES, releases={"book": path}, denoiser=denoiser)

    method, data = parts(zoo.Denoiser(4))
    trainer("run").fit(method, datamodule=data)
    checkpoint = tmp_path / "run" / "last.ckpt"
    for other in (None, zoo.Denoiser(5)):
        method, data = parts(other)
        with pytest.raises(ReleaseMismatchError, match=r"these differ: \['book'\]"):
            trainer("other").test(method, datamodule=data, ckpt_path=checkpoint)
    method, data = parts(zoo.Denoiser(4))
    trainer("same").test(method, datamodule=data, ckpt_path=checkpoint, verbose=False)


# On the command line.

CONFIG: dict[str, Any] = {
    "model": {"class_path": "PriCDR", "init_args": {"dims": [8, 4]}},
    "data": {"class_path": "Synthetic", "init_args": {"num_users": 24, "num_items": 30, "ratings_per_user": 6}},
    "publisher": {"class_path": "FlippedRows", "init_args": {"epsilon": 4.0}},
    "trainer": {"max_epochs": 1, "accelerator": "cpu"},
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "experiment.yaml"
    file.write_text(yaml.safe_dump(CONFIG))
    return file


def test_a_command_takes_a_denoiser(cli: Callable[..., ZooCLI], config: Path) -> None:
    done = cli("fit", "--config", config, "--data.denoiser", "{}")
    folder = Path(str(done.trainer.log_dir))
    saved = yaml.safe_load((folder / "config.yaml").read_text())
    assert saved["data"]["init_args"]["denoiser"] == {"max_components": 64}
    release = zoo.Release.load(folder / "releases" / "book")
    assert set(np.unique(values(release))) <= {0.0, 1.0}, "the release itself stays as it was published"
    assert np.array_equal(values(done.datamodule.releases["book"]), values(zoo.Denoiser()(release)))
    assert done.datamodule.releases["book"].record.epsilon == 4.0


def test_a_config_takes_a_denoiser_with_settings(cli: Callable[..., ZooCLI], config: Path) -> None:
    asked = {**CONFIG["data"]["init_args"], "denoiser": {"max_components": 8}}
    config.write_text(yaml.safe_dump({**CONFIG, "data": {"class_path": "Synthetic", "init_args": asked}}))
    done = cli("fit", "--config", config, "--trainer.fast_dev_run", "true")
    assert done.datamodule.denoiser == zoo.Denoiser(8)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (("--data.denoiser", "{max_componets: 8}"), "max_componets"),
        (("--data.denoiser.max_components", "many"), "max_components"),
        (("--data.denoiser", "{max_components: -1}"), "max_components is -1. Allowed: integers from 0 to 1024"),
    ],
)
def test_a_typo_in_its_settings_is_refused(
    cli: Callable[..., ZooCLI], config: Path, capsys: pytest.CaptureFixture[str], setting: tuple[str, str], said: str
) -> None:
    with pytest.raises((SystemExit, ValueError)) as refused:
        cli("fit", "--config", config, *setting)
    assert said in (capsys.readouterr().err if isinstance(refused.value, SystemExit) else str(refused.value))
    assert [entry.name for entry in config.parent.iterdir()] == [config.name]
