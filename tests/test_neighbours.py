"""Neighbours: packages that people use with the zoo install together with it, by the ranges of pyproject.toml."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NEIGHBOURS = ("flwr", "nvflare", "datarec", "omnirec", "litserve")


@pytest.mark.slow  # asks an index for the metadata of 200 packages
def test_the_zoo_resolves_together_with_each_neighbour(tmp_path: Path) -> None:
    """Each alone, since neighbours may exclude one another; constraints are for the exact installation, and are not used."""
    uv = shutil.which("uv")
    if uv is None:
        pytest.skip("uv is not installed: pip install uv")
    failed = {}
    for neighbour in NEIGHBOURS:
        wanted = tmp_path / f"{neighbour}.in"
        wanted.write_text(f"cdr-zoo @ {ROOT.as_uri()}\n{neighbour}\n")
        command = [uv, "pip", "compile", "--quiet", "--python-version", "3.12", str(wanted)]  # omnirec needs 3.12
        ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=600)
        if ended.returncode and any(
            word in ended.stderr for word in ("error sending request", "Failed to fetch", "dns")
        ):
            pytest.skip(f"no network: {ended.stderr[-200:]}")
        if ended.returncode:
            failed[neighbour] = ended.stderr[-2000:]
    assert not failed, json.dumps(failed, indent=1)
