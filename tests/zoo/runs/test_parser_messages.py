"""Messages about words that the command line does not know: similar names, in three lines at most."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.quickstart import PROJECTED
from tests.tiny import arguments
from zoo.__main__ import main
from zoo.runs.cli import ZooCLI
from zoo.runs.parser_messages import memory_message, metric_message, parser_message


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--model", "PriCRD"), "--model: unknown class 'PriCRD'. Did you mean PriCDR"),
        (
            ("--trainer.callbacks+=EarlyStoping",),
            "--trainer.callbacks: unknown class 'EarlyStoping'. Did you mean EarlyStopping?",
        ),
        (
            ("--data.filters.treshold", "3"),
            "Synthetic has no argument 'filters.treshold'. Did you mean filters.threshold?",
        ),
        (("--trainer.max_epoch", "1"), "unknown option --trainer.max_epoch 1. Did you mean --trainer.max_epochs"),
        (
            ("--data.evaluation.split", "latest3"),
            "--data.evaluation.split is latest3. Expected Literal.'random1', .*. Did you mean latest1 or latest2",
        ),
        (("--data.nme", "x"), r"--data.nme: Synthetic has no argument 'nme'\.$"),
        (("--publisher.epsilom", "1"), r"JLT has no argument 'epsilom'\. Did you mean epsilon"),
        (("--epsilon", "1"), "unknown option --epsilon 1. Did you mean .*--publisher.epsilon"),
        (("--model.lr", "fast"), "--model.lr is fast. Expected float."),
        (("--model", "absent.Method"), "--model is absent.Method. No module named 'absent'."),
        (("--model", "zoo.methods.bpr.BRP"), r"--model: unknown class 'BRP'\. Did you mean BPR\?"),
        (("--trainer.max_epochs", "x"), "--trainer.max_epochs is x. Expected int."),
        (
            ("--trainer.callbacks+=RobustnessConductor", "--trainer.callbacks.weight", "abc"),
            r"--trainer\.callbacks\.weight is abc\. Expected float\.$",
        ),
        (("--optimizer", "SGD", "--optimizer.lr", "1e-3x"), r"--optimizer\.lr is 1e-3x\. Expected float\.$"),
        (("--optimizer", "Adm"), "unknown class 'Adm'. Did you mean Adam"),
        (("--trainer.logger", "CSVLoger"), "unknown class 'CSVLoger'. Did you mean CSVLogger"),
        (("--data.denoiser.foo", "3"), "--data.denoiser.foo: Denoiser has no argument 'foo'"),
        (("--optimizer.lr", "3"), "--optimizer.lr comes before its class. Give one first: --optimizer NAME"),
        (("--trainer.logger.name", "x"), r"--trainer\.logger\.name comes before .*: --trainer\.logger NAME\.$"),
        (("--data.denoiser.help",), r"--data\.denoiser\.help .* Write: --data\.help NAME --data\.denoiser\.help$"),
        (("--data.releases", "3"), "--data.releases is 3. Expected dict."),
    ],
)
def test_a_message_has_similar_names(
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
    helps = ("Its arguments: --data.help Synthetic", "Its arguments: max_components")
    assert "Did you mean" in lines[0] or len(lines) == 2 or lines[1] in helps
    assert lines[-1] == "Options: python -m zoo fit --help-all; names: python -m zoo list"


def test_an_option_that_is_needed_is_named_as_it_is_written(
    cli: Callable[..., ZooCLI], capsys: pytest.CaptureFixture[str]
) -> None:
    from jsonargparse import ArgumentParser

    with pytest.raises(SystemExit):
        cli("fit", *PROJECTED, "--model", "Ensemble")
    assert "error: the following arguments are required: --model.members.\n" in capsys.readouterr().err
    for name, shown in (("publish.out", "--out"), ("model", "--model")):
        said = parser_message(f"the following arguments are required: {name}", ArgumentParser(prog="python -m zoo"))
        assert said.splitlines()[0] == f"the following arguments are required: {shown}."


def test_other_messages_pass_in_their_first_lines() -> None:
    from jsonargparse import ArgumentParser

    said = parser_message("one\n\ntwo\nthree\nfour", ArgumentParser(prog="python -m zoo [options] fit"))
    assert said.splitlines()[:1] == ["one; two; three; four."]
    assert len(said.splitlines()) == 2


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
    assert re.search(r"--model Popularity replaces PriCDR\. Ignored: .*alignment_weight \(\d", said)
    assert "--publisher" not in said


def bpr_on_synthetic_data() -> tuple[str, ...]:
    """Arguments of a single-domain run."""
    parts = ("--model", "BPR", *arguments("model", "BPR"), "--data", "Synthetic", *arguments("data", "Synthetic"))
    return ("fit", *parts, "--publisher", "null", "--trainer.accelerator", "cpu")


def test_a_loss_that_is_no_number_ends_the_run_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code = ended(monkeypatch, *bpr_on_synthetic_data(), "--model.lr", "1e38", "--trainer.max_epochs", "9")
    assert re.search(
        r"DivergedError: train/loss is NaN in epoch \d: BPR diverged.* a smaller --model.lr \(it is 1e\+38\)", code
    )


def test_a_figure_that_nobody_logs_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    stop = ("--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "val/ndgc@10")
    code = ended(monkeypatch, *bpr_on_synthetic_data(), *stop, "--trainer.max_epochs", "1")
    assert "EarlyStopping watches 'val/ndgc@10', which nothing logs. Did you mean val/ndcg@10" in code
    assert metric_message("anything else") == ""


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
        (MemoryError(), r"Not enough memory\. Lower data\.batch_size"),
        (
            RuntimeError(
                "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: 8 bytes.\nx"
            ),
            r"Not enough memory \(\[enforce fail .*: 8 bytes\.\)\. Lower",
        ),
        (RuntimeError("CUDA out of memory. Tried to allocate 20 MiB."), r"Not enough memory \(CUDA out of memory"),
        (RuntimeError("a slip of ours"), r"^$"),
    ],
)
def test_a_limit_of_memory_is_a_sentence(error: BaseException, said: str) -> None:
    assert re.search(said, memory_message(error))
    assert "\n" not in memory_message(error)
