"""One file serves both parties: publish alone, train alone, or both in one process, with the same result."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from datamodules import Douban
from datamodules.alignment import UserMismatchError
from datamodules.public_lists import read_users
from tests.tiny import arguments
from zoo.methods.target_data import ReleaseMismatchError
from zoo.privacy.record.record import Guarantee
from zoo.release.release import Release
from zoo.runs.cli import ZooCLI
from zoo.runs.inputs import UsageError

pytestmark = pytest.mark.thorough

CONFIGS = Path(__file__).parent.parent / "configs"
CONFIG = CONFIGS / "pricdr" / "douban.yaml"
TINY = (*arguments("model", "PriCDR"), *arguments("publisher", "JLT"), "--trainer.max_epochs", "2")
REPEATABLE = ("--publisher.seed", "2", "--publisher.noise_seed", "3")

Command = Callable[..., ZooCLI]
Arguments = tuple[object, ...]

SMALL_MODEL = (*arguments("model", "PPGenCDR"), "--trainer.max_epochs", "2")
SMALL_NETWORK = arguments("publisher", "GeneratorPublisher")
NOISY_ROWS = ("--publisher.network.noise_dim", "2", "--publisher.network.noise_seed", "3")
#: An experiment, made tiny, and what makes its publishing repeatable.
EXPERIMENTS: dict[str, tuple[Arguments, Arguments]] = {
    "rows": (("--config", CONFIG, *TINY), REPEATABLE),
    "generator": (("--config", CONFIGS / "ppgencdr" / "douban.yaml", *SMALL_MODEL, *SMALL_NETWORK), NOISY_ROWS),
}


@pytest.fixture(params=EXPERIMENTS)
def experiment(request: pytest.FixtureRequest) -> tuple[Arguments, Arguments]:
    return EXPERIMENTS[request.param]


@pytest.fixture
def source_data(zoo_data: Path, tmp_path: Path) -> Path:
    """A place where the target's files do not exist."""
    return _only(zoo_data, "book", tmp_path / "at the source")


@pytest.fixture
def target_data(zoo_data: Path, tmp_path: Path) -> Path:
    """A place where the source's files do not exist."""
    return _only(zoo_data, "music", tmp_path / "at the target")


def _only(root: Path, domain: str, folder: Path) -> Path:
    folder.mkdir()
    for file in (root / "douban-book-music").glob(f"{domain}*.csv"):
        shutil.copy(file, folder)
    return folder


def weights(folder: Path) -> dict[str, torch.Tensor]:
    checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
    tensors: dict[str, torch.Tensor] = checkpoint["state_dict"]
    return tensors


def run_folder(done: ZooCLI) -> Path:
    return Path(str(done.trainer.log_dir)).resolve()


@pytest.mark.usefixtures("zoo_data")
@pytest.mark.filterwarnings("ignore:PrivacyBudget.*has a seed")
def test_two_parties_get_the_model_of_one_place(
    cli: Command, experiment: tuple[Arguments, Arguments], source_data: Path, target_data: Path, tmp_path: Path
) -> None:
    settings, repeatable = experiment
    together = run_folder(cli("fit", *settings, *repeatable))

    cli("publish", *settings, *repeatable, "--data.root", source_data, "--out", tmp_path / "book")
    release = ("--data.releases.book", tmp_path / "book")
    apart = run_folder(cli("fit", *settings, "--data.root", target_data, *release))

    assert Release.load(together / "releases" / "book").digest == Release.load(tmp_path / "book").digest
    ours, theirs = weights(together), weights(apart)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    reports = [json.loads((folder / "metrics.json").read_text())["metrics"] for folder in (together, apart)]
    assert reports[0] == reports[1]


def test_the_run_config_is_the_targets_form(cli: Command, zoo_data: Path, target_data: Path) -> None:
    together = run_folder(cli("fit", "--config", CONFIG, *TINY))
    saved = yaml.safe_load((together / "config.yaml").read_text())
    assert saved["data"]["init_args"]["releases"] == {"book": str(together / "releases" / "book")}
    assert "ckpt_path" not in saved
    again = cli("fit", "--config", together / "config.yaml", "--data.root", target_data)
    assert weights(run_folder(again)).keys() == weights(together).keys()
    assert zoo_data.exists()


def test_nothing_of_the_source_is_read_after_publishing(
    cli: Command, experiment: tuple[Arguments, Arguments], zoo_data: Path, tmp_path: Path
) -> None:
    settings, _ = experiment
    root = tmp_path / "both"
    shutil.copytree(zoo_data / "douban-book-music", root)
    together = run_folder(cli("fit", *settings, "--data.root", root))
    for file in root.glob("book*"):
        file.unlink()
    release = ("--data.releases.book", together / "releases" / "book")
    apart = run_folder(cli("fit", *settings, "--data.root", root, *release))
    ours, theirs = weights(together), weights(apart)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    checkpoint = together / "checkpoints" / "best.ckpt"
    tested = cli("test", "--config", together / "config.yaml", "--ckpt_path", checkpoint)
    assert "test/full/ndcg@10" in tested.trainer.callback_metrics
    last = ("--ckpt_path", together / "checkpoints" / "last.ckpt")
    resumed = cli("fit", *settings, "--data.root", root, *last)
    assert resumed.datamodule.release_paths == {"book": together / "releases" / "book"}


