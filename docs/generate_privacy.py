"""The tables of docs/privacy.md: computed by the project's own functions, or read from committed results.

`generate.py` puts them between the marks of the page. Losses are rounded up, lower bounds down.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from result_tables import gains
from tables import name, read, table, where

from zoo.commands.privacy.show import share
from zoo.privacy.accounting.accountant import attack_success_of, epsilon_of
from zoo.privacy.accounting.events import (
    GaussianEvent,
    GaussianProjectionEvent,
    PrivacyEvent,
    RandomisedResponseEvent,
    SelfComposedEvent,
)
from zoo.privacy.accounting.gaussian import gauss_delta, gauss_epsilon, gauss_mu
from zoo.privacy.accounting.gaussian_mixture import max_w, mix_epsilon, mix_w, paper_w
from zoo.privacy.accounting.pure import flip_probability
from zoo.privacy.mechanisms.one_bit import plan_gradient, plan_objective, plan_output
from zoo.privacy.mechanisms.sign_response import plan_input, plan_ternary
from zoo.privacy.mechanisms.vectors import UserVectors
from zoo.privacy.one_bit.link_functions import Logistic
from zoo.privacy.one_bit.stability import usual_step
from zoo.privacy.record.record import rounded_up, shown_delta
from zoo.privacy.rows.group_stretch import group_stretch
from zoo.privacy.rows.public_matrix import GaussianMatrix
from zoo.privacy.training.dp_sgd import plan_training

DOCS = Path(__file__).parent
AUDIT = DOCS / "privacy" / "audit.csv"
EQUAL = DOCS / "results" / "equal_epsilon" / "results.csv"

DIM, ITEMS, DELTA = 400, 3916, 1e-5
EPSILONS = (0.5, 1, 2, 4, 8, 16, 32, 64)
#: Guarantees for one rating that the tables of several ratings start from, and how many ratings.
RATING_EPSILONS, GROUPS = (1, 2, 4, 8), (1, 2, 5, 10, 50, 100)
#: Ratings of a whole user, and guarantees for one user.
USERS, USER_EPSILONS = (15, 42, 100), (1, 2, 4, 8, 16)

#: One-bit matrix completion: guarantees for the value of one rating; steps of GraP, and guarantees for its table; steps and
#: ridges of OutP; ratings and cells of a matrix like ML-100K.
VALUE_EPSILONS, STEPS, STEP_EPSILONS = (0.5, 1, 2, 4, 8), (10, 50, 100, 200, 500), (1, 2, 4, 10)
OUTPUT_STEPS, RIDGES, GRID = 200, (0.2, 1.0), (80_000, 943 * 1682)

#: Rows of the comparison at equal epsilon, and the system whose plain row is the most that each can have.
SCORERS = {base + how: base for base in ("Ridge", "UserKNN", "PriCDR") for how in ("", ", denoised")}
LAYERS = (1, 2, 4, 6, 30)  # of vectors; 30 are two of each of 15 domains
TASK, FIGURE, ASKED = "cold", "sampled/hit_rate@10", (1, 2, 4, 8, 16)
#: Rows of the comparison for users with history, on Kitchen <- Food.
KITCHEN = DOCS / "results" / "kitchen"
KNOWN = ["UserKNN, Nothing", "UserKNN, Plaintext"]
KNOWN += [f"UserKNN{how}, FlippedRows eps {epsilon}" for epsilon in (8, 4) for how in (", denoised", "")]
LABEL = re.compile(r"(.+) eps [\d.]+")


def parts() -> dict[str, str]:
    """Every generated part of the page, by the name in its marks."""
    return {
        "calibration": calibration_table(),
        "classical": classical_table(),
        "groups": groups_table(),
        "users": users_table(),
        "user level": user_level_table(),
        "vectors": vectors_table(),
        "rounds": rounds_table(),
        "one bit": one_bit_table(),
        "gradients": gradients_table(),
        "audit": audit_table(),
        "transfer": transfer_table(),
        "known users": known_users_table(),
    }


def calibration_table() -> str:
    """Noise for one rating of at most 1, and what the paper's noise really gives."""
    titles = ("epsilon", "w of the paper", "w `unit`", "ratio", "w `gaussian`", "true epsilon of the paper's w")
    rows = []
    for epsilon in EPSILONS:
        printed, unit = paper_w(DIM, epsilon, DELTA), max_w(math.sqrt(DIM), epsilon, DELTA)
        projected = (digits(printed), digits(unit), f"{printed / unit:.1f}", digits(mix_w(DIM, epsilon, DELTA)))
        really = rounded_up(mix_epsilon(DELTA, 1 / printed, DIM))
        cells = (1 / gauss_mu(epsilon, DELTA), flip_probability(epsilon))
        rows.append((f"{epsilon:g}", *projected, really, *map(digits, cells)))
    return table((*titles, "`NoisyRows`: sigma", "`FlippedRows`: flipped"), rows, left=0)


