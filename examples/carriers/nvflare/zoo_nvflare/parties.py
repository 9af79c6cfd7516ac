"""Controller and executor of the job: they carry the messages of `zoo.runs.exchange` between target and sources."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from zoo.commands.parties import SETTINGS, TARGET, Party, replying
from zoo_nvflare import SIMULATED

TASK = "release"
MESSAGE = "message"


class ReleaseExecutor(Executor):  # type: ignore[misc]  # NVFlare ships no types
    """A source party: it answers by the settings in its own ``local/zoo.json``; a job brings none."""

    def __init__(self) -> None:
        super().__init__()
        self._party: Party | None = None

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer one message of the target."""
        reply = Shareable()
        reply[MESSAGE] = replying(lambda: self._answer(bytes(shareable.get(MESSAGE) or b""), fl_ctx))
        return reply

    def _answer(self, message: bytes, fl_ctx: FLContext) -> bytes:
        if self._party is None:
            self._party = Party(settings_of(fl_ctx, fl_ctx.get_identity_name()))
        return self._party.handle(message)


class ReleaseController(Controller):  # type: ignore[misc]  # NVFlare ships no types
    """The target party: it asks all sources at once and keeps what arrives below ``inbox/REQUEST`` of its own folder.

    Args:
        sources: Names of the sites, which are their domains.
        request: Id of the request.
        epsilon: Largest epsilon that is asked for; None: that of each source's settings.
        timeout: Seconds that a site has for one message.
        intersect: The source whose users in common are asked for, instead of releases.
    """

    def __init__(
        self,
        sources: Sequence[str],
        request: str,
        epsilon: float | None = None,
        timeout: int = 120,
        intersect: str | None = None,
    ) -> None:
        super().__init__()
        self.sources, self.timeout = list(sources), timeout
        self.asked = {"request": request, "epsilon": epsilon, "intersect": intersect}

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: the settings are read when the job runs."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: what arrived is on the disk."""

    def process_result_of_unknown_task(self, client: Client, *_: object) -> None:
        """Ignore a reply that is late: the next message asks from the byte that is missing."""
        self.logger.info(f"A late reply of {client.name} is ignored.")

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Collect the releases and write what became of each source."""
        party = Party(settings_of(fl_ctx, TARGET))
        party.collect(self.sources, self.asked, lambda messages: self._sent(messages, abort_signal, fl_ctx))

    def _sent(self, messages: Mapping[str, bytes], abort_signal: Signal, fl_ctx: FLContext) -> dict[str, bytes]:
        """Send a task to each site, and return the replies of those that ended it in time."""
        replies: dict[str, bytes] = {}

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            message = client_task.result.get(MESSAGE) if client_task.result is not None else None
            if isinstance(message, bytes):
                replies[client_task.client.name] = message  # the name in the site's certificate

        tasks = []
        for site, message in messages.items():
            data = Shareable()
            data[MESSAGE] = message
            tasks.append(Task(TASK, data, timeout=self.timeout, result_received_cb=received))
            self.send(tasks[-1], fl_ctx, targets=[site])
        while any(task.completion_status is None for task in tasks) and not abort_signal.triggered:
            time.sleep(0.1)
        if abort_signal.triggered:
            raise RuntimeError("The job was aborted. Submit it again with the same request.")
        return replies


def settings_of(fl_ctx: FLContext, name: str) -> Path:
    """Return the file of a party's own settings."""
    simulated = os.environ.get(SIMULATED)
    if simulated is not None:
        return Path(simulated) / f"{name}.json"
    return Path(fl_ctx.get_engine().get_workspace().get_site_config_dir()) / SETTINGS
