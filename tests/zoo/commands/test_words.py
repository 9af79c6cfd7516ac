"""What is said of a word that the command line does not know: the nearest ones, in three lines at most."""

import re
from collections.abc import Callable

import pytest

from tests.quickstart import PROJECTED
from zoo.__main__ import main
from zoo.commands.cli import ZooCLI
from zoo.commands.words import in_few_words, nearest


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "PriCRD"), "--model: there is no 'PriCRD'. Did you mean PriCDR"),
        (
            ("--trainer.callbacks+=EarlyStoping",),
            "--trainer.callbacks: there is no 'EarlyStoping'. Did you mean EarlyStopping?",
        ),
        (("--data.filters.treshold", "3"), "Synthetic has no 'filters.treshold'. Did you mean filters.threshold?"),
        (("--trainer.max_epoch", "1"), "unknown: --trainer.max_epoch 1. Did you mean --trainer.max_epochs"),
        (("--data.evaluation.split", "latest3"), "expected one of random1, .*; got latest3. Did you mean latest"),
        (("--model.lr", "fast"), "--model.lr: expected float; got fast"),
        (("--model", "absent.Method"), "--model: Method: No module named 'absent'"),
    ],
)
def test_the_nearest_names_stand_in_the_place_of_all(
    cli: Callable[..., ZooCLI], capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli("fit", *PROJECTED, *arguments)
    assert ended.value.code == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) <= 3
    assert re.search(said, lines[0])
    assert lines[-1] == "Options: python -m zoo fit --help; all names: python -m zoo list"


def test_a_word_like_no_other_has_no_neighbour() -> None:
    assert nearest("xyz", ["PriCDR", "JLT"]) == ""
    assert nearest("JTL", ["PriCDR", "JLT", "SJLT"]) == " Did you mean JLT?"
    assert nearest("latest3", ["latest1", "latest2", "ratio"]) == " Did you mean latest1 or latest2?"


def test_what_has_no_rule_is_said_as_it_is_in_its_first_lines() -> None:
    from jsonargparse import ArgumentParser

    said = in_few_words("one\n\ntwo\nthree\nfour", ArgumentParser(prog="python -m zoo [options] fit"))
    assert said.splitlines()[:2] == ["one", "two"]
    assert len(said.splitlines()) == 3


@pytest.mark.parametrize(
    ("command", "near"), [("fitt", "Did you mean fit?"), ("publsh", "Did you mean publish"), ("xyz", "'xyz'.\n")]
)
def test_a_misspelt_command_names_the_nearest(
    command: str, near: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["zoo", command])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert near in said
    assert len(said.splitlines()) == 2
    assert "Commands: fit, validate, test, predict, publish, " in said
