"""Jobs of a SLURM cluster, one for each run, submitted by submitit (the extra ``cluster``)."""

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

from zoo.benchmark.grid import BenchmarkError
from zoo.benchmark.runner import run_all
from zoo.benchmark.runs import LOG, BenchmarkRun
from zoo.runtime.processes import cores
from zoo.runtime.suggestions import suggest

if TYPE_CHECKING:
    import submitit

#: Folder below that of a benchmark with files of submitit and output of jobs.
JOBS = ".jobs"
INSTALL = 'pip install "cdr-zoo[cluster]"'
#: Defaults of every job; submitit's own time limit is five minutes.
DEFAULTS = {"timeout_min": 24 * 60, "stderr_to_stdout": True, "slurm_array_parallelism": 256}
#: Required programs of SLURM.
PROGRAMS = ("sbatch", "srun")
#: The most used parameters, by submitit's names.
COMMON = (
    *("timeout_min", "cpus_per_task", "mem_gb", "gpus_per_node", "name"),
    *("slurm_partition", "slurm_account", "slurm_qos", "slurm_constraint", "slurm_gres", "slurm_array_parallelism"),
    *("slurm_setup", "slurm_additional_parameters"),
)
#: Parameters that submitit does not check, without the prefix ``slurm_``.
NUMBERS, LISTS = ("timeout_min", "cpus_per_task", "array_parallelism", "mem_gb"), ("setup", "teardown", "srun_args")
#: Parameters that would repeat a job's run.
REPEATED = ("nodes", "ntasks", "tasks_per_node", "ntasks_per_node")


@dataclass(frozen=True)
class Cluster:
    """SLURM with the parameters of each job."""

    options: dict[str, Any]  # by submitit's names

    def check(self) -> None:
        """Refuse missing programs and invalid parameters; submit nothing."""
        _library()
        if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
            raise BenchmarkError(f"Missing programs: {', '.join(missing)}. Use a machine with SLURM.")
        for name, value in self.options.items():
            _refuse_value(name, value)
        with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:  # an executor makes its folder
            self._executor(Path(scratch))

    def submit(self, runs: Sequence[BenchmarkRun], folder: Path, keep_checkpoints: bool) -> list[str]:
        """Submit an array with one job per run; return the job numbers.

        Runs with settings from another run's search are a second array, which starts after the first. Jobs execute files of the
        folder, so only its owner may write to it.
        """
        if "%" in str(folder.absolute()):
            raise BenchmarkError(f"{folder} has a %, which SLURM and submitit replace. Choose other --runs.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise BenchmarkError(f"{folder} is writable by others, and jobs run its files. Change --runs.")
        names = {run.name for run in runs}
        first, later = ([run for run in runs if run.waits_for(names) is wait] for wait in (False, True))
        jobs: list[str] = []
        try:
            executor = self._executor(folder)
            for part in filter(None, (first, later)):
                if jobs:
                    executor.update_parameters(slurm_dependency=f"afterany:{jobs[0].partition('_')[0]}")
                submitted = executor.submit_array([partial(run_job, run, keep_checkpoints) for run in part])
                jobs += [str(job.job_id) for job in submitted]
        except (RuntimeError, OSError) as error:  # of sbatch, or a missing program or folder
            message = " ".join(str(error).split())
            raise BenchmarkError(f"Submitting failed ({message}). Change --cluster-options, and try again.") from error
        return jobs

    def _executor(self, folder: Path) -> submitit.AutoExecutor:
        python = shlex.join([sys.executable, *(["-P"] if sys.flags.safe_path else [])])
        executor: submitit.AutoExecutor = _library().AutoExecutor(folder=folder, cluster="slurm", slurm_python=python)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)  # such as a renamed parameter
            try:
                executor.update_parameters(**self.options)
            except Exception as error:  # submitit documents no types
                raise BenchmarkError(_message(error, self.options)) from error
        return executor


def run_job(run: BenchmarkRun, keep_checkpoints: bool) -> None:
    """Execute a run in a job, on all CPUs of the job; a failed run fails the job."""
    (outcome,) = run_all([run], 1, cores(), lambda _: None, keep_checkpoints)
    if outcome.error:
        raise BenchmarkError(f"{run.name} failed: {outcome.error}. Its log: {run.folder / LOG}.")


def cluster_of(options: argparse.Namespace) -> Cluster | None:
    """Return the checked cluster of the command's options; None for this machine."""
    if options.cluster is None:
        if options.cluster_options:
            raise BenchmarkError("--cluster-options are for jobs of a cluster. Add --cluster slurm.")
        return None
    parallel = {} if options.processes is None else {"slurm_array_parallelism": options.processes}
    named = {"name": f"zoo-{options.config.stem}"}
    cluster = Cluster(DEFAULTS | named | parallel | dict(map(_option, options.cluster_options)))
    cluster.check()
    return cluster


def _library() -> Any:  # noqa: ANN401  a module
    try:
        import submitit
    except ImportError as error:
        raise BenchmarkError(f"submitit is not installed. Install it with: {INSTALL}.") from error
    return submitit


def _option(text: str) -> tuple[str, Any]:
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
        raise BenchmarkError(f"--cluster-options {name} is set. A job is one run. Use --processes.")
    if own in NUMBERS:
        kind, types = ("a number", (int, float)) if own == "mem_gb" else ("a whole number", (int,))
        if type(value) not in types or not 0 < value < math.inf:
            raise BenchmarkError(f"--cluster-options {name} is {value!r}. It must be {kind} above 0.")
    if own in LISTS and not (isinstance(value, list) and all(isinstance(line, str) for line in value)):
        raise BenchmarkError(f"--cluster-options {name} is {value!r}. It must be a JSON list.")


def _message(error: Exception, options: dict[str, Any]) -> str:
    """Return submitit's message, without its list of all parameters."""
    text = str(error).strip() or type(error).__name__
    message = text.splitlines()[0].split(" Valid arguments:")[0].rstrip(".")
    if not isinstance(error, NameError):
        return f"--cluster-options: {message}."
    wrong = max((name for name in options if name in message), key=len, default="")
    return f"--cluster-options: {message}.{suggest(wrong, COMMON)} Names are submitit's, such as {', '.join(COMMON)}."
