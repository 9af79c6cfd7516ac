"""UserKNN: neighbours of a user by target rows and release rows; the simplest transfer."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from zoo.data.batch_types import Batch
from zoo.data.rows import MOST_NUMBERS, DenseRows, LinkedRows, SparseRows
from zoo.methods.base import Outputs, Recommender
from zoo.methods.target_data import Sizes, TargetData
from zoo.nn.modules import ModulesOf
from zoo.runtime import checks


class UserKNN(Recommender):
    """Score an item by the similarity of its users: cosine of target rows plus cosine of release rows.

    The score of item ``i`` for user ``u`` is the sum of ``K(u, v) r_vi`` over the other users ``v`` and their training ratings.
    ``K`` is the cosine of the target rows, plus ``source_weight`` times the sum over the sources of the cosine of the release
    rows (0 without a row), plus ``popularity_weight``, which ranks items without a neighbour.

    Nothing is trained. Memory is a few dense matrices of ``chunk_size`` users x users, ``chunk_size`` x width and
    ``chunk_size`` x items.

    Reference: Herlocker, Konstan, Borchers, Riedl, *An Algorithmic Framework for Performing Collaborative Filtering*, SIGIR
    1999. Departures: missing ratings count as 0, so a score is a sum and no mean. By default all users are neighbours.
    Popularity is added, and powers replace significance weights.

    Args:
        source_weight: Weight of each release's cosines relative to the target's, at least 0.
        num_neighbours: Number of the largest ``K(u, v)`` of a user that count, with ties of the last; null: all.
        popularity_weight: Added to every ``K(u, v)``, after the neighbours are chosen; at least 0.
        similarity_power: Exponent of every cosine, above 0.
        popularity_damping: Exponent in [0, 1] of an item's rating count under its sum; 0: plain sums.
        centre: Whether the release's mean row is subtracted from its rows first.
        chunk_size: Users scored at once; fewer where their dense rows would have over 2^26 numbers.

    Examples:
        >>> import zoo
        >>> from datamodules import Synthetic
        >>> data = Synthetic(num_users=60, num_items=40)
        >>> run = zoo.fit(zoo.UserKNN(), data, publisher=zoo.NoisyRows(epsilon=8.0), max_epochs=1, enable_progress_bar=False)
        Data: target music...
        >>> model = zoo.load(run)
        >>> model.recommend(model.user_ids[:2], k=3).shape
        (6, 4)
    """

    batches = "full_batch"
    accepted_releases = frozenset({"rows", "ratings"})
    scores_cold_users = True
    scores_by_rows = True
    folds_in = "rows"

    def __init__(
        self,
        source_weight: float = 0.4,
        num_neighbours: int | None = None,
        popularity_weight: float = 0.0001,
        similarity_power: float = 1.0,
        popularity_damping: float = 0.0,
        centre: bool = True,
        chunk_size: int = 256,
    ) -> None:
        super().__init__()
        checks.not_negative(source_weight=source_weight, popularity_weight=popularity_weight)
        checks.positive(similarity_power=similarity_power)
        checks.shares(popularity_damping=popularity_damping)
        checks.at_least_one(chunk_size=chunk_size, num_neighbours=num_neighbours)
        self.source_weight, self.num_neighbours = source_weight, num_neighbours
        self.similarity_power, self.popularity_damping = similarity_power, popularity_damping
        self.popularity_weight, self.centre, self.chunk_size = popularity_weight, centre, chunk_size

    def build(self, sizes: Sizes) -> None:
        """Do nothing: the rows are the model."""

    def read_data(self, data: TargetData) -> None:
        """Also store the rows and their norms."""
        super().read_data(data)
        everybody = torch.arange(data.train.num_users)
        linked = {name: self.sources[name] for name in self.sources if self.sources[name].has_rows}
        widest = max(len(everybody), data.train.num_items, *(rows.rows.width for rows in linked.values()))
        self._at_once = max(1, min(self.chunk_size, MOST_NUMBERS // widest))
        self.target_cosine = Cosine(LinkedRows(self.target_rows, everybody), False, self._at_once)
        self.source_cosines: ModulesOf[Cosine] = ModulesOf(
            {name: Cosine(rows, self.centre, self._at_once) for name, rows in linked.items()}
        )

    def step(self, batch: Batch) -> Outputs:
        """Return nothing: there is nothing to solve."""
        return {}

    def kernel(self, users: Tensor) -> Tensor:
        """Return the weight of each user for the users (batch,), shape ``(num_users, batch)``; 0 for oneself."""
        return self._kernel(self.target_cosine(users), {n: c(users) for n, c in self.source_cosines.items()}, users)

    def _kernel(self, target: Tensor, sources: Mapping[str, Tensor], known: Tensor) -> Tensor:
        """Return the kernel of cosines (num_users, batch) for users of index ``known`` (batch,), -1 for new ones."""
        kernel = self._powered(target)
        for cosines in sources.values():
            kernel.add_(self._powered(cosines), alpha=self.source_weight)
        batch = (known >= 0).nonzero().squeeze(1)
        own = known[batch], batch
        if self.num_neighbours is not None:
            kernel[own] = -torch.inf
            count = min(self.num_neighbours, max(len(kernel) - 1, 1))
            kernel.masked_fill_(kernel < kernel.topk(count, dim=0).values[-1], 0)
        kernel[own] = 0
        return kernel

    def _powered(self, cosines: Tensor) -> Tensor:
        if self.similarity_power == 1:
            return cosines
        return cosines.abs().pow_(self.similarity_power).copysign_(cosines)

    def score_all(self, users: Tensor) -> Tensor:
        """Return the neighbours' rows, summed by kernel, plus the item counts; shape ``(batch, num_items)``."""
        return self._votes(self.kernel(chunk) for chunk in torch.split(users, self._at_once))

    def fold_in_scores(self, users: Tensor, known: Tensor) -> Tensor:
        """Return the same (batch, num_items) for the rows of users (batch,), who do not vote for themselves if they are known."""
        kernels = (self._folded(chunk, known[chunk]) for chunk in torch.split(users, self._at_once))
        return self._votes(kernels)

    def _folded(self, users: Tensor, known: Tensor) -> Tensor:
        target = self.target_cosine.of_rows(self.target_rows.dense(users))
        sources = {
            name: cosine.of_rows(self.source_rows(name, users)[0]) for name, cosine in self.source_cosines.items()
        }
        return self._kernel(target, sources, known)

    def user_similarities(self, users: Tensor) -> Tensor:
        """Return the kernel of users (batch,) with all users, shape ``(batch, num_users)``."""
        return self.kernel(users).T

    def _votes(self, kernels: Iterable[Tensor]) -> Tensor:
        voters = self.target_columns
        summed = torch.cat([voters.times(kernel).T for kernel in kernels])
        if self.popularity_damping:
            summed /= self.item_counts.clamp(min=1) ** self.popularity_damping
        return summed + self.popularity_weight * self.item_counts


