"""Publishing from a budget: paid before it is written, at every point at which a process may die."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from scipy.sparse import csr_array

import zoo
from datamodules import Synthetic
from tests.kills import killed_at, moments
from tests.quickstart import PROJECTED
from tests.samples import binary
from zoo import JLT, NoisyRows, Plaintext, Release
from zoo.data.ratings import Ratings, Step
from zoo.privacy.accounting.gaussian import gauss_epsilon, gauss_mu
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.spending.budget import Budget, BudgetError, BudgetExceededError, Cap
from zoo.release.files import MANIFEST, SIGNATURE, ReleaseError
from zoo.release.metadata import ReleaseMetadata, Statement
from zoo.release.signature import SignatureError, SigningKey
from zoo.runs.cli import ZooCLI
from zoo.runs.inputs import UsageError
from zoo.runs.publishing import _unsent, budget_summary, publish_release

pytestmark = pytest.mark.thorough

ABOUT = ReleaseMetadata.today(Statement(), "cdr-zoo")
RATINGS = replace(binary(), applied=(Step("users are as they come", "who is a user is public", "all"),))
TWICE = gauss_epsilon(1e-5, gauss_mu(2.0, 1e-5) * 2**0.5)
"""Of two releases of epsilon 2 at delta 1e-5."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Budget.create(tmp_path / "spent.jsonl", Cap(TWICE * (1 + 1e-9), 1e-5, Relation.CHANGE_ONE_RATING)).path


def publish(file: Path, out: Path, publisher: Any = None) -> Release:  # noqa: ANN401  any publisher
    publisher = publisher or JLT(epsilon=2.0, num_components=5)
    return publish_release(publisher, RATINGS, "book", out, ABOUT, Budget(file))


def test_a_budget_for_two_pays_two(file: Path, tmp_path: Path) -> None:
    released = [publish(file, tmp_path / name) for name in ("a", "b")]
    spent = Budget(file).entries
    assert [one.release for one in spent] == [release.digest for release in released]
    assert [one.data for one in spent] == [RATINGS.rated().digest()] * 2
    with pytest.raises(BudgetExceededError, match=r"Epsilon of all domains could rise from .*The cap is"):
        publish(file, tmp_path / "c")
    assert not (tmp_path / "c").exists()
    assert "Used by all domains: 2.96. Assumes: who is a user is public." in budget_summary(Budget(file))


def test_a_user_without_ratings_does_not_make_other_ratings(file: Path, tmp_path: Path) -> None:
    """Nor does an item without one."""
    publish(file, tmp_path / "a", NoisyRows(epsilon=1.0))
    wider = csr_array((RATINGS.matrix.data, RATINGS.matrix.indices, RATINGS.matrix.indptr), (9, 8))
    more_items = Ratings(wider, RATINGS.user_ids, np.array([*RATINGS.item_ids, "unrated"]), RATINGS.applied)
    for ratings in (RATINGS.with_users(["unrated"]), more_items):
        with pytest.raises(BudgetError, match=r"Line 2 of .* published these ratings as 'book'"):
            publish_release(NoisyRows(epsilon=1.0), ratings, "film", tmp_path / "b", ABOUT, Budget(file))


def test_digests_of_the_ratings_stay_at_the_source(file: Path, tmp_path: Path) -> None:
    publish(file, tmp_path / "a")
    for path in (tmp_path / "a").iterdir():
        assert RATINGS.rated().digest().encode() not in path.read_bytes()


def test_what_is_too_much_draws_no_noise(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NoisyRows, "publish", lambda *_: pytest.fail("noise was drawn"))
    with pytest.raises(BudgetExceededError):
        publish(file, tmp_path / "a", NoisyRows(epsilon=9.0))


@pytest.mark.parametrize(
    ("publisher", "message"),
    [
        (Plaintext(), "The release has no guarantee"),
        (JLT(epsilon=2.0, num_components=5, noise_seed=1), r"has no guarantee \(seeded noise\)"),
        (NoisyRows(epsilon=1.0, relation="zero_out_one_user", clip=2.0), "is for 'change_one_rating'"),
        (JLT(epsilon=2.0, num_components=5, delta=0.5), "Allowed: below 1/9"),
    ],
)
def test_what_is_refused_costs_nothing(file: Path, tmp_path: Path, publisher: Any, message: str) -> None:  # noqa: ANN401
    before = file.read_bytes()
    with pytest.raises(ValueError, match=message):
        publish(file, tmp_path / "a", publisher)
    assert file.read_bytes() == before
    assert not (tmp_path / "a").exists()


