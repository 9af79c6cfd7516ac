"""The commands that need no training library answer what they cannot read with the nearest names, in three lines at most."""

import subprocess
import sys
from pathlib import Path

import pytest

from zoo.__main__ import main

ROOT = Path(__file__).parents[3]


def refused(given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The lines of a refusal."""
    monkeypatch.setattr("sys.path", list(sys.path))
    monkeypatch.setattr("sys.argv", ["zoo", *given.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2, said
    assert "usage" not in said or given.startswith("list")
    assert len(said.splitlines()) <= 3
    return said.splitlines()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("configs copi x", "unknown command 'copi'. Did you mean copy?"),
        ("data descibe --config x.yaml", "No config 'x.yaml'"),
        ("data descibe", "unknown command 'descibe'. Did you mean describe?"),
        ("privacy shwo x", "unknown command 'shwo'. Did you mean show?"),
        ("privacy", "no command. Allowed: plan, show, register, total, budget, audit, attack, curve."),
        ("privacy plan --confg x", "unknown argument --confg. Did you mean --config?"),
        ("privacy show x --trustd k", "unknown argument --trustd k. Did you mean --trusted?"),
        ("privacy budget b --relation change_one", "--relation is 'change_one'. Did you mean change_one_rating?"),
        ("data fetch ml-100k --rot x", "unknown argument --rot x. Did you mean --root?"),
        ("configs list more", "unknown argument more."),
        ("report --bseline EASE", "unknown argument --bseline. Did you mean --baseline?"),
        ("report runs --bseline=EASE", "unknown argument --bseline=EASE. Did you mean --baseline?"),
        ("recommend runs --user a", "one of the arguments --users --users-file is required"),
        ("recommend runs --users a --k ten", "--k: invalid int value: 'ten'"),
        ("export runs --uot x", "unknown argument --uot. Did you mean --out?"),
        ("report", "the following arguments are required: RUNS"),
        ("report --task=cold", "the following arguments are required: RUNS"),
        ("report --tsk=cold", "unknown argument --tsk. Did you mean --task?"),
        ("list plublishers", "unknown kind 'plublishers'. Did you mean publishers?"),
        ("fit --config pricdr/quickstrat", "No config 'pricdr/quickstrat', neither a file nor builtin."),
        ("fit --config=configs/pricdr/quikstart.yaml", "Did you mean configs/pricdr/quickstart.yaml?"),
        ("benchmark --config benchmarks/smok", "Did you mean benchmarks/smoke?"),
        ("fit --config configs/sppg", "'configs/sppg' is a folder, not a config. It contains sppg/"),
    ],
)  # fmt: skip
def test_the_nearest_stands_in_the_place_of_a_usage(
    given: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    first = refused(given, monkeypatch, capsys)[0]
    assert first.startswith("error: ")
    assert said in first
    assert str(ROOT) not in first


def test_where_the_options_stand_is_said_of_the_command_that_was_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused("data fetch x --rot y", monkeypatch, capsys)[-1] == "Options: python -m zoo data fetch --help"
    lines = refused("configs copi", monkeypatch, capsys)
    assert lines[1:] == ["Allowed: list, show, copy.", "Options: python -m zoo configs --help"]


def test_a_config_beside_the_misspelt_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reading.yml").write_text("")
    assert "Did you mean reading.yml?" in refused("fit --config reading.yaml", monkeypatch, capsys)[0]


def test_list_says_what_it_lists(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.path", list(sys.path))
    for given in (["list", "--help"], ["list", "publishers", "-h"]):
        monkeypatch.setattr("sys.argv", ["zoo", *given])
        main()
        assert capsys.readouterr().out.startswith("usage: python -m zoo list [KIND ...]")
    monkeypatch.setattr("sys.argv", ["zoo", "list", "publishers", "callbacks"])
    main()
    heads = [line for line in capsys.readouterr().out.splitlines() if not line.startswith(" ")]
    assert heads == ["publishers:", "callbacks:"]


@pytest.mark.slow
@pytest.mark.parametrize("given", ["recommend --help", "export --help", "report --help", "recommend x --users-file y"])
def test_what_can_be_answered_at_once_loads_no_library(given: str) -> None:
    code = (
        f"import sys; sys.argv = ['zoo', *{given.split()!r}]\nfrom zoo.__main__ import main\ntry: main()\nexcept SystemExit: pass\n"
        "print('HEAVY', [m for m in ('torch', 'polars', 'pytorch_lightning', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("HEAVY []\n")
