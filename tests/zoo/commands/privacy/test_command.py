"""`privacy plan`, `show`, `audit` and `curve`, from the command line down."""

import csv
import math
from dataclasses import replace
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.pld import PLDAccountant
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console

import zoo.privacy.audits.projection as projection_audits
from tests.samples import MARKUP, binary
from tests.zoo.commands.privacy.test_totals import refused
from zoo import JLT, FlippedRows, NoisyRows, Plaintext, Publisher
from zoo.commands.privacy.command import main
from zoo.commands.privacy.curve import as_label, draw_curve
from zoo.commands.privacy.plan import Planned, plan_table, total
from zoo.data.ratings import Step
from zoo.privacy.mechanisms.jlt import JLT as Projection
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import Guarantee
from zoo.runtime.run_folder import visible

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[4]
CONFIG = str(ROOT / "configs" / "pricdr" / "douban.yaml")


def out(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


# plan


def test_a_plan_says_what_publishing_would_cost_and_opens_no_data(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "nowhere"))
    main(["plan", "--config", CONFIG, "--users", "924", "--publisher.delta", "1e-5"])
    said = out(capsys)
    for word in ("JLT", "change one rating", "8.00", "1e-05", "0.600229", "conditional", "924 users and 1,000 items"):
        assert word in said, word
    assert "933.363" in said, "the paper's w for 8, privacy.md's vector"
    assert "0.0636" in said or "0.0637" in said, "and what it really gives"


def test_a_source_of_any_name_is_planned() -> None:
    planned = Planned(f"{MARKUP}\x1b[31m", Plaintext().forecast(9, 7), ())
    console = Console(width=200, record=True, file=StringIO())
    console.print(plan_table([planned], "9 users"))
    assert f"{MARKUP}\\x1b[31m" in console.export_text()


def test_a_plan_takes_overrides_and_the_number_of_users_sets_delta(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "--config", CONFIG, "--users", "1000000", "--items", "1000", "--publisher.epsilon", "4"])
    said = out(capsys)
    assert "4.00" in said
    assert "1e-10" in said, "ten million entries"
    main(["plan", "--config", CONFIG, "--publisher", "FlippedRows", "--publisher.epsilon", "2"])
    said = out(capsys)
    assert "delta │ 0" in said
    assert "10,000 users (set --users N) and 1,000 items (set --items N). With other numbers, delta, noise" in said


