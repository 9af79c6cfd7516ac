"""Jobs of a SLURM cluster, one for each cell, submitted by submitit (the extra ``cluster``)."""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
import sys
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zoo.benchmark.cell import LOG, Cell
from zoo.benchmark.grid import BenchmarkError
from zoo.benchmark.runner import run_cells
from zoo.runtime.processes import cores
from zoo.runtime.suggestions import suggest

if TYPE_CHECKING:
    import submitit

#: Of the folder of a benchmark: what submitit writes, and the output of the jobs.
JOBS = ".jobs"
INSTALL = 'pip install "cdr-zoo[cluster]"'
#: Defaults of every job; submitit alone ends a job after five minutes.
DEFAULTS = {"timeout_min": 24 * 60, "stderr_to_stdout": True, "slurm_array_parallelism": 256}
#: Programs of SLURM that submitting needs.
PROGRAMS = ("sbatch", "srun")
#: The most used parameters, by submitit's names.
COMMON = (
    *("timeout_min", "cpus_per_task", "mem_gb", "gpus_per_node", "name"),
    *("slurm_partition", "slurm_account", "slurm_qos", "slurm_constraint", "slurm_gres", "slurm_array_parallelism"),
    *("slurm_setup", "slurm_additional_parameters"),
)
#: Parameters that submitit does not check, without the prefix ``slurm_``.
NUMBERS, LISTS = ("timeout_min", "cpus_per_task", "array_parallelism", "mem_gb"), ("setup", "teardown", "srun_args")
#: Parameters that would run a job's cell several times.
REPEATED = ("nodes", "ntasks", "tasks_per_node", "ntasks_per_node")


@dataclass(frozen=True)
class Cluster:
    """SLURM with the parameters of each job."""

    options: dict[str, Any]  # by submitit's names

    def check(self) -> None:
        """Refuse missing programs, and parameters that submitit does not take; submit nothing."""
        _library()
        if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
            raise BenchmarkError(f"There is no {' and no '.join(missing)} here. Use a machine that submits to SLURM.")
        for name, value in self.options.items():
            _refuse_value(name, value)
        with tempfile.TemporaryDirectory() as scratch:  # an executor makes its folder
            self._executor(Path(scratch))

    def submit(self, cells: Sequence[Cell], folder: Path, keep_checkpoints: bool) -> list[str]:
        """Submit an array with a job for each cell; return their numbers.

        Cells that take their settings from another cell's search are a second array, which starts after the first. Jobs run
        files that they read in the folder, so only its owner may write to it.
        """
        if "%" in str(folder.absolute()):
            raise BenchmarkError(f"SLURM and submitit put numbers in the place of % in {folder}: choose other --runs.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise BenchmarkError(f"{folder} is writable by others, and jobs run its files. Remove it or change --runs.")
        names = {cell.name for cell in cells}
        first, later = ([cell for cell in cells if cell.waits_for(names) is wait] for wait in (False, True))
        jobs: list[str] = []
        try:
            executor = self._executor(folder)
            for part in filter(None, (first, later)):
                if jobs:
                    executor.update_parameters(slurm_dependency=f"afterany:{jobs[0].partition('_')[0]}")
                made = executor.submit_array([partial(run_job, cell, keep_checkpoints) for cell in part])
                jobs += [str(job.job_id) for job in made]
        except (RuntimeError, OSError) as error:  # what sbatch says, or a program or a folder that is not there
            said = " ".join(str(error).split())
            raise BenchmarkError(f"Submitting failed ({said}). Change --cluster-options, and try again.") from error
        return jobs

    def _executor(self, folder: Path) -> submitit.AutoExecutor:
        python = shlex.join([sys.executable, *(["-P"] if sys.flags.safe_path else [])])
        executor: submitit.AutoExecutor = _library().AutoExecutor(folder=folder, cluster="slurm", slurm_python=python)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # such as that a parameter was renamed
            try:
                executor.update_parameters(**self.options)
            except Exception as error:  # it names no set of errors
                raise BenchmarkError(_said(error, self.options)) from error
        return executor


def run_job(cell: Cell, keep_checkpoints: bool) -> None:
    """Run a cell in a job, on all CPUs of the job; a cell that fails ends the job with an error."""
    (outcome,) = run_cells([cell], 1, cores(), lambda _: None, keep_checkpoints)
    if outcome.error:
        raise BenchmarkError(f"{cell.name} failed: {outcome.error}. Its log: {cell.folder / LOG}.")


def cluster_of(asked: argparse.Namespace) -> Cluster | None:
    """Return the cluster that the options of the command ask for, checked; None if cells run on this machine."""
    if asked.cluster is None:
        if asked.cluster_options:
            raise BenchmarkError("--cluster-options are for jobs of a cluster. Add --cluster slurm.")
        return None
    at_a_time = {} if asked.processes is None else {"slurm_array_parallelism": asked.processes}
    named = {"name": f"zoo-{asked.config.stem}"}
    made = Cluster(DEFAULTS | named | at_a_time | dict(map(_option, asked.cluster_options)))
    made.check()
    return made


def _library() -> Any:  # noqa: ANN401  a module
    try:
        import submitit
    except ImportError as error:
        raise BenchmarkError(f"The library submitit is not installed. Install it with: {INSTALL}.") from error
    return submitit


def _option(text: str) -> tuple[str, Any]:
    """Name and value: a number, true, a list or a mapping as JSON has it, or else text."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise BenchmarkError(f"--cluster-options is {text!r}. It must be NAME=VALUE, such as slurm_partition=gpu.")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _refuse_value(name: str, value: Any) -> None:  # noqa: ANN401  as `_option` reads it
    own = name.removeprefix("slurm_")
    repeats = isinstance(value, dict) and own == "additional_parameters" and {*REPEATED} & value.keys()
    if own in REPEATED or repeats:
        raise BenchmarkError(f"--cluster-options {name}: a job runs one cell on one machine. Give more --processes.")
    if own in NUMBERS:
        kind, types = ("a number", (int, float)) if own == "mem_gb" else ("a whole number", (int,))
        if type(value) not in types or not 0 < value < math.inf:
            raise BenchmarkError(f"--cluster-options {name} is {value!r}. It must be {kind} above 0.")
    if own in LISTS and not (isinstance(value, list) and all(isinstance(line, str) for line in value)):
        raise BenchmarkError(f"--cluster-options {name} is {value!r}. It must be a JSON list of texts.")


def _said(error: Exception, options: dict[str, Any]) -> str:
    """Return submitit's message, without its list of all parameters."""
    text = str(error).strip() or type(error).__name__
    said = text.splitlines()[0].split(" Valid arguments:")[0].rstrip(".")
    if not isinstance(error, NameError):
        return f"--cluster-options: {said}."
    wrong = max((name for name in options if name in said), key=len, default="")
    return f"--cluster-options: {said}.{suggest(wrong, COMMON)} Names are submitit's, such as {', '.join(COMMON)}."
