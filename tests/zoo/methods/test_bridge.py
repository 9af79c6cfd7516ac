"""Bridge against its formulas written out, on planted transfers, and where a person's row does not lie."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from pytorch_lightning import Trainer
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from torch import Tensor

import zoo
from callbacks import BestCheckpoint
from callbacks.run_report import records
from datamodules import CrossDomainDataModule, Evaluation, Synthetic
from tests.samples import binary, some_ratings
from tests.zoo.methods.quiet_trainer import quiet
from zoo import EASE, Bridge, BridgePublisher, Ensemble, Noise, Nothing, ProjectionPublisher, Publisher, Shuffled
from zoo.benchmark.fit import Trial
from zoo.data.directions import directions_of
from zoo.methods.bridge import place
from zoo.methods.members import Member
from zoo.methods.target_data import ReleaseMismatchError
from zoo.privacy.record.record import PrivacyRecord
from zoo.privacy.spending.total import record_of
from zoo.release.files import ReleaseError
from zoo.release.release import Release

pytestmark = pytest.mark.thorough

TASK: dict[str, Any] = {
    "num_users": 400, "num_items": 60, "ratings_per_user": 10, "seed": 1, "evaluation": Evaluation(split="cold_start"),
}  # fmt: skip


def solved(folder: Path, publisher: Publisher, method: Bridge | None = None, **settings: Any) -> tuple[Bridge, Trainer]:  # noqa: ANN401
    """The method after its one step, tested."""
    data = Synthetic(**TASK | settings)
    data.read_target()
    release = publisher.for_target(data.train).publish(data.source("book"), "book").save(folder / "book")
    trainer = quiet(max_epochs=1)
    method = Bridge() if method is None else method
    trainer.fit(method, datamodule=Synthetic(**TASK | settings, releases={"book": release}))
    trainer.test(method, verbose=False, datamodule=trainer.datamodule)  # type: ignore[attr-defined]
    return method.eval(), trainer


def bridge(epsilon: float = 8.0, **settings: Any) -> BridgePublisher:  # noqa: ANN401
    made = ProjectionPublisher(num_directions=3)
    own: dict[str, Any] = {"projections": made, "noise_seed": 2, **settings}
    return BridgePublisher(epsilon, delta=1e-5, kept_items=None, **own)


def test_scores_are_those_of_the_formulas(tmp_path: Path) -> None:
    method, _ = solved(tmp_path, bridge(clip=2.0))
    release = method.data.releases["book"]
    train, own = method.data.train.matrix, Synthetic(**TASK).source("book").matrix.toarray()
    table, counts = (release.tensors[name].double().numpy() for name in ("map", "counts"))
    sigma = float(release.record.public_inputs["sigma"])
    both = int((np.diff(train.indptr) > 0).sum())
    signal = max((table**2).sum() - sigma**2 * table.size, 0) / both
    gain = signal / (3 * sigma**2 * 4 + signal**2 / 0.25)
    rows = own * np.minimum(1, 2 / np.maximum(np.linalg.norm(own, axis=1), 1e-9))[:, None]
    target = directions_of(train, 3, 0.5)
    places = target.projections + gain * (rows - np.maximum(counts, 0) / 400) @ table
    with torch.no_grad():
        found = method.score_all(torch.arange(400)).numpy()
    assert found == pytest.approx(target.mean + places @ target.decoder, abs=1e-5)


def test_numbers_that_a_map_states_are_checked(tmp_path: Path) -> None:
    """A map without a guarantee may state any, and devices read it too."""
    method, _ = solved(tmp_path, bridge())
    made, own = method.data.releases["book"], Synthetic(**TASK).source("book")
    for stated in ({}, {"sigma": "z"}, {"sigma": 1e300}, {"sigma": 1.0, "row_clip": -1.0}, {"sigma_decrypted": True}):
        record = SimpleNamespace(public_inputs={"row_clip": 1.0, **stated})
        other = SimpleNamespace(tensors=made.tensors, domain="book", source_users=400, record=record)
        other.stated = partial(Release.stated, other)
        named = r"(sigma|sigma_decrypted|row_clip) of 'book' is .*It must lie in \[0, 1e\+12\]"
        with pytest.raises(ValueError, match=named):
            place(other, own, 5)
    other.record.public_inputs = {"row_clip": 1.0, "sigma": 0.0}  # nor is a map without noise too small
    other.tensors = {**made.tensors, "map": torch.full_like(made.tensors["map"], 1e-30)}
    with pytest.raises(ReleaseError, match=r"'book' gives positions up to \de\+\d\d\. Allowed: 1e\+12"):
        place(other, own, 5)
    noted = replace(made, record=replace(made.record, notes={**made.record.notes, "item_damping": -1.0}))
    method.data.releases["book"] = noted
    with pytest.raises(ValueError, match=r"item_damping of 'book' is '-1\.0'"):
        Bridge().read_data(method.data)


@pytest.mark.slow
def test_a_planted_transfer_is_found_for_cold_users_and_not_with_wrong_people(tmp_path: Path) -> None:
    """HR@10 of 80 people among 60 items each; noise and people are drawn from fixed seeds."""

    def figure(name: str, publisher: Publisher) -> float:
        _, trainer = solved(tmp_path / name, publisher, link=0.95)
        return float(trainer.callback_metrics["test/full/hit_rate@10"])

    others = figure("wrong", Shuffled(bridge())), figure("redrawn", Noise(bridge()))
    assert figure("right", bridge()) > max(others) + 0.1


def test_without_a_release_or_a_row_everybody_has_the_mean(tmp_path: Path) -> None:
    method, _ = solved(tmp_path, Nothing("map"), missing_users="zero")
    with torch.no_grad():
        cold = method.score_all(method.data.test.users)
    assert torch.allclose(cold, cold[:1].expand_as(cold))


@pytest.mark.parametrize(("settings", "form"), [({}, (6, 0.5)), ({"num_directions": 2, "item_damping": 0.1}, (2, 0.1))])
def test_without_a_release_people_with_history_have_their_own_places_in_the_directions_asked_for(
    tmp_path: Path, settings: dict[str, Any], form: tuple[int, float]
) -> None:
    method, _ = solved(tmp_path, Nothing("map"), Bridge(**settings), missing_users="zero")
    target = directions_of(method.data.train.matrix, *form)
    assert method.places.numpy() == pytest.approx(target.projections, abs=1e-6)
    assert method.decoder.numpy() == pytest.approx(target.decoder, abs=1e-6)


def test_where_the_source_does_not_lie_nobody_is_placed_by_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Synthetic(**TASK)
    data.read_target()
    path = bridge().for_target(data.train).publish(data.source("book"), "book").save(tmp_path / "book")

    def absent(self: CrossDomainDataModule, name: str) -> None:
        raise FileNotFoundError(name)

    monkeypatch.setattr(CrossDomainDataModule, "source", absent)
    there = Synthetic(**TASK, releases={"book": path})
    there.setup("fit")
    there.read_releases()
    assert not there.own_rows
    assert "its users cannot be scored" in there.summary["remarks"][-1]


def test_a_stronger_noise_is_trusted_less(tmp_path: Path) -> None:
    noisy, clear = (solved(tmp_path / str(epsilon), bridge(epsilon))[0].places for epsilon in (0.01, 1e6))
    assert noisy[[0, 1]].norm() < clear[[0, 1]].norm()


def lists_without(
    user: int | None, release: Path, monkeypatch: pytest.MonkeyPatch, folder: Path, ensemble: Ensemble
) -> Tensor:
    """Ten best items of everybody by the stored epoch, if a user's rows at the source are empty; the release stays the same."""
    read = CrossDomainDataModule._read_own_rows

    def removed(self: CrossDomainDataModule, name: str) -> None:
        read(self, name)
        matrix = self.own_rows[name].matrix.copy()
        if user is not None:
            matrix.data[matrix.indptr[user] : matrix.indptr[user + 1]] = 0
            matrix.eliminate_zeros()
        self.own_rows[name] = replace(self.own_rows[name], matrix=matrix)

    with monkeypatch.context() as patch:
        patch.setattr(CrossDomainDataModule, "_read_own_rows", removed)
        checkpoint = BestCheckpoint()
        trainer = quiet(max_epochs=2, callbacks=[checkpoint], default_root_dir=folder, enable_checkpointing=True)
        trainer.fit(ensemble, datamodule=Synthetic(**TASK, releases={"book": release}))
        assert checkpoint.monitor is None, "the last epoch is stored"
        ensemble.load_state_dict(torch.load(checkpoint.best_model_path)["state_dict"])
    ensemble.eval().prepare_scoring()
    with torch.no_grad():
        return ensemble.score_all(torch.arange(400)).topk(10).indices


