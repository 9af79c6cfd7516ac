"""Compute both sides of the papers' theorems on utility and recovery, for docs/privacy/theorems.md.

python benchmarks/theorems.py       # about three minutes on one core; writes docs/privacy/theorems.csv
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.linalg import hadamard
from scipy.sparse import csr_array

from datamodules import Douban
from zoo.privacy.accounting.gaussian_mixture import paper_w
from zoo.privacy.mechanisms.jlt import JLT, release_rows
from zoo.privacy.one_bit.link_functions import Link, Logistic, Probit
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.rows.public_matrix import GaussianMatrix

Floats = npt.NDArray[np.float64]

OUT = Path(__file__).parents[1] / "docs" / "privacy" / "theorems.csv"
DELTA, DRAWS = 1e-5, 20
EPSILONS = (1.0, 8.0, 64.0)
WIDTHS = (12, 25, 50, 100, 200, 400, 800)
ONE_BIT = (0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
DENSITIES = (0.01, 0.03, 0.1, 0.3, 0.5)


class Fact(NamedTuple):
    """One line of the CSV file: a statement's case, its place on an axis, and a value with its spread over draws."""

    statement: str
    case: str
    place: float
    mean: float
    sd: float = 0.0


def fact(statement: str, case: str, place: float, values: npt.ArrayLike) -> Fact:
    """Return the mean and the standard deviation over draws."""
    found = np.asarray(values, dtype=np.float64)
    return Fact(statement, case, place, float(found.mean()), float(found.std(ddof=1)))


def published(rows: Floats, w: float, width: int, rng: np.random.Generator) -> Floats:
    """Return rows with the distribution of the lifted, projected ones, ``(users, width)``."""
    projected = rows @ rng.standard_normal((rows.shape[1], width))
    return np.asarray((projected + w * rng.standard_normal((len(rows), width))) / math.sqrt(width))


def concentration(rows: Floats) -> Iterator[Fact]:
    """Yield proposition 5.3's two sides, with the expectation in and outside the norm, and theorem 5.4's spread."""
    users, squares = len(rows), float((rows**2).sum())
    gram, width = rows @ rows.T, 400
    for epsilon in EPSILONS:
        rng, w = np.random.default_rng(0), paper_w(width, epsilon, DELTA)
        errors, totals = [], []
        for _ in range(DRAWS):
            released = published(rows, w, width, rng)
            difference = gram - released @ released.T
            errors.append(float(np.abs(np.linalg.eigvalsh(difference)).max()) ** 2)
            totals.append(float((released**2).sum()) / (squares + w**2 * users) - 1)
        yield Fact("5.3", "w", epsilon, w)
        yield Fact("5.3", "expected Gram matrix, over the bound", epsilon, w**2 / users)
        yield fact("5.3", "released Gram matrix, over the bound", epsilon, np.array(errors) / (w**2 * users))
        yield Fact("5.4", "share of the ratings in the bounded sum", epsilon, squares / (squares + w**2 * users))
        yield Fact("5.4", "largest relative deviation", epsilon, float(np.abs(totals).max()))
    for width in WIDTHS:
        rng = np.random.default_rng(1)
        totals = [float((published(rows, 0.0, width, rng) ** 2).sum()) / squares - 1 for _ in range(DRAWS)]
        yield Fact("5.4", "this source, without noise", width, float(np.std(totals)))
        yield Fact("5.4", "identical users, without noise", width, math.sqrt(2 / width))
        yield Fact("5.4", "gamma, with a constant of 1", width, math.sqrt(math.log(users) / width))


def spread_out(rows: Floats) -> Iterator[Fact]:
    """Yield lemma 5.5's largest ratio of both sides, and how SJLT's sparse matrix varies with and without ``H D``."""
    rng, items = np.random.default_rng(2), 1 << (rows.shape[1] - 1).bit_length()
    padded = np.pad(rows, ((0, 0), (0, items - rows.shape[1])))
    padded /= np.linalg.norm(padded, axis=1, keepdims=True).clip(1e-12)
    transform = (hadamard(items) / math.sqrt(items)).astype(np.float32)
    bound = math.sqrt(2 * math.log(40 * len(rows) * items) / items)
    largest = []
    for _ in range(DRAWS):
        mixed = (padded * rng.choice([-1.0, 1.0], items)).astype(np.float32) @ transform
        largest.append(float(np.abs(mixed).max()) / bound)
    yield fact("5.5", "largest entry with H D, over the bound", items, largest)
    yield Fact("5.5", "largest entry without H D, over the bound", items, float(padded.max()) / bound)
    fourth = {
        "without H D": (padded**4).sum(axis=1).mean(),
        "with H D": (mixed.astype(np.float64) ** 4).sum(axis=1).mean(),
    }
    for case, sharpness in fourth.items():
        for density in DENSITIES:  # Var ||P x||^2 / n' of P with density q: (2 + (3 / q - 3) sum x^4) / n' for a unit x
            yield Fact(
                "5.5", f"sd of a squared norm, {case}", density, math.sqrt((2 + (3 / density - 3) * sharpness) / 400)
            )


