"""Real processes with mutual TLS on loopback: three forms of one experiment, faults, and parties that deviate."""

import json
import socket
import ssl
import subprocess
import sys
import time
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from silos import EXPERIMENT, FIT, Silo

from zoo import Release
from zoo.privacy.spending.budget import Budget
from zoo_nvflare.__main__ import main, serving, silos_of
from zoo_nvflare.sites import write_job

SOURCES = ("book", "film")
EVIL = Namespace(request="evil", epsilon=None, timeout=30, intersect=None)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def metrics(root: Path) -> dict[str, float]:
    (file,) = root.rglob("metrics.json")
    found: dict[str, float] = json.loads(file.read_text())["metrics"]
    return found


def target(federation: Path, *options: str) -> int:
    """The exit code of the target's command."""
    with pytest.raises(SystemExit) as ended:
        main(["target", str(federation / "target"), *options, *(() if "--no-fit" in options else FIT)])
    return int(ended.value.code or 0)


def entries(federation: Path, name: str) -> list[str | None]:
    return [entry.request for entry in Budget(federation / name / "local" / f"{name}.budget.jsonl").entries]


def test_one_experiment_in_three_forms(federation: Path, silos: dict[str, Silo], tmp_path: Path) -> None:
    """Deployment first; the simulation then answers from the same outboxes, and `fit` in one place reads the same folders."""
    roots = {form: tmp_path / form for form in ("deployment", "simulation", "one place")}
    inbox = federation / "target" / "local" / "inbox" / "first"
    assert target(federation, "--trainer.default_root_dir", str(roots["deployment"])) == 0
    for name in SOURCES:
        published = federation / name / "local" / f"outbox-{name}" / "first"
        assert contents(inbox / name) == contents(published)
        assert Release.load(inbox / name).domain == name

    simulated = tmp_path / "simulated"
    simulated.mkdir()
    for name in ("target", *SOURCES):
        local = federation / name / "local"
        settings = json.loads((local / "zoo.json").read_text())
        paths = {key: str(local / settings[key]) for key in ("config", "budget", "outbox") if key in settings}
        (simulated / f"{name}.json").write_text(json.dumps({**settings, **paths}))
    (simulated / "target.yaml").write_text(EXPERIMENT.read_text())
    command = ["simulate", str(simulated), "--config", str(EXPERIMENT), "--sources", *SOURCES]
    with pytest.raises(SystemExit) as ended:
        main([*command, "--trainer.default_root_dir", str(roots["simulation"]), *FIT])
    assert not ended.value.code
    for name in SOURCES:
        assert contents(simulated / "inbox" / "first" / name) == contents(inbox / name)
        assert entries(federation, name) == ["first"], "the same request costs nothing"

    fit = [sys.executable, "-m", "zoo", "fit", "--config", str(EXPERIMENT), *FIT]
    fit += ["--trainer.default_root_dir", str(roots["one place"])]
    for name in SOURCES:
        fit += [f"--data.releases.{name}", str(federation / name / "local" / f"outbox-{name}" / "first")]
    subprocess.run(fit, check=True)
    found = [metrics(root) for root in roots.values()]
    assert found[0]["test/sampled/ndcg@10"] > 0.06, "chance: 0.045"
    assert found[0] == found[1] == found[2]


def ended_job(federation: Path, job: Path) -> str:
    """How a job of the target's lead ends; silos have to be connected."""
    with serving(federation / "target", 120) as session:
        wait_for(lambda: len(session.get_system_info().client_info) == len(silos_of(federation / "target")))
        number = session.submit_job(str(job))
        session.monitor_job(number, timeout=300)
        return str(session.get_job_meta(number)["status"])


def wait_for(condition: Any, seconds: float = 180) -> None:  # noqa: ANN401  any question
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.5)


