"""Jobs of a cluster: what is submitted, what is refused before that, and that each job runs its run."""

import os
import pickle
import stat
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.zoo.benchmark.processes import ABSENT, POPULARITY, wait_until
from zoo.benchmark import cluster, command
from zoo.benchmark.cluster import JOBS, run_job
from zoo.benchmark.grid import BenchmarkError
from zoo.benchmark.grid_file import read_benchmark
from zoo.benchmark.runner import Outcome
from zoo.benchmark.runs import BENCHMARK, RUN_FILE, runs_of
from zoo.runtime.run_folder import write_json

pytest.importorskip("submitit", reason="jobs of a cluster are an extra: pip install 'cdr-zoo[cluster]'")
pytestmark = pytest.mark.filterwarnings("error:Received an empty job array")

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
echo "Submitted batch job $((4241 + $(wc -l < "$STAND_IN/sbatch.txt")))"
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


def submitted() -> list[Any]:
    """What each job is to do."""
    return [pickle.loads(path.read_bytes()).function for path in sorted(Path("out", JOBS).glob("*_submitted.pkl"))]


def test_an_array_has_a_job_for_each_run(slurm: Path, write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    write(seeds=[0, 1, 2, 3])
    asked = ["timeout_min=90", "slurm_partition=gpu", "cpus_per_task=4", "mem_gb=1.5", "slurm_time=01:30:00"]
    further = ["--only", "music/pop*/seed-[0-2]", "--keep-checkpoints", "--processes", "2"]
    launch("--cluster", "slurm", "--cluster-options", *asked, "--cluster-options", "slurm_qos=low", *further)
    jobs = Path("out", JOBS).absolute()
    own = {"--array=0-2%2", "--job-name=zoo-bench", "--nodes=1", f"--output={jobs}/%A_%a_0_log.out"}
    assert own | {"--partition=gpu", "--cpus-per-task=4", "--mem=1536MB", "--time=01:30:00", "--qos=low"} <= flags()
    assert not [flag for flag in flags() if flag.startswith("--error")], "one log for each job"
    todo = runs_of(read_benchmark(Path("bench.yaml")), Path("out"))[:3]
    assert [(job.func, job.args) for job in submitted()] == [(run_job, (run, True)) for run in todo]
    assert len((slurm / "sbatch.txt").read_text().splitlines()) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-3:] == [
        "3 jobs submitted to SLURM, one for each run: 4242_0 to 4242_2",
        f"Logs: out/{JOBS}/<job>_0_log.out",
        "Finished runs: python -m zoo benchmark --config bench.yaml --runs out --only 'music/pop*/seed-[0-2]' --dry-run",
    ]
    assert stat.S_IMODE(jobs.stat().st_mode) == 0o700, "jobs run what lies there"
    assert {path.name for path in Path("out").glob("[!.]*")} == {BENCHMARK}, "no run is run here"


def test_runs_that_wait_for_a_search_are_an_array_that_waits(slurm: Path, write: Write) -> None:
    search = {"trials": 1, "seeds": "first", "parameters": {"model.l2": {"choices": [1.0]}}}
    ease = {"config": "popularity.yaml", "settings": {"model": "EASE"}, "search": search}
    write(seeds=[0, 1], systems={"EASE": ease, "Popularity": POPULARITY})
    launch(*SLURM)
    first, second = (path.read_text() for path in sorted(Path("out", JOBS).glob("[!.]*_submission.sh")))
    assert "#SBATCH --array=0-2%3\n" in first
    assert "--dependency" not in first
    assert "#SBATCH --dependency=afterany:4242\n" in second
    assert submitted()[-1].args[0].name == "music/ease/seed-1"


def test_jobs_read_nothing_that_others_may_write(slurm: Path, write: Write) -> None:
    write(seeds=[0])
    jobs = Path("out") / JOBS
    jobs.mkdir(parents=True)
    jobs.chmod(0o777)
    with pytest.raises(SystemExit, match=r"is writable by others, and jobs run its files\. Change"):
        launch(*SLURM)
    assert not [*jobs.iterdir()]


