"""How much of users' clean vectors and items a learned inverse brings back from what was released of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.stats import rankdata

from zoo.commands.privacy.attacks.inverse import Integers, Inverse, rows_at_once
from zoo.nn.ridge import Floats

#: Learns an inverse from released vectors and targets of the users whom the adversary knows.
Learner = Callable[[Floats, Floats | csr_array], Inverse]


class Adversary(NamedTuple):
    """Whom an adversary knows, and whom it attacks; no user is both."""

    known: Integers  # users of whom it knows the clean vectors and the items, (known,)
    attacked: Integers  # users of whom it has what was released alone, (attacked,)

    @classmethod
    def who_knows(cls, share: float, items: csr_array, seed: int) -> Adversary:
        """One who knows a random share of the users that have any item. Others have nothing to be found, and are left out."""
        if not 0 < share < 1:
            raise ValueError(f"The share of users whom the adversary knows must lie between 0 and 1, got {share}.")
        users = np.random.default_rng(seed).permutation(np.flatnonzero(np.diff(items.indptr)))
        count = round(share * len(users))
        if min(count, len(users) - count) < 2:
            raise ValueError(
                f"Of {len(users)} users with ratings an adversary would know {count} and attack {len(users) - count}; it takes at "
                "least two of each. Choose another share, or a source with more users."
            )
        return cls(users[:count], users[count:])


class Recovered(NamedTuple):
    """What an attack brought back of the users attacked, means over them; see `vectors_recovered` and `items_recovered`."""

    leakage: float
    explained: float
    auc: float
    precision: float


def recovered(
    learn: Learner, released: Floats, clean: Floats, items: csr_array, adversary: Adversary
) -> Recovered:  # fmt: skip
    """What an inverse finds that was learned from the users whom the adversary knows: their vectors, and which items they have.

    Args:
        learn: How the inverse is learned.
        released: What was released of each user, (users, width).
        clean: What the network made of each, before clip and noise, (users, width).
        items: Which items of the source each has, 0/1, (users, items).
        adversary: Whom it knows and whom it attacks.
    """
    known, attacked = adversary
    guesses = learn(released[known], clean[known])(released[attacked])
    leakage, explained = vectors_recovered(clean[attacked], guesses, clean[known].mean(axis=0))
    scores = learn(released[known], items[known])
    return Recovered(
        leakage, explained, *items_recovered(lambda part: scores(released[attacked][part]), items[attacked])
    )


def vectors_recovered(clean: Floats, guesses: Floats, mean: Floats) -> tuple[float, float]:
    """Leakage of vectors (users, width), and the share of their variation about a mean (width,) that is explained.

    Leakage is ``1 / (1 + mean_u |e_u - I(x_u)| / s)``, where ``s`` is the root mean squared distance of the vectors from the mean:
    1 is a perfect reconstruction, and who guesses the mean has about 1/2. Explained is 1 there, and here 0.

    Reference: Yang et al., *FedGCDR* (NeurIPS 2024), definition 3. Departures: distances are divided by ``s``, for otherwise the
    same vectors in another unit leak another amount; there is no term of the items' vectors, since none is released, and in its
    place `items_recovered`.
    """
    missed, spread = (((clean - other) ** 2).sum(axis=1) for other in (guesses, mean))
    scale = float(np.sqrt(spread.mean())) or 1.0
    return 1 / (1 + float(np.sqrt(missed).mean()) / scale), 1 - float(missed.sum()) / (float(spread.sum()) or 1.0)


def items_recovered(scores: Callable[[slice], Floats], items: csr_array) -> tuple[float, float]:
    """AUC and precision of scores in telling the items that users (users, items) have; means over the users.

    AUC is how often an item of the user is above one that the user has not: 0.5 is chance. Precision is how many of the first k are
    the user's, of a user with k items. Equal scores count as what random order would give on average. Users who have no item, or
    all, are left out.

    Args:
        scores: Of a slice of the users, (users in it, items); dense for that slice alone.
        items: Which items each user has.
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
        raise ValueError("Nobody has an item and lacks another, so there is nothing to be told apart.")
    return float(auc.mean()), float(precision.mean())


def _auc_and_precision(scores: Floats, owned: npt.NDArray[np.bool_]) -> Floats:
    """Both of each user, (2, users)."""
    counts = owned.sum(axis=1)
    ranks = rankdata(scores, axis=1)
    above = (ranks * owned).sum(axis=1) - counts * (counts + 1) / 2
    auc = above / (counts * (owned.shape[1] - counts))
    # The k-th highest score: what is above it is named, and of what equals it as many as are left.
    last = np.take_along_axis(-np.sort(-scores, axis=1), counts[:, None] - 1, axis=1)
    higher, equal = scores > last, scores == last
    left = (counts - higher.sum(axis=1)) / equal.sum(axis=1)
    right = (higher & owned).sum(axis=1) + left * (equal & owned).sum(axis=1)
    return np.stack([auc, right / counts])


def popularity_guess(items: csr_array, adversary: Adversary) -> tuple[float, float]:
    """AUC and precision of who names to everybody what most of the known users have, and has no release at all."""
    counts = np.asarray(items[adversary.known].sum(axis=0), dtype=np.float64)
    attacked = items[adversary.attacked]
    return items_recovered(lambda part: np.tile(counts, (part.stop - part.start, 1)), attacked)
