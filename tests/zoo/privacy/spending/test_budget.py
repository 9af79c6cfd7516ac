"""The budget of a source party: what it remembers, what it refuses, and what a crash leaves of it."""

import hashlib
import json
import math
import os
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from scipy.special import expit

from tests.kills import begun, ended, killed_at, moments
from tests.zoo.privacy.spending.accounts import RATING, USER, account
from zoo.privacy.accounting.accountant import adaptive_epsilon, epsilon_of
from zoo.privacy.accounting.events import GaussianProjectionEvent, RandomisedResponseEvent
from zoo.privacy.accounting.gaussian import gauss_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.mechanisms.noisy_rows import NoisyRows
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.spending import budget as budgets
from zoo.privacy.spending.budget import Budget, BudgetError, BudgetExceededError, Cap
from zoo.privacy.spending.total import DISTINCT, Account

DATA = "d" * 64
ONE = gauss_epsilon(1e-5, 0.5)
"""Epsilon of one such release, and of two and of three together."""
TWO, THREE = gauss_epsilon(1e-5, 0.5 * 2**0.5), gauss_epsilon(1e-5, 0.5 * 3**0.5)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Budget.create(tmp_path / "spent.jsonl", Cap(TWO, 1e-5, RATING)).path


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def test_what_was_spent_is_remembered_and_what_exceeds_the_cap_is_refused(file: Path) -> None:
    """The cap is for two releases exactly; each has the epsilon of the cap's first half."""
    first = Budget(file).spend(account("a"), DATA)
    Budget(file).note_release(first, "f" * 64)
    budget = Budget(file)
    assert budget.spend(account("b"), DATA) == 3
    assert Budget(file).epsilon_by_domain() == {"": pytest.approx(TWO, rel=1e-12)}
    before = file.read_bytes()
    told = r"Epsilon of all domains could rise from 2\.95 to 3\.71. The cap is 2\.94323"
    with pytest.raises(BudgetExceededError, match=told):
        Budget(file).spend(account("c"), DATA)
    with pytest.raises(BudgetExceededError):
        Budget(file).spend(account("c", 1000.0), DATA)
    assert file.read_bytes() == before, "what is refused costs nothing"
    spent = Budget(file).entries
    assert [(entry.number, entry.release, entry.data) for entry in spent] == [(1, "f" * 64, DATA), (3, None, DATA)]
    assert spent[0].account.record == PrivacyRecord.from_dict(account("a").record.to_dict())
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("schema", [1, 2])
def test_another_version_of_the_ratings_resets_nothing_and_a_distinct_domain_has_its_own(
    tmp_path: Path, schema: int
) -> None:
    """Budgets of schema 1 were made when every domain had its own cap, and keep it."""
    file = Budget.create(tmp_path / "spent.jsonl", Cap(TWO, 1e-5, RATING, distinct_ratings=True)).path
    if schema == 1:
        first = json.loads(file.read_text())
        del first["distinct_ratings"]
        file.write_text(json.dumps(first | {"schema": 1}) + "\n")
    assert Budget(file).conditions() == [DISTINCT]
    Budget(file).spend(account("a"), DATA)
    Budget(file).spend(account("b"), "e" * 64)
    with pytest.raises(BudgetExceededError):
        Budget(file).total_after(account("c"), "a" * 64)
    assert Budget(file).total_after(account("c", domain="music"), "b" * 64).epsilon == pytest.approx(ONE)
    with pytest.raises(BudgetError, match=r"domain is 'music'. Line 2 of .*as 'book'"):
        Budget(file).total_after(account("c", domain="music"), DATA)
    with pytest.raises(BudgetExceededError, match="Epsilon of 'book' could rise"):
        Budget(file).spend(account("c"), DATA)


def test_a_name_in_another_case_is_the_same_domain(tmp_path: Path) -> None:
    file = Budget.create(tmp_path / "spent.jsonl", Cap(TWO, 1e-5, RATING, distinct_ratings=True)).path
    Budget(file).spend(account("a"), DATA)
    Budget(file).spend(account("b", domain="Book "), DATA)
    assert Budget(file).epsilon_by_domain() == {"book": pytest.approx(TWO, rel=1e-12)}
    with pytest.raises(BudgetExceededError):
        Budget(file).total_after(account("c", domain="BOOK"), "e" * 64)


