"""Metrics of the full-ranking lists of a test: what they list, and where all test items of a user are in their list."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor, nn
from torchmetrics import Metric

from zoo.data.batch_types import Average, RankingBatch
from zoo.data.best_items import best_listed
from zoo.data.metrics import Counts, RankingMetrics, Ties, rank_counts, ranking_values, summed_discounts, weighted_sum
from zoo.data.rows import SparseRows

#: Expected and pessimistic metrics are both reported if they differ by more.
TIES_TOLERANCE = 1e-4

#: Entries of cases x users whose similarities are computed at once: at most 200 MiB, if everybody has every item.
_AT_ONCE = 1 << 24


class ListMetrics(Metric):
    """Coverage@K, Gini@K, novelty@K, ARP@K and diversity@K of the full-ranking lists of held-out cases.

    * coverage@K: the share of all items that are among the best K of some case (Ge, Delgado-Battenfeld and Jannach, *Beyond
      Accuracy: Evaluating Recommender Systems by Coverage and Serendipity*, RecSys 2010, section 3.1: catalog coverage).
    * gini@K: the Gini index of how often each item is listed: 0 if all items are listed equally often, 1 if one item is always
      listed alone (Shani and Gunawardana, *Evaluating Recommendation Systems*, Recommender Systems Handbook 2011, section 8.3.3).
    * novelty@K: the mean over the best K of ``log2(users / owners)`` bits, with ``owners`` the users who have the item in training,
      and the mean of that over cases (Zhou et al., *Solving the apparent diversity-accuracy dilemma of recommender systems*, PNAS
      2010: surprisal). Departure: an item without owners counts as one with one owner; in the paper it is infinite.
    * arp@K: average recommendation popularity, the mean of ``owners`` over the best K, and the mean of that over cases (Yin et
      al., *Challenging the Long Tail Recommendation*, VLDB 2012; Abdollahpouri, Burke and Mobasher, *Managing Popularity Bias in
      Recommender Systems with Personalized Re-ranking*, FLAIRS 2019).
    * diversity@K: intra-list distance, the mean over pairs of the best K of one minus the cosine of the items' training columns,
      and the mean of that over cases (Zhang and Hurley, *Avoiding Monotony: Improving the Diversity of Recommendation Lists*,
      RecSys 2008; Ziegler et al., WWW 2005, sum the similarities). An item without owners has distance 1; a list without a pair
      counts as 0.

    States are sums and counts, so several processes give the result of one.

    Args:
        columns: Training users of each item, one row per item, ``num_items`` rows of width ``num_users``.
        ks: Cut-offs.

    Examples:
        >>> import torch
        >>> columns = SparseRows(torch.tensor([0, 4, 6]), torch.tensor([0, 1, 2, 3, 0, 1]), torch.ones(6), width=4)
        >>> metric = ListMetrics(columns, ks=[2])
        >>> metric.update(best=torch.tensor([[0, 1], [0, -1]]))  # the best items of two cases
        >>> {name: round(float(value), 4) for name, value in metric.compute().items()}
        {'coverage@2': 1.0, 'gini@2': 0.3333, 'novelty@2': 0.25, 'arp@2': 3.5, 'diversity@2': 0.1464}
    """

    full_state_update = False
    listed: Tensor
    sums: Tensor
    total: Tensor
    owners: Tensor

    def __init__(self, columns: SparseRows, ks: Sequence[int] = (5, 10)) -> None:
        super().__init__()
        self.ks, self.num_users = tuple(ks), columns.width
        items, starts = (part.cpu().numpy() for part in (columns.items, columns.starts))
        owned = np.repeat(np.diff(starts), np.diff(starts))  # weights are not read: some are signs of private ratings
        units = csr_array((1 / np.sqrt(owned), items, starts), shape=(columns.num_rows, columns.width), copy=True)
        self.units = units  # columns of length 1, on the CPU
        self.register_buffer("owners", columns.counts().double(), persistent=False)
        self.add_state("listed", torch.zeros(len(ks), columns.num_rows, dtype=torch.long), dist_reduce_fx="sum")
        self.add_state("sums", torch.zeros(3 * len(ks), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, best: Tensor, weights: Tensor | None = None, values: Mapping[str, Tensor] | None = None) -> None:
        """Add lists of cases.

        Args:
            best: Items, best first, (cases, at least the largest K or all items), padded with -1.
            weights: Weights of means over cases, (cases,), by default 1; coverage and Gini count every list once.
            values: Result of `cases_of`, if available.
        """
        for i, k in enumerate(self.ks):
            items = best[:, :k]
            self.listed[i] += torch.bincount(items[items >= 0], minlength=self.listed.shape[1])
        values = self.cases_of(best) if values is None else values
        self.sums += weighted_sum(torch.stack([*values.values()]).double(), weights)
        self.total += len(best) if weights is None else weights.sum()

    def cases_of(self, best: Tensor) -> dict[str, Tensor]:
        """Return novelty, ARP and diversity of each list, float32, shape ``(cases,)``, by their names in ``compute``."""
        best = best[:, : max(self.ks)]
        owners = self.owners[best.clamp(min=0)]
        bits = torch.where(best >= 0, (self.num_users / owners.clamp(min=1)).log2(), 0.0)
        owners = torch.where(best >= 0, owners, 0.0)
        found: dict[str, Tensor] = {}
        for k in self.ks:
            size = (best[:, :k] >= 0).sum(1)
            pairs = size * (size - 1) / 2
            found[f"novelty@{k}"] = (bits[:, :k].sum(1) / size.clamp(min=1)).float()
            found[f"arp@{k}"] = (owners[:, :k].sum(1) / size.clamp(min=1)).float()
            distance = 1 - self._similarity(best[:, :k], (owners[:, :k] > 0).sum(1)) / pairs.clamp(min=1)
            found[f"diversity@{k}"] = torch.where(pairs > 0, distance.clamp(min=0), 0.0).float()
        return found

    def _similarity(self, best: Tensor, owned: Tensor) -> Tensor:
        """Return the cosines of all pairs of each list, summed, (cases,), float64; ``owned`` items of each have an owner.

        With columns of length 1 it is half of the squared length of their sum, less ``owned``: no loop over pairs.
        """
        num_items, num_users = self.units.shape
        found = []
        for lists in torch.split(best.cpu(), max(_AT_ONCE // max(num_users, 1), 1)):
            items = lists.numpy()
            ends = np.append(0, (items >= 0).sum(1).cumsum())
            ones = np.ones(ends[-1], dtype=np.float32)
            summed = csr_array((ones, items[items >= 0], ends), shape=(len(items), num_items)) @ self.units
            found.append(np.diff(np.append(0, np.square(summed.data, dtype=np.float64).cumsum())[summed.indptr]))
        return (torch.from_numpy(np.concatenate(found)).to(best.device) - owned) / 2

    def compute(self) -> dict[str, Tensor]:
        """Return metrics by names such as ``coverage@5``; without a case coverage is 0 and the others are NaN."""
        num_items = self.listed.shape[1]
        rising = self.listed.sort(1).values.double()  # (cut-offs, items)
        places = 2 * torch.arange(1, num_items + 1, device=rising.device) - num_items - 1
        gini = (rising @ places.double()) / (max(num_items - 1, 1) * rising.sum(1))
        coverage, means = (self.listed > 0).double().mean(1), (self.sums / self.total).view(len(self.ks), 3)
        table = torch.cat([coverage[:, None], gini[:, None], means], dim=1).float()
        names = ("coverage", "gini", "novelty", "arp", "diversity")
        return {f"{name}@{k}": table[i, j] for i, k in enumerate(self.ks) for j, name in enumerate(names)}


class UserMetrics(Metric):
    """NDCG@K of all test items of a user in one list, averaged over users, and GAUC.

    * user_ndcg@K: ``DCG@K / ideal DCG@K`` of a list of all items that the user did not know, with all their test items relevant
      (Järvelin and Kekäläinen, *Cumulated Gain-Based Evaluation of IR Techniques*, TOIS 2002; discount ``1 / log2(rank + 1)``).
      Each user counts once. Ties count by their expectation (McSherry and Najork, ECIR 2008). With one test item it is NDCG@K.
    * gauc: mean over users of the AUC of their test items against all other unknown items, weighted by their number of test items;
      a tie counts half (Zhu et al., *Optimized Cost per Click in Taobao Display Advertising*, KDD 2017; Zhou et al., *Deep Interest
      Network*, KDD 2018, section 6.3: weighted by impressions or clicks). A case without another item is left out.

    A case adds ``1 / log2(rank + 1)`` divided by the ideal DCG of its user, and 1 / (cases of the user) to the number of users. So
    states are sums, and the cases of a user may be in several batches and processes.

    Args:
        ks: Cut-offs.

    Examples:
        >>> import torch
        >>> metric = UserMetrics(ks=[2])
        >>> own = torch.tensor([0, 2]), torch.tensor([0, 0])  # a user's two test items have ranks 1 and 3
        >>> metric.update(*own, num_held_out=torch.tensor([2, 2]), auc=torch.tensor([1.0, 0.75]))
        >>> {name: round(float(value), 4) for name, value in metric.compute().items()}
        {'gauc': 0.875, 'user_ndcg@2': 0.6131}
    """

    full_state_update = False
    higher_is_better = True
    ndcg: Tensor
    users: Tensor
    auc: Tensor
    cases: Tensor

    def __init__(self, ks: Sequence[int] = (5, 10)) -> None:
        super().__init__()
        self.ks = tuple(ks)
        self.add_state("ndcg", torch.zeros(len(self.ks), dtype=torch.float64), dist_reduce_fx="sum")
        for name in ("users", "auc"):
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("cases", torch.zeros((), dtype=torch.long), dist_reduce_fx="sum")

    def update(self, num_better: Tensor, num_tied: Tensor, num_held_out: Tensor, auc: Tensor) -> None:
        """Add cases.

        Args:
            num_better: Number of better items in the user's list, the user's other test items included, ``(cases,)``.
            num_tied: Number of tied items in it, ``(cases,)``.
            num_held_out: Number of test items of the case's user, ``(cases,)``.
            auc: AUC of each case, NaN where there is none, ``(cases,)``.
        """
        gains = ranking_values(num_better, num_tied, self.ks)[:, 1]  # (cut-offs, cases)
        ideal = summed_discounts(max(self.ks))[:, 0].to(gains.device)
        ideals = torch.stack([ideal[num_held_out.clamp(max=k)] for k in self.ks])
        self.ndcg += (gains / ideals).sum(1)
        self.users += (1 / num_held_out.double()).sum()
        self.auc += auc.double().nansum()
        self.cases += (~auc.isnan()).sum()

    def compute(self) -> dict[str, Tensor]:
        """Return ``gauc``, ``user_ndcg@5``, ... so far, NaN without a case."""
        means = (self.ndcg / self.users).float()
        return {"gauc": (self.auc / self.cases).float()} | {f"user_ndcg@{k}": means[i] for i, k in enumerate(self.ks)}


def with_other_held_out(counts: Counts, scores: Tensor, batch: RankingBatch) -> Counts:
    """Return the counts of `full_counts` (cases,) with the user's other held-out items, by scores (cases, num_items)."""
    rows, items = batch.held_out_rows, batch.held_out_items
    positives = scores.gather(1, batch.positives[:, None]).squeeze(1)
    more = rank_counts(positives[rows], scores[rows, items, None])
    num_better, num_tied = (count.index_add(0, rows, other) for count, other in zip(counts, more, strict=True))
    return num_better, num_tied


