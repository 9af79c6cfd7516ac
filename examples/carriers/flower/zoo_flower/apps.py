"""Apps: they carry the messages of `zoo.runs.exchange` between the target and the sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from time import monotonic, sleep

import httpx
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from zoo.commands.parties import SETTINGS, Party, replying

RECORD, CONTENT = "zoo", "content"
CONNECTING = 60
"""Seconds to wait for nodes that are not connected before a message; a node tries again after 20 at most."""
POLLING = 3
"""Seconds between two questions for replies."""
client = ClientApp()
server = ServerApp()


def carried(content: bytes) -> RecordDict:
    """Return bytes as the content of a message."""
    return RecordDict({RECORD: ConfigRecord({CONTENT: content})})


def content_of(message: Message) -> bytes:
    """Return the bytes of a message."""
    found = message.content[RECORD][CONTENT]
    if not isinstance(found, bytes):
        raise TypeError(f"The content is of type {type(found).__name__}. Allowed: bytes.")
    return found


@client.query("release")
def answer(message: Message, context: Context) -> Message:
    """Answer as a source party, by the settings in the folder that the site's own node config names."""
    folder = Path(str(context.node_config["folder"]))
    reply = replying(lambda: Party(folder / SETTINGS).handle(content_of(message)))
    return Message(carried(reply), reply_to=message)


@server.main()
def collect(grid: Grid, context: Context) -> None:
    """Collect the releases below ``inbox/REQUEST`` of the target's folder, and write what became of each source."""
    run = context.run_config
    nodes = {name: int(node) for node, name in (pair.split("=") for pair in str(run["nodes"]).split(","))}
    party = Party(Path(str(run["folder"])) / SETTINGS)
    send = sender(grid, nodes, "release", float(run["timeout"]))
    asked = {**run, "epsilon": run["epsilon"] or None}  # a run's settings have no null
    party.collect([*nodes], asked, send, part=2**26, patience=1)  # a message starts a process, so parts are large


def sender(
    grid: Grid, nodes: Mapping[str, int], kind: str, timeout: float
) -> Callable[[Mapping[str, bytes]], dict[str, bytes]]:
    """Return how messages reach the nodes.

    A node without a reply in time is absent from the result, and so counted. A reply that cannot be read becomes empty, and the
    target refuses it. Each reply is asked for alone: Flower does not check the sender that it names. One that Flower cannot read
    ends its request, and one that is never uploaded delays it by minutes. So all are asked for once more after the timeout.
    """

    def send(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        end = monotonic() + min(timeout, CONNECTING)
        while not {nodes[name] for name in messages} <= {*grid.get_node_ids()} and monotonic() < end:
            sleep(2)  # Flower answers for a node that is not connected at once
        made = [
            Message(carried(content), dst_node_id=nodes[name], message_type=f"query.{kind}")
            for name, content in messages.items()
        ]
        waiting = {asked: name for asked, name in zip(grid.push_messages(made), messages, strict=False) if asked}
        replies: dict[str, bytes] = {}
        end = monotonic() + timeout
        last = False
        while waiting and not last:
            last = monotonic() >= end
            for asked, name in [*waiting.items()]:
                if (found := replies_to(grid, asked)) is not None:
                    del waiting[asked]
                    replies.update((name, content) for content in found)
            sleep(POLLING if waiting and not last else 0)
        return replies

    return send


def replies_to(grid: Grid, asked: str) -> list[bytes] | None:
    """Return the reply to a message, none for an error of its node, and None before it is there."""
    try:
        found = [*grid.pull_messages([asked])]
        return [content_of(reply) for reply in found if not reply.has_error()] if found else None
    except httpx.HTTPError:  # of the target's own server
        raise
    except Exception:  # of a deviating node
        return [b""]
