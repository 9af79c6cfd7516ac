"""Measure one-bit matrix completion under every perturbation, for docs/results/one_bit.md.

python benchmarks/one_bit.py tune OUT       # settings that the paper does not state, on a part of the training ratings
python benchmarks/one_bit.py measure OUT    # all entries that are missing from OUT/results*.csv
"""

from __future__ import annotations

import argparse
import itertools
import logging
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.optimize import minimize

from datamodules import Evaluation, Filters, LowRank, MovieLens100K, Restaurant
from datamodules.base import CrossDomainDataModule
from zoo import Clear, GradientPerturbation, InputPerturbation, ObjectivePerturbation, OutputPerturbation, Perturbation
from zoo.methods.one_bit_mc.norm_balls import NuclearBall, truncated
from zoo.methods.one_bit_mc.objective import Likelihood, Observations
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

#: Rows of the figures: a perturbation, and whether it is the published form. The guarantee of the published GraP is valid.
MECHANISMS: dict[str, tuple[Callable[..., Perturbation], bool]] = {
    "InP": (InputPerturbation, False),
    "ObjP": (partial(ObjectivePerturbation, inexact=True), False),
    "ObjP, Gaussian": (partial(ObjectivePerturbation, noise="gaussian"), False),
    "GraP, Gaussian": (GradientPerturbation, False),
    "GraP, Laplace": (partial(GradientPerturbation, noise="laplace"), False),
    "OutP": (OutputPerturbation, False),
    "ObjP, published": (partial(ObjectivePerturbation, paper_faithful=True), True),
    "GraP, published": (partial(GradientPerturbation, noise="laplace", step_size="spectral", dual=False), True),
    "OutP, published": (partial(OutputPerturbation, paper_faithful=True), True),
}
#: Settings that `tune` searches besides tau, by mechanism.
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
FIELDS = ("data", "observed", "link", "mechanism", "published", "epsilon", "draw", "figure", "value", "guarantee")
FIELDS += ("seconds",)
KEYS = ("data", "observed", "link", "mechanism", "epsilon", "draw")


class Task(NamedTuple):
    """A problem, and the metric of a completed matrix."""

    observations: Observations
    figure: str
    score: Callable[[Floats], float]


def task_of(data: CrossDomainDataModule, validation: bool = False) -> Task:
    """Return a task with the test of a datamodule, or with a tenth of the training signs for validation."""
    data.read_target()
    train = data.train
    shape, cells = (train.num_users, train.num_items), train.pair_keys
    signs = train.matrix.data.astype(np.float64)
    if isinstance(data, LowRank):
        truth, seen = data.truth.numpy(), Observations(shape, cells, signs)
        norm = float((truth**2).sum())
        return Task(seen, "average_relative_error", lambda x: float(((x - truth) ** 2).sum()) / norm)
    test_cells = (data.test.users * train.num_items + data.test.items).numpy()
    test_signs = data.test.ratings.numpy()
    if validation:
        part = np.random.default_rng(0).random(len(cells)) < 0.1
        test_cells, test_signs, cells, signs = cells[part], signs[part], cells[~part], signs[~part]
    seen = Observations(shape, cells, signs)
    return Task(seen, "sign_accuracy", lambda x: float((x.ravel()[test_cells] * test_signs > 0).mean()))


@lru_cache(maxsize=2)
def task(name: str, draw: int, link: str, observed: float, validation: bool = False) -> Task:
    """Return a task by its name."""
    if name == "synthetic":
        return task_of(LowRank(observed=observed, link=link, data_seed=draw, seed=draw))  # type: ignore[arg-type]
    if name == "rc":
        return task_of(Restaurant(seed=draw), validation)
    films = MovieLens100K(filters=Filters(threshold=3.5, signs=True), evaluation=Evaluation(split="given"), seed=0)
    return task_of(films, validation)


def problem(seen: Observations, link: str, tau: float, alpha: float = 1.0, bounded: bool = False) -> Problem:
    """Return a problem with the paper's constraint; entries are bounded by alpha only if a perturbation needs it."""
    return Problem(seen, LINKS[link], NuclearBall(tau), alpha, bounded)


def bounded(name: str, mechanism: str, link: str) -> bool:
    """Return whether entries are bounded by alpha, as OutP with probit needs, and as its published form assumes."""
    return (mechanism, link) == ("OutP", "probit") or (mechanism, name) == ("OutP, published", "rc")


def completed(perturbation: Perturbation, posed: Problem) -> Floats:
    """Return the completed matrix."""
    noise = NoiseSource.os()
    perturbation.check(posed.terms)
    solver = perturbation.solver(posed, perturbation.draw(posed, noise), noise)
    return perturbation.finish(run(solver, 500), posed, noise)