def test_removing_a_user_at_source_changes_nobody_elses_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the release unchanged: weights and epoch are not chosen by scores that read the source's rows."""
    data = Synthetic(**TASK)
    data.read_target()
    publisher = bridge(noise_seed=None).for_target(data.train)
    release = publisher.publish(data.source("book"), "book").save(tmp_path / "book")

    def ensemble(**settings: Any) -> Ensemble:  # noqa: ANN401
        return Ensemble({"bridge": Member(Bridge()), "ease": Member(EASE(), max_epochs=1)}, **settings)

    with pytest.raises(ValueError, match="weights is null, and members read the rows of book without noise"):
        lists_without(None, release, monkeypatch, tmp_path / "refused", ensemble())
    fixed = {"bridge": 0.7, "ease": 0.3}
    whole, without = (
        lists_without(user, release, monkeypatch, tmp_path / str(user), ensemble(weights=fixed)) for user in (None, 7)
    )
    differing = (whole != without).any(1).nonzero().flatten().tolist()
    assert set(differing) <= {7}
    research = ensemble(weights_from_own_rows=True)
    lists_without(None, release, monkeypatch, tmp_path / "research", research)
    assert records(research.data, research)["book"].conditions[-1] == "chosen_by_metrics"
    once = {"max_epochs": 1, "runs": tmp_path, "accelerator": "cpu", "enable_progress_bar": False}
    data = Synthetic(**TASK, releases={"book": release})
    run = zoo.fit(ensemble(weights_from_own_rows=True), data, **once)
    run.test()
    assert "not protected: metrics measured on the source" in run._repr_html_()
    bundle = zoo.export(run, tmp_path / "bundle", with_user_ids=True, with_ratings=True)
    assert json.loads((bundle / "bundle.json").read_text())["own_rows"] == ["book"]
    monkeypatch.setattr(CrossDomainDataModule, "_read_own_rows", lambda *_: None)  # the source's file is gone
    later = zoo.fit(zoo.load(bundle, data=data).method, Synthetic(**TASK, releases={"book": release}), **once)
    kept = json.loads((later.folder / "privacy.json").read_text())["book"]
    assert record_of(kept).conditions[-1] == "chosen_by_metrics"


