"""A silo's process that waits `CONNECTING` seconds for its connection; NVFlare's own waits 15, and no setting changes that."""

from __future__ import annotations

import runpy
import time
from typing import Any

from nvflare.private.fed.client.communicator import Communicator

CONNECTING = 300


def wait_longer() -> None:
    """Let a silo register once it has a connection, also on a busy machine."""
    register = Communicator.client_registration

    def patiently(self: Any, *given: Any, **named: Any) -> Any:  # noqa: ANN401  NVFlare's own
        end = time.monotonic() + CONNECTING
        while not self.cell and time.monotonic() < end:
            time.sleep(0.5)
        return register(self, *given, **named)

    Communicator.client_registration = patiently


if __name__ == "__main__":
    wait_longer()
    runpy.run_module("nvflare.private.fed.app.client.client_train", run_name="__main__", alter_sys=True)
