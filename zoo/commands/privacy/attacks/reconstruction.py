"""Reconstruction attack: recover users' vectors and items from their release with a learned inverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.stats import rankdata

from zoo.commands.privacy.attacks.inverse import Integers, Inverse, rows_at_once
from zoo.nn.ridge import Floats

#: Learns an inverse from released vectors and targets of known users.
Learner = Callable[[Floats, Floats | csr_array], Inverse]


class Adversary(NamedTuple):
    """Known and attacked users of an attacker, which are disjoint.

    Examples:
        >>> Adversary.who_knows(0.5, csr_array(np.eye(6)), seed=0).known.shape
        (3,)
    """

    known: Integers  # users whose clean vectors and items are known, (known,)
    attacked: Integers  # users of whom only the release is known, (attacked,)

    @classmethod
    def who_knows(cls, share: float, items: csr_array, seed: int) -> Adversary:
        """Return an attacker who knows a random share of the users with items, and attacks the others."""
        if not 0 < share < 1:
            raise ValueError(f"The share of known users is {share}. It must lie between 0 and 1.")
        users = np.random.default_rng(seed).permutation(np.flatnonzero(np.diff(items.indptr)))
        count = round(share * len(users))
        if min(count, len(users) - count) < 2:
            raise ValueError(
                f"Of {len(users)} users {count} are known and {len(users) - count} attacked. At least two of each are needed. "
                "Change the share."
            )
        return cls(users[:count], users[count:])


class Recovered(NamedTuple):
    """Attack success, averaged over users; see `vectors_recovered` and `items_recovered`.

    Examples:
        >>> Recovered(leakage=1.0, explained=1.0, auc=0.5, precision=0.1).auc
        0.5
    """

    leakage: float
    explained: float
    auc: float
    precision: float


def recovered(
    learn: Learner, released: Floats, clean: Floats, items: csr_array, adversary: Adversary
) -> Recovered:  # fmt: skip
    """Return the attack success of an inverse that is learned from known users.

    Args:
        learn: Learns the inverse.
        released: Released vectors, (users, width).
        clean: Vectors before clip and noise, (users, width).
        items: Items of each user, 0/1, (users, items).
        adversary: Known and attacked users.

    Examples:
        >>> from zoo.commands.privacy.attacks.inverse import ridge_inverse
        >>> clean = np.arange(24.0).reshape(12, 2)
        >>> items = csr_array(np.tile([[1.0, 0.0]], (12, 1)))
        >>> adversary = Adversary.who_knows(0.5, items, seed=0)
        >>> round(recovered(ridge_inverse, clean, clean, items, adversary).explained, 2)
        1.0
    """
    known, attacked = adversary
    guesses = learn(released[known], clean[known])(released[attacked])
    leakage, explained = vectors_recovered(clean[attacked], guesses, clean[known].mean(axis=0))
    scores = learn(released[known], items[known])
    return Recovered(
        leakage, explained, *items_recovered(lambda part: scores(released[attacked][part]), items[attacked])
    )


def vectors_recovered(clean: Floats, guesses: Floats, mean: Floats) -> tuple[float, float]:
    """Return leakage and explained share of the variance about a mean (width,) of vectors (users, width).

    Leakage is ``1 / (1 + mean_u |e_u - I(x_u)| / s)``, where ``s`` is the root mean squared distance of the vectors from the mean.
    A perfect reconstruction has leakage 1 and explained share 1; guessing the mean has about 1/2 and 0.

    Reference: Yang et al., *FedGCDR* (NeurIPS 2024), definition 3. Departures: distances are divided by ``s``, so that leakage
    does not depend on the scale; item vectors are not released, so `items_recovered` replaces their term.

    Examples:
        >>> clean = np.eye(2)
        >>> vectors_recovered(clean, clean, clean.mean(axis=0))
        (1.0, 1.0)
    """
    missed, spread = (((clean - other) ** 2).sum(axis=1) for other in (guesses, mean))
    scale = float(np.sqrt(spread.mean())) or 1.0
    return 1 / (1 + float(np.sqrt(missed).mean()) / scale), 1 - float(missed.sum()) / (float(spread.sum()) or 1.0)


def items_recovered(scores: Callable[[slice], Floats], items: csr_array) -> tuple[float, float]:
    """Return AUC and precision of scores for the items of users (users, items), averaged over users.

    AUC is the probability that an item of the user scores above another item; chance is 0.5. Precision is the share of the user's
    items among the best k, for a user with k items. Ties count as their expectation under random order. Users with no item, or
    all, are excluded.

    Args:
        scores: Dense scores (users in the slice, items) for a slice of users.
        items: Items of each user.

    Examples:
        >>> items = csr_array(np.array([[1.0, 0.0, 0.0]]))
        >>> items_recovered(lambda users: np.array([[3.0, 2.0, 1.0]])[users], items)
        (1.0, 1.0)
    """
    num_users, num_items = items.shape
    size, figures = rows_at_once(num_items), []
    for first in range(0, num_users, size):
        part = slice(first, min(first + size, num_users))
        owned = items[part].toarray() > 0
        some = (owned.any(axis=1)) & ~owned.all(axis=1)
        figures.append(_auc_and_precision(scores(part)[some], owned[some]))
    auc, precision = np.concatenate(figures, axis=1)
    if not len(auc):
        raise ValueError("Every user has all items or none. Use a source with other users.")
    return float(auc.mean()), float(precision.mean())


def _auc_and_precision(scores: Floats, owned: npt.NDArray[np.bool_]) -> Floats:
    counts = owned.sum(axis=1)
    ranks = rankdata(scores, axis=1)
    above = (ranks * owned).sum(axis=1) - counts * (counts + 1) / 2
    auc = above / (counts * (owned.shape[1] - counts))
    # Items above the k-th score are guessed, and of those equal to it as many as are left.
    last = np.take_along_axis(-np.sort(-scores, axis=1), counts[:, None] - 1, axis=1)
    higher, equal = scores > last, scores == last
    left = (counts - higher.sum(axis=1)) / equal.sum(axis=1)
    right = (higher & owned).sum(axis=1) + left * (equal & owned).sum(axis=1)
    return np.stack([auc, right / counts])


def popularity_guess(items: csr_array, adversary: Adversary) -> tuple[float, float]:
    """Return AUC and precision of an attack without a release, which guesses the most popular items of known users.

    Examples:
        >>> items = csr_array(np.tile([[1.0, 0.0]], (6, 1)))
        >>> popularity_guess(items, Adversary.who_knows(0.5, items, seed=0))
        (1.0, 1.0)
    """
    counts = np.asarray(items[adversary.known].sum(axis=0), dtype=np.float64)
    attacked = items[adversary.attacked]
    return items_recovered(lambda part: np.tile(counts, (part.stop - part.start, 1)), attacked)
