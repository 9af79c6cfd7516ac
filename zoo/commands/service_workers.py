"""Workers of a service: processes that hold a model, replace it when its files change, and score requests together."""

from __future__ import annotations

import argparse
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import litserve
from litserve.loops.simple_loops import BatchedLoop

from zoo.commands.http_gate import WORKERS, Gate, Limits, Traffic
from zoo.commands.recommend import opened, read_lists, threshold_of
from zoo.runs.predictor import DataNotAvailableError, Predictor, UnknownUserError
from zoo.runs.requests import Request
from zoo.runtime.run_folder import BEST

#: Seconds between looks at the run and at the histories.
LOOK = 5.0
#: Requests that are scored together, and seconds of an idle worker between looks at the queue.
MOST, IDLE = 64, 0.002

logger = logging.getLogger(__name__)


def identity(path: Path | None) -> tuple[Any, ...]:
    """Return what changes when a run, a bundle or a file is replaced."""
    if path is None:
        return ()
    real = path.resolve()
    files = [file for name in (BEST, "bundle.json") if (file := real / name).is_file()] or [real]
    return (str(real), *((found.st_ino, found.st_mtime_ns, found.st_size) for file in files if (found := file.stat())))


def trained_at(run: Path) -> float:
    """Return the time at which a run or bundle was written, in seconds since 1970."""
    files = [file for name in (BEST, "bundle.json") if (file := run / name).is_file()] or [run]
    return files[0].stat().st_mtime


class _Model(NamedTuple):
    """A model with what was loaded with it: replaced as one, so that no answer mixes two."""

    predictor: Predictor
    histories: Mapping[str, list[str]]
    trained: float
    seen: tuple[Any, ...]


