"""Trackers of a report: the check before, what is sent, and that nothing is left half sent; without any server."""

import sys
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import matplotlib.image
import numpy as np
import polars as pl
import pytest

from zoo.runs.trackers import TrackerError, check, refused_by_wandb, send_report

NO_KEY = "W&B has no API key. Run `wandb login`, set WANDB_API_KEY or WANDB_MODE=offline, or omit --tracker."


class UsageError(Exception):
    """As one of W&B's."""

    __module__ = "wandb.errors.errors"


def png(*colours: tuple[int, int, int]) -> bytes:
    """A picture of one row."""
    file = BytesIO()
    matplotlib.image.imsave(file, np.array([colours], dtype=np.uint8), format="png")
    return file.getvalue()


CONFIG = {"benchmark": "smoke", "privacy": {"cold": {"PriCDR, JLT": {"epsilon": 8.0, "delta": 1e-5}}}}
RESULTS = pl.DataFrame({"row": ["A | B", "\x1b[1mc"], "ndcg@10": [0.5, None]})


def sent(tracker: str, **images: bytes) -> str:
    """What is said of a small report that is sent."""
    return send_report(
        tracker, "smoke", CONFIG, {"overview": png((255, 0, 0), (0, 0, 255))} | images, {"results": RESULTS}
    )


class Run(SimpleNamespace):
    """A run of W&B that keeps what it is told."""

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *_: object) -> None:
        self.is_finished = True

    def log(self, values: dict[str, Any]) -> None:
        self.logged.append(values)


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Mock:
    """W&B as it is with a key; what runs are begun with stands in ``init``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    run = Run(
        logged=[], disabled=False, offline=False, url="https://example.org/run", dir=str(tmp_path / "runs/a/files")
    )
    made = Mock(login=Mock(return_value=True), init=Mock(return_value=run), run=run)
    made.setup.return_value.settings.mode = "online"
    made.Image.side_effect = lambda image: ("image", np.asarray(image).tolist())
    made.Table.side_effect = lambda columns, data, dataframe: ("table", columns, data)
    for name in ("wandb", "wandb.sdk", "wandb.sdk.lib", "wandb.wandb_run"):  # all that Lightning's logger imports
        monkeypatch.setitem(sys.modules, name, made)
    return made


def test_without_a_key_wandb_is_refused_in_a_sentence(wandb: Mock) -> None:
    wandb.login.return_value = False
    with pytest.raises(TrackerError) as refused:
        check("wandb")
    assert str(refused.value) == NO_KEY
    wandb.login.assert_called_once_with(prompt=False)
    wandb.init.assert_not_called()


@pytest.mark.parametrize("mode", ["offline", "dryrun", "disabled"])
def test_who_sends_nothing_needs_no_key(wandb: Mock, mode: str) -> None:
    wandb.setup.return_value.settings.mode = mode
    check("wandb")
    wandb.login.assert_not_called()


def test_a_key_that_is_refused_is_said_so_in_one_line(wandb: Mock) -> None:
    check("wandb")
    wandb.login.side_effect = UsageError("The key is\nnot known.")
    with pytest.raises(TrackerError, match=r"^W&B: UsageError: The key is not known\. Without .* omit --tracker\.$"):
        check("wandb")
    wandb.login.side_effect = KeyError("a slip of ours")
    with pytest.raises(KeyError, match="a slip of ours"):
        check("wandb")


def test_tensorboard_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TrackerError, match=r"not installed\. pip install 'cdr-zoo\[trackers\]'"):
        check("tensorboard")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name == "tensorboard" or None)
    check("tensorboard")
    with pytest.raises(TrackerError, match=r"MLflow is not installed\. pip install 'cdr-zoo\[mlflow\]'"):
        check("mlflow")


def test_another_s_error_is_none_of_wandb_s() -> None:
    assert refused_by_wandb(KeyError("x"), "it") == ""
    assert refused_by_wandb(UsageError("No."), "it") == (
        "W&B: UsageError: No. Without an account: WANDB_MODE=offline, or omit it."
    )


def test_wandb_is_told_everything_in_one_run(wandb: Mock, tmp_path: Path) -> None:
    assert sent("wandb") == "W&B: https://example.org/run"
    begun = wandb.init.call_args.kwargs
    assert {key: begun[key] for key in ("project", "job_type", "name", "dir")} == {
        "project": "cdr-zoo", "job_type": "report", "name": "smoke", "dir": "runs",
    }  # fmt: skip
    assert begun["config"] == CONFIG
    assert (tmp_path / "runs").is_dir(), "or W&B takes another folder"
    assert wandb.run.logged == [
        {"overview": [("image", [[[255, 0, 0], [0, 0, 255]]])]},
        {"results": ("table", ["row", "ndcg@10"], [["A | B", 0.5], ["\x1b[1mc", None]])},
    ]
    assert wandb.run.is_finished


def test_a_project_may_be_another(wandb: Mock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "ours")
    sent("wandb")
    assert wandb.init.call_args.kwargs["project"] == "ours"


def test_what_stays_here_is_said_where_it_lies(wandb: Mock) -> None:
    wandb.run.offline, wandb.run.url = True, None
    assert sent("wandb") == "W&B, offline: runs/a; `wandb sync runs/a` sends it."
    wandb.run.disabled = True
    assert sent("wandb") == "W&B is disabled (WANDB_MODE): nothing was sent."


def test_what_wandb_does_not_take_is_a_sentence(wandb: Mock) -> None:
    wandb.init.side_effect = UsageError("Nobody answers.")
    with pytest.raises(TrackerError, match=r"^W&B: UsageError: Nobody answers\. Without an account"):
        sent("wandb")


@pytest.fixture
def boards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where TensorBoard's runs of the report are."""
    pytest.importorskip("tensorboard", reason="TensorBoard is an extra: pip install 'cdr-zoo[trackers]'")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs" / "tensorboard" / "cdr-zoo" / "report-smoke"


