"""``python -m zoo psi``: two parties find the users that both have, by private set intersection over files that they exchange.

Reference: the ECDH protocol of OpenMined's PSI (Google's Private Join and Compute; Angelou et al., *Asymmetric Private Set
Intersection*, 2020). Departure: one of the four messages carries both the setup and the response of the serving party.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import re
import secrets
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

from filelock import FileLock

from zoo.data.open_table import distinct_ids
from zoo.runtime.arguments import Arguments
from zoo.runtime.run_folder import atomic_write, refusal
from zoo.runtime.settings_files import read_json

#: Probability that the asking party sees any user in common who is not; more for long lists, see `_false_positive`.
FALSE_POSITIVE = 1e-9
LARGEST = 2**30
"""Most bytes of a message."""

_HEADER = 2**12  # most bytes of its first line
_KEYS = {"psi", "step", "session", "mode", "count", "spelling", "answers", "parts"}
DESCRIPTION = (
    "Two parties with lists of users find those that both have. The modes: 'list', both learn the users in common; 'size', both "
    "learn their number, and from several runs who they are. Each also learns the number of the other's users. Both must follow "
    "the protocol (semi-honest): else the asking party can test for users, and the serving party learn all. No epsilon covers "
    "what they learn. Steps: ask --send REQUEST; serve --receive "
    "REQUEST --send REPLY; ask --receive REPLY --send RESULT --out LIST; serve --receive RESULT --out LIST."
)


class PsiError(ValueError):
    """A message, list or state that the protocol does not allow."""


def parser() -> Arguments:
    """Options of the commands."""
    made = Arguments(prog="python -m zoo psi", description=DESCRIPTION)
    made.set_defaults(most_in_common=math.inf)
    commands = made.add_subparsers(dest="command", required=True)
    for name, about in (("ask", "the party that asks, and computes the result"), ("serve", "the other party")):
        each = commands.add_parser(name, help=about)
        each.add_argument(
            "users", type=Path, metavar="USERS", help="CSV file with a column user_id; stays with the party"
        )
        each.add_argument(
            "--state", type=Path, required=True, metavar="FILE", help="secret file of this party's open sessions"
        )
        each.add_argument(
            "--mode", choices=["list", "size"], default="list", help="what both learn (default: %(default)s)"
        )
        each.add_argument("--receive", type=Path, metavar="FILE", help="message of the other party")
        each.add_argument("--send", type=Path, metavar="FILE", help="message to write for the other party")
        each.add_argument("--out", type=Path, metavar="FILE", help="agreed list to write, for --data.users; mode list")
    return made


def main(arguments: Sequence[str]) -> None:
    """Run one step; an expected error ends it with its message."""
    options = parser().parse_args(arguments)
    try:
        print(ask(options) if options.command == "ask" else serve(options))
    except ImportError as error:
        sys.exit(f"{refusal(error)} Install the extra: pip install 'cdr-zoo[psi]'.")
    except (OSError, TypeError, ValueError) as error:
        sys.exit(refusal(error))


def _alone(step: Callable[[argparse.Namespace], str]) -> Callable[[argparse.Namespace], str]:
    """Hold the lock of the state during a step: two processes do not answer one request, nor write one file."""

    @wraps(step)
    def locked(options: argparse.Namespace) -> str:
        with FileLock(f"{options.state}.lock", mode=0o600):
            for path in (options.send, options.out):
                if path is not None and path.exists():
                    raise PsiError(f"{path} exists.")
            return step(options)

    return locked


@_alone
def ask(options: argparse.Namespace) -> str:
    """Write a request, or compute the result from the reply and write it."""
    import private_set_intersection.python as psi

    ids, reveal = checked_users(options.users), options.mode == "list"
    state = _read_state(options.state)
    if options.receive is None:
        client = psi.client.CreateWithNewKey(reveal)
        key = client.GetPrivateKeyBytes().hex()
        fields = _fields("request", secrets.token_hex(16), options.mode, ids)
        message = _message(fields, client.CreateRequest(ids).SerializeToString())
        state[fields["session"]] = {"key": key, "ids": _digest(ids), "request": _sha(message)}
        _write_state(options.state, state)
        return _sent(options.send, message)
    fields, (setup, response) = _received(options.receive, "reply", options.mode, ids, 2)
    opened = state.get(fields["session"])
    if opened is None or opened.get("request") != fields["answers"]:  # a session that it serves has none
        raise PsiError(f"{options.receive} answers no open request: it is replayed, or another's.")
    if opened["ids"] != _digest(ids):
        raise PsiError(f"{options.users} was changed after the request. Ask again.")
    del state[fields["session"]]
    _write_state(options.state, state)  # before anything is computed: a reply is used once, also if it is refused
    client = psi.client.CreateFromKey(bytes.fromhex(opened["key"]), reveal)
    parsed = _called(options, psi.ServerSetup.FromString, setup), _called(options, psi.Response.FromString, response)
    narrowest = 0.99 * fields["count"] * len(ids) / _false_positive(fields["count"], len(ids))
    wide = parsed[0].gcs.hash_range >= narrowest  # else it finds users who are not in common; 0 of another filter
    points = _are_points(parsed[1].encrypted_elements, len(ids))
    if not (wide and points and _is_whole(parsed[0].gcs, fields["count"])):
        raise PsiError(f"{options.receive} has a false filter or false users.")
    found = sorted(ids[at] for at in _called(options, client.GetIntersection, *parsed)) if reveal else []
    size = len(found) if reveal else int(_called(options, client.GetIntersectionSize, *parsed))
    if size > (most := min(len(ids), fields["count"], options.most_in_common)):
        raise PsiError(
            f"{size:,} users in common. Allowed: {most:,}, by the lists and most_in_common. Check the number."
        )
    result = _fields("result", fields["session"], options.mode, ids) | {"answers": _sha(options.receive.read_bytes())}
    said = _sent(options.send, _message(result, json.dumps([size, found]).encode()))
    return f"{_finished(options, found, size)} {said}"


@_alone
def serve(options: argparse.Namespace) -> str:
    """Answer a request, or read the result of the session."""
    import private_set_intersection.python as psi

    ids, reveal = checked_users(options.users), options.mode == "list"
    state = _read_state(options.state)
    if options.receive is None:
        raise PsiError("receive is not set. serve needs the other party's message. Pass --receive FILE.")
    step = "result" if options.send is None else "request"
    fields, (content,) = _received(options.receive, step, options.mode, ids, 1)
    session = fields["session"]
    if step == "request":
        if session in state:
            raise PsiError(f"{options.receive} was answered before. A request is answered once. Ask for a new one.")
        server, request = psi.server.CreateWithNewKey(reveal), _called(options, psi.Request.FromString, content)
        right = _are_points(request.encrypted_elements, fields["count"])
        if not right or request.reveal_intersection is not reveal:
            raise PsiError(
                f"{options.receive} has another number of users, or mode, than it states. Ask for a new one."
            )
        setup = server.CreateSetupMessage(_false_positive(fields["count"], len(ids)), fields["count"], ids)
        reply = _fields("reply", session, options.mode, ids) | {"answers": _sha(options.receive.read_bytes())}
        response = _called(options, server.ProcessRequest, request)
        message = _message(reply, setup.SerializeToString(), response.SerializeToString())
        state[session] = {"reply": _sha(message), "ids": _digest(ids)}
        _write_state(options.state, state)
        return _sent(options.send, message)
    if "reply" not in (opened := state.get(session, {})) or opened["reply"] != fields["answers"]:
        raise PsiError(f"{options.receive} answers no open reply: it is replayed, or another's.")
    state[session] = {}  # used, also by a result that is refused: it would test an id; the request stays known
    _write_state(options.state, state)
    size, found = _called(options, _read_result, content)
    if type(size) is not int or not 0 <= size <= min(len(ids), fields["count"]) or (not reveal and found):
        raise PsiError(
            f"{options.receive} has a number or users that mode {options.mode!r} does not allow. Ask the party."
        )
    if not {*found} <= {*ids} or (reveal and len(found) != size):
        raise PsiError(f"{options.receive} names users who are not in {options.users}. Do not use it. Ask the party.")
    return _finished(options, found, size)


def _read_result(content: bytes) -> tuple[Any, list[str]]:
    """Return the number of users in common and their ids, sorted; any error means that they were altered."""
    size, found = read_json(content.decode("utf-8"))
    if len({*found}) < len(found):
        raise ValueError("repeated users")
    return size, sorted(found)


def checked_users(path: Path) -> list[str]:
    """Return the ids of a list, sorted; refuse ids that another party would probably write otherwise.

    Ids must be in Unicode form NFC, and no two may differ only in case or form.
    """
    ids, left_out = distinct_ids(path, "user_id")
    if not ids:
        raise PsiError(f"{path} is empty. Needed: ids under user_id.")
    if left_out:
        print(left_out, file=sys.stderr)
    for user in ids:
        if user != unicodedata.normalize("NFC", user):
            raise PsiError(f"{path} has the id {user[:80]!r}. Allowed: Unicode NFC. Rewrite it.")
    folded = Counter(unicodedata.normalize("NFKC", user).casefold() for user in ids)
    if len(folded) < len(ids):
        ((alike, _),) = folded.most_common(1)
        raise PsiError(f"{path} has ids that differ only in case or form, such as {alike[:80]!r}. Use one spelling.")
    return ids


def spelling_of(ids: Sequence[str]) -> dict[str, Any]:
    """Return how ids are written, which becomes known to the other party: case of most, leading zeros, and signs.

    Zeros are those of numbers at the end, after a prefix (or none) that several ids and a tenth share, unlike a name like max007.
    Signs are of more than a tenth of the ids; one in less than nine tenths is written twice.

    Examples:
        >>> spelling_of(["u-01", "u-02"])
        {'letters': 'lower', 'padded': True, 'signs': '-'}
    """
    few, starts = len(ids) / 10, [user.rstrip("0123456789") for user in ids]
    shared, signs = Counter(starts), Counter(sign for user in ids for sign in {*user} if not sign.isalnum())
    numbers = (user[len(start) :] for user, start in zip(ids, starts, strict=True) if shared[start] > max(1, few))
    return {
        "letters": Counter(map(_case, ids)).most_common(1)[0][0],
        "padded": any(re.match("0[0-9]", number) for number in numbers),
        "signs": "".join(sign * (1 + (count < 9 * few)) for sign, count in sorted(signs.items()) if count > few),
    }


def _alike(there: Any, own: dict[str, Any]) -> bool:  # noqa: ANN401  of another party
    """Return whether spellings agree: only signs differ, and none is in nearly all ids of one list and in few of the other."""
    signs: Any = there.get("signs") if isinstance(there, dict) else None
    alike = isinstance(signs, str) and there == {**own, "signs": signs}
    return alike and all({signs.count(sign), own["signs"].count(sign)} != {0, 1} for sign in signs + own["signs"])


def _false_positive(one: int, other: int) -> float:
    """Return the probability of any false user in common: the library's range of hashes, pairs / probability, must fit 63 bits."""
    return max(FALSE_POSITIVE, one * other / 2**62)


