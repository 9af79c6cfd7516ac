"""Publishers of other packages: what they claim is printed as their word, and never as proved."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from callbacks.run_report import privacy_cells, records
from datamodules import Synthetic
from tests.samples import binary
from tests.zoo.publishers.generators import TINY, ratings
from zoo import (
    JLT,
    SPPG,
    FlippedRows,
    GeneratorPublisher,
    InputPerturbation,
    NoisyRows,
    OneBitMC,
    Partial,
    Publisher,
    Release,
    Thinned,
    publish,
)
from zoo.commands.privacy.command import main
from zoo.data.ratings import Ratings, Step
from zoo.methods.one_bit_mc.perturbation import Problem
from zoo.privacy.accounting.events import GaussianEvent
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import Guarantee, PrivacyRecord
from zoo.publishers.base import PlannedRelease, PublicSizes, Stamped
from zoo.release.denoiser import Denoiser
from zoo.runs.inputs import _published

RECORDS = Path(__file__).parent / "privacy" / "record"
CLAIM = f"the claim of {__name__}.NoNoise is true, not audited here"


class NoNoise(Publisher):
    """Rows as they are, under the record and the ledger of a Gaussian mechanism that never ran."""

    def prepare(self, sizes: PublicSizes) -> PlannedRelease:
        mu = gauss_mu(1.0, 1e-5)
        record = PrivacyRecord.proved_unless_seeded(
            "MyRows",
            NoiseSource.os(),
            Relation.CHANGE_ONE_RATING,
            epsilon=1.0,
            delta=1e-5,
            mu=mu,
            sensitivity=1.0,
            sensitivity_norm="L2",
            noise_scale=1 / mu,
        )
        return PlannedRelease.of_tensors(
            record,
            GaussianEvent(1 / mu),
            sizes,
            lambda source, _: {"rows": torch.from_numpy(source.matrix.toarray()).float()},
        )


class Wider(JLT):
    """One of ours, with something of its own that may spoil it."""

    def target_release(self) -> Release:
        return JLT(epsilon=1.0, num_components=4).publish(binary(), "music")


def test_what_an_outside_publisher_claims_is_its_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = Stamped(NoNoise()).publish(binary(), "book")
    for record in (
        release.record,
        Stamped(NoNoise()).forecast(9, 7),
        Release.load(release.save(tmp_path / "book")).record,
    ):
        assert record.guarantee is Guarantee.CONDITIONAL
        assert record.sentences("conditions") == [CLAIM]
        for said in (record.standing, record.summary(), str(record)):
            assert CLAIM in said
        assert not record.summary().endswith("proved")
        assert privacy_cells(record)[-1] == "assumes"
    main(["show", str(tmp_path / "book")])
    said = capsys.readouterr().out
    assert CLAIM in said
    assert "Claimed by the source party, not audited here" in said
    assert "Proved, if" not in said


def test_a_wrapper_of_ours_does_not_make_it_ours() -> None:
    assert CLAIM in Partial(NoNoise(), share=0.5).publish(binary(), "book").record.standing


def test_a_subclass_of_ours_is_somebody_elses() -> None:
    ours, theirs = JLT(epsilon=1.0, num_components=4), Wider(epsilon=1.0, num_components=4)
    assert "claim of" not in ours.forecast(9, 7).standing
    assert f"the claim of {__name__}.Wider is true, not audited here" in Stamped(theirs).forecast(9, 7).standing
    assert (
        f"the claim of {__name__}.Wider is true, not audited here"
        in Stamped(theirs).publish(binary(), "book").record.standing
    )


def test_a_record_that_went_past_the_publishers_is_not_called_proved() -> None:
    """As one that a source made by hand: its mechanism is none of ours."""
    record = NoNoise().forecast(9, 7)
    assert record.standing == "conditional (assumes that the claim of 'MyRows' is true, not audited here)"
    assert privacy_cells(record)[-1] == "assumes"
    assert "proved" not in record.summary()


@pytest.mark.parametrize("name", ["NoisyRows ", "\N{GREEK CAPITAL LETTER NU}oisyRows", "NOISYROWS", "SPPG, private_D"])
@pytest.mark.parametrize("earlier", [False, True])
def test_whatever_is_read_of_a_mechanism_that_is_none_of_ours_is_claimed(
    name: str, earlier: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither an older schema hides it, nor a letter that looks alike."""
    path = NoNoise().publish(binary(), "book").save(tmp_path / "book")
    manifest = json.loads((path / "release.json").read_text())
    said = f"the claim of {name!r} is true, not audited here"
    values = manifest["record"] | {"mechanism": name, "conditions": [f"claimed_by:{name!r}"]}
    if earlier:
        old = json.loads((RECORDS / "records_of_0.3.0.json").read_text())["noisy rows"]["record"]
        values = {key: value for key, value in values.items() if key in old}
        values |= {"schema": 2, "guarantee": "proved", "conditions": [], "public_inputs": {}, "reason": None}
    (path / "release.json").write_text(json.dumps(manifest | {"record": values}))
    record = Release.load(path).record
    assert record.guarantee is Guarantee.CONDITIONAL
    assert record.sentences("conditions") == [said]
    for command in ("show", "total"):
        main([command, str(path)])
        page = capsys.readouterr().out
        assert said in page.split("Conditions")[1]
        assert "Proved, if" not in page
        assert "proved" not in page.split("Assumptions about the data")[0]


