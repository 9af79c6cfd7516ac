"""A search inside a run: by validation alone, from one release, or with all of its releases counted."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import optuna
import polars as pl
import pytest
import yaml
from dp_accounting.dp_event import ComposedDpEvent, GaussianDpEvent
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

from zoo import Release
from zoo.benchmark.fit import Trial, train_and_test
from zoo.benchmark.grid import TRIALS, Benchmark, Range, Search
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.runs import runs_of
from zoo.benchmark.search import any_settings, settings, suggest
from zoo.methods.epoch_averages import DivergedError
from zoo.privacy.accounting.accountant import epsilon_of
from zoo.privacy.accounting.events import GaussianEvent, event_to_dict
from zoo.privacy.accounting.gaussian import gauss_epsilon, gauss_mu
from zoo.privacy.spending.total import record_of

pytestmark = pytest.mark.thorough

WEIGHTS = {
    "model.alignment_weight": {"low": 0.1, "high": 10.0, "log": True},
    "model.transfer_weight": {"choices": [0.0, 1.0]},
}
JLT = {"class_path": "JLT", "init_args": {"num_components": 8, "epsilon": 2.0}}

Made = Callable[..., Benchmark]
Write = Callable[..., Path]


def searching(parameters: dict[str, Any], trials: int = 3, **system: object) -> dict[str, Any]:
    release = {"publisher": JLT, "noise_control": False}
    search = {"trials": trials, "parameters": parameters}
    return {"systems": {"PriCDR": {"config": "pricdr.yaml", "releases": [release], "search": search, **system}}}


@dataclass(frozen=True)
class Searched:
    """A run after its search."""

    folder: Path

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "search" / TRIALS).read_text())
        return found

    def trial(self, number: int) -> Path:
        return self.folder / "search" / f"trial-{number}"

    def config(self, number: int | None = None) -> dict[str, Any]:
        """Settings of a trial, or of the run that came of the search."""
        folder = self.folder if number is None else self.trial(number)
        found: dict[str, Any] = yaml.safe_load((folder / "config.yaml").read_text())
        return found

    def release(self, number: int | None = None) -> Path:
        """Where the release lies that was read."""
        return Path(self.config(number)["data"]["init_args"]["releases"]["book"])


def run_search(benchmark: Benchmark, root: Path) -> Searched:
    (run,) = runs_of(benchmark, root)
    run.prepare_folder()
    run.execute()
    assert run.finished() is not None
    return Searched(run.folder)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, furnish: Write) -> Callable[[str, dict[str, Any]], Searched]:
    """Runs a run once for the tests below."""
    from zoo.runs.cli import import_names

    import_names()

    def place(name: str, changed: dict[str, Any]) -> Searched:
        folder = tmp_path_factory.mktemp(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PL_GLOBAL_SEED", "0")
            patch.chdir(folder)
            return run_search(read_benchmark(furnish(folder, **changed)), folder / "runs")

    return place


@pytest.fixture(scope="module")
def tuned(places: Callable[[str, dict[str, Any]], Searched]) -> Searched:
    """A search over what the target does with a release."""
    return places("tuned", searching(WEIGHTS))


@pytest.fixture(scope="module")
def republished(places: Callable[[str, dict[str, Any]], Searched]) -> Searched:
    """A search over what is released."""
    parameters = {
        "publisher.num_components": {"low": 4, "high": 12, "integer": True},
        "publisher.epsilon": {"choices": [1.0, 2.0, 4.0]},
        "model.alignment_weight": {"low": 0.1, "high": 10.0, "log": True},
    }
    return places("republished", searching(parameters))


@pytest.fixture(params=["tuned", "republished"])
def searched(request: pytest.FixtureRequest) -> Searched:
    found: Searched = request.getfixturevalue(request.param)
    return found


def test_what_leaves_the_publisher_alone_publishes_once(tuned: Searched) -> None:
    published = [path.parent for path in tuned.folder.rglob("release.json")]
    assert published == [tuned.folder / "releases" / "book"]
    assert {tuned.release(number).resolve() for number in (0, 1, 2, None)} == {published[0].resolve()}
    record = json.loads((tuned.folder / "privacy.json").read_text())["book"]
    assert record_of(record) == Release.load(published[0]).record
    assert (record["guarantee"], record["epsilon"], record["compositions"]) == ("proved", 2.0, 1)
    assert tuned.report["trials_that_published"] == 1


def test_no_trial_sees_the_test(searched: Searched) -> None:
    for number in range(3):
        files = {path.name for path in searched.trial(number).rglob("*")}
        assert "metrics.csv" in files
        assert not files & {"metrics.json", "test_cases.parquet"}
        columns = pl.read_csv(searched.trial(number) / "metrics.csv").columns
        assert "val/ndcg@10" in columns
        assert not [column for column in columns if "test" in column]
    assert "test" not in (searched.folder / "search" / TRIALS).read_text()
    assert "test/sampled/ndcg@10" in json.loads((searched.folder / "metrics.json").read_text())["metrics"]


def test_the_best_of_validation_is_chosen(searched: Searched) -> None:
    trials = searched.report["trials"]
    assert len(trials) == 3
    logged = [pl.read_csv(searched.trial(n) / "metrics.csv")["val/ndcg@10"].max() for n in range(3)]
    assert [trial["val/ndcg@10"] for trial in trials] == pytest.approx(logged, abs=1e-6)
    best = max(range(3), key=lambda n: trials[n]["val/ndcg@10"])
    assert searched.report["chosen"] == trials[best]["settings"]


def test_trials_and_the_last_run_have_the_settings_that_are_listed(searched: Searched) -> None:
    trials = searched.report["trials"]
    assert len({json.dumps(trial["settings"]) for trial in trials}) > 1
    for number, chosen in [*enumerate(trial["settings"] for trial in trials), (None, searched.report["chosen"])]:
        config = searched.config(number)
        for key, value in chosen.items():
            part, argument = key.split(".")
            assert config[part]["init_args"][argument] == value


def test_a_search_leaves_no_checkpoint(tuned: Searched) -> None:
    assert not list(tuned.folder.rglob("*.ckpt"))


def test_every_trial_is_a_release_of_its_own(republished: Searched) -> None:
    releases = [Release.load(republished.trial(n) / "releases" / "book") for n in range(3)]
    assert len({release.digest for release in releases}) == 3
    for n, release in enumerate(releases):
        assert release.width == republished.report["trials"][n]["settings"]["publisher.num_components"]
        assert release.record.epsilon == republished.report["trials"][n]["settings"]["publisher.epsilon"]
        assert release.record.compositions == 1
    assert republished.report["trials_that_published"] == 3


def test_the_release_of_the_best_trial_is_used_with_all_of_them_counted(republished: Searched) -> None:
    releases = [Release.load(republished.trial(n) / "releases" / "book") for n in range(3)]
    best = [t["settings"] for t in republished.report["trials"]].index(republished.report["chosen"])
    used = Release.load(republished.release())  # refuses a record that states less than its ledger gives
    assert used.tensors["rows"].equal(releases[best].tensors["rows"])
    assert list(used.user_ids) == list(releases[best].user_ids)
    assert not (republished.folder / "releases").exists(), "the last run publishes nothing"

    events = [event for release in releases for event in release.ledger]
    assert sorted(map(repr, used.ledger)) == sorted(map(repr, events))
    record = json.loads((republished.folder / "privacy.json").read_text())["book"]
    assert record_of(record) == used.record
    assert record["ledger"] == [event_to_dict(event) for event in used.ledger]
    assert record["guarantee"] == "proved"
    assert record["compositions"] == 3
    assert record["epsilon"] > max(release.record.epsilon or 0 for release in releases)
    assert record["epsilon"] == pytest.approx(epsilon_of(events, record["delta"]), rel=1e-8)
    assert record["mu"] == pytest.approx(sum((r.record.mu or 0) ** 2 for r in releases) ** 0.5, rel=1e-9)


def test_the_count_is_that_of_another_accountant(republished: Searched) -> None:
    record = json.loads((republished.folder / "privacy.json").read_text())["book"]
    ledger = Release.load(republished.release()).ledger
    assert len(ledger) == 3
    accountant = PLDAccountant()
    for event in ledger:
        assert isinstance(event, GaussianEvent)
        accountant.compose(ComposedDpEvent([GaussianDpEvent(event.noise_multiplier)]))
    assert record["epsilon"] == pytest.approx(accountant.get_epsilon(record["delta"]), rel=1e-3)


@pytest.mark.usefixtures("here")
def test_what_the_target_publishes_in_all_trials_is_counted(made: Made, place: Path) -> None:
    """Three projections of one mu each have sqrt(3) times as much together."""
    projections = {"class_path": "ProjectionPublisher", "init_args": {"epsilon": 4.0, "num_directions": 2}}
    publisher = {"class_path": "BridgePublisher", "init_args": {"epsilon": 8.0, "projections": projections}}
    release = {
        "publisher": {"class_path": "Thinned", "init_args": {"of": publisher, "share": 0.9}},
        "noise_control": False,
    }
    shares = {"publisher.init_args.of.init_args.counts_share": {"choices": [0.1, 0.2, 0.3]}}
    own = {"releases": [release], "settings": {"model": "Bridge"}}
    searched = run_search(made(**searching(shares, **own)), place / "runs")
    folders = [*(searched.trial(n) / "releases" for n in range(3)), searched.release().parent]
    *each, together = (json.loads((path / "target_release.json").read_text())["privacy"] for path in folders)
    assert [record_of(one).epsilon for one in each] == [4.0] * 3
    assert record_of(together).epsilon == pytest.approx(gauss_epsilon(1e-5, math.sqrt(3) * gauss_mu(4.0, 1e-5)))
    assert together["ledger"] == [event for one in each for event in one["ledger"]]
    notes = json.loads((searched.folder / "privacy.json").read_text())["book"]["notes"]
    assert notes["projections of all trials"] == record_of(together).summary()


def test_a_search_that_broke_off_counts_what_it_published(
    made: Made, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zoo.benchmark import search

    trained = search.trial

    def broken(arguments: list[str], folder: Path) -> Trial:
        if folder.name == "trial-2":
            raise OSError("no space left on device")
        return trained(arguments, folder)

    benchmark = made(**searching({"publisher.epsilon": {"choices": [1.0, 2.0, 4.0]}}))
    for _ in range(2):
        monkeypatch.setattr(search, "trial", broken)
        with pytest.raises(OSError, match="no space"):
            run_search(benchmark, place / "runs")
    monkeypatch.setattr(search, "trial", trained)
    searched = run_search(benchmark, place / "runs")
    releases = [Release.load(path) for path in (searched.folder / "search").glob("[et]*-*/releases/book")]
    assert len(releases) == 2 + 2 + 3
    record = json.loads((searched.folder / "privacy.json").read_text())["book"]
    assert (record["compositions"], searched.report["trials_that_published"]) == (7, 7)
    together = epsilon_of([event for release in releases for event in release.ledger], record["delta"])
    assert record["epsilon"] == pytest.approx(together, rel=1e-8)


@pytest.mark.usefixtures("here")
def test_releases_without_a_guarantee_claim_nothing_together(made: Made, place: Path) -> None:
    seeded = {"class_path": "JLT", "init_args": {"num_components": 8, "epsilon": 2.0, "noise_seed": 1}}
    release = {"publisher": seeded, "noise_control": False}
    searched = run_search(
        made(**searching({"publisher.seed": {"choices": [1, 2]}}, 2, releases=[release])), place / "runs"
    )
    record = json.loads((searched.folder / "privacy.json").read_text())["book"]
    assert (searched.folder / "search" / "releases" / "publisher.json").is_file(), "so that `fit` knows whose it is"
    assert record["guarantee"] == "none"
    assert record["epsilon"] is None
    assert record["reasons"] == ["seeded noise"]


def test_private_trainings_of_all_trials_are_counted(made: Made, place: Path) -> None:
    """Each trial flips the same signs anew: the best of four loses 3.45 (enumerated), not 1."""
    flips = {"class_path": "InputPerturbation", "init_args": {"epsilon": 1.0}}
    config = {
        "model": {"class_path": "OneBitMC", "init_args": {"tau": 9, "max_iterations": 3, "perturbation": flips}},
        "data": {
            "class_path": "LowRank",
            "init_args": {"num_users": 20, "num_items": 15, "observed": 0.5, "evaluation": {"split": "random2"}},
        },
        "trainer": {"max_epochs": 1, "accelerator": "cpu"},
    }
    (place / "signs.yaml").write_text(yaml.safe_dump(config))
    grid = {"model.tau": {"choices": [5, 9, 20, 40]}}
    benchmark = made(**searching(grid, 4, config="signs.yaml", releases=[]))
    searched = run_search(benchmark, place / "runs")
    record = json.loads((searched.folder / "privacy.json").read_text())["OneBitMC"]
    assert (record["epsilon"], record["compositions"]) == (4.0, 4)
    assert record["conditions"] == ["chosen_by_metrics"]
    summary = json.loads((searched.folder / "metrics.json").read_text())["privacy"]["OneBitMC"]
    assert summary == record_of(record).summary()
    assert searched.report["trials_that_published"] == 4
    (run,) = runs_of(benchmark, place / "again")
    repeated = replace(run, chosen=searched.report["chosen"])  # as `--verify` repeats it
    repeated.prepare_folder()
    repeated.execute()
    record = json.loads((repeated.folder / "privacy.json").read_text())["OneBitMC"]
    assert (record["epsilon"], record["conditions"]) == (1.0, ["trainings_uncounted"])
    grid["publisher.seed"] = {"choices": [1]}  # every trial would publish, so the chosen settings are trained anew
    (place / "signs.yaml").write_text(yaml.safe_dump(config | {"publisher": JLT}))
    searched = run_search(made(**searching(grid, 4, config="signs.yaml", releases=[])), place / "published")
    record = json.loads((searched.folder / "privacy.json").read_text())["OneBitMC"]
    assert (record["epsilon"], record["compositions"], record["conditions"]) == (5.0, 5, ["chosen_by_metrics"])


@pytest.mark.usefixtures("here")
def test_the_same_seed_tries_the_same_settings(made: Made, place: Path, tuned: Searched) -> None:
    again = run_search(made(**searching(WEIGHTS, 1)), place / "runs").report
    tried = [trial["settings"] for trial in tuned.report["trials"]]
    assert [trial["settings"] for trial in again["trials"]] == tried[:1]
    other = run_search(made(**searching(WEIGHTS, 1), seeds=[1]), place / "runs").report
    assert other["trials"][0]["settings"] != tried[0]


@pytest.mark.usefixtures("here")
def test_where_trials_allow_it_each_choice_is_tried_once(made: Made, place: Path) -> None:
    grid = {"model.l2": {"choices": [1.0, 500.0]}, "model.row_exponent": {"choices": [0.0, 0.25]}}
    searched = run_search(made(**searching(grid, 4, releases=[], settings={"model": "EASE"})), place / "runs")
    tried = [tuple(trial["settings"].values()) for trial in searched.report["trials"]]
    assert tried == [(l2, exponent) for l2 in (1.0, 500.0) for exponent in (0.0, 0.25)]
    best = max(searched.report["trials"], key=lambda trial: trial["val/ndcg@10"])
    assert searched.report["chosen"] == best["settings"]
    assert not list(searched.folder.rglob("release.json")), "without a release nothing is published"
    assert searched.report["trials_that_published"] == 0


def test_of_choices_that_do_equally_well_the_first_one_listed_is_taken(made: Made, place: Path) -> None:
    """Blocks of users that are scored together change no score."""
    grid = {"model.chunk_size": {"choices": [64, 3]}}
    searched = run_search(made(**searching(grid, 2, releases=[], settings={"model": "UserKNN"})), place / "runs")
    assert len({round(trial["val/ndcg@10"], 6) for trial in searched.report["trials"]}) == 1
    assert searched.report["chosen"] == {"model.chunk_size": 64}


def test_more_trials_than_choices_are_refused() -> None:
    choices = {"model.l2": Range(choices=[1, 2, 3]), "model.row_exponent": Range(choices=[0.0, 0.5])}
    assert Search(6, choices).combinations == 6
    with pytest.raises(ValueError, match=r"has 7 trials\. Its choices allow 6\."):
        Search(7, choices)
    assert Search(7, choices | {"model.lr": Range(0.1, 1.0)}).combinations is None


@pytest.mark.usefixtures("here")
def test_the_first_seed_may_search_for_the_others(made: Made, place: Path) -> None:
    searching_ease = searching({"model.l2": {"choices": [1.0, 500.0]}}, 2, releases=[], settings={"model": "EASE"})
    searching_ease["systems"]["PriCDR"]["search"]["seeds"] = "first"
    first, second = runs_of(made(**searching_ease, seeds=[3, 1]), place / "runs")
    assert (first.searcher, second.searcher) == (first, first)
    with pytest.raises(ValueError, match=r"music/pricdr/seed-3 is not finished\. It searches PriCDR"):
        second.execute()
    for run in (first, second):
        run.prepare_folder()
        run.execute()
    assert not (second.folder / "search").exists()
    chosen = Searched(first.folder).report["chosen"]["model.l2"]
    assert Searched(second.folder).config()["model"]["init_args"]["l2"] == chosen


@pytest.mark.usefixtures("here")
def test_a_search_without_validation_is_refused(made: Made, place: Path) -> None:
    for setting in ({"data.evaluation.split": "latest1"}, {"trainer.limit_val_batches": 0}):
        runs = runs_of(made(**searching(WEIGHTS, settings=setting)), place / "runs")
        with pytest.raises(ValueError, match="needs validation NDCG@10"):
            runs[0].check()
        runs[0].prepare_folder()
        with pytest.raises(ValueError, match="needs validation NDCG@10"):
            runs[0].execute()
        assert not [*runs[0].folder.rglob("releases/*")], "refused before anything is published"


def test_the_best_trial_is_what_a_training_with_its_settings_would_be(tuned: Searched, tmp_path: Path) -> None:
    train_and_test(["--config", str(tuned.folder / "config.yaml")], tmp_path / "again")
    found, again = (json.loads((folder / "metrics.json").read_text()) for folder in (tuned.folder, tmp_path / "again"))
    assert found["metrics"] == again["metrics"]
    assert found["epochs"] == again["epochs"]


@pytest.mark.usefixtures("here")
def test_a_trial_that_diverges_is_not_chosen(made: Made, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from zoo.benchmark import search

    trained = search.trial

    def diverging(arguments: list[str], folder: Path) -> Trial:
        if folder_of_trials(folder) in lost:
            raise DivergedError("train/loss is NaN")
        return trained(arguments, folder)

    def folder_of_trials(folder: Path) -> int:
        return len(list((folder / "search").glob("trial-*")))

    monkeypatch.setattr(search, "trial", diverging)
    lost = {1}
    only_ease = searching({"model.l2": {"choices": [1.0, 500.0]}}, 2, releases=[], settings={"model": "EASE"})
    report = run_search(made(**only_ease), place / "runs").report
    assert [trial["val/ndcg@10"] is None for trial in report["trials"]] == [True, False]
    assert report["chosen"] == report["trials"][1]["settings"]
    lost = {1, 2}
    with pytest.raises(DivergedError, match="All trials of the search diverged"):
        run_search(made(**only_ease, seeds=[1]), place / "runs")


def test_the_trial_that_is_tested_is_best_with_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from zoo.benchmark import search

    values, tested = [0.2, 0.5, 0.5, 0.1], []

    class Fake:
        def __init__(self, _: list[str], folder: Path) -> None:
            self.number = len(list((folder / "search").glob("trial-*"))) - 1
            self.best, self.folder = values[self.number], folder
            (folder / "weights").write_text(str(self.number))

        def test_chosen(self, others: tuple[()]) -> None:
            assert not others
            tested.append((self.number, (self.folder / "weights").read_text()))

    monkeypatch.setattr(search, "trial", Fake)
    asked = Search(trials=4, parameters={"model.l2": Range(low=1.0, high=2.0)})
    search.run_best(asked, [], tmp_path, 0)
    assert tested == [(1, "1")]
    assert [(tmp_path / "search" / f"trial-{n}" / "weights").read_text() for n in range(4)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("setting", "trains"), [("publisher.epsilon", False), ("model.epsilon", True), ("model.l2", False)]
)
def test_no_result_decides_what_is_published_next(
    setting: str, trains: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a smaller epsilon after a lucky release: then the sum over the trials would not bound what they reveal."""
    from zoo.benchmark import search

    monkeypatch.setattr(search, "private_trainings", lambda _: (1,) * trains)
    for name, made in (("train_and_test", None), ("_counted", []), ("_Trials.test", None)):
        owner, _, attribute = name.rpartition(".")
        monkeypatch.setattr(getattr(search, owner) if owner else search, attribute, lambda *_, made=made, **__: made)
    tried: dict[int, list[float]] = {1: [], -1: []}
    for sign, own in tried.items():
        (place := tmp_path / f"{sign}" / "search").mkdir(parents=True)
        by_value = lambda _, __, chosen, own=own, sign=sign: own.append(float(chosen[1])) or sign * own[-1]  # noqa: E731
        monkeypatch.setattr(search._Trials, "run", by_value)
        search.run_best(Search(trials=15, parameters={setting: Range(low=0.1, high=8.0)}), [], place.parent, 0)
    assert (tried[1] == tried[-1]) == (setting != "model.l2")
    assert len({*tried[1]}) == 15