def similarity(rows: Floats, matrix: csr_array) -> Iterator[Fact]:
    """Yield the correlation of released and true inner products of users by n', with this library's noise, and its theory."""
    gram, pairs = rows @ rows.T, np.triu_indices(len(rows), 1)
    true, norms = gram[pairs], np.diag(gram)
    products = norms[pairs[0]] * norms[pairs[1]]
    sums = norms[pairs[0]] + norms[pairs[1]]
    for epsilon in EPSILONS:
        for width in WIDTHS:
            sizes = {"num_users": len(rows), "num_items": rows.shape[1]}
            plan = JLT.calibrate(epsilon=epsilon, delta=DELTA, dim=width, calibration="unit", **sizes)
            found = []
            for draw in range(3):
                released = release_rows(
                    matrix, plan, GaussianMatrix(width, rows.shape[1], draw, unit=True), NoiseSource.of(draw)
                )
                found.append(np.corrcoef((released @ released.T)[pairs], true)[0, 1])
            yield fact("n'", f"epsilon {epsilon:g}", width, found)
            noise = (products + true**2 + plan.w**2 * sums + plan.w**4).mean() / width
            yield Fact("n'", f"epsilon {epsilon:g}, expected", width, math.sqrt(true.var() / (true.var() + noise)))
        sigma = plan.w / math.sqrt(width)
        yield Fact("n'", "best by theory", epsilon, math.sqrt((products + true**2).mean()) / sigma**2)


def constants() -> Iterator[Fact]:
    """Yield the factors L and beta of theorem 1's constant for alpha = 1, computed and as the paper bounds them."""
    x = np.linspace(-1, 1, 2001)
    links: dict[str, tuple[Link, float, float]] = {
        "logistic": (Logistic(), 1.0, math.e),
        "probit": (Probit(), 16.0, math.pi * math.exp(0.5)),
    }
    for name, (link, own, flat) in links.items():
        h = link.probability(x)
        slope = np.gradient(h, x, edge_order=2)
        for epsilon in ONE_BIT:
            p = 1 / (1 + math.exp(epsilon))
            c, change = p + (1 - 2 * p) * h, (1 - 2 * p) * slope
            steep, curved = (change / (c * (1 - c))).max(), (c * (1 - c) / change**2).max()
            yield Fact("L", name, epsilon, float(steep))
            yield Fact("L", f"{name}, printed", epsilon, (1 - 2 * p) * own)
            yield Fact("beta", name, epsilon, float(curved))
            yield Fact("beta", f"{name}, printed", epsilon, 1 / (2 * (1 - 2 * p) ** 2) + flat / 2)


def recovery() -> Iterator[Fact]:
    """Yield the rates of theorem 1, printed and of Davenport et al., by d at half of the entries; and theorem 4's noise."""
    for size in (100, 300, 1000, 3000, 10000, 100000):
        seen, both = size**2 / 2, 2 * size
        low = math.sqrt(both / seen)
        printed = math.sqrt(math.sqrt(seen + size**2 * math.log(both)) / seen)
        yield Fact("rate", "theorem 1, printed", size, low * printed)
        yield Fact("rate", "Davenport et al., upper bound", size, low * math.sqrt(1 + both * math.log(size**2) / seen))
        yield Fact("rate", "Davenport et al., lower bound", size, low)
    rng = np.random.default_rng(3)
    for epsilon in ONE_BIT:
        noise = [(rng.laplace(0, 2 / epsilon, (100, 100)) ** 2).mean() for _ in range(DRAWS)]
        yield fact("theorem 4", "mean squared noise", epsilon, noise)
        yield Fact("theorem 4", "bound of the appendix, with C6 = 0", epsilon, 4 * math.log(1e4) ** 2 / epsilon**2)


def main() -> None:
    """Write every fact."""
    data = Douban("music", sources=["book"])
    matrix = data.source("book").matrix
    rows = np.asarray(matrix.todense(), dtype=np.float64)
    centred = rows - rows.mean(axis=0)
    facts = [*concentration(centred), *spread_out(rows), *similarity(rows, matrix), *constants(), *recovery()]
    pl.DataFrame(facts, orient="row", schema=Fact._fields).write_csv(OUT, float_precision=6)


if __name__ == "__main__":
    main()
