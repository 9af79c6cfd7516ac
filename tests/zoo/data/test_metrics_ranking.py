"""Ranking against brute force: ties, seen items, padding, several held-out items of one user."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zoo.data.best_items
import zoo.data.metrics
from zoo.data.batch_types import PredictBatch, RankingBatch
from zoo.data.best_items import best_unseen
from zoo.data.list_metrics import PhaseRanking
from zoo.data.metrics import full_counts, listed_items, rank_counts, sampled_counts

NUM_ITEMS = 8


@st.composite
def problems(draw: st.DrawFn) -> tuple[torch.Tensor, RankingBatch, list[set[int]], list[list[int]]]:
    """Scores with ties, cases of a few users, what each case has seen, and its candidates without padding."""
    scores, users, positives, seen, candidates = [], [], [], [], []
    for user in range(draw(st.integers(1, 3))):
        row = draw(st.lists(st.sampled_from([-1.0, 0.0, 2.0, math.inf, math.nan]), min_size=8, max_size=8))
        items = draw(st.permutations(range(NUM_ITEMS)))
        held_out, known = draw(st.integers(1, 3)), draw(st.integers(0, 4))
        for positive in items[:held_out]:
            scores.append(row)
            users.append(user)
            positives.append(positive)
            seen.append(set(items[: held_out + known]) - {positive})
            candidates.append(items[held_out + known :][: draw(st.integers(0, 3))])
    longest = max(map(len, candidates))
    padded = [[*own, *[-1] * (longest - len(own))] for own in candidates]
    entries = [(case, item) for case, items in enumerate(seen) for item in sorted(items)]
    batch = RankingBatch(
        torch.tensor(users),
        torch.tensor(positives),
        torch.tensor(padded, dtype=torch.long).reshape(len(users), longest),
        torch.tensor([case for case, _ in entries], dtype=torch.long),
        torch.tensor([item for _, item in entries], dtype=torch.long),
        torch.ones(len(users)),
        torch.tensor(sorted(out := draw(st.sets(st.integers(0, NUM_ITEMS - 1))) - {*positives}), dtype=torch.long),
    )
    return torch.tensor(scores), batch, [own | out for own in seen], candidates


def beaten(scores: list[float], positive: int, others: list[int]) -> tuple[int, int]:
    """How many of the others are above the positive and level with it; another's NaN is above all, the positive's below."""
    own = -math.inf if math.isnan(scores[positive]) else scores[positive]
    theirs = [scores[item] for item in others]
    return sum(math.isnan(score) or score > own for score in theirs), sum(score == own for score in theirs)


@settings(max_examples=80, deadline=None)
@given(problems(), st.sampled_from([5, 1 << 19]))
def test_a_positive_competes_with_all_that_its_user_has_not_seen_and_is_not_left_out(
    problem: tuple[torch.Tensor, RankingBatch, list[set[int]], list[list[int]]], at_once: int
) -> None:
    scores, batch, seen, _ = problem
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(zoo.data.metrics, "_AT_ONCE", at_once)
        found = torch.stack(full_counts(scores, batch), dim=1).tolist()
    for case, positive in enumerate(batch.positives.tolist()):
        others = [item for item in range(NUM_ITEMS) if item != positive and item not in seen[case]]
        assert tuple(found[case]) == beaten(scores[case].tolist(), positive, others)


@settings(max_examples=80, deadline=None)
@given(problems())
def test_a_positive_competes_with_its_own_candidates_and_no_padding(
    problem: tuple[torch.Tensor, RankingBatch, list[set[int]], list[list[int]]],
) -> None:
    scores, batch, _, candidates = problem
    listed = scores.gather(1, listed_items(batch))
    found = torch.stack(sampled_counts(listed, batch), dim=1).tolist()
    for case, positive in enumerate(batch.positives.tolist()):
        assert tuple(found[case]) == beaten(scores[case].tolist(), positive, candidates[case])


def test_many_cases_are_counted_a_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = torch.randn(7, 5).round()
    whole = rank_counts(scores[:, 0], scores)
    monkeypatch.setattr(zoo.data.metrics, "_AT_ONCE", 11)
    assert all(map(torch.equal, whole, rank_counts(scores[:, 0], scores)))
    assert [len(count) for count in rank_counts(scores[:0, 0], scores[:0])] == [0, 0]


def test_a_positive_alone_is_first() -> None:
    """Everything else is seen, so nothing is above or level with it; against itself it would tie."""
    others = torch.tensor([0, 1, 3])
    batch = RankingBatch(
        torch.tensor([0]), torch.tensor([2]), torch.full((1, 2), -1), torch.zeros(3).long(), others, torch.ones(1)
    )
    scores = torch.zeros(1, 4)
    assert torch.stack(full_counts(scores, batch)).tolist() == [[0], [0]]
    assert torch.stack(sampled_counts(scores.gather(1, listed_items(batch)), batch)).tolist() == [[0], [0]]


def recommended(scores: list[float], seen: list[int], k: int) -> list[int]:
    """The best unseen items of one user."""
    rows = torch.zeros(len(seen), dtype=torch.long)
    found = best_unseen(torch.tensor([scores]), PredictBatch(torch.tensor([7]), rows, torch.tensor(seen).long()), k)
    assert found.users.tolist() == [7]
    assert found.items.shape == found.scores.shape == (1, min(k, len(scores)))
    return found.items[0].tolist()


def test_the_best_unseen_items_come_first() -> None:
    assert recommended([0.5, 9.0, -3.0, 2.0, 1.0], seen=[1], k=3) == [3, 4, 0]
    assert recommended([math.inf, 9.0, math.nan, 2.0], seen=[1], k=2) == [0, 3]


def test_nothing_seen_is_recommended_where_little_is_unseen() -> None:
    assert recommended([5.0, 4.0, 3.0, 2.0], seen=[0, 1, 3], k=3) == [2, -1, -1]
    assert recommended([5.0, 4.0], seen=[0, 1], k=9) == [-1, -1]
    assert recommended([5.0, -9.0, 4.0], seen=[], k=9) == [0, 2, 1]


@pytest.mark.parametrize("kind", ["own", "shared", "learned", "inferred", "failing"])
def test_scores_are_left_as_they_are(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of which several have one place, or that nothing may write to, and where something fails meanwhile."""
    with torch.inference_mode(kind == "inferred"):
        row = torch.tensor([3.0, 1.0], requires_grad=kind == "learned")
        scores = row.expand(2, -1) if kind in ("shared", "learned") else row.repeat(2, 1)
    if kind == "failing":
        monkeypatch.setattr(zoo.data.best_items, "_highest", None)
    with pytest.raises(TypeError) if kind == "failing" else nullcontext():
        found = best_unseen(scores, PredictBatch(torch.arange(2), torch.tensor([0]), torch.tensor([0])), 1)
        assert found.items.tolist() == [[1], [0]], "what one has seen is not taken from another"
    assert scores.tolist() == [[3.0, 1.0]] * 2


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(1, 5), st.sampled_from([7, 64, 131, 411]))
def test_the_best_of_many_items_are_those_of_a_sort(seed: int, cases: int, k: int, num_items: int) -> None:
    """Whatever is looked at in groups, with NaN, infinities, ties and seen items in any order."""
    generator = np.random.default_rng(seed)
    scores = generator.choice(
        [*generator.normal(size=generator.choice([9, 5000])), 0.0, -np.inf], (cases, num_items)
    ).astype(np.float32)
    scores[generator.random(scores.shape) < generator.choice([0, 0.01])] = np.nan
    seen = np.unique(generator.integers(0, [cases, num_items], (2 * num_items, 2)), axis=0)
    rows, items = torch.from_numpy(generator.permutation(seen)).T
    given = torch.from_numpy(scores.copy())
    found = best_unseen(given, PredictBatch(torch.arange(cases), rows, items), k)
    assert np.array_equal(given.numpy(), scores, equal_nan=True), "scores are left as they are"
    scores[np.isnan(scores)] = -np.inf
    scores[seen[:, 0], seen[:, 1]] = -np.inf
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    expected = np.take_along_axis(scores, order, axis=1)
    assert np.array_equal(found.scores.numpy(), expected)
    assert np.array_equal(found.items.numpy(), np.where(np.isfinite(expected), order, -1)), "ties by item index"


