"""A round of FedGNN with its clients on several nodes equals the round in one process; nodes that connect late."""

from collections.abc import Mapping
from pathlib import Path
from unittest.mock import Mock

import httpx
import pytest
import torch
from flwr.supercore.retry import http_retry

from zoo import FedGNN
from zoo.commands.parties import FAILED
from zoo.methods.federated.updates import weighted_mean
from zoo_flower import apps
from zoo_flower.rounds import mean_of_round, model_of, play_message
from zoo_flower.supernode import through_cuts, with_late_replies

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


def test_no_text_of_an_error_leaves_a_node(tmp_path: Path, experiment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower would send it to the target; a node that failed counts as one without a reply."""
    (tmp_path / "zoo.json").write_text('{"config": "experiment.yaml"}')
    experiment.write_text("data: {class_path: datamodules.Synthetic, init_args: {seed: rated 5}}\n")
    monkeypatch.setattr(apps, "Message", lambda content, reply_to: Mock(content=content, reply_to=reply_to))
    reply = apps.answer(Mock(content=apps.carried(b"x")), Mock(node_config={"folder": str(tmp_path)}))
    assert apps.content_of(reply) == FAILED


def test_a_silo_answers_requests_for_releases_alone() -> None:
    assert {*apps.client._registered_funcs} == {"query.release"}


@pytest.mark.parametrize("reply", [{}, {"1": FAILED}])
def test_a_round_with_a_missing_node_is_no_round(experiment: Path, reply: dict[str, bytes]) -> None:
    model, users = model_of(experiment), torch.arange(2)
    numbers = drawn(model, users)
    with pytest.raises(RuntimeError, match=r"Asked 2 nodes, 1 did not reply: \['1'\]"):
        mean_of_round(
            model, torch.chunk(users, 2), numbers, lambda sent: {"0": play_message(model, sent["0"]), **reply}
        )


def test_a_message_waits_for_a_node_that_is_not_connected_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    online: list[list[int]] = [[2], [1, 2]]
    monkeypatch.setattr(apps, "sleep", lambda _: None)
    monkeypatch.setattr(apps, "Message", Mock())
    grid = Mock(get_node_ids=lambda: online.pop(0))
    grid.push_messages.return_value = [None]
    assert apps.sender(grid, {"book": 1, "film": 2}, "release", 300)({"book": b"x"}) == {}
    assert not online


def test_a_deviating_node_neither_stops_another_nor_takes_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def replying(content: object, failed: bool = False) -> list[Mock]:  # each names node 1 as its sender
        return [Mock(content=content, metadata=Mock(src_node_id=1), has_error=lambda: failed)]

    def pull(asked: list[str]) -> list[Mock]:
        if asked == ["unreadable"]:
            raise KeyError("a class that Flower does not know")
        return replies[asked[0]].pop(0)

    empty, other = apps.RecordDict({}), apps.RecordDict({"zoo": apps.ConfigRecord({"content": "text"})})
    replies = {
        "honest": [[], replying(apps.carried(b"book"))],
        "empty": [replying(empty)],
        "text": [replying(other)],
        "forged": [replying(apps.carried(b"other"))],
        "failed": [replying(empty, failed=True)],
    }
    names = ["honest", "unreadable", "empty", "text", "forged", "failed"]
    monkeypatch.setattr(apps, "sleep", lambda _: None)
    monkeypatch.setattr(apps, "Message", Mock())
    grid = Mock(get_node_ids=lambda: range(1, 7), pull_messages=pull)
    grid.push_messages.return_value = names
    send = apps.sender(grid, {name: node + 1 for node, name in enumerate(names)}, "release", 300)
    refused = dict.fromkeys(("unreadable", "empty", "text"), b"")
    assert send(dict.fromkeys(names, b"x")) == {"honest": b"book", "forged": b"other", **refused}
    grid.pull_messages = Mock(side_effect=httpx.ConnectError("the target's own server"))
    with pytest.raises(httpx.ConnectError):
        send({"honest": b"x"})


@pytest.mark.parametrize(("late", "slow"), [(200, 0), (20, 180), (290, 400)])
def test_a_reply_within_the_timeout_is_taken_beside_a_slow_node(
    monkeypatch: pytest.MonkeyPatch, late: float, slow: float
) -> None:
    """Flower waits for a reply that its node announced and does not upload; the timeout ends the wait for one without any."""
    now = [0.0]

    def wait(seconds: float) -> None:
        now[0] += seconds

    def pull(asked: list[str]) -> list[Mock]:
        arrived = asked == ["late"] and now[0] >= late
        wait(slow if asked == ["slow"] else 0)
        return [Mock(content=apps.carried(b"x"), has_error=lambda: False)] if arrived else []

    for name, double in {"sleep": wait, "monotonic": lambda: now[0], "Message": Mock()}.items():
        monkeypatch.setattr(apps, name, double)
    grid = Mock(get_node_ids=lambda: [1, 2], pull_messages=pull)
    grid.push_messages.return_value = ["late", "slow"]
    assert apps.sender(grid, {"late": 1, "slow": 2}, "release", 300)({"late": b"", "slow": b""}) == {"late": b"x"}
    assert 300 <= now[0] <= 300 + apps.POLLING + 2 * slow


@pytest.mark.parametrize("error", ["The handshake operation timed out", "EOF occurred", "CERTIFICATE_VERIFY_FAILED"])
def test_only_a_wrong_certificate_ends_a_connection(monkeypatch: pytest.MonkeyPatch, error: str) -> None:
    monkeypatch.setattr(http_retry, "RetryInvoker", through_cuts(http_retry.RetryInvoker))
    gives_up = http_retry.make_simple_http_retry_invoker().should_giveup
    assert gives_up is not None
    assert gives_up(httpx.ConnectError(f"{error} (_ssl.c:1006)")) is (error == "CERTIFICATE_VERIFY_FAILED")


@pytest.mark.parametrize(("reply", "sent"), [("to", 3), ("", None)])
def test_a_reply_that_is_left_is_sent_without_another_message(reply: str, sent: int | None) -> None:
    metadata = Mock(run_id=3, reply_to_message_id=reply)
    store = {"new": Mock(is_retrieved=False), "old": Mock(is_retrieved=True)}
    store["new"].message.metadata = store["old"].message.metadata = metadata
    assert with_late_replies(lambda **_: None)(state=Mock(msg_store=store)) == sent
    assert with_late_replies(lambda **_: 5)(state=Mock(msg_store=store)) == 5
