"""Leases that were damaged, or that somebody wrote odd values into: a note of the types it says, or none."""

import json
from dataclasses import asdict

import pytest
from hypothesis import given

from tests.fuzz.damage import CHANGES, ENDS, HITS, ODD, Change, Hit, cases, changed, damaged
from zoo.benchmark.lease import Note, State

NOTE = Note(State.HELD, "c" * 64, "here", "0123abcd", (12, 34), "2026-11-23T00:00:00+00:00", 7)
WHOLE = json.dumps(asdict(NOTE)).encode().ljust(1024)


def read(content: bytes) -> None:
    """A note that can be asked everything, or None."""
    note = Note.read(content)
    if note is None:
        return
    assert isinstance(note.is_over, bool)
    assert isinstance(note.state, State)
    assert {type(text) for text in (note.cell, note.host, note.machine, note.taken)} == {str}
    assert {type(number) for number in (*note.processes, note.beat)} == {int}


def with_changes(changes: list[Change]) -> None:
    values: object = json.loads(WHOLE)
    for shares, odd in changes:
        values = changed(values, shares, ODD[odd])
    read(json.dumps(values).encode())


def test_the_whole_one_is_read() -> None:
    assert Note.read(WHOLE) == NOTE


@pytest.mark.parametrize("content", [b"[" * 100_000, b"", b"{}", b"null", b'{"state": "held"}', b"\xff", b"1" * 5000])
def test_what_is_no_note_is_none(content: bytes) -> None:
    assert Note.read(content) is None


@cases(60)
@given(changes=CHANGES)
def test_a_note_of_odd_values_is_one_or_none(changes: list[Change]) -> None:
    with_changes(changes)


@cases(40)
@given(hits=HITS, at_the_end=ENDS)
def test_a_damaged_note_is(hits: list[Hit], at_the_end: bool) -> None:
    read(damaged(WHOLE.strip(), hits, at_the_end))


@pytest.mark.slow
@cases(2_000)
@given(changes=CHANGES)
def test_many_notes_of_odd_values_are(changes: list[Change]) -> None:
    with_changes(changes)


@pytest.mark.slow
@cases(1_000)
@given(hits=HITS, at_the_end=ENDS)
def test_many_damaged_notes_are(hits: list[Hit], at_the_end: bool) -> None:
    read(damaged(WHOLE.strip(), hits, at_the_end))
