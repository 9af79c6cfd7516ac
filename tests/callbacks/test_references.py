"""References and the curve, against slow counts."""

import pytest
import torch

from callbacks.references import curve, in_words, references
from datamodules import Evaluation, Synthetic
from zoo.data.batch_types import Average
from zoo.data.metrics import Ties, full_counts, ranking_values, sampled_counts


@pytest.mark.parametrize(
    ("split", "ties", "average"),
    [("latest2", "expected", "cases"), ("ratio", "pessimistic", "users"), ("cold_start", "expected", "cases")],
)
def test_chance_and_item_counts_are_what_scores_of_them_would_reach(split: str, ties: Ties, average: Average) -> None:
    data = Synthetic(sources=(), num_users=25, num_items=30, ratings_per_user=8, seed=1, evaluation=Evaluation(split))  # type: ignore[arg-type]
    data.read_target()
    counts = torch.bincount(torch.from_numpy(data.train.matrix.indices).long(), minlength=data.train.num_items)
    found = references(counts, data.test, (5, 10), ties, True, True, average)
    batch = data.test.batch(torch.arange(len(data.test.users)))
    listed = torch.cat([batch.positives[:, None], batch.candidates.clamp(min=0)], dim=1)
    for name, scores in (("popularity", counts.float()), ("chance", torch.zeros(len(counts)))):
        every = scores.expand(len(batch.users), -1)
        slow = {"full": full_counts(every, batch), "sampled": sampled_counts(scores[listed], batch)}
        for kind, (num_better, num_tied) in slow.items():
            counted = ties if name == "popularity" else "expected"  # chance is a tie of all
            values = ranking_values(num_better, num_tied, (5, 10), counted)
            if average == "users":
                users = data.test.users.unique()
                values = torch.stack([values[:, :, batch.users == user].mean(2) for user in users], dim=2)
            values = values.mean(2)
            assert found[name][f"{kind}/hit_rate@5"] == pytest.approx(float(values[0, 0]), abs=1e-12)
            assert found[name][f"{kind}/ndcg@10"] == pytest.approx(float(values[1, 1]), abs=1e-12)
    assert f"NDCG@10 of Popularity: sampled {found['popularity']['sampled/ndcg@10']:.4f}, full" in in_words(found)


def test_a_curve_is_a_line_of_bars_with_its_best() -> None:
    assert curve([0.1]) == ""
    assert curve([0.0, 0.5, 1.0, 0.5]) == "validation NDCG@10: ▁▅█▅ best 1.0000, epoch 3 of 4"
    assert curve([0.2, 0.2]) == "validation NDCG@10: ▁▁ best 0.2000, epoch 1 of 2"
    long = curve([float(n) for n in range(200)], width=20)
    assert len(long.split()[2]) == 20
    assert long.endswith("best 199.0000, epoch 200 of 200")
