"""Rows that cannot have the noise of their record are refused when they are read; honest ones pass, whoever published them."""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.integrate import quad
from scipy.sparse import csr_array
from scipy.stats import binom, kstest, norm

from tests.zoo.privacy.record.test_derived import honest
from zoo import (
    JLT,
    SJLT,
    FlippedRows,
    Noise,
    NoisyRows,
    Nothing,
    Partial,
    Plaintext,
    Publisher,
    Ratings,
    Release,
    Shuffled,
    Thinned,
)
from zoo.privacy.mechanisms.base import Finding, MechanismError
from zoo.privacy.mechanisms.goodness_of_fit import FALSE_ALARM, _smallest, far_share, refuse_unlikely
from zoo.privacy.mechanisms.jlt import JLT as Projection
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing
from zoo.privacy.rows.public_matrix import GaussianMatrix
from zoo.release.files import ReleaseError
from zoo.release.layouts import compressed

Singles = npt.NDArray[np.float32]


def rated(users: int, items: int, density: float, seed: int = 0) -> Ratings:
    cells = np.random.default_rng(seed).random((users, items)) < density
    names = np.array([f"u{i}" for i in range(users)]), np.array([f"i{i}" for i in range(items)])
    return Ratings(csr_array(cells.astype(np.float32)), *names)


SOURCE = rated(200, 90, 0.03)
PUBLISHERS: dict[str, Callable[[int | None], Publisher]] = {
    "noisy": lambda seed: NoisyRows(4.0, noise_seed=seed),
    "hardly noisy": lambda seed: NoisyRows(40.0, noise_seed=seed),
    "very noisy": lambda seed: NoisyRows(0.001, noise_seed=seed),
    "above": lambda seed: NoisyRows(4.0, threshold=1.0, noise_seed=seed),
    "users": lambda seed: NoisyRows(4.0, relation="zero_out_one_user", clip=2.0, noise_seed=seed),
    "users above": lambda seed: NoisyRows(4.0, relation="replace_one_user", clip=2.0, threshold=0, noise_seed=seed),
    "flipped": lambda seed: FlippedRows(2.0, noise_seed=seed),
    "few kept": lambda seed: FlippedRows(1.0, keep=0.3, noise_seed=seed),
    "JLT": lambda seed: JLT(8.0, num_components=16, noise_seed=seed),
    "JLT, not centred": lambda seed: JLT(8.0, num_components=16, calibration="gaussian", centre=False, noise_seed=seed),
    "JLT, longest": lambda seed: JLT(64.0, num_components=16, calibration="max", noise_seed=seed),
    "JLT, printed": lambda seed: JLT(8.0, num_components=16, paper_faithful=True, noise_seed=seed),
    "SJLT": lambda seed: SJLT(8.0, num_components=16, noise_seed=seed),
    "SJLT, longest": lambda seed: SJLT(8.0, num_components=16, calibration="max", noise_seed=seed),
}


def findings(release: Release) -> list[Finding]:
    return release.record.mechanism.check({name: tensor.numpy() for name, tensor in release.tensors.items()})


def check(release: Release, tensors: Mapping[str, torch.Tensor]) -> None:
    """As when they are read, whatever shapes a layout allows."""
    try:
        refuse_unlikely(release.record.mechanism, {name: tensor.numpy() for name, tensor in tensors.items()})
    except MechanismError as error:
        raise ReleaseError(str(error)) from error


def alarms(made: Callable[[int | None], Publisher], source: Ratings, runs: int, false_alarm: float) -> int:
    """How often repeatable releases would be refused, had they a guarantee."""
    found = (findings(made(seed).publish(source, "book")) for seed in range(runs))
    return sum(min(each.probability for each in some) * len(some) < false_alarm for some in found)


def loaded(release: Release, folder: Path) -> Release:
    return Release.load(release.save(folder / "release"))