@pytest.mark.parametrize("relation", [RATING, USER])
def test_all_domains_have_one_cap(tmp_path: Path, relation: Relation) -> None:
    """Of ratings too: one (user, item) pair may be in two domains. A user may be in all, whatever is stated."""
    file = Budget.create(tmp_path / "all.jsonl", Cap(TWO, 1e-5, relation)).path
    Budget(file).spend(account("a", relation=relation), DATA)
    Budget(file).spend(account("b", relation=relation, domain="music"), "e" * 64)
    assert Budget(file).epsilon_by_domain() == {"": pytest.approx(TWO, rel=1e-12)}
    assert DISTINCT not in Budget(file).conditions()
    with pytest.raises(BudgetExceededError, match="Epsilon of all domains could rise from"):
        Budget(file).spend(account("c", relation=relation, domain="films"), "f" * 64)
    with pytest.raises(BudgetError, match="Distinct ratings need one that protects ratings"):
        Cap(TWO, 1e-5, USER, distinct_ratings=True)


def test_releases_of_pure_epsilon_reach_their_cap_exactly(tmp_path: Path) -> None:
    epsilon = math.log(3)
    file = Budget.create(tmp_path / "flips.jsonl", Cap(3 * epsilon, 0.0, RATING)).path
    for _ in range(3):
        Budget(file).spend(account("a", flips=0.25, delta=0.0), DATA)
    with pytest.raises(BudgetExceededError):
        Budget(file).spend(account("a", flips=0.25, delta=0.0), DATA)
    with pytest.raises(BudgetError, match=r"does not cover the release.*the joint epsilon is infinite at delta 0"):
        Budget(file).total_after(account("a"), DATA)


def flip(epsilon: float) -> RandomisedResponseEvent:
    return RandomisedResponseEvent(1 / (1 + math.exp(epsilon)))


def losses(epsilon: float, count: int) -> list[tuple[float, float]]:
    """Of each number of wrong reports, the privacy loss and its probability."""
    wrong = 1 / (1 + math.exp(epsilon))
    chances = (math.comb(count, k) * wrong**k * (1 - wrong) ** (count - k) for k in range(count + 1))
    return [((count - 2 * k) * epsilon, chance) for k, chance in enumerate(chances)]


@pytest.mark.thorough
def test_a_target_that_chooses_by_what_it_saw_stays_within_the_cap(tmp_path: Path) -> None:
    """After ten flips it takes the best of these for each report; each path costs 8 at 1e-5 if it was fixed beforehand."""

    def delta(plans: list[tuple[float, int]]) -> float:
        rests = [losses(*plan) for plan in plans]
        after = (
            (p, [sum(q * -math.expm1(min(0.0, 8 - one - two)) for two, q in rest) for rest in rests])
            for one, p in first
        )
        return sum(p * max(each) for p, each in after)

    first, plans = losses(0.12, 10), [(6.8043, 1), (0.8624, 8), (0.5577, 13), (0.47097, 16), (0.12, 147), (0.1, 200)]
    ledgers = {one: [(flip(0.12),)] * 10 + [(flip(one),)] * most for one, most in plans}
    granted = [max(k for k in range(n + 1) if adaptive_epsilon(ledgers[one][: 10 + k], 1e-5) <= 8) for one, n in plans]
    assert delta(plans[:4]) > 2e-5
    assert 0 < delta([(one, count) for (one, _), count in zip(plans, granted, strict=True)]) <= 1e-5
    assert granted[:4] == [0, 7, 12, 14]
    assert min(granted[4:]) > 68, "of small ones more than the sum allows"
    small, large = (account("a", flips=flip(one).flip_probability) for one in (0.12, 6.8043))
    for asked in (None, "r"):
        file = Budget.create(tmp_path / f"{asked}.jsonl", Cap(8.0, 1e-5, RATING)).path
        for number in range(10):
            Budget(file).spend(small, DATA, asked and f"r{number}")
        for late in (None, "late"):
            with nullcontext() if asked is late is None else pytest.raises(BudgetExceededError):
                Budget(file).total_after(large, DATA, late)


@pytest.mark.parametrize(
    ("earlier", "cap", "asked", "said"),
    [
        (None, 5.7, None, r"Publish with a smaller epsilon\.$"),
        (None, 5.8, "late", r"Publish with a smaller epsilon\.$"),
        (None, 5.7, "late", r"count as 5\.78\. Publish with flips or Laplace noise or no --request\.$"),
        ("first", 5.7, "late", r"count as 5\.78\. Publish with flips or Laplace noise\.$"),
        ("first", 1.0, "late", r"No epsilon of this mechanism fits: beside it, earlier releases count as 5\.78\.$"),
    ],
)
def test_a_release_too_many_is_told_what_fits(
    tmp_path: Path, earlier: str | None, cap: float, asked: str | None, said: str
) -> None:
    """On requests a flip of epsilon 1 counts as 5.78 beside Gaussian noise, however weak."""
    budget = Budget.create(tmp_path / "b.jsonl", Cap(cap, 1e-5, RATING))
    budget.spend(account("a", flips=float(expit(-1.0))), DATA, earlier)
    with pytest.raises(BudgetExceededError, match=said):
        budget.total_after(account("b", 0.1), DATA, asked)


