"""Contract tests of methods, for the tests of your package."""

import json
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from pytorch_lightning import Trainer, seed_everything
from pytorch_lightning.callbacks import Callback

import zoo
from datamodules import CrossDomainDataModule, Evaluation, Synthetic
from zoo.data.batch_types import PredictBatch
from zoo.data.best_items import best_unseen, table_of
from zoo.data.held_out_cases import entries
from zoo.data.rows import SparseRows
from zoo.methods.base import Recommender
from zoo.methods.target_data import ReleaseMismatchError
from zoo.runs.bundle import BUNDLE
from zoo.runs.checks import figures_of
from zoo.runs.predictor import DataNotAvailableError, Predictor, WithExtraUsers
from zoo.runtime.run_folder import BEST, CONFIG, plain
from zoo.testing.tiny import SYNTHETIC, data_for, publisher_for, trainer

Make = Callable[..., tuple[Recommender, CrossDomainDataModule]]

#: Batches after which a checkpoint is saved: inside the second epoch, and at its end.
INSIDE, AT_THE_END = 4, 6


@dataclass(frozen=True)
class Trained:
    """A method after three epochs, with its data, trainer and folder."""

    method: Recommender
    data: CrossDomainDataModule
    run: Trainer
    folder: Path

    @property
    def checkpoint(self) -> Path:
        """Checkpoint of the last epoch."""
        return self.folder / "last.ckpt"

    def after(self, batches: int) -> Path:
        """Return the checkpoint of a run that was interrupted after a number of batches."""
        return self.folder / f"{batches}.ckpt"