def test_who_spends_in_the_meantime_comes_first(file: Path, tmp_path: Path) -> None:
    """The budget is read again under the lock: what was left when publishing began may be gone when it ends."""

    class Slow(JLT):
        def publish(self, source: Any, domain: str) -> Release:  # noqa: ANN401
            for name in ("x", "y"):
                publish(file, tmp_path / name)
            return super().publish(source, domain)

    with pytest.raises(BudgetExceededError):
        publish(file, tmp_path / "a", Slow(epsilon=2.0, num_components=5))
    assert not (tmp_path / "a").exists()
    assert len(Budget(file).entries) == 2


def test_a_failure_to_write_is_spent_and_says_so(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("zoo.release.release.save_tensors", full)
    with pytest.raises(OSError, match="disk full"):
        publish(file, tmp_path / "a")
    assert "its cost stays charged (line 2 of" in capsys.readouterr().err
    assert [one.release for one in Budget(file).entries] == [None]


@pytest.mark.processes
def test_wherever_a_publisher_dies_no_release_is_unpaid(tmp_path: Path) -> None:
    """At every third moment: half a release, a release that is paid and not written, one that is not noted in the budget."""
    made = partial(Budget.create, cap=Cap(TWICE * (1 + 1e-9), 1e-5, Relation.CHANGE_ONE_RATING))
    made(tmp_path / "spent.jsonl")
    seen = set()
    for moment in moments(tmp_path, lambda: publish(tmp_path / "spent.jsonl", tmp_path / "a"), most=60)[::3]:
        place = tmp_path / str(moment)
        place.mkdir()
        file, out = made(place / "spent.jsonl").path, place / "a"
        killed_at(place, moment, partial(publish, file, out))
        spent, released = Budget(file).entries, out.exists()
        seen.add((len(spent), released))
        if released:
            assert Release.load(out).num_users == RATINGS.num_users
        for number in range(len(spent), 2):
            publish(file, out if not out.exists() else place / f"more{number}")
        with pytest.raises(BudgetExceededError):
            publish(file, place / "c")
        assert sorted(path.name for path in place.iterdir() if path.name.startswith(".a")) == []
    assert seen == {(0, False), (1, False), (1, True)}, "before it is paid, before it is written, and after"


@pytest.mark.processes
def test_wherever_an_answer_to_a_request_dies_it_is_published_and_paid_once(tmp_path: Path) -> None:
    """Asked again with the same id after a crash at every third moment; another id is then paid for, and a third refused."""

    class Read(Synthetic):
        def source(self, name: str) -> Ratings:
            return RATINGS  # forks have no threads of polars

    data = Read(num_users=9, num_items=6, ratings_per_user=3)
    made = partial(Budget.create, cap=Cap(TWICE * (1 + 1e-9), 1e-5, Relation.CHANGE_ONE_RATING))

    def answer(place: Path, request: str, out: str = "a") -> Release:
        jlt = JLT(epsilon=2.0, num_components=5)
        return zoo.publish(jlt, data, place / out, budget=place / "spent.jsonl", request=request)

    made(tmp_path / "spent.jsonl")
    for moment in moments(tmp_path, lambda: answer(tmp_path, "r1"), most=60)[::3]:
        place = tmp_path / f"died-{moment}"
        place.mkdir()
        made(place / "spent.jsonl")
        killed_at(place, moment, partial(answer, place, "r1"))
        paid, first = Budget(place / "spent.jsonl").entries, answer(place, "r1")
        files = {file.name: file.read_bytes() for file in (place / "a").iterdir()}
        assert answer(place, "r1").digest == first.digest
        assert files == {file.name: file.read_bytes() for file in (place / "a").iterdir()}
        (entry,) = Budget(place / "spent.jsonl").entries
        assert (entry.request, entry.release) == ("r1", first.digest)
        assert [one.number for one in paid] in ([], [entry.number])
        answer(place, "r2", "b")
        with pytest.raises(BudgetExceededError):
            answer(place, "r3", "c")
        assert sorted(path.name for path in place.iterdir() if path.is_dir()) == ["a", "b"]


def test_a_request_is_for_one_domain_one_folder_and_a_budget(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, jlt = Synthetic(num_users=9, num_items=6, ratings_per_user=3), JLT(epsilon=2.0, num_components=5)
    with pytest.raises(UsageError, match="without a budget"):
        zoo.publish(jlt, data, tmp_path / "a", request="r1")
    with pytest.raises(BudgetError, match=r"Allowed: 1 to 64 letters"):
        zoo.publish(jlt, data, tmp_path / "a", budget=file, request="../r1")
    zoo.publish(jlt, data, tmp_path / "a", budget=file, request="r1")
    with pytest.raises(BudgetError, match=r"not at .*Restore it, or use a new id"):
        zoo.publish(jlt, data, tmp_path / "b", budget=file, request="r1")
    with pytest.raises(BudgetError, match="Request 'r1' was for 'book', not 'film'"):
        zoo.publish(jlt, Synthetic(sources=["film"]), tmp_path / "a", budget=file, request="r1")
    with pytest.raises(FileExistsError):
        zoo.publish(jlt, data, tmp_path / "a", budget=file, request="r2")
    assert len(Budget(file).entries) == 1
    # Two that die before their releases get a name, and whose folder and id give the same letters.
    small, large = JLT(epsilon=0.5, num_components=5), JLT(epsilon=0.6, num_components=5)
    for method, publisher, out, request in (("note_release", small, "d", "b.c"), ("spend", large, "d.b", "c")):
        with monkeypatch.context() as patch:
            patch.setattr(Budget, method, Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                zoo.publish(publisher, data, tmp_path / out, budget=file, request=request)
    paid = Budget(file).entries[1]
    zoo.publish(large, data, tmp_path / "more")
    (unsent,) = tmp_path.glob(".d~b.c~*")
    unsent.rename(tmp_path / "own")
    (tmp_path / "more").rename(unsent)
    with pytest.raises(BudgetError, match="paid for a folder that is not at"):
        zoo.publish(small, data, tmp_path / "d", budget=file, request="b.c")
    shutil.rmtree(unsent)
    (tmp_path / "own").rename(tmp_path / ".d~b.c")  # as 0.2 named it; a budget that was moved has another digest, too
    assert zoo.publish(small, data, tmp_path / "d", budget=file, request="b.c").record == paid.account.record


def test_an_unpaid_answer_is_for_its_owner_alone_and_is_removed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own failure, or by the next answer from the same budget; one of another budget may be about to be paid."""
    data, jlt = Synthetic(num_users=9, num_items=6, ratings_per_user=3), JLT(epsilon=0.5, num_components=5)
    other = Budget.create(tmp_path / "other.jsonl", Cap(8.0, 1e-5, Relation.CHANGE_ONE_RATING)).path
    out = tmp_path / "out"

    def answer(request: str, budget: Path = file) -> Release:
        return zoo.publish(jlt, data, out / request, budget=budget, request=request)

    def fail(*_: object) -> None:
        (unpaid,) = out.glob(".r1~*")
        assert (unpaid.stat().st_mode & 0o777, Release.load(unpaid).num_users) == (0o700, 9)
        for budget in (file, other):  # as killed publishers leave them
            for name in (left := _unsent(Budget(budget), out / "dead", "r9"), out / f".{left.name}.0a-1-00ff.tmp"):
                shutil.copytree(unpaid, name)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Budget, "spend", fail)
        with pytest.raises(KeyboardInterrupt):
            answer("r1")
    of_other = _unsent(Budget(other), out / "dead", "r9").name
    assert {path.name for path in out.iterdir()} == {of_other, f".{of_other}.0a-1-00ff.tmp"}
    answer("r2")
    assert (out / "r2").stat().st_mode & 0o777 == 0o755
    assert of_other in {path.name for path in out.iterdir()}
    answer("r3", other)
    assert {path.name for path in out.iterdir()} == {"r2", "r3"}


@pytest.fixture
def key(tmp_path: Path) -> Path:
    made = Ed25519PrivateKey.generate()
    path = tmp_path / "key.pem"
    path.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "key.pub.pem").write_bytes(public)
    return path


def test_a_publisher_needs_no_method(cli: Callable[..., ZooCLI], capsys: pytest.CaptureFixture[str]) -> None:
    data = ("--data", "Synthetic", "--data.num_users", "60", "--data.num_items", "40")
    cli("publish", *data, "--publisher", "FlippedRows", "--publisher.epsilon", "2", "--out", "book")
    assert "Release of 'book' (rows, 60 users): book" in capsys.readouterr().out
    network = ("--publisher", "EmbeddingPublisher", "--publisher.network", "BPR", "--publisher.max_epochs", "1")
    cli("publish", *data, *network, "--out", "vectors")
    assert "Release of 'book' (embeddings, 60 users): vectors" in capsys.readouterr().out
    network = ("--publisher", "EmbeddingPublisher", "--publisher.network", "NeuMF", "--publisher.max_epochs", "1")
    cli(
        "publish", "--model", "FedCDR", *data, *network, "--out", "towers"
    )  # whose settings Lightning gives the network
    assert "Release of 'book' (embeddings, 60 users): towers" in capsys.readouterr().out


def test_a_party_publishes_within_its_budget_and_signs_and_another_trusts_it(
    cli: Callable[..., ZooCLI], tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Budget.create(tmp_path / "spent.jsonl", Cap(8.0, 1e-5, Relation.CHANGE_ONE_RATING)).path
    paid = (
        "--budget",
        file,
        "--sign",
        key,
        "--about.contact",
        "privacy@books.example",
        "--about.rationale",
        "As agreed.",
    )
    cli("publish", *PROJECTED, *paid, "--out", "book")
    said = capsys.readouterr().out
    assert f"Signed by the key {SigningKey.read(key).public}." in said
    assert "Used by all domains: 8.00." in said
    about = json.loads((Path("book") / MANIFEST).read_text())["about"]
    assert (about["contact"], about["rationale"], about["curator"]) == ("privacy@books.example", "As agreed.", None)
    with pytest.raises(BudgetExceededError, match="The cap is 8"):
        cli("publish", *PROJECTED, *paid, "--out", "again")
    request = (
        "--budget",
        Budget.create(tmp_path / "b", Cap(8.0, 1e-5, Relation.CHANGE_ONE_RATING)).path,
        "--request",
        "r1",
    )
    for sign in ((), ("--sign", key)):  # the second command returns the first one's folder
        cli("publish", *PROJECTED, *request, *sign, "--out", "r1")
    assert f"Not signed by the key {SigningKey.read(key).public}: the" in capsys.readouterr().out

    trusting = ("--data.trusted", tmp_path / "key.pub.pem")
    fitted = cli("fit", *PROJECTED, *trusting, "--data.releases.book", "book")
    assert fitted.datamodule.releases["book"].domain == "book"
    (Path("book") / SIGNATURE).unlink()
    with pytest.raises(SignatureError, match="book is not signed"):
        cli("fit", *PROJECTED, *trusting, "--data.releases.book", "book")
    with pytest.raises(UsageError, match=r"data.trusted is set, and the releases of \['book'\]"):
        cli("fit", *PROJECTED, *trusting)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("--sign", "absent.pem"), SignatureError, "No key or signature at absent.pem"),
        (
            ("--budget", "absent.jsonl"),
            BudgetError,
            r"absent.jsonl is no budget file. Create one: python -m zoo privacy budget",
        ),
    ],
)
def test_what_cannot_be_read_is_said_before_anything_is_published(
    cli: Callable[..., ZooCLI], arguments: tuple[str, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        cli("publish", *PROJECTED, *arguments, "--out", "book")
    assert not Path("book").exists()


def test_a_statement_is_held_to_its_form(cli: Callable[..., ZooCLI]) -> None:
    with pytest.raises(ReleaseError, match=r"contact is .* Allowed: 1 to 1,000 printable characters"):
        cli("publish", *PROJECTED, "--about.contact", "x" * 1001, "--out", "book")
