"""Parties of the tests, and the reason to skip them where NVFlare is not installed."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import free_port
from silos import EXPERIMENT, Silo

pytest.importorskip("nvflare", reason="not installed: pip install -e examples/carriers/nvflare")


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