class Cosine(nn.Module):
    """Cosines of rows of some users with those of all, batch by batch; 0 for an absent or zero row.

    Rows are read sparse or dense as stored. With ``centre`` the mean of all rows is subtracted, except from rows of zeros.
    """

    inverse_norms: Tensor
    mean: Tensor

    def __init__(self, linked: LinkedRows, centre: bool, chunk_size: int) -> None:
        super().__init__()
        self.linked = linked
        assert isinstance(linked.rows, SparseRows | DenseRows)  # what `reads` lets in
        self.rows: SparseRows | DenseRows = linked.rows
        mean = self.rows.mean() if centre else torch.zeros(self.rows.width, device=linked.links.device)
        self.register_buffer("mean", mean, persistent=False)
        everybody = torch.arange(len(linked.links), device=linked.links.device)
        norms = torch.cat([self._centred(users).norm(dim=1) for users in torch.split(everybody, chunk_size)])
        self.shortest = 1e-6 * float(norms.max())
        self.register_buffer("inverse_norms", self._inverse(norms), persistent=False)

    def _inverse(self, norms: Tensor) -> Tensor:
        """Return inverse norms; a row that is the mean up to rounding has no direction."""
        return torch.where(norms > self.shortest, norms.reciprocal(), 0)

    def _centred(self, users: Tensor) -> Tensor:
        rows, present = self.linked.dense(users)
        return (rows - self.mean) * (present & rows.any(dim=1))[:, None]

    def forward(self, users: Tensor) -> Tensor:
        """Return cosines with the users (batch,), shape ``(num_users, batch)``."""
        return self._with(self._centred(users) * self.inverse_norms[users, None])

    def of_rows(self, rows: Tensor) -> Tensor:
        """Return cosines with rows (batch, width) of anybody, shape ``(num_users, batch)``; 0 for a row of zeros."""
        centred = (rows - self.mean) * rows.any(dim=1)[:, None]
        return self._with(centred * self._inverse(centred.norm(dim=1))[:, None])

    def _with(self, rows: Tensor) -> Tensor:
        directions = rows.T
        products = self.rows.times(directions) - self.mean @ directions
        return products[self.linked.links.clamp(min=0)] * self.inverse_norms[:, None]
