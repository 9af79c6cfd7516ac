"""No class is imported because a file of another party names it: each reader, with a package that leaves a mark when it is."""

import hashlib
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

import zoo
from tests.quickstart import PROJECTED
from tests.samples import binary
from zoo import Release
from zoo.benchmark.report.command import main as report
from zoo.commands.privacy.command import main as privacy
from zoo.commands.recommend import main as recommend
from zoo.privacy.accounting.relation import Relation
from zoo.privacy.spending.budget import Budget, BudgetError, Cap
from zoo.release.files import ReleaseError
from zoo.runs.bundle import BUNDLE, BundleError
from zoo.runs.cli import ZooCLI
from zoo.runs.inputs import UsageError, read_checkpoint
from zoo.runtime import plugins

THEIRS = "received_package.Evil"


@pytest.fixture(autouse=True)
def never_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lies where Python finds it, as what was received does in the folder where one stands; whoever imports it is caught."""
    about = tmp_path / "received_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: received-package\nVersion: 1.0\n")
    points = (f"[{group}]\n{THEIRS} = {THEIRS.replace('.', ':')}\n" for group in plugins.GROUPS.values())
    (about / "entry_points.txt").write_text("".join(points))
    monkeypatch.chdir(tmp_path)
    plugins.brought.cache_clear()
    code = "raise BaseException('imported')\n"
    (tmp_path / "received_package.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BaseException, match="imported"):
        __import__("received_package")
    assert "received_package" not in sys.modules


def with_names(value: object, names: set[str]) -> object:
    """The value with their class in the place of each text under one of the names, and under a new one in every mapping."""
    if isinstance(value, dict):
        kept = {key: THEIRS if key in names else with_names(item, names) for key, item in value.items()}
        return kept | {"class_path": THEIRS}
    return [with_names(item, names) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("names", [set(), {"kind"}, {"type"}, {"mechanism"}, {"relation", "guarantee"}])
def test_a_release_imports_nothing(names: set[str], tmp_path: Path) -> None:
    path = zoo.JLT(epsilon=2.0, num_components=5).publish(binary(), "book").save(tmp_path / "book")
    manifest = json.loads((path / "release.json").read_text())
    (path / "release.json").write_text(json.dumps(with_names(manifest, names)))
    with pytest.raises(ReleaseError):
        Release.load(path)
    for command in ("show", "total"):
        with pytest.raises(SystemExit):
            privacy([command, str(path)])


def test_a_mechanism_of_theirs_is_a_word(tmp_path: Path) -> None:
    path = zoo.Plaintext().publish(binary(), "book").save(tmp_path / "book")
    manifest = json.loads((path / "release.json").read_text())
    manifest["record"]["mechanism"] = THEIRS
    (path / "release.json").write_text(json.dumps(manifest))
    assert Release.load(path).record.mechanism.name == THEIRS


@pytest.mark.parametrize("key", ["entry", "relation", "class_path"])
def test_a_budget_imports_nothing(key: str, tmp_path: Path) -> None:
    path = tmp_path / "book.jsonl"
    Budget.create(path, Cap(4.0, 1e-5, Relation.CHANGE_ONE_RATING))
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: THEIRS}) + "\n")
    with pytest.raises(BudgetError):
        Budget(path)


def test_a_bundle_imports_nothing_and_no_module_is_asked_for_more(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lazy = type(sys)("lazy_module")
    asked: list[str] = []
    lazy.__getattr__ = asked.append  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "lazy_module", lazy)
    folder = zoo.export(finished, tmp_path / "bundle")
    manifest = json.loads((folder / BUNDLE).read_text())
    for method in (THEIRS, "lazy_module.Evil"):
        (folder / BUNDLE).write_text(json.dumps(manifest | {"method": method}))
        with pytest.raises(BundleError, match=r"not one of the zoo.* If you trust its package"):
            zoo.load(folder)
    assert "Evil" not in asked
    settings = manifest["settings"] | {"dims": {"class_path": THEIRS}, "encoder_dims": THEIRS}
    (folder / BUNDLE).write_text(json.dumps(manifest | {"settings": settings}))
    with pytest.raises(UsageError, match="do not fit"):
        zoo.load(folder)
    config = (folder / "config.yaml").read_text() + f"\nclass_path: {THEIRS}\n"
    (folder / "config.yaml").write_text(config)
    manifest["sha256"]["config.yaml"] = hashlib.sha256(config.encode()).hexdigest()
    (folder / BUNDLE).write_text(json.dumps(manifest))
    assert zoo.load(folder)


@pytest.mark.parametrize(
    ("part", "settings"),
    [
        ("model", {"class_path": THEIRS}),
        ("data", {"class_path": "datamodules.Synthetic", "init_args": {"denoiser": THEIRS}}),
        ("data", {"class_path": THEIRS, "init_args": {"seed": 1}}),
        ("data", {"class_path": "datamodules.Synthetic", "init_args": {"denoiser": {"class_path": THEIRS}}}),
    ],
)
def test_a_run_folder_imports_nothing(
    finished: Path, part: str, settings: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    config = yaml.safe_load((run / "config.yaml").read_text())
    (run / "config.yaml").write_text(yaml.safe_dump(config | {part: settings}))
    with pytest.raises(UsageError) as refused:
        zoo.load(run)
    with pytest.raises(UsageError):
        zoo.export(run, tmp_path / "bundle")
    with pytest.raises(SystemExit) as ended:
        recommend([str(run), "--users", "u0001"])
    if "denoiser" not in str(settings):  # which is of one class, and names none
        for said in (str(refused.value), str(ended.value)):
            assert f"names {THEIRS}, of a package that is not imported" in said
            assert "--import received_package." in said
    with pytest.raises(BaseException, match="imported"):
        recommend([str(run), "--users", "u0001", "--import", "received_package"])
    with pytest.raises(SystemExit, match="--import unheard_of: ModuleNotFoundError: No module named 'unheard_of'"):
        recommend([str(run), "--users", "u0001", "--import", "unheard_of"])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "parameters",
    [
        {"_class_path": THEIRS},
        {"_class_path": "zoo.PriCDR", "dims": {"class_path": THEIRS}},
        {"_class_path": "zoo.PriCDR", "_instantiator": THEIRS, "class_path": THEIRS},
        {"_class_path": "zoo.OneBitMC", "perturbation": {"class_path": THEIRS}},
        {"_class_path": "zoo.OneBitMC", "perturbation": THEIRS},
    ],
)
def test_a_checkpoint_imports_nothing(
    finished: Path,
    parameters: dict[str, object],
    cli: Callable[..., ZooCLI],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    checkpoint = read_checkpoint(finished / "checkpoints" / "best.ckpt")
    torch.save(checkpoint | {"hyper_parameters": parameters}, tmp_path / "theirs.ckpt")
    with pytest.raises((SystemExit, ValueError)):
        cli("test", *PROJECTED, "--ckpt_path", tmp_path / "theirs.ckpt")
    said = capsys.readouterr().err
    if THEIRS in (parameters["_class_path"], parameters.get("perturbation")):
        assert f"the file names {THEIRS}, a class that is not imported. Pass the --config of the run." in said


def test_a_report_imports_nothing(tmp_path: Path) -> None:
    row = {"task": THEIRS, "system": THEIRS, "publisher": {"class_path": THEIRS}, "seeds": [0]}
    said = dict.fromkeys(("name", "config", "title", "about"), THEIRS)
    benchmark = said | {"tasks": [THEIRS], "rows": [row], "cells": {}, "class_path": THEIRS}
    (tmp_path / "benchmark.json").write_text(json.dumps(benchmark))
    with pytest.raises(SystemExit, match="has no finished run"):
        report([str(tmp_path), "--out", str(tmp_path / "report")])
