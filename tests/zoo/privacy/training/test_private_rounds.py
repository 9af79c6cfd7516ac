"""Private rounds against a slow oracle: what one client can move, on what there is noise, and what is counted and refused."""

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from dp_accounting import NeighboringRelation, dp_event, pld
from scipy.stats import chi2
from torch import Tensor

from tests.zoo.privacy.training.critics import bare_plan
from zoo.data.ratings import Step
from zoo.privacy.accounting.events import PoissonSampledGaussianEvent, SelfComposedEvent
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import Guarantee, PrivacyRecord
from zoo.privacy.training.noisy_steps import BudgetSpentError
from zoo.privacy.training.private_rounds import PrivateRounds, clipped_updates
from zoo.privacy.training.round_privacy import RoundPrivacy

USERS, ROWS, DIM = 8, 6, 3
SHARED = {"turn": torch.zeros(2, 2), "bias": torch.zeros(1)}
TABLE = torch.zeros(ROWS, DIM)


class Some(NamedTuple):
    """Updates of clients, rising by client and row."""

    clients: Tensor
    rows: Tensor
    differences: Tensor
    shared: dict[str, Tensor]

    def without(self, client: int) -> "Some":
        """As if one had no data."""
        kept = self.clients != client
        shared = {name: part.clone() for name, part in self.shared.items()}
        for part in shared.values():
            part[client] = 0
        return Some(self.clients[kept], self.rows[kept], self.differences[kept], shared)


def some(seed: int = 0, size: float = 1.0) -> Some:
    generator = torch.Generator().manual_seed(seed)
    taken = (torch.rand(USERS, ROWS, generator=generator) < 0.6).nonzero()
    lengths = size * torch.rand(USERS, generator=generator)
    differences = torch.randn(len(taken), DIM, generator=generator) * lengths[taken[:, 0], None]
    shared = {
        n: torch.randn(USERS, *p.shape, generator=generator) * lengths.view(-1, *[1] * p.ndim)
        for n, p in SHARED.items()
    }
    return Some(taken[:, 0], taken[:, 1], differences, shared)


def flat(table: Tensor, shared: Mapping[str, Tensor]) -> list[float]:
    return [float(x) for part in (table, *(shared[name] for name in SHARED)) for x in part.flatten()]


def oracle(updates: Some, clip: float) -> list[float]:
    """Number by number: each client's whole update, scaled to the clip where it is longer; none that is not finite."""
    total = [0.0] * (ROWS * DIM + 5)
    for client in range(USERS):
        table = torch.zeros(ROWS, DIM)
        for owner, row, difference in zip(updates.clients, updates.rows, updates.differences, strict=True):
            if owner == client:
                table[row] = difference
        own = flat(table, {name: part[client] for name, part in updates.shared.items()})
        norm = math.sqrt(sum(x * x for x in own))
        if math.isfinite(norm):
            total = [t + x * min(1.0, clip / norm if norm else 1.0) for t, x in zip(total, own, strict=True)]
    return total


def rounds_of(noise_multiplier: float = 0.0, seed: int | None = None, **settings: Any) -> PrivateRounds:  # noqa: ANN401
    plan = bare_plan(noise_multiplier, **{"clip": 0.7, "steps": 5, "rate": 1.0} | settings)
    return PrivateRounds(plan, USERS, NoiseSource.of(seed))


@pytest.mark.parametrize("clip", [0.3, 2.0, 1e6])
def test_a_round_is_the_sum_of_clipped_updates_over_a_constant(clip: float) -> None:
    updates = some()
    mean = rounds_of(clip=clip)(TABLE, SHARED, lambda *_: updates)
    assert flat(*mean) == pytest.approx([x / USERS for x in oracle(updates, clip)], rel=1e-5, abs=1e-7)


def test_the_denominator_is_expected_and_never_counted() -> None:
    seen: list[int] = []

    def changes(users: Tensor, _: np.random.Generator) -> Some:
        assert (users[1:] > users[:-1]).all()
        seen.append(len(users))
        each = torch.arange(len(users))
        return Some(each, each * 0, torch.ones(len(users), DIM), {"bias": torch.ones(len(users), 1)})

    played = PrivateRounds(bare_plan(0.0, clip=1e9, steps=30, rate=0.25), USERS, NoiseSource.seeded(3))
    assert played.expected_clients == 2.0
    for _ in range(30):
        before = len(seen)
        table, shared = played(TABLE, SHARED, changes)
        came = seen[-1] if len(seen) > before else 0
        assert table[0].tolist() == [came / 2] * DIM
        assert shared["bias"].tolist() == [came / 2]
        assert not table[1:].any()
        assert not shared["turn"].any()
    assert len(set(seen)) > 3
    assert len(seen) < 30, "a round without anybody asks nobody"


