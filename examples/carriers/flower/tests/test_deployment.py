"""Real processes with TLS and a key for each node on loopback: one experiment in two forms, and parties that nobody knows."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from faults import contents, end_group, free_port

from zoo_flower.__main__ import main, registered, serving

EXPERIMENT = Path(__file__).parents[2] / "experiment.yaml"
SOURCES = ("book", "film")
FIT = ("--trainer.enable_progress_bar", "false")
pytestmark = pytest.mark.slow
Start = Callable[[Path], Path]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parties") / "federation"
    main(["provision", str(folder), "--config", str(EXPERIMENT), "--sources", *SOURCES])
    return folder


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture
def start(port: int) -> Iterator[Start]:
    """Start a silo, and return its log."""
    started = []

    def silo(folder: Path) -> Path:
        command = [sys.executable, "-m", "zoo_flower", "silo", str(folder), "--port", str(port)]
        with open(folder / "silo.log", "wb") as log:
            command += ["--runtime-port", str(free_port())]
            started.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        return folder / "silo.log"

    yield silo
    for process in started:
        end_group(process)


def wait_for(condition: Callable[[], bool], seconds: float = 600) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(1)


def metrics(root: Path) -> dict[str, float]:
    (file,) = root.rglob("metrics.json")
    found: dict[str, float] = json.loads(file.read_text())["metrics"]
    return found


def test_one_experiment_in_two_forms(federation: Path, port: int, start: Start, tmp_path: Path) -> None:
    """The releases arrive unchanged, and the target's metrics are those of `fit` in one place on the same folders."""
    for name in SOURCES:
        start(federation / name)
    roots = [tmp_path / form for form in ("deployment", "one place")]
    command = ["target", str(federation / "target"), "--port", str(port), "--wait", "600", *FIT]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--trainer.default_root_dir", str(roots[0])])
    assert ended.value.code == 0
    fit = [sys.executable, "-m", "zoo", "fit", "--config", str(EXPERIMENT), *FIT]
    fit += ["--trainer.default_root_dir", str(roots[1])]
    for name in SOURCES:
        published = federation / name / f"outbox-{name}" / "first"
        assert contents(federation / "target" / "inbox" / "first" / name) == contents(published)
        fit += [f"--data.releases.{name}", str(published)]
    subprocess.run(fit, check=True)
    assert metrics(roots[0]) == metrics(roots[1])


def test_silos_with_another_certificate_or_an_unknown_key_stay_outside(
    federation: Path, port: int, start: Start, tmp_path: Path
) -> None:
    """One trusts another authority, and so refuses the target; one has a key that the target did not register."""
    for name in ("other", "unknown"):
        shutil.copytree(federation / "film", tmp_path / name, ignore=shutil.ignore_patterns("flwr"))
    main(["provision", str(tmp_path / "elsewhere"), "--config", str(EXPERIMENT), "--sources", "film"])
    shutil.copy(tmp_path / "elsewhere" / "film" / "ca.crt", tmp_path / "other" / "ca.crt")
    key = ec.generate_private_key(ec.SECP384R1())
    (tmp_path / "unknown" / "node").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    with serving(federation / "target", port) as environment:
        nodes = registered(federation / "target", environment, 300)
        assert nodes.keys() == {*SOURCES}
        logs = {name: start(tmp_path / name) for name in ("other", "unknown")}
        said = federation / "target" / "superlink.log"
        before = said.read_text().count("Activated node_id")
        wait_for(lambda: "Failed to activate SuperNode" in logs["unknown"].read_text())
        wait_for(lambda: "CERTIFICATE_VERIFY_FAILED" in logs["other"].read_text())
        assert said.read_text().count("Activated node_id") == before
        assert "SuperNode ID" not in logs["other"].read_text() + logs["unknown"].read_text()
