"""BridgePublisher and ProjectionPublisher: what crosses, under which record, and what is refused."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from tests.samples import binary, some_ratings
from tests.zoo.release.test_signature import private
from zoo.commands.privacy.show import guaranteed
from zoo.privacy.audits.two_world import run_audit
from zoo.privacy.mechanisms.third_party import ThirdPartyMechanism
from zoo.privacy.randomness.noise import NoiseSource, lattice_spacing
from zoo.privacy.record.record import Guarantee
from zoo.release.files import ReleaseError
from zoo.release.signature import SignatureError, SigningKey

#: Hardly any noise.
CLEAR: dict[str, Any] = {"epsilon": 1e9, "delta": 1e-5, "noise_seed": 1}


def target() -> zoo.Ratings:
    """Other items of the users of `binary`, in another order, and without one of them."""
    made = some_ratings(9, 12, density=0.5, seed=4)
    made.matrix.data[:] = 1
    return zoo.Ratings(made.matrix[::-1][:8], made.user_ids[::-1][:8], made.item_ids)


def projections(**settings: Any) -> zoo.ProjectionPublisher:  # noqa: ANN401
    return zoo.ProjectionPublisher(num_directions=2, **settings)


def test_users_are_joined_by_their_ids() -> None:
    made = zoo.BridgePublisher(**CLEAR, projections=projections()).for_target(target()).publish(binary(), "book")
    places = projections().publish(target(), "target")
    expected = np.zeros((7, 2))
    for user, row in zip(binary().user_ids, binary().matrix.toarray(), strict=True):
        if user in places.user_ids and row.any():
            at = list(places.user_ids).index(user)
            expected += np.outer(row / np.linalg.norm(row), places.tensors["vectors"][at, 0].numpy())
    assert made.kind == "map"
    assert made.tensors["map"].numpy() == pytest.approx(expected, abs=1e-3)


def test_a_smaller_overlap_is_a_map_of_fewer_users_with_the_same_noise() -> None:
    """And their number, not that of all, is what scoring centres and scales by."""
    publisher = zoo.BridgePublisher(**CLEAR, projections=projections())
    timed = replace(binary(), times=np.arange(binary().num_ratings))
    half = zoo.Partial(publisher, 0.5).for_target(target()).publish(timed, "book")
    kept = [list(binary().user_ids).index(user) for user in half.user_ids]
    fewer = replace(binary(), matrix=binary().matrix[kept], user_ids=binary().user_ids[kept])
    alone = publisher.for_target(target()).publish(fewer, "book")
    assert half.source_users == len(kept) == 4
    assert torch.equal(half.tensors["map"], alone.tensors["map"])
    assert half.record.public_inputs["share of the users"] == 0.5
    assert half.record.public_inputs["sigma"] == alone.record.public_inputs["sigma"]


def test_what_the_target_published_is_what_one_place_makes(tmp_path: Path) -> None:
    folder = projections().publish(target(), "music").save(tmp_path / "music")
    received = zoo.BridgePublisher(**CLEAR, received=folder)
    here = zoo.BridgePublisher(**CLEAR, projections=projections()).for_target(target())
    assert received.for_target(target()) is received
    ours, theirs = (publisher.publish(binary(), "book") for publisher in (received, here))
    assert torch.equal(ours.tensors["map"], theirs.tensors["map"])
    assert "made by the target" in str(ours.record.public_inputs["projections"])
    assert "at one place with the source's ratings (research)" in str(theirs.record.public_inputs["projections"])


def test_projections_with_noise_have_a_record_and_an_audit_of_their_own() -> None:
    publisher = projections(epsilon=4.0)
    release = publisher.publish(target(), "music")
    assert release.record.guarantee is Guarantee.CONDITIONAL
    assert "others_given" in release.record.conditions
    assert (release.kind, release.width) == ("embeddings", 2)
    (audit,) = publisher.audits()
    assert run_audit(audit, beta=1e-4, noise=NoiseSource.seeded(1)).verdict == "pass"
    bridge = zoo.BridgePublisher(8.0, projections=publisher).for_target(target()).publish(binary(), "book")
    assert "user (zero out one user), eps 4.00, delta 1e-05, conditional" in str(
        bridge.record.public_inputs["projections"]
    )


def test_long_projections_of_somebody_else_are_clipped(tmp_path: Path) -> None:
    """Whatever the target sends, a user moves the map by the user's own row at most."""
    release = projections().publish(target(), "music")
    longer = replace(release, tensors={"vectors": 1e6 * release.tensors["vectors"]})
    received = zoo.BridgePublisher(**CLEAR, received=longer.save(tmp_path / "long"))
    assert float(received.publish(binary(), "book").tensors["map"].abs().max()) < 9


