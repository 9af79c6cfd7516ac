"""`privacy plan` of every config that is shipped: what would be claimed, with its conditions and assumptions, without data."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.samples import MARKUP
from zoo import JLT, SJLT, GradientPerturbation, InputPerturbation, OneBitMC, OutputPerturbation, Perturbation
from zoo.commands.privacy.command import main
from zoo.commands.privacy.plan import (
    Experiment,
    Planned,
    notes_of,
    paper_table,
    planned_releases,
    read_experiment,
    total,
)
from zoo.data.ratings import Step
from zoo.methods.one_bit_mc.norm_balls import NuclearBall
from zoo.methods.one_bit_mc.objective import Observations
from zoo.methods.one_bit_mc.perturbation import Problem
from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import NonPrivateEvent
from zoo.privacy.accounting.gaussian_mixture import mix_epsilon
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.record.record import Guarantee, rounded_up, unprotected_record
from zoo.privacy.record.steps import RecordedStep
from zoo.runs.inputs import UsageError

ROOT = Path(__file__).parents[4]
#: Methods that claim nothing of their own and read no release.
ALONE = {
    "bpr", "cfgan", "dmf", "ease", "ensemble", "ganmf", "ials", "light_gcn", "low_rank", "mult_vae", "neumf",
    "popularity", "recent_popularity", "slim",
}  # fmt: skip
CONFIGS = sorted(
    path for path in ROOT.glob("configs/*/*.yaml") if path.parent.name not in ("benchmarks", "overlays", "sweeps")
)


@pytest.fixture(autouse=True)
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ZOO_DATA", str(tmp_path / "nowhere"))


@pytest.mark.thorough
@pytest.mark.parametrize("method", sorted({config.parent.name for config in CONFIGS}))
def test_every_shipped_config_is_planned_or_claims_nothing(method: str) -> None:
    for config in (config for config in CONFIGS if config.parent.name == method):
        if config.parent.name in ALONE and "publisher:" not in config.read_text(encoding="utf-8"):
            with pytest.raises(UsageError, match="publisher is not set"):
                read_experiment(config, [])
            continue
        experiment = read_experiment(config, [])
        releases = planned_releases(experiment, 900, 50)
        assert [one.source for one in releases] == list(experiment.sources)
        for one in releases:
            one.record.check_against(one.events)
            if one.record.claims:
                assert one.record.epsilon
                assert any(text.startswith("assumption: ") for text in notes_of([one]))
            else:
                assert list(one.events) == [NonPrivateEvent()] or one.record.reason


def test_a_private_training_that_is_validated_is_planned_under_this_condition() -> None:
    for batches, chosen in (("0", False), ("1.0", True)):
        experiment = read_experiment(ROOT / "configs/sppg/kitchen.yaml", ["--trainer.limit_val_batches", batches])
        (planned,) = planned_releases(experiment, 900, 50)
        assert ("chosen_by_metrics" in planned.record.conditions) == chosen


def test_every_perturbation_is_planned(capsys: pytest.CaptureFixture[str]) -> None:
    main(["plan", "--config", str(ROOT / "configs/one_bit_mc/gradient.yaml"), "--users", "943"])
    said = " ".join(capsys.readouterr().out.split())
    for word in ("one-bit matrix completion, gradient", "change one rating value", "4.00", "Planned for 943 users"):
        assert word in said, word
    assert "assumption: earlier step: users are derived from the ratings" in said
    assert "not protected: the set of rated pairs" in said
    experiment = read_experiment(ROOT / "configs/one_bit_mc/gradient.yaml", [])
    (planned,) = planned_releases(experiment, 943, 1682)
    assert epsilon_of(planned.events, 0.0) == pytest.approx(4.0)
    assert planned.record.public_inputs["rows"] == 943


@pytest.mark.parametrize("rating_range", [1.0, 100.0])
def test_the_paper_s_row_is_what_its_calibration_gives(rating_range: float) -> None:
    settings = {"epsilon": 1.0, "delta": 1e-5, "rating_range": rating_range}
    here, paper = (JLT(**settings, calibration=name).forecast(924, 1000) for name in ("unit", "paper"))  # type: ignore[arg-type]
    table = paper_table(here)
    assert table is not None
    _, noise, epsilon = (list(column.cells) for column in table.columns)
    w = paper.public_inputs["w"]
    assert isinstance(w, float)
    assert noise == [f"{here.public_inputs['w']:.6g}", f"{w:.6g}"]
    assert epsilon == ["1.00", rounded_up(mix_epsilon(1e-5, rating_range / w, 400))]


def test_sjlt_has_no_row_of_the_paper() -> None:
    assert paper_table(SJLT(epsilon=1.0).forecast(924, 1000)) is None, "its published form has no epsilon"


def test_a_plan_says_under_which_conditions_a_guarantee_would_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """A release of these ratings is conditional, so its plan is: users and items are read off them."""
    main(["plan", "--config", str(ROOT / "configs/pricdr/douban.yaml"), "--users", "900"])
    said = " ".join(capsys.readouterr().out.split())
    assert "conditional" in said
    assert "condition: the user list is public" in said
    assert "assumption: ratings are in [0, 1]" in said


@pytest.mark.parametrize(
    "perturbation",
    [
        None,
        GradientPerturbation(2.0, steps=3),
        InputPerturbation(1.0),
        InputPerturbation(1.0, hide_pairs=True),
        InputPerturbation(p1=0.1, p2=0.3),
        OutputPerturbation(2.0, steps=4, ridge=0.5),
    ],
    ids=lambda made: type(made).__name__,
)
def test_a_forecast_is_the_record_of_any_ratings_of_these_sizes(perturbation: Perturbation | None) -> None:
    method = OneBitMC(7.0, perturbation=perturbation, alpha=1.0, bounded=True)
    seen = Observations((9, 6), np.array([3, 8, 21, 50]), np.array([1.0, -1.0, -1.0, 1.0]))
    problem = Problem(seen, method.link, NuclearBall(7.0), 1.0, True, method.tolerance)
    applied = (Step("read from a file"),)
    record = method.perturbation.record(problem, applied)
    assert method.forecast(9, 6, applied) == record
    record.check_against(method.events(9))
    assert record.claims == (perturbation is not None)


DONE = "earlier step: "


def test_words_are_said_once_and_each_source_says_its_own() -> None:
    one, other = (
        unprotected_record("rows", "no noise", [RecordedStep(text), RecordedStep("both")]) for text in (MARKUP, "other")
    )
    said = notes_of([Planned("a", one, ()), Planned("b", other, ())])
    assert said == [
        f"assumption: {DONE}{MARKUP}",
        f"assumption: {DONE}both",
        f"assumption: {DONE}other",
        "not protected: everything in the release",
    ]


PRIVATE = ["--model", "FedGCDR", "--model.epsilon", "8", "--model.clip", "0.5"]


def test_private_rounds_are_planned_and_audited_beside_the_releases(capsys: pytest.CaptureFixture[str]) -> None:
    config = ROOT / "configs/fedgcdr/ciao.yaml"
    experiment = read_experiment(config, [*PRIVATE, "--model.relation", "replace_one_user"])
    *releases, rounds = planned_releases(experiment, 900, 50)
    assert [*experiment.sources, experiment.rounds and experiment.rounds[0]] == [
        one.source for one in (*releases, rounds)
    ]
    assert rounds.record.mechanism.name == "DP-FedAvg"
    assert any("held-out items of this domain removed" in step for step in rounds.record.sentences("assumptions"))
    events = [event for one in (*releases, rounds) for event in one.events]
    together = total([*releases, rounds]).epsilon
    assert together == pytest.approx(epsilon_of(events, 1e-5, Relation.REPLACE_ONE_USER), rel=1e-3)
    assert together > 8.0
    assert "the relations differ" in str(total(planned_releases(read_experiment(config, PRIVATE), 900, 50)).reason)
    unused = ["--model", "FedGCDR", "--model.finetune_after", "5"]
    assert read_experiment(config, unused).rounds is None
    main(["audit", "--config", str(config), *PRIVATE, "--runs", "200"])
    said = capsys.readouterr().out
    assert "EmbeddingPublisher" in said
    assert "DP-FedAvg" in said


def test_an_agreed_list_counts_no_users_of_a_target_with_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cuts sources only: the target's own users decide on the delta and noise of its rounds."""
    (tmp_path / "agreed.csv").write_text("user_id\n" + "".join(f"u{i}\n" for i in range(300)))
    config, listed = str(ROOT / "configs/fedgcdr/ciao.yaml"), ["--data.users", str(tmp_path / "agreed.csv")]
    numbers = ["--data.catalogues.cat10", "60", "--data.catalogues.cat03", "60"]
    experiment = read_experiment(Path(config), [*PRIVATE, *listed, *numbers])
    assert [one.sizes for one in planned_releases(experiment, None, None)] == [(300, 60)] * 2 + [(10_000, 1_000)]
    assert [one.sizes[0] for one in planned_releases(experiment, 900, None)] == [900] * 3
    main(["plan", "--json", "--config", config, *PRIVATE, *listed, *numbers])
    stated = json.loads(capsys.readouterr().out)["releases"]
    assert [one["planned_users"] for one in stated] == [300, 300, 10_000]
    alone = read_experiment(Path(config), [*PRIVATE, *listed, "--publisher", "null"])
    assert [one.sizes[0] for one in planned_releases(alone, None, None)] == [10_000]
    caption = {}
    for given in ((*PRIVATE, *listed, *numbers), (*PRIVATE, *listed, "--publisher", "null"), (*listed, *numbers)):
        main(["plan", "--config", config, *given])
        caption[len(given)] = " ".join(capsys.readouterr().out.split()).partition(" Planned for ")[2]
    rounds, method, releases = (caption[n] for n in (12, 10, 6))
    assert rounds.startswith(
        "300 users, for cat01 10,000 users (set --users N) and 1,000 items (set --items N). With other"
    )
    assert method.startswith("10,000 users (set --users N) and 1,000 items (set --items N). With other")
    assert releases.startswith("300 users. ")


