"""Releases, runs, saved configs, checkpoints, bundles and budgets of earlier versions are read as these versions read them.

``tests/earlier/VERSION.zip`` was written by that version from synthetic data. Its ``expected.json`` holds what each release
guarantees, and what that version itself recommends to three users.
"""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zoo
from zoo.__main__ import main
from zoo.privacy.spending.budget import Budget
from zoo.release.release import Release
from zoo.runs.predictor import DataNotAvailableError
from zoo.runtime.run_folder import load_tensors

pytestmark = pytest.mark.thorough

EARLIER = sorted((Path(__file__).parent / "earlier").glob("*.zip"))
USERS = ["u0000", "u0007", "u0039"]


@pytest.fixture(scope="module", params=EARLIER, ids=lambda path: path.stem)
def earlier(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param.stem)
    with zipfile.ZipFile(request.param) as archive:
        archive.extractall(folder)
    return folder


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """Runs a command in an empty folder, and gives the run folder that it has made there."""

    def run(*arguments: str) -> Path:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr("sys.argv", ["zoo", *arguments])
        main()
        (metrics,) = tmp_path.rglob("metrics.json")
        return metrics.parent

    return run


def expected(earlier: Path, what: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((earlier / "expected.json").read_text(encoding="utf-8"))[what]
    return found


def test_a_release_guarantees_what_it_did(earlier: Path) -> None:
    for place, facts in expected(earlier, "releases").items():
        release = Release.load(earlier / place)
        record = release.record
        found = {
            "kind": release.kind,
            "mechanism": record.mechanism.name,
            "guarantee": record.guarantee.value,
            "relation": None if record.relation is None else record.relation.value,
            **{name: getattr(record, name) for name in facts if hasattr(record, name) and name != "mechanism"},
        }
        for name, value in facts.items():
            assert found[name] == (pytest.approx(value, rel=1e-8) if isinstance(value, float) else value), (place, name)


def test_runs_and_bundles_recommend_what_they_did(earlier: Path) -> None:
    for place, items in expected(earlier, "recommended").items():
        run, bundle = earlier / place, earlier / f"bundle-{Path(place).parent.name}"
        assert zoo.load(run).recommend(USERS, 3)["item_id"].to_list() == items, place
        if bundle.is_dir():
            with pytest.raises(DataNotAvailableError, match="needs the releases of its training"):
                zoo.load(bundle).recommend(USERS, 3)
            bundled = zoo.load(bundle, releases={"book": run / "releases" / "book"})
            assert bundled.recommend(USERS, 3)["item_id"].to_list() == items, place


def test_a_run_is_tested_by_its_saved_config_and_checkpoint(earlier: Path, command: Callable[..., Path]) -> None:
    """On the command line, with the release named, since its folder has moved; figures are those of the version itself."""
    run = earlier / "pricdr" / "PriCDR" / "version_0"
    given = ("--config", str(run / "config.yaml"), "--data.releases.book", str(run / "releases" / "book"))
    tested = command("test", *given, "--ckpt_path", str(run / "checkpoints" / "best.ckpt"))
    before, now = (json.loads((folder / "metrics.json").read_text())["metrics"] for folder in (run, tested))
    common = before.keys() & now.keys()
    assert {"test/full/ndcg@10", "test/full/hit_rate@10"} <= common
    assert {name: now[name] for name in common} == pytest.approx({name: before[name] for name in common}, rel=1e-5)


def test_a_run_is_resumed_from_its_folder(earlier: Path, command: Callable[..., Path]) -> None:
    run = earlier / "pricdr" / "PriCDR" / "version_0"
    if earlier.name.startswith("0.2"):
        with pytest.raises(SystemExit, match=r"has no digest .*before 0\.3.*Train anew, or test best\.ckpt"):
            command("fit", "--resume", str(run), "--trainer.max_epochs", "3")
        return
    resumed = command("fit", "--resume", str(run), "--trainer.max_epochs", "3")
    assert load_tensors(resumed / "checkpoints" / "last.ckpt")["epoch"] == 2


def test_a_budget_is_read_and_goes_on(earlier: Path) -> None:
    if not (earlier / "budget.json").is_file():
        pytest.skip("this version had no budgets")
    budget = Budget(earlier / "budget.json")
    assert [spent.account.record.mechanism.name for spent in budget.entries] == ["NoisyRows"]
    assert budget.epsilon_by_domain() == pytest.approx({"book": 4.0}, rel=1e-6)