@pytest.mark.parametrize("name", PUBLISHERS)
def test_what_every_publisher_makes_is_read(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = rated(60, 90, 0.08) if name == "JLT, printed" else SOURCE
    for form in ("dense", "sparse"):
        release = PUBLISHERS[name](None).publish(source, "book")
        assert release.record.claims
        assert len(findings(release)) >= 3
        loaded(release, tmp_path / form)
        monkeypatch.setattr("zoo.publishers.rows._SMALL", 10)


@pytest.mark.parametrize("name", ["noisy", "above", "few kept", "JLT", "users", "SJLT"])
def test_wrappers_and_controls_are_read(name: str, tmp_path: Path) -> None:
    plain, empty = PUBLISHERS[name](None), (Nothing(), Plaintext())
    of = (Shuffled(plain), Thinned(plain, 0.3), Partial(plain, 0.5), Partial(plain, 1e-9), Noise(plain))
    for number, publisher in enumerate((*of, Partial(Shuffled(plain), 0.02), *empty)):
        loaded(publisher.publish(SOURCE, "book"), tmp_path / str(number))


@pytest.mark.parametrize("name", ["noisy", "above", "flipped", "JLT", "SJLT"])
def test_small_releases_are_read(name: str, tmp_path: Path) -> None:
    for users, items in ((1, 1), (1, 50), (50, 1), (2, 3)):
        release = PUBLISHERS[name](None).publish(rated(users, items, 0.0), "book")
        loaded(release, tmp_path / f"{users} x {items}")


def test_lazy_releases_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.publishers.projected.LAZY_BYTES", 0)
    monkeypatch.setattr("zoo.release.lazy_rows.SHARD_BYTES", 4096)
    monkeypatch.setattr("zoo.privacy.mechanisms.goodness_of_fit._CHUNK", 100)
    release = PUBLISHERS["JLT"](None).publish(SOURCE, "book")
    assert release.lazy
    loaded(release, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("name", PUBLISHERS)
def test_false_alarms_are_as_rare_as_they_may_be(name: str) -> None:
    """One in twenty is allowed here; so many more than that come of it once in 1e6, and the seeds are fixed."""
    runs = 80
    count = alarms(PUBLISHERS[name], rated(25, 30, 0.0), runs, 0.05)  # where nobody has rated, which is the worst
    assert count <= binom.isf(1e-6, runs, 0.05)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["noisy", "users", "JLT", "JLT, not centred", "flipped", "above"])
def test_where_nobody_has_rated_the_sum_of_all_has_the_law_it_is_held_against(name: str) -> None:
    """Uniform probabilities: the limits are no looser than they have to be."""
    found = []
    for seed in range(120):
        release = PUBLISHERS[name](seed).publish(rated(25, 30, 0.0), "book")
        found.append(findings(release)[0].probability)
    assert kstest(found, "uniform").pvalue > (1e-6 if name in ("flipped", "above") else 1e-3)


def test_nothing_is_said_of_releases_without_a_guarantee(tmp_path: Path) -> None:
    release = NoisyRows(4.0, noise_seed=1).publish(SOURCE, "book")
    loaded(replace(release, tensors={"rows": torch.from_numpy(SOURCE.matrix.toarray())}), tmp_path)


def plain(release: Release) -> dict[str, torch.Tensor]:
    """The ratings themselves, in the layout of a release."""
    return compressed(SOURCE.matrix) if release.sparse else {"rows": torch.from_numpy(SOURCE.matrix.toarray())}


@pytest.mark.parametrize("name", ["noisy", "hardly noisy", "very noisy", "above", "flipped", "few kept"])
def test_plain_rows_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in ("dense", "sparse"):
        release = PUBLISHERS[name](None).publish(SOURCE, "book")
        with pytest.raises(ReleaseError, match=r"fail the noise test|lattice of their noise|threshold"):
            loaded(replace(release, tensors=plain(release)), tmp_path / form)
        monkeypatch.setattr("zoo.publishers.rows._SMALL", 10)


@pytest.mark.parametrize(
    "publisher",
    [
        NoisyRows(4.0, relation="zero_out_one_user", clip=2.0),
        JLT(1.0, num_components=16),
        JLT(1.0, num_components=16, calibration="gaussian", centre=False),
        SJLT(1.0, num_components=16, calibration="max"),
    ],
)
def test_rows_without_noise_are_refused(publisher: Publisher, tmp_path: Path) -> None:
    release = publisher.publish(SOURCE, "book")
    spacing = lattice_spacing(release.record.noise_scale or 0)
    matrix = SOURCE.matrix.toarray().astype(np.float64)
    if not isinstance(publisher, NoisyRows):
        matrix = matrix @ GaussianMatrix(16, 90, 3).transposed() / 4
    rows = np.round(matrix / spacing) * spacing
    if release.record.public_inputs.get("centred after the noise"):
        rows -= rows.mean(axis=0)
    with pytest.raises(ReleaseError, match=r"fail the noise test of .*: .*vary too little"):
        loaded(replace(release, tensors={"rows": torch.from_numpy(rows.astype(np.float32))}), tmp_path)


@pytest.mark.parametrize("name", ["noisy", "users", "JLT", "JLT, not centred", "SJLT", "above"])
def test_nine_tenths_of_the_noise_are_refused(name: str, tmp_path: Path) -> None:
    """With noise of the wrong epsilon and a record of the right one, at 10^4 numbers and more."""
    source = rated(600, 120, 0.02)
    honest = PUBLISHERS[name](None).publish(source, "book")
    scale = honest.record.noise_scale or 0
    rows = np.asarray(NoiseSource.seeded(1).normal((600, honest.width)) * 0.9 * scale)
    if name in ("noisy", "above"):
        rows += source.matrix.toarray()
    spacing = lattice_spacing(scale)
    rows = np.round(rows / spacing) * spacing
    if "threshold" in honest.record.public_inputs:
        rows[rows <= float(honest.record.public_inputs["threshold"])] = 0
    if honest.record.public_inputs.get("centred after the noise"):
        rows -= rows.mean(axis=0)
    with pytest.raises(ReleaseError, match=r"fail the noise test of .*p < 1e-09"):
        loaded(replace(honest, tensors={"rows": torch.from_numpy(rows.astype(np.float32))}), tmp_path)


def test_flips_of_another_epsilon_are_refused(tmp_path: Path) -> None:
    honest, other = (FlippedRows(epsilon).publish(rated(400, 300, 0.02), "book") for epsilon in (2.0, 3.0))
    with pytest.raises(ReleaseError, match="too few"):
        loaded(replace(honest, tensors=other.tensors), tmp_path)


@pytest.mark.parametrize("publisher", [FlippedRows(2.0, keep=0.5), NoisyRows(4.0, threshold=1.0)])
def test_more_ones_than_there_can_be_are_refused(publisher: Publisher, tmp_path: Path) -> None:
    honest = publisher.publish(rated(400, 300, 0.02), "book")
    more = publisher.publish(rated(400, 300, 1.0), "book").tensors["rows"].clone()
    loaded(replace(honest, tensors={"rows": more}), tmp_path / "all")
    more[:20] = more.max()
    with pytest.raises(ReleaseError, match=r"too many (entries are )?ones|users have too many ones"):
        loaded(replace(honest, tensors={"rows": more}), tmp_path)


def test_items_that_nobody_has_are_too_many_to_be_flipped(tmp_path: Path) -> None:
    """More ones than flips make, in all, and still none at most items: those of a few popular ones are as they are."""
    cells = np.zeros((400, 300), dtype=np.float32)
    cells[:, :60] = np.random.default_rng(0).random((400, 60)) < 0.2
    honest = FlippedRows(4.0).publish(rated(400, 300, 0.02), "book")
    assert cells.mean() > 0.018 * 2
    with pytest.raises(ReleaseError, match="some items have too few ones"):
        loaded(replace(honest, tensors={"rows": torch.from_numpy(cells)}), tmp_path)


@pytest.mark.parametrize("users", [1, 2])
def test_a_column_of_few_users_may_have_been_rounded_to_zero(users: int) -> None:
    """Which one of a user's 90 numbers is in 3 % of all honest releases; a chi-square law gives it no chance at all."""
    release = NoisyRows(4.0).publish(rated(users, 90, 0.0), "book")
    rows = release.tensors["rows"].clone()
    rows[:, 7] = 0
    check(release, {"rows": rows})
    with pytest.raises(ReleaseError, match="vary too little"):
        check(release, {"rows": torch.zeros_like(rows)})


@pytest.mark.thorough
def test_honest_rows_of_one_user_are_read() -> None:
    """Refused at most once in 1e9 releases; before, 128 of these 3,000 were."""
    settled = NoisyRows(4.0).publish(rated(1, 130, 0.1), "book")
    for seed in range(3000):
        noise = np.random.default_rng(seed).normal(size=(1, 130)) * float(settled.record.noise_scale or 0)
        spacing = lattice_spacing(float(settled.record.noise_scale or 0))
        rows = (np.rint(noise / spacing) * spacing).astype(np.float32)
        check(settled, {"rows": torch.from_numpy(rows)})


def test_one_user_without_noise_is_found(tmp_path: Path) -> None:
    honest = JLT(8.0, num_components=64, centre=False).publish(SOURCE, "book")
    rows = honest.tensors["rows"].clone()
    rows[17] = 0
    with pytest.raises(ReleaseError, match="those of some users vary too little"):
        loaded(replace(honest, tensors={"rows": rows}), tmp_path)


@pytest.mark.parametrize("name", ["noisy", "above", "JLT", "JLT, not centred", "users"])
def test_values_off_the_lattice_are_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for form in ("dense", "sparse"):
        release = PUBLISHERS[name](None).publish(SOURCE, "book")
        which = "weights" if "weights" in release.tensors else "rows"
        values = release.tensors[which].clone()
        place = values.flatten().nonzero()[-1]
        values.view(-1)[place] += lattice_spacing(release.record.noise_scale or 0) / 2
        with pytest.raises(ReleaseError, match=r"are off the lattice of their noise \(spacing"):
            loaded(replace(release, tensors={**release.tensors, which: values}), tmp_path / form)
        monkeypatch.setattr("zoo.publishers.rows._SMALL", 10)


def test_cells_that_are_neither_0_nor_1_were_not_flipped(tmp_path: Path) -> None:
    release = FlippedRows(2.0).publish(SOURCE, "book")
    rows = release.tensors["rows"].clone()
    rows[rows == 1] = 0.7
    with pytest.raises(ReleaseError, match="Reported entries must be 1"):
        loaded(replace(release, tensors={"rows": rows}), tmp_path)


def test_the_order_of_items_tells_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.publishers.rows._SMALL", 10)
    release = FlippedRows(2.0).publish(SOURCE, "book")
    items = release.tensors["items"].clone()
    for size in (2**20, 3):
        monkeypatch.setattr("zoo.privacy.mechanisms.goodness_of_fit._CHUNK", size)
        for first, second in (([1, 0], [0, 1]), ([0, 0], [0, 1])):
            changed = items.clone()
            changed[second] = items[first]
            with pytest.raises(ReleaseError, match="The items of a user do not rise"):
                check(release, {**release.tensors, "items": changed})
        check(release, release.tensors)


def test_a_value_at_the_threshold_was_not_kept() -> None:
    release = NoisyRows(4.0, threshold=1.0).publish(SOURCE, "book")
    rows = release.tensors["rows"].clone()
    spacing = lattice_spacing(release.record.noise_scale or 0)
    rows[rows != 0] = math.floor(float(release.record.public_inputs["threshold"]) / spacing) * spacing
    with pytest.raises(ReleaseError, match="hold values not above the record's threshold"):
        check(release, {"rows": rows})


def test_values_that_are_kept_without_noise_are_too_small(tmp_path: Path) -> None:
    """As many cells are kept as should be, each with the least value above the threshold."""
    release = NoisyRows(4.0, threshold=1.0).publish(SOURCE, "book")
    rows = release.tensors["rows"].clone()
    rows[rows != 0] = rows[rows != 0].min()
    with pytest.raises(ReleaseError, match="too few of its values are large"):
        loaded(replace(release, tensors={"rows": rows}), tmp_path)
    for epsilon, above in ((1000.0, 38.0), (1000.0, 40.0), (3000.0, 60.0)):  # what no zero reaches, and ones do
        loaded(NoisyRows(epsilon, threshold=above).publish(SOURCE, "book"), tmp_path / f"{epsilon} {above}")


@pytest.mark.parametrize("name", ["noisy", "flipped", "above", "JLT"])
def test_rows_of_another_shape_are_not_those_of_the_record(name: str) -> None:
    release = PUBLISHERS[name](None).publish(SOURCE, "book")
    rows = release.tensors["rows"]
    for other in (rows[:, 1:], torch.cat([rows, rows])):
        with pytest.raises(ReleaseError, match=r"The rows are .* x .*has 200 x"):
            check(release, {"rows": other})


def test_layouts_that_a_mechanism_does_not_have() -> None:
    noisy = NoisyRows(4.0).publish(SOURCE, "book")
    with pytest.raises(ReleaseError, match=r"are sparse.*claims noise on all entries"):
        check(noisy, compressed(SOURCE.matrix))
    with pytest.raises(ReleaseError, match="makes rows"):
        check(noisy, {"embedding": torch.zeros(2, 2)})


def test_sizes_of_a_record_are_those_of_the_weights_and_of_the_listed_users() -> None:
    record, ledger = honest("private critic")
    users, items = record.mechanism.num_users, record.mechanism.num_items
    unstated = replace(record, mechanism=replace(record.mechanism, num_users=0))
    for rows, width, stated, message in (
        (users, items, record, ""),
        (users + 1, items, record, "states 100 users, the release 101"),
        (users, items, unstated, "states 0 users, the release 100"),
        (users, 7, record, "have 7 items"),
    ):
        weights = {"embedding": torch.ones(rows, 2), "weight_0": torch.ones(width, 2), "bias_0": torch.ones(width)}
        with pytest.raises(ReleaseError, match=message) if message else nullcontext():
            Release("generator", "book", weights, np.array([*map(str, range(rows))]), stated, ledger).check_noise()


@pytest.mark.parametrize("name", ["private critic", "sanitised", "private rounds", "input", "projections"])
def test_plain_rows_under_the_record_of_what_makes_none(name: str) -> None:
    """Whose noise nobody looks at in rows: a record of training, true to its ledger, beside the ratings as they are."""
    record, ledger = honest(name)
    users = record.mechanism.num_users
    ids, plain = SOURCE.user_ids[:users], SOURCE.matrix[:users]
    for rows in (compressed(plain), {"rows": torch.from_numpy(plain.toarray())}):
        release = Release("rows", "book", rows, ids, record, ledger)
        with pytest.raises(ReleaseError, match=r"makes (a generator|no release|vectors)"):
            release.check_noise()


@pytest.mark.parametrize("users", [1, 2, 9])
def test_a_single_row_that_was_centred_has_what_the_mean_left_of_its_noise(users: int, tmp_path: Path) -> None:
    """Of one user alone nothing; of one among several all but the mean's share, which honest rows have."""
    honest = JLT(8.0, num_components=64).publish(rated(users, 40, 0.2), "book")
    first = replace(honest, tensors=honest.tensors_of(torch.tensor([0])), user_ids=honest.user_ids[:1])
    assert loaded(first, tmp_path / "honest").num_users == 1
    plain = replace(first, tensors={"rows": torch.full((1, 64), 0.01)})
    with pytest.raises(ReleaseError, match="row of a single user is not 0" if users == 1 else "vary too little"):
        loaded(plain, tmp_path / "plain")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [JLT, SJLT])
