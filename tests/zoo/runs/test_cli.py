"""The command line: what is quick, what is refused, what a run leaves behind."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import polars as pl
import pytest
import torch
import yaml
from polars.testing import assert_frame_equal

from callbacks import RunReport
from tests.quickstart import PROJECTED
from zoo.__main__ import main
from zoo.runs.cli import ZooCLI
from zoo.runs.inputs import UsageError
from zoo.runs.parser_messages import error_message
from zoo.runs.trackers import TrackerError
from zoo.runtime.run_folder import CASES

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[3]

Command = Callable[..., ZooCLI]


def front(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


@pytest.mark.parametrize("argument", ["--help", "list", "--version"])
def test_what_needs_no_library_loads_none(argument: str) -> None:
    loaded = front(
        f"import sys; sys.argv = ['zoo', '{argument}']; from zoo.__main__ import main; main(); "
        "print('HEAVY', [m for m in ('torch', 'numpy', 'pytorch_lightning', 'polars') if m in sys.modules])"
    )
    assert loaded.endswith("HEAVY []\n")


@pytest.mark.parametrize(("given", "parsers"), [("fit", 1), ("publish", 1), ("-h", 5), ("fitt", 5)])
def test_a_command_makes_its_own_parser_alone(cli: Command, given: str, parsers: int) -> None:
    with patch.object(ZooCLI, "add_arguments_to_parser", autospec=True) as adds, pytest.raises(SystemExit):
        cli(given, "--help")
    assert adds.call_count == parsers


def test_list_names_everything_in_a_line_each() -> None:
    lines = front("import sys; sys.argv = ['zoo', 'list']; from zoo.__main__ import main; main()").splitlines()
    names = "PriCDR PriCDRSym DMF EASE Popularity JLT Plaintext Amazon Ciao Douban Files Synthetic"
    for name in names.split():
        (line,) = [line for line in lines if line.split()[:1] == [name]]
        assert len(line.split()) > 3, f"{name} says nothing of itself"
    for config in (ROOT / "configs").rglob("*.yaml"):
        assert any(line.split()[:1] == [str(config.relative_to(ROOT / "configs").with_suffix(""))] for line in lines)


def test_a_checkpoints_other_settings_are_named(
    cli: Command, finished: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = ("--config", finished / "config.yaml", "--ckpt_path", finished / "checkpoints" / "best.ckpt")
    cli("test", *run, "--model.lr", "5")
    assert "init_args.lr: settings 5.0, checkpoint 0.001" in capsys.readouterr().err
    with pytest.raises(UsageError, match="has another method"):
        cli("test", *run, "--model", "DMF")
    before = {*Path().rglob("metrics.json")}

    def fail(*_: object, **__: object) -> None:
        raise OSError("no more")

    monkeypatch.setattr(RunReport, "teardown", fail)
    with pytest.raises(OSError, match="no more"):
        cli("test", *run)
    assert {*Path().rglob("metrics.json")} > before, "results of a test are no start that failed"


def test_a_checkpoint_may_not_change_what_a_guarantee_rests_on(
    cli: Command, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zoo import PriCDR

    monkeypatch.setattr(PriCDR, "guarantee_bearing", frozenset({"lr"}))
    run = ("--config", finished / "config.yaml", "--ckpt_path", finished / "checkpoints" / "best.ckpt")
    with pytest.raises(UsageError, match=r"other privacy settings .*settings 5.0, checkpoint 0.001"):
        cli("test", *run, "--model.lr", "5")
    with pytest.raises(UsageError, match=r"gradient_clip_val is 1.0.*Omit it"):
        cli("fit", *PROJECTED, "--trainer.gradient_clip_val", "1.0")


def test_a_checkpoint_that_is_not_there(cli: Command, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"No checkpoint at .*absent.ckpt"):
        cli("test", *PROJECTED, "--ckpt_path", tmp_path / "absent.ckpt")
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    with pytest.raises(UsageError, match="is no checkpoint of this project"):
        cli("test", *PROJECTED, "--ckpt_path", tmp_path / "other.ckpt")
    kept = dict.fromkeys(("sizes", "digests", "rng", "paths", "users"))
    given = {"members": {"a": {"run": "runs/EASE/version_0"}}}
    torch.save({"zoo": kept, "hyper_parameters": given}, tmp_path / "other.ckpt")
    with pytest.raises(UsageError, match=r"names runs of members: \['members\.a\.run'\]"):
        cli("test", *PROJECTED, "--ckpt_path", tmp_path / "other.ckpt")


@pytest.mark.parametrize("kept", [0, 0.5])
def test_a_checkpoint_that_was_cut_off_is_told(cli: Command, finished: Path, tmp_path: Path, kept: float) -> None:
    whole = (finished / "checkpoints" / "best.ckpt").read_bytes()
    (tmp_path / "cut.ckpt").write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(
        UsageError, match=r"cut.ckpt is no checkpoint, or is damaged \((\w*Error|BadZipFile)\)\. Use checkpoints/best"
    ):
        cli("test", *PROJECTED, "--ckpt_path", tmp_path / "cut.ckpt")


def test_a_method_of_another_package_trains_by_its_path(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "somebody_elses.py").write_text(
        "from zoo.methods.popularity import Popularity\n"
        "class Unpopularity(Popularity):\n"
        '    """Ranks rare items first."""\n'
        "    def __init__(self, sign: float = -1.0) -> None:\n"
        "        super().__init__()\n"
        "        self.sign = sign\n"
        "    def score_all(self, users):\n"
        "        return self.sign * super().score_all(users)\n"
        "    def score(self, users, items):\n"
        "        return self.sign * super().score(users, items)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    arguments = [
        "--publisher",
        "null",
        "--data",
        "Synthetic",
        "--trainer.max_epochs",
        "1",
        "--trainer.accelerator",
        "cpu",
    ]
    done = cli("fit", "--model", "somebody_elses.Unpopularity", *arguments)
    popular = cli("fit", "--model", "Popularity", *arguments)
    mine, theirs = (float(run.trainer.callback_metrics["test/full/ndcg@10"]) for run in (done, popular))
    assert mine < theirs
    saved = yaml.safe_load((Path(str(done.trainer.log_dir)) / "config.yaml").read_text())
    assert saved["model"]["class_path"] == "somebody_elses.Unpopularity"


def test_another_logger_is_added_to_the_csv_log(cli: Command) -> None:
    pytest.importorskip("wandb")
    wandb = ("--trainer.logger", "WandbLogger", "--trainer.logger.offline", "true")
    done = cli("fit", *PROJECTED, *wandb)
    assert [type(logger).__name__ for logger in done.trainer.loggers] == ["CSVLogger", "WandbLogger"]
    assert (Path(str(done.trainer.log_dir)) / "metrics.csv").is_file()


def test_without_a_key_of_wandb_nothing_is_published(
    cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release would have been paid for, and no run would follow."""

    def no_key(tracker: str, without: str) -> None:
        raise TrackerError(f"W&B: there is no API key; leave {without} out.")

    monkeypatch.setattr("zoo.runs.checks.check_tracker", no_key)
    wandb = ("--trainer.logger", "WandbLogger", "--trainer.logger.save_dir", "runs")
    with pytest.raises(TrackerError, match="there is no API key; leave the logger out") as refused:
        cli("fit", *PROJECTED, *wandb)
    assert error_message(refused.value) == f"TrackerError: {refused.value}"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_dry_run_leaves_nothing(cli: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Callable[[], None]] = []
    at_exit = SimpleNamespace(register=lambda *call, **named: ends.append(partial(*call, **named)))
    monkeypatch.setattr("zoo.runs.inputs.atexit", at_exit)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cli("fit", *PROJECTED, "--trainer.fast_dev_run", "true")
    assert list(tmp_path.rglob("*.safetensors")), "a release without a run folder"
    while ends:
        ends.pop()()
    assert list(tmp_path.iterdir()) == []
    with pytest.warns(UserWarning, match=f"no run folder. Releases and user list are kept in {tmp_path}/zoo-"):
        cli("fit", *PROJECTED, "--trainer.logger", "false")  # its checkpoints need them
    assert not ends


