"""Stability of projected gradient steps: how far one flipped sign moves the end of a fixed number of steps.

Two runs from 0 on data that differ in one sign: with +1 at an entry the matrix is X, with -1 it is Y, and ``D = X - Y``. A
step is ``X <- clamp(project(X - s (gradient + ridge X)))`` of size s, with the full gradient of the negative log-likelihood.
`general_sensitivity` needs curvatures alone; `output_sensitivity` also needs that entries are clamped to alpha.
"""

import math

import numpy as np

from zoo.privacy.one_bit.link_functions import ConvexLink, Link, check_ridge

_MARGIN = 1e-10  # of a sensitivity over rounding errors
_SLACK = 1e-12  # relative tolerance of a step size, far below the margin
_CELLS = 2**17  # of the distances over which a gain is bounded: an excess of about 1e-5


def longest_step(link: Link, ridge: float) -> float:
    """Return ``2/(2 ridge + smoothness)``: longer steps can increase the distance of two matrices."""
    return 2 / (2 * ridge + link.smoothness)


def usual_step(link: Link, ridge: float) -> float:
    """Return ``1/(2 (ridge + smoothness))``: half of the longest step that never overshoots.

    The sensitivity falls by an eighth to a quarter from twice this size to this size and hardly below it, while the number of
    needed steps grows with one over the size.
    """
    return 1 / (2 * (ridge + link.smoothness))


def output_sensitivity(link: Link, *, alpha: float, ridge: float, steps: int, step_size: float) -> float:
    """Return how far one flipped sign moves the end of the steps of `plan_output`, in the L2 norm, rounded up.

    Protects the value of one rating: neighbours differ in one sign. Let ``r`` bound ``|D|`` (L2, all entries together) before
    a step and ``t`` be D at the entry e that differs. With ``u = 1 - step_size ridge``, ``p = h'/h`` and ``q = h'/(1 - h)``:

    1. *Other entries.* Both runs have the same likelihood there, with a curvature between 0 and the smoothness L (0 where
       nothing is observed), so by the mean value theorem the step multiplies D by a number between
       ``1 - step_size (ridge + L)`` and u. A step of at most ``2/(2 ridge + L)`` makes that at most u in size.
    2. *The entry e, t >= 0.* The gradients are ``-p(x)`` and ``q(x - t)``, so D becomes ``u t + step_size (p(x) + q(x - t))``,
       which is not negative, and at most ``u t + step_size B(t)``: `ConvexLink.pull`. B falls with t.
    3. *The entry e, t < 0.* p falls with a slope of at most L, so ``p(x) + q(y) <= B(0) + L |t|``, and D becomes a number between
       ``-u |t|`` and ``step_size B(0) + k |t|`` with ``k = step_size (ridge + L) - 1``. Where a step never overshoots, k <= 0.
    4. *All entries.* ``|D|^2`` becomes at most ``u^2 (r^2 - t^2)`` plus the square of the entry e: ``u^2 r^2 + G(t)``, where G is
       ``step_size B(t) (2 u t + step_size B(t))`` by 2, and by 3 at most ``(k |t| + step_size B(0))^2 - u^2 t^2``, or 0.
    5. *All t.* ``|t| <= r``, and ``|t| <= 2 alpha``, because both matrices are clamped, as is 0. No other property of t or of
       the distribution of D is used: projections may redistribute D, but do not increase its norm over all entries. So
       ``r^2 <- u^2 r^2 + max G`` from r = 0 bounds every step, by induction: the right side rises with r.

    G is bounded on short intervals by the values at their ends. Small steps and a curvature c at e give at most
    ``Delta/(2 sqrt(ridge c))``, as for minimisers, without needing one. Never more than `general_sensitivity`.
    """
    general = general_sensitivity(link, alpha=alpha, ridge=ridge, steps=steps, step_size=step_size)
    assert isinstance(link, ConvexLink)
    shrink, overshoot = 1 - step_size * ridge, step_size * (ridge + link.smoothness) - 1
    apart = np.linspace(0.0, min(2 * alpha, general), _CELLS + 1)
    near, far = apart[:-1], apart[1:]
    pulled = step_size * link.pull(alpha, apart)
    gains = pulled[:-1] * (2 * shrink * far + pulled[:-1])
    if overshoot > 0:
        gains = np.maximum(gains, (overshoot * far + pulled[0]) ** 2 - (shrink * near) ** 2)
    gains = np.maximum.accumulate(gains)
    distance, before = 0.0, -1.0
    for _ in range(steps):
        if distance == before:
            break
        cell = min(int(np.searchsorted(far, distance)), _CELLS - 1)
        before, distance = distance, math.sqrt((shrink * distance) ** 2 + float(gains[cell]))
    return min(general, distance * (1 + _MARGIN))


def general_sensitivity(link: Link, *, alpha: float, ridge: float, steps: int, step_size: float) -> float:
    """Return how far one flipped sign moves the end of the steps, by contraction alone; rounded up, in the L2 norm.

    ``Delta (1 - (1 - step_size ridge)^steps)/ridge`` with ``Delta = link.sensitivity(alpha)``; ``Delta step_size steps``
    without a ridge. A step on the same data reduces the distance of two matrices by the factor ``1 - step_size ridge``:
    curvatures lie between ridge and ridge plus smoothness, the step size is at most 2 over their sum, and projections do not
    increase distances. The sign that differs adds at most ``step_size Delta`` at one entry. Arguments as in `plan_output`.
    """
    if not isinstance(link, ConvexLink):
        raise ValueError(f"The link must be convex, got {link.name!r}.")
    check_ridge(ridge)
    check_steps(steps)
    largest = longest_step(link, ridge)
    if not 0 < step_size <= largest * (1 + _SLACK):
        allowed = f"(0, {largest:.6g}], which is 2/(2 ridge + smoothness)"
        raise ValueError(f"step_size must lie in {allowed}, got {step_size!r}.")
    shrunk = -math.expm1(steps * math.log1p(-step_size * ridge)) / ridge if ridge > 0 else step_size * steps
    return link.sensitivity(alpha) * shrunk * (1 + _MARGIN)


def check_steps(steps: int) -> None:
    """Check that a number of steps is a positive integer."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"steps must be an integer >= 1, got {steps!r}.")
