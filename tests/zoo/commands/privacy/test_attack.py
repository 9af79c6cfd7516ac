"""`privacy attack`: what it measures of a made-up source, in a table, a file and JSON; what it refuses."""

import csv
import json
from pathlib import Path

import pytest

from tests.samples import MARKUP
from tests.zoo.commands.privacy.test_totals import refused
from zoo.commands.privacy.attack import summary
from zoo.commands.privacy.command import main
from zoo.privacy.mechanisms.vectors import UserVectors

pytestmark = pytest.mark.thorough

EXPERIMENT = """
model: {class_path: EMCDR}
data:
  class_path: Synthetic
  init_args: {num_users: 160, num_items: 40, ratings_per_user: 8, missing_users: zero, sources: [book, film]}
publisher:
  class_path: EmbeddingPublisher
  init_args:
    network: {class_path: FedGNN, init_args: {num_factors: 4, num_negatives: 2, lr: 0.1, local_lr: 5.0}}
    epsilon: 1.0
    num_releases: 2
    clip: 1.0
    max_epochs: 8
    batch_size: 64
    progress: false
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("attack") / "experiment.yaml"
    path.write_text(EXPERIMENT)
    return path


def test_attacks_are_measured_beside_their_controls(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = config.parent / "attack.csv"
    main(["attack", "--config", str(config), "--source", "book", "--seeds", "1", "--out", str(out)])
    said = " ".join(capsys.readouterr().out.split())
    for word in ("Attacks on book, FedGNN: 50% of its users known, seeds: 1", "no guarantee and no bound", "shuffled"):
        assert word in said, word
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {(row["source"], row["network"], row["known"], row["seeds"]) for row in rows} == {
        ("book", "FedGNN", "0.5", "1")
    }
    figures = {
        tuple(row[name] for name in ("release", "attack", "control", "figure")): float(row["mean"]) for row in rows
    }
    for attack in ("ridge", "perceptron"):
        plain, noisy, shuffled = (
            figures[release, attack, control, "auc"]
            for release, control in (("plain", ""), ("noisy", ""), ("plain", "shuffled"))
        )
        assert plain > 0.05 + max(noisy, shuffled, figures["nothing", "popularity", "", "auc"])
        assert figures["plain", attack, "", "leakage"] > 0.7 > figures["noisy", attack, "", "leakage"]
        assert figures["plain", attack, "shuffled", "explained"] < 0.05
    assert figures["clipped", "ridge", "", "leakage"] <= figures["plain", "ridge", "", "leakage"]
    assert figures["update", "rows named", "", "recall"] == 1
    assert 1 / 3 <= figures["update", "rows named", "", "precision"] < 0.4
    assert figures["update", "rows that move alike", "", "precision"] > 0.6
    # Of the one epsilon that two releases spend, what is attacked spends its own part.
    (epsilon,) = {row["epsilon"] for row in rows} - {""}
    plan = UserVectors.calibrate(epsilon=1.0, delta=1e-5, clip=1.0, num_layers=2, num_releases=2)
    assert float(epsilon) == pytest.approx(plan.epsilon)
    assert 0 < plan.epsilon < 1


def test_figures_are_summed_up_over_seeds() -> None:
    first = {"release": "noisy", "epsilon": 8.0, "attack": "ridge", "control": "", "figure": "auc"}
    rows = [first | {"value": value} for value in (0.5, 0.7)] + [first | {"epsilon": None, "value": 1.0}]
    assert summary(rows) == [
        first | {"mean": pytest.approx(0.6), "sd": pytest.approx(0.02**0.5), "seeds": 2},
        first | {"epsilon": None, "mean": 1.0, "sd": None, "seeds": 1},
    ]


def test_answers_for_other_programs_say_that_nothing_is_guaranteed(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = ["--publisher.network", "BPR", "--publisher.network.num_factors", "3", "--publisher.max_epochs", "1"]
    asked = ["--source", "film", "--epsilon", "4", "2", "--seeds", "1", "--known", "0.25"]
    main(["attack", "--config", str(config), *asked, "--json", *network])
    said = json.loads(capsys.readouterr().out)
    assert (said["command"], said["guarantee"], said["network"], said["known"]) == ("attack", "none", "BPR", 0.25)
    assert {row["epsilon"] for row in said["attacks"]} == {None, 4.0, 2.0}
    assert {row["release"] for row in said["attacks"]} == {"plain", "clipped", "noisy", "nothing"}, (
        "no clients, no updates"
    )
    assert {row["sd"] for row in said["attacks"]} == {None}


def test_what_cannot_be_attacked_is_refused(config: Path) -> None:
    several = refused("attack", "--config", config)
    assert "The experiment has the sources ['book', 'film']. Choose one: --source NAME." in several
    one = ("attack", "--config", config, "--source", "book")
    assert "Plaintext releases no vectors. Set" in refused(*one, "--publisher", "Plaintext")
    assert "--seeds is 0." in refused(*one, "--seeds", 0)
    assert "epsilon is -1" in refused(*one, "--epsilon", -1)
    assert "The share of known users is 1.5" in refused(*one, "--known", 1.5)
    assert "It must be a file in an existing folder" in refused(*one, "--out", "absent/a.csv")
    assert "No config 'absent.yaml'" in refused("attack", "--config", "absent.yaml")
    assert f"'{MARKUP}' is no source. The sources are" in refused("attack", "--config", config, "--source", MARKUP)
