"""Parties of the tests, and the reason to skip them where NVFlare is not installed."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="not installed: pip install -e examples/carriers/nvflare")

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


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of the target and of the sources `book` and `film`, whose budgets pay for two releases."""
    folder = tmp_path_factory.mktemp("parties") / "federation"
    command = [sys.executable, "-m", "zoo_nvflare", "provision", str(folder), "--config", str(EXPERIMENT)]
    command += ["--sources", "book", "film", "--epsilon-cap", "13", "--port", str(free_port())]
    subprocess.run(command, check=True)
    return folder


@pytest.fixture(scope="module")
def silos(federation: Path) -> Iterator[dict[str, Silo]]:
    """Both sources, running."""
    made = {name: Silo(federation / name) for name in ("book", "film")}
    yield made
    for silo in made.values():
        if silo.process.poll() is None:
            silo.kill()
