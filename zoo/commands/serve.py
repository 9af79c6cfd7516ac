"""``python -m zoo serve``: answer requests for recommendations over HTTP. Imports are late, so that ``--help`` stays quick."""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.commands.recommend import PAIRS, UNKNOWN, ending_with_message, offer_data
from zoo.runtime.arguments import Arguments

if TYPE_CHECKING:
    from zoo.commands.http_gate import Traffic

#: Environment variable with the key that clients must send.
KEY = "ZOO_API_KEY"
#: Seconds that requests in work have when the service ends.
GRACE = 30.0


def parser() -> Arguments:
    """Options of the command."""
    made = Arguments(
        prog="python -m zoo serve",
        description="Answer requests for recommendations over HTTP: POST /recommend and /similar, GET /health and /metrics. The "
        "run may be a link: when it or the histories change, the workers load them without dropping requests. "
        f"If the environment variable {KEY} is set, clients must send it in the header X-API-Key. Needs the extra `serve`.",
    )
    option = made.add_argument
    option("run", type=Path, metavar="RUN", help="folder of a run or a bundle, or a link to one")
    option("--host", choices=("127.0.0.1", "0.0.0.0", "::"), default="127.0.0.1", help="address (default: %(default)s)")
    option("--port", type=int, default=8000, help="port, 1024 to 65535 (default: %(default)s)")
    option("--workers", type=int, default=1, help="processes that score, each with the model (default: %(default)s)")
    option("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    option(
        "--unknown",
        choices=UNKNOWN[1:],
        default="popular",
        help="users who are not in training, histories or a release: left out, or given popular items (default: %(default)s)",
    )
    option("--histories", type=Path, metavar="FILE", help=f"ratings since training: {PAIRS}")
    option("--max-ids", type=int, default=1000, help="users, or items of /similar, in a request (default: %(default)s)")
    option("--max-bytes", type=int, default=1 << 20, help="bytes of a request (default: %(default)s)")
    option(
        "--rate", type=float, default=0.0, help="requests a second of one address; 0: any number (default: %(default)s)"
    )
    offer_data(made)
    return made


def main(arguments: Sequence[str]) -> None:
    """Run the command until it is stopped; an expected error ends it with its message."""
    options = parser().parse_args(arguments)
    with ending_with_message():
        if min(options.workers, options.max_ids, options.max_bytes) < 1 or not options.rate >= 0:
            raise ValueError("--workers, --max-ids and --max-bytes must be at least 1, and --rate at least 0.")
        try:
            import litserve as _  # noqa: F401
        except ImportError as error:
            raise ValueError("`serve` needs LitServe. Run pip install 'cdr-zoo[serve]'.") from error
        from zoo.commands.http_gate import Traffic
        from zoo.commands.service_workers import Served, server

        options.key = os.environ.get(KEY, "")
        Served(options).load()  # refuse what no worker could load
        traffic = Traffic()
        made = server(options, traffic)
        # LitServe ends its thread like a process, and looks for lost workers after the end: it reports that both fail.
        expected = ("'terminate'", "Monitoring worker crashed")
        logging.getLogger("litserve.server").addFilter(
            lambda record: not any(said in record.getMessage() for said in expected[: 1 + traffic.ending])
        )
        signal.signal(signal.SIGTERM, partial(_stop, traffic))
        print(f"Serving {options.run} on http://{options.host}:{options.port}", flush=True)
        made.run(
            host=options.host,
            port=options.port,
            num_api_servers=1,
            api_server_worker_type="thread",
            log_level="warning",
            generate_client_file=False,
            proxy_headers=False,  # a client may write X-Forwarded-For itself
        )
        os._exit(0)  # the thread that listens has no end of its own


def _stop(traffic: Traffic, *_: object) -> None:
    """Answer the requests in work, then end as after Ctrl-C, which stops the workers too; a second signal changes nothing."""
    if traffic.ending:
        return
    traffic.ending, until = True, time.monotonic() + GRACE
    while traffic.open and time.monotonic() < until:
        time.sleep(0.05)
    raise KeyboardInterrupt
