"""A bias for every user and item: the control that a completed matrix has to beat on held-out signs."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from zoo.methods.one_bit_mc.objective import Likelihood, Observations
from zoo.privacy.one_bit.link_functions import Link

Floats = npt.NDArray[np.float64]


def bias_matrix(observations: Observations, link: Link, ridge: float = 1.0) -> Floats:
    """The matrix ``m + u_i + v_j`` under which the signs are most likely, biases shrunk. Protects nobody.

    Args:
        observations: Signs and where they are.
        link: Probability of a +1, given the entry.
        ridge: Weight of half the squared biases of users and items; positive.

    Returns:
        Shape ``(rows, columns)``.
    """
    if not ridge > 0:
        raise ValueError(f"ridge must be positive, or the bias of who has one sign only is infinite; got {ridge!r}.")
    rows, columns = observations.shape
    users, items = np.divmod(observations.cells, columns)
    likelihood = Likelihood.of(observations, link)

    def value(biases: Floats) -> tuple[float, Floats]:
        """The objective and its gradient at the biases of rows, of columns, and m; shape ``(rows + columns + 1,)``."""
        entries, own = np.asarray(biases[-1] + biases[users] + biases[rows + items]), biases[:-1]
        slopes = likelihood.gradient(entries)
        gradient = np.concatenate(
            [np.bincount(users, slopes, rows), np.bincount(items, slopes, columns), [slopes.sum()]]
        )
        gradient[:-1] += ridge * own
        return likelihood.value(entries) + ridge / 2 * float(own @ own), gradient

    found = minimize(value, np.zeros(rows + columns + 1), jac=True, method="L-BFGS-B", options={"maxiter": 500}).x
    matrix: Floats = found[-1] + found[:rows, None] + found[rows : rows + columns]
    return matrix
