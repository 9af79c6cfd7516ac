"""Weights of an ensemble, chosen greedily by what a weighted sum of scores is worth on held-out cases."""

from collections.abc import Callable

import torch
from torch import Tensor


def standardised(scores: Tensor) -> Tensor:
    """Each row (batch, num_items) less its mean and over its standard deviation (of the row, not of a sample); 0 for a level row.

    Methods score on scales of their own, and by users on others: what is left is how far an item stands out for a user.
    """
    centred = scores - scores.mean(dim=1, keepdim=True)
    spread = centred.square().mean(dim=1, keepdim=True).sqrt()
    # Up to rounding of large level scores.
    level = spread <= 1e-6 * scores.abs().amax(dim=1, keepdim=True)
    return torch.where(level, 0.0, centred / spread.masked_fill(level, 1.0))


def greedy_weights(number: int, value: Callable[[Tensor], float], rounds: int) -> tuple[Tensor, float]:
    """Weights of candidates, by forward selection with replacement.

    Each round adds the candidate with which the sum of those chosen so far, each as often as it was, is worth most; of equal ones
    the first. Kept are the weights of the best round, of equal ones the earliest: never worth less than the best candidate alone,
    nor with more rounds. Nothing is drawn.

    Reference: Caruana, Niculescu-Mizil, Crew, Ksikes, *Ensemble Selection from Libraries of Models*, ICML 2004, sections 2 and 2.1.

    Departures: it begins with nothing, in the place of the best few (section 2.2), and selects once among all candidates (section
    2.3 repeats it among random ones).

    Args:
        number: Of candidates.
        value: What weights (number,) that sum to 1 are worth; higher is better.
        rounds: How many candidates are added.

    Returns:
        Weights (number,) that sum to 1, and what they are worth.

    Raises:
        ValueError: There is no candidate, or no round.
    """
    if min(number, rounds) < 1:
        raise ValueError(f"There must be a candidate and a round; got {number} and {rounds}.")
    counts = torch.zeros(number)
    best, worth = counts, -torch.inf
    for chosen in range(1, rounds + 1):
        tried = [(counts + one) / chosen for one in torch.eye(number)]
        values = [value(weights) for weights in tried]
        first = max(range(number), key=values.__getitem__)
        counts[first] += 1
        if values[first] > worth:
            best, worth = tried[first], values[first]
    return best, worth
