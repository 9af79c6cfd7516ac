"""Measures one-bit matrix completion under every perturbation; the figures of docs/results/one_bit.md are made from what it writes.

    python benchmarks/one_bit.py tune OUT       # settings that the paper does not give, on a part of the training ratings
    python benchmarks/one_bit.py measure OUT    # every cell; a cell that stands in an OUT/results*.csv is not run again

Noise is the operating system's, as in a run that protects somebody, so figures repeat up to their spread.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from one_bit_bias import bias_matrix

from datamodules import Evaluation, Filters, LowRank, MovieLens100K, Restaurant
from datamodules.base import CrossDomainDataModule
from zoo import Clear, GradientPerturbation, InputPerturbation, ObjectivePerturbation, OutputPerturbation, Perturbation
from zoo.methods.one_bit_mc.norm_balls import NuclearBall, truncated
from zoo.methods.one_bit_mc.objective import Observations
from zoo.methods.one_bit_mc.perturbation import Problem
from zoo.methods.one_bit_mc.solvers import run
from zoo.privacy.one_bit.link_functions import Link, Logistic, Probit
from zoo.privacy.randomness.noise import NoiseSource

Floats = npt.NDArray[np.float64]
Setting = dict[str, Any]

LINKS: dict[str, Link] = {"logistic": Logistic(), "probit": Probit()}
EPSILONS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
FILMS_EPSILONS = (1, 2, 3, 4, 6, 8, 10)
RATIOS = (0.2, 0.4, 0.6, 0.8)

#: Rows of the figures: a perturbation, and whether it is the published form. GraP as published holds.
MECHANISMS: dict[str, tuple[Callable[..., Perturbation], bool]] = {
    "InP": (InputPerturbation, False),
    "ObjP": (lambda epsilon, **s: ObjectivePerturbation(epsilon, inexact=True, **s), False),
    "ObjP, Gaussian": (lambda epsilon, **s: ObjectivePerturbation(epsilon, noise="gaussian", **s), False),
    "GraP, Gaussian": (GradientPerturbation, False),
    "GraP, Laplace": (lambda epsilon, **s: GradientPerturbation(epsilon, noise="laplace", **s), False),
    "OutP": (OutputPerturbation, False),
    "ObjP, published": (lambda epsilon, **s: ObjectivePerturbation(epsilon, paper_faithful=True, **s), True),
    "GraP, published": (
        lambda epsilon, **s: GradientPerturbation(epsilon, noise="laplace", step_size="spectral", dual=False, **s),
        True,
    ),
    "OutP, published": (lambda epsilon, **s: OutputPerturbation(epsilon, paper_faithful=True, **s), True),
}
#: What `tune` tries beside tau, by mechanism.
STEPS = (1, 2, 5, 10)
TRIED: dict[str, dict[str, tuple[Any, ...]]] = {
    "GraP, Gaussian": {"steps": STEPS},
    "GraP, Laplace": {"steps": STEPS},
    "GraP, published": {"steps": STEPS},
    "OutP": {"ridge": (0.2, 5.0), "steps": (5, 30)},
}
RADII = {
    "ml-100k": (50.0, 100.0, 200.0, 400.0, 600.0, 800.0, 1000.0, 1259.0),
    "rc": (2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 134.0),
}
RIDGES = (0.3, 1.0, 3.0, 10.0)
TUNED_AT = 4.0
FIELDS = (
    *("data", "observed", "link", "mechanism", "published", "epsilon", "draw", "figure", "value", "guarantee"),
    "seconds",
)


class Task(NamedTuple):
    """A problem and how well it is solved: `figure` of a completed matrix."""

    observations: Observations
    figure: str
    score: Callable[[Floats], float]


def task_of(data: CrossDomainDataModule, validation: bool = False) -> Task:
    """The training signs of a datamodule, and the figure on its test; or both on a part of the training signs."""
    data.read_target()
    train = data.train
    shape, cells = (train.num_users, train.num_items), train.pair_keys
    signs = train.matrix.data.astype(np.float64)
    if isinstance(data, LowRank):
        truth = data.truth.numpy()
        norm = float((truth**2).sum())
        return Task(
            Observations(shape, cells, signs),
            "average_relative_error",
            lambda x: float(((x - truth) ** 2).sum()) / norm,
        )
    test_cells = (data.test.users * train.num_items + data.test.items).numpy()
    test_signs = data.test.ratings.numpy()
    if validation:
        held = np.random.default_rng(0).random(len(cells)) < 0.1
        test_cells, test_signs, cells, signs = cells[held], signs[held], cells[~held], signs[~held]
    seen = Observations(shape, cells, signs)
    return Task(seen, "sign_accuracy", lambda x: float((x.ravel()[test_cells] * test_signs > 0).mean()))


@lru_cache(maxsize=2)
def task(name: str, draw: int, link: str, observed: float, validation: bool = False) -> Task:
    """A task by its name."""
    if name == "synthetic":
        return task_of(LowRank(observed=observed, link=link, data_seed=draw, seed=draw))  # type: ignore[arg-type]
    if name == "rc":
        return task_of(Restaurant(seed=draw), validation)
    films = MovieLens100K(filters=Filters(threshold=3.5, signs=True), evaluation=Evaluation(split="given"), seed=0)
    return task_of(films, validation)


def problem(seen: Observations, link: str, tau: float, alpha: float = 1.0, bounded: bool = False) -> Problem:
    """A problem with the paper's constraint; entries are not held to alpha unless a perturbation needs it."""
    return Problem(seen, LINKS[link], NuclearBall(tau), alpha, bounded)


