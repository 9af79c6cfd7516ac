"""Compare alternatives to a bridge at one privacy budget, on Amazon Books <- Movies, cold start (docs/methods/bridge.md).

``python benchmarks/bridge_alternatives.py [SPLITS [DRAWS]]`` prints mean HR@10 among 1 + 99 over splits and draws of noise, with
the best gain and penalty on validation. Releases protect one user of Movies at delta 1e-5, unless a row says otherwise.
"""

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from datamodules import Amazon, Evaluation, Filters
from datamodules.public_lists import write_users
from zoo.data.directions import directions_of
from zoo.data.held_out_cases import HeldOutCases
from zoo.data.ratings import index_of
from zoo.privacy.accounting.gaussian import gauss_mu
from zoo.privacy.mechanisms.bridge import Bridge, chosen_items
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.bounds import clip_rows

Floats = npt.NDArray[np.float64]

EPSILONS, DELTA = (2.0, 8.0), 1e-5
GAINS = np.geomspace(0.003, 300, 26)
PENALTIES = np.geomspace(1.0, 1000.0, 7)


class Task(NamedTuple):
    """One split, with all users in both domains."""

    train: csr_array  # of the target, (users, items)
    source: csr_array  # of the same users, (users, items of the source)
    validation: HeldOutCases
    test: HeldOutCases
    user_ids: npt.NDArray[np.str_]


class Scores(NamedTuple):
    """A mean row, plus the decoded user embedding times a gain."""

    mean: Floats
    embeddings: Floats  # (users, directions)
    decoder: Floats  # (directions, items)


class Released(NamedTuple):
    """A release of the source, with the rows that it maps."""

    mean: Floats
    decoder: Floats
    rows: Floats  # of the users at the source, centred by the noisy counts, (users, kept items)
    map: Floats  # mapping matrix, (kept items, directions)
    gram: Floats  # of those rows, (kept items, kept items)
    noise_std: float  # of the mapping matrix

    def scores(self, matrix: Floats) -> Scores:
        """Return the scores by a mapping matrix."""
        return Scores(self.mean, self.rows @ matrix, self.decoder)


def data_of(seed: int, folder: Path) -> Amazon:
    """Return the data of configs/bridge/cold_start.yaml, with the list of common users in a folder."""
    data = Amazon(
        name="amazon-books-movies-dense", target="books", sources=["movies"], users="common", filters=Filters(threshold=3),
        evaluation=Evaluation(split="cold_start"), seed=seed,
    )  # fmt: skip
    data.users = str(write_users(data.common_users(), folder / "users.csv"))
    return data


def read(seed: int) -> Task:
    """Return the task of configs/bridge/cold_start.yaml."""
    with tempfile.TemporaryDirectory() as folder:
        data = data_of(seed, Path(folder))
        data.read_target()
        source = data.source("movies")
    rows = index_of(source.user_ids, data.train.user_ids)
    return Task(data.train.matrix, csr_array(source.matrix[rows]), data.validation, data.test, data.train.user_ids)


def ranked_items(cases: HeldOutCases) -> npt.NDArray[np.int64]:
    """Return the held-out item of each case and its candidates, (cases, 1 + candidates)."""
    return np.column_stack([cases.items.numpy(), cases.candidates.numpy()])


def hits_of(by: Scores, gain: float, users: Floats, items: npt.NDArray[np.int64]) -> Floats:
    """Return whether each case (cases,) is among the best ten; ties count half."""
    scores = by.mean[items] + np.einsum("ud,ucd->uc", gain * by.embeddings[users], by.decoder.T[items])
    scores[items < 0] = -np.inf
    better, same = (scores[:, 1:] > scores[:, :1]).sum(1), (scores[:, 1:] == scores[:, :1]).sum(1)
    return (better + same / 2 < 10).astype(np.float64)


def hit_rate(by: Scores, cases: HeldOutCases, gain: float) -> float:
    """Return HR@10."""
    return float(hits_of(by, gain, cases.users.numpy(), ranked_items(cases)).mean())


def test_hit_rate(task: Task, found: Iterable[Scores]) -> float:
    """Return HR@10 on the test of the best scores and gain on validation; the first of equally good ones."""
    best, gain = max(product(found, GAINS), key=lambda pair: hit_rate(pair[0], task.validation, pair[1]))
    return hit_rate(best, task.test, gain)


