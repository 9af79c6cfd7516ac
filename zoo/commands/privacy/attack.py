"""Attack the vectors of an `EmbeddingPublisher` and the updates of its federated clients, and measure the success."""

import csv
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich import box
from rich.markup import escape
from rich.table import Table
from scipy.sparse import csr_array

from datamodules import CrossDomainDataModule
from datamodules.public_lists import COMMON, write_users
from zoo.commands.privacy.attacks.inverse import perceptron_inverse, ridge_inverse
from zoo.commands.privacy.attacks.reconstruction import Adversary, Learner, popularity_guess, recovered
from zoo.commands.privacy.attacks.updates import guessed_right, rows_moved_alike, rows_named
from zoo.commands.privacy.plan import read_settings
from zoo.data.ratings import Ratings
from zoo.privacy.mechanisms.vectors import Floats, UserVectors, clip_vectors, noisy_vectors
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.record.record import rounded_up
from zoo.publishers.base import PublicSizes
from zoo.publishers.embeddings import EmbeddingPublisher
from zoo.runs.inputs import instantiate, make_publisher
from zoo.runtime.run_folder import atomic_write, visible

#: Caption of every table.
MEASURED = (
    "Measured attacks on one source: no guarantee and no bound, since a better attack may succeed. Epsilon: one user's own vectors "
    "in this release alone. shuffled: the same attack with shuffled users. popularity: an attack without a release."
)
#: Number of clients in an attacked round.
CLIENTS = 256
#: Columns of a finding.
COLUMNS = ("release", "epsilon", "attack", "control", "figure", "value")


