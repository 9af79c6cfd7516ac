"""A stand-in for W&B's server on this machine: takes a sweep, and hands its trials to an agent one after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import yaml

#: Whose it is, and what it calls the sweep.
ENTITY, SWEEP = "somebody", "sweep001"
VIEWER = {"id": "u1", "entity": ENTITY, "username": ENTITY, "email": "", "flags": "{}", "teams": {"edges": []}}


class StandIn(ThreadingHTTPServer):
    """Knows what `wandb sweep` and `wandb agent` ask for, and nothing else.

    Attributes:
        asked: Every question, by what it begins with; other addresses by their path.
        config: The sweep's file, as `wandb sweep` has sent it.
        states: What each heartbeat said of the agent's runs.
    """

    daemon_threads = True

    def __init__(self, trials: Sequence[dict[str, Any]]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []
        self.config = ""
        self.states: list[dict[str, bool]] = []
        self._trials = {f"trial{number}": chosen for number, chosen in enumerate(trials, 1)}

    @property
    def url(self) -> str:
        """What `WANDB_BASE_URL` is to be."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def answer(self, query: str, variables: dict[str, Any]) -> dict[str, Any]:
        """The data of one answer."""
        found = next((name for name in ANSWERS if f" {name}" in query), None)
        self.asked.append(found or query)
        return ANSWERS[found](self, variables) if found else {}

    def upserted(self, variables: dict[str, Any]) -> dict[str, Any]:
        """A sweep is kept."""
        self.config = variables["config"]
        project = {"id": "p1", "name": variables["projectName"], "entity": {"id": "e1", "name": ENTITY}}
        return {"upsertSweep": {"sweep": {"name": SWEEP, "project": project}, "configValidationWarnings": []}}

    def beaten(self, variables: dict[str, Any]) -> dict[str, Any]:
        """The next trial where none runs; after the last the agent may go."""
        self.states.append(json.loads(variables["runState"]))
        commands = [] if self.states[-1] else [self._next()]
        return {"agentHeartbeat": {"agent": {"id": "a1"}, "commands": json.dumps(commands)}}

    def _next(self) -> dict[str, Any]:
        if not self._trials:
            return {"type": "exit"}
        name = next(iter(self._trials))
        chosen = {key: {"value": value} for key, value in self._trials.pop(name).items()}
        # Without a program in the file there is none to pass on, and the agent has no command.
        program = {key: value for key, value in yaml.safe_load(self.config).items() if key == "program"}
        return {"type": "run", "run_id": name, "args": chosen, **program}


#: By the name of the question.
ANSWERS = {
    "Viewer": lambda server, variables: {"viewer": VIEWER},
    "UpsertSweep": StandIn.upserted,
    "SweepWithRuns": lambda server, variables: {
        "project": {"sweep": {"id": "s1", "name": SWEEP, "config": server.config, "runs": {"edges": []}}}
    },
    "CreateAgent": lambda server, variables: {"createAgent": {"agent": {"id": "a1"}}},
    "Heartbeat": StandIn.beaten,
}


class _Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path != "/graphql":
            self.server.asked.append(self.path)
            self.send_error(404)
            return
        asked = json.loads(body)
        said = json.dumps({"data": self.server.answer(asked["query"], asked.get("variables") or {})}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def standing_in(trials: Sequence[dict[str, Any]]) -> Iterator[StandIn]:
    """The server, for as long as it is needed."""
    with StandIn(trials) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
