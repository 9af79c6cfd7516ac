"""A SuperLink and a SuperNode that wait for a busy machine; the SuperNode runs the one app whose SHA-256 its owner wrote down.

Flower's ``--trusted-entities`` accepts apps that its hub signed, and refuses all others. Here the site itself signs the app that
it knows, in memory and with a key of this process, so Flower's own check refuses every other app before any of its code runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.supercore.primitives.asymmetric_ed25519 import create_message_to_sign
from flwr.supercore.retry import http_retry
from flwr.supernode import start_client_internal
from flwr.supernode.cli.flower_supernode import flower_supernode

from zoo_flower.superexec import be_patient, command_of

SITE = "site"


def run(arguments: list[str], app: str) -> None:
    """Run a SuperNode with the arguments of ``flower-supernode``, which accepts the app with this SHA-256 alone."""
    key, connect = Ed25519PrivateKey.generate(), start_client_internal._init_connection

    @contextmanager
    def connected(*given: Any, **named: Any) -> Iterator[Any]:  # noqa: ANN401  Flower's own
        with connect(*given, **named) as (node, receive, send, get_run, get_fab, *others):
            yield (node, receive, send, get_run, known_alone(get_fab, key, app), *others)

    start_client_internal._init_connection = connected
    http_retry.RetryInvoker = through_cuts(http_retry.RetryInvoker)  # type: ignore[misc, assignment]
    start_client_internal._pull_and_store_message = with_late_replies(start_client_internal._pull_and_store_message)
    be_patient()
    start_client_internal.subprocess = SimpleNamespace(Popen=lambda command: subprocess.Popen(command_of(command)))
    with tempfile.TemporaryDirectory(prefix="zoo-") as folder:
        trusted = Path(folder) / "trusted.yaml"
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        trusted.write_text(json.dumps({SITE: public}), encoding="utf-8")  # JSON is YAML
        sys.argv = ["flower-supernode", *arguments, "--trusted-entities", str(trusted)]
        flower_supernode()
    os._exit(1)  # the connection failed, and a thread of Flower would keep this process


def with_late_replies(pull: Callable[..., int | None]) -> Callable[..., int | None]:
    """Send a reply also where no message came before; to Flower's one a message, a reply of a run that died is one too many."""

    def pulled(**given: Any) -> int | None:  # noqa: ANN401  Flower's own
        if (number := pull(**given)) is not None:
            return number
        entries = [*given["state"].msg_store.values()]
        late = (each.message.metadata for each in entries if not each.is_retrieved)
        return next((found.run_id for found in late if found.reply_to_message_id), None)

    return pulled


def through_cuts(invoker: Callable[..., Any]) -> Callable[..., Any]:
    """Connect again unless a certificate is wrong; Flower gives up at every error of TLS, such as a handshake cut or too slow."""

    def made(**given: Any) -> Any:  # noqa: ANN401  Flower's own
        gives_up = given["should_giveup"]

        def hopeless(error: Exception) -> bool:
            return ("CERTIFICATE" in str(error) or "ssl" not in str(error)) and gives_up(error)

        return invoker(**{**given, "should_giveup": hopeless})

    return made


def serve() -> None:
    """Run a SuperLink with the arguments of the command line."""
    from importlib import import_module

    module = import_module("flwr.superlink.cli.flower_superlink")
    of_flower = module._get_superexec_command
    module._get_superexec_command = lambda *given, **named: command_of(of_flower(*given, **named))
    be_patient()
    module.flower_superlink()


def known_alone(get_fab: Callable[[str, int], Any], key: Ed25519PrivateKey, app: str) -> Callable[[str, int], Any]:
    """Return Flower's function that fetches an app, with the site's signature on the known one and none on others."""

    def fetched(digest: str, number: int) -> Any:  # noqa: ANN401  Flower's own
        fab = get_fab(digest, number)
        fab.verifications.clear()
        fab.verifications["valid_license"] = "by the site"
        if hashlib.sha256(fab.content).hexdigest() == app:
            signed_at = int(time.time())
            signature = key.sign(create_message_to_sign(hashlib.sha256(fab.content).digest(), signed_at))
            fab.verifications[SITE] = json.dumps({"signed_at": signed_at, "signature": _encoded(signature)})
        return fab

    return fetched


def _encoded(signature: bytes) -> str:
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(signature).rstrip(b"=").decode()
