"""`privacy total`, `privacy budget` and the answers in JSON, from the command line down."""

import hashlib
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from scipy import optimize, stats

from datamodules import Synthetic
from tests.samples import UNPRINTABLE, binary
from zoo import JLT, SPPG, FlippedRows, GeneratorPublisher, NoisyRows, Plaintext, PPGenCDR, Publisher, Release, fit
from zoo.benchmark.report.results import Run, read_files
from zoo.commands.privacy.as_json import registry_entry
from zoo.commands.privacy.command import main
from zoo.commands.privacy.show import share
from zoo.data.ratings import Ratings, Step
from zoo.privacy.accounting.accountant import attack_success_of
from zoo.privacy.accounting.events import PureEvent
from zoo.privacy.accounting.gaussian import gauss_epsilon, gauss_mu
from zoo.privacy.accounting.relation import Relation, Unit
from zoo.privacy.record.record import rounded_up
from zoo.privacy.record.words import MEANINGLESS
from zoo.privacy.spending.budget import Budget, BudgetExceededError, Cap
from zoo.privacy.spending.total import DISTINCT, EXTRA_KEYS, total_of_run
from zoo.publishers.projections import ProjectionPublisher
from zoo.release.metadata import ReleaseMetadata, Statement
from zoo.release.signature import SigningKey
from zoo.runs.publishing import budget_summary, publish_release

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[4]
CONFIG = str(ROOT / "configs" / "pricdr" / "douban.yaml")
ABOUT = ReleaseMetadata.today(Statement(contact="privacy@books.example"), "cdr-zoo 9")
KEYS = " ".join((ROOT / "docs/privacy/record.md").read_text(encoding="utf-8").partition("## Answers")[2].split())
TWICE = gauss_epsilon(1e-5, gauss_mu(2.0, 1e-5) * 2**0.5)
"""Of two releases of epsilon 2 at delta 1e-5."""