def _case(user: str) -> str:
    lower, upper = any(map(str.islower, user)), any(map(str.isupper, user))
    return "mixed" if lower and upper else "lower" if lower else "upper" if upper else "none"


def _fields(step: str, session: str, mode: str, ids: Sequence[str]) -> dict[str, Any]:
    spelling, common = spelling_of(ids), {"psi": 1, "step": step, "session": session, "mode": mode}
    return {**common, "count": len(ids), "spelling": spelling, "answers": ""}


def _message(fields: Mapping[str, Any], *parts: bytes) -> bytes:
    return json.dumps({**fields, "parts": [len(part) for part in parts]}).encode() + b"\n" + b"".join(parts)


def _received(
    path: Path, step: str, mode: str, ids: Sequence[str], num_parts: int
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the fields and parts of a message of another party; `PsiError` refuses another step, mode, form or spelling."""
    if not path.is_file() or path.stat().st_size > LARGEST:
        raise PsiError(f"{path} is no file of at most {LARGEST:,} bytes. Pass the other party's message.")
    header, _, content = path.read_bytes().partition(b"\n")
    try:
        fields = read_json(header.decode("utf-8")) if len(header) <= _HEADER else None
    except (ValueError, RecursionError):
        fields = None
    if (
        not isinstance(fields, dict)
        or fields.keys() != _KEYS
        or fields["psi"] != 1
        or not (isinstance(fields["session"], str) and isinstance(fields["answers"], str))
        or not re.fullmatch("" if step == "request" else "[0-9a-f]{64}", fields["answers"])
    ):
        raise PsiError(f"{path} is no message of private set intersection. Pass the other party's {step}.")
    if (fields["step"], fields["mode"]) != (step, mode):
        raise PsiError(
            f"{path} is a {fields['step']!r} of mode {fields['mode']!r}. Expected: {step!r} of mode {mode!r}."
        )
    if not _alike(fields["spelling"], own := spelling_of(ids)):
        there = repr(fields["spelling"])[:200]
        raise PsiError(f"The ids are spelled {there} there and {own} here. Write both lists in one way.")
    sizes = fields["parts"]
    right = isinstance(sizes, list) and [type(size) is int and size >= 0 for size in sizes] == [True] * num_parts
    if not right or sum(sizes) != len(content) or type(fields["count"]) is not int or not 0 < fields["count"] < 2**31:
        raise PsiError(f"{path} is cut off or was altered. Ask for it again.")
    ends = [sum(sizes[: at + 1]) for at in range(num_parts)]
    return fields, [content[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def _is_whole(filtered: Any, most: int) -> bool:  # noqa: ANN401  a message of the library
    """Return whether each of at most so many Golomb codes (zeros, a one, `div` bits; lowest bit first) ends in the filter."""
    bits, at = filtered.bits, 0
    while at < 8 * len(bits) and filtered.div >= 0 and most >= 0:
        left = bits[at >> 3] >> (at & 7)
        most -= left > 0
        at = at + (left & -left).bit_length() + filtered.div if left else (at | 7) + 1
    return 0 <= filtered.div <= 62 and at <= 8 * len(bits) and most >= 0  # the library reads on


def _are_points(elements: Sequence[bytes], count: int) -> bool:
    """Return whether there are `count` different elements of a compressed point's size."""
    return len(elements) == len({*elements}) == count and all(len(each) == 33 for each in elements)


def _called(options: argparse.Namespace, function: Callable[..., Any], *message: Any) -> Any:  # noqa: ANN401
    """Return what the library makes of a message; `PsiError` for any of its errors, such as one on a false point."""
    try:
        return function(*message)
    except Exception as error:
        raise PsiError(f"{options.receive} was altered. Ask again.") from error


def _finished(options: argparse.Namespace, found: Sequence[str], size: int) -> str:
    if options.mode == "list" and options.out is not None:
        if not found:
            raise PsiError("The parties have no user in common. Check that both lists have the same kind of ids.")
        from datamodules.public_lists import is_derived_list, write_intersection

        write_intersection(found, options.out, derived=is_derived_list(str(options.users)))
        return f"{size:,} users in common: {options.out}."
    return f"{size:,} users in common."


def _sent(path: Path | None, message: bytes) -> str:
    if path is None:
        return ""
    with atomic_write(path) as temporary:
        temporary.write_bytes(message)
    return f"Send {path} ({len(message):,} bytes) to the other party."


def _read_state(path: Path) -> dict[str, Any]:
    return dict(read_json(path.read_text(encoding="utf-8"), path)) if path.is_file() else {}


def _write_state(path: Path, state: Mapping[str, Any]) -> None:
    with atomic_write(path) as temporary:
        temporary.touch(mode=0o600)
        temporary.write_text(json.dumps(state), encoding="utf-8")


def _sha(message: bytes) -> str:
    return hashlib.sha256(message).hexdigest()


def _digest(ids: Sequence[str]) -> str:
    return _sha(json.dumps([*ids]).encode())
