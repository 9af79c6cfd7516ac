"""Resuming: an interrupted run goes on from its folder alone, and a command that is interrupted says how."""

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.runs.inputs import UsageError
from zoo.runtime.run_folder import FREE, flat

#: How a process ends that Ctrl-C has ended, as shells have it: 128 and the number of the signal.
INTERRUPTED = 130
OPTION = "--resume"
EPOCHS = "trainer.max_epochs"


def resumed(arguments: Sequence[str]) -> Path | None:
    """The run folder that arguments of ``fit`` ask to resume; None where they ask for none."""
    for at, argument in enumerate(arguments):
        if argument == OPTION and at + 1 < len(arguments):
            return Path(arguments[at + 1])
        if argument.startswith(f"{OPTION}="):
            return Path(argument.removeprefix(f"{OPTION}="))
    return None


def arguments_of(run: Path) -> list[str]:
    """The config and the checkpoint that a run folder holds, as arguments; a UsageError if it is none that can go on."""
    config = run / "config.yaml"
    if not config.is_file():
        raise UsageError(
            f"{run} is no run folder: there is no config.yaml in it. Pass one, such as runs/PriCDR/version_0."
        )
    return ["--config", str(config), "--ckpt_path", str(checkpoint_of(run))]


def checkpoint_of(run: Path) -> Path:
    """The last epoch that a run has kept, or where it keeps the best alone, that one."""
    there = [path for name in ("last.ckpt", "best.ckpt") if (path := run / "checkpoints" / name).is_file()]
    if not there:
        raise UsageError(
            f"{run} has no checkpoint, so no epoch of it was finished. Begin anew: python -m zoo fit --config "
            f"{shlex.quote(str(run / 'config.yaml'))}"
        )
    return there[0]


def refuse_another_run(before: Any, now: Any) -> str:  # noqa: ANN401  plain settings
    """What is another than before in the settings of a run that goes on, in words; a UsageError if that makes it another run."""
    ours, theirs = flat(before), flat(now)
    changed = {
        key: f"{key} was {ours.get(key)!r} and is {theirs.get(key)!r}"
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    }
    other = [said for key, said in changed.items() if not _free(key) and key != EPOCHS]
    if EPOCHS in changed and _epochs(theirs[EPOCHS]) < _epochs(ours[EPOCHS]):
        other.append(f"{changed[EPOCHS]}, and it may only grow")
    if other:
        raise UsageError(
            f"A run goes on with the settings that it was begun with, and these differ: {'; '.join(other)}. Leave them out, or "
            "train another run: python -m zoo fit --config FILE."
        )
    return "; ".join(changed.values())


def _free(key: str) -> bool:
    return any(key == free or key.startswith(f"{free}.") for free in FREE)


def _epochs(asked: int | None) -> float:
    return float("inf") if asked in (None, -1) else float(asked)


def how_to_go_on(run: Path) -> str:
    """What somebody is told whose run was interrupted: the end of a sentence, and the command to go on with."""
    try:
        checkpoint_of(run)
    except UsageError:
        return " before an epoch was finished, so there is nothing to go on from."
    return f". To go on:\n  python -m zoo fit {OPTION} {shlex.quote(str(run))}"


def remove_if_empty(run: Path) -> None:
    """Take away the folder of a run that ended before it began: there are at most its settings in it."""
    if not run.is_dir() or any(
        path.name not in ("config.yaml", "hparams.yaml") for path in run.rglob("*") if path.is_file()
    ):
        return
    shutil.rmtree(run)
    for folder in (run.parent, run.parent.parent):  # of the method, and of all runs
        try:
            folder.rmdir()
        except OSError:  # there is something else
            return
