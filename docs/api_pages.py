"""Pages of the Python reference: the names of each page. mkdocstrings inserts their docstrings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import zoo
from zoo.runtime.exports import imported_names

ROOT = Path(__file__).parent.parent
API = ROOT / "docs" / "api"
#: A class is shown with its own docstring only, or with its methods.
ALONE, WITH_MEMBERS = "members: false", "members: true"


def entry(path: str, members: str) -> str:
    """Return the directive of mkdocstrings for a name, with the import name as heading."""
    name = path.rsplit(".", 1)[-1]
    package = "zoo.testing" if path.startswith("zoo.testing.") else path.split(".")[0]
    short = f"{package}.{name}" if package != "zoo" or name in dir(zoo) else path
    return f"::: {path}\n    options:\n      heading: {short}\n      toc_label: {name}\n      {members}"


def entries(paths: Iterable[str], members: str = WITH_MEMBERS) -> str:
    """Return the directives of several names."""
    return "\n\n".join(entry(path, members) for path in paths)


def exported(names: Mapping[str, str]) -> str:
    """Return the directives of exported classes, by name, without the base class of datamodules."""
    homes = sorted(names.items())
    return entries((f"{home}.{name}" for name, home in homes if name != "CrossDomainDataModule"), ALONE)


def classes_of(package: str) -> str:
    """Return the directives of the classes that a package exports."""
    return exported(imported_names(ROOT / package / "__init__.py"))


def parts() -> dict[Path, dict[str, str]]:
    """Return the generated text of each page."""
    runs = (
        "publishing.publish", "trainer.fit", "trainer.Run", "loading.load", "probing.probe", "probing.Probe",
        "predictor.Predictor", "exporting.export",
    )  # fmt: skip
    bases = ("methods.base.Recommender", "publishers.base.Publisher", "methods.target_data.TargetData")
    released = ("release.Release", "denoiser.Denoiser", "metadata.Statement")
    contracts = [
        "methods.MethodContract",
        *(f"contracts.{kind}Contract" for kind in ("Publisher", "Datamodule", "Callback")),
    ]
    privacy = {
        "accounting": ("accounting.accountant.Accountant", "accounting.relation.Relation", "accounting.events"),
        "record": ("record.record.PrivacyRecord",),
        "spending": ("spending.budget.Budget", "spending.total.total_of"),
        "randomness": ("randomness.noise.NoiseSource",),
        "audits": ("audits.two_world.run_audit", "audits.one_run.run_once", "audits.catalogue.all_audits"),
        "mechanisms": ("mechanisms.base.Mechanism", "mechanisms.jlt.release_rows"),
    }
    chapters = {part: entries(f"zoo.privacy.{name}" for name in names) for part, names in privacy.items()}
    attacks = ("reconstruction", "inverse", "updates")
    chapters["attacks"] = entries(f"zoo.commands.privacy.attacks.{name}" for name in attacks)
    return {
        API / "runs.md": {"": entries(f"zoo.runs.{name}" for name in runs)},
        API / "methods.md": {"methods": exported(zoo.METHODS), "perturbations": exported(zoo.PERTURBATIONS)},
        API / "publishers.md": {"": exported(zoo.PUBLISHERS)},
        API / "data.md": {
            "base": entry("datamodules.base.CrossDomainDataModule", WITH_MEMBERS),
            "datamodules": classes_of("datamodules"),
        },
        API / "callbacks.md": {"": classes_of("callbacks")},
        API / "extending.md": {
            "bases": entries(f"zoo.{name}" for name in bases),
            "release": entries(f"zoo.release.{name}" for name in released),
            "testing": entries((f"zoo.testing.{name}" for name in contracts), ALONE),
        },
        API / "privacy.md": chapters,
    }
