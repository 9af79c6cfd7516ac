"""An interpreter that starts with its imports made, so that a killed party is back in a second instead of a minute.

One process makes the imports. `Prestart.python` is a program with the options of ``python``: it asks that process for a fork with
its own arguments, folder, environment and files, and ends as the fork does. If the program is killed, the fork is killed.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import multiprocessing.spawn
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

IMPORTS = {
    "zoo_nvflare": (
        "nvflare.private.fed.app.client.client_train",
        "nvflare.private.fed.app.server.server_train",
        "nvflare.private.fed.app.client.worker_process",
        "nvflare.private.fed.app.server.runner_process",
        "nvflare.cli",
        "nvflare.fuel.flare_api.flare_api",
        "zoo_nvflare.launcher",
        "zoo_nvflare.parties",
        "zoo_nvflare.sites",
    ),
    "zoo_flower": (
        "flwr.cli.app",
        "flwr.superlink.cli",
        "flwr.supernode.cli",
        "flwr.superlink.cli.flower_superlink",
        "zoo_flower.sites",
        "zoo_flower.supernode",
        "zoo_flower.superexec",
    ),
}
"""Imports of each carrier's package; those of the zoo come with all."""
ZOO = ("datamodules", "zoo.publishers", "zoo.runs.exchange", "zoo.commands.parties", "zoo.commands.privacy.plan")
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

CLIENT = """#!{python} -IS
import array, json, os, signal, socket, sys
end = socket.socket(socket.AF_UNIX)
end.connect({address!r})
files = [int(name) for name in os.listdir("/proc/self/fd")]
files = [file for file in files if os.path.exists(f"/proc/self/fd/{{file}}") and os.get_inheritable(file)]
asked = dict(argv=sys.argv, folder=os.getcwd(), environment=dict(os.environ), files=files, pid=os.getpid(), group=os.getpgid(0))
content = json.dumps(asked).encode()
end.sendmsg([len(content).to_bytes(8, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))])
end.sendall(content)
for number in {signals!r}:
    signal.signal(number, lambda number, _: end.sendall(bytes([number])))
for file in files:
    os.close(file)
status = end.recv(4)
if len(status) < 4:
    os._exit(1)
code = int.from_bytes(status, "big", signed=True)
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code not in (9, 19) else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class Prestart:
    """A process with the imports of a package, as a context.

    Args:
        package: Name of a carrier's package.
        folder: Where the program and its socket are put.
    """

    def __init__(self, package: str, folder: Path) -> None:
        self.folder, address = folder.resolve(), str(folder.resolve() / "socket")
        folder.mkdir(parents=True)
        names = {"python", *(script.name for script in entry_points(group="console_scripts") if "fl" in script.name)}
        base = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
        for name in names:
            text = CLIENT.format(python=base, address=address, signals=[int(number) for number in SIGNALS])
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)
        self.python = str(self.folder / "python")
        command = [sys.executable, __file__, address, self.python, *ZOO, *IMPORTS[package]]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"ready\n", "the imports failed"

    def __enter__(self) -> str:
        """Return the path of the program."""
        return self.python

    def __exit__(self, *_: object) -> None:
        """End the process and all its forks."""
        self.process.terminate()
        self.process.wait()


class _Fork:
    """A fork and the program that asked for it."""

    def __init__(self, end: socket.socket) -> None:
        self.end, self.pid, self.leads, self.ended = end, 0, False, False

    def kill(self) -> None:
        """Kill the fork; if it leads a group, the group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL) if self.leads else os.kill(self.pid, signal.SIGKILL)


