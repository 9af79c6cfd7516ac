"""Private set intersection over files: what both learn, what is refused, and what the record says."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from filelock import FileLock

from datamodules import Synthetic
from datamodules.public_lists import is_derived_list, is_intersection, read_users, write_users
from zoo import NoisyRows
from zoo.commands.psi import _false_positive, main

psi = pytest.importorskip("private_set_intersection", reason="not installed: the extra psi")

HERE, THERE = [f"u{number:04d}" for number in range(60)], [f"u{number:04d}" for number in range(40, 90)]


@pytest.fixture(autouse=True)
def _in_a_folder_of_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, ids in (("a", HERE), ("b", THERE)):
        listed(name, ids)


def listed(name: str, ids: Sequence[str]) -> None:
    Path(f"{name}.csv").write_text("user_id,rank\n" + "".join(f"{user},1\n" for user in ids))


def step(words: str, mode: str = "list") -> None:
    """A step in short: ``ask a >1``, ``serve b <1 >2``, and ``=list`` for a list to write."""
    command, name, *files = words.split()
    options = {"<": "--receive", ">": "--send", "=": "--out"}
    given = [part for file in files for part in (options[file[0]], file[1:])]
    main([command, f"{name}.csv", "--state", f"{command}.json", "--mode", mode, *given])


def refused(words: str, message: str, mode: str = "list") -> None:
    with pytest.raises(SystemExit, match=message):
        step(words, mode)


def test_both_get_the_same_marked_list() -> None:
    for words in ("ask a >1", "serve b <1 >2", "ask a <2 >3 =agreed_a.csv", "serve b <3 =agreed_b.csv"):
        step(words)
    assert read_users(Path("agreed_a.csv")) == sorted({*HERE} & {*THERE})
    assert Path("agreed_a.csv").read_bytes() == Path("agreed_b.csv").read_bytes()
    assert is_intersection("agreed_a.csv")
    assert not is_intersection("a.csv")
    assert not is_derived_list("agreed_a.csv")
    for message in "12":  # ids are in no message but the result
        assert b"u0045" not in Path(message).read_bytes()
    assert b"u0045" in Path("3").read_bytes()
    assert b"u0001" not in Path("3").read_bytes()


def test_long_lists_have_a_range_of_hashes_that_an_int64_holds() -> None:
    """The library's range is pairs / probability: at 1e-9 it overflows from 96,000 ids of both on."""
    for one, other in ((1000, 1000), (100_000, 100_000), (10**7, 10**6)):
        assert one * other / _false_positive(one, other) < 2**63
    assert _false_positive(50_000, 50_000) == 1e-9
    assert _false_positive(100_000, 100_000) == pytest.approx(2.168e-9, rel=1e-3)


def test_records_name_a_found_list_and_one_derived_from_ratings_and_a_request_waits() -> None:
    write_users(HERE, Path("a.csv"))
    step("ask a >1")
    other = Thread(target=step, args=("serve b <1 >2",))
    with FileLock("serve.json.lock"):
        other.start()
        other.join(0.5)
        assert other.is_alive()
        assert not Path("2").exists()
    other.join()
    for words in ("ask a <2 >3 =agreed_a.csv", "serve b <3 =agreed_b.csv"):
        step(words)
    for name, derived in (("agreed_a.csv", True), ("agreed_b.csv", False)):
        record = NoisyRows(2.0).publish(Synthetic(num_users=100, users=name).source("book"), "book").record
        assert ("users_in_common" in record.conditions) == derived == is_derived_list(name)
        said = record.sentences("conditions")
        assert any("no epsilon covers that" in text and "semi-honest" in text for text in said)


def test_only_the_size_is_learned(capsys: pytest.CaptureFixture[str]) -> None:
    """Of lists with one spelling: a sign is in about half of the ids of each, and two names of one list end in 007."""
    mails = [f"kim{'.' * (at % 2)}{chr(97 + at)}@mail" for at in range(26)]
    listed("a", mails[1:])
    listed("b", [*mails[:25], "max007@mail", "max007"])
    for words in ("ask a >1", "serve b <1 >2", "ask a <2 >3 =agreed.csv", "serve b <3 =agreed.csv"):
        step(words, "size")
    assert capsys.readouterr().out.count("24 users in common.") == 2
    assert not Path("agreed.csv").exists()
    assert b"kim" not in b"".join(Path(message).read_bytes() for message in "123")


