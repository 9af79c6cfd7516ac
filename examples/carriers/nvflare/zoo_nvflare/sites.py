"""Provisioning by NVFlare's own tool, and the files with which a site decides what it runs and what it releases."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from zoo.commands.parties import SETTINGS, TARGET, write_settings
from zoo.runtime.run_folder import write_json

ADMIN = "lead@target.example"
"""The user at the target who submits jobs."""
EXECUTOR, CONTROLLER = "zoo_nvflare.parties.ReleaseExecutor", "zoo_nvflare.parties.ReleaseController"

#: A site runs jobs of the target's lead alone, without code in the job, and no command of a shell.
AUTHORIZATION = {
    "format_version": "1.0",
    "permissions": {
        "lead": {
            "submit_job": "any",
            "clone_job": "none",
            "manage_job": "n:submitter",
            "download_job": "none",
            "view": "any",
            "operate": "o:site",
            "shell_commands": "none",
            "byoc": "none",
            "server-predeployed-flwr": "none",
        }
    },
}
#: One scope without filters: noise is added by the publisher, within the budget, and nowhere else.
PRIVACY = {"scopes": [{"name": "releases"}], "default_scope": "releases"}


def provision(options: argparse.Namespace) -> None:
    """Make the folders of the target, its admin and each source, with certificates for mutual TLS.

    Args:
        options: ``folder`` to write, which must not exist; ``port`` of the target's server, the next one is for its admin; and
            those of `zoo.commands.parties.provision_options`.
    """
    out, sources = options.folder, options.sources
    if out.exists():
        raise FileExistsError(f"{out} exists. Choose another folder.")
    out.mkdir(parents=True)
    project = out / "project.yml"
    project.write_text(yaml.safe_dump(_project(sources, options.port)), encoding="utf-8")
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(project), "-w", str(out / "kits")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (kits,) = (out / "kits").glob("*/prod_00")
    for name in (TARGET, ADMIN, *sources):
        shutil.move(kits / ("localhost" if name == TARGET else name), out / name)
    shutil.rmtree(out / "kits")
    for name in (TARGET, *sources):
        local = out / name / "local"
        write_policies(local, CONTROLLER if name == TARGET else EXECUTOR)
        write_settings(local / SETTINGS, name, options)


def write_policies(local: Path, allowed: str) -> None:
    """Write what a site runs: components of one class, of one kind of user, and no code in a job."""
    resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
    resources |= {"class_list_enforcement_mode": "enforce", "class_allow_list": [allowed], "allow_log_streaming": False}
    launcher = f"zoo_nvflare.launcher.{'Server' if allowed == CONTROLLER else 'Client'}Launcher"
    for component in resources["components"]:
        if component["id"] == "process_launcher":
            component["path"] = launcher
    for name, content in (("resources", resources), ("authorization", AUTHORIZATION), ("privacy", PRIVACY)):
        write_json(local / f"{name}.json", content)


def keep_jobs_here(folder: Path) -> None:
    """Let the server of a target store jobs in its own folder; NVFlare's place is one for all servers of a machine."""
    file = folder / "local" / "resources.json"
    resources = json.loads(file.read_text(encoding="utf-8"))
    resources["snapshot_persistor"]["args"]["storage"]["args"]["root_dir"] = str(folder / "storage" / "snapshots")
    for component in resources["components"]:
        if component["id"] == "job_manager":
            component["args"]["uri_root"] = str(folder / "storage" / "jobs")
    write_json(file, resources)


def write_job(folder: Path, sources: Sequence[str], options: argparse.Namespace) -> Path:
    """Write the job of a request: names of classes that every site has, and no code."""
    arguments = {name: getattr(options, name) for name in ("request", "epsilon", "timeout", "intersect")}
    arguments["sources"] = [*sources]
    files = {
        "meta.json": {"name": "release", "resource_spec": {}, "min_clients": 1, "deploy_map": {"app": ["@ALL"]}},
        "app/config/config_fed_server.json": {
            "format_version": 2,
            "workflows": [{"id": "collect", "path": CONTROLLER, "args": arguments}],
        },
        "app/config/config_fed_client.json": {
            "format_version": 2,
            "executors": [{"tasks": ["release"], "executor": {"path": EXECUTOR, "args": {}}}],
        },
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return folder


def _project(sources: Sequence[str], port: int) -> dict[str, Any]:
    """Return the project file of NVFlare's tool: a server, its admin, and a client of an organization of its own per source."""
    names = ("workspace", "static_file", "cert", "signature")
    classes = ("WorkspaceBuilder", "StaticFileBuilder", "CertBuilder", "SignatureBuilder")
    arguments = ({"template_file": "master_template.yml"}, {"config_folder": "config", "scheme": "tcp"}, {}, {})
    return {
        "api_version": 3,
        "name": "releases",
        "description": "Releases of source parties to a target party",
        "participants": [
            {"name": "localhost", "type": "server", "org": "target", "fed_learn_port": port, "admin_port": port + 1},
            {"name": ADMIN, "type": "admin", "org": "target", "role": "lead"},
            *({"name": name, "type": "client", "org": name} for name in sources),
        ],
        "builders": [
            {"path": f"nvflare.lighter.impl.{name}.{cls}", "args": given}
            for name, cls, given in zip(names, classes, arguments, strict=True)
        ],
    }