def bounded(mechanism: str, link: str) -> bool:
    """Whether a mechanism needs entries that are held to alpha."""
    return mechanism == "OutP" and link == "probit"


def completed(perturbation: Perturbation, given: Problem) -> Floats:
    """The completed matrix."""
    noise = NoiseSource.os()
    perturbation.check(given.terms)
    solver = perturbation.solver(given, perturbation.draw(given, noise), noise)
    return perturbation.finish(run(solver, 500), given, noise)


# Tuning.


def choices(mechanism: str) -> Iterator[Setting]:
    """Every setting of a mechanism that is tried."""
    tried = TRIED.get(mechanism, {})
    for values in itertools.product(*tried.values()):
        yield dict(zip(tried, values, strict=True))


def allowed(mechanism: str, link: str) -> bool:
    """Whether a row exists: Gaussian noise on the objective is for the logistic link."""
    return not (mechanism == "ObjP, Gaussian" and link == "probit")


def tune(out: Path) -> None:
    """Write OUT/trials.csv: tau and what else is not in the paper, by sign accuracy on a tenth of the training signs."""
    trials: list[dict[str, Any]] = []
    for name, link in itertools.product(RADII, LINKS):
        seen = task(name, 0, link, 0.0, True)
        for ridge in RIDGES:
            score = seen.score(bias_matrix(seen.observations, LINKS[link], ridge))
            trials.append(trial(name, link, "bias", {"ridge": ridge}, score))
        for tau in RADII[name]:
            score = seen.score(completed(Clear(), problem(seen.observations, link, tau)))
            trials.append(trial(name, link, "Clear", {"tau": tau}, score))
        for mechanism, (make, _) in MECHANISMS.items():
            if not allowed(mechanism, link) or mechanism == "OutP, published":  # it is Clear's solution
                continue
            for setting, tau in itertools.product(choices(mechanism), RADII[name]):
                given = problem(seen.observations, link, tau, bounded=bounded(mechanism, link))
                draws = range(1 if name == "ml-100k" else 5)
                scores = [seen.score(completed(make(TUNED_AT, **setting), given)) for _ in draws]
                trials.append(trial(name, link, mechanism, {"tau": tau, **setting}, float(np.mean(scores))))
        write(out / "trials.csv", ("data", "link", "mechanism", "setting", "sign_accuracy"), trials)


def trial(name: str, link: str, mechanism: str, setting: Setting, score: float) -> dict[str, Any]:
    """A row of the trials; also printed."""
    words = " ".join(f"{key}={value}" for key, value in setting.items())
    row = {"data": name, "link": link, "mechanism": mechanism, "setting": words, "sign_accuracy": round(score, 4)}
    print(row, flush=True)
    return row


def best(trials: list[dict[str, str]], name: str, link: str, mechanism: str) -> Setting:
    """The setting with the highest sign accuracy; the paper's own tau on synthetic data."""
    if mechanism == "OutP, published":
        mechanism = "Clear"
    if name == "synthetic":
        own: Setting = {"steps": 10 if mechanism == "OutP" else 5} if mechanism in TRIED else {}
        own |= {"ridge": 1.0} if mechanism == "OutP" else {}
        return {"tau": 100.0, **own}
    rows = [row for row in trials if (row["data"], row["link"], row["mechanism"]) == (name, link, mechanism)]
    text = max(rows, key=lambda row: float(row["sign_accuracy"]))["setting"]
    return {key: float(value) for key, value in (part.split("=") for part in text.split())}


# Measuring.


def cells() -> Iterator[tuple[str, float, str, tuple[int, ...], int]]:
    """Data, observation ratio, link, epsilons and draw of everything that the figures show."""
    for draw in range(40):
        for link in LINKS:
            yield "synthetic", 0.15, link, EPSILONS, draw
    for draw, link in itertools.product(range(10), LINKS):
        for ratio in RATIOS:
            yield "synthetic", ratio, link, EPSILONS, draw
        yield "rc", 0.0, link, EPSILONS, draw
    for draw, link in itertools.product(range(10), LINKS):
        yield "ml-100k", 0.0, link, FILMS_EPSILONS, draw


