"""Ranking metrics against brute force and against the figures of chance; signs and a known matrix by hand."""

import math
from collections.abc import Callable
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchmetrics import Metric

from zoo.data.list_metrics import ListMetrics, UserMetrics
from zoo.data.metrics import AverageRelativeError, RankingMetrics, SignAccuracy, rank_counts
from zoo.data.rows import SparseRows

CHANCE = {
    "hit_rate@5": 0.05,
    "ndcg@5": 0.029485,
    "mrr@5": 0.022833,
    "hit_rate@10": 0.1,
    "ndcg@10": 0.045436,
    "mrr@10": 0.029290,
}


def figures(positive: Tensor, others: Tensor, valid: Tensor | None = None, **kwargs: object) -> RankingMetrics:
    metric = RankingMetrics(**kwargs)  # type: ignore[arg-type]
    metric.update(*rank_counts(positive, others, valid))
    return metric


def at_rank(rank: int, k: int) -> tuple[float, float, float]:
    return (1.0, 1 / math.log2(rank + 1), 1 / rank) if rank <= k else (0.0, 0.0, 0.0)


def brute_force(positive: float, others: list[float], k: int) -> np.ndarray:
    """Mean over every order in which equal scores can be sorted; the positive is entry 0."""
    scores = [positive, *others]
    orders = [p for p in permutations(range(len(scores))) if all(scores[a] >= scores[b] for a, b in pairwise(p))]
    return np.mean([at_rank(order.index(0) + 1, k) for order in orders], axis=0)


@pytest.mark.parametrize("constant", [0.0, -3.5, math.inf])
def test_a_constant_scorer_gets_chance(constant: float) -> None:
    metric = figures(torch.full((7,), constant), torch.full((7, 99), constant))
    for key, value in CHANCE.items():
        assert float(metric.compute()[key]) == pytest.approx(value, abs=1e-6)
    assert all(float(value) == 0 for key, value in metric.compute().items() if key.startswith("pessimistic/"))


@settings(max_examples=60, deadline=None)
@given(positive=st.integers(0, 3), others=st.lists(st.integers(0, 3), min_size=1, max_size=6), k=st.integers(1, 8))
def test_expected_value_over_all_orders(positive: int, others: list[int], k: int) -> None:
    metric = figures(torch.tensor([float(positive)]), torch.tensor([others], dtype=torch.float32), ks=(k,))
    values = [float(metric.compute()[f"{name}@{k}"]) for name in ("hit_rate", "ndcg", "mrr")]
    assert values == pytest.approx(brute_force(positive, [float(o) for o in others], k), abs=1e-6)


def test_pessimistic_is_the_last_of_the_ties() -> None:
    metric = figures(torch.tensor([1.0]), torch.tensor([[1.0, 1.0, 0.0]]), ks=(2, 3), ties="pessimistic")
    assert float(metric.compute()["hit_rate@2"]) == 0
    assert float(metric.compute()["mrr@3"]) == pytest.approx(1 / 3)


def gathered(parts: list[Metric]) -> Metric:
    """What one process has once it has added up the states of all, each by its own rule."""
    for name, reduction in parts[0]._reductions.items():
        assert reduction is not None
        setattr(parts[0], name, reduction(torch.stack([getattr(part, name) for part in parts])))
    parts[0]._computed = None
    return parts[0]


@pytest.mark.parametrize("kind", ["ranking", "weighted", "lists", "users", "signs", "error"])
def test_halves_give_the_figure_of_the_whole_by_one_process_or_by_two(kind: str) -> None:
    generator = torch.Generator().manual_seed(3)
    positive, others = torch.rand(50, generator=generator), torch.rand(50, 20, generator=generator).round(decimals=1)
    listed = torch.randint(-1, 30, (50, 5), generator=generator)
    columns = SparseRows(torch.arange(0, 91, 3), torch.arange(90) % 29, torch.ones(90), 29)
    makes: dict[str, tuple[Callable[[], Metric], tuple[torch.Tensor, ...]]] = {
        "ranking": (RankingMetrics, rank_counts(positive.round(decimals=1), others)),
        "weighted": (RankingMetrics, (*rank_counts(positive, others), positive.double())),
        "lists": (lambda: ListMetrics(columns, (2, 5)), (listed, positive.double())),
        "users": (UserMetrics, (*rank_counts(positive, others), 1 + listed[:, 0].relu(), others[:, 0])),
        "signs": (SignAccuracy, (positive - 0.4, others[:, 0].sub(0.5).sign())),
        "error": (AverageRelativeError, (others, others.square())),
    }
    make, given = makes[kind]
    whole, parts = make(), [make(), make(), make()]
    whole.update(*given)
    for metric, sizes in ((parts[0], (slice(0, 13),)), (parts[1], (slice(13, 20), slice(20, 50)))):
        for size in sizes:
            metric.update(*(part[size] for part in given))
            parts[2].update(*(part[size] for part in given))
    expected, *found = (metric.compute() for metric in (whole, parts[2], gathered(parts[:2])))
    for name in expected if isinstance(expected, dict) else ():
        assert [float(one[name]) for one in found] == pytest.approx([float(expected[name])] * 2)
    if not isinstance(expected, dict):
        assert [float(one) for one in found] == pytest.approx([float(expected)] * 2)


def test_no_case_is_nan() -> None:
    metric = RankingMetrics()
    metric.update(torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    assert math.isnan(float(metric.compute()["ndcg@10"]))


@pytest.mark.parametrize(
    ("ks", "ties", "message"),
    [((), "expected", "at least 1"), ((0, 5), "expected", "at least 1"), ((5,), "best", "ties is 'best'")],
)
def test_bad_settings_are_refused(ks: tuple[int, ...], ties: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RankingMetrics(ks, ties)  # type: ignore[arg-type]


def test_signs_are_right_if_they_are_those_of_the_scores() -> None:
    metric = SignAccuracy()
    metric.update(torch.tensor([2.0, -0.1, 3.0, -4.0]), torch.tensor([1.0, -1.0, -1.0, 1.0]))
    assert float(metric.compute()) == 0.5
    metric.update(torch.tensor([1e-30, -1e-30]), torch.tensor([1.0, -1.0]))
    assert float(metric.compute()) == pytest.approx(4 / 6)
    metric.reset()
    metric.update(torch.zeros(0), torch.zeros(0))
    assert math.isnan(float(metric.compute()))


@pytest.mark.parametrize("score", [0.0, -0.0, math.nan])
def test_a_score_without_a_sign_is_wrong(score: float) -> None:
    metric = SignAccuracy()
    metric.update(torch.full((2,), score), torch.tensor([1.0, -1.0]))
    assert float(metric.compute()) == 0


def test_a_relative_error_is_that_of_squares() -> None:
    rng = np.random.default_rng(0)
    found, truth = rng.normal(size=(2, 6, 5))
    metric = AverageRelativeError()
    for part in (slice(0, 2), slice(2, 6)):
        metric.update(torch.tensor(found[part]), torch.tensor(truth[part]))
    assert float(metric.compute()) == pytest.approx(((found - truth) ** 2).sum() / (truth**2).sum(), rel=1e-12)
    for matrix, error in ((truth, 0.0), (0 * truth, 1.0), (3 * truth, 4.0)):
        metric.reset()
        metric.update(torch.tensor(matrix), torch.tensor(truth))
        assert float(metric.compute()) == pytest.approx(error)
    metric.reset()
    metric.update(torch.zeros(0, 5), torch.zeros(0, 5))
    assert math.isnan(float(metric.compute()))