def test_a_plan_without_guarantee_shows_no_epsilon(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "--config", CONFIG, "--publisher.noise_seed", "1"])
    said = out(capsys)
    assert "none (seeded noise)" in said
    assert "epsilon │ -" in said
    assert "Together" not in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "--config", "absent.yaml"], "No config 'absent.yaml'"),
        (["plan", "--config", CONFIG, "--users", "0"], "--users is 0. It must be at least 1"),
        (["plan", "--config", CONFIG, "--publisher.epsilon", "0"], "epsilon is 0"),
        (["plan", "--config", CONFIG, "--publisher.delta", "0.5", "--users", "924"], "Allowed: below 1/924 (users)"),
        (["plan", "--config", CONFIG, "--publisher", "null"], "publisher is not set"),
        (["show", "absent"], "absent is no release"),
        (["audit"], "Nothing to audit"),
        (["audit", "--config", CONFIG, "--publisher", "Plaintext"], "has no privacy claim with these settings"),
        (
            ["audit", "--all", "--out", "absent/audit.csv"],
            "--out is absent/audit.csv. It must be a file in an existing folder",
        ),
        (["curve"], "Nothing to draw"),
    ],
)
def test_what_cannot_be_done_is_said(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


def test_releases_of_several_domains_cost_their_composition() -> None:
    def planned(publisher: Publisher, source: str = "books") -> Planned:
        return Planned(source, publisher.forecast(500, 60), tuple(publisher.plan(500, 60)))

    small, large = (
        planned(JLT(epsilon=epsilon, num_components=8, delta=1e-5), name)
        for epsilon, name in ((1.0, "books"), (2.0, "films"))
    )
    both = total([small, large])
    mu = math.hypot(*(one.record.mu or 0.0 for one in (small, large)))
    composed = PLDAccountant(value_discretization_interval=1e-4).compose(GaussianDpEvent(1 / mu)).get_epsilon(1e-5)
    assert (both.epsilon, both.delta) == pytest.approx((composed, 1e-5), rel=1e-3)
    users = [
        planned(NoisyRows(epsilon=2.0, relation="zero_out_one_user", clip=3.0), name) for name in ("books", "films")
    ]
    reference = PLDAccountant(value_discretization_interval=1e-4)
    multiplier = users[0].record.noise_scale / 3.0 if users[0].record.noise_scale else 0.0
    reference.compose(GaussianDpEvent(multiplier), 2)
    assert total(users).epsilon == pytest.approx(reference.get_epsilon(1e-5), rel=1e-3)
    assert "the relations differ" in (total([small, users[0]]).reason or "")
    assert "has no guarantee" in (total([small, planned(Plaintext())]).reason or "")


# show


def test_a_page_says_what_is_guaranteed_checked_assumed_and_open(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    JLT(epsilon=2.0, num_components=8).publish(binary(), "books").save(tmp_path / "release")
    main(["show", str(tmp_path / "release"), "--html", str(tmp_path / "page.html")])
    said = out(capsys)
    for word in (
        "one rating of one user",
        "at most 59.91 % of cases",  # Phi(mu/2) = .599006 at the mu of epsilon 2 and delta 1e-5, never rounded down
        "epsilon 2.00",
        "does not state a smaller epsilon than the ledger",
        "Not checkable from files",
        "that every step before the release is listed: a removed step leaves no trace",
        "os entropy",
        "Not protected",
        "GaussianEvent",
        "float64 noise with rounding",
    ):
        assert word in said, word
    page = (tmp_path / "page.html").read_text()
    seen: list[str] = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            seen.append(tag)
            assert not any(name in ("src", "href") for name, _ in attrs), "one file, nothing else"

    Tags().feed(page)
    assert seen.count("h2") == 13
    assert "one rating of one user" in page


def test_a_page_of_a_release_without_guarantee_names_no_epsilon(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Plaintext().publish(binary(), "books").save(tmp_path / "release")
    main(["show", str(tmp_path / "release")])
    said = out(capsys)
    assert "guarantees nothing (the ratings are handed over as they are)" in said
    assert "epsilon" not in said.replace("no epsilon", "")


# audit and curve


def test_an_audit_passes_what_holds(capsys: pytest.CaptureFixture[str]) -> None:
    main(["audit", "--config", CONFIG, "--publisher", "FlippedRows", "--publisher.epsilon", "1", "--runs", "4000"])
    said = out(capsys)
    assert "pass" in said
    assert "violation" not in said.replace("called a violation", "")


def test_an_audit_fails_what_does_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def dishonest(self: FlippedRows) -> object:
        (audit,) = honest(self)
        object.__setattr__(audit, "epsilon", audit.epsilon / 2)
        return [audit]

    honest = FlippedRows.audits
    monkeypatch.setattr(FlippedRows, "audits", dishonest)
    with pytest.raises(SystemExit) as ended:
        main(["audit", "--config", CONFIG, "--publisher", "FlippedRows", "--publisher.epsilon", "2", "--runs", "4000"])
    assert ended.value.code == 1
    assert "violation" in out(capsys).replace("called a violation", "")


SMALL = ("--config", CONFIG, "--publisher.num_components", "30", "--publisher.epsilon", "1", "--runs", "2000")


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Audits repeat: a fresh seed would fail a sound mechanism about once in a thousand audits."""
    monkeypatch.setattr(NoiseSource, "os", classmethod(lambda cls: cls.seeded(1)))


def findings(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("publisher", ["JLT", "SJLT"])
def test_a_projection_is_audited_in_two_worlds_and_in_one_run_and_a_file_says_so(
    publisher: str, seeded: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.csv"
    path.write_text("of yesterday")
    main(["audit", *SMALL, "--publisher", publisher, "--beta", "0.002", "--out", str(path)])
    said = out(capsys)
    assert f"{publisher} unit, one run" in said.replace(" │ ", " ")
    assert "300 of 1,500 coins" in said
    two_world, one_run = findings(path)
    assert list(one_run) == [
        "mechanism", "kind", "holds", "unit", "relation", "delta", "claimed_epsilon", "epsilon_lower",
        "claimed_mu", "mu_lower", "noise_ratio", "verdict", "runs", "beta",
    ]  # fmt: skip
    for row, kind, runs in ((two_world, "two_world", "2000"), (one_run, "one_run", "1")):
        assert (row["kind"], row["holds"], row["verdict"], row["runs"]) == (kind, "true", "pass", runs)
        assert (row["unit"], row["relation"]) == ("rating", "change_one_rating")
        assert (float(row["claimed_epsilon"]), float(row["delta"]), float(row["beta"])) == (1.0, 1e-5, 0.002)
        assert float(row["epsilon_lower"]) < 1
        assert float(row["noise_ratio"]) == pytest.approx(1, abs=0.02)
    assert float(two_world["mu_lower"]) < float(two_world["claimed_mu"]) == pytest.approx(0.2680511)
    assert (one_run["mechanism"], one_run["claimed_mu"], one_run["mu_lower"]) == (f"{publisher} unit, one run", "", "")
    assert not list(tmp_path.glob(".*"))


def test_a_quarter_of_the_noise_is_a_violation_in_one_run_too(
    seeded: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("release_rows", "release_chunks"):
        whole = getattr(projection_audits, name)

        def quiet(rows: Any, plan: Projection, *others: Any, whole: Any = whole) -> Any:  # noqa: ANN401
            return whole(rows, replace(plan, w=plan.w / 4), *others)

        monkeypatch.setattr(projection_audits, name, quiet)
    with pytest.raises(SystemExit) as ended:
        main(["audit", *SMALL, "--out", str(tmp_path / "audit.csv")])
    assert ended.value.code == 1
    one_run = findings(tmp_path / "audit.csv")[1]
    assert (one_run["kind"], one_run["verdict"]) == ("one_run", "violation")
    assert float(one_run["epsilon_lower"]) > 1
    assert float(one_run["noise_ratio"]) == pytest.approx(0.25, abs=0.01)


@pytest.mark.slow
def test_all_mechanisms_are_audited_and_published_claims_are_caught(
    seeded: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["audit", "--all", "--runs", "2000", "--out", str(tmp_path / "audit.csv")])
    rows = findings(tmp_path / "audit.csv")
    published = ("JLT, items < users", "SJLT", "ObjP", "OutP, d = 2", "OutP, d = 10")
    refuted = ("JLT gaussian, zero out one user, matrix known", *(f"published {name}" for name in published))
    assert {row["mechanism"]: row["verdict"] for row in rows if row["holds"] == "false"} == dict.fromkeys(
        refuted, "violation"
    )
    assert {row["verdict"] for row in rows if row["holds"] == "true"} == {"pass"}
    assert [row["mechanism"] for row in rows if row["kind"] == "one_run"] == [
        "JLT unit, one run",
        "SJLT unit, one run",
        "JLT gaussian, one run",
    ]
    assert all(row["unit"] for row in rows)


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_audited(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        "zoo.commands.privacy.audit.perform_audit", lambda *arguments: pytest.fail("it has been audited")
    )
    for path in (tmp_path / "absent" / "audit.csv", tmp_path):
        said = refused("audit", *SMALL, "--out", str(path))
        assert f"--out is {path}. It must be a file in an existing folder." in said


def test_whatever_claims_something_brings_its_audits() -> None:
    for publisher in (
        JLT(epsilon=1.0, num_components=8),
        JLT(epsilon=1.0, num_components=8, calibration="max"),
        JLT(epsilon=1.0, num_components=8, calibration="gaussian"),
        JLT(epsilon=1.0, num_components=8, calibration="gaussian", relation="zero_out_one_user", clip=2.0),
        NoisyRows(epsilon=1.0),
        NoisyRows(epsilon=1.0, threshold=1.0),
        NoisyRows(epsilon=1.0, relation="zero_out_one_user", clip=2.0),
        FlippedRows(epsilon=1.0),
    ):
        assert publisher.forecast(500, 60).guarantee is Guarantee.PROVED
        assert publisher.audits(), "a claim without a test"
        assert all(audit.holds for audit in publisher.audits())


def test_a_long_name_stands_below_the_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = NoisyRows(2.0).forecast(900, 50), NoisyRows(2.0).plan(900, 50)
    kept: list[Figure] = []
    save = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda figure, *a, **b: (kept.append(figure), save(figure, *a, **b)))
    draw_curve({"book (Mechanism" + 60 * " of" + 300 * "x" + ")": ledger}, None, tmp_path / "c.png")
    kept[0].draw_without_rendering()  # at the figure's own resolution
    (axes,) = kept[0].axes
    legend, whole = axes.get_legend().get_window_extent(), kept[0].bbox
    assert legend.y1 < axes.get_window_extent().y0
    assert (whole.x0 < legend.x0, legend.x1 < whole.x1, whole.y0 < legend.y0) == (True, True, True)
    assert axes.get_window_extent().width > 0.7 * whole.width
    assert axes.get_window_extent().height > 2.2 * 100, "as high as beside a short name"


@pytest.mark.parametrize("name", [r"$\frac{1}$", "$x$ and $y$", "_book", "book\x1b[31m", "a_b"])
def test_a_legend_shows_names_as_they_are(name: str) -> None:
    axes = Figure().subplots()
    axes.plot([0], [0], label=as_label(name))
    (text,) = axes.legend().get_texts()
    text.figure.draw_without_rendering()
    assert text.get_text().replace(r"\$", "$").replace("\u2009", "") == visible(name)


def test_a_curve_joins_the_rows_of_a_release_by_any_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, drawn, heights = Axes.errorbar, [], []

    def errorbar(panel: Axes, *points: Any, **settings: Any) -> object:  # noqa: ANN401  matplotlib's own
        drawn.append(settings["label"])
        heights.append(points[1])
        return plain(panel, *points, **settings)

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    lines = [
        "task,system,release,unit,epsilon,guarantee,sampled/ndcg@10,sampled/ndcg@10 sd,full/ndcg@10,full/ndcg@10 sd"
    ]
    lines += [
        f"t,Ridge,JLT n' 8{target},rating,1,proved,0.1,0,.01,0"
        for target in (" eps 1", " eps 2", " attack success 0.9")
    ]
    last = "t,Ridge,JLT n' 9,{},1,proved,{},0,{},0"
    (tmp_path / "results.csv").write_text("\n".join([*lines, last.format("rating", 0.1, "")]), encoding="utf-8")
    ledger = {"book": (NoisyRows(2.0).forecast(900, 50), NoisyRows(2.0).plan(900, 50))}
    draw_curve(ledger, tmp_path / "results.csv", tmp_path / "c.png")
    assert drawn == ["t: Ridge, JLT n' 8", "t: Ridge, JLT n' 9"]
    assert heights == [(0.1,) * 3, (0.1,)]
    (tmp_path / "results.csv").write_text("\n".join([*lines, last.format("user", "", 0.02)]), encoding="utf-8")
    draw_curve(ledger, tmp_path / "results.csv", tmp_path / "c.png")
    assert drawn[2:] == ["t: Ridge, JLT n' 8, per rating", "t: Ridge, JLT n' 9, per user"]
    assert heights[2:] == [(0.01,) * 3, (0.02,)]
    (tmp_path / "results.csv").write_text("\n".join([*lines, last.format("user", "", "")]), encoding="utf-8")
    with pytest.raises(ValueError, match=r"results\.csv has private rows without a common ranking"):
        draw_curve(ledger, tmp_path / "results.csv", tmp_path / "c.png")
    for content, message in ((b"a\nb\n", "is no results.csv of a report"), (b"\xff", "is no results"), (b"", "no row")):
        (tmp_path / "results.csv").write_bytes(content)
        with pytest.raises(ValueError, match=message):
            draw_curve(ledger, tmp_path / "results.csv", tmp_path / "c.png")


def test_a_curve_is_a_picture_of_ledgers_and_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    JLT(epsilon=2.0, num_components=8).publish(binary(), "books").save(tmp_path / "release")
    results = ROOT / "docs" / "results" / "cold_start" / "results.csv"
    main(
        [
            "curve",
            str(tmp_path / "release"),
            *("--config", CONFIG, "--users", "60", "--items", "40"),
            "--results",
            str(results),
            "--out",
            str(tmp_path / "c.png"),
        ]
    )
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")
    said = out(capsys)
    assert "c.png" in said
    assert f"{tmp_path / 'release'} (JLT): proved" in said
    assert "(JLT, planned for 60 users and 40 items): conditional (assumes that the user list is public" in said
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("publisher", "reason"),
    [
        (Plaintext(), "the ratings are handed over as they are"),
        (JLT(epsilon=2.0, num_components=8, noise_seed=1), "seeded noise"),
        (JLT(epsilon=2.0, num_components=8, calibration="gaussian", seed=1), "the seed of the projection was fixed"),
    ],
)
def test_what_has_no_guarantee_has_no_curve(tmp_path: Path, publisher: Publisher, reason: str) -> None:
    """Though its ledger would give one, if the noise had no seed."""
    publisher.publish(binary(), "books").save(tmp_path / "none")
    said = refused("curve", str(tmp_path / "none"), "--out", str(tmp_path / "d.png"))
    assert (
        f"none ({publisher.mechanism.name if isinstance(publisher, JLT) else 'Plaintext'}) has no guarantee ({reason}"
        in said
    )
    assert "Pass releases with one" in said
    assert not (tmp_path / "d.png").exists()


def test_a_curve_of_a_conditional_guarantee_comes_with_its_conditions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read_off = replace(binary(), applied=(Step("users are as they come", "who is a user is public", "all"),))
    FlippedRows(epsilon=2.0).publish(read_off, "books").save(tmp_path / "release")
    main(["curve", str(tmp_path / "release"), "--out", str(tmp_path / "c.png")])
    assert "release (FlippedRows): conditional (assumes that who is a user is public)" in out(capsys)