@pytest.mark.usefixtures("zoo_data")
def test_each_source_is_a_release(cli: Command, tmp_path: Path) -> None:
    two = ("--data", "Files", "--data.name", "partly", "--data.target", "left", "--data.sources", "[right, third]")
    given = ("--model", "PriCDR", *two, "--data.evaluation.split", "random2", "--data.missing_users", "zero")
    publisher = ("--publisher", "JLT", "--publisher.epsilon", "4", "--publisher.num_components", "8")
    with pytest.raises(UsageError, match=r"sources \['right', 'third'\]. Choose one: --source NAME"):
        cli("publish", *given, *publisher, "--out", tmp_path / "x")
    releases: list[object] = []
    for name in ("right", "third"):
        cli("publish", *given, *publisher, "--source", name, "--out", tmp_path / name)
        releases += [f"--data.releases.{name}", tmp_path / name]
    done = cli("fit", *given, *releases, "--model.dims", "[8, 4]", "--trainer.max_epochs", "1")
    report = json.loads((run_folder(done) / "metrics.json").read_text())
    assert sorted(report["privacy"]) == ["right", "third"]
    assert all(
        line.startswith("rating (change one rating), eps 4.00, delta 1e-05, conditional (assumes that ")
        for line in report["privacy"].values()
    )


@pytest.mark.usefixtures("zoo_data")
def test_users_in_common_are_worked_out_once_and_named(cli: Command) -> None:
    given = ("--data", "Files", "--data.name", "partly", "--data.target", "left", "--data.sources", "[right]")
    more = ("--data.users", "common", "--data.evaluation.split", "cold_start", "--publisher", "Plaintext")
    done = cli("fit", "--model", "PriCDR", "--model.dims", "[8, 4]", *given, *more, "--trainer.max_epochs", "1")
    folder = run_folder(done)
    assert read_users(folder / "users.csv") == sorted(f"u{i}" for i in range(12, 20))
    tested = cli("test", "--config", folder / "config.yaml", "--ckpt_path", folder / "checkpoints" / "best.ckpt")
    assert tested.datamodule.train.num_users == 8
    # The run's config names the list, which is no more agreed on beforehand for that.
    cli(
        "publish",
        "--config",
        folder / "config.yaml",
        "--publisher",
        "FlippedRows",
        "--publisher.epsilon",
        "4",
        "--out",
        "again",
    )
    record = Release.load(Path("again")).record
    assert record.guarantee is Guarantee.CONDITIONAL
    assert "users_in_common" in record.conditions


@pytest.mark.usefixtures("zoo_data")
def test_a_checkpoint_keeps_its_release(cli: Command, tmp_path: Path) -> None:
    together = run_folder(cli("fit", "--config", CONFIG, *TINY))
    cli("publish", "--config", CONFIG, *TINY, "--out", tmp_path / "other")
    checkpoint = ("--ckpt_path", together / "checkpoints" / "best.ckpt")
    with pytest.raises(ReleaseMismatchError, match=r"these differ: \['book'\].*Pass --data.releases.NAME"):
        cli("test", "--config", CONFIG, *TINY, *checkpoint, "--data.releases.book", tmp_path / "other")
    with pytest.raises(ReleaseMismatchError, match=r"these differ: \['music'\]"):
        cli("test", "--config", together / "config.yaml", *checkpoint, "--data.evaluation.split", "random2")
    with pytest.raises(UsageError, match=r"trained with another publisher.*\['init_args.epsilon'\]"):
        cli("test", "--config", CONFIG, *TINY, *checkpoint, "--publisher.epsilon", "4")
    with pytest.raises(
        UsageError, match=r"'book' is given, so publisher Nothing would not be applied. Set --publisher null"
    ):
        cli("fit", "--config", CONFIG, *TINY, "--publisher", "Nothing", "--data.releases.book", tmp_path / "other")
    assert [folder.name for folder in together.parent.iterdir()] == [together.name], "what is refused leaves no folder"


@pytest.mark.usefixtures("zoo_data")
def test_commands_on_a_checkpoint_never_publish(cli: Command) -> None:
    with pytest.raises(UsageError, match=r"test needs a checkpoint. Pass --ckpt_path"):
        cli("test", "--config", CONFIG, *TINY)
    assert not Path("runs").exists()


@pytest.mark.usefixtures("zoo_data")
def test_a_target_without_release_or_publisher_is_told(cli: Command) -> None:
    with pytest.raises(UsageError, match=r"publisher is not set.*--data.releases.NAME PATH"):
        cli("fit", "--config", CONFIG, "--publisher", "null")


