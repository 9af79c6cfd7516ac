"""Faults at random moments: ``python examples/carriers/faults.py messages|zoo_nvflare|zoo_flower [FAULT ...] --seed 0``.

`messages`: both parties in this process, and a carrier that loses, repeats and delays. A package: its parties as real processes.
Each moment is followed by the same request until it ends well. Then these hold, or the script fails: each folder that arrived
equals the one that was published, no request was published or charged twice, and no half-read folder was there before.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from prestart import Prestart

SOURCES = ("book", "film")
REPEATS = 6
"""Requests with the same id after a fault, at most."""


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder."""
    return {file.name: file.read_bytes() for file in folder.iterdir()}


class Watch:
    """What was published, and whether it stays so: one folder and one charge for each request.

    Args:
        outboxes: Folders of the sources' releases.
        budgets: Files of their budgets.
        inbox: Folder of the target.
    """

    def __init__(self, outboxes: Mapping[str, Path], budgets: Mapping[str, Path], inbox: Path) -> None:
        self.outboxes, self.budgets, self.inbox = outboxes, budgets, inbox
        self.published: dict[tuple[str, str], dict[str, bytes]] = {}

    def check(self, request: str, *, whole: bool) -> None:
        """Fail unless all that is here is right; ``whole``: unless all arrived too."""
        from zoo.privacy.spending.budget import Budget

        for name, outbox in self.outboxes.items():
            folder, arrived = outbox / request, self.inbox / request / name
            charges = [entry.request for entry in Budget(self.budgets[name]).entries].count(request)
            assert charges <= 1, f"{name} was charged {charges} times for {request}"
            if folder.is_dir():
                assert charges == 1, f"{name} published {request} without a charge"
                assert self.published.setdefault((request, name), contents(folder)) == contents(folder), name
            if arrived.is_dir():
                assert contents(arrived) == contents(folder), f"{name}: {request} arrived otherwise"
            assert not whole or arrived.is_dir(), f"{name}: {request} did not arrive"


# --- Both parties in this process ---------------------------------------------------------------------------------------------


