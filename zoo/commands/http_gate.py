"""What stands before the workers of a service: limits, checks of requests, metrics, and repeats after the loss of a worker."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

#: Path of the workers; seconds between looks for lost workers, until a request is given up, and to drop a refused body; its bytes.
WORKERS, PATIENCE, DEADLINE, REST_SECONDS, REST_BYTES = "/recommend", 10.0, 60.0, 10.0, 2**25
#: Number of clients whose rates are stored, and largest number of characters of an id.
MOST_CLIENTS, LONGEST_ID = 10_000, 1024
_JSON = [(b"content-type", b"application/json")]


class RefusedError(Exception):
    """A refused request: its status and message, which never quotes the request."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Asked(BaseModel):
    """Body of a request; unknown fields and other types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True)
    k: int = Field(10, ge=1, le=1000)


class RecommendBody(Asked):
    """Body of ``/recommend``; see `zoo.runs.predictor.Predictor.recommend`."""

    user_ids: list[str] = Field(min_length=1)
    histories: dict[str, list[str]] = {}
    seen: dict[str, list[str]] = {}
    candidates: dict[str, list[str]] | None = None
    include_seen: bool = False


class SimilarBody(Asked):
    """Body of ``/similar``."""

    items: list[str] = Field(min_length=1)


BODIES: dict[str, type[Asked]] = {"/recommend": RecommendBody, "/similar": SimilarBody}


@dataclass(frozen=True)
class Limits:
    """Limits of a service: bytes of a body, ids in a request, requests a second of one client (0: any number)."""

    max_bytes: int = 1 << 20
    max_ids: int = 1000
    rate: float = 0.0
    key: str = field(default="", repr=False)  # required in the header X-API-Key, unless it is empty


@dataclass
class Traffic:
    """Requests in work, and whether the service is ending: then it takes no new ones."""

    open: int = 0
    ending: bool = False


def parsed(path: str, content: bytes, max_ids: int) -> dict[str, Any]:
    """Return a checked body as plain values; raise a `RefusedError` that quotes nothing of it.

    Examples:
        >>> parsed("/similar", b'{"items": ["dune"]}', 10)
        {'k': 10, 'items': ['dune']}
    """
    try:
        values = json.loads(content, parse_constant=_no_number, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, "The body is no JSON. Send UTF-8 JSON, without NaN and repeated fields.") from error
    try:
        body = BODIES[path].model_validate(values).model_dump()
    except ValidationError as error:
        raise RefusedError(422, _complaint(BODIES[path], error)) from error
    named = "items" if "items" in body else "user_ids"
    given = body[named]
    if len(given) > max_ids:
        raise RefusedError(413, f"The request names {len(given):,} ids. At most {max_ids:,}. Split it.")
    if max(map(len, given), default=0) > LONGEST_ID:  # an array is as wide as its longest id
        raise RefusedError(422, f"An id has more than {LONGEST_ID:,} characters. Remove it.")
    if re.search("[\0\ud800-\udfff]", "".join(given)):  # arrays drop NUL, and UTF-8 has no halves of a character
        raise RefusedError(422, "An id has NUL or half a character. Remove it.")
    body[named] = list(dict.fromkeys(given))
    return body


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a repeated field")
    return found


def _no_number(_: str) -> NoReturn:
    raise ValueError("NaN or infinity")


def _complaint(body: type[Asked], error: ValidationError) -> str:
    """Return which field is wrong and how, without values or other keys of the request."""
    first = error.errors(include_input=False, include_url=False, include_context=False)[0]
    name = str(first["loc"][0]) if first["loc"] else ""
    if name not in body.model_fields:
        return f"The body is invalid. It must be an object with the fields {', '.join(body.model_fields)}."
    return f"Field {name} is invalid: {first['msg']}. See docs/serving.md."


class Gate:
    """ASGI middleware of a service: everything but scoring.

    A request is a pure read, so it is given to the workers again if one was killed with it.

    Args:
        app: Application whose ``POST /recommend`` the workers answer.
        limits: Limits of requests.
        traffic: Counted here; shared with the process that ends the service.
        trained: Time at which the model was trained, in seconds since 1970; answers of the workers replace it.
        workers: Returns what identifies the workers, and changes when one is lost.
    """

    def __init__(
        self, app: Application, limits: Limits, traffic: Traffic, trained: float, workers: Callable[[], Any]
    ) -> None:
        self.app, self.limits, self.traffic, self.trained, self.workers = app, limits, traffic, trained, workers
        self.rates: OrderedDict[str, tuple[float, float]] = OrderedDict()  # by client: requests left, and when
        self.registry = CollectorRegistry()
        self.requests = Counter("zoo_requests", "Requests.", ["path", "status"], registry=self.registry)
        self.seconds = Histogram("zoo_request_seconds", "Seconds until the answer.", ["path"], registry=self.registry)
        self.repeats = Counter("zoo_repeats", "Requests given to a worker again.", registry=self.registry)
        counts = {
            "users": "Users in answers",
            "unknown_users": "Unknown users",
            "fallbacks": "Users with popular items",
        }
        self.counts = {
            name: Counter(f"zoo_{name}", f"{words}.", registry=self.registry) for name, words in counts.items()
        }
        share = Gauge(
            "zoo_fallback_share", "Share of users with popular items since the start.", registry=self.registry
        )
        share.set_function(lambda: self._count("fallbacks") / max(self._count("users"), 1))
        age = Gauge("zoo_model_age_seconds", "Seconds since the file of the model was written.", registry=self.registry)
        age.set_function(lambda: time.time() - self.trained)

    def _count(self, name: str) -> float:
        return self.registry.get_sample_value(f"zoo_{name}_total") or 0.0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"]
        began, named = time.perf_counter(), path if path in (*BODIES, "/health", "/metrics") else "other"
        more, read = True, 0

        async def part() -> Message:
            nonlocal more, read
            message = await receive()
            more, read = message.get("more_body", False), read + len(message.get("body", b""))
            return message

        self.traffic.open += 1
        try:
            status, content = await self._answer(path, scope, part)
        except RefusedError as error:
            status, content = error.status, _error(str(error))
            # Many clients send all before they read, and would lose an earlier answer; unknown clients may send little.
            most = self.limits.max_bytes if status in (401, 429) else REST_BYTES
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REST_SECONDS):
                    while more and read < most and b"expect" not in dict(scope["headers"]):
                        await part()
        except Exception as error:  # nothing of it may reach the client
            status, content = 500, _error(f"The service failed ({type(error).__name__}).")
        self.requests.labels(named, str(status)).inc()
        self.seconds.labels(named).observe(time.perf_counter() - began)
        headers = [(b"content-type", b"text/plain; version=0.0.4")] if path == "/metrics" and status == 200 else _JSON
        length = (b"content-length", str(len(content)).encode())
        try:
            await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
            await send({"type": "http.response.body", "body": content})
        finally:
            self.traffic.open -= 1

    async def _answer(self, path: str, scope: Message, receive: Receive) -> tuple[int, bytes]:
        if path not in (*BODIES, "/health", "/metrics"):
            raise RefusedError(404, "No such path. Allowed: /recommend, /similar, /health, /metrics.")
        if scope["method"] != (wanted := "POST" if path in BODIES else "GET"):
            raise RefusedError(405, f"The method is not allowed. Use {wanted}.")
        if self.traffic.ending and path != "/metrics":
            raise RefusedError(503, "The service is ending. Try again.")
        if path == "/health":
            status, _ = await self._ask({**scope, "path": path, "raw_path": path.encode()}, b"")
            return status, json.dumps({"status": "ok" if status == 200 else "not ready"}).encode()
        given = dict(scope["headers"])
        if self.limits.key and not hmac.compare_digest(given.get(b"x-api-key", b""), self.limits.key.encode()):
            raise RefusedError(401, "The API key is missing or wrong. Send it in header X-API-Key.")
        if path == "/metrics":
            return 200, generate_latest(self.registry)
        self._check_rate(str((scope.get("client") or ("",))[0]))
        content = await self._body(given, receive)
        body = parsed(path, content, self.limits.max_ids)
        return await self._scored(scope, json.dumps(body | {"path": path}).encode())

    def _check_rate(self, client: str) -> None:
        """Refuse a client that is too fast: its requests may burst to twice the rate, at least one."""
        if not self.limits.rate:
            return
        now, most = time.monotonic(), max(2 * self.limits.rate, 1.0)
        left, before = self.rates.pop(client, (most, now))
        left = min(left + (now - before) * self.limits.rate, most)
        self.rates[client] = (max(left - 1, 0) if left >= 1 else left, now)
        if len(self.rates) > MOST_CLIENTS:
            self.rates.popitem(last=False)
        if left < 1:
            raise RefusedError(429, f"More than {self.limits.rate:g} requests a second. Wait and try again.")

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        most, length = self.limits.max_bytes, headers.get(b"content-length", b"0")
        parts, size, more = [], int(length) if length.isdigit() else 0, True
        while more and size <= most:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise RefusedError(400, "The client left.")
            parts.append(message.get("body", b""))
            size, more = sum(map(len, parts)), message.get("more_body", False)
        if size > most:
            raise RefusedError(413, f"The body is too large. At most {most:,} bytes. Split it.")
        return b"".join(parts)

    async def _scored(self, scope: Message, content: bytes) -> tuple[int, bytes]:
        """Return the answer of the workers; a request whose worker was lost is given to another one."""
        inner = {**scope, "path": WORKERS, "raw_path": WORKERS.encode(), "headers": _JSON, "query_string": b""}
        wait = 0.05
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DEADLINE):
                while True:
                    status, answer = await self._tried(inner, content)
                    if status == 200:
                        return self._counted(json.loads(answer))
                    self.repeats.inc()
                    await asyncio.sleep(wait)
                    wait *= 2  # a request that fails in every worker, or kills it, is repeated ten times at most
        raise RefusedError(503, "No worker answered in time. Try again.")

    async def _tried(self, scope: Message, content: bytes) -> tuple[int, bytes]:
        """Ask once, and once more after half of the time, since slow workers should not get more work; give up if one was lost."""
        workers, half = self.workers(), time.monotonic() + DEADLINE / 2
        asked = {asyncio.ensure_future(self._ask(scope, content))}
        try:
            while not (done := (await asyncio.wait(asked, timeout=PATIENCE, return_when="FIRST_COMPLETED"))[0]):
                if self.workers() != workers:
                    return 504, b""
                if time.monotonic() > half and len(asked) == 1:
                    self.repeats.inc()
                    asked.add(asyncio.ensure_future(self._ask(scope, content)))
            return await done.pop()
        finally:
            for one in asked:
                one.cancel()

    def _counted(self, answer: dict[str, Any]) -> tuple[int, bytes]:
        if "refused" in answer:
            raise RefusedError(400, answer["refused"])
        self.trained = answer.pop("trained", self.trained)
        for name, counter in self.counts.items():
            counter.inc(answer.get(name, 0))
        return 200, json.dumps(answer, ensure_ascii=False).encode()

    async def _ask(self, scope: Message, content: bytes) -> tuple[int, bytes]:
        """Return the status and body that the application gives."""
        status, parts = 500, []

        async def receive() -> Message:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            parts.append(message.get("body", b""))

        await self.app(scope, receive, send)
        return status, b"".join(parts)


def _error(message: str) -> bytes:
    return json.dumps({"error": message}).encode()