@pytest.mark.parametrize(("used", "cap"), [(account("a"), ONE), (account("a", flips=float(expit(-8.0))), 8.0)])
@pytest.mark.parametrize("late", [account("b", 1e3), account("b", flips=0.49)])
@pytest.mark.parametrize("asked", [None, "late"])
def test_nothing_is_said_to_fit_a_budget_that_is_used_up(
    tmp_path: Path, used: Account, cap: float, late: Account, asked: str | None
) -> None:
    budget = Budget.create(tmp_path / "b.jsonl", Cap(cap, 1e-5, RATING))
    budget.spend(used, DATA)
    with pytest.raises(BudgetExceededError, match=r"No epsilon of this mechanism fits: beside it, .*\d\.$"):
        budget.total_after(late, DATA, asked)


def test_an_equal_release_too_many_has_no_smaller_one_beside_it(file: Path) -> None:
    event = GaussianProjectionEvent(20.0, 16)
    equal = account("p", event=event)
    last = next(number for number in range(1, 99) if epsilon_of([event] * number, 1e-5) > TWO)
    for number in range(1, last):
        Budget(file).spend(equal, DATA, f"r{number}")
    with pytest.raises(BudgetExceededError, match=r"earlier releases have no bound unless all are equal\.$"):
        Budget(file).spend(equal, DATA, "last")


def test_what_a_request_may_vary_is_gaussian_or_pure(file: Path) -> None:
    for number, mu in enumerate((0.5, 0.3, 0.4)):  # squares add up to those of the cap
        Budget(file).spend(account("a", 1 / mu), DATA, f"r{number}")
    with pytest.raises(BudgetExceededError):
        Budget(file).spend(account("a", 1000.0), DATA)
    other = replace(account("p", 1000.0), ledger=(GaussianProjectionEvent(1000.0, 16),))
    with pytest.raises(BudgetError, match="on requests only Gaussian noise, flips and Laplace noise may vary"):
        Budget(file).total_after(other, DATA, "p")
    for equal, delta in ((GaussianProjectionEvent(20.0, 16), 1e-5), (flip(0.12), 5e-6)):
        assert adaptive_epsilon([(equal,)] * 90, 1e-5) == epsilon_of([equal] * 90, delta) < math.inf


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (account("a", seed=3), r"has no guarantee \(seeded noise\)\. Publish without"),
        (account("a", relation=USER), "release is 'zero_out_one_user'.*is for 'change_one_rating'"),
        (account("a", num_users=200_000), "delta 1e-05 is not below one over the 200,000 users"),
    ],
)
def test_what_no_budget_can_pay_is_refused(file: Path, given: Account, message: str) -> None:
    before = file.read_bytes()
    with pytest.raises(BudgetError, match=message):
        Budget(file).spend(given, DATA)
    assert file.read_bytes() == before


def test_a_projection_that_was_known_before_cannot_be_paid(tmp_path: Path) -> None:
    file = Budget.create(tmp_path / "spent.jsonl", Cap(50.0, 1e-5, RATING)).path
    projected = account("a", projection_seed=5, calibration="gaussian")
    Budget(file).spend(projected, DATA)
    with pytest.raises(BudgetError, match="share the projection with seed 5"):
        Budget(file).spend(projected, DATA)


@pytest.mark.parametrize("values", [(0.0, 1e-5), (float("inf"), 1e-5), (float("nan"), 0.1), (1.0, 1.0), (1.0, -0.1)])
def test_a_cap_is_a_number(tmp_path: Path, values: tuple[float, float]) -> None:
    with pytest.raises(BudgetError, match="Allowed: finite epsilon > 0, delta in"):
        Budget.create(tmp_path / "spent.jsonl", Cap(*values, RATING))


def test_a_budget_is_never_overwritten_and_has_to_be_there(file: Path) -> None:
    with pytest.raises(BudgetError, match=r"exists. Choose another file"):
        Budget.create(file, Cap(9.0, 1e-5, RATING))
    with pytest.raises(BudgetError, match=r"absent is no budget file. Create one: python -m zoo privacy budget"):
        Budget(file.parent / "absent")


