"""What is said of a word that the command line does not know: the nearest ones, in three lines at most."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.quickstart import PROJECTED
from tests.tiny import arguments
from zoo.__main__ import main
from zoo.runs.cli import ZooCLI
from zoo.runs.parser_messages import in_few_words, of_memory, of_monitor


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
        (("--data.nme", "x"), r"Synthetic has no 'nme'\.$"),
        (("--publisher.epsilom", "1"), r"JLT has no 'epsilom'\. Did you mean epsilon"),
        (("--epsilon", "1"), "unknown: --epsilon 1. Did you mean .*--publisher.epsilon"),
        (("--model.lr", "fast"), "--model.lr: expected float; got fast"),
        (("--model", "absent.Method"), "--model: there is no module 'absent', neither installed nor where you stand"),
        (("--model", "zoo.methods.bpr.BRP"), r"--model: zoo\.methods\.bpr has no 'BRP'\. Did you mean BPR\?"),
    ],
)
def test_the_nearest_names_stand_in_the_place_of_all(
    cli: Callable[..., ZooCLI],
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Path,
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli("fit", *PROJECTED, *arguments)
    assert ended.value.code == 2
    assert list(tmp_path.iterdir()) == []
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) <= 3
    assert re.search(said, lines[0])
    assert "Did you mean" in lines[0] or len(lines) == 2 or lines[1].startswith("Synthetic has target, sources, ")
    assert lines[-1] == "Options: python -m zoo fit --help; all names: python -m zoo list"


def test_an_option_that_is_needed_is_named_as_it_is_written() -> None:
    from jsonargparse import ArgumentParser

    said = in_few_words("the following arguments are required: publish.out", ArgumentParser(prog="python -m zoo"))
    assert said.splitlines()[0] == "publish needs --out."


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


def test_another_class_names_what_it_has_no_place_for(
    cli: Callable[..., ZooCLI], capsys: pytest.CaptureFixture[str]
) -> None:
    cli("fit", *PROJECTED[:2], "--model", "Popularity", "--trainer.fast_dev_run", "true", "--publisher", "null")
    said = capsys.readouterr().err
    assert re.search(
        r"--model Popularity takes the place of PriCDR and has no .*alignment_weight \(\d.*: left out\.", said
    )
    assert "--publisher" not in said


def on_synthetic_data() -> tuple[str, ...]:
    """Of a run of the target alone."""
    words = ("--data", "Synthetic", *arguments("data", "Synthetic"))
    return (*words, "--publisher", "null", "--trainer.accelerator", "cpu")


def test_a_loss_that_is_no_number_ends_the_run_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code = ended(
        monkeypatch,
        "fit",
        "--model",
        "BPR",
        *arguments("model", "BPR"),
        *on_synthetic_data(),
        "--model.lr",
        "1e38",
        "--trainer.max_epochs",
        "9",
    )
    assert re.search(
        r"DivergedError: train/loss is NaN in epoch \d: BPR has diverged.* a smaller --model.lr \(it is 1e\+38\)", code
    )


def test_a_figure_that_nobody_logs_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    stop = ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "val/ndgc@10")
    code = ended(
        monkeypatch,
        "fit",
        "--model",
        "BPR",
        *arguments("model", "BPR"),
        *on_synthetic_data(),
        *stop,
        "--trainer.max_epochs",
        "1",
    )
    assert "EarlyStopping watches 'val/ndgc@10', which nothing logs. Did you mean val/ndcg@10" in code
    assert of_monitor("anything else") == ""


def ended(monkeypatch: pytest.MonkeyPatch, *given: str) -> str:
    """What a command ends with."""
    monkeypatch.setattr("sys.argv", ["zoo", *given])
    monkeypatch.delenv("PL_GLOBAL_SEED", raising=False)
    with pytest.raises(SystemExit) as over:
        main()
    return str(over.value.code)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), r"There is not enough memory\. Take smaller batches \(data\.batch_size"),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: 8 bytes.\nx"
            ),
            r"There is not enough memory \(\[enforce fail .*: 8 bytes\.\)\. Take",
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 20 MiB."), r"not enough memory \(CUDA out of memory"),
        (RuntimeError("a slip of ours"), r"^$"),
    ],
)
def test_a_limit_of_memory_is_a_sentence(error: BaseException, said: str) -> None:
    assert re.search(said, of_memory(error))
    assert "\n" not in of_memory(error)
