"""The file of a benchmark: what it may say, what it is refused for, and that the shipped ones can be read."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.zoo.benchmark.grids import names, released, searched, system
from zoo.benchmark.grid import Benchmark, BenchmarkError, Range, Search
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.runs import runs_of

ROOT = Path(__file__).parents[3]
Write = Callable[..., Path]
Made = Callable[..., Benchmark]

OF_A_NAME = {"class_path": "Shuffled", "init_args": {"of": "JLT"}}
SHIPPED = sorted((ROOT / "configs" / "benchmarks").glob("*.yaml"))


def test_a_file_is_read_with_its_defaults(made: Made) -> None:
    benchmark = made(seeds=None)
    assert benchmark.seeds == [0, 1, 2, 3, 4]
    assert benchmark.about == ""
    assert benchmark.tasks["music"].settings == {}
    assert benchmark.tasks["music"].published is None
    assert benchmark.systems["Popularity"].config == Path("popularity.yaml")
    assert names(benchmark) == ["music: Popularity"]


def test_a_file_is_read_whole(made: Made) -> None:
    published = {"dataset": "douban", "source": "book", "target": "music"}
    task = {"title": "M", "settings": {"data.link": 0.5}, "published": published}
    parameters = {"model.lr": {"low": 1, "high": 2.5}, "model.dims": {"choices": [[8, 4], [4]]}}
    search = {"trials": 3, "parameters": parameters}
    benchmark = made(
        about="what it is",
        tasks={"music": task},
        seeds=[3, 1],
        **system(
            settings={"model.dims": [4]},
            releases=[{"publisher": "Plaintext", "label": "all", "published_as": "P", "reason": "r"}],
            seeds=[7],
            tasks=["music"],
            search=search,
        ),
    )
    assert benchmark.about == "what it is"
    kept = benchmark.tasks["music"].published
    assert kept is not None
    assert (kept.dataset, kept.source, kept.target) == ("douban", "book", "music")
    searched = {"model.lr": Range(1, 2.5), "model.dims": Range(choices=[[8, 4], [4]])}
    assert benchmark.systems["S"].search == Search(3, searched)
    first, _ = benchmark.rows()
    assert (first.name, first.published_as, first.reason) == ("S, all", "P", "r")
    assert benchmark.seeds_of(first) == [7], "a system's own seeds come first"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"No config '.*absent.yaml', .* Names: python -m zoo"):
        read_benchmark(tmp_path / "absent.yaml")
    with pytest.raises(BenchmarkError, match="is a folder, not a config"):
        read_benchmark(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title: [", r"bench.yaml is not valid YAML: "),
        ("", r"bench.yaml has no settings of a benchmark"),
        ("title: 2024-01-01", r"has a value that is no text, number, list or map: .*date"),
        ("title: {? [1, 2] : 3}", r"is not valid YAML|has a value that is no text"),
    ],
)
def test_a_file_that_holds_no_settings_is_refused(place: Path, text: str, message: str) -> None:
    (place / "bench.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(BenchmarkError, match=message):
        read_benchmark(place / "bench.yaml")


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"sedes": [0]}, "sedes"),
        ({"tasks": {"music": {"title": "M", "seting": {}}}}, r"tasks.music.seting"),
        (
            {"tasks": {"music": {"title": "M", "published": {"dataset": "d", "source": "s", "targt": "t"}}}},
            "published.targt",
        ),
        (system(confg="x"), r"systems.S.confg"),
        (released(lable="x"), r"systems.S.releases.0.lable"),
        (system(search={"trials": 1, "parameters": {}, "sampler": "tpe"}), r"systems.S.search.sampler"),
        (searched(low=0.1, high=1.0, stepp=2), r"systems.S.search.parameters.model\.lr.stepp"),
    ],
)
def test_an_unknown_key_is_named_with_its_place(write: Write, settings: dict[str, Any], where: str) -> None:
    with pytest.raises(BenchmarkError, match=rf"bench.yaml: .*{where}: unknown setting"):
        read_benchmark(write(**settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"title": None}, r"title: .*required"),
        ({"tasks": {}}, "tasks is empty"),
        ({"systems": {}}, "systems is empty"),
        ({"seeds": []}, "seeds is empty"),
        ({"seeds": [1, 2, 1]}, r"seeds of the benchmark are \[1, 2, 1\]"),
        ({"seeds": [0, -1]}, r"seeds of the benchmark are \[0, -1\]"),
        (
            released(publisher={"class_path": "JLT", "init_args": "epsilon"}),
            r"publisher is .*'epsilon'.*class_path and init_args",
        ),
        (
            released(publisher={"class_path": "Shuffled", "init_args": {"of": {"class_path": 3}}}),
            r"publisher is \{'class_path': 3\}. It must be a class name",
        ),
        (
            released(publisher=OF_A_NAME, epsilons=[3], epsilon_key="of.epsilon"),
            r"epsilon_key has 'JLT' at 'epsilon'\. Its path",
        ),
        (system(seeds=[]), r"seeds of S are \[\]"),
        ({"tasks": {"a": {"title": "A", "seeds": []}}}, r"seeds of a are \[\]"),
        (
            system(search={"trials": 2, "seeds": "first", "parameters": {"publisher.epsilon": {"low": 1, "high": 2}}}),
            r"seeds is 'first', and each trial publishes\. Set 'each'",
        ),
        (system(tasks=["music", "film"]), r"tasks of S have \['film'\]. They must be of \['music'\]"),
        (released(tasks=["film"]), r"tasks of S have \['film'\]. They must be of \['music'\]"),
        (system(config="absent.yaml"), r"S has no config at absent\.yaml\. Builtin ones: python -m zoo"),
        (released(publisher={"init_args": {}}), r"publisher is \{'init_args': \{\}\}"),
        (system(search={"trials": 0, "parameters": {"model.lr": {"low": 1, "high": 2}}}), "has 0 trials .*both"),
        (system(search={"trials": 5, "parameters": {}}), r"has 5 trials of \[\]\. It needs both"),
        (searched(low=1, high=1), r"A range is low 1.0, high 1.0, .*needs finite low < high"),
        (searched(low=0, high=1, log=True), r"log: above 0"),
        (searched(low=1, high=2, choices=[1, 2]), r"low 1.0, high 2.0, .*choices \[1, 2\]"),
        (searched(low=1), r"A range is low 1.0, high None"),
        (searched(), r"A range is low None, high None"),
    ],
)
def test_what_makes_no_benchmark_is_refused(write: Write, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchmarkError, match=rf"(?s)bench.yaml: .*{message}"):
        read_benchmark(write(**settings))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": ["1"]}, r"seeds.0: .*integer.* got '1'"),
        ({"seeds": [True]}, r"seeds.0: .*integer.* got True"),
        (released(epsilons=["8"]), r"systems.S.releases.0.epsilons.0: .*number.* got '8'"),
        (released(publisher=3), r"systems.S.releases.0.publisher"),
        (searched(low="0.1", high=1.0), r"parameters.model\.lr.low: .*number.* got '0.1'"),
        (
            system(search={"trials": "5", "parameters": {"model.lr": {"low": 1, "high": 2}}}),
            r"trials: .*integer.* got '5'",
        ),
    ],
)
def test_a_value_of_another_kind_is_refused(write: Write, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        read_benchmark(write(**settings))


def test_every_wrong_place_is_named_at_once(write: Write) -> None:
    with pytest.raises(BenchmarkError, match=r"(?s)systems.S.confg: unknown setting.*extra: unknown setting"):
        read_benchmark(write(extra=1, **system(confg="x")))


def test_two_rows_of_one_name_are_refused(write: Write) -> None:
    two = [{"publisher": "Plaintext"}, {"publisher": {"class_path": "zoo.Plaintext"}}]
    with pytest.raises(
        BenchmarkError, match=r"Several rows have the names \[.*'music: S, Plaintext'.*\]. Use different labels"
    ):
        read_benchmark(write(**system(releases=two)))
    twice = [{"publisher": "JLT", "epsilons": [1.0, 1.00000001]}]
    with pytest.raises(BenchmarkError, match=r"Several rows have the names \[.*'music: S, JLT eps 1'"):
        read_benchmark(write(**system(releases=twice)))
    two[1]["label"] = "the same again"
    assert names(read_benchmark(write(**system(releases=two))))[2] == "music: S, the same again"


def test_a_key_that_is_given_twice_is_refused(write: Write) -> None:
    path = write()
    path.write_text(path.read_text(encoding="utf-8") + "  Popularity: {config: pricdr.yaml}\n", encoding="utf-8")
    with pytest.raises(BenchmarkError, match="Popularity"):
        read_benchmark(path)


def test_a_benchmark_without_a_row_is_refused(write: Write) -> None:
    with pytest.raises(BenchmarkError):
        read_benchmark(write(**system(tasks=[])))


@pytest.mark.parametrize(
    "settings",
    [
        {"low": 0.5, "high": 3, "integer": True},  # the lowest whole number would be 0, below what was asked
        {"low": 0.5, "high": 3, "integer": True, "log": True},  # and 0 has no logarithm
        {"low": 1, "high": float("inf")},
        {"low": 5, "high": 1, "choices": [1, 2]},
    ],
)
def test_a_range_that_cannot_be_searched_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="A range is"):
        Range(**settings)


@pytest.mark.parametrize(
    ("settings", "inside", "outside"),
    [
        ({"low": 0.5, "high": 3}, [0.5, 1, 3.0], [0.4, 4, True, "1", float("nan"), None, [1]]),
        ({"low": 1, "high": 3, "integer": True}, [1, 3], [2.0, 0, True]),
        ({"choices": [[1, 2], "a"]}, [[1, 2], "a"], [1, "b", {"a": 1}]),
    ],
)
def test_a_range_has_the_values_of_its_search(settings: dict[str, Any], inside: list[Any], outside: list[Any]) -> None:
    assert all(value in Range(**settings) for value in inside)
    assert not any(value in Range(**settings) for value in outside)


@pytest.mark.parametrize(("parameter", "anew"), [("publisher.epsilon", True), ("data.batch_size", False)])
def test_a_search_over_the_publisher_publishes_in_every_trial(parameter: str, anew: bool) -> None:
    assert Search(1, {"model.lr": Range(1, 2), parameter: Range(1, 2)}).touches_source is anew


@pytest.mark.parametrize("parameter", ["data.filters.min_user_ratings", "data.evaluation.split", "data.users", "seed"])
def test_a_search_may_not_change_the_data(parameter: str) -> None:
    with pytest.raises(ValueError, match="It may set"):
        Search(1, {parameter: Range(choices=[1, 2])})


@cache
def shipped(path: Path) -> Benchmark:
    """Each is read once, from the project's own folder."""
    return read_benchmark(path)