def test_a_result_that_is_refused_uses_up_its_session() -> None:
    for mode, lie, message in (
        ("size", [0, ["u0030"]], "does not allow"),
        ("size", [51, []], "does not allow"),
        ("list", [1, ["u9"]], "names"),
        ("list", "[" * 100_000, "was altered"),
        ("list", [2, ["u0030", "u0030"]], "was altered"),
        ("list", [1, [["u0030"]]], "was altered"),
        ("size", [], "was altered"),
    ):
        for words in ("ask a >1", "serve b <1 >2", "ask a <2 >3"):
            step(words, mode)
        fields = json.loads(Path("3").read_bytes().partition(b"\n")[0])
        part = (lie if isinstance(lie, str) else json.dumps(lie)).encode()
        Path("lie").write_bytes(json.dumps({**fields, "parts": [len(part)]}).encode() + b"\n" + part)
        refused("serve b <lie", message, mode)
        refused("serve b <3", "answers no open reply", mode)  # so false results cannot test one id after another
        [Path(name).unlink() for name in "123"]


def test_messages_of_sessions_that_are_not_open_are_refused_and_not_noted() -> None:
    """Else a party without a request tests one id after another."""
    for words in ("ask b >own", "ask a >1", "serve b <1 >2", "ask a <2 >3", "serve b <3"):
        step(words)
    both = {**json.loads(Path("ask.json").read_text()), **json.loads(Path("serve.json").read_text())}
    for state in ("ask.json", "serve.json"):  # one file for both roles
        Path(state).write_text(json.dumps(both))
    refused("ask b <2 >4", "answers no open request")
    fields, body = json.loads(Path("3").read_bytes().partition(b"\n")[0]), b'[1, ["u0045"]]'
    for session, answers in ((session, answers) for session in ("unknown", *both) for answers in (None, "", "0" * 64)):
        lie = {**fields, "session": session, "answers": answers, "parts": [len(body)]}
        Path("lie").write_bytes(json.dumps(lie).encode() + b"\n" + body)
        refused("serve b <lie", "answers no open reply|is no message")
    assert json.loads(Path("serve.json").read_text()) == both


def test_replayed_and_foreign_messages_are_refused() -> None:
    step("ask a >1")
    refused("serve b <1 >2", "is a 'request' of mode 'list'. Expected: 'request' of mode 'size'", "size")
    step("serve b <1 >2")
    refused("serve b <1 >again", "was answered before")
    Path("serve.json").rename("used.json")
    step("serve b <1 >other")  # by a party without memory: the same request under another key
    Path("used.json").replace("serve.json")
    step("ask a <2 >3")
    refused("ask a <2 >4", "answers no open request")
    refused("ask a <other >4", "answers no open request")
    step("serve b <3 =agreed.csv")
    refused("serve b <3 =more.csv", "answers no open reply")
    refused("serve b <3 =agreed.csv", "agreed.csv exists")
    step("ask a >a1")
    other = Thread(target=refused, args=("serve b <a1 >a2", "a2 exists"))
    with FileLock("serve.json.lock"):  # of a step that writes the same file
        other.start()
        other.join(0.5)
        Path("a2").write_text("first")
    other.join()
    assert Path("a2").read_text() == "first"
    Path("ask.json").unlink()
    step("ask a >5")
    step("serve b <5 >6")
    listed("a", HERE[1:])
    refused("ask a <6 >7", "was changed after the request")


def test_wrong_and_altered_files_are_refused() -> None:
    step("ask a >1")
    for wrong in ("a.csv", "ask.json", "absent"):
        refused(f"serve b <{wrong} >2", "is no message|is no file")
    whole = Path("1").read_bytes()
    header, _, content = whole.partition(b"\n")
    fields = json.loads(header)
    for bad in (
        whole[:-1], whole + b"x", header, header + b"\n" + content[::-1],
        json.dumps({**fields, "count": 59}).encode() + b"\n" + content,
        json.dumps({**fields, "parts": [1, -1]}).encode() + b"\n" + content,
        json.dumps({**fields, "spelling": ["-"]}).encode() + b"\n" + content,
    ):  # fmt: skip
        Path("bad").write_bytes(bad)
        refused("serve b <bad >2", "cut off|altered|no message|another number|are spelled")
    Path("bad").write_bytes(json.dumps({**fields, "spelling": "-\nforged"}).encode() + b"\n" + content)
    refused("serve b <bad >2", r"are spelled '-\\nforged' there")
    assert not Path("2").exists()
    for words in ("serve b <1 >2", "ask a <2 >3"):
        step(words)
    fields = json.loads(Path("3").read_bytes().partition(b"\n")[0])
    lie = json.dumps([1, ["u0001"]]).encode()  # a user whom the other party does not have
    Path("lie").write_bytes(json.dumps({**fields, "parts": [len(lie)]}).encode() + b"\n" + lie)
    refused("serve b <lie =agreed.csv", "names users who are not in b.csv")


