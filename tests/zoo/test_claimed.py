"""Publishers of other packages: what they claim is printed as their word, and never as proved."""

from pathlib import Path

import pytest
import torch

from callbacks.run_report import privacy_cells
from tests.samples import binary
from zoo import JLT, Partial, Publisher, Release
from zoo.commands.privacy.command import main
from zoo.privacy.accounting.events import GaussianEvent
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import Guarantee, PrivacyRecord
from zoo.publisher import PlannedRelease, PublicSizes

CLAIM = f"claimed by {__name__}.NoNoise, not audited here"


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


def test_what_an_outside_publisher_claims_is_its_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    release = NoNoise().publish(binary(), "book")
    for record in (release.record, NoNoise().forecast(9, 7), Release.load(release.save(tmp_path / "book")).record):
        assert record.guarantee is Guarantee.CONDITIONAL
        assert [text for text in record.conditions if CLAIM in text] == [f"it is as {CLAIM}"]
        for said in (record.standing, record.summary(), str(record)):
            assert CLAIM in said
        assert not record.summary().endswith("proved")
        assert privacy_cells(record)[-1] == "conditional"
    main(["show", str(tmp_path / "book")])
    said = capsys.readouterr().out
    assert CLAIM in said
    assert "Claimed by the source party, not audited here" in said
    assert "Proved, if" not in said


def test_a_wrapper_of_ours_does_not_make_it_ours() -> None:
    assert CLAIM in Partial(NoNoise(), share=0.5).publish(binary(), "book").record.standing


def test_a_subclass_of_ours_is_somebody_elses() -> None:
    ours, theirs = JLT(epsilon=1.0, num_components=4), Wider(epsilon=1.0, num_components=4)
    assert "claimed" not in ours.forecast(9, 7).standing
    assert f"claimed by {__name__}.Wider, not audited here" in theirs.forecast(9, 7).standing
    assert f"claimed by {__name__}.Wider, not audited here" in theirs.publish(binary(), "book").record.standing


def test_a_record_that_went_past_the_publishers_is_not_called_proved() -> None:
    """As one that a source wrote by hand: its mechanism is none of ours."""
    stamped = NoNoise().forecast(9, 7)
    values = stamped.to_dict() | {"guarantee": "proved", "conditions": []}
    record = PrivacyRecord.from_dict(values)
    assert record.standing == "claimed by 'MyRows', not audited here"
    assert record.word == privacy_cells(record)[-1] == "claimed"
    assert "proved" not in record.summary()
    assert "guarantee      claimed" in str(record)


@pytest.mark.parametrize("method", ["prepare", "publish"])
def test_what_is_wrapped_keeps_its_name(method: str) -> None:
    assert getattr(NoNoise, method).__name__ == method