HOSTILE = (1e30, -1e38, math.nan, math.inf, -math.inf)


def test_one_client_moves_the_sum_by_no_more_than_the_clip() -> None:
    """Brute force over clients, sizes and hostile numbers, in any part of the update."""
    clip, farthest = 0.7, 0.0
    for case in range(20):
        updates = some(case, size=10.0 ** (case % 5 - 2))
        client = case % USERS
        if case >= 10:
            bad = HOSTILE[case % 5]
            if case < 15:
                updates.differences[(updates.clients == client).nonzero()[0]] = bad
            else:
                updates.shared["turn"][client, 0, 1] = bad
        sums = [clipped_updates(u, USERS, ROWS, clip) for u in (updates, updates.without(client))]
        assert all(bool(part.isfinite().all()) for part in sums[0].values())
        moved = math.sqrt(sum(float((sums[0][name] - sums[1][name]).square().sum()) for name in sums[0]))
        assert moved <= clip * (1 + 1e-12)
        farthest = max(farthest, moved)
    assert farthest > 0.999 * clip


def test_who_sends_what_is_not_finite_counts_as_nobody() -> None:
    updates = some()
    updates.shared["bias"][3] = math.nan
    mean = rounds_of()(TABLE, SHARED, lambda *_: updates)
    assert flat(*mean) == pytest.approx([x / USERS for x in oracle(updates.without(3), 0.7)], rel=1e-5, abs=1e-7)


def test_noise_is_on_every_number_once_and_of_the_planned_size() -> None:
    """Also in rows that nobody changed, and with nobody there; chi-square at 1e-6 each."""
    wide, part = torch.zeros(300, 40), {"turn": torch.zeros(40, 40)}
    played = PrivateRounds(bare_plan(1.5, clip=0.4, steps=2, rate=0.5), USERS, NoiseSource.seeded(0))
    nothing = Some(torch.arange(0), torch.arange(0), torch.zeros(0, 40), {})
    draws = []
    for _ in range(2):
        table, shared = played(wide, part, lambda *_: nothing)
        draw = torch.cat([table.flatten(), shared["turn"].flatten()]).double() * 4 / (1.5 * 0.4)
        assert draw.count_nonzero() > 0.99 * len(draw)
        assert chi2.ppf(1e-6, len(draw)) < float(draw @ draw) < chi2.isf(1e-6, len(draw))
        draws.append(draw)
    assert abs(float(draws[0] @ draws[1])) < 5 * math.sqrt(len(draws[0])), "fresh noise in each round"


def test_clients_draw_from_secret_numbers_that_no_seed_repeats() -> None:
    drawn: list[float] = []
    for _ in range(2):
        torch.manual_seed(0)
        before = torch.get_rng_state()
        rounds_of(1.0)(TABLE, SHARED, lambda _, generator: drawn.append(generator.random()) or some())
        assert torch.equal(torch.get_rng_state(), before)
    assert drawn[0] != drawn[1]


def test_rounds_are_counted_through_resume_and_never_exceed_the_plan() -> None:
    played = rounds_of(1.0, steps=3)
    for left in (2, 1):
        played(TABLE, SHARED, lambda *_: some())
        assert played.steps_left == left
    state = json.loads(json.dumps(played.state_dict()))
    resumed = rounds_of(1.0, steps=3)
    resumed.load_state_dict(state)
    with pytest.raises(ValueError, match="num_users was 8 and is 9"):
        PrivateRounds(resumed.plan, 9, NoiseSource.os()).load_state_dict(state)
    with pytest.raises(ZeroDivisionError):
        resumed(TABLE, SHARED, lambda *_: 1 / 0)  # type: ignore[arg-type, return-value]
    assert resumed.steps_left == 0, "one that failed counts"
    with pytest.raises(BudgetSpentError, match="All 3 planned steps were taken"):
        resumed(TABLE, SHARED, lambda *_: some())
    with pytest.raises(ValueError, match=r"steps_taken must lie in \[3, 3\], got 2"):
        resumed.load_state_dict(state)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": torch.zeros(1, dtype=torch.int64)}, "one difference per row"),
        ({"differences": torch.zeros(2, DIM + 1)}, "one difference per row"),
        ({"shared": {"other": torch.zeros(USERS, 1)}}, r"of each shared part \['bias', 'turn'\]"),
        ({"shared": {"bias": torch.zeros(USERS - 1, 1)}}, r"of each shared part"),
        ({"rows": torch.tensor([4, 4])}, "rising by client and row"),
        ({"rows": torch.tensor([4, 2])}, "strictly rising by client and row"),
        ({"rows": torch.tensor([4, ROWS])}, "must exist in the table"),
        ({"clients": torch.tensor([1, USERS])}, "must exist in the table"),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(change: dict[str, Any], message: str) -> None:
    whole = Some(torch.tensor([1, 1]), torch.tensor([2, 4]), torch.zeros(2, DIM), {})
    with pytest.raises(ValueError, match=message):
        rounds_of()(TABLE, SHARED, lambda *_: whole._replace(**change))


