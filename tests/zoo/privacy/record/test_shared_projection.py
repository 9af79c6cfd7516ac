"""Two releases through one projection are counted together only where their guarantee holds for every projection."""

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.samples import binary
from zoo import JLT, SJLT, NoisyRows, Plaintext, Release
from zoo.privacy.record.record import Guarantee, PrivacyRecord, RecordError
from zoo.privacy.record.selection import chosen_among
from zoo.privacy.record.shared_projection import refuse_shared_projection

OTHER_SEEDS = "projection seeds of the others"
MEANS: dict[str, dict[str, Any]] = {
    "gaussian": {"calibration": "gaussian"},
    "paper": {"calibration": "paper"},
    "users": {"calibration": "gaussian", "relation": "zero_out_one_user", "clip": 2.0},
}
SHARED = r"Releases {} and {} share the projection with seed {}\..*without a seed"


def release(**settings: Any) -> Release:  # noqa: ANN401  those of JLT
    return JLT(epsilon=2.0, num_components=5, **settings).publish(binary(), "book")


def seeded(record: PrivacyRecord, seed: int) -> PrivacyRecord:
    """As if this projection had been drawn."""
    return replace(record, mechanism=replace(record.mechanism, seed=seed))


@pytest.mark.parametrize("settings", MEANS.values(), ids=MEANS)
def test_a_second_release_through_the_same_projection_is_refused(settings: dict[str, Any]) -> None:
    one, two = (release(**settings) for _ in range(2))
    refuse_shared_projection([one.record, two.record])  # each has its own
    again = seeded(two.record, int(str(one.record.public_inputs["projection_seed"])))
    assert one.record.guarantee is not Guarantee.NONE, "or there is nothing to refuse"
    with pytest.raises(RecordError, match=SHARED.format(1, 3, one.record.public_inputs["projection_seed"])):
        refuse_shared_projection([one.record, two.record, again])
    with pytest.raises(RecordError, match="count each release once"):
        one.chosen_among([one])


@pytest.mark.parametrize("of", [JLT, SJLT])
@pytest.mark.parametrize("calibration", ["unit", "max"])
def test_what_holds_for_every_projection_may_share_one(of: Any, calibration: str) -> None:  # noqa: ANN401
    one, two = (
        of(epsilon=2.0, num_components=5, calibration=calibration, seed=7).publish(binary(), "book") for _ in "12"
    )
    refuse_shared_projection([one.record, two.record])
    assert one.chosen_among([two]).record.epsilon == pytest.approx(2.9, rel=0.05), "priced"


def test_a_mean_and_a_guarantee_for_every_projection_do_not_share_one_in_any_order() -> None:
    drawn, other, fixed = release(calibration="gaussian").record, release(calibration="gaussian").record, release()
    same = seeded(fixed.record, int(str(drawn.public_inputs["projection_seed"])))
    for records in permutations((drawn, same, other)):
        numbers = sorted((records.index(drawn) + 1, records.index(same) + 1))
        with pytest.raises(RecordError, match=f"Releases {numbers[0]} and {numbers[1]} "):
            refuse_shared_projection(records)


def test_what_has_no_guarantee_or_no_projection_is_passed_over() -> None:
    fixed = [release(calibration="gaussian", seed=3).record for _ in range(2)]
    assert all(record.guarantee is Guarantee.NONE for record in fixed)
    others = [made.publish(binary(), "book").record for made in (NoisyRows(epsilon=2.0), Plaintext())]
    refuse_shared_projection([*fixed, *others, *others])
    refuse_shared_projection([])


def test_a_chosen_release_knows_the_projections_of_the_others() -> None:
    """Else one of them could be counted again, or made again, beside it."""
    chosen, *others = (release(calibration="gaussian") for _ in range(3))
    account, *rest = ((made.record, made.ledger) for made in (chosen, *others))
    together = chosen_among(account, rest)
    seeds = sorted(str(made.record.public_inputs["projection_seed"]) for made in others)
    assert together[0].public_inputs[OTHER_SEEDS] == " ".join(seeds)
    for made in (chosen, *others):
        with pytest.raises(RecordError, match=f"with seed {made.record.public_inputs['projection_seed']}"):
            refuse_shared_projection([together[0], made.record])
    more = release(calibration="gaussian")
    both = chosen_among((more.record, more.ledger), [together])
    assert len(str(both[0].public_inputs[OTHER_SEEDS]).split()) == 3
    unit = release()
    assert (
        OTHER_SEEDS not in chosen_among((unit.record, unit.ledger), [(release().record, unit.ledger)])[0].public_inputs
    )


def test_a_mean_over_projections_of_one_constant_seed_is_no_guarantee_when_it_is_read() -> None:
    """As 0.2.0 wrote them: the seed was 0 unless another was set, so everybody knew the projection before."""
    old = json.loads((Path(__file__).parent / "records_of_0.2.0.json").read_text())
    assert old["paper"]["record"]["guarantee"] == "proved"
    read = PrivacyRecord.from_dict(old["paper"]["record"])
    assert (read.guarantee, read.epsilon, read.mu) == (Guarantee.NONE, None, None)
    assert read.reason is not None
    assert read.reason.startswith("the seed of the projection was fixed")
    for name in ("jlt", "longest", "sjlt"):
        assert PrivacyRecord.from_dict(old[name]["record"]).claims, "these hold for every projection"
    now = release(calibration="paper").record
    assert PrivacyRecord.from_dict(now.to_dict()) == now
