"""Metrics of lists and of users against brute force, and NDCG per user against trec_eval."""

import math
from itertools import combinations, permutations

import ir_measures
import numpy as np
import pytest
import torch
from ir_measures import nDCG

from tests.zoo.data.test_metrics import gathered
from zoo.data.batch_types import RankingBatch
from zoo.data.best_items import best_listed
from zoo.data.held_out_cases import HeldOutCases
from zoo.data.list_metrics import ListMetrics, PhaseRanking, case_auc
from zoo.data.metrics import full_counts
from zoo.data.rows import SparseRows

NUM_ITEMS, KS = 12, (2, 5)
Sets = list[set[int]]


def rows_of(sets: Sets, width: int) -> SparseRows:
    starts = torch.tensor([0, *map(len, sets)]).cumsum(0)
    items = torch.tensor([item for own in sets for item in sorted(own)], dtype=torch.long)
    return SparseRows(starts, items, torch.ones(len(items)), width)


def drawn(seed: int) -> tuple[np.random.Generator, Sets, Sets, HeldOutCases]:
    """Training and test items of users with 1 to 4 test items, and their cases in any order."""
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(NUM_ITEMS).tolist() for _ in range(7)]
    train, test = [{*order[:3]} for order in orders], [{*order[3 : 4 + user % 4]} for user, order in enumerate(orders)]
    pairs = torch.tensor([(user, item) for user, items in enumerate(test) for item in items])
    users, items = pairs[rng.permutation(len(pairs))].T.contiguous()
    seen = rows_of([a | b for a, b in zip(train, test, strict=True)], NUM_ITEMS)
    return rng, train, test, HeldOutCases(users, items, torch.zeros(len(users), 0), torch.ones(len(users)), seen)


def columns_of(train: Sets) -> SparseRows:
    """With weights that no metric reads."""
    rows = rows_of([{user for user, own in enumerate(train) if item in own} for item in range(NUM_ITEMS)], len(train))
    return SparseRows(rows.starts, rows.items, rows.weights.cumsum(0).cos(), rows.width)


def ranked(scores: torch.Tensor, cases: HeldOutCases, train: Sets) -> list[PhaseRanking]:
    """Two processes with batches of three cases."""
    made = [PhaseRanking(True, False, KS, "expected", columns_of(train)) for _ in range(2)]
    for number, index in enumerate(torch.arange(len(cases.users)).split(3)):
        batch, own = cases.batch(index), scores[cases.users[index]]
        counts = full_counts(own, batch)
        made[number % 2].update({"full": counts}, made[0].lists_of(own, batch, counts), batch)
    return made


def test_ndcg_per_user_is_that_of_trec_eval_and_gauc_a_count_of_pairs() -> None:
    rng, train, test, cases = drawn(0)
    scores = torch.from_numpy(rng.permuted(np.tile(np.arange(NUM_ITEMS, dtype=np.float32), (7, 1)), axis=1))
    first, second = (process.users for process in ranked(scores, cases, train))
    assert first is not None
    assert second is not None
    found = gathered([first, second]).compute()
    qrels = [ir_measures.Qrel(str(user), str(item), 1) for user, items in enumerate(test) for item in items]
    unknown = [(u, i) for u in range(7) for i in range(NUM_ITEMS) if i not in train[u]]
    run = [ir_measures.ScoredDoc(str(user), str(item), float(scores[user, item])) for user, item in unknown]
    for k in KS:
        assert float(found[f"user_ndcg@{k}"]) == pytest.approx(
            ir_measures.calc_aggregate([nDCG @ k], qrels, run)[nDCG @ k]
        )
    beaten = [
        [scores[u, i] > scores[u, j] for v, j in unknown if v == u and j not in test[u]]
        for u in range(7)
        for i in test[u]
    ]
    assert float(found["gauc"]) == pytest.approx(np.mean([np.mean(case) for case in beaten]))


@pytest.mark.parametrize("seed", range(4))
def test_ties_of_a_user_count_by_their_expectation(seed: int) -> None:
    """Over all orders in which the items that a user does not know can be sorted."""
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.integers(0, 3, (1, 6)).astype(np.float32))
    test = {*range(1, int(rng.integers(2, 5)))}  # item 0 is known
    cases = HeldOutCases(
        torch.zeros(len(test), dtype=torch.long), torch.tensor(sorted(test)), torch.zeros(len(test), 0),
        torch.ones(len(test)), rows_of([{0} | test], 6),
    )  # fmt: skip
    ranking = PhaseRanking(True, False, KS, "expected", rows_of([{0}, *[set()] * 5], 1))
    own, batch = scores.expand(len(test), -1), cases.batch(torch.arange(len(test)))
    counts = {"full": full_counts(own, batch)}
    ranking.update(counts, ranking.lists_of(own, batch, counts["full"]), batch)
    found, row = ranking.compute(), scores[0].tolist()
    orders = [o for o in permutations(range(1, 6)) if [row[i] for i in o] == sorted((row[i] for i in o), reverse=True)]
    for k in KS:
        gains = [sum(1 / math.log2(r + 2) for r, item in enumerate(order[:k]) if item in test) for order in orders]
        ideal = sum(1 / math.log2(r + 2) for r in range(min(k, len(test))))
        assert float(found[f"full/user_ndcg@{k}"]) == pytest.approx(np.mean(gains) / ideal, rel=1e-6)
    wins = [(row[i] > row[j]) + (row[i] == row[j]) / 2 for i in test for j in range(1, 6) if j not in test]
    assert float(found["full/gauc"]) == pytest.approx(np.mean(wins))


