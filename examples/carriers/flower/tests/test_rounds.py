"""A round of FedGNN with its clients on several nodes equals the round in one process."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from zoo import FedGNN
from zoo.methods.federated.updates import weighted_mean
from zoo_flower.rounds import mean_of_round, model_of, play_message

CLIENTS = 20


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(
        "model: {class_path: zoo.FedGNN, init_args: {num_factors: 8}}\n"
        "data: {class_path: datamodules.Synthetic, init_args: {sources: [], num_users: 40, num_items: 30}}\n"
    )
    return path


def drawn(model: FedGNN, users: torch.Tensor) -> list[torch.Tensor]:
    """Uniform numbers for the negatives of each client."""
    generator = torch.Generator().manual_seed(1)
    counts = model.target_rows.counts()[users].tolist()
    shapes = [(int(count), model.num_negatives) for count in counts]
    return [torch.rand(shape, generator=generator, dtype=torch.float64) for shape in shapes]


@pytest.mark.parametrize("nodes", [1, 4, CLIENTS])
def test_a_round_over_nodes_is_the_round_of_one_process(experiment: Path, nodes: int) -> None:
    alone, users = model_of(experiment), torch.arange(CLIENTS)
    uniform = drawn(alone, users)
    updates, vectors, _ = alone.play(users, lambda _: torch.cat(uniform))
    expected = weighted_mean(updates, len(alone.items))

    models = {str(at): model_of(experiment) for at in range(nodes)}
    parts = torch.chunk(users, nodes)
    numbers = [torch.cat([uniform[user] for user in part.tolist()]) for part in parts]

    def send(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        return {name: play_message(models[name], message) for name, message in messages.items()}

    found = mean_of_round(alone, parts, numbers, send)
    torch.testing.assert_close(found.table, expected.table)
    torch.testing.assert_close(found.shared, expected.shared)
    for at, part in enumerate(parts):
        torch.testing.assert_close(models[str(at)].own_vectors()[part], vectors[part])


def test_a_round_with_a_missing_node_is_no_round(experiment: Path) -> None:
    model, users = model_of(experiment), torch.arange(2)
    numbers = drawn(model, users)
    with pytest.raises(RuntimeError, match=r"Asked 2 nodes, 1 did not reply: \['1'\]"):
        mean_of_round(model, torch.chunk(users, 2), numbers, lambda sent: {"0": play_message(model, sent["0"])})
