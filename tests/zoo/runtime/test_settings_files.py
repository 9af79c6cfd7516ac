"""Settings files: a key that is given twice is refused wherever a file is read, and ``~`` is the home folder."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonargparse import ArgumentError, ArgumentParser

import zoo
from datamodules import Files
from tests.samples import memory_below
from zoo.__main__ import main
from zoo.runs.parser_messages import overridden_options
from zoo.runtime import settings_files
from zoo.runtime.settings_files import SettingsFileError, check_keys, read_json, read_yaml, with_home

TWICE = """model:
  class_path: UserKNN
data: {class_path: Synthetic}
publisher: {class_path: FlippedRows, init_args: {epsilon: 1.0}}
trainer: {max_epochs: 1}
publisher: {class_path: FlippedRows, init_args: {epsilon: 8.0}}
"""


@pytest.mark.parametrize(
    "command",
    [
        ("publish", "--out", "release", "--config"),
        ("privacy", "plan", "--config"),
        ("fit", "--config"),
        ("configs", "show"),
        ("benchmark", "--dry-run", "--config"),
        ("data", "describe", "--config"),
    ],
)
def test_two_blocks_of_one_key_are_refused_by_every_command(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.yaml").write_text(TWICE)
    monkeypatch.setattr("sys.argv", ["zoo", *command, "a.yaml"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (
        "a.yaml: publisher is given twice (lines 4 and 6). Keep one." in f"{capsys.readouterr().err}{ended.value.code}"
    )
    assert not Path("release").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [{c: 1, d: 2},\n {c: 1,\n  c: 2}]", r"f: b\.c is given twice \(lines 3 and 4\)"),
        ("a: {b: 1, b: 2}", "f: a.b is given twice. Keep one"),
        ("x: &a {k: 1}\ny: *a\nz:\n  <<: *a\n  k: 2\n1: 3\n'1': 4", ""),
        ("a: {b: 1, b: 2", ""),
        (f"a: {'[' * 500}{']' * 500}", "f: more than 500 levels"),
        (f"a: &a {'[' * 250}{']' * 250}\nb: {'[' * 250}*a{']' * 250}", r"f: more than 500 levels, aliases \(\*\)"),
        (f"a: &a {'[' * 250}{']' * 250}\nb: {'[' * 249}*a{']' * 249}", ""),
        (f"a: &a {'[' * 250}{']' * 250}\n? {'[' * 250}*a{']' * 250}\n: 1", "f: more than 500 levels"),
    ],
)
def test_repeated_keys_are_found_at_any_depth(text: str, message: str) -> None:
    if message:
        with pytest.raises(SettingsFileError, match=message):
            read_yaml(text, "f")
        return
    try:
        expected = yaml.safe_load(text)
    except yaml.YAMLError as error:
        with pytest.raises(type(error)):
            read_yaml(text, "f")
    else:
        assert read_yaml(text, "f") == expected


def test_long_keys_are_not_repeated_for_each_value() -> None:
    text = f"? {'k' * 10**5}\n:\n" + "".join(f" a{n}:\n" for n in range(1_000))
    with memory_below(20e6), pytest.raises(SettingsFileError, match=r"f: k+\.a0 is given twice"):
        check_keys(f"{text} a0:\n", "f")


@pytest.mark.parametrize(("begun", "most"), [("a0: &a0 {k: 1}", "100,000 values"), ("a0: &a0 [1, *a0]", "500 levels")])
def test_values_are_counted_before_they_are_made(begun: str, most: str, monkeypatch: pytest.MonkeyPatch) -> None:
    merged = "\n".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 10)}]}}" for n in range(1, 9))
    monkeypatch.setattr(yaml, "safe_load", lambda _: pytest.fail("10^8 pairs are made"))
    with pytest.raises(SettingsFileError, match=rf"f: more than {most}, aliases \(\*\) expanded"):
        read_yaml(f"{begun}\n{merged}", "f")


def test_json_is_checked_also_where_it_is_no_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SettingsFileError, match=r"f: a\.b is given twice \(lines 2 and 3\)"):
        read_json('{"a":\n{"b": 1,\n"b": 2}}', "f")
    with pytest.raises(SettingsFileError, match=r"f: b is given twice\. Keep one"):
        read_json('{"a": "\\ud800",\n"b": 1,\n"b": 2}', "f")
    assert read_json(json.dumps({"a": [{"b": 1}, {"b": 2}]}), "f") == {"a": [{"b": 1}, {"b": 2}]}
    monkeypatch.setattr(settings_files, "check_keys", lambda *_: pytest.fail("a minute for 4 MB, without a line"))
    keys = "".join(f'"{key}": 0, ' for key in range(100_000))  # of which none may be compared with all others
    with pytest.raises(SettingsFileError, match=r"f: last is given twice\. Keep one"):
        read_json(f'{{{keys}"last": 0, "last": 1}}', "f")


def test_a_file_that_a_config_names_is_checked_too(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text("class_path: zoo.BPR\ninit_args: {lr: 1}\ninit_args: {lr: 2}\n")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(zoo.Recommender, "model")
    with pytest.raises((ArgumentError, SettingsFileError), match=r"init_args is given twice \(lines 2 and 3\)"):
        parser.parse_args([f"--model={tmp_path / 'm.yaml'}"])


def test_options_before_a_file_that_sets_them_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("model: {class_path: BPR, init_args: {lr: 0.1}}\ntrainer: {max_epochs: 2}\n")
    before, after = "fit --model EASE --trainer.max_epochs=9 --data.seed 1 --config", "--model.lr 3"
    given = [*before.split(), str(path), *after.split()]
    assert [message.split(" has no effect")[0] for message in overridden_options(given)] == [
        "--model",
        "--trainer.max_epochs=9",
    ]
    assert not [*overridden_options(["fit", f"--config={path}", "--model.lr", "3"])]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("~/a", "HOME/a"),
        ("--data.root=~/a", "--data.root=HOME/a"),
        ("book=~/a", "book=HOME/a"),
        ({"data": ["~/a", "x ~/a", "~x", 1]}, {"data": ["HOME/a", "x ~/a", "~x", 1]}),
    ],
)
def test_the_home_folder_is_found(given: Any, found: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    monkeypatch.setenv("HOME", "HOME")
    assert with_home(given) == found


@pytest.mark.thorough
def test_a_run_is_read_from_any_folder_and_its_ratings_may_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    rows = [f"u{u},i{(u + n) % 12},1,{n}" for u in range(9) for n in range(5)]
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "shop.csv").write_text("\n".join(["user_id,item_id,rating,timestamp", *rows]))
    (tmp_path / "items.csv").write_text("\n".join(["item_id", *(f"i{n}" for n in range(12))]))
    for root in (Path("own"), Path("~/own")):
        data = Files("x", "shop", root=root, catalogues={"shop": Path("items.csv")})
        run = zoo.fit(zoo.Popularity(), data, runs="~/runs", accelerator="cpu", enable_progress_bar=False)
        assert run.folder.is_relative_to(tmp_path / "runs")
        assert yaml.safe_load((run.folder / "config.yaml").read_text())["data"]["init_args"]["root"] == str(
            tmp_path / "own"
        )
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    found = zoo.load(run).recommend(["u1"])
    (tmp_path / "own").rename(tmp_path / "moved")
    assert zoo.load(run, root="~/moved").recommend(["u1"]).equals(found)
    with pytest.raises(ValueError, match=r"Only a run uses it\. Pass data=Files"):
        zoo.load(run, data=data, root="~/moved")
    monkeypatch.setattr("sys.argv", ["zoo", "recommend", str(run.folder), "--users", "u1", "--data.root", "~/moved"])
    main()
    assert "u1" in capsys.readouterr().out
    scored = ["validate", "--config", "~/runs/Popularity/version_1/config.yaml", "--data.root=~/moved"]
    monkeypatch.setattr(
        "sys.argv", ["zoo", *scored, "--ckpt_path", "~/runs/Popularity/version_1/checkpoints/best.ckpt"]
    )
    main()
    assert "Metrics: " in capsys.readouterr().out