def measure(out: Path) -> None:
    """Append what is missing to OUT/results.csv."""
    trials, target = rows_of(out / "trials.csv"), out / "results.csv"
    done = {key(row) for path in out.glob("results*.csv") for row in rows_of(path)}
    for place in cells():
        for row in cell(*place, trials, done):
            new = not target.exists()
            with target.open("a", encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if new:
                    writer.writeheader()
                writer.writerow(row)


def cell(
    name: str,
    observed: float,
    link: str,
    epsilons: tuple[int, ...],
    draw: int,
    trials: list[dict[str, str]],
    done: set[Any],
) -> Iterator[dict[str, Any]]:
    """Rows of one draw of data: controls, and every mechanism at every epsilon."""
    seen, figure, score = task(name, draw, link, observed)

    def row(
        mechanism: str, published: bool, epsilon: float, value: float, guarantee: str, took: float
    ) -> dict[str, Any]:
        facts = (name, observed, link, mechanism, published, epsilon, draw, figure)
        return dict(zip(FIELDS, (*facts, round(value, 6), guarantee, round(took, 3)), strict=True))

    def missing(mechanism: str, epsilon: float) -> bool:
        return (name, str(observed), link, mechanism, str(float(epsilon)), str(draw)) not in done

    if missing("Clear", 0.0) and not (name == "ml-100k" and draw):  # the same data in every draw
        yield from controls(name, seen, link, trials, score, row)
    for mechanism, (make, published) in MECHANISMS.items():
        wanted = [epsilon for epsilon in epsilons if missing(mechanism, epsilon)]
        if not wanted or not allowed(mechanism, link):
            continue
        setting = best(trials, name, link, mechanism)
        given = problem(seen, link, setting.pop("tau"), bounded=bounded(mechanism, link) or held(name, mechanism))
        whole = {key: int(value) if key == "steps" else value for key, value in setting.items()}
        perturbations = [make(float(epsilon), **whole) for epsilon in wanted]
        # Noise on the output is added to one solution, whatever its epsilon.
        start = time.perf_counter()
        noise = NoiseSource.os()
        once = run(perturbations[0].solver(given, {}, noise), 500) if mechanism.startswith("OutP") else None
        solved = time.perf_counter() - start
        for epsilon, perturbation in zip(wanted, perturbations, strict=True):
            start = time.perf_counter()
            matrix = completed(perturbation, given) if once is None else perturbation.finish(once, given, noise)
            seconds = time.perf_counter() - start + (solved if once is not None else 0.0)
            guarantee = perturbation.record(given).guarantee.value
            yield row(mechanism, published, float(epsilon), score(matrix), guarantee, seconds)


def held(name: str, mechanism: str) -> bool:
    """Whether the published output noise is added to a solution whose entries are held to alpha, as it assumes."""
    return mechanism == "OutP, published" and name == "rc"


def controls(
    name: str,
    seen: Observations,
    link: str,
    trials: list[dict[str, str]],
    score: Callable[[Floats], float],
    row: Callable[..., dict[str, Any]],
) -> Iterator[dict[str, Any]]:
    """No noise at all; the truth's rank, or biases alone; and what takes no data."""
    start = time.perf_counter()
    matrix = completed(Clear(), problem(seen, link, best(trials, name, link, "Clear")["tau"]))
    yield row("Clear", False, 0.0, score(matrix), "none", time.perf_counter() - start)
    if name == "synthetic":
        yield row("Clear, rank 1", False, 0.0, score(truncated(matrix, 1)), "none", 0.0)
        yield row("zero", False, 0.0, score(np.zeros(seen.shape)), "none", 0.0)
    else:
        ridge = best(trials, name, link, "bias")["ridge"]
        yield row("bias", False, 0.0, score(bias_matrix(seen, LINKS[link], ridge)), "none", 0.0)
        yield row("majority", False, 0.0, score(np.full(seen.shape, np.sign(seen.signs.sum()))), "none", 0.0)


def key(row: dict[str, str]) -> tuple[str, ...]:
    """What a row is of."""
    return tuple(row[name] for name in ("data", "observed", "link", "mechanism", "epsilon", "draw"))


def rows_of(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(path: Path, fields: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Write a CSV file whole or not at all."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, fields, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    temporary.rename(path)


def main() -> None:
    """Tune or measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("tune", "measure"))
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    logging.getLogger("datamodules").setLevel(logging.ERROR)
    arguments.out.mkdir(parents=True, exist_ok=True)
    {"tune": tune, "measure": measure}[arguments.what](arguments.out)


if __name__ == "__main__":
    main()
