"""The grid: which rows and arguments come of a file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.zoo.benchmark.grids import names, released, system
from zoo.benchmark.grid import Benchmark, BenchmarkError, Row, as_argument
from zoo.benchmark.runs import BenchmarkRun

Made = Callable[..., Benchmark]


def publisher_of(arguments: list[str]) -> dict[str, Any]:
    first = arguments.index("--publisher")
    assert arguments[first + 1] == "null", "what the config says of its publisher is no part of a row"
    given: dict[str, Any] = json.loads(arguments[arguments.index("--publisher", first + 1) + 1])
    return given


def test_every_epsilon_has_a_row_and_its_own_noise_control_behind_it(made: Made) -> None:
    jlt = {"class_path": "JLT", "init_args": {"num_components": 8}}
    rows = list(made(**system(releases=[{"publisher": jlt, "epsilons": [1, 0.5, 16]}])).rows())
    labels = [f"JLT eps {epsilon}" for epsilon in ("1", "0.5", "16")]
    assert [row.release for row in rows] == [name for label in labels for name in (label, f"Noise ({label})")]
    for row, control, epsilon in zip(rows[::2], rows[1::2], (1.0, 0.5, 16.0), strict=True):
        settings = {"class_path": "JLT", "init_args": {"num_components": 8, "epsilon": epsilon}}
        assert row == Row("music", "S", row.release, epsilon=epsilon, publisher=settings)
        assert control.publisher == {"class_path": "Noise", "init_args": {"of": settings}}
        assert (control.control, control.of, control.epsilon) == ("noise", row.release, epsilon)
    assert jlt == {"class_path": "JLT", "init_args": {"num_components": 8}}


def test_a_noise_baseline_searches_what_it_imitates(made: Made, tmp_path: Path) -> None:
    jlt = {"class_path": "JLT", "init_args": {"num_components": 8, "epsilon": 4.0}}
    choices = {"publisher.num_components": [8, 16], "publisher.init_args.epsilon": [2.0, 4.0], "model.lr": [0.1]}
    search = {"trials": 2, "parameters": {name: {"choices": each} for name, each in choices.items()}}
    benchmark = made(**system(releases=[{"publisher": jlt}], search=search))
    own, noise = (BenchmarkRun(benchmark, row, 0, tmp_path) for row in benchmark.rows())
    imitated = ["publisher.of.init_args.num_components", "publisher.of.init_args.epsilon", "model.lr"]
    for run, keys in ((own, [*choices]), (noise, imitated)):
        assert [*run.settings()["search"]["parameters"]] == keys
        run.check()


def test_a_release_without_epsilons_is_one_row_and_its_control(made: Made) -> None:
    row, control = made(**released(label="everything")).rows()
    assert row.name == "S, everything"
    assert row.epsilon is None
    assert row.publisher == {"class_path": "Plaintext"}
    assert control.name == "S, Noise (everything)"
    assert control.publisher == {"class_path": "Noise", "init_args": {"of": {"class_path": "Plaintext"}}}


@pytest.mark.parametrize(
    "publisher",
    [
        "Nothing",
        {"class_path": "Nothing", "init_args": {"kind": "ratings"}},
        {"class_path": "Shuffled", "init_args": {"of": "Plaintext"}},
        {
            "class_path": "Thinned",
            "init_args": {
                "share": 0.5,
                "of": {"class_path": "zoo.publishers.controls.Shuffled", "init_args": {"of": "JLT"}},
            },
        },
        {"class_path": "Noise", "init_args": {"of": "Plaintext"}},
    ],
)
def test_a_control_has_no_control(made: Made, publisher: str | dict[str, Any]) -> None:
    (row,) = made(**released(publisher=publisher)).rows()
    assert row.control == "control"


def test_what_the_papers_call_it_is_said_of_the_row_alone(made: Made) -> None:
    row, control = made(**released(published_as="PriCDR-J", reason="ours differs")).rows()
    assert (row.published_as, row.reason) == ("PriCDR-J", "ours differs")
    assert (control.published_as, control.reason) == ("", "")
    (row,) = made(**system(published_as="DMF", reason="scaled")).rows()
    assert (row.published_as, row.reason) == ("DMF", "scaled")


def test_systems_and_releases_run_on_their_own_tasks(made: Made) -> None:
    a = {"config": "pricdr.yaml"}
    benchmark = made(
        tasks={"music": {"title": "M"}, "cold": {"title": "C"}},
        systems={
            "A": {**a, "tasks": ["cold"]},
            "B": {
                **a,
                "releases": [
                    {"publisher": "Plaintext", "noise_control": False},
                    {"publisher": "Nothing", "tasks": ["music"]},
                    {"publisher": "JLT", "epsilons": [1, 2], "tasks": ["cold"], "noise_control": False},
                ],
            },
            "C": {**a, "tasks": ["music"], "releases": [{"publisher": "Nothing", "tasks": ["cold"]}]},
        },
    )
    cold = ["cold: A", "cold: B, Plaintext", "cold: B, JLT eps 1", "cold: B, JLT eps 2"]
    assert names(benchmark) == ["music: B, Plaintext", "music: B, Nothing", *cold]


def test_arguments_are_the_settings_of_the_task_and_then_of_the_system(made: Made) -> None:
    benchmark = made(
        tasks={"music": {"title": "M", "settings": {"data.link": 0.5, "model.lr": 0.1}}},
        **system(settings={"model.lr": 0.2, "model": "PriCDR", "data.sources": ["book"], "publisher": None}),
    )
    (row,) = benchmark.rows()
    assert benchmark.arguments(row, 3) == [
        *("--config", "pricdr.yaml"),
        *("--data.link", "0.5", "--model.lr", "0.1"),
        *("--model.lr", "0.2", "--model", "PriCDR", "--data.sources", '["book"]', "--publisher", "null"),
        *("--seed_everything", "3"),
    ]


def test_the_publisher_of_a_row_comes_after_the_settings(made: Made) -> None:
    benchmark = made(**system(settings={"model.lr": 0.2}, releases=[{"publisher": "JLT", "epsilons": [4]}]))
    row, _ = benchmark.rows()
    arguments = benchmark.arguments(row, 0)
    assert arguments.index("--publisher") > arguments.index("--model.lr")
    assert publisher_of(arguments) == {"class_path": "JLT", "init_args": {"epsilon": 4.0}}


def test_a_publisher_of_the_configs_class_takes_nothing_of_the_config(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its noise control does, whose publisher is of another class; rows of plain vectors were private ones so."""
    config = tmp_path / "bridge.yaml"
    clipped = {"class_path": "NoisyRows", "init_args": {"epsilon": 2.0, "clip": 3.0}}
    parts = {"model": {"class_path": "PriCDR"}, "data": {"class_path": "Synthetic"}, "publisher": clipped}
    config.write_text(json.dumps(parts))
    benchmark = made(**system(config=str(config), releases=[{"publisher": "NoisyRows", "epsilons": [8]}]))
    row, _ = benchmark.rows()
    from zoo.runs.cli import ZooCLI, import_names

    import_names()
    monkeypatch.setattr("sys.argv", ["zoo"])
    parsed = ZooCLI(args=benchmark.arguments(row, 0), run=False).settings()["publisher"]["init_args"]
    assert (parsed["epsilon"], parsed["clip"]) == (8.0, None)