def test_the_best_may_be_the_last_columns() -> None:
    """Which are in no group, as groups are of equal size."""
    assert recommended([float(item) for item in range(133)], seen=[131], k=1) == [132]


def at_rank(rank: int, k: int) -> np.ndarray:
    """Hit rate, NDCG and MRR."""
    return np.array([1, 1 / math.log2(rank + 1), 1 / rank]) if rank <= k else np.zeros(3)


def test_figures_are_means_over_cases_and_over_the_orders_of_equal_scores() -> None:
    ranking = PhaseRanking(full=True, sampled=True, ks=(2, 10), ties="expected")
    counts = {
        "full": (torch.tensor([0, 1, 4]), torch.tensor([0, 2, 1])),
        "sampled": (torch.tensor([0, 1, 1]), torch.tensor([0, 0, 0])),
    }
    ranking.update({kind: (num_better[:1], num_tied[:1]) for kind, (num_better, num_tied) in counts.items()})
    ranking.update({kind: (num_better[1:], num_tied[1:]) for kind, (num_better, num_tied) in counts.items()})
    cases, figures = ranking.cases_of(counts), ranking.compute()
    ranks = {"full": [[1], [2, 3, 4], [5, 6]], "sampled": [[1], [2], [2]]}
    for kind, of_cases in ranks.items():
        for k in (2, 10):
            expected = np.array([np.mean([at_rank(rank, k) for rank in tied], axis=0) for tied in of_cases])
            last = np.array([at_rank(tied[-1], k) for tied in of_cases])
            for number, name in enumerate(("hit_rate", "ndcg", "mrr")):
                assert cases[f"{kind}/{name}@{k}"].tolist() == pytest.approx(expected[:, number].tolist())
                assert float(figures[f"{kind}/{name}@{k}"]) == pytest.approx(expected[:, number].mean())
                if kind == "full":
                    pessimistic = float(figures[f"full/pessimistic/{name}@{k}"])
                    assert pessimistic == pytest.approx(last[:, number].mean())
    assert not any(name.startswith("sampled/pessimistic") for name in figures)
    ranking.update({kind: (num_better[:1], num_tied[:1]) for kind, (num_better, num_tied) in counts.items()})
    assert float(ranking.compute()["full/ndcg@10"]) == 1, "figures begin anew"


def test_only_what_is_asked_for_is_ranked() -> None:
    ranking = PhaseRanking(full=False, sampled=True, ks=(1,), ties="pessimistic")
    counts = {"sampled": (torch.tensor([0]), torch.tensor([1]))}
    ranking.update(counts)
    assert ranking.cases_of(counts)["sampled/ndcg@1"].tolist() == [0], "each case is told as its mean is"
    assert {name: float(value) for name, value in ranking.compute().items()} == {
        "sampled/hit_rate@1": 0,
        "sampled/ndcg@1": 0,
        "sampled/mrr@1": 0,
    }
