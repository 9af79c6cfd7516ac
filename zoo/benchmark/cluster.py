"""Jobs of a cluster that divide a benchmark: each an ordinary command, submitted by submitit (the extra ``cluster``)."""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.benchmark.grid import BenchmarkError
from zoo.runtime.suggestions import nearest

if TYPE_CHECKING:
    import submitit

#: Where jobs can be submitted to: SLURM and, for trying it out, this machine.
CLUSTERS = ("slurm", "local")
#: Of the folder of a benchmark: what submitit writes, and what the jobs say.
JOBS = ".jobs"
INSTALL = 'pip install "cdr-zoo[cluster]"'
#: What every job is given unless somebody says otherwise: a day, where submitit ends it after five minutes, and one log.
DEFAULTS = {"timeout_min": 24 * 60, "stderr_to_stdout": True}
#: Without them nothing is submitted to SLURM.
PROGRAMS = ("sbatch", "srun")
#: Parameters that are asked for most, as submitit calls them.
COMMON = (
    *("timeout_min", "cpus_per_task", "mem_gb", "gpus_per_node", "name"),
    *("slurm_partition", "slurm_account", "slurm_qos", "slurm_constraint", "slurm_gres", "slurm_array_parallelism"),
    *("slurm_setup", "slurm_additional_parameters"),
)
#: What submitit lets pass and fails with later, without the cluster's name before it.
NUMBERS, LISTS = ("timeout_min", "cpus_per_task", "array_parallelism", "mem_gb"), ("setup", "teardown", "srun_args")
#: What would run a job's command several times over.
REPEATED = ("nodes", "ntasks", "tasks_per_node", "ntasks_per_node")


