"""Worst pairs of sanitised gradients: a critic that one user turns around; a white-box audit."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from zoo.privacy.audits.two_world import Audit
from zoo.privacy.randomness.noise import NoiseSource
from zoo.privacy.training.sanitisation import SanitisationPlan, plan_sanitisation
from zoo.privacy.training.sanitised_gradient import SanitisedGradient

Floats = npt.NDArray[np.float64]
Sanitiser = Callable[[SanitisationPlan, NoiseSource], Callable[[Tensor], Tensor]]
"""Makes what lets the rows of each step pass and sanitises their gradient, as `SanitisedGradient` does."""

_ROWS = 100_000  # at once; the noise on a row does not depend on how many there are
_BEYOND = 3.0  # length of a row's gradient in clips


def sanitised_audit(name: str, plan: SanitisationPlan, sanitiser: Sanitiser = SanitisedGradient) -> Audit:
    """Audit of a generator's gradients, which are all that it learns of the ratings.

    In one world all rows' gradients point one way, far beyond the clip, and in the other the opposite way, as if one user
    had turned the critic around; and both turn from step to step, so that noise which stays the same takes itself away. The
    score is their noisy sum along the way of one of them, added up over steps. A row has two numbers: clipping them one
    by one would let twice the square through.

    Args:
        name: For a table.
        plan: Of few rows and steps.
        sanitiser: What is audited; others than `SanitisedGradient` show that this audit catches them.
    """

    def worlds(runs: int, noise: NoiseSource) -> tuple[Floats, Floats]:
        one_way = _scores(plan, sanitiser, runs, -1.0, noise)
        return one_way, _scores(plan, sanitiser, runs, 1.0, noise)

    def residuals(count: int, noise: NoiseSource) -> Floats:
        runs = -(-count // (2 * plan.rows * plan.steps))
        return _gradients(plan, sanitiser, runs, 0.0, noise).ravel()

    return Audit(
        name,
        plan.epsilon,
        plan.delta,
        worlds,
        mu=plan.mu_after(plan.steps),
        residuals=residuals,
        sigma=plan.noise_multiplier * plan.clip,
        relation=plan.relation,
    )


def sanitised_audits(epsilon: float = 1.0, delta: float = 1e-5) -> list[Audit]:
    """Audit of sanitised gradients."""
    plan = plan_sanitisation(epsilon=epsilon, delta=delta, rows=4, steps=3, clip=0.5)
    return [sanitised_audit("GS-WGAN", plan)]


def _gradients(plan: SanitisationPlan, sanitiser: Sanitiser, runs: int, length: float, noise: NoiseSource) -> Floats:
    """Sanitised gradients of rows of two numbers each, as sums; shape ``(steps, runs, rows, 2)``."""
    at_once = max(1, _ROWS // plan.rows)
    found = []
    for start in range(0, runs, at_once):
        count = min(at_once, runs - start)
        passing = sanitiser(replace(plan, rows=count * plan.rows), noise)
        steps = []
        for way in _ways(plan):
            rows = torch.zeros(count * plan.rows, 2, requires_grad=True)
            (way * length * _BEYOND * plan.clip * passing(rows).sum(dim=1)).mean().backward()
            assert rows.grad is not None
            steps.append(np.asarray(rows.grad, dtype=np.float64).reshape(count, plan.rows, 2) * count * plan.rows)
        found.append(np.stack(steps))
    return np.concatenate(found, axis=1)


def _scores(plan: SanitisationPlan, sanitiser: Sanitiser, runs: int, length: float, noise: NoiseSource) -> Floats:
    """Of each run, shape ``(runs,)``: what lies along the gradients, whose two numbers are alike."""
    sums = _gradients(plan, sanitiser, runs, length, noise).sum(axis=(2, 3))
    scores: Floats = _ways(plan) @ sums / math.sqrt(2 * plan.rows * plan.steps)
    return scores


def _ways(plan: SanitisationPlan) -> Floats:
    """Which way the gradients of each step point, 1 or -1, shape ``(steps,)``."""
    return np.resize([1.0, -1.0], plan.steps)
