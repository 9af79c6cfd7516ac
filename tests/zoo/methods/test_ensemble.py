"""Ensemble: sums written out by hand, members from runs, and what is refused."""

import json
import shutil
from itertools import product
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import polars as pl
import pytest
import torch
from pytorch_lightning.callbacks import EarlyStopping
from scipy.stats import zscore
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import zoo
from datamodules import Evaluation, Synthetic
from zoo import DMF, EASE, Ensemble, Plaintext, PriCDR, Recommender, UserKNN
from zoo.methods import members
from zoo.methods.ensemble import greedy_weights, standardised
from zoo.methods.epoch_averages import DivergedError
from zoo.methods.members import KeepBest, Member
from zoo.methods.target_data import ReleaseMismatchError
from zoo.runs.trainer import Run
from zoo.runtime.run_folder import BEST

SIZE: dict[str, Any] = {"num_users": 60, "num_items": 40, "ratings_per_user": 8, "seed": 3}


def trained(method: Recommender, folder: Path, **settings: Any) -> Run:  # noqa: ANN401
    data = Synthetic(**SIZE | settings.pop("data", {}))
    settings = {"max_epochs": 9, "accelerator": "cpu", "enable_progress_bar": False} | settings
    return zoo.fit(method, data, runs=folder, **settings)


