"""References: what chance and item counts reach on the very cases of a test, and how validation went, to read figures by."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

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
) -> dict[str, Figures]:
    """Return figures of ranking by chance and by item counts (Popularity) on held-out cases, under the names of a run's own.

    Both are exact: chance is a tie of all in expectation; ``ties`` is how ties of item counts are treated. ``counts``
    (num_items,) is how often each item occurs in training, ``cases`` are `zoo.data.evaluation.HeldOutCases`, ``ks`` cut-offs;
    ``full`` and ``sampled`` say which candidates are ranked. No matrix of all items is made.
    """
    own = counts[cases.items]
    found: dict[str, Figures] = {"chance": {}, "popularity": {}}
    kinds = {}
    if sampled:
        listed = cases.candidates >= 0
        kinds["sampled"] = rank_counts(own, counts[cases.candidates.clamp(min=0)], listed), listed.sum(1)
    if full:
        kinds["full"] = _among_all(counts, own, cases)
    for kind, ((higher, equal), others) in kinds.items():
        for name, ranked in (
            ("popularity", ranking_values(higher, equal, ks, ties)),
            ("chance", ranking_values(torch.zeros_like(others), others, ks)),
        ):
            means = ranked.mean(2)
            found[name] |= {
                f"{kind}/{metric}@{k}": float(means[i, j]) for i, k in enumerate(ks) for j, metric in enumerate(METRICS)
            }
    return found


def _among_all(counts: Tensor, own: Tensor, cases: Any) -> tuple[tuple[Tensor, Tensor], Tensor]:  # noqa: ANN401
    """How many unseen items have more ratings than each positive, and as many, and how many unseen others: (cases,) each."""
    ordered = counts.sort().values
    after, before = (torch.searchsorted(ordered, own, right=right) for right in (True, False))
    bags = cases.seen.bags(cases.users)
    seen, mine = counts[bags.items], own[bags.rows]
    more, level, all_seen = (
        torch.zeros_like(after).index_add_(0, bags.rows, part.long())
        for part in (seen > mine, seen == mine, torch.ones_like(seen))
    )
    # The positive is among the seen, so it does not tie with itself.
    return (len(counts) - after - more, after - before - level), len(counts) - all_seen


def in_words(found: Mapping[str, Figures], metric: str = "ndcg@10") -> str:
    """One line of the references' NDCG@10."""
    shown = {
        name: ", ".join(
            f"{key.split('/')[0]} {value:.4f}" for key, value in figures.items() if key.endswith(f"/{metric}")
        )
        for name, figures in found.items()
    }
    return f"NDCG@10 of Popularity: {shown['popularity']}; of chance: {shown['chance']}"


def curve(values: Sequence[float], width: int = 30) -> str:
    """One line of validation figures by epoch, as bars of text; the best with its epoch, from 1. Nothing for fewer than two."""
    if len(values) < 2:
        return ""
    ends = [round(part * len(values) / min(width, len(values))) for part in range(min(width, len(values)) + 1)]
    shown = [sum(values[start:end]) / (end - start) for start, end in pairwise(ends)]
    low, span = min(shown), (max(shown) - min(shown)) or 1.0
    bars = "".join(BLOCKS[round((value - low) / span * (len(BLOCKS) - 1))] for value in shown)
    best = max(range(len(values)), key=values.__getitem__)
    return f"validation NDCG@10: {bars} best {values[best]:.4f}, epoch {best + 1} of {len(values)}"