def classical_table() -> str:
    """What the textbook's standard deviation gives, for a sensitivity of 1."""
    titles = ("epsilon asked for", "classical sigma", "exact sigma", "epsilon of the classical one")
    rows = []
    for epsilon in EPSILONS:
        sigma = math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon
        real = rounded_up(gauss_epsilon(DELTA, 1 / sigma)), shown_delta(gauss_delta(epsilon, 1 / sigma))
        rows.append((f"{epsilon:g}", digits(sigma), digits(1 / gauss_mu(epsilon, DELTA)), *real))
    return table((*titles, "its delta at the epsilon asked for"), rows, left=0)


def several(epsilon: float) -> dict[str, Callable[[int], PrivacyEvent]]:
    """What so many ratings of one person see together, by the release that guarantees ``epsilon`` for one of them."""
    flips, mu, w = flip_probability(epsilon), gauss_mu(epsilon, DELTA), mix_w(DIM, epsilon, DELTA)
    return {
        "`FlippedRows`": lambda k: SelfComposedEvent(RandomisedResponseEvent(flips), k),
        "`NoisyRows`": lambda k: SelfComposedEvent(GaussianEvent(1 / mu), k),
        # The row of one person moves by at most the root of k before M, as under zero-out with that clip.
        "`JLT`, `gaussian`": lambda k: GaussianProjectionEvent(w / math.sqrt(k), DIM),
        "`JLT`, `unit`, M of seed 0": lambda k: GaussianEvent(1 / (mu * stretches()[k])),
        "`JLT`, `unit`, at worst": lambda k: GaussianEvent(1 / (mu * k)),
    }


@cache
def stretches() -> dict[int, float]:
    """How many times the mu of one rating so many of one person have at most, by their number, through one M."""
    bounds = group_stretch(GaussianMatrix(DIM, ITEMS, 0, unit=True), (*GROUPS, *USERS))
    return {k: bound / bounds[1] for k, bound in bounds.items()}


def groups_table() -> str:
    """Epsilon of several ratings of one person together."""
    titles = ("epsilon of one rating", "release", *(f"{k} rating{'s' * (k > 1)}" for k in GROUPS))
    rows = [
        (f"{epsilon:g}", name, *(rounded_up(epsilon_of([event(k)], DELTA)) for k in GROUPS))
        for epsilon in RATING_EPSILONS
        for name, event in several(epsilon).items()
    ]
    return table(titles, rows, left=2)


def users_table() -> str:
    """Epsilon of all ratings of a user, and how often a yes-or-no fact about them can be guessed at most."""
    titles = ("epsilon of one rating", "release", *(f"a user with {k} ratings" for k in USERS))
    rows = [
        (f"{epsilon:g}", name, *(with_guess(event(k)) for k in USERS))
        for epsilon in RATING_EPSILONS[:-1]
        for name, event in several(epsilon).items()
    ]
    return table(titles, rows, left=2)


def with_guess(event: PrivacyEvent) -> str:
    """Epsilon at delta, and how often a yes-or-no fact can be guessed at most."""
    return f"{rounded_up(epsilon_of([event], DELTA))} ({share(attack_success_of([event]))})"