def serve(address: str, python: str) -> None:
    """Fork for each program that asks, until SIGTERM or the end of the parent."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    listener.settimeout(0.02)
    gc.collect()
    gc.freeze()
    forks, groups = dict[int, _Fork](), dict[int, int]()
    ends = list[bool]()
    signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
    print("ready", flush=True)
    parent = os.getppid()
    while not ends and os.getppid() == parent:
        with suppress(TimeoutError):
            end, _ = listener.accept()
            end.settimeout(30)
            fork = _Fork(end)
            if _start(fork, groups, python, listener):
                forks[fork.pid] = fork
            end.setblocking(False)
        _reap(forks)
        for fork in [*forks.values()]:
            with suppress(BlockingIOError):
                try:
                    said = fork.end.recv(16)
                except ConnectionError:
                    said = b""
                for number in said:
                    with suppress(ProcessLookupError):
                        os.kill(fork.pid, number)
                if not said:
                    fork.kill()
                    fork.end.close()
                    os.waitpid(fork.pid, 0)
                    del forks[fork.pid]
    for fork in forks.values():
        fork.kill()


def _reap(forks: dict[int, _Fork]) -> None:
    """Tell each program whose fork has ended how it ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if (fork := forks.pop(pid, None)) is not None:
            with suppress(OSError):
                fork.end.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))
            fork.end.close()


def _start(fork: _Fork, groups: dict[int, int], python: str, listener: socket.socket) -> bool:
    """Fork as a program asks; return False if it was gone before."""
    try:
        size, files, *_ = socket.recv_fds(fork.end, 8, 250)
        content = b""
        while size and len(content) < int.from_bytes(size, "big"):
            part = fork.end.recv(2**16)
            if not part:
                return False
            content += part
    except OSError:
        return False
    asked = json.loads(content) if content else {}
    if asked:
        fork.leads = asked["pid"] == asked["group"]
        group = 0 if fork.leads else groups.get(asked["group"], asked["group"])
        fork.pid = os.fork()
        if fork.pid == 0:
            listener.close()
            fork.end.close()
            _become(asked, files, group, python)
        with suppress(OSError):
            os.setpgid(fork.pid, group)
        if fork.leads:
            groups[asked["group"]] = fork.pid
    for file in files:
        os.close(file)
    return bool(asked)


def _become(asked: dict[str, Any], files: Sequence[int], group: int, python: str) -> None:
    """Run in the fork what the program was asked to run, and end the process."""
    code = 1
    try:
        for number in (*SIGNALS, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        with suppress(OSError):
            os.setpgid(0, group)
        kept = [
            (os.dup2(file, 400 + at), wanted)
            for at, (file, wanted) in enumerate(zip(files, asked["files"], strict=True))
        ]
        os.closerange(3, 400)
        for file, wanted in kept:
            os.dup2(file, wanted)
            os.close(file)
        os.chdir(asked["folder"])
        os.environ.clear()
        os.environ.update(asked["environment"])
        added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:0] = [path for path in added if path and path not in sys.path]
        sys.executable = python
        multiprocessing.spawn.set_executable(python)
        code = _run(asked["argv"])
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # as an interpreter does
        sys.excepthook(*sys.exc_info())
    _end(code)


def _run(argv: list[str]) -> int:
    """Run the arguments of an interpreter, or a program by its name."""
    scripts = [script for script in entry_points(group="console_scripts") if script.name == Path(argv[0]).name]
    main = types.ModuleType("__main__")
    if scripts:
        sys.argv = argv
        called: Any = scripts[0].load()()
        return int(called or 0)
    at = 1
    while argv[at].startswith("-") and argv[at] not in ("-m", "-c"):
        at += 2 if argv[at] in ("-X", "-W") else 1
    if argv[at] == "-m":
        sys.argv = argv[at + 1 :]
        runpy.run_module(argv[at + 1], run_name="__main__", alter_sys=True)
    elif argv[at] == "-c":
        sys.argv = ["-c", *argv[at + 2 :]]
        sys.modules["__main__"] = main
        exec(argv[at + 1], main.__dict__)
    else:
        sys.argv = argv[at:]
        runpy.run_path(argv[at], run_name="__main__")
    return 0


def _end(code: int) -> None:
    """End as an interpreter does: wait for threads, call what is registered, flush."""
    with suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(code & 255)


if __name__ == "__main__":
    for name in sys.argv[3:]:
        importlib.import_module(name)
    assert threading.active_count() == 1, f"threads after the imports: {threading.enumerate()}"
    serve(sys.argv[1], sys.argv[2])
