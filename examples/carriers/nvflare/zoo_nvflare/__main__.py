"""``python -m zoo_nvflare``: provision the parties, run a silo, run the target, or simulate all of them."""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.flare_api.api_spec import NoConnection
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from zoo.commands.parties import SETTINGS, TARGET, provision_options, report_of, target_options, train, write_settings
from zoo_nvflare import SIMULATED
from zoo_nvflare.sites import ADMIN, CONTROLLER, EXECUTOR, keep_jobs_here, provision, write_job

_CONNECTING = 300  # seconds that the server has at least to start
_OUTCOME = 10  # seconds that a job waits at its end for a silo that died or was cut off; NVFlare's own are 900


def parser() -> argparse.ArgumentParser:
    """Options of the commands."""
    made = argparse.ArgumentParser(prog="python -m zoo_nvflare", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    each = {
        "provision": commands.add_parser("provision", help="make the folders of all parties, with certificates"),
        "silo": commands.add_parser("silo", help="run a source party until it is interrupted"),
        "target": commands.add_parser("target", help="run the target: collect the releases, then fit"),
        "simulate": commands.add_parser("simulate", help="the same in NVFlare's simulator, without network and TLS"),
    }
    for name, command in each.items():
        command.add_argument("folder", type=Path, help="folder of the party, or of all")
        if name in ("provision", "simulate"):
            provision_options(command)
        if name in ("target", "simulate"):
            target_options(command)
    each["provision"].add_argument("--port", type=int, default=8002, help="port of the target (default: %(default)s)")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    options, fit = parser().parse_known_args(arguments)
    if options.command in ("provision", "silo") and fit:
        sys.exit(f"error: unknown arguments: {fit}")
    match options.command:
        case "provision":
            provision(options)
        case "silo":
            _become("client", options.folder)
        case "target":
            sys.exit(run_target(options, fit))
        case "simulate":
            sys.exit(simulate(options, fit))


def process_of(kind: str, folder: Path) -> list[str]:
    """Return the command of a party's process, as the kit's own ``start.sh`` has it; ``kind`` is server or client."""
    started = (folder / "startup" / "sub_start.sh").read_text(encoding="utf-8")
    settings = next(line for line in started.splitlines() if "--set secure_train=true" in line).split("--set ")[1]
    module = "zoo_nvflare.client" if kind == "client" else "nvflare.private.fed.app.server.server_train"
    command = [sys.executable, "-u", "-m", module, "-m", str(folder.resolve()), "-s", f"fed_{kind}.json"]
    return [*command, "--set", *settings.split()]


def _become(kind: str, folder: Path) -> None:
    command = process_of(kind, folder)
    os.execv(command[0], command)


def run_target(options: argparse.Namespace, fit: Sequence[str]) -> int:
    """Start the server, wait for the silos, submit the request, and train on what arrived; return the exit code."""
    folder = options.folder.resolve()
    report_of(folder / "local", options.request).unlink(missing_ok=True)
    sources = silos_of(folder)
    settings = json.loads((folder / "local" / SETTINGS).read_text(encoding="utf-8"))
    most = (settings.get("seconds") or 3000) + options.timeout + 600  # all messages, the last one, and the start
    with serving(folder, options.wait) as session:
        _wait_for_silos(session, sources, options.wait)
        with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
            job = write_job(Path(scratch) / "release", sources, options)
            number = session.submit_job(str(job))
        print(f"Request {options.request!r} is job {number}.", flush=True)
        ended = session.monitor_job(number, timeout=most).name
        if ended == "TIMEOUT":
            session.abort_job(number)  # or its processes stay
        print(f"Job ended: {ended}.", flush=True)
    return train(folder / "local", options, sources, fit)


def silos_of(folder: Path) -> list[str]:
    """Return the names of the silos that were provisioned with a target."""
    others = (other.name for other in folder.parent.iterdir() if (other / "local" / SETTINGS).is_file())
    return sorted(name for name in others if name != TARGET)


@contextmanager
def serving(folder: Path, seconds: float) -> Iterator[Session]:
    """Run the target's server, and yield a session of its admin."""
    folder = folder.resolve()
    keep_jobs_here(folder)
    environment = {**os.environ, "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": str(_OUTCOME)}
    with open(folder / "server.log", "ab") as log:
        server = subprocess.Popen(process_of("server", folder), env=environment, stdout=log, stderr=log)
    session = None
    try:
        session = _session(folder, server, max(seconds, _CONNECTING))
        yield session
    finally:
        if session is not None:
            session.close()
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()


def _session(folder: Path, server: subprocess.Popen[bytes], seconds: float) -> Session:
    """Return a session of the admin once the server listens; NVFlare's hangs where it asks before."""
    service = json.loads((folder / "startup" / "fed_server.json").read_text(encoding="utf-8"))["servers"][0]["service"]
    host, port = service["target"].split(":")
    found, end = SimpleQueue[Session | Exception](), time.monotonic() + seconds

    def ask() -> None:
        try:
            found.put(new_secure_session(ADMIN, str(folder.parent / ADMIN), timeout=30))
        except (FLCommunicationError, NoConnection) as error:  # a busy machine answers late
            found.put(error)

    while server.poll() is None and time.monotonic() < end:
        with suppress(OSError, Empty):
            for number in (int(port), int(port) + 1):  # of the silos, and of the admin
                socket.create_connection((host, number), timeout=5).close()
            Thread(target=ask, daemon=True).start()
            answer = found.get(timeout=60)
            if isinstance(answer, Session):
                return answer
        time.sleep(1)
    sys.exit(f"The server did not start in {seconds:g} seconds. Read {folder / 'server.log'}.")


def _wait_for_silos(session: Session, sources: Sequence[str], seconds: float) -> None:
    """Wait until all silos are connected, at most some seconds; then go on with those that are."""
    end = time.monotonic() + seconds
    while True:
        there = {client.name for client in session.get_system_info().client_info}
        if there >= {*sources} or (there and time.monotonic() > end):
            print(f"Connected: {', '.join(sorted(there))}.")
            return
        if time.monotonic() > end:
            sys.exit(f"No silo of {', '.join(sources)} connected in {seconds:g} seconds. Start them: zoo_nvflare silo.")
        time.sleep(1)


def simulate(options: argparse.Namespace, fit: Sequence[str]) -> int:
    """Run all parties in NVFlare's simulator, each by its own settings in ``folder``; the same folder again resumes."""
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    report_of(folder, options.request).unlink(missing_ok=True)
    for name in (TARGET, *options.sources):
        if not (folder / f"{name}.json").exists():
            write_settings(folder / f"{name}.json", name, options)
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        job = write_job(Path(scratch) / "release", options.sources, options)
        local = Path(scratch) / "work" / "local"
        local.mkdir(parents=True)
        allowed = {"class_list_enforcement_mode": "enforce", "class_allow_list": [CONTROLLER, EXECUTOR]}
        (local / "resources.json").write_text(json.dumps(allowed), encoding="utf-8")
        command = [sys.executable, "-m", "nvflare.cli", "simulator", str(job), "-w", f"{scratch}/work"]
        command += ["-c", ",".join(options.sources), "-t", str(len(options.sources))]
        with open(folder / "simulator.log", "ab") as log:
            subprocess.run(command, env={**os.environ, SIMULATED: str(folder)}, stdout=log, stderr=log, check=False)
    return train(folder, options, options.sources, fit)


if __name__ == "__main__":
    main()
