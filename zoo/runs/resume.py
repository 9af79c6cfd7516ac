"""Resume an interrupted run from its folder."""

import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from zoo.runs.inputs import UsageError
from zoo.runtime.run_folder import FREE, TARGET, flat

#: Exit code after Ctrl-C: 128 and the number of SIGINT, as in a shell.
INTERRUPTED = 130
OPTION = "--resume"
EPOCHS = "trainer.max_epochs"


def resume_folder(arguments: Sequence[str]) -> Path | None:
    """Return the run folder that arguments of ``fit`` name, or None.

    Examples:
        >>> resume_folder(["fit", "--resume=runs/BPR/version_0"]).name
        'version_0'
    """
    for at, argument in enumerate(arguments):
        if argument == OPTION and at + 1 < len(arguments):
            return Path(arguments[at + 1])
        if argument.startswith(f"{OPTION}="):
            return Path(argument.removeprefix(f"{OPTION}="))
    return None


def resume_arguments(run: Path) -> list[str]:
    """Return config and checkpoint of a run folder as arguments; raise a `UsageError` if it cannot be resumed."""
    config = run / "config.yaml"
    if not config.is_file():
        raise UsageError(f"{run} is no run folder (no config.yaml). Pass one.")
    return ["--config", str(config), "--ckpt_path", str(checkpoint_of(run))]


def checkpoint_of(run: Path) -> Path:
    """Return the last checkpoint of a run, else the best one."""
    found = [path for name in ("last.ckpt", "best.ckpt") if (path := run / "checkpoints" / name).is_file()]
    if not found:
        raise UsageError(
            f"{run} has no checkpoint. Start again: python -m zoo fit --config {shlex.quote(str(run / 'config.yaml'))}"
        )
    return found[0]


def check_same_run(before: Any, now: Any) -> str:  # noqa: ANN401  plain settings
    """Return the changed settings of a resumed run in words; raise a `UsageError` if they make it another run."""
    ours, theirs = flat(before), flat(now)
    changed = {
        key: f"{key} from {ours.get(key)!r} to {theirs.get(key)!r}"
        for key in sorted({*ours, *theirs})
        if ours.get(key) != theirs.get(key)
    }
    refused = [text for key, text in changed.items() if not _may_change(key) and key != EPOCHS]
    if EPOCHS in changed and _epochs(theirs[EPOCHS]) < _epochs(ours[EPOCHS]):
        refused.append(f"{changed[EPOCHS]} (it may only grow)")
    if refused:
        raise UsageError(f"Cannot resume: these settings changed: {'; '.join(refused)}. Omit them.")
    return "; ".join(changed.values())


def _may_change(key: str) -> bool:
    return any(key == free or key.startswith(f"{free}.") for free in FREE)


def _epochs(setting: int | None) -> float:
    return float("inf") if setting in (None, -1) else float(setting)


def resume_hint(run: Path) -> str:
    """Return the end of a message about an interrupted run: the command that resumes it."""
    try:
        checkpoint_of(run)
    except UsageError:
        return " before the first epoch was finished, so there is nothing to resume."
    return f". To resume:\n  python -m zoo fit {OPTION} {shlex.quote(str(run))}"


def remove_if_empty(run: Path) -> None:
    """Remove the folder of a run that failed before training: it holds at most settings and ratings."""
    files = [path for path in run.rglob("*") if path.is_file() and path.parent != run / TARGET]
    if not run.is_dir() or any(path.name not in ("config.yaml", "hparams.yaml") for path in files):
        return
    shutil.rmtree(run)
    for folder in (run.parent, run.parent.parent):  # of the method, and of all runs
        try:
            folder.rmdir()
        except OSError:  # not empty
            return
