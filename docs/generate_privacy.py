"""Tables and one picture of the privacy pages, computed by the project's functions.

`generate.py` writes them between the marks of the pages. Losses are rounded up, lower bounds down.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

from privacy_results import AUDITS, audit_counts, audit_table, known_users_table, transfer_tables
from tables import table

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
PAGES = DOCS / "privacy"


DIM, ITEMS, DELTA = 400, 3916, 1e-5
EPSILONS = (0.5, 1, 2, 4, 8, 16, 32, 64)
#: Guarantees for one rating in the tables of several ratings, and numbers of ratings.
RATING_EPSILONS, GROUPS = (1, 2, 4, 8), (1, 2, 5, 10, 40, 50, 100)
#: Ratings of a whole user, guarantees for one user, and ratings of the person of the concept page.
USERS, USER_EPSILONS, PERSON = (15, 40, 100), (1, 2, 4, 8, 16), 40
SHOWN = ("`FlippedRows`", "`NoisyRows`", "`JLT`, `unit`, at worst")  # to people who need no detail

#: One-bit matrix completion: guarantees for the value of one rating; steps of GraP, and guarantees of its table; steps and
#: ridges of OutP; ratings and entries of a matrix like ML-100K.
VALUE_EPSILONS, STEPS, STEP_EPSILONS = (0.5, 1, 2, 4, 8), (10, 50, 100, 200, 500), (1, 2, 4, 10)
OUTPUT_STEPS, RIDGES, GRID = 200, (0.2, 1.0), (80_000, 943 * 1682)

LAYERS = (1, 2, 4, 6, 30)  # of vectors; 30 are two of each of 15 domains


def parts() -> dict[Path, dict[str, str]]:
    """Return every generated part of the privacy pages, by page and the name in its marks."""
    audits = {f"audit {section}": audit_table(section) for section in AUDITS}
    sections = list(audits)
    return {
        DOCS / "privacy.md": {"person": person_table()},
        DOCS / "data_protection.md": {"guesses": guesses_table()},
        PAGES / "rows.md": {part: audits[part] for part in sections[:4]},
        PAGES / "models.md": {
            "vectors": vectors_table(),
            "rounds": rounds_table(),
            **{part: audits[part] for part in sections[4:8]},
        },
        PAGES / "one_bit.md": {
            "one bit": one_bit_table(),
            "output": output_table(),
            "gradients": gradients_table(),
            **{part: audits[part] for part in sections[8:]},
        },
        PAGES / "calibration.md": {
            "calibration": calibration_table(),
            "classical": classical_table(),
            "groups": groups_table(),
            "users": users_table(),
            "user level": user_level_table(),
        },
        PAGES / "audit.md": {"audits": audit_counts()},
        PAGES / "utility.md": {"transfer": transfer_tables(), "known users": known_users_table()},
    }


def pictures() -> dict[Path, str]:
    """Return every generated picture, by its file."""
    return {PAGES / "guess.svg": guess_picture()}


def person_table() -> str:
    """Attack success on one rating and on all ratings of a person, by the epsilon of one rating."""
    titles = ("epsilon of one rating", "release", "success, one rating", f"epsilon, {PERSON} ratings", "success, all")
    rows = []
    for epsilon in RATING_EPSILONS:
        for release in SHOWN:
            event = several(epsilon)[release]
            one, every = (share(attack_success_of([event(k)])) for k in (1, PERSON))
            rows.append((f"{epsilon:g}", release, one, rounded_up(epsilon_of([event(PERSON)], DELTA)), every))
    return table(titles, rows, left=2)


def guesses_table() -> str:
    """Right answers of 100 that a reader of a release may give at most, for people who read no formula."""
    titles = ("who is protected", "publisher", "strength", "one rating", *(f"{k} ratings" for k in USERS))
    rows = []
    for epsilon in RATING_EPSILONS:
        for release in SHOWN:
            event = several(epsilon)[release]
            counts = [of_hundred(attack_success_of([event(k)])) for k in (1, *USERS)]
            rows.append(("one rating", release, f"epsilon {epsilon:g}", *counts))
    for epsilon in USER_EPSILONS:
        most = of_hundred(guess_of_user(epsilon))
        rows.append(
            ("whole person, replaced", "`NoisyRows`, `JLT`", f"epsilon {epsilon:g}", *[most] * (1 + len(USERS)))
        )
    return table(titles, rows, left=3)


def guess_of_user(epsilon: float) -> float:
    """The largest attack success on one user, of releases with `NoisyRows` and with `JLT`."""
    events = (GaussianEvent(1 / gauss_mu(epsilon, DELTA)), GaussianProjectionEvent(mix_w(DIM, epsilon, DELTA), DIM))
    return max(attack_success_of([event]) for event in events)


def of_hundred(probability: float) -> str:
    """A probability as a whole number of 100, rounded up."""
    return f"{math.ceil(100 * probability - 1e-9)}"


def guess_picture() -> str:
    """Attack success with Gaussian noise, for guarantees for a rating and for a user, as bars between 50 and 100 %."""
    bars = []
    for epsilon in (8, 1):
        event = several(epsilon)["`NoisyRows`"]
        bars.append((f"epsilon {epsilon} for one rating: one rating", attack_success_of([event(1)])))
        bars.append((f"epsilon {epsilon} for one rating: all {PERSON} ratings", attack_success_of([event(PERSON)])))
    for epsilon in (8, 1):
        bars.append((f"epsilon {epsilon} for one user: all {PERSON} ratings", guess_of_user(epsilon)))
    lines = []
    for number, (label, probability) in enumerate(bars):
        y, width = 52 + 34 * number, 6 * (100 * probability - 50)
        lines.append(f'<text x="16" y="{y + 15}">{label}</text>')
        lines.append(f'<rect class="bar" x="300" y="{y}" width="{width:.1f}" height="20"/>')
        lines.append(f'<text x="{306 + width:.1f}" y="{y + 15}">{share(probability)}</text>')
    body = "\n".join(lines)
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 270" role="img" font-family="sans-serif" font-size="14">
<style>
.page {{ fill: #ffffff; stroke: #9aa4b0; }} text {{ fill: #1b1f24; }} .bar {{ fill: #2f6fb3; }} line {{ stroke: #9aa4b0; }}
@media (prefers-color-scheme: dark) {{
.page {{ fill: #1b1f24; }} text {{ fill: #e6e9ed; }} .bar {{ fill: #6aa8e8; }}
}}
</style>
<rect class="page" x="1" y="1" width="698" height="268" rx="8"/>
<text x="16" y="30" font-weight="bold">Attack success at most, with Gaussian noise (50 % is a coin)</text>
<line x1="300" y1="44" x2="300" y2="256"/><line x1="600" y1="44" x2="600" y2="256"/>
{body}
</svg>
"""