class Forecasts(JLT):
    """Says beforehand what it does not do."""

    def forecast(self, num_users: int, num_items: int, applied: Sequence[Step] = ()) -> PrivacyRecord:
        return JLT(epsilon=0.1, num_components=4).forecast(num_users, num_items, applied)


def test_a_forecast_of_somebody_elses_is_claimed() -> None:
    record = Stamped(Forecasts(epsilon=8.0, num_components=4)).forecast(9, 7, applied=())
    assert f"the claim of {__name__}.Forecasts is true, not audited here" in record.standing


class Network(SPPG):
    """One of ours, with something of its own."""


def test_a_network_of_somebody_elses_is_claimed_inside_of_our_publisher(tmp_path: Path) -> None:
    """In what is planned, forecast and released; ours stays ours."""
    ours, theirs = (GeneratorPublisher(kind(**TINY)) for kind in (SPPG, Network))
    said = f"the claim of {__name__}.Network is true, not audited here"
    release = theirs.publish(ratings(), "book")
    read = Release.load(release.save(tmp_path / "book")).record
    assert read == release.record
    for record in (read, theirs.forecast(20, 7), Partial(theirs, share=0.5).forecast(20, 7)):
        assert said in record.standing
    assert "claim of" not in ours.forecast(20, 7).standing


class Flips(InputPerturbation):
    """Flips of another package."""


class OwnRecord(InputPerturbation):
    """States what it likes."""

    def record(self, problem: Problem, applied: Sequence[Step] = ()) -> PrivacyRecord:
        return NoisyRows(epsilon=1.0).forecast(9, 7)


class HandsOver(Wider):
    """Lets another publisher release, and release for the target."""

    def for_target(self, target: Ratings) -> Publisher:
        return Wider(epsilon=1.0, num_components=4)


class Replaces(Synthetic):
    """Gives other ratings by an attribute of the object, which no class shows."""

    def __init__(self) -> None:
        super().__init__(num_users=60, num_items=40)
        self.source = lambda name: binary()  # type: ignore[method-assign, assignment]


class Rewrites(Denoiser):
    """Gives rows the record of less noise."""

    def __call__(self, release: Release) -> Release:
        return FlippedRows(epsilon=0.1).publish(Synthetic(num_users=60, num_items=40).source("book"), "book")