# What is claimed.

PRIVACY = RoundPrivacy(
    epsilon=6.0, delta=1e-5, clip=0.5, num_rounds=40, rate=0.2, relation=Relation.ZERO_OUT_ONE_USER
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("relation", "other"),
    [
        (Relation.ZERO_OUT_ONE_USER, NeighboringRelation.ADD_OR_REMOVE_ONE),
        (Relation.REPLACE_ONE_USER, NeighboringRelation.REPLACE_ONE),
    ],
)
def test_epsilon_is_that_of_dp_accounting(relation: Relation, other: NeighboringRelation) -> None:
    plan = replace(PRIVACY, relation=relation).plan(1000)
    accountant = pld.PLDAccountant(other, value_discretization_interval=1e-3)
    step = dp_event.PoissonSampledDpEvent(0.2, dp_event.GaussianDpEvent(plan.noise_multiplier))
    accountant.compose(dp_event.SelfComposedDpEvent(step, 40))
    assert plan.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=0.01)
    assert 5.9 < plan.epsilon <= 6.0
    assert plan.event == SelfComposedEvent(PoissonSampledGaussianEvent(plan.noise_multiplier, 0.2), 40)
    assert plan.sensitivity == (0.5 if relation is Relation.ZERO_OUT_ONE_USER else 1.0)


def test_the_record_is_of_the_rounds_that_were_played() -> None:
    whole = PRIVACY.record(1000, 7)
    played = PRIVACY.rounds(1000)
    played._taken = 10
    part = PRIVACY.record(1000, 7, (Step("split", "users_from_ratings"),), played)
    assert (whole.compositions, part.compositions) == (40, 10)
    assert whole.epsilon is not None
    assert part.epsilon is not None
    assert part.epsilon < 0.7 * whole.epsilon
    assert (whole.guarantee, part.guarantee) == (Guarantee.PROVED, Guarantee.CONDITIONAL)
    said = str(part)
    for words in (
        "stop training does not depend on these ratings",
        "the server is trusted with",
        "each checkpoint is resumed at most once",
        "own vector",
        "sampled in a step stay secret",
        "earlier step: split",
    ):
        assert words in said
    assert "stop training" not in str(whole)
    PrivacyRecord.from_dict(json.loads(json.dumps(part.to_dict()))).check_against([played.plan.event_after(10)])


def test_noise_with_a_seed_claims_nothing_also_after_it() -> None:
    seeded = replace(PRIVACY, noise_seed=3).record(1000, 7)
    assert (seeded.guarantee, seeded.epsilon) == (Guarantee.NONE, None)
    played = PRIVACY.rounds(1000)
    played.load_state_dict(played.state_dict() | {"steps_taken": 2, "private": False})
    record = PRIVACY.record(1000, 7, rounds=played)
    assert (record.guarantee, record.reason) == (Guarantee.NONE, "some of its rounds had seeded noise")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epsilon": 0.0}, "epsilon is 0"),
        ({"clip": -1.0}, r"clip must be finite and positive, got -1\.0"),
        ({"num_rounds": 0}, "steps must be an integer >= 1, got 0"),
        ({"rate": 1.5}, r"rate must lie in \(0, 1\]"),
        ({"delta": 1.0}, "delta is"),
        ({"relation": Relation.CHANGE_ONE_RATING}, "Training protects whole users"),
    ],
)
def test_bad_settings_are_refused_before_data_are_opened(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(PRIVACY, **settings)


def test_delta_is_held_against_the_users() -> None:
    with pytest.raises(ValueError, match=r"delta is 0\.01. Allowed: below 1/1000"):
        replace(PRIVACY, delta=0.01).plan(1000)
    assert replace(PRIVACY, delta=None).plan(1000).delta == 1e-5


def test_half_precision_is_refused_before_anybody_is_asked() -> None:
    played = rounds_of()
    with pytest.raises(RuntimeError, match=r"Weights are torch.float16.*Train with precision 32-true"):
        played(TABLE.half(), SHARED, lambda *_: pytest.fail("asked"))
    with torch.autocast("cpu", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="Autocast is on"):
        played(TABLE, SHARED, lambda *_: pytest.fail("asked"))
    assert played.steps_taken == 0