def test_a_job_has_a_day_and_one_run_has_one_job(slurm: Path, write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    launch(*SLURM)
    assert "--time=1440" in flags()
    assert not [flag for flag in flags() if flag.startswith(("--array", "--cpus"))]
    assert "1 job submitted to SLURM, one for each run: 4242\n" in capsys.readouterr().out


def test_python_in_safe_mode_stays_in_safe_mode(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "sys", SimpleNamespace(executable="a python", flags=SimpleNamespace(safe_path=True)))
    launch(*SLURM)
    (file,) = Path("out", JOBS).glob("[!.]*_submission.sh")
    assert " 'a python' -P -u -m submitit.core._submit " in file.read_text()


@pytest.mark.parametrize(("error", "message"), [("", None), ("ValueError: no", r"seed-0 failed: ValueError: no\. Its")])
def test_a_job_whose_run_fails_fails(
    place: Path, monkeypatch: pytest.MonkeyPatch, error: str, message: str | None
) -> None:
    (run,) = runs_of(read_benchmark(Path("bench.yaml")), Path("out"))
    asked: list[object] = []

    def fake(*given: object) -> list[Outcome]:
        asked.extend((given[0], *given[1:3], given[4]))
        return [Outcome(run, 1.0, error)]

    monkeypatch.setattr(cluster, "run_all", fake)
    monkeypatch.setattr(cluster, "cores", lambda: 3)
    with pytest.raises(BenchmarkError, match=message) if message else nullcontext():
        run_job(run, True)
    assert asked == [[run], 1, 3, True], "on all cores of the job"


SLURM = ["--cluster", "slurm"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cluster-options", "timeout_min=5"], r"--cluster-options are for jobs of a cluster\. Add --cluster slurm"),
        ([*SLURM, "--cluster-options", "gpu"], r"is 'gpu'\. It must be NAME=VALUE"),
        ([*SLURM, "--cluster-options", "timeout=5"], r"'timeout' need to be prefixed.* Did you mean timeout_min\?"),
        (
            [*SLURM, "--cluster-options", "slurm_partitoin=a"],
            r"slurm_partitoin'\. Did you mean slurm_partition\? Names",
        ),
        ([*SLURM, "--cluster-options", "partition=a"], r"'partition' is deprecated. Use 'slurm_partition' instead\.$"),
        ([*SLURM, "--cluster-options", "name=5"], r'"name" expected type'),
        ([*SLURM, "--cluster-options", "slurm_additional_parameters=a"], r"--cluster-options: dictionary update"),
        (
            [*SLURM, "--cluster-options", "timeout_min=long"],
            r"timeout_min is 'long'\. It must be a whole number above 0",
        ),
        ([*SLURM, "--cluster-options", "timeout_min=0"], r"timeout_min is 0\. It must be a whole number above 0"),
        ([*SLURM, "--cluster-options", "cpus_per_task=true"], r"cpus_per_task is True\. It must be a whole number"),
        ([*SLURM, "--cluster-options", "slurm_array_parallelism=1.5"], r"is 1\.5\. It must be a whole number"),
        ([*SLURM, "--cluster-options", "mem_gb=NaN"], r"mem_gb is nan\. It must be a number above 0"),
        ([*SLURM, "--cluster-options", "slurm_setup=module load"], r"is 'module load'\. It must be a JSON list"),
        ([*SLURM, "--cluster-options", "nodes=2"], r"nodes is set. A job is one run. Use"),
        ([*SLURM, "--cluster-options", "slurm_ntasks_per_node=2"], r"slurm_ntasks_per_node is set. A job is one run"),
        (
            [*SLURM, "--cluster-options", 'slurm_additional_parameters={"ntasks": 4}'],
            r"parameters is set. A job is one run",
        ),
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


@pytest.mark.parametrize(("left", "said"), [((), "sbatch, srun"), (("sbatch",), "srun")])
def test_without_slurm_it_says_so(slurm: Path, monkeypatch: pytest.MonkeyPatch, left: list[str], said: str) -> None:
    for name in {"sbatch", "srun"} - {*left}:
        (slurm / name).unlink()
    monkeypatch.setenv("PATH", str(slurm))
    with pytest.raises(SystemExit, match=rf"Missing programs: {said}. Use a machine"):
        launch(*SLURM)
    assert not Path("out").exists()


def test_without_the_library_it_names_the_extra(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(SystemExit, match=r'submitit is not installed.*: pip install "cdr-zoo\[cluster\]"\.'):
        launch(*SLURM)
    assert not Path("out").exists()


def test_what_sbatch_refuses_is_a_sentence_with_its_words(slurm: Path) -> None:
    (slurm / "refused").touch()
    said = r"Submitting failed \(sbatch: error: invalid partition specified: gpu sbatch: error: failed\)\. Change"
    with pytest.raises(SystemExit, match=said):
        launch(*SLURM, "--cluster-options", "slurm_partition=gpu")


def test_numbers_in_the_name_of_the_folder_are_refused(slurm: Path) -> None:
    with pytest.raises(SystemExit, match=r"out%j/\.jobs has a %.*Choose other --runs"):
        command.main(["--config", "bench.yaml", "--runs", "out%j", *SLURM])
    assert not (slurm / "sbatch.txt").exists()


def test_a_wrong_setting_is_refused_before_anything_is_submitted(slurm: Path, write: Write) -> None:
    write(systems={"Wrong": POPULARITY | {"settings": {"model.smoothing": 1}}})
    with pytest.raises(SystemExit, match="music: Wrong has wrong settings"):
        launch(*SLURM)
    assert not (slurm / "sbatch.txt").exists()
    assert not Path("out").exists()


@pytest.mark.parametrize(("asked", "jobs"), [([], 256), (["--processes", "8"], 8)])
def test_a_dry_run_submits_nothing(
    slurm: Path, capsys: pytest.CaptureFixture[str], asked: list[str], jobs: int
) -> None:
    launch(*SLURM, *asked, "--dry-run")
    assert f"1 run pending, {jobs} at a time" in capsys.readouterr().out
    assert not (slurm / "sbatch.txt").exists()
    assert not Path("out").exists()


def test_where_nothing_is_left_nothing_is_submitted(slurm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run,) = runs_of(read_benchmark(Path("bench.yaml")), Path("out"))
    run.prepare_folder()
    write_json(run.folder / RUN_FILE, {"settings": run.settings(), "seconds": 1.0})
    launch(*SLURM)
    assert "1 of 1 runs are finished: out" in capsys.readouterr().out
    assert not (slurm / "sbatch.txt").exists()


@pytest.mark.slow
@pytest.mark.processes
def test_the_array_that_is_submitted_runs_each_run_once(slurm: Path, write: Write) -> None:
    (slurm / "running").touch()
    write(seeds=[0, 1], systems={"Popularity": POPULARITY, "Absent": ABSENT})
    launch(*SLURM, "--cluster-options", "timeout_min=5")
    logs = Path("out", JOBS)
    wait_until(lambda: len(list(logs.glob("*_result.pkl"))) == 3, "the jobs have not ended")
    runs = runs_of(read_benchmark(Path("bench.yaml")), Path("out"))
    finished = {run.name for run in runs if run.finished() is not None}
    assert finished == {"music/popularity/seed-0", "music/popularity/seed-1"}
    results = sorted(pickle.loads(path.read_bytes())[0] for path in logs.glob("*_result.pkl"))
    assert results == ["error", "success", "success"]
    assert any("music/absent/seed-0 failed: " in path.read_text() for path in logs.glob("*_log.out"))
