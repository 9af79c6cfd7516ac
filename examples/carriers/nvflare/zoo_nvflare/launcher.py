"""Job processes forked from one that made the imports before: a start costs less time than these, also on a busy machine.

NVFlare's own launcher starts an interpreter for each job. This one runs the same module with the same arguments, in a process of
the group of its party, so that the end of the group ends both.
"""

from __future__ import annotations

import os
import runpy
import shlex
import sys
from multiprocessing import get_context, parent_process
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_launcher_spec import JobHandleSpec, JobReturnCode
from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.process_launcher import JOB_RETURN_CODE_MAPPING
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher
from nvflare.utils.job_launcher_utils import get_credential_env

_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "nvflare.private.fed.app.client.worker_process",
        "nvflare.private.fed.app.server.runner_process",
        "zoo.commands.privacy.plan",
        "zoo.publishers",
        "zoo.runs.exchange",
        "zoo_nvflare.parties",
    ]
)


class _Job(JobHandleSpec):  # type: ignore[misc]  # NVFlare ships no types
    """A forked job process."""

    def __init__(self, process: ForkServerProcess) -> None:
        super().__init__()
        self.process = process

    def terminate(self) -> None:
        self.process.kill()

    def poll(self) -> Any:  # noqa: ANN401  NVFlare's own
        code = self.process.exitcode
        if code is None:
            return JobReturnCode.UNKNOWN
        return JOB_RETURN_CODE_MAPPING.get(abs(code), JobReturnCode.EXECUTION_ERROR)

    def wait(self) -> None:
        self.process.join()


class _Forking:
    def __init__(self) -> None:
        super().__init__()
        if parent_process() is None:  # a job makes this object too
            ensure_running()  # imports while the party connects

    def launch_job(self, job_meta: dict[str, Any], fl_ctx: FLContext) -> JobHandleSpec:
        """Fork the process of a job; a job with code of its own is refused by the policy of the site before."""
        argv = shlex.split(self.get_command(job_meta, fl_ctx), True)  # type: ignore[attr-defined]
        secrets = get_credential_env(fl_ctx.get_prop(FLContextKey.JOB_PROCESS_ARGS) or {})
        process = _FORKS.Process(target=run, args=(argv, {**os.environ, **secrets}))
        process.start()
        return _Job(process)


class ClientLauncher(_Forking, ClientProcessJobLauncher):  # type: ignore[misc]
    """Launcher of a source's jobs."""


class ServerLauncher(_Forking, ServerProcessJobLauncher):  # type: ignore[misc]
    """Launcher of the target's jobs."""


def run(argv: list[str], environment: dict[str, str]) -> None:
    """Do in a fork what the interpreter would do with ``-m MODULE ARGUMENTS``."""
    os.environ.update(environment)
    at = argv.index("-m")
    sys.argv = argv[at + 1 :]
    runpy.run_module(argv[at + 1], run_name="__main__", alter_sys=True)
