"""References: metrics of chance and item counts on the cases of a test, and the course of validation."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from zoo.data.batch_types import Average
from zoo.data.metrics import METRICS, Ties, rank_counts, ranking_values

Figures = dict[str, float]
BLOCKS = "▁▂▃▄▅▆▇█"


def references(
    counts: Tensor,
    cases: Any,  # noqa: ANN401  held-out cases of any datamodule
    ks: Sequence[int],
    ties: Ties,
    full: bool,
    sampled: bool,
    average: Average = "cases",
) -> dict[str, Figures]:
    """Return exact metrics of chance and of item counts (Popularity) on held-out cases, under the names of a run's metrics.

    Chance is a tie of all items in expectation. No matrix of all items is made.

    Args:
        counts: Number of training ratings of each item, ``(num_items,)``.
        cases: `zoo.data.held_out_cases.HeldOutCases`.
        ks: Cut-offs.
        ties: Treatment of equal item counts.
        full: Whether to rank all items.
        sampled: Whether to rank sampled candidates.
        average: Whether each case counts once, or each user.
    """
    own = counts[cases.items]
    found: dict[str, Figures] = {"chance": {}, "popularity": {}}
    kinds = {}
    if sampled:
        listed = cases.candidates >= 0
        kinds["sampled"] = rank_counts(own, counts[cases.candidates.clamp(min=0)], listed), listed.sum(1)
    if full:
        kinds["full"] = _among_all(counts, own, cases)
    weights = 1 / cases.by_user.counts_of(cases.users).double()
    for kind, ((num_better, num_tied), others) in kinds.items():
        for name, ranked in (
            ("popularity", ranking_values(num_better, num_tied, ks, ties)),
            ("chance", ranking_values(torch.zeros_like(others), others, ks)),
        ):
            means = ranked.mean(2) if average == "cases" else ranked @ weights / weights.sum()
            found[name] |= {
                f"{kind}/{metric}@{k}": float(means[i, j]) for i, k in enumerate(ks) for j, metric in enumerate(METRICS)
            }
    return found


def _among_all(counts: Tensor, own: Tensor, cases: Any) -> tuple[tuple[Tensor, Tensor], Tensor]:  # noqa: ANN401
    """Return the numbers of unseen items with more ratings than each positive, with as many, and of all others: (cases,) each."""
    ordered = counts.sort().values
    after, before = (torch.searchsorted(ordered, own, right=right) for right in (True, False))
    bags = cases.seen.bags(cases.users)
    seen, mine = counts[bags.items], own[bags.rows]
    more, level = (
        torch.zeros_like(after).index_add_(0, bags.rows, part.long()) for part in (seen > mine, seen == mine)
    )
    # Left-out items have no rating, so none is above or level with a positive.
    # The positive is among the seen items, so it does not tie with itself.
    return (len(counts) - after - more, after - before - level), cases.num_others()


def in_words(found: Mapping[str, Figures], metric: str = "ndcg@10") -> str:
    """Return one line with the references' NDCG@10."""
    shown = {
        name: ", ".join(
            f"{key.split('/')[0]} {value:.4f}" for key, value in figures.items() if key.endswith(f"/{metric}")
        )
        for name, figures in found.items()
    }
    return f"NDCG@10 of Popularity: {shown['popularity']}; of chance: {shown['chance']}"


def curve(values: Sequence[float], width: int = 30) -> str:
    """Return one line of validation metrics by epoch as bars, and the best with its epoch from 1; "" for fewer than two.

    Examples:
        >>> curve([0.1, 0.3, 0.2])
        'validation NDCG@10: ▁█▅ best 0.3000, epoch 2 of 3'
    """
    if len(values) < 2:
        return ""
    ends = [round(part * len(values) / min(width, len(values))) for part in range(min(width, len(values)) + 1)]
    shown = [sum(values[start:end]) / (end - start) for start, end in pairwise(ends)]
    low, span = min(shown), (max(shown) - min(shown)) or 1.0
    bars = "".join(BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))] for value in shown)
    best = max(range(len(values)), key=values.__getitem__)
    return f"validation NDCG@10: {bars} best {values[best]:.4f}, epoch {best + 1} of {len(values)}"
