"""Worst pairs of one-bit matrix completion: one flipped sign, mostly of a matrix of one entry.

The completion of one entry has a closed form, so each run is a whole completion.
"""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import logit

from zoo.privacy.accounting.relation import Relation
from zoo.privacy.audits.two_world import Audit, Worlds, worlds_of
from zoo.privacy.mechanisms import one_bit, sign_response
from zoo.privacy.mechanisms.one_bit import GradientSteps, OneBit
from zoo.privacy.one_bit.link_functions import Floats, Link, Logistic, Probit
from zoo.privacy.one_bit.published import (
    PublishedScale,
    cross_solutions,
    published_noise,
    published_objective,
    published_output,
)
from zoo.privacy.randomness.noise import NoiseSource

_Scored = Callable[[Floats, NoiseSource], Floats]
"""Map data of many independent runs and noise to their scores ``(runs,)``."""

_ALPHA = 4.0  # nearly all of a loss is visible at this bound of the entry
_PROBIT_ALPHA = 1.0
_LARGEST_CLAIM = 4.0  # of published scales: a bound of 40 000 runs ends at about 7
_CHUNK = 2**20  # noisy numbers in memory at a time
_HALVINGS = 60  # of an interval of 2, down to the last bits

_SIGNS = np.array([[1, 1, -1], [1, 1, 0], [-1, 0, 0]], dtype=np.float64)  # 0: not observed; the corner flips
_RADIUS, _RIDGE, _STEPS, _STEP_SIZE = 2.0, 1.0, 3, 0.5