@dataclass(frozen=True)
class Cluster:
    """Where jobs are submitted to, and what each asks for.

    Attributes:
        name: One of `CLUSTERS`.
        jobs: How many at most.
        options: Parameters by submitit's names.
    """

    name: str
    jobs: int
    options: dict[str, Any]

    @property
    def cpus(self) -> int:
        """CPUs of a job."""
        found: int = self.options.get(f"{self.name}_cpus_per_task", self.options.get("cpus_per_task", 1))
        return found

    def check(self) -> None:
        """Refuse what is not installed or not there, and parameters that submitit does not take; submits nothing."""
        _library()
        if self.name == "slurm" and (missing := [name for name in PROGRAMS if shutil.which(name) is None]):
            raise BenchmarkError(
                f"Jobs are submitted to SLURM by sbatch and srun, and there is no {' and no '.join(missing)} here. Give the "
                "command on a machine that submits jobs, or try it on this one with --cluster local."
            )
        for name, value in self.options.items():
            _refuse_value(name, value)
        with tempfile.TemporaryDirectory() as scratch:  # an executor makes its folder
            self._executor(Path(scratch))

    def submit(self, command: Sequence[str], folder: Path, cells: int, processes: int) -> list[str]:
        """Submit jobs that each run a command in the folder where this one stands; gives their numbers.

        Args:
            command: Its words.
            folder: For submitit's files and the jobs' logs. Jobs run what they read there, so it is made for its owner alone.
            cells: How many there are to run: no more jobs are submitted than these need.
            processes: Cells at a time of a job.
        """
        if "%" in str(folder.absolute()):
            raise BenchmarkError(f"SLURM and submitit put numbers in the place of % in {folder}: choose other --runs.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        kept = folder.stat()
        if kept.st_uid != os.geteuid() or kept.st_mode & 0o022:
            raise BenchmarkError(
                f"{folder} is another's, or others may write there, and jobs run what they read in it. Remove it, or choose "
                "other --runs."
            )
        each = partial(subprocess.run, list(command), check=True)
        try:
            made = self._executor(folder).submit_array([each] * min(self.jobs, math.ceil(cells / processes)))
        except (RuntimeError, OSError) as error:  # what sbatch says, or a program or a folder that is not there
            raise BenchmarkError(
                f"The jobs were not submitted ({' '.join(str(error).split())}). If that is about what they ask for, change "
                "--cluster-options; then give the command again. Should some have begun all the same, no cell is run twice."
            ) from error
        return [str(job.job_id) for job in made]

    def _executor(self, folder: Path) -> submitit.AutoExecutor:
        executor: submitit.AutoExecutor = _library().AutoExecutor(folder=folder, cluster=self.name)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # such as that a name is another one by now
            try:
                executor.update_parameters(**DEFAULTS | self.options)
            except Exception as error:  # it names no set of errors
                raise BenchmarkError(_said(error, self.options)) from error
        return executor


def cluster_of(asked: argparse.Namespace) -> Cluster | None:
    """What the options of the command ask for, refused where it is half or wrong; None where cells are run here."""
    if asked.cluster is None:
        if asked.jobs is not None or asked.cluster_options:
            raise BenchmarkError(
                f"--jobs and --cluster-options are for a cluster: add --cluster {' or --cluster '.join(CLUSTERS)}. Cells at a time "
                "of this command are --processes."
            )
        return None
    if asked.jobs is None:
        raise BenchmarkError(f"How many jobs is --cluster {asked.cluster} to submit? Add --jobs, such as --jobs 8.")
    if asked.jobs < 1:
        raise BenchmarkError(f"--jobs must be at least 1, got {asked.jobs}.")
    named = {"name": f"zoo-{asked.config.stem}"}
    made = Cluster(asked.cluster, asked.jobs, named | dict(map(_option, asked.cluster_options)))
    made.check()
    return made


def words_of(asked: argparse.Namespace, root: Path, processes: int) -> list[str]:
    """The command of a job: this one without its cluster, by the same Python."""
    python = [sys.executable, *(["-P"] if sys.flags.safe_path else []), "-m", "zoo", "benchmark"]
    words = ["--config", str(asked.config), "--runs", str(root), "--processes", str(processes)]
    chosen = [] if asked.only == "*" else ["--only", asked.only]
    return [*python, *words, *chosen, *(["--keep-checkpoints"] if asked.keep_checkpoints else [])]


def _library() -> Any:  # noqa: ANN401  a module
    try:
        import submitit
    except ImportError as error:
        raise BenchmarkError(
            f"Jobs are submitted by the library submitit, which is not installed here. Install it with: {INSTALL}."
        ) from error
    return submitit


def _option(text: str) -> tuple[str, Any]:
    """Name and value: a number, true, a list or a mapping as JSON has it, or else text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BenchmarkError(
            f"--cluster-options takes NAME=VALUE, such as timeout_min=1440 slurm_partition=gpu; got {text!r}."
        )
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _refuse_value(name: str, value: Any) -> None:  # noqa: ANN401  as `_option` reads it
    own = name.removeprefix("slurm_").removeprefix("local_")
    repeats = isinstance(value, dict) and own == "additional_parameters" and {*REPEATED} & value.keys()
    if own in REPEATED or repeats:
        raise BenchmarkError(
            f"--cluster-options {name}: a job runs one command on one machine. For more at a time give more --jobs or --processes."
        )
    if own in NUMBERS:
        kind, types = ("a number", (int, float)) if own == "mem_gb" else ("a whole number", (int,))
        if type(value) not in types or not 0 < value < math.inf:
            raise BenchmarkError(f"--cluster-options {name} must be {kind} above 0, got {value!r}.")
    if own in LISTS and not (isinstance(value, list) and all(isinstance(line, str) for line in value)):
        raise BenchmarkError(
            f"--cluster-options {name} must be a list of texts, such as '{name}=[\"module load cuda\"]', got {value!r}."
        )


def _said(error: Exception, options: dict[str, Any]) -> str:
    """What submitit says of parameters, without its list of all that there are."""
    text = str(error).strip() or type(error).__name__
    said = text.splitlines()[0].split(" Valid arguments:")[0].rstrip(".")
    if not isinstance(error, NameError):
        return f"--cluster-options: {said}."
    wrong = max((name for name in options if name in text), key=len, default="")
    return (
        f"--cluster-options: {said}.{nearest(wrong, COMMON)} Names are those of submitit, such as {', '.join(COMMON)}."
    )