@pytest.mark.parametrize(("name", "of"), [("Noise", "JLT"), ("Shuffled", "Plaintext"), ("zoo.Shuffled", "Plaintext")])
def test_the_draw_of_a_control_follows_the_seed_of_the_run(made: Made, name: str, of: str) -> None:
    benchmark = made(**released(publisher={"class_path": name, "init_args": {"of": of}}))
    (row,) = benchmark.rows()
    assert "seed" not in (row.publisher or {})["init_args"], "the row is the same whatever the seed"
    for seed in (0, 5):
        given = {"class_path": name, "init_args": {"seed": seed, "of": of}}
        assert publisher_of(benchmark.arguments(row, seed)) == given
    benchmark = made(**released(publisher={"class_path": name, "init_args": {"of": of, "seed": 99}}))
    (row,) = (row for row in benchmark.rows() if row.control != "noise")
    assert publisher_of(benchmark.arguments(row, 4))["init_args"]["seed"] == 99, "a seed of the file stays"


def test_a_seed_is_given_to_nothing_that_draws_nothing(made: Made) -> None:
    benchmark = made(**system(releases=[{"publisher": name, "noise_control": False} for name in ("JLT", "Nothing")]))
    for row in benchmark.rows():
        assert publisher_of(benchmark.arguments(row, 4)) == {"class_path": row.release}