def user_level_table() -> str:
    """Noise that protects a whole user, zeroed out, and for which epsilon of one rating the same noise would do."""
    clips = [f"sigma, {k} ratings unclipped" for k in USERS]
    titles = ("epsilon of one user", "guess at most", "`NoisyRows`: sigma / C", "`JLT`: w / C", *clips)
    rows = []
    for epsilon in USER_EPSILONS:
        sigma, w = 1 / gauss_mu(epsilon, DELTA), mix_w(DIM, epsilon, DELTA)
        sigmas = [sigma * math.sqrt(k) for k in USERS]
        held = [f"{digits(s)} ({rounded_up(gauss_epsilon(DELTA, 1 / s))})" for s in sigmas]
        guess = max(
            attack_success_of([GaussianEvent(sigma)]), attack_success_of([GaussianProjectionEvent(w, DIM)])
        )  # of both releases
        rows.append((f"{epsilon:g}", share(guess), digits(sigma), digits(w), *held))
    return table(titles, rows, left=0)


def vectors_table() -> str:
    """Noise on a user's vectors of so many layers, and what the paper's noise gives when its releases are composed."""
    titles = ("epsilon", *(f"sigma / 2C, L = {layers}" for layers in LAYERS), "30 releases with the paper's sigma")
    rows = []
    for epsilon in (1, 4, 8, 16):
        noise = [
            UserVectors.calibrate(epsilon=epsilon, delta=DELTA, clip=0.5, num_layers=layers).noise_std
            for layers in LAYERS
        ]
        classical = math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon
        rows.append((f"{epsilon}", *map(digits, noise), rounded_up(gauss_epsilon(DELTA, math.sqrt(30) / classical))))
    return table(titles, rows, left=0)


def rounds_table() -> str:
    """Noise multipliers of private rounds, and what they come to over the rate."""
    plans = ((1.0, 40), (0.2, 200))
    titles = ("epsilon", *(f"q = {rate:g}, {rounds:,} rounds" for rate, rounds in plans))
    rows = []
    for epsilon in (1, 4, 8, 16):
        row = [f"{epsilon}"]
        for rate, rounds in plans:
            sigma = plan_training(epsilon=epsilon, delta=DELTA, rate=rate, steps=rounds, clip=1.0).noise_multiplier
            row.append(f"{rounded_up(sigma)} ({rounded_up(sigma / rate)})")
        rows.append(tuple(row))
    return table(titles, rows, left=0)


def one_bit_table() -> str:
    """Noise of one-bit matrix completion with a logistic link: on a sign, a bit, an entry, and over all cells."""
    ridges = [f"OutP: sigma of an entry, ridge {ridge:g}" for ridge in RIDGES]
    ratio = "its signal to noise"
    titles = ("epsilon", "InP: flipped", ratio, "ObjP Laplace: deviation of a bit", ratio)
    titles += ("ObjP Gaussian: sigma of a bit", ratio, *ridges, "all cells: ratings kept, made up")
    rows = []
    for epsilon in VALUE_EPSILONS:
        p = plan_input(epsilon).p1
        spread = math.sqrt(2) * plan_objective(Logistic(), epsilon).scale
        sigma = plan_objective(Logistic(), epsilon, noise="gaussian", delta=DELTA).scale
        bits = (digits(p), digits((1 - 2 * p) ** 2 / (p * (1 - p))), digits(spread), digits(spread**-2))
        outputs = [digits(output_sigma(epsilon, ridge)) for ridge in RIDGES]
        kept_ratings, _, made_up = plan_ternary(epsilon).expected_reports(*GRID)
        reports = f"{kept_ratings:,.0f}, {made_up:,.0f}"
        rows.append((f"{epsilon:g}", *bits, digits(sigma), digits(sigma**-2), *outputs, reports))
    return table(titles, rows, left=0)


def output_sigma(epsilon: float, ridge: float) -> float:
    """Noise on an entry of the completed matrix, logistic link, at the usual step size."""
    link = Logistic()
    size = usual_step(link, ridge)
    return plan_output(link, epsilon, DELTA, alpha=1.0, ridge=ridge, steps=OUTPUT_STEPS, step_size=size).scale


