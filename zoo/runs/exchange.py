"""Releases over any carrier of bytes: a source party that answers requests, and a target party that collects releases.

A carrier moves messages of bytes and knows the sender of each. All decisions are made here: the source publishes by its own
settings, budget and key, which a request can only lower. Of an error only its code leaves the source, never its text.
"""

from __future__ import annotations

import errno
import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import Any

from datamodules import CrossDomainDataModule
from zoo.privacy.spending.budget import BudgetBusyError, BudgetError, BudgetExceededError, is_request
from zoo.privacy.spending.total import normalize_domain
from zoo.publishers.base import Publisher
from zoo.release.files import ReleaseError, manifest_bytes
from zoo.release.packing import LARGEST, Offer, Transfer
from zoo.release.release import Release
from zoo.release.signature import TrustedKeys, check_signature
from zoo.runs.inputs import UsageError, instantiate
from zoo.runs.publishing import publish
from zoo.runtime import checks
from zoo.runtime.run_folder import plain, visible
from zoo.runtime.settings_files import read_json

PART = 2**22
"""Default of the bytes of a release in one message."""

_HEADER, _MOST_PART = 2**12, 2**28  # most bytes of a message's fields, and of a release in one message
_LOG = logging.getLogger(__name__)

Send = Callable[[Mapping[str, bytes]], Mapping[str, bytes]]
"""Deliver a message to each named source; return the replies that arrived, by the authenticated name of their sender."""


class Code(StrEnum):
    """Result of a request: all that a source says about an error."""

    OK = "ok"
    BAD_REQUEST = "bad_request"
    ABOVE_POLICY = "above_policy"
    BUDGET_EXCEEDED = "budget_exceeded"
    BUDGET_REFUSED = "budget_refused"
    BUSY = "busy"
    NO_DATA = "no_data"
    NO_SPACE = "no_space"
    FAILED = "failed"
    NO_REPLY = "no_reply"
    REFUSED = "refused"


SENTENCES: Mapping[Code, str] = {
    Code.OK: "The release arrived.",
    Code.BAD_REQUEST: "The request has another form, domain or id than the source accepts.",
    Code.ABOVE_POLICY: "The request asks for more epsilon than the source's own settings.",
    Code.BUDGET_EXCEEDED: "The release would exceed the source's budget.",
    Code.BUDGET_REFUSED: "The source's budget does not allow the release.",
    Code.BUSY: "The source is still publishing; ask again with the same request.",
    Code.NO_DATA: "The source's ratings are not available.",
    Code.NO_SPACE: "The disk of the source is full.",
    Code.FAILED: "The source failed; its own log has the cause.",
    Code.NO_REPLY: "The source did not reply in time.",
    Code.REFUSED: "The target refused what the source sent.",
}
"""Public sentence of each code."""


def received_code(fields: Mapping[str, Any]) -> Code:
    """Return the code of a source's reply; raise ValueError for one that only a target gives."""
    if (code := Code(fields["code"])) in (Code.NO_REPLY, Code.REFUSED):
        raise ValueError(f"The source sent the code {code}, which only a target gives. Ask the source party.")
    return code


def code_of(error: Exception) -> Code:
    """Return the code of an error at a source.

    Examples:
        >>> code_of(OSError(errno.ENOSPC, "no space", "/home/ann/ratings.csv")).value
        'no_space'
    """
    full = (errno.ENOSPC, errno.EDQUOT)  # safetensors has the number in its text alone
    if isinstance(error, OSError) and any(
        error.errno == number or f"(os error {number})" in str(error) for number in full
    ):
        return Code.NO_SPACE
    known: tuple[tuple[type[Exception], Code], ...] = (
        (_RefusedError, Code.BAD_REQUEST),
        (BudgetExceededError, Code.BUDGET_EXCEEDED),
        (BudgetBusyError, Code.BUSY),
        (BudgetError, Code.BUDGET_REFUSED),
        (FileNotFoundError, Code.NO_DATA),
    )
    return next((code for kind, code in known if isinstance(error, kind)), Code.FAILED)


class _RefusedError(ValueError):
    """A message of another form."""