@pytest.mark.parametrize("form", ["code", "class"])
def test_sites_refuse_code_and_classes_of_others(
    federation: Path, silos: dict[str, Silo], tmp_path: Path, form: str
) -> None:
    """Code in the job, which the target allows itself, and a class of NVFlare that the site's list does not have."""
    policy = federation / "target" / "local" / "authorization.json"
    own = policy.read_text()
    policy.write_text(own.replace('"byoc": "none"', '"byoc": "any"'))
    job, mark = write_job(tmp_path / "job", SOURCES, EVIL), tmp_path / "mark"
    config = job / "app" / "config" / "config_fed_client.json"
    if form == "code":
        (job / "app" / "custom").mkdir()
        (job / "app" / "custom" / "evil.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
        config.write_text(config.read_text().replace("zoo_nvflare.parties.ReleaseExecutor", "evil.Evil"))
    else:
        path = "nvflare.app_common.np.np_trainer.NPTrainer"
        config.write_text(config.read_text().replace("zoo_nvflare.parties.ReleaseExecutor", path))
    try:
        status = ended_job(federation, job)
    finally:
        policy.write_text(own)
    assert not mark.exists()
    said = "".join(silo.log for silo in silos.values()) + (federation / "target" / "server.log").read_text()
    assert ("is not in allow_list" if form == "class" else "not authorized") in said or "BYOC not permitted" in said
    assert not (federation / "target" / "local" / "inbox" / "evil" / "book").exists()
    assert "FINISHED:COMPLETED" not in status or "no_reply" in collected(federation, "evil")["text"]
    assert "evil" not in entries(federation, "book")


def collected(federation: Path, request: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (federation / "target" / "local" / "inbox" / request / "collected.json").read_text()
    )
    return found


def test_a_target_that_asks_for_more_gets_a_code(
    federation: Path, silos: dict[str, Silo], capfd: pytest.CaptureFixture[str]
) -> None:
    assert target(federation, "--request", "greedy", "--epsilon", "100", "--no-fit") == 3
    assert collected(federation, "greedy")["codes"] == {"book": "above_policy", "film": "above_policy"}
    assert "No release of book, film: nothing was trained" in capfd.readouterr().err


@pytest.mark.slow
def test_a_killed_silo_is_named_and_the_same_request_resumes(
    federation: Path, silos: dict[str, Silo], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    silos["film"].kill()
    ended = target(federation, "--request", "second", "--wait", "20", "--timeout", "20", "--no-fit")
    assert ended == 3
    said = capfd.readouterr()
    assert "film: no_reply. The source did not reply in time." in said.out
    assert "No release of film: nothing was trained." in said.err
    assert collected(federation, "second")["codes"]["book"] == "ok"
    silos["film"].start()
    assert target(federation, "--request", "second", "--no-fit") == 0
    assert entries(federation, "book").count("second") == 1
    assert entries(federation, "film").count("second") == 1


def own_certificate(name: str, folder: Path) -> Path:
    """Write a certificate and key for a name, signed by nobody but themselves."""
    key, now = ec.generate_private_key(ec.SECP384R1()), datetime.now(UTC)
    named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder(
        named, named, key.public_key(), x509.random_serial_number(), now, now + timedelta(1)
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    (folder / "client.crt").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM))
    (folder / "client.key").write_bytes(secret)
    return folder


def is_let_in(federation: Path, port: int, keys: Path) -> bool:
    """Whether the target's server keeps a TLS connection of these keys open."""
    context = ssl.create_default_context(cafile=federation / "film" / "startup" / "rootCA.pem")
    context.check_hostname = False
    context.load_cert_chain(keys / "client.crt", keys / "client.key")
    try:
        with socket.create_connection(("localhost", port)) as plain, context.wrap_socket(plain) as wrapped:
            wrapped.settimeout(5)
            return wrapped.recv(1) != b""
    except TimeoutError:  # it waits for a message
        return True
    except (ssl.SSLError, ConnectionError):
        return False


def test_a_certificate_of_another_authority_is_refused(federation: Path, tmp_path: Path) -> None:
    """With the name of `film`, but signed by itself; the server that `film` itself gets in."""
    (service,) = json.loads((federation / "target" / "startup" / "fed_server.json").read_text())["servers"]
    port = int(service["service"]["target"].split(":")[1])
    with serving(federation / "target", 120):
        assert is_let_in(federation, port, federation / "film" / "startup")
        assert not is_let_in(federation, port, own_certificate("film", tmp_path))


def test_users_in_common_by_messages(
    federation: Path, silos: dict[str, Silo], capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("private_set_intersection", reason="not installed: the extra psi")
    for name, ids in (("target", range(60)), ("book", range(40, 90))):
        local = federation / name / "local"
        (local / "users.csv").write_text("user_id\n" + "".join(f"u{number:04d}\n" for number in ids))
        settings = {**json.loads((local / "zoo.json").read_text()), "users": "users.csv", "most_in_common": 20}
        (local / "zoo.json").write_text(json.dumps(settings))
    assert target(federation, "--request", "users", "--intersect", "book", "--no-fit") == 0
    assert "20 users in common" in capfd.readouterr().out
    lists = [(federation / name / "local" / "agreed-book.csv").read_bytes() for name in ("target", "book")]
    assert lists[0] == lists[1]
    assert b"u0045" in lists[0]
