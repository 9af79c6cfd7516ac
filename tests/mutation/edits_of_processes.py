"""Slips in what several processes of one run share, and in what each has of its own."""

from tests.mutation.edit import edits_of

PROCESSES = (
    *edits_of(
        "zoo/data/training_batches.py",
        ("tests/zoo/data/test_random_states.py",),
        ("every process draws the same", "    if rank:\n", "    if not rank:\n"),
        ("a process goes on with another's numbers", "states[rank if rank < len(states) else 0]", "states[0]"),
        ("a new process goes on as the first", "    if rank >= len(states):\n", "    if rank > len(states):\n"),
    ),
    *edits_of(
        "zoo/methods/checkpoint_identity.py",
        ("tests/zoo/data/test_random_states.py",),
        ("every process begins as the first", "separate_streams(share_of(self.trainer).rank)", "separate_streams(0)"),
    ),
    *edits_of(
        "zoo/methods/base.py",
        ("tests/zoo/methods/one_bit_mc/test_method.py",),
        (
            "several processes solve a closed form",
            "if number > 1 and self.single_process_reason:",
            "if number > 2 and self.single_process_reason:",
        ),
    ),
    *edits_of(
        "zoo/methods/adversarial.py",
        ("tests/zoo/methods/test_adversarial.py",),
        ("gradients of processes are added up", 'reduce_op="mean"', 'reduce_op="sum"'),
        ("what nobody has learned decays", 'reduce_op="sum") > 0', 'reduce_op="sum") >= 0'),
    ),
    *edits_of(
        "zoo/data/training_batches.py",
        ("tests/datamodules/test_base.py",),
        ("every process learns from the same", 'Share(sampler["rank"], sampler["num_replicas"])', "Share()"),
        ("every process has the same negatives and pairs", 'Share(sampler["rank"], ', "Share(0, "),
    ),
    *edits_of(
        "zoo/runtime/processes.py",
        ("tests/zoo/runtime/test_processes.py",),
        (
            "a job takes every core of its machine",
            "len(os.sched_getaffinity(0)) if hasattr",
            "os.cpu_count() or 1 if hasattr",
        ),
        ("a task has what its machine has", "return min(mine, int(slurm))", "return max(mine, int(slurm))"),
    ),
    *edits_of(
        "zoo/benchmark/command.py",
        ("tests/zoo/benchmark/test_command.py",),
        ("each run has all threads", "cores() // processes", "cores()"),
    ),
    *edits_of(
        "zoo/benchmark/fit.py",
        ("tests/zoo/benchmark/test_runs.py",),
        ("a run starts the whole benchmark again", '"--trainer.devices", "1", ', ""),
    ),
    *edits_of(
        "zoo/commands/psi.py",
        ("tests/zoo/commands/test_psi.py",),
        ("a message's spelling is lines of an error", 'repr(fields["spelling"])', 'str(fields["spelling"])'),
        (
            "a step replaces what another wrote at the same time",
            """mode=0o600):
            for path in (options.send, options.out):
                if path is not None and path.exists():
                    raise PsiError(f"{path} exists.")
            return""",
            """mode=0o600):
            return""",
        ),
    ),
    *edits_of(
        "zoo/benchmark/fit.py",
        ("tests/zoo/benchmark/test_search.py",),
        ("a search finds out after a training that nothing is validated", "        self.check_validation()\n", ""),
        ("a search without validation batches names the split", " or self.trainer.limit_val_batches == 0:", ":"),
        ("a dry run allows a search without validation", "    if searches:\n", "    if False:\n"),
    ),
    *edits_of(
        "zoo/testing/methods.py",
        ("tests/contracts/test_methods.py",),
        ("a method may train on the test cases", ', "test": property(self.refuse)}', "}"),
    ),
    *edits_of(
        "zoo/data/held_out_cases.py",
        ("tests/zoo/data/test_training_batches.py",),
        ("a process without a case is waited for", "if size < share.world_size:", "if not size:"),
    ),
    *edits_of(
        "zoo/methods/federated/updates.py",
        ("tests/zoo/methods/federated/test_updates.py",),
        ("a client of two processes counts twice", "~torch.isin(part.users, seen)", "part.users >= 0"),
        ("clients of another process are mixed up", "one.clients + start", "one.clients"),
    ),
    *edits_of(
        "zoo/runs/processes.py",
        ("tests/zoo/runs/test_processes.py",),
        ("all processes speak", "    if not is_first():\n", "    if False:\n"),
        ("others are left waiting", "launcher.kill(signal.SIGKILL)", "pass"),
    ),
    *edits_of(
        "zoo/runs/publishing.py",
        ("tests/zoo/runs/test_processes.py",),
        ("every process publishes", "    if not is_first():\n", "    if False:\n"),
    ),
    *edits_of(
        "zoo/runs/checks.py",
        ("tests/zoo/runs/test_processes.py",),
        ("what is refused is published first", "    method.check_processes(trainer.world_size)\n", ""),
    ),
)