def case_auc(counts: Counts, batch: RankingBatch, num_items: int) -> Tensor:
    """Return the share of the other ranked items that the positive beats, a tie counting half, ``(cases,)``; NaN without one."""
    num_better, num_tied = counts
    num_seen = torch.bincount(batch.seen_rows, minlength=len(num_better))
    if len(batch.left_out):
        hidden = torch.zeros(num_items, dtype=torch.bool, device=num_seen.device)
        hidden[batch.left_out] = True
        both = torch.bincount(batch.seen_rows[hidden[batch.seen_items]], minlength=len(num_better))
        num_seen = num_seen + len(batch.left_out) - both
    others = (num_items - 1 - num_seen).double()
    return (others - num_better - num_tied / 2) / others


class Lists(NamedTuple):
    """What is measured of the lists of a batch of cases."""

    best: Tensor  # best items, best first, (cases, k)
    values: dict[str, Tensor]  # novelty and so on of each list, by name, (cases,)
    own: Counts  # num_better and num_tied with the user's other held-out items, (cases,)
    num_held_out: Tensor  # (cases,)
    auc: Tensor  # (cases,)


class PhaseRanking(nn.Module):
    """Ranking metrics of the held-out cases of one phase, per case and averaged over all processes.

    Args:
        full: Whether to rank all items.
        sampled: Whether to rank sampled candidates.
        ks: Cut-offs.
        ties: Treatment of ties.
        columns: Training users of each item, to measure the full-ranking lists; None: they are not measured.
        average: Whether each case counts once, or each user.
    """

    def __init__(
        self,
        full: bool,
        sampled: bool,
        ks: Sequence[int],
        ties: Ties,
        columns: SparseRows | None = None,
        average: Average = "cases",
    ) -> None:
        super().__init__()
        kinds = {"sampled": sampled, "full": full}
        self.metrics = nn.ModuleDict({kind: RankingMetrics(ks, ties) for kind, wanted in kinds.items() if wanted})
        self.lists = None if columns is None else ListMetrics(columns, ks)
        self.users = None if columns is None else UserMetrics(ks)
        self.average = average

    def _metric(self, kind: str) -> RankingMetrics:
        metric = self.metrics[kind]
        assert isinstance(metric, RankingMetrics)
        return metric

    def lists_of(self, scores: Tensor, batch: RankingBatch, counts: Counts) -> Lists | None:
        """Return what is measured of lists by scores (cases, num_items) and their `full_counts`; None if nothing is."""
        if self.lists is None:
            return None
        best = best_listed(scores, batch, max(self.lists.ks))
        own, auc = with_other_held_out(counts, scores, batch), case_auc(counts, batch, scores.shape[1])
        return Lists(best, self.lists.cases_of(best), own, batch.num_held_out, auc)

    def update(self, counts: dict[str, Counts], lists: Lists | None = None, batch: RankingBatch | None = None) -> None:
        """Add cases: num_better and num_tied by kind, and lists; ``batch`` is needed to average over users."""
        weights = None if batch is None else batch.weights(self.average)
        for kind, (num_better, num_tied) in counts.items():
            self._metric(kind).update(num_better, num_tied, weights)
        if self.lists is not None and self.users is not None and lists is not None:
            self.lists.update(lists.best, weights, lists.values)
            self.users.update(*lists.own, lists.num_held_out, lists.auc)

    def cases_of(self, counts: dict[str, Counts], lists: Lists | None = None) -> dict[str, Tensor]:
        """Return metrics per case, shape ``(cases,)``, by names such as ``full/ndcg@10``, ``full/above`` and ``full/level``."""
        found: dict[str, Tensor] = {}
        for kind, (num_better, num_tied) in counts.items():
            figures = self._metric(kind).cases_of(num_better, num_tied)
            own = figures | {"above": num_better.int(), "level": num_tied.int()}
            found |= {f"{kind}/{name}": values for name, values in own.items()}
        if lists is not None:
            found |= {f"full/{name}": values for name, values in lists.values.items()}
            found["full/gauc"] = lists.auc.float()
        return found

    def compute(self) -> dict[str, Tensor]:
        """Return the means over all processes by the same names, and reset; pessimistic ones only if ties matter."""
        figures: dict[str, Tensor] = {}
        for kind in self.metrics:
            metric = self._metric(kind)
            values = metric.compute()
            chosen = {name: value for name, value in values.items() if not name.startswith("pessimistic/")}
            gaps = (abs(float(value - values[f"pessimistic/{name}"])) for name, value in chosen.items())
            if any(gap > TIES_TOLERANCE for gap in gaps):
                chosen = values
            figures |= {f"{kind}/{name}": value for name, value in chosen.items()}
            metric.reset()
        for own in (self.lists, self.users):
            if own is not None:
                figures |= {f"full/{name}": value for name, value in own.compute().items()}
                own.reset()
        return figures