def said(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    main([*map(str, arguments)])
    return " ".join(capsys.readouterr().out.split())


def values(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """The answer in JSON: all that stands on stdout."""
    main([*map(str, arguments), "--json"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (answer["schema"], answer["command"]) == (1, arguments[0])
    part = re.findall(rf"- (`{arguments[0]}`: .*?)(?: - `|$)", KEYS)[0]
    assert lacking(part, answer) == {"schema", "command"}, "every other key is on the page on records"
    return answer


def lacking(part: str, answer: dict[str, Any]) -> set[str]:
    """Keys that a part of the page on records does not list; an inner object has its own part."""
    kinds = re.findall(r"an? (account|total)", part)
    listed = " ".join([part, *(re.findall(rf"\*{kind}\* is (.*?)\.", KEYS)[0] for kind in kinds)])
    found = answer.keys() - set(re.findall(r"`(\w+)`", listed))
    for key in {"releases", "together", "repeated", "domains", "spent", "cap", "several_ratings"} & answer.keys():
        for inner in answer[key] if isinstance(answer[key], list) else [answer[key]]:
            if isinstance(inner, dict):  # `releases` of `domains` are names
                found |= lacking(re.findall(rf"`{key}` (?:\(|has )([^.)]*)", part)[0], inner)
    return found


def refused(*arguments: object) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    return str(ended.value)


def conditional() -> Ratings:
    """Ratings of users whom they themselves name."""
    return replace(binary(), applied=(Step("users are as they come", "who is a user is public", "all"),))


def saved(path: Path, publisher: Publisher | None = None, domain: str = "book", key: SigningKey | None = None) -> Path:
    release = (publisher or JLT(epsilon=2.0, num_components=5)).publish(conditional(), domain)
    return replace(release, metadata=ABOUT).save(path, key)


# total


def test_releases_of_one_domain_add_up(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = saved(tmp_path / "a"), saved(tmp_path / "b")
    page = said(capsys, "total", one, two)
    assert f"epsilon {rounded_up(TWICE)}, under the conditions below delta 1e-05" in page
    assert "Conditions" in page
    assert f"who is a user is public ({one}, {two})" in page
    answer = values(capsys, "total", one, two)
    assert answer["together"]["epsilon"] == pytest.approx(TWICE, rel=1e-9)
    assert answer["together"]["shown"] == {"epsilon": rounded_up(TWICE), "delta": "1e-05"}
    assert answer["together"]["conditions"] == {"who is a user is public": [str(one), str(two)]}
    assert [release["name"] for release in answer["releases"]] == [str(one), str(two)]


def test_a_report_and_the_command_have_the_same_total(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three generators of epsilon 4 each compose to 4.74; without their ledgers, as earlier versions left them, they add up."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")
    network = SPPG(
        epsilon=4.0, delta=1e-5, steps=14, sample_size=1, n_critic=1, condition_dim=4, generator_dims=(8,), critic_dims=(4,)
    )  # fmt: skip
    data = Synthetic(num_users=100, num_items=30, ratings_per_user=4, sources=["book", "film", "music"], target="game")
    run = fit(
        PPGenCDR(dims=(8, 4), encoder_dims=(8,)), data, publisher=GeneratorPublisher(network), max_epochs=1,
        accelerator="cpu", enable_progress_bar=False
    )  # fmt: skip
    run.test()
    capsys.readouterr()
    answer = values(capsys, "total", *(run.folder / "releases" / name for name in data.sources))["together"]
    report, kept = read_files(run.folder)
    total = Run(0, run.folder, report, kept, 0.0, 0, {}).total
    assert (total.epsilon, total.delta) == (answer["epsilon"], answer["delta"])
    assert (rounded_up(total.epsilon or 0), total.delta, total.unit) == ("4.74", 1e-5, Unit.USER)
    earlier = {name: {key: one[key] for key in one.keys() - set(EXTRA_KEYS)} for name, one in kept.items()}
    total = total_of_run(earlier)
    assert (rounded_up(total.epsilon or 0), total.delta) == ("12.0", pytest.approx(3e-5))
    pure = attack_success_of([PureEvent(one["epsilon"]) for one in earlier.values()], total.relation)
    assert total.attack_success == pytest.approx(min(1.0, pure + 1.5e-5), abs=1e-9), "of each delta all may be lost"


def test_a_folder_counts_once_and_equal_content_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, link, copy = saved(tmp_path / "a"), tmp_path / "link", tmp_path / "copy"
    link.symlink_to(one)
    page = said(capsys, "total", one, link, one)
    assert "epsilon 2.00, under" in page
    assert f"{link} is the folder {one}" in page
    assert f"{one} is given twice" in page
    answer = values(capsys, "total", one, link, one)
    assert (answer["copies"], answer["same_content"]) == ({str(link): str(one), str(one): str(one)}, {})
    assert [release["name"] for release in answer["releases"]] == [str(one)]
    assert answer["together"]["epsilon"] == pytest.approx(2.0, rel=1e-8)
    shutil.copytree(one, copy)
    page = said(capsys, "total", one, copy)
    assert f"epsilon {rounded_up(TWICE)}, under" in page
    assert f"{copy}: same content as {one}: counted again" in page
    answer = values(capsys, "total", one, copy)
    assert (answer["copies"], answer["same_content"]) == ({}, {str(copy): str(one)})
    assert [release["name"] for release in answer["releases"]] == [str(one), str(copy)]
    assert answer["together"]["epsilon"] == pytest.approx(TWICE, rel=1e-9)


def test_domains_add_up_unless_their_ratings_are_stated_to_be_distinct(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    books, films = saved(tmp_path / "a"), saved(tmp_path / "b", FlippedRows(epsilon=3.0), "films")
    assert 4.0 < values(capsys, "total", books, films)["together"]["epsilon"] <= 5.01
    answer = values(capsys, "total", books, films, "--distinct-ratings")
    assert answer["together"]["epsilon"] == pytest.approx(3.0, rel=1e-2)
    assert answer["together"]["conditions"][DISTINCT] == [str(books), str(films)]
    found = {domain["domain"]: domain["releases"] for domain in answer["domains"]}
    assert found == {"book": [str(books)], "films": [str(films)]}
    assert "the releases of all domains add up" in said(capsys, "total", books, films)
    page = said(capsys, "total", books, films, "--distinct-ratings")
    assert f"{DISTINCT} ({books}, {films})" in page
    assert f"{DISTINCT}, so the total is the largest total of a domain" in page
    release = Release.load(films)  # only the caller can state it
    claiming = replace(release, record=replace(release.record, provisos=(DISTINCT,))).save(tmp_path / "c")
    assert "the releases of all domains add up" in said(capsys, "total", books, claiming)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (Plaintext(), "has no guarantee (the ratings are handed over as they are)"),
        (NoisyRows(epsilon=1.0, relation="zero_out_one_user", clip=2.0), "the relations differ"),
    ],
)
def test_where_there_is_no_total_no_epsilon_is_made_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: Publisher, reason: str
) -> None:
    paths = saved(tmp_path / "a"), saved(tmp_path / "b", other)
    page = said(capsys, "total", *paths)
    assert page.startswith("Total No total: ")
    assert reason in page
    answer = values(capsys, "total", *paths)["together"]
    assert (answer["epsilon"], answer["delta"], answer["shown"]) == (None, None, {})
    assert reason in answer["reason"]


def test_two_means_over_one_projection_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = saved(tmp_path / "a", JLT(epsilon=2.0, num_components=5, calibration="gaussian"))
    again = Release.load(one)
    twin = replace(again, domain="film", tensors={"rows": again.tensors["rows"] + 1}).save(tmp_path / "b")
    assert "share the projection with seed" in said(capsys, "total", one, twin)


# budget


def test_a_budget_is_made_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "spent.jsonl"
    made = ("--epsilon", "4", "--delta", "1e-5", "--relation", "change_one_rating")
    page = said(capsys, "budget", file, *made)
    assert "cap epsilon 4 at delta 1e-05, all domains neighbours change one rating Used nothing" in page
    apart = said(capsys, "budget", tmp_path / "apart.jsonl", *made, "--distinct-ratings")
    assert "cap epsilon 4 at delta 1e-05, each domain" in apart
    assert f"Conditions {DISTINCT}" in apart
    release = publish_release(NoisyRows(2.0), conditional(), "book", tmp_path / "a", ABOUT, Budget(file))
    page = said(capsys, "budget", file)
    assert "Used all domains epsilon 2.00, under the conditions below" in page
    assert f"SHA-256 {release.digest}" in page
    answer = values(capsys, "budget", file)
    assert [*answer["cap"].values()] == [4.0, 1e-5, "rating", "change_one_rating", False]
    assert answer["spent"][0]["epsilon"] == pytest.approx(2.0, rel=1e-8)
    assert (answer["releases"][0]["line"], answer["releases"][0]["digest"]) == (2, release.digest)
    assert conditional().digest() not in json.dumps(answer)
    assert "exists. Choose another file" in refused("budget", file, *made)


def test_half_a_line_and_a_release_that_nobody_knows_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "spent.jsonl"
    said(capsys, "budget", file, "--epsilon", "4", "--delta", "1e-5", "--relation", "change_one_rating")
    publish_release(JLT(epsilon=2.0, num_components=5), conditional(), "book", tmp_path / "a", ABOUT, Budget(file))
    whole = file.read_bytes()
    cap, paid, _ = whole.splitlines(keepends=True)
    file.write_bytes(cap + paid + b'{"number": 2')
    page = said(capsys, "budget", file)
    assert "The last line is incomplete" in page
    assert "no release is known (crash or failure); the cost stays charged" in page
    assert values(capsys, "budget", file)["torn"] is True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--distinct-ratings",), "The cap lacks --epsilon and --delta and --relation"),
        (("--epsilon", "4"), "The cap lacks --delta and --relation"),
        (("--epsilon", "0", "--delta", "0", "--relation", "change_one_rating"), "Allowed: finite epsilon > 0"),
        ((), "is no budget file"),
    ],
)
def test_a_budget_needs_a_whole_cap(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused("budget", tmp_path / "spent.jsonl", *arguments)
    assert not (tmp_path / "spent.jsonl").exists()


# show


def test_a_page_says_who_published_and_who_signed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private = Ed25519PrivateKey.generate()
    public = tmp_path / "key.pub.pem"
    public.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    key = SigningKey(private)
    signed, unsigned = saved(tmp_path / "a", key=key), saved(tmp_path / "b")
    page = said(capsys, "show", signed, "--trusted", public)
    assert f"signed by the key {key.public}" in page
    der = private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    fingerprint = hashlib.sha256(der).hexdigest()
    assert f"The signature was checked; the key is among the trusted keys of {public}" in page
    assert f"the signature of the manifest, which is by a trusted key: fingerprint {fingerprint}" in page
    unconfirmed = said(capsys, "show", signed, "--html", tmp_path / "page.html")
    assert f"SHA-256 {fingerprint}. The signature fits; the key was compared with no trusted key" in unconfirmed
    assert "by a trusted key" not in unconfirmed
    assert fingerprint in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "contact privacy@books.example" in page
    assert "deployment model central" in page
    assert f"date {ABOUT.date} code cdr-zoo 9" in page
    assert "signed by none: the origin is unknown" in said(capsys, "show", unsigned)
    assert "is not signed" in refused("show", unsigned, "--trusted", public)
    assert "is not signed" in refused("total", signed, unsigned, "--trusted", public)
    answer = values(capsys, "show", signed)
    assert (answer["signed_by"], answer["signed_by_fingerprint"]) == (key.public, fingerprint)
    trusting = values(capsys, "show", signed, "--trusted", public)
    assert (answer["signed_by_trusted"], trusting["signed_by_trusted"]) == (False, True)
    assert answer["about"] == ABOUT.to_dict()
    assert values(capsys, "show", unsigned)["signed_by"] is None


def test_a_page_in_json_holds_the_numbers_as_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = saved(tmp_path / "a")
    release = Release.load(path)
    answer = values(capsys, "show", path)
    assert answer["record"] == release.record.to_dict()
    assert answer["digest"] == release.digest
    assert answer["shown"]["epsilon"] == "2.00"
    assert answer["shown"]["guarantee"] == "conditional (assumes that who is a user is public)"
    assert answer["ledger"][0]["type"] == "GaussianEvent"
    assert 0.5 < answer["guess"] < 0.7
    assert answer["guess_choice"] == answer["guess"], "one rating is one step away from any other"
    assert [group["ratings"] for group in answer["several_ratings"]] == [1, 2, 5, 10, 50]
    for name in ("data_protection", "tutorials/choose_epsilon"):
        assert "for 1, 2, 5, 10 and 50 ratings" in (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
    assert answer["several_ratings"][0]["epsilon"] == pytest.approx(2.0, rel=1e-8)
    page = said(capsys, "show", path)
    for several in answer["several_ratings"]:
        assert f"{several['shown']['epsilon']} (attack success {share(several['guess'])})" in page
    assert all(text in " ".join(page.split()) for text in [*answer["checked"], *answer["unchecked"]])
    plain = values(capsys, "show", saved(tmp_path / "b", Plaintext()))
    assert (len(plain["checked"]), plain["unchecked"]) == (2, [])
    assert (plain["guess"], plain["several_ratings"], plain["record"]["epsilon"]) == (None, [], None)
    assert plain["shown"] == {"guarantee": "none (the ratings are handed over as they are)"}


#: Groups and keys of the registry's schema (opendp/deployments-registry-data of 15 July 2026), with choices where it has some.
REGISTRY: dict[str, dict[str, tuple[str, ...]]] = {
    "basic": {
        "name": (), "data_curators": (), "intended_use": (), "data_product_region": (), "description": (), "publication_date": (),
        "data_product_type": (
            "Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API", "SQL queries",
        ),
    },
    "dp_variant": {
        "variant_name": ("Pure DP", "Approximate DP", "Zero-concentrated DP", "Renyi DP", "Custom"),
        "data_domain": (), "unprotected_quantities": (),
    },
    "privacy_loss": {
        "privacy_unit": (), "privacy_unit_details": (), "privacy_parameters": (), "privacy_parameters_details": (),
    },
    "deployment_model": {
        "model_name": ("Local", "Central", "Shuffle", "Federated", "Varies"), "model_name_details": (), "actors": (),
        "release_type": ("One release", "Many releases"), "release_type_details": (),
        "data_source_type": ("Static", "Dynamic"), "data_source_type_details": (),
        "access_type": ("Interactive", "Non-interactive"), "access_type_details": (),
    },
    "accounting": {"post_processing": (), "composition": ()},
    "implementation": {"preprocessing_and_hyperparameter_tuning": (), "mechanisms": (), "justification": ()},
    "administrative": {"sources": (), "notes": (), "registry_authors": ()},
}  # fmt: skip


def registered(capsys: pytest.CaptureFixture[str], path: Path) -> tuple[dict[str, Any], str]:
    """The groups of the entry of a release, which fit the registry's schema, and what is left to fill in."""
    main(["register", str(path)])
    said = capsys.readouterr()
    entry = json.loads(said.out)
    groups: dict[str, Any] = entry.pop("deployment")
    assert re.fullmatch("[a-z0-9-]+", entry.pop("url_slug"))
    assert entry == {"status": "Draft", "tier": 3}
    assert list(groups) == list(REGISTRY)
    assert groups["basic"].keys() == REGISTRY["basic"].keys(), "all are required"
    for group, facts in groups.items():
        for key, fact in facts.items():
            assert fact in (choices := REGISTRY[group][key]) or not choices
            kind = {"data_curators": list, "registry_authors": list, "privacy_parameters": dict}.get(key, str)
            assert isinstance(fact, kind)
            assert kind is not list or all(isinstance(one, str) for one in fact)
    return groups, said.err


def test_an_entry_of_the_registry_has_the_facts_of_record_and_statement(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry, unstated = registered(capsys, saved(tmp_path / "a"))
    assert unstated == (
        "Fill in: basic.data_curators, basic.intended_use, basic.data_product_region, administrative.registry_authors.\n"
    )
    record = Release.load(tmp_path / "a").record
    loss = entry["privacy_loss"]
    assert (loss["privacy_unit"], loss["privacy_parameters_details"]) == (record.unit, record.standing)
    assert loss["privacy_parameters"] == {"epsilon": record.epsilon, "delta": record.delta}
    vectors = ProjectionPublisher(epsilon=1.0).forecast(100, 40)
    published = registry_entry(replace(Release.load(tmp_path / "a"), record=vectors, ledger=tuple(vectors.ledger)))
    unit = published["deployment"]["privacy_loss"]["privacy_unit_details"]
    assert "; for this user's own vector alone; neighbours: " in unit
    assert entry["dp_variant"]["variant_name"] == "Approximate DP"
    assert all(text in entry["dp_variant"]["unprotected_quantities"] for text in record.sentences("not_protected"))
    assert (entry["basic"]["publication_date"], entry["basic"]["data_product_type"]) == (ABOUT.date, "Dataset")
    assert ABOUT.code in entry["implementation"]["mechanisms"]
    stated = replace(ABOUT, curator="Books Ltd.", intended_use="lists", rationale="as agreed")
    for name, about, model, why in (("b", stated, "Central", "as agreed"), ("none", None, None, None)):
        replace(Release.load(tmp_path / "a"), metadata=about).save(tmp_path / name)
        entry, unstated = registered(capsys, tmp_path / name)
        assert entry["basic"]["data_curators"] == (["Books Ltd."] if about else [""])
        assert ("basic.publication_date" in unstated, "basic.data_curators" in unstated) == (not about, not about)
        assert (entry["deployment_model"].get("model_name"), entry["implementation"].get("justification")) == (
            model,
            why,
        )
    assert "guarantees nothing" in refused("register", saved(tmp_path / "c", Plaintext()))


def test_names_of_folders_are_shown_and_not_obeyed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in UNPRINTABLE.values():
        if "\x00" not in name and "\ud83d" not in name:  # no folder can be called so
            path = saved(tmp_path / name)
            for command in ("total", "show"):
                main([command, str(path)])
                assert all(line.isprintable() for line in capsys.readouterr().out.splitlines())


# plan and audit


def test_a_plan_in_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "nowhere"))
    answer = values(capsys, "plan", "--config", CONFIG, "--users", "924")
    assert (answer["users"], answer["users_from"]) == (924, "given")
    (release,) = answer["releases"]
    assert release["domain"] == "book"
    assert release["record"]["epsilon"] == pytest.approx(8.0, rel=1e-8)
    assert release["shown"]["epsilon"] == "8.00"
    assert answer["together"]["epsilon"] == pytest.approx(8.0, rel=1e-8)
    unknown = values(capsys, "plan", "--config", CONFIG)
    assert (unknown["users"], unknown["users_from"]) == (10_000, "default")


def test_a_plan_adds_up_a_year_of_releases(capsys: pytest.CaptureFixture[str]) -> None:
    """52 Gaussian releases of mu are one of mu times the root of 52 (Dong, Roth, Su 2022, corollary 3.3)."""
    options = ("plan", "--config", CONFIG, "--users", "924", "--publisher", "NoisyRows", "--publisher.epsilon", "0.5")
    answer = values(capsys, *options, "--repeat", "52")
    once, year = answer["releases"][0]["record"], answer["repeated"]

    def curve(epsilon: float, mu: float) -> float:
        upper, lower = stats.norm.cdf(mu / 2 - epsilon / mu), stats.norm.cdf(-mu / 2 - epsilon / mu)
        return float(upper - np.exp(epsilon) * lower - once["delta"])

    mu = optimize.brentq(lambda mu: curve(once["epsilon"], mu), 1e-3, 10)
    expected = optimize.brentq(curve, 0.1, 100, args=(mu * 52**0.5,))
    assert (year["times"], year["delta"]) == (52, once["delta"])
    assert year["epsilon"] == pytest.approx(expected, rel=1e-4)
    main([*map(str, options), "--repeat", "52"])
    said = " ".join(capsys.readouterr().out.split())
    assert "Repeated releases of the same" in said
    assert year["shown"]["epsilon"] in said
    drawn = ("--publisher", "JLT", "--publisher.calibration", "gaussian", "--publisher.epsilon", "2")
    twice = values(capsys, *options[:5], *drawn, "--repeat", "2")["repeated"]
    assert 2 < twice["epsilon"] < 4, "each has a projection of its own"
    with pytest.raises(SystemExit, match="--repeat is 0"):
        main([*map(str, options), "--repeat", "0"])


def test_totals_without_a_meaning_are_labelled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flips = ("plan", "--config", CONFIG, "--users", "924", "--publisher", "FlippedRows", "--publisher.epsilon")
    page = said(capsys, *flips, "3", "--repeat", "4")
    assert (f"12.0 ({MEANINGLESS})" in page, f"3.00 ({MEANINGLESS})" in page) == (True, False)
    assert f"Total: epsilon 8.00 ({MEANINGLESS}) at delta 0" in said(capsys, *flips, "8")
    budget = Budget.create(tmp_path / "spent.jsonl", Cap(9.0, 1e-5, Relation.CHANGE_ONE_RATING))
    publish_release(FlippedRows(8.0), binary(), "book", tmp_path / "a", ABOUT, budget)
    page = said(capsys, "budget", budget.path)
    assert f"Used all domains epsilon 8.00 ({MEANINGLESS})" in page
    assert f"epsilon 8.00 at delta 0, proved ({MEANINGLESS}); SHA-256" in page
    assert f"Used by all domains: 8.00 ({MEANINGLESS})." in budget_summary(Budget(budget.path))
    assert values(capsys, "budget", budget.path)["spent"][0]["label"] == MEANINGLESS
    rows, users = saved(tmp_path / "r", NoisyRows(20.0)), NoisyRows(4.0, relation="zero_out_one_user", clip=1.0)
    mixed = ("total", rows, saved(tmp_path / "s", NoisyRows(20.0)), saved(tmp_path / "u", users, "films"))
    assert f"({MEANINGLESS}) at delta 1e-05, under" in said(capsys, *mixed), "of a domain, without a total"
    assert [domain["label"] for domain in values(capsys, *mixed)["domains"]] == [MEANINGLESS, ""]
    with pytest.raises(BudgetExceededError, match=rf"from 8.00 \({MEANINGLESS}\) to 16.0 \({MEANINGLESS}\)"):
        publish_release(FlippedRows(8.0), binary(), "book", tmp_path / "b", ABOUT, Budget(budget.path))


def test_an_audit_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    audit = ("audit", "--config", CONFIG, "--publisher", "FlippedRows", "--publisher.epsilon", "1", "--runs", "2000")
    answer = values(capsys, *audit)
    assert (answer["as_expected"], answer["runs"], answer["beta"]) == (True, 2000, 1e-3)
    (found,) = answer["audits"]
    assert (found["verdict"], found["claimed_epsilon"], found["claimed_mu"]) == ("pass", 1.0, None)
    assert 0 < found["epsilon_lower"] < 1
