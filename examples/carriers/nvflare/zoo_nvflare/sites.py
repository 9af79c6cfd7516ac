"""Provisioning by NVFlare's own tool, and the files with which a site decides what it runs and what it releases."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from zoo_nvflare import SETTINGS, TARGET

if TYPE_CHECKING:
    from zoo.privacy.spending.budget import Cap

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


def provision(config: Path, sources: Sequence[str], out: Path, port: int, cap: Cap) -> None:
    """Make the folders of the target, its admin and each source, with certificates for mutual TLS.

    Args:
        config: Experiment; each site gets a copy, which its owner may change.
        sources: Names of the sources.
        out: Folder to write; must not exist.
        port: Port of the target's server; the next one is for its admin.
        cap: Cap of each source's budget.
    """
    if out.exists():
        raise FileExistsError(f"{out} exists. Choose another folder.")
    out.mkdir(parents=True)
    project = out / "project.yml"
    project.write_text(yaml.safe_dump(_project(sources, port)), encoding="utf-8")
    command = [sys.executable, "-m", "nvflare.cli", "provision", "-p", str(project), "-w", str(out / "kits")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    (kits,) = (out / "kits").glob("*/prod_00")
    for name in (TARGET, ADMIN, *sources):
        shutil.move(kits / ("localhost" if name == TARGET else name), out / name)
    shutil.rmtree(out / "kits")
    for name in (TARGET, *sources):
        local = out / name / "local"
        write_policies(local, CONTROLLER if name == TARGET else EXECUTOR)
        write_settings(local / SETTINGS, name, config, cap)


def write_policies(local: Path, allowed: str) -> None:
    """Write what a site runs: components of one class, of one kind of user, and no code in a job."""
    resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
    resources |= {"class_list_enforcement_mode": "enforce", "class_allow_list": [allowed], "allow_log_streaming": False}
    for name, content in (("resources", resources), ("authorization", AUTHORIZATION), ("privacy", PRIVACY)):
        (local / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def write_settings(file: Path, name: str, config: Path, cap: Cap) -> None:
    """Write a party's settings, the experiment, and a source's budget next to them."""
    shutil.copy(config, file.parent / f"{name}.yaml")
    settings: dict[str, Any] = {"config": f"{name}.yaml"}
    if name == TARGET:
        settings |= {"limit": 2**32, "trusted": None}
    else:
        from zoo.privacy.spending.budget import Budget

        settings |= {"domain": name, "budget": f"{name}.budget.jsonl", "outbox": f"outbox-{name}", "sign": None}
        Budget.create(file.parent / settings["budget"], cap)
    file.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def write_job(folder: Path, sources: Sequence[str], request: str, epsilon: float | None, timeout: int) -> Path:
    """Write the job of a request: names of classes that every site has, and no code."""
    arguments = {"sources": [*sources], "request": request, "epsilon": epsilon, "timeout": timeout}
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