def rewritten(line: str, **values: object) -> str:
    return json.dumps(json.loads(line) | values)


@pytest.mark.parametrize(
    ("tamper", "message"),
    [
        (lambda x: [rewritten(x[0], epsilon=99), *x[1:]], "Line 2 of .* does not continue the previous line"),
        (lambda x: [x[0], rewritten(x[1], domain="music"), *x[2:]], "Line 3 of .* does not continue"),
        (lambda x: [x[0], *x[2:]], "Line 2 of .* does not continue"),
        (lambda x: [x[0], x[2], x[1], x[3]], "Line 2 of .* does not continue"),
        (lambda x: [*x, x[-1]], "Line 5 of .* does not continue"),
        (lambda x: [*x[:3], "", x[3]], "Line 4 of .* it is no JSON"),
        (lambda x: [*x[:3], "[" * 9999, x[3]], "Line 4 of .* it is no JSON"),
        (lambda x: [x[0], rewritten(x[1], more=1), *x[2:]], "Line 2 of .* it must hold exactly"),
        (lambda x: [x[0], x[1], rewritten(x[2], of=7), x[3]], "Line 3 of .* KeyError: 7"),
        (lambda x: [x[0], rewritten(x[1], num_users=10**400)], "Line 2 of .* num_users is '10000"),
        (lambda x: [rewritten(x[0], relation="nobody")], "Line 1 of .* 'nobody' is not a valid Relation"),
        (lambda x: [rewritten(x[0], epsilon=-1)], "Line 1 of .* The cap is -1"),
        (lambda x: [rewritten(x[0], schema=3)], "has schema 3. This version reads 1 and 2"),
        (
            lambda x: [rewritten(x[0], distinct_ratings=None)],
            "Line 1 of .* distinct_ratings must be absent in schema 1",
        ),
        (lambda x: [rewritten(x[0], schema=1)], "Line 1 of .* distinct_ratings must be absent in schema 1"),
    ],
)
def test_what_was_altered_is_noticed(file: Path, tamper: Callable[[list[str]], list[str]], message: str) -> None:
    number = Budget(file).spend(account("a"), DATA)
    Budget(file).note_release(number, "f" * 64)
    Budget(file).spend(account("b"), DATA)
    file.write_text("\n".join(tamper(lines(file))) + "\n")
    with pytest.raises(BudgetError, match=message):
        Budget(file)


def test_each_line_carries_the_digest_of_the_one_before(file: Path) -> None:
    """In the form that docs/privacy.md gives, for who checks without this project."""
    Budget(file).spend(account("a"), DATA)
    Budget(file).spend(account("b"), DATA)
    written = lines(file)
    for before, line in pairwise(written):
        assert json.loads(line)["previous"] == hashlib.sha256(before.encode()).hexdigest()


# Crashes, and two at once. What is killed is a fork of this process, at a fixed point.