def test_the_end_is_one_table_with_the_guarantee(cli: Command, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(str(cli("fit", *PROJECTED).trainer.log_dir))
    shown = capsys.readouterr().out
    assert "Data: target music, split latest2, seed 0" in shown
    (line,) = [line for line in shown.splitlines() if "HR@5" in line]
    assert line.split()[3:] == ["book", "rating", "8.00", "1e-05", "proved"]
    assert all(len(line) <= 80 for line in shown.split("PriCDR: test")[1].splitlines())
    summary = json.loads((folder / "data.json").read_text())
    assert summary["target"]["users"] == 24
    unknown = summary["unknown_items"]
    assert (unknown["of_test"], unknown["rule"]) == (24, "exclude")
    assert summary["users_without_test_item"] == unknown["test"] == 24 - summary["test_cases"]
    record = json.loads((folder / "privacy.json").read_text())["book"]
    assert record["guarantee"] == "proved"
    assert record["epsilon"] == 8.0


def in_this_process(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str]:
    """Exit code and standard error of a command, with what Python makes of a text that is exited with."""
    monkeypatch.setattr("sys.argv", ["zoo", *arguments])
    chatter = logging.getLogger("pytorch_lightning.utilities.rank_zero")
    level = chatter.level
    with pytest.raises(SystemExit) as ended:
        main()
    chatter.setLevel(level)  # the command's own: a process of its own takes it away with it
    code, said = ended.value.code, capsys.readouterr().err
    return (code, said) if isinstance(code, int) else (1, f"{said}{code}\n")


def in_its_own(arguments: list[str], *_: object) -> tuple[int, str]:
    """The same of a process as a user starts it."""
    done = subprocess.run(
        [sys.executable, "-m", "zoo", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("ended", [in_this_process, pytest.param(in_its_own, marks=pytest.mark.slow)])
def test_a_refusal_is_a_message_and_no_traceback(
    ended: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = ended(["fit", *PROJECTED, "--publisher.epsilon=-2"], monkeypatch, capsys)
    assert code == 1
    assert "ValueError: epsilon is -2.0. Allowed: finite" in said
    assert "Traceback" not in said
    assert "Does not validate" not in said
    code, said = ended(["fit", "--model", "BPR", "--data", "Frames"], monkeypatch, capsys)
    assert (code, said.removeprefix("Seed set to 0\n").count("\n")) == (1, 1)
    assert "No table is given. Frames needs pandas, polars or Arrow tables, so it is for Python only" in said


@pytest.mark.slow
@pytest.mark.processes
def test_two_processes_give_the_figures_of_one(cli: Command, finished_by_two: Path) -> None:
    """The same checkpoint, scored by two processes and by one; and only the first of the two publishes."""
    ours = json.loads((finished_by_two / "metrics.json").read_text())["metrics"]
    best = ("--ckpt_path", finished_by_two / "checkpoints" / "best.ckpt")
    alone = ("--trainer.devices", "1", "--trainer.strategy", "auto")
    again = cli("test", "--config", finished_by_two / "config.yaml", *best, *alone)
    other = Path(str(again.trainer.log_dir))
    theirs = json.loads((other / "metrics.json").read_text())["metrics"]
    for key in (key for key in ours if "pessimistic" not in key):  # reported only where ties are many
        assert ours[key] == pytest.approx(theirs[key], abs=1e-6), key
    cases = [pl.read_parquet(folder / CASES) for folder in (finished_by_two, other)]
    assert len(cases[0]) == 22
    assert_frame_equal(*cases, abs_tol=1e-6)
    assert not list(finished_by_two.glob(".*"))
    assert sorted(p.name for p in (finished_by_two / "releases").iterdir()) == ["book", "publisher.json"]
