"""``python -m zoo_flower``: provision the parties, run a silo, or run the target."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zoo.commands.parties import INCOMPLETE, provision_options, report_of, target_options, train

APP = Path(__file__).parent.parent
"""Folder of the Flower app: this package and its pyproject.toml."""
ATTEMPTS = 3
"""Runs of a request that wrote no report; the same request costs nothing."""
#: No telemetry, no question for updates at Flower's servers.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


def parser() -> argparse.ArgumentParser:
    """Options of the commands."""
    made = argparse.ArgumentParser(prog="python -m zoo_flower", description=__doc__)
    commands = made.add_subparsers(dest="command", required=True)
    each = {
        "provision": commands.add_parser(
            "provision", help="make the folders of all parties, with certificates and keys"
        ),
        "app": commands.add_parser("app", help="print the SHA-256 of the app that this installation has"),
        "silo": commands.add_parser("silo", help="run a source party until it is interrupted"),
        "target": commands.add_parser("target", help="run the target: collect the releases, then fit"),
    }
    for name in ("provision", "silo", "target"):
        each[name].add_argument("folder", type=Path, help="folder of the party, or of all")
    provision_options(each["provision"])
    target_options(each["target"])
    for name in ("silo", "target"):
        each[name].add_argument("--port", type=int, default=9443, help="port of the target (default: %(default)s)")
    each["silo"].add_argument("--app", help="SHA-256 of the app to accept (default: that of this installation)")
    each["silo"].add_argument("--once", action="store_true", help="end when the target cannot be reached")
    each["silo"].add_argument("--runtime-port", type=int, default=9094, help="local port of this silo's own processes")
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    options, fit = parser().parse_known_args(arguments)
    os.environ.update(QUIET)
    # Flower starts its own programs by name, also where this environment is not activated.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    match options.command:
        case "provision":
            from zoo_flower.sites import provision

            provision(options)
        case "app":
            print(hashlib.sha256(app_bundle()).hexdigest())
        case "silo" if not options.once:
            # Whatever ends a SuperNode, another one is started: a key not known yet, a connection that failed, memory.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # and `subprocess.run` ends the SuperNode
            while True:
                subprocess.run([sys.executable, "-m", "zoo_flower", *(arguments or sys.argv[1:]), "--once"])
                time.sleep(5)
        case "silo":
            from zoo_flower.supernode import run

            known = options.app or hashlib.sha256(app_bundle()).hexdigest()
            os.environ["FLWR_HOME"] = str(options.folder.resolve() / "flwr")
            run(silo_arguments(options.folder.resolve(), options.port, options.runtime_port), known)
        case "target":
            sys.exit(run_target(options, fit))


def app_bundle() -> bytes:
    """Return the app as Flower bundles it; the same files give the same bytes."""
    from flwr.cli.build import build_fab_from_disk

    return build_fab_from_disk(APP)


def silo_arguments(folder: Path, port: int, runtime_port: int) -> list[str]:
    """Return the arguments of ``flower-supernode``: TLS, the node's key, and no installations."""
    made = ["--superlink", f"127.0.0.1:{port}", "--root-certificates", str(folder / "ca.crt")]
    made += ["--auth-supernode-private-key", str(folder / "node"), "--host", "127.0.0.1", "--port", str(runtime_port)]
    made += ["--max-wait-time", str(86400 * 365)]  # Flower's own is a minute
    return [*made, "--node-config", f'folder="{folder}"']  # a SuperNode installs nothing unless it is told to