def test_the_record_says_who_is_protected_and_who_is_not() -> None:
    release = zoo.BridgePublisher(2.0).for_target(target()).publish(binary(), "book")
    record = release.record
    assert (record.epsilon, record.sensitivity, record.clip, record.compositions) == (2.0, 1.0, 1.0, 2)
    assert "personal_recommendations" in record.not_protected
    assert guaranteed(record)["sensitivity"] == "1 (L2)"
    rating = zoo.BridgePublisher(2.0, relation="change_one_rating", clip=2.0).forecast(9, 7)
    assert (rating.sensitivity, rating.clip) == (1.0, 2.0)
    assert "several_ratings_sqrt" in rating.not_protected


def test_a_map_with_less_noise_than_its_record_says_is_refused(tmp_path: Path) -> None:
    """Of 400 numbers of nobody, with a tenth of the noise."""
    nobody = some_ratings(3, 400, density=0.0)
    release = zoo.BridgePublisher(2.0).for_target(target()).publish(nobody, "book")
    quiet = {**release.tensors, "map": torch.zeros_like(release.tensors["map"])}
    folder = replace(release, tensors=quiet).save(tmp_path / "quiet")
    with pytest.raises(ReleaseError, match="The tensors fail the noise test of BridgePublisher"):
        zoo.Release.load(folder)


@pytest.mark.parametrize("scale", [0.0, 0.1])
def test_counts_with_less_noise_than_their_record_says_are_refused(tmp_path: Path, scale: float) -> None:
    """Of 400 items that nobody has."""
    nobody = some_ratings(3, 400, density=0.0)
    release = zoo.BridgePublisher(2.0).for_target(target()).publish(nobody, "book")
    step = lattice_spacing(release.record.mechanism.counts_std)
    counts = (release.tensors["counts"] * scale / step).round() * step
    folder = replace(release, tensors={**release.tensors, "counts": counts}).save(tmp_path / "quiet")
    with pytest.raises(ReleaseError, match="of the counts, they vary too little"):
        zoo.Release.load(folder)
    moved = {**release.tensors, "counts": release.tensors["counts"] + step / 3}
    with pytest.raises(ReleaseError, match="are off the lattice"):
        zoo.Release.load(replace(release, tensors=moved).save(tmp_path / "moved"))


@pytest.mark.parametrize(
    ("clip", "rated", "message"),
    [(9.0, 40, "too many are on a coarser lattice"), (1.0, 34, "those of some items vary too little")],
)
def test_exact_counts_are_refused_and_so_is_a_map_of_one_value(
    tmp_path: Path, clip: float, rated: int, message: str
) -> None:
    """Whole numbers, and also others if some items have none; all are large and on the lattice of the noise."""
    source = some_ratings(600, 40, density=0.5, seed=1)
    release = (
        zoo.BridgePublisher(2.0, relation="change_one_rating", clip=clip)
        .for_target(target())
        .publish(replace(source, matrix=(source.matrix != 0).astype(np.float32)), "book")
    )
    step, sigma = lattice_spacing(release.record.mechanism.counts_std), release.record.mechanism.noise_std
    rows = (source.matrix.toarray() != 0) * (np.arange(40) < rated)
    lengths = np.minimum(1, clip / np.linalg.norm(rows, axis=1))
    counts = torch.from_numpy(np.rint(lengths @ rows / step) * step).float()
    assert counts.square().mean().sqrt() > 5 * release.record.mechanism.counts_std
    flat = torch.full_like(release.tensors["map"], 64 * lattice_spacing(sigma) * 1024)
    for name, values, said in (("counts", counts, message), ("map", flat, "too many are on a coarser lattice")):
        folder = replace(release, tensors={**release.tensors, name: values}).save(tmp_path / name)
        with pytest.raises(ReleaseError, match=f"fail the noise test of BridgePublisher.*{said}"):
            zoo.Release.load(folder)


def test_items_that_the_counts_do_not_choose_are_refused(tmp_path: Path) -> None:
    """Else they could be the exact items of one user; the first of equal counts is chosen."""
    release = (
        zoo.BridgePublisher(2.0, kept_items=3).for_target(target()).publish(some_ratings(9, 7, density=0.0), "book")
    )
    step = lattice_spacing(release.record.mechanism.counts_std)
    tied = torch.tensor([-999.0, 1501, -1201, 1501, 1501, 1503, -603]) * step
    for items, refused in (([1, 3, 5], False), ([1, 4, 5], True), ([0, 1, 5], True)):
        tensors = {**release.tensors, "counts": tied, "items": torch.tensor(items)}
        folder = replace(release, tensors=tensors).save(tmp_path / str(items))
        with pytest.raises(ReleaseError, match="not those with the largest counts") if refused else nullcontext():
            zoo.Release.load(folder)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"items": torch.tensor([0, 2, 1, 3, 4])}, r"Tensor 'items' must rise and lie in \[0, 7\)"),
        ({"items": torch.tensor([0, 1, 2, 3, 7])}, r"Tensor 'items' must rise and lie in \[0, 7\)"),
        ({"items": torch.tensor([-1, 1, 2, 3, 6])}, r"Tensor 'items' must rise and lie in \[0, 7\)"),
        ({"items": torch.tensor([0])}, r"got \(5, 6\), \(1,\), \(7,\)"),
        ({"map": torch.full((5, 6), torch.nan)}, "NaN or values beyond"),
    ],
)
def test_a_map_that_is_none_is_refused(tensors: dict[str, torch.Tensor], message: str) -> None:
    release = zoo.BridgePublisher(2.0, kept_items=5).for_target(target()).publish(binary(), "book")
    with pytest.raises(ReleaseError, match=message):
        replace(release, tensors={**release.tensors, **tensors})


