"""Rounds of FedGNN over a carrier: clients play on their own ratings, the server averages; equal to the round in one process.

In a round each client gets the public item vectors and attention, and uniform numbers for its negatives, which the server
of this experiment draws so that a round in one process has the same. Its own vector stays at the client.

No app of this package answers a round: updates without noise reveal a client's ratings to anyone who asks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load, save
from torch import Tensor

from zoo import FedGNN
from zoo.commands.parties import FAILED
from zoo.methods.federated.updates import ClientUpdates, Mean, weighted_mean


def message_of(model: FedGNN, users: Tensor, uniform: Tensor) -> bytes:
    """Return the server's message to some clients: users (clients,), uniform numbers (entries, negatives), and weights."""
    weights = {f"weight.{name}": part.detach().contiguous() for name, part in model.named_parameters()}
    return save({"users": users, "uniform": uniform.contiguous(), **weights})


def play_message(model: FedGNN, message: bytes) -> bytes:
    """Play a round as the clients of a message; return their updates and losses, without their own vectors."""
    parts = load(message)
    given = {name.removeprefix("weight."): part for name, part in parts.items() if name.startswith("weight.")}
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(given[name])

    def uniform(shape: Sequence[int]) -> Tensor:
        if tuple(shape) != tuple(parts["uniform"].shape):
            raise ValueError(f"uniform has the shape {tuple(parts['uniform'].shape)}. Needed: {tuple(shape)}.")
        return parts["uniform"]

    updates, vectors, losses = model.play(parts["users"], uniform)
    model.own_vectors()[parts["users"]] = vectors
    shared = {f"shared.{name}": part.contiguous() for name, part in updates.shared.items()}
    own = {
        "clients": updates.clients,
        "rows": updates.rows,
        "differences": updates.differences,
        "weights": updates.weights,
    }
    return save({**{name: part.contiguous() for name, part in own.items()}, "losses": losses.contiguous(), **shared})


def joined(replies: Sequence[bytes]) -> ClientUpdates:
    """Return the updates of all replies, in order."""
    parts, done, clients = [load(reply) for reply in replies], 0, []
    for part in parts:
        clients.append(part["clients"] + done)
        done += len(part["weights"])
    shared = [name for name in parts[0] if name.startswith("shared.")]

    def together(name: str) -> Tensor:
        return torch.cat([part[name] for part in parts])

    named = {name.removeprefix("shared."): together(name) for name in shared}
    return ClientUpdates(torch.cat(clients), together("rows"), together("differences"), named, together("weights"))


def mean_of_round(
    model: FedGNN,
    users: Sequence[Tensor],
    uniform: Sequence[Tensor],
    send: Callable[[Mapping[str, bytes]], Mapping[str, bytes]],
) -> Mean:
    """Run a round over nodes that each have some clients, and return the server's mean.

    Raises:
        RuntimeError: A node did not reply, or failed. The round is not counted, since its mean would be of other clients.
    """
    messages = {str(at): message_of(model, *each) for at, each in enumerate(zip(users, uniform, strict=True))}
    replies = {name: reply for name, reply in send(messages).items() if reply != FAILED}
    if missing := sorted(messages.keys() - replies.keys()):
        raise RuntimeError(f"Asked {len(messages)} nodes, {len(missing)} did not reply: {missing}. Repeat the round.")
    return weighted_mean(joined([replies[name] for name in messages]), len(model.items))


def model_of(config: Path) -> FedGNN:
    """Return the FedGNN of an experiment with its data, ready for a round, as `fit` makes it."""
    from pytorch_lightning import seed_everything

    from datamodules import CrossDomainDataModule
    from zoo.commands.privacy.plan import read_settings
    from zoo.methods.base import Recommender
    from zoo.runs.inputs import instantiate

    settings = read_settings(config, [])
    seed_everything(0, verbose=False)
    model, data = (
        instantiate("model", Recommender, settings.model),
        instantiate("data", CrossDomainDataModule, settings.data),
    )
    if not isinstance(model, FedGNN):
        raise TypeError(f"The model is {type(model).__name__}. Allowed: FedGNN.")
    data.read_target()
    model.build(data.sizes)
    model.read_data(data)
    return model