def test_noise_for_a_shorter_column_than_the_longest_is_refused(kind: type[JLT | SJLT]) -> None:
    release = kind(8.0, num_components=16, calibration="max").publish(SOURCE, "book")
    # As if the noise were enough for that: the same w, a larger multiplier of noise and so a smaller epsilon.
    mechanism = release.record.mechanism
    assert isinstance(mechanism, Projection)
    shorter = replace(mechanism, largest_norm=0.9 * (mechanism.largest_norm or 0.0))
    lie = replace(release, record=replace(release.record, mechanism=shorter), ledger=(shorter.event,))
    with pytest.raises(ReleaseError, match=r"projection's longest column is .*The noise covers"):
        lie.check_noise()
    # More named items do not avoid it: columns are computed in blocks, and too many are refused.
    for items, match in (
        (2**21 + 1 if kind is JLT else 100, "longest column is"), (2**22 + 1, "be checked"), (2**53, "be checked")
    ):  # fmt: skip
        large = replace(shorter, num_items=items)
        with pytest.raises(ReleaseError, match=match):
            replace(lie, record=replace(lie.record, mechanism=large)).check_noise()


@pytest.mark.parametrize("sigma", [0.1, 0.344, 0.6, 1.08, 20.0])
def test_the_share_of_far_values_is_that_of_the_law(sigma: float) -> None:
    for distance in (0.2 * sigma, 1.5 * sigma):

        def far(x: float, distance: float = distance) -> float:
            return float(norm.pdf(x, 1, sigma)) * (min(abs(x), abs(x - 1)) > distance)

        edges = sorted({-distance, distance, 1 - distance, 1 + distance, 1.0})
        whole, _ = quad(
            far, 1 - 12 * sigma, 1 + 12 * sigma, points=[e for e in edges if abs(e - 1) < 12 * sigma], limit=400
        )
        assert far_share(sigma, distance) == pytest.approx(whole, rel=1e-6)


