"""Parties behind a carrier, by the settings in their folders: releases, users in common, and what is said of missing ones."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import Mock

import pytest

from datamodules.public_lists import is_intersection, read_users
from zoo.commands.parties import (
    FAILED,
    INCOMPLETE,
    SETTINGS,
    TARGET,
    Party,
    provision_options,
    replying,
    report_of,
    target_options,
    train,
    write_settings,
)
from zoo.runs.exchange import decode, encode

EXPERIMENT = (
    "model: {class_path: zoo.Ridge}\n"
    "data: {class_path: datamodules.Synthetic, init_args: {sources: [book, film], num_users: 60, num_items: 40}}\n"
    "publisher: {class_path: zoo.JLT, init_args: {epsilon: 2.0, num_components: 8}}\n"
    "trainer: {max_epochs: 1, accelerator: cpu}\n"
)
HERE, THERE = [f"u{number:04d}" for number in range(60)], [f"u{number:04d}" for number in range(40, 90)]


@pytest.fixture
def parties(tmp_path: Path) -> dict[str, Party]:
    """The target and the sources `book` and `film`, each with a folder."""
    (tmp_path / "experiment.yaml").write_text(EXPERIMENT)
    options = argparse.ArgumentParser()
    provision_options(options)
    given = options.parse_args(["--config", str(tmp_path / "experiment.yaml"), "--sources", "book", "film"])
    for name in (TARGET, *given.sources):
        (tmp_path / name).mkdir()
        write_settings(tmp_path / name / SETTINGS, name, given)
    return {name: Party(tmp_path / name / SETTINGS) for name in (TARGET, *given.sources)}


def settled(party: Party, ids: list[str], mode: str, **more: int) -> Party:
    """The party once its owner has listed its users."""
    (party.folder / "users.csv").write_text("user_id\n" + "".join(f"{user}\n" for user in ids))
    settings = {**party.settings, "users": "users.csv", "mode": mode, **more}
    (party.folder / SETTINGS).write_text(json.dumps(settings))
    return Party(party.folder / SETTINGS)


def target(*words: str) -> argparse.Namespace:
    options = argparse.ArgumentParser()
    target_options(options)
    return options.parse_args(words)


def test_a_target_collects_and_trains_on_what_arrived(
    parties: dict[str, Party], capsys: pytest.CaptureFixture[str]
) -> None:
    def without_film(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        return {name: parties[name].handle(message) for name, message in messages.items() if name == "book"}

    folder, asked = parties[TARGET].folder, {"request": "first"}
    assert train(folder, target(), ["book", "film"], []) == INCOMPLETE
    assert "The run wrote no report" in capsys.readouterr().err
    parties[TARGET].collect(["book", "film"], asked, without_film, patience=1)
    assert train(folder, target(), ["book", "film"], []) == INCOMPLETE
    assert "No release of film: nothing was trained" in capsys.readouterr().err
    assert train(folder, target("--without", "--no-fit"), ["book", "film"], []) == 0
    parties[TARGET].collect(
        ["book", "film"], asked, lambda sent: {name: parties[name].handle(sent[name]) for name in sent}
    )
    assert train(folder, target("--no-fit"), ["book", "film"], []) == 0
    assert (parties["film"].folder / "outbox-film" / "first").is_dir()


def test_no_text_of_an_error_before_a_party_leaves_it(
    parties: dict[str, Party], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    book, secret = parties["book"], "5 - helped me a lot"
    (book.folder / "book.yaml").write_text(
        f"data: {{class_path: datamodules.Synthetic, init_args: {{seed: {secret}}}}}\n"
    )
    asked = encode({"op": "publish", "request": "first", "domain": "book"})
    assert replying(lambda: book.handle(asked)) == FAILED == encode({"code": "failed"})
    assert secret in capsys.readouterr().err
    assert replying(Mock(side_effect=ValueError(secret))) == FAILED
    assert secret in caplog.text


@pytest.mark.thorough
@pytest.mark.parametrize("mode", ["list", "size"])
def test_users_in_common_by_messages(parties: dict[str, Party], mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("private_set_intersection", reason="not installed: the extra psi")
    crossed = list[bytes]()

    def send(messages: Mapping[str, bytes]) -> dict[str, bytes]:
        crossed.extend(messages.values())
        return {name: parties[name].handle(message) for name, message in messages.items()}

    def ask() -> str:
        parties[TARGET].collect(["book", "film"], {"request": "users", "intersect": "book"}, send)
        train(parties[TARGET].folder, target("--request", "users", "--intersect", "book"), ["book", "film"], [])
        return capsys.readouterr().out

    assert "users is not set" in ask()
    parties[TARGET] = settled(parties[TARGET], HERE, mode)
    assert "book: bad_request" in ask(), "the source lists no users"
    parties["book"] = settled(parties["book"], THERE, "size" if mode == "list" else "list")
    assert "book: bad_request" in ask(), "the source allows the other mode alone"
    parties["book"] = settled(parties["book"], THERE, mode)
    if mode == "list":  # the number is seen before the users leave
        assert "book: refused. 20 users in common. Allowed: 0" in ask()
        assert decode(crossed[-1])[0]["step"] == "request"
        parties[TARGET] = settled(parties[TARGET], HERE, mode, most_in_common=20)
    assert "20 users in common" in ask()
    lists = [parties[name].folder / "agreed-book.csv" for name in (TARGET, "book")]
    assert [path.exists() for path in lists] == [mode == "list"] * 2
    if mode == "list":
        with pytest.raises(ValueError, match="Remove it first"):
            parties["book"]._answer("request", b"")
        assert read_users(lists[0]) == read_users(lists[1]) == sorted({*HERE} & {*THERE})
        assert all(map(is_intersection, lists))
    for replayed in crossed[-2:]:
        assert decode(parties["book"].handle(replayed)) == ({"code": "bad_request"}, b"")
    odd = encode({"op": "psi", "request": "users", "step": "other"}, b"")
    assert decode(parties["book"].handle(odd)) == ({"code": "bad_request"}, b"")
    assert json.loads(report_of(parties[TARGET].folder, "users").read_text())["codes"] == {"book": "ok"}


@pytest.mark.parametrize(
    "reply",
    [
        b"junk",
        b"{}\n",
        b'{"code": "x"}\n',
        b'{"code": [1]}\n',
        b'{"code": "ok"}\n[]\n',
        b'{"code": "no_reply"}\n',
        None,
    ],
)
def test_a_malformed_reply_on_users_is_refused(parties: dict[str, Party], reply: bytes | None) -> None:
    pytest.importorskip("private_set_intersection", reason="not installed: the extra psi")
    asked = settled(parties[TARGET], HERE, "list")
    sent = {"request": "users", "intersect": "book"}
    asked.collect(["book"], sent, lambda to: {} if reply is None else dict.fromkeys(to, reply))
    said = "no_reply" if reply is None else "refused"
    assert json.loads(report_of(asked.folder, "users").read_text())["codes"] == {"book": said}
