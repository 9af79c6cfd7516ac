"""Apps: they carry the messages of `zoo.runs.exchange` between the target and the sources, and rounds of FedGNN."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

RECORD, CONTENT = "zoo", "content"
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
    from zoo_flower.sites import source_party

    reply = source_party(Path(str(context.node_config["folder"]))).handle(content_of(message))
    return Message(carried(reply), reply_to=message)


@client.query("round")
def play(message: Message, context: Context) -> Message:
    """Play a round of FedGNN as the clients of this node, whose ratings the site's own settings name."""
    from zoo_flower.rounds import play_clients

    reply = play_clients(Path(str(context.node_config["folder"])), content_of(message))
    return Message(carried(reply), reply_to=message)


@server.main()
def collect(grid: Grid, context: Context) -> None:
    """Collect the releases below ``inbox/REQUEST`` of the target's folder, and write what became of each source."""
    from zoo_flower.sites import target_party

    settings = context.run_config
    nodes = {name: int(node) for node, name in (pair.split("=") for pair in str(settings["nodes"]).split(","))}
    target = target_party(Path(str(settings["folder"])), settings, list(nodes))
    found = target.collect(sender(grid, nodes, "release", float(settings["timeout"])))
    report = {"codes": found.codes, "cost": found.cost, "text": str(found)}
    (target.folder / "collected.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def sender(
    grid: Grid, nodes: Mapping[str, int], kind: str, timeout: float
) -> Callable[[Mapping[str, bytes]], dict[str, bytes]]:
    """Return how messages reach the nodes; a node without a reply in time is absent from the result, and so counted."""
    names = {node: name for name, node in nodes.items()}

    def send(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        made = [
            Message(carried(content), dst_node_id=nodes[name], message_type=f"query.{kind}")
            for name, content in messages.items()
        ]
        replies: dict[str, bytes] = {}
        for reply in grid.send_and_receive(made, timeout=timeout):
            name = names.get(reply.metadata.src_node_id)  # the node that the key in the registration authenticates
            if name is not None and not reply.has_error():
                replies[name] = content_of(reply)
        return replies

    return send


def settings_of(folder: Path) -> dict[str, Any]:
    """Return a party's own settings."""
    found: dict[str, Any] = json.loads((folder / "zoo.json").read_text(encoding="utf-8"))
    return found