def test_a_setting_is_written_as_the_command_line_takes_it() -> None:
    assert as_argument("a", "text") == ["--a", "text"]
    for value in (None, True, 3, 0.1, [1, 2], {"b": None}):
        key, written = as_argument("a.b", value)
        assert key == "--a.b"
        assert json.loads(written) == value


def test_a_benchmark_can_be_written_as_json(made: Made) -> None:
    search = {"trials": 1, "parameters": {"model.lr": {"low": 0.1, "high": 1}}}
    benchmark = made(**system(search=search, releases=[{"publisher": "JLT", "epsilons": [1]}]))
    plain = benchmark.plain()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["systems"]["S"]["config"] == "pricdr.yaml"
    assert plain["systems"]["S"]["search"]["parameters"]["model.lr"]["high"] == 1.0
    assert plain["systems"]["S"]["releases"][0]["epsilons"] == [1.0]
    assert plain["seeds"] == [0]


def test_an_epsilon_may_lie_in_another_class_of_the_publisher(made: Made) -> None:
    network = {"class_path": "SPPG", "init_args": {"steps": 4}}
    nested = {"class_path": "GeneratorPublisher", "init_args": {"network": network}}
    given = {"epsilons": [3], "epsilon_key": "network.init_args.epsilon", "noise_control": False}
    (row,) = made(**released(publisher=nested, **given)).rows()
    assert row.publisher is not None
    assert row.publisher["init_args"]["network"] == {"class_path": "SPPG", "init_args": {"steps": 4, "epsilon": 3.0}}
    assert nested["init_args"] == {"network": {"class_path": "SPPG", "init_args": {"steps": 4}}}
    assert row.release == "GeneratorPublisher eps 3"


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("epsilon", "eps"),
        ("of.init_args.epsilon", "eps"),
        ("attack_success", "attack success"),
        ("of.init_args.attack_success", "attack success"),
    ],
)
def test_a_row_is_named_by_what_its_number_is(made: Made, key: str, kind: str) -> None:
    publisher = {"class_path": "NoisyRows"}
    row, noise = made(**released(publisher=publisher, epsilons=[0.95], epsilon_key=key)).rows()
    assert [row.release, noise.release] == [f"NoisyRows {kind} 0.95", f"Noise (NoisyRows {kind} 0.95)"]
    assert noise.of == row.release


def test_public_draws_follow_the_seed_and_trainings_do_not(made: Made) -> None:
    trained = {"class_path": "GeneratorPublisher", "init_args": {"network": "SPPG"}}
    benchmark = made(**released(publisher=trained))
    row, control = benchmark.rows()
    assert "seed" not in publisher_of(benchmark.arguments(row, 7))["init_args"], "a known seed leaves no guarantee"
    inner = publisher_of(benchmark.arguments(control, 7))["init_args"]
    assert inner["seed"] == 7
    assert "seed" not in inner["of"]["init_args"]
    given = {"class_path": "GeneratorPublisher", "init_args": {"network": "SPPG", "seed": 3}}
    benchmark = made(**released(publisher=given))
    assert publisher_of(benchmark.arguments(next(iter(benchmark.rows())), 7))["init_args"]["seed"] == 3


def test_seeds_are_those_of_the_system_else_of_the_task_else_of_the_benchmark(made: Made) -> None:
    tasks = {"few": {"title": "F", "seeds": [7]}, "many": {"title": "M"}}
    systems = {"A": {"config": "popularity.yaml"}, "B": {"config": "popularity.yaml", "seeds": [2]}}
    benchmark = made(seeds=[0, 1], tasks=tasks, systems=systems)
    found = {(row.task, row.system): benchmark.seeds_of(row) for row in benchmark.rows()}
    assert found == {("few", "A"): [7], ("few", "B"): [2], ("many", "A"): [0, 1], ("many", "B"): [2]}


def test_folds_set_split_and_seeds_of_every_system(made: Made) -> None:
    task = {"title": "Folds", "folds": 3, "repeats": 2}
    benchmark = made(tasks={"t": task}, **system(seeds=[0]))
    assert [benchmark.seeds_of(row) for row in benchmark.rows()] == [[0, 1, 2, 3, 4, 5]]
    arguments = benchmark.arguments(next(benchmark.rows()), 4)
    assert arguments[arguments.index("--data.evaluation.split") :][:4] == [
        "--data.evaluation.split", "folds", "--data.evaluation.folds", "3",
    ]  # fmt: skip
    with pytest.raises(BenchmarkError, match="folds of t are 1"):
        made(tasks={"t": task | {"folds": 1}}, **system())
