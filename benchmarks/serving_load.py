"""Load a service of a run on loopback: seconds until the answer at 1, 8 and 64 clients, and while a worker is killed.

``python benchmarks/serving_load.py NAME=RUN ... [--requests N] [--workers N] > docs/serving/load.csv`` starts the service of
each run, sends N requests of one user and ten items in each step, and prints a line for each step. In the step ``kill`` a worker
gets SIGKILL after a third of the requests.
"""

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local

import numpy as np

import zoo

PORT = 8765
CLIENTS = (1, 8, 64)


def workers(pid: int) -> list[int]:
    """Return the processes of a service that score."""
    children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
    return [child for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def asker(users: list[str]) -> Callable[[int], tuple[int, float]]:
    """Return a function that sends a request and returns status and seconds; each thread has its own connection."""
    own = local()

    def ask(number: int) -> tuple[int, float]:
        began, body = time.perf_counter(), json.dumps({"user_ids": [users[number % len(users)]]})
        if not hasattr(own, "connection"):
            own.connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=90)
        own.connection.request("POST", "/recommend", body)
        answer = own.connection.getresponse()
        answer.read()
        return answer.status, time.perf_counter() - began

    return ask


def wait_until_ready() -> None:
    """Wait until the service answers."""
    for _ in range(1200):
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=10)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.25)
    raise TimeoutError("The service did not start in five minutes.")


def measure(name: str, run: str, options: argparse.Namespace) -> None:
    """Print the lines of a run."""
    users = zoo.load(run).user_ids
    command = [sys.executable, "-m", "zoo", "serve", run, "--port", str(PORT), "--workers", str(options.workers)]
    with subprocess.Popen(command, stdout=sys.stderr) as process:
        try:
            wait_until_ready()
            ask = asker(users)
            for step in (*CLIENTS, "kill"):
                clients = 8 if step == "kill" else int(step)
                with ThreadPoolExecutor(clients) as pool:
                    began = time.perf_counter()
                    waiting = [pool.submit(ask, number) for number in range(options.requests)]
                    if step == "kill":
                        waiting[options.requests // 3].result()
                        os.kill(workers(process.pid)[0], signal.SIGKILL)
                    found = [future.result() for future in waiting]
                    rate = options.requests / (time.perf_counter() - began)
                answered = sum(status == 200 for status, _ in found)
                p50, p99 = np.percentile([seconds * 1000 for _, seconds in found], [50, 99])
                values = (name, step, clients, options.workers, options.requests, answered)
                print(*values, f"{p50:.1f}", f"{p99:.1f}", f"{rate:.0f}", sep=",", flush=True)
        finally:
            process.terminate()


def main() -> None:
    """Print a CSV file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    print("method,step,clients,workers,requests,answered,p50_ms,p99_ms,requests_per_second")
    for given in options.runs:
        measure(*given.split("=", 1), options)


if __name__ == "__main__":
    main()