class Carrier:
    """Messages between parties of this process, with one fault that begins at one of them."""

    def __init__(self, folder: Path) -> None:
        from zoo.privacy.accounting.relation import Relation
        from zoo.privacy.spending.budget import Budget, Cap

        self.folder, self.turn = folder, 0
        self.at, self.lasts, self.fault = -1, 0, ""
        self.replies: list[Mapping[str, bytes]] = []
        for name in SOURCES:
            (folder / name).mkdir(parents=True, exist_ok=True)
            Budget.create(folder / name / "budget.jsonl", Cap(8.0, 1e-5, Relation.CHANGE_ONE_RATING))
        outboxes = {name: folder / name / "outbox" for name in SOURCES}
        self.watch = Watch(outboxes, {name: folder / name / "budget.jsonl" for name in SOURCES}, folder / "target")
        self.start()

    def start(self) -> None:
        """Start all parties, of which only files stayed."""
        from datamodules import Synthetic
        from zoo import NoisyRows
        from zoo.runs.exchange import SourceParty, TargetParty

        data = Synthetic(sources=SOURCES, num_users=300, num_items=50)
        self.parties = {
            name: SourceParty(NoisyRows(epsilon=8.0), data, name, self.watch.budgets[name], self.watch.outboxes[name])
            for name in SOURCES
        }
        self.target = TargetParty(self.folder / "target", SOURCES, "first", part=4000)

    def send(self, messages: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Deliver messages; from the chosen turn on with the fault, for some turns."""
        self.turn += 1
        during = self.at <= self.turn < self.at + self.lasts
        if during and self.fault == "restart":
            raise InterruptedError
        handled = {name: self.parties[name].handle(message) for name, message in messages.items()}
        if during and self.fault == "twice":
            again = {name: self.parties[name].handle(message) for name, message in messages.items()}
            assert again == handled, "a repeated message got another reply"
            handled = dict(self.replies[-1]) if self.replies else handled  # the reply before, once more
        self.replies.append(handled)
        if during and self.fault == "late":
            return self.replies[max(0, len(self.replies) - 1 - self.lasts)] if self.turn > self.at else {}
        return {} if during and self.fault == "cut" else handled

    def ask(self) -> str:
        """Send the request once; return how it ended."""
        try:
            found = self.target.collect(self.send)
        except (InterruptedError, OSError) as error:
            return "restarted" if isinstance(error, InterruptedError) else f"the run ended: {error.strerror}"
        assert all(name in str(found) for name, code in found.codes.items() if code != "ok")
        return ", ".join(sorted({str(code) for code in found.codes.values()}))


def messages(fault: str, place: Path, draws: random.Random) -> Counter[str]:
    """Run one moment of a fault between parties of this process, and return how its requests ended."""
    seen, carrier = Counter[str](), Carrier(place)
    if fault.startswith("disk"):
        full = carrier.folder / ("target" if fault == "disk of the target" else "book")
        seen[carrier_with_full_disk(carrier, full, draws)] += 1
    else:
        carrier.fault, carrier.at, carrier.lasts = fault, draws.randint(1, 16), draws.randint(1, 6)
        seen[carrier.ask()] += 1
    carrier.watch.check("first", whole=False)
    for _ in range(REPEATS):
        if not (carrier.folder / "target" / "first" / "film").is_dir() or seen.total() == 1:
            carrier.fault = ""
            carrier.start()
            seen[f"then {carrier.ask()}"] += 1
    carrier.watch.check("first", whole=True)
    return seen


def carrier_with_full_disk(carrier: Carrier, folder: Path, draws: random.Random) -> str:
    """Ask while a party's folder has little space: a file system of its own in memory, filled but for a random rest."""
    kept = contents(folder) if folder.is_dir() else {}
    folder.mkdir(exist_ok=True)
    free = draws.randrange(0, 90_000, 4096)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)], check=True)
    try:
        for name, content in kept.items():
            (folder / name).write_bytes(content)
        space = os.statvfs(folder)
        (folder / "filler").write_bytes(b"x" * max(0, space.f_bavail * space.f_frsize - free))
        carrier.start()
        said = carrier.ask()
        carrier.watch.check("first", whole=False)
        (folder / "filler").unlink()
        carrier.start()
        assert carrier.ask() == "ok", "the same request, with space"
        carrier.watch.check("first", whole=True)
        copy = Path(tempfile.mkdtemp()) / "copy"
        subprocess.run(["cp", "-a", str(folder), str(copy)], check=True)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    subprocess.run(["cp", "-a", f"{copy}/.", str(folder)], check=True)
    return said


# --- Parties as real processes ------------------------------------------------------------------------------------------------