class SaveInside(Callback):
    """Saves checkpoints inside an epoch, like an interrupted run."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.batches = folder, 0

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        """Count batches: the global step of Lightning counts optimiser steps."""
        self.batches += 1
        if self.batches in (INSIDE, AT_THE_END):
            trainer.save_checkpoint(self.folder / f"{self.batches}.ckpt")


class HideTest(Callback):
    """Hides the test cases while a method reads its data and trains: they are the answers."""

    def setup(self, trainer: Trainer, pl_module: Recommender, stage: str) -> None:  # type: ignore[override]
        """Hide them after the data are read; their digests stay."""
        data: Any = trainer.datamodule  # type: ignore[attr-defined]
        self.kind = kind = type(data)
        own = {name: getattr(kind, name) for name in ("__module__", "__qualname__")}
        data.__class__ = type(kind.__name__, (kind,), own | {"digests": data.digests, "test": property(self.refuse)})

    def refuse(self, data: CrossDomainDataModule) -> None:
        """Refuse to give the test cases."""
        raise AssertionError("Training reads data.test. Read data.train or data.validation.")

    def teardown(self, trainer: Trainer, *_: object, **__: object) -> None:
        """Give them back."""
        trainer.datamodule.__class__ = self.kind  # type: ignore[attr-defined]

    def on_exception(self, trainer: Trainer, *_: object) -> None:
        """Give them back."""
        self.teardown(trainer)


class MethodContract:
    """Contract tests of a method: subclass it in a test module and define `method`.

    Training must be repeatable from a seed: return a private method without noise. It may not read the test cases.

    Examples:
        >>> class TestMine(MethodContract):
        ...     def method(self) -> Recommender:
        ...         return zoo.BPR(num_factors=4)
    """

    def method(self) -> Recommender:
        """Return the method, with widths that train in a second."""
        raise NotImplementedError(f"{type(self).__name__} has no method. Define method(self).")

    @pytest.fixture(scope="class")
    @classmethod
    def new_method(cls) -> Callable[[], Recommender]:
        """Makes the method; override it to test several."""
        return cls().method

    @pytest.fixture(scope="class")
    @classmethod
    def released(cls, tmp_path_factory: pytest.TempPathFactory) -> Callable[[frozenset[str], str], Path]:
        """Makes the right release for a method, or a wrong one."""

        @cache
        def publish(reads: frozenset[str], release: str) -> Path:
            publisher = publisher_for(reads)
            publisher = publisher if release == "right" else zoo.Noise(publisher)
            source = Synthetic(**SYNTHETIC).source("book")
            return publisher.publish(source, "book").save(tmp_path_factory.mktemp("released") / release)

        return publish

    @pytest.fixture(scope="class")
    @classmethod
    def make(cls, new_method: Callable[[], Recommender], released: Callable[[frozenset[str], str], Path]) -> Make:
        """Makes the method from a fixed seed, and tiny data with settings and a "right" or "wrong" release."""

        def tiny(release: str = "right", **settings: Any) -> tuple[Recommender, CrossDomainDataModule]:  # noqa: ANN401
            path = released(new_method().accepted_releases, release)
            seed_everything(5)
            method = new_method()
            return method, data_for(method, path, **settings)

        return tiny

    @pytest.fixture(scope="class")
    @classmethod
    def trained_once(cls, make: Make, tmp_path_factory: pytest.TempPathFactory) -> Trained:
        """Method after three epochs."""
        method, data = make()
        folder = tmp_path_factory.mktemp("trained")
        run = trainer(folder, SaveInside(folder), HideTest(), num_sanity_val_steps=2)
        run.fit(method, datamodule=data)
        return Trained(method, data, run, folder)

    @pytest.fixture
    def trained(self, trained_once: Trained) -> Iterator[Trained]:
        """Trained method, restored after each test: a source of noise cannot be copied."""
        method = trained_once.method
        state, training = deepcopy(method.state_dict()), method.training
        yield trained_once
        method.load_state_dict(state)
        method.train(training)

    @pytest.fixture(scope="class")
    @classmethod
    def loaded(cls, trained_once: Trained) -> Predictor:
        """Trained method, saved like a run and loaded again."""
        folder = trained_once.folder / "run"
        (folder / BEST).parent.mkdir(parents=True)
        shutil.copyfile(trained_once.checkpoint, folder / BEST)
        settings = plain({"model": trained_once.method, "data": trained_once.data})
        (folder / CONFIG).write_text(yaml.safe_dump(settings), encoding="utf-8")
        return zoo.load(folder)

    def test_the_constructor_builds_nothing(self, make: Make) -> None:
        """The constructor stores its arguments only."""
        method, _ = make()
        assert list(method.parameters()) == []
        assert method.sizes is None

    def test_it_says_what_it_is(self, make: Make) -> None:
        """The method has a kind of batches and a docstring."""
        method, _ = make()
        assert method.batches in ("users", "pairs", "triples", "full_batch", "steps")
        assert type(method).__doc__

    def test_scores_of_given_items_are_those_of_all_items(self, trained: Trained) -> None:
        """Scores are finite and consistent."""
        method, data = trained.method, trained.data
        method.eval()
        users = torch.tensor([3, 0, 39, 3])
        with torch.no_grad():
            scores = method.score_all(users)
            assert scores.shape == (4, data.train.num_items)
            assert torch.isfinite(scores).all()
            items = torch.tensor([[0, 5], [29, 1], [2, 2], [7, 8]]).clamp(max=data.train.num_items - 1)
            assert torch.allclose(method.score(users, items), scores.gather(1, items), atol=1e-5)

    def test_what_others_have_is_not_counted_for_a_batch(
        self, trained: Trained, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Scoring a batch does not count the ratings of all users, which would take quadratic time."""
        method = trained.method.eval()
        with torch.no_grad():
            method.prepare_scoring()
            monkeypatch.setattr(SparseRows, "counts", None)
            assert torch.isfinite(method.ranking_scores(torch.tensor([3, 0, 39]))).all()

    def test_exposed_tensors_are_returned(self, trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
        """`step` returns the loss and the tensors for penalties."""
        method, data = trained.method, trained.data
        monkeypatch.setattr(type(method), "log", lambda *_, **__: None)  # Lightning's needs a running loop
        if method.batches in ("full_batch", "steps"):
            assert not method.step_outputs
            return
        outputs = method.step(next(iter(data.train_dataloader())))
        if method.automatic_optimization:
            assert set(outputs) == {"loss", *method.step_outputs}
        else:  # each of several losses has its own tensors
            assert {"loss"} <= set(outputs) <= {"loss", *method.step_outputs}
        assert outputs["loss"].ndim == 0

    def test_a_penalty_is_added_to_the_loss(self, make: Make, tmp_path: Path) -> None:
        """A penalty changes the loss and is logged by its name."""
        method, data = make()
        if method.batches in ("full_batch", "steps"):
            pytest.skip("a closed form has no loss")
        losses = []

        def penalty(outputs: dict[str, torch.Tensor]) -> torch.Tensor:
            losses.append(float(outputs["loss"].detach()))
            return 0 * outputs["loss"] + 7.0

        # With two players, `step` returns the loss of the generator.
        method.add_penalty("seven", penalty, to="loss" if method.automatic_optimization else "generator")
        run = trainer(tmp_path / "run", epochs=1, limit_train_batches=1)
        run.fit(method, datamodule=data)
        assert float(run.callback_metrics["train/loss"]) == pytest.approx(losses[-1] + 7.0, rel=1e-5)
        assert float(run.callback_metrics["train/penalty/seven"]) == 7.0

    def test_ranking_figures_are_logged(self, trained: Trained) -> None:
        """Validation logs metrics among all items and among candidates."""
        for key in ("val/ndcg@10", "val/sampled/hit_rate@10", "val/full/mrr@5"):
            assert 0 <= float(trained.run.callback_metrics[key]) <= 1

    def test_what_it_logs_is_named(self, trained: Trained) -> None:
        """``logs`` names every logged metric."""
        named = figures_of(trained.method, trained.data)
        for key in trained.run.callback_metrics:
            known = any(fnmatchcase(key.replace("/pessimistic/", "/"), name) for name in named)
            assert known or key.startswith("test/"), f"{key} is logged but not in `logs`"

    @pytest.mark.parametrize(
        "stop", [INSIDE, AT_THE_END, None], ids=["inside an epoch", "at its last batch", "after it"]
    )
    def test_a_resumed_run_equals_an_unbroken_one(
        self, make: Make, trained: Trained, tmp_path: Path, stop: int | None
    ) -> None:
        """Weights are equal bit by bit."""
        if trained.method.batches == "full_batch":
            pytest.skip("a closed form has nothing to resume")
        if stop is not None and trained.method.batches == "steps" and trained.method.steps_per_epoch == 1:
            pytest.skip("an epoch of one step has no inside")
        if trained.method.batches != "steps":
            assert len(trained.data.train_dataloader()) == AT_THE_END // 2
        if stop is None:
            halted, data = make()
            checkpoint = tmp_path / "halted" / "last.ckpt"
            trainer(tmp_path / "halted", epochs=2).fit(halted, datamodule=data)
        else:
            checkpoint = trained.after(stop)
        torch.manual_seed(99)
        resumed, data = make()
        torch.manual_seed(123)
        trainer(tmp_path / "resumed").fit(resumed, datamodule=data, ckpt_path=checkpoint)
        ours, theirs = trained.method.state_dict(), resumed.state_dict()
        assert ours.keys() == theirs.keys()
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)

    def test_a_loaded_checkpoint_scores_the_same(self, trained: Trained) -> None:
        """A loaded checkpoint scores like the method."""
        method, data = trained.method, trained.data
        loaded = type(method).load_from_checkpoint(trained.checkpoint, weights_only=True)
        read: Any = data  # mypy: properties instead of attributes
        loaded.read_data(read)
        users = torch.arange(data.train.num_users)
        with torch.no_grad():
            assert torch.equal(loaded.eval().score_all(users), method.eval().score_all(users))

    def test_another_release_is_refused(self, make: Make, trained: Trained, tmp_path: Path) -> None:
        """A method that reads releases refuses another one."""
        method, data = make("wrong")
        run = trainer(tmp_path / "other", epochs=4)
        if not method.accepted_releases:
            run.test(method, datamodule=data, ckpt_path=trained.checkpoint, verbose=False)
            assert "test/sampled/ndcg@10" in run.callback_metrics
            return
        with pytest.raises(ReleaseMismatchError, match=r"these differ: \['book'\]"):
            run.test(method, datamodule=data, ckpt_path=trained.checkpoint)

    def test_another_split_is_refused(self, make: Make, trained: Trained, tmp_path: Path) -> None:
        """A checkpoint is tested on its own split only."""
        method, data = make(seed=2, evaluation=Evaluation(split="random2"))
        with pytest.raises(ReleaseMismatchError, match=r"Use the data|these differ"):
            trainer(tmp_path / "other").test(method, datamodule=data, ckpt_path=trained.checkpoint)

    def test_users_without_history_are_ranked(self, make: Make, tmp_path: Path) -> None:
        """Cold-start users are ranked by popularity, unless a release scores them or a private training hides it."""
        method, data = make(evaluation=Evaluation(split="cold_start"))
        if method.reads_times:
            pytest.skip("the method needs a split by time")
        run = trainer(tmp_path / "run", epochs=1)
        run.fit(method, datamodule=data)
        run.test(method, datamodule=data, verbose=False)
        method.eval()
        cold = data.test.users
        assert (method.target_rows.counts_of(cold) == 0).all()
        with torch.no_grad():
            scores = method.ranking_scores(cold)
        by_counts = torch.equal(scores, method.item_counts.expand(len(cold), -1))
        by_release = method.scores_cold_users and bool(method.accepted_releases)
        assert by_counts != (by_release or method.hides_item_counts)

    def test_a_loaded_run_recommends_what_predict_does(self, trained: Trained, loaded: Predictor) -> None:
        """A loaded run and `predict` agree."""
        data, method = trained.data, trained.method.eval()
        users = torch.tensor([3, 0, 39])
        with torch.no_grad():
            batch = PredictBatch(users, *entries(data.test.seen, users))
            expected = table_of(data.train, best_unseen(method.ranking_scores(users), batch, 4))
        found = loaded.recommend(data.train.user_ids[users.numpy()].tolist(), k=4)
        assert found.drop("score").equals(expected.drop("score"))
        assert found["score"].to_numpy() == pytest.approx(expected["score"].to_numpy(), abs=1e-5)

    def test_a_bundle_recommends_the_same_or_says_what_it_lacks(
        self, trained: Trained, loaded: Predictor, tmp_path: Path
    ) -> None:
        """A bundle recommends the same with the data that `scoring_needs` names, and refuses without them."""
        users, data = loaded.user_ids[5:7], loaded.data
        expected = loaded.recommend(users, k=3)
        whole = zoo.export(loaded, tmp_path / "whole", with_user_ids=True, with_ratings=True)
        bare = zoo.export(loaded, tmp_path / "bare", with_user_ids=True)
        assert trained.method.sizes is not None
        paths = {name: trained.data.release_paths[name] for name in trained.method.sizes["sources"]}
        own = {
            user: data.train.item_ids[data.test.seen.bags(torch.tensor([5 + at])).items]
            for at, user in enumerate(users)
        }
        needed = trained.method.scoring_needs
        for folder, releases in (
            (whole, paths),
            (whole if "ratings" in needed else bare, paths if "releases" in needed else {}),
        ):
            assert zoo.load(folder, releases=releases).recommend(users, k=3, seen=own).equals(expected)
        name, needs = type(trained.method).__name__, json.loads((bare / BUNDLE).read_text())["needs"]
        self.check_needs(name, needs)
        if needs:
            with pytest.raises(DataNotAvailableError, match=f"{name} needs {needs}, which the bundle lacks"):
                zoo.load(bare).recommend(users, k=3, seen=own)

    def check_needs(self, name: str, needs: str) -> None:
        """Override to check what the bundle of a method needs ("" for nothing)."""

    def test_folding_in_a_users_own_history_gives_that_users_list(self, loaded: Predictor) -> None:
        """Exactly where scores read rows; where factors are solved for, scores are closer to the user's own than the mean is."""
        users, train, exact = loaded.user_ids, loaded.data.train, loaded.method.folds_in == "rows"
        items = np.split(train.item_ids[train.matrix.indices], train.matrix.indptr[1:-1])
        own = {user: part.tolist() for user, part in zip(users, items, strict=True)}
        if loaded.method.folds_in is None:
            with pytest.raises(ValueError, match=f"{type(loaded.method).__name__} cannot score histories"):
                loaded.recommend(users, histories=own)
            return
        expected, found = (
            loaded.recommend(users, k=train.num_items, include_seen=True, histories=one).sort("user_id", "item_id")
            for one in (None, own)
        )
        before, after = (table["score"].to_numpy().reshape(len(users), -1) for table in (expected, found))
        if exact:
            assert after == pytest.approx(before, abs=1e-4)
            assert loaded.recommend(users, histories=own)["item_id"].equals(loaded.recommend(users)["item_id"])
        assert exact or np.square(after - before).sum() < np.square(before.mean(axis=0) - before).sum()

    def test_somebody_of_a_release_alone_is_scored_as_a_user_without_ratings(self, make: Make, tmp_path: Path) -> None:
        """A user of a release alone is scored like a user without ratings."""
        method, data = make(evaluation=Evaluation(split="cold_start"))
        if not method.scores_by_rows:
            pytest.skip("the method scores only users of its training")
        trainer(tmp_path / "run", epochs=1).fit(method, datamodule=data)
        cold = data.test.users[:2]
        scored = Predictor(method, data, data.test.seen, tmp_path)
        expected = scored.scores(data, cold)
        known: Any = data  # as above
        wide = WithExtraUsers(known, ["new", "newer"], {name: links[cold] for name, links in data.links.items()})
        assert torch.allclose(scored.scores(wide, torch.tensor([40, 41])), expected, atol=1e-6)
