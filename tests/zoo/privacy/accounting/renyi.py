"""Renyi divergences as an independent, looser reference: upper bounds that no exact curve may exceed."""

from collections.abc import Callable
from math import inf, log, log1p

import numpy as np
import numpy.typing as npt


def mix_rdp(order: float, s: float, dim: int) -> float:
    """Of one release through a public Gaussian matrix; infinite beyond the pole.

    From the moment generating function of the chi-square law. Sums over releases need independent matrices.
    """
    pole = order * (order - 1) * s * s
    return -dim / 2 * log1p(-pole) / (order - 1) if pole < 1 else inf


def rdp_to_epsilon(rdp: Callable[[float], float], delta: float, orders: npt.ArrayLike | None = None) -> float:
    """Epsilon from a divergence, minimised over orders (Canonne, Kamath & Steinke, NeurIPS 2020, Proposition 12)."""
    tried = 1 + np.geomspace(1e-3, 1e6, 4000) if orders is None else np.asarray(orders, dtype=np.float64)
    values = np.array([rdp(float(order)) for order in tried])
    bounds = values + np.log1p(-1 / tried) - (log(delta) + np.log(tried)) / (tried - 1)
    return max(0.0, float(bounds.min()))