def test_choices_may_be_of_any_kind() -> None:
    values = Range(choices=[[8, 4], None, "text", 1.5])
    assert [suggest(optuna.trial.FixedTrial({"s": n}), "s", values) for n in range(4)] == values.choices  # type: ignore[arg-type]


@pytest.mark.parametrize("log", [False, True])
def test_numbers_lie_in_their_range_and_whole_ones_are_whole(log: bool) -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    trials = [study.ask() for _ in range(40)]
    whole = [suggest(trial, "n", Range(1, 3, log=log, integer=True)) for trial in trials]
    assert set(whole) == {1, 2, 3}
    assert all(type(value) is int for value in whole)
    broken = [suggest(trial, "x", Range(0.5, 8.0, log=log)) for trial in trials]
    assert all(0.5 <= value <= 8 and type(value) is float for value in broken)
    below = sum(value < 2 for value in broken) / 40  # half of the logarithmic range, a fifth of the other
    assert (below > 0.35) == log


def test_chosen_values_become_arguments() -> None:
    ranges = {"model.n": Range(1, 3, integer=True), "model.x": Range(1, 3), "model.c": Range(choices=[[2]])}
    assert any_settings(Search(1, ranges)) == ["--model.n", "1", "--model.x", "1.0", "--model.c", "[2]"]
    assert settings({"model.dims": [8, 4], "model.lr": 0.1}) == ["--model.dims", "[8, 4]", "--model.lr", "0.1"]