def opened_reply() -> tuple[dict[str, Any], Any, Any]:
    """The fields and both parts of the reply in the file 2."""
    header, _, content = Path("2").read_bytes().partition(b"\n")
    fields, setup, response = json.loads(header), psi.python.ServerSetup(), psi.python.Response()
    setup.ParseFromString(content[: fields["parts"][0]])
    response.ParseFromString(content[fields["parts"][0] :])
    return fields, setup, response


def with_reply(fields: dict[str, Any], *parts: Any) -> None:  # noqa: ANN401  messages of the library
    made = [part.SerializeToString() for part in parts]
    Path("bad").write_bytes(json.dumps({**fields, "parts": [*map(len, made)]}).encode() + b"\n" + b"".join(made))


def test_what_parties_that_deviate_learn() -> None:
    """The asking party lists a suspected user; a server that shuffles its reply gets users that it does not have."""
    listed("a", [*HERE, "u0085"])  # in the other list alone
    for words in ("ask a >1", "serve b <1 >2"):
        step(words)
    fields, setup, response = opened_reply()
    points = list(response.encrypted_elements)
    del response.encrypted_elements[:]
    response.encrypted_elements.extend(points[::-1])
    with_reply(fields, setup, response)
    step("ask a <bad >3 =found.csv")
    _, sent = json.loads(Path("3").read_bytes().partition(b"\n")[2])
    common = {*HERE, "u0085"} & {*THERE}
    assert len(sent) == len(common)
    assert {*sent} - common, "users that the server does not have"
    assert {*sent} <= {*HERE, "u0085"}


@pytest.mark.parametrize("mode", ["list", "size"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda setup, _: setattr(setup.gcs, "hash_range", 1), "has a false filter"),
        (lambda setup, _: setattr(setup.bloom_filter, "bits", b"\xff" * 64), "has a false filter"),
        (lambda setup, _: setattr(setup.gcs, "div", -1), "has a false filter"),
        (lambda setup, _: setattr(setup.gcs, "div", 63), "has a false filter"),
        (lambda setup, _: [setattr(setup.gcs, "div", 0), setattr(setup.gcs, "bits", b"\xff" * 64)], "false filter"),
        (lambda setup, _: setattr(setup.gcs, "bits", b"\x01"), "has a false filter"),  # the library reads on behind it
        (lambda _, points: points.extend(points[:1]), "false users"),
        (lambda _, points: points.__setitem__(0, points[1]), "false users"),
        (lambda _, points: points.__setitem__(0, b"\x02"), "false users"),
        (lambda _, points: points.__setitem__(0, b"\x02" + b"\xff" * 32), "was altered. Ask again"),
        (None, "has a false filter"),  # of a party that states one user
    ],
)
def test_a_reply_that_deviates_is_refused_and_used_up(
    change: Callable[[Any, Any], object] | None, message: str, mode: str
) -> None:
    """Undone, the first changes send all users of the asking party, or end its process."""
    for words in ("ask a >1", "serve b <1 >2"):
        step(words, mode)
    fields, setup, response = opened_reply()
    if change is None:
        fields["count"] = 1
    else:
        change(setup, response.encrypted_elements)
    with_reply(fields, setup, response)
    refused("ask a <bad >3 =agreed.csv", message, mode)
    assert not Path("3").exists()
    assert not Path("agreed.csv").exists()
    refused("ask a <2 >3", "answers no open request", mode)


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([user.upper() for user in THERE], "The ids are spelled"),
        ([f"u{number}" for number in range(40, 90)], "The ids are spelled"),
        ([f"u-{number:04d}" for number in range(40, 90)], "The ids are spelled"),
        ([*THERE, "U0041"], "differ only in case or form, such as 'u0041'"),
        ([*THERE, "cafe\u0301"], "Allowed: Unicode NFC"),
    ],
)
def test_other_spellings_are_refused(ids: list[str], message: str) -> None:
    step("ask a >1")
    listed("b", ids)
    refused("serve b <1 >2", re.escape(message))
