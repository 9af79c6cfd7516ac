"""Jobs of a cluster: what is submitted, what is refused before that, and that the jobs divide the cells."""

import importlib
import os
import pickle
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.zoo.benchmark.processes import POPULARITY, wait_until
from zoo.benchmark import cluster, command
from zoo.benchmark.cell import BENCHMARK, CELL, cells_of
from zoo.benchmark.cluster import DEFAULTS, JOBS, Cluster
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.lease import LEASES
from zoo.runtime.run_folder import write_json

pytest.importorskip("submitit", reason="jobs of a cluster are an extra: pip install 'cdr-zoo[cluster]'")

Write = Callable[..., Path]

#: In the place of SLURM's: it takes an array, and runs its tasks where somebody waits for them.
SBATCH = """#!/bin/bash
echo "$@" >> "$STAND_IN/sbatch.txt"
if [ -e "$STAND_IN/refused" ]; then
    printf 'sbatch: error: invalid partition specified: gpu\\nsbatch: error: failed\\n' >&2
    exit 1
fi
if [ -e "$STAND_IN/running" ]; then
    cp "$1" "$STAND_IN/submitted.sh"
    export SLURM_ARRAY_JOB_ID=4242 SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_JOB_NUM_NODES=1
    for task in $(seq 0 "$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$1")"); do
        SLURM_JOB_ID=$((4242 + task)) SLURM_ARRAY_TASK_ID=$task SLURM_JOB_NAME=zoo bash "$STAND_IN/submitted.sh" > /dev/null 2>&1 &
    done
fi
echo "Submitted batch job 4242"
"""
SRUN = """#!/bin/bash
while [[ $1 == -* ]]; do
    if [ "$1" = --output ]; then out=$2; shift; fi
    shift
done
out=${out//%A/$SLURM_ARRAY_JOB_ID} out=${out//%a/$SLURM_ARRAY_TASK_ID} out=${out//%t/0}
exec "$@" > "$out" 2>&1
"""