def dies_while_spending(file: Path, point: str, share: int) -> bool:
    """Whether a process that spends is killed at a point, and returns nothing before."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def half(descriptor: int, content: bytes) -> None:
        os.write(descriptor, content[: len(content) * share // 100])
        os.fsync(descriptor)
        die()

    def work() -> None:
        if point == "before the disk has it":
            os.fsync = die  # type: ignore[assignment]
        else:
            budgets._write = half if point == "within the line" else die  # type: ignore[assignment]
        Budget(file).spend(account("a"), DATA)

    return ended(begun(file.parent, None, work))


@pytest.mark.parametrize(
    ("point", "share", "whole"),
    [
        ("before the line", 0, 1),
        ("within the line", 0, 1),
        ("within the line", 1, 1),
        ("within the line", 99, 1),
        ("within the line", 100, 2),  # all of it: whether its release came to be, nobody knows
        ("before the disk has it", 0, 2),
    ],
)
def test_a_crash_while_spending_leaves_a_budget_that_goes_on(file: Path, point: str, share: int, whole: int) -> None:
    assert dies_while_spending(file, point, share), "no release is written before the line is on the disk"
    assert len(Budget(file).entries) == whole - 1
    assert Budget(file).has_partial_line == (point == "within the line" and 0 < share < 100)
    while len(Budget(file).entries) < 2:
        Budget(file).spend(account("b"), DATA)
    assert not Budget(file).has_partial_line
    assert [json.loads(line).get("number") for line in lines(file)] == [None, 1, 2]
    with pytest.raises(BudgetExceededError):
        Budget(file).spend(account("c"), DATA)


@pytest.mark.parametrize("cut", [b"", b'{"schema": 1'])
def test_a_budget_without_its_first_line_is_damaged(file: Path, cut: bytes) -> None:
    file.write_bytes(cut)
    with pytest.raises(BudgetError, match="has no complete line: it was cut or emptied"):
        Budget(file)


def test_a_line_that_lost_nothing_but_its_end_was_spent(file: Path) -> None:
    """As an editor saves it: its release may be anywhere, so it counts, and the next line begins on a line of its own."""
    Budget(file).spend(account("a"), DATA)
    file.write_bytes(file.read_bytes().rstrip(b"\n"))
    budget = Budget(file)
    assert (len(budget.entries), budget.has_partial_line) == (1, False)
    budget.spend(account("b"), DATA)
    assert [json.loads(line).get("number") for line in lines(file)] == [None, 1, 2]
    with pytest.raises(BudgetExceededError):
        Budget(file).spend(account("c"), DATA)


def test_a_budget_of_two_names_is_refused(file: Path, tmp_path: Path) -> None:
    """The lock is by name, so two publishers would each take their own."""
    os.link(file, tmp_path / "other.jsonl")
    for name in (file, tmp_path / "other.jsonl"):
        with pytest.raises(BudgetError, match=r"has 2 hard links.*Remove all but one"):
            Budget(name)


@pytest.mark.thorough
def test_wherever_the_making_of_a_budget_is_broken_off_it_can_be_made(tmp_path: Path) -> None:
    cap = Cap(TWO, 1e-5, RATING)
    for moment in moments(tmp_path, lambda: Budget.create(tmp_path / "counted.jsonl", cap), most=100):
        path = tmp_path / str(moment) / "spent.jsonl"
        path.parent.mkdir()
        assert killed_at(path.parent, moment, lambda path=path: Budget.create(path, cap))  # type: ignore[misc]
        assert (Budget(path) if path.exists() else Budget.create(path, cap)).cap == cap
        assert path.stat().st_mode & 0o777 == 0o600
        assert {file.name for file in path.parent.iterdir()} == {"spent.jsonl", "spent.jsonl.lock"}


def test_of_two_publishers_at_once_one_is_paid(tmp_path: Path) -> None:
    """Four processes, and a cap for two of them."""
    file = Budget.create(tmp_path / "spent.jsonl", Cap(TWO, 1e-5, RATING)).path
    go = tmp_path / "go"

    def work(said: Path) -> None:
        while not go.exists():
            time.sleep(0.001)
        with suppress(BudgetExceededError):
            said.write_text(str(Budget(file).spend(account("a"), DATA)))

    said = [tmp_path / f"{number}.txt" for number in range(4)]
    running = [begun(tmp_path, None, partial(work, path)) for path in said]
    go.touch()
    assert [ended(process) for process in running] == [False] * 4
    assert sorted(path.read_text() for path in said if path.exists()) == ["1", "2"]
    assert len(Budget(file).entries) == 2


def test_who_waits_too_long_is_told(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from filelock import FileLock

    monkeypatch.setattr("zoo.privacy.spending.budget.PATIENCE", 0.05)
    with FileLock(f"{file}.lock"), pytest.raises(BudgetError, match=r"is locked by another process for 0.05"):
        Budget(file).spend(account("a"), DATA)
    assert Budget(file).spend(account("a"), DATA) == 1


def test_a_budget_that_was_read_earlier_is_read_again(file: Path) -> None:
    early = Budget(file)
    for _ in range(2):
        Budget(file).spend(account("a"), DATA)
    with pytest.raises(BudgetExceededError):
        early.spend(account("a"), DATA)


def test_another_name_of_the_file_is_the_same_budget(file: Path, tmp_path: Path) -> None:
    os.symlink(file, tmp_path / "other.jsonl")
    Budget(tmp_path / "other.jsonl").spend(account("a"), DATA)
    assert len(Budget(file).entries) == 1
    assert Budget(tmp_path / "other.jsonl").path == file.resolve()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_names_are_those_of_the_new_ones(file: Path) -> None:
    budget = Budget(file)
    assert (budget.spent, budget.torn) == (budget.entries, budget.has_partial_line)
    assert budget.spent_by_domain() == budget.epsilon_by_domain()
    with pytest.deprecated_call(match="total_after"):
        assert budget.after(account("c"), DATA).epsilon == budget.total_after(account("c"), DATA).epsilon


def test_a_mechanism_may_have_old_names() -> None:
    with pytest.deprecated_call(match="output_name"):
        kind = type("Old", (NoisyRows,), {"made": "noise"})
    assert kind.output_name == "noise"
