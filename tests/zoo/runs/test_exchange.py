"""Releases over a carrier: what the target gets, and what faults and deviating parties cannot do."""

import errno
import io
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
from filelock import FileLock

from datamodules import Synthetic
from tests.kills import killed_at, moments
from zoo import JLT, Release
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.spending.budget import Budget, Cap
from zoo.release.files import ReleaseError
from zoo.release.packing import Offer, PackedRelease, Transfer
from zoo.release.signature import TrustedKeys
from zoo.runs.exchange import Code, SourceParty, TargetParty, decode, encode

NAMES = ("book", "film", "game")
Party = Callable[[str], SourceParty]


@pytest.fixture
def party(tmp_path: Path) -> Party:
    def made(name: str) -> SourceParty:
        """A source that was (re)started: its files are all that it has."""
        budget = tmp_path / f"{name}.jsonl"
        if not budget.exists():
            Budget.create(budget, Cap(3.0, 1e-5, Relation.CHANGE_ONE_RATING))
        data = Synthetic(sources=NAMES, num_users=60, num_items=40)
        return SourceParty(JLT(epsilon=2.0, num_components=8), data, name, budget, tmp_path / "outbox" / name)

    return made


def delivering(parties: Mapping[str, SourceParty]) -> Callable[[Mapping[str, bytes]], dict[str, bytes]]:
    return lambda messages: {name: parties[name].handle(message) for name, message in messages.items()}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_folders_arrive_unchanged_over_a_carrier_that_loses_repeats_and_delays(party: Party, tmp_path: Path) -> None:
    parties, late, turn = {name: party(name) for name in NAMES}, dict[str, bytes](), 0

    def unreliable(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        nonlocal turn, late
        turn += 1
        if turn % 5 == 0:
            parties.update({name: party(name) for name in NAMES})  # restarted
        replies = delivering(parties)(messages)
        chosen, late = (late if turn % 4 == 3 else replies), replies
        return {} if turn % 4 == 1 else chosen

    found = TargetParty(tmp_path / "in", NAMES, "r1", part=500).collect(unreliable)
    assert str(found) == "Asked 3, answered 3, released 3."
    for name in NAMES:
        assert contents(found.releases[name]) == contents(tmp_path / "outbox" / name / "r1")
        assert [entry.request for entry in Budget(tmp_path / f"{name}.jsonl").entries] == ["r1"]
    again = TargetParty(tmp_path / "in", NAMES, "r1").collect(lambda _: pytest.fail("nothing is left to ask"))
    assert again.releases == found.releases
    keys = TrustedKeys(frozenset({"0" * 64}), tmp_path / "keys.pem")  # set after the releases arrived
    refused = TargetParty(tmp_path / "in", NAMES, "r1", trusted=keys).collect(lambda _: pytest.fail("nothing to ask"))
    assert not refused.releases
    assert str(refused).count("keys.pem requires it") == 3


def test_a_silent_source_is_named_and_the_others_go_on(party: Party, tmp_path: Path) -> None:
    parties, turns = {name: party(name) for name in NAMES}, []

    def cut(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        turns.append(messages)
        return {
            name: reply for name, reply in delivering(parties)(messages).items() if name != "film" or len(turns) < 3
        }

    found = TargetParty(tmp_path / "in", NAMES, "r1", part=500).collect(cut)
    assert {*found.releases} == {"book", "game"}
    assert str(found) == "Asked 3, answered 2, released 2.\nfilm: no_reply. The source did not reply in time."
    resumed = TargetParty(tmp_path / "in", NAMES, "r1").collect(delivering(parties))
    assert {*resumed.releases} == {*NAMES}


def test_a_target_cannot_get_more_than_the_source_grants(party: Party, tmp_path: Path) -> None:
    source = party("book")

    def asked(**fields: object) -> str:
        reply, data = decode(source.handle(encode({"op": "publish", "request": "r1", "domain": "book", **fields})))
        assert not data
        return str(reply["code"])

    with pytest.raises(ValueError, match=r"epsilon is 0\. It must be positive"):
        TargetParty(tmp_path / "in", NAMES, "r1", epsilon=0)
    assert asked(epsilon=100) == "above_policy"
    assert asked(epsilon=5e-324) == "bad_request", "publishers take no such epsilon"
    for wrong in ({"domain": "film"}, {"request": "../../etc"}, {"epsilon": "1"}, {"out": "/tmp"}, {"op": "eval"}):
        assert asked(**wrong) == "bad_request"
    for junk in (b"", b"\x80\n", b"[]\n", b"{" * 5000, encode({"op": "read", "request": "r9", "offset": 0, "size": 1})):
        assert decode(source.handle(junk)) == ({"code": "bad_request"}, b"")
    assert [asked(epsilon=1.0)] + [asked(request=f"again{number}") for number in range(20)] == (
        ["ok", "ok"] + ["budget_exceeded"] * 19
    )
    assert [round(entry.account.record.epsilon or 0, 2) for entry in Budget(source.budget).entries] == [1.0, 2.0]
    assert {folder.name for folder in source.outbox.iterdir()} == {"r1", "again0"}


def test_no_text_of_an_error_leaves_the_source(party: Party, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "ann rated item 7 with 5"
    for error, code in (
        (ValueError(secret), "failed"),
        (OSError(28, secret), "no_space"),
        (FileNotFoundError(secret), "no_data"),
    ):
        monkeypatch.setattr(Synthetic, "source", lambda *_, error=error: (_ for _ in ()).throw(error))
        reply = party("book").handle(encode({"op": "publish", "request": "r1", "domain": "book"}))
        assert decode(reply) == ({"code": code}, b"")


@pytest.mark.parametrize(("turns", "code"), [(2, Code.OK), (9, Code.BUSY)])
def test_a_source_that_still_publishes_is_asked_again(
    party: Party, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int, code: Code
) -> None:
    parties, left = {"book": party("book")}, [turns]

    def send(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        left[0] -= 1
        with FileLock(f"{parties['book'].budget}.requests.lock") if left[0] >= 0 else nullcontext():
            return delivering(parties)(messages)

    monkeypatch.setattr("zoo.privacy.spending.budget.PATIENCE", 0.01)
    assert TargetParty(tmp_path / "in", ["book"], "r1").collect(send).codes == {"book": code}


def test_a_record_that_no_reader_survives_stops_no_other_source(
    party: Party, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = {name: party(name) for name in ("book", "film")}
    parties["book"].handle(encode({"op": "publish", "request": "r1", "domain": "book"}))
    file = tmp_path / "outbox" / "book" / "r1" / "release.json"
    file.write_text(re.sub('"seed": [0-9]+', f'"seed": {10**400}', file.read_text()))
    offer = {"code": "ok", "sha256": (packed := Release.pack(file.parent)).sha256, "size": packed.size}
    monkeypatch.setattr(parties["book"], "_publish", lambda **_: encode(offer))
    found = TargetParty(tmp_path / "in", ["book", "film"], "r1").collect(delivering(parties))
    assert found.codes == {"film": Code.OK, "book": Code.REFUSED}
    monkeypatch.setattr(Release, "unpack", Mock(side_effect=OverflowError("\x1b[2J\a\ud800" + "A" * 10**6)))
    found = TargetParty(tmp_path / "new", ["book"], "r1").collect(delivering(parties))
    assert found.codes == {"book": Code.REFUSED}
    assert found.reasons["book"].isprintable()
    assert len(str(found).encode()) < 1000


def test_a_source_that_sends_a_byte_at_a_time_is_left_and_has_one_stream_on_disk(tmp_path: Path) -> None:
    turns = 0

    def send(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        nonlocal turns
        turns += 1
        assert turns < 20, "the target is held"
        fields, _ = decode(messages["book"])
        offer = {"sha256": f"{run:064x}", "size": 10**6} if fields["op"] == "publish" else {"offset": fields["offset"]}
        return {"book": encode({"code": "ok", **offer}, b"x")}

    for run in range(3):
        assert TargetParty(tmp_path, ["book"], "r1", part=500).collect(send).codes == {"book": Code.NO_REPLY}
        assert [file.name for file in tmp_path.rglob("*.part")] == [f"{run:064x}.part"]
        turns = 0


def test_a_source_that_is_slow_or_sends_more_than_asked_ends_its_own_transfer_alone(
    party: Party, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, now = party("book"), [0.0]

    def send(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        now[0] += 200
        replies = {name: book.handle(message) for name, message in messages.items() if name == "book"}
        for name in messages.keys() - {"book"}:
            fields, _ = decode(messages[name])
            offer = {"sha256": "1" * 64, "size": 10**7} if fields["op"] == "publish" else {"offset": fields["offset"]}
            replies[name] = encode({"code": "ok", **offer}, b"x" * {"slow": 10**5, "huge": 10**5 + 1}[name])
        return replies

    monkeypatch.setattr("zoo.runs.exchange.monotonic", lambda: now[0])
    found = TargetParty(tmp_path / "in", ["book", "slow", "huge"], "r1", part=10**5, seconds=900).collect(send)
    assert found.codes == {"book": Code.OK, "slow": Code.NO_REPLY, "huge": Code.REFUSED}
    assert found.reasons["slow"] == "not finished after 900 seconds; the same request resumes"
    assert "The reply has 100,001 bytes. Asked for: 100,000" in found.reasons["huge"]
    assert now[0] == 1000


@pytest.mark.thorough
@pytest.mark.processes
def test_wherever_a_target_dies_the_same_request_resumes(party: Party, tmp_path: Path) -> None:
    """At twenty moments: nothing half-read is used, and nothing is published or charged again."""
    source = party("book")
    source.handle(encode({"op": "publish", "request": "r1", "domain": "book"}))
    packed, sent = Release.pack(source.outbox / "r1"), list[int]()

    def send(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        """The source without its ratings, since forks have no threads of polars."""
        fields = decode(messages["book"])[0]
        if fields["op"] == "publish":
            return {"book": encode({"code": "ok", "sha256": packed.sha256, "size": packed.size})}
        sent.append(fields["offset"])
        return {
            "book": encode({"code": "ok", "offset": fields["offset"]}, packed.read(fields["offset"], fields["size"]))
        }

    def collected(place: Path) -> Path:
        return TargetParty(place, ["book"], "r1", part=3000).collect(send).releases["book"]

    for moment in moments(tmp_path, lambda: collected(tmp_path / "counted")):
        place = tmp_path / f"died-{moment}"
        place.mkdir()
        killed_at(place, moment, lambda place=place: collected(place))
        if (half := place / "r1" / "book").exists():
            assert contents(half) == contents(source.outbox / "r1")
        assert contents(collected(place)) == contents(source.outbox / "r1")
    assert len(sent) < 20 * -(-packed.size // 3000), "parts that arrived are not sent again"
    assert len(Budget(source.budget).entries) == 1


def test_a_full_disk_at_the_target_ends_the_run_which_resumes(
    party: Party, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties, calls, real = {"book": party("book")}, [0], os.fsync

    def full(descriptor: int) -> None:
        calls[0] += 1
        if calls[0] == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    parties["book"].handle(encode({"op": "publish", "request": "r1", "domain": "book"}))  # writes nothing later
    monkeypatch.setattr(os, "fsync", full)
    target = TargetParty(tmp_path / "in", ["book"], "r1", part=500)
    with pytest.raises(OSError, match=r"No space left on device: .*part"):
        target.collect(delivering(parties))
    assert target.collect(delivering(parties)).releases.keys() == {"book"}


@pytest.mark.parametrize("size", [0, 10**10, 10**30, "9", None])
def test_a_lying_offer_is_refused_and_the_others_go_on(party: Party, tmp_path: Path, size: object) -> None:
    honest = party("film")

    def hostile(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        lie = encode({"code": "ok", "sha256": "0" * 64, "size": size, "offset": 0}, b"x" * 10_000)
        return {name: lie if name == "book" else honest.handle(message) for name, message in messages.items()}

    found = TargetParty(tmp_path / "in", ["book", "film"], "r1", limit=10**6).collect(hostile)
    assert found.codes == {"film": Code.OK, "book": Code.REFUSED}


@pytest.mark.parametrize("code", ["no_reply", "refused"])
def test_a_source_cannot_say_what_only_a_target_finds(tmp_path: Path, code: str) -> None:
    found = TargetParty(tmp_path / "in", ["book"], "r1").collect(lambda _: {"book": encode({"code": code})})
    assert found.codes == {"book": Code.REFUSED}
    assert f"The source sent the code {code}, which only a target gives" in str(found)


def test_a_release_of_another_silo_or_with_false_files_is_refused(party: Party, tmp_path: Path) -> None:
    source = party("book")
    source.handle(encode({"op": "publish", "request": "r1", "domain": "book"}))
    folder = source.outbox / "r1"

    def sent() -> str:
        packed = PackedRelease(folder)

        def send(messages: Mapping[str, bytes]) -> dict[str, bytes]:
            fields = decode(messages["film"])[0]
            if fields["op"] == "publish":
                return {"film": encode({"code": "ok", "sha256": packed.sha256, "size": packed.size})}
            return {"film": encode({"code": "ok", "offset": fields["offset"]}, packed.read(fields["offset"], 10**6))}

        found = TargetParty(tmp_path / "in", ["film"], "r1").collect(send)
        assert not found.releases
        assert not (tmp_path / "in" / "r1" / "film").exists()
        assert not [*tmp_path.rglob("*.part")], "a refused stream is removed"
        return found.reasons["film"]

    assert "The release is of 'book', not of 'film'" in sent()
    manifest = json.loads((folder / "release.json").read_text())
    for change in ({"schema": 0}, {"record": {**manifest["record"], "parameters": {}}}, {"user_ids": ["ann"]}):
        (folder / "release.json").write_text(json.dumps({**manifest, **change}))
        assert "Error" in sent()
    (folder / "note.txt").symlink_to("/etc/passwd")
    with pytest.raises(ReleaseError, match="other files or links"):
        Release.pack(folder)


@pytest.mark.parametrize(
    "header",
    ['[["../x", 1]]', '[["/etc/x", 1]]', '[["release.json", -1]]', '[["release.json", 1.0]]', '[["release.json", 9e99]]',
     '[["release.json", 1], ["release.json", 1]]', '[["release.json", 99999999]]', '[["a", "b", "c"]]', "{}", "[" * 9999,
     '[["release.json", 3]]', "[]"],
)  # fmt: skip
def test_a_false_stream_writes_nothing(tmp_path: Path, header: str) -> None:
    with pytest.raises(ReleaseError):
        Release.unpack(io.BytesIO(b"cdr-zoo release 1 " + header.encode() + b"\nxx"), tmp_path / "a", limit=10**6)
    assert not list(tmp_path.iterdir())


def test_a_transfer_takes_no_gap_and_no_other_bytes(tmp_path: Path) -> None:
    transfer = Transfer(tmp_path, Offer("0" * 64, 4))
    transfer.add(0, b"ab")
    transfer.add(0, b"ab")
    for offset, data in ((3, b"d"), (2, b"cde"), (-1, b"x")):
        with pytest.raises(ReleaseError, match="Send those from there"):
            transfer.add(offset, data)
    transfer.add(1, b"bcd")
    with pytest.raises(ReleaseError, match="differs from its SHA-256"):
        transfer.check()
    assert transfer.received == 0
