"""Ridge against normal equations and refits written out, and on planted transfers."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from datamodules import Evaluation, Synthetic
from tests.zoo.methods.quiet_trainer import quiet, released
from zoo import JLT, FlippedRows, Nothing, Partial, Plaintext, Publisher, Ridge
from zoo.nn.ridge import PENALTIES

pytestmark = pytest.mark.thorough

Floats = npt.NDArray[np.float64]
#: More and fewer columns than users who have both rows.
WIDE, NARROW = Plaintext(), JLT(epsilon=20, num_components=7, noise_seed=3)


def solved(folder: Path, publisher: Publisher, settings: dict[str, Any] | None = None, **arguments: Any) -> Ridge:  # noqa: ANN401
    """The method after its one step on small synthetic data."""
    sizes: dict[str, Any] = {
        "num_users": 40, "num_items": 60, "ratings_per_user": 8, "seed": 1, "missing_users": "zero"
    } | (settings or {})  # fmt: skip
    trainer = quiet(max_epochs=1)
    method = Ridge(**arguments)
    trainer.fit(method, datamodule=released(folder, {"book": publisher}, **sizes))
    trainer.test(method, verbose=False, datamodule=trainer.datamodule)  # type: ignore[attr-defined]
    return method.eval()


def both(method: Ridge, unit_rows: bool = True) -> tuple[Floats, npt.NDArray[np.bool_], Floats]:
    """Release rows of all target users, who has one, and target rows."""
    rows, present = method.source_rows("book", torch.arange(40))
    target = method.data.train.matrix.toarray().astype(float)
    lengths = np.linalg.norm(target, axis=1, keepdims=True) if unit_rows else 1
    return rows.double().numpy(), present.numpy(), target / np.maximum(lengths, 1e-12)


def normal_equations(rows: Floats, target: Floats, penalty: float, asked: Floats) -> Floats:
    """Ridge regression with an intercept, as textbooks have it."""
    centred, mean = rows - rows.mean(axis=0), target.mean(axis=0)
    weight = penalty * (centred**2).sum() / len(rows)
    map_ = np.linalg.solve(centred.T @ centred + weight * np.eye(rows.shape[1]), centred.T @ (target - mean))
    return (asked - rows.mean(axis=0)) @ map_ + mean


@pytest.mark.parametrize("unit_rows", [True, False])
@pytest.mark.parametrize("publisher", [WIDE, NARROW], ids=["wide", "narrow"])
def test_scores_are_those_of_the_normal_equations(publisher: Publisher, unit_rows: bool, tmp_path: Path) -> None:
    method = solved(tmp_path, Partial(publisher, 0.7), penalty=0.5, unit_rows=unit_rows, chunk_size=11)
    rows, present, target = both(method, unit_rows)
    assert 20 < present.sum() < 40
    users = np.flatnonzero(present)
    expected = normal_equations(rows[users], target[users], 0.5, rows)
    expected[~present] = target[users].mean(axis=0)
    assert np.allclose(method.score_all(torch.arange(40)).detach().numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("publisher", [WIDE, NARROW], ids=["wide", "narrow"])
def test_the_penalty_is_that_of_the_least_error_on_users_left_out(publisher: Publisher, tmp_path: Path) -> None:
    """Every user left out in turn and the rest fitted anew, with the scale and the centre of all."""
    method = solved(tmp_path, publisher)
    rows, _, target = both(method)
    scale = ((rows - rows.mean(axis=0)) ** 2).sum() / len(rows)
    errors = []
    for penalty in PENALTIES:
        error = 0.0
        for left_out in range(len(rows)):
            others = np.arange(len(rows)) != left_out
            own = ((rows[others] - rows[others].mean(axis=0)) ** 2).sum() / others.sum()
            refit = normal_equations(rows[others], target[others], penalty * scale / own, rows[left_out])
            error += float(((refit - target[left_out]) ** 2).sum())
        errors.append(error)
    assert float(method.chosen_penalty) == pytest.approx(PENALTIES[int(np.argmin(errors))])


def test_without_a_release_everybody_has_the_same_say(tmp_path: Path) -> None:
    method = solved(tmp_path, Nothing())
    target = both(method)[2]
    scores = method.score_all(torch.arange(40)).numpy()
    assert np.allclose(scores, target.mean(axis=0), atol=1e-6)
    assert method.chosen_penalty == 0


def test_releases_stand_side_by_side(tmp_path: Path) -> None:
    """Two sources: the map reads both, each column with its own weight."""
    sizes: dict[str, Any] = {"num_users": 30, "num_items": 20, "ratings_per_user": 6, "seed": 2}
    made = {n: Synthetic(**sizes, sources=["book", "film"]).source(n) for n in ("book", "film")}
    paths = {n: NARROW.publish(source, n).save(tmp_path / n) for n, source in made.items()}
    trainer = quiet(max_epochs=1)
    method = Ridge(penalty=1.0)
    trainer.fit(method, datamodule=Synthetic(**sizes, sources=["book", "film"], releases=paths))
    users = torch.arange(30)
    rows = torch.cat([method.source_rows(name, users)[0] for name in ("book", "film")], dim=1).double().numpy()
    target = method.data.train.matrix.toarray().astype(float)
    target /= np.linalg.norm(target, axis=1, keepdims=True)
    expected = normal_equations(rows, target, 1.0, rows)
    assert np.allclose(method.score_all(users).numpy(), expected, atol=2e-5)


def cold_hit_rate(link: float, publisher: Publisher, folder: Path) -> float:
    settings: dict[str, Any] = {"link": link, "evaluation": Evaluation(split="cold_start"), "num_users": 400}
    method = solved(folder / f"{type(publisher).__name__}-{link}", publisher, settings)
    return float(method.trainer.callback_metrics["test/full/hit_rate@10"])


def test_a_planted_transfer_is_found_for_cold_users_and_most_of_it_through_flips(tmp_path: Path) -> None:
    """80 cold test users: the margins are some three standard errors of the difference; seeds are fixed."""
    linked, unlinked = (cold_hit_rate(link, Plaintext(), tmp_path) for link in (0.9, 0.0))
    private = cold_hit_rate(0.9, FlippedRows(epsilon=6, noise_seed=1), tmp_path)
    assert linked > unlinked + 0.15
    assert private > unlinked + 0.1


def test_noise_wants_a_larger_penalty(tmp_path: Path) -> None:
    publishers = (JLT(epsilon=epsilon, num_components=20, noise_seed=1) for epsilon in (0.5, 500.0))
    noisy, clear = (solved(tmp_path / str(n), publisher) for n, publisher in enumerate(publishers))
    assert float(noisy.chosen_penalty) > float(clear.chosen_penalty)


def test_what_would_not_fit_into_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"max_size is 30; Ridge needs min\(40 users, \d+ columns\)"):
        solved(tmp_path, WIDE, max_size=30)
    monkeypatch.setattr("zoo.release.layouts.MOST_ENTRIES", 60 * 40)
    monkeypatch.setattr("zoo.methods.base.check_width", lambda *_: None)  # for 100 units
    with pytest.raises(ValueError, match=r"The release of 'book' has 60 columns: .* for 60 units\. Allowed: 40\."):
        solved(tmp_path / "second", WIDE)