def one_bit_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Return audits of noise on signs, objective, gradients and output, and of the published scales that do not hold.

    The claim is epsilon; the probit objective claims more by its curvature, published scales claim at most 4. Only Gaussian
    noise has a delta.
    """
    logistic, probit = Logistic(), Probit()
    probit_epsilon = epsilon + probit.log_curvature_ratio(_PROBIT_ALPHA)
    ternary, claim = sign_response.plan_ternary(epsilon), min(epsilon, _LARGEST_CLAIM)
    return [
        flips_audit("InP", sign_response.plan_input(epsilon)),
        ternary_audit("InP, three symbols", ternary, presence=False),
        ternary_audit("InP, three symbols, presence", ternary, presence=True),
        bits_audit("ObjP Laplace", one_bit.plan_objective(logistic, epsilon)),
        bits_audit("ObjP Gaussian", one_bit.plan_objective(logistic, epsilon, noise="gaussian", delta=delta)),
        probit_audit("ObjP probit", one_bit.plan_objective(probit, probit_epsilon, alpha=_PROBIT_ALPHA), probit),
        gradient_audit("GraP Laplace, 2 steps", one_bit.plan_gradient(epsilon, steps=2, noise="laplace")),
        gradient_audit("GraP Gaussian, 100 steps", one_bit.plan_gradient(epsilon, steps=100, delta=delta)),
        output_audit("OutP Gaussian", epsilon, delta),
        published_bits_audit("published ObjP", published_objective(logistic, claim, _ALPHA)),
        *(published_output_audit(f"published OutP, d = {d}", published_output(claim, 1.0), d) for d in (2, 10)),
    ]


def flips_audit(name: str, plan: sign_response.SignResponse) -> Audit:
    """Return the audit of a flipped sign: the score is the report. The claim is attained."""
    worlds = _sign_worlds(lambda signs, noise: sign_response.flipped_signs(signs, plan.p1, plan.p2, noise))
    return Audit.of(name, plan, worlds, attained=plan.epsilon)


def ternary_audit(name: str, plan: sign_response.TernaryResponse, *, presence: bool) -> Audit:
    """Return the audit of an entry that reports one of three symbols: the score is the symbol. The claim is attained.

    With ``presence`` the entry is unrated in one data set; otherwise its sign differs.
    """

    def reported(sign: float, runs: int, noise: NoiseSource) -> Floats:
        # Each row is a run: an unchanged rating, the changed entry, and an unrated entry.
        signs, reports = np.repeat([1.0, sign], runs), np.zeros((runs, 3))
        rated = np.flatnonzero(signs)
        cells = rated % runs, rated // runs
        rows, columns, symbols = sign_response.ternary_signs(*cells, signs[rated], reports.shape, plan, noise)
        reports[rows, columns] = symbols
        return reports[:, 1]

    return Audit.of(name, plan, worlds_of(reported, 0.0 if presence else -1.0, 1.0), attained=plan.epsilon)


def bits_audit(name: str, plan: OneBit) -> Audit:
    """Return the audit of the logistic objective with noisy bits, of one entry: the score is the minimiser."""
    worlds = _sign_worlds(lambda signs, noise: _completed(one_bit.noisy_bits(signs, plan, noise)))
    if plan.noise == "laplace":
        return Audit.of(name, plan, worlds, attained=_tail_ratio(Logistic(), _ALPHA, plan.noise_std))

    def residuals(count: int, noise: NoiseSource) -> Floats:
        return one_bit.noisy_bits(np.ones(count), plan, noise) - 1

    return Audit.of(name, plan, worlds, residuals=residuals)


def probit_audit(name: str, plan: OneBit, link: Probit) -> Audit:
    """Return the audit of the probit objective of one entry: the score is the minimiser, by bisection.

    The plan is that of `plan_objective` for this link, with entries bounded by 1 and no ridge.
    """

    def minimiser(signs: Floats, noise: NoiseSource) -> Floats:
        linear = one_bit.objective_noise(len(signs), plan, noise)
        low, high = np.full(len(signs), -_PROBIT_ALPHA), np.full(len(signs), _PROBIT_ALPHA)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            above, below = link.slopes(middle)
            falls = np.where(signs > 0, above, -below) + linear > 0  # the objective, towards larger entries
            low, high = np.where(falls, middle, low), np.where(falls, high, middle)
        return np.asarray((low + high) / 2)

    return Audit.of(name, plan, _sign_worlds(minimiser), attained=_tail_ratio(link, _PROBIT_ALPHA, plan.noise_std))


def gradient_audit(name: str, plan: GradientSteps) -> Audit:
    """Return the audit of noisy gradients at one entry, with all steps from the same matrix: the score is the log-likelihood ratio.

    Gradients go beyond the clamp. With Laplace noise take few steps, or the extremes of the score are hardly ever reached.
    """
    bound = plan.clip or 0.0

    def summed(signs: Floats, noise: NoiseSource) -> Floats:
        total = np.zeros(len(signs))
        for _ in range(plan.compositions):
            seen = one_bit.noisy_gradient(-3 * bound * signs, plan, noise)
            total -= seen if plan.noise == "gaussian" else np.clip(seen, -bound, bound)  # up to a factor
        return total

    def residuals(count: int, noise: NoiseSource) -> Floats:
        return one_bit.noisy_gradient(np.full(count, bound), plan, noise) - bound

    if plan.noise == "laplace":
        return Audit.of(name, plan, _sign_worlds(summed), attained=plan.epsilon)
    return Audit.of(name, plan, _sign_worlds(summed), residuals=residuals)


def output_audit(name: str, epsilon: float, delta: float) -> Audit:
    """Return the audit of noise on the end of projected gradient steps: three by three, six ratings, the corner flips.

    The steps are those of `completed`; `ends_audit` audits what a run's solver does.
    """
    link = Logistic()
    plan = one_bit.plan_output(link, epsilon, delta, alpha=1.0, ridge=_RIDGE, steps=_STEPS, step_size=_STEP_SIZE)
    observed, flipped = _SIGNS != 0, _SIGNS.copy()
    flipped[0, 0] = -1
    ends = (completed(signs, observed, link, radius=_RADIUS, alpha=1.0) for signs in (flipped, _SIGNS))
    return ends_audit(name, plan, *ends)


def ends_audit(name: str, plan: OneBit, negative: Floats, positive: Floats) -> Audit:
    """Return the audit of noise on the ends of two solvers whose signs differ at one entry, by a plan of `plan_output`.

    The score is the noisy matrix along the difference. That is shorter than the proved sensitivity, which ignores the
    other entries and the projection.
    """
    moved = positive - negative

    def score(copies: Floats, noise: NoiseSource) -> Floats:
        return np.asarray(np.einsum("rij,ij->r", one_bit.noisy_output(copies, plan, noise), moved))

    def residuals(count: int, noise: NoiseSource) -> Floats:
        return one_bit.noisy_output(np.tile(positive, (-(-count // moved.size), 1, 1)), plan, noise) - positive

    worlds = _matrix_worlds(negative, positive, score)
    return Audit.of(name, plan, worlds, attained=float(np.linalg.norm(moved)) / plan.noise_std, residuals=residuals)


def completed(
    signs: Floats,
    observed: npt.NDArray[np.bool_],
    link: Link,
    *,
    radius: float,
    alpha: float,
    ridge: float = _RIDGE,
    steps: int = _STEPS,
    step_size: float = _STEP_SIZE,
) -> Floats:
    """Return the end of the steps of `plan_output` by a slow reference, with the nuclear norm bounded by the radius.

    Signs are +1 or -1 where observed; these, `observed` and the result have the shape ``(rows, columns)``.
    """
    matrix = np.zeros(signs.shape)
    for _ in range(steps):
        above, below = link.slopes(matrix)
        gradient = np.where(observed, np.where(signs > 0, -above, below), 0.0) + ridge * matrix
        left, singular, right = np.linalg.svd(matrix - step_size * gradient, full_matrices=False)
        if singular.sum() > radius:  # the nearest point of the simplex: all fall by the same, none below 0
            falls = (np.cumsum(singular) - radius) / np.arange(1, len(singular) + 1)
            singular = np.maximum(singular - falls[singular > falls][-1], 0.0)
        matrix = np.clip(left * singular @ right, -alpha, alpha)
    return matrix


def published_bits_audit(name: str, scale: PublishedScale) -> Audit:
    """Return the audit of the published noise in the logistic objective, of one entry."""
    worlds = _sign_worlds(lambda signs, noise: _completed(published_noise((1 + signs) / 2, scale, noise)))
    return _refuted(name, scale, worlds)


def published_output_audit(name: str, scale: PublishedScale, size: int) -> Audit:
    """Return the audit of the published noise on a completed square matrix of ``size`` rows.

    The score is the log-likelihood ratio, up to a factor.
    """
    positive, negative = cross_solutions(size, 1.0)

    def score(copies: Floats, noise: NoiseSource) -> Floats:
        noisy = published_noise(copies, scale, noise)
        return np.asarray((np.abs(noisy - negative) - np.abs(noisy - positive)).sum(axis=(1, 2)))

    return _refuted(name, scale, _matrix_worlds(negative, positive, score))


def _refuted(name: str, scale: PublishedScale, worlds: Worlds) -> Audit:
    """Return the audit of a published claim, of which at least twice is attained; it must be caught."""
    claim, relation = scale.claimed_epsilon, Relation.CHANGE_ONE_RATING_VALUE
    return Audit(name, claim, 0.0, worlds, attained=2 * claim, holds=False, relation=relation)


def _sign_worlds(scored: _Scored) -> Worlds:
    return worlds_of(lambda sign, runs, noise: scored(np.full(runs, sign), noise), -1.0, 1.0)


def _matrix_worlds(matrix0: Floats, matrix1: Floats, scored: _Scored) -> Worlds:
    """Return runs that are copies of one of two completed matrices, ``(runs, rows, columns)``."""
    chunk = max(1, _CHUNK // matrix0.size)
    return worlds_of(lambda one, runs, noise: scored(np.tile(one, (runs, 1, 1)), noise), matrix0, matrix1, chunk)


def _completed(bits: Floats) -> Floats:
    """Return the logistic minimiser of one entry in ``[-alpha, alpha]``, given its noisy bit."""
    return np.clip(logit(np.clip(bits, 0.0, 1.0)), -_ALPHA, _ALPHA)


def _tail_ratio(link: Link, alpha: float, scale: float) -> float:
    """Return the log-ratio of +1 and -1 putting the only entry at its bound alpha; Laplace noise in the objective.

    Noise N must outweigh the slope that is left there: ``ln P(N >= -h'/h) - ln P(N >= h'/(1 - h))``.
    """
    above, below = (float(slope) for slope in link.slopes(alpha))
    return math.log1p(-math.exp(-above / scale) / 2) - (-below / scale - math.log(2))