def alone(method: Recommender, **settings: Any) -> Member:  # noqa: ANN401
    """A member that reads no release."""
    return Member(method, releases=False, **settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Three members, one of them twice."""
    dmf = Member(DMF(dims=(8, 4)), copies=2, max_epochs=3, batch_size=16)
    made = Ensemble({"EASE": Member(EASE(20.0)), "UserKNN": alone(UserKNN()), "DMF": dmf})
    return trained(made, tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def ease(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(EASE(20.0), tmp_path_factory.mktemp("ease"))


def ensemble(run: Run) -> Ensemble:
    assert isinstance(run.method, Ensemble)
    return run.method.eval()


def epoch_of_test(run: Run) -> int:
    run.test()
    found: int = json.loads((run.folder / "metrics.json").read_text())["tested_epoch"]
    return found


def figures(run: Run, name: str) -> list[float]:
    """What was logged under a name, epoch by epoch."""
    return pl.read_csv(run.folder / "metrics.csv").filter(pl.col(name).is_not_null())[name].to_list()


@pytest.mark.thorough
@torch.no_grad()
def test_the_score_is_the_weighted_sum_of_standardised_rows(run: Run) -> None:
    """Against scipy's, copies averaged."""
    method, users = ensemble(run), torch.tensor([5, 0, 59])
    weights = dict(zip(method.members, method.weights.tolist(), strict=True))
    assert sum(weights.values()) == pytest.approx(1.0)
    rows: dict[str, list[Any]] = {}
    for name, copy in zip(method.owners, method.copies, strict=True):
        rows.setdefault(name, []).append(zscore(copy.eval().score_all(users).double().numpy(), axis=1))
    assert [len(found) for found in rows.values()] == [1, 1, 2]
    expected = sum(weights[name] * np.mean(found, axis=0) for name, found in rows.items())
    assert np.allclose(method.score_all(users).numpy(), expected, atol=1e-4)


def test_weights_are_chosen_by_what_validation_logs(run: Run) -> None:
    """What the selection found is what the epoch's validation finds; and no member alone is worth more."""
    by_epoch = figures(run, "val/ndcg@10")
    assert len(by_epoch) == 4
    assert by_epoch[2] == by_epoch[1], "a bag counts once it is complete"
    for name in ("EASE", "UserKNN"):
        assert by_epoch[-1] >= figures(run, f"members/{name}/ndcg@10")[-1] - 1e-6
    assert by_epoch[0] == pytest.approx(figures(run, "members/EASE/ndcg@10")[0], abs=1e-6)
    weights = [figures(run, f"members/{name}/weight")[-1] for name in ("EASE", "UserKNN", "DMF")]
    assert weights == pytest.approx(ensemble(run).weights.tolist(), abs=1e-6)


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that was made."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        made = func(*args, **kwargs or {})
        self.numbers = max(self.numbers, made.numel() if isinstance(made, Tensor) else 0)
        return made


def test_scores_of_copies_are_added_up_one_by_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory does not grow with copies, of which a received file may state many."""
    method = ensemble(run).copies[0]
    monkeypatch.setattr(run.method, "_finished", lambda _: [method] * 50)
    with Largest() as largest:
        scores = ensemble(run).member_scores("any", torch.arange(40))
    assert torch.allclose(scores, standardised(method.score_all(torch.arange(40))), atol=1e-5)
    assert largest.numbers <= max(scores.numel(), method.target_rows.items.numel(), *map(torch.numel, method.buffers()))


def test_copies_are_trained_from_weights_of_their_own(run: Run) -> None:
    first, second = ensemble(run).copies[2:]
    assert not torch.equal(first.score_all(torch.arange(9)), second.score_all(torch.arange(9)))


def test_a_member_is_kept_at_its_best_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[KeepBest] = []

    class Noted(KeepBest):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[float] = []
            kept.append(self)

        def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401  Lightning's signature
            super().on_validation_end(trainer, pl_module)
            self.seen.append(float(trainer.callback_metrics["val/ndcg@10"]))

    monkeypatch.setattr(members, "KeepBest", Noted)
    member = Member(DMF(dims=(8, 4), lr=0.1), max_epochs=30, patience=1, batch_size=32)
    found = trained(Ensemble({"DMF": member}), tmp_path)
    seen = kept[0].seen
    assert seen.index(max(seen)) < len(seen) - 1, "the last epoch is the best, and this shows nothing"
    assert len(seen) == min(seen.index(max(seen)) + 2, 30)
    assert figures(found, "val/ndcg@10")[-1] == pytest.approx(max(seen), abs=1e-6)
    assert figures(found, "members/DMF/epoch") == [seen.index(max(seen)) + 1]


def test_weights_are_as_given_or_equal_without_validation(tmp_path: Path) -> None:
    parts = {"EASE": Member(EASE(20.0)), "UserKNN": alone(UserKNN())}
    found = trained(Ensemble(parts, weights={"UserKNN": 0.5, "EASE": 1.5}), tmp_path)
    assert ensemble(found).weights.tolist() == [0.75, 0.25]
    parts = {"EASE": Member(EASE(20.0)), "Popularity": alone(zoo.Popularity())}
    found = trained(Ensemble(parts, weights={"EASE": 1.0, "Popularity": 15.0}), tmp_path / "worse")
    first, last = figures(found, "val/ndcg@10")
    assert first > last, "this shows nothing"
    assert ensemble(found).weights.tolist() == [1 / 16, 15 / 16], "also where validation falls"
    assert epoch_of_test(found) == 2
    found = trained(Ensemble({name: Member(EASE(20.0)) for name in ("EASE", "same")}), tmp_path / "same")
    first, last = figures(found, "val/ndcg@10")
    assert first == last, "the second member adds nothing"
    assert epoch_of_test(found) == 1
    parts = {"EASE": Member(EASE(20.0)), "UserKNN": alone(UserKNN())}
    found = trained(Ensemble(parts), tmp_path, data={"evaluation": Evaluation(split="random1")})
    assert ensemble(found).weights.tolist() == [0.5, 0.5]


@pytest.mark.slow
def test_all_items_are_ranked_where_no_candidates_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a few cases, where scores of all would be too many."""
    evaluation = Evaluation(num_candidates=0)
    parts = {"EASE": Member(EASE(20.0)), "UserKNN": alone(UserKNN())}
    found = trained(Ensemble(parts), tmp_path / "all", data={"evaluation": evaluation})
    best = max(figures(found, f"members/{name}/ndcg@10")[-1] for name in parts)
    assert figures(found, "val/ndcg@10")[-1] >= best - 1e-6
    monkeypatch.setattr("zoo.methods.ensemble.MOST_SCORES", 20 * 40)
    thinned = trained(Ensemble(parts), tmp_path / "few", data={"evaluation": evaluation})
    assert figures(thinned, "members/EASE/ndcg@10")[0] != figures(found, "members/EASE/ndcg@10")[0]


@pytest.mark.slow
def test_a_run_is_taken_as_it_is(run: Run, ease: Run, tmp_path: Path) -> None:
    """By its folder or its checkpoint; afterwards nobody needs it any more."""
    there = shutil.copytree(ease.folder, tmp_path / "ease")
    parts = {"a": Member(run=str(there)), "b": Member(run=str(there / BEST)), "c": alone(UserKNN())}
    found = trained(Ensemble(parts), tmp_path / "runs", max_epochs=1)
    users = torch.arange(60)
    copies = ensemble(found).copies
    for copy in copies[:2]:
        assert torch.equal(copy.score_all(users), ease.method.score_all(users))
    assert ensemble(found).finished.all()
    expected = zoo.load(found.folder).recommend(["u0003"], k=5)
    shutil.rmtree(there)
    assert zoo.load(found.folder).recommend(["u0003"], k=5).equals(expected)
    whole = zoo.export(found.folder, tmp_path / "bundle", with_user_ids=True, with_ratings=True)
    assert zoo.load(whole).recommend(["u0003"], k=5).equals(expected)
    with pytest.raises(ValueError, match=r"ease is no checkpoint of a run"):
        trained(Ensemble(parts), tmp_path / "gone")


def test_a_packed_checkpoint_is_not_unpacked(tmp_path: Path) -> None:
    torch.save({"zoo": {}, "hyper_parameters": {}, "state_dict": {}}, tmp_path / "own.ckpt")
    assert members.checkpoint_in(str(tmp_path / "own.ckpt"))["state_dict"] == {}
    with ZipFile(tmp_path / "own.ckpt") as own, ZipFile(tmp_path / "packed.ckpt", "w", ZIP_DEFLATED) as packed:
        for entry in own.infolist():
            packed.writestr(entry.filename, own.read(entry))
    with pytest.raises(ValueError, match=r"packed\.ckpt is no checkpoint of a run"):
        members.checkpoint_in(str(tmp_path / "packed.ckpt"))


def test_a_run_of_other_data_is_refused(ease: Run, tmp_path: Path) -> None:
    parts = {"EASE": Member(run=str(ease.folder))}
    with pytest.raises(ReleaseMismatchError, match=r"\(EASE\) was trained on other data.*differ: \['music'\]"):
        trained(Ensemble(parts), tmp_path, data={"seed": 4, "evaluation": Evaluation(split="random2")})
    there = shutil.copytree(ease.folder, tmp_path / "a training with noise")
    (there / "privacy.json").write_text('{"EASE": {}}')
    for path in (there, there / BEST):
        with pytest.raises(ValueError, match="EASE adds noise of its own"):
            Member(run=str(path)).found()


def test_what_a_run_was_trained_on_is_held_against_the_data_at_hand() -> None:
    kept = {"digests": {"music": "m", "book": "b"}, "sizes": {"sources": {"book": {"width": 3}}}, "paths": {}}
    checkpoint = {"zoo": kept, "state_dict": {}}
    sizes, digests = {"sources": {"book": {"width": 3}}}, {"music": "m", "book": "b"}
    knn = UserKNN()
    members.take(knn, checkpoint, sizes, digests)
    members.take(knn, checkpoint, sizes, digests | {"film": "f"})
    for other in ({"music": "m", "book": "another"}, {"music": "another", "book": "b"}, {"music": "m"}):
        with pytest.raises(ReleaseMismatchError, match=r"\(UserKNN\) was trained on other data or releases"):
            members.take(knn, checkpoint, sizes, other)
    with pytest.raises(ReleaseMismatchError, match=r"these differ: \['book'\]"):
        members.take(knn, checkpoint, {"sources": {}}, digests)


@pytest.mark.slow
def test_a_run_of_another_release_is_refused(tmp_path: Path) -> None:
    """Two releases cost more than the one that the record of the run lists."""
    knn = trained(UserKNN(), tmp_path / "knn", publisher=Plaintext())
    parts = {"UserKNN": Member(run=str(knn.folder)), "EASE": Member(EASE(20.0))}
    same = {"book": knn.folder / "releases" / "book"}
    found = trained(Ensemble(parts), tmp_path / "same", data={"releases": same})
    assert torch.equal(ensemble(found).copies[0].score_all(torch.arange(9)), knn.method.score_all(torch.arange(9)))
    with pytest.raises(ReleaseMismatchError, match=r"differ: \['book'\]\. Use its releases"):
        trained(Ensemble(parts), tmp_path / "other", publisher=zoo.Shuffled(Plaintext(), seed=1))


def test_members_read_releases_where_they_are_asked_to() -> None:
    both = Ensemble({"a": Member(UserKNN()), "b": Member(EASE())})
    assert both.accepted_releases == UserKNN.accepted_releases
    assert both.scores_by_rows
    assert both.scores_cold_users
    assert Ensemble({"a": alone(UserKNN()), "b": Member(EASE())}).accepted_releases == frozenset()
    assert UserKNN().accepted_releases == {"rows", "ratings"}


@torch.no_grad()
def test_a_member_adds_nothing_for_whom_it_cannot_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EASE, "score_all", lambda _, users: torch.arange(40.0).expand(len(users), -1))
    parts = {"EASE": Member(EASE()), "UserKNN": Member(UserKNN())}
    cold = {"evaluation": Evaluation(split="cold_start")}
    found = trained(Ensemble(parts, weights={"EASE": 0.5, "UserKNN": 0.5}), tmp_path, data=cold, publisher=Plaintext())
    method = ensemble(found)
    users = found.data.test.users[:4]
    expected = 0.5 * zscore(method.copies[1].score_all(users).double().numpy(), axis=1)
    assert np.allclose(method.score_all(users).numpy(), expected, atol=1e-4)
    assert method.can_score(users).all()