def calibration_table() -> str:
    """Noise for one rating of at most 1, and what the paper's noise really gives."""
    titles = ("epsilon", "w, paper", "w, `unit`", "ratio", "w, `gaussian`", "true epsilon, paper")
    rows = []
    for epsilon in EPSILONS:
        printed, unit = paper_w(DIM, epsilon, DELTA), max_w(math.sqrt(DIM), epsilon, DELTA)
        projected = (digits(printed), digits(unit), f"{printed / unit:.1f}", digits(mix_w(DIM, epsilon, DELTA)))
        really = rounded_up(mix_epsilon(DELTA, 1 / printed, DIM))
        cells = (1 / gauss_mu(epsilon, DELTA), flip_probability(epsilon))
        rows.append((f"{epsilon:g}", *projected, really, *map(digits, cells)))
    return table((*titles, "sigma, rows", "flips"), rows, left=0)


def classical_table() -> str:
    """What the textbook's standard deviation gives, for a sensitivity of 1."""
    titles = ("epsilon", "classical sigma", "exact sigma", "true epsilon, classical")
    rows = []
    for epsilon in EPSILONS:
        sigma = math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon
        real = rounded_up(gauss_epsilon(DELTA, 1 / sigma)), shown_delta(gauss_delta(epsilon, 1 / sigma))
        rows.append((f"{epsilon:g}", digits(sigma), digits(1 / gauss_mu(epsilon, DELTA)), *real))
    return table((*titles, "true delta, classical"), rows, left=0)


def several(epsilon: float) -> dict[str, Callable[[int], PrivacyEvent]]:
    """Return the event of k ratings of one person, by the release that guarantees ``epsilon`` for one of them."""
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
    """Return the largest mu of k ratings of one person through one M, over that of one rating, by k."""
    bounds = group_stretch(GaussianMatrix(DIM, ITEMS, 0, unit=True), (*GROUPS, *USERS))
    return {k: bound / bounds[1] for k, bound in bounds.items()}


def groups_table() -> str:
    """Epsilon of several ratings of one person together."""
    titles = ("epsilon of one rating", "release", *(f"k = {k}" for k in GROUPS))
    rows = [
        (f"{epsilon:g}", name, *(rounded_up(epsilon_of([event(k)], DELTA)) for k in GROUPS))
        for epsilon in RATING_EPSILONS
        for name, event in several(epsilon).items()
    ]
    return table(titles, rows, left=2)


def users_table() -> str:
    """Epsilon of all ratings of a user, and the largest attack success."""
    titles = ("epsilon of one rating", "release", *(f"{k} ratings" for k in USERS))
    rows = [
        (f"{epsilon:g}", name, *(with_guess(event(k)) for k in USERS))
        for epsilon in RATING_EPSILONS
        for name, event in several(epsilon).items()
    ]
    return table(titles, rows, left=2)