def test_controls_join_the_wrong_people_or_redrawn_ratings() -> None:
    settings = {**CLEAR, "projections": projections()}
    right = zoo.BridgePublisher(**settings).for_target(target()).publish(binary(), "book")
    shuffled = zoo.Shuffled(zoo.BridgePublisher(**settings)).for_target(target()).publish(binary(), "book")
    assert shuffled.tensors["counts"].numpy() == pytest.approx(right.tensors["counts"].numpy(), abs=1e-3)
    assert not torch.allclose(shuffled.tensors["map"], right.tensors["map"], atol=0.1)
    assert shuffled.record.public_inputs["rows"] == "shuffled among the users (control)"
    assert sorted(shuffled.user_ids) == sorted(right.user_ids)
    redrawn = zoo.Noise(zoo.BridgePublisher(**settings)).for_target(target()).publish(binary(), "book")
    assert redrawn.record.guarantee is Guarantee.NONE
    assert redrawn.tensors["map"].shape == right.tensors["map"].shape


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: zoo.BridgePublisher(1.0, projections=projections(), received=Path("x")), "Set one of them"),
        (lambda: zoo.BridgePublisher(1.0).publish(binary(), "book"), r"needs the target's projections. Set received"),
        (
            lambda: zoo.BridgePublisher(1.0).for_target(target()).publish(some_ratings(), "book"),
            r"'book' are not all 1\. Set filters",
        ),
        (lambda: projections(delta=1e-6), "delta and noise_seed go with epsilon"),
        (lambda: zoo.ProjectionPublisher(num_directions=0), "num_directions is 0. It must be 1 to 256"),
    ],
)
def test_bad_input_is_refused(make: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=message):
        make()


def test_a_release_that_is_no_projections_is_refused(tmp_path: Path) -> None:
    folder = zoo.Plaintext().publish(target(), "music").save(tmp_path / "plain")
    with pytest.raises(ValueError, match=r"has kind 'ratings'\. It must have kind 'embeddings'"):
        zoo.BridgePublisher(1.0, received=folder).publish(binary(), "book")
    made = projections().publish(target(), "music")
    wide = replace(made, tensors={"vectors": torch.zeros(len(made.user_ids), 1, 257)}).save(tmp_path / "wide")
    with pytest.raises(ValueError, match=r"has 257 directions\. Allowed: at most 256"):
        zoo.BridgePublisher(1.0, received=wide).publish(binary(), "book")


def test_projections_are_taken_from_those_whose_key_is_trusted(tmp_path: Path) -> None:
    release, public = projections().publish(target(), "music"), tmp_path / "signed.pub"
    for name in ("signed", "strange"):
        release.save(tmp_path / name, sign=SigningKey.read(private(tmp_path / f"{name}.pem")))
    release.save(tmp_path / "unsigned")
    made = zoo.BridgePublisher(4.0, received=tmp_path / "signed", trusted=public).publish(binary(), "book")
    assert made.kind == "map"
    for name in ("strange", "unsigned"):
        with pytest.raises(SignatureError):
            zoo.BridgePublisher(4.0, received=tmp_path / name, trusted=public).publish(binary(), "book")
    with pytest.raises(ValueError, match="It needs received"):
        zoo.BridgePublisher(4.0, trusted=public)


def test_projections_whose_record_states_no_damping_are_refused(tmp_path: Path) -> None:
    release = projections().publish(target(), "music")
    made = release.record.mechanism
    assert isinstance(made, ThirdPartyMechanism)
    record = replace(release.record, mechanism=replace(made, inputs={**made.inputs, "item_damping": "much"}))
    replace(release, record=record).save(tmp_path / "places")
    with pytest.raises(ValueError, match=r"item_damping of .* is 'much'\. It must lie in \[0, 2\]"):
        zoo.BridgePublisher(4.0, received=tmp_path / "places").publish(binary(), "book")


def test_a_config_of_an_older_version_may_name_a_secret_key_of_null() -> None:
    assert projections(secret_key=None).audits() == []
    with pytest.raises(ValueError, match=r"must be null\. To encrypt, use EncryptedProjectionPublisher"):
        projections(secret_key=Path("own.key"))