def test_what_an_outside_object_hands_to_ours_is_claimed(tmp_path: Path) -> None:
    (data := Synthetic(num_users=60, num_items=40)).read_target()
    later = Thinned(JLT(epsilon=1.0, num_components=4), share=0.5)
    later.of = HandsOver(epsilon=1.0)
    for wrapped in (HandsOver(epsilon=1.0), Thinned(HandsOver(epsilon=1.0), share=0.5), later):
        released, own = _published(wrapped, data, ["book"])
        assert own is not None
        for record in (released["book"].record, own.record):
            assert f"claimed_by:{__name__}.HandsOver" in record.conditions
    read = publish(JLT(epsilon=1.0, num_components=4), Replaces(), tmp_path / "book")
    assert read.record.conditions == (f"read_by:{__name__}.Replaces",)
    rows = FlippedRows(epsilon=1.0).publish(data.source("book"), "book")
    paths = {"book": rows.save(tmp_path / "rows")}
    received = Synthetic(num_users=60, num_items=40, releases=paths, denoiser=Rewrites())  # type: ignore[arg-type]
    received.read_target()
    received.read_releases()
    assert received.releases["book"].record == rows.record


class Completion(OneBitMC):
    """A method of ours that protects its own training, with something of its own."""


def test_a_method_that_protects_its_own_training_is_claimed_where_it_is_somebody_elses() -> None:
    claim = NoisyRows(epsilon=1.0).forecast(9, 7)

    def said(kind: type[OneBitMC], **data: object) -> str:
        made = kind.__new__(kind)
        object.__setattr__(made, "privacy_record", lambda: claim)
        return records(SimpleNamespace(releases={}, **data), made)[kind.__name__].standing

    assert said(OneBitMC) == "proved"
    read_by = Step("read by shop.Shop", "read_by:shop.Shop", "values")
    assert "shop.Shop" in said(OneBitMC, read_by_plugin=(read_by,)), "also if its ratings have no steps"
    flips, *others = (
        OneBitMC(tau=9.0, perturbation=kind(epsilon=1.0)).forecast(9, 7)
        for kind in (InputPerturbation, Flips, OwnRecord)
    )
    assert [one.conditions[-1] for one in others] == [
        f"claimed_by:{__name__}.{name}" for name in ("Flips", "OwnRecord")
    ]
    assert "claim of" not in flips.standing
    assert (
        said(Completion) == f"conditional (assumes that the claim of {__name__}.Completion is true, not audited here)"
    )


class Audited(FlippedRows):
    """Brings the audits of ours, which run ours."""


CONFIG = str(Path(__file__).parents[2] / "configs" / "pricdr" / "douban.yaml")
AUDIT = ["audit", "--config", CONFIG, "--publisher.epsilon", "1", "--runs", "2000", "--beta", "1e-9"]


@pytest.mark.thorough
def test_audits_that_pass_lift_nothing_and_say_so(capsys: pytest.CaptureFixture[str]) -> None:
    said = f"the claim of {__name__}.Audited is true, not audited here"
    theirs = ["--publisher", f"{__name__}.Audited"]
    main([*AUDIT, *theirs])
    page = " ".join(capsys.readouterr().out.split())
    assert "pass" in page
    assert f"Passing does not change the record, which still says '{said}'" in page
    main([*AUDIT, *theirs, "--json"])
    (words,) = json.loads(capsys.readouterr().out)["words"]
    assert said in words
    assert said in Stamped(Audited(epsilon=1.0)).forecast(9, 7).standing
    main([*AUDIT, "--publisher", "FlippedRows"])
    assert "records say" not in capsys.readouterr().out


def test_a_claim_without_audits_is_not_called_none() -> None:
    with pytest.raises(SystemExit) as ended:
        main(["audit", "--config", CONFIG, "--publisher", f"{__name__}.NoNoise"])
    assert (
        f"NoNoise claims rating (change one rating), eps 1.00, delta 1e-05, conditional (assumes that {CLAIM}"
        in str(ended.value)
    )
    assert "but has no audits. Write its `audits()`" in str(ended.value)