class Link:
    """A TCP connection from a silo to the target that can be cut."""

    def __init__(self, port: int) -> None:
        self.port, self.up, self.open = port, True, list[socket.socket]()
        self.server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self.server.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.port)) if self.up else None
            except OSError:
                far = None
            if far is None:
                near.close()
                continue
            self.open += [near, far]
            for pair in ((near, far), (far, near)):
                threading.Thread(target=self._copy, args=pair, daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while self.up and (data := source.recv(2**16)):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            end.close()

    def cut(self) -> None:
        """Close all connections and accept none."""
        self.up = False
        for end in self.open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self.open.clear()


class Federation:
    """Two silos and a target of a carrier's package, as process groups.

    Args:
        package: Name of the carrier's package.
        folder: Where the parties' folders are made.
        experiment: Experiment of all parties.
        commands: Whether each request is a target's command of its own.
    """

    def __init__(self, package: str, folder: Path, experiment: Path, *, commands: bool) -> None:
        self.package, self.folder, self.commands = package, folder, commands
        self.session: Any = None  # of NVFlare's admin, or the environment of Flower's commands
        self.nodes = dict[str, str]()
        self.stack = ExitStack()
        self.flare = package == "zoo_nvflare"
        self.port = free_port()
        command = ["provision", str(folder), "--config", str(experiment), "--sources", *SOURCES, "--epsilon-cap", "300"]
        subprocess.run(self._command(*command, *(["--port", str(self.port)] if self.flare else [])), check=True)
        self.local = {name: folder / name / ("local" if self.flare else ".") for name in ("target", *SOURCES)}
        settings = self.local["target"] / "zoo.json"
        if self.flare:  # many small messages, so that moments fall between them
            settings.write_text(json.dumps({**json.loads(settings.read_text()), "part": 60_000, "patience": 1}))
        outboxes = {name: self.local[name] / f"outbox-{name}" for name in SOURCES}
        budgets = {name: self.local[name] / f"{name}.budget.jsonl" for name in SOURCES}
        self.watch = Watch(outboxes, budgets, self.local["target"] / "inbox")
        self.link, self.runtime = Link(self.port), free_port()
        if self.flare:
            client = folder / "film" / "startup" / "fed_client.json"
            client.write_text(client.read_text().replace(str(self.port), str(self.link.server.getsockname()[1])))
        self.silos = {name: self.silo(name) for name in SOURCES}

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", self.package, *words]

    def silo(self, name: str) -> subprocess.Popen[bytes]:
        """Start a silo; `film` is connected by the link."""
        command = self._command("silo", str(self.folder / name))
        if not self.flare:
            port = self.link.server.getsockname()[1] if name == "film" else self.port
            command += ["--port", str(port), "--runtime-port", str(self.runtime + SOURCES.index(name))]
        with open(self.folder / f"{name}.log", "ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def target(self, request: str) -> subprocess.Popen[str]:
        """Start the target's command."""
        command = self._command(
            "target", str(self.folder / "target"), "--request", request, "--no-fit", "--timeout", "120"
        )
        command += ["--wait", "120", *([] if self.flare else ["--port", str(self.port)])]
        with open(self.folder / "target.err", "ab") as log:
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)

    def break_(self, fault: str) -> None:
        """Kill the silo `film`, or cut its link."""
        end_group(self.silos["film"]) if fault == "silo" else self.link.cut()

    def ask_job(self, request: str, fault: str = "", after: float = 0) -> tuple[str, float]:
        """Ask by a job of NVFlare on a server that stays, which saves the start of one."""
        from zoo_nvflare.__main__ import serving
        from zoo_nvflare.sites import write_job

        if self.session is None:
            self.session = self.stack.enter_context(serving(self.folder / "target", 300))
        end = time.monotonic() + 300
        while len(self.session.get_system_info().client_info) < len(SOURCES) and time.monotonic() < end:
            time.sleep(1)
        asked = argparse.Namespace(request=request, epsilon=None, timeout=20, intersect=None)
        report = self.watch.inbox / request / "collected.json"
        report.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            number, begin = (
                self.session.submit_job(str(write_job(Path(scratch) / "job", SOURCES, asked))),
                time.monotonic(),
            )
        if fault:
            time.sleep(after)
            self.break_(fault)
        self.session.monitor_job(number, timeout=900)
        seconds = time.monotonic() - begin
        return self.judged(request, report.read_text() if report.is_file() else ""), seconds

    def ask_run(self, request: str, fault: str = "", after: float = 0) -> tuple[str, float]:
        """Ask by a run of Flower on a SuperLink that stays."""
        from zoo_flower.__main__ import QUIET, registered, run_app, serving, wait_online

        folder = (self.folder / "target").resolve()
        if self.session is None:
            os.environ.update(QUIET)
            os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
            self.session = self.stack.enter_context(serving(folder, self.port))
            self.nodes = registered(folder, self.session, 300)
        wait_online([*self.nodes.values()], self.session, 120)
        report = self.watch.inbox / request / "collected.json"
        report.unlink(missing_ok=True)
        begin, breaking = time.monotonic(), threading.Timer(after, self.break_, [fault])
        if fault:
            breaking.start()
        asked = argparse.Namespace(request=request, epsilon=None, timeout=40, intersect=None, folder=folder)
        run_app(self.nodes, asked, self.session)
        seconds = time.monotonic() - begin
        if fault:
            breaking.join()
        return self.judged(request, report.read_text() if report.is_file() else ""), seconds

    def ask(self, request: str, fault: str = "", after: float = 0) -> tuple[str, float]:
        """Ask once, with a fault some seconds after the run began; return how it ended, and its seconds from there."""
        if not self.commands:
            return self.ask_job(request, fault, after) if self.flare else self.ask_run(request, fault, after)
        process = self.target(request)
        assert process.stdout is not None
        lines = list[str]()
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Request"):
                break
        begin = time.monotonic()
        if fault:
            time.sleep(after)
            end_group(process) if fault == "target" else self.break_(fault)
        lines += [*process.stdout]
        process.wait()
        seconds = time.monotonic() - begin
        if fault == "target" and process.returncode < 0:
            self.watch.check(request, whole=False)
            return "the target died", seconds
        return self.judged(request, "".join(lines)), seconds

    def judged(self, request: str, said: str) -> str:
        """Return how a request ended, by its report; fail unless the message names each silo without a release."""
        report = self.watch.inbox / request / "collected.json"
        if not report.is_file():
            self.watch.check(request, whole=False)
            return "the run wrote no report"
        codes = json.loads(report.read_text())["codes"]
        self.watch.check(request, whole={*codes.values()} == {"ok"})
        missing = [f"{name}: {codes[name]}" for name in SOURCES if codes[name] != "ok"]
        assert all(part in said for part in missing), "the message names each silo without a release"
        return ", ".join(missing) or "ok"

    def mend(self, fault: str) -> None:
        """Undo a fault; where the server stays, wait until `film` is connected again."""
        signs = {"link": ("SSL film] is created", "target/server.log"), "silo": ("Successfully registered", "film.log")}
        sign, log = signs.get(fault, ("", "film.log")) if self.flare else ("SuperNode ID", "film.log")
        before, end = self._count(sign, log) if self.session else 0, time.monotonic() + 300
        self.link.up = True
        if fault == "silo":
            self.silos["film"] = self.silo("film")
        while (
            self.session
            and (self.flare or fault == "silo")
            and self._count(sign, log) == before
            and time.monotonic() < end
        ):
            time.sleep(1)

    def _count(self, sign: str, log: str) -> int:
        return (self.folder / log).read_text(errors="replace").count(sign)

    def close(self) -> None:
        """End all parties."""
        self.stack.close()
        for silo in self.silos.values():
            end_group(silo)


def end_group(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    """Kill a process and all that it started, as a power cut does."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def free_port() -> int:
    """Return a port whose next one is free too."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            try:
                second.bind(("127.0.0.1", first.getsockname()[1] + 1))
            except OSError:
                continue
            return int(first.getsockname()[1])


@contextmanager
def federation(package: str, *, commands: bool) -> Iterator[Federation]:
    """Yield the parties of a package, running."""
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        sys.executable = stack.enter_context(Prestart(package, Path(place) / "prestarted"))
        made = Federation(
            package, Path(place) / "federation", Path(__file__).parent / "experiment.yaml", commands=commands
        )
        try:
            yield made
        finally:
            made.close()


def processes(parties: Federation, fault: str, request: str, after: float) -> Counter[str]:
    """Run one moment of a fault among real processes, and return how its requests ended."""
    seen = Counter([parties.ask(request, fault, after)[0]])
    parties.mend(fault)
    for _ in range(REPEATS):
        ended, _ = parties.ask(request)
        seen[f"then {ended}"] += 1
        if ended == "ok":
            break
    parties.watch.check(request, whole=True)
    return seen


def main() -> None:
    """Run faults and print a row of a table for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("carrier", choices=["messages", "zoo_nvflare", "zoo_flower"])
    parser.add_argument("faults", nargs="*")
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draws = random.Random(options.seed)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and end all parties
    if options.carrier == "messages":
        for fault in options.faults or ("twice", "late", "cut", "restart", "disk of a source", "disk of the target"):
            with tempfile.TemporaryDirectory() as place:
                ran = [messages(fault, Path(place) / str(at), draws) for at in range(options.moments)]
            print(f"| {fault} | {len(ran)} | {dict(sum(ran, Counter()))} |", flush=True)
        return
    for fault in options.faults or ("silo", "link", "target"):
        with federation(options.carrier, commands=fault == "target") as parties:
            parties.ask("first")
            ended, seconds = parties.ask("clean")
            assert ended == "ok", f"without a fault: {ended}"
            print(
                f"clean: {ended}, {seconds:.1f} s from the start of the run; load {os.getloadavg()[0]:.0f}", flush=True
            )
            seen = Counter[str]()
            for at in range(options.moments):
                after = draws.uniform(0, seconds)
                seen += (one := processes(parties, fault, f"{fault}-{at}", after))
                print(f"{time.strftime('%T')} {fault} {at} after {after:.1f} s: {dict(one)}", flush=True)
        print(f"| {fault} | {options.moments} | {dict(seen)} |", flush=True)


if __name__ == "__main__":
    main()