def test_lists_are_measured_as_one_by_one_and_begin_anew() -> None:
    rng, train, _, cases = drawn(1)
    scores = torch.from_numpy(rng.normal(size=(7, NUM_ITEMS)))
    batch = cases.batch(torch.arange(len(cases.users)))
    best = best_listed(scores[cases.users], batch, 5)
    dense = np.array([[item in own for own in train] for item in range(NUM_ITEMS)], dtype=float)  # items x users
    assert (dense.sum(1) == 0).any(), "an item without owners"
    ranking = ranked(scores, cases, train)[0]
    assert isinstance(ranking.lists, ListMetrics)
    ranking.lists.reset()
    for part in (best[:1], best[1:]):
        ranking.lists.update(part)
    each, found = ranking.lists.cases_of(best), ranking.lists.compute()
    for k in KS:
        lists = [[item for item in row[:k] if item >= 0] for row in best.tolist()]
        owners = [dense[own].sum(1) for own in lists]
        distances = []
        for own in lists:
            norms = [max(np.linalg.norm(dense[i]) * np.linalg.norm(dense[j]), 1) for i, j in combinations(own, 2)]
            distances.append(
                np.mean([1 - dense[i] @ dense[j] / n for (i, j), n in zip(combinations(own, 2), norms, strict=True)])
            )
        expected = {
            "novelty": [np.mean(np.log2(7 / np.maximum(own, 1))) for own in owners],
            "arp": [np.mean(own) for own in owners],
            "diversity": distances,
        }
        for name, values in expected.items():
            assert each[f"{name}@{k}"].tolist() == pytest.approx(values, rel=1e-5, abs=1e-6)
            assert float(found[f"{name}@{k}"]) == pytest.approx(np.mean(values), rel=1e-5)
        shown = np.bincount([item for own in lists for item in own], minlength=NUM_ITEMS)
        gaps = np.abs(shown[:, None] - shown).sum() / (
            2 * NUM_ITEMS * shown.sum()
        )  # half of the relative mean difference
        assert float(found[f"gini@{k}"]) == pytest.approx(gaps * NUM_ITEMS / (NUM_ITEMS - 1))
        assert float(found[f"coverage@{k}"]) == pytest.approx((shown > 0).mean())
    figures = ranking.compute()
    assert not any(name.startswith("sampled") for name in figures)
    again = ranking.compute()
    assert all(math.isnan(float(again[f"full/{name}"])) for name in ("novelty@2", "gini@2", "user_ndcg@2", "gauc"))
    assert float(again["full/coverage@2"]) == 0
    alone = torch.tensor([[0, -1]])
    assert float(ranking.lists.cases_of(alone)["diversity@2"]) == 0, "no pair"


def test_each_user_counts_once_if_the_mean_is_over_users() -> None:
    rng, train, _, cases = drawn(2)
    scores = torch.from_numpy(rng.normal(size=(7, NUM_ITEMS)))
    batch, own = cases.batch(torch.arange(len(cases.users))), scores[cases.users]
    ranking, counts = PhaseRanking(True, False, KS, "expected", columns_of(train), "users"), full_counts(own, batch)
    lists = ranking.lists_of(own, batch, counts)
    ranking.update({"full": counts}, lists, batch)
    values, found = ranking.cases_of({"full": counts}, lists), ranking.compute()
    for name in ("full/ndcg@5", "full/hit_rate@2", "full/diversity@5"):
        users = [float(values[name][cases.users == user].mean()) for user in range(7)]
        assert float(found[name]) == pytest.approx(np.mean(users), rel=1e-5)
        assert float(found[name]) != pytest.approx(float(values[name].mean()), rel=1e-5)


def test_a_list_is_as_long_as_there_are_items_to_rank() -> None:
    """Items 1 and 4 tie; 0 and 2 are seen, 3 is left out. Item 0 has one owner of four, item 1 two, item 4 none."""
    ranking = PhaseRanking(True, False, KS, "expected", rows_of([{0}, {0, 1}, set(), set(), set()], 4))
    none, scores = torch.zeros(0, dtype=torch.long), torch.tensor([[1.0, 2.0, 2.0, 5.0, 2.0]])
    seen = torch.tensor([0, 0]), torch.tensor([0, 2])
    batch = RankingBatch(
        torch.tensor([0]), torch.tensor([1]), none.reshape(1, 0), *seen, torch.ones(1), torch.tensor([3])
    )
    counts, before = full_counts(scores, batch), scores.clone()
    lists = ranking.lists_of(scores, batch, counts)
    assert lists is not None
    assert lists.best.tolist() == [[1, 4, -1, -1, -1]]
    assert torch.equal(scores, before)
    found = ranking.cases_of({"full": counts}, lists)
    assert [found[f"full/{name}"].item() for name in ("above", "level", "novelty@5")] == [0, 1, 1.5]


def test_an_auc_is_among_the_items_that_are_ranked() -> None:
    none = torch.zeros(0, dtype=torch.long)
    seen = torch.tensor([0, 0]), torch.tensor([1, 2])  # item 2 is both seen and left out
    batch = RankingBatch(
        none.new_zeros(2), torch.tensor([0, 4]), none.reshape(2, 0), *seen, torch.ones(2), torch.tensor([2, 3])
    )
    found = case_auc((torch.tensor([1, 0]), torch.tensor([1, 3])), batch, 6)
    assert found.tolist() == pytest.approx([1 - 1.5 / 2, 1 - 1.5 / 3])
    alone = batch._replace(positives=torch.tensor([0, 0]), seen_rows=none, seen_items=none, left_out=none)
    assert case_auc((none.new_zeros(2), none.new_zeros(2)), alone, 1).isnan().all()