def test_a_shipped_benchmark_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for path in SHIPPED:
        benchmark = shipped(path)
        assert list(benchmark.rows()), path
        assert path.read_text(encoding="utf-8").startswith("# "), f"the first line of {path} says what it is"
        differs = {task for task, about in benchmark.tasks.items() if about.published and about.published.differs}
        claims = [row for row in benchmark.rows() if row.published_as]
        assert all(row.reason or row.task in differs for row in claims), f"a paper's figure in {path} needs a reason"


def test_shipped_benchmarks_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert len(SHIPPED) >= 3
    for called in ([path.stem for path in SHIPPED], [shipped(path).title for path in SHIPPED]):
        assert len(set(called)) == len(called)


def embedders(publisher: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Settings of every EmbeddingPublisher with an epsilon in those of a publisher, controls looked into."""
    given = publisher.get("init_args") or {}
    if publisher["class_path"] == "EmbeddingPublisher" and given.get("epsilon") is not None:
        yield given
    if isinstance(given.get("of"), dict):
        yield from embedders(given["of"])


def test_in_a_shipped_benchmark_all_sources_share_epsilon_of_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a run of 15 sources would spend more than six times what its row is called."""
    monkeypatch.chdir(ROOT)
    for benchmark, row in ((each, row) for each in map(shipped, SHIPPED) for row in each.rows()):
        settings = benchmark.tasks[row.task].settings | benchmark.systems[row.system].settings
        for given in embedders(row.publisher or {"class_path": ""}):
            sources = settings.get("data.sources", settings["data"]["init_args"]["sources"])
            assert given.get("num_releases", 1) == len(sources), (benchmark.title, row.task, row.name)


def test_a_baseline_names_a_row_and_changes_no_run(write: Write, made: Made, tmp_path: Path) -> None:
    plain = made()
    name = next(plain.rows()).name
    named = made(baseline=name)
    assert (plain.baseline, named.baseline, named.plain()["baseline"]) == ("", name, name)
    assert [run.digest for run in runs_of(named, tmp_path)] == [run.digest for run in runs_of(plain, tmp_path)]
    with pytest.raises(BenchmarkError, match=r"baseline is 'Nobody'\. It must be one of \['"):
        read_benchmark(write(baseline="Nobody"))


TWO_TASKS: dict[str, Any] = {"tasks": {"few": {"title": "Few"}, "many": {"title": "Many"}}}


def in_series(single: str, tasks: dict[int, str], **settings: object) -> dict[str, Any]:
    """A system of several sources beside its target alone, and a series."""
    systems = {"Popularity": {"config": "popularity.yaml", "tasks": ["few"]}}
    releases = [{"publisher": "Plaintext", "noise_control": False}, {"publisher": "Nothing", "tasks": ["few"]}]
    systems["S"] = {"config": "pricdr.yaml", "single": single, "releases": releases, **settings}
    return {**TWO_TASKS, "systems": systems, "series": {"Music": tasks}}


@pytest.mark.parametrize("single", ["Popularity", "S, Nothing"])
def test_a_series_is_read_by_its_numbers_of_domains(single: str, made: Made) -> None:
    benchmark = made(**in_series(single, {4: "few", 16: "many"}))
    assert benchmark.series == {"Music": {4: "few", 16: "many"}}
    assert benchmark.systems["S"].single == single
    assert benchmark.plain()["series"] == {"Music": {"4": "few", "16": "many"}}
    assert made().series == {}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (in_series("Popularity", {4: "none"}), r"series 'Music' has \['none'\]\. It must have tasks of"),
        (in_series("Popularity", {0: "few"}), r"'Music' is {0: 'few'}\. .* number of domains"),
        (in_series("Popularity", {4: "few", 8: "few"}), r"'Music' is {4: 'few', 8: 'few'}"),
        (in_series("Popularity", {}), r"'Music' is {}"),
        (in_series("EASE", {4: "few"}), r"single of S is 'EASE'\. .* one of \['Popularity', 'S, Nothing'\]"),
        (in_series("S, Plaintext", {4: "few"}), "single of S is 'S, Plaintext'"),
        (in_series("Popularity", {16: "many"}), r"one of \[\]"),
    ],
)
def test_a_series_that_compares_nothing_is_refused(write: Write, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        read_benchmark(write(**settings))


def test_a_series_changes_no_run(made: Made, tmp_path: Path) -> None:
    """What is finished stays finished when a series is declared."""
    declared = in_series("Popularity", {4: "few", 16: "many"})
    bare = in_series("", {}) | {"series": None}
    digests = [{run.name: run.digest for run in runs_of(made(**grid), tmp_path)} for grid in (declared, bare)]
    assert digests[0] == digests[1]


def test_a_sweep_names_rows(write: Write, made: Made) -> None:
    swept = {"systems": {"S": {"config": "pricdr.yaml", "releases": [{"publisher": "JLT", "epsilons": [1, 2]}]}}}
    rows = [row.name for row in made(**swept).rows()][:3]
    assert made(**swept, sweeps={"S": rows}).plain()["sweeps"] == {"S": rows}
    for wrong, message in (
        (["Nobody", *rows], r"4 rows, unknown: \['Nobody'\]"),
        (rows[:2], r"'S' has 2 rows, unknown: \[\]"),
    ):
        with pytest.raises(BenchmarkError, match=message):
            read_benchmark(write(**swept, sweeps={"S": wrong}))