def user_embeddings(task: Task, count: int, weight: float) -> tuple[Floats, Floats, Floats]:
    """Return mean, decoder and user embeddings of length 1 in the target's directions, with weight j ^ -weight of the j-th."""
    made = directions_of(task.train, count, 0.5)
    if not weight:
        return made.mean, made.decoder, made.projections
    scaled = made.projections * np.arange(1, count + 1) ** -weight
    scaled /= np.maximum(np.linalg.norm(scaled, axis=1, keepdims=True), 1e-12)
    rows = clip_rows(task.train, 1.0)
    has = np.diff(task.train.indptr) > 0
    fitted = np.linalg.pinv(scaled[has]) @ (rows[np.flatnonzero(has)] - made.mean)
    return made.mean, np.asarray(fitted), scaled


def released(
    task: Task, epsilon: float, noise: NoiseSource, *, directions: int = 6, weight: float = 0.0, of_gram: float = 0.0
) -> Released:
    """Return a bridge with a Gram matrix of the source's unit rows (sensitivity 1).

    ``of_gram`` is the Gram matrix's share of the squared mu; with 0 it is exact, without guarantee.
    """
    mu = gauss_mu(epsilon, DELTA)
    plan = Bridge.calibrate(epsilon=epsilon, delta=DELTA, kept_items=400)
    plan = replace(plan, noise_multiplier=plan.noise_multiplier / np.sqrt(1 - of_gram))
    mean, decoder, projections = user_embeddings(task, directions, weight)
    counts, items, rows = chosen_items(task.source, plan, noise)
    summed = np.asarray(rows.T @ projections) + plan.noise_std * noise.normal((len(items), directions))
    centre = np.maximum(counts[items], 0) / task.source.shape[0]
    gram = np.asarray((rows.T @ rows).todense(), dtype=np.float64)
    if of_gram:
        drawn = np.triu(noise.normal(gram.shape)) / (mu * np.sqrt(of_gram))
        gram += drawn + np.triu(drawn, 1).T
    gram -= task.source.shape[0] * np.outer(centre, centre)
    return Released(mean, decoder, np.asarray(rows.todense()) - centre, summed, gram, plan.noise_std)


def ridge(release: Released) -> Iterator[Scores]:
    """Yield scores of a ridge regression of embeddings on rows, by the Gram matrix without negative eigenvalues, per penalty."""
    values, vectors = np.linalg.eigh(release.gram)
    for penalty in PENALTIES:
        yield release.scores((vectors * penalty / (np.maximum(values, 0.0) + penalty)) @ (vectors.T @ release.map))


def plain(release: Released) -> Iterator[Scores]:
    """Yield the scores by the released mapping matrix."""
    yield release.scores(release.map)


def by_signal(release: Released) -> Iterator[Scores]:
    """Yield scores with each direction weighted by its signal in the release."""
    power = (release.map**2).mean(axis=0)
    yield release.scores(release.map * np.maximum(1 - release.noise_std**2 / power, 0.0))


def main() -> None:
    """Print the table."""
    warnings.filterwarnings("ignore")
    splits, draws = (int(word) for word in (*sys.argv[1:], "5", "4")[:2])
    tasks = [read(seed) for seed in range(splits)]

    def row(words: str, reader: Callable[[Released], Iterator[Scores]], **settings: Any) -> None:  # noqa: ANN401
        found = []
        for epsilon in EPSILONS:
            runs = (
                (task, released(task, epsilon, NoiseSource.of(draw), **settings))
                for task in tasks
                for draw in range(draws)
            )
            found.append(np.mean([test_hit_rate(task, reader(release)) for task, release in runs]))
        print(f"| {words} | {' | '.join(f'{figure:.4f}'.lstrip('0') for figure in found)} |", flush=True)

    row("as shipped, with the best gain", plain)
    for share in (0.2, 0.4):
        row(f"Ridge by a private Gram matrix, {share:g} of the squared mu", ridge, of_gram=share)
    row("Ridge by the exact Gram matrix: no guarantee", ridge)
    for weight in (0.25, 0.5, 1.0):
        row(f"more weight of leading directions: j ^ -{weight:g}", plain, weight=weight)
    for count in (12, 16):
        row(f"{count} directions", plain, directions=count)
        row(f"{count} directions, each weighted by its signal", by_signal, directions=count)


if __name__ == "__main__":
    main()