def test_a_search_over_scores_of_source_rows_stands_in_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, trainer = solved(tmp_path, bridge(noise_seed=None))
    assert method.own_rows_read(method.data) == ("book",)
    assert "metrics" in records(method.data, method)["book"].not_protected
    assert "chosen_by_metrics" not in records(method.data, method)["book"].conditions
    Trial.before_fit(SimpleNamespace(model=method, check_validation=int))  # type: ignore[arg-type]
    record = records(method.data, method)["book"]
    assert "chosen_by_metrics" in record.conditions
    assert PrivacyRecord.from_dict(record.to_dict()).conditions == record.conditions
    trainer.callbacks.append(EarlyStopping("val/full/ndcg@10"))  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="EarlyStopping would choose the epoch by scores that read the rows of book"):
        method.setup("fit")
    trainer.callbacks[-1:] = [ModelCheckpoint(), saver := ModelCheckpoint(monitor="val/full/ndcg@10")]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="ModelCheckpoint would choose the epoch by scores that read the rows of book"):
        method.setup("fit")
    monkeypatch.setattr(trainer, "fast_dev_run", 1)
    method.setup("fit")
    monkeypatch.setattr(trainer, "fast_dev_run", False)
    trainer.callbacks.remove(saver)  # type: ignore[attr-defined]
    method.setup("fit")
    assert trainer.lr_scheduler_configs == []
    plateau = SimpleNamespace(reduce_on_plateau=True)
    monkeypatch.setattr(type(trainer), "lr_scheduler_configs", [SimpleNamespace(reduce_on_plateau=False), plateau])
    with pytest.raises(
        ValueError, match="ReduceLROnPlateau would set the weights by scores that read the rows of book"
    ):
        method.on_train_start()


@pytest.mark.parametrize("earlier", [False, True])
def test_a_run_that_read_source_rows_is_still_that_as_a_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, earlier: bool
) -> None:
    method = Bridge()
    method.chosen_by_metrics = True
    method, trainer = solved(tmp_path, bridge(noise_seed=None), method)
    trainer.save_checkpoint(tmp_path / "run.ckpt")
    checkpoint = torch.load(tmp_path / "run.ckpt")
    checkpoint["hyper_parameters"]["_class_path"] = "zoo.Bridge"
    if earlier:  # such a version did not state them
        del checkpoint["zoo"]["own_rows"], checkpoint["zoo"]["chosen_by_metrics"]
    torch.save(checkpoint, tmp_path / "run.ckpt")
    monkeypatch.setattr(CrossDomainDataModule, "_read_own_rows", lambda *_: None)  # the source's file is gone

    def fitted(weights: dict[str, float] | None = None) -> Ensemble:
        made = Ensemble({"run": Member(run=str(tmp_path / "run.ckpt"))}, weights)
        quiet(max_epochs=1).fit(made, datamodule=Synthetic(**TASK, releases={"book": tmp_path / "book"}))
        return made

    with pytest.raises(ValueError, match="weights is null, and members read the rows of book without noise"):
        fitted()
    fixed = fitted({"run": 1.0})
    assert not fixed.data.own_rows
    assert fixed.own_rows_read(fixed.data) == ("book",)
    assert records(fixed.data, fixed)["book"].conditions == records(method.data, method)["book"].conditions


def test_maps_of_other_items_and_directions_are_refused() -> None:
    release = bridge(8.0).for_target(binary()).publish(binary(), "book")
    with pytest.raises(ReleaseMismatchError, match="The map of 'book' is of 7 items, and the rows have 8"):
        place(release, some_ratings(9, 8), 9)
    shapes = {"a": (2, 3), "b": (3, 1), "nobody": (1, 0)}
    sources = {name: {"width": width, "num_users": users} for name, (width, users) in shapes.items()}
    sizes = {"num_users": 3, "num_items": 4, "sources": sources}
    with pytest.raises(ReleaseMismatchError, match=r"The maps have \{'a': 2, 'b': 3\} directions"):
        Bridge().build(sizes)


def test_somebody_without_a_rating_at_the_source_is_not_moved() -> None:
    release = bridge(8.0).for_target(binary()).publish(binary(), "book")
    told = place(release, some_ratings(4, 7, density=0.0), 9)
    assert not told.any()
