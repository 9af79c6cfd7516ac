"""Silos as processes."""

import subprocess
import sys
from pathlib import Path

from faults import end_group

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
        end_group(self.process)

    @property
    def log(self) -> str:
        return (self.folder / "silo.log").read_text(errors="replace")
