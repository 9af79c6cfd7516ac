"""``python -m zoo_nvflare``: provision the parties, run a silo, run the target, or simulate all of them."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from nvflare.apis.fl_exception import FLCommunicationError
from nvflare.fuel.flare_api.api_spec import NoConnection
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from zoo_nvflare import SIMULATED, TARGET
from zoo_nvflare.sites import ADMIN, CONTROLLER, EXECUTOR, provision, write_job, write_settings

_CONNECTING = 300  # seconds that the server has at least to start
INCOMPLETE = 3
"""Exit code if a source gave no release and the target did not train."""


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
    for name in ("provision", "simulate"):
        each[name].add_argument("--config", type=Path, required=True, help="experiment of all parties")
        each[name].add_argument("--sources", nargs="+", required=True, help="domains of the sources")
        each[name].add_argument(
            "--epsilon-cap", type=float, default=8.0, help="cap of each budget (default: %(default)s)"
        )
        each[name].add_argument("--delta", type=float, default=1e-5, help="delta of each budget (default: %(default)s)")
        each[name].add_argument("--relation", default="change_one_rating", help="of each budget")
    for name in ("provision", "simulate"):
        each[name].add_argument("folder", type=Path, help="folder to write")
    each["provision"].add_argument("--port", type=int, default=8002, help="port of the target (default: %(default)s)")
    for name in ("silo", "target"):
        each[name].add_argument("folder", type=Path, help="folder of the party")
    for name in ("target", "simulate"):
        each[name].add_argument("--request", default="first", help="id of the request; the same id resumes at no cost")
        each[name].add_argument("--epsilon", type=float, help="ask for at most this epsilon")
        each[name].add_argument(
            "--timeout", type=int, default=120, help="seconds for one message (default: %(default)s)"
        )
        each[name].add_argument("--without", action="store_true", help="train without sources that gave no release")
        each[name].add_argument(
            "--wait", type=float, default=120, help="seconds to wait for silos (default: %(default)s)"
        )
        each[name].add_argument("--no-fit", action="store_true", help="collect only")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    options, fit = parser().parse_known_args(arguments)
    if options.command in ("provision", "silo") and fit:
        sys.exit(f"error: unknown arguments: {fit}")
    if options.command in ("provision", "simulate"):
        from zoo.privacy.accounting.relation import Relation
        from zoo.privacy.spending.budget import Cap

        options.cap = Cap(options.epsilon_cap, options.delta, Relation(options.relation))
    match options.command:
        case "provision":
            provision(options.config, options.sources, options.folder, options.port, options.cap)
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
    module = f"nvflare.private.fed.app.{kind}.{kind}_train"
    command = [sys.executable, "-u", "-m", module, "-m", str(folder.resolve()), "-s", f"fed_{kind}.json"]
    return [*command, "--set", *settings.split()]


def _become(kind: str, folder: Path) -> None:
    command = process_of(kind, folder)
    os.execv(command[0], command)


def run_target(options: argparse.Namespace, fit: Sequence[str]) -> int:
    """Start the server, wait for the silos, submit the request, and train on what arrived; return the exit code."""
    folder = options.folder.resolve()
    _report(folder / "local", options.request).unlink(missing_ok=True)
    sources = silos_of(folder)
    with serving(folder, options.wait) as session:
        _wait_for_silos(session, sources, options.wait)
        with tempfile.TemporaryDirectory() as scratch:
            job = write_job(Path(scratch) / "release", sources, options.request, options.epsilon, options.timeout)
            number = session.submit_job(str(job))
        print(f"Request {options.request!r} is job {number}.", flush=True)
        print(f"Job ended: {session.monitor_job(number, timeout=3600).name}.", flush=True)
    return train(folder / "local", options, sources, fit)


def silos_of(folder: Path) -> list[str]:
    """Return the names of the silos that were provisioned with a target."""
    others = (other.name for other in folder.parent.iterdir() if (other / "local" / "zoo.json").is_file())
    return sorted(name for name in others if name != TARGET)


@contextmanager
def serving(folder: Path, seconds: float) -> Iterator[Session]:
    """Run the target's server, and yield a session of its admin."""
    with open(folder / "server.log", "ab") as log:
        server = subprocess.Popen(process_of("server", folder), stdout=log, stderr=log)
    session = None
    try:
        end = time.monotonic() + max(seconds, _CONNECTING)
        while session is None:
            try:
                session = new_secure_session(ADMIN, str(folder.parent / ADMIN), timeout=30)
            except (FLCommunicationError, NoConnection):  # a busy machine answers late
                if server.poll() is not None or time.monotonic() > end:
                    raise
        yield session
    finally:
        if session is not None:
            session.close()
        server.terminate()
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            server.kill()


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
    _report(folder, options.request).unlink(missing_ok=True)
    for name in (TARGET, *options.sources):
        if not (folder / f"{name}.json").exists():
            write_settings(folder / f"{name}.json", name, options.config, options.cap)
    with tempfile.TemporaryDirectory() as scratch:
        job = write_job(Path(scratch) / "release", options.sources, options.request, options.epsilon, options.timeout)
        local = Path(scratch) / "work" / "local"
        local.mkdir(parents=True)
        allowed = {"class_list_enforcement_mode": "enforce", "class_allow_list": [CONTROLLER, EXECUTOR]}
        (local / "resources.json").write_text(json.dumps(allowed), encoding="utf-8")
        command = [sys.executable, "-m", "nvflare.cli", "simulator", str(job), "-w", f"{scratch}/work"]
        command += ["-c", ",".join(options.sources), "-t", str(len(options.sources))]
        with open(folder / "simulator.log", "ab") as log:
            subprocess.run(command, env={**os.environ, SIMULATED: str(folder)}, stdout=log, stderr=log, check=False)
    return train(folder, options, options.sources, fit)


def _report(local: Path, request: str) -> Path:
    """Return the file with what became of each source, next to the releases."""
    return local / "inbox" / request / "collected.json"


def train(local: Path, options: argparse.Namespace, sources: Sequence[str], fit: Sequence[str]) -> int:
    """Fit on the releases that arrived; refuse missing ones unless they may be left out. Return the exit code."""
    report = _report(local, options.request)
    if not report.is_file():
        print("The job wrote no report. Run the same command again: the request resumes at no cost.", file=sys.stderr)
        return INCOMPLETE
    found = json.loads(report.read_text(encoding="utf-8"))
    print(found["text"])
    arrived = [source for source in sources if found["codes"].get(source) == "ok"]
    missing = sorted({*sources} - {*arrived})
    if missing and not (options.without and arrived):
        print(
            f"No release of {', '.join(missing)}: nothing was trained. Start these silos and run the same command again, or "
            "pass --without to train without them.",
            file=sys.stderr,
        )
        return INCOMPLETE
    if options.no_fit:
        return 0
    command = [sys.executable, "-m", "zoo", "fit", "--config", str(local / f"{TARGET}.yaml")]
    command += [f"--data.sources=[{','.join(arrived)}]"] if missing else []
    for source in arrived:
        command += [f"--data.releases.{source}", str(report.parent / source)]
    return subprocess.run([*command, *fit], check=False).returncode


if __name__ == "__main__":
    main()