@pytest.mark.usefixtures("zoo_data")
def test_a_release_is_never_overwritten(cli: Command, tmp_path: Path) -> None:
    (tmp_path / "book").mkdir()
    with pytest.raises(FileExistsError, match="never overwritten"):
        cli("publish", "--config", CONFIG, *TINY, "--out", tmp_path / "book")
    assert list((tmp_path / "book").iterdir()) == []


@pytest.mark.usefixtures("zoo_data")
def test_a_release_of_fit_is_not_trained_on_under_other_settings(cli: Command) -> None:
    together = run_folder(cli("fit", "--config", CONFIG, *TINY))
    with pytest.raises(
        UsageError, match=r"published with another publisher; these settings differ: \['init_args.epsilon'\]"
    ):
        cli("fit", "--config", together / "config.yaml", "--publisher.epsilon", "1")
    again = cli("fit", "--config", together / "config.yaml", "--publisher.epsilon", "1", "--data.releases", "null")
    report = json.loads((run_folder(again) / "metrics.json").read_text())
    assert report["privacy"].keys() == {"book"}
    assert report["privacy"]["book"].startswith(
        "rating (change one rating), eps 1.00, delta 1e-05, conditional (assumes that "
    )
    for odd, said in (("[" * 10**5, "recursion"), ("{}" + " " * 2**20, "Allowed: 1,048,576"), ("{", "line 1")):
        (together / "releases" / "publisher.json").write_text(odd)
        with pytest.raises(UsageError, match=rf"publisher.json cannot be read \(.*{said}.*\). Remove it"):
            cli("fit", "--config", together / "config.yaml")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (("--data.evaluation.split", "latest1"), "split 'latest1' is not validated"),
        (("--data.filters.min_item_ratings", "21"), "No row of"),
        (("--data.filters.threshold", "6"), "threshold is 6"),
        (("--data.target", "film"), "No ratings of 'film'"),
        (("--data.sources", "[]"), "data.sources is empty, and PriCDR needs a release"),
        (("--data.sources", "[PriCDR]"), "A source is named 'PriCDR', as the method is. Rename the domain"),
    ],
)
@pytest.mark.usefixtures("zoo_data")
def test_nothing_is_published_for_a_target_that_cannot_be_used(
    cli: Command, changed: tuple[str, ...], message: str
) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        cli("fit", "--config", CONFIG, *TINY, *changed)
    assert not list(Path().rglob("release.json"))


@pytest.mark.usefixtures("zoo_data")
def test_users_that_do_not_fit_are_found_before_a_release_is_kept(cli: Command) -> None:
    two = ("--data", "Files", "--data.name", "partly", "--data.target", "left", "--data.sources", "[right]")
    split = ("--data.evaluation.split", "random2")
    with pytest.raises(ValueError, match="The source 'right' covers 20 users; 12 of the target's 20"):
        cli("fit", "--config", CONFIG, *TINY, *two, *split)
    assert not list(Path().rglob("release.json"))


@pytest.mark.usefixtures("zoo_data")
def test_a_second_checkpoint_callback_does_not_choose(cli: Command) -> None:
    own = json.dumps({"class_path": "pytorch_lightning.callbacks.ModelCheckpoint", "init_args": {"dirpath": "own"}})
    done = cli("fit", "--config", CONFIG, *TINY, "--trainer.callbacks+", own)
    best = run_folder(done) / "checkpoints" / "best.ckpt"
    tested = cli("test", "--config", run_folder(done) / "config.yaml", "--ckpt_path", best).trainer.callback_metrics
    report = json.loads((run_folder(done) / "metrics.json").read_text())["metrics"]
    assert report["test/full/ndcg@10"] == pytest.approx(float(tested["test/full/ndcg@10"]), abs=1e-6)


@pytest.mark.usefixtures("zoo_data")
def test_an_agreed_list_cuts_the_source_and_the_target_keeps_everybody(
    cli: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agreed.csv").write_text("user_id\n" + "\n".join(f"u{i}" for i in range(3, 15)) + "\n")
    done = cli("fit", "--config", CONFIG, *TINY, "--data.users", tmp_path / "agreed.csv")
    summary = json.loads((run_folder(done) / "data.json").read_text())
    assert (summary["target"]["users"], summary["test_cases"], summary["releases"]["book"]["users"]) == (20, 20, 12)
    assert summary["releases"]["book"]["overlap"] == 12
    kept = "8 of 20 users are not on the agreed list. They stay, without a released row."
    assert kept in summary["remarks"]
    assert "the agreed list. They stay" in " ".join(capsys.readouterr().out.split())
    asked = ("--data.users", tmp_path / "agreed.csv", "--data.missing_users", "error")
    with pytest.raises(UserMismatchError, match="8 of the target's 20 have no row"):
        cli("fit", "--config", CONFIG, *TINY, *asked)
    only = Douban("music", (), users=str(tmp_path / "agreed.csv"))
    only.read_target()
    assert only.train.num_users == 12, "a list where there is no source is the target's own"
    step = Douban(users=str(tmp_path / "agreed.csv")).steps("music")[2]
    assert "users are derived from the ratings" in step.words
    assert step.condition
