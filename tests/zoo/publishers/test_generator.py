"""GeneratorPublisher: what it releases is the generator after its last step, and what it tells besides is nothing."""

import random
import signal
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer, seed_everything
from pytorch_lightning.callbacks import Callback
from scipy.sparse import csr_array
from torch import Tensor

from callbacks import GANStabilizer, PrivacyBudget
from datamodules import Evaluation, Synthetic
from tests.zoo.publishers.generators import SOUND, TINY, UNSOUND, network, ratings, same
from zoo import EASE, SPPG, GeneratorPublisher, Ratings, Release
from zoo.commands.privacy.command import main
from zoo.privacy.accounting.events import SelfComposedEvent
from zoo.privacy.record.record import Guarantee
from zoo.runs.trainer import LIBRARY_CHATTER

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.thorough, pytest.mark.filterwarnings("ignore:.*has no guarantee")]

CONFIG = ROOT / "configs" / "ppgencdr" / "douban.yaml"


class Spy(Callback):
    """Is told what a training was like; a copy of it tells the same."""

    def __init__(self) -> None:
        self.before: dict[str, Tensor] = {}
        self.after: list[dict[str, Tensor]] = []
        self.batches: list[int] = []
        self.logged: set[str] = set()
        self.validations = 0

    def __deepcopy__(self, memo: object) -> "Spy":
        return self

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The weights that training begins from."""
        self.before = {name: values.clone() for name, values in pl_module.state_dict().items()}
        self.after, self.batches = [], []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: object, batch: Any, batch_idx: int) -> None:  # noqa: ANN401
        """What a step made of the generator, and who was in its batch."""
        self.after.append(pl_module.scored.tensors())
        self.batches.append(len(batch.users))

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """None is meant to be."""
        self.validations += 1

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """What was logged."""
        self.logged |= set(trainer.callback_metrics) | set(trainer.logged_metrics)


@pytest.mark.parametrize("mechanism", [*SOUND, *UNSOUND])
def test_a_release_holds_the_generator_and_nothing_of_the_critic(mechanism: str) -> None:
    release = GeneratorPublisher(network(mechanism)).publish(ratings(), "book")
    shapes = {name: tuple(tensor.shape) for name, tensor in release.tensors.items()}
    assert shapes == {
        "embedding": (20, 2), "weight_0": (3, 2), "bias_0": (3,), "weight_1": (7, 3), "bias_1": (7,)
    }  # fmt: skip
    assert (release.kind, release.domain, release.width) == ("generator", "book", 7)
    assert list(release.user_ids) == list(ratings().user_ids)
    assert release.rows(torch.arange(20)).shape == (20, 7)


@pytest.mark.parametrize("mechanism", [*SOUND, *UNSOUND])
def test_it_is_the_generator_that_the_method_learns_by_itself(mechanism: str) -> None:
    """The same method trained on the domain as on a target, whose batches are of people, has the same weights."""
    sizes: dict[str, Any] = {"num_users": 20, "num_items": 12, "ratings_per_user": 5, "batch_size": 8, "seed": 0}
    evaluation = Evaluation(hold_out_of_sources=True)  # what is left of it is what a target would learn from
    source = Synthetic(**sizes, evaluation=evaluation).source("book")
    release = GeneratorPublisher(network(mechanism), [GANStabilizer()], seed=3).publish(source, "book")

    alone, data = network(mechanism), Synthetic(target="book", sources=["music"], **sizes)
    seed_everything(3)
    trainer = Trainer(
        max_epochs=5, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, limit_val_batches=0, callbacks=[GANStabilizer()]
    )  # fmt: skip
    trainer.fit(alone, datamodule=data)
    assert data.train.digest() == source.digest()
    assert same(release.tensors, alone.scored.tensors())
    assert not same(release.tensors, alone.generator.tensors()), "it is the average over the steps"


def test_the_last_step_is_released_and_nothing_is_validated() -> None:
    spy = Spy()
    release = GeneratorPublisher(network(), [spy]).publish(ratings(), "book")
    assert len(spy.after) == 3, "five critic steps, two by two"
    assert same(release.tensors, spy.after[-1])
    assert not same(release.tensors, spy.after[-2])
    assert spy.validations == 0


def test_the_weights_that_training_begins_from_are_the_seeds() -> None:
    spy = Spy()

    def begun(source: Ratings, seed: int, noise_seed: int | None = 1) -> dict[str, Tensor]:
        GeneratorPublisher(network(noise_seed=noise_seed), [spy], seed=seed).publish(source, "book")
        return spy.before

    first = begun(ratings(), 0)
    torch.manual_seed(99)
    assert same(first, begun(ratings(seed=8), 0, noise_seed=None)), "neither of the data nor of the noise"
    other = begun(ratings(), 1)
    assert not torch.equal(first["generator.embedding.weight"], other["generator.embedding.weight"])


def random_states() -> tuple[object, ...]:
    """Those of torch, numpy and Python that everybody shares."""
    return torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()  # noqa: NPY002  it is meant


@pytest.mark.parametrize("mechanism", [*SOUND, "none"])
def test_publishing_neither_reads_nor_moves_the_global_random_state(mechanism: str) -> None:
    publisher = GeneratorPublisher(network(mechanism), [GANStabilizer()])
    found = []
    for seed in (5, 6):
        seed_everything(seed)
        before = random_states()
        found.append(publisher.publish(ratings(), "book").digest)
        assert random_states() == before
    assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:PrivacyBudget")
def test_every_domain_begins_anew() -> None:
    budget, stabilizer = PrivacyBudget(), GANStabilizer()
    publisher = GeneratorPublisher(network(), [stabilizer, budget])
    first = publisher.publish(ratings(), "book")
    publisher.publish(ratings(seed=8), "film")
    assert publisher.publish(ratings(), "book").digest == first.digest
    assert isinstance(publisher.network, SPPG)
    assert publisher.network.sizes is None, "it is a copy that is trained"
    assert publisher.network.steps_left == TINY["steps"]
    assert budget.state_dict() == {}
    assert vars(stabilizer) == vars(GANStabilizer())


def test_how_long_it_trains_says_nothing_of_the_ratings() -> None:
    spy = Spy()
    all_rated, one_rated = ratings(), ratings()
    one_rated.matrix.data[1:] = 0
    one_rated.matrix.eliminate_zeros()
    found = []
    for source in (all_rated, Ratings(one_rated.matrix, one_rated.user_ids, one_rated.item_ids)):
        release = GeneratorPublisher(network(noise_seed=None), [spy]).publish(source, "book")
        found.append((spy.batches, release.record.compositions, release.ledger))
    assert found[0] == found[1]
    assert found[0][:2] == ([0, 0, 0], 5)


@pytest.mark.parametrize(
    ("mechanism", "told"),
    [
        (
            "private_d",
            {
                "train/loss", "train/score_drift", "train/penalty/gan_stabilizer", "train/gradient_norm/0",
                "train/gradient_norm/1", "train/epsilon_zero_out_one_user", "train/steps_left"
            }
        ),
        ("gs_wgan", {"train/gradient_norm/1", "train/epsilon_zero_out_one_user", "train/steps_left"})
    ]
)  # fmt: skip
def test_nothing_of_the_ratings_is_logged_shown_or_left_behind(
    mechanism: str, told: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spy = Spy()
    publisher = GeneratorPublisher(network(mechanism, noise_seed=None), [GANStabilizer(), PrivacyBudget(), spy])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for chatter in LIBRARY_CHATTER:
            warnings.filterwarnings("ignore", chatter)
        publisher.publish(ratings(), "book")
    assert spy.logged == told
    steps = 5 if mechanism == "private_d" else 3
    said = f"Privacy budget used up: {steps} steps, epsilon 8.00 of 8.00 at delta 1e-05 (zero_out_one_user), for the "
    said += "ratings that were read. The record states whether this is a guarantee, and its conditions.\n"
    assert capsys.readouterr().out == said
    assert list(tmp_path.iterdir()) == []


def test_warnings_of_others_are_heard() -> None:
    with pytest.warns(UserWarning, match="noise is seeded") as heard:
        GeneratorPublisher(network(), [PrivacyBudget()]).publish(ratings(), "book")
    assert not [warning for warning in heard if "validation" in str(warning.message)]


@pytest.mark.parametrize("mechanism", [*SOUND, *UNSOUND])
@pytest.mark.parametrize("noise_seed", [None, 1], ids=["private", "seeded"])
def test_the_forecast_is_the_record_and_the_plan_the_ledger(mechanism: str, noise_seed: int | None) -> None:
    publisher = GeneratorPublisher(network(mechanism, noise_seed))
    release, forecast = publisher.publish(ratings(), "book"), publisher.forecast(20, 7)
    before = "earlier step: split random2"
    assert before in release.record.sentences("assumptions")
    assert forecast == replace(release.record, steps=())
    assert (release.record.guarantee is Guarantee.PROVED) == (mechanism in SOUND and noise_seed is None)
    assert bool(publisher.audits()) == (mechanism in SOUND)
    assert tuple(publisher.plan(20, 7)) == release.ledger


def test_a_lower_budget_makes_a_release_that_states_it(tmp_path: Path) -> None:
    whole = GeneratorPublisher(network(noise_seed=None, steps=12), [PrivacyBudget()])
    less = GeneratorPublisher(network(noise_seed=None, steps=12), [PrivacyBudget(epsilon=6.0)])
    release = less.publish(ratings(), "book")
    record = Release.load(release.save(tmp_path / "book")).record  # which computes epsilon anew from the ledger
    (event,) = release.ledger
    assert isinstance(event, SelfComposedEvent)
    assert event.count == record.compositions < 12
    assert record.epsilon is not None
    assert 5.0 < record.epsilon <= 6.0
    record.check_against(release.ledger)
    forecast = whole.forecast(20, 7)
    assert record.noise_scale == forecast.noise_scale, "the noise stays that of the plan"
    assert less.forecast(20, 7) == forecast, "the most that it may cost"
    assert forecast.epsilon == pytest.approx(8.0, rel=1e-3)
    assert whole.publish(ratings(), "book").record.compositions == 12


class Stopping(Callback):
    """Ends training when it likes."""

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        """After one batch."""
        trainer.should_stop = True


class Interrupting(Callback):
    """Somebody at the keyboard."""

    def on_train_batch_end(self, *_: object) -> None:
        """After one batch."""
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "'book' has no rating. Loosen its filters"),
        ([1.0, 4.0], r"Ratings of 'book' lie in \[1, 4\]. A generator needs \[0, 1\]. Set"),
        ([-0.5, 1.0], r"lie in \[-0.5, 1\]"),
    ],
    ids=["none", "stars", "negative"]
)  # fmt: skip
def test_ratings_that_no_generator_makes_are_refused(values: list[float], message: str) -> None:
    matrix = csr_array((np.array(values), (np.arange(len(values)), np.arange(len(values)))), shape=(20, 7))
    source = Ratings(matrix, ratings().user_ids, ratings().item_ids)
    with pytest.raises(ValueError, match=message):
        GeneratorPublisher(network()).publish(source, "book")


def test_a_network_without_a_generator_is_refused() -> None:
    with pytest.raises(TypeError, match=r"EASE has no generator to release. Take SPPG, or a ReleasableGenerator"):
        GeneratorPublisher(EASE())
    with pytest.raises(ValueError, match=r"attack_success is 0.6. A generator takes an epsilon. Set network.epsilon."):
        GeneratorPublisher(network(), attack_success=0.6)


@pytest.mark.parametrize("mechanism", ["private_d", "none"])
def test_a_training_that_ends_early_releases_nothing(mechanism: str) -> None:
    publisher = GeneratorPublisher(network(mechanism), [Stopping()])
    with pytest.raises(ValueError, match=r"Training on 'book' stopped with 3 steps left.*Omit callbacks"):
        publisher.publish(ratings(), "book")


def test_an_interrupted_training_releases_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    handler = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(SystemExit) as ended:
            GeneratorPublisher(network(), [Interrupting()]).publish(ratings(), "book").save(tmp_path / "book")
    finally:
        signal.signal(signal.SIGINT, handler)
    assert ended.value.code == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sample_size": 21}, "sample_size 21 exceeds the 20 users. Take a tenth"),
        ({"epsilon": 0.0}, "epsilon is"),
        ({"epsilon": -1.0}, "epsilon is"),
        ({"delta": 0.05}, "delta is 0.05. Allowed: below 1/20"),
        ({"clip": 0.0}, "clip must be finite and positive"),
    ],
)
def test_what_does_not_fit_is_refused_in_plan_and_publication(settings: dict[str, Any], message: str) -> None:
    publisher, spy = GeneratorPublisher(network(**settings)), Spy()
    for command in (publisher.plan, publisher.forecast):
        with pytest.raises(ValueError, match=message):
            command(20, 7)
    with pytest.raises(ValueError, match=message):
        GeneratorPublisher(network(**settings), [spy]).publish(ratings(), "book")
    assert not spy.before


def test_the_commands_of_a_party_that_answers_for_it(
    zoo_data: Path,
    cli: Callable[..., Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zoo.commands.privacy.curve.DELTAS", np.array([1e-6, 1e-4]))
    small = ("--publisher.network.sample_size", "4", "--publisher.network.steps", "6")
    main(["plan", "--config", str(CONFIG), "--users", "924", "--items", "3916"])
    said = " ".join(capsys.readouterr().out.split())
    for words in ("SPPG, private_d", "zero out one user", "uses of the data │ 300", "epsilon │ 5.00", "924 users"):
        assert words in said, words

    cli("publish", "--config", CONFIG, *small, "--out", tmp_path / "book")
    said = capsys.readouterr().out
    assert said.startswith("Privacy budget used up: 6 steps, epsilon 5.00 of 5.00 at delta 1e-05")
    assert "Release of 'book' (generator, 20 users)" in said

    main(["show", str(tmp_path / "book")])
    said = capsys.readouterr().out
    for words in ("all ratings of one user", "epsilon           5.00", "PoissonSampledGaussianEvent", "width 30"):
        assert words in said, words
    main(["curve", str(tmp_path / "book"), "--config", str(CONFIG), "--out", str(tmp_path / "curve.png")])
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