def encode(fields: Mapping[str, Any], data: bytes = b"") -> bytes:
    """Return a message: its fields as a line of JSON, and bytes."""
    return json.dumps(fields).encode() + b"\n" + data


def decode(message: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the fields and bytes of a message; it is untrusted, and a `ValueError` refuses another form."""
    end = message.find(b"\n", 0, _HEADER)
    try:
        fields = read_json(message[: max(end, 0)].decode("utf-8"))
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise _RefusedError("The message has no fields. Send a line of JSON first.")
    return fields, message[end + 1 :]


class SourceParty:
    """A source party behind a carrier: it publishes once for each request id, within its own budget, and sends parts.

    Args:
        publisher: Publisher with the largest epsilon that this party grants.
        data: Data of the party.
        domain: Its domain.
        budget: File of its privacy budget.
        outbox: Folder of its releases, by request id.
        sign: PEM file of its private key.
        intersect: Answer to a step of private set intersection and its message; None: none is answered.
    """

    def __init__(
        self,
        publisher: Publisher,
        data: CrossDomainDataModule,
        domain: str,
        budget: Path,
        outbox: Path,
        sign: Path | None = None,
        intersect: Callable[[str, bytes], bytes] | None = None,
    ) -> None:
        if domain not in data.sources:
            raise UsageError(f"domain is {domain!r}. The sources of the data are {list(data.sources)}. Choose one.")
        self.publisher, self.data, self.domain = publisher, data, domain
        self.budget, self.outbox, self.sign = budget, outbox, sign
        self.intersect = intersect

    def handle(self, message: bytes) -> bytes:
        """Return the reply to a message of the target; of an error its code alone, and its text goes to the local log."""
        try:
            fields, data = decode(message)
            operation = fields.pop("op", None)
            if not is_request(fields.get("request")):
                raise _RefusedError("The request has no valid id.")
            if operation == "publish" and {*fields} - {"epsilon"} == {"request", "domain"}:
                return self._publish(**fields)
            if operation == "read" and {*fields} == {"request", "offset", "size"}:
                return self._read(**fields)
            if operation == "psi" and {*fields} == {"request", "step"} and self.intersect is not None:
                return self._intersected(fields["step"], data)
            raise _RefusedError("The fields are of another form.")
        except Exception as error:
            _LOG.warning("%s: request refused: %s: %s", self.domain, type(error).__name__, error)
            return encode({"code": code_of(error)})

    def _publish(self, request: str, domain: object, epsilon: object = None) -> bytes:
        if not isinstance(domain, str) or normalize_domain(domain) != normalize_domain(self.domain):
            raise _RefusedError("Another domain.")
        publisher = self._lowered(epsilon)
        if publisher is None:
            return encode({"code": Code.ABOVE_POLICY})
        out = self.outbox / request
        publish(publisher, self.data, out, source=self.domain, budget=self.budget, sign=self.sign, request=request)
        packed = Release.pack(out)
        return encode({"code": Code.OK, "sha256": packed.sha256, "size": packed.size})

    def _intersected(self, step: object, message: bytes) -> bytes:
        assert self.intersect is not None
        try:
            return encode({"code": Code.OK}, self.intersect(str(step), message))
        except ValueError as error:
            raise _RefusedError(str(error)) from error

    def _lowered(self, epsilon: object) -> Publisher | None:
        """Return the publisher with the requested epsilon, if it is not above its own; None above it."""
        settings = plain(self.publisher)
        own = getattr(self.publisher, "epsilon", None)
        if epsilon is None:
            return self.publisher
        if not isinstance(epsilon, int | float) or isinstance(epsilon, bool) or own is None or not epsilon > 0:
            raise _RefusedError("Another epsilon.")
        if epsilon > own:
            return None
        settings["init_args"]["epsilon"] = float(epsilon)
        try:
            made: Publisher = instantiate("publisher", Publisher, settings)
        except ValueError as error:  # smaller than any publisher takes
            raise _RefusedError(str(error)) from error
        return made

    def _read(self, request: str, offset: object, size: object) -> bytes:
        right = type(offset) is int and type(size) is int and offset >= 0 and 0 < size <= _MOST_PART
        if not right or not (folder := self.outbox / request).is_dir():
            raise _RefusedError("Another offset or size, or nothing was published for the request.")
        assert isinstance(offset, int)
        assert isinstance(size, int)
        return encode({"code": Code.OK, "offset": offset}, Release.pack(folder).read(offset, size))


@dataclass
class Collected:
    """What became of each source that was asked."""

    releases: dict[str, Path] = field(default_factory=dict)  # folders of the releases that arrived, by source
    codes: dict[str, Code] = field(default_factory=dict)  # of every source
    reasons: dict[str, str] = field(default_factory=dict)  # why the target refused a source's messages
    cost: dict[str, list[float]] = field(
        default_factory=dict
    )  # of asking and of reading: seconds, bytes sent and received

    def refuse(self, source: str, error: Exception) -> None:
        """Note why the target refused what a source sent."""
        self.codes[source], self.reasons[source] = Code.REFUSED, visible(f"{type(error).__name__}: {error}"[:500])

    def __str__(self) -> str:
        arrived, lost = len(self.releases), [name for name, code in self.codes.items() if code is Code.NO_REPLY]
        lines = [f"Asked {len(self.codes)}, answered {len(self.codes) - len(lost)}, released {arrived}."]
        for name, code in self.codes.items():
            why = f" ({self.reasons[name]})" if name in self.reasons else ""
            lines += [] if code is Code.OK else [f"{name}: {code}. {SENTENCES[code]}{why}"]
        return "\n".join(lines)


class TargetParty:
    """A target party behind a carrier: it asks every source, resumes transfers, checks releases, and counts replies.

    Args:
        folder: Where releases are written: ``folder/REQUEST/SOURCE``.
        sources: Names of the sources, which are their domains.
        request: Id of the request; the same id resumes, and costs the sources nothing.
        epsilon: Largest epsilon that is asked for; None: that of each source's settings.
        limit: Largest size of a release, in bytes.
        trusted: Keys, one of which must have signed each release.
        part: Bytes of a release in one message.
        patience: Number of times in a row that a source may be silent, busy, or send nothing of use.
        seconds: Time after which `collect` gives up every source that has not finished; the same request resumes.

    Examples:
        >>> import tempfile
        >>> from datamodules import Synthetic
        >>> from zoo.privacy.accounting.relation import Relation
        >>> from zoo.privacy.spending.budget import Budget, Cap
        >>> from zoo.publishers.jlt import JLT
        >>> folder = Path(tempfile.mkdtemp())
        >>> budget = Budget.create(folder / "budget.jsonl", Cap(8.0, 1e-5, Relation.CHANGE_ONE_RATING)).path
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> source = SourceParty(JLT(epsilon=8.0, num_components=8), data, "book", budget, folder / "outbox")
        >>> target = TargetParty(folder / "inbox", ["book"], "first")
        >>> print(target.collect(lambda messages: {name: source.handle(each) for name, each in messages.items()}))
        Asked 1, answered 1, released 1.
    """

    def __init__(
        self,
        folder: Path,
        sources: Sequence[str],
        request: str,
        *,
        epsilon: float | None = None,
        limit: int = LARGEST,
        trusted: TrustedKeys | None = None,
        part: int = PART,
        patience: int = 3,
        seconds: float = 3000,
    ) -> None:
        if not is_request(request) or not all(map(is_request, sources)):
            raise UsageError(
                f"request is {request!r}, sources {list(sources)}. Allowed: names as of files. Rename them."
            )
        checks.positive(epsilon=epsilon, seconds=seconds)
        self.folder, self.sources, self.request, self.epsilon = folder / request, list(sources), request, epsilon
        self.limit, self.trusted, self.part, self.patience, self.seconds = limit, trusted, part, patience, seconds

    def collect(self, send: Send) -> Collected:
        """Ask all sources at once, read their releases part by part, and return what became of each."""
        self.folder.mkdir(parents=True, exist_ok=True)
        end = monotonic() + self.seconds
        found, transfers, silent = Collected(), dict[str, Transfer](), dict.fromkeys(self.sources, 0)
        self._take_earlier(found)
        while waiting := [source for source in self.sources if source not in found.codes]:
            messages, begin = {source: self._message(source, transfers.get(source)) for source in waiting}, monotonic()
            replies = send(messages)
            spent = [monotonic() - begin, *(float(sum(map(len, batch.values()))) for batch in (messages, replies))]
            stage = "read" if {*waiting} <= transfers.keys() else "publish"
            found.cost[stage] = [sum(pair) for pair in zip(found.cost.get(stage, [0.0] * 3), spent, strict=True)]
            for source in waiting:
                before, unheard = self._progress(transfers.get(source)), Code.NO_REPLY
                if source in replies:
                    try:
                        unheard = self._take(source, replies[source], transfers, found)
                    except OSError:  # of the target's own disk
                        raise
                    except Exception as error:  # a deviating source, which stops no other
                        found.refuse(source, error)
                silent[source] = silent[source] + 1 if self._progress(transfers.get(source)) == before else 0
                if silent[source] > self.patience:
                    found.codes.setdefault(source, unheard)
                elif monotonic() > end and source not in found.codes:
                    found.codes[source] = unheard
                    found.reasons[source] = f"not finished after {self.seconds:,g} seconds; the same request resumes"
        return found

    def _take_earlier(self, found: Collected) -> None:
        """Take what arrived in an earlier run with this request, perhaps without keys."""
        for source in self.sources:
            if (folder := self.folder / source).is_dir():
                try:
                    check_signature(folder, manifest_bytes(folder), self.trusted)
                    found.releases[source], found.codes[source] = folder, Code.OK
                except ReleaseError as error:
                    found.refuse(source, error)

    def _progress(self, transfer: Transfer | None) -> int:
        return -1 if transfer is None else transfer.received // self.part  # one byte a message is no progress

    def _message(self, source: str, transfer: Transfer | None) -> bytes:
        if transfer is None:
            wanted = {} if self.epsilon is None else {"epsilon": self.epsilon}
            return encode({"op": "publish", "request": self.request, "domain": source, **wanted})
        return encode({"op": "read", "request": self.request, "offset": transfer.received, "size": self.part})

    def _take(self, source: str, reply: bytes, transfers: dict[str, Transfer], found: Collected) -> Code:
        """Take a reply: an offer, a part of the stream, or a code. Return the code if no later reply is of use."""
        fields, data = decode(reply)
        if len(data) > self.part:
            raise ReleaseError(f"The reply has {len(data):,} bytes. Asked for: {self.part:,}. Ask the source party.")
        if (code := received_code(fields)) is Code.BUSY:
            return code
        if code is not Code.OK:
            found.codes[source] = code
            return code
        transfer = transfers.get(source)
        if transfer is None:
            offer = Offer(fields["sha256"], fields["size"])
            transfers[source] = transfer = Transfer(self.folder / ".arriving" / source, offer, self.limit)
        elif fields.get("offset") == transfer.received:  # one delivered twice or late is ignored
            transfer.add(transfer.received, data)
        if transfer.received == transfer.offer.size:
            found.releases[source] = self._unpacked(source, transfer)
            found.codes[source] = Code.OK
        return Code.NO_REPLY

    def _unpacked(self, source: str, transfer: Transfer) -> Path:
        """Check a whole stream and give its folder the source's name."""
        arrived = transfer.path.parent / "release"
        shutil.rmtree(arrived, ignore_errors=True)  # of a run that ended here
        with transfer.check() as stream:
            try:
                release = Release.unpack(stream, arrived, limit=self.limit, trusted=self.trusted)
            except Exception as error:
                if not isinstance(error, OSError):  # of the target's own disk: the stream is read again
                    transfer.path.unlink()
                raise
        transfer.path.unlink()
        if normalize_domain(release.domain) != normalize_domain(source):
            shutil.rmtree(arrived)
            raise ReleaseError(f"The release is of {release.domain!r}, not of {source!r}. Ask the source party.")
        arrived.rename(self.folder / source)
        return self.folder / source