class Served:
    """The model of a worker, which is replaced when its files change."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self._model: _Model | None = None
        self._looked, self._said, self._missed = 0.0, "", False
        self._thread: threading.Thread | None = None

    def load(self) -> None:
        """Load run and histories; where the new run fails, the new histories are loaded for the present one."""
        options, model = self.options, self._model
        seen = identity(options.run), identity(options.histories)
        if model is not None and seen[0] == model.seen[0]:
            self._take(model.predictor, model.trained, seen)
            return
        try:
            self._take(self._opened(), trained_at(options.run), seen)
        except BaseException:
            if model is not None and seen[1] != model.seen[1]:
                with suppress(Exception):  # the run's error is raised
                    self._take(model.predictor, model.trained, (model.seen[0], seen[1]))
            raise

    def _opened(self) -> Predictor:
        """Open the run, and score one user, so that the first request finds everything ready."""
        options = self.options
        predictor = opened(options).to(options.device)
        predictor.method.to(options.device)
        predictor.check_unknown(options.unknown)
        if predictor.user_ids:
            predictor.recommend(predictor.user_ids[:1], k=1)
        return predictor

    def _take(self, predictor: Predictor, trained: float, seen: tuple[Any, ...]) -> None:
        """Read the histories for a model, and let it answer."""
        options = self.options
        histories = read_lists(options.histories, threshold_of(predictor)) or {}
        if histories and predictor.method.folds_in is None:
            name = type(predictor.method).__name__
            raise ValueError(f"--histories is set. {name} cannot score histories. Omit it, or train another method.")
        if histories:
            predictor.check_histories(histories)
        self._model = _Model(predictor, histories, trained, seen)

    def look(self) -> None:
        """Begin to load in the background if the files changed; until then the present model answers."""
        now = time.monotonic()
        if now - self._looked < LOOK or (self._thread is not None and self._thread.is_alive()):
            return
        self._looked = now
        try:
            changed = (identity(self.options.run), identity(self.options.histories)) != (
                self._model and self._model.seen
            )
        except OSError as error:
            if self._missed:  # twice: not just being replaced
                self._warn(error)
            self._missed = True
            return
        self._missed = False
        if not changed:
            self._said = ""  # the next failure is another
        else:
            self._thread = threading.Thread(target=self._reload, daemon=True)
            self._thread.start()

    def _reload(self) -> None:
        try:
            self.load()
            self._said = ""
        except BaseException as error:  # the present model goes on
            self._warn(error)

    def _warn(self, error: BaseException) -> None:
        said = (
            f"A new run or new histories are not loaded ({str(error) or type(error).__name__}). What is loaded stays."
        )
        if said != self._said:  # every look fails again
            logger.warning(said)
        self._said = said

    def answer(self, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the answer to each body; those that allow it are scored together."""
        model = self._model
        assert model is not None
        answers: list[dict[str, Any]] = [{} for _ in bodies]
        for group in (waiting := groups(bodies)):
            try:
                found = self._scored(model, [bodies[at] for at in group])
            except (ValueError, DataNotAvailableError, LookupError) as error:
                if len(group) > 1:  # none is refused for another
                    waiting += [[at] for at in group]
                    continue
                unusable = isinstance(error, LookupError) and not isinstance(error, DataNotAvailableError)
                said = "An id is unknown." if isinstance(error, UnknownUserError) else str(error)  # names no id
                found = [{"refused": "An id cannot be used." if unusable else said}]
            for at, one in zip(group, found, strict=True):
                answers[at] = one | {"trained": model.trained}
        return answers

    def _scored(self, model: _Model, bodies: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        predictor = model.predictor
        if bodies[0]["path"] == "/similar":
            return [_similar(predictor, body) for body in bodies]
        users = {user: at for at, body in enumerate(bodies) for user in body["user_ids"]}
        joined = self._joined(model.histories, bodies, users)
        found = [_empty(body, predictor.num_unknown_items(body["user_ids"], joined)) for body in bodies]
        for answer in predictor.answers(list(users), joined):
            for user, rank, item, score in answer.table.iter_rows():
                if rank <= bodies[users[user]]["k"]:
                    shown = {"item_id": item, "score": score}
                    found[users[user]]["recommendations"].setdefault(user, []).append(shown)
            for name in ("unknown_users", "fallbacks"):
                for user in getattr(answer, name):
                    found[users[user]][name] += 1
        return found

    def _joined(
        self, histories: Mapping[str, list[str]], bodies: Sequence[dict[str, Any]], users: Mapping[str, int]
    ) -> Request:
        """Return one request for the users of all bodies, with the histories of the service."""
        lists: dict[str, Any] = {name: {} for name in ("seen", "histories", "candidates")}
        for body in bodies:
            for name, joined in lists.items():  # of its own users: another client may ask for the others
                joined |= {user: body[name][user] for user in body["user_ids"] if user in (body[name] or ())}
        for user in users.keys() & histories.keys():
            lists["histories"][user] = [*histories[user], *lists["histories"].get(user, ())]
        if bodies[0]["candidates"] is None:
            lists["candidates"] = None
        k = max(body["k"] for body in bodies)
        return Request(k, include_seen=bodies[0]["include_seen"], unknown=self.options.unknown, **lists)


def groups(bodies: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Return the positions of bodies that can be scored together: of one kind, and of different users.

    Examples:
        >>> one, two = ({"path": "/recommend", "user_ids": users} for users in (["ann"], ["bob"]))
        >>> groups([one, two, one])
        [[0, 1], [2]]
    """
    made: list[tuple[tuple[Any, ...], set[str], list[int]]] = []
    for at, body in enumerate(bodies):
        kind = body["path"], body.get("include_seen"), body.get("candidates") is None, bool(body.get("histories"))
        users = {*body.get("user_ids", ())}
        for other, taken, group in made:
            if other == kind and not taken & users:
                taken |= users
                group.append(at)
                break
        else:
            made.append((kind, users, [at]))
    return [group for _, _, group in made]


def _empty(body: Mapping[str, Any], unknown_items: int) -> dict[str, Any]:
    counts = {"users": len(body["user_ids"]), "unknown_users": 0, "fallbacks": 0, "unknown_items": unknown_items}
    return {"recommendations": {}, **counts}


def _similar(predictor: Predictor, body: Mapping[str, Any]) -> dict[str, Any]:
    known = [item for item in body["items"] if item in predictor.item_at]
    found: dict[str, Any] = {"similar": {}, "unknown_items": len(body["items"]) - len(known)}
    for item, _, other, similarity in predictor.similar(known, body["k"]).iter_rows():
        found["similar"].setdefault(item, []).append({"item_id": other, "similarity": similarity})
    return found


class Loop(BatchedLoop):  # type: ignore[misc]  # LitServe ships no types
    """Takes all requests that wait, at once."""

    def get_batch_requests(self, lit_api: Any, request_queue: Any, transport: Any) -> tuple[list[Any], list[Any]]:  # noqa: ANN401  of LitServe
        """Return the waiting requests; look at the files of the model before."""
        lit_api.served.look()
        found: tuple[list[Any], list[Any]] = super().get_batch_requests(lit_api, request_queue, transport)
        if not any(found):
            time.sleep(IDLE)
        return found


class Scoring(litserve.LitAPI):  # type: ignore[misc]  # LitServe ships no types
    """What each worker does."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(max_batch_size=MOST, batch_timeout=0.0, api_path=WORKERS, loop=Loop())
        self.served = Served(options)

    def setup(self, device: str) -> None:
        """Load the model."""
        self.served.load()

    def batch(self, inputs: list[Any]) -> list[Any]:
        """Return the bodies."""
        return inputs

    def predict(self, x: list[Any]) -> list[Any]:
        """Return an answer for each body."""
        return self.served.answer(x)

    def unbatch(self, output: list[Any]) -> list[Any]:
        """Return the answers."""
        return output


def server(options: argparse.Namespace, traffic: Traffic) -> litserve.LitServer:
    """Return the server: workers behind the gate. A worker that is killed is started again."""
    limits = Limits(options.max_bytes, options.max_ids, options.rate, options.key)
    gate = {"limits": limits, "traffic": traffic, "trained": trained_at(options.run)}
    gate["workers"] = lambda: [worker.pid for worker in made.inference_workers]
    made: Any = litserve.LitServer(
        Scoring(options),
        accelerator="cpu",  # the predictor chooses its device
        workers_per_device=options.workers,
        timeout=60,
        middlewares=[(Gate, gate)],
        restart_workers=True,
        disable_openapi_url=True,
    )
    return made
