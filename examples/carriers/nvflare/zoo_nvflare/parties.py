"""Controller and executor of the job: they carry the messages of `zoo.runs.exchange` between target and sources."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from zoo.commands.privacy.plan import read_settings
from zoo.release.signature import TrustedKeys
from zoo.runs.exchange import SourceParty, TargetParty
from zoo.runs.inputs import instantiate, make_publisher
from zoo.runtime.run_folder import write_json
from zoo_nvflare import SETTINGS, SIMULATED, TARGET

TASK = "release"
MESSAGE = "message"


class ReleaseExecutor(Executor):  # type: ignore[misc]  # NVFlare ships no types
    """A source party: it answers by the settings in its own ``local/zoo.json``; a job brings none."""

    def __init__(self) -> None:
        super().__init__()
        self._party: SourceParty | None = None

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Answer one message of the target."""
        if self._party is None:
            self._party = source_party(*settings_of(fl_ctx, fl_ctx.get_identity_name()))
        reply = Shareable()
        reply[MESSAGE] = self._party.handle(bytes(shareable.get(MESSAGE) or b""))
        return reply


class ReleaseController(Controller):  # type: ignore[misc]  # NVFlare ships no types
    """The target party: it asks all sources at once and keeps what arrives below ``inbox/REQUEST`` of its own folder.

    Args:
        sources: Names of the sites, which are their domains.
        request: Id of the request.
        epsilon: Largest epsilon that is asked for; None: that of each source's settings.
        timeout: Seconds that a site has for one message.
    """

    def __init__(self, sources: Sequence[str], request: str, epsilon: float | None = None, timeout: int = 120) -> None:
        super().__init__()
        self.sources, self.request, self.epsilon, self.timeout = list(sources), request, epsilon, timeout

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: the settings are read when the job runs."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing: what arrived is on the disk."""

    def process_result_of_unknown_task(self, client: Client, *_: object) -> None:
        """Ignore a reply that is late: the next message asks from the byte that is missing."""
        self.logger.info(f"A late reply of {client.name} is ignored.")

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Collect the releases and write what became of each source."""
        settings, folder = settings_of(fl_ctx, TARGET)
        trusted = settings.get("trusted")
        target = TargetParty(
            folder / "inbox",
            self.sources,
            self.request,
            epsilon=self.epsilon,
            trusted=None if trusted is None else TrustedKeys.read(folder / trusted),
            **{name: settings[name] for name in ("limit", "part", "patience") if name in settings},
        )
        found = target.collect(lambda messages: self._sent(messages, abort_signal, fl_ctx))
        write_json(target.folder / "collected.json", {"codes": found.codes, "cost": found.cost, "text": str(found)})

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


def settings_of(fl_ctx: FLContext, name: str) -> tuple[dict[str, Any], Path]:
    """Return a party's own settings, and the folder that their paths are relative to."""
    simulated = os.environ.get(SIMULATED)
    if simulated is not None:
        file = Path(simulated) / f"{name}.json"
    else:
        file = Path(fl_ctx.get_engine().get_workspace().get_site_config_dir()) / SETTINGS
    return json.loads(file.read_text(encoding="utf-8")), file.resolve().parent


def source_party(settings: Mapping[str, Any], folder: Path) -> SourceParty:
    """Return the source party of its settings: experiment, domain, budget, outbox and key, by paths in its own folder."""
    from datamodules import CrossDomainDataModule

    parsed = read_settings(folder / settings["config"], [])
    return SourceParty(
        make_publisher(parsed.publisher),
        instantiate("data", CrossDomainDataModule, parsed.data),
        settings["domain"],
        folder / settings["budget"],
        folder / settings["outbox"],
        None if settings.get("sign") is None else folder / settings["sign"],
    )
