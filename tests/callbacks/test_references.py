"""References and the curve, against slow counts."""

import math

import numpy as np
import pytest
import torch

from callbacks.references import curve, in_words, references
from callbacks.run_report import references_of
from datamodules import Evaluation, Synthetic
from zoo.data.batch_types import Average
from zoo.data.metrics import Ties


@pytest.mark.parametrize(
    ("split", "ties", "average"),
    [("latest2", "expected", "cases"), ("ratio", "pessimistic", "users"), ("cold_start", "expected", "cases")],
)
def test_chance_and_item_counts_are_what_scores_of_them_would_reach(split: str, ties: Ties, average: Average) -> None:
    """A loop over cases and items, some of which no case ranks."""
    data = Synthetic(sources=(), num_users=25, num_items=30, ratings_per_user=8, seed=1, evaluation=Evaluation(split))  # type: ignore[arg-type]
    data.read_target()
    known, own = np.asarray(data.train.matrix.toarray() != 0).sum(0), set(data.test.items.tolist())
    left_out = torch.tensor([item for item in range(30) if item not in own][:3])
    cases = data.test._replace(left_out=left_out)
    found = references({"popularity": torch.from_numpy(known)}, cases, (5, 10), ties, True, True, average)
    hits: dict[str, list[float]] = {
        f"{name}/{kind}": [] for name in ("popularity", "chance") for kind in ("full", "sampled")
    }
    for at, (user, item) in enumerate(zip(cases.users.tolist(), cases.items.tolist(), strict=True)):
        seen = set(cases.seen.bags(torch.tensor([user])).items.tolist())
        others = {
            "full": set(range(30)) - seen - set(left_out.tolist()),
            "sampled": set(cases.candidates[at].tolist()) - {-1},
        }
        for kind, listed in others.items():
            better, level = (sum(sign == np.sign(known[j] - known[item]) for j in listed) for sign in (1, 0))
            best, worst = (better, better + level) if ties == "expected" else (better + level, better + level)
            hits[f"popularity/{kind}"].append(float(np.mean([rank < 5 for rank in range(best, worst + 1)])))
            hits[f"chance/{kind}"].append(min(5 / (len(listed) + 1), 1.0))
    for name, values in hits.items():
        rule, kind = name.split("/")
        weights = 1 / np.bincount(cases.users)[cases.users] if average == "users" else None
        assert found[rule][f"{kind}/hit_rate@5"] == pytest.approx(np.average(values, weights=weights), abs=1e-12)
    assert f"NDCG@10 of Popularity: sampled {found['popularity']['sampled/ndcg@10']:.4f}, full" in in_words(found)
    shown = references_of(data, "test")
    assert ("recent_popularity" in shown) == ("RecentPopularity" in in_words(shown)) == (split == "latest2")


def test_a_curve_is_a_line_of_bars_with_its_best() -> None:
    assert curve({1: 0.1}, 1) == ""
    line = "validation NDCG@10: ▁▅█▅ best 1.0000, epoch 3 of 4"
    values = {1: 0.0, 2: 0.5, 3: 1.0, 4: 0.5}
    assert curve(values, 3) == line
    assert curve(values, 4) == f"{line}; tested: epoch 4, 0.5000"
    resumed = "validation NDCG@10: ▁▁ best 0.2000, epoch 31 of 32; tested: epoch 23, before resuming"
    assert curve({31: 0.2, 32: 0.2}, 23) == resumed
    assert curve(values | {5: math.nan}, 5) == f"{line}; tested: epoch 5, not validated"
    long = curve({n + 1: float(n) for n in range(200)}, 200, width=20)
    assert len(long.split()[2]) == 20
    assert long.endswith("best 199.0000, epoch 200 of 200")
