"""Budget files that were damaged, or written anew with odd values and digests that fit: read, or refused in words."""

import hashlib
import json
from pathlib import Path

import pytest
from hypothesis import given

from tests.fuzz.damage import CHANGES, ENDS, HITS, ODD, Change, Hit, cases, changed, damaged, refusal_of
from tests.zoo.privacy.spending.accounts import account
from zoo.commands.privacy.as_json import budget_values, written
from zoo.commands.privacy.show import as_text
from zoo.commands.privacy.total import budget_parts
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.spending.budget import Budget, BudgetError, Cap


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A budget from which two releases were paid."""
    path = tmp_path_factory.mktemp("budgets") / "book.jsonl"
    budget = Budget.create(path, Cap(9.0, 1e-5, Relation.CHANGE_ONE_RATING))
    for name, data in (("a", "1" * 64), ("b", "2" * 64)):
        budget.note_release(budget.spend(account(name, multiplier=3.0, conditions=("the moon is round",)), data), data)
    return path.read_bytes()


def shown_or_refused(path: Path, content: bytes) -> None:
    """A page and its JSON in which a terminal obeys nothing, or a refusal that names the file."""
    path.write_bytes(content)
    try:
        budget = Budget(path)
    except BudgetError as refused:
        refusal_of(refused, path.name)
        return
    page = as_text(budget_parts(budget))
    assert all(line.isprintable() for line in page.split("\n")), page
    json.loads(written("budget", budget_values(budget)))


def with_digests_that_fit(lines: list[object]) -> bytes:
    """The lines as somebody writes them who knows how each names the one before."""
    content, last = b"", ""
    for line in lines:
        if isinstance(line, dict) and "previous" in line:
            line = line | {"previous": last}
        text = json.dumps(line).encode()
        content, last = content + text + b"\n", hashlib.sha256(text).hexdigest()
    return content


def with_changes(whole: bytes, path: Path, changes: list[Change]) -> None:
    lines: list[object] = [json.loads(line) for line in whole.splitlines()]
    for shares, odd in changes:
        at = int(shares[0] * len(lines))
        lines[at] = changed(lines[at], shares[1:], ODD[odd])
    shown_or_refused(path, with_digests_that_fit(lines))


def test_one_that_is_written_anew_as_it_was_is_read(whole: bytes, tmp_path: Path) -> None:
    assert with_digests_that_fit([json.loads(line) for line in whole.splitlines()]) == whole
    shown_or_refused(tmp_path / "x.jsonl", whole)


@pytest.mark.parametrize(
    ("at", "name", "value"),
    [
        (1, "domain", "bo\x1b[31mok"),
        (1, "domain", ""),
        (1, "domain", "b" * 257),
        (1, "date", "2026\n"),
        (1, "data", "1" * 63),
        (1, "num_users", -1),
        (1, "num_users", True),
        (2, "release", "G" * 64),
        (2, "of", "1"),
        (0, "epsilon", 10**400),
    ],
)
def test_what_no_publisher_writes_is_refused_by_line(
    whole: bytes, tmp_path: Path, at: int, name: str, value: object
) -> None:
    lines = [json.loads(line) for line in whole.splitlines()]
    lines[at][name] = value
    (tmp_path / "x.jsonl").write_bytes(with_digests_that_fit(lines))
    with pytest.raises(BudgetError, match=f"Line {at + 1} of .*x.jsonl was altered") as refused:
        Budget(tmp_path / "x.jsonl")
    refusal_of(refused.value, "x.jsonl")


@cases(60, 2_000)
@given(changes=CHANGES)
def test_a_budget_of_odd_values_is_refused_in_words(whole: bytes, tmp_path: Path, changes: list[Change]) -> None:
    with_changes(whole, tmp_path / "x.jsonl", changes)


@cases(40, 1_000)
@given(hits=HITS, at_the_end=ENDS)
def test_a_damaged_budget_is(whole: bytes, tmp_path: Path, hits: list[Hit], at_the_end: bool) -> None:
    shown_or_refused(tmp_path / "x.jsonl", damaged(whole, hits, at_the_end))