@dataclass(frozen=True)
class Attack:
    """Source, publisher and settings of an attack."""

    publisher: EmbeddingPublisher
    ratings: Ratings
    source: str
    epsilons: tuple[float, ...]
    known: float  # share of users whose vectors and items the attacker knows
    seeds: int

    @classmethod
    def read(
        cls,
        config: Path,
        overrides: Sequence[str],
        source: str | None,
        epsilons: Sequence[float] | None,
        known: float,
        seeds: int,
    ) -> "Attack":
        """Read an experiment and the ratings of its source; refuse a publisher without vectors."""
        if seeds < 1:
            raise ValueError(f"--seeds is {seeds}. It must be at least 1.")
        settings = read_settings(config, overrides)
        publisher = make_publisher(settings.get("publisher"))
        if not isinstance(publisher, EmbeddingPublisher):
            raise TypeError(
                f"{type(publisher).__name__} releases no vectors. Set the publisher to an EmbeddingPublisher, or use privacy audit."
            )
        data = instantiate("data", CrossDomainDataModule, settings.data)
        if source is None and len(data.sources) != 1:
            raise ValueError(f"The experiment has the sources {list(data.sources)}. Choose one: --source NAME.")
        name = source or data.sources[0]
        attack = cls(publisher, _ratings(data, name), name, tuple(epsilons or ()), known, seeds)
        if epsilons is None and publisher.epsilon is not None:
            alone = attack.plan(publisher.epsilon, publisher.num_releases).epsilon
            attack = replace(attack, epsilons=(alone,))
        for epsilon in attack.epsilons:
            attack.plan(epsilon)  # refuse bad values before training
        return attack

    def plan(self, epsilon: float, num_releases: int = 1) -> UserVectors:
        """Return the mechanism of the publisher for an epsilon, for one release or several."""
        publisher: Any = self.publisher
        shape: tuple[int, int] = publisher.network.vector_shape
        return UserVectors.calibrate(
            epsilon=epsilon,
            delta=PublicSizes.of(self.ratings).delta(publisher.delta, publisher.relation),
            clip=publisher.clip,
            num_layers=shape[0],
            num_releases=num_releases,
            relation=publisher.relation,
        )

    def findings(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each seed and metric: release, epsilon, attack, control, figure, value."""
        matrix = self.ratings.matrix
        items = csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)
        for seed in range(self.seeds):
            self.publisher.seed = seed
            network, vectors = self.publisher.learn(self.ratings, self.source)
            adversary = Adversary.who_knows(self.known, items, seed)
            yield from self._of_vectors(vectors.double().numpy(), items, adversary, seed)
            auc, precision = popularity_guess(items, adversary)
            yield from _rows("nothing", None, "popularity", "", {"auc": auc, "precision": precision})
            # The server of private rounds sees only sums, or is trusted.
            if hasattr(network, "play") and getattr(network, "privacy", None) is None:
                yield from _of_updates(network, items, seed)

    def _of_vectors(
        self, vectors: Floats, items: csr_array, adversary: Adversary, seed: int
    ) -> Iterator[dict[str, Any]]:
        clean = vectors.reshape(len(vectors), -1)
        others = np.random.default_rng(seed).permutation(len(clean))
        learners: dict[str, Learner] = {"ridge": ridge_inverse, "perceptron": partial(perceptron_inverse, seed=seed)}
        for name, epsilon, released in self._released(vectors, seed):
            rows = released.reshape(len(released), -1)
            for attack, learn in learners.items():
                for control, seen in (("", rows), ("shuffled", rows[others])):
                    found = recovered(learn, seen, clean, items, adversary)
                    yield from _rows(name, epsilon, attack, control, found._asdict())

    def _released(self, vectors: Floats, seed: int) -> Iterator[tuple[str, float | None, Floats]]:
        """Yield the vectors of all users: plain, clipped, and with the noise of each epsilon."""
        yield "plain", None, vectors
        if self.publisher.clip is not None:
            yield "clipped", None, clip_vectors(vectors, self.publisher.clip)
        for epsilon in self.epsilons:
            noisy = noisy_vectors(vectors, self.plan(epsilon), NoiseSource.seeded(seed))
            yield "noisy", epsilon, noisy.astype(np.float64)


def _ratings(data: CrossDomainDataModule, name: str) -> Ratings:
    if data.users != COMMON:
        return data.source(name)
    with tempfile.TemporaryDirectory(prefix="zoo-") as scratch:
        data.users = str(write_users(data.common_users(), Path(scratch) / "users.csv"))
        data.users_from_ratings = True
        return data.source(name)


def _of_updates(network: Any, items: csr_array, seed: int) -> Iterator[dict[str, Any]]:  # noqa: ANN401  plays rounds
    """Yield the success of a server with one more round of all clients after training."""
    precisions: dict[str, list[torch.Tensor]] = {"rows named": [], "rows that move alike": []}
    recalls: dict[str, list[torch.Tensor]] = {name: [] for name in precisions}
    keys = np.repeat(np.arange(items.shape[0]), np.diff(items.indptr)) * items.shape[1] + items.indices
    clients = torch.from_numpy(np.flatnonzero(np.diff(items.indptr)))
    with torch.random.fork_rng(devices=()):
        torch.manual_seed(seed)
        for users in torch.split(clients, CLIENTS):
            updates, _, _ = network.play(users)
            named = (users[updates.clients] * items.shape[1] + updates.rows).numpy()
            owned = torch.from_numpy(np.isin(named, keys))
            for name, guess in (("rows named", rows_named), ("rows that move alike", rows_moved_alike)):
                precision, recall = guessed_right(guess(updates), updates, owned)
                precisions[name].append(precision)
                recalls[name].append(recall)
    for name, found in precisions.items():
        figures = {"precision": float(torch.cat(found).mean()), "recall": float(torch.cat(recalls[name]).mean())}
        yield from _rows("update", None, name, "", figures)


def _rows(
    release: str, epsilon: float | None, attack: str, control: str, figures: dict[str, float]
) -> Iterator[dict[str, Any]]:
    for figure, value in figures.items():
        yield dict(zip(COLUMNS, (release, epsilon, attack, control, figure, value), strict=True))


def summary(findings: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return mean and standard deviation over seeds of each metric; the deviation of a single seed is None."""
    grouped: dict[tuple[Any, ...], list[float]] = {}
    for row in findings:
        grouped.setdefault(tuple(row[name] for name in COLUMNS[:-1]), []).append(row["value"])
    deviations = {key: float(np.std(values, ddof=1)) if len(values) > 1 else None for key, values in grouped.items()}
    return [
        dict(zip(COLUMNS, key)) | {"mean": float(np.mean(values)), "sd": deviations[key], "seeds": len(values)}  # noqa: B905
        for key, values in grouped.items()
    ]


def write_attacks(rows: Sequence[dict[str, Any]], attack: Attack, path: Path) -> None:
    """Write a CSV file with a line per metric, atomically, to an existing folder."""
    known = {"source": attack.source, "network": type(attack.publisher.network).__name__, "known": attack.known}
    with atomic_write(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*known, *rows[0]], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            rounded = {name: f"{row[name]:.6f}" for name in ("mean", "sd") if row[name] is not None}
            writer.writerow(known | row | rounded)


def attack_table(rows: Sequence[dict[str, Any]], attack: Attack) -> Table:
    """Return the mean metrics of every attack as a table, each followed by its control."""
    figures = ("leakage", "explained", "auc", "precision", "recall")
    network = type(attack.publisher.network).__name__
    title = f"Attacks on {attack.source}, {network}: {attack.known:.0%} of its users known, seeds: {attack.seeds}"
    table = Table(title=escape(visible(title)), box=box.SIMPLE)
    for column in ("what is seen", "attack"):
        table.add_column(column, overflow="fold")
    for column in figures:
        table.add_column(column, justify="right", no_wrap=True)
    lines: dict[tuple[Any, ...], dict[str, str]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("release", "epsilon", "attack", "control"))
        lines.setdefault(key, {})[row["figure"]] = f"{row['mean']:.3f}"
    for (release, epsilon, how, control), found in lines.items():
        seen = release if epsilon is None else f"epsilon {rounded_up(epsilon)}"
        shown = ("", f"  {control}") if control else (seen, how)
        table.add_row(*shown, *(found.get(figure, "-") for figure in figures))
    table.caption = MEASURED
    return table