def test_a_member_whose_scores_are_not_finite_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a release of extreme values: it would take the weights of all others."""
    scored = zoo.Popularity.score_all
    monkeypatch.setattr(zoo.Popularity, "score_all", lambda self, users: scored(self, users) * float("inf"))
    members = {"broken": alone(zoo.Popularity()), "ease": alone(zoo.EASE())}
    with pytest.raises(DivergedError, match="Member 'broken' has scores that are not finite"):
        trained(zoo.Ensemble(members), tmp_path)


def test_early_stopping_is_refused(tmp_path: Path) -> None:
    stop = EarlyStopping("val/ndcg@10", mode="max")
    with pytest.raises(ValueError, match=r"Members have their own patience. Omit it"):
        trained(Ensemble({"EASE": Member(EASE())}), tmp_path, callbacks=[stop])
    with pytest.raises(ValueError, match=r"check_val_every_n_epoch is 2\. Each epoch validates a copy"):
        trained(Ensemble({"EASE": Member(EASE())}), tmp_path, check_val_every_n_epoch=2)


@pytest.mark.slow
def test_too_few_epochs_are_told(tmp_path: Path) -> None:
    parts = {"EASE": Member(EASE(20.0)), "UserKNN": alone(UserKNN())}
    with pytest.warns(UserWarning, match=r"max_epochs is 1, .* and 2 are to be trained: the last are left out"):
        found = trained(Ensemble(parts), tmp_path, max_epochs=1)
    assert ensemble(found).weights.tolist() == [1.0, 0.0]


def test_a_member_that_makes_noise_after_all_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EASE, "privacy_record", lambda _: "a record")
    build = EASE.build

    def without_epsilon(method: EASE, sizes: Any) -> None:  # noqa: ANN401  of the data
        build(method, sizes)
        method.hparams["epsilon"] = None  # no noise, it says; the record after the training decides

    for at, made in enumerate((build, without_epsilon)):
        monkeypatch.setattr(EASE, "build", made)
        with pytest.raises(ValueError, match=r"EASE adds noise of its own"):
            trained(Ensemble({"EASE": Member(EASE())}), tmp_path / str(at))


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (lambda: Member(zoo.SPPG(epsilon=8.0)), r"SPPG adds noise of its own in training.*set its epsilon to null"),
        (lambda: Member(zoo.FedGNN(epsilon=8.0, clip=1.0)), r"FedGNN adds noise of its own"),
        (lambda: Member(zoo.OneBitMC(tau=2.0)), r"OneBitMC learns from signs"),
        (lambda: Member(Ensemble({"EASE": Member(EASE())})), r"An Ensemble is no member of another"),
        (lambda: Member(), r"A member is either a method or a run; got None and None"),
        (lambda: Member(EASE(), run="runs/EASE/version_0"), r"a method or a run; got EASE"),
        (lambda: Member(run="x", copies=2), r"copies is 2; a member from a run has 1"),
        (lambda: Member(EASE(), copies=1001), r"at most 1,000 copies; got 1,001"),
    ],
)
def test_what_is_no_member_is_refused(member: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=said):
        Ensemble({"one": member()})


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"members": {}}, r"members must name at least one"),
        ({"members": {"a/b": Member(EASE())}}, r"letters, digits, - and _; got \['a/b'\]"),
        ({"weights": {"b": 1.0}}, r"weights are \{'b': 1.0\}\. Give each of \['a'\] at least 0"),
        ({"weights": {"a": -1.0}}, r"at least 0"),
        ({"weights": {"a": None}}, r"weights are \{'a': None\}\. Give each"),
        ({"weights": {"a": 0.0}}, r"one above 0"),
        ({"members": {"a": {"methods": None}}}, r"got \['methods'\]"),
        ({"members": {"a": {"run": "runs/x"}}}, r"names a run\. Only Member\(run=FOLDER\) opens one"),
        ({"members": {"a": EASE()}}, r"A member is of type EASE\. Write Member"),
        ({"members": [Member(EASE())]}, r"members is of type list\. Name each"),
        ({"members": {"a": {"method": {"class_path": "os.PathLike"}}}}, r"'os.PathLike' is no known method"),
        ({"members": {"a": {"method": {"class_path": "antigravity.X"}}}}, r"import it first"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        Ensemble(**{"members": {"a": Member(EASE())}} | settings)


@pytest.mark.slow
def test_members_that_read_releases_share_one(tmp_path: Path) -> None:
    """The record of the run lists each release once, however many read it."""
    parts = {"PriCDR": Member(PriCDR(dims=(8, 4)), copies=2, max_epochs=1), "UserKNN": Member(UserKNN())}
    found = trained(Ensemble(parts), tmp_path, publisher=zoo.NoisyRows(epsilon=8.0))
    assert list(json.loads((found.folder / "privacy.json").read_text())) == ["book"]


def test_rows_are_standardised_by_themselves() -> None:
    scores = np.random.default_rng(0).normal(3.0, 5.0, (4, 9)) * np.array([[1.0], [100.0], [1e-3], [1.0]])
    assert np.allclose(standardised(torch.tensor(scores)).numpy(), zscore(scores, axis=1), atol=1e-6)


@pytest.mark.parametrize("level", [0.0, 0.1, 1e6])
def test_a_level_row_says_nothing(level: float) -> None:
    found = standardised(torch.stack([torch.full((7,), level), torch.arange(7.0)]))
    assert torch.equal(found[0], torch.zeros(7))
    assert found[1].std(correction=0) == pytest.approx(1.0)


def test_each_round_adds_what_is_best_then() -> None:
    """Against the selection written out with counts alone, for a value that is not that of any candidate alone."""
    goal = np.array([0.25, 0.0, 0.6, 0.15])

    def value(weights: Tensor) -> float:
        return -float(np.square(weights.double().numpy() - goal).sum())

    found, worth = greedy_weights(4, value, 12)
    counts, best = np.zeros(4), (-np.inf, np.zeros(4))
    for number in range(1, 13):
        sums = [counts + one for one in np.eye(4)]
        counts = max(sums, key=lambda some: -np.square(some / number - goal).sum())  # of equal ones the first
        now = -np.square(counts / number - goal).sum()
        best = max(best, (now, counts / number), key=lambda some: some[0])
    assert np.allclose(found.numpy(), best[1], atol=1e-6)
    assert worth == pytest.approx(best[0], abs=1e-6)
    assert float(found.sum()) == pytest.approx(1.0)
    assert worth > max(value(one) for one in torch.eye(4))


def test_of_equal_candidates_the_first_is_taken_and_of_equal_rounds_the_earliest() -> None:
    found, worth = greedy_weights(3, lambda weights: 1.0 if weights[0] < 1 else 0.5, 4)
    assert found.tolist() == [0.0, 1.0, 0.0]
    assert worth == 1.0


def test_more_rounds_are_never_worth_less() -> None:
    rng = np.random.default_rng(1)
    worths = {tuple(parts): rng.random() for parts in product(range(9), repeat=2)}

    def value(weights: Tensor) -> float:
        return worths[int(8 * weights[0]), int(8 * weights[1])]

    found = [greedy_weights(2, value, rounds)[1] for rounds in range(1, 9)]
    assert found == sorted(found)