def test_tensorboard_is_told_the_same(boards: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    said = sent("tensorboard")
    assert said.startswith(
        "TensorBoard: runs/tensorboard/cdr-zoo/report-smoke/version_0; `tensorboard --logdir runs/tensor"
    )
    found = EventAccumulator(str(boards / "version_0")).Reload()
    assert found.Tags()["images"] == ["overview"]
    shown = matplotlib.image.imread(BytesIO(found.Images("overview")[0].encoded_image_string))
    assert shown[..., :3].tolist() == [[[1, 0, 0], [0, 0, 1]]]
    texts = {name: found.Tensors(name)[0].tensor_proto.string_val[0].decode() for name in found.Tags()["tensors"]}
    assert texts.keys() == {"config/text_summary", "results/text_summary"}
    assert "  cold:\n    PriCDR, JLT:\n      epsilon: 8.0\n      delta: 1.0e-05\n" in texts["config/text_summary"]
    assert texts["results/text_summary"] == "| row | ndcg@10 |\n| --- | --- |\n| A \\| B | 0.5 |\n| \\\\x1b\\[1mc |  |"


def test_each_report_has_a_folder_of_its_own(boards: Path) -> None:
    for _ in range(2):
        sent("tensorboard")
    assert sorted(path.name for path in boards.iterdir()) == ["version_0", "version_1"]
    assert [len(list(path.iterdir())) for path in boards.iterdir()] == [1, 1]


def test_nothing_is_left_half_told(boards: Path) -> None:
    with pytest.raises(SyntaxError, match="not a PNG file"):
        sent("tensorboard", broken=b"no picture")
    assert list(boards.iterdir()) == []


def test_mlflow_is_told_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tracking = pytest.importorskip("mlflow.tracking", reason="MLflow is an extra: pip install 'cdr-zoo[mlflow]'")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    address = "sqlite:///runs/mlflow.db"
    assert sent("mlflow") == f"MLflow: {address}; `mlflow ui --backend-store-uri {address}` shows it."
    with pytest.raises(SyntaxError, match="not a PNG file"):
        sent("mlflow", broken=b"no picture")
    client = tracking.MlflowClient(address)
    failed, found = client.search_runs([client.get_experiment_by_name("cdr-zoo").experiment_id])
    assert (failed.info.status, found.info.status) == ("FAILED", "FINISHED")
    privacy = {f"privacy.cold.PriCDR- JLT.{name}": value for name, value in (("epsilon", "8.0"), ("delta", "1e-05"))}
    assert found.data.params == {"benchmark": "smoke", **privacy}
    assert (found.data.tags["mlflow.runName"], found.data.tags["mlflow.user"]) == ("report-smoke", "-")
    folder = next((tmp_path / "runs" / "mlflow").rglob("results.csv")).parent
    assert (folder / "results.csv").read_text() == RESULTS.write_csv()
    shown = matplotlib.image.imread(folder / "overview.png")
    assert shown[..., :3].tolist() == [[[1, 0, 0], [0, 0, 1]]]
