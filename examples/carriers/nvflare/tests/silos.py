"""Silos as processes, and free ports."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

EXPERIMENT = Path(__file__).parents[2] / "experiment.yaml"
#: Runs of `zoo fit` by the tests: no epochs of an optimizer, no trackers.
FIT = ("--trainer.enable_progress_bar", "false")


class Silo:
    """A source party as a process group, which a test can kill and start again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start()

    def start(self) -> None:
        with open(self.folder / "silo.log", "ab") as log:
            command = [sys.executable, "-m", "zoo_nvflare", "silo", str(self.folder)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def kill(self) -> None:
        """Kill the silo and its job's process, as a power cut does."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    @property
    def log(self) -> str:
        return (self.folder / "silo.log").read_text(errors="replace")


def free_port() -> int:
    """A port whose next one is free too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            try:
                second.bind(("127.0.0.1", first.getsockname()[1] + 1))
            except OSError:
                continue
            return int(first.getsockname()[1])
