"""What a recommender makes of its scores where users, releases and settings are not the simplest, against plain rules."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Callback
from torch import Tensor

from datamodules import Evaluation, Filters
from tests.datamodules.handmade import Held, rich
from tests.zoo.methods.test_recommender import Costly, Given, expected, trainer
from zoo import NoisyRows, Plaintext
from zoo.data.batch_types import Batch, UserBatch
from zoo.methods.base import Outputs
from zoo.methods.target_data import ReleaseMismatchError


class Linked(Given):
    """Scores of its own for whoever has a history or a row in a release."""

    accepted_releases = frozenset({"ratings"})
    scores_cold_users = True


class Known(Linked):
    """Scores of its own for whoever has a history."""

    scores_cold_users = False


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("releases")
    return {name: Plaintext().publish(rich().source(name), name).save(folder / name) for name in ("a", "c")}


def data(releases: dict[str, Path], **evaluation: Any) -> Held:  # noqa: ANN401
    settings: dict[str, Any] = {"split": "cold_start", "cold_share": 0.6, "num_candidates": 9, "ks": (3, 10)}
    return rich(
        evaluation=Evaluation(**settings | evaluation),
        releases=releases,
        evaluation_batch_size=4,
        top_k=4,
        batch_size=7,
    )


class KnownOfCases(Callback):
    """Keeps what is known of each case."""

    def __init__(self) -> None:
        self.parts: list[dict[str, Tensor]] = []

    def on_test_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: object) -> None:  # noqa: ANN401
        self.parts.append(outputs)


def meant(method: Given, made: Held) -> list[list[float]]:
    """The scores that count: item counts in the place of those that mean nothing."""
    history = np.diff(made.train.matrix.indptr) > 0
    linked = np.any([links.numpy() >= 0 for links in made.links.values()], axis=0)
    counts = np.bincount(made.train.matrix.indices, minlength=made.train.num_items)
    own = history | linked if method.scores_cold_users else history
    assert own.any()
    assert not own.all()
    return np.where(own[:, None], method.scores.numpy(), counts).tolist()


@pytest.mark.parametrize("full", [True, False], ids=["both", "sampled alone"])
@pytest.mark.parametrize("kind", [Linked, Known])
def test_whoever_cannot_be_scored_is_ranked_by_item_counts(
    kind: type[Given], full: bool, releases: dict[str, Path]
) -> None:
    made, method, kept = data(releases, full_ranking=full), kind(), KnownOfCases()
    run = trainer(kept)
    run.test(method, datamodule=made, verbose=False)
    scores, cases = meant(method, made), made.test
    assert [*method.sources] == ["a", "c"]
    for name in method.sources:
        assert torch.equal(method.sources[name].links, made.links[name])
    for ranking in ("sampled", "full") if full else ("sampled",):
        figures = []
        for user, item, listed in zip(*(part.tolist() for part in cases[:3]), strict=True):
            known = {*cases.seen.dense(torch.tensor([user]))[0].nonzero()[:, 0].tolist(), *cases.left_out.tolist()}
            every = [other for other in range(made.train.num_items) if other not in known]
            others = every if ranking == "full" else [other for other in listed if other >= 0]
            figures.append([expected(scores[user], item, others, k) for k in (3, 10)])
        each = torch.cat([part[f"{ranking}/ndcg@10"] for part in kept.parts]).tolist()
        assert each == pytest.approx([case[1][1] for case in figures], abs=1e-6)
        for number, k in enumerate((3, 10)):
            found = [float(run.callback_metrics[f"test/{ranking}/{name}@{k}"]) for name in ("hit_rate", "ndcg", "mrr")]
            assert found == pytest.approx(np.mean([case[number] for case in figures], axis=0).tolist(), abs=1e-6)
    batches = run.predict(method, datamodule=made) or []
    for user, items in (pair for batch in batches for pair in zip(batch.users.tolist(), batch.items, strict=True)):  # type: ignore[union-attr]
        known = {*made.test.seen.dense(torch.tensor([user]))[0].nonzero()[:, 0].tolist()}
        best = sorted((scores[user][item] for item in range(made.train.num_items) if item not in known), reverse=True)
        assert len(items) == 4
        assert [scores[user][int(item)] for item in items] == best[:4]


@pytest.mark.parametrize("ties", ["expected", "pessimistic"])
def test_figures_have_cut_offs_and_ties_that_were_asked_for_at_each_stage(ties: str, releases: dict[str, Path]) -> None:
    made, kept = data(releases, split="ratio", shares=(0.5, 0.2, 0.3), ties=ties), KnownOfCases()
    method, run = Linked(), trainer(kept)
    run.validate(method, datamodule=made, verbose=False)
    figures = {name: float(value) for name, value in run.callback_metrics.items()}
    assert figures["val/ndcg@10"] == figures["val/sampled/ndcg@10"]
    assert len({figures[f"val/{name}"] for name in ("sampled/ndcg@10", "full/ndcg@10", "sampled/ndcg@3")}) == 3
    assert figures["val/ndcg@10"] != figures["val/sampled/hit_rate@10"]
    assert not any("coverage" in name or name.endswith("@5") for name in figures)
    run.test(method, datamodule=made, verbose=False)
    figures = {name: float(value) for name, value in run.callback_metrics.items()}
    expected = figures["test/full/ndcg@3"]
    assert (figures.get("test/full/pessimistic/ndcg@3", expected) == expected) == (ties == "pessimistic")
    known = {name: torch.cat([part[name] for part in kept.parts]) for name in kept.parts[0]}
    counts = torch.from_numpy(np.diff(made.train.matrix.indptr))
    assert known["train_items"].tolist() == counts[made.test.users].tolist()
    assert known["items"].tolist() == made.test.items.tolist()
    linked = torch.stack([links >= 0 for links in made.links.values()]).any(0)
    assert known["linked"].tolist() == linked[made.test.users].tolist()
    alone = data(releases, split="ratio", num_candidates=0)
    run = trainer()
    run.validate(Linked(), datamodule=alone, verbose=False)
    assert float(run.callback_metrics["val/ndcg@10"]) == float(run.callback_metrics["val/full/ndcg@10"])


def test_users_count_once_if_the_data_ask_for_it(releases: dict[str, Path]) -> None:
    made, kept = data(releases, split="ratio", shares=(0.5, 0.2, 0.3), average="users"), KnownOfCases()
    run = trainer(kept)
    run.test(Linked(), datamodule=made, verbose=False)
    known = {name: torch.cat([part[name] for part in kept.parts]) for name in kept.parts[0]}
    assert len(known["users"].unique()) < len(known["users"])
    for name in ("sampled/ndcg@10", "full/mrr@3", "full/novelty@3"):
        users = [known[name][known["users"] == user].mean() for user in known["users"].unique()]
        assert float(run.callback_metrics[f"test/{name}"]) == pytest.approx(float(torch.stack(users).mean()), rel=1e-5)


class Keeps(Linked):
    """Scores by what it has prepared, and by that of the epoch at hand."""

    prepared = 0

    def prepare_scoring(self) -> None:
        self.prepared += 1
        self.kept["number"] = torch.tensor(self.prepared)

    def score_all(self, users: Tensor) -> Tensor:
        assert int(self.kept["number"]) == self.prepared
        return super().score_all(users)


def test_what_is_prepared_for_scoring_lasts_an_epoch(releases: dict[str, Path]) -> None:
    made, method, run = data(releases), Keeps(), trainer()
    for number, ranks in enumerate((run.validate, run.test, run.predict), 1):
        ranks(method, datamodule=made)  # type: ignore[operator]
        assert method.prepared == number
        assert method.kept == {}


class Penalised(Costly):
    """Its loss is 1 for every batch."""

    weight_decay = 0.25

    def step(self, batch: Batch) -> Outputs:
        return {"loss": 1.0 + 0 * self.weight}


def test_several_penalties_add_up_each_to_its_own_loss() -> None:
    method, made = Penalised(), rich(sources=(), missing_users=None)

    class Penalties(Callback):
        def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:  # noqa: ANN401
            for name, value, to in (("a", 9.0, "loss"), ("b", 2.0, "loss"), ("a", 4.0, "loss"), ("c", 8.0, "critic")):
                pl_module.add_penalty(name, lambda _, value=value: torch.full((2,), value).mean(), to=to)

    run = trainer(Penalties())
    run.fit_loop.max_epochs = 1
    run.fit(method, datamodule=made)
    figures = {name: float(value) for name, value in run.callback_metrics.items() if name.startswith("train/")}
    assert figures == {"train/loss": 7.0, "train/penalty/a": 4.0, "train/penalty/b": 2.0}
    method.on_train_batch_start(UserBatch(torch.arange(3)), 0)
    assert float(method.penalties({}, "critic", logged=False)) == 8
    assert method._means == {}
    assert run.optimizers[0].param_groups[0]["weight_decay"] == 0.25


def test_a_release_of_another_kind_and_other_sizes_are_refused(
    releases: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = NoisyRows(epsilon=4.0).publish(rich().source("c"), "c").save(tmp_path / "c")
    with pytest.raises(TypeError, match=r"The release of 'c' is of kind 'rows'\. Linked reads \['ratings'\]"):
        trainer().test(Linked(), datamodule=data(releases | {"c": noisy}), verbose=False)
    with monkeypatch.context() as patch:
        patch.setattr(Linked, "build", lambda *_: pytest.fail("layers are made"))
        for most, message in (
            ("1", r"of 'a' has 25 columns: .* Allowed: 1\. If you trust it, set ZOO_MOST_COLUMNS=25"),
            ("2^20", r"ZOO_MOST_COLUMNS is '2\^20'\. It must"),
            ("", "are made"),
        ):
            patch.setenv("ZOO_MOST_COLUMNS", most)
            with pytest.raises((ValueError, pytest.fail.Exception), match=message):
                trainer().test(Linked(), datamodule=data(releases), verbose=False)
    method = Given()
    trainer().test(method, datamodule=data({}), verbose=False)
    with pytest.raises(ReleaseMismatchError, match="num_items: 25 against"):
        trainer().test(method, datamodule=rich(filters=Filters(None, 1, 7)), verbose=False)
    made = data(releases)
    made.read_target()
    made.read_releases()
    method.read_data(made)
    assert [*method.sources] == [], "which read none"


def test_a_checkpoint_names_the_list_of_users(releases: dict[str, Path]) -> None:
    made, method, run = data(releases), Linked(), trainer()
    run.test(method, datamodule=made, verbose=False)
    made.users = "agreed.csv"
    checkpoint: dict[str, Any] = {}
    method.on_save_checkpoint(checkpoint)
    assert checkpoint["zoo"]["users"] == "agreed.csv"
    assert checkpoint["zoo"]["paths"] == {name: str(path) for name, path in releases.items()}