def test_of_many_probabilities_small_ones_are_counted() -> None:
    """Uniform ones alarm at most as often as asked for (but for 1 in 1e6); where many are a little smaller, all are read."""
    runs, uniform = 500, np.random.default_rng(0).random((500, 400))
    for independent in (False, True):
        alarmed = sum(_smallest(row, independent=independent) < 0.1 for row in uniform)
        assert alarmed <= binom.isf(1e-6, runs, 0.1)
    alone, together = (
        sum(_smallest(row**1.3, independent=independent) < 0.1 for row in uniform) for independent in (False, True)
    )
    assert together > 0.9 * runs > 1.5 * alone
    assert _smallest(np.ones(3), independent=True) == _smallest(np.ones(3), independent=False) == 1.0


def test_the_chance_is_shared_among_what_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    release = PUBLISHERS["noisy"](None).publish(SOURCE, "book")

    def found(probability: float) -> Callable[..., list[Finding]]:
        return lambda *_: [Finding("made up", probability), Finding("nothing", 1.0)]

    monkeypatch.setattr(type(release.record.mechanism), "check", found(0.51 * FALSE_ALARM))
    check(release, release.tensors)
    monkeypatch.setattr(type(release.record.mechanism), "check", found(0.49 * FALSE_ALARM))
    with pytest.raises(ReleaseError, match="made up"):
        check(release, release.tensors)
