"""References: metrics of chance and of item counts on the cases of a test, and the course of validation."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from zoo.data.batch_types import Average
from zoo.data.held_out_cases import HeldOutCases
from zoo.data.item_scores import case_values
from zoo.data.metrics import Ties

Figures = dict[str, float]
BLOCKS = "▁▂▃▄▅▆▇█"


def references(
    scores: Mapping[str, Tensor],
    cases: HeldOutCases,
    ks: Sequence[int],
    ties: Ties,
    full: bool,
    sampled: bool,
    average: Average = "cases",
) -> dict[str, Figures]:
    """Return exact metrics of chance and of scores of items on held-out cases, under the names of a run's metrics.

    Chance is a tie of all items in expectation. No matrix of all items is made.

    Args:
        scores: By name, one score per item, ``(num_items,)``.
        cases: Held-out cases.
        ks: Cut-offs.
        ties: Treatment of equal scores.
        full: Whether to rank all items.
        sampled: Whether to rank sampled candidates.
        average: Whether each case counts once, or each user.
    """
    chance = torch.zeros(cases.seen.width)
    rules: list[tuple[str, Tensor, Ties]] = [("chance", chance, "expected"), *((*one, ties) for one in scores.items())]
    held_out = cases.by_user.counts_of(cases.users).double()
    weights = torch.ones_like(held_out) if average == "cases" else 1 / held_out
    return {
        name: {
            key: float(values @ weights / weights.sum())
            for key, values in case_values(own, cases, ks, rule, full=full, sampled=sampled).items()
        }
        for name, own, rule in rules
    }


def in_words(found: Mapping[str, Figures], metric: str = "ndcg@10") -> str:
    """Return one line with the references' NDCG@10."""
    shown = {
        name: ", ".join(
            f"{key.split('/')[0]} {value:.4f}" for key, value in figures.items() if key.endswith(f"/{metric}")
        )
        for name, figures in found.items()
    }
    recent = f"; of RecentPopularity: {shown['recent_popularity']}" if "recent_popularity" in shown else ""
    return f"NDCG@10 of Popularity: {shown['popularity']}{recent}; of chance: {shown['chance']}"


def curve(validated: Mapping[int, float], tested: int, width: int = 30) -> str:
    """Return one line of validation metrics by epoch from 1 as bars, with the best and the tested epoch; "" for fewer than two.

    Examples:
        >>> curve({1: 0.1, 2: 0.3, 3: 0.2}, tested=2)
        'validation NDCG@10: ▁█▅ best 0.3000, epoch 2 of 3'
    """
    validated = {epoch: value for epoch, value in validated.items() if math.isfinite(value)}
    if len(values := list(validated.values())) < 2:
        return ""
    ends = [round(part * len(values) / min(width, len(values))) for part in range(min(width, len(values)) + 1)]
    shown = [sum(values[start:end]) / (end - start) for start, end in pairwise(ends)]
    low, span = min(shown), (max(shown) - min(shown)) or 1.0
    bars = "".join(BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))] for value in shown)
    best = max(validated, key=validated.__getitem__)
    line = f"validation NDCG@10: {bars} best {validated[best]:.4f}, epoch {best} of {max(validated)}"
    if tested in (0, best):
        return line
    other = "before resuming" if tested < min(validated) else "not validated"
    return f"{line}; tested: epoch {tested}, {f'{validated[tested]:.4f}' if tested in validated else other}"
