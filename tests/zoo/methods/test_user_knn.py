"""UserKNN against sums written out over dense matrices, and on planted transfers."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.sparse import csr_array

from tests.zoo.methods.quiet_trainer import cold_hit_rate
from zoo import JLT, Nothing, Partial, Plaintext, Publisher, Ratings, UserKNN
from zoo.release.release import Release

Floats = npt.NDArray[np.float64]


def ratings(matrix: Floats, users: list[str]) -> Ratings:
    items = np.array([f"i{item}" for item in range(matrix.shape[1])])
    return Ratings(csr_array(matrix.astype(np.float32)), np.array(users), items)


def fitted(train: Ratings, releases: dict[str, Release], **settings: Any) -> UserKNN:  # noqa: ANN401
    """The method with its data read, without a trainer."""
    where = {name: {user: row for row, user in enumerate(r.user_ids.tolist())} for name, r in releases.items()}
    users = train.user_ids.tolist()
    links = {name: torch.tensor([rows.get(user, -1) for user in users]) for name, rows in where.items()}
    method = UserKNN(**settings)
    asked = {"ks": (10,), "ties": "expected", "average": "cases", "full_ranking": True, "sampled_ranking": True}
    method.read_data(SimpleNamespace(train=train, releases=releases, links=links, **asked))  # type: ignore[arg-type]
    return method


def cosines(rows: Floats) -> Floats:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    units = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 1e-9)
    return np.asarray(units @ units.T)


def slow_scores(
    train: Ratings,
    releases: dict[str, Release],
    source_weight: float,
    popularity_weight: float,
    centre: bool = True,
    num_neighbours: int | None = None,
    similarity_power: float = 1.0,
    popularity_damping: float = 0.0,
) -> Floats:
    """The sum of the docstring, user by user and neighbour by neighbour."""
    target = train.matrix.toarray().astype(float)
    powered = lambda c: np.sign(c) * np.abs(c) ** similarity_power  # noqa: E731
    kernel = powered(cosines(target))
    for release in releases.values():
        rows = release.rows(torch.arange(release.num_users)).numpy().astype(float)
        known = (rows != 0).any(axis=1)
        mean = rows[known].mean(axis=0) if centre and known.any() else 0
        own = np.zeros((train.num_users, release.width))
        for row, user in enumerate(release.user_ids.tolist()):
            if user in train.user_ids and known[row]:
                own[train.user_ids.tolist().index(user)] = rows[row] - mean
        kernel += source_weight * powered(cosines(own))
    scores = np.tile(popularity_weight * target.sum(axis=0), (len(target), 1))
    for u in range(len(target)):
        others = sorted((v for v in range(len(target)) if v != u), key=lambda v: -kernel[u, v])
        for v in others[:num_neighbours]:
            scores[u] += kernel[u, v] * target[v] / np.maximum(target.sum(axis=0), 1) ** popularity_damping
    return scores


@pytest.fixture(scope="module")
def parties() -> tuple[Ratings, Ratings]:
    """Target and source of partly other users; some have no target row, some an empty source row."""
    rng = np.random.default_rng(0)
    target = (rng.random((23, 11)) < 0.4).astype(float)
    target[[3, 19]] = 0
    source = (rng.random((20, 9)) < 0.4).astype(float)
    source[[1, 8]] = 0
    return (ratings(target, [f"u{u}" for u in range(23)]), ratings(source, [f"u{u}" for u in reversed(range(-4, 16))]))


def published(source: Ratings, *publishers: Publisher) -> dict[str, Release]:
    return {f"book{at}": publisher.publish(source, f"book{at}") for at, publisher in enumerate(publishers)}


NOISY = JLT(epsilon=20, num_components=5, noise_seed=3)


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize(
    "publishers",
    [[], [Nothing()], [Plaintext()], [NOISY], [Plaintext(), NOISY]],
    ids=["alone", "nothing", "sparse", "dense", "both"],
)
def test_scores_are_the_sums_that_the_docstring_says(
    parties: tuple[Ratings, Ratings], publishers: list[Publisher], centre: bool
) -> None:
    target, source = parties
    releases = published(source, *publishers)
    weights: dict[str, Any] = {"source_weight": 0.7, "popularity_weight": 0.01, "centre": centre}
    method = fitted(target, releases, **weights)
    users = torch.tensor([5, 0, 22, 3, 19, 5, 14])
    scores = method.score_all(users)
    assert np.allclose(scores.numpy(), slow_scores(target, releases, **weights)[users], atol=1e-5)
    items = torch.tensor([[0, 10, 3]] * len(users))
    assert torch.equal(method.score(users, items), scores.gather(1, items))


@pytest.mark.parametrize("publishers", [[], [Plaintext(), NOISY]], ids=["alone", "both"])
def test_near_neighbours_count_for_more_and_popular_items_for_less(
    parties: tuple[Ratings, Ratings], publishers: list[Publisher]
) -> None:
    target, source = parties
    releases = published(source, *publishers)
    weights: dict[str, Any] = {"source_weight": 0.7, "popularity_weight": 0.01}
    weights |= {"similarity_power": 2.0, "popularity_damping": 0.25}
    scores = fitted(target, releases, **weights).score_all(torch.arange(23))
    assert np.allclose(scores.numpy(), slow_scores(target, releases, **weights), atol=1e-5)


@pytest.mark.parametrize("count", [1, 4, 22, 500])
def test_only_the_nearest_count(parties: tuple[Ratings, Ratings], count: int) -> None:
    """Noisy rows and people who all have one: no two neighbours are equally near."""
    target, source = parties[0], parties[1]
    everybody = ratings(source.matrix.toarray()[np.arange(23) % 20], target.user_ids.tolist())
    releases = published(everybody, NOISY)
    settings: dict[str, Any] = {"source_weight": 0.5, "popularity_weight": 0.0, "num_neighbours": count}
    scores = fitted(target, releases, **settings).score_all(torch.arange(23))
    assert np.allclose(scores.numpy(), slow_scores(target, releases, **settings), atol=1e-5)


def test_neighbours_as_near_as_the_last_count_too() -> None:
    target = ratings(np.array([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1]]), list("abcd"))
    scores = fitted(target, {}, num_neighbours=1, popularity_weight=0).score_all(torch.tensor([0]))
    assert scores[0].tolist() == pytest.approx([2**0.5, 0.5**0.5, 0.5**0.5, 0])


@pytest.mark.parametrize("publisher", [Plaintext(), NOISY], ids=["sparse", "dense"])
def test_chunks_do_not_change_scores(
    parties: tuple[Ratings, Ratings], publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    releases = published(parties[1], publisher)
    users = torch.arange(23).flip(0)
    whole = fitted(parties[0], releases, num_neighbours=6).score_all(users)
    for size in (1, 5, 22):
        assert torch.allclose(fitted(parties[0], releases, num_neighbours=6, chunk_size=size).score_all(users), whole)
    monkeypatch.setattr("zoo.methods.user_knn.MOST_NUMBERS", 100)
    bounded = fitted(parties[0], releases, num_neighbours=6, chunk_size=10**9)
    assert bounded._at_once * max(23, *(release.width for release in releases.values()), parties[0].num_items) <= 100
    assert torch.allclose(bounded.score_all(users), whole)


def test_a_release_of_nobody_is_the_target_alone(parties: tuple[Ratings, Ratings]) -> None:
    users = torch.arange(23)
    alone = fitted(parties[0], {}).score_all(users)
    for kind in ("rows", "ratings"):
        assert torch.equal(fitted(parties[0], published(parties[1], Nothing(kind))).score_all(users), alone)


def test_scale_and_shift_of_a_release_are_of_no_account(parties: tuple[Ratings, Ratings]) -> None:
    """Real values, negative ones too; a shift that all rows share is taken off."""
    release = NOISY.publish(parties[1], "book")
    rows = 100 * release.tensors["rows"] - 3
    moved = Release("rows", "book", {"rows": rows}, release.user_ids, release.record, release.ledger)
    users = torch.arange(23)
    assert torch.allclose(
        fitted(parties[0], {"book": moved}).score_all(users),
        fitted(parties[0], {"book": release}).score_all(users),
        atol=1e-4,
    )


def test_somebody_of_whom_the_source_knows_nothing_is_nobodys_neighbour() -> None:
    """Two empty rows are not alike; without target history nothing is left but the item counts."""
    target = ratings(np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0]]), list("abc"))
    source = ratings(np.array([[1, 0], [0, 0], [0, 0], [0, 1]]), ["a", "b", "c", "d"])
    method = fitted(target, published(source, Plaintext()), popularity_weight=0.5)
    assert method.kernel(torch.tensor([2])).flatten().tolist() == [0, 0, 0]
    assert method.score_all(torch.tensor([2])).tolist() == [[0.5, 1.0, 0.5]]


@pytest.mark.slow
def test_a_planted_transfer_is_found_for_cold_users(tmp_path: Path) -> None:
    """80 cold test users, three seeds: the margins are some three standard errors of the difference; seeds are fixed."""
    linked, half, unlinked = (
        sum(cold_hit_rate(UserKNN, made, tmp_path, 1, seed, link=link, missing_users="zero") for seed in range(3)) / 3
        for made, link in ((Plaintext(), 0.9), (Partial(Plaintext(), 0.5), 0.9), (Plaintext(), 0.0))
    )
    assert linked > unlinked + 0.1
    assert linked > half > unlinked