@pytest.fixture
def slurm(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with stand-ins for what SLURM brings, and what they were asked."""
    folder = place / "slurm"
    folder.mkdir()
    for name, text in (("sbatch", SBATCH), ("srun", SRUN)):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN", str(folder))
    return folder


def launch(*arguments: str) -> None:
    command.main(["--config", "bench.yaml", "--runs", "out", *arguments])


def flags() -> set[str]:
    """What the submitted file asks of SLURM."""
    (file,) = Path("out", JOBS).glob("[!.]*_submission.sh")
    return {line.removeprefix("#SBATCH ") for line in file.read_text().splitlines() if line.startswith("#SBATCH ")}


def submitted() -> list[partial[Any]]:
    """What each job is to do."""
    return [pickle.loads(path.read_bytes()).function for path in sorted(Path("out", JOBS).glob("*_submitted.pkl"))]


def test_jobs_are_an_array_that_runs_the_same_command(
    slurm: Path, write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write(seeds=[0, 1, 2, 3])
    asked = ["timeout_min=90", "slurm_partition=gpu", "cpus_per_task=4", "mem_gb=1.5", "slurm_time=01:30:00"]
    further = ["--only", "music/pop*", "--keep-checkpoints", "--processes", "1"]
    launch(
        "--cluster", "slurm", "--jobs", "2", "--cluster-options", *asked, "--cluster-options", "slurm_qos=low", *further
    )
    jobs = Path("out", JOBS).absolute()
    own = {"--array=0-1%2", "--job-name=zoo-bench", "--nodes=1", f"--output={jobs}/%A_%a_0_log.out"}
    assert own | {"--partition=gpu", "--cpus-per-task=4", "--mem=1536MB", "--time=01:30:00", "--qos=low"} <= flags()
    assert not [flag for flag in flags() if flag.startswith("--error")], "one log for each job"
    words = ["-m", "zoo", "benchmark", "--config", "bench.yaml", "--runs", "out", "--processes", "1"]
    words = [sys.executable, *words, "--only", "music/pop*", "--keep-checkpoints"]
    assert [(job.func, job.args, job.keywords) for job in submitted()] == [
        (subprocess.run, (words,), {"check": True})
    ] * 2
    assert len((slurm / "sbatch.txt").read_text().splitlines()) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-3:] == [
        "2 jobs on slurm for 4 cells, 1 at a time in each: 4242_0, 4242_1",
        f"Their logs: out/{JOBS}/<job>_0_log.out",
        "What is finished: python -m zoo benchmark --config bench.yaml --runs out --processes 1 --only 'music/pop*' "
        "--keep-checkpoints --dry-run",
    ]
    assert stat.S_IMODE(jobs.stat().st_mode) == 0o700, "jobs run what lies there"
    assert {path.name for path in Path("out").iterdir()} == {BENCHMARK, JOBS}, "no cell is run here"


def test_jobs_read_nothing_that_others_may_write(slurm: Path, write: Write) -> None:
    write(seeds=[0])
    jobs = Path("out") / JOBS
    jobs.mkdir(parents=True)
    jobs.chmod(0o777)
    with pytest.raises(SystemExit, match=r"others may write there, and jobs run what they read in it\. Remove it"):
        launch("--cluster", "slurm", "--jobs", "1")
    assert not [*jobs.iterdir()]


def test_a_job_has_a_day_and_a_cell_for_each_cpu_and_no_job_is_without(slurm: Path, write: Write) -> None:
    write(seeds=[0, 1, 2])
    launch("--cluster", "slurm", "--jobs", "8", "--cluster-options", "cpus_per_task=2")
    assert {"--array=0-1%2", "--time=1440", "--cpus-per-task=2"} <= flags()
    assert [job.args[0][-2:] for job in submitted()] == [["--processes", "2"]] * 2


def test_one_job_has_one_cpu(slurm: Path, write: Write) -> None:
    write(seeds=[0, 1, 2])
    launch("--cluster", "slurm", "--jobs", "1")
    assert not [flag for flag in flags() if flag.startswith(("--array", "--cpus"))]
    assert [job.args[0][-2:] for job in submitted()] == [["--processes", "1"]]


def test_the_cpus_of_a_job_are_those_of_its_cluster() -> None:
    options = {"cpus_per_task": 4, "slurm_cpus_per_task": 8}
    assert [Cluster(name, 1, options).cpus for name in ("slurm", "local")] == [8, 4]


def test_python_in_safe_mode_stays_in_safe_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = command.parser().parse_args(["--config", "bench.yaml"])
    monkeypatch.setattr(cluster, "sys", SimpleNamespace(executable="python", flags=SimpleNamespace(safe_path=True)))
    assert cluster.words_of(asked, Path("out"), 1)[:5] == ["python", "-P", "-m", "zoo", "benchmark"]


SLURM = ["--cluster", "slurm", "--jobs", "2"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "2"], r"--jobs and --cluster-options are for a cluster: add --cluster slurm or --cluster local"),
        (["--cluster-options", "timeout_min=5"], r"--jobs and --cluster-options are for a cluster"),
        (["--cluster", "slurm"], r"How many jobs is --cluster slurm to submit\? Add --jobs, such as --jobs 8"),
        (["--cluster", "local", "--jobs", "0"], r"--jobs must be at least 1, got 0"),
        ([*SLURM, "--processes", "0"], r"--processes must be at least 1, got 0"),
        ([*SLURM, "--cluster-options", "gpu"], r"takes NAME=VALUE, such as timeout_min=1440 .*; got 'gpu'"),
        ([*SLURM, "--cluster-options", "=5"], r"takes NAME=VALUE.*; got '=5'"),
        ([*SLURM, "--cluster-options", "timeout=5"], r"'timeout' need to be prefixed.* Did you mean timeout_min\?"),
        (
            [*SLURM, "--cluster-options", "slurm_partitoin=a"],
            r"slurm_partitoin'\. Did you mean slurm_partition\? Names are",
        ),
        ([*SLURM, "--cluster-options", "partition=a"], r"'partition' is deprecated. Use 'slurm_partition' instead\.$"),
        ([*SLURM, "--cluster-options", "name=5"], r'"name" expected type'),
        ([*SLURM, "--cluster-options", "slurm_additional_parameters=a"], r"--cluster-options: dictionary update"),
        ([*SLURM, "--cluster-options", "timeout_min=long"], r"timeout_min must be a whole number above 0, got 'long'"),
        ([*SLURM, "--cluster-options", "timeout_min=0"], r"timeout_min must be a whole number above 0, got 0"),
        (
            [*SLURM, "--cluster-options", "cpus_per_task=true"],
            r"cpus_per_task must be a whole number above 0, got True",
        ),
        (
            [*SLURM, "--cluster-options", "slurm_array_parallelism=1.5"],
            r"slurm_array_parallelism must be a whole number",
        ),
        ([*SLURM, "--cluster-options", "mem_gb=NaN"], r"mem_gb must be a number above 0, got nan"),
        ([*SLURM, "--cluster-options", "mem_gb=Infinity"], r"mem_gb must be a number above 0, got inf"),
        (
            [*SLURM, "--cluster-options", "slurm_setup=module load"],
            r"slurm_setup must be a list of texts.*got 'module load'",
        ),
        ([*SLURM, "--cluster-options", "slurm_setup=[1]"], r"slurm_setup must be a list of texts.*got \[1\]"),
        ([*SLURM, "--cluster-options", "nodes=2"], r"nodes: a job runs one command on one machine. For more at a time"),
        ([*SLURM, "--cluster-options", "slurm_ntasks_per_node=2"], r"slurm_ntasks_per_node: a job runs one command"),
        (
            [*SLURM, "--cluster-options", 'slurm_additional_parameters={"ntasks": 4}'],
            r"slurm_additional_parameters: a job runs one command",
        ),
        (["--dry-run", *SLURM, "--cluster-options", "timeout=5"], r"Did you mean timeout_min\?"),
    ],
)
def test_what_cannot_be_submitted_is_a_message(slurm: Path, arguments: list[str], message: str) -> None:
    with pytest.raises(SystemExit, match=f"BenchmarkError: .*{message}"):
        launch(*arguments)
    assert not (slurm / "sbatch.txt").exists()
    assert not Path("out").exists()


def test_commands_that_run_before_and_after_are_a_list(slurm: Path) -> None:
    launch(*SLURM, "--cluster-options", 'slurm_setup=["module load cuda"]', "slurm_exclusive=true")
    (file,) = Path("out", JOBS).glob("[!.]*_submission.sh")
    assert "\nmodule load cuda\n" in file.read_text()
    assert "--exclusive" in flags()


def test_no_such_cluster_names_those_that_there_are(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        launch("--cluster", "slrum", "--jobs", "1")
    assert "there is no 'slrum'. Did you mean slurm?" in capsys.readouterr().err


@pytest.mark.parametrize(("left", "said"), [((), "no sbatch and no srun"), (("sbatch",), "no srun")])
def test_without_slurm_it_says_so(slurm: Path, monkeypatch: pytest.MonkeyPatch, left: list[str], said: str) -> None:
    for name in {"sbatch", "srun"} - {*left}:
        (slurm / name).unlink()
    monkeypatch.setenv("PATH", str(slurm))
    with pytest.raises(SystemExit, match=rf"by sbatch and srun, and there is {said} here.*--cluster local"):
        launch(*SLURM)
    assert not Path("out").exists()


def test_without_the_library_it_names_the_extra(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(
        SystemExit, match=r'submitit, which is not installed here.*: pip install "cdr-zoo\[cluster\]"\.'
    ):
        launch(*SLURM)
    assert not Path("out").exists()


def test_what_sbatch_refuses_is_a_sentence_with_its_words(slurm: Path) -> None:
    (slurm / "refused").touch()
    said = r"The jobs were not submitted \(sbatch: error: invalid partition specified: gpu sbatch: error: failed\)\. If that is"
    with pytest.raises(SystemExit, match=said):
        launch(*SLURM, "--cluster-options", "slurm_partition=gpu")


def test_numbers_in_the_name_of_the_folder_are_refused(slurm: Path) -> None:
    with pytest.raises(SystemExit, match=r"put numbers in the place of % in out%j/\.jobs: choose other --runs"):
        command.main(["--config", "bench.yaml", "--runs", "out%j", *SLURM])
    assert not (slurm / "sbatch.txt").exists()


def test_a_wrong_setting_is_refused_before_anything_is_submitted(slurm: Path, write: Write) -> None:
    write(systems={"Wrong": POPULARITY | {"settings": {"model.smoothing": 1}}})
    with pytest.raises(SystemExit, match="music: Wrong cannot be run as the benchmark has it"):
        launch(*SLURM)
    assert not (slurm / "sbatch.txt").exists()
    assert not Path("out").exists()


def test_a_dry_run_submits_nothing(slurm: Path, write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(seeds=[0, 1, 2])
    launch(*SLURM, "--cluster-options", "cpus_per_task=4", "--dry-run")
    assert "3 cells to run, 8 at a time" in capsys.readouterr().out
    assert not (slurm / "sbatch.txt").exists()
    assert not Path("out").exists()


def test_where_nothing_is_left_nothing_is_submitted(slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (cell,) = cells_of(read_benchmark(Path("bench.yaml")), Path("out"))
    cell.begin()
    write_json(cell.folder / CELL, {"settings": cell.settings(), "seconds": 1.0})
    launch(*SLURM)
    assert "1 of 1 cells are finished: out" in capsys.readouterr().out
    assert not (slurm / "sbatch.txt").exists()


def test_parameters_are_those_of_the_command_before_ours(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a stand-in for submitit's executor."""
    asked: list[dict[str, object]] = []

    class Executor:
        def __init__(self, **named: object) -> None:
            assert named["cluster"] == "local"

        def update_parameters(self, **named: object) -> None:
            asked.append(named)

        def submit_array(self, jobs: list[object]) -> list[object]:
            raise RuntimeError("no more processes")

    monkeypatch.setattr(importlib.import_module("submitit"), "AutoExecutor", Executor)
    with pytest.raises(SystemExit, match=r"not submitted \(no more processes\)"):
        launch("--cluster", "local", "--jobs", "1", "--cluster-options", "name=mine", "gpus_per_node=1")
    assert asked == [DEFAULTS | {"name": "mine", "gpus_per_node": 1}] * 2, "looked at, and used"


def check_divided(count: int) -> None:
    """Wait for the jobs: every cell was begun once, and is finished."""
    logs = Path("out", JOBS)
    wait_until(lambda: len(list(logs.glob("*_result.pkl"))) == count, "the jobs have not ended")
    cells = cells_of(read_benchmark(Path("bench.yaml")), Path("out"))
    assert all(cell.finished() is not None for cell in cells)
    leases = sorted(path.name for path in Path("out", LEASES, "music", "popularity").iterdir())
    assert leases == sorted(f"{cell.folder.name}.1" for cell in cells)
    said = [path.read_text() for path in sorted(logs.glob("*_log.out"))]
    assert len(said) == count
    assert all("4 of 4 cells are finished: out" in text for text in said), said
    runs = [re.findall(r"Popularity, seed (\d): [0-9]+ s; ", text) for text in said]
    assert sorted(seed for own in runs for seed in own) == ["0", "1", "2", "3"], "each by one job"
    assert [pickle.loads(path.read_bytes())[0] for path in logs.glob("*_result.pkl")] == ["success"] * count


@pytest.mark.slow
@pytest.mark.processes
def test_jobs_on_this_machine_divide_the_cells(write: Write) -> None:
    write(seeds=[0, 1, 2, 3])
    launch("--cluster", "local", "--jobs", "2", "--cluster-options", "timeout_min=5")
    check_divided(2)


@pytest.mark.slow
@pytest.mark.processes
def test_the_array_that_is_submitted_to_slurm_divides_the_cells(slurm: Path, write: Write) -> None:
    (slurm / "running").touch()
    write(seeds=[0, 1, 2, 3])
    launch(*SLURM, "--cluster-options", "timeout_min=5")
    check_divided(2)
