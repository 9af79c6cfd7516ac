"""Configs by name wherever one stands, and any config as text: nothing that it names is imported."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from zoo.__main__ import main
from zoo.commands.configs import main as configs
from zoo.commands.configs import names_code, origin, texts_in
from zoo.commands.listing import listing
from zoo.runtime import builtin_configs, plugins

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", ["pricdr/quickstart", "pricdr/quickstart.yaml", "configs/pricdr/quickstart.yaml"])
def test_a_config_is_found_by_name_and_a_file_that_is_there_goes_before(name: str, tmp_path: Path) -> None:
    assert builtin_configs.find(Path(name)) == ROOT / "configs" / "pricdr" / "quickstart.yaml"
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).touch()
    assert builtin_configs.find(Path(name)) == Path(name)


def test_what_is_no_config_stays_as_it_was_given() -> None:
    for name in ("absent", "../pyproject.toml", "pricdr/../pricdr/quickstart", "configs", ""):
        assert builtin_configs.find(Path(name)) == Path(name)


def test_only_config_arguments_are_looked_up() -> None:
    there = str(ROOT / "configs" / "bpr" / "douban.yaml")
    given = "fit --config bpr/douban --config=bpr/douban -c bpr/douban --out bpr/douban --config"
    assert builtin_configs.with_configs_found(given.split()) == [
        *("fit", "--config", there, f"--config={there}", "-c", there, "--out", "bpr/douban", "--config")
    ]


@pytest.mark.thorough
def test_the_program_finds_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("sys.argv", ["zoo", "benchmark", "--config", "benchmarks/smoke", "--dry-run"])
    main()
    assert "pending" in capsys.readouterr().out


def test_list_names_configs_and_no_path_that_is_not_there() -> None:
    names = [line.split()[0] for line in listing().split("configs (")[1].splitlines()[1:]]
    assert "pricdr/quickstart" in names
    assert all(builtin_configs.find(Path(name)).is_file() for name in names)


def test_a_copy_is_made_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    configs(["copy", "pricdr/quickstart"])
    assert capsys.readouterr().out == "Copied: quickstart.yaml\n"
    copied, whole = tmp_path / "quickstart.yaml", ROOT / "configs" / "pricdr" / "quickstart.yaml"
    assert copied.read_bytes() == whole.read_bytes()
    with pytest.raises(SystemExit, match=r"quickstart\.yaml exists. Choose another file"):
        configs(["copy", "pricdr/quickstart"])
    with pytest.raises(SystemExit, match=r"No config 'pricdr/quikstart'.* Did you mean pricdr/quickstart"):
        configs(["copy", "pricdr/quikstart"])


def test_a_received_config_is_shown_and_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "received_code.py").write_text("raise BaseException('imported')")
    (tmp_path / "received.yaml").write_text(
        "model: received_code.Evil\ndata:\n  class_path: Synthetic\n  init_args: {optimizer: received_code.Optimizer}\n"
        "publisher: {class_path: zoo.JLT}\ntrainer: {callbacks: [{class_path: absent.X}]}\nusers: users.csv\n"
        'name: "\\e[31m"  # \u202ered\n',
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "zoo", "configs", "show", "received.yaml"],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert r"\u202ered" in done.stdout
    assert done.stdout.replace("\n", "").isprintable()
    named = dict(line[4:].split(": ", 1) for line in done.stdout.splitlines() if line.startswith("#   "))
    would = f"{tmp_path / 'received_code.py'}; running this config runs its code"
    assert named == {
        "Synthetic": "the zoo, or Lightning",
        "absent.X": "not installed",
        "users.csv": "not installed",
        "received_code.Evil": would,
        "received_code.Optimizer": would,
        "zoo.JLT": "the zoo",
    }


def test_a_plugin_is_listed_wherever_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {"Watcher": SimpleNamespace(package="partner-tools"), "Absent": SimpleNamespace(package="x")}
    monkeypatch.setattr(plugins, "brought", lambda kind: found if kind == "callbacks" else {})
    (tmp_path / "x.yaml").write_text("trainer: {callbacks: [Watcher]}\n")
    configs(["show", str(tmp_path / "x.yaml")])
    assert capsys.readouterr().out.endswith("#   Watcher: the installed package partner-tools\n")


def test_what_is_no_config_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content in (b"a: [", b"\xff\x00", b"a: '" + b"[" * 501 + b"'", b"1"):
        (tmp_path / "x.yaml").write_bytes(content)
        configs(["show", "x.yaml"])
        assert ("# Classes, functions" if content == b"1" else "not valid YAML") in capsys.readouterr().out
    (tmp_path / "x.yaml").write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(SystemExit, match=r"1,048,577 bytes\. Allowed: 1,048,576"):
        configs(["show", "x.yaml"])


@pytest.mark.parametrize(
    ("written", "named"),
    [
        (
            "a: [x.Y, users.csv, 0.5.A, {class_path: lower}]\nmodel: PriCDR\nb: PriCDR\nc.d: 1",
            "PriCDR lower users.csv x.Y",
        ),
        ("callbacks: x.y\ndata: ~\nmodel: null\nseed: 2024-99-99", "x.y"),
        ("- [{a: {method: x.y}}, x.z]", "x.y x.z"),
        ("&a x.y: 1\nb: *a", "x.y"),
        ("a: {x.y: 1, ? x.z}", ""),
        ("a: !!set {x.y}\nb: '!!pairs [x.z: 1]'\nc: !<tag:yaml.org,2002:set>\n  ? x.x", "x.x x.y x.z"),
        ("a: &a {x.y: 1}\nb: !!set {<<: *a}", "x.y"),
        ("a: \"{b: '[x.y]'}\"\nmodel: '\"'", '" x.y'),
    ],
)
def test_names_of_code_are_told_from_other_texts(written: str, named: str) -> None:
    assert sorted({value for key, value in texts_in(written) if names_code(key, value)}) == named.split()


def test_other_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below/x.yaml").write_text("a: [t.yaml, a/b.YML, beside, c.json, none, json.json, file:///x/d]")
    (tmp_path / "below/beside").touch()
    configs(["show", "below/x.yaml"])
    said = [
        line[4:].partition(": another file, which is not shown") for line in capsys.readouterr().out.splitlines()[2:]
    ]
    assert [name for name, _, _ in said] == ["a/b.YML", "beside", "c.json", "file:///x/d", "json.json", "t.yaml"]
    assert [bool(rest) for _, _, rest in said] == [False, False, False, False, True, False], (
        "an installed module is no file alone"
    )


def test_the_owner_of_a_name_is_known_without_an_import() -> None:
    assert origin("sys.X") == "Python itself"
    for ours in ("zoo.PriCDR", "zoo.methods.bpr.BPR", "datamodules.Files", "callbacks.run_report.RunReport"):
        assert origin(ours) == "the zoo"
    assert origin("zoo.runs.trainer.shutil.rmtree") == "shutil.rmtree, reached through the zoo; inspect it"
    assert origin("../x.Y") == origin("file:///x") == "not installed"