def bias_matrix(observations: Observations, link: Link, ridge: float = 1.0) -> Floats:
    """Return the most likely matrix ``m + u_i + v_j``, shape ``(rows, columns)``, with a ridge on biases. No guarantee."""
    rows, columns = observations.shape
    users, items = np.divmod(observations.cells, columns)
    likelihood = Likelihood.of(observations, link)

    def value(biases: Floats) -> tuple[float, Floats]:
        # The biases are those of rows, of columns, and m.
        entries, own = np.asarray(biases[-1] + biases[users] + biases[rows + items]), biases[:-1]
        slopes = likelihood.gradient(entries)
        sums = np.bincount(users, slopes, rows), np.bincount(items, slopes, columns), [slopes.sum()]
        gradient = np.concatenate(sums)
        gradient[:-1] += ridge * own
        return likelihood.value(entries) + ridge / 2 * float(own @ own), gradient

    found = minimize(value, np.zeros(rows + columns + 1), jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    matrix: Floats = found[-1] + found[:rows, None] + found[rows : rows + columns]
    return matrix


def allowed(mechanism: str, link: str) -> bool:
    """Return whether a row exists: Gaussian noise on the objective needs the logistic link."""
    return not (mechanism == "ObjP, Gaussian" and link == "probit")


def tune(out: Path) -> None:
    """Write OUT/trials.csv: tau and other settings by sign accuracy on a tenth of the training signs."""
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
            tried = TRIED.get(mechanism, {})
            for *values, tau in itertools.product(*tried.values(), RADII[name]):
                setting = dict(zip(tried, values, strict=True))
                given = problem(seen.observations, link, tau, bounded=bounded(name, mechanism, link))
                draws = range(1 if name == "ml-100k" else 5)
                scores = [seen.score(completed(make(TUNED_AT, **setting), given)) for _ in draws]
                trials.append(trial(name, link, mechanism, {"tau": tau, **setting}, float(np.mean(scores))))
        pl.DataFrame(trials).write_csv(out / "trials.csv")


def trial(name: str, link: str, mechanism: str, setting: Setting, score: float) -> Setting:
    """Print and return a row of the trials."""
    words = " ".join(f"{key}={value}" for key, value in setting.items())
    row = {"data": name, "link": link, "mechanism": mechanism, "setting": words, "sign_accuracy": round(score, 4)}
    print(row, flush=True)
    return row


def best(trials: list[Setting], name: str, link: str, mechanism: str) -> Setting:
    """Return the setting with the highest sign accuracy; on synthetic data the paper's tau."""
    if mechanism == "OutP, published":
        mechanism = "Clear"
    if name == "synthetic":
        own: Setting = {"steps": 10 if mechanism == "OutP" else 5} if mechanism in TRIED else {}
        own |= {"ridge": 1.0} if mechanism == "OutP" else {}
        return {"tau": 100.0, **own}
    rows = [row for row in trials if (row["data"], row["link"], row["mechanism"]) == (name, link, mechanism)]
    text = max(rows, key=lambda row: float(row["sign_accuracy"]))["setting"]
    return {key: float(value) for key, value in (part.split("=") for part in text.split())}


def entries() -> Iterator[tuple[str, float, str, tuple[int, ...], int]]:
    """Yield data, observation ratio, link, epsilons and draw of all entries of the figures."""
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
    """Append missing entries to OUT/results.csv."""
    trials, target = pl.read_csv(out / "trials.csv", infer_schema=False).to_dicts(), out / "results.csv"
    finished = [pl.read_csv(path, infer_schema=False) for path in out.glob("results*.csv")]
    done = {row for table in finished for row in table.select(KEYS).iter_rows()}
    for entry in entries():
        for row in measured(*entry, trials, done):
            new = not target.exists()
            with target.open("ab") as file:
                pl.DataFrame([row]).write_csv(file, include_header=new)


def measured(
    name: str, observed: float, link: str, epsilons: tuple[int, ...], draw: int, trials: list[Setting], done: set[Any]
) -> Iterator[Setting]:
    """Yield rows of one draw of data: baselines, and every mechanism at every epsilon."""
    own = task(name, draw, link, observed)
    seen, figure, score = own

    def row(mechanism: str, published: bool, epsilon: float, value: float, guarantee: str, took: float) -> Setting:
        facts = (name, observed, link, mechanism, published, epsilon, draw, figure)
        return dict(zip(FIELDS, (*facts, round(value, 6), guarantee, round(took, 3)), strict=True))

    def missing(mechanism: str, epsilon: float) -> bool:
        return (name, str(observed), link, mechanism, str(float(epsilon)), str(draw)) not in done

    if missing("Clear", 0.0) and not (name == "ml-100k" and draw):  # the same data in every draw
        yield from baselines(name, own, link, trials, row)
    for mechanism, (make, published) in MECHANISMS.items():
        wanted = [epsilon for epsilon in epsilons if missing(mechanism, epsilon)]
        if not wanted or not allowed(mechanism, link):
            continue
        setting = best(trials, name, link, mechanism)
        posed = problem(seen, link, setting.pop("tau"), bounded=bounded(name, mechanism, link))
        whole = {key: int(value) if key == "steps" else value for key, value in setting.items()}
        perturbations = [make(float(epsilon), **whole) for epsilon in wanted]
        # Noise on the output is added to one solution, whatever its epsilon.
        start = time.perf_counter()
        noise = NoiseSource.os()
        once = run(perturbations[0].solver(posed, {}, noise), 500) if mechanism.startswith("OutP") else None
        solved = time.perf_counter() - start
        for epsilon, perturbation in zip(wanted, perturbations, strict=True):
            start = time.perf_counter()
            matrix = completed(perturbation, posed) if once is None else perturbation.finish(once, posed, noise)
            seconds = time.perf_counter() - start + (solved if once is not None else 0.0)
            guarantee = perturbation.record(posed).guarantee.value
            yield row(mechanism, published, float(epsilon), score(matrix), guarantee, seconds)


def baselines(name: str, own: Task, link: str, trials: list[Setting], row: Callable[..., Setting]) -> Iterator[Setting]:
    """Yield rows without noise: Clear, the true rank or biases alone, and constants."""
    seen, _, score = own
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