def test_a_validated_training_beside_a_publisher_has_its_condition() -> None:
    config = ROOT / "configs/sppg/kitchen.yaml"
    given = "--publisher JLT --publisher.epsilon 8 --data.target kitchen --data.sources [food] --trainer.limit_val_batches 1.0"
    release, rounds = planned_releases(read_experiment(config, given.split()), 900, 50)
    assert ["chosen_by_metrics" in one.record.conditions for one in (release, rounds)] == [False, True]


def test_no_epsilon_is_planned_for_ratings_that_no_run_takes() -> None:
    """Of ratings that count where they reach a threshold, the value that is protected would say which pairs are public."""
    with pytest.raises(ValueError, match="The data are implicit feedback; OneBitMC needs signs"):
        read_experiment(ROOT / "configs/one_bit_mc/ml_100k.yaml", ["--data.filters.signs", "false"])


def test_a_method_without_a_claim_needs_a_publisher() -> None:
    config = ROOT / "configs/dmf/douban.yaml"
    with pytest.raises(UsageError, match="publisher is not set"):
        read_experiment(config, [])
    experiment = read_experiment(config, ["--publisher", "Plaintext", "--data.sources", "[book]"])
    assert isinstance(experiment, Experiment)
    (planned,) = planned_releases(experiment, 900, 50)
    assert (planned.source, planned.record.guarantee) == ("book", Guarantee.NONE)