@contextmanager
def serving(folder: Path, port: int) -> Iterator[dict[str, str]]:
    """Run the target's SuperLink, and yield the environment of commands that ask it."""
    home = folder / "flwr"
    home.mkdir(exist_ok=True)
    connection = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\n'
    (home / "config.toml").write_text(f'{connection}root-certificates = "{folder / "ca.crt"}"\n', encoding="utf-8")
    environment = {**os.environ, **QUIET, "FLWR_HOME": str(home)}
    command = [sys.executable, "-c", "from zoo_flower.supernode import serve; serve()"]
    command += ["--ssl-certfile", str(folder / "server.crt"), "--ssl-keyfile", str(folder / "server.key")]
    command += ["--ssl-ca-certfile", str(folder / "ca.crt"), "--enable-supernode-auth"]
    command += ["--disable-runtime-dependency-installation"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--database", str(folder / "state.db")]
    with open(folder / "superlink.log", "ab") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield environment
    finally:
        server.terminate()
        try:
            server.wait(5)  # closing its connections takes half a minute
        except subprocess.TimeoutExpired:
            server.kill()


def asked(command: Sequence[str], environment: dict[str, str]) -> dict[str, Any]:
    """Return the JSON that a command of Flower prints."""
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    start = ended.stdout.find("{")
    found: dict[str, Any] = json.loads(ended.stdout[start:]) if start >= 0 else {}
    return found or {"success": False, "error-message": ended.stderr[-500:] + ended.stdout[-500:]}


def run_target(options: argparse.Namespace, fit: Sequence[str]) -> int:
    """Start the SuperLink, register the silos' keys, run the app, and train on what arrived; return the exit code."""
    folder = options.folder.resolve()
    report = report_of(folder, options.request)
    report.unlink(missing_ok=True)
    with serving(folder, options.port) as environment:
        nodes = registered(folder, environment, options.wait)
        print(f"Registered: {', '.join(nodes)}.", flush=True)
        wait_online([*nodes.values()], environment, options.wait)
        for _ in range(ATTEMPTS):
            if not report.is_file() and not run_app(nodes, options, environment):
                return INCOMPLETE
    return train(folder, options, [*nodes], fit)


def run_app(nodes: dict[str, str], options: argparse.Namespace, environment: dict[str, str]) -> bool:
    """Run the app until it ends; False if it did not start."""
    pairs = ",".join(f"{node}={name}" for name, node in nodes.items())
    settings = {"nodes": pairs, "request": options.request, "folder": str(options.folder.resolve())}
    given = " ".join(f'{name}="{value}"' for name, value in (settings | {"intersect": options.intersect or ""}).items())
    given += f" epsilon={options.epsilon or 0.0} timeout={float(options.timeout)}"
    started = asked(["flwr", "run", str(APP), "--run-config", given, "--format", "json"], environment)
    if not started.get("success"):
        print(f"The run did not start: {started.get('error-message')}", file=sys.stderr)
        return False
    print(f"Request {options.request!r} is run {started['run-id']}.", flush=True)
    wait_ended(str(started["run-id"]), environment)
    return True


def registered(folder: Path, environment: dict[str, str], seconds: float) -> dict[str, str]:
    """Register the public key of each silo once; return the node id of each by name."""
    known = folder / "nodes.json"
    nodes: dict[str, str] = json.loads(known.read_text(encoding="utf-8")) if known.is_file() else {}
    end = time.monotonic() + seconds
    for public in sorted(folder.glob("*.pub")):
        while public.stem not in nodes:
            found = asked(["flwr", "supernode", "register", str(public), "--format", "json"], environment)
            if "node-id" in found:
                nodes[public.stem] = str(found["node-id"])
            elif time.monotonic() > end:
                sys.exit(f"{public.stem} could not be registered: {found.get('error-message')}")
            else:
                time.sleep(2)
    known.write_text(json.dumps(nodes), encoding="utf-8")
    return nodes


def wait_online(nodes: Sequence[str], environment: dict[str, str], seconds: float) -> None:
    """Wait until all nodes are online, at most some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = json.dumps(asked(["flwr", "supernode", "list", "--format", "json"], environment))
        listed = {str(node.get("node-id")): str(node.get("status")) for node in json.loads(found).get("nodes", [])}
        if all(listed.get(node) == "online" for node in nodes):
            return
        time.sleep(2)


def wait_ended(number: str, environment: dict[str, str]) -> None:
    """Wait until a run has ended."""
    while True:
        found = asked(["flwr", "list", "--run-id", number, "--format", "json"], environment)
        status = next((str(run.get("status")) for run in found.get("runs", [])), "")
        if status.startswith("finished"):
            print(f"Run ended: {status}.", flush=True)
            return
        time.sleep(3)


if __name__ == "__main__":
    main()