def with_guess(event: PrivacyEvent) -> str:
    """Epsilon at delta, and the largest attack success."""
    return f"{rounded_up(epsilon_of([event], DELTA))} ({share(attack_success_of([event]))})"


def user_level_table() -> str:
    """Noise that protects a whole user, zeroed out, and the epsilon of one rating with the same noise."""
    clips = [f"sigma, k = {k}" for k in USERS]
    titles = ("epsilon", "guess", "`NoisyRows`: sigma / C", "`JLT`: w / C", *clips)
    rows = []
    for epsilon in USER_EPSILONS:
        sigma, w = 1 / gauss_mu(epsilon, DELTA), mix_w(DIM, epsilon, DELTA)
        sigmas = [sigma * math.sqrt(k) for k in USERS]
        held = [f"{digits(s)} ({rounded_up(gauss_epsilon(DELTA, 1 / s))})" for s in sigmas]
        rows.append((f"{epsilon:g}", share(guess_of_user(epsilon)), digits(sigma), digits(w), *held))
    return table(titles, rows, left=0)


def vectors_table() -> str:
    """Noise on a user's vectors by their number of layers, and the composed loss of the paper's noise."""
    titles = ("epsilon", *(f"L = {layers}" for layers in LAYERS), "true epsilon, paper", "half the noise")
    rows = []
    for epsilon in (1, 4, 8, 16):
        noise = [
            UserVectors.calibrate(epsilon=epsilon, delta=DELTA, clip=0.5, num_layers=layers).noise_std
            for layers in LAYERS
        ]
        classical = math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon
        true = (rounded_up(gauss_epsilon(DELTA, moved * math.sqrt(30) / classical)) for moved in (1, 2))
        rows.append((f"{epsilon}", *map(digits, noise), *true))
    return table(titles, rows, left=0)


def rounds_table() -> str:
    """Noise multipliers of private rounds, and the same over the rate."""
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
    """Noise of one-bit matrix completion with a logistic link: on a sign, on a bit, and over all entries."""
    noises = ("InP: flips", "S/N", "Laplace: deviation", "S/N", "Gaussian: sigma", "S/N")
    titles = ("epsilon", *noises, "all: real, invented")
    rows = []
    for epsilon in VALUE_EPSILONS:
        p = plan_input(epsilon).p1
        spread = math.sqrt(2) * plan_objective(Logistic(), epsilon).scale
        sigma = plan_objective(Logistic(), epsilon, noise="gaussian", delta=DELTA).scale
        bits = (digits(p), digits((1 - 2 * p) ** 2 / (p * (1 - p))), digits(spread), digits(spread**-2))
        real, _, invented = plan_ternary(epsilon).expected_reports(*GRID)
        rows.append((f"{epsilon:g}", *bits, digits(sigma), digits(sigma**-2), f"{real:,.0f}, {invented:,.0f}"))
    return table(titles, rows, left=0)


def output_table() -> str:
    """Noise on an entry of the completed matrix, logistic link, at the usual step size."""
    link, rows = Logistic(), []
    for epsilon in VALUE_EPSILONS:
        sigmas = []
        for ridge in RIDGES:
            size = usual_step(link, ridge)
            plan = plan_output(link, epsilon, DELTA, alpha=1.0, ridge=ridge, steps=OUTPUT_STEPS, step_size=size)
            sigmas.append(digits(plan.scale))
        rows.append((f"{epsilon:g}", *sigmas))
    return table(("epsilon", *(f"sigma, ridge {ridge:g}" for ridge in RIDGES)), rows, left=0)


def gradients_table() -> str:
    """Deviations of Laplace and Gaussian noise on an entry of each gradient, and the true cost of Laplace noise."""
    titles = ("steps", *(f"epsilon {epsilon:g}" for epsilon in STEP_EPSILONS), "Laplace at 1, with delta")
    rows = []
    for steps in STEPS:
        pairs = []
        for epsilon in STEP_EPSILONS:
            laplacian = math.sqrt(2) * plan_gradient(epsilon, steps=steps, noise="laplace").scale
            pairs.append(f"{digits(laplacian)}, {digits(plan_gradient(epsilon, steps=steps, delta=DELTA).scale)}")
        really = epsilon_of([plan_gradient(1, steps=steps, noise="laplace").event], DELTA)
        rows.append((f"{steps}", *pairs, rounded_up(really)))
    return table(titles, rows, left=0)


def digits(value: float) -> str:
    """Return a number with five significant digits, a very small one with three."""
    return f"{value:#.5g}".rstrip(".") if value >= 1e-4 else f"{value:.2e}"