def gradients_table() -> str:
    """Standard deviation of the noise on an entry of each of so many gradients, and what Laplace noise costs with a delta."""
    pairs = (f"epsilon {epsilon:g}: Laplace, Gaussian" for epsilon in STEP_EPSILONS)
    titles = ("steps", *pairs, "Laplace at 1, with delta")
    rows = []
    for steps in STEPS:
        pairs = []
        for epsilon in STEP_EPSILONS:
            laplacian = math.sqrt(2) * plan_gradient(epsilon, steps=steps, noise="laplace").scale
            pairs.append(f"{digits(laplacian)}, {digits(plan_gradient(epsilon, steps=steps, delta=DELTA).scale)}")
        really = epsilon_of([plan_gradient(1, steps=steps, noise="laplace").event], DELTA)
        rows.append((f"{steps}", *pairs, rounded_up(really)))
    return table(titles, rows, left=0)


def audit_table(path: Path = AUDIT) -> str:
    """What the committed run of ``python -m zoo privacy audit --out`` found."""
    titles = ("mechanism", "audit", "neighbours", "meant to hold", "verdict")
    titles += ("epsilon claimed", "at least", "mu claimed", "at least", "noise")
    kinds = {"two_world": "two worlds", "one_run": "one run"}
    rows = []
    for row in read(path):
        bounds = (row["claimed_epsilon"], row["epsilon_lower"], row["claimed_mu"], row["mu_lower"])
        claims = [rounded_up(float(text)) if text else "-" for text in bounds[::2]]
        seen = [f"{math.floor(float(text) * 1000) / 1000:.3f}" if text else "-" for text in bounds[1::2]]
        noise = f"{float(row['noise_ratio']):.3f}" if row["noise_ratio"] else "-"
        holds = "yes" if row["holds"] == "true" else "no"
        said = (row["mechanism"], kinds[row["kind"]], row["relation"].replace("_", " "), holds, row["verdict"])
        rows.append((*said, claims[0], seen[0], claims[1], seen[1], noise))
    return table(titles, rows, left=5)


def transfer_table(path: Path = EQUAL) -> str:
    """Return the share of the gain of plain ratings that is left at each requested epsilon, and the metric itself.

    Two shares: of the gain over popularity, and of the gain over the scorer's noise baseline.
    """
    rows = where(read(path), task=TASK)
    figures = {(row["system"], row["release"]): float(row[FIGURE]) for row in rows}
    lines = []
    for system, base in SCORERS.items():
        floors = figures["Popularity", ""], figures[base, "Noise (Plaintext)"]
        most = figures.get((base, "Plaintext"))
        labels = [row["release"] for row in rows if row["system"] == system and not row["control"]]
        for release in dict.fromkeys(match[1] for label in labels if (match := LABEL.fullmatch(label))):
            found = [figures.get((system, f"{release} eps {epsilon:g}")) for epsilon in ASKED]
            lines.append((system, release, *(kept(figure, floors, most) for figure in found)))
    return table(("scorer", "release", *(f"epsilon {epsilon:g}" for epsilon in ASKED)), lines, left=2)


def known_users_table(folder: Path = KITCHEN) -> str:
    """HR@10 of warm-start users in Kitchen <- Food, with and without releases, and the gain over each noise baseline."""
    figures = {(row["task"], name(row)): float(row[FIGURE]) for row in read(folder / "results.csv")}
    found, lines = gains(folder, FIGURE), []
    for known in KNOWN:
        cells = [known]
        for task in ("latest", "random"):
            gain = found.get((task, known))
            p = f"{float(gain['p_users_holm']):.1g} / {float(gain['p_seeds_holm']):.1g}" if gain else ""
            cells += [f"{figures[task, known]:.4f}", f"{float(gain['difference']):+.4f} ({p})" if gain else "-"]
        lines.append(cells)
    against = "less its noise control (p over users / over seeds)"
    return table(("row", "latest items", against, "random items", against), lines, left=1)


def kept(figure: float | None, floors: Sequence[float], most: float | None) -> str:
    """The share of the way to ``most`` from each of ``floors``, in whole percent, and the figure."""
    if figure is None:
        return "-"
    shares = [
        "-" if most is None or most <= least else f"{round(100 * (figure - least) / (most - least))} %"
        for least in floors
    ]
    return f"{', '.join(shares)} ({figure:.3f})"


def digits(value: float) -> str:
    """A number with five significant digits, a very small one with three."""
    return f"{value:#.5g}".rstrip(".") if value >= 1e-4 else f"{value:.2e}"
